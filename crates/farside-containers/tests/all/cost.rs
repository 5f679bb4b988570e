//! Cost models that are measured.

use farside::{LogGp, Result, SimOptions, Simulation, Worker, WorkerId};
use farside_containers::{CostModel, Load, Op, Promise};

fn every_worker_gets_the_same_model(me: &Worker) -> Result<()> {
    let model = CostModel::measure(me)?;
    let CostModel { put, get, cas, cas_persistent, fetch_add, fetch_add_single, call, .. } = model;
    let measured = [put, get, cas, cas_persistent, fetch_add, fetch_add_single, call];
    assert!(measured.iter().all(|cost| cost.is_finite() && *cost > 0.0), "{model:?}");
    assert!([model.handler, model.line_cold, model.line_contended, model.own].iter().all(|cost| *cost >= 0.0));
    let of_first = me.broadcast(WorkerId::FIRST, Some(measured).filter(|_| me.is_first()))?;
    assert_eq!(of_first, measured);
    let plan = model.plan(Op::Find, Promise::FIND_ONLY, Load::default());
    let cheapest = plan.predictions.iter().map(|prediction| prediction.ns).fold(f64::INFINITY, f64::min);
    assert!(plan.predictions.iter().any(|each| each.implementation == plan.choice && each.ns == cheapest));
    Ok(())
}

#[farside::test(processes = 2, threads = 2)]
fn by_processes(me: &Worker) -> Result<()> {
    every_worker_gets_the_same_model(me)
}

#[test]
fn by_eight_processes() {
    crate::by_eight(every_worker_gets_the_same_model, concat!(module_path!(), "::by_eight_processes"));
}

#[test]
fn simulated() {
    for (processes, threads, seed) in [(2, 1, 2), (3, 2, 3), (5, 1, 4)] {
        let options = SimOptions { network: LogGp::FDR, ..SimOptions::default() };
        let simulation = Simulation::new(processes, threads, seed).options(options);
        simulation
            .run(every_worker_gets_the_same_model)
            .unwrap()
            .verdict
            .unwrap_or_else(|error| panic!("{processes} x {threads}: {error}"));
    }
}

/// What is measured on a network with the published latencies are those latencies.
#[test]
fn the_published_table_is_measured() {
    let options = SimOptions { network: LogGp::ARIES, delay_max_ns: 0, ..SimOptions::default() };
    let simulated = Simulation::new(2, 1, 1).options(options).run(|me| {
        let model = CostModel::measure(me)?;
        let best = CostModel::CORI_BEST;
        let pairs = [
            (model.put, best.put),
            (model.get, best.get),
            (model.cas, best.cas),
            (model.cas_persistent, CostModel::CORI.cas_persistent),
            (model.fetch_add, best.fetch_add),
        ];
        for (found, published) in pairs {
            assert!((found / published - 1.0).abs() < 0.05, "{found} instead of {published}: {model:?}");
        }
        assert!(model.fetch_add_single > 1.2 * model.fetch_add, "the next one waits for the word: {model:?}");
        Ok(())
    });
    simulated.unwrap().verdict.unwrap();
}

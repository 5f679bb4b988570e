//! Cost models that are measured.

use std::time::{Duration, Instant};

use farside::{Error, LogGp, PerWorker, ProcessId, Result, SimOptions, Simulation, Worker, WorkerId};
use farside_containers::queue::Queue;
use farside_containers::{ContainerError, CostModel, Implementation, Load, Op, Plan, Promise};
use farside_testbed::scaled;

/// A machine on which calls cost nothing.
pub(crate) const CALLS_ARE_FREE: CostModel = CostModel { call: 0.0, ..CostModel::CORI };

/// Simulates few workers, because a measurement takes many operations.
pub(crate) fn simulated_measurements(body: fn(&Worker) -> Result<()>) {
    for (processes, threads, seed) in [(1, 1, 1), (3, 1, 2)].into_iter().take(scaled(1) as usize) {
        farside::simulate(processes, threads, seed, body).unwrap();
    }
}

/// All workers have chosen the same implementation, out of these.
pub(crate) fn assert_chosen_together(me: &Worker, chosen: Implementation, all: &[Implementation]) -> Result<()> {
    let place = all.iter().position(|each| *each == chosen).expect("one of the container");
    assert_eq!(place, me.broadcast(WorkerId::FIRST, Some(place).filter(|_| me.is_first()))?);
    Ok(())
}

/// A plan predicts and prints all of these, and chooses the first.
pub(crate) fn assert_names_all(plan: &Plan, all: &[Implementation]) {
    assert_eq!(plan.predictions.len(), all.len());
    assert_eq!(plan.choice, plan.predictions[0].implementation);
    let text = plan.to_string();
    assert!(all.iter().all(|each| text.contains(&each.to_string())), "{text}");
}

fn every_worker_gets_the_same_model(me: &Worker) -> Result<()> {
    let model = CostModel::measure(me)?;
    let CostModel { put, get, cas, cas_single, cas_persistent, fetch_add, fetch_add_single, call, .. } = model;
    let measured = [put, get, cas, cas_single, cas_persistent, fetch_add, fetch_add_single, call];
    assert!(measured.iter().all(|cost| cost.is_finite() && *cost > 0.0), "{model:?}");
    assert!([model.handler, model.line_cold, model.line_contended, model.own].iter().all(|cost| *cost >= 0.0));
    let of_first = me.broadcast(WorkerId::FIRST, Some(measured).filter(|_| me.is_first()))?;
    assert_eq!(of_first, measured);
    let plan = model.plan(Op::Find, Promise::FIND_ONLY, Load::default());
    let cheapest = plan.predictions.iter().map(|prediction| prediction.ns).fold(f64::INFINITY, f64::min);
    assert!(plan.predictions.iter().any(|each| each.implementation == plan.choice && each.ns == cheapest));
    Ok(())
}

#[farside::test(processes = 2, threads = 2, timeout_s = 600)]
fn by_processes(me: &Worker) -> Result<()> {
    every_worker_gets_the_same_model(me)
}

mod deep {
    #[test]
    fn by_eight_processes() {
        crate::by_eight(super::every_worker_gets_the_same_model, concat!(module_path!(), "::by_eight_processes"));
    }
}

#[test]
fn simulated() {
    for (processes, threads, seed) in [(2, 1, 2), (3, 2, 3), (5, 1, 4)].into_iter().take(scaled(1) as usize) {
        let options = SimOptions { network: LogGp::FDR, ..SimOptions::default() };
        let simulation = Simulation::new(processes, threads, seed).options(options);
        simulation
            .run(every_worker_gets_the_same_model)
            .unwrap()
            .verdict
            .unwrap_or_else(|error| panic!("{processes} x {threads}: {error}"));
    }
}

/// On a network with the published latencies, those latencies are measured.
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

/// The predictions for queues follow what the queues do: on a network with the published latencies,
/// operations of one remote worker take as long as predicted.
#[test]
fn operations_of_queues_cost_what_is_predicted() {
    const COUNT: u64 = 50;
    let options = SimOptions { network: LogGp::ARIES, delay_max_ns: 0, ..SimOptions::default() };
    let simulated = Simulation::new(2, 1, 1).options(options).run(|me| {
        for by in [Implementation::OneSided, Implementation::Checksum] {
            let queue = Queue::<u64>::with_implementation(me, ProcessId::new(0), 4 * COUNT, by)?;
            let ends = queue.on(me);
            let measure = |op: Op, promise: Promise| -> Result<()> {
                let operate = |number| match op {
                    Op::Push => ends.push(number).map(drop),
                    _ => ends.pop().map(|item| assert_eq!(item, Some(number))),
                };
                if !me.is_first() {
                    // The first ones connect, and look at the counters.
                    (0..2).try_for_each(operate)?;
                    let start = me.now();
                    (2..COUNT).try_for_each(operate)?;
                    let found = (me.now() - start).as_nanos() as f64 / (COUNT - 2) as f64;
                    let predicted = CostModel::CORI_BEST.predict(by, op, promise, Load::default()).unwrap().ns;
                    let ratio = found / predicted;
                    assert!((0.9..1.1).contains(&ratio), "{op:?}, {by}, {promise}: {found}, not {predicted}");
                }
                me.barrier()
            };
            measure(Op::Push, Promise::ALL)?;
            measure(Op::Pop, Promise::ALL)?;
            let pushing = ends.pushing()?;
            measure(Op::Push, Promise::PUSH_ONLY)?;
            pushing.end()?;
            let popping = ends.popping()?;
            measure(Op::Pop, Promise::POP_ONLY)?;
            popping.end()?;
            queue.free(me)?;
        }
        Ok(())
    });
    simulated.unwrap().verdict.unwrap();
}

/// An error of one worker, here that of a call which arrives while all look at their neighbours,
/// ends the choice on all workers. None waits for the others.
#[test]
fn an_error_on_one_worker_ends_the_choice_on_all() {
    const VICTIM: WorkerId = WorkerId::new(1);
    const ARRIVES: Duration = Duration::from_micros(300);
    /// Travels until it is time, and then fails at the victim.
    fn roam(there: &Worker, begun: PerWorker<Instant>) -> std::result::Result<(), &'static str> {
        let is_time = there.now() - *begun.here(there) >= ARRIVES;
        let to = if is_time { VICTIM } else { there.neighbor(1) };
        match is_time && there.id() == VICTIM {
            true => Err("as planned"),
            false => there.call(to, begun, roam).map_err(|_| "refused"),
        }
    }
    let run = |me: &Worker| {
        let begun = PerWorker::new(me, me.now())?;
        if me.is_first() {
            me.call(VICTIM, begun, roam)?;
        }
        let made = Queue::<u64>::with_implementation(me, ProcessId::new(0), 10, Implementation::Auto);
        let error = made.expect_err("no worker gets a queue");
        assert!(me.now() - *begun.here(me) < Duration::from_secs(1), "{error}");
        match me.id() {
            VICTIM => assert!(matches!(error, Error::HandlerFailed { .. }), "{error:?}"),
            _ => assert!(matches!(error.room_error(), Some(ContainerError::Failed { at: VICTIM, .. })), "{error:?}"),
        }
        // The collectives that follow are in step.
        Queue::<u64>::with_implementation(me, ProcessId::new(0), 10, Implementation::OneSided)?.free(me)
    };
    Simulation::new(3, 1, 1).run(run).unwrap().verdict.unwrap();
}

//! The choice of an implementation, and the predictions that it follows from.

use std::time::Duration;

use farside::{Result, Simulation, Worker};
use farside_containers::map::{HashMap, MapError};
use farside_containers::{CostModel, Implementation, Op, Promise};

use super::faults::map_error;
use super::{IMPLEMENTATIONS, Value, compare};
use crate::cost::{CALLS_ARE_FREE, assert_chosen_together, assert_names_all};
use crate::everywhere;

/// A machine on which calls cost as much as ten operations.
const CALLS_ARE_DEAR: CostModel = CostModel { call: 40_000.0, ..CostModel::CORI };

/// Whatever a map chooses, all workers choose it, and it is a map.
fn all_choose_the_same(me: &Worker) -> Result<()> {
    let map = HashMap::<u64, Value>::builder().implementation(Implementation::Auto).build(me)?;
    let m = map.on(me);
    assert_chosen_together(me, m.implementation(), &IMPLEMENTATIONS)?;
    for (op, promise) in [(Op::Insert, Promise::ALL), (Op::Find, Promise::FIND_ONLY), (Op::FindMiss, Promise::LOCAL)] {
        assert_names_all(&m.plan(op, promise), &IMPLEMENTATIONS);
    }
    let own = u64::from(me.id().number());
    let keys: Vec<_> = (0..10).map(|key| key * u64::from(me.worker_count()) + own).collect();
    compare(me, &m, &keys, 30, 1)?;
    map.free(me)
}
everywhere!(auto, super::all_choose_the_same, crate::cost::simulated_measurements);

/// The cheaper implementation is chosen, by the model of worker 0.
#[test]
fn the_cheapest_is_chosen() {
    let run = |me: &Worker| {
        let auto = HashMap::<u64, u64>::builder().implementation(Implementation::Auto);
        let models = [(CALLS_ARE_DEAR, Implementation::OneSided), (CALLS_ARE_FREE, Implementation::Call)];
        for ((of_first, expected), (of_others, _)) in models.into_iter().zip(models.into_iter().rev()) {
            let map = auto.cost_model(if me.is_first() { of_first } else { of_others }).build(me)?;
            assert_eq!(map.on(me).implementation(), expected);
            map.on(me).insert(1, 1)?;
            assert_eq!(map.on(me).get(&1)?, Some(1));
            me.barrier()?;
        }
        // What was asked for is not overruled, and the plan shows what is better.
        let asked = auto.implementation(Implementation::OneSided).cost_model(CALLS_ARE_FREE).build(me)?;
        assert_eq!(asked.on(me).implementation(), Implementation::OneSided);
        assert_eq!(asked.on(me).plan(Op::Find, Promise::ALL).choice, Implementation::Call);
        me.barrier()
    };
    Simulation::new(3, 1, 1).run(run).unwrap().verdict.unwrap();
}

/// A fuller map takes more probes.
#[test]
fn predictions_follow_the_capacity() {
    let run = |me: &Worker| {
        let insertion = |capacity| {
            let map = HashMap::<u64, u64>::builder().capacity(capacity).cost_model(CostModel::CORI).build(me)?;
            let plan = map.on(me).plan(Op::Insert, Promise::ALL);
            let one_sided = plan.predictions.iter().find(|one| one.implementation == Implementation::OneSided);
            Ok::<_, farside::Error>(one_sided.unwrap().ns)
        };
        // Of 2 x 1024 slots, three quarters and a little more than three eighths.
        assert!(insertion(1536)? > insertion(800)?);
        me.barrier()
    };
    Simulation::new(2, 1, 1).run(run).unwrap().verdict.unwrap();
}

/// Workers that do not agree whether to measure get an error.
#[test]
fn a_model_on_one_worker_is_refused() {
    let run = |me: &Worker| {
        let auto = HashMap::<u64, u64>::builder().implementation(Implementation::Auto);
        let made = if me.is_first() { auto } else { auto.cost_model(CostModel::CORI) }.build(me);
        assert!(matches!(map_error(&made), MapError::Unequal { .. }), "{made:?}");
        me.barrier()
    };
    Simulation::new(2, 1, 1).run(run).unwrap().verdict.unwrap();
}

/// A map without a model follows a preset, and says so.
#[test]
fn a_plan_without_a_model_says_so() {
    let run = |me: &Worker| {
        let plan = HashMap::<u64, u64>::new(me, 10)?.on(me).plan(Op::Find, Promise::ALL);
        assert!(plan.to_string().contains("no cost model of its own"), "{plan}");
        Ok(())
    };
    Simulation::new(1, 1, 1).run(run).unwrap().verdict.unwrap();
}

/// Calls are cheapest while owners wait for them, and not while owners compute. A map that chooses
/// again follows that, and keeps its entries. One that was not to choose does not change.
#[test]
fn a_map_chooses_again() {
    let run = |me: &Worker| {
        let auto = HashMap::<u64, u64>::builder().cost_model(CostModel { call: 7000.0, ..CostModel::CORI });
        let map = auto.implementation(Implementation::Auto).build(me)?;
        let asked = auto.implementation(Implementation::Call).build(me)?;
        let (m, own) = (map.on(me), u64::from(me.id().number()));
        assert_eq!(m.implementation(), Implementation::Call);
        let mut expected = vec![Implementation::OneSided, Implementation::OneSided, Implementation::Call];
        for (round, expected) in (0..).zip(expected.drain(..)) {
            m.insert(10 * round + own, round)?;
            me.barrier()?;
            // In the first two rounds, all but worker 0 compute.
            if round < 2 && !me.is_first() {
                for _ in 0..400 {
                    me.charge(Duration::from_micros(128));
                    me.progress()?;
                }
            }
            assert_eq!(m.choose_again()?, expected, "round {round}");
            assert_eq!(m.implementation(), expected);
            assert_eq!(asked.on(me).choose_again()?, Implementation::Call);
            for key in (0..=round).flat_map(|round| (0..3).map(move |own| 10 * round + own)) {
                assert_eq!(m.get(&key)?, Some(key / 10));
            }
            me.barrier()?;
        }
        asked.free(me)?;
        map.free(me)
    };
    Simulation::new(3, 1, 1).run(run).unwrap().verdict.unwrap();
}

#[test]
#[should_panic(expected = "maps have no Push")]
fn a_map_plans_no_push() {
    let run = |me: &Worker| {
        let map = HashMap::<u64, u64>::builder().cost_model(CostModel::CORI).build(me)?;
        map.on(me).plan(Op::Push, Promise::ALL);
        Ok(())
    };
    Simulation::new(1, 1, 1).run(run).unwrap().verdict.unwrap();
}

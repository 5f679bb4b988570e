//! The choice of an implementation, and the predictions that it follows from.

use std::time::Duration;

use farside::{ProcessId, Result, Simulation, Worker};
use farside_containers::queue::{Queue, QueueSet};
use farside_containers::{CostModel, Implementation, Op, Promise};

use super::{ALL, agrees_with_a_deque, host};
use crate::cost::{CALLS_ARE_FREE, assert_chosen_together, assert_names_all};
use crate::everywhere;

/// A machine on which calls cost as much as ten operations. Gets cost nothing, so a stamp is as
/// cheap as a checksum.
const CALLS_ARE_DEAR: CostModel = CostModel { call: 40_000.0, get: 0.0, ..CostModel::CORI };
/// One on which gets cost much, so that a checksum saves most.
const GETS_ARE_DEAR: CostModel = CostModel { call: 40_000.0, ..CostModel::CORI };

/// Whatever a queue chooses, all workers choose it, and it is a queue.
fn all_choose_the_same(me: &Worker) -> Result<()> {
    let queue = Queue::with_implementation(me, host(me), 8, Implementation::Auto)?;
    let ends = queue.on(me);
    assert_chosen_together(me, ends.implementation(), &ALL)?;
    for (op, promise) in [(Op::Push, Promise::ALL), (Op::Pop, Promise::POP_ONLY), (Op::Pop, Promise::LOCAL)] {
        assert_names_all(&ends.plan(op, promise), &ALL);
    }
    for turn in me.workers() {
        me.barrier()?;
        if me.id() == turn {
            agrees_with_a_deque(&ends, u64::from(turn.number()))?;
            ends.clear()?;
        }
    }
    queue.free(me)
}
everywhere!(auto, super::all_choose_the_same, crate::cost::simulated_measurements);

/// The cheapest implementation is chosen, by the model of worker 0.
#[test]
fn the_cheapest_is_chosen() {
    let run = |me: &Worker| {
        let (first, auto) = (ProcessId::new(0), Implementation::Auto);
        let models = [
            (CALLS_ARE_DEAR, Implementation::OneSided),
            (GETS_ARE_DEAR, Implementation::Checksum),
            (CALLS_ARE_FREE, Implementation::Call),
        ];
        for ((of_first, expected), (of_others, _)) in models.into_iter().zip(models.into_iter().rev()) {
            let model = if me.is_first() { of_first } else { of_others };
            let queue = Queue::<u64>::with_cost_model(me, first, 10, auto, model)?;
            assert_eq!(queue.on(me).implementation(), expected);
            let set = QueueSet::with_cost_model(me, 10, auto, model)?;
            assert_eq!(set.at(me.process()).on(me).implementation(), expected);
            assert_eq!(set.at(first).on(me).push(me.id().number())?, Ok(()));
            me.barrier()?;
            assert_eq!(set.at(first).on(me).len()?, u64::from(me.worker_count()));
            set.free(me)?;
            queue.free(me)?;
        }
        // What was asked for is not overruled, and the plan shows what is better.
        let asked = Implementation::Checksum;
        let queue = Queue::<u64>::with_cost_model(me, first, 10, asked, CALLS_ARE_FREE)?;
        assert_eq!(queue.on(me).implementation(), asked);
        assert_eq!(queue.on(me).plan(Op::Pop, Promise::ALL).choice, Implementation::Call);
        queue.free(me)
    };
    Simulation::new(3, 1, 1).run(run).unwrap().verdict.unwrap();
}

/// Calls are cheapest while owners wait for them, and not while owners compute. Queues that choose
/// again follow that, keep their items and their order, and bear ends that were made before. One
/// that was not to choose does not change.
#[test]
fn queues_choose_again() {
    use Implementation::{Call, OneSided};
    let run = |me: &Worker| {
        let model = CostModel { call: 7000.0, ..CALLS_ARE_DEAR };
        let set = QueueSet::<u64>::with_cost_model(me, 100, Implementation::Auto, model)?;
        let asked = Queue::<u64>::with_cost_model(me, ProcessId::new(0), 100, Call, model)?;
        let next = set.at(me.process_of(me.neighbor(1))).on(me);
        assert_eq!(next.implementation(), Call);
        let mut pushed = 0;
        for (round, expected) in [OneSided, OneSided, Call].into_iter().enumerate() {
            for _ in 0..10 {
                assert_eq!(next.push(pushed)?, Ok(()));
                pushed += 1;
            }
            me.barrier()?;
            // In the first two rounds, all but worker 0 compute.
            if round < 2 && !me.is_first() {
                for _ in 0..400 {
                    me.charge(Duration::from_micros(128));
                    me.progress()?;
                }
            }
            assert_eq!(set.choose_again(me)?, expected, "round {round}");
            assert_eq!(next.implementation(), expected);
            assert_eq!(asked.choose_again(me)?, Call);
            let own = set.at(me.process()).on(me);
            assert_eq!(own.len()?, 8 * round as u64 + 10);
            assert_eq!(own.pop_many(2)?, [2 * round as u64, 2 * round as u64 + 1]);
            me.barrier()?;
        }
        set.free(me)?;
        asked.free(me)
    };
    Simulation::new(3, 1, 1).run(run).unwrap().verdict.unwrap();
}

/// A queue without a model follows a preset, and says so.
#[test]
fn a_plan_without_a_model_says_so() {
    let run = |me: &Worker| {
        let plan = Queue::<u64>::new(me, me.process(), 10)?.on(me).plan(Op::Push, Promise::ALL);
        assert!(plan.to_string().contains("no cost model of its own"), "{plan}");
        Ok(())
    };
    Simulation::new(1, 1, 1).run(run).unwrap().verdict.unwrap();
}

/// At a single queue, all workers change one word at the same time.
#[test]
fn a_queue_expects_its_workers() {
    let run = |me: &Worker| {
        let (first, model) = (ProcessId::new(0), CostModel { line_contended: 1000.0, ..CostModel::CORI });
        let asked = Implementation::OneSided;
        let queue = Queue::<u64>::with_cost_model(me, first, 10, asked, model)?;
        let set = QueueSet::<u64>::with_cost_model(me, 10, asked, model)?;
        let push = |queue: Queue<u64>| {
            let plan = queue.on(me).plan(Op::Push, Promise::ALL);
            plan.predictions.iter().find(|found| found.implementation == asked).map(|found| found.ns)
        };
        let [alone, together] = [set.at(first), queue].map(|queue| push(queue).expect("a prediction"));
        assert!((together - alone - 2000.0).abs() < 1.0, "{alone} and {together}");
        set.free(me)?;
        queue.free(me)
    };
    Simulation::new(3, 1, 1).run(run).unwrap().verdict.unwrap();
}

#[test]
#[should_panic(expected = "queues have no Insert")]
fn a_queue_plans_no_insertion() {
    let run = |me: &Worker| {
        let queue = Queue::<u64>::with_cost_model(me, me.process(), 10, Implementation::Auto, CostModel::CORI)?;
        queue.on(me).plan(Op::Insert, Promise::ALL);
        Ok(())
    };
    Simulation::new(1, 1, 1).run(run).unwrap().verdict.unwrap();
}

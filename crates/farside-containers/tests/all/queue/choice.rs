//! The choice of an implementation, and the predictions that it follows from.

use farside::{ProcessId, Result, Simulation, Worker, WorkerId};
use farside_containers::queue::{Queue, QueueSet};
use farside_containers::{CostModel, Implementation, Op, Promise};

use super::{ALL, agrees_with_a_deque, host};
use crate::everywhere;

/// A machine on which calls cost nothing.
const CALLS_ARE_FREE: CostModel = CostModel { call: 0.0, ..CostModel::CORI };
/// One on which they cost as much as ten operations. Gets cost nothing, so a stamp is as cheap as a
/// checksum.
const CALLS_ARE_DEAR: CostModel = CostModel { call: 40_000.0, get: 0.0, ..CostModel::CORI };
/// One on which gets cost much, so that a checksum saves most.
const GETS_ARE_DEAR: CostModel = CostModel { call: 40_000.0, ..CostModel::CORI };

/// Whatever a queue chooses, all workers choose it, and it is a queue.
fn all_choose_the_same(me: &Worker) -> Result<()> {
    let queue = Queue::with_implementation(me, host(me), 8, Implementation::Auto)?;
    let ends = queue.on(me);
    let place = |chosen| ALL.iter().position(|each| *each == chosen).expect("one of a queue");
    let of_first = Some(place(ends.implementation())).filter(|_| me.is_first());
    assert_eq!(place(ends.implementation()), me.broadcast(WorkerId::FIRST, of_first)?);
    for (op, promise) in [(Op::Push, Promise::ALL), (Op::Pop, Promise::POP_ONLY), (Op::Pop, Promise::LOCAL)] {
        let plan = ends.plan(op, promise);
        assert_eq!(plan.predictions.len(), ALL.len());
        assert_eq!(plan.choice, plan.predictions[0].implementation);
        let text = plan.to_string();
        assert!(ALL.iter().all(|each| text.contains(&each.to_string())), "{text}");
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
everywhere!(auto, super::all_choose_the_same, super::simulated_measurements);

/// Simulates few workers, because a measurement takes many operations.
fn simulated_measurements(body: fn(&Worker) -> Result<()>) {
    for (processes, threads, seed) in [(1, 1, 1), (3, 1, 2)] {
        farside::simulate(processes, threads, seed, body).unwrap();
    }
}

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
        let asked = Implementation::OneSidedPublished;
        let queue = Queue::<u64>::with_cost_model(me, first, 10, asked, CALLS_ARE_FREE)?;
        assert_eq!(queue.on(me).implementation(), asked);
        assert_eq!(queue.on(me).plan(Op::Pop, Promise::ALL).choice, Implementation::Call);
        queue.free(me)
    };
    Simulation::new(3, 1, 1).run(run).unwrap().verdict.unwrap();
}

#[test]
#[should_panic(expected = "no cost model: make it with")]
fn a_plan_needs_a_model() {
    let run = |me: &Worker| {
        Queue::<u64>::new(me, me.process(), 10)?.on(me).plan(Op::Push, Promise::ALL);
        Ok(())
    };
    Simulation::new(1, 1, 1).run(run).unwrap().verdict.unwrap();
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

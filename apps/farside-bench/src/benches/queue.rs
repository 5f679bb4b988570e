//! Pushes and pops of queues (Brock et al., Figure 4).
//!
//! All workers use one queue in process 0 at once. With the promise `local` that process uses it
//! alone. Items have 8 bytes. The cases `contended` measure pushes of all workers beside their
//! fetch-adds on one word.

use std::hint::black_box;
use std::sync::atomic::Ordering;

use farside::{GlobalArray, MakeArrays, ProcessId, Worker};
use farside_containers::queue::{self, Ends, Popping, Pushing, Queue};
use farside_containers::{CostModel, Implementation, Load, Op, Promise};

use super::containers::{Beside, Operation, Predicted, beside, cases as cases_of, choices};
use crate::case::Case;
use crate::fabric::Fabric;
use crate::shared::{Shared, WORD_DISTANCE};

pub(crate) const ABOUT: &str = "pushes and pops of a queue by each implementation and promise (Brock et al., Figure 4)";

/// Items of each worker for which there is room.
const ITEMS: usize = 1 << 17;
/// Bytes of a slot with a stamp and an item.
const SLOT_BYTES: usize = 16;

pub(crate) fn cases(on: &Fabric) -> Vec<Case> {
    use Implementation::{Call, Checksum, OneSided, OneSidedPublished};
    let all = [
        (Op::Push, [Promise::PUSH_ONLY, Promise::ALL, Promise::LOCAL]),
        (Op::Pop, [Promise::POP_ONLY, Promise::ALL, Promise::LOCAL]),
    ];
    let implementations = [Call, OneSided, OneSidedPublished, Checksum];
    let operations = all.into_iter().flat_map(|(op, promises)| {
        implementations.into_iter().flat_map(move |by| promises.map(|promise| QueueOperation { op, by, promise }))
    });
    let groups = all.into_iter().flat_map(|(op, promises)| {
        let op_name = if op == Op::Push { "push" } else { "pop" };
        promises.map(|promise| {
            let group = implementations.map(|by| QueueOperation { op, by, promise });
            (format!("{op_name}/{promise}"), group.to_vec())
        })
    });
    let mut cases = cases_of(on, operations, ITEMS);
    cases.extend(choices(on, groups.collect(), ITEMS));
    for promise in [Promise::PUSH_ONLY, Promise::ALL] {
        let push = QueueOperation { op: Op::Push, by: OneSided, promise };
        let pair = Beside { operation: push, other: FetchAdds, other_name: "fetch-adds on one word" };
        cases.extend(beside(on, format!("contended/push/{promise}"), pair, ITEMS));
    }
    cases
}

#[derive(Clone, Copy)]
struct QueueOperation {
    op: Op,
    by: Implementation,
    promise: Promise,
}

struct State<'w> {
    queue: Queue<u64>,
    /// What this worker works with.
    ends: Ends<'w, u64>,
    /// What there is to pop.
    items: Vec<u64>,
    phase: Phase<'w>,
}

/// The phase in which workers operate.
enum Phase<'w> {
    None,
    Pushing(queue::Phase<'w, u64, Pushing>),
    Popping(queue::Phase<'w, u64, Popping>),
}

impl Phase<'_> {
    fn end(self, me: &Worker) -> farside::Result<()> {
        match self {
            Self::None => me.barrier(),
            Self::Pushing(phase) => phase.end(),
            Self::Popping(phase) => phase.end(),
        }
    }
}

impl Operation for QueueOperation {
    type State<'w> = State<'w>;

    fn takes_part(self, me: &Worker) -> bool {
        !self.promise.is_local() || me.is_first()
    }

    fn begin(self, me: &Worker, size: usize, count: u64) -> farside::Result<State<'_>> {
        let capacity = size as u64 * u64::from(me.worker_count());
        let queue = Queue::with_implementation(me, ProcessId::new(0), capacity, self.by)?;
        let items = if self.op == Op::Pop { (0..count * u64::from(me.worker_count())).collect() } else { Vec::new() };
        Ok(State { queue, ends: queue.on(me), items, phase: Phase::None })
    }

    fn prepare(self, me: &Worker, state: &mut State<'_>) -> farside::Result<()> {
        std::mem::replace(&mut state.phase, Phase::None).end(me)?;
        let ends = &state.ends;
        if me.is_first() {
            ends.clear()?;
            assert_eq!(ends.push_all(&state.items)?, state.items.len() as u64);
        }
        me.barrier()?;
        state.phase = match self.promise {
            Promise::PUSH_ONLY => Phase::Pushing(ends.pushing()?),
            Promise::POP_ONLY => Phase::Popping(ends.popping()?),
            _ => Phase::None,
        };
        me.barrier()
    }

    fn perform(self, _: &Worker, state: &mut State<'_>, number: u64) -> farside::Result<()> {
        let ends = &state.ends;
        match self.op {
            Op::Push => ends.push_with(self.promise, number)?.expect("there is room for all"),
            _ => drop(black_box(ends.pop_with(self.promise)?.expect("there is an item for each"))),
        }
        Ok(())
    }

    fn end(self, me: &Worker, state: State<'_>) -> farside::Result<()> {
        state.phase.end(me)?;
        state.queue.free(me)
    }
}

impl Predicted for QueueOperation {
    fn name(self) -> String {
        let op = if self.op == Op::Push { "push" } else { "pop" };
        format!("{op}/{}/{}", self.by, self.promise)
    }

    fn predict(self, model: &CostModel, load: Load) -> Option<f64> {
        // The other workers change the same counter.
        let contenders = if self.promise.is_local() { 0.0 } else { 1.0 / load.own_share - 1.0 };
        model.predict(self.by, self.op, self.promise, Load { contenders, ..load }).map(|predicted| predicted.ns)
    }

    fn limit_bytes(self, size: usize) -> usize {
        WORD_DISTANCE + size * SLOT_BYTES
    }

    fn instruct(self, _: &Worker, memory: &Shared, size: usize, _: u64, _: u64) -> u64 {
        let counter = memory.word(0);
        let ticket = match self.promise.is_local() {
            true => {
                let ticket = counter.load(Ordering::Relaxed);
                counter.store(ticket + 1, Ordering::Relaxed);
                ticket
            }
            false => counter.fetch_add(1, Ordering::SeqCst),
        };
        let slot = memory.word(WORD_DISTANCE + (ticket % size as u64) as usize * SLOT_BYTES);
        match self.op {
            Op::Push => slot.store(ticket, Ordering::Release),
            _ => drop(black_box(slot.load(Ordering::Acquire))),
        }
        0
    }
}

/// Additions of all workers to one word.
#[derive(Clone, Copy)]
struct FetchAdds;

impl Operation for FetchAdds {
    type State<'w> = GlobalArray<u64>;

    fn begin(self, me: &Worker, _: usize, _: u64) -> farside::Result<GlobalArray<u64>> {
        // The first word is in process 0, as the queue is.
        me.global_array(1)
    }

    fn prepare(self, _: &Worker, _: &mut GlobalArray<u64>) -> farside::Result<()> {
        Ok(())
    }

    fn perform(self, me: &Worker, words: &mut GlobalArray<u64>, _: u64) -> farside::Result<()> {
        words.at(0)?.fetch_add(me, 1).map(drop)
    }

    fn end(self, me: &Worker, words: GlobalArray<u64>) -> farside::Result<()> {
        words.free(me)
    }
}

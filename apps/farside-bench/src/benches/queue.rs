//! Pushes and pops of queues (Brock et al., Figure 4).
//!
//! All workers use one queue in process 0 at once. With the promise `local` that process uses it
//! alone. Items have 8 bytes. The cases `contended` compare pushes of all workers with their
//! fetch-adds on one word.

use std::hint::black_box;
use std::sync::atomic::Ordering;

use farside::{GlobalArray, MakeArrays, ProcessId, Worker};
use farside_containers::queue::{self, Ends, Popping, Pushing, Queue};
use farside_containers::{CostModel, Implementation, Load, Op, Promise};

use super::containers::{By, Compared, Operation, Predicted, Ring, cases as cases_of, choices, compared};
use crate::case::Case;
use crate::fabric::Fabric;
use crate::shared::{Shared, WORD_DISTANCE};

pub(crate) const ABOUT: &str = "pushes and pops of a queue by each implementation and promise (Brock et al., Figure 4)";

/// Items of each worker for which there is room.
const ITEMS: usize = 1 << 17;
/// Bytes of a slot with a stamp and an item.
const SLOT_BYTES: usize = 16;

pub(crate) fn cases(on: &Fabric) -> Vec<Case> {
    use Implementation::{Call, Checksum, OneSided};
    let all = [
        (Op::Push, [Promise::PUSH_ONLY, Promise::ALL, Promise::LOCAL]),
        (Op::Pop, [Promise::POP_ONLY, Promise::ALL, Promise::LOCAL]),
    ];
    let implementations = [By::Farside(Call), By::Farside(OneSided), By::Published, By::Farside(Checksum)];
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
        let push = QueueOperation { op: Op::Push, by: By::Farside(OneSided), promise };
        let pair = Compared { operation: push, other: FetchAdds, other_name: "fetch-adds on one word" };
        cases.extend(compared(on, format!("contended/push/{promise}"), pair, ITEMS));
    }
    cases
}

#[derive(Clone, Copy)]
struct QueueOperation {
    op: Op,
    by: By,
    promise: Promise,
}

struct State<'w> {
    queue: AnyQueue<'w>,
    /// The items to pop.
    items: Vec<u64>,
    phase: Phase<'w>,
}

/// The queue of Farside, or the published one.
enum AnyQueue<'w> {
    Farside(Queue<u64>, Ends<'w, u64>),
    Published(Box<Ring<'w>>),
}

impl AnyQueue<'_> {
    fn push(&self, promise: Promise, item: u64) -> farside::Result<bool> {
        match self {
            Self::Farside(_, ends) => ends.push_with(promise, item).map(|pushed| pushed.is_ok()),
            Self::Published(ring) => ring.push(promise, item),
        }
    }

    fn pop(&self, promise: Promise) -> farside::Result<Option<u64>> {
        match self {
            Self::Farside(_, ends) => ends.pop_with(promise),
            Self::Published(ring) => ring.pop(promise),
        }
    }
}

/// The phase in which workers operate.
enum Phase<'w> {
    None,
    Pushing(queue::Phase<Ends<'w, u64>, Pushing>),
    Popping(queue::Phase<Ends<'w, u64>, Popping>),
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
        let queue = match self.by {
            By::Farside(by) => {
                let queue = Queue::with_implementation(me, ProcessId::new(0), capacity, by)?;
                AnyQueue::Farside(queue, queue.on(me))
            }
            _ => AnyQueue::Published(Box::new(Ring::new(me, capacity)?)),
        };
        let items = if self.op == Op::Pop { (0..count * u64::from(me.worker_count())).collect() } else { Vec::new() };
        Ok(State { queue, items, phase: Phase::None })
    }

    fn prepare(self, me: &Worker, state: &mut State<'_>) -> farside::Result<()> {
        std::mem::replace(&mut state.phase, Phase::None).end(me)?;
        if let AnyQueue::Published(ring) = &state.queue {
            ring.end_phase()?;
        }
        let queue = &state.queue;
        if me.is_first() {
            while queue.pop(Promise::ALL)?.is_some() {}
            for item in &state.items {
                assert!(queue.push(Promise::ALL, *item)?, "there is room for all");
            }
        }
        me.barrier()?;
        state.phase = match (queue, self.promise) {
            (AnyQueue::Farside(_, ends), Promise::PUSH_ONLY) => Phase::Pushing(ends.pushing()?),
            (AnyQueue::Farside(_, ends), Promise::POP_ONLY) => Phase::Popping(ends.popping()?),
            _ => Phase::None,
        };
        me.barrier()
    }

    fn perform(self, _: &Worker, state: &mut State<'_>, number: u64) -> farside::Result<()> {
        match self.op {
            Op::Push => assert!(state.queue.push(self.promise, number)?, "there is room for all"),
            _ => drop(black_box(state.queue.pop(self.promise)?.expect("there is an item for each"))),
        }
        Ok(())
    }

    fn end(self, me: &Worker, state: State<'_>) -> farside::Result<()> {
        state.phase.end(me)?;
        match state.queue {
            AnyQueue::Farside(queue, _) => queue.free(me),
            AnyQueue::Published(ring) => ring.free(),
        }
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
        self.by.predict(model, self.op, self.promise, Load { contenders, ..load })
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

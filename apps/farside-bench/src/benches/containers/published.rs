//! The algorithms of Brock et al., *RDMA vs. RPC for Implementing Distributed Data Structures*,
//! Tables II and III, on puts, gets and atomics. The benches compare the containers of Farside
//! with them. A loss or a deadline leaves them unusable, and they do not grow.
//!
//! Where the paper leaves a gap, they differ: a full queue gives out no ticket, and a pop claims
//! its item by a compare-and-swap, since a ticket cannot be given back.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use farside::bytemuck::{bytes_of, checked};
use farside::global::ByteSpace;
use farside::{AccessBytes, Error, GlobalPtr, MakeArrays, MoreCollectives, ProcessId, Result, Worker};
use farside_containers::map::{Slot, placement_hash};
use farside_containers::{CostModel, Implementation, Load, Op, Promise};

/// How a container performs its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum By {
    /// The container of Farside, in batches.
    Batches,
    /// The container of Farside.
    Farside(Implementation),
    /// A container of this module.
    Published,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batches => f.write_str("batched"),
            Self::Farside(by) => by.fmt(f),
            Self::Published => f.write_str("one-sided-published"),
        }
    }
}

impl By {
    /// Returns the predicted nanoseconds of an operation.
    pub(in super::super) fn predict(self, model: &CostModel, op: Op, promise: Promise, load: Load) -> Option<f64> {
        match self {
            Self::Batches => None,
            Self::Farside(by) => Some(model.predict(by, op, promise, load)?.ns),
            Self::Published => predict(model, op, promise, load),
        }
    }
}

/// Predicts a published operation: an operation of Farside, and what differs. A push or pop that is
/// promised to be the only kind costs as much as in a phase.
fn predict(model: &CostModel, op: Op, promise: Promise, load: Load) -> Option<f64> {
    let is_all = promise == Promise::ALL;
    let base_promise = if is_all && op == Op::Pop { Promise::POP_ONLY } else { promise };
    let base = model.predict(Implementation::OneSided, op, base_promise, load)?.ns;
    let probes = load.probes(op);
    let (gets, atomics) = match op {
        // Insertions alone do not look at slots that they cannot claim.
        Op::Insert if promise == Promise::INSERT_ONLY => (1.0 - probes, 0.0),
        _ if !is_all => (0.0, 0.0),
        // Counts itself in and out of each slot on the way. The last atomic publishes the entry.
        Op::Insert => (1.0 - probes, 2.0 * (probes - 1.0) + 1.0),
        // Reads an entry that may be the one.
        Op::Find => (1.0 - probes, 2.0 * probes),
        Op::FindMiss => (-probes, 2.0 * probes),
        _ => (0.0, 0.0),
    };
    // Moves the second counter. Its turn has nearly come, as workers got their places in turn, and
    // few meet there.
    let (swaps, meetings) = match op {
        Op::Push | Op::Pop if is_all => (1.0, load.contenders.min(1.0)),
        _ => (0.0, 0.0),
    };
    let apart = gets * model.get + atomics * model.fetch_add + swaps * model.cas_persistent;
    let own = (gets + atomics + swaps) * model.own;
    let own_share = load.own_share.clamp(0.0, 1.0);
    Some(base + (1.0 - own_share) * apart + own_share * own + meetings * model.line_contended)
}

/// The state of a slot, in its first word. The bits above count the readers.
const EMPTY: u64 = 0;
const RESERVED: u64 = 1;
const READY: u64 = 2;
const READER: u64 = 1 << 8;
const STATE: u64 = READER - 1;

/// A hash table in the memory of all workers. A slot is its state, a key and a value. `FIND_ONLY`
/// reads a slot at once; `INSERT_ONLY` inserts new keys, each by one worker.
pub(in super::super) struct Table<'w, V> {
    me: &'w Worker,
    space: ByteSpace,
    slots: u64,
    values: PhantomData<V>,
}

impl<'w, V: Slot> Table<'w, V> {
    const ENTRY_BYTES: usize = 8 + size_of::<V>();
    const SLOT_BYTES: usize = (8 + Self::ENTRY_BYTES).next_power_of_two();

    /// Makes a table with `slots` slots at each worker, of which each process has one. `slots` is a
    /// power of two. Collective.
    pub(in super::super) fn new(me: &'w Worker, slots: u64) -> Result<Self> {
        let space = me.byte_space(ProcessId::new(0), me.process_count(), slots * Self::SLOT_BYTES as u64)?;
        Ok(Self { me, space, slots, values: PhantomData })
    }

    pub(in super::super) fn free(self) -> Result<()> {
        self.space.free(self.me)
    }

    /// Returns the number of the worker that owns a key.
    pub(in super::super) fn owner_of(&self, key: u64) -> usize {
        let hash = placement_hash(bytes_of(&key));
        (((hash >> 32) * u64::from(self.me.worker_count())) >> 32) as usize
    }

    /// Empties the part of this worker. Collective.
    pub(in super::super) fn clear(&self) -> Result<()> {
        let bytes = self.slots * Self::SLOT_BYTES as u64;
        let own = self.space.address(u64::from(self.me.id().number()) * bytes)?;
        self.me.put_bytes(own, &vec![0; bytes as usize])?;
        self.me.barrier()
    }

    /// Inserts the entries of all workers, each at its owner. Collective.
    pub(in super::super) fn fill(&self, entries: impl Iterator<Item = (u64, V)>) -> Result<()> {
        let mut by_owner: Vec<_> = self.me.workers().map(|_| Vec::new()).collect();
        entries.for_each(|entry| by_owner[self.owner_of(entry.0)].push(entry));
        let own = self.me.all_to_all(by_owner)?;
        own.into_iter().flatten().try_for_each(|(key, value)| self.insert(Promise::LOCAL, key, &value))?;
        self.me.barrier()
    }

    /// Returns the slots that a key may have, in order.
    fn probes(&self, key: u64) -> impl Iterator<Item = Result<GlobalPtr<u64>>> {
        let (first, hash) = (self.owner_of(key) as u64 * self.slots, placement_hash(bytes_of(&key)));
        (1..=self.slots).scan(hash, move |next, step| {
            let slot = first + (*next & (self.slots - 1));
            *next = next.wrapping_add(step);
            Some(self.space.address(slot * Self::SLOT_BYTES as u64).map(|address| address.cast()))
        })
    }

    /// Inserts a value, or replaces the one that is there.
    ///
    /// # Panics
    /// If the part of the owner is full.
    pub(in super::super) fn insert(&self, promise: Promise, key: u64, value: &V) -> Result<()> {
        for slot in self.probes(key) {
            let slot = slot?;
            let is_done = match promise {
                Promise::LOCAL => self.insert_alone(slot, key, value)?,
                Promise::INSERT_ONLY => {
                    let is_claimed = slot.compare_swap(self.me, EMPTY, READY)? == EMPTY;
                    if is_claimed {
                        self.write(slot, key, value)?;
                    }
                    is_claimed
                }
                _ => self.insert_into(slot, key, value)?,
            };
            if is_done {
                return Ok(());
            }
        }
        panic!("the part of worker {} is full", self.owner_of(key))
    }

    /// Returns the value of a key.
    pub(in super::super) fn get(&self, promise: Promise, key: u64) -> Result<Option<V>> {
        for slot in self.probes(key) {
            let slot = slot?;
            let found = if promise == Promise::ALL { self.read(slot)? } else { self.read_settled(slot)? };
            match found {
                Some((there, value)) if there == key => return Ok(Some(value)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    fn insert_alone(&self, slot: GlobalPtr<u64>, key: u64, value: &V) -> Result<bool> {
        if slot.get(self.me)? == READY && slot.add(1)?.get(self.me)? != key {
            return Ok(false);
        }
        self.write(slot, key, value)?;
        slot.put(self.me, READY).map(|()| true)
    }

    /// Inserts an entry into a slot, unless another key is there.
    fn insert_into(&self, slot: GlobalPtr<u64>, key: u64, value: &V) -> Result<bool> {
        let mut turns = Turns::new(self.me, "waiting for a slot of a published map");
        let mut from = EMPTY;
        loop {
            let found = slot.compare_swap(self.me, from, RESERVED)?;
            if found == from {
                self.write(slot, key, value)?;
                slot.fetch_add(self.me, READY - RESERVED)?;
                return Ok(true);
            }
            if found & STATE == READY && from == EMPTY {
                if self.read(slot)?.is_some_and(|(there, _)| there != key) {
                    return Ok(false);
                }
                from = READY;
            } else {
                // Others read it, or write it.
                turns.next()?;
            }
        }
    }

    /// Reads an entry, which no worker writes meanwhile. Returns `None` from an empty slot.
    fn read(&self, slot: GlobalPtr<u64>) -> Result<Option<(u64, V)>> {
        let mut turns = Turns::new(self.me, "waiting for an entry of a published map");
        loop {
            let state = slot.fetch_add(self.me, READER)? & STATE;
            let mut bytes = vec![0; Self::ENTRY_BYTES];
            if state == READY {
                self.me.get_bytes(slot.add(1)?.address(), &mut bytes)?;
            }
            slot.fetch_add(self.me, READER.wrapping_neg())?;
            match state {
                READY => return Ok(Some(entry_of(&bytes))),
                EMPTY => return Ok(None),
                _ => turns.next()?,
            }
        }
    }

    /// Reads a slot that no worker changes.
    fn read_settled(&self, slot: GlobalPtr<u64>) -> Result<Option<(u64, V)>> {
        let mut bytes = vec![0; 8 + Self::ENTRY_BYTES];
        self.me.get_bytes(slot.address(), &mut bytes)?;
        let (state, entry) = bytes.split_at(8);
        Ok((u64_of(state) == READY).then(|| entry_of(entry)))
    }

    fn write(&self, slot: GlobalPtr<u64>, key: u64, value: &V) -> Result<()> {
        self.me.put_bytes(slot.add(1)?.address(), &[bytes_of(&key), bytes_of(value)].concat())
    }
}

fn u64_of(bytes: &[u8]) -> u64 {
    checked::pod_read_unaligned(bytes)
}

fn entry_of<V: Slot>(bytes: &[u8]) -> (u64, V) {
    (u64_of(&bytes[..8]), checked::pod_read_unaligned(&bytes[8..]))
}

/// Distance of words that different workers change.
const APART: u64 = 128;

/// A queue in process 0. Workers take tickets from the counters of its ends. A second counter of
/// each end says how far items are written, or read: each worker moves it past its own item, after
/// those before it have done so.
pub(in super::super) struct Ring<'w> {
    me: &'w Worker,
    space: ByteSpace,
    capacity: u64,
    /// One worker may have one ticket beyond the capacity.
    slots: u64,
    /// The tail, or less, and the tickets that find room.
    tail: Cell<u64>,
    limit: Cell<u64>,
    /// The head, or less, and the tickets whose items are there.
    head: Cell<u64>,
    ready: Cell<u64>,
    /// Pushes and pops of a phase, at whose end the second counters move.
    uncounted: [Cell<u64>; 2],
}

impl<'w> Ring<'w> {
    /// Makes a queue. Collective.
    pub(in super::super) fn new(me: &'w Worker, capacity: u64) -> Result<Self> {
        let slots = (capacity + u64::from(me.worker_count())).next_power_of_two();
        let space = me.byte_space(ProcessId::new(0), 1, 4 * APART + 8 * slots)?;
        let [tail, limit, head, ready] = [0, capacity, 0, 0].map(Cell::new);
        Ok(Self { me, space, capacity, slots, tail, limit, head, ready, uncounted: Default::default() })
    }

    pub(in super::super) fn free(self) -> Result<()> {
        self.space.free(self.me)
    }

    fn word(&self, offset: u64) -> Result<GlobalPtr<u64>> {
        Ok(self.space.address(offset)?.cast())
    }

    /// Returns the counter of an end: its tickets, or those that are written or read.
    fn counter(&self, op: Op, is_second: bool) -> Result<GlobalPtr<u64>> {
        self.word((2 * u64::from(is_second) + u64::from(op == Op::Pop)) * APART)
    }

    fn slot(&self, ticket: u64) -> Result<GlobalPtr<u64>> {
        self.word(4 * APART + 8 * (ticket & (self.slots - 1)))
    }

    /// Adds an item at the end. Returns whether there was room.
    pub(in super::super) fn push(&self, promise: Promise, item: u64) -> Result<bool> {
        let (tail, written) = (self.counter(Op::Push, false)?, self.counter(Op::Push, true)?);
        if promise.is_local() {
            let ticket = tail.get(self.me)?;
            let has_room = ticket - self.counter(Op::Pop, true)?.get(self.me)? < self.capacity;
            if has_room {
                self.slot(ticket)?.put(self.me, item)?;
                tail.put(self.me, ticket + 1)?;
                written.put(self.me, ticket + 1)?;
            }
            return Ok(has_room);
        }
        if self.tail.get() >= self.limit.get() {
            self.limit.set(self.counter(Op::Pop, true)?.load(self.me)? + self.capacity);
            self.tail.set(tail.load(self.me)?);
            if self.tail.get() >= self.limit.get() {
                return Ok(false);
            }
        }
        let ticket = tail.fetch_add(self.me, 1)?;
        self.tail.set(ticket + 1);
        self.slot(ticket)?.put(self.me, item)?;
        self.end(Op::Push, promise, ticket).map(|()| true)
    }

    /// Takes the item at the front.
    pub(in super::super) fn pop(&self, promise: Promise) -> Result<Option<u64>> {
        let (head, written) = (self.counter(Op::Pop, false)?, self.counter(Op::Push, true)?);
        if promise.is_local() {
            let ticket = head.get(self.me)?;
            if ticket == written.get(self.me)? {
                return Ok(None);
            }
            let item = self.slot(ticket)?.get(self.me)?;
            head.put(self.me, ticket + 1)?;
            self.counter(Op::Pop, true)?.put(self.me, ticket + 1)?;
            return Ok(Some(item));
        }
        let mut ticket = self.head.get();
        loop {
            if ticket >= self.ready.get() {
                // The head first: if it is not below the counter, the queue was empty then.
                ticket = head.load(self.me)?;
                self.ready.set(written.load(self.me)?);
                if ticket >= self.ready.get() {
                    return Ok(None);
                }
            }
            let found = head.compare_swap(self.me, ticket, ticket + 1)?;
            if found == ticket {
                break;
            }
            ticket = found;
        }
        self.head.set(ticket + 1);
        let item = self.slot(ticket)?.get(self.me)?;
        self.end(Op::Pop, promise, ticket).map(|()| Some(item))
    }

    /// Moves a second counter past a ticket of this worker, as soon as it has come there. In a
    /// phase no worker looks at it, so it moves at the end, and the order does not matter.
    fn end(&self, op: Op, promise: Promise, ticket: u64) -> Result<()> {
        if promise != Promise::ALL {
            let uncounted = &self.uncounted[usize::from(op == Op::Pop)];
            uncounted.set(uncounted.get() + 1);
            return Ok(());
        }
        let counter = self.counter(op, true)?;
        let mut turns = Turns::new(self.me, "waiting for earlier pushes or pops of a published queue");
        loop {
            if counter.compare_swap(self.me, ticket, ticket + 1)? == ticket {
                return Ok(());
            }
            turns.next()?;
        }
    }

    /// Ends a phase. Collective.
    pub(in super::super) fn end_phase(&self) -> Result<()> {
        for (op, uncounted) in [Op::Push, Op::Pop].into_iter().zip(&self.uncounted) {
            self.counter(op, true)?.fetch_add(self.me, uncounted.take())?;
        }
        self.me.barrier()
    }
}

/// Attempts to get on, which run no calls: one could use the container, and would wait for this
/// worker.
struct Turns<'w> {
    me: &'w Worker,
    doing: &'static str,
    attempts: u32,
    end: farside::Deadline,
}

impl<'w> Turns<'w> {
    const ATTEMPTS_PER_TURN: u32 = 64;
    /// The time that a turn takes in a simulation.
    const TURN: Duration = Duration::from_nanos(500);

    fn new(me: &'w Worker, doing: &'static str) -> Self {
        Self { me, doing, attempts: 0, end: me.deadline_after(me.default_deadline()) }
    }

    /// Waits a little after a failed attempt.
    fn next(&mut self) -> Result<()> {
        std::hint::spin_loop();
        self.attempts += 1;
        if !self.attempts.is_multiple_of(Self::ATTEMPTS_PER_TURN) {
            return Ok(());
        }
        std::thread::yield_now();
        self.me.charge(Self::TURN);
        if self.end.has_passed(self.me) {
            let (doing, after) = (self.doing, self.me.default_deadline());
            return Err(Error::Deadline { doing, after, waiting_for: Vec::new() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use farside::simulate;

    use super::super::mix;
    use super::*;

    /// The best cases of Tables II and III, with the latencies of Table I put into their formulas.
    /// Rows of pops differ where the code does: a pop swaps the head (Cas for FAO: -0.1).
    #[test]
    fn the_published_tables_are_reproduced() {
        let tables = [
            (Op::Insert, Promise::ALL, 10.7),
            (Op::Insert, Promise::INSERT_ONLY, 6.8),
            (Op::Find, Promise::ALL, 11.5),
            (Op::Find, Promise::FIND_ONLY, 3.7),
            (Op::Push, Promise::ALL, 10.7),
            (Op::Push, Promise::PUSH_ONLY, 6.9),
            (Op::Push, Promise::LOCAL, 0.0),
            (Op::Pop, Promise::ALL, 11.4 - 0.1),
            (Op::Pop, Promise::POP_ONLY, 7.6 - 0.1),
            (Op::Pop, Promise::LOCAL, 0.0),
        ];
        for (op, promise, expected) in tables {
            let found = predict(&CostModel::CORI_BEST, op, promise, Load::default()).unwrap() / 1000.0;
            assert!((found - expected).abs() < 1e-9, "{op:?}, {promise}: {found} instead of {expected}");
        }
    }

    #[test]
    fn masked_swaps_save_the_repetition() {
        let push = |model: CostModel| predict(&model, Op::Push, Promise::ALL, Load::default()).unwrap();
        let saved = push(CostModel::CORI) - push(CostModel::CORI.with_masked_cas());
        assert!((saved - 5600.0).abs() < 1e-6, "{saved}");
    }

    /// One value at a time is seen at a key that all workers replace, and all entries are found.
    #[test]
    fn a_table_agrees_with_an_oracle() {
        for (processes, seed) in [(1, 1), (3, 2), (4, 3)] {
            let run = |me: &Worker| {
                let table = Table::<[u64; 2]>::new(me, 64)?;
                let value = |number: u64| [number, mix(number)];
                let (own, workers) = (u64::from(me.id().number()), u64::from(me.worker_count()));
                let mut oracle = HashMap::new();
                for round in 0..60 {
                    let key = workers * (mix(round ^ own << 20) % 16) + own;
                    let number = 100 * own + round;
                    table.insert(Promise::ALL, key, &value(number))?;
                    oracle.insert(key, value(number));
                    table.insert(Promise::ALL, 1000, &value(number))?;
                    let [found, proof] = table.get(Promise::ALL, 1000)?.expect("it was inserted");
                    assert_eq!(proof, mix(found), "half of an entry");
                    let key = workers * (mix(round + 7) % 16) + own;
                    assert_eq!(table.get(Promise::ALL, key)?, oracle.get(&key).copied());
                }
                me.barrier()?;
                let all = (0..16 * workers).filter_map(|key| table.get(Promise::FIND_ONLY, key).transpose());
                assert!(all.collect::<Result<Vec<_>>>()?.len() >= oracle.len());
                me.barrier()?;
                table.clear()?;
                assert_eq!(table.get(Promise::FIND_ONLY, 1000)?, None);
                me.barrier()?;
                table.fill((0..10).map(|number| (workers * number + own, value(number))))?;
                table.insert(Promise::INSERT_ONLY, 10 * workers + own, &value(10))?;
                me.barrier()?;
                for key in 0..11 * workers {
                    assert_eq!(table.get(Promise::FIND_ONLY, key)?, Some(value(key / workers)), "key {key}");
                }
                me.barrier()?;
                table.free()
            };
            simulate(processes, 1, seed, run).unwrap();
        }
    }

    /// Every item is popped once, and those of one worker in its order.
    #[test]
    fn a_ring_agrees_with_an_oracle() {
        for (processes, seed) in [(1, 1), (3, 2), (4, 3)] {
            let run = |me: &Worker| {
                let ring = Ring::new(me, 5)?;
                let (own, mut pushed, mut popped) = (u64::from(me.id().number()), 0, Vec::new());
                while pushed < 40 {
                    let is_in = ring.push(Promise::ALL, own << 32 | pushed)?;
                    pushed += u64::from(is_in);
                    popped.extend(if is_in { None } else { ring.pop(Promise::ALL)? });
                }
                me.barrier()?;
                popped.extend(
                    std::iter::from_fn(|| ring.pop(Promise::POP_ONLY).transpose()).collect::<Result<Vec<_>>>()?,
                );
                ring.end_phase()?;
                for worker in 0..u64::from(me.worker_count()) {
                    assert!(popped.iter().filter(|item| **item >> 32 == worker).is_sorted(), "{popped:?}");
                }
                let all = me.gather(farside::WorkerId::FIRST, popped)?;
                if let Some(all) = all {
                    let items: Vec<_> = all.into_iter().flatten().collect();
                    assert_eq!(items.len(), 40 * me.worker_count() as usize);
                    assert_eq!(items.iter().collect::<BTreeSet<_>>().len(), items.len());
                    let local = [ring.push(Promise::LOCAL, 7)?, ring.push(Promise::LOCAL, 8)?];
                    assert_eq!((local, ring.pop(Promise::LOCAL)?), ([true; 2], Some(7)));
                }
                me.barrier()?;
                ring.push(Promise::PUSH_ONLY, 9)?;
                ring.end_phase()?;
                if me.is_first() {
                    assert_eq!(ring.pop(Promise::ALL)?, Some(8));
                }
                ring.end_phase()?;
                assert_eq!(ring.pop(Promise::ALL)?, Some(9));
                me.barrier()?;
                ring.free()
            };
            simulate(processes, 1, seed, run).unwrap();
        }
    }
}

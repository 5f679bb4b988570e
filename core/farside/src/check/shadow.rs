//! The shadow of one process's memory: the accesses to it that may be open.
//!
//! Records are kept in the order in which they came, and found by their place. For the latter they
//! are sorted into classes by length, in powers of two. Within a class, a record that begins more
//! than the class's length before a range cannot reach into it, so a search walks a short part of
//! each class.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::AccessChecks;
use super::epochs::{Lifetime, Standing};
use super::report::{FILE_BYTES_MAX, Site, conflict};
use crate::Wire;
use crate::runtime::extent::Extent;
use crate::runtime::observer::{AccessKind, Accessor, Part};

/// The most records that are kept: 64 Ki of about 150 bytes each with their places, 10 MiB.
const REMEMBERED_MAX: usize = 64 << 10;

/// An access that was made or is about to be made.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(crate) struct Record {
    pub(super) memory: Extent,
    pub(super) worker: u32,
    pub(super) kind: AccessKind,
    pub(super) lifetime: Lifetime,
    pub(super) site: Site,
}

impl Record {
    /// The record of an access by this worker.
    pub(super) fn new(me: Accessor<'_>, part: Part, lifetime: Lifetime) -> Self {
        let Part { memory, touch } = part;
        Self { memory, worker: me.id().number(), kind: touch.kind, lifetime, site: Site::of(touch.site) }
    }

    /// Returns whether a record from another process has an end and a file name of bounded length.
    pub(super) fn is_valid(&self) -> bool {
        self.memory.offset.checked_add(self.memory.bytes).is_some() && self.site.file().len() <= FILE_BYTES_MAX
    }
}

/// The accesses to one process's memory that may be open, and its releases.
#[derive(Debug)]
pub(super) struct Shadow {
    /// By their numbers, which ascend in the order in which they came.
    records: BTreeMap<u64, Record>,
    places: BTreeSet<Place>,
    /// The numbers of the accesses that end together.
    lives: BTreeMap<(u32, Lifetime), BTreeSet<u64>>,
    next: u64,
    max: usize,
    accesses: u64,
    forgotten: u64,
}

/// The key by which an access is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    slot: u32,
    /// The base-2 logarithm of its length, rounded down.
    class: u32,
    offset: u64,
    number: u64,
}

impl Default for Shadow {
    fn default() -> Self {
        Self::with_room_for(REMEMBERED_MAX)
    }
}

impl Shadow {
    fn with_room_for(max: usize) -> Self {
        Self {
            records: BTreeMap::new(),
            places: BTreeSet::new(),
            lives: BTreeMap::new(),
            next: 0,
            max,
            accesses: 0,
            forgotten: 0,
        }
    }

    pub(super) fn counters(&self) -> AccessChecks {
        let remembered = self.records.len() as u64;
        AccessChecks { accesses: self.accesses, remembered, forgotten: self.forgotten }
    }

    /// Records an access. If an earlier access conflicts with it, and is neither known to have
    /// ended nor known to the worker, returns that one instead.
    pub(super) fn enter(&mut self, record: Record, standing: &Standing) -> Option<&Record> {
        self.end_before(record.worker, standing.ended);
        let memory = record.memory;
        let mut same = None;
        for number in self.overlapping(memory) {
            let earlier = &self.records[&number];
            if earlier.memory.key.generation != memory.key.generation {
                // Of another use of the slot: that memory no longer exists.
                self.remove(number);
                continue;
            }
            let is_before = match earlier.lifetime {
                Lifetime::Epoch(epoch) => earlier.worker == record.worker || standing.known.has(earlier.worker, epoch),
                lifetime => earlier.worker == record.worker && lifetime == record.lifetime,
            };
            if !is_before && conflict(earlier.kind, record.kind) {
                return self.records.get(&number);
            }
            if is_before && earlier.worker == record.worker && earlier.kind == record.kind && earlier.memory == memory {
                same = Some(number);
            }
        }
        self.accesses += 1;
        // A worker that does not know of the later access may know of the earlier one, but not the
        // other way round. So the later one takes its place.
        if let Some(number) = same.filter(|number| self.records[number].lifetime != record.lifetime) {
            self.remove(number);
            same = None;
        }
        match same.and_then(|number| self.records.get_mut(&number)) {
            Some(same) => same.site = record.site,
            // An atomic change publishes itself when it is made, so it has ended before another
            // access can conflict with it. A release is recorded when it takes effect.
            None if matches!(record.kind, AccessKind::AtomicChange | AccessKind::Release) => {}
            None => self.insert(record),
        }
        None
    }

    /// Records an access, whatever it conflicts with.
    #[cfg(test)]
    pub(super) fn force(&mut self, record: Record) {
        self.insert(record);
    }

    /// Forgets accesses that have ended, as their worker's process says.
    pub(super) fn end(&mut self, worker: u32, lifetime: Lifetime) {
        let ended = self.lives.remove(&(worker, lifetime)).unwrap_or_default();
        ended.into_iter().for_each(|number| self.remove(number));
    }

    /// Moves the accesses of a completed operation into an epoch of its worker.
    pub(super) fn complete(&mut self, worker: u32, operation: u64, epoch: u64) {
        let completed = self.lives.remove(&(worker, Lifetime::Operation(operation))).unwrap_or_default();
        for number in completed {
            if let Some(record) = self.records.get_mut(&number) {
                record.lifetime = Lifetime::Epoch(epoch);
                self.lives.entry((worker, record.lifetime)).or_default().insert(number);
            }
        }
    }

    /// Forgets all accesses to these bytes.
    pub(super) fn renew(&mut self, memory: Extent) {
        self.overlapping(memory).into_iter().for_each(|number| self.remove(number));
    }

    /// Records a release. Until the memory is allocated again, every access to it conflicts.
    pub(super) fn release(&mut self, record: Record) {
        self.renew(record.memory);
        self.insert(record);
    }

    /// Forgets the accesses of lost workers, but not their releases.
    pub(super) fn lose(&mut self, is_lost: impl Fn(u32) -> bool) {
        self.remove_all(|record| is_lost(record.worker) && record.lifetime != Lifetime::Released);
    }

    /// Forgets the accesses of a worker in epochs below this one: they have ended.
    fn end_before(&mut self, worker: u32, epoch: u64) {
        let past = self.lives.range((worker, Lifetime::Epoch(0))..(worker, Lifetime::Epoch(epoch)));
        let past: Vec<_> = past.map(|((_, lifetime), _)| *lifetime).collect();
        past.into_iter().for_each(|lifetime| self.end(worker, lifetime));
    }

    /// The numbers of the accesses that reach into a range, of any generation of the slot.
    fn overlapping(&self, memory: Extent) -> Vec<u64> {
        let mut found = Vec::new();
        let mut from = Place { slot: memory.key.slot, class: 0, offset: 0, number: 0 };
        // The next class that has any record.
        while let Some(next) = self.places.range(from..).next().filter(|next| next.slot == memory.key.slot) {
            let class = next.class;
            let reach = u64::MAX >> (63 - class);
            let first = Place { class, offset: memory.offset.saturating_sub(reach), number: 0, ..from };
            let behind = Place { class, offset: memory.end(), number: 0, ..from };
            if first < behind {
                let near = self.places.range(first..behind);
                found.extend(near.map(|place| place.number).filter(|number| {
                    let earlier = self.records[number].memory;
                    earlier.offset < memory.end() && memory.offset < earlier.end()
                }));
            }
            from = Place { class: class + 1, offset: 0, number: 0, ..from };
        }
        found
    }

    fn insert(&mut self, record: Record) {
        if self.records.len() >= self.max
            && let Some(oldest) = self.records.first_key_value().map(|(number, _)| *number)
        {
            self.remove(oldest);
            self.forgotten += 1;
        }
        let number = self.next;
        self.next += 1;
        self.lives.entry((record.worker, record.lifetime)).or_default().insert(number);
        self.places.insert(place_of(number, record.memory));
        self.records.insert(number, record);
    }

    fn remove(&mut self, number: u64) {
        let Some(record) = self.records.remove(&number) else { return };
        self.places.remove(&place_of(number, record.memory));
        if let Entry::Occupied(mut together) = self.lives.entry((record.worker, record.lifetime)) {
            together.get_mut().remove(&number);
            if together.get().is_empty() {
                together.remove();
            }
        }
    }

    fn remove_all(&mut self, which: impl Fn(&Record) -> bool) {
        let gone: Vec<_> = self.records.iter().filter(|(_, record)| which(record)).map(|(number, _)| *number).collect();
        gone.into_iter().for_each(|number| self.remove(number));
    }
}

fn place_of(number: u64, memory: Extent) -> Place {
    Place { slot: memory.key.slot, class: memory.bytes.max(1).ilog2(), offset: memory.offset, number }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use farside_fabric::{ProcessId, RemoteKey};
    use proptest::prelude::*;

    use super::*;
    use crate::runtime::observer::Known;

    fn extent(slot: u32, generation: u32, offset: u64, bytes: u64) -> Extent {
        let key = RemoteKey { process: ProcessId::new(0), slot, generation, reserved: 0, bytes: 1 << 20 };
        Extent { key, offset, bytes }
    }

    fn record(worker: u32, kind: AccessKind, offset: u64, bytes: u64) -> Record {
        let memory = extent(3, 1, offset, bytes);
        Record { memory, worker, kind, lifetime: Lifetime::Epoch(0), site: Site::of(Location::caller()) }
    }

    /// The standing of a worker that has ended its accesses before this epoch, and knows nothing.
    fn ended(below: u64) -> Standing {
        Standing { ended: below, ..Standing::default() }
    }

    fn in_epoch(epoch: u64, record: Record) -> Record {
        Record { lifetime: Lifetime::Epoch(epoch), ..record }
    }

    use AccessKind::{AtomicChange, AtomicLoad, Read, Release, Write};

    #[test]
    fn a_conflict_with_an_open_access_is_reported() {
        let mut shadow = Shadow::default();
        let first = record(1, Write, 100, 8);
        assert_eq!(shadow.enter(first.clone(), &ended(0)), None);
        assert_eq!(shadow.enter(record(2, Read, 107, 1), &ended(0)), Some(&first));
        assert_eq!(shadow.enter(record(2, Read, 108, 1), &ended(0)), None);
        assert_eq!(shadow.enter(record(2, Read, 92, 8), &ended(0)), None);
        assert_eq!(shadow.enter(record(1, Read, 0, 200), &ended(0)), None, "its own access");
        // Its next access shows that its earlier ones have ended.
        assert_eq!(shadow.enter(in_epoch(1, record(1, Read, 0, 1)), &ended(1)), None);
        assert_eq!(shadow.enter(record(2, Write, 100, 8), &ended(0)), None);
    }

    /// Accesses of a worker that has notified some others stay until all may know, once for each
    /// place.
    #[test]
    fn a_worker_that_knows_of_an_access_comes_after_it() {
        let mut shadow = Shadow::default();
        for epoch in 0..3 {
            assert_eq!(shadow.enter(in_epoch(epoch, record(1, Write, 0, 8)), &ended(0)), None);
            assert_eq!(shadow.counters().remembered, 1);
        }
        let knows = |end| Standing { ended: 0, known: Known(vec![(1, end)]) };
        let met = shadow.enter(record(2, Read, 0, 8), &knows(2)).map(|record| record.lifetime);
        assert_eq!(met, Some(Lifetime::Epoch(2)), "it knows of the earlier ones only");
        assert_eq!(shadow.enter(record(2, Read, 0, 8), &knows(3)), None);
        assert!(shadow.enter(record(3, Read, 0, 8), &ended(0)).is_some(), "another worker does not know");
        assert_eq!(shadow.enter(in_epoch(3, record(1, Read, 100, 8)), &ended(3)), None);
        assert_eq!(shadow.enter(record(3, Read, 0, 8), &ended(0)), None, "all may know of it now");
    }

    #[test]
    fn the_bytes_of_an_operation_are_in_use_for_its_own_worker_too() {
        let mut shadow = Shadow::default();
        let operation = Record { lifetime: Lifetime::Operation(5), ..record(1, Write, 0, 64) };
        assert_eq!(shadow.enter(operation.clone(), &ended(0)), None);
        assert_eq!(shadow.enter(in_epoch(7, record(1, Read, 8, 8)), &ended(7)), Some(&operation), "whatever its epoch");
        shadow.complete(1, 5, 7);
        assert_eq!(shadow.enter(in_epoch(7, record(1, Read, 8, 8)), &ended(7)), None);
        let met = shadow.enter(record(2, Read, 8, 8), &ended(0)).map(|record| record.lifetime);
        assert_eq!(met, Some(Lifetime::Epoch(7)), "no other worker knows yet that it has completed");
        shadow.end(1, Lifetime::Epoch(7));
        assert_eq!(shadow.enter(record(2, Write, 0, 64), &ended(0)), None);
    }

    #[test]
    fn atomic_changes_are_not_recorded() {
        let mut shadow = Shadow::default();
        assert_eq!(shadow.enter(record(1, AtomicChange, 0, 8), &ended(0)), None);
        assert_eq!(shadow.enter(record(2, Write, 0, 8), &ended(0)), None);
        assert!(shadow.enter(record(1, AtomicChange, 0, 8), &ended(0)).is_some());
        assert_eq!(shadow.counters().remembered, 1);
    }

    #[test]
    fn another_generation_of_a_slot_is_other_memory() {
        let mut shadow = Shadow::default();
        assert_eq!(shadow.enter(record(1, Write, 0, 8), &ended(0)), None);
        let in_second = || Record { memory: extent(3, 2, 0, 8), ..record(2, Write, 0, 8) };
        assert_eq!(shadow.enter(in_second(), &ended(0)), None);
        assert_eq!(shadow.counters().remembered, 1);
        assert!(shadow.enter(Record { worker: 1, ..in_second() }, &ended(0)).is_some());
        shadow.renew(extent(3, 2, 0, 4));
        assert_eq!(shadow.counters().remembered, 0);
    }

    /// Slots are numbers that other processes send: only records are kept of them, and the number
    /// of records is bounded.
    #[test]
    fn unknown_slots_take_no_more_room_than_others() {
        let mut shadow = Shadow::with_room_for(10);
        for (slot, generation) in (u32::MAX - 1000..=u32::MAX).zip(0..) {
            let wild = Record { memory: extent(slot, generation, u64::MAX - 8, 8), ..record(1, Write, 0, 8) };
            assert_eq!(shadow.enter(wild, &ended(0)), None);
        }
        let Shadow { records, places, lives, .. } = &shadow;
        assert_eq!([records.len(), places.len(), lives.len()], [10, 10, 1]);
    }

    #[test]
    fn accesses_of_one_operation_do_not_conflict_with_each_other() {
        let mut shadow = Shadow::default();
        let operation = |number, kind| Record { lifetime: Lifetime::Operation(number), ..record(1, kind, 0, 8) };
        assert_eq!(shadow.enter(operation(5, Write), &ended(0)), None);
        assert_eq!(shadow.enter(operation(5, Read), &ended(0)), None);
        assert!(shadow.enter(operation(6, Read), &ended(0)).is_some());
    }

    #[test]
    fn accesses_of_lost_workers_are_forgotten() {
        let mut shadow = Shadow::default();
        assert_eq!(shadow.enter(record(1, Write, 0, 8), &ended(0)), None);
        shadow.lose(|worker| worker == 1);
        assert_eq!(shadow.enter(record(2, Write, 0, 8), &ended(0)), None);
    }

    #[test]
    fn released_memory_conflicts_until_it_is_allocated_again() {
        let mut shadow = Shadow::default();
        let release = record(1, Release, 100, 50);
        assert_eq!(shadow.enter(record(2, Write, 120, 8), &ended(0)), None);
        assert_eq!(shadow.enter(release.clone(), &ended(0)).map(|met| met.kind), Some(Write), "the write is open");
        shadow.end(2, Lifetime::Epoch(0));
        assert_eq!(shadow.enter(release.clone(), &ended(0)), None);
        assert_eq!(shadow.enter(record(2, Read, 120, 8), &ended(0)), None, "it is not released yet");
        let released = Record { lifetime: Lifetime::Released, ..release };
        shadow.release(released.clone());
        // Neither for the worker that released it, nor for others after that worker is lost.
        for (worker, kind) in [(1, Read), (2, AtomicLoad), (3, Release)] {
            assert_eq!(shadow.enter(record(worker, kind, 149, 8), &ended(7)), Some(&released));
        }
        shadow.lose(|worker| worker == 1);
        assert_eq!(shadow.enter(record(2, AtomicChange, 100, 8), &ended(7)), Some(&released));
        assert_eq!(shadow.enter(record(2, Write, 150, 8), &ended(7)), None);
        shadow.renew(extent(3, 1, 96, 8));
        assert_eq!(shadow.enter(record(2, AtomicChange, 100, 8), &ended(7)), None);
    }

    #[test]
    fn the_oldest_are_forgotten_and_counted() {
        let mut shadow = Shadow::with_room_for(10);
        for at in 0..15 {
            assert_eq!(shadow.enter(record(1, Write, at * 8, 8), &ended(0)), None);
            // A repeated access takes no room.
            assert_eq!(shadow.enter(record(1, Write, at * 8, 8), &ended(0)), None);
        }
        assert_eq!(shadow.counters(), AccessChecks { accesses: 30, remembered: 10, forgotten: 5 });
        assert_eq!(shadow.places.len(), 10);
        assert!(shadow.enter(record(2, Write, 5 * 8, 1), &ended(0)).is_some());
        assert_eq!(shadow.enter(record(2, Write, 0, 40), &ended(0)), None);
    }

    #[derive(Clone, Debug)]
    struct Step {
        worker: u32,
        kind: AccessKind,
        offset: u64,
        bytes: u64,
        ends: bool,
    }

    fn step() -> impl Strategy<Value = Step> {
        let kind = prop_oneof![Just(Read), Just(Write), Just(AtomicLoad), Just(AtomicChange)];
        (0..3_u32, kind, 0..300_u64, 1..100_u64, any::<bool>()).prop_map(|(worker, kind, offset, bytes, ends)| Step {
            worker,
            kind,
            offset,
            bytes,
            ends,
        })
    }

    proptest! {
        /// Compares the shadow with a list of all open accesses.
        #[test]
        fn conflicts_match_a_plain_list(steps in prop::collection::vec(step(), 1..60)) {
            let mut shadow = Shadow::default();
            let mut open: Vec<Record> = Vec::new();
            let mut epochs = [0_u64; 3];
            for step in steps {
                let epoch = epochs[step.worker as usize];
                let new = in_epoch(epoch, record(step.worker, step.kind, step.offset, step.bytes));
                open.retain(|earlier| earlier.lifetime == Lifetime::Epoch(epochs[earlier.worker as usize]));
                let meets = |earlier: &&Record| {
                    earlier.worker != new.worker
                        && conflict(earlier.kind, new.kind)
                        && earlier.memory.offset < new.memory.end()
                        && new.memory.offset < earlier.memory.end()
                };
                let expected: Vec<&Record> = open.iter().filter(meets).collect();
                // As its worker does: ask again until no access is met that has ended.
                let met = loop {
                    match shadow.enter(new.clone(), &ended(epoch)).cloned() {
                        Some(met) if met.lifetime != Lifetime::Epoch(epochs[met.worker as usize]) => {
                            shadow.end(met.worker, met.lifetime);
                        }
                        met => break met,
                    }
                };
                prop_assert_eq!(met.is_some(), !expected.is_empty());
                if let Some(met) = met {
                    prop_assert!(expected.iter().any(|record| record.memory == met.memory && record.kind == met.kind));
                } else if new.kind != AtomicChange {
                    open.push(new);
                }
                epochs[step.worker as usize] += u64::from(step.ends);
            }
        }
    }
}

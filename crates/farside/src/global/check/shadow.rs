//! What an owner of memory knows of the accesses to it.
//!
//! Accesses are kept by the order in which they came, and found by their place. For that they are sorted into classes by length, powers of two: in a class
//! nothing that begins more than its length before a range reaches into it, so that each class is one short walk.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::epochs::Life;
use super::report::{AccessKind, Site};
use super::{AccessChecks, Span};

/// Accesses that are remembered: 64 Ki of some 150 bytes each with their places, 10 MiB.
const REMEMBERED_MAX: usize = 64 << 10;

/// An access that was made, or is about to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(super) span: Span,
    pub(super) worker: u32,
    pub(super) kind: AccessKind,
    pub(super) life: Life,
    pub(super) site: Site,
}

impl Record {
    pub(crate) fn worker(&self) -> u32 {
        self.worker
    }
}

/// The accesses to one process's memory that may be open.
#[derive(Debug)]
pub(super) struct Shadow {
    /// By the order in which they came.
    records: BTreeMap<u64, Record>,
    places: BTreeSet<Place>,
    /// The latest epoch of a worker that is known.
    epochs: HashMap<u32, u64>,
    /// The accesses that end together.
    lives: HashMap<(u32, Life), BTreeSet<u64>>,
    next: u64,
    max: usize,
    accesses: u64,
    forgotten: u64,
}

/// Where an access is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    slot: u32,
    /// Its length is at least two to this, and less than twice that.
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
            epochs: HashMap::new(),
            lives: HashMap::new(),
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

    /// Writes an access of a worker down that is now in `epoch`, unless one conflicts with it that is not known to have ended: that is returned.
    pub(super) fn enter(&mut self, record: Record, epoch: u64) -> Option<&Record> {
        self.begin_epoch(record.worker, epoch);
        let span = record.span;
        let mut same = None;
        for number in self.overlapping(span) {
            let earlier = &self.records[&number];
            if earlier.span.generation != span.generation {
                // Of another use of the slot: that memory is gone.
                self.remove(number);
                continue;
            }
            let is_own = earlier.worker == record.worker
                && (earlier.life == record.life || matches!(earlier.life, Life::Epoch(_)));
            if !is_own && earlier.kind.conflicts_with(record.kind) {
                return self.records.get(&number);
            }
            let is_same = earlier.worker == record.worker && earlier.life == record.life;
            if is_same && earlier.kind == record.kind && earlier.span == span {
                same = Some(number);
            }
        }
        self.accesses += 1;
        match same.and_then(|number| self.records.get_mut(&number)) {
            Some(same) => same.site = record.site,
            // A change tells of itself when it is made: it has ended by the time that anybody could conflict with it. And what is to be
            // released is not released yet.
            None if matches!(record.kind, AccessKind::AtomicChange | AccessKind::Release) => {}
            None => self.insert(record),
        }
        None
    }

    /// Writes an access down, whatever it conflicts with.
    #[cfg(test)]
    pub(super) fn force(&mut self, record: Record) {
        self.insert(record);
    }

    /// An access has ended, as its worker's process says.
    pub(super) fn end(&mut self, worker: u32, life: Life) {
        let ended = self.lives.remove(&(worker, life)).unwrap_or_default();
        ended.into_iter().for_each(|number| self.remove(number));
    }

    /// An operation of a worker has completed: its accesses are those of an epoch.
    pub(super) fn complete(&mut self, worker: u32, operation: u64, epoch: u64) {
        let completed = self.lives.remove(&(worker, Life::Operation(operation))).unwrap_or_default();
        self.begin_epoch(worker, epoch);
        for number in completed {
            if self.epochs.get(&worker) != Some(&epoch) {
                self.remove(number);
            } else if let Some(record) = self.records.get_mut(&number) {
                record.life = Life::Epoch(epoch);
                self.lives.entry((worker, record.life)).or_default().insert(number);
            }
        }
    }

    /// Forgets what was done with these bytes.
    pub(super) fn renew(&mut self, span: Span) {
        self.overlapping(span).into_iter().for_each(|number| self.remove(number));
    }

    /// Notes that memory is released: until it is given out anew whatever is done there is wrong.
    pub(super) fn release(&mut self, record: Record) {
        self.renew(record.span);
        self.insert(record);
    }

    /// Forgets what some workers did, but not what they released.
    pub(super) fn lose(&mut self, is_lost: impl Fn(u32) -> bool) {
        self.remove_all(|record| is_lost(record.worker) && record.life != Life::Released);
        self.epochs.retain(|worker, _| !is_lost(*worker));
    }

    /// A worker is in this epoch, if not in a later one: what it did in earlier ones has ended.
    fn begin_epoch(&mut self, worker: u32, epoch: u64) {
        let latest = self.epochs.entry(worker).or_insert(epoch);
        if *latest < epoch {
            let before = std::mem::replace(latest, epoch);
            self.end(worker, Life::Epoch(before));
        }
    }

    /// The accesses that reach into a range, of any generation of the slot.
    fn overlapping(&self, span: Span) -> Vec<u64> {
        let mut found = Vec::new();
        let mut from = Place { slot: span.slot, class: 0, offset: 0, number: 0 };
        // The next class that has any at all.
        while let Some(next) = self.places.range(from..).next().filter(|next| next.slot == span.slot) {
            let class = next.class;
            let reach = u64::MAX >> (63 - class);
            let first = Place { class, offset: span.offset.saturating_sub(reach), number: 0, ..from };
            let behind = Place { class, offset: span.end(), number: 0, ..from };
            if first < behind {
                let near = self.places.range(first..behind);
                found.extend(near.map(|place| place.number).filter(|number| {
                    let earlier = self.records[number].span;
                    earlier.offset < span.end() && span.offset < earlier.end()
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
        self.lives.entry((record.worker, record.life)).or_default().insert(number);
        self.places.insert(place_of(number, record.span));
        self.records.insert(number, record);
    }

    fn remove(&mut self, number: u64) {
        let Some(record) = self.records.remove(&number) else { return };
        self.places.remove(&place_of(number, record.span));
        if let Entry::Occupied(mut together) = self.lives.entry((record.worker, record.life)) {
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

fn place_of(number: u64, span: Span) -> Place {
    Place { slot: span.slot, class: span.bytes.max(1).ilog2(), offset: span.offset, number }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use proptest::prelude::*;

    use super::*;

    fn record(worker: u32, kind: AccessKind, offset: u64, bytes: u64) -> Record {
        let span = Span { slot: 3, generation: 1, offset, bytes };
        Record { span, worker, kind, life: Life::Epoch(0), site: Site::of(Location::caller()) }
    }

    fn in_epoch(epoch: u64, record: Record) -> Record {
        Record { life: Life::Epoch(epoch), ..record }
    }

    use AccessKind::{AtomicChange, AtomicLoad, Read, Release, Write};

    #[test]
    fn who_writes_what_another_has_open_is_told_of_it() {
        let mut shadow = Shadow::default();
        let first = record(1, Write, 100, 8);
        assert_eq!(shadow.enter(first.clone(), 0), None);
        assert_eq!(shadow.enter(record(2, Read, 107, 1), 0), Some(&first));
        assert_eq!(shadow.enter(record(2, Read, 108, 1), 0), None);
        assert_eq!(shadow.enter(record(2, Read, 92, 8), 0), None);
        assert_eq!(shadow.enter(record(1, Read, 0, 200), 0), None, "its own");
        // Its next access tells that what it did before has ended.
        assert_eq!(shadow.enter(in_epoch(1, record(1, Read, 0, 1)), 1), None);
        assert_eq!(shadow.enter(record(2, Write, 100, 8), 0), None);
    }

    #[test]
    fn an_operations_bytes_are_in_use_for_its_own_worker_too() {
        let mut shadow = Shadow::default();
        let operation = Record { life: Life::Operation(5), ..record(1, Write, 0, 64) };
        assert_eq!(shadow.enter(operation.clone(), 0), None);
        assert_eq!(shadow.enter(in_epoch(7, record(1, Read, 8, 8)), 7), Some(&operation), "whatever its epoch");
        shadow.complete(1, 5, 7);
        assert_eq!(shadow.enter(in_epoch(7, record(1, Read, 8, 8)), 7), None);
        let met = shadow.enter(record(2, Read, 8, 8), 0).map(|record| record.life);
        assert_eq!(met, Some(Life::Epoch(7)), "nobody knows yet that it has completed");
        shadow.end(1, Life::Epoch(7));
        assert_eq!(shadow.enter(record(2, Write, 0, 64), 0), None);
    }

    #[test]
    fn changes_leave_nothing_behind() {
        let mut shadow = Shadow::default();
        assert_eq!(shadow.enter(record(1, AtomicChange, 0, 8), 0), None);
        assert_eq!(shadow.enter(record(2, Write, 0, 8), 0), None);
        assert!(shadow.enter(record(1, AtomicChange, 0, 8), 0).is_some());
        assert_eq!(shadow.counters().remembered, 1);
    }

    #[test]
    fn another_use_of_the_slot_is_other_memory() {
        let mut shadow = Shadow::default();
        assert_eq!(shadow.enter(record(1, Write, 0, 8), 0), None);
        let in_second = || {
            let later = record(2, Write, 0, 8);
            Record { span: Span { generation: 2, ..later.span }, ..later }
        };
        assert_eq!(shadow.enter(in_second(), 0), None);
        assert_eq!(shadow.counters().remembered, 1);
        assert!(shadow.enter(Record { worker: 1, ..in_second() }, 0).is_some());
        shadow.renew(Span { slot: 3, generation: 2, offset: 0, bytes: 4 });
        assert_eq!(shadow.counters().remembered, 0);
    }

    /// Slots are numbers that others send: nothing is kept of one but accesses, of which there are so many at most.
    #[test]
    fn wild_slots_take_no_more_room_than_others() {
        let mut shadow = Shadow::with_room_for(10);
        for (slot, generation) in (u32::MAX - 1000..=u32::MAX).zip(0..) {
            let wild = record(1, Write, u64::MAX - 8, 8);
            let wild = Record { span: Span { slot, generation, ..wild.span }, ..wild };
            assert_eq!(shadow.enter(wild, 0), None);
        }
        let Shadow { records, places, epochs, lives, .. } = &shadow;
        assert_eq!([records.len(), places.len(), epochs.len(), lives.len()], [10, 10, 1, 1]);
    }

    #[test]
    fn an_operations_accesses_do_not_conflict_with_each_other() {
        let mut shadow = Shadow::default();
        let operation = |number, kind| Record { life: Life::Operation(number), ..record(1, kind, 0, 8) };
        assert_eq!(shadow.enter(operation(5, Write), 0), None);
        assert_eq!(shadow.enter(operation(5, Read), 0), None);
        assert!(shadow.enter(operation(6, Read), 0).is_some());
    }

    #[test]
    fn what_lost_workers_did_is_forgotten() {
        let mut shadow = Shadow::default();
        assert_eq!(shadow.enter(record(1, Write, 0, 8), 0), None);
        shadow.lose(|worker| worker == 1);
        assert_eq!(shadow.enter(record(2, Write, 0, 8), 0), None);
    }

    #[test]
    fn what_is_released_is_nobodys_until_it_is_given_out() {
        let mut shadow = Shadow::default();
        let release = record(1, Release, 100, 50);
        assert_eq!(shadow.enter(record(2, Write, 120, 8), 0), None);
        assert_eq!(shadow.enter(release.clone(), 0).map(|met| met.kind), Some(Write), "it is open");
        shadow.end(2, Life::Epoch(0));
        assert_eq!(shadow.enter(release.clone(), 0), None);
        assert_eq!(shadow.enter(record(2, Read, 120, 8), 0), None, "it is not released yet");
        let released = Record { life: Life::Released, ..release };
        shadow.release(released.clone());
        // Neither who released it may have it, nor anybody after that one is gone.
        for (worker, kind) in [(1, Read), (2, AtomicLoad), (3, Release)] {
            assert_eq!(shadow.enter(record(worker, kind, 149, 8), 7), Some(&released));
        }
        shadow.lose(|worker| worker == 1);
        assert_eq!(shadow.enter(record(2, AtomicChange, 100, 8), 7), Some(&released));
        assert_eq!(shadow.enter(record(2, Write, 150, 8), 7), None);
        shadow.renew(Span { slot: 3, generation: 1, offset: 96, bytes: 8 });
        assert_eq!(shadow.enter(record(2, AtomicChange, 100, 8), 7), None);
    }

    #[test]
    fn the_oldest_are_forgotten_and_counted() {
        let mut shadow = Shadow::with_room_for(10);
        for at in 0..15 {
            assert_eq!(shadow.enter(record(1, Write, at * 8, 8), 0), None);
            // The same again takes no room.
            assert_eq!(shadow.enter(record(1, Write, at * 8, 8), 0), None);
        }
        assert_eq!(shadow.counters(), AccessChecks { accesses: 30, remembered: 10, forgotten: 5 });
        assert_eq!(shadow.places.len(), 10);
        assert!(shadow.enter(record(2, Write, 5 * 8, 1), 0).is_some());
        assert_eq!(shadow.enter(record(2, Write, 0, 40), 0), None);
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
        /// Against a list of everything that is open.
        #[test]
        fn conflicts_are_those_of_a_plain_list(steps in prop::collection::vec(step(), 1..60)) {
            let mut shadow = Shadow::default();
            let mut open: Vec<Record> = Vec::new();
            let mut epochs = [0_u64; 3];
            for step in steps {
                let epoch = epochs[step.worker as usize];
                let new = in_epoch(epoch, record(step.worker, step.kind, step.offset, step.bytes));
                open.retain(|earlier| earlier.life == Life::Epoch(epochs[earlier.worker as usize]));
                let meets = |earlier: &&Record| {
                    earlier.worker != new.worker
                        && earlier.kind.conflicts_with(new.kind)
                        && earlier.span.offset < new.span.end()
                        && new.span.offset < earlier.span.end()
                };
                let expected: Vec<&Record> = open.iter().filter(meets).collect();
                // As its worker would: ask again until nothing is met that has ended.
                let met = loop {
                    match shadow.enter(new.clone(), epoch).cloned() {
                        Some(met) if met.life != Life::Epoch(epochs[met.worker as usize]) => {
                            shadow.end(met.worker, met.life);
                        }
                        met => break met,
                    }
                };
                prop_assert_eq!(met.is_some(), !expected.is_empty());
                if let Some(met) = met {
                    prop_assert!(expected.iter().any(|record| record.span == met.span && record.kind == met.kind));
                } else if new.kind != AtomicChange {
                    open.push(new);
                }
                epochs[step.worker as usize] += u64::from(step.ends);
            }
        }
    }
}

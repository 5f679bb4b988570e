//! What a worker knows of collectives: which one it is in, and what has arrived for that one and
//! for later ones.

use std::collections::{HashMap, VecDeque};

use farside_fabric::WorkerId;

use crate::wire::Wire;

/// A worker's state of collectives: what has arrived for those that it is in or has not reached
/// yet.
#[derive(Debug)]
pub(crate) struct Collectives {
    /// The worker that this is the state of.
    pub(super) of: WorkerId,
    /// The number of collectives that this worker has begun, which is the number of the last one.
    pub(super) begun: u64,
    /// What the last one is.
    pub(super) current: Content,
    /// What was announced in round `k` of barriers. Each round always has the same sender.
    pub(super) arrived: Vec<Announced>,
    /// Values that have arrived, by collective and sender.
    pub(super) values: HashMap<(u64, WorkerId), Value>,
    /// The number of those values that came from other binaries.
    pub(super) foreign_values: usize,
    pub(super) foreign_bytes: usize,
    /// Whether a value was dropped because too much had arrived. No later collective can complete
    /// then.
    pub(super) is_overrun: bool,
    /// Set when two workers take part in different collectives. No later collective can complete
    /// then.
    pub(super) mismatch: Option<Mismatch>,
    /// Whether all workers were told of it.
    pub(super) is_told: bool,
    /// Whether a collective of this worker has ended in an error, so that its values may arrive
    /// late.
    pub(super) has_failed: bool,
    /// The numbers of calls of collectives that this worker has sent and executed.
    pub(super) sent: u64,
    pub(super) executed: u64,
    /// The worker for which this one waits in the current collective.
    pub(super) awaited: Option<WorkerId>,
    /// Whether this worker's body has returned, so that it begins no further collective.
    pub(super) has_returned: bool,
}

/// The announcements of one round of barriers that this worker has not passed yet.
#[derive(Clone, Debug)]
pub(super) struct Announced {
    pub(super) from: WorkerId,
    /// The numbers of the barriers, which increase. A sender is at most one barrier ahead, unless
    /// it has given up waiting at earlier ones.
    pub(super) numbers: VecDeque<u64>,
}

/// The largest number of announcements that are kept for a round.
pub(super) const ANNOUNCED_MAX: usize = 64;

/// Two workers take part in different collectives.
#[derive(Clone, Debug, Wire)]
pub(super) struct Mismatch {
    /// The number of the collective. A worker may still complete those before it.
    pub(super) number: u64,
    /// The worker that noticed it.
    pub(super) here: WorkerId,
    pub(super) ours: String,
    pub(super) there: WorkerId,
    pub(super) theirs: String,
}

/// The kind of a collective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
pub(super) enum Kind {
    #[default]
    Barrier,
    Broadcast,
    Gather,
    AllReduce,
}

/// What a collective is. All workers that take part in it agree on that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Wire)]
pub(super) struct Content {
    pub(super) kind: Kind,
    /// The number of the root.
    pub(super) root: u32,
    /// Identifies the type of the values: among processes of one binary, or by its shape in a job
    /// of several binaries.
    pub(super) type_hash: u64,
    /// The name of the type, for errors. Two binaries may print it differently.
    pub(super) type_name: String,
}

impl Content {
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.kind, self.root, self.type_hash) == (other.kind, other.root, other.type_hash)
    }

    pub(super) fn describe(&self) -> String {
        match self.kind {
            Kind::Barrier => "a barrier".to_owned(),
            Kind::Broadcast => format!("a broadcast of `{}` from worker {}", self.type_name, self.root),
            Kind::Gather => format!("a gather of `{}` at worker {}", self.type_name, self.root),
            Kind::AllReduce => format!("an all_reduce of `{}`", self.type_name),
        }
    }
}

/// A value on its way.
#[derive(Debug, Wire)]
pub(super) struct Parcel {
    /// The number of the collective.
    pub(super) number: u64,
    pub(super) from: WorkerId,
    pub(super) content: Content,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Value {
    pub(super) content: Content,
    pub(super) bytes: Vec<u8>,
    /// Whether the value came from another binary.
    pub(super) is_foreign: bool,
}

/// Bounds on what processes of other binaries may send to a worker for collectives that it has not
/// reached. Processes of the same binary are trusted not to flood it.
pub(super) const FOREIGN_VALUES_MAX: usize = 1 << 16;
pub(super) const FOREIGN_BYTES_MAX: usize = 256 << 20;

/// What a value of another binary counts against the bound.
pub(super) fn kept_bytes(content: &Content, bytes: &[u8]) -> usize {
    content.type_name.len() + bytes.len()
}

impl Collectives {
    pub(crate) fn new(of: WorkerId) -> Self {
        Self {
            of,
            begun: 0,
            current: Content::default(),
            arrived: Vec::new(),
            values: HashMap::new(),
            foreign_values: 0,
            foreign_bytes: 0,
            is_overrun: false,
            mismatch: None,
            is_told: false,
            has_failed: false,
            sent: 0,
            executed: 0,
            awaited: None,
            has_returned: false,
        }
    }

    /// Notes that this worker's body has returned.
    pub(crate) fn end(&mut self) {
        self.has_returned = true;
    }

    /// The calls sent that quiescence does not count.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Excludes one sent call from the count of quiescence.
    pub(crate) fn leave_out_sent(&mut self) {
        self.sent += 1;
    }

    /// Excludes one executed call from the count of quiescence.
    pub(crate) fn leave_out_executed(&mut self) {
        self.executed += 1;
    }

    /// Begins the next collective and returns its number.
    pub(super) fn begin(&mut self, content: Content) -> u64 {
        self.begun += 1;
        self.current = content;
        let early = self
            .values
            .iter()
            .filter(|((number, _), value)| *number == self.begun && !value.content.is_like(&self.current));
        // The first by number, so that a simulation repeats itself.
        if let Some(((_, from), value)) = early.min_by_key(|((_, from), _)| *from) {
            self.note(self.differs(*from, &value.content));
        }
        let number = self.begun;
        self.arrived.iter_mut().for_each(|announced| announced.numbers.retain(|announced| *announced >= number));
        let early = self.arrived.iter().find(|announced| announced.numbers.front() == Some(&number));
        if self.current.kind != Kind::Barrier
            && let Some(announced) = early
        {
            self.note(self.differs(announced.from, &Content::default()));
        }
        self.begun
    }

    /// Notes that `from` has announced round `round` of barrier `number`.
    pub(super) fn announce(&mut self, number: u64, round: usize, from: WorkerId) {
        if number < self.begun {
            return;
        }
        if self.arrived.len() <= round {
            self.arrived.resize(round + 1, Announced { from, numbers: VecDeque::new() });
        }
        let announced = &mut self.arrived[round];
        announced.from = from;
        if announced.numbers.len() < ANNOUNCED_MAX {
            announced.numbers.push_back(number);
        }
        if number == self.begun && self.current.kind != Kind::Barrier {
            self.note(self.differs(from, &Content::default()));
        }
    }

    /// Returns whether round `round` of the current barrier was announced.
    pub(super) fn is_announced(&mut self, round: usize) -> bool {
        let Some(Announced { from, numbers }) = self.arrived.get(round) else { return false };
        let (from, first) = (*from, numbers.front().copied());
        if first.is_some_and(|first| first > self.begun) {
            // It waits at a later barrier, and has not been at this one.
            self.note(self.differs(from, &Content::default()));
        }
        first == Some(self.begun)
    }

    /// Notes a mismatch. The first one stays.
    pub(super) fn note(&mut self, mismatch: Mismatch) {
        self.mismatch.get_or_insert(mismatch);
    }

    pub(super) fn differs(&self, there: WorkerId, theirs: &Content) -> Mismatch {
        Mismatch { number: self.begun, here: self.of, ours: self.current.describe(), there, theirs: theirs.describe() }
    }

    /// Keeps a value. Drops it if its collective is past.
    pub(super) fn keep(&mut self, parcel: Parcel, is_foreign: bool) {
        let Parcel { number, from, content, bytes } = parcel;
        if number < self.begun {
            if !is_foreign && !self.has_failed {
                // This worker waited for all values of the collectives that it has left.
                let ours = "another one, which it has left".into();
                self.note(Mismatch { ours, ..self.differs(from, &content) });
            }
            return;
        }
        if number == self.begun && !content.is_like(&self.current) {
            self.note(self.differs(from, &content));
            return;
        }
        self.remove(number, from);
        if is_foreign {
            let (count, total) = (self.foreign_values + 1, self.foreign_bytes + kept_bytes(&content, &bytes));
            if count > FOREIGN_VALUES_MAX || total > FOREIGN_BYTES_MAX {
                self.is_overrun = true;
                return;
            }
            (self.foreign_values, self.foreign_bytes) = (count, total);
        }
        self.values.insert((number, from), Value { content, bytes, is_foreign });
    }

    /// Takes a value of the current collective.
    pub(super) fn take(&mut self, from: WorkerId) -> Option<Value> {
        // `begin` and `keep` look at the content of what they let in. What does not match the
        // current collective is never handed out.
        self.remove(self.begun, from).filter(|value| value.content.is_like(&self.current))
    }

    pub(super) fn remove(&mut self, number: u64, from: WorkerId) -> Option<Value> {
        let value = self.values.remove(&(number, from))?;
        if value.is_foreign {
            self.foreign_values -= 1;
            self.foreign_bytes -= kept_bytes(&value.content, &value.bytes);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: WorkerId = WorkerId::new(3);

    fn parcel(number: u64, from: WorkerId, bytes: Vec<u8>) -> Parcel {
        Parcel { number, from, content: Content::default(), bytes }
    }

    fn keep_foreign(collectives: &mut Collectives, number: u64, bytes: Vec<u8>) {
        collectives.keep(parcel(number, FROM, bytes), true);
    }

    #[test]
    fn messages_of_another_binary_are_bounded() {
        let mut collectives = Collectives { begun: 5, ..Collectives::new(FROM) };
        let half = FOREIGN_BYTES_MAX / 2;
        keep_foreign(&mut collectives, 5, vec![1; half]);
        keep_foreign(&mut collectives, 6, vec![2; half]);
        // A second value of the same collective and sender replaces the first.
        keep_foreign(&mut collectives, 6, vec![3; half]);
        assert!(!collectives.is_overrun);
        assert_eq!(collectives.remove(6, FROM).map(|value| value.bytes), Some(vec![3; half]));
        assert_eq!((collectives.foreign_values, collectives.foreign_bytes), (1, half));
        keep_foreign(&mut collectives, 7, vec![4; half]);
        assert!(!collectives.is_overrun);
        keep_foreign(&mut collectives, 8, vec![5]);
        assert!(collectives.is_overrun);
        assert!(collectives.remove(8, FROM).is_none());
    }

    #[test]
    fn values_are_counted_and_past_ones_dropped() {
        let mut collectives = Collectives { begun: 5, ..Collectives::new(FROM) };
        (0..5).for_each(|number| keep_foreign(&mut collectives, number, vec![1]));
        assert_eq!((collectives.values.len(), collectives.foreign_values), (0, 0));
        let last = 5 + FOREIGN_VALUES_MAX as u64;
        (5..last).for_each(|number| keep_foreign(&mut collectives, number, Vec::new()));
        assert!(!collectives.is_overrun);
        assert!(collectives.take(FROM).is_some());
        keep_foreign(&mut collectives, last, Vec::new());
        assert!(!collectives.is_overrun);
        keep_foreign(&mut collectives, last + 1, Vec::new());
        assert!(collectives.is_overrun);
    }

    /// Whatever comes first, the value or the collective, a value of another kind or type is
    /// noticed and not handed out.
    #[test]
    fn a_value_of_another_collective_is_a_mismatch() {
        let kinds = [Kind::Barrier, Kind::Broadcast, Kind::Gather, Kind::AllReduce];
        let all = kinds
            .into_iter()
            .flat_map(|kind| [1, 2].map(|type_hash| Content { kind, type_hash, ..Content::default() }));
        for ours in all.clone() {
            for theirs in all.clone() {
                let parcel = || Parcel { number: 1, from: FROM, content: theirs.clone(), bytes: vec![7] };
                let mut early = Collectives::new(FROM);
                early.keep(parcel(), false);
                early.begin(ours.clone());
                let mut late = Collectives::new(FROM);
                late.begin(ours.clone());
                late.keep(parcel(), false);
                for collectives in [&mut early, &mut late] {
                    assert_eq!(collectives.take(FROM).is_some(), ours == theirs, "{ours:?} {theirs:?}");
                    assert_eq!(collectives.mismatch.is_some(), ours != theirs, "{ours:?} {theirs:?}");
                }
            }
        }
    }

    /// After an error, values of the collective that failed may still arrive.
    #[test]
    fn a_late_value_is_a_mismatch_unless_the_collective_failed() {
        let broadcast = || Content { kind: Kind::Broadcast, ..Content::default() };
        let late = || Parcel { number: 1, from: FROM, content: broadcast(), bytes: vec![7] };
        for has_failed in [false, true] {
            let mut collectives = Collectives { has_failed, ..Collectives::new(FROM) };
            collectives.begin(broadcast());
            collectives.begin(Content::default());
            collectives.keep(late(), false);
            assert_eq!(collectives.mismatch.is_some(), !has_failed);
            assert!(collectives.values.is_empty());
        }
    }

    #[test]
    fn an_arrival_at_a_barrier_elsewhere_is_a_mismatch() {
        let broadcast = || Content { kind: Kind::Broadcast, ..Content::default() };
        let mut collectives = Collectives::new(FROM);
        collectives.begin(broadcast());
        // It has passed a broadcast as its root, or left a gather.
        collectives.announce(2, 0, FROM);
        assert!(collectives.mismatch.is_none());
        collectives.begin(Content::default());
        assert!(collectives.is_announced(0) && collectives.mismatch.is_none());
        collectives.begin(broadcast());
        collectives.announce(3, 0, FROM);
        assert!(collectives.mismatch.is_some());

        // One that was at this barrier and has gone on to the next one.
        let mut ahead = Collectives::new(FROM);
        ahead.begin(Content::default());
        ahead.announce(1, 0, FROM);
        ahead.announce(2, 0, FROM);
        assert!(ahead.is_announced(0) && ahead.mismatch.is_none());

        // One that has given up waiting at this barrier, and at the next one.
        ahead.announce(3, 0, FROM);
        assert!(ahead.is_announced(0) && ahead.mismatch.is_none());

        let mut skipped = Collectives::new(FROM);
        skipped.begin(Content::default());
        skipped.announce(2, 0, FROM);
        assert!(!skipped.is_announced(0) && skipped.mismatch.is_some());

        let mut early = Collectives::new(FROM);
        early.announce(1, 0, FROM);
        early.begin(broadcast());
        assert!(early.mismatch.is_some());
    }
}

//! A worker's knowledge of its collectives.

use std::cell::Cell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;
use std::rc::Rc;

use farside_fabric::{ProcessId, WorkerId};

use super::team::Team;
use crate::wire::Wire;

/// A worker's knowledge of its collectives.
#[derive(Debug)]
pub(crate) struct Collectives {
    /// The collectives of all workers.
    all: Sequence,
    /// The collectives of teams, by the team's name: the teams of this worker, and those that it
    /// has not made yet and from which something has arrived.
    teams: HashMap<u64, Sequence>,
    /// The names of teams that the program has dropped. What still arrives for them is dropped,
    /// too. This is bounded: when the first set is full, it replaces the second, whose names are
    /// the oldest. A message for a team that was dropped so long ago is kept until the job ends.
    /// Such messages come only after a failure, so they are few.
    forgotten: [HashSet<u64>; 2],
    /// The names of teams for which a message was dropped, because too many teams were not made.
    /// What it said is unknown, so these teams cannot be used when they are made.
    lost: HashSet<u64>,
    /// True if such names came that are not kept. Then no team that is made later can be used.
    has_lost_more: bool,
    /// The number of times that this worker has begun to make a team of the same members.
    made: HashMap<u64, u64>,
    /// The team with which this worker goes on after a loss.
    remaining: Option<Team>,
    /// The number of calls that this worker has executed, and that quiescence does not count: those
    /// of collectives.
    pub(super) executed: u64,
    /// True if this worker's body has returned, so that it begins no further collective.
    has_returned: bool,
}

/// The name of the sequence of all workers.
pub(super) const ALL: u64 = 0;

/// The largest number of teams from which other binaries have sent something, and which this worker
/// has not made.
pub(super) const FOREIGN_TEAMS_MAX: usize = 1024;

/// The largest number of names of such teams that are kept beyond that.
const LOST_MAX: usize = 1 << 14;

/// The number of dropped teams after which the names of older ones may be forgotten.
const FORGOTTEN_MAX: usize = 1 << 14;

/// The collectives of one team on one worker: which one it is in, and what has arrived for that one
/// and for later ones.
#[derive(Debug)]
pub(super) struct Sequence {
    /// The worker that this is the state of.
    of: WorkerId,
    /// The name of the team.
    team: u64,
    /// The members, once this worker has made the team. Not used for all workers.
    pub(super) members: Option<Rc<[WorkerId]>>,
    /// The number of collectives that this worker has begun, which is the number of the last one.
    pub(super) begun: u64,
    /// The content of the last one.
    pub(super) current: Content,
    /// The announcements of round `k` of barriers. Each round always has the same sender.
    arrived: Vec<Announced>,
    /// Values that have arrived, by collective and sender.
    values: HashMap<(u64, WorkerId), Value>,
    /// The memory that values from other binaries use, in all sequences of this worker.
    foreign: Rc<Cell<Foreign>>,
    /// True if a value was dropped because too much had arrived. No later collective can complete
    /// then.
    pub(super) is_overrun: bool,
    /// Set when two workers take part in different collectives. No later collective can complete
    /// then.
    pub(super) mismatch: Option<Mismatch>,
    /// True if all members were notified of it.
    pub(super) is_told: bool,
    /// True if a collective of this worker has ended in an error, so that its values may arrive
    /// late.
    pub(super) has_failed: bool,
    /// The worker for which this one waits in the current collective.
    pub(super) awaited: Option<WorkerId>,
    /// The number of looks in that wait that found nothing.
    pub(super) looks: u64,
    /// The number of losses that were compared with the members, and the first lost member.
    pub(super) losses_seen: usize,
    pub(super) lost: Option<ProcessId>,
    /// The numbers of calls of this team's [`Finish`](super::Finish) scopes that this worker has
    /// sent and executed.
    pub(super) scope_sent: u64,
    pub(super) scope_executed: u64,
}

/// The values that came from other binaries: their number and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Foreign {
    values: usize,
    bytes: usize,
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

/// The largest length of a text in a mismatch, in bytes. Another binary may send any.
const TEXT_BYTES_MAX: usize = 1024;

/// Two workers take part in different collectives.
#[derive(Clone, Debug, Wire)]
pub(super) struct Mismatch {
    /// The name of the team.
    pub(super) team: u64,
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
pub(crate) enum Kind {
    #[default]
    Barrier,
    Broadcast,
    Gather,
    AllReduce,
    Reduce,
    Scan,
    ExclusiveScan,
    AllGather,
    Scatter,
    AllToAll,
    Split,
    Quiesce,
    Finish,
    Dist,
    PerWorker,
    Tasks,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Barrier => "a barrier",
            Self::Broadcast => "a broadcast",
            Self::Gather => "a gather",
            Self::AllReduce => "an all_reduce",
            Self::Reduce => "a reduce",
            Self::Scan => "a scan",
            Self::ExclusiveScan => "an exclusive_scan",
            Self::AllGather => "an all_gather",
            Self::Scatter => "a scatter",
            Self::AllToAll => "an all_to_all",
            Self::Split => "a split",
            Self::Quiesce => "a quiesce",
            Self::Finish => "a finish scope",
            Self::Dist => "a new Dist",
            Self::PerWorker => "a new PerWorker",
            Self::Tasks => "a run of a TaskPool",
        }
    }
}

/// The content of a collective. All workers that take part in it agree on it.
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
    /// The number of elements, in a collective on slices.
    pub(super) length: Option<u64>,
}

impl Content {
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let what = |content: &Self| (content.kind, content.root, content.type_hash, content.length);
        what(self) == what(other)
    }

    fn describe(&self) -> String {
        let (name, root) = (self.kind.name(), self.root);
        let values = match self.length {
            None => format!("`{}`", self.type_name),
            Some(length) => format!("{length} elements of `{}`", self.type_name),
        };
        match self.kind {
            Kind::Barrier | Kind::Split | Kind::Quiesce | Kind::Finish => name.to_owned(),
            Kind::Broadcast | Kind::Scatter => format!("{name} of {values} from worker {root}"),
            Kind::Gather | Kind::Reduce => format!("{name} of {values} at worker {root}"),
            _ => format!("{name} of {values}"),
        }
    }
}

/// A value on its way.
#[derive(Debug, Wire)]
pub(super) struct Parcel {
    /// The name of the team.
    pub(super) team: u64,
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
    /// True if the value came from another binary.
    pub(super) is_foreign: bool,
}

/// Bounds on what processes of other binaries may send to a worker for collectives that it has not
/// reached. Processes of the same binary are trusted not to flood it.
pub(super) const FOREIGN_VALUES_MAX: usize = 1 << 16;
pub(super) const FOREIGN_BYTES_MAX: usize = 256 << 20;

/// Returns the bytes that a value of another binary counts against the bound.
pub(super) fn kept_bytes(content: &Content, bytes: &[u8]) -> usize {
    content.type_name.len() + bytes.len()
}

impl Collectives {
    pub(crate) fn new(of: WorkerId) -> Self {
        let all = Sequence::new(of, ALL, Rc::default());
        Self {
            all,
            teams: HashMap::new(),
            forgotten: Default::default(),
            lost: HashSet::new(),
            has_lost_more: false,
            made: HashMap::new(),
            remaining: None,
            executed: 0,
            has_returned: false,
        }
    }

    /// Returns the collectives of a team that the program has, or is about to make.
    pub(super) fn sequence(&mut self, team: u64) -> &mut Sequence {
        let (of, foreign) = (self.all.of, &self.all.foreign);
        match team {
            ALL => &mut self.all,
            team => self.teams.entry(team).or_insert_with(|| Sequence::new(of, team, foreign.clone())),
        }
    }

    /// Returns the collectives of a team for which a message has come. Returns `None` if the
    /// program has dropped the team, or if another binary has sent the message and too many teams
    /// wait to be made.
    pub(super) fn of_message(&mut self, team: u64, is_foreign: bool) -> Option<&mut Sequence> {
        if !self.is_known(team) {
            if self.forgotten.iter().any(|names| names.contains(&team)) {
                return None;
            }
            if self.lost.contains(&team) {
                return None;
            }
            let unmade = || self.teams.values().filter(|sequence| sequence.members.is_none()).count();
            if is_foreign && unmade() >= FOREIGN_TEAMS_MAX {
                self.has_lost_more |= self.lost.len() >= LOST_MAX;
                if !self.has_lost_more {
                    self.lost.insert(team);
                }
                return None;
            }
        }
        // An earlier message for it may be among those that were dropped without a name.
        let is_overrun = self.has_lost_more && !self.is_known(team);
        let sequence = self.sequence(team);
        sequence.is_overrun |= is_overrun;
        Some(sequence)
    }

    fn is_known(&self, team: u64) -> bool {
        team == ALL || self.teams.contains_key(&team)
    }

    /// Notes that this worker has made a team. Forgets those that the program has dropped.
    pub(super) fn make(&mut self, team: u64, members: &Rc<[WorkerId]>) {
        let is_overrun = self.lost.remove(&team) || self.has_lost_more && !self.is_known(team);
        if self.forgotten[0].len() >= FORGOTTEN_MAX {
            self.forgotten[1] = mem::take(&mut self.forgotten[0]);
        }
        let forgotten = &mut self.forgotten[0];
        self.teams.retain(|name, sequence| {
            let is_dropped = sequence.is_dropped();
            if is_dropped {
                sequence.drop_values();
                forgotten.insert(*name);
            }
            !is_dropped
        });
        let sequence = self.sequence(team);
        sequence.members = Some(members.clone());
        sequence.is_overrun |= is_overrun;
    }

    /// Counts the teams that are made of the same members, and returns the number of this one.
    pub(super) fn count_made(&mut self, of: u64) -> u64 {
        let made = self.made.entry(of).or_default();
        *made += 1;
        *made
    }

    /// Notes that this worker's body has returned.
    pub(crate) fn end(&mut self) {
        self.has_returned = true;
    }

    pub(super) fn has_returned(&self) -> bool {
        self.has_returned
    }

    pub(super) fn remaining(&self) -> Option<Team> {
        self.remaining.clone()
    }

    pub(super) fn go_on_among(&mut self, team: Team) {
        self.remaining = Some(team);
    }

    /// The calls executed that quiescence does not count.
    pub(crate) fn executed(&self) -> u64 {
        self.executed
    }

    /// Excludes one executed call from the count of quiescence.
    pub(crate) fn leave_out_executed(&mut self) {
        self.executed += 1;
    }
}

impl Sequence {
    fn new(of: WorkerId, team: u64, foreign: Rc<Cell<Foreign>>) -> Self {
        Self {
            of,
            team,
            members: None,
            begun: 0,
            current: Content::default(),
            arrived: Vec::new(),
            values: HashMap::new(),
            foreign,
            is_overrun: false,
            mismatch: None,
            is_told: false,
            has_failed: false,
            awaited: None,
            looks: 0,
            losses_seen: 0,
            lost: None,
            scope_sent: 0,
            scope_executed: 0,
        }
    }

    /// Returns whether the program has made the team and has it no more.
    fn is_dropped(&self) -> bool {
        self.members.as_ref().is_some_and(|members| Rc::strong_count(members) == 1)
    }

    fn drop_values(&mut self) {
        let kept: Vec<_> = self.values.keys().copied().collect();
        for (number, from) in kept {
            self.remove(number, from);
        }
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

    /// Notes a mismatch, of which no member was notified. That of the earliest collective stays:
    /// other members may still wait in it. Returns whether it is this one.
    pub(super) fn note(&mut self, mut mismatch: Mismatch) -> bool {
        if self.mismatch.as_ref().is_some_and(|noted| noted.number <= mismatch.number) {
            return false;
        }
        for text in [&mut mismatch.ours, &mut mismatch.theirs] {
            text.truncate((0..=TEXT_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0));
        }
        self.mismatch = Some(mismatch);
        self.is_told = false;
        true
    }

    pub(super) fn differs(&self, there: WorkerId, theirs: &Content) -> Mismatch {
        let (ours, theirs) = (self.current.describe(), theirs.describe());
        Mismatch { team: self.team, number: self.begun, here: self.of, ours, there, theirs }
    }

    /// Keeps a value. Drops it if its collective is past.
    pub(super) fn keep(&mut self, parcel: Parcel, is_foreign: bool) {
        let Parcel { number, from, content, bytes, .. } = parcel;
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
            let Foreign { values, bytes: kept } = self.foreign.get();
            let more = Foreign { values: values + 1, bytes: kept + kept_bytes(&content, &bytes) };
            if more.values > FOREIGN_VALUES_MAX || more.bytes > FOREIGN_BYTES_MAX {
                self.is_overrun = true;
                return;
            }
            self.foreign.set(more);
        }
        self.values.insert((number, from), Value { content, bytes, is_foreign });
    }

    /// Takes a value of a collective. What does not match its content is never handed out.
    pub(super) fn take(&mut self, number: u64, content: &Content, from: WorkerId) -> Option<Value> {
        if number != self.begun {
            // Code of the program has begun another collective inside this one, in a function that
            // combines, clones or encodes values.
            let theirs = format!("{}, which it began inside the first one", self.current.describe());
            self.note(Mismatch {
                team: self.team,
                number,
                here: self.of,
                ours: content.describe(),
                there: self.of,
                theirs,
            });
            return None;
        }
        self.remove(number, from).filter(|value| value.content.is_like(content))
    }

    pub(super) fn remove(&mut self, number: u64, from: WorkerId) -> Option<Value> {
        let value = self.values.remove(&(number, from))?;
        if value.is_foreign {
            let Foreign { values, bytes } = self.foreign.get();
            let less = kept_bytes(&value.content, &value.bytes);
            self.foreign.set(Foreign { values: values - 1, bytes: bytes - less });
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: WorkerId = WorkerId::new(3);

    fn new_sequence() -> Sequence {
        Sequence::new(FROM, ALL, Rc::default())
    }

    fn parcel(number: u64, from: WorkerId, bytes: Vec<u8>) -> Parcel {
        Parcel { team: ALL, number, from, content: Content::default(), bytes }
    }

    fn keep_foreign(sequence: &mut Sequence, number: u64, bytes: Vec<u8>) {
        sequence.keep(parcel(number, FROM, bytes), true);
    }

    #[test]
    fn messages_of_another_binary_are_bounded() {
        let mut sequence = Sequence { begun: 5, ..new_sequence() };
        let half = FOREIGN_BYTES_MAX / 2;
        keep_foreign(&mut sequence, 5, vec![1; half]);
        keep_foreign(&mut sequence, 6, vec![2; half]);
        // A second value of the same collective and sender replaces the first.
        keep_foreign(&mut sequence, 6, vec![3; half]);
        assert!(!sequence.is_overrun);
        assert_eq!(sequence.remove(6, FROM).map(|value| value.bytes), Some(vec![3; half]));
        assert_eq!(sequence.foreign.get(), Foreign { values: 1, bytes: half });
        keep_foreign(&mut sequence, 7, vec![4; half]);
        assert!(!sequence.is_overrun);
        keep_foreign(&mut sequence, 8, vec![5]);
        assert!(sequence.is_overrun);
        assert!(sequence.remove(8, FROM).is_none());
    }

    #[test]
    fn values_are_counted_and_past_ones_dropped() {
        let mut sequence = Sequence { begun: 5, ..new_sequence() };
        (0..5).for_each(|number| keep_foreign(&mut sequence, number, vec![1]));
        assert_eq!((sequence.values.len(), sequence.foreign.get()), (0, Foreign::default()));
        let last = 5 + FOREIGN_VALUES_MAX as u64;
        (5..last).for_each(|number| keep_foreign(&mut sequence, number, Vec::new()));
        assert!(!sequence.is_overrun);
        assert!(sequence.take(5, &Content::default(), FROM).is_some());
        keep_foreign(&mut sequence, last, Vec::new());
        assert!(!sequence.is_overrun);
        keep_foreign(&mut sequence, last + 1, Vec::new());
        assert!(sequence.is_overrun);
    }

    /// Whatever comes first, the value or the collective, a value of another kind or type is
    /// noticed and not handed out.
    #[test]
    fn a_value_of_another_collective_is_a_mismatch() {
        let kinds = [Kind::Barrier, Kind::Broadcast, Kind::Scan, Kind::ExclusiveScan, Kind::AllReduce];
        let lengths = [(1, None), (2, None), (1, Some(0)), (1, Some(1))];
        let all = kinds.into_iter().flat_map(|kind| {
            lengths.map(|(type_hash, length)| Content { kind, type_hash, length, ..Content::default() })
        });
        for ours in all.clone() {
            for theirs in all.clone() {
                let parcel = || Parcel { team: ALL, number: 1, from: FROM, content: theirs.clone(), bytes: vec![7] };
                let mut early = new_sequence();
                early.keep(parcel(), false);
                early.begin(ours.clone());
                let mut late = new_sequence();
                late.begin(ours.clone());
                late.keep(parcel(), false);
                for sequence in [&mut early, &mut late] {
                    assert_eq!(sequence.take(1, &ours, FROM).is_some(), ours == theirs, "{ours:?} {theirs:?}");
                    assert_eq!(sequence.mismatch.is_some(), ours != theirs, "{ours:?} {theirs:?}");
                }
            }
        }
    }

    /// Code of the program may begin a collective inside another one.
    #[test]
    fn a_value_of_a_collective_inside_another_one_is_not_taken_for_it() {
        let [outer, inner] = [1, 2].map(|type_hash| Content { kind: Kind::Reduce, type_hash, ..Content::default() });
        let mut sequence = new_sequence();
        let first = sequence.begin(outer.clone());
        let second = sequence.begin(inner.clone());
        sequence.keep(Parcel { content: inner.clone(), ..parcel(second, FROM, vec![7]) }, false);
        assert!(sequence.take(first, &outer, FROM).is_none());
        assert!(sequence.mismatch.take().is_some_and(|mismatch| mismatch.number == first));
        assert!(sequence.take(second, &inner, FROM).is_some() && sequence.mismatch.is_none());
    }

    /// A member that waits in an earlier collective must learn of the earliest mismatch.
    #[test]
    fn the_mismatch_of_the_earliest_collective_stays() {
        let mut sequence = new_sequence();
        let mismatch = |number| Mismatch { number, ..new_sequence().differs(FROM, &Content::default()) };
        assert!(sequence.note(mismatch(5)));
        sequence.is_told = true;
        assert!(!sequence.note(mismatch(6)) && sequence.is_told);
        assert!(sequence.note(mismatch(4)) && !sequence.is_told);
        assert_eq!(sequence.mismatch.map(|mismatch| mismatch.number), Some(4));
    }

    #[test]
    fn texts_of_a_mismatch_are_short() {
        let mut sequence = new_sequence();
        let (ours, theirs) = ("ä".repeat(TEXT_BYTES_MAX), "a".to_owned() + &"€".repeat(TEXT_BYTES_MAX));
        sequence.note(Mismatch { ours, theirs, ..sequence.differs(FROM, &Content::default()) });
        let Mismatch { ours, theirs, .. } = sequence.mismatch.unwrap();
        assert_eq!((ours.len(), theirs.len()), (TEXT_BYTES_MAX, TEXT_BYTES_MAX));
        assert!(ours.ends_with('ä') && theirs.ends_with('€'));
    }

    #[test]
    fn a_dropped_team_takes_nothing_more() {
        let mut collectives = Collectives::new(FROM);
        let members: Rc<[WorkerId]> = [FROM].into();
        collectives.make(7, &members);
        let value = || Parcel { team: 7, ..parcel(1, FROM, vec![7]) };
        collectives.of_message(7, true).unwrap().keep(value(), true);
        assert_eq!(collectives.all.foreign.get(), Foreign { values: 1, bytes: 1 });
        drop(members);
        let other: Rc<[WorkerId]> = [FROM].into();
        collectives.make(8, &other);
        assert_eq!(collectives.all.foreign.get(), Foreign::default());
        assert!(collectives.of_message(7, false).is_none() && collectives.of_message(7, true).is_none());
        assert!(collectives.of_message(9, false).is_some(), "it is not made yet");

        // The names of many dropped teams take bounded memory.
        for name in 10..10 + 3 * FORGOTTEN_MAX as u64 {
            collectives.make(name, &[FROM].into());
            assert!(name == 10 || collectives.of_message(name - 1, false).is_none());
        }
        assert!(collectives.forgotten.iter().map(HashSet::len).sum::<usize>() <= 2 * FORGOTTEN_MAX);
        assert_eq!(collectives.teams.len(), 3, "the one that is held, the one that is not made, and the last one");
    }

    #[test]
    fn messages_for_too_many_teams_are_an_error_of_later_teams() {
        let mut collectives = Collectives::new(FROM);
        let members: Rc<[WorkerId]> = [FROM].into();
        collectives.make(7, &members);
        for team in 0..FOREIGN_TEAMS_MAX as u64 {
            assert!(collectives.of_message(100 + team, true).is_some());
        }
        assert!(collectives.of_message(7, true).is_some() && collectives.lost.is_empty());
        assert!(collectives.of_message(5000, true).is_none());
        collectives.make(100, &members);
        // There is room again, but the first message is lost.
        assert!(collectives.of_message(5000, true).is_none());
        [5000, 5001].into_iter().for_each(|team| collectives.make(team, &members));
        let overrun = [ALL, 7, 100, 5000, 5001].map(|team| collectives.sequence(team).is_overrun);
        assert_eq!(overrun, [false, false, false, true, false]);

        // One is kept as a team, and beyond a bound, names are not kept.
        let lost = 10_000 + LOST_MAX as u64 + 1;
        for team in 10_000..=lost {
            let _ = collectives.of_message(team, true);
        }
        let kept = collectives.teams.len();
        [lost, lost + 1].into_iter().for_each(|team| collectives.make(team, &members));
        assert!([lost, lost + 1].into_iter().all(|team| collectives.sequence(team).is_overrun));
        assert!(collectives.lost.len() <= LOST_MAX && collectives.teams.len() == kept + 2);
    }

    /// After an error, values of the collective that failed may still arrive.
    #[test]
    fn a_late_value_is_a_mismatch_unless_the_collective_failed() {
        let broadcast = || Content { kind: Kind::Broadcast, ..Content::default() };
        let late = || Parcel { team: ALL, number: 1, from: FROM, content: broadcast(), bytes: vec![7] };
        for has_failed in [false, true] {
            let mut sequence = Sequence { has_failed, ..new_sequence() };
            sequence.begin(broadcast());
            sequence.begin(Content::default());
            sequence.keep(late(), false);
            assert_eq!(sequence.mismatch.is_some(), !has_failed);
            assert!(sequence.values.is_empty());
        }
    }

    #[test]
    fn an_arrival_at_a_barrier_elsewhere_is_a_mismatch() {
        let broadcast = || Content { kind: Kind::Broadcast, ..Content::default() };
        let mut sequence = new_sequence();
        sequence.begin(broadcast());
        // It has passed a broadcast as its root, or left a gather.
        sequence.announce(2, 0, FROM);
        assert!(sequence.mismatch.is_none());
        sequence.begin(Content::default());
        assert!(sequence.is_announced(0) && sequence.mismatch.is_none());
        sequence.begin(broadcast());
        sequence.announce(3, 0, FROM);
        assert!(sequence.mismatch.is_some());

        // One that was at this barrier and has gone on to the next one.
        let mut ahead = new_sequence();
        ahead.begin(Content::default());
        ahead.announce(1, 0, FROM);
        ahead.announce(2, 0, FROM);
        assert!(ahead.is_announced(0) && ahead.mismatch.is_none());

        // One that has given up waiting at this barrier, and at the next one.
        ahead.announce(3, 0, FROM);
        assert!(ahead.is_announced(0) && ahead.mismatch.is_none());

        let mut skipped = new_sequence();
        skipped.begin(Content::default());
        skipped.announce(2, 0, FROM);
        assert!(!skipped.is_announced(0) && skipped.mismatch.is_some());

        let mut early = new_sequence();
        early.announce(1, 0, FROM);
        early.begin(broadcast());
        assert!(early.mismatch.is_some());
    }
}

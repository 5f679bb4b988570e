//! What one worker has started: which operations are open, and which of those that wait may start. It does nothing itself.
//!
//! An operation is *open* until it has ended well, or its failure was told to the program. `README.md` has the proof.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use farside_fabric::ProcessId;

use super::error::Failure;

/// Operations of a worker that may be open.
pub(super) const OPEN_MAX: usize = 256;
/// Operations that a command may be held for. With more it is held by its own worker.
pub(super) const FENCED_ON_MAX: usize = 64;
/// When a command that was refused is sent again.
const RETRY_AFTER: Duration = Duration::from_micros(500);

/// The processes whose memory an operation reaches.
pub(super) type Touched = [Option<ProcessId>; 2];

/// Who carries an operation out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// This process. Others could, as well, if the operation is to follow one that they carry out.
    Anywhere,
    /// This process.
    Here,
    At(ProcessId),
}

#[derive(Debug)]
pub(super) struct Entry<W> {
    pub(super) number: u64,
    pub(super) touched: Touched,
    place: Place,
    /// Those that it is ordered after and that are open.
    after: Vec<u64>,
    state: State,
    /// What is to be done, until it is begun here, or has ended elsewhere.
    work: Option<W>,
    /// One that it was ordered after has failed while it was with another process, which has to say so.
    is_hopeless_for: Option<u64>,
    /// When it was refused for the first time.
    refused_since: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Held,
    /// This process is at it.
    Running,
    /// The command was sent. Commands to one process are numbered in their order.
    Sent {
        to: ProcessId,
        sequence: u64,
    },
    /// Who was asked had no room.
    Refused {
        by: ProcessId,
        again: Instant,
    },
    Failed(Failure),
}

/// Something that may start now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Start<W> {
    pub(super) number: u64,
    pub(super) what: What<W>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum What<W> {
    /// By this process.
    Here(W),
    /// By that one, when it has carried these out.
    Send { to: ProcessId, epoch: u64, after: Vec<u64>, work: W },
}

/// What is known of the way to another process.
#[derive(Debug, Default)]
struct Way {
    /// How often it has refused.
    epoch: u64,
    sent: u64,
}

/// Operations up to a number come before later ones that reach the same process.
#[derive(Clone, Copy, Debug)]
struct FenceMark {
    peer: Option<ProcessId>,
    up_to: u64,
}

/// How an operation waits for those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    None,
    After(u64),
    All,
    /// With the number of the previous operation.
    Continuing(u64),
}

#[derive(Debug)]
pub(super) struct Orders<W> {
    entries: VecDeque<Entry<W>>,
    fences: Vec<FenceMark>,
    ways: HashMap<ProcessId, Way>,
}

impl<W> Default for Orders<W> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), fences: Vec::new(), ways: HashMap::new() }
    }
}

impl<W: Clone> Orders<W> {
    /// Those of the open operations that a new one is to be ordered after.
    pub(super) fn before(&self, condition: Condition, place: Place, touched: Touched) -> Vec<u64> {
        let all = || self.entries.iter().map(|entry| entry.number).collect();
        let mut after: Vec<u64> = match condition {
            Condition::None => Vec::new(),
            Condition::After(number) => self.find(number).map(|entry| entry.number).into_iter().collect(),
            Condition::All => all(),
            Condition::Continuing(previous) => match self.find(previous) {
                // It has ended, so its condition was met.
                None => Vec::new(),
                Some(last) if last.place == place && last.touched == touched => vec![previous],
                Some(_) => all(),
            },
        };
        for fence in &self.fences {
            let reaches = |entry: &Entry<W>| match fence.peer {
                Some(peer) => entry.touched.contains(&Some(peer)) && touched.contains(&Some(peer)),
                None => entry.touched.iter().flatten().any(|peer| touched.contains(&Some(*peer))),
            };
            after.extend(
                self.entries
                    .iter()
                    .filter(|entry| entry.number <= fence.up_to && reaches(entry))
                    .map(|entry| entry.number),
            );
        }
        after.sort_unstable();
        after.dedup();
        after
    }

    /// Those of the open operations that come before one that is ordered after these.
    pub(super) fn all_before(&self, mut after: Vec<u64>) -> Vec<u64> {
        // Each is ordered after earlier ones only.
        for entry in self.entries.iter().rev() {
            if after.contains(&entry.number) {
                after.extend(&entry.after);
            }
        }
        after
    }

    /// Whether an open operation is ordered after this one.
    pub(super) fn is_followed(&self, number: u64) -> bool {
        self.entries.iter().any(|entry| entry.after.contains(&number))
    }

    /// Puts all operations that come later behind the ones up to a number, as far as they reach memory of the same process: of this one, or any.
    pub(super) fn fence(&mut self, peer: Option<ProcessId>, up_to: u64) {
        self.fences.retain(|fence| fence.peer != peer && peer.is_some());
        self.fences.push(FenceMark { peer, up_to });
    }

    /// Whether a fence holds anything back.
    pub(super) fn is_fenced(&mut self) -> bool {
        let first = self.entries.front().map(|entry| entry.number);
        self.fences.retain(|fence| first.is_some_and(|first| first <= fence.up_to));
        !self.fences.is_empty()
    }

    /// A new operation, with a number beyond all others'.
    pub(super) fn push(&mut self, number: u64, touched: Touched, place: Place, after: Vec<u64>, work: W) {
        debug_assert!(self.entries.back().is_none_or(|last| last.number < number) && self.has_room());
        let failed = after.iter().copied().find(|earlier| self.failure(*earlier).is_some());
        let state = failed.map_or(State::Held, |number| State::Failed(Failure::Earlier { number }));
        let work = failed.is_none().then_some(work);
        self.entries.push_back(Entry {
            number,
            touched,
            place,
            after,
            state,
            work,
            is_hopeless_for: None,
            refused_since: None,
        });
    }

    pub(super) fn has_room(&self) -> bool {
        self.entries.len() < OPEN_MAX
    }

    /// How many are open.
    pub(super) fn open_count(&self) -> usize {
        self.entries.len()
    }

    /// Whether one up to this number has not ended.
    pub(super) fn are_under_way(&self, up_to: u64) -> bool {
        self.entries.iter().take_while(|entry| entry.number <= up_to).any(Entry::is_under_way)
    }

    /// Whether one that reaches memory of a process has not ended.
    pub(super) fn are_under_way_to(&self, peer: ProcessId) -> bool {
        self.entries.iter().any(|entry| entry.is_under_way() && entry.touched.contains(&Some(peer)))
    }

    /// Whether this very one has not ended.
    pub(super) fn is_under_way(&self, number: u64) -> bool {
        self.find(number).is_some_and(Entry::is_under_way)
    }

    fn failure(&self, number: u64) -> Option<&Failure> {
        match &self.find(number)?.state {
            State::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// The first failure among those that are wanted, which is forgotten here.
    pub(super) fn take_failure(&mut self, wanted: impl Fn(&Entry<W>) -> bool) -> Option<(u64, Failure)> {
        let at = self.entries.iter().position(|entry| matches!(entry.state, State::Failed(_)) && wanted(entry))?;
        let entry = self.entries.remove(at)?;
        match entry.state {
            State::Failed(failure) => Some((entry.number, failure)),
            _ => None,
        }
    }

    /// The next that may start, in the order of their numbers.
    pub(super) fn next_start(&mut self, now: Instant) -> Option<Start<W>> {
        let (at, to) = (0..self.entries.len()).find_map(|at| Some((at, self.may_go(&self.entries[at], now)?)))?;
        let entry = &mut self.entries[at];
        let number = entry.number;
        let what = match to {
            None => {
                entry.state = State::Running;
                What::Here(entry.work.take()?)
            }
            Some(to) => {
                let way = self.ways.entry(to).or_default();
                way.sent += 1;
                entry.state = State::Sent { to, sequence: way.sent };
                What::Send { to, epoch: way.epoch, after: entry.after.clone(), work: entry.work.clone()? }
            }
        };
        Some(Start { number, what })
    }

    /// Where an operation can go now: to a process, or (within) to this one. `None` while it must wait.
    fn may_go(&self, entry: &Entry<W>, now: Instant) -> Option<Option<ProcessId>> {
        match entry.state {
            State::Held => {}
            State::Refused { again, .. } if again <= now => {}
            _ => return None,
        }
        let Some(first) = entry.after.first() else {
            return Some(match entry.place {
                Place::Anywhere | Place::Here => None,
                Place::At(process) => Some(process),
            });
        };
        // What it waits for is under way at one process, which can hold it as well as we can, and knows sooner.
        let State::Sent { to, .. } = self.find(*first)?.state else { return None };
        let fits = match entry.place {
            Place::Anywhere => true,
            Place::Here => false,
            Place::At(process) => process == to,
        };
        let is_there = |number: &u64| matches!(self.find(*number), Some(Entry { state: State::Sent { to: other, .. }, .. }) if *other == to);
        (fits && entry.after.len() <= FENCED_ON_MAX && entry.after.iter().all(is_there)).then_some(Some(to))
    }

    /// When something that was refused is to be sent again.
    pub(super) fn next_try(&self) -> Option<Instant> {
        let again = |entry: &Entry<W>| match entry.state {
            State::Refused { again, .. } => Some(again),
            _ => None,
        };
        self.entries.iter().filter_map(again).min()
    }

    /// An operation has ended well. Says whether there was one: nothing else is believed.
    pub(super) fn end(&mut self, number: u64) -> bool {
        let Some(at) = self.entries.iter().position(|entry| entry.number == number && entry.is_begun()) else {
            return false;
        };
        self.entries.remove(at);
        self.entries.iter_mut().for_each(|entry| entry.after.retain(|earlier| *earlier != number));
        true
    }

    /// An operation has failed, and with it what waits for it here. What others hold, they fail.
    pub(super) fn fail(&mut self, number: u64, failure: Failure) -> Vec<u64> {
        let mut failed = vec![(number, failure)];
        let mut told = Vec::new();
        while let Some((number, failure)) = failed.pop() {
            let Some(entry) = self.entries.iter_mut().find(|entry| entry.number == number && entry.is_under_way())
            else {
                continue;
            };
            entry.state = State::Failed(failure);
            entry.work = None;
            entry.after.clear();
            told.push(number);
            for entry in self.entries.iter_mut().filter(|entry| entry.after.contains(&number)) {
                match entry.is_waiting() {
                    true => failed.push((entry.number, Failure::Earlier { number })),
                    // Whoever was sent it has seen that failure, too.
                    false => entry.is_hopeless_for = Some(number),
                }
            }
        }
        told
    }

    /// A process had no room for a command, and so takes none of those that were sent after it, either. Those that have failed thereby.
    pub(super) fn refuse(&mut self, by: ProcessId, number: u64, epoch: u64, now: Instant) -> Vec<u64> {
        let Some(way) = self.ways.get_mut(&by).filter(|way| way.epoch == epoch) else { return Vec::new() };
        let first = self.entries.iter().find_map(|entry| match entry.state {
            State::Sent { to, sequence } if to == by && entry.number == number => Some(sequence),
            _ => None,
        });
        let Some(first) = first else { return Vec::new() };
        way.epoch += 1;
        let mut hopeless = Vec::new();
        for entry in &mut self.entries {
            if let State::Sent { to, sequence } = entry.state
                && to == by
                && sequence >= first
            {
                entry.state = State::Refused { by, again: now + RETRY_AFTER };
                entry.refused_since.get_or_insert(now);
                hopeless.extend(entry.is_hopeless_for.map(|earlier| (entry.number, earlier)));
            }
        }
        // It will not be sent again.
        let fail = |(number, earlier)| self.fail(number, Failure::Earlier { number: earlier });
        hopeless.into_iter().flat_map(fail).collect()
    }

    /// Those that were refused for so long that they are given up.
    pub(super) fn refused_since(&self, before: Instant) -> Vec<(u64, ProcessId)> {
        let is_overdue = |entry: &Entry<W>| match entry.state {
            State::Refused { by, .. } if entry.refused_since.is_some_and(|since| since <= before) => {
                Some((entry.number, by))
            }
            _ => None,
        };
        self.entries.iter().filter_map(is_overdue).collect()
    }

    /// What a process is to do that is gone.
    pub(super) fn asked_of(&self, lost: ProcessId) -> Vec<u64> {
        let is_asked = |entry: &&Entry<W>| match entry.state {
            State::Sent { to, .. } => to == lost,
            State::Held | State::Refused { .. } => entry.place == Place::At(lost),
            _ => false,
        };
        self.entries.iter().filter(is_asked).map(|entry| entry.number).collect()
    }

    /// Whether a process was sent this and has not said how it ended.
    pub(super) fn is_sent_to(&self, number: u64, process: ProcessId) -> bool {
        self.find(number).is_some_and(|entry| matches!(entry.state, State::Sent { to, .. } if to == process))
    }

    fn find(&self, number: u64) -> Option<&Entry<W>> {
        let at = self.entries.binary_search_by_key(&number, |entry| entry.number).ok()?;
        self.entries.get(at)
    }
}

impl<W> Entry<W> {
    fn is_under_way(&self) -> bool {
        !matches!(self.state, State::Failed(_))
    }

    fn is_begun(&self) -> bool {
        matches!(self.state, State::Running | State::Sent { .. })
    }

    fn is_waiting(&self) -> bool {
        matches!(self.state, State::Held | State::Refused { .. })
    }
}

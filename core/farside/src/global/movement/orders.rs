//! The operations that one worker has started: which are open, and which of the held ones may
//! start. It executes nothing itself.
//!
//! An operation is *open* until it has ended well, or its failure was reported to the program.
//! `README.md` has the proof.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use farside_fabric::ProcessId;

use super::error::Failure;

/// The most open operations of a worker.
pub(super) const OPEN_MAX: usize = 256;
/// The most operations that a command can wait for at another process. An operation that waits for
/// more is held by its own worker.
pub(super) const FENCED_ON_MAX: usize = 64;
/// The delay before a refused command is sent again.
const RETRY_AFTER: Duration = Duration::from_micros(500);

/// The processes whose memory an operation accesses.
pub(super) type Touched = [Option<ProcessId>; 2];

/// The process that executes an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// This process. Another process may do so instead, if the operation follows one that it
    /// executes.
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
    /// The open operations that it is ordered after.
    after: Vec<u64>,
    state: State,
    /// The work, until it begins here or ends elsewhere.
    work: Option<W>,
    /// An operation that it was ordered after has failed while this one was at another process.
    /// That process must report how this one ended.
    is_hopeless_for: Option<u64>,
    /// The time of its first refusal.
    refused_since: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Held,
    /// This process executes it.
    Running,
    /// The command was sent. Commands to one process are numbered in the order of sending.
    Sent {
        to: ProcessId,
        sequence: u64,
    },
    /// The process that was asked had no room.
    Refused {
        by: ProcessId,
        again: Instant,
    },
    Failed(Failure),
}

/// An operation that may start now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Start<W> {
    pub(super) number: u64,
    pub(super) what: What<W>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum What<W> {
    /// This process executes it.
    Here(W),
    /// Process `to` executes it, once the operations `after` have ended.
    Send { to: ProcessId, epoch: u64, after: Vec<u64>, work: W },
}

/// The commands to another process.
#[derive(Debug, Default)]
struct CommandStream {
    /// The number of its refusals.
    epoch: u64,
    sent: u64,
}

/// Orders the operations up to a number before later ones that access memory of the same process.
#[derive(Clone, Copy, Debug)]
struct FenceMark {
    peer: Option<ProcessId>,
    up_to: u64,
}

/// The order of an operation after earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    None,
    After(u64),
    All,
    /// Continues a chain. The number is that of the previous operation.
    Continuing(u64),
}

#[derive(Debug)]
pub(super) struct Orders<W> {
    entries: VecDeque<Entry<W>>,
    fences: Vec<FenceMark>,
    streams: HashMap<ProcessId, CommandStream>,
}

impl<W> Default for Orders<W> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), fences: Vec::new(), streams: HashMap::new() }
    }
}

impl<W: Clone> Orders<W> {
    /// Returns the open operations that a new one is ordered after.
    pub(super) fn before(&self, condition: Condition, place: Place, touched: Touched) -> Vec<u64> {
        let all = || self.entries.iter().map(|entry| entry.number).collect();
        let mut after: Vec<u64> = match condition {
            Condition::None => Vec::new(),
            Condition::After(number) => self.find(number).map(|entry| entry.number).into_iter().collect(),
            Condition::All => all(),
            Condition::Continuing(previous) => match self.find(previous) {
                // The previous operation has ended, so its condition was met.
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

    /// Returns the open operations that directly or indirectly precede an operation that is ordered
    /// after these.
    pub(super) fn all_before(&self, mut after: Vec<u64>) -> Vec<u64> {
        // Each entry is ordered after earlier ones only.
        for entry in self.entries.iter().rev() {
            if after.contains(&entry.number) {
                after.extend(&entry.after);
            }
        }
        after
    }

    /// Returns whether an open operation is ordered after this one.
    pub(super) fn is_followed(&self, number: u64) -> bool {
        self.entries.iter().any(|entry| entry.after.contains(&number))
    }

    /// Orders all later operations after those up to a number, if both access memory of the same
    /// process. `peer` names that process; `None` stands for every process.
    pub(super) fn fence(&mut self, peer: Option<ProcessId>, up_to: u64) {
        self.fences.retain(|fence| fence.peer != peer && peer.is_some());
        self.fences.push(FenceMark { peer, up_to });
    }

    /// Returns whether a fence may delay new operations.
    pub(super) fn is_fenced(&mut self) -> bool {
        let first = self.entries.front().map(|entry| entry.number);
        self.fences.retain(|fence| first.is_some_and(|first| first <= fence.up_to));
        !self.fences.is_empty()
    }

    /// Adds a new operation, whose number is higher than all others.
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

    /// Returns the number of open operations.
    pub(super) fn open_count(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether an operation up to this number has not ended.
    pub(super) fn are_under_way(&self, up_to: u64) -> bool {
        self.entries.iter().take_while(|entry| entry.number <= up_to).any(Entry::is_under_way)
    }

    /// Returns whether an operation that accesses memory of a process has not ended.
    pub(super) fn are_under_way_to(&self, peer: ProcessId) -> bool {
        self.entries.iter().any(|entry| entry.is_under_way() && entry.touched.contains(&Some(peer)))
    }

    /// Returns whether this operation has not ended.
    pub(super) fn is_under_way(&self, number: u64) -> bool {
        self.find(number).is_some_and(Entry::is_under_way)
    }

    fn failure(&self, number: u64) -> Option<&Failure> {
        match &self.find(number)?.state {
            State::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// Takes the first failure among the wanted operations, and closes that operation.
    pub(super) fn take_failure(&mut self, wanted: impl Fn(&Entry<W>) -> bool) -> Option<(u64, Failure)> {
        let at = self.entries.iter().position(|entry| matches!(entry.state, State::Failed(_)) && wanted(entry))?;
        let entry = self.entries.remove(at)?;
        match entry.state {
            State::Failed(failure) => Some((entry.number, failure)),
            _ => None,
        }
    }

    /// Returns the next operation that may start, in the order of numbers.
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
                let stream = self.streams.entry(to).or_default();
                stream.sent += 1;
                entry.state = State::Sent { to, sequence: stream.sent };
                What::Send { to, epoch: stream.epoch, after: entry.after.clone(), work: entry.work.clone()? }
            }
        };
        Some(Start { number, what })
    }

    /// Returns where an operation can go now: another process, or `Some(None)` for this one. `None`
    /// means that it must wait.
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
        // The operations that it waits for are under way at one process. That process can hold the
        // operation too, and learns of their ends sooner.
        let State::Sent { to, .. } = self.find(*first)?.state else { return None };
        let fits = match entry.place {
            Place::Anywhere => true,
            Place::Here => false,
            Place::At(process) => process == to,
        };
        let is_there = |number: &u64| matches!(self.find(*number), Some(Entry { state: State::Sent { to: other, .. }, .. }) if *other == to);
        (fits && entry.after.len() <= FENCED_ON_MAX && entry.after.iter().all(is_there)).then_some(Some(to))
    }

    /// Returns when the next refused command is sent again.
    pub(super) fn next_try(&self) -> Option<Instant> {
        let again = |entry: &Entry<W>| match entry.state {
            State::Refused { again, .. } => Some(again),
            _ => None,
        };
        self.entries.iter().filter_map(again).min()
    }

    /// Notes that an operation has ended well. Returns whether it had begun; other reports are
    /// ignored.
    pub(super) fn end(&mut self, number: u64) -> bool {
        let Some(at) = self.entries.iter().position(|entry| entry.number == number && entry.is_begun()) else {
            return false;
        };
        self.entries.remove(at);
        self.entries.iter_mut().for_each(|entry| entry.after.retain(|earlier| *earlier != number));
        true
    }

    /// Notes that an operation has failed, and with it those that wait for it here. Another process
    /// fails those that it holds. Returns all operations that have failed.
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
                    // The process that it was sent to has seen that failure, too.
                    false => entry.is_hopeless_for = Some(number),
                }
            }
        }
        told
    }

    /// Notes that a process had no room for a command, and so drops those that were sent to it
    /// later. Returns the operations that fail because of that.
    pub(super) fn refuse(&mut self, by: ProcessId, number: u64, epoch: u64, now: Instant) -> Vec<u64> {
        let Some(stream) = self.streams.get_mut(&by).filter(|stream| stream.epoch == epoch) else { return Vec::new() };
        let first = self.entries.iter().find_map(|entry| match entry.state {
            State::Sent { to, sequence } if to == by && entry.number == number => Some(sequence),
            _ => None,
        });
        let Some(first) = first else { return Vec::new() };
        stream.epoch += 1;
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
        // These are not sent again.
        let fail = |(number, earlier)| self.fail(number, Failure::Earlier { number: earlier });
        hopeless.into_iter().flat_map(fail).collect()
    }

    /// Returns the operations whose first refusal was at or before this time, with the process that
    /// refused.
    pub(super) fn refused_since(&self, before: Instant) -> Vec<(u64, ProcessId)> {
        let is_overdue = |entry: &Entry<W>| match entry.state {
            State::Refused { by, .. } if entry.refused_since.is_some_and(|since| since <= before) => {
                Some((entry.number, by))
            }
            _ => None,
        };
        self.entries.iter().filter_map(is_overdue).collect()
    }

    /// Returns the operations that a lost process was to execute.
    pub(super) fn asked_of(&self, lost: ProcessId) -> Vec<u64> {
        let is_asked = |entry: &&Entry<W>| match entry.state {
            State::Sent { to, .. } => to == lost,
            State::Held | State::Refused { .. } => entry.place == Place::At(lost),
            _ => false,
        };
        self.entries.iter().filter(is_asked).map(|entry| entry.number).collect()
    }

    /// Returns whether the operation was sent to a process that has not reported its end.
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

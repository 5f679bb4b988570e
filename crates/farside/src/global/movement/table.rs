//! What a process carries out, for its own workers and for others'. It does nothing itself.

use std::collections::{HashMap, VecDeque};

use farside_fabric::ProcessId;

use super::error::Failure;

/// Commands of other processes that a process has at a time: 256 of some 300 bytes, and what they have of the fabric ([`super::flow`]).
pub(super) const COMMANDS_MAX: usize = 256;

/// Who started an operation: a worker of a process, by its place there, and its number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) process: ProcessId,
    pub(super) local: u32,
    pub(super) number: u64,
}

#[derive(Debug)]
struct Task<J> {
    origin: Origin,
    /// Operations of the same worker that come first.
    after: Vec<u64>,
    state: State<J>,
}

#[derive(Debug)]
enum State<J> {
    Held(J),
    Begun(J),
    /// It has failed, and its process has not said that it knows.
    Failed,
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    In,
    /// There is no room: its process is to be told.
    Refused,
    /// It came behind one that was refused, as its process knows when it has heard of that.
    Dropped,
}

#[derive(Debug)]
pub(super) struct Table<J> {
    own: ProcessId,
    tasks: VecDeque<Task<J>>,
    commands_max: usize,
    /// The last epoch of each worker in which a command was refused.
    refused: HashMap<(ProcessId, u32), u64>,
}

impl<J> Table<J> {
    pub(super) fn new(own: ProcessId, commands_max: usize) -> Self {
        Self { own, tasks: VecDeque::new(), commands_max, refused: HashMap::new() }
    }

    /// An operation of this process, which has waited for what comes first.
    pub(super) fn begin_own(&mut self, origin: Origin, job: J) {
        self.tasks.push_back(Task { origin, after: Vec::new(), state: State::Begun(job) });
    }

    /// A command of another process.
    pub(super) fn take_in(&mut self, origin: Origin, epoch: u64, after: Vec<u64>, job: J) -> Taken {
        let worker = (origin.process, origin.local);
        if self.refused.get(&worker).is_some_and(|refused| epoch <= *refused) {
            return Taken::Dropped;
        }
        let commands = self.tasks.iter().filter(|task| task.origin.process != self.own).count();
        if commands >= self.commands_max {
            self.refused.insert(worker, epoch);
            return Taken::Refused;
        }
        self.refused.remove(&worker);
        // Those that are not here have ended well: what was refused, this would not have been sent after; and what has failed stays
        // until its process knows.
        let is_here = |number: &u64| self.is_here(Origin { number: *number, ..origin });
        let after = after.into_iter().filter(is_here).collect();
        self.tasks.push_back(Task { origin, after, state: State::Held(job) });
        Taken::In
    }

    /// Whether an operation has been taken in and is not over.
    pub(super) fn is_here(&self, origin: Origin) -> bool {
        self.tasks.iter().any(|task| task.origin == origin)
    }

    /// Has those begin that need not wait any more. The first that must not begin, for what it was to follow has failed, and which that was.
    pub(super) fn begin_held(&mut self) -> Option<(Origin, u64)> {
        for at in 0..self.tasks.len() {
            let task = &self.tasks[at];
            if !matches!(task.state, State::Held(_)) {
                continue;
            }
            let earlier = |number: &u64| {
                let wanted = Origin { number: *number, ..task.origin };
                self.tasks.iter().find(|other| other.origin == wanted)
            };
            let failed =
                task.after.iter().find(|number| matches!(earlier(number), Some(Task { state: State::Failed, .. })));
            if let Some(failed) = failed.copied() {
                let origin = task.origin;
                self.tasks[at].state = State::Failed;
                return Some((origin, failed));
            }
            if task.after.iter().all(|number| earlier(number).is_none()) {
                let task = &mut self.tasks[at];
                if let State::Held(job) = std::mem::replace(&mut task.state, State::Failed) {
                    task.state = State::Begun(job);
                }
            }
        }
        None
    }

    /// What is under way.
    pub(super) fn begun(&mut self) -> impl Iterator<Item = (Origin, &mut J)> {
        self.tasks.iter_mut().filter_map(|task| match &mut task.state {
            State::Begun(job) => Some((task.origin, job)),
            State::Held(_) | State::Failed => None,
        })
    }

    /// One has ended.
    pub(super) fn end(&mut self, origin: Origin, failure: Option<&Failure>) {
        let Some(at) = self.tasks.iter().position(|task| task.origin == origin) else { return };
        // This process knows of its own.
        if failure.is_none() || origin.process == self.own {
            self.tasks.remove(at);
        } else {
            self.tasks[at].state = State::Failed;
        }
    }

    /// A process knows that a command of its has failed, and sends no more that are to follow it.
    pub(super) fn forget_failed(&mut self, origin: Origin) {
        self.tasks.retain(|task| task.origin != origin || !matches!(task.state, State::Failed));
    }

    /// Nobody is there any more to be answered.
    pub(super) fn lose(&mut self, process: ProcessId) {
        self.tasks.retain(|task| task.origin.process != process);
        self.refused.retain(|(of, _), _| *of != process);
    }

    /// Whether anything is to be done.
    pub(super) fn is_busy(&self) -> bool {
        self.tasks.iter().any(|task| !matches!(task.state, State::Failed))
    }
}

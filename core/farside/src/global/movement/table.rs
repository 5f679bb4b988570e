//! The operations that a process executes, for its own workers and for those of others. The table
//! itself executes nothing.

use std::collections::{HashMap, HashSet, VecDeque};

use farside_fabric::ProcessId;

use super::error::Failure;

/// The most commands of other processes at a time: 256 of about 300 bytes each, and what they use
/// of the fabric ([`super::flow`]).
pub(super) const COMMANDS_MAX: usize = 256;

/// The origin of an operation: a worker of a process, by its thread there, and the operation's
/// number at that worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub(super) process: ProcessId,
    pub(super) local: u32,
    pub(super) number: u64,
}

#[derive(Debug)]
struct Task<J> {
    origin: Origin,
    /// Operations of the same worker that must end first.
    after: Vec<u64>,
    state: State<J>,
}

#[derive(Debug)]
enum State<J> {
    Held(J),
    Begun(J),
    /// The command has failed, and its process has not confirmed that it knows.
    Failed,
}

/// The fate of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    In,
    /// There is no room, and its process must be notified.
    Refused,
    /// The command came after one that was refused. Its process knows so when it has learned of
    /// that refusal.
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

    /// Begins an operation of this process, which has waited for those that come first.
    pub(super) fn begin_own(&mut self, origin: Origin, job: J) {
        self.tasks.push_back(Task { origin, after: Vec::new(), state: State::Begun(job) });
    }

    /// Takes in a command of another process.
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
        // Operations that are not in the table have ended well: this one would not have been sent
        // after a refused one, and failed ones stay until their process knows.
        let of_worker = |task: &&Task<J>| (task.origin.process, task.origin.local) == worker;
        let here: HashSet<u64> = self.tasks.iter().filter(of_worker).map(|task| task.origin.number).collect();
        let after = after.into_iter().filter(|number| here.contains(number)).collect();
        self.tasks.push_back(Task { origin, after, state: State::Held(job) });
        Taken::In
    }

    /// Returns whether an operation has been taken in and is not over.
    #[cfg(test)]
    pub(super) fn is_here(&self, origin: Origin) -> bool {
        self.tasks.iter().any(|task| task.origin == origin)
    }

    /// Begins the operations that need not wait any more. Returns those that must not begin, since
    /// an operation that they follow has failed, with the number of that one.
    pub(super) fn begin_held(&mut self) -> Vec<(Origin, u64)> {
        let mut hopeless = Vec::new();
        if !self.tasks.iter().any(|task| matches!(task.state, State::Held(_))) {
            return hopeless;
        }
        // One look at each, in order: an operation in `after` was here when the task was taken in,
        // and so precedes it.
        let mut has_failed: HashMap<Origin, bool> = HashMap::with_capacity(self.tasks.len());
        for task in &mut self.tasks {
            if matches!(task.state, State::Held(_)) {
                let earlier = |number: &u64| has_failed.get(&Origin { number: *number, ..task.origin }).copied();
                if let Some(failed) = task.after.iter().find(|number| earlier(number) == Some(true)) {
                    hopeless.push((task.origin, *failed));
                    task.state = State::Failed;
                } else if task.after.iter().all(|number| earlier(number).is_none())
                    && let State::Held(job) = std::mem::replace(&mut task.state, State::Failed)
                {
                    task.state = State::Begun(job);
                }
            }
            has_failed.insert(task.origin, matches!(task.state, State::Failed));
        }
        hopeless
    }

    /// Returns the operations under way.
    pub(super) fn begun(&mut self) -> impl Iterator<Item = (Origin, &mut J)> {
        self.tasks.iter_mut().filter_map(|task| match &mut task.state {
            State::Begun(job) => Some((task.origin, job)),
            State::Held(_) | State::Failed => None,
        })
    }

    /// Notes that an operation has ended.
    pub(super) fn end(&mut self, origin: Origin, failure: Option<&Failure>) {
        let Some(at) = self.tasks.iter().position(|task| task.origin == origin) else { return };
        // This process knows of its own operations.
        if failure.is_none() || origin.process == self.own {
            self.tasks.remove(at);
        } else {
            self.tasks[at].state = State::Failed;
        }
    }

    /// Notes that a process knows of the failure of its command, and sends no more commands that
    /// follow it.
    pub(super) fn forget_failed(&mut self, origin: Origin) {
        self.tasks.retain(|task| task.origin != origin || !matches!(task.state, State::Failed));
    }

    /// Drops the operations of a lost process.
    pub(super) fn lose(&mut self, process: ProcessId) {
        self.tasks.retain(|task| task.origin.process != process);
        self.refused.retain(|(of, _), _| *of != process);
    }

    /// Returns whether there is anything to do.
    pub(super) fn is_busy(&self) -> bool {
        self.tasks.iter().any(|task| !matches!(task.state, State::Failed))
    }
}

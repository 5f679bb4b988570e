//! The access checker of a job that [checks its accesses](crate::Job::check_accesses).
//!
//! It finds two workers that access the same bytes with nothing that orders them, buffers that are
//! used while an operation has them, and memory that is used after its release. See
//! `docs/checking-accesses.md`.
//!
//! # How it works
//!
//! The checker keeps vector clocks. Every worker thread has an *epoch*, a number that it increments
//! before it tells another thread anything, and knows the epochs of others. A call carries what its
//! sender knows: a small call of its own travels ahead of it. Nothing else carries anything:
//! answers, atomic changes, signals, locks and pipes. A thread that tells others in such a way
//! *ends* its own accesses for all workers, and *publishes* what it knows of the accesses of
//! others.
//!
//! The owner of memory keeps a *shadow* of it: which thread accessed which bytes in which epoch,
//! and where in the program. Before an access, its worker asks the owner, and says what it knows.
//! The owner either records the access or names an earlier one that conflicts with it, and that the
//! worker does not know of. The worker then asks the process of the earlier access whether that one
//! has ended, and if not, all processes whether any worker has published it. If there is none, the
//! two are not ordered, and the access is refused. Otherwise the worker tells the owner that the
//! earlier access has ended, and asks again.
//!
//! A report is never wrong. Whatever orders two accesses is a chain of messages from the first
//! worker to the second. If all of them are calls, the second worker knows of the first access.
//! Otherwise the sender of the first other one has ended or published it. An answer does not
//! publish what the receiver itself has done: with it, the chain is back at the first worker.
//!
//! Epochs and what is published are asked for, so ending a thread's accesses costs no message, and
//! can be done anywhere, also where waiting is not allowed. After a barrier, all workers know what
//! each did before, so those accesses have ended.
//!
//! An operation that runs concurrently with its worker keeps its accesses *open* until it ends, for
//! its own worker, too. Its accesses end with it if it was not made, or if others may know of its
//! end before its worker does (the reader of a lent buffer; a process that sees what was ordered
//! after the operation). Otherwise they belong to the epoch in which it completed.
//!
//! The owner also records releases, as it takes the memory back. A release conflicts with every
//! access, and ends when the memory is allocated again.
//!
//! A worker's own memory is checked where the library sees the access, which is in a
//! [`RacySlice`](crate::global::RacySlice). It has no errors to return, so a conflict is a panic
//! there.
//!
//! **Cost when it is off**: a branch where a call is answered, on slow paths, and for each access
//! by a `RacySlice`. Mapped accesses and calls pay nothing: in a checked job a worker's address
//! cache stays empty and an outbox never has the ring, so both always take their slow paths, which
//! report to the checker.

mod ask;
mod epochs;
mod message;
mod operation;
mod report;
mod shadow;

use std::sync::{Arc, Mutex};

use farside_fabric::clock::lock;
use farside_fabric::{ProcessId, WorkerId};

use self::ask::Desk;
use self::epochs::{Epochs, Lifetime};
use self::message::CheckMessage;
pub use self::report::{Access, AccessConflict, Site};
use self::shadow::{Record, Shadow};
use crate::Worker;
use crate::error::Result;
use crate::runtime::extent::Extent;
pub use crate::runtime::observer::AccessKind;
use crate::runtime::observer::{Accessor, Known, Observer, OpenOperation, Part, Touch};
use crate::runtime::process::Process;
use crate::runtime::room::{Room, Seed};
use farside_launch::settings::Check;

/// The room of the checker in one process.
#[derive(Debug)]
pub(crate) struct CheckRoom {
    /// `None` unless the job checks its accesses.
    checks: Option<Arc<Checks>>,
}

impl Room for CheckRoom {
    const TAG: u8 = 2;
    type Message = CheckMessage;
    type Local = ();

    fn new(seed: &Seed<'_>) -> Self {
        Self { checks: (seed.settings.check == Check::Accesses).then(|| Arc::new(Checks::new(seed))) }
    }

    fn local(&self, _process: &Arc<Process>, _local: usize) {}

    fn begin(&self, process: &Process) {
        if let Some(checks) = &self.checks {
            process.accesses.observe(checks.clone());
        }
    }

    fn take(&self, process: &Arc<Process>, from: ProcessId, message: CheckMessage) {
        // Either all processes of a job check accesses, or none does.
        if let Some(checks) = &self.checks {
            checks.take_message(process, from, message);
        }
    }

    fn lose(&self, process: &Process, lost: ProcessId) {
        if let Some(checks) = &self.checks {
            checks.lose(process, lost);
        }
    }
}

/// The checker's state in one process.
#[derive(Debug)]
pub(crate) struct Checks {
    epochs: Epochs,
    /// The accesses to this process's memory.
    shadow: Mutex<Shadow>,
    /// The question that each worker thread has asked, and its answer.
    desks: Box<[Desk]>,
    /// The number of callable threads of the job.
    callable: u32,
}

/// Counters of the checker, for the memory of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessChecks {
    /// Accesses that the checker recorded.
    pub accesses: u64,
    /// Accesses that it remembers now.
    pub remembered: u64,
    /// Accesses that it had to forget because there were too many.
    pub forgotten: u64,
}

impl Checks {
    fn new(seed: &Seed<'_>) -> Self {
        let threads = 0..seed.shape.callable_per_process() as usize;
        Self {
            epochs: Epochs::new(threads.clone().map(|local| seed.shape.worker_at(seed.id, local))),
            shadow: Mutex::default(),
            desks: threads.map(|_| Desk::default()).collect(),
            callable: seed.shape.callable(),
        }
    }

    /// Forgets the accesses of a lost process: no other process can learn what they were.
    pub(crate) fn lose(&self, process: &Process, lost: ProcessId) {
        lock(&self.shadow).lose(|worker| process.job.is_worker_of(worker, lost));
    }
}

impl Observer for Checks {
    fn end_accesses(&self, local: Option<usize>, to: Option<WorkerId>) {
        self.epochs.end(local, to);
    }

    fn tell(&self, local: usize) -> Known {
        self.epochs.tell(local)
    }

    fn hear(&self, local: usize, known: &Known) {
        self.epochs.hear(local, known.0.iter().copied().filter(|(worker, _)| *worker < self.callable));
    }

    fn epoch(&self, local: usize) -> u64 {
        self.epochs.of(local)
    }

    fn all_know(&self, local: usize, epoch: u64) {
        self.epochs.all_know(local, epoch);
    }

    fn access(&self, me: Accessor<'_>, part: Part) -> Result<()> {
        self.check_access(me, part)
    }

    fn begin(&self, me: Accessor<'_>, parts: &[Part], after: &[u64]) -> Result<OpenOperation> {
        self.begin_operation(me, parts, after)
    }

    fn complete(&self, process: &Process, hold: OpenOperation) {
        self.complete_operation(process, hold);
    }

    fn end(&self, process: &Process, hold: OpenOperation) {
        self.end_operation(process, hold);
    }

    fn release_note(&self, me: Accessor<'_>, memory: Extent, touch: Touch) -> Vec<u8> {
        message::encode(&Record::new(me, Part { memory, touch }, Lifetime::Released))
    }

    fn released(&self, process: &Process, memory: Extent, by: ProcessId, note: &[u8]) {
        // A note that is malformed, or names a worker of another process, names no releaser.
        let Some(record) = message::decode::<Record>(note).filter(Record::is_valid) else { return };
        if process.job.is_worker_of(record.worker, by) && memory.bytes > 0 {
            let record = Record { memory, kind: AccessKind::Release, lifetime: Lifetime::Released, ..record };
            lock(&self.shadow).release(record);
        }
    }

    fn renewed(&self, memory: Extent) {
        lock(&self.shadow).renew(memory);
    }
}

impl Worker {
    /// Returns the checker's counters for this process's memory, or `None` unless accesses are
    /// [checked](crate::Job::check_accesses).
    pub fn access_checks(&self) -> Option<AccessChecks> {
        checks_of(self.process_handle()).map(|checks| lock(&checks.shadow).counters())
    }
}

/// The checker of a process, if accesses are checked.
fn checks_of(process: &Process) -> Option<&Checks> {
    process.room::<CheckRoom>().checks.as_deref()
}

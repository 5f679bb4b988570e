//! Memory that an operation uses beside its worker.

use std::sync::Arc;

use farside_fabric::clock::lock;
use farside_fabric::{ProcessId, RemoteKey};

use super::Span;
use super::ask::Touch;
use super::epochs::Life;
use super::message::CheckMessage;
use crate::error::Result;
use crate::invoke::ring::message::SetupMessage;
use crate::memory::Registered;
use crate::runtime::process::Process;
use crate::runtime::worker::Worker;

/// Bytes of a region that an operation accesses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) key: RemoteKey,
    /// From the region's first byte.
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    pub(crate) touch: Touch,
}

/// What an operation has until it is over: accesses that conflict with that are refused, whoever makes them. Whoever has it says how it ended, by
/// [`complete`](Self::complete) or [`end`](Self::end), before anybody is told so.
#[derive(Debug)]
pub(crate) struct Hold {
    worker: u32,
    local: usize,
    operation: u64,
    owners: Vec<ProcessId>,
}

/// A buffer that is lent, until this is dropped. Then what was done with it has ended: who has read it knows that before the lender does.
#[derive(Debug)]
pub(crate) struct InUse {
    process: Arc<Process>,
    hold: Hold,
}

impl Worker {
    /// Opens the reading of a buffer that is lent, until what is returned is dropped. `None` when accesses are not checked.
    pub(crate) fn open_buffer(&self, buffer: &Registered, touch: Touch) -> Result<Option<Box<InUse>>> {
        let part = Part { key: buffer.key(), offset: buffer.offset(), bytes: buffer.bytes(), touch };
        let hold = self.open_until_over(&[part], &[])?;
        Ok(hold.map(|hold| Box::new(InUse { process: self.process_handle().clone(), hold })))
    }

    /// Opens the accesses of an operation that begins now, and that is ordered `after` some of this worker. `None` when accesses are not
    /// checked.
    pub(crate) fn open_until_over(&self, parts: &[Part], after: &[u64]) -> Result<Option<Hold>> {
        let process = self.process_handle();
        let Some(checks) = process.checks() else { return Ok(None) };
        let operation = checks.epochs.begin_operation();
        let (worker, local) = (self.id().number(), self.thread_index());
        let mut hold = Hold { worker, local, operation, owners: Vec::new() };
        let deadline = self.now() + self.default_deadline();
        for Part { key, offset, bytes, touch } in parts.iter().copied() {
            // Before it is asked, since it may write the access down and not be heard any more.
            if !hold.owners.contains(&key.process) {
                hold.owners.push(key.process);
            }
            let access = self.record_of(Span::in_region(key, offset, bytes), touch, Life::Operation(operation));
            if let Err(error) = self.open_access(checks, key, access, after, deadline) {
                hold.end(process);
                return Err(error);
            }
        }
        Ok(Some(hold))
    }
}

impl Hold {
    /// The number by which the checker knows the operation.
    pub(crate) fn operation(&self) -> u64 {
        self.operation
    }

    /// The operation has completed, and nobody can know that but by its worker: its accesses are those of the epoch that this is in.
    pub(crate) fn complete(self, process: &Process) {
        let Some(checks) = process.checks() else { return };
        let Self { worker, local, operation, owners } = self;
        let epoch = checks.epochs.complete(local, operation);
        for owner in owners {
            match owner == process.id() {
                true => lock(&checks.shadow).complete(worker, operation, epoch),
                false => say(process, owner, CheckMessage::Completed { worker, operation, epoch }),
            }
        }
    }

    /// The operation was not made, or nobody can tell any more who knows how far it is: its accesses are forgotten.
    pub(crate) fn end(self, process: &Process) {
        let Some(checks) = process.checks() else { return };
        let Self { worker, operation, owners, .. } = self;
        checks.epochs.end_operation(operation);
        for owner in owners {
            match owner == process.id() {
                true => lock(&checks.shadow).end(worker, Life::Operation(operation)),
                false => say(process, owner, CheckMessage::Ended { worker, operation }),
            }
        }
    }
}

/// Tells an owner. It need not arrive: whoever is told of these accesses asks this process how it stands with them.
fn say(process: &Process, owner: ProcessId, message: CheckMessage) {
    let _ = process.send_setup(owner, &SetupMessage::Check(Box::new(message)));
}

impl Drop for InUse {
    fn drop(&mut self) {
        let owners = std::mem::take(&mut self.hold.owners);
        Hold { owners, ..self.hold }.end(&self.process);
    }
}

//! Operations that run concurrently with their worker, and keep their accesses open until they end.

use farside_fabric::ProcessId;
use farside_fabric::clock::lock;

use super::Checks;
use super::epochs::Lifetime;
use super::message::{self, CheckMessage};
use super::shadow::Record;
use crate::error::Result;
use crate::runtime::observer::{Accessor, OpenOperation, Part};
use crate::runtime::process::Process;

impl Checks {
    /// Opens the accesses of an operation that starts now, ordered `after` some operations of the
    /// same worker.
    pub(super) fn begin_operation(&self, me: Accessor<'_>, parts: &[Part], after: &[u64]) -> Result<OpenOperation> {
        let operation = self.epochs.begin_operation();
        let (worker, local) = (me.id().number(), me.thread_index());
        let mut hold = OpenOperation { worker, local, operation, owners: Vec::new() };
        let deadline = me.now() + me.default_deadline();
        for part in parts.iter().copied() {
            // Before the owner is asked, since it may record the access and its answer get lost.
            let owner = part.memory.process();
            if !hold.owners.contains(&owner) {
                hold.owners.push(owner);
            }
            let access = Record::new(me, part, Lifetime::Operation(operation));
            if let Err(error) = self.open_access(me, access, after, deadline) {
                self.end_operation(me.process_handle(), hold);
                return Err(error);
            }
        }
        Ok(hold)
    }

    /// Moves the accesses of a completed operation into the current epoch of its worker. Only that
    /// worker can know that the operation has completed.
    pub(super) fn complete_operation(&self, process: &Process, hold: OpenOperation) {
        let OpenOperation { worker, local, operation, owners } = hold;
        let epoch = self.epochs.complete(local, operation);
        for owner in owners {
            match owner == process.id() {
                true => lock(&self.shadow).complete(worker, operation, epoch),
                false => tell(process, owner, &CheckMessage::Completed { worker, operation, epoch }),
            }
        }
    }

    /// Forgets the accesses of an operation that was not made, or whose end other workers may know
    /// before its own worker does.
    pub(super) fn end_operation(&self, process: &Process, hold: OpenOperation) {
        let OpenOperation { worker, operation, owners, .. } = hold;
        self.epochs.end_operation(operation);
        for owner in owners {
            match owner == process.id() {
                true => lock(&self.shadow).end(worker, Lifetime::Operation(operation)),
                false => tell(process, owner, &CheckMessage::Ended { worker, operation }),
            }
        }
    }
}

/// Tells an owner. The message may get lost: a worker that meets these accesses asks this process
/// whether they are still open.
fn tell(process: &Process, owner: ProcessId, message: &CheckMessage) {
    let _ = message::send(process, owner, message);
}

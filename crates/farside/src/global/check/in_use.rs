//! Memory that an operation uses beside its worker.

use std::sync::Arc;

use farside_fabric::clock::lock;
use farside_fabric::{ProcessId, RemoteKey};

use super::Span;
use super::ask::Touch;
use super::epochs::Life;
use super::message::CheckMessage;
use crate::error::Result;
use crate::job::process::Process;
use crate::job::setup::SetupMessage;
use crate::job::worker::Worker;
use crate::memory::Registered;

/// Bytes that an operation has until it has completed: accesses that conflict with that are refused, whoever makes them. Dropped when the
/// operation has completed, before anybody is told so.
#[derive(Debug)]
pub(crate) struct InUse {
    process: Arc<Process>,
    worker: u32,
    local: usize,
    operation: u64,
    owners: Vec<ProcessId>,
}

impl Worker {
    /// Opens the reading of a buffer that is lent, until what is returned is dropped. `None` when accesses are not checked.
    pub(crate) fn open_buffer(&self, buffer: &Registered, touch: Touch) -> Result<Option<Box<InUse>>> {
        self.open_until_completed([(buffer.key(), buffer.offset(), buffer.bytes(), touch)])
    }

    /// Opens the accesses of an operation that begins now, until what is returned is dropped: a region, and where in it how many bytes are
    /// accessed, for each. `None` when accesses are not checked.
    pub(crate) fn open_until_completed<const N: usize>(
        &self,
        accesses: [(RemoteKey, u64, usize, Touch); N],
    ) -> Result<Option<Box<InUse>>> {
        let process = self.process_handle();
        let Some(checks) = process.checks() else { return Ok(None) };
        let operation = checks.epochs.begin_operation();
        let (worker, local) = (self.id().number(), self.thread_index());
        // Dropped when one is refused, with those before it.
        let mut in_use = Box::new(InUse { process: process.clone(), worker, local, operation, owners: Vec::new() });
        for (key, offset, bytes, touch) in accesses {
            self.open_access(checks, key, Span::in_region(key, offset, bytes), touch, Life::Operation(operation))?;
            if !in_use.owners.contains(&key.process) {
                in_use.owners.push(key.process);
            }
        }
        Ok(Some(in_use))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let Self { process, worker, local, operation, owners } = self;
        let Some(checks) = process.checks() else { return };
        let epoch = checks.epochs.complete(*local, *operation);
        for owner in owners {
            if *owner == process.id() {
                lock(&checks.shadow).complete(*worker, *operation, epoch);
                continue;
            }
            // It need not arrive: whoever is told of these accesses asks this process how it stands with them.
            let completed = CheckMessage::Completed { worker: *worker, operation: *operation, epoch };
            let _ = process.send_setup(*owner, &SetupMessage::Check(Box::new(completed)));
        }
    }
}

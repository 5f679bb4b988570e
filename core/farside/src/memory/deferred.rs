//! Operations on remote memory that go on without their caller.

use std::sync::Arc;
use std::time::Duration;

use farside_fabric::FabricError;
use farside_fabric::region::execute;
use farside_fabric::transport::{AtomicChange, Operation, Outcome};

use super::{Extent, RemoteMemory};
use crate::error::Result;
use crate::memory::ProcessMemory;
use crate::memory::mover::start_transfer;
use crate::runtime::process::Process;

impl RemoteMemory {
    /// Executes an operation and then calls `go_on`: at once where the memory is attached and
    /// mapped, otherwise on the transfer thread. If the operation fails, `go_on` is not called.
    pub(crate) fn change_soon(
        &self,
        process: &Arc<Process>,
        operation: Operation,
        go_on: impl FnOnce(&Arc<Process>) + Send + 'static,
    ) {
        if self.check_kind().and_then(|()| ProcessMemory::of(process).check_known(self)).is_err() {
            return;
        }
        if process.links.home_of(self.process()).is_none() {
            let then = move |process: &Arc<Process>, outcome: Result<Outcome>| {
                if outcome.is_ok() {
                    go_on(process);
                }
            };
            return start_transfer(process, self.extent(), operation, Box::new(then));
        }
        let region = match self.process() == process.id() {
            true => ProcessMemory::of(process).region_of(process, self, Duration::ZERO).ok(),
            false => process.transport().attached(self.key),
        };
        let Some(region) = region else {
            let Ok(offset) = self.stamp_at() else { return };
            // Reads the stamp as the first access, and then looks at it as here.
            let (memory, stamp) = (*self, Extent { key: self.key, offset, bytes: size_of::<u64>() as u64 });
            let then = move |process: &Arc<Process>, outcome: Result<Outcome>| {
                if outcome.is_ok() {
                    memory.change_soon(process, operation, go_on);
                }
            };
            let first = Operation::Atomic64 { offset: 0, change: AtomicChange::Load };
            return start_transfer(process, stamp, first, Box::new(then));
        };
        let execute_here = || -> Result<()> {
            let memory = region.mapped().ok_or(FabricError::StaleKey { key: region.key() })?;
            self.check_stamp(&region, process.clock().now())?;
            execute(region.key(), memory, self.extent().inside_operation(operation)?)?;
            Ok(())
        };
        if execute_here().is_ok() {
            go_on(process);
        }
    }

    /// Checks that `bytes` bytes from `offset` on are inside this memory, and inside its region.
    /// After an access to the memory, the size of the region is known to be true.
    ///
    /// # Errors
    /// [`Error::Fabric`](crate::Error::Fabric) with `OutOfRange`.
    pub(crate) fn check_inside(&self, offset: u64, bytes: usize) -> Result<()> {
        Ok(self.key.check(self.inside(offset, bytes)?, bytes)?)
    }

    /// The memory, without the number of its grant.
    pub(super) fn extent(&self) -> Extent {
        Extent { key: self.key, offset: self.offset, bytes: self.bytes }
    }
}

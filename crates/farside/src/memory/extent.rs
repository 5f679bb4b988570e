//! A piece of registered memory, as calls name it that read or write it on somebody's behalf.

use std::sync::Arc;

use farside_fabric::region::execute;
use farside_fabric::transport::{Operation, Outcome};
use farside_fabric::{FabricError, ProcessId, RemoteKey, RemoteRegion};

use super::{Registered, RemoteMemory};
use crate::Wire;
use crate::error::Result;
use crate::invoke::ring::message::Piece;
use crate::runtime::process::Process;
use crate::runtime::worker::Worker;

/// A piece of a region of some process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(crate) struct Extent {
    key: RemoteKey,
    offset: u64,
    bytes: u64,
}

impl Extent {
    /// A buffer of this process. It stays the buffer's as long as that is kept.
    pub(crate) fn of(buffer: &Registered) -> Self {
        Self { key: buffer.key(), offset: buffer.offset(), bytes: buffer.bytes() as u64 }
    }

    /// A region, all of it.
    pub(crate) fn whole(key: RemoteKey) -> Self {
        Self { key, offset: 0, bytes: key.bytes }
    }

    /// A piece of whatever process.
    pub(crate) fn of_piece(piece: &Piece) -> Self {
        Self { key: piece.key, offset: piece.offset, bytes: piece.bytes }
    }

    /// Whose memory it is.
    pub(crate) fn process(&self) -> ProcessId {
        self.key.process
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The region that it lies in. Waits for the owner's service thread when this process has not used the region before.
    pub(crate) fn region(&self, process: &Process) -> Result<RemoteRegion> {
        if let Some(lost) = process.lost(self.process()) {
            return Err(lost);
        }
        let deadline = process.clock().now() + process.settings().deadline;
        process.transport().attach(self.key, deadline).map_err(|error| process.explain(error))
    }

    /// An operation inside of this memory, as one inside of its region.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`].
    pub(crate) fn inside_operation(&self, operation: Operation) -> Result<Operation, FabricError> {
        Ok(match operation {
            Operation::Put { offset, data } => Operation::Put { offset: self.inside(offset, data.len())?, data },
            Operation::Get { offset, room } => Operation::Get { offset: self.inside(offset, room.len())?, room },
            Operation::Atomic64 { offset, change } => Operation::Atomic64 { offset: self.inside(offset, 8)?, change },
            Operation::Atomic32 { offset, change } => Operation::Atomic32 { offset: self.inside(offset, 4)?, change },
        })
    }

    /// A get of all of this memory, as an operation inside of its region. There must be such a region: the buffer is as long as it says.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`].
    pub(crate) fn read_operation(&self) -> Result<Operation, FabricError> {
        let bytes = self.bytes as usize;
        self.key.check(self.offset, bytes)?;
        Ok(Operation::get(self.offset, bytes))
    }

    /// Where in the region an access is, if it is inside of this memory.
    fn inside(&self, offset: u64, bytes: usize) -> Result<u64, FabricError> {
        let end = offset.checked_add(bytes as u64).filter(|end| *end <= self.bytes);
        match self.offset.checked_add(offset) {
            Some(inside) if end.is_some() => Ok(inside),
            _ => Err(FabricError::OutOfRange { offset, bytes, region_bytes: self.bytes }),
        }
    }

    /// All of it, read also in a function that must not wait for others: for at most the job's deadline this waits for the owner's
    /// service thread.
    pub(crate) fn read_in_handler(&self, me: &Worker) -> Result<Vec<u8>> {
        let process = me.process_handle();
        let region = self.region(process)?;
        region.key().check(self.offset, self.bytes as usize)?;
        let mut buffer = vec![0; self.bytes as usize];
        let deadline = me.now() + me.default_deadline();
        region.get(self.offset, &mut buffer, deadline).map_err(|error| process.explain(error))?;
        Ok(buffer)
    }
}

impl RemoteMemory {
    /// The memory without the name of its grant.
    fn extent(&self) -> Extent {
        Extent { key: self.key, offset: self.offset, bytes: self.bytes }
    }

    /// Carries an operation out and then goes on: at once where the memory is mapped, otherwise by the mover. If it fails, nothing goes
    /// on.
    pub(crate) fn change_soon(
        &self,
        process: &Arc<Process>,
        operation: Operation,
        go_on: impl FnOnce(&Arc<Process>) + Send + 'static,
    ) {
        if process.memory().check_known(self).is_err() {
            return;
        }
        if process.home_of(self.process()).is_none() {
            let then = move |process: &Arc<Process>, outcome: Result<Outcome>| {
                if outcome.is_ok() {
                    go_on(process);
                }
            };
            return process.start_transfer(self.extent(), operation, Box::new(then));
        }
        let carry_out = || -> Result<()> {
            let region = process.region_of(self)?;
            let memory = region.mapped().ok_or(FabricError::StaleKey { key: region.key() })?;
            self.check_stamp(&region, process.clock().now())?;
            execute(region.key(), memory, self.extent().inside_operation(operation)?)?;
            Ok(())
        };
        if carry_out().is_ok() {
            go_on(process);
        }
    }

    /// Whether so many bytes from `offset` on are inside.
    ///
    /// # Errors
    /// [`Error::Fabric`](crate::Error::Fabric) with `OutOfRange`.
    pub(crate) fn check_inside(&self, offset: u64, bytes: usize) -> Result<()> {
        self.inside(offset, bytes)?;
        Ok(())
    }
}

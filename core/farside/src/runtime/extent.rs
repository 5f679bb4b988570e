//! [`Extent`]: a range of bytes in a registered region.

use std::time::Instant;

use farside_fabric::memory::Registered;
use farside_fabric::transport::Operation;
use farside_fabric::{FabricError, ProcessId, RemoteKey, RemoteRegion};

use super::process::Process;
use super::worker::Worker;
use crate::Wire;
use crate::error::Result;

/// A range of bytes in a registered region of some process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub struct Extent {
    /// The region.
    pub key: RemoteKey,
    /// The first byte, counted from the region's first.
    pub offset: u64,
    /// The number of bytes.
    pub bytes: u64,
}

impl Extent {
    /// Returns the memory of a buffer of this process. It belongs to the buffer until that is
    /// dropped.
    pub fn of(buffer: &Registered) -> Self {
        Self { key: buffer.key(), offset: buffer.offset(), bytes: buffer.bytes() as u64 }
    }

    /// Returns the extent of a whole region.
    pub(crate) fn whole(key: RemoteKey) -> Self {
        Self { key, offset: 0, bytes: key.bytes }
    }

    /// Returns the owner of the memory.
    pub(crate) fn process(&self) -> ProcessId {
        self.key.process
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the offset after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    /// Returns the region. Waits for the owner's service thread if this process has not used the
    /// region before, for the job's deadline at most.
    pub fn region(&self, process: &Process) -> Result<RemoteRegion> {
        self.region_until(process, process.clock().now() + process.settings().deadline)
    }

    /// Returns the region as [`region`](Self::region) does, but waits until `deadline` at most.
    pub(crate) fn region_until(&self, process: &Process, deadline: Instant) -> Result<RemoteRegion> {
        if let Some(lost) = process.losses.lost(self.process()) {
            return Err(lost);
        }
        process.transport().attach(self.key, deadline).map_err(|error| process.explain(error))
    }

    /// Translates an operation on this memory into one on its region.
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

    /// Returns a get of all of this memory, as an operation on its region. The key must be one of
    /// an attached region, since the get allocates as many bytes as the extent claims.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`].
    pub(crate) fn read_operation(&self) -> Result<Operation, FabricError> {
        let bytes = self.bytes as usize;
        self.key.check(self.offset, bytes)?;
        Ok(Operation::get(self.offset, bytes))
    }

    /// Returns the offset in the region of `bytes` bytes at `offset` in this memory.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`] if they are not inside this memory.
    pub(crate) fn inside(&self, offset: u64, bytes: usize) -> Result<u64, FabricError> {
        let end = offset.checked_add(bytes as u64).filter(|end| *end <= self.bytes);
        match self.offset.checked_add(offset) {
            Some(inside) if end.is_some() => Ok(inside),
            _ => Err(FabricError::OutOfRange { offset, bytes, region_bytes: self.bytes }),
        }
    }

    /// Reads all of this memory. A handler may call it: it waits for no worker, and only for a
    /// [moment](Worker::patience) for the owner's service thread.
    pub(crate) fn read_in_handler(&self, me: &Worker) -> Result<Vec<u8>> {
        let process = me.process_handle();
        let deadline = me.now() + me.patience();
        let region = self.region_until(process, deadline)?;
        region.key().check(self.offset, self.bytes as usize)?;
        let mut buffer = vec![0; self.bytes as usize];
        region.get(self.offset, &mut buffer, deadline).map_err(|error| process.explain(error))?;
        Ok(buffer)
    }
}

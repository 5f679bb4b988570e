//! Registered memory that is lent to calls.

use std::sync::Arc;

use farside_fabric::clock::lock;
use farside_fabric::region::execute;
use farside_fabric::transport::{Operation, Outcome};
use farside_fabric::{FabricError, RemoteRegion};

use super::RemoteMemory;
use crate::error::{Error, Result};
use crate::job::process::Process;
use crate::job::worker::Worker;

/// Registered memory of this process that has one owner: to be filled here and read by the receiver of a call
/// ([`To::call_buffer_get`](crate::To::call_buffer_get)). Made by [`Worker::buffer`]; the memory is given back when it is dropped.
///
/// While a call has it, nobody here does: so nobody changes it before it was read.
#[derive(Debug)]
pub struct Buffer {
    memory: RemoteMemory,
    region: RemoteRegion,
    process: Arc<Process>,
    /// It is not given back.
    kept: bool,
}

impl Worker {
    /// Registered memory of this process, of so many bytes. What it holds is left from before.
    ///
    /// *Cost*: about a microsecond, as for [`allocate_at`](Self::allocate_at) in the own process.
    ///
    /// # Errors
    /// [`Error::MemoryRefused`].
    pub fn buffer(&self, bytes: u64) -> Result<Buffer> {
        let memory = self.allocate_at(self.process(), bytes)?;
        let process = self.process_handle().clone();
        Ok(Buffer { region: process.region_of(&memory)?, memory, process, kept: false })
    }

    /// The same, filled with a copy of these bytes.
    ///
    /// # Errors
    /// As for [`buffer`](Self::buffer).
    pub fn buffer_of(&self, bytes: &[u8]) -> Result<Buffer> {
        let mut buffer = self.buffer(bytes.len() as u64)?;
        buffer.write(0, bytes)?;
        Ok(buffer)
    }
}

impl Buffer {
    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes
    }

    /// Writes `data` from `offset` on.
    ///
    /// # Errors
    /// [`Error::Fabric`] with `OutOfRange`.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let inside = self.memory.inside(offset, data.len())?;
        // What is mapped waits for nothing.
        Ok(self.region.put(inside, data, self.process.clock().now())?)
    }

    /// Reads from `offset` on, as much as `data` has room for.
    ///
    /// # Errors
    /// [`Error::Fabric`] with `OutOfRange`.
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<()> {
        let inside = self.memory.inside(offset, data.len())?;
        Ok(self.region.get(inside, data, self.process.clock().now())?)
    }

    /// Keeps the memory from everybody until the job ends.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }

    pub(crate) fn memory(&self) -> RemoteMemory {
        self.memory
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !self.kept {
            // Only this owner gives it back, so it is not gone.
            let _ = lock(&self.process.memory().grants).release(&self.memory);
        }
    }
}

impl RemoteMemory {
    /// The region that it lies in. Waits for the owner's service thread when this process has not used the region before.
    pub(crate) fn region(&self, process: &Process) -> Result<RemoteRegion> {
        if let Some(lost) = process.lost(self.process()) {
            return Err(lost);
        }
        process.memory().check_known(self)?;
        process.region_of(self)
    }

    /// An operation inside of this memory, as one inside of its region.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`].
    pub(crate) fn inside_operation(&self, operation: Operation) -> Result<Operation, FabricError> {
        Ok(match operation {
            Operation::Put { offset, data } => Operation::Put { offset: self.inside(offset, data.len())?, data },
            Operation::Get { offset, bytes } => Operation::Get { offset: self.inside(offset, bytes)?, bytes },
            Operation::Atomic64 { offset, change } => Operation::Atomic64 { offset: self.inside(offset, 8)?, change },
            Operation::Atomic32 { offset, change } => Operation::Atomic32 { offset: self.inside(offset, 4)?, change },
        })
    }

    /// As [`get`](Self::get), also in a function that must not wait for others: for at most the job's deadline it waits for the
    /// owner's service thread.
    pub(crate) fn get_in_handler(&self, me: &Worker, offset: u64, data: &mut [u8]) -> Result<()> {
        let inside = self.inside(offset, data.len())?;
        let process = me.process_handle();
        let deadline = me.now() + me.default_deadline();
        let region = self.region(process)?;
        region.get(inside, data, deadline).map_err(|error| process.explain(error))
    }

    /// Carries an operation out and then goes on: at once where the memory is mapped, otherwise by the mover. If it fails, nothing goes
    /// on.
    pub(crate) fn change_soon(
        &self,
        process: &Arc<Process>,
        operation: Operation,
        go_on: impl FnOnce(&Arc<Process>) + Send + 'static,
    ) {
        if process.home_of(self.process()).is_none() {
            let then = move |process: &Arc<Process>, outcome: Result<Outcome>| {
                if outcome.is_ok() {
                    go_on(process);
                }
            };
            return process.start_transfer(self, operation, Box::new(then));
        }
        let carry_out = || -> Result<()> {
            let region = self.region(process)?;
            let memory = region.mapped().ok_or(FabricError::StaleKey { key: region.key() })?;
            execute(region.key(), memory, self.inside_operation(operation)?)?;
            Ok(())
        };
        if carry_out().is_ok() {
            go_on(process);
        }
    }

    /// Whether so many bytes from `offset` on are inside.
    ///
    /// # Errors
    /// [`Error::Fabric`] with `OutOfRange`.
    pub(crate) fn check_inside(&self, offset: u64, bytes: usize) -> Result<(), Error> {
        self.inside(offset, bytes)?;
        Ok(())
    }
}

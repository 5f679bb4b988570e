//! Symmetric memory: memory of the same size in every process, at addresses that every process
//! computes.

use std::fmt;
use std::marker::PhantomData;

use bytemuck::Pod;
use farside_fabric::ProcessId;

use super::super::local_bytes::LocalBytes;
use super::object_error::ObjectError;
use super::racy_slice::RacySlice;
use super::spread::{BYTES_MAX, ObjectKind, ObjectRequest, Parts, Spread};
use crate::error::{Error, Result};
use crate::global::{GlobalPtr, GlobalSlice};
use crate::runtime::worker::Worker;

/// The same number of values in every process: symmetric memory, in the terms of OpenSHMEM.
///
/// Each *process* has one piece, which its workers share: a process is what OpenSHMEM calls a PE.
/// The place of a process's piece is computed, without a message. Its values are zero at first.
///
/// ```no_run
/// # use farside::prelude::*;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// // All workers make it, and give it back, together.
/// let inbox = me.symmetric::<u64>(16)?;
/// let next = me.process_of(me.neighbor(me.threads_per_process()));
/// inbox.at(next)?.at(3)?.fetch_add(me, 1)?;
/// me.barrier()?;
/// assert_eq!(inbox.here().get(3), u64::from(me.threads_per_process()));
/// inbox.free(me)
/// # }
/// ```
///
/// If it is dropped without [`free`](Self::free), or after the loss of a process, it is kept until
/// the job ends.
pub struct Symmetric<T> {
    spread: Spread,
    length: usize,
    processes: u32,
    of: PhantomData<fn() -> T>,
}

impl Worker {
    pub(crate) fn symmetric<T: Pod>(&self, length: usize) -> Result<Symmetric<T>> {
        let processes = 0..self.process_count();
        // At least one byte: also an empty object has a place, and its addresses can be used like
        // any others.
        let parts = value_bytes::<T>(length as u64).map(|bytes| Parts { processes, bytes: bytes.max(1) });
        let request = ObjectRequest {
            kind: ObjectKind::Symmetric,
            value_bytes: size_of::<T>() as u64,
            shape: [length as u64, 0, 0],
        };
        let spread = Spread::new(self, request, parts)?;
        Ok(Symmetric { spread, length, processes: self.process_count(), of: PhantomData })
    }
}

/// Returns the size of `length` values, if a process can have them in one object.
pub(super) fn value_bytes<T>(length: u64) -> Result<u64, ObjectError> {
    const {
        assert!(size_of::<T>() > 0, "values without bytes have no addresses");
        assert!(align_of::<T>() <= 64, "objects begin at multiples of 64");
    }
    let bytes = length.checked_mul(size_of::<T>() as u64).filter(|bytes| *bytes <= BYTES_MAX);
    bytes.ok_or(ObjectError::TooLong { length, value_bytes: size_of::<T>() })
}

impl<T: Pod> Symmetric<T> {
    /// Returns the number of values of each process.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the values of a process. The handle is computed without a message, and is a plain
    /// value that can be sent.
    ///
    /// # Errors
    /// [`Error::UnknownProcess`](crate::Error::UnknownProcess).
    #[inline]
    pub fn at(&self, process: ProcessId) -> Result<GlobalSlice<T>> {
        if process.number() >= self.processes {
            return Err(Error::UnknownProcess { process, count: self.processes });
        }
        Ok(GlobalPtr::new(self.spread.base(process)).slice(self.length))
    }

    /// Returns the values of this process.
    pub fn here(&self) -> RacySlice<'_, T> {
        match self.spread.here(0, (self.length * size_of::<T>()) as u64) {
            // SAFETY: the spread has this many bytes here, at a multiple of 64, mapped as long as
            // it is kept. Other code reaches them only by their address.
            Some(start) => unsafe { RacySlice::new(start.cast(), self.length, self.spread.watched()) },
            None => RacySlice::empty(),
        }
    }

    /// Returns the values of this process as bytes, for all its threads.
    pub fn local_bytes(&self) -> LocalBytes {
        self.spread.local_bytes(0, (self.length * size_of::<T>()) as u64)
    }

    /// Frees the memory. All workers call this, and the memory is freed when all have done so.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`]. The memory is then kept until the job ends.
    #[track_caller]
    pub fn free(self, me: &Worker) -> Result<()> {
        self.spread.free(me)
    }
}

impl<T> fmt::Debug for Symmetric<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values in each of {} processes", self.length, self.processes)
    }
}

//! Memory that every process has, of the same size and at addresses that everybody computes.

use std::fmt;
use std::marker::PhantomData;

use bytemuck::Pod;
use farside_fabric::ProcessId;

use super::object_error::ObjectError;
use super::racy_slice::RacySlice;
use super::spread::{BYTES_MAX, ObjectKind, Parts, Spread, Wish};
use crate::error::{Error, Result};
use crate::global::{GlobalPtr, GlobalSlice};
use crate::runtime::worker::Worker;

/// Values of which every process has as many: symmetric memory, as OpenSHMEM calls it.
///
/// It is one piece for each *process*, whose workers share it: a process is what OpenSHMEM calls a PE. Where a process's piece
/// lies is computed; nobody is asked. Its values are zero at first.
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
/// Dropped without [`free`](Self::free), or after a process was lost, it is kept until the job ends.
pub struct Symmetric<T> {
    spread: Spread,
    length: usize,
    processes: u32,
    of: PhantomData<fn() -> T>,
}

impl Worker {
    /// Gives every process memory for `length` values, zero at first. All workers call this, in the same order as other collectives and with the same
    /// length; one of each process allocates.
    ///
    /// *Cost*: a local allocation, and an [`all_reduce`](Self::all_reduce). If the processes' pieces do not lie alike in their memories (which they do if all processes have
    /// allocated the same before), everybody learns where they are and keeps a table: 8 bytes a process.
    ///
    /// OpenSHMEM's `shmem_calloc`.
    ///
    /// # Errors
    /// The same at all workers: [`MemoryError::Refused`](crate::memory::MemoryError::Refused) when a process has none left, [`MemoryError::NoAddress`](crate::memory::MemoryError::NoAddress),
    /// [`ObjectError::TooLong`], [`ObjectError::Unequal`]. What some had is given back then. And those of [`barrier`](Self::barrier), where memory is kept until the
    /// job ends.
    pub fn symmetric<T: Pod>(&self, length: usize) -> Result<Symmetric<T>> {
        let processes = 0..self.process_count();
        // A byte at least: no values lie somewhere, too, and their addresses can be used as any others.
        let parts = value_bytes::<T>(length as u64).map(|bytes| Parts { processes, bytes: bytes.max(1) });
        let wish =
            Wish { kind: ObjectKind::Symmetric, value_bytes: size_of::<T>() as u64, shape: [length as u64, 0, 0] };
        let spread = Spread::new(self, wish, parts)?;
        Ok(Symmetric { spread, length, processes: self.process_count(), of: PhantomData })
    }
}

/// The size of so many values, if a process can have them in one object.
pub(super) fn value_bytes<T>(length: u64) -> Result<u64, ObjectError> {
    const {
        assert!(size_of::<T>() > 0, "values without bytes have no addresses");
        assert!(align_of::<T>() <= 64, "objects begin at multiples of 64");
    }
    let bytes = length.checked_mul(size_of::<T>() as u64).filter(|bytes| *bytes <= BYTES_MAX);
    bytes.ok_or(ObjectError::TooLong { length, value_bytes: size_of::<T>() })
}

impl<T: Pod> Symmetric<T> {
    /// How many values each process has.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether they have none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The values of a process. Computed, by nobody's help; the handle is a value and can be sent.
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

    /// The values of this process.
    pub fn here(&self) -> RacySlice<'_, T> {
        match self.spread.here(0, (self.length * size_of::<T>()) as u64) {
            // SAFETY: the spread has so many bytes here, at a multiple of 64, mapped as long as it is kept. Others reach them by their address only.
            Some(start) => unsafe { RacySlice::new(start.cast(), self.length) },
            None => RacySlice::empty(),
        }
    }

    /// Gives the memory back. All workers call this, and it goes when all have come.
    ///
    /// # Errors
    /// Those of [`Worker::barrier`]; the memory is kept until the job ends then.
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

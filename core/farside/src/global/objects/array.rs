//! Arrays that all workers of the job share.

mod distribution;
mod divisor;
mod layout;
mod ranges;

use std::fmt;
use std::marker::PhantomData;

use bytemuck::Pod;
use farside_fabric::{ProcessId, WorkerId};

pub use self::distribution::Distribution;
pub(super) use self::divisor::Divisor;
use self::layout::{Layout, Place};
use super::super::local_bytes::LocalBytes;
use super::object_error::ObjectError;
use super::racy_slice::RacySlice;
use super::spread::{BYTES_MAX, ObjectKind, ObjectRequest, Parts, Spread};
use super::symmetric::value_bytes;
use crate::error::Result;
use crate::global::GlobalPtr;
use crate::runtime::worker::Worker;

/// The alignment of parts, so that no two share a cache line and every type is aligned.
const PART_ALIGN: u64 = 64;

/// An array whose values lie in the memory of all processes, distributed in blocks, cyclically, or
/// both ([`Distribution`]).
///
/// Each worker has a part of it (or each process, [on request](Distribution::over_processes)),
/// which it accesses by [`local`](Self::local), without the address space. Any worker reaches all
/// of it by index, also in handlers. Values are zero at first.
///
/// ```no_run
/// # use farside::prelude::*;
/// use farside::Distribution;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let counts = me.global_array_as::<u64>(1000, Distribution::CYCLIC)?;
/// counts.at(42)?.fetch_add(me, 1)?;
/// me.barrier()?;
/// assert_eq!(counts.get(me, 42)?, u64::from(me.worker_count()));
/// // What lies here, and which values of the array they are.
/// let own: u64 = counts.local(me).iter().sum();
/// assert_eq!(me.all_reduce(own, |a, b| a + b)?, u64::from(me.worker_count()));
/// assert!(counts.local_indices(me).all(|index| counts.worker_of(me, index).unwrap() == me.id()));
/// counts.free(me)
/// # }
/// ```
///
/// *Cost* of an index: finding its place takes 1 ns if the length of a block and the number of
/// parts are powers of two, and 2 to 3 ns otherwise, or up to three times as long if the next step
/// waits for it. Then that of a [`GlobalPtr`].
///
/// If it is dropped without [`free`](Self::free), or after the loss of a process, it is kept until
/// the job ends. To let handlers find it, put it into a [`PerWorker`](crate::PerWorker) or a
/// [`Dist`](crate::Dist).
pub struct GlobalArray<T> {
    spread: Spread,
    layout: Layout,
    /// The number of parts of each process.
    per_process: Divisor,
    part_bytes: u64,
    distribution: Distribution,
    of: PhantomData<fn() -> T>,
}

impl Worker {
    pub(crate) fn global_array<T: Pod>(&self, length: usize) -> Result<GlobalArray<T>> {
        self.global_array_as(length, Distribution::BLOCK)
    }

    pub(crate) fn global_array_as<T: Pod>(&self, length: usize, distribution: Distribution) -> Result<GlobalArray<T>> {
        let per_process = if distribution.is_over_processes { 1 } else { u64::from(self.threads_per_process()) };
        let layout =
            Layout::new(length as u64, distribution.block as u64, per_process * u64::from(self.process_count()));
        let too_long = ObjectError::TooLong { length: length as u64, value_bytes: size_of::<T>() };
        let part_bytes = value_bytes::<T>(layout.part_length(0)).map_err(|_| too_long);
        let part_bytes = part_bytes.map(|bytes| bytes.next_multiple_of(PART_ALIGN));
        let bytes = part_bytes.and_then(|bytes| {
            let bytes = bytes.checked_mul(per_process).filter(|bytes| *bytes <= BYTES_MAX);
            bytes.ok_or(too_long)
        });
        let shape = [length as u64, distribution.block as u64, distribution.is_over_processes.into()];
        let request = ObjectRequest { kind: ObjectKind::Array, value_bytes: size_of::<T>() as u64, shape };
        let spread =
            Spread::new(self, request, bytes.map(|bytes| Parts { processes: 0..self.process_count(), bytes }))?;
        let (per_process, part_bytes) = (Divisor::new(per_process), part_bytes?);
        Ok(GlobalArray { spread, layout, per_process, part_bytes, distribution, of: PhantomData })
    }
}

impl<T: Pod> GlobalArray<T> {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.layout.length() as usize
    }

    /// Returns whether it has no values.
    pub fn is_empty(&self) -> bool {
        self.layout.length() == 0
    }

    /// Returns the number of parts among which it is distributed: the workers, or the processes.
    pub fn part_count(&self) -> usize {
        self.layout.parts() as usize
    }

    /// Returns its distribution.
    pub fn distribution(&self) -> Distribution {
        self.distribution
    }

    /// Returns the address of the value at an index, to put, get and change it, and to send.
    ///
    /// # Errors
    /// [`ObjectError::Outside`].
    #[inline]
    pub fn at(&self, index: usize) -> Result<GlobalPtr<T>> {
        if index as u64 >= self.layout.length() {
            return Err(self.outside(index, 1).into());
        }
        self.pointer(self.layout.place(index as u64))
    }

    /// Reads the value at an index.
    ///
    /// # Errors
    /// [`ObjectError::Outside`]; [`GlobalError::Address`](crate::global::GlobalError::Address) for
    /// a null, stale or misaligned address, or one out of range;
    /// [`Error::PeerLost`](crate::Error::PeerLost) if the owner is lost;
    /// [`Error::Fabric`](crate::Error::Fabric) if it does not answer in time, or the transport
    /// fails; [`Error::InHandler`](crate::Error::InHandler) if a handler would have to wait for it.
    #[inline]
    #[track_caller]
    pub fn get(&self, me: &Worker, index: usize) -> Result<T> {
        self.at(index)?.get(me)
    }

    /// Writes the value at an index.
    ///
    /// # Errors
    /// [`ObjectError::Outside`]; [`GlobalError::Address`](crate::global::GlobalError::Address) for
    /// a null, stale, misaligned or read-only address, or one out of range;
    /// [`Error::PeerLost`](crate::Error::PeerLost) if the owner is lost;
    /// [`Error::Fabric`](crate::Error::Fabric) if it does not answer in time, or the transport
    /// fails; [`Error::InHandler`](crate::Error::InHandler) if a handler would have to wait for it.
    #[inline]
    #[track_caller]
    pub fn put(&self, me: &Worker, index: usize, value: T) -> Result<()> {
        self.at(index)?.put(me, value)
    }

    /// Returns the process in whose memory an index lies.
    ///
    /// # Errors
    /// [`ObjectError::Outside`].
    pub fn process_of(&self, index: usize) -> Result<ProcessId> {
        self.check(index, 1)?;
        Ok(self.process_and_part(self.layout.place(index as u64).part).0)
    }

    /// Returns the worker in whose part an index lies; the first one of the process if its workers
    /// share a part.
    ///
    /// # Errors
    /// [`ObjectError::Outside`].
    pub fn worker_of(&self, me: &Worker, index: usize) -> Result<WorkerId> {
        self.check(index, 1)?;
        let part = self.layout.place(index as u64).part as u32;
        Ok(WorkerId::new(if self.distribution.is_over_processes { part * me.threads_per_process() } else { part }))
    }

    /// Returns the part of this worker, or of its process if workers share a part. Threads that are
    /// no workers have no part of their own.
    pub fn local(&self, me: &Worker) -> RacySlice<'_, T> {
        let Some(part) = self.own_part(me) else { return RacySlice::empty() };
        let (_, in_process) = self.process_and_part(part);
        let length = self.layout.part_length(part);
        match self.spread.here(in_process * self.part_bytes, length * size_of::<T>() as u64) {
            // SAFETY: the spread has this many bytes here, mapped as long as it is kept, at a
            // multiple of 64, as parts begin. Other code reaches them only by their address.
            Some(start) => unsafe { RacySlice::new(start.cast(), length as usize, self.spread.watched()) },
            None => RacySlice::empty(),
        }
    }

    /// Returns [`local`](Self::local) as bytes, for all threads of the process.
    pub fn local_bytes(&self, me: &Worker) -> LocalBytes {
        let Some(part) = self.own_part(me) else { return LocalBytes::empty() };
        let (_, in_process) = self.process_and_part(part);
        let length = self.layout.part_length(part);
        self.spread.local_bytes(in_process * self.part_bytes, length * size_of::<T>() as u64)
    }

    /// Returns the indices of the values of [`local`](Self::local), in their order.
    pub fn local_indices(&self, me: &Worker) -> impl ExactSizeIterator<Item = usize> + use<T> {
        let layout = self.layout;
        let part = self.own_part(me).unwrap_or_default();
        let length = self.own_part(me).map_or(0, |part| layout.part_length(part));
        (0..length as usize).map(move |offset| layout.index(Place { part, offset: offset as u64 }) as usize)
    }

    /// Frees the memory. All workers call this, and the memory is freed when all have done so.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost) if a process of the job is lost;
    /// [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch) if another worker calls
    /// another collective; [`Error::Deadline`](crate::Error::Deadline) if one does not come in
    /// time; [`Error::InHandler`](crate::Error::InHandler) in a handler. In a job of several
    /// binaries also [`Error::CollectiveOverrun`](crate::Error::CollectiveOverrun). The memory is
    /// then kept until the job ends.
    #[track_caller]
    pub fn free(self, me: &Worker) -> Result<()> {
        self.spread.free(me)
    }

    fn own_part(&self, me: &Worker) -> Option<u64> {
        let is_worker = me.id().number() < me.worker_count();
        match self.distribution.is_over_processes {
            true => Some(me.process().number().into()),
            false => is_worker.then(|| me.id().number().into()),
        }
    }

    #[inline(always)]
    fn process_and_part(&self, part: u64) -> (ProcessId, u64) {
        let (process, in_process) = self.per_process.divide(part);
        (ProcessId::new(process as u32), in_process)
    }

    #[inline(always)]
    fn pointer(&self, place: Place) -> Result<GlobalPtr<T>> {
        let (process, in_process) = self.process_and_part(place.part);
        let base = GlobalPtr::<u8>::new(self.spread.base(process));
        let offset = in_process * self.part_bytes + place.offset * size_of::<T>() as u64;
        base.add(offset as usize).map(GlobalPtr::cast)
    }

    fn check(&self, index: usize, count: usize) -> Result<(), ObjectError> {
        match index.checked_add(count) {
            Some(end) if end as u64 <= self.layout.length() => Ok(()),
            _ => Err(self.outside(index, count)),
        }
    }

    #[cold]
    fn outside(&self, index: usize, count: usize) -> ObjectError {
        ObjectError::Outside { index, count, length: self.len() }
    }
}

impl<T> fmt::Debug for GlobalArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values in {} parts, {:?}", self.layout.length(), self.layout.parts(), self.distribution)
    }
}

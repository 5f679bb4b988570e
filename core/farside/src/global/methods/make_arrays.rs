//! Arrays and other objects in memory that all processes reach.

use bytemuck::Pod;
use farside_fabric::ProcessId;

use crate::error::Result;
#[cfg(doc)]
use crate::global::ObjectError;
use crate::global::{ByteSpace, Distribution, GlobalArray, GlobalSlice, Symmetric};
use crate::memory::{Place, RemoteMemory};
use crate::runtime::worker::{Worker, extension};

extension! {
    /// Arrays and other objects in memory that all processes reach.
    ///
    /// This is a part of [`Worker`]. The prelude brings it in.
    MakeArrays:

    /// Makes an array of `length` values, of which each worker has a block:
    /// [`global_array_as`](Self::global_array_as) with [`Distribution::BLOCK`].
    ///
    /// # Errors
    /// The same at all workers: [`MemoryError::Refused`](crate::memory::MemoryError::Refused) if a
    /// process has no memory left,
    /// [`MemoryError::NoAddress`](crate::memory::MemoryError::NoAddress), [`ObjectError::TooLong`],
    /// [`ObjectError::Unequal`]. Memory that other processes got is freed then. After an error of
    /// the collective the memory is kept until the job ends:
    /// [`Error::PeerLost`](crate::Error::PeerLost) if a process of the job is lost;
    /// [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch) if another worker calls
    /// another collective; [`Error::Deadline`](crate::Error::Deadline) if one does not come in
    /// time; [`Error::InHandler`](crate::Error::InHandler) in a handler. In a job of several
    /// binaries also [`Error::CollectiveOverrun`](crate::Error::CollectiveOverrun).
    fn global_array [T: Pod](&self, length: usize) -> Result<GlobalArray<T>>;

    /// Makes an array of `length` values, zero at first. All workers call this, in the same order
    /// as other collectives and with the same arguments. Each process provides the memory of its
    /// parts.
    ///
    /// *Cost*: that of [`symmetric`](Self::symmetric).
    ///
    /// # Errors
    /// The same at all workers: [`MemoryError::Refused`](crate::memory::MemoryError::Refused) if a
    /// process has no memory left,
    /// [`MemoryError::NoAddress`](crate::memory::MemoryError::NoAddress), [`ObjectError::TooLong`],
    /// [`ObjectError::Unequal`]. Memory that other processes got is freed then. After an error of
    /// the collective the memory is kept until the job ends:
    /// [`Error::PeerLost`](crate::Error::PeerLost) if a process of the job is lost;
    /// [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch) if another worker calls
    /// another collective; [`Error::Deadline`](crate::Error::Deadline) if one does not come in
    /// time; [`Error::InHandler`](crate::Error::InHandler) in a handler. In a job of several
    /// binaries also [`Error::CollectiveOverrun`](crate::Error::CollectiveOverrun).
    fn global_array_as [T: Pod](&self, length: usize, distribution: Distribution) -> Result<GlobalArray<T>>;

    /// Allocates memory for `length` values in every process, zero at first. All workers call this,
    /// in the same order as other collectives and with the same length; one worker of each process
    /// allocates.
    ///
    /// *Cost*: a local allocation, and an [`all_reduce`](Worker::all_reduce). The pieces have the
    /// same place in all processes if these have made the same allocations before. Otherwise every
    /// process learns the places and keeps a table: 8 bytes per process.
    ///
    /// OpenSHMEM's `shmem_calloc`.
    ///
    /// # Errors
    /// The same at all workers: [`MemoryError::Refused`](crate::memory::MemoryError::Refused) if a
    /// process has no memory left,
    /// [`MemoryError::NoAddress`](crate::memory::MemoryError::NoAddress), [`ObjectError::TooLong`],
    /// [`ObjectError::Unequal`]. Memory that other processes got is freed then. After an error of
    /// the collective the memory is kept until the job ends:
    /// [`Error::PeerLost`](crate::Error::PeerLost) if a process of the job is lost;
    /// [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch) if another worker calls
    /// another collective; [`Error::Deadline`](crate::Error::Deadline) if one does not come in
    /// time; [`Error::InHandler`](crate::Error::InHandler) in a handler. In a job of several
    /// binaries also [`Error::CollectiveOverrun`](crate::Error::CollectiveOverrun).
    fn symmetric [T: Pod](&self, length: usize) -> Result<Symmetric<T>>;

    /// Makes a byte space of `slices` slices of `slice_bytes` bytes each, in as many processes from
    /// `first` on. All workers call this, in the same order as other collectives and with the same
    /// arguments.
    ///
    /// *Cost*: that of [`symmetric`](Self::symmetric).
    ///
    /// ACP's `acp_create_ws` and `acp_setparams_ws`.
    ///
    /// # Errors
    /// [`ObjectError::TooManySlices`] if there are too few processes from `first` on (ACP ends the
    /// program then); [`ObjectError::TooLong`] if a slice has 256 GiB or more. The same at all
    /// workers: [`MemoryError::Refused`](crate::memory::MemoryError::Refused) if a process has no
    /// memory left, [`MemoryError::NoAddress`](crate::memory::MemoryError::NoAddress),
    /// [`ObjectError::TooLong`], [`ObjectError::Unequal`]. Memory that other processes got is freed
    /// then. After an error of the collective the memory is kept until the job ends:
    /// [`Error::PeerLost`](crate::Error::PeerLost) if a process of the job is lost;
    /// [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch) if another worker calls
    /// another collective; [`Error::Deadline`](crate::Error::Deadline) if one does not come in
    /// time; [`Error::InHandler`](crate::Error::InHandler) in a handler. In a job of several
    /// binaries also [`Error::CollectiveOverrun`](crate::Error::CollectiveOverrun).
    fn byte_space(&self, first: ProcessId, slices: u32, slice_bytes: u64) -> Result<ByteSpace>;

    /// Allocates room for `length` values in one process, or near one of its workers. The handle is
    /// for the [release](Worker::release); the slice is for all else. Both can be sent to any
    /// worker. The first contents are those of an earlier use.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # use farside::GlobalSlice;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let (memory, weights) = me.allocate_array::<f32>(WorkerId::FIRST, 1000)?;
    /// weights.put(me, 0, &[0.5; 1000])?;
    /// let sum = me.call_return(WorkerId::FIRST, weights, |first, weights: GlobalSlice<f32>| {
    ///     weights.to_vec(first).map_or(0.0, |weights| weights.iter().sum::<f32>())
    /// })?;
    /// assert_eq!(sum.wait()?, 500.0);
    /// me.release(memory)
    /// # }
    /// ```
    ///
    /// An array of which each process has a part is a [`global_array`](Self::global_array). Others
    /// also reach a vector that a program has already, by
    /// [`register`](crate::RegisterMemory::register), but each access from another process is then
    /// a system call or a message.
    ///
    /// *Cost*: that of [`allocate_at`](Worker::allocate_at).
    ///
    /// # Errors
    /// [`MemoryError::Refused`](crate::memory::MemoryError::Refused) with the reason;
    /// [`MemoryError::NoAddress`](crate::memory::MemoryError::NoAddress) if the owner has too many
    /// regions; [`Error::PeerLost`](crate::Error::PeerLost) if the owner is lost;
    /// [`Error::Deadline`](crate::Error::Deadline) if it does not answer in time, after which
    /// memory that arrives late is released;
    /// [`Error::UnknownProcess`](crate::Error::UnknownProcess),
    /// [`Error::UnknownWorker`](crate::Error::UnknownWorker);
    /// [`Error::InHandler`](crate::Error::InHandler) in a handler.
    fn allocate_array [T: Pod](
        &self,
        place: impl Into<Place>,
        length: usize,
    ) -> Result<(RemoteMemory, GlobalSlice<T>)>;
}

//! Addresses for ordinary memory, and what memory of a process is used for.

use bytemuck::Pod;

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::global::{GlobalSlice, LentSegment, ReadOnlySegment, Segment};
use crate::memory::{AllocateOptions, GlobalAddress, NodeReport, Registered};
use crate::runtime::worker::{Worker, extension};

extension! {
    /// Addresses for ordinary memory, and what memory of a process is used for.
    ///
    /// This is a part of [`Worker`]. The prelude brings it in.
    RegisterMemory:

    /// Gives a vector's memory a global address, for other workers to read and write. Their
    /// accesses are slower than to memory that Farside allocates, so register a vector that exists
    /// already. For new memory use [`global_array`](crate::MakeArrays::global_array),
    /// [`symmetric`](crate::MakeArrays::symmetric), or at one worker
    /// [`allocate_at`](Worker::allocate_at) with a [`GlobalSlice`].
    ///
    /// The memory does not move. [`deregister`](Segment::deregister) returns the vector.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let segment = me.register(vec![0.0_f64; 1000])?;
    /// // All workers write into the vector of worker 0, which reads it by `local`.
    /// let first = me.broadcast(WorkerId::FIRST, Some(segment.slice().start()))?;
    /// first.add(me.id().index())?.put(me, 0.5)?;
    /// me.barrier()?;
    /// assert!(me.id().number() > 0 || segment.local().get(0) == 0.5);
    /// let values = segment.deregister(me)?;
    /// # let _ = values;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Such memory is *private*: no other process can map it. Processes of the same machine reach
    /// it by system calls, where the system allows that. These do not wait, so handlers may put and
    /// get there. Otherwise, and for atomic changes, the owner's service thread executes the
    /// access. Over a network, puts and gets of more than a word are libfabric's own; of memory
    /// that is [lent](Self::lend), they are its owner's. A put of any length may be seen in pieces.
    ///
    /// *Cost*: some microseconds, and no message. A process has 8191 slots with addresses, for
    /// memory of all kinds, and a region takes one for each 512 MiB. Slots are used in turn.
    ///
    /// ACP's `acp_register_memory`.
    ///
    /// # Errors
    /// [`MemoryError::NoAddress`](crate::memory::MemoryError::NoAddress) if the process has too
    /// many regions; [`Error::Fabric`] if the memory has no bytes, or libfabric registers no more.
    /// Nothing stays registered then.
    fn register [T: Pod + Send](&self, values: Vec<T>) -> Result<Segment<T>>;

    /// Like [`register`](Self::register), for other workers to read only. This process reads the
    /// values as a slice.
    ///
    /// # Errors
    /// [`MemoryError::NoAddress`](crate::memory::MemoryError::NoAddress) if the process has too
    /// many regions; [`Error::Fabric`] if the memory has no bytes, or libfabric registers no more.
    /// Nothing stays registered then.
    fn register_read_only [T: Pod + Send](&self, values: Vec<T>) -> Result<ReadOnlySegment<T>>;

    /// Gives borrowed memory (a slice of the heap, the stack, anywhere) a global address, for other
    /// workers to read and write while `body` runs.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let mut answers = [0_u64; 100];
    /// me.lend(&mut answers, |answers| {
    ///     let first = me.broadcast(WorkerId::FIRST, Some(answers.slice().start()))?;
    ///     first.add(me.id().index())?.put(me, 42)?;
    ///     me.barrier()
    /// })??;
    /// assert!(me.id().number() > 0 || answers[0] == 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// When `body` has returned or panicked, the address is taken back. This method then waits
    /// until every process that used it has released it or is lost. That takes a message to each
    /// and back, which their service threads handle. The wait has no deadline: the memory cannot be
    /// the caller's again before. A process that is stopped (by a signal or a debugger) delays it
    /// until the process continues, is killed, or the job ends: what it has begun takes effect when
    /// it continues. Where that is not acceptable, [`register`](Self::register) a vector, which can
    /// be taken back [within a time](Segment::deregister_within) or later.
    ///
    /// # Errors
    /// Before `body` runs: [`Error::InHandler`] in a handler;
    /// [`MemoryError::NoAddress`](crate::memory::MemoryError::NoAddress) if the process has too
    /// many regions; [`Error::Fabric`] if the memory has no bytes, or libfabric registers no more.
    /// Nothing stays registered then.
    fn lend [T: Pod, R](&self, values: &mut [T], body: impl FnOnce(&LentSegment<'_, T>) -> R) -> Result<R>;

    /// Like [`lend`](Self::lend), for other workers to read only: `body` gets the address.
    ///
    /// # Errors
    /// Before `body` runs: [`Error::InHandler`] in a handler;
    /// [`MemoryError::NoAddress`](crate::memory::MemoryError::NoAddress) if the process has too
    /// many regions; [`Error::Fabric`] if the memory has no bytes, or libfabric registers no more.
    /// Nothing stays registered then.
    fn lend_read_only [T: Pod, R](&self, values: &[T], body: impl FnOnce(GlobalSlice<T>) -> R) -> Result<R>;

    /// Like [`allocate`](Worker::allocate), on another NUMA node or on pages that the program
    /// chooses. In a simulation all pages are ordinary ones.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// use farside::memory::{AllocateOptions, PageKind};
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let pages = Some(PageKind::Gigantic);
    /// let options = AllocateOptions { pages, ..AllocateOptions::default() };
    /// let table = me.allocate_with(3 << 30, options)?;
    /// # drop(table);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// *Cost*: that of [`allocate`](Worker::allocate). Memory of each pair of options is taken from
    /// the machine by itself, in multiples of the chosen pages, and may be taken 1 GiB at a time,
    /// which takes a second.
    ///
    /// # Errors
    /// [`Error::Fabric`] with `Memory` if the machine has no memory left, or too few of the chosen
    /// pages (`NoPages`); [`MemoryError::Refused`](crate::memory::MemoryError::Refused) with
    /// `NoSuchNode`.
    fn allocate_with(&self, bytes: usize, options: AllocateOptions) -> Result<Registered>;

    /// Returns the global address of a buffer, valid while the buffer exists. When it is dropped,
    /// its memory goes to the next buffer, and other workers are not notified.
    ///
    /// # Errors
    /// [`MemoryError::NoAddress`](crate::memory::MemoryError::NoAddress) if the process has too
    /// many regions.
    fn address_of(&self, buffer: &Registered) -> Result<GlobalAddress>;

    /// Returns the registered memory of this process by NUMA node: its size, how much of it is in
    /// use, and its page sizes. Ring memory is not counted.
    fn memory_report(&self) -> Vec<NodeReport>;
}

//! The parts of the runtime on which the crate `farside-kit` stands. Not for programs.
//!
//! A *room* is a part of a job with state in each process and messages of its own: see [`Room`].
//! It registers itself, in that code of the program reaches its state, and its tag must be unlike
//! those of all other rooms. The methods of a worker that are not for programs are in two traits.
//!
//! Whoever writes into a piece of memory upholds this:
//!
//! - A *piece* is memory of this process that peers write. Its owner frees it only when no process
//!   writes it any more, and never if a process that wrote it is lost.
//! - Memory that a peer can write is reached through atomics or `farside_sys::racy`, and no length
//!   or place in it is believed unchecked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_fabric::transport::{AtomicChange, Operation};
use farside_fabric::{FabricError, ProcessId, RemoteKey, RemoteRegion, WorkerId};

use crate::Wire;
use crate::dist::PerWorker;
use crate::error::{Error, Result};
pub use crate::global::space::{Reach, check_alignment};
pub use crate::invoke::inbox::this_thread_handles;
use crate::invoke::pending::Pending;
pub use crate::invoke::ring::pieces::{allocate_piece, free_piece, mapped_piece};
pub use crate::memory::mover::start_transfer;
use crate::memory::{GlobalAddress, MemoryError, RemoteMemory};
pub use crate::runtime::activity::recorder::Wait;
use crate::runtime::collective::Kind;
pub use crate::runtime::extent::Extent;
pub use crate::runtime::home::Home;
pub use crate::runtime::observer::{Touch, end_accesses_here};
pub use crate::runtime::process::Process;
pub use crate::runtime::room::{Room, Seed, Served};
pub use crate::runtime::worker::PutOff;
pub use crate::runtime::worker::Sealed;
use crate::runtime::worker::Worker;

/// The methods of a [`Worker`] that are not for programs.
pub trait WorkerParts: Sealed {
    /// Returns the worker's process.
    #[inline(always)]
    fn process_handle(&self) -> &Arc<Process> {
        self.worker().process_handle()
    }

    /// Returns the state of a room in this worker.
    #[inline(always)]
    fn room<R: Room>(&self) -> &R::Local {
        self.worker().room::<R>()
    }

    /// Makes progress until `look` finds something, in a wait that says more.
    ///
    /// # Errors
    /// [`Error::Deadline`]; [`Error::InHandler`]; the errors of the job.
    #[inline(always)]
    fn wait_at<T>(&self, wait: Wait, time: Duration, look: impl FnMut(&Worker) -> Option<Result<T>>) -> Result<T> {
        self.worker().wait_at(wait, time, look)
    }

    /// Makes progress until `look` finds something in memory that other processes change.
    ///
    /// # Errors
    /// [`Error::Deadline`]; [`Error::InHandler`]; the errors of the job.
    #[track_caller]
    fn watch_until<T>(
        &self,
        doing: &'static str,
        time: Duration,
        look: impl FnMut(&Worker) -> Option<Result<T>>,
    ) -> Result<T> {
        self.worker().watch_until(doing, time, look)
    }

    /// Begins a collective of task pools with tasks of type `T`.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`], and the errors of a barrier.
    #[inline(always)]
    fn meet_for_tasks<T: 'static>(&self) -> Result<()> {
        self.worker().meet::<T>(Kind::Tasks)
    }

    /// Tries an action at each progress until it is done.
    #[inline(always)]
    fn put_off(&self, put_off: PutOff) {
        self.worker().put_off(put_off);
    }

    /// Calls a function of this worker when a process is lost.
    #[inline(always)]
    fn when_lost(&self, hook: impl Fn(&Worker, ProcessId) + 'static) {
        self.worker().when_lost(hook);
    }

    /// Returns the error of a worker that does not exist.
    #[inline(always)]
    fn unknown(&self, worker: WorkerId) -> Error {
        self.worker().unknown(worker)
    }

    /// Returns the error of a lost process, if any is lost.
    #[inline(always)]
    fn any_lost(&self) -> Option<Error> {
        self.worker().any_lost()
    }

    /// Returns whether this worker runs a called function.
    #[inline(always)]
    fn is_in_handler(&self) -> bool {
        self.worker().is_in_handler()
    }

    /// # Errors
    /// [`Error::InHandler`] if this worker runs a called function.
    #[inline(always)]
    fn not_in_handler(&self, what: &'static str) -> Result<()> {
        self.worker().not_in_handler(what)
    }

    /// Returns the lost processes whose last calls have run here.
    #[inline(always)]
    fn outlived_processes(&self) -> Vec<ProcessId> {
        self.worker().outlived_processes()
    }

    /// Returns whether a reader looks at the activity of this worker.
    #[inline(always)]
    fn is_noticing(&self) -> bool {
        self.worker().recorder().is_noticing()
    }

    /// Notes a message to a worker. Called while [`is_noticing`](Self::is_noticing).
    #[inline(always)]
    fn note_message(&self, to: WorkerId, bytes: usize) {
        self.worker().note_message(to, bytes);
    }
}

/// The methods of a [`Worker`] on global memory that are not for programs. Unlike those for
/// programs, they report no access to the observer of accesses, except where they take a [`Touch`].
pub trait SpaceParts: Sealed {
    /// Returns how a range is reached, for several accesses inside it. A mapped range stays mapped
    /// until this worker attaches or drops a region.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address); the errors of attaching it.
    #[inline(always)]
    fn reach(&self, address: GlobalAddress, bytes: usize) -> Result<Reach> {
        self.worker().reach(address, bytes)
    }

    /// Runs `access` on the region that a range lies in, with the range's offset in it.
    ///
    /// # Errors
    /// The errors of [`reach`](Self::reach), and of `access`.
    #[inline(always)]
    fn on_region<T>(
        &self,
        address: GlobalAddress,
        bytes: usize,
        touch: Option<Touch>,
        access: impl FnOnce(&RemoteRegion, u64, Instant) -> Result<T, FabricError>,
    ) -> Result<T> {
        self.worker().on_region(address, bytes, touch, access)
    }

    /// Converts the error of an access to an address that was looked up.
    #[inline(always)]
    fn access_failed(&self, address: GlobalAddress, error: FabricError) -> Error {
        self.worker().access_failed(address, error)
    }

    /// Returns whether accesses are observed.
    #[inline(always)]
    fn is_observed(&self) -> bool {
        self.worker().process_handle().accesses.is_observed()
    }

    /// Reports an access to the observer of accesses.
    ///
    /// # Errors
    /// The errors of [`reach`](Self::reach); a conflict with another access.
    #[inline(always)]
    fn touch(&self, address: GlobalAddress, bytes: usize, touch: Touch) -> Result<()> {
        self.worker().touch(address, bytes, touch)
    }

    /// Notes a put. Called while [`is_noticing`](WorkerParts::is_noticing).
    #[inline(always)]
    fn note_put_at(&self, address: GlobalAddress, bytes: usize, touch: Touch) {
        self.worker().note_put_at(address, bytes, touch);
    }

    /// Runs `work` with a function that changes words of this process, each by its index from
    /// `first` on.
    ///
    /// # Errors
    /// The errors of [`reach`](Self::reach), and of `work`.
    ///
    /// # Safety
    /// `work` must not make this worker attach or drop a region: it must not use the worker.
    #[inline(always)]
    unsafe fn with_own_words<R>(
        &self,
        first: GlobalAddress,
        count: usize,
        work: impl FnOnce(&dyn Fn(usize, AtomicChange<u64>) -> Result<u64>) -> Result<R>,
    ) -> Result<R> {
        // SAFETY: by the contract, which is the same.
        unsafe { self.worker().with_own_words(first, count, work) }
    }

    /// Returns whether two ranges share a byte.
    fn overlap(&self, one: (GlobalAddress, usize), other: (GlobalAddress, usize)) -> bool {
        one.0.overlaps(one.1 as u64, other.0, other.1 as u64)
    }
}

/// The parts of a handle of remote memory.
pub trait MemoryParts {
    /// Returns the region in which the memory lies.
    fn region_key(&self) -> RemoteKey;

    /// Returns the offset of the memory in its region.
    fn start(&self) -> u64;

    /// Returns a number that no other memory of the job has had at this place.
    fn serial(&self) -> u64;

    /// Returns the global address of a byte of the region, `inside` bytes after its first.
    ///
    /// # Errors
    /// [`MemoryError::NoAddress`].
    fn address_in_region(&self, inside: u64) -> Result<GlobalAddress>;

    /// Reads memory that others write at the same time: its contents tell whether they are
    /// consistent. The access checker does not see the read.
    ///
    /// # Errors
    /// The errors of [`RemoteMemory::get`].
    fn look(&self, me: &Worker, offset: u64, data: &mut [u8]) -> Result<()>;

    /// Executes an operation and then calls `go_on`: at once where the memory is mapped, otherwise
    /// on the transfer thread. If the operation fails, `go_on` is not called.
    fn change_soon(
        &self,
        process: &Arc<Process>,
        operation: Operation,
        go_on: impl FnOnce(&Arc<Process>) + Send + 'static,
    );
}

impl MemoryParts for RemoteMemory {
    fn region_key(&self) -> RemoteKey {
        self.key
    }

    #[inline(always)]
    fn start(&self) -> u64 {
        self.offset
    }

    fn serial(&self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.id)
    }

    fn address_in_region(&self, inside: u64) -> Result<GlobalAddress> {
        GlobalAddress::in_region(self.key, inside).ok_or_else(|| MemoryError::no_address(self.key).into())
    }

    fn look(&self, me: &Worker, offset: u64, data: &mut [u8]) -> Result<()> {
        Self::look(self, me, offset, data)
    }

    fn change_soon(
        &self,
        process: &Arc<Process>,
        operation: Operation,
        go_on: impl FnOnce(&Arc<Process>) + Send + 'static,
    ) {
        Self::change_soon(self, process, operation, go_on);
    }
}

/// Returns the number of these values, which no others of the job have.
pub fn number_of<T: 'static>(values: PerWorker<T>) -> u32 {
    values.name()
}

/// Waits for the result of a call, as [`Pending::wait_for`] does, in a wait that says more.
///
/// # Errors
/// The errors of [`Pending::wait`].
pub fn wait_for_result<R: Wire>(pending: &mut Pending<'_, R>, wait: Wait, time: Duration) -> Result<R> {
    pending.wait_at(wait, time)
}

impl WorkerParts for Worker {}

impl SpaceParts for Worker {}

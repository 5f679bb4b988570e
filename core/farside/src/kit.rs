//! The parts of the runtime on which the crate `farside-kit` stands. Not for programs.
//!
//! A *room* is a part of a job with state in each process and messages of its own: see [`Room`].
//! It registers itself, in that code of the program reaches its state, and its tag must be unlike
//! those of all other rooms. The methods of a worker and a process that are not for programs are in
//! two traits, which only forward.
//!
//! Whoever writes into a piece of memory upholds this:
//!
//! - A *piece* is memory of this process that peers write. Its owner frees it only when no process
//!   writes it any more, and never if a process that wrote it is lost.
//! - Memory that a peer can write is reached through atomics or `farside_sys::racy`, and no length
//!   or place in it is believed unchecked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_fabric::clock::Clock;
use farside_fabric::transport::{AtomicChange, Operation};
use farside_fabric::wait::WaitPolicy;
use farside_fabric::{FabricError, ProcessId, RemoteKey, RemoteRegion, Transport, WorkerId};
use farside_launch::kill_point::KillPoint;
use farside_launch::layout::Shape;
use farside_launch::settings::Settings;
use farside_sys::shm::SharedMemory;

use crate::Wire;
use crate::dist::PerWorker;
use crate::error::{Error, Result};
pub use crate::global::space::{Reach, check_alignment};
pub use crate::invoke::inbox::this_thread_handles;
use crate::invoke::pending::Pending;
use crate::memory::mover::Then;
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
    fn process_handle(&self) -> &Arc<Process>;

    /// Returns the state of a room in this worker.
    fn room<R: Room>(&self) -> &R::Local;

    /// Makes progress until `look` finds something, in a wait that says more.
    ///
    /// # Errors
    /// [`Error::Deadline`]; [`Error::InHandler`]; the errors of the job.
    fn wait_at<T>(&self, wait: Wait, time: Duration, look: impl FnMut(&Worker) -> Option<Result<T>>) -> Result<T>;

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
    ) -> Result<T>;

    /// Begins a collective of task pools with tasks of type `T`.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`], and the errors of a barrier.
    fn meet_for_tasks<T: 'static>(&self) -> Result<()>;

    /// Tries an action at each progress until it is done.
    fn put_off(&self, put_off: PutOff);

    /// Calls a function of this worker when a process is lost.
    fn when_lost(&self, hook: impl Fn(&Worker, ProcessId) + 'static);

    /// Returns the error of a worker that does not exist.
    fn unknown(&self, worker: WorkerId) -> Error;

    /// Returns the error of a lost process, if any is lost.
    fn any_lost(&self) -> Option<Error>;

    /// Returns whether this worker runs a called function.
    fn is_in_handler(&self) -> bool;

    /// # Errors
    /// [`Error::InHandler`] if this worker runs a called function.
    fn not_in_handler(&self, what: &'static str) -> Result<()>;

    /// Returns the lost processes whose last calls have run here.
    fn outlived_processes(&self) -> Vec<ProcessId>;

    /// Returns whether a reader looks at the activity of this worker.
    fn is_noticing(&self) -> bool;

    /// Notes a message to a worker. Called while [`is_noticing`](Self::is_noticing).
    fn note_message(&self, to: WorkerId, bytes: usize);
}

/// The methods of a [`Worker`] on global memory that are not for programs. Unlike those for
/// programs, they report no access to the observer of accesses, except where they take a [`Touch`].
pub trait SpaceParts: Sealed {
    /// Returns how a range is reached, for several accesses inside it. A mapped range stays mapped
    /// until this worker attaches or drops a region.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address); the errors of attaching it.
    fn reach(&self, address: GlobalAddress, bytes: usize) -> Result<Reach>;

    /// Runs `access` on the region that a range lies in, with the range's offset in it.
    ///
    /// # Errors
    /// The errors of [`reach`](Self::reach), and of `access`.
    fn on_region<T>(
        &self,
        address: GlobalAddress,
        bytes: usize,
        touch: Option<Touch>,
        access: impl FnOnce(&RemoteRegion, u64, Instant) -> Result<T, FabricError>,
    ) -> Result<T>;

    /// Converts the error of an access to an address that was looked up.
    fn access_failed(&self, address: GlobalAddress, error: FabricError) -> Error;

    /// Returns whether accesses are observed.
    fn is_observed(&self) -> bool;

    /// Reports an access to the observer of accesses.
    ///
    /// # Errors
    /// The errors of [`reach`](Self::reach); a conflict with another access.
    fn touch(&self, address: GlobalAddress, bytes: usize, touch: Touch) -> Result<()>;

    /// Notes a put. Called while [`is_noticing`](WorkerParts::is_noticing).
    fn note_put_at(&self, address: GlobalAddress, bytes: usize, touch: Touch);

    /// Runs `work` with a function that changes words of this process, each by its index from
    /// `first` on.
    ///
    /// # Errors
    /// The errors of [`reach`](Self::reach), and of `work`.
    ///
    /// # Safety
    /// `work` must not make this worker attach or drop a region: it must not use the worker.
    unsafe fn with_own_words<R>(
        &self,
        first: GlobalAddress,
        count: usize,
        work: impl FnOnce(&dyn Fn(usize, AtomicChange<u64>) -> Result<u64>) -> Result<R>,
    ) -> Result<R>;

    /// Returns whether two ranges share a byte.
    fn overlap(&self, one: (GlobalAddress, usize), other: (GlobalAddress, usize)) -> bool {
        one.0.overlaps(one.1 as u64, other.0, other.1 as u64)
    }
}

/// The methods of a [`Process`].
pub trait ProcessParts {
    /// Returns the state of a room in this process.
    fn room<R: Room>(&self) -> &R;

    /// Sends a message to the same room of a peer, now or when the transport has room for it.
    ///
    /// # Errors
    /// [`Error::PeerLost`], or the transport's error.
    fn send<R: Room>(&self, to: ProcessId, message: &R::Message) -> Result<()>;

    /// Returns the number of the process.
    fn id(&self) -> ProcessId;

    /// Returns the process of a callable thread, and the thread's index there.
    fn place_of(&self, worker: WorkerId) -> Option<(ProcessId, usize)>;

    /// Returns whether a process runs the program of this one.
    fn is_alike(&self, process: ProcessId) -> bool;

    /// Returns the error of a process, if it is lost.
    fn lost(&self, process: ProcessId) -> Option<Error>;

    /// Returns whether a process is lost.
    fn is_lost(&self, process: ProcessId) -> bool;

    /// Converts an error of the transport.
    fn explain(&self, error: FabricError) -> Error;

    /// Orders the accesses of this thread before whatever it is about to publish.
    fn end_accesses(&self);

    /// Passes a point where a test may kill the process.
    fn kill_point(&self, point: KillPoint);

    /// Passes such a point on a path where a branch would cost.
    fn hot_kill_point(&self, point: KillPoint);

    /// Returns the settings of the job.
    fn settings(&self) -> &Settings;

    /// Returns the shape of the job.
    fn shape(&self) -> Shape;

    /// Returns the clock of the process.
    fn clock(&self) -> &Clock;

    /// Returns how its threads wait.
    fn wait_policy(&self) -> WaitPolicy;

    /// Returns the transport of the process.
    fn transport(&self) -> &Arc<dyn Transport>;

    /// Returns the starter memory of the process.
    fn home(&self) -> &Home;

    /// Returns the starter memory of a peer that is connected and mapped.
    fn home_of(&self, process: ProcessId) -> Option<&Home>;

    /// Returns whether the fence of another process also reaches this one.
    fn is_reached_by_fences(&self) -> bool;

    /// Returns the starter memory of a peer, after connecting if necessary.
    ///
    /// # Errors
    /// [`Error::PeerLost`], or the transport's error.
    fn starter_region(&self, process: ProcessId, deadline: Instant) -> Result<RemoteRegion>;

    /// Allocates a piece of memory.
    ///
    /// # Errors
    /// Any error of the transport while a region is registered.
    fn allocate_piece(&self, bytes: usize) -> Result<Extent>;

    /// Frees a piece that no process can write any more.
    fn free_piece(&self, piece: Extent);

    /// Sends the memory of a piece to a peer, ahead of the message that names the piece.
    fn offer(&self, to: ProcessId, piece: Extent);

    /// Returns the memory in which a piece lies, if it is mapped here.
    fn mapped_piece(&self, piece: Extent) -> Option<Arc<SharedMemory>>;

    /// Executes an operation on memory on the transfer thread, and calls `then` there.
    fn start_transfer(self: &Arc<Self>, memory: Extent, operation: Operation, then: Then);
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

/// Implements methods by the type's own methods of the same names.
macro_rules! forward {
    ($type:ident: $(
        fn $name:ident $([$($generics:tt)*])? (&self $(, $argument:ident: $kind:ty)* $(,)?) $(-> $result:ty)?;
    )*) => {
        $(
            #[inline(always)]
            fn $name $(<$($generics)*>)? (&self $(, $argument: $kind)*) $(-> $result)? {
                $type::$name(self $(, $argument)*)
            }
        )*
    };
}

impl WorkerParts for Worker {
    forward! { Worker:
        fn process_handle(&self) -> &Arc<Process>;
        fn wait_at[T](
            &self,
            wait: Wait,
            time: Duration,
            look: impl FnMut(&Worker) -> Option<Result<T>>,
        ) -> Result<T>;
        fn watch_until[T](
            &self,
            doing: &'static str,
            time: Duration,
            look: impl FnMut(&Worker) -> Option<Result<T>>,
        ) -> Result<T>;
        fn put_off(&self, put_off: PutOff);
        fn when_lost(&self, hook: impl Fn(&Worker, ProcessId) + 'static);
        fn unknown(&self, worker: WorkerId) -> Error;
        fn any_lost(&self) -> Option<Error>;
        fn is_in_handler(&self) -> bool;
        fn not_in_handler(&self, what: &'static str) -> Result<()>;
        fn outlived_processes(&self) -> Vec<ProcessId>;
        fn note_message(&self, to: WorkerId, bytes: usize);
    }

    #[inline(always)]
    fn room<R: Room>(&self) -> &R::Local {
        Worker::room::<R>(self)
    }

    fn meet_for_tasks<T: 'static>(&self) -> Result<()> {
        self.meet::<T>(Kind::Tasks)
    }

    #[inline(always)]
    fn is_noticing(&self) -> bool {
        self.recorder().is_noticing()
    }
}

impl SpaceParts for Worker {
    forward! { Worker:
        fn reach(&self, address: GlobalAddress, bytes: usize) -> Result<Reach>;
        fn on_region[T](
            &self,
            address: GlobalAddress,
            bytes: usize,
            touch: Option<Touch>,
            access: impl FnOnce(&RemoteRegion, u64, Instant) -> Result<T, FabricError>,
        ) -> Result<T>;
        fn access_failed(&self, address: GlobalAddress, error: FabricError) -> Error;
        fn touch(&self, address: GlobalAddress, bytes: usize, touch: Touch) -> Result<()>;
        fn note_put_at(&self, address: GlobalAddress, bytes: usize, touch: Touch);
    }

    #[inline(always)]
    unsafe fn with_own_words<R>(
        &self,
        first: GlobalAddress,
        count: usize,
        work: impl FnOnce(&dyn Fn(usize, AtomicChange<u64>) -> Result<u64>) -> Result<R>,
    ) -> Result<R> {
        // SAFETY: by the contract, which is the same.
        unsafe { Worker::with_own_words(self, first, count, work) }
    }

    fn is_observed(&self) -> bool {
        self.process_handle().is_observed()
    }
}

impl ProcessParts for Process {
    forward! { Process:
        fn id(&self) -> ProcessId;
        fn place_of(&self, worker: WorkerId) -> Option<(ProcessId, usize)>;
        fn is_alike(&self, process: ProcessId) -> bool;
        fn lost(&self, process: ProcessId) -> Option<Error>;
        fn is_lost(&self, process: ProcessId) -> bool;
        fn explain(&self, error: FabricError) -> Error;
        fn end_accesses(&self);
        fn kill_point(&self, point: KillPoint);
        fn hot_kill_point(&self, point: KillPoint);
        fn settings(&self) -> &Settings;
        fn shape(&self) -> Shape;
        fn clock(&self) -> &Clock;
        fn wait_policy(&self) -> WaitPolicy;
        fn transport(&self) -> &Arc<dyn Transport>;
        fn home(&self) -> &Home;
        fn home_of(&self, process: ProcessId) -> Option<&Home>;
        fn is_reached_by_fences(&self) -> bool;
        fn starter_region(&self, process: ProcessId, deadline: Instant) -> Result<RemoteRegion>;
        fn allocate_piece(&self, bytes: usize) -> Result<Extent>;
        fn free_piece(&self, piece: Extent);
        fn offer(&self, to: ProcessId, piece: Extent);
        fn mapped_piece(&self, piece: Extent) -> Option<Arc<SharedMemory>>;
    }

    #[inline(always)]
    fn room<R: Room>(&self) -> &R {
        Process::room(self)
    }

    fn send<R: Room>(&self, to: ProcessId, message: &R::Message) -> Result<()> {
        Process::send::<R>(self, to, message)
    }

    fn start_transfer(self: &Arc<Self>, memory: Extent, operation: Operation, then: Then) {
        Process::start_transfer(self, memory, operation, then);
    }
}

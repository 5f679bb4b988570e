//! Registered memory: of this process for any thread, and of any process for any worker.
//!
//! [`Worker::allocate`] returns buffers of this process, which return to it when they are dropped.
//!
//! For memory that others access, a worker asks a process: for memory anywhere in it, on one of its
//! NUMA nodes, or near one of its workers. It receives a [`RemoteMemory`], a plain value that can
//! be sent anywhere in the job. Any worker that has it can put, get, and change words atomically.
//! The service thread of the owner answers such requests, so no worker there takes part.

pub(crate) mod address;
mod deferred;
mod error;
mod grants;
pub(crate) mod message;
pub(crate) mod mover;
mod node_memories;
mod numa;
pub(crate) mod requests;
pub(crate) mod segments;
mod shared;

use std::panic::Location;
use std::time::Instant;

use farside_fabric::transport::AtomicChange;
use farside_fabric::{FabricError, ProcessId, RemoteKey, RemoteRegion, WorkerId};

pub use self::address::GlobalAddress;
pub use self::error::MemoryError;
pub(crate) use self::numa::Nodes;
pub(crate) use self::segments::publish;
pub(crate) use self::shared::ProcessMemory;
use crate::Wire;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
pub(crate) use crate::runtime::extent::Extent;
use crate::runtime::observer::{AccessKind, Touch};
use crate::runtime::worker::Worker;
pub use farside_fabric::memory::{NodeReport, Registered, SuperchunkReport};
pub use farside_sys::shm::{PageKind, Pages};
pub use farside_sys::topology::NumaNodeId;

/// The bytes before the memory of a handle. The first eight hold the stamp, which tells whether the
/// memory is still the handle's. A whole unit of the heap, so that the memory begins on a cache
/// line.
pub(crate) const STAMP_BYTES: u64 = 64;

/// Memory of this process or another one of the job: 56 bytes that can be sent to any worker.
///
/// [`Worker::allocate_at`] makes it, any worker that has the handle uses it, and one worker gives
/// it back with [`Worker::release`], once. When the process that asked for it dies, its owner takes
/// it back.
///
/// ```no_run
/// # use farside::prelude::*;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let there = me.process_of(me.neighbor(1));
/// let memory = me.allocate_at(there, 4096)?;
/// memory.put(me, 0, b"across")?;
/// // The function reads what was put, from memory of its own process.
/// let length = me.call_return(me.neighbor(1), memory, |there, memory| {
///     let mut bytes = [0; 6];
///     memory.get(there, 0, &mut bytes).expect("it is ours, and in use");
///     bytes.len()
/// })?;
/// assert_eq!(length.wait()?, 6);
/// me.release(memory)
/// # }
/// ```
///
/// # Stale handles
///
/// The owner records which memory is in use: [`release`](Worker::release) of memory that was
/// released before, or never given out, is always an error. A put or a get does not ask the owner,
/// so it can detect less:
///
/// - Where the memory is mapped (on one machine, and in this process), every access first reads a
///   word before the memory, which the owner changes when the memory is released. An access that
///   begins after that is [`MemoryError::Released`], unless
///   the place has been given out again and holds the same word by chance. An access that is under
///   way at the time is not detected.
/// - Where it is not mapped (libfabric, the simulator), a process knows what its own workers
///   released, and which processes are lost. It learns what others released only if it
///   [asks](Self::check), which is a round trip. Until then a put changes the memory of whichever
///   handle has the place now.
///
/// So decide which worker releases the memory, and make sure that all others are done before. A
/// stale handle never reaches memory other than what the processes of the job ask of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
#[wire(word = "farside::RemoteMemory")]
pub struct RemoteMemory {
    /// The region that the memory lies in.
    pub(crate) key: RemoteKey,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// The number of the grant at its owner, and how often that number was used before.
    pub(crate) id: u32,
    pub(crate) generation: u32,
}

impl RemoteMemory {
    /// Returns the owner of the memory.
    pub fn process(&self) -> ProcessId {
        self.key.process
    }

    /// Returns its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the global address of its first byte, valid until it is [released](Worker::release).
    /// Accesses by the address do not check the handle's stamp. A use after the release is detected
    /// only by the handle, or in a job whose accesses are [checked](crate::Job::check_accesses).
    ///
    /// # Errors
    /// [`MemoryError::NoAddress`] if the owner has too many regions.
    pub fn address(&self) -> Result<GlobalAddress> {
        GlobalAddress::in_region(self.key, self.offset).ok_or_else(|| MemoryError::no_address(self.key).into())
    }

    /// Returns the word that stands before the memory while it is this handle's. Never 0, which
    /// stands before memory that is no grant.
    fn stamp(&self) -> u64 {
        let name = u64::from(self.generation) << 32 | u64::from(self.id);
        // A bijection, whose results are unlike the numbers that programs keep in their memory.
        // Only a forged handle has the one name that becomes 0.
        match name.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) {
            0 => u64::MAX,
            stamp => stamp,
        }
    }

    /// Writes `data` at `offset`.
    ///
    /// *Completion*: when it returns, `data` may be used again, and the bytes are visible to any
    /// worker that learns of the put.
    ///
    /// *Cost*: where the memory is mapped, a load of the stamp and a copy; otherwise a copy and a
    /// round trip. The first use of a region in this process attaches it, which the owner's service
    /// thread answers.
    ///
    /// # Errors
    /// [`Error::Fabric`] with `OutOfRange`, if the owner does not answer in time, or if the
    /// transport fails; [`Error::PeerLost`] if the owner is lost; [`MemoryError::Released`] if the
    /// release is detected (see [stale handles](Self#stale-handles)); [`Error::InHandler`] in a
    /// handler, if the memory is not mapped.
    #[track_caller]
    pub fn put(&self, me: &Worker, offset: u64, data: &[u8]) -> Result<()> {
        self.put_from(me, offset, data, Location::caller())
    }

    /// Like [`put`](Self::put), for an access at the given place in the program.
    pub(crate) fn put_from(&self, me: &Worker, offset: u64, data: &[u8], site: Caller) -> Result<()> {
        let inside = self.inside(offset, data.len())?;
        let touched = (inside, data.len(), Touch { kind: AccessKind::Write, site });
        self.on_region(me, Some(touched), |region, deadline| region.put(inside, data, deadline))
    }

    /// Reads bytes at `offset` until `data` is full.
    ///
    /// *Cost*: as for [`put`](Self::put).
    ///
    /// # Errors
    /// [`Error::Fabric`] with `OutOfRange`, if the owner does not answer in time, or if the
    /// transport fails; [`Error::PeerLost`] if the owner is lost; [`MemoryError::Released`] if the
    /// release is detected (see [stale handles](Self#stale-handles)); [`Error::InHandler`] in a
    /// handler, if the memory is not mapped. The contents of `data` are unspecified then.
    #[track_caller]
    pub fn get(&self, me: &Worker, offset: u64, data: &mut [u8]) -> Result<()> {
        self.get_from(me, offset, data, Location::caller())
    }

    /// Like [`get`](Self::get), for an access at the given place in the program.
    pub(crate) fn get_from(&self, me: &Worker, offset: u64, data: &mut [u8], site: Caller) -> Result<()> {
        let inside = self.inside(offset, data.len())?;
        let touched = (inside, data.len(), Touch { kind: AccessKind::Read, site });
        self.on_region(me, Some(touched), |region, deadline| region.get(inside, data, deadline))
    }

    /// Like [`get`](Self::get), not checked: for memory that others write, whose contents tell
    /// whether a read is consistent.
    pub(crate) fn look(&self, me: &Worker, offset: u64, data: &mut [u8]) -> Result<()> {
        let inside = self.inside(offset, data.len())?;
        self.on_region(me, None, |region, deadline| region.get(inside, data, deadline))
    }

    /// Changes the 64-bit word at `offset`, a multiple of 8, and returns what it held.
    ///
    /// *Cost*: a read-modify-write where the memory is mapped; otherwise a round trip.
    ///
    /// # Errors
    /// [`Error::Fabric`] with `OutOfRange` or `Misaligned`, if the owner does not answer in time,
    /// or if the transport fails; [`Error::PeerLost`] if the owner is lost;
    /// [`MemoryError::Released`] if the release is detected (see
    /// [stale handles](Self#stale-handles)); [`Error::InHandler`] in a handler, if the memory is
    /// not mapped.
    #[track_caller]
    pub fn atomic64(&self, me: &Worker, offset: u64, change: AtomicChange<u64>) -> Result<u64> {
        self.atomic64_from(me, offset, change, Location::caller())
    }

    /// Like [`atomic64`](Self::atomic64), for an access at the given place in the program.
    pub(crate) fn atomic64_from(
        &self,
        me: &Worker,
        offset: u64,
        change: AtomicChange<u64>,
        site: Caller,
    ) -> Result<u64> {
        let inside = self.inside(offset, 8)?;
        let touched = (inside, 8, Touch { kind: AccessKind::of(&change), site });
        self.on_region(me, Some(touched), |region, deadline| region.atomic64(inside, change, deadline))
    }

    /// Changes the 32-bit word at `offset`, a multiple of 4, and returns what it held.
    ///
    /// # Errors
    /// [`Error::Fabric`] with `OutOfRange` or `Misaligned`, if the owner does not answer in time,
    /// or if the transport fails; [`Error::PeerLost`] if the owner is lost;
    /// [`MemoryError::Released`] if the release is detected (see
    /// [stale handles](Self#stale-handles)); [`Error::InHandler`] in a handler, if the memory is
    /// not mapped.
    #[track_caller]
    pub fn atomic32(&self, me: &Worker, offset: u64, change: AtomicChange<u32>) -> Result<u32> {
        let inside = self.inside(offset, 4)?;
        let touched = (inside, 4, Touch::here(AccessKind::of(&change)));
        self.on_region(me, Some(touched), |region, deadline| region.atomic32(inside, change, deadline))
    }

    /// Returns the region that the memory lies in, attached here, and the memory's offset in it.
    /// For queues and transmitters (the crate `farside-transmit`), which do not check whether the
    /// memory was released since.
    ///
    /// *Cost*: as for [`put`](Self::put), without the bytes.
    ///
    /// # Errors
    /// [`Error::Fabric`] if the owner does not answer in time, or if the transport fails;
    /// [`Error::PeerLost`] if the owner is lost; [`MemoryError::Released`] if the release is
    /// detected (see [stale handles](Self#stale-handles)); [`Error::InHandler`] in a handler, if
    /// the memory is not mapped.
    pub fn region(&self, me: &Worker) -> Result<(RemoteRegion, u64)> {
        self.on_region(me, None, |region, _| Ok((region.clone(), self.offset)))
    }

    /// Checks at the owner whether the memory is still this handle's. Another worker may release it
    /// right after.
    ///
    /// *Cost*: a round trip where the memory is not mapped.
    ///
    /// # Errors
    /// [`MemoryError::Released`] if the memory is no longer this handle's; [`MemoryError::Foreign`]
    /// if it never was; [`Error::Fabric`] if the owner does not answer in time, or if the transport
    /// fails; [`Error::PeerLost`] if the owner is lost; [`Error::InHandler`] in a handler, if the
    /// memory is not mapped.
    pub fn check(&self, me: &Worker) -> Result<()> {
        let stamp_at = self.stamp_at()?;
        let stamp =
            self.on_region(me, None, |region, deadline| region.atomic64(stamp_at, AtomicChange::Load, deadline))?;
        if stamp == self.stamp() { Ok(()) } else { Err(MemoryError::Released { memory: *self }.into()) }
    }

    /// Refuses a handle of memory that the library keeps for itself, which is no grant. A handle
    /// that was decoded may be made of any bytes.
    fn check_kind(&self) -> Result<()> {
        if self.key.is_internal() { Err(MemoryError::Foreign { memory: *self }.into()) } else { Ok(()) }
    }

    fn stamp_at(&self) -> Result<u64> {
        self.offset.checked_sub(STAMP_BYTES).ok_or_else(|| MemoryError::Foreign { memory: *self }.into())
    }

    /// Returns the offset in the region of an access, if it is inside this memory.
    pub(crate) fn inside(&self, offset: u64, bytes: usize) -> Result<u64, FabricError> {
        let end = offset.checked_add(bytes as u64).filter(|end| *end <= self.bytes);
        match self.offset.checked_add(offset) {
            Some(inside) if end.is_some() => Ok(inside),
            _ => Err(FabricError::OutOfRange { offset, bytes, region_bytes: self.bytes }),
        }
    }

    /// Runs `access` on the region that the memory lies in, unless the handle is known to be stale.
    /// If accesses are checked, `touched` says which bytes of the region it accesses.
    fn on_region<T>(
        &self,
        me: &Worker,
        touched: Option<(u64, usize, Touch)>,
        access: impl FnOnce(&RemoteRegion, Instant) -> Result<T, FabricError>,
    ) -> Result<T> {
        let process = me.process_handle();
        if let Some(lost) = process.losses.lost(self.key.process) {
            return Err(lost);
        }
        let mut regions = me.regions().borrow_mut();
        let since = regions.since();
        let region =
            regions.find_or_add(self.key, || ProcessMemory::of(process).region_of(process, self, me.patience()));
        let region = region.map_err(|error| me.with_its_root(error))?;
        let deadline = if region.mapped().is_some() {
            // A mapped region waits for nothing, so the deadline may be any time.
            self.check_stamp(region, since)?;
            since
        } else {
            me.not_in_handler("an access to memory that is not mapped here")?;
            ProcessMemory::of(process).check_known(self)?;
            me.now() + me.default_deadline()
        };
        if let Some((inside, bytes, touch)) = touched {
            me.check_access(self.key, inside, bytes, touch)?;
        }
        access(region, deadline).map_err(|error| {
            // The observer has noted the access, which was not made, or may not have been.
            me.end_accesses();
            me.with_its_root(process.explain(error))
        })
    }

    /// Checks the stamp: whether the owner has taken the memory back.
    fn check_stamp(&self, region: &RemoteRegion, now: Instant) -> Result<()> {
        let stamp = region.atomic64(self.stamp_at()?, AtomicChange::Load, now)?;
        if stamp == self.stamp() { Ok(()) } else { Err(MemoryError::Released { memory: *self }.into()) }
    }
}

/// A place in the program.
type Caller = &'static Location<'static>;

/// Options of [`Worker::allocate_with`](crate::RegisterMemory::allocate_with).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AllocateOptions {
    /// The NUMA node of this machine; `None` is the one that the worker is bound to. If the node is
    /// full, the memory comes from another one.
    pub node: Option<NumaNodeId>,
    /// The pages. Of [`PageKind::Huge`] and [`PageKind::Gigantic`], all of the memory consists, or
    /// the call fails. Other kinds are the largest to try. With `None`, that is any kind.
    pub pages: Option<PageKind>,
}

/// The place for an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a process, wherever its machine places it.
    In(ProcessId),
    /// In a process, on a NUMA node of its machine. If the node is full, on another one.
    OnNode(ProcessId, NumaNodeId),
    /// In a worker's process, on the NUMA node that the worker is bound to
    /// ([`Job::bind`](crate::Job::bind)), or wherever the machine places it if the worker is bound
    /// to none.
    Near(WorkerId),
}

impl From<ProcessId> for Place {
    fn from(process: ProcessId) -> Self {
        Self::In(process)
    }
}

impl From<WorkerId> for Place {
    fn from(worker: WorkerId) -> Self {
        Self::Near(worker)
    }
}

/// Why an owner of memory refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryRefusal {
    /// Other processes have as much memory there as the limit allows.
    #[error(
        "other processes have {held} bytes there, and the limit is {limit}: release some, or raise `Job::remote_memory_limit`"
    )]
    Limit {
        /// The bytes that they have.
        held: u64,
        /// The limit.
        limit: u64,
    },
    /// Its machine has no memory left, or its fabric registers no more.
    #[error("its machine has no such memory left: ask for less, or free memory there")]
    NoMemory,
    /// Its machine has no such NUMA node.
    #[error("its machine has no NUMA node {node}; `farside info` lists its nodes")]
    NoSuchNode {
        /// The number that was asked for.
        node: u32,
    },
    /// The memory was released before.
    #[error("it was released before")]
    Released,
    /// The owner never gave this memory out.
    #[error("it never gave this memory out")]
    Foreign,
}

//! Registered memory: of the own process for any thread, and of any process for any worker.
//!
//! [`Worker::allocate`] gives buffers of the own process, which come back when they are dropped.
//!
//! For memory that others are to reach, a worker asks a process for memory, on a NUMA node or near one of its workers, and gets a [`RemoteMemory`]: a plain value that can be
//! sent anywhere in the job, and with which whoever has it puts, gets, and changes words atomically. The service thread of
//! the owner answers, so that no worker there need be attentive.

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

/// Bytes before the memory of a handle, of which the first eight tell that it is still the handle's. A whole unit of the heap, so
/// that the memory begins on a cache line.
const STAMP_BYTES: u64 = 64;

/// Memory of a process of the job, its own or another's: 56 bytes that can be sent to any worker.
///
/// It is made by [`Worker::allocate_at`], used by whoever has the handle, and given back by [`Worker::release`], once, by
/// anybody. When the process that asked for it dies, its owner takes it back.
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
/// # Handles that are stale
///
/// The owner keeps the books: [`release`](Worker::release) of what was released, or never given out, is an error, always. A put or a get
/// does without the owner, so it can find out less:
///
/// - Where the memory is mapped (on one machine, and in the own process), every access first looks at a word before the memory,
///   which the owner changes when the memory is released. An access that begins after that is [`MemoryError::Released`](crate::memory::MemoryError::Released), unless
///   the place has been given out since and what is there happens to be the same word. One that is under way at the time is not noticed.
/// - Where it is not (libfabric, the simulator), a process knows what its own workers released, and which processes are lost.
///   What others released it learns only if it [asks](Self::check), which is a round trip. Until then a put goes to whoever has the
///   memory now.
///
/// So agree who releases, and see that all others are done before. Nothing outside of memory that the job's processes ask of each
/// other is ever reached by a stale handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub struct RemoteMemory {
    /// The region that it lies in.
    pub(crate) key: RemoteKey,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Which of the grants of its owner it is, and how often that number was given before.
    pub(crate) id: u32,
    pub(crate) generation: u32,
}

impl RemoteMemory {
    /// The process whose memory it is.
    pub fn process(&self) -> ProcessId {
        self.key.process
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The global address of its first byte, for as long as it is not [released](Worker::release). Accesses by the address do not look at the
    /// handle's stamp: that memory is released is noticed by the handle alone, or in a job whose accesses are
    /// [checked](crate::Job::check_accesses).
    ///
    /// # Errors
    /// [`MemoryError::NoAddress`](crate::memory::MemoryError::NoAddress) when its owner has too many regions, or memory of it lies in a region of more than 4 GiB.
    pub fn address(&self) -> Result<GlobalAddress> {
        GlobalAddress::in_region(self.key, self.offset).ok_or_else(|| MemoryError::no_address(self.key).into())
    }

    /// What is expected before the memory while it is this handle's. Never zero for the grants that there can be.
    fn stamp(&self) -> u64 {
        let name = u64::from(self.generation) << 32 | u64::from(self.id);
        // One to one, and unlike the numbers that programs keep in their memory.
        name.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Writes `data` from `offset` on.
    ///
    /// *Completion*: when it returns, `data` may be used again and the bytes are visible to whoever is told of them.
    ///
    /// *Cost*: a copy where the memory is mapped, and a look at a word before it; otherwise a copy and a round trip. The first use of a
    /// region that this process has not used before attaches it, which the owner's service thread answers.
    ///
    /// # Errors
    /// [`Error::Fabric`] with `OutOfRange`; [`Error::PeerLost`] when the owner is; [`MemoryError::Released`](crate::memory::MemoryError::Released) as far as that is
    /// noticed (see [above](Self#handles-that-are-stale)); [`Error::InHandler`] where the memory is not mapped.
    #[track_caller]
    pub fn put(&self, me: &Worker, offset: u64, data: &[u8]) -> Result<()> {
        self.put_from(me, offset, data, Location::caller())
    }

    /// As [`put`](Self::put), from some place in the program.
    pub(crate) fn put_from(&self, me: &Worker, offset: u64, data: &[u8], site: Caller) -> Result<()> {
        let inside = self.inside(offset, data.len())?;
        let touched = (inside, data.len(), Touch { kind: AccessKind::Write, site });
        self.on_region(me, Some(touched), |region, deadline| region.put(inside, data, deadline))
    }

    /// Reads from `offset` on, as much as `data` has room for.
    ///
    /// *Cost*: as for [`put`](Self::put).
    ///
    /// # Errors
    /// Those of [`put`](Self::put). What is in `data` then is unspecified.
    #[track_caller]
    pub fn get(&self, me: &Worker, offset: u64, data: &mut [u8]) -> Result<()> {
        self.get_from(me, offset, data, Location::caller())
    }

    /// As [`get`](Self::get), from some place in the program.
    pub(crate) fn get_from(&self, me: &Worker, offset: u64, data: &mut [u8], site: Caller) -> Result<()> {
        let inside = self.inside(offset, data.len())?;
        let touched = (inside, data.len(), Touch { kind: AccessKind::Read, site });
        self.on_region(me, Some(touched), |region, deadline| region.get(inside, data, deadline))
    }

    /// As [`get`](Self::get), where others write and what is read tells whether it is whole. It is not checked.
    pub(crate) fn look(&self, me: &Worker, offset: u64, data: &mut [u8]) -> Result<()> {
        let inside = self.inside(offset, data.len())?;
        self.on_region(me, None, |region, deadline| region.get(inside, data, deadline))
    }

    /// Changes the 64-bit word at `offset`, a multiple of 8, and returns what it held.
    ///
    /// *Cost*: a read-modify-write where the memory is mapped; otherwise a round trip.
    ///
    /// # Errors
    /// Those of [`put`](Self::put), and [`Error::Fabric`] with `Misaligned`.
    #[track_caller]
    pub fn atomic64(&self, me: &Worker, offset: u64, change: AtomicChange<u64>) -> Result<u64> {
        self.atomic64_from(me, offset, change, Location::caller())
    }

    /// As [`atomic64`](Self::atomic64), from some place in the program.
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
    /// Those of [`atomic64`](Self::atomic64).
    #[track_caller]
    pub fn atomic32(&self, me: &Worker, offset: u64, change: AtomicChange<u32>) -> Result<u32> {
        let inside = self.inside(offset, 4)?;
        let touched = (inside, 4, Touch::here(AccessKind::of(&change)));
        self.on_region(me, Some(touched), |region, deadline| region.atomic32(inside, change, deadline))
    }

    /// The region that it lies in, attached here, and where in that it begins: for queues and
    /// transmitters (the crate `farside-transmit`), which do not look whether the memory was released since.
    ///
    /// *Cost*: as for [`put`](Self::put), without the bytes.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn region(&self, me: &Worker) -> Result<(RemoteRegion, u64)> {
        self.on_region(me, None, |region, _| Ok((region.clone(), self.offset)))
    }

    /// Whether the memory is still this handle's, for sure. Others may release it the moment after.
    ///
    /// *Cost*: a round trip where the memory is not mapped.
    ///
    /// # Errors
    /// [`MemoryError::Released`](crate::memory::MemoryError::Released), and those of [`put`](Self::put).
    pub fn check(&self, me: &Worker) -> Result<()> {
        let stamp_at = self.stamp_at()?;
        let stamp =
            self.on_region(me, None, |region, deadline| region.atomic64(stamp_at, AtomicChange::Load, deadline))?;
        if stamp == self.stamp() { Ok(()) } else { Err(MemoryError::Released { memory: *self }.into()) }
    }

    fn stamp_at(&self) -> Result<u64> {
        self.offset.checked_sub(STAMP_BYTES).ok_or_else(|| MemoryError::Foreign { memory: *self }.into())
    }

    /// Where in the region an access is, if it is inside of this memory.
    pub(crate) fn inside(&self, offset: u64, bytes: usize) -> Result<u64, FabricError> {
        let end = offset.checked_add(bytes as u64).filter(|end| *end <= self.bytes);
        match self.offset.checked_add(offset) {
            Some(inside) if end.is_some() => Ok(inside),
            _ => Err(FabricError::OutOfRange { offset, bytes, region_bytes: self.bytes }),
        }
    }

    /// Does something with the region that the memory lies in, unless the handle is known to be stale. What is `touched`, where in the
    /// region and how many bytes, is checked, if accesses are.
    fn on_region<T>(
        &self,
        me: &Worker,
        touched: Option<(u64, usize, Touch)>,
        access: impl FnOnce(&RemoteRegion, Instant) -> Result<T, FabricError>,
    ) -> Result<T> {
        let process = me.process_handle();
        if let Some(lost) = process.lost(self.key.process) {
            return Err(lost);
        }
        let mut regions = me.regions().borrow_mut();
        let since = regions.since();
        let region = regions.find_or_add(self.key, || process.region_of(self))?;
        let deadline = if region.mapped().is_some() {
            // What is mapped waits for nothing, and any time will do for a deadline.
            self.check_stamp(region, since)?;
            since
        } else {
            me.not_in_handler("an access to memory that is not mapped here")?;
            process.memory().check_known(self)?;
            me.now() + me.default_deadline()
        };
        if let Some((inside, bytes, touch)) = touched {
            me.check_access(self.key, inside, bytes, touch)?;
        }
        access(region, deadline).map_err(|error| {
            // The checker has written it down, and it was not made, or not for sure.
            me.end_accesses();
            process.explain(error)
        })
    }

    /// Looks whether the owner has taken the memory back.
    fn check_stamp(&self, region: &RemoteRegion, now: Instant) -> Result<()> {
        let stamp = region.atomic64(self.stamp_at()?, AtomicChange::Load, now)?;
        if stamp == self.stamp() { Ok(()) } else { Err(MemoryError::Released { memory: *self }.into()) }
    }
}

/// A place in the program.
type Caller = &'static Location<'static>;

/// Where memory is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a process, wherever its machine puts it.
    In(ProcessId),
    /// In a process, on a NUMA node of its machine. A node that is full gives way to others.
    OnNode(ProcessId, NumaNodeId),
    /// In a worker's process, on the NUMA node that the worker is bound to ([`Job::bind`](crate::Job::bind)); wherever the machine puts
    /// it if it is bound to none.
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

/// Why an owner of memory did not do as it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryRefusal {
    /// Others have as much there as they may.
    #[error("others have {held} bytes there of at most {limit}: release some, or raise `Job::remote_memory_limit`")]
    Limit {
        /// What they have.
        held: u64,
        /// What they may have.
        limit: u64,
    },
    /// Its machine has none left, or its fabric registers no more.
    #[error("its machine has no such memory left: ask for less, or free memory there")]
    NoMemory,
    /// Its machine has no such NUMA node.
    #[error("its machine has no NUMA node {node}; `farside info` shows those that there are")]
    NoSuchNode {
        /// Which was named.
        node: u32,
    },
    /// It was released before.
    #[error("it was released before")]
    Released,
    /// It was never given out there.
    #[error("it never gave that out")]
    Foreign,
}

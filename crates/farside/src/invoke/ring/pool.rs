//! Memory for rings that lead to this process.
//!
//! # When memory may be given out again
//!
//! A piece is written by the sender of its ring, and by nobody else but this process. So it may be given out again when that sender can
//! write no more:
//!
//! 1. The sender's [`Ring`](crate::invoke::outbox) is one value that is moved, never copied. Before a process says
//!    [`Close`](crate::invoke::message::CallMessage::Close) it has dropped that value, under the lock of its way. No store into the ring follows
//!    in the order of that process's program, on any of its threads.
//! 2. The message goes through the system, or the transport, after those stores; who has received it sees them all, and none comes after.
//! 3. The worker that reads the ring runs what is left in it, drops its [`Receiver`](farside_fabric::ring::Receiver), which held the other
//!    mappings, and only then gives the pieces back here.
//!
//! A process that is killed says no `Close`. It may be lost to the job and still about to write, so its pieces are retired: counted no
//! more, and never given out again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use farside_fabric::memory::{Fit, FreeSpace};
use farside_fabric::{LocalRegion, ProcessId, RemoteKey, Transport};
use farside_sys::shm::SharedMemory;

use crate::error::Result;
use crate::invoke::message::RingName;
use crate::runtime::extent::Extent;

/// Regions are registered in this size, which holds the first chunks of some thirty rings; larger pieces get their own.
const SLAB_BYTES: usize = 256 << 10;
/// Pieces begin on cache lines, and their neighbours are not on the same pair of lines.
pub(crate) const ALIGN_BYTES: usize = 128;

/// Regions stand this far apart in the numbers of the free space, so that no piece reaches from one into the next.
const REGION_SHIFT: u32 = 40;

/// Gives out pieces of registered memory, and keeps to a cap per receiving worker.
#[derive(Debug)]
pub(crate) struct RingPool {
    cap_bytes: usize,
    /// Bytes in use, by receiving worker of this process.
    used: Vec<usize>,
    /// The free bytes of all regions: byte `offset` of region `index` is number `index << REGION_SHIFT | offset`.
    free: FreeSpace,
    /// All registered regions, in the order of their registration.
    regions: Vec<LocalRegion>,
    /// The index of each region.
    index_of: HashMap<RemoteKey, usize>,
    /// The rings that stand, with their bytes.
    pub(crate) rings: HashMap<RingName, usize>,
    /// Chunks that were asked for when there was no memory.
    pub(crate) waiting: Vec<Waiting>,
}

/// A sender waits for chunks while others are asked whether they need theirs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) ring: RingName,
    pub(crate) local: usize,
    pub(crate) sender: ProcessId,
    pub(crate) chunk_bytes: usize,
    /// How often the others were asked.
    pub(crate) rounds: u32,
    pub(crate) next_round: Instant,
}

impl RingPool {
    pub(crate) fn new(cap_bytes: usize, receivers: usize) -> Self {
        Self {
            cap_bytes,
            used: vec![0; receivers],
            free: FreeSpace::default(),
            regions: Vec::new(),
            index_of: HashMap::new(),
            rings: HashMap::new(),
            waiting: Vec::new(),
        }
    }

    /// A piece for the beginning of a ring to this receiver, whatever its cap: calls wait at their sender for it already, and
    /// without a ring they would for ever.
    ///
    /// # Errors
    /// What the transport said when a region was needed.
    pub(crate) fn allocate(&mut self, transport: &dyn Transport, receiver: usize, bytes: usize) -> Result<Extent> {
        let piece = self.allocate_own(transport, bytes)?;
        self.used[receiver] += piece.bytes as usize;
        Ok(piece)
    }

    /// A piece for this process's own use, which counts for no receiver.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate).
    pub(crate) fn allocate_own(&mut self, transport: &dyn Transport, bytes: usize) -> Result<Extent> {
        let bytes = bytes.next_multiple_of(ALIGN_BYTES);
        if let Some(start) = self.free.take(bytes as u64, Fit::Best) {
            let key = self.regions[(start >> REGION_SHIFT) as usize].key();
            return Ok(Extent { key, offset: start & ((1 << REGION_SHIFT) - 1), bytes: bytes as u64 });
        }
        let region_bytes = if bytes > SLAB_BYTES / 2 { bytes } else { SLAB_BYTES };
        let region = transport.register(region_bytes)?;
        let key = region.key();
        self.index_of.insert(key, self.regions.len());
        self.regions.push(region);
        self.free.release(self.number(key, bytes as u64), (region_bytes - bytes) as u64);
        Ok(Extent { key, offset: 0, bytes: bytes as u64 })
    }

    /// Gives back what [`allocate_own`](Self::allocate_own) gave.
    pub(crate) fn free_own(&mut self, pieces: &[Extent]) {
        pieces.iter().for_each(|piece| self.free.release(self.number(piece.key, piece.offset), piece.bytes));
    }

    /// A byte of a region among the numbers of the free space.
    fn number(&self, key: RemoteKey, offset: u64) -> u64 {
        let index = *self.index_of.get(&key).expect("a piece of a region that was registered here");
        (index as u64) << REGION_SHIFT | offset
    }

    /// Whether pieces of so many bytes stay within this receiver's cap.
    pub(crate) fn has_room(&self, receiver: usize, bytes: usize) -> bool {
        self.used[receiver].checked_add(bytes).is_some_and(|sum| sum <= self.cap_bytes)
    }

    /// The memory of a piece that was given out here.
    pub(crate) fn memory(&self, key: RemoteKey) -> Option<Arc<SharedMemory>> {
        self.index_of.get(&key).map(|index| self.regions[*index].memory().clone())
    }

    /// Takes the pieces of a ring back that its sender has closed.
    pub(crate) fn release(&mut self, receiver: usize, pieces: &[Extent]) {
        self.retire(receiver, pieces);
        self.free_own(pieces);
    }

    /// Counts pieces no more whose sender is gone. They are not given out again.
    pub(crate) fn retire(&mut self, receiver: usize, pieces: &[Extent]) {
        self.used[receiver] -= pieces.iter().map(|piece| piece.bytes as usize).sum::<usize>();
    }

    pub(crate) fn cap_bytes(&self) -> usize {
        self.cap_bytes
    }

    /// Bytes in use for all receivers.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used.iter().sum()
    }

    /// Bytes registered, in use or not.
    pub(crate) fn registered_bytes(&self) -> usize {
        self.regions.iter().map(|region| region.key().bytes as usize).sum()
    }
}

//! Memory for rings that lead to this process.
//!
//! # When memory may be given out again
//!
//! Only the sender of its ring and this process write to a piece. So the piece may be given out
//! again when that sender can write no more:
//!
//! 1. The sender's [`Ring`](crate::invoke::outbox) is one value that is moved, never copied. A
//!    process sends [`Close`](crate::invoke::message::CallMessage::Close) under the lock of its
//!    way, by the thread that has that value, and that thread then drops it. No store into the ring
//!    follows in the order of that process's program, on any of its threads.
//! 2. The message goes through the system, or the transport, after those stores. Its receiver sees
//!    them all, and none comes after.
//! 3. The worker that reads the ring runs what is left in it. It then drops its
//!    [`Receiver`](farside_fabric::ring::Receiver), which held the other mappings. Only after that
//!    does it give the pieces back here.
//!
//! A killed process sends no `Close`. The job may regard it as lost while it is still about to
//! write, so its pieces are retired: they are no longer counted, and never given out again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use farside_fabric::memory::{Fit, FreeSpace};
use farside_fabric::{FabricError, LocalRegion, ProcessId, RegionKind, RemoteKey, Transport};
use farside_sys::shm::SharedMemory;

use crate::error::Result;
use crate::invoke::message::RingName;
use crate::runtime::extent::Extent;

/// The size in which regions are registered. It holds the first chunks of some thirty rings; larger
/// pieces get a region of their own.
const SLAB_BYTES: usize = 256 << 10;
/// The alignment of pieces: neighbouring pieces share no pair of cache lines.
pub(crate) const ALIGN_BYTES: usize = 128;

/// Regions stand this far apart in the numbers of the free space, so that no piece reaches from one
/// into the next.
const REGION_SHIFT: u32 = 40;

/// Gives out pieces of registered memory, within a cap per receiving worker.
#[derive(Debug)]
pub(crate) struct RingPool {
    cap_bytes: usize,
    /// Bytes in use, by receiving worker of this process.
    used: Vec<usize>,
    /// The free bytes of all regions: byte `offset` of region `index` is number `index <<
    /// REGION_SHIFT | offset`.
    free: FreeSpace,
    /// All registered regions, in the order of their registration.
    regions: Vec<LocalRegion>,
    /// The index of each region.
    index_of: HashMap<RemoteKey, usize>,
    /// The open rings, with their bytes.
    pub(crate) rings: HashMap<RingName, usize>,
    /// Requests for chunks that wait for memory.
    pub(crate) waiting: Vec<Waiting>,
}

/// A request for chunks that waits while the senders of other rings are asked whether they need
/// theirs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) ring: RingName,
    pub(crate) local: usize,
    pub(crate) sender: ProcessId,
    pub(crate) chunk_bytes: usize,
    /// The number of times that the others were asked.
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

    /// Allocates pieces of these sizes for a ring to this receiver, whatever its cap: all or none.
    ///
    /// # Errors
    /// Any error of the transport while a region is registered.
    pub(crate) fn allocate(
        &mut self,
        transport: &dyn Transport,
        receiver: usize,
        sizes: impl IntoIterator<Item = usize>,
    ) -> Result<Vec<Extent>> {
        let mut pieces = Vec::new();
        for bytes in sizes {
            match self.allocate_own(transport, bytes) {
                Ok(piece) => pieces.push(piece),
                Err(error) => {
                    self.free_own(&pieces);
                    return Err(error);
                }
            }
        }
        self.used[receiver] += pieces.iter().map(|piece| piece.bytes as usize).sum::<usize>();
        Ok(pieces)
    }

    /// Allocates a piece for this process's own use, which counts for no receiver.
    ///
    /// # Errors
    /// The failure of the system or of the transport to register a region.
    pub(crate) fn allocate_own(&mut self, transport: &dyn Transport, bytes: usize) -> Result<Extent> {
        let bytes = bytes.next_multiple_of(ALIGN_BYTES);
        if let Some(start) = self.free.take(bytes as u64, Fit::Best) {
            let key = self.regions[(start >> REGION_SHIFT) as usize].key();
            return Ok(Extent { key, offset: start & ((1 << REGION_SHIFT) - 1), bytes: bytes as u64 });
        }
        let region_bytes = if bytes > SLAB_BYTES / 2 { bytes } else { SLAB_BYTES };
        let memory = SharedMemory::create("farside-internal", region_bytes).map_err(FabricError::from)?;
        let region = transport.register_memory(Arc::new(memory), region_bytes, RegionKind::Internal)?;
        let key = region.key();
        self.index_of.insert(key, self.regions.len());
        self.regions.push(region);
        self.free.release(self.number(key, bytes as u64), (region_bytes - bytes) as u64);
        Ok(Extent { key, offset: 0, bytes: bytes as u64 })
    }

    /// Frees what [`allocate_own`](Self::allocate_own) returned.
    pub(crate) fn free_own(&mut self, pieces: &[Extent]) {
        pieces.iter().for_each(|piece| self.free.release(self.number(piece.key, piece.offset), piece.bytes));
    }

    /// Returns the number in the free space of a byte of a region.
    fn number(&self, key: RemoteKey, offset: u64) -> u64 {
        let index = *self.index_of.get(&key).expect("a piece of a region that was registered here");
        (index as u64) << REGION_SHIFT | offset
    }

    /// Returns whether another `bytes` bytes stay within this receiver's cap.
    pub(crate) fn has_room(&self, receiver: usize, bytes: usize) -> bool {
        self.used[receiver].checked_add(bytes).is_some_and(|sum| sum <= self.cap_bytes)
    }

    /// Returns the memory of a piece that was given out here.
    pub(crate) fn memory(&self, key: RemoteKey) -> Option<Arc<SharedMemory>> {
        self.index_of.get(&key).map(|index| self.regions[*index].memory().clone())
    }

    /// Takes back the pieces of a ring that its sender has closed.
    pub(crate) fn release(&mut self, receiver: usize, pieces: &[Extent]) {
        self.retire(receiver, pieces);
        self.free_own(pieces);
    }

    /// Stops counting pieces whose sender is gone. They are not given out again.
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

//! Memory for rings that lead to this process.
//!
//! # When memory may be given out again
//!
//! A piece is written by the sender of its ring, and by nobody else but this process. So it may be given out again when that sender can
//! write no more:
//!
//! 1. The sender's [`Ring`](crate::invoke::outbox) is one value that is moved, never copied. Before a process says
//!    [`Close`](crate::invoke::ring::message::SetupMessage::Close) it has dropped that value, under the lock of its way. No store into the ring follows
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

use farside_fabric::{ProcessId, RemoteKey, Transport};
use farside_sys::shm::SharedMemory;

use crate::error::Result;
use crate::invoke::ring::holes::Holes;
use crate::invoke::ring::message::{Piece, RingName};

/// Regions are registered in this size, which holds the first chunks of some thirty rings; larger pieces get their own.
const SLAB_BYTES: usize = 256 << 10;
/// Pieces begin on cache lines, and their neighbours are not on the same pair of lines.
pub(crate) const ALIGN_BYTES: usize = 128;

/// Gives out pieces of registered memory, and keeps to a cap per receiving worker.
#[derive(Debug)]
pub(crate) struct RingPool {
    cap_bytes: usize,
    /// Bytes in use, by receiving worker of this process.
    used: Vec<usize>,
    holes: Holes,
    /// All that was registered. A process has its own memory at hand, whatever its transport does for peers.
    regions: HashMap<RemoteKey, Arc<SharedMemory>>,
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
            holes: Holes::default(),
            regions: HashMap::new(),
            rings: HashMap::new(),
            waiting: Vec::new(),
        }
    }

    /// A piece for the beginning of a ring to this receiver, whatever its cap: calls wait at their sender for it already, and
    /// without a ring they would for ever.
    ///
    /// # Errors
    /// What the transport said when a region was needed.
    pub(crate) fn allocate(&mut self, transport: &dyn Transport, receiver: usize, bytes: usize) -> Result<Piece> {
        let piece = self.allocate_own(transport, bytes)?;
        self.used[receiver] += piece.bytes as usize;
        Ok(piece)
    }

    /// A piece for this process's own use, which counts for no receiver.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate).
    pub(crate) fn allocate_own(&mut self, transport: &dyn Transport, bytes: usize) -> Result<Piece> {
        let bytes = bytes.next_multiple_of(ALIGN_BYTES);
        if let Some((key, offset)) = self.holes.cut(bytes as u64) {
            return Ok(Piece { key, offset, bytes: bytes as u64 });
        }
        let region_bytes = if bytes > SLAB_BYTES / 2 { bytes } else { SLAB_BYTES };
        let region = transport.register(region_bytes)?;
        let key = region.key();
        self.regions.insert(key, region.memory().clone());
        if region_bytes > bytes {
            self.holes.add(key, bytes as u64, (region_bytes - bytes) as u64);
        }
        Ok(Piece { key, offset: 0, bytes: bytes as u64 })
    }

    /// Gives back what [`allocate_own`](Self::allocate_own) gave.
    pub(crate) fn free_own(&mut self, pieces: &[Piece]) {
        pieces.iter().for_each(|piece| self.holes.add(piece.key, piece.offset, piece.bytes));
    }

    /// Whether pieces of so many bytes stay within this receiver's cap.
    pub(crate) fn has_room(&self, receiver: usize, bytes: usize) -> bool {
        self.used[receiver].checked_add(bytes).is_some_and(|sum| sum <= self.cap_bytes)
    }

    /// The memory of a piece that was given out here.
    pub(crate) fn memory(&self, key: RemoteKey) -> Option<Arc<SharedMemory>> {
        self.regions.get(&key).cloned()
    }

    /// Takes the pieces of a ring back that its sender has closed.
    pub(crate) fn release(&mut self, receiver: usize, pieces: &[Piece]) {
        self.retire(receiver, pieces);
        self.free_own(pieces);
    }

    /// Counts pieces no more whose sender is gone. They are not given out again.
    pub(crate) fn retire(&mut self, receiver: usize, pieces: &[Piece]) {
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
        self.regions.keys().map(|key| key.bytes as usize).sum()
    }
}

//! Usage figures of a heap.

use super::remote_heap::Counts;
use super::shadow::{Holder, Shadow};

/// The usage of a [`RemoteHeap`](super::RemoteHeap) according to its initiator. Sizes of blocks
/// include their headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapReport {
    /// The size of the heap.
    pub bytes: u64,
    /// The bytes that can be allocated.
    pub free_bytes: u64,
    /// The size of the largest free range.
    pub largest_free_bytes: u64,
    /// The number of free ranges.
    pub free_pieces: usize,
    /// The number of blocks that the initiator has.
    pub own_blocks: u64,
    /// Their bytes.
    pub own_bytes: u64,
    /// The number of blocks handed over and, as far as the initiator knows, not freed.
    pub peer_blocks: u64,
    /// Their bytes.
    pub peer_bytes: u64,
    /// The number of blocks whose place is never used again, because a write to them began and did
    /// not end.
    pub set_aside_blocks: u64,
    /// Their bytes.
    pub set_aside_bytes: u64,
    /// The number of allocations so far.
    pub allocations: u64,
    /// The number of allocations that failed for lack of room.
    pub refusals: u64,
    /// The number of lists of freed blocks that the initiator has applied.
    pub synchronisations: u64,
    /// The number of entries in those lists. Each is one block or several adjacent ones.
    pub tags: u64,
    /// The number of blocks that the peer has freed.
    pub freed_by_peer: u64,
    /// The number of times that the initiator asked the peer for freed blocks.
    pub questions: u64,
}

impl HeapReport {
    pub(super) fn new(shadow: &Shadow, counts: Counts, bytes: u64) -> Self {
        let [own, peer, aside] =
            [Holder::Initiator, Holder::Peer, Holder::Nobody].map(|holder| shadow.amount_of(holder));
        Self {
            bytes,
            free_bytes: shadow.free_bytes(),
            largest_free_bytes: shadow.largest_free_bytes(),
            free_pieces: shadow.free_pieces(),
            own_blocks: own.blocks,
            own_bytes: own.bytes,
            peer_blocks: peer.blocks,
            peer_bytes: peer.bytes,
            set_aside_blocks: aside.blocks,
            set_aside_bytes: aside.bytes,
            allocations: counts.allocations,
            refusals: counts.refusals,
            synchronisations: counts.lists,
            tags: counts.tags,
            freed_by_peer: counts.freed_by_peer,
            questions: counts.questions,
        }
    }

    /// Returns the bytes in use by either end.
    pub fn used_bytes(&self) -> u64 {
        self.bytes - self.free_bytes
    }

    /// Returns the fraction of the free bytes outside of the largest free range, from 0 to 1.
    /// Returns 0 if nothing is free.
    pub fn external_fragmentation(&self) -> f64 {
        if self.free_bytes == 0 {
            return 0.0;
        }
        1.0 - self.largest_free_bytes as f64 / self.free_bytes as f64
    }
}

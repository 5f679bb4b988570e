//! How a heap is used.

use super::remote_heap::Counts;
use super::shadow::{Holder, Shadow};

/// How a [`RemoteHeap`](super::RemoteHeap) is used, by its initiator's books. Bytes of blocks include their headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapReport {
    /// All of it.
    pub bytes: u64,
    /// What can be allocated.
    pub free_bytes: u64,
    /// The largest piece of that.
    pub largest_free_bytes: u64,
    /// How many pieces it is in.
    pub free_pieces: usize,
    /// Blocks that the initiator has.
    pub own_blocks: u64,
    /// Their bytes.
    pub own_bytes: u64,
    /// Blocks that were handed over, and of which it is not known here that they were freed.
    pub peer_blocks: u64,
    /// Their bytes.
    pub peer_bytes: u64,
    /// Blocks whose place is not used again, since a write to it was begun and never ended.
    pub set_aside_blocks: u64,
    /// Their bytes.
    pub set_aside_bytes: u64,
    /// Blocks that were allocated so far.
    pub allocations: u64,
    /// Times that there was no room.
    pub refusals: u64,
    /// Lists of freed blocks that were taken over.
    pub synchronisations: u64,
    /// Entries of those lists: each is one block, or several side by side.
    pub tags: u64,
    /// Blocks that the peer has freed.
    pub freed_by_peer: u64,
    /// Times that the peer was asked what it has freed.
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

    /// All that is in use, by whomever.
    pub fn used_bytes(&self) -> u64 {
        self.bytes - self.free_bytes
    }

    /// How much of what is free is not in the largest piece, from 0 to 1. 0 when nothing is free.
    pub fn external_fragmentation(&self) -> f64 {
        if self.free_bytes == 0 {
            return 0.0;
        }
        1.0 - self.largest_free_bytes as f64 / self.free_bytes as f64
    }

    /// How many blocks a list told of on average. 0 without lists.
    pub fn blocks_per_synchronisation(&self) -> f64 {
        self.freed_by_peer as f64 / self.synchronisations.max(1) as f64
    }
}

//! What can go wrong with remote heaps.

use farside_fabric::WorkerId;

use super::layout::HEAP_BYTES_MAX;
use crate::error::{Error, room_error};

/// A result of this module.
pub(super) type Result<T, E = HeapError> = std::result::Result<T, E>;

/// Why a remote heap did not do as it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// An error of the job, such as [`Error::PeerLost`].
    #[error(transparent)]
    Job(#[from] Error),
    /// No free piece is large enough, also with all that the peer has told of by now.
    #[error(
        "no free piece of the heap holds {bytes} bytes aligned to {align} and their header: {free_bytes} are free, the largest piece of them has \
         {largest_bytes}, and the peer has {peer_bytes}: have the peer free what it has used, wait for that (`alloc_within`), or open a larger heap"
    )]
    Exhausted {
        /// How many bytes were asked for.
        bytes: u64,
        /// On a multiple of this.
        align: u64,
        /// What is free, in all pieces.
        free_bytes: u64,
        /// The largest of them.
        largest_bytes: u64,
        /// What was handed over, and not freed as far as is known here.
        peer_bytes: u64,
    },
    /// It would not even fit into the heap if that were empty.
    #[error(
        "a block of {bytes} bytes aligned to {align} and its header of 16 do not fit into a heap of {heap_bytes}: open a larger one"
    )]
    LargerThanHeap {
        /// How many bytes were asked for.
        bytes: u64,
        /// On a multiple of this.
        align: u64,
        /// How many the heap has.
        heap_bytes: u64,
    },
    /// Blocks cannot be aligned so.
    #[error("blocks cannot be aligned to {align}: give a power of two, at most {max}")]
    Alignment {
        /// What was asked for.
        align: u64,
        /// The most.
        max: u64,
    },
    /// A heap cannot be as large, or as small.
    #[error("a heap cannot have {bytes} bytes: give it 1 to {HEAP_BYTES_MAX}")]
    HeapBytes {
        /// What was asked for.
        bytes: u64,
    },
    /// There is no memory left in this process for the local side.
    #[error("this process has no {bytes} bytes left for the local side of the heap: open a smaller one")]
    NoLocalMemory {
        /// What was asked for.
        bytes: u64,
    },
    /// The block was freed before, or taken back.
    #[error("block {serial} of the heap, at {offset}, was freed before: free a block once, and keep no name of it")]
    Freed {
        /// Which of the heap's blocks it is.
        serial: u64,
        /// Where it was.
        offset: u64,
    },
    /// Another block, or part of one, is where the block was; or nothing was ever put there.
    #[error(
        "block {serial} of the heap is not at {offset} (any more): it was freed and its place is in use again, or the name is \
         damaged"
    )]
    Stale {
        /// Which of the heap's blocks it is said to be.
        serial: u64,
        /// Where it is said to be.
        offset: u64,
    },
    /// The block is lent, and only the initiator may free it.
    #[error(
        "block {serial} of the heap, at {offset}, is lent: only {initiator} may free it, or hand it over (`Block::hand_over`)"
    )]
    Lent {
        /// Which of the heap's blocks it is.
        serial: u64,
        /// Where it is.
        offset: u64,
        /// Who may.
        initiator: WorkerId,
    },
    /// A write to the block was begun and never ended. It may still take effect, so the block is never used again.
    #[error(
        "a put to block {serial} of the heap, at {offset}, was given up and may still arrive: let the block go, and allocate another"
    )]
    SetAside {
        /// Which of the heap's blocks it is.
        serial: u64,
        /// Where it is.
        offset: u64,
    },
    /// The name is of a block of another heap, or of none.
    #[error("the block is of another heap: free it there, and open it on the worker that its heap leads to")]
    OtherHeap,
    /// The block is opened by a worker that its heap does not lead to.
    #[error("the block's heap leads to {owner}, and it was opened on {here}: open it there")]
    OtherWorker {
        /// Whose heap it is.
        owner: WorkerId,
        /// Who opened it.
        here: WorkerId,
    },
    /// An access beyond the block.
    #[error("{bytes} bytes at {offset} are outside of a block of {block_bytes}")]
    OutOfRange {
        /// Where the access begins.
        offset: u64,
        /// How long it is.
        bytes: u64,
        /// The size of the block.
        block_bytes: u64,
    },
    /// A list of freed blocks cannot be true. Nothing of it was taken over.
    #[error(
        "list {sequence} of freed blocks from {peer} is wrong: {fault}; {peer} has a bug or overwrote its memory. Nothing of the list \
         was taken over; its blocks count as the peer's"
    )]
    CorruptTags {
        /// Who sent it.
        peer: WorkerId,
        /// Which it is.
        sequence: u64,
        /// What is wrong.
        fault: TagFault,
    },
    /// What the memory at the peer begins with is not what a heap begins with.
    #[error("the memory of the heap does not begin as that of a heap does: it was overwritten")]
    CorruptHeap,
    /// The heap was closed by its initiator.
    #[error("the heap was closed by {initiator}, and its memory is given back")]
    Closed {
        /// Who had opened it.
        initiator: WorkerId,
    },
    /// The heap was closed while blocks were not freed.
    #[error("the heap was closed while {peer} had not freed {blocks} of its blocks")]
    StillInUse {
        /// Who has them.
        peer: WorkerId,
        /// How many.
        blocks: u64,
    },
}

room_error!(HeapError);

/// What is wrong with a list of freed blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TagFault {
    /// It names what is no part of the heap.
    #[error("it names what is outside of the heap")]
    OutOfRange,
    /// Its entries are not in order, or overlap.
    #[error("its entries overlap or are out of order")]
    Order,
    /// No block begins or ends where it says.
    #[error("it names what is no block")]
    NoBlock,
    /// It names a block that was not handed over.
    #[error("it names a block that was not handed over")]
    NotHandedOver,
    /// Other blocks were there when it was made.
    #[error("it names blocks that were there before")]
    OtherBlocks,
}

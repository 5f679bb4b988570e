//! The errors of remote heaps.

use farside::Error;
use farside_fabric::WorkerId;

use super::layout::HEAP_BYTES_MAX;
use crate::room_error::room_error;

/// A result of this module.
pub(super) type Result<T, E = HeapError> = std::result::Result<T, E>;

/// Why an operation on a remote heap failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// An error of the job, such as [`Error::PeerLost`].
    #[error(transparent)]
    Job(#[from] Error),
    /// No free range is large enough, including everything that the peer has reported as freed.
    #[error(
        "no free range of the heap holds {bytes} bytes aligned to {align} and their header: {free_bytes} bytes are free, \
         {largest_bytes} of them in the largest range, and the peer has {peer_bytes}; have the peer free what it has used, \
         wait for that (`alloc_within`), or open a larger heap"
    )]
    Exhausted {
        /// The requested size.
        bytes: u64,
        /// The requested alignment.
        align: u64,
        /// The total of all free ranges.
        free_bytes: u64,
        /// The size of the largest free range.
        largest_bytes: u64,
        /// The blocks handed over and, as far as the initiator knows, not freed.
        peer_bytes: u64,
    },
    /// The block would not fit even into the empty heap.
    #[error(
        "a block of {bytes} bytes aligned to {align} and its header of 16 bytes do not fit into a heap of {heap_bytes}: open a \
         larger heap"
    )]
    LargerThanHeap {
        /// The requested size.
        bytes: u64,
        /// The requested alignment.
        align: u64,
        /// The size of the heap.
        heap_bytes: u64,
    },
    /// The requested alignment is not supported.
    #[error("blocks cannot be aligned to {align}: use a power of two of at most {max}")]
    Alignment {
        /// The requested alignment.
        align: u64,
        /// The largest supported alignment.
        max: u64,
    },
    /// The requested size is not supported.
    #[error("a heap cannot have {bytes} bytes: use 1 to {HEAP_BYTES_MAX}")]
    HeapBytes {
        /// The requested size.
        bytes: u64,
    },
    /// This process has no memory left for the local side.
    #[error(
        "no memory for the local side of the heap: this process cannot allocate {bytes} bytes; open a smaller heap"
    )]
    NoLocalMemory {
        /// The requested size.
        bytes: u64,
    },
    /// The block was freed or taken back before.
    #[error("block {serial} of the heap, at {offset}, was already freed: free a block once, and keep no name of it")]
    Freed {
        /// The block's number in its heap.
        serial: u64,
        /// The block's offset in its heap.
        offset: u64,
    },
    /// The place holds another block, part of one, or nothing that was ever a block.
    #[error(
        "block {serial} of the heap is not at {offset}: it was freed and its place is in use again, or the name is damaged; \
         keep no name of a freed block"
    )]
    Stale {
        /// The block's number according to its name.
        serial: u64,
        /// The block's offset according to its name.
        offset: u64,
    },
    /// The block is lent, so only the initiator may free it.
    #[error(
        "block {serial} of the heap, at {offset}, is lent: only {initiator} may free it; hand it over instead \
         (`Block::hand_over`)"
    )]
    Lent {
        /// The block's number in its heap.
        serial: u64,
        /// The block's offset in its heap.
        offset: u64,
        /// The initiator of the heap.
        initiator: WorkerId,
    },
    /// A write to the block began and did not end. It may still take effect, so the block is never
    /// used again.
    #[error(
        "a put to block {serial} of the heap, at {offset}, met its deadline and may still arrive: drop the block and allocate \
         another"
    )]
    SetAside {
        /// The block's number in its heap.
        serial: u64,
        /// The block's offset in its heap.
        offset: u64,
    },
    /// The name belongs to a block of another heap, or of none.
    #[error("the block belongs to another heap: free it there, and open it on the worker that is the peer of its heap")]
    OtherHeap,
    /// The worker that opens the block is not the peer of its heap.
    #[error("the peer of the block's heap is {owner}, not {here}: open the block there")]
    OtherWorker {
        /// The peer of the heap.
        owner: WorkerId,
        /// The worker that opened the block.
        here: WorkerId,
    },
    /// An access extends beyond the block.
    #[error("{bytes} bytes at {offset} are outside of the block: it has {block_bytes} bytes")]
    OutOfRange {
        /// The start of the access.
        offset: u64,
        /// The length of the access.
        bytes: u64,
        /// The size of the block.
        block_bytes: u64,
    },
    /// A list of freed blocks is wrong. The initiator ignored all of it.
    #[error(
        "list {sequence} of freed blocks from {peer} is wrong: {fault}; {peer} has a bug or overwrote its memory. The list \
         was ignored, and its blocks count as the peer's"
    )]
    CorruptTags {
        /// The sender of the list.
        peer: WorkerId,
        /// The number of the list.
        sequence: u64,
        /// The fault of the list.
        fault: TagFault,
    },
    /// The memory at the peer does not begin like a heap.
    #[error("the memory of the heap does not begin with a heap's header: it was overwritten")]
    CorruptHeap,
    /// The initiator has closed the heap.
    #[error("the heap was closed by {initiator}, and its memory is released")]
    Closed {
        /// The initiator of the heap.
        initiator: WorkerId,
    },
    /// The heap was closed before the peer had freed all blocks.
    #[error("the heap was closed while {peer} still had {blocks} of its blocks: have the peer free them first")]
    StillInUse {
        /// The peer of the heap.
        peer: WorkerId,
        /// The number of blocks not freed.
        blocks: u64,
    },
}

room_error!(HeapError);

/// A fault of a list of freed blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TagFault {
    /// An entry lies outside of the heap.
    #[error("an entry lies outside of the heap")]
    OutOfRange,
    /// Entries overlap or are out of order.
    #[error("its entries overlap or are out of order")]
    Order,
    /// An entry does not begin or end where a block does.
    #[error("an entry is not a block")]
    NoBlock,
    /// An entry names a block that was not handed over.
    #[error("an entry names a block that was not handed over")]
    NotHandedOver,
    /// An entry names blocks that were at this place before.
    #[error("an entry names blocks that were there before")]
    OtherBlocks,
}

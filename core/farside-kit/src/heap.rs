//! Remote heaps: blocks of memory at another worker, allocated without asking there.
//!
//! [`Worker::allocate_at`](farside::Worker::allocate_at) asks the owner's service thread for every
//! piece of memory. A [`RemoteHeap`] asks once, for a large piece. From then on the worker that
//! opened the heap, its *initiator*, allocates blocks of that memory by its own books. The worker
//! at the other end, the *peer*, learns the name of a block by any means, reads the block in its
//! own memory, and frees it. From time to time the peer tells the initiator what it has freed.
//!
//! ```no_run
//! # use farside::prelude::*;
//! use farside_kit::heap::{HeapOptions, RemoteBlock, RemoteHeap};
//!
//! # fn example(me: &Worker) -> farside::Result<()> {
//! let heap = RemoteHeap::open(me, me.neighbor(1), HeapOptions::new(1 << 20))?;
//! for round in 0..1000_u32 {
//!     let mut block = heap.alloc(64)?;
//!     // The local view: a slice of this worker's memory.
//!     block.local_mut().fill(round as u8);
//!     block.put()?;
//!     // From here on the block belongs to the peer.
//!     let name = block.hand_over()?;
//!     me.call(heap.peer(), name, |there, name: RemoteBlock| {
//!         let block = name.open(there).expect("it was handed over");
//!         let mut bytes = [0; 64];
//!         block.read_at(0, &mut bytes).expect("it is as long");
//!         block.free().expect("once");
//!     })?;
//! }
//! Ok(heap.close()?)
//! # }
//! ```
//!
//! The idea and the names of the three parts come from rmalloc (slides 17 to 22): *R* is the memory
//! at the peer; *S*, the shadow, is the initiator's books about *R*; *L* is memory of the initiator
//! that holds each block's [local view](Block::local). Two workers may have any number of heaps
//! between them, in both directions.
//!
//! # Who frees
//!
//! A [`Block`] belongs to the initiator. Dropping it frees it, which is a local operation. After
//! [`hand_over`](Block::hand_over) the block belongs to the peer, which [frees
//! it](OwnedBlock::free) after use. A [lent](Block::lend) block still belongs to the initiator,
//! while the peer reads and writes it. Lend a block to receive an answer, which the initiator
//! [gets](Block::get). If the name of a block could not be sent to the peer, the initiator can
//! [take it back](RemoteHeap::take_back).
//!
//! ```no_run
//! # use farside::prelude::*;
//! # use farside_kit::heap::{HeapOptions, RemoteHeap};
//! # fn example(me: &Worker) -> farside::Result<()> {
//! # let heap = RemoteHeap::open(me, me.neighbor(1), HeapOptions::new(1 << 20))?;
//! let mut answer = heap.alloc(8)?;
//! let place = answer.lend()?;
//! let write = |there: &Worker, place: farside_kit::heap::RemoteBlock| {
//!     place.open(there).and_then(|place| place.write_at(0, &[7; 8])).is_ok()
//! };
//! assert!(me.call_return(heap.peer(), place, write)?.wait()?);
//! answer.get()?;
//! assert_eq!(answer.local(), [7; 8]);
//! # Ok(())
//! # }
//! ```
//!
//! # When the initiator learns of freed blocks
//!
//! | [`Synchronisation`] | the peer reports | default with |
//! |---|---|---|
//! | `Deferred` | many blocks at once, sorted and merged | [`Fit::Next`] (the default), [`Fit::First`] |
//! | `Immediate` | each block as it is freed, in one cache line | [`Fit::Best`], [`Fit::Worst`] |
//!
//! Neither mode costs the initiator a message: the peer puts its lists into the initiator's memory,
//! and every allocation looks there first. If there is no room, [`alloc`](RemoteHeap::alloc) asks
//! the peer for the blocks that it has freed but not reported, and only then fails with
//! [`HeapError::Exhausted`]. [`try_alloc`](RemoteHeap::try_alloc) does not ask.
//! [`alloc_within`](RemoteHeap::alloc_within) waits until the peer frees something.
//!
//! Between processes of different binaries, workers can allocate, put, hand over, open and free
//! blocks, and the peer reports what it has freed, since none of this is a call. Asking the peer is
//! a call. There [`alloc`](RemoteHeap::alloc) of an exhausted heap,
//! [`synchronise`](RemoteHeap::synchronise), and [`close`](RemoteHeap::close) of a heap with blocks
//! at the peer fail with [`DifferentBinaries`](farside::Error::DifferentBinaries). Use `Immediate`
//! and [`try_alloc`](RemoteHeap::try_alloc) instead. The memory of a closed heap stays allocated
//! until the job ends.
//!
//! # Guarantees
//!
//! - Only the initiator allocates: a [`RemoteHeap`] stays on its worker's thread.
//! - A block is freed once. Every block has a number that no other block of the heap ever has, and
//!   each access compares it at the block. So a double free, and the use of a name that is stale,
//!   damaged, taken back or of another heap, are errors on either side.
//! - The initiator checks every entry of the peer's lists against its books before it believes any
//!   of them.
//! - If either end dies, the other gets [`PeerLost`](farside::Error::PeerLost). The initiator's
//!   books stay correct, and the memory at a living peer is released.
//!
//! The README of this module describes the protocol.
//!
//! Over a fabric that does not map the peer's memory, a lent name that outlives its block is
//! detected only once the place holds another block.

mod block;
mod error;
mod layout;
mod local;
mod options;
mod owner;
mod remote_heap;
mod report;
mod shadow;
mod tags;
#[cfg(test)]
mod tests;

pub use block::{Block, NotHandedOver, RemoteBlock};
pub use error::{HeapError, TagFault};
pub use options::{Fit, HeapOptions, Space, Synchronisation};
pub use owner::OwnedBlock;
pub use remote_heap::RemoteHeap;
pub use report::HeapReport;

use farside::wire::check::MessageKind;

/// The message of this module that lies in memory, for tests of its decoder.
pub(crate) fn message_kinds() -> [MessageKind; 1] {
    [MessageKind::of::<layout::Control>()]
}

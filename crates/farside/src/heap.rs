//! Remote heaps: blocks of memory at another worker, allocated without asking there.
//!
//! [`Worker::allocate_at`](crate::Worker::allocate_at) asks the owner's service thread for every piece of memory. A [`RemoteHeap`] asks once. It gets a
//! large piece, and from then on the worker that opened it, its *initiator*, hands out blocks of it by its own books. The
//! worker at the other end, the *peer*, gets the name of a block by whatever way, reads it in its own memory, and frees it; the
//! initiator hears of that now and then.
//!
//! ```no_run
//! # use farside::prelude::*;
//! use farside::heap::{HeapOptions, RemoteBlock, RemoteHeap};
//!
//! # fn example(me: &Worker) -> farside::Result<()> {
//! let heap = RemoteHeap::open(me, me.neighbor(1), HeapOptions::new(1 << 20))?;
//! for round in 0..1000_u32 {
//!     let mut block = heap.alloc(64)?;
//!     // The local view: a slice of this worker's memory.
//!     block.local_mut().fill(round as u8);
//!     block.put()?;
//!     // From here on it is the peer's.
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
//! rmalloc (slides 17 to 22) has the idea and the names of its three parts: *R*, the memory at the peer; *S*, the shadow, which is the initiator's books of
//! it; and *L*, memory of the initiator in which each block has its [local view](Block::local). There may be any number of heaps between two
//! workers, in both directions.
//!
//! # Who frees
//!
//! A [`Block`] in the hands of the initiator is its own: dropped, it is free again, and that is local. [Handed over](Block::hand_over) it is the
//! peer's, which [frees it](OwnedBlock::free) when it has used it. A block that is [lent](Block::lend) is read and written by the peer, and stays
//! the initiator's: for answers, which it [gets](Block::get). What was handed over to somebody who could not be told of it is
//! [taken back](RemoteHeap::take_back).
//!
//! ```no_run
//! # use farside::prelude::*;
//! # use farside::heap::{HeapOptions, RemoteHeap};
//! # fn example(me: &Worker) -> farside::Result<()> {
//! # let heap = RemoteHeap::open(me, me.neighbor(1), HeapOptions::new(1 << 20))?;
//! let mut answer = heap.alloc(8)?;
//! let place = answer.lend()?;
//! let write = |there: &Worker, place: farside::heap::RemoteBlock| place.open(there).and_then(|place| place.write_at(0, &[7; 8])).is_ok();
//! assert!(me.call_return(heap.peer(), place, write)?.wait()?);
//! answer.get()?;
//! assert_eq!(answer.local(), [7; 8]);
//! # Ok(())
//! # }
//! ```
//!
//! # When the initiator hears of it
//!
//! | [`Synchronisation`] | the peer tells | goes with |
//! |---|---|---|
//! | `Deferred` | of many blocks in one transfer: sorted, neighbours joined | [`Fit::Next`] (the default), [`Fit::First`] |
//! | `Immediate` | of each block as it is freed, in one cache line | [`Fit::Best`], [`Fit::Worst`] |
//!
//! Either way it costs the initiator no message: what the peer tells lies in the initiator's memory, where every allocation looks first. When there is
//! no room, [`alloc`](RemoteHeap::alloc) asks the peer for what it has freed and not told, and says
//! [`HeapError::Exhausted`] only then; [`try_alloc`](RemoteHeap::try_alloc) does not ask, and [`alloc_within`](RemoteHeap::alloc_within) waits for the peer
//! to free something.
//!
//! Between processes of different binaries blocks are allocated, put, handed over, opened and freed, and the peer tells of them, for none of that
//! is a call. What asks is one: there [`alloc`](RemoteHeap::alloc) of an exhausted heap, [`synchronise`](RemoteHeap::synchronise) and
//! [`close`](RemoteHeap::close) of a heap with blocks at the peer are [`DifferentBinaries`](crate::Error::DifferentBinaries), so use
//! `Immediate` and [`try_alloc`](RemoteHeap::try_alloc). And the memory of a heap that is closed stays with it until the job ends.
//!
//! # What cannot go wrong
//!
//! Nobody but the initiator allocates: a [`RemoteHeap`] stays on its worker's thread. Blocks are freed once: what is freed twice, taken back,
//! stale, damaged or of another heap is an error on whichever side it turns up, for every block has a number that no other block of the heap ever
//! had, and it is compared where the block is. What the peer writes to the initiator is checked entry by entry against
//! the books before any of it is believed. When either end dies the other gets [`PeerLost`](crate::Error::PeerLost), the initiator's books stay
//! right, and the memory at a living peer comes back. The room's README has the protocol.
//!
//! Over a fabric that does not map the peer's memory, a name that was lent and outlives its block is noticed only when the
//! place holds another block.

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
pub(crate) use owner::OwnedHeaps;
pub use remote_heap::RemoteHeap;
pub use report::HeapReport;

//! Heaps, pipes, locks, task pools, sections of memory and notifications of a job.
//!
//! All of this stands on the workers of a [`farside`] job, and a program that uses none of it need
//! not compile it. There is nothing to switch on: a process has the state of a module if its
//! program uses the module.
//!
//! | to | see |
//! |---|---|
//! | allocate in another worker's memory without asking it | [`heap`] |
//! | stream messages, values or bytes from one worker to another | [`pipe`], [`OpenPipes`](pipe::OpenPipes) |
//! | take turns: locks of the job, and combining within a process | [`sync`] |
//! | move values that are not contiguous | [`section`] |
//! | take the first of several signals that arrived, by its number | [`notifications`] |
//! | share tasks that make further tasks among all workers | [`tasks`] |
//!
//! # A heap and a pipe
//!
//! A worker that sends to one peer repeatedly need not ask it for memory each time. A
//! [`pipe`] has slots in the reader's memory, which are reused in turn. A [remote
//! heap](heap) has blocks there that are allocated here, and freed by the worker that used
//! them there.
//!
//! ```no_run
//! use farside_kit::heap::{HeapOptions, RemoteBlock, RemoteHeap};
//! # use farside::prelude::*;
//! # use farside_kit::prelude::*;
//! # fn level(me: &Worker) -> farside::Result<()> {
//! let (next, previous) = (me.neighbor(1), me.neighbor(me.worker_count() - 1));
//! let mut names = me.pipe(next).sender::<RemoteBlock>()?;
//! let mut from_previous = me.pipe(previous).receiver::<RemoteBlock>()?;
//!
//! let heap = RemoteHeap::open(me, next, HeapOptions::new(1 << 20))?;
//! let mut block = heap.alloc(64)?;
//! block.local_mut().fill(7);
//! block.put()?;
//! names.send(block.hand_over()?)?;
//!
//! let block = from_previous.recv()?.open(me)?;
//! assert_eq!(block.to_vec()?, [7; 64]);
//! block.free()?;
//! // Waits until its blocks are freed.
//! Ok(heap.close()?)
//! # }
//! ```

pub mod heap;
pub mod notifications;
pub mod pipe;
mod room_error;
pub mod section;
pub mod sync;
pub mod tasks;

/// The methods that this crate adds to workers and to global memory.
pub mod prelude {
    pub use crate::pipe::OpenPipes;
    pub use crate::section::MoveSections;
}

/// The messages of this crate, for tests of their decoders.
#[doc(hidden)]
pub fn message_kinds() -> Vec<farside::wire::check::MessageKind> {
    [heap::message_kinds(), pipe::message_kinds()].concat()
}

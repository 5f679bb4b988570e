//! Remote heaps.

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

//! Registered memory for programs, from the large pieces that a transport registers to the small ones that are sent.
//!
//! Registering costs system calls, so it is done in large pieces, [`Chunk`]s, which allocators cut up. Where chunks come from is a
//! [`ChunkSource`].

mod allocator;
mod free_space;
mod growth;
mod heap;
mod node;
mod size_class;

pub use allocator::{Allocator, AllocatorOptions, AllocatorReport, Registered};
pub use free_space::{Fit, FreeSpace};
pub use growth::Growth;
pub use heap::{Block, Heap, HeapOptions};
pub use node::{NodeMemory, NodeOptions, NodeReport, SuperchunkReport};

use std::fmt;
use std::sync::Arc;

use crate::region::LocalRegion;
use crate::transport::{FabricError, Transport};

/// A piece of registered memory of this process.
///
/// Whoever holds it decides what the bytes are for. Peers that know the region's key may write them at any moment.
#[derive(Clone, Debug)]
pub struct Chunk {
    region: LocalRegion,
    offset: u64,
    bytes: usize,
}

impl Chunk {
    /// So many bytes of a region, from an offset on.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`] when the region has not so many.
    pub fn new(region: LocalRegion, offset: u64, bytes: usize) -> Result<Self, FabricError> {
        region.key().check(offset, bytes)?;
        Ok(Self { region, offset, bytes })
    }

    /// The region that it is a piece of.
    pub fn region(&self) -> &LocalRegion {
        &self.region
    }

    /// Where it begins in the region.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Where allocators get their chunks from.
pub trait ChunkSource: fmt::Debug + Send + Sync {
    /// A chunk of at least so many bytes, all zero or not.
    ///
    /// # Errors
    /// [`FabricError::Memory`] when there is no memory left; [`FabricError::MemoryLimit`] when the source is to give no more.
    fn take(&self, bytes: usize) -> Result<Chunk, FabricError>;

    /// Gives a chunk back that this source gave out, and that nobody uses any more.
    fn give_back(&self, chunk: Chunk);
}

/// Registers every chunk by itself, and deregisters it when it is given back.
impl ChunkSource for Arc<dyn Transport> {
    fn take(&self, bytes: usize) -> Result<Chunk, FabricError> {
        let region = self.register(bytes)?;
        Ok(Chunk { bytes: region.key().bytes as usize, offset: 0, region })
    }

    fn give_back(&self, chunk: Chunk) {
        let deregistered = self.deregister(chunk.region.key());
        debug_assert!(deregistered.is_ok(), "a chunk is given back once, to where it came from");
    }
}

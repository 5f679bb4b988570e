//! Registered memory for programs, from the large pieces that a transport registers to the small
//! ones that are sent.
//!
//! Registering memory costs system calls. It is therefore done in large pieces, [`Chunk`]s, which
//! allocators divide. A [`ChunkSource`] supplies the chunks.

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
/// Its holder decides the use of its bytes. Peers that know the region's key may write them at any
/// time.
#[derive(Clone, Debug)]
pub struct Chunk {
    region: LocalRegion,
    offset: u64,
    bytes: usize,
    is_zero: bool,
}

impl Chunk {
    /// The `bytes` bytes of a region from `offset` on.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`] if the region is too small.
    pub fn new(region: LocalRegion, offset: u64, bytes: usize) -> Result<Self, FabricError> {
        region.key().check(offset, bytes)?;
        Ok(Self { region, offset, bytes, is_zero: false })
    }

    /// The same chunk. Its source says whether its memory is new, so that all bytes are zero.
    pub fn with_zeros(self, is_zero: bool) -> Self {
        Self { is_zero, ..self }
    }

    /// The region that contains the chunk.
    pub fn region(&self) -> &LocalRegion {
        &self.region
    }

    /// The offset of the chunk in the region.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A source of chunks for allocators.
pub trait ChunkSource: fmt::Debug + Send + Sync {
    /// Returns a chunk of at least `bytes` bytes. Its contents are unspecified.
    ///
    /// # Errors
    /// [`FabricError::Memory`] if there is no memory left; [`FabricError::MemoryLimit`] if the
    /// source may not supply more.
    fn take(&self, bytes: usize) -> Result<Chunk, FabricError>;

    /// Takes back an unused chunk that came from this source.
    fn give_back(&self, chunk: Chunk);
}

/// Registers every chunk separately, and deregisters it when it is given back.
impl ChunkSource for Arc<dyn Transport> {
    fn take(&self, bytes: usize) -> Result<Chunk, FabricError> {
        let region = self.register(bytes)?;
        Ok(Chunk { bytes: region.key().bytes as usize, offset: 0, region, is_zero: true })
    }

    fn give_back(&self, chunk: Chunk) {
        let deregistered = self.deregister(chunk.region.key());
        debug_assert!(deregistered.is_ok(), "a chunk is given back once, to its source");
    }
}

//! Blocks of any size, cut from chunks that are taken on demand.

use std::sync::Arc;

use super::free_space::{Fit, FreeSpace};
use super::{Chunk, ChunkSource, Growth};
use crate::region::LocalRegion;
use crate::transport::{FabricError, RemoteKey};

/// Options of a [`Heap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapOptions {
    /// The choice among the free pieces that are large enough.
    pub fit: Fit,
    /// The unit: blocks begin on multiples of it in their chunk, and are multiples of it.
    pub unit_bytes: usize,
    /// Size of the first chunk.
    pub chunk_bytes: usize,
    /// The sizes of the next chunks.
    pub growth: Growth,
    /// Maximum size of a chunk, unless a single block is larger.
    pub chunk_bytes_max: usize,
    /// Maximum size of all chunks together.
    pub limit_bytes: usize,
}

impl Default for HeapOptions {
    /// Best fit in units of a cache line, in chunks of 2 MiB to 64 MiB, without limit.
    fn default() -> Self {
        Self {
            fit: Fit::Best,
            unit_bytes: 64,
            chunk_bytes: 2 << 20,
            growth: Growth::Exponential,
            chunk_bytes_max: 64 << 20,
            limit_bytes: usize::MAX,
        }
    }
}

/// Number of bits of an address that count units within a chunk; the other bits hold the number of
/// the chunk. So chunks are never neighbours, and blocks of different chunks are never joined.
const UNIT_BITS: u32 = 32;

/// A block of a [`Heap`]. It is given back by value, so that this happens only once.
#[derive(Debug)]
#[must_use = "a block that is dropped is never given back"]
pub struct Block {
    pub(super) address: u64,
    pub(super) units: u32,
    pub(super) is_zero: bool,
}

impl Block {
    /// Returns whether the block was cut from new memory, so that its bytes were zero when it was
    /// allocated.
    pub fn is_zero(&self) -> bool {
        self.is_zero
    }
}

/// An allocator over chunks of registered memory, for exclusive use.
///
/// Its bookkeeping lies outside that memory: peers may write the memory at any time, and cannot
/// corrupt the bookkeeping.
///
/// *Cost*: some hundred nanoseconds per block, in a tree of the free pieces; first and next fit
/// visit one after the other. A new chunk costs what the source needs for it.
/// [`Allocator`](super::Allocator) is faster for common sizes.
///
/// Seriema §4.2 calls it the general allocator.
#[derive(Debug)]
pub struct Heap {
    source: Arc<dyn ChunkSource>,
    options: HeapOptions,
    free: FreeSpace,
    /// The chunks by number. `None` for one that was given back.
    chunks: Vec<Option<Chunk>>,
    held_bytes: usize,
    used_bytes: usize,
    /// Base-two logarithm of the unit.
    unit_shift: u32,
}

impl Heap {
    /// Creates a heap that takes its chunks from `source`, the first one on demand.
    ///
    /// # Panics
    /// If the unit is not a power of two, or the first chunk is smaller than a unit.
    #[track_caller]
    pub fn new(source: Arc<dyn ChunkSource>, options: HeapOptions) -> Self {
        assert!(options.unit_bytes.is_power_of_two(), "a unit is a power of two");
        assert!(options.chunk_bytes >= options.unit_bytes, "a chunk has room for a unit");
        let (free, unit_shift) = (FreeSpace::default(), options.unit_bytes.ilog2());
        Self { source, options, free, chunks: Vec::new(), held_bytes: 0, used_bytes: 0, unit_shift }
    }

    /// The options of this heap.
    pub fn options(&self) -> &HeapOptions {
        &self.options
    }

    /// Allocates a block of at least `bytes` bytes, and at least one unit. Its contents are
    /// unspecified.
    ///
    /// # Errors
    /// [`FabricError::MemoryLimit`] if the heap would exceed its limit; errors of its source.
    pub fn allocate(&mut self, bytes: usize) -> Result<Block, FabricError> {
        if let Some(block) = self.take_free(bytes) {
            return Ok(block);
        }
        let units = self.units(bytes)?;
        let is_zero = self.grow(units as usize * self.options.unit_bytes)?;
        // No other chunk has room for it.
        Ok(Block { is_zero, ..self.take_free(bytes).expect("the new chunk is large enough") })
    }

    /// Allocates a block like [`allocate`](Self::allocate), if no further chunk is necessary.
    pub(super) fn take_free(&mut self, bytes: usize) -> Option<Block> {
        let units = self.units(bytes).ok()?;
        let address = self.free.take(units.into(), self.options.fit)?;
        self.used_bytes += units as usize * self.options.unit_bytes;
        Some(Block { address, units, is_zero: false })
    }

    fn units(&self, bytes: usize) -> Result<u32, FabricError> {
        u32::try_from(self.units_of(bytes).max(1)).map_err(|_| FabricError::MemoryLimit {
            bytes,
            held: self.held_bytes,
            // The size is larger than the number of units can express.
            limit: self.options.limit_bytes.min((u32::MAX as usize).saturating_mul(self.options.unit_bytes)),
        })
    }

    /// The number of units that hold `bytes` bytes.
    #[inline]
    pub(super) fn units_of(&self, bytes: usize) -> usize {
        // A division by a power of two that is unknown to the compiler costs more than all the rest
        // of a fast allocation.
        let rest = bytes & (self.options.unit_bytes - 1);
        (bytes >> self.unit_shift) + usize::from(rest > 0)
    }

    fn beyond(&self, bytes: usize) -> FabricError {
        FabricError::MemoryLimit { bytes, held: self.held_bytes, limit: self.options.limit_bytes }
    }

    /// Takes a chunk with room for a block. Returns whether its bytes are zero.
    fn grow(&mut self, bytes: usize) -> Result<bool, FabricError> {
        let HeapOptions { growth, chunk_bytes, chunk_bytes_max, limit_bytes, unit_bytes, .. } = self.options;
        // Chunks are whole units.
        let left = limit_bytes.saturating_sub(self.held_bytes) / unit_bytes * unit_bytes;
        if bytes > left {
            return Err(self.beyond(bytes));
        }
        let wanted = growth.step(chunk_bytes, self.held_bytes, chunk_bytes_max).max(bytes).min(left);
        let chunk = match self.take_chunk(wanted, left) {
            // A smaller chunk may still be available.
            Err(FabricError::MemoryLimit { .. } | FabricError::Memory(_)) if wanted > bytes => {
                self.take_chunk(bytes, left)?
            }
            taken => taken?,
        };
        let units = (chunk.bytes() / unit_bytes) as u64;
        let number = self.chunks.iter().position(Option::is_none).unwrap_or_else(|| {
            self.chunks.push(None);
            self.chunks.len() - 1
        });
        let is_zero = chunk.is_zero;
        self.held_bytes += chunk.bytes();
        self.chunks[number] = Some(chunk);
        self.free.release((number as u64) << UNIT_BITS, units);
        Ok(is_zero)
    }

    /// Takes a chunk from the source. It may be larger than requested, but not larger than `max`,
    /// nor than units can count.
    fn take_chunk(&self, bytes: usize, max: usize) -> Result<Chunk, FabricError> {
        let chunk = self.source.take(bytes)?;
        let can_be_counted = u32::try_from(chunk.bytes() / self.options.unit_bytes).is_ok();
        if chunk.bytes() <= max && can_be_counted {
            return Ok(chunk);
        }
        self.source.give_back(chunk);
        Err(self.beyond(bytes))
    }

    /// Takes a block back.
    ///
    /// # Panics
    /// If the block is not of this heap.
    #[track_caller]
    pub fn give_back(&mut self, block: Block) {
        assert!(self.chunk_of(&block).is_some(), "a block is given back to its own heap");
        self.free.release(block.address, block.units.into());
        self.used_bytes -= self.block_bytes(&block);
    }

    #[inline]
    fn chunk_of(&self, block: &Block) -> Option<&Chunk> {
        self.chunks.get((block.address >> UNIT_BITS) as usize)?.as_ref()
    }

    /// The region that contains a block, and the block's offset in it.
    ///
    /// # Panics
    /// If the block is not of this heap.
    #[track_caller]
    #[inline]
    pub fn place_of(&self, block: &Block) -> (&LocalRegion, u64) {
        let chunk = self.chunk_of(block).expect("the block is of this heap");
        let unit = block.address & ((1 << UNIT_BITS) - 1);
        (chunk.region(), chunk.offset() + unit * self.options.unit_bytes as u64)
    }

    /// The size of a block, a multiple of the unit.
    #[inline]
    pub fn block_bytes(&self, block: &Block) -> usize {
        block.units as usize * self.options.unit_bytes
    }

    /// The block that was given out at this place.
    pub(super) fn block_at(&self, key: RemoteKey, offset: u64, bytes: usize) -> Option<Block> {
        let holds = |chunk: &Chunk| chunk.region().key() == key && chunk.offset() <= offset;
        let ends = |chunk: &Chunk| offset + bytes as u64 <= chunk.offset() + chunk.bytes() as u64;
        let number =
            self.chunks.iter().position(|chunk| chunk.as_ref().is_some_and(|chunk| holds(chunk) && ends(chunk)))?;
        let first = (offset - self.chunks[number].as_ref()?.offset()) / self.options.unit_bytes as u64;
        Some(Block { address: (number as u64) << UNIT_BITS | first, units: self.units(bytes).ok()?, is_zero: false })
    }

    /// Gives unused chunks back. Returns their size in bytes.
    pub fn trim(&mut self) -> usize {
        let mut freed = 0;
        for (number, slot) in self.chunks.iter_mut().enumerate() {
            let is_unused = |chunk: &mut Chunk| {
                let units = (chunk.bytes() / self.options.unit_bytes) as u64;
                self.free.take_whole((number as u64) << UNIT_BITS, units)
            };
            if let Some(chunk) = slot.take_if(is_unused) {
                freed += chunk.bytes();
                self.source.give_back(chunk);
            }
        }
        self.held_bytes -= freed;
        freed
    }

    /// The chunks that the heap holds.
    pub fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.iter().flatten()
    }

    /// Total size of all chunks.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Total size of all blocks in use.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Size of the largest block that can be allocated without another chunk.
    pub fn largest_free_bytes(&self) -> usize {
        self.free.longest() as usize * self.options.unit_bytes
    }
}

impl Drop for Heap {
    /// Gives all chunks back: blocks end with their heap.
    fn drop(&mut self) {
        self.chunks.drain(..).flatten().for_each(|chunk| self.source.give_back(chunk));
    }
}

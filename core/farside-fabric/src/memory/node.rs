//! Memory of one NUMA node: registered in superchunks, given out in chunks.

use std::sync::{Arc, Mutex};

use farside_sys::shm::{MemoryPreference, PageKind, Pages, SharedMemory};
use farside_sys::topology::NumaNodeId;

use super::{Chunk, ChunkSource, Fit, Growth, Heap, HeapOptions};
use crate::clock::lock;
use crate::region::LocalRegion;
use crate::transport::{FabricError, RegionKind, RemoteKey, Transport};

/// Options of a node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeOptions {
    /// The node; `None` leaves the choice to the system.
    pub node: Option<NumaNodeId>,
    /// The largest pages to try.
    pub pages: PageKind,
    /// True if no smaller pages will do: see [`MemoryPreference::requires_pages`]. Chunks are then
    /// multiples of a page.
    pub requires_pages: bool,
    /// The unit: chunks are multiples of it.
    pub chunk_bytes: usize,
    /// Size of the first superchunk.
    pub superchunk_bytes: usize,
    /// The sizes of the next superchunks.
    pub growth: Growth,
    /// Maximum size of a superchunk, unless a single chunk is larger.
    pub superchunk_bytes_max: usize,
    /// Maximum size of all superchunks together.
    pub limit_bytes: usize,
    /// True if pages come when they are first accessed: see [`MemoryPreference::on_demand`].
    pub on_demand: bool,
}

impl Default for NodeOptions {
    /// Chunks of 2 MiB. The first superchunk has room for one, and the sizes double from there to 1
    /// GiB. A small program therefore takes little memory. A program that needs much soon takes
    /// pieces of 1 GiB, the size with which Seriema begins. No limit, any node, and the largest
    /// available pages.
    fn default() -> Self {
        Self {
            node: None,
            pages: PageKind::Gigantic,
            requires_pages: false,
            chunk_bytes: 2 << 20,
            superchunk_bytes: 2 << 20,
            growth: Growth::Exponential,
            superchunk_bytes_max: 1 << 30,
            limit_bytes: usize::MAX,
            on_demand: false,
        }
    }
}

/// The allocator of one NUMA node, from which other allocators take their chunks.
///
/// It creates memory in large pieces, *superchunks*, on the largest pages that the machine grants
/// and on its node. The transport registers each superchunk once. Chunks are cut from superchunks,
/// and reused after they are given back. A chunk that fits into no superchunk gets one of its own
/// size, however large. A chunk may therefore exceed 1 GiB, but huge pages of 1 GiB are used only
/// for whole multiples.
///
/// What the machine refuses is omitted; the [report](Self::report) tells what each superchunk got.
///
/// ```
/// # use std::sync::Arc;
/// # use farside_fabric::memory::{ChunkSource, NodeMemory, NodeOptions};
/// # use farside_fabric::{ProcessId, Transport, sim::{SimFabric, SimOptions}};
/// # let fabric = SimFabric::new(1, 4096, 1, SimOptions::default())?;
/// # let transport: Arc<dyn Transport> = fabric.endpoint(ProcessId::new(0));
/// let memory = Arc::new(NodeMemory::new(transport, NodeOptions::default()));
/// let chunk = memory.take(2 << 20)?;
/// for superchunk in memory.report().superchunks {
///     println!("{} bytes on {}", superchunk.bytes, superchunk.pages.kind);
/// }
/// memory.give_back(chunk);
/// # Ok::<(), farside_fabric::FabricError>(())
/// ```
///
/// *Cost*: a lock and some hundred nanoseconds for an available chunk. A new superchunk costs the
/// kernel's time to zero it (about 0.7 s for 1 GiB; six times as much if it must assemble
/// transparent huge pages), and the transport's time to register it.
///
/// Seriema §4.2 calls it the RDMAAllocator, which never frees. Here whole unused superchunks can be
/// [given back](Self::trim).
#[derive(Debug)]
pub struct NodeMemory {
    options: NodeOptions,
    heap: Mutex<Heap>,
}

impl NodeMemory {
    /// Creates the memory of a node, of which nothing is taken yet.
    ///
    /// # Panics
    /// If the size of chunks is not a power of two, or is larger than the first superchunk.
    #[track_caller]
    pub fn new(transport: Arc<dyn Transport>, options: NodeOptions) -> Self {
        let NodeOptions { node, pages, requires_pages, on_demand, .. } = options;
        let preference = MemoryPreference { pages, requires_pages, node, on_demand, ..MemoryPreference::default() };
        let heap = HeapOptions {
            // Chunks are taken from the front, so that those at the end stay unused as a whole.
            fit: Fit::First,
            unit_bytes: options.chunk_bytes,
            chunk_bytes: options.superchunk_bytes,
            growth: options.growth,
            chunk_bytes_max: options.superchunk_bytes_max,
            limit_bytes: options.limit_bytes,
        };
        let superchunks = Arc::new(Superchunks { transport, preference, multiple_of: options.chunk_bytes });
        Self { options, heap: Mutex::new(Heap::new(superchunks, heap)) }
    }

    /// The options of this memory.
    pub fn options(&self) -> &NodeOptions {
        &self.options
    }

    /// The memory that it holds, and the pages of that memory.
    pub fn report(&self) -> NodeReport {
        let heap = lock(&self.heap);
        let superchunks = heap.chunks().map(|chunk| {
            let memory = chunk.region().memory();
            SuperchunkReport { bytes: chunk.bytes(), pages: memory.pages(), node: memory.node() }
        });
        NodeReport {
            node: self.options.node,
            registered_bytes: heap.held_bytes(),
            used_bytes: heap.used_bytes(),
            superchunks: superchunks.collect(),
        }
    }

    /// The superchunk with this key, if it is part of this memory.
    pub fn superchunk(&self, key: RemoteKey) -> Option<LocalRegion> {
        lock(&self.heap).chunks().map(Chunk::region).find(|region| region.key() == key).cloned()
    }

    /// Deregisters the superchunks of which no chunk is in use. Returns their size in bytes.
    pub fn trim(&self) -> usize {
        lock(&self.heap).trim()
    }
}

impl ChunkSource for NodeMemory {
    fn take(&self, bytes: usize) -> Result<Chunk, FabricError> {
        let mut heap = lock(&self.heap);
        let block = heap.allocate(bytes)?;
        let bytes = heap.block_bytes(&block);
        let (region, offset) = heap.place_of(&block);
        Ok(Chunk::new(region.clone(), offset, bytes)?.with_zeros(block.is_zero()))
    }

    /// # Panics
    /// If the chunk did not come from here, or was given back before.
    fn give_back(&self, chunk: Chunk) {
        let mut heap = lock(&self.heap);
        let block = heap.block_at(chunk.region().key(), chunk.offset(), chunk.bytes());
        heap.give_back(block.expect("a chunk is given back once, to its source"));
    }
}

/// The memory that a node's allocator holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeReport {
    /// The requested node.
    pub node: Option<NumaNodeId>,
    /// Total size of all superchunks.
    pub registered_bytes: usize,
    /// Total size of all chunks in use.
    pub used_bytes: usize,
    /// The superchunks.
    pub superchunks: Vec<SuperchunkReport>,
}

/// Properties of one superchunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SuperchunkReport {
    /// Its size.
    pub bytes: usize,
    /// The pages that it got.
    pub pages: Pages,
    /// The node that contains it. `None` if none was requested, if it lies on several nodes, or if
    /// the kernel does not report it.
    pub node: Option<NumaNodeId>,
}

/// Creates superchunks, and registers each.
#[derive(Debug)]
struct Superchunks {
    transport: Arc<dyn Transport>,
    preference: MemoryPreference,
    /// The sizes of superchunks are multiples of this.
    multiple_of: usize,
}

impl ChunkSource for Superchunks {
    fn take(&self, bytes: usize) -> Result<Chunk, FabricError> {
        // An overflow keeps the size, and the system then reports that there is no such memory.
        let bytes = bytes.checked_next_multiple_of(self.multiple_of).unwrap_or(bytes);
        let memory = Arc::new(SharedMemory::create_as("farside-memory", bytes, self.preference)?);
        let region = self.transport.register_memory(memory, bytes, RegionKind::Shared)?;
        Ok(Chunk::new(region, 0, bytes)?.with_zeros(true))
    }

    fn give_back(&self, chunk: Chunk) {
        let deregistered = self.transport.deregister(chunk.region().key());
        debug_assert!(deregistered.is_ok(), "a superchunk is given back once");
    }
}

//! Memory of one NUMA node: registered in superchunks, given out in chunks.

use std::sync::{Arc, Mutex};

use farside_sys::shm::{PageKind, Pages, SharedMemory, Wish};
use farside_sys::topology::NumaNodeId;

use super::{Chunk, ChunkSource, Fit, Growth, Heap, HeapOptions};
use crate::clock::lock;
use crate::region::LocalRegion;
use crate::transport::{FabricError, RemoteKey, Transport};

/// What the memory of a node is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeOptions {
    /// The node; `None` for wherever the system puts it.
    pub node: Option<NumaNodeId>,
    /// The largest pages that are tried.
    pub pages: PageKind,
    /// Chunks are multiples of this.
    pub chunk_bytes: usize,
    /// The size of the first superchunk.
    pub superchunk_bytes: usize,
    /// How the next ones are sized.
    pub growth: Growth,
    /// No superchunk is larger, unless one chunk is.
    pub superchunk_bytes_max: usize,
    /// All superchunks together are not larger.
    pub limit_bytes: usize,
}

impl Default for NodeOptions {
    /// Chunks of 2 MiB. The first superchunk has room for one, and they double from there to 1 GiB: a small program takes little, and one
    /// that needs much soon takes it in the pieces of 1 GiB that Seriema begins with. No limit; any node; the largest pages there are.
    fn default() -> Self {
        Self {
            node: None,
            pages: PageKind::Gigantic,
            chunk_bytes: 2 << 20,
            superchunk_bytes: 2 << 20,
            growth: Growth::Exponential,
            superchunk_bytes_max: 1 << 30,
            limit_bytes: usize::MAX,
        }
    }
}

/// The allocator of one NUMA node, from which other allocators get their chunks.
///
/// It makes memory in large pieces, *superchunks*, on the largest pages that the machine gives it and on its node, and has the
/// transport register each once. Chunks are cut from them, and given out again when they come back. A chunk that no superchunk has
/// room for makes one of its own size, however large: more than 1 GiB is no special case, but huge pages of 1 GiB are only used for whole multiples.
///
/// What the machine refuses is done without; the [report](Self::report) says what each superchunk got.
///
/// ```
/// # use std::sync::Arc;
/// # use farside_fabric::memory::{ChunkSource, NodeMemory, NodeOptions};
/// # use farside_fabric::{ProcessId, Transport, sim::{SimFabric, SimOptions}};
/// # let transport: Arc<dyn Transport> = SimFabric::new(1, 4096, 1, SimOptions::default())?.endpoint(ProcessId::new(0));
/// let memory = Arc::new(NodeMemory::new(transport, NodeOptions::default()));
/// let chunk = memory.take(2 << 20)?;
/// for superchunk in memory.report().superchunks {
///     println!("{} bytes on {}", superchunk.bytes, superchunk.pages.kind);
/// }
/// memory.give_back(chunk);
/// # Ok::<(), farside_fabric::FabricError>(())
/// ```
///
/// *Cost*: a lock and some hundred nanoseconds for a chunk that is there. A new superchunk costs what the kernel takes to zero it
/// (about 0.7 s for 1 GiB; six times as much where it must gather transparent huge pages), and what the transport takes to register it.
///
/// Seriema §4.2 calls it the RDMAAllocator. It never frees; here whole superchunks that are unused can be [given
/// back](Self::trim).
#[derive(Debug)]
pub struct NodeMemory {
    options: NodeOptions,
    heap: Mutex<Heap>,
}

impl NodeMemory {
    /// The memory of a node, of which none is taken yet.
    ///
    /// # Panics
    /// When the size of chunks is no power of two, or larger than the first superchunk.
    #[track_caller]
    pub fn new(transport: Arc<dyn Transport>, options: NodeOptions) -> Self {
        let wish = Wish { pages: options.pages, node: options.node };
        let heap = HeapOptions {
            // Chunks are taken from the front, so that those at the end are left, whole.
            fit: Fit::First,
            unit_bytes: options.chunk_bytes,
            chunk_bytes: options.superchunk_bytes,
            growth: options.growth,
            chunk_bytes_max: options.superchunk_bytes_max,
            limit_bytes: options.limit_bytes,
        };
        let superchunks = Arc::new(Superchunks { transport, wish, multiple_of: options.chunk_bytes });
        Self { options, heap: Mutex::new(Heap::new(superchunks, heap)) }
    }

    /// What it was made with.
    pub fn options(&self) -> &NodeOptions {
        &self.options
    }

    /// What it holds, and on what pages.
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

    /// The superchunk of this key, if it is one of this memory's.
    pub fn superchunk(&self, key: RemoteKey) -> Option<LocalRegion> {
        lock(&self.heap).chunks().map(Chunk::region).find(|region| region.key() == key).cloned()
    }

    /// Deregisters the superchunks of which no chunk is in use. Says how many bytes they had.
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
        Chunk::new(region.clone(), offset, bytes)
    }

    /// # Panics
    /// When the chunk did not come from here, or was given back before.
    fn give_back(&self, chunk: Chunk) {
        let mut heap = lock(&self.heap);
        let block = heap.block_at(chunk.region().key(), chunk.offset(), chunk.bytes());
        heap.give_back(block.expect("a chunk goes back to where it came from"));
    }
}

/// What the memory of a node holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeReport {
    /// The node that was asked for.
    pub node: Option<NumaNodeId>,
    /// The size of all superchunks.
    pub registered_bytes: usize,
    /// The size of all chunks that are given out.
    pub used_bytes: usize,
    /// Each superchunk.
    pub superchunks: Vec<SuperchunkReport>,
}

/// What one superchunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SuperchunkReport {
    /// Its size.
    pub bytes: usize,
    /// The pages that it got.
    pub pages: Pages,
    /// The node that it is on; `None` if none was asked for, or it is on several, or the kernel does not say.
    pub node: Option<NumaNodeId>,
}

/// Makes superchunks, and registers each.
#[derive(Debug)]
struct Superchunks {
    transport: Arc<dyn Transport>,
    wish: Wish,
    /// Their sizes are multiples of this.
    multiple_of: usize,
}

impl ChunkSource for Superchunks {
    fn take(&self, bytes: usize) -> Result<Chunk, FabricError> {
        // Beyond the end of the address space there is no memory either: the system says so.
        let bytes = bytes.checked_next_multiple_of(self.multiple_of).unwrap_or(bytes);
        let memory = Arc::new(SharedMemory::create_as("farside-memory", bytes, self.wish)?);
        Chunk::new(self.transport.register_memory(memory, bytes)?, 0, bytes)
    }

    fn give_back(&self, chunk: Chunk) {
        let deregistered = self.transport.deregister(chunk.region().key());
        debug_assert!(deregistered.is_ok(), "a superchunk is given back once");
    }
}

//! The allocator of one thread, and its buffers.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use farside_sys::racy;

use super::heap::{Block, Heap, HeapOptions};
use super::{ChunkSource, size_class};
use crate::clock::lock;
use crate::transport::{FabricError, RemoteKey};

/// Options of an [`Allocator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocatorOptions {
    /// The options of its heap.
    pub heap: HeapOptions,
    /// Maximum number of bytes of freed blocks that are cached by size, to be reused at once. With
    /// 0 there is no cache: the heap's [`Fit`](super::Fit) then finds every block, in its exact
    /// size.
    pub cache_bytes: usize,
}

impl Default for AllocatorOptions {
    fn default() -> Self {
        Self { heap: HeapOptions::default(), cache_bytes: 1 << 20 }
    }
}

/// An allocator of registered memory for one thread.
///
/// Its buffers can be sent to any thread, and return to the allocator when they are dropped there.
///
/// ```
/// # use std::sync::Arc;
/// # use farside_fabric::memory::{Allocator, AllocatorOptions, NodeMemory, NodeOptions};
/// # use farside_fabric::{ProcessId, Transport, sim::{SimFabric, SimOptions}};
/// # let fabric = SimFabric::new(1, 4096, 1, SimOptions::default())?;
/// # let transport: Arc<dyn Transport> = fabric.endpoint(ProcessId::new(0));
/// let node = Arc::new(NodeMemory::new(transport, NodeOptions::default()));
/// let allocator = Allocator::new(node, AllocatorOptions::default());
/// let buffer = allocator.allocate(1000)?;
/// buffer.write_at(0, b"registered")?;
/// let elsewhere = std::thread::spawn(move || drop(buffer));
/// # elsewhere.join().unwrap();
/// # Ok::<(), farside_fabric::FabricError>(())
/// ```
///
/// *Cost*: a cached block of up to 1024 units (64 KiB) comes from a list: about 18 ns, and 23 ns
/// including its return. Sizes are rounded up for the cache, by a quarter at most. The [`Heap`]
/// finds other blocks.
///
/// Seriema §4.2, the general allocator.
pub struct Allocator {
    shared: Arc<Shared>,
    /// Keeps the allocator on its thread.
    thread: PhantomData<*const ()>,
}

/// State that an allocator shares with its buffers.
struct Shared {
    /// The thread that created the allocator.
    owner: ThreadId,
    /// Accessed only by the owner, and by the thread that drops the last reference.
    local: RefCell<Local>,
    /// Blocks returned by other threads. Written by those threads, emptied by the owner.
    returned: Mutex<Vec<Block>>,
}

// SAFETY: all fields but `local` are `Sync`. `local` is accessed by an `Allocator`, which is
// created on the thread `owner` and is not `Send`, and by `Shared::local`, which gives access only
// to that thread: a `ThreadId` is given to one thread and never again. So no two threads ever
// access it at the same time, nor one after the other before the drop, which has exclusive access.
// Its contents are `Send`.
unsafe impl Sync for Shared {}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Local>();
};

struct Local {
    heap: Heap,
    /// Addresses of blocks of each size class that were given back and not joined with their
    /// neighbours.
    cache: [Vec<u64>; size_class::COUNT],
    cached_bytes: usize,
    cache_bytes_max: usize,
}

thread_local! {
    /// This thread. Asking the standard library is slower.
    static HERE: Cell<Option<ThreadId>> = const { Cell::new(None) };
}

#[inline]
fn here() -> ThreadId {
    HERE.get().unwrap_or_else(|| {
        let id = thread::current().id();
        HERE.set(Some(id));
        id
    })
}

impl Allocator {
    /// Creates an allocator for this thread that takes chunks from `source`.
    ///
    /// # Panics
    /// Those of [`Heap::new`].
    #[track_caller]
    pub fn new(source: Arc<dyn ChunkSource>, options: AllocatorOptions) -> Self {
        let local = Local {
            heap: Heap::new(source, options.heap),
            cache: [const { Vec::new() }; size_class::COUNT],
            cached_bytes: 0,
            cache_bytes_max: options.cache_bytes,
        };
        let shared = Shared { owner: here(), local: RefCell::new(local), returned: Mutex::default() };
        Self { shared: Arc::new(shared), thread: PhantomData }
    }

    /// Allocates a buffer of `bytes` bytes. Its contents are unspecified.
    ///
    /// # Errors
    /// [`FabricError::MemoryLimit`] if the heap would exceed its limit; the error of its source.
    #[inline]
    pub fn allocate(&self, bytes: usize) -> Result<Registered, FabricError> {
        let mut local = self.shared.local.borrow_mut();
        let block = match local.take_cached(bytes) {
            Some(block) => block,
            None => local.find(&self.shared, bytes)?,
        };
        let (region, offset) = local.heap.place_of(&block);
        // The heap checked that the block lies in the region.
        let base = region.memory().base().as_ptr().wrapping_add(offset as usize);
        let base = NonNull::new(base).expect("no mapping begins or ends at address zero");
        Ok(Registered {
            shared: self.shared.clone(),
            key: region.key(),
            offset,
            address: block.address,
            units: block.units,
            base,
            bytes,
        })
    }

    /// Gives unused chunks back. Returns their size in bytes.
    pub fn trim(&self) -> usize {
        let mut local = self.shared.local.borrow_mut();
        local.take_returned(&self.shared);
        local.empty_cache();
        local.heap.trim()
    }

    /// The memory that the allocator holds.
    pub fn report(&self) -> AllocatorReport {
        let mut local = self.shared.local.borrow_mut();
        local.take_returned(&self.shared);
        AllocatorReport {
            held_bytes: local.heap.held_bytes(),
            used_bytes: local.heap.used_bytes() - local.cached_bytes,
            cached_bytes: local.cached_bytes,
        }
    }
}

impl fmt::Debug for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator").field("report", &self.report()).finish_non_exhaustive()
    }
}

/// The memory that an [`Allocator`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocatorReport {
    /// Size of its chunks.
    pub held_bytes: usize,
    /// Part of `held_bytes` in buffers, rounded up to their block sizes.
    pub used_bytes: usize,
    /// Part of `held_bytes` in the cache.
    pub cached_bytes: usize,
}

impl Shared {
    /// The owner's part, if the calling thread is the owner.
    #[inline]
    fn local(&self) -> Option<&RefCell<Local>> {
        (here() == self.owner).then_some(&self.local)
    }

    #[inline]
    fn give_back(&self, block: Block) {
        // The borrow fails only on the owner's thread, if the source of its chunks drops one of its
        // buffers meanwhile.
        match self.local().and_then(|local| local.try_borrow_mut().ok()) {
            Some(mut local) => local.give_back(block),
            None => lock(&self.returned).push(block),
        }
    }
}

impl Local {
    /// A cached block of this size, if there is one.
    #[inline]
    fn take_cached(&mut self, bytes: usize) -> Option<Block> {
        let class = size_class::of(self.heap.units_of(bytes))?;
        let address = self.cache[class].pop()?;
        let units = size_class::units(class);
        self.cached_bytes -= units as usize * self.heap.options().unit_bytes;
        Some(Block { address, units, is_zero: false })
    }

    /// Finds a block outside the cache.
    #[cold]
    fn find(&mut self, shared: &Shared, bytes: usize) -> Result<Block, FabricError> {
        self.take_returned(shared);
        let wanted = match size_class::of(self.heap.units_of(bytes)) {
            Some(_) if let Some(block) = self.take_cached(bytes) => return Ok(block),
            Some(class) if self.cache_bytes_max > 0 => {
                size_class::units(class) as usize * self.heap.options().unit_bytes
            }
            _ => bytes,
        };
        if let Some(block) = self.heap.take_free(wanted) {
            return Ok(block);
        }
        // Cached blocks may be in the way: joined with their neighbours they may suffice.
        self.empty_cache();
        self.heap.allocate(wanted)
    }

    #[inline]
    fn give_back(&mut self, block: Block) {
        let bytes = self.heap.block_bytes(&block);
        match size_class::of(block.units as usize) {
            Some(class)
                if size_class::units(class) == block.units && self.cached_bytes + bytes <= self.cache_bytes_max =>
            {
                self.cached_bytes += bytes;
                self.cache[class].push(block.address);
            }
            _ => self.heap.give_back(block),
        }
    }

    fn take_returned(&mut self, shared: &Shared) {
        let returned = std::mem::take(&mut *lock(&shared.returned));
        returned.into_iter().for_each(|block| self.give_back(block));
    }

    fn empty_cache(&mut self) {
        for class in 0..size_class::COUNT {
            while let Some(address) = self.cache[class].pop() {
                self.heap.give_back(Block { address, units: size_class::units(class), is_zero: false });
            }
        }
        self.cached_bytes = 0;
    }
}

/// A buffer of registered memory. When it is dropped, on any thread, it returns to its allocator,
/// which it keeps alive.
///
/// Peers that know its [key](Self::key) may write it at any time. It therefore gives out no slices:
/// bytes are copied in and out. A copy during a peer's write may be torn, which is the only effect.
pub struct Registered {
    shared: Arc<Shared>,
    key: RemoteKey,
    offset: u64,
    address: u64,
    units: u32,
    /// The address of the buffer in this process.
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: `base` points into a mapping of the process, not of a thread, which `shared` keeps: its
// heap holds the region until the heap is dropped, or trimmed of chunks of which no block is in
// use. All other fields are `Send`.
unsafe impl Send for Registered {}
// SAFETY: through a shared reference, only `racy` copies read and write the bytes, and these may
// race.
unsafe impl Sync for Registered {}

impl Registered {
    /// The requested size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The key of the region that contains the buffer, for peers.
    pub fn key(&self) -> RemoteKey {
        self.key
    }

    /// The offset of the buffer in the region.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Writes `data` from `offset` on.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`]; then nothing is written.
    #[inline]
    pub fn write_at(&self, offset: usize, data: &[u8]) -> Result<(), FabricError> {
        let place = self.place(offset, data.len())?;
        // SAFETY: `data` is readable; `place` checked that this buffer has `data.len()` bytes from
        // `offset` on, and the buffer is mapped while `self` lives.
        unsafe { racy::copy_out(data.as_ptr(), place, data.len()) };
        Ok(())
    }

    /// Fills `data` from `offset` on.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`]; then nothing is read.
    #[inline]
    pub fn read_at(&self, offset: usize, data: &mut [u8]) -> Result<(), FabricError> {
        let place = self.place(offset, data.len())?;
        // SAFETY: `data` is writable; `place` checked that this buffer has `data.len()` bytes from
        // `offset` on, and the buffer is mapped while `self` lives.
        unsafe { racy::copy_in(place, data.as_mut_ptr(), data.len()) };
        Ok(())
    }

    /// Writes `byte` to the whole buffer.
    pub fn fill(&self, byte: u8) {
        const BLOCK_BYTES: usize = 4096;
        let block = [byte; BLOCK_BYTES];
        for offset in (0..self.bytes).step_by(BLOCK_BYTES) {
            let length = BLOCK_BYTES.min(self.bytes - offset);
            let written = self.write_at(offset, &block[..length]);
            debug_assert!(written.is_ok(), "each block lies in the buffer");
        }
    }

    /// Copies the whole buffer.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut data = vec![0; self.bytes];
        let read = self.read_at(0, &mut data);
        debug_assert!(read.is_ok(), "the whole buffer is in range");
        data
    }

    /// The address of the buffer in this process, for racy copies and atomics, and for transports.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    #[inline]
    fn place(&self, offset: usize, bytes: usize) -> Result<*mut u8, FabricError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(self.base.as_ptr().wrapping_add(offset)),
            _ => Err(FabricError::OutOfRange { offset: offset as u64, bytes, region_bytes: self.bytes as u64 }),
        }
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, offset, bytes, .. } = self;
        f.debug_struct("Registered")
            .field("key", key)
            .field("offset", offset)
            .field("bytes", bytes)
            .finish_non_exhaustive()
    }
}

impl Drop for Registered {
    #[inline]
    fn drop(&mut self) {
        self.shared.give_back(Block { address: self.address, units: self.units, is_zero: false });
    }
}

//! Memory that the processes of a job share past the job, for the limits: nothing of Farside's calls is in their way.

use std::fs::OpenOptions;
use std::hint;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use farside::{ProcessId, Worker, WorkerId};
use farside_fabric::ring::{MappedChunk, MappedControl, RingMemory};
use farside_fabric::{RemoteKey, RemoteRegion};
use farside_sys::shm::{SharedMemory, page_bytes};
use farside_sys::topology::current_affinity;

use crate::BenchError;
use crate::results::path_of;

/// Words that different sides write lie so far apart: no two on neighbouring cache lines, which are fetched in pairs.
pub(crate) const WORD_DISTANCE: usize = 256;

/// A piece of memory that all processes of the job have mapped.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    memory: Arc<SharedMemory>,
    words: MappedChunk,
    bytes: RemoteRegion,
}

impl Shared {
    /// Makes a piece of at least `bytes` bytes, all zero. Collective.
    ///
    /// # Errors
    /// Those of the collectives; [`BenchError::Memory`]; [`BenchError::System`] where one process may not open another's
    /// files.
    pub(crate) fn new(me: &Worker, bytes: usize) -> Result<Self, BenchError> {
        let root = WorkerId::new(0);
        // Memory comes in whole pages, and the others must know how many.
        let bytes = bytes.next_multiple_of(page_bytes());
        let own = if me.id() == root { Some(SharedMemory::create("farside-bench-limit", bytes)?) } else { None };
        let name = own.as_ref().map(|memory| (std::process::id(), memory.fd().as_raw_fd()));
        let (process, descriptor) = me.broadcast(root, name)?;
        let memory = match own {
            Some(memory) => memory,
            None => {
                let path = path_of(process, descriptor);
                let opened = OpenOptions::new().read(true).write(true).open(&path);
                let file = opened.map_err(|cause| BenchError::System { doing: "opening", path, cause })?;
                SharedMemory::from_fd(file.into(), bytes)?
            }
        };
        // The owner keeps its descriptor until everybody has come this far.
        me.barrier()?;
        Ok(Self::of(memory))
    }

    fn of(memory: SharedMemory) -> Self {
        let memory = Arc::new(memory);
        let bytes = memory.bytes();
        let words = MappedChunk::new(memory.clone(), 0, bytes).expect("a whole mapping is aligned and long enough");
        let key = RemoteKey::starter(ProcessId::new(0), bytes as u64);
        Self { bytes: RemoteRegion::mapped_at(key, memory.clone()), memory, words }
    }

    /// Memory that only the threads of this process share.
    #[cfg(test)]
    pub(crate) fn in_process(bytes: usize) -> Self {
        Self::of(SharedMemory::create("test", bytes).expect("a small piece of memory"))
    }

    /// The word at `offset`, a multiple of 8 below the size.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        self.words.word(offset)
    }

    /// The bytes, to be copied to and from.
    #[inline]
    pub(crate) fn bytes(&self) -> &RemoteRegion {
        &self.bytes
    }

    /// So many bytes from `offset` on, as a chunk of a ring.
    pub(crate) fn chunk(&self, offset: usize, bytes: usize) -> MappedChunk {
        MappedChunk::new(self.memory.clone(), offset, bytes).expect("a chunk lies inside the memory, on a cache line")
    }

    /// The control block of a ring at `offset`.
    pub(crate) fn control(&self, offset: usize) -> MappedControl {
        MappedControl::new(self.memory.clone(), offset)
            .expect("a control block lies inside the memory, on a cache line")
    }
}

/// How one side of a limit waits for the other: by looking, since a limit knows no sleep.
///
/// With more threads than CPUs the other side may need the very CPU that looks, so it is offered soon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    looks_before_yield: u32,
}

/// About 50 µs, some hundred times what the other side takes when it runs.
const LOOKS_DEDICATED: u32 = 20_000;
const LOOKS_OVERSUBSCRIBED: u32 = 20;
/// How long before the other side is given up.
const GIVE_UP: Duration = Duration::from_secs(20);

impl Patience {
    /// For so many threads that run at the same time.
    pub(crate) fn new(threads: u32) -> Self {
        let cpus = current_affinity().map_or(1, |cpus| cpus.len());
        let is_dedicated = threads as usize <= cpus;
        Self { looks_before_yield: if is_dedicated { LOOKS_DEDICATED } else { LOOKS_OVERSUBSCRIBED } }
    }

    /// Looks until `look` finds something.
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`].
    #[inline(always)]
    pub(crate) fn wait_for<T>(self, mut look: impl FnMut() -> Option<T>) -> Result<T, BenchError> {
        for _ in 0..self.looks_before_yield {
            if let Some(found) = look() {
                return Ok(found);
            }
            // Looks without a pause hold the line back from its writer, where two processors share a core threefold.
            hint::spin_loop();
        }
        wait_and_yield(&mut look)
    }

    /// Looks until `condition` holds.
    ///
    /// # Errors
    /// As [`wait_for`](Self::wait_for).
    #[inline(always)]
    pub(crate) fn wait_until(self, mut condition: impl FnMut() -> bool) -> Result<(), BenchError> {
        self.wait_for(|| condition().then_some(()))
    }
}

#[cold]
fn wait_and_yield<T>(look: &mut dyn FnMut() -> Option<T>) -> Result<T, BenchError> {
    let since = Instant::now();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if since.elapsed() > GIVE_UP {
            return Err(BenchError::NoAnswer { seconds: GIVE_UP.as_secs() });
        }
        thread::yield_now();
    }
}

//! Memory that the processes of a job share outside the job. The limits use it without any call of
//! Farside.

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
use farside_sys::shm::{MemoryPreference, PageKind, SharedMemory, page_bytes};
use farside_sys::topology::current_affinity;

use crate::BenchError;
use crate::results::path_of;

/// Distance between words that different sides write. Neighbouring cache lines are fetched in
/// pairs, so the words lie further apart.
pub(crate) const WORD_DISTANCE: usize = 256;

/// Memory that all processes of the job map.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    memory: Arc<SharedMemory>,
    words: MappedChunk,
    bytes: RemoteRegion,
}

impl Shared {
    /// Allocates at least `bytes` bytes, all zero. Collective.
    ///
    /// # Errors
    /// The errors of collectives; [`BenchError::Memory`]; [`BenchError::System`] if one process may
    /// not open the files of another.
    pub(crate) fn new(me: &Worker, bytes: usize) -> Result<Self, BenchError> {
        Self::on_pages(me, bytes, PageKind::Base)
    }

    /// Allocates memory on large pages where the system grants them, as Farside's global memory has
    /// them. Collective.
    ///
    /// # Errors
    /// The errors of collectives; [`BenchError::Memory`]; [`BenchError::System`].
    pub(crate) fn table(me: &Worker, bytes: usize) -> Result<Self, BenchError> {
        Self::on_pages(me, bytes, PageKind::Transparent)
    }

    fn on_pages(me: &Worker, bytes: usize, pages: PageKind) -> Result<Self, BenchError> {
        let preference = MemoryPreference { pages, ..MemoryPreference::default() };
        let root = WorkerId::new(0);
        // Memory comes in whole pages, and the other processes must know its size.
        let bytes = bytes.next_multiple_of(page_bytes());
        let own = if me.id() == root {
            Some(SharedMemory::create_as("farside-bench-limit", bytes, preference)?)
        } else {
            None
        };
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
        // The owner keeps its descriptor until every process has mapped the memory.
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

    /// Allocates memory for the threads of this process only.
    #[cfg(test)]
    pub(crate) fn in_process(bytes: usize) -> Self {
        Self::of(SharedMemory::create("test", bytes).expect("a small piece of memory"))
    }

    /// Returns the word at `offset`, which is a multiple of 8 below the size.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        self.words.word(offset)
    }

    /// The memory as a region, to copy to and from.
    #[inline]
    pub(crate) fn bytes(&self) -> &RemoteRegion {
        &self.bytes
    }

    /// Returns `bytes` bytes from `offset` on as a chunk of a ring.
    pub(crate) fn chunk(&self, offset: usize, bytes: usize) -> MappedChunk {
        MappedChunk::new(self.memory.clone(), offset, bytes).expect("a chunk lies inside the memory, on a cache line")
    }

    /// Returns the control block of a ring at `offset`.
    pub(crate) fn control(&self, offset: usize) -> MappedControl {
        MappedControl::new(self.memory.clone(), offset)
            .expect("a control block lies inside the memory, on a cache line")
    }
}

/// The way in which one side of a limit waits for the other: it polls, because a limit never
/// sleeps.
///
/// If there are more threads than CPUs, the other side may need the CPU of the side that polls,
/// which then yields it soon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    looks_before_yield: u32,
}

/// About 50 µs, a hundred times what the other side needs while it runs.
const LOOKS_DEDICATED: u32 = 20_000;
const LOOKS_OVERSUBSCRIBED: u32 = 20;
/// Time after which a side gives the other up.
const GIVE_UP: Duration = Duration::from_secs(120);

impl Patience {
    /// The patience for `threads` threads that run at the same time.
    pub(crate) fn new(threads: u32) -> Self {
        let cpus = current_affinity().map_or(1, |cpus| cpus.len());
        let is_dedicated = threads as usize <= cpus;
        Self { looks_before_yield: if is_dedicated { LOOKS_DEDICATED } else { LOOKS_OVERSUBSCRIBED } }
    }

    /// Polls `look` until it returns a value.
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`].
    #[inline(always)]
    pub(crate) fn wait_for<T>(self, mut look: impl FnMut() -> Option<T>) -> Result<T, BenchError> {
        for _ in 0..self.looks_before_yield {
            if let Some(found) = look() {
                return Ok(found);
            }
            // Polling without a pause keeps the line from its writer: with two hardware threads a
            // core, three times as long.
            hint::spin_loop();
        }
        wait_and_yield(&mut look)
    }

    /// Polls `condition` until it holds.
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`].
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

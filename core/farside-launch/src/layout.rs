//! The shape of a job, and the layout of each process's *starter memory*: the memory that it keeps
//! for its peers.
//!
//! ```text
//! per callable thread of the process, and once for its other threads
//!   doorbell         128 B                 wakes the thread
//!   looks            128 B                 counts the looks of the thread at its calls
//!   arrival bits     1 bit a source        sources: workers, the shared rings of processes
//!   reply slots      REPLY_SLOT_COUNT x 64 B
//!   reply space      REPLY_SPACE_BYTES     results that are larger than a slot
//! latches            LATCH_COUNT x 8 B     counted down by calls that were executed elsewhere
//! watchers           128 B                 counts the threads that sleep until memory changes
//! segments           SEGMENT_COUNT x 16 B  the slots of regions that have global addresses
//! user memory        starter_bytes         memory with well-known addresses
//! ```
//!
//! All processes of a job have the same shape, so each process knows the layout of every other.

use farside_fabric::bell::{Doorbell, Watchers};
use farside_fabric::{ProcessId, WorkerId};

/// Number of slots of a process that have global addresses. A region takes at least one.
pub const SEGMENT_COUNT: u32 = farside_fabric::transport::SLOT_COUNT;
/// Number of calls of one worker whose results are stored one-sidedly. The results of further calls
/// travel in messages.
pub const REPLY_SLOT_COUNT: usize = 256;
/// Size of a reply slot: 8 bytes of state and 56 bytes of result.
pub const REPLY_SLOT_BYTES: usize = 64;
/// Size of a result that fits into the slot itself.
pub const REPLY_INLINE_BYTES: usize = REPLY_SLOT_BYTES - 8;
/// Size of the space for results that do not fit into their slots: 240 KiB, so that the replies of
/// a worker take 256 KiB.
pub const REPLY_SPACE_BYTES: usize = 240 << 10;
/// Number of reply slots of all threads of a process that are not workers.
pub const CALLER_SLOT_COUNT: usize = 64;
/// Size of the reply space of all threads of a process that are not workers.
pub const CALLER_SPACE_BYTES: usize = 64 << 10;
/// Number of synchronizers of one process that may be in use at once.
pub const LATCH_COUNT: usize = 1024;

/// Size of the count of looks: a pair of cache lines. Its thread writes it; peers seldom read it.
const LOOKS_BYTES: usize = 128;
/// Size of the entry of a slot with global addresses: its state, and the size of its region.
pub const SEGMENT_BYTES: usize = 16;
/// Alignment of the user memory: a pair of cache lines.
const STARTER_ALIGN: usize = 128;

/// Number of processes of a job, and of the threads of each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of processes.
    pub processes: u32,
    /// Number of workers of each process.
    pub threads: u32,
    /// Number of threads of each process that only run calls: those of its pool.
    pub without_body: u32,
}

impl Shape {
    /// Number of workers of the job.
    #[inline]
    pub fn workers(self) -> u32 {
        self.processes * self.threads
    }

    /// Number of callable threads of the job: the workers, then the threads that only run calls.
    #[inline]
    pub fn callable(self) -> u32 {
        self.processes * (self.threads + self.without_body)
    }

    /// Number of callable threads of one process.
    #[inline]
    pub fn callable_per_process(self) -> u32 {
        self.threads + self.without_body
    }

    /// The process of a callable thread, and the index of the thread in its process.
    #[inline]
    pub fn place_of(self, worker: WorkerId) -> (ProcessId, usize) {
        let number = worker.number();
        let workers = self.workers();
        if number < workers {
            return (ProcessId::new(number / self.threads), (number % self.threads) as usize);
        }
        let number = number - workers;
        let local = self.threads + number % self.without_body;
        (ProcessId::new(number / self.without_body), local as usize)
    }

    /// The name of thread `local` of a process.
    #[inline]
    pub fn worker_at(self, process: ProcessId, local: usize) -> WorkerId {
        let local = local as u32;
        if local < self.threads {
            WorkerId::new(process.number() * self.threads + local)
        } else {
            WorkerId::new(self.workers() + process.number() * self.without_body + (local - self.threads))
        }
    }

    /// The name under which the threads of a process that are not workers receive their replies. It
    /// is the name of the process's shared ring.
    #[inline]
    pub fn callers_of(self, process: ProcessId) -> WorkerId {
        WorkerId::new(self.callable() + process.number())
    }

    /// The process that receives replies under the name `worker`, and the index of its reply space.
    /// `None` if there is no such name.
    #[inline]
    pub fn answer_place(self, worker: u32) -> Option<(ProcessId, usize)> {
        match worker.checked_sub(self.callable()) {
            None => Some(self.place_of(WorkerId::new(worker))),
            Some(process) if process < self.processes => Some((ProcessId::new(process), self.callers())),
            Some(_) => None,
        }
    }

    /// The index of the part of the starter memory that belongs to the threads that are not
    /// workers.
    #[inline]
    pub fn callers(self) -> usize {
        self.callable_per_process() as usize
    }

    /// Number of rings that may lead to one worker: one from each callable thread, and one shared
    /// ring from each process.
    #[inline]
    pub fn sources(self) -> usize {
        (self.callable() + self.processes) as usize
    }
}

/// Offsets in the starter memory of a process.
#[derive(Clone, Copy, Debug)]
pub struct HomeLayout {
    shape: Shape,
    arrival_bytes: usize,
    thread_bytes: usize,
    starter_bytes: usize,
}

impl HomeLayout {
    /// The layout of a job of this shape with `starter_bytes` of user memory.
    #[inline]
    pub fn new(shape: Shape, starter_bytes: usize) -> Self {
        let arrival_bytes = shape.sources().div_ceil(64).next_multiple_of(16) * 8;
        let thread_bytes = size_of::<Doorbell>()
            + LOOKS_BYTES
            + arrival_bytes
            + REPLY_SLOT_COUNT * REPLY_SLOT_BYTES
            + REPLY_SPACE_BYTES;
        Self { shape, arrival_bytes, thread_bytes, starter_bytes }
    }

    /// The shape of the job.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Size of the starter memory.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.starter() + self.starter_bytes
    }

    /// The entry of a segment: its state, and the size of its region.
    #[inline]
    pub fn segment(&self, slot: u32) -> usize {
        debug_assert!(slot <= SEGMENT_COUNT);
        self.watchers() + size_of::<Watchers>() + slot as usize * SEGMENT_BYTES
    }

    /// The count of watchers.
    #[inline]
    pub fn watchers(&self) -> usize {
        self.latches() + LATCH_COUNT * 8
    }

    /// The user memory.
    #[inline]
    pub fn starter(&self) -> usize {
        self.segment(SEGMENT_COUNT).next_multiple_of(STARTER_ALIGN)
    }

    /// Size of the user memory.
    #[inline]
    pub fn starter_bytes(&self) -> usize {
        self.starter_bytes
    }

    /// The part of a thread, which begins with its doorbell.
    #[inline]
    pub fn thread(&self, local: usize) -> usize {
        debug_assert!(local <= self.shape.callers());
        local * self.thread_bytes
    }

    /// The count of a thread's looks.
    #[inline]
    pub fn looks(&self, local: usize) -> usize {
        self.thread(local) + size_of::<Doorbell>()
    }

    /// A word of arrival bits of a thread.
    #[inline]
    pub fn arrival_word(&self, local: usize, word: usize) -> usize {
        debug_assert!(word * 8 < self.arrival_bytes);
        self.looks(local) + LOOKS_BYTES + word * 8
    }

    /// A reply slot of a thread.
    #[inline]
    pub fn reply_slot(&self, local: usize, slot: usize) -> usize {
        debug_assert!(slot <= self.reply_slots(local));
        self.looks(local) + LOOKS_BYTES + self.arrival_bytes + slot * REPLY_SLOT_BYTES
    }

    /// Number of reply slots of a thread.
    #[inline]
    pub fn reply_slots(&self, local: usize) -> usize {
        if local == self.shape.callers() { CALLER_SLOT_COUNT } else { REPLY_SLOT_COUNT }
    }

    /// The reply space of a thread.
    #[inline]
    pub fn reply_space(&self, local: usize) -> usize {
        self.reply_slot(local, self.reply_slots(local))
    }

    /// Size of the reply space of a thread.
    #[inline]
    pub fn reply_space_bytes(&self, local: usize) -> usize {
        if local == self.shape.callers() { CALLER_SPACE_BYTES } else { REPLY_SPACE_BYTES }
    }

    /// The latches.
    #[inline]
    pub fn latches(&self) -> usize {
        self.reply_space(self.shape.callers()) + CALLER_SPACE_BYTES
    }

    /// Size of the arrival bits of a thread.
    #[inline]
    pub fn arrival_bytes(&self) -> usize {
        self.arrival_bytes
    }

    /// Number of words with arrival bits of a thread.
    #[inline]
    pub fn arrival_words(&self) -> usize {
        self.shape.sources().div_ceil(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: [Shape; 4] = [
        Shape { processes: 1, threads: 1, without_body: 0 },
        Shape { processes: 3, threads: 2, without_body: 0 },
        Shape { processes: 2, threads: 3, without_body: 2 },
        Shape { processes: 100, threads: 4, without_body: 1 },
    ];

    #[test]
    fn every_thread_has_one_name_and_one_place() {
        for shape in SHAPES {
            let mut seen = vec![false; shape.callable() as usize];
            for process in (0..shape.processes).map(ProcessId::new) {
                for local in 0..shape.callable_per_process() as usize {
                    let worker = shape.worker_at(process, local);
                    assert_eq!(shape.place_of(worker), (process, local));
                    assert_eq!(shape.answer_place(worker.number()), Some((process, local)));
                    assert!(!std::mem::replace(&mut seen[worker.index()], true));
                    assert_eq!(worker.number() < shape.workers(), local < shape.threads as usize);
                }
                let callers = shape.callers_of(process).number();
                assert_eq!(shape.answer_place(callers), Some((process, shape.callers())));
            }
            assert_eq!(shape.answer_place(shape.sources() as u32), None);
        }
    }

    #[test]
    fn nothing_overlaps() {
        for shape in SHAPES {
            let layout = HomeLayout::new(shape, 100);
            let mut end = 0;
            for local in 0..shape.callable_per_process() as usize {
                assert_eq!(layout.thread(local), end);
                assert!(layout.thread(local).is_multiple_of(128));
                assert!(layout.looks(local).is_multiple_of(128) && layout.looks(local) >= end + size_of::<Doorbell>());
                assert!(layout.arrival_word(local, 0) >= layout.looks(local) + LOOKS_BYTES);
                let last_word = layout.arrival_word(local, layout.arrival_words() - 1);
                assert!(last_word + 8 <= layout.reply_slot(local, 0));
                assert!(layout.reply_slot(local, 0).is_multiple_of(64));
                end = layout.reply_space(local) + layout.reply_space_bytes(local);
            }
            let callers = shape.callers();
            assert_eq!(layout.thread(callers), end);
            assert!(layout.reply_slot(callers, 0).is_multiple_of(64));
            end = layout.reply_space(callers) + CALLER_SPACE_BYTES;
            assert_eq!(layout.latches(), end);
            assert!(end.is_multiple_of(8));
            assert_eq!(layout.watchers(), end + LATCH_COUNT * 8);
            assert!(layout.watchers().is_multiple_of(128));
            assert_eq!(layout.segment(0), layout.watchers() + size_of::<Watchers>());
            assert!(layout.segment(SEGMENT_COUNT - 1) + SEGMENT_BYTES <= layout.starter());
            assert!(layout.starter().is_multiple_of(STARTER_ALIGN));
            assert_eq!(layout.bytes(), layout.starter() + 100);
        }
    }
}

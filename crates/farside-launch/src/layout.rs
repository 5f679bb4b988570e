//! The shape of a job, and the layout of the memory that every process keeps for its peers.
//!
//! ```text
//! per worker (and user service thread) of the process
//!   doorbell                       128 B   wakes it
//!   arrival bits                   1 bit for each ring that may come: one a worker of the job, one a process (its lane)
//!   reply slots                    REPLY_SLOT_COUNT x 64 B   results of its calls
//!   reply space                    REPLY_SPACE_BYTES         results that do not fit into a slot
//! latches                          LATCH_COUNT x 8 B         what calls executed elsewhere count down
//! watchers                         128 B                     how many threads sleep until memory changes
//! segments                         SLOT_COUNT x 16 B         which regions have global addresses
//! the user's                       starter_bytes             memory whose addresses everybody knows
//! ```
//!
//! All processes of a job have the same shape, so each knows where things lie in another's memory.

use farside_fabric::bell::{Doorbell, Watchers};
use farside_fabric::{ProcessId, WorkerId};

use crate::settings::Settings;

/// Regions of a process that may have global addresses at once.
pub const SEGMENT_COUNT: u32 = 1024;
/// Calls of one worker that may wait for their results at once.
pub const REPLY_SLOT_COUNT: usize = 256;
/// A slot: 8 bytes of state and 56 bytes of result.
pub const REPLY_SLOT_BYTES: usize = 64;
/// Room in the slot itself.
pub const REPLY_INLINE_BYTES: usize = REPLY_SLOT_BYTES - 8;
/// Room for results that do not fit into their slot: 240 KiB, so that a worker's replies take 256 KiB in all.
pub const REPLY_SPACE_BYTES: usize = 240 << 10;
/// The same for the threads of a process that are no workers, all together: 68 KiB.
pub const CALLER_SLOT_COUNT: usize = 64;
pub const CALLER_SPACE_BYTES: usize = 64 << 10;
/// Synchronizers of one process that may be in use at once.
pub const LATCH_COUNT: usize = 1024;

/// An entry for a region that has global addresses: its state and its size.
pub const SEGMENT_BYTES: usize = 16;
/// What the user's part begins at a multiple of: a pair of cache lines.
const STARTER_ALIGN: usize = 128;

/// How many processes, and how many workers and service threads each has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub processes: u32,
    pub threads: u32,
    /// Threads without a body: user service threads, and behind them those of the pools.
    pub service_threads: u32,
}

impl Shape {
    pub fn new(settings: &Settings) -> Self {
        // That there are no more than 32 bits count was checked with the settings.
        let service_threads = settings.threads_without_body() as u32;
        Self { processes: settings.processes, threads: settings.threads, service_threads }
    }

    /// Worker threads of the whole job.
    pub fn workers(self) -> u32 {
        self.processes * self.threads
    }

    /// Threads that can be called: the workers, and behind them the user service threads.
    pub fn callable(self) -> u32 {
        self.processes * (self.threads + self.service_threads)
    }

    /// Those of one process.
    pub fn callable_per_process(self) -> u32 {
        self.threads + self.service_threads
    }

    /// The process of a worker or service thread, and which of its process it is.
    pub fn place_of(self, worker: WorkerId) -> (ProcessId, usize) {
        let number = worker.number();
        let workers = self.workers();
        if number < workers {
            return (ProcessId::new(number / self.threads), (number % self.threads) as usize);
        }
        let number = number - workers;
        let local = self.threads + number % self.service_threads;
        (ProcessId::new(number / self.service_threads), local as usize)
    }

    /// The name of a thread of a process: its worker, or behind those its service thread.
    pub fn worker_at(self, process: ProcessId, local: usize) -> WorkerId {
        let local = local as u32;
        if local < self.threads {
            WorkerId::new(process.number() * self.threads + local)
        } else {
            WorkerId::new(self.workers() + process.number() * self.service_threads + (local - self.threads))
        }
    }

    /// The name under which the threads of a process that are no workers get their answers: that of the process's lane.
    pub fn callers_of(self, process: ProcessId) -> WorkerId {
        WorkerId::new(self.callable() + process.number())
    }

    /// The process whose threads share a reply space, and which of its spaces that is. `None` when there is no such.
    pub fn answer_place(self, worker: u32) -> Option<(ProcessId, usize)> {
        match worker.checked_sub(self.callable()) {
            None => Some(self.place_of(WorkerId::new(worker))),
            Some(process) if process < self.processes => Some((ProcessId::new(process), self.callers())),
            Some(_) => None,
        }
    }

    /// Behind its threads' parts of the starter memory a process has one for the threads that are no workers.
    pub fn callers(self) -> usize {
        self.callable_per_process() as usize
    }

    /// How many rings may lead to one worker: one from each callable thread, and one lane from each process.
    pub fn sources(self) -> usize {
        (self.callable() + self.processes) as usize
    }
}

/// Where things lie in a process's starter memory.
#[derive(Clone, Copy, Debug)]
pub struct HomeLayout {
    shape: Shape,
    arrival_bytes: usize,
    thread_bytes: usize,
    starter_bytes: usize,
}

impl HomeLayout {
    pub fn shape(&self) -> Shape {
        self.shape
    }

    pub fn of(settings: &Settings) -> Self {
        Self::new(Shape::new(settings), settings.starter_bytes as usize)
    }

    pub fn new(shape: Shape, starter_bytes: usize) -> Self {
        let arrival_bytes = shape.sources().div_ceil(64).next_multiple_of(16) * 8;
        let thread_bytes =
            size_of::<Doorbell>() + arrival_bytes + REPLY_SLOT_COUNT * REPLY_SLOT_BYTES + REPLY_SPACE_BYTES;
        Self { shape, arrival_bytes, thread_bytes, starter_bytes }
    }

    pub fn bytes(&self) -> usize {
        self.starter() + self.starter_bytes
    }

    /// The entry of a slot: its state, and the size of its region.
    pub fn segment(&self, slot: u32) -> usize {
        debug_assert!(slot <= SEGMENT_COUNT);
        self.watchers() + size_of::<Watchers>() + slot as usize * SEGMENT_BYTES
    }

    pub fn watchers(&self) -> usize {
        self.latches() + LATCH_COUNT * 8
    }

    /// Where the user's part begins.
    pub fn starter(&self) -> usize {
        self.segment(SEGMENT_COUNT).next_multiple_of(STARTER_ALIGN)
    }

    pub fn starter_bytes(&self) -> usize {
        self.starter_bytes
    }

    pub fn thread(&self, local: usize) -> usize {
        debug_assert!(local <= self.shape.callers());
        local * self.thread_bytes
    }

    pub fn arrival_word(&self, local: usize, word: usize) -> usize {
        debug_assert!(word * 8 < self.arrival_bytes);
        self.thread(local) + size_of::<Doorbell>() + word * 8
    }

    pub fn reply_slot(&self, local: usize, slot: usize) -> usize {
        debug_assert!(slot <= self.reply_slots(local));
        self.thread(local) + size_of::<Doorbell>() + self.arrival_bytes + slot * REPLY_SLOT_BYTES
    }

    /// How many reply slots a thread has, or the callers together.
    pub fn reply_slots(&self, local: usize) -> usize {
        if local == self.shape.callers() { CALLER_SLOT_COUNT } else { REPLY_SLOT_COUNT }
    }

    pub fn reply_space(&self, local: usize) -> usize {
        self.reply_slot(local, self.reply_slots(local))
    }

    pub fn reply_space_bytes(&self, local: usize) -> usize {
        if local == self.shape.callers() { CALLER_SPACE_BYTES } else { REPLY_SPACE_BYTES }
    }

    pub fn latches(&self) -> usize {
        self.reply_space(self.shape.callers()) + CALLER_SPACE_BYTES
    }

    pub fn arrival_bytes(&self) -> usize {
        self.arrival_bytes
    }

    pub fn arrival_words(&self) -> usize {
        self.shape.sources().div_ceil(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: [Shape; 4] = [
        Shape { processes: 1, threads: 1, service_threads: 0 },
        Shape { processes: 3, threads: 2, service_threads: 0 },
        Shape { processes: 2, threads: 3, service_threads: 2 },
        Shape { processes: 100, threads: 4, service_threads: 1 },
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

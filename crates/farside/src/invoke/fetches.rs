//! Calls that have arrived at a worker and wait for their buffers, which the process's mover reads from their senders' memory.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use farside_fabric::ProcessId;
use farside_fabric::transport::Outcome;

use crate::error::Result;
use crate::memory::Extent;
use crate::runtime::process::{Notice, Process};
use crate::runtime::worker::Worker;

/// What is to be done with the bytes.
type Go = Box<dyn FnOnce(&Worker, Result<Vec<u8>>)>;

/// The calls of one worker that wait.
#[derive(Default)]
pub(crate) struct Fetches {
    /// With the owner of the memory.
    waiting: RefCell<HashMap<u64, (ProcessId, Go)>>,
    next: Cell<u64>,
    /// Records of a stream are being run, and not those of a ring.
    in_stream: Cell<bool>,
    /// The stream that is being run is to stop until this fetch has ended.
    hold: Cell<Option<u64>>,
}

impl fmt::Debug for Fetches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetches").field("waiting", &self.waiting.borrow().len()).finish_non_exhaustive()
    }
}

impl Fetches {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    pub(crate) fn is_under_way(&self, fetch: u64) -> bool {
        self.waiting.borrow().contains_key(&fetch)
    }

    pub(crate) fn set_in_stream(&self, in_stream: bool) {
        self.in_stream.set(in_stream);
    }

    /// The fetch that the record which was just run has to wait for, and with it those behind it.
    pub(crate) fn take_hold(&self) -> Option<u64> {
        self.hold.take()
    }

    pub(crate) fn take(&self, fetch: u64) -> Option<Go> {
        self.waiting.borrow_mut().remove(&fetch).map(|(_, go)| go)
    }

    /// Those that wait for memory of a process, in the order in which they began.
    pub(crate) fn from(&self, process: ProcessId) -> Vec<u64> {
        let waiting = self.waiting.borrow();
        let mut found: Vec<u64> =
            waiting.iter().filter(|(_, (owner, _))| *owner == process).map(|(fetch, _)| *fetch).collect();
        found.sort_unstable();
        found
    }
}

/// Reads memory for a call that is being run, and goes on with `go`: at once where the memory is mapped or this thread may wait, otherwise
/// when the mover has it, and what the same sender has called since waits until then; or, `aside`, when the mover has it and nothing
/// waits.
pub(crate) fn fetch(worker: &Worker, memory: Extent, aside: bool, go: impl FnOnce(&Worker, Result<Vec<u8>>) + 'static) {
    let fetches = worker.fetches();
    let process = worker.process_handle();
    let in_stream = fetches.in_stream.get();
    // A sender that has a ring is mapped, but may pass on what is another's.
    let is_mapped = || process.connect(memory.process()).is_ok_and(|home| home.is_some());
    // A consumer has its copy of the record, whichever way that came, and keeps nobody waiting. What came to it as a notice would run as
    // a handler, perhaps inside of a function that waits.
    if worker.is_consumer() || (!aside && !in_stream && is_mapped()) {
        return go(worker, memory.read_in_handler(worker));
    }
    let fetch = fetches.next.replace(fetches.next.get() + 1);
    fetches.waiting.borrow_mut().insert(fetch, (memory.process(), Box::new(go)));
    if !aside && in_stream {
        fetches.hold.set(Some(fetch));
    }
    let (local, of, bytes) = (worker.thread_index(), memory.process(), memory.bytes() as usize);
    let then = move |process: &Arc<Process>, outcome: Result<Outcome>| {
        let outcome = outcome.and_then(|outcome| Ok(outcome.into_bytes(of, bytes)?));
        process.notify(local, Notice::Fetched { fetch, outcome });
    };
    process.start_reading(memory, Box::new(then));
}

//! Reading the buffer of a call that has arrived, from its sender's memory.

use std::sync::Arc;

use farside_fabric::transport::Outcome;

use crate::error::Result;
use crate::memory::Extent;
use crate::runtime::process::{Notice, Process};
use crate::runtime::worker::Worker;

/// Reads memory for a call that is being run, and goes on with `go`: at once where the memory is mapped or this thread may wait, otherwise
/// when the mover has it, and what the same sender has called since waits until then; or, `aside`, when the mover has it and nothing
/// waits.
pub(crate) fn fetch(worker: &Worker, memory: Extent, aside: bool, go: impl FnOnce(&Worker, Result<Vec<u8>>) + 'static) {
    let fetches = worker.fetches();
    let process = worker.process_handle();
    let in_stream = fetches.is_in_stream();
    // A sender that has a ring is mapped, but may pass on what is another's.
    let is_mapped = || process.connect(memory.process()).is_ok_and(|home| home.is_some());
    // A consumer has its copy of the record, whichever way that came, and keeps nobody waiting. What came to it as a notice would run as
    // a handler, perhaps inside of a function that waits.
    if worker.is_consumer() || (!aside && !in_stream && is_mapped()) {
        return go(worker, memory.read_in_handler(worker));
    }
    let fetch = fetches.begin(memory.process(), Box::new(go), !aside && in_stream);
    let (local, of, bytes) = (worker.thread_index(), memory.process(), memory.bytes() as usize);
    let then = move |process: &Arc<Process>, outcome: Result<Outcome>| {
        let outcome = outcome.and_then(|outcome| Ok(outcome.into_bytes(of, bytes)?));
        process.notify(local, Notice::Fetched { fetch, outcome });
    };
    process.start_reading(memory, Box::new(then));
}

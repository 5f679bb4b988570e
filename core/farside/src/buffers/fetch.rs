//! Reading the buffer of an arrived call from its sender's memory.

use std::sync::Arc;

use farside_fabric::transport::Outcome;

use crate::error::Result;
use crate::memory::Extent;
use crate::memory::mover::start_reading;
use crate::runtime::process::{Notice, Process};
use crate::runtime::worker::Worker;

/// Reads memory for the call that is being run, and continues with `go`. It does so at once if the
/// memory is mapped or this thread may wait. Otherwise the process's transfer thread reads the
/// memory and `go` runs afterwards. Until then the sender's later calls in the same stream wait,
/// unless the call is `is_unordered`.
///
/// Mapped memory was [offered](crate::runtime::process::Links::offer) before the call, so that this
/// finds it attached although its owner may have stopped.
pub(crate) fn fetch(
    worker: &Worker,
    memory: Extent,
    is_unordered: bool,
    go: impl FnOnce(&Worker, Result<Vec<u8>>) + 'static,
) {
    let fetches = worker.fetches();
    let process = worker.process_handle();
    let in_stream = fetches.is_in_stream();
    // A sender that has a ring is mapped, but it may name memory of another process.
    let is_mapped = || {
        let home = process.connect_within(memory.process(), worker.patience());
        home.is_ok_and(|home| home.is_some())
    };
    // A pool's thread has its own copy of the record and delays no other call. A notice would run
    // the call as a handler, perhaps inside a function that waits.
    if worker.is_pool_member() || (!is_unordered && !in_stream && is_mapped()) {
        return go(worker, memory.read_in_handler(worker));
    }
    let fetch = fetches.begin(memory.process(), Box::new(go), !is_unordered && in_stream);
    let (local, of, bytes) = (worker.thread_index(), memory.process(), memory.bytes() as usize);
    let then = move |process: &Arc<Process>, outcome: Result<Outcome>| {
        let outcome = outcome.and_then(|outcome| Ok(outcome.into_bytes(of, bytes)?));
        process.mailboxes.notify(local, Notice::Fetched { fetch, outcome });
    };
    start_reading(process, memory, Box::new(then));
}

//! Calls that have arrived at a worker and wait for their buffers. The process's transfer thread
//! reads these from their senders' memory.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;

use farside_fabric::ProcessId;

use crate::error::Result;
use crate::runtime::worker::Worker;

/// The continuation of a call, which gets the bytes.
pub(crate) type Go = Box<dyn FnOnce(&Worker, Result<Vec<u8>>)>;

/// The waiting calls of one worker.
#[derive(Default)]
pub(crate) struct Fetches {
    /// Each with the owner of the memory.
    waiting: RefCell<HashMap<u64, (ProcessId, Go)>>,
    next: Cell<u64>,
    /// True if the records being run came in a stream, and not in a ring.
    in_stream: Cell<bool>,
    /// The fetch that must end before the current stream goes on.
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

    /// Takes the fetch that the record just run waits for, and with it the records behind it.
    pub(crate) fn take_hold(&self) -> Option<u64> {
        self.hold.take()
    }

    pub(crate) fn take(&self, fetch: u64) -> Option<Go> {
        self.waiting.borrow_mut().remove(&fetch).map(|(_, go)| go)
    }

    /// Returns the fetches from the memory of a process, in the order in which they began.
    pub(crate) fn from(&self, process: ProcessId) -> Vec<u64> {
        let waiting = self.waiting.borrow();
        let mut found: Vec<u64> =
            waiting.iter().filter(|(_, (owner, _))| *owner == process).map(|(fetch, _)| *fetch).collect();
        found.sort_unstable();
        found
    }

    /// Returns whether the record being run came in a stream, and not in a ring.
    pub(crate) fn is_in_stream(&self) -> bool {
        self.in_stream.get()
    }

    /// Adds a call that waits for memory of `owner`, and returns the number of the fetch. With
    /// `hold`, the current stream stops until the fetch has ended.
    pub(crate) fn begin(&self, owner: ProcessId, go: Go, hold: bool) -> u64 {
        let fetch = self.next.replace(self.next.get() + 1);
        self.waiting.borrow_mut().insert(fetch, (owner, go));
        if hold {
            self.hold.set(Some(fetch));
        }
        fetch
    }
}

//! Calls that have arrived at a worker and wait for their buffers, which the process's mover reads from their senders' memory.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;

use farside_fabric::ProcessId;

use crate::error::Result;
use crate::runtime::worker::Worker;

/// What is to be done with the bytes.
pub(crate) type Go = Box<dyn FnOnce(&Worker, Result<Vec<u8>>)>;

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

    /// Whether the record that is being run came by a stream, and not by a ring.
    pub(crate) fn is_in_stream(&self) -> bool {
        self.in_stream.get()
    }

    /// Notes a call that waits for memory of `owner`, and returns the name of the fetch. If `hold`, the stream that is being run stops
    /// until it has ended.
    pub(crate) fn begin(&self, owner: ProcessId, go: Go, hold: bool) -> u64 {
        let fetch = self.next.replace(self.next.get() + 1);
        self.waiting.borrow_mut().insert(fetch, (owner, go));
        if hold {
            self.hold.set(Some(fetch));
        }
        fetch
    }
}

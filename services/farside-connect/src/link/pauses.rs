//! [`Pauses`]: what waits until less is to be sent.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::Waker as Task;

use crate::frame::Fetch;
use crate::lock::lock;

/// The most `Fetch`es that wait until less is to be sent. A transfer has at most four under way.
const DEFERRED_MAX: usize = 4096;

/// Transfers of this side, and `Fetch`es of the peer, that wait until less is to be sent.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// True if a thread or a task waits.
    has_waiting: AtomicBool,
    /// The tasks that do.
    tasks: Mutex<Vec<Task>>,
    /// The `Fetch`es, with the memory that each is for. The receiving thread uses them.
    deferred: Mutex<VecDeque<(u64, Fetch)>>,
    /// True if there may be some.
    has_deferred: AtomicBool,
}

impl Pauses {
    /// Notes that a transfer waits. Then the caller looks whether it must.
    pub(super) fn begin(&self) {
        self.has_waiting.store(true, Ordering::Relaxed);
        // SYNC: either the caller's look finds what the step has sent, or the step's finds the
        // flag.
        fence(Ordering::SeqCst);
    }

    /// Adds a task, which must then [begin](Self::begin).
    pub(super) fn add(&self, task: Task) {
        lock(&self.tasks).push(task);
    }

    /// Returns whether transfers wait. To be called where they may go on.
    #[inline]
    pub(super) fn has_waiting(&self) -> bool {
        self.has_waiting.load(Ordering::Relaxed)
    }

    /// Wakes the tasks that wait.
    pub(super) fn wake(&self) {
        self.has_waiting.store(false, Ordering::Relaxed);
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.into_iter().for_each(Task::wake);
    }

    /// Has a `Fetch` wait. Returns false if too many do.
    pub(super) fn defer(&self, number: u64, fetch: Fetch) -> bool {
        let mut deferred = lock(&self.deferred);
        let has_room = deferred.len() < DEFERRED_MAX;
        if has_room {
            deferred.push_back((number, fetch));
            self.has_deferred.store(true, Ordering::Relaxed);
        }
        has_room
    }

    /// Returns whether `Fetch`es may wait.
    #[inline]
    pub(super) fn has_deferred(&self) -> bool {
        self.has_deferred.load(Ordering::Relaxed)
    }

    /// The next `Fetch` that waits.
    pub(super) fn next(&self) -> Option<(u64, Fetch)> {
        let mut deferred = lock(&self.deferred);
        let next = deferred.pop_front();
        if next.is_none() {
            self.has_deferred.store(false, Ordering::Relaxed);
        }
        next
    }
}

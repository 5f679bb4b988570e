//! The threads that run handlers.
//!
//! Calls of one connection wait in order, and connections take turns. So a client with many calls
//! does not hold up one with few.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use crate::link::lock;

/// Work that waits for a thread.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// The work of all connections.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// The work that waits. Changed under the lock.
    waiting: AtomicUsize,
    changed: Condvar,
    finished: Condvar,
}

#[derive(Default)]
struct State {
    /// The work of each connection that has some.
    of: HashMap<u64, VecDeque<Work>>,
    /// The connections in turn.
    turns: VecDeque<u64>,
    /// The work that waits or runs.
    unfinished: usize,
    /// The threads that wait for work, and those that wait until some finishes. A system call wakes
    /// them, so it is not made for nothing.
    idle_threads: usize,
    watchers: usize,
    is_closed: bool,
}

impl Queue {
    /// Adds work of a connection. A closed queue drops it.
    pub(crate) fn add(&self, connection: u64, work: Work) {
        let mut state = lock(&self.state);
        if state.is_closed {
            drop(state);
            // No thread would run it.
            drop(work);
            return;
        }
        let waiting = state.of.entry(connection).or_default();
        waiting.push_back(work);
        if waiting.len() == 1 {
            state.turns.push_back(connection);
        }
        state.unfinished += 1;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let has_idle_thread = state.idle_threads > 0;
        drop(state);
        if has_idle_thread {
            self.changed.notify_one();
        }
    }

    /// Runs the next work, if there is some. Returns whose it was.
    pub(crate) fn run_one(&self) -> Option<u64> {
        let (connection, work) = lock(&self.state).take(&self.waiting)?;
        self.run(work);
        Some(connection)
    }

    fn run(&self, work: Work) {
        work();
        self.release();
    }

    /// Takes the next work, and waits for it. `None` once the queue is closed and empty.
    fn take(&self) -> Option<Work> {
        let mut state = lock(&self.state);
        loop {
            if let Some((_, work)) = state.take(&self.waiting) {
                return Some(work);
            }
            if state.is_closed {
                return None;
            }
            state.idle_threads += 1;
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
            state.idle_threads -= 1;
        }
    }

    /// Runs work until the queue is closed and empty.
    pub(crate) fn serve(&self) {
        while let Some(work) = self.take() {
            self.run(work);
        }
    }

    /// The work that waits or runs.
    pub(crate) fn unfinished(&self) -> usize {
        lock(&self.state).unfinished
    }

    /// Counts work that waits for something else than a thread.
    pub(crate) fn hold(&self) {
        lock(&self.state).unfinished += 1;
    }

    /// Ends such work.
    pub(crate) fn release(&self) {
        let mut state = lock(&self.state);
        state.unfinished -= 1;
        if state.watchers > 0 {
            self.finished.notify_all();
        }
    }

    /// Waits until some work finishes, at most until `by`. Returns what is unfinished.
    pub(crate) fn wait_finished(&self, by: Instant) -> usize {
        let mut state = lock(&self.state);
        if state.unfinished == 0 {
            return 0;
        }
        let left = by.saturating_duration_since(Instant::now());
        state.watchers += 1;
        state = self.finished.wait_timeout(state, left).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        state.watchers -= 1;
        state.unfinished
    }

    /// Lets the threads end once nothing waits. Takes no more work.
    pub(crate) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.changed.notify_all();
    }

    /// The work that waits.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl State {
    fn take(&mut self, count: &AtomicUsize) -> Option<(u64, Work)> {
        let connection = self.turns.pop_front()?;
        let waiting = self.of.get_mut(&connection)?;
        let work = waiting.pop_front()?;
        count.fetch_sub(1, Ordering::Relaxed);
        if waiting.is_empty() {
            self.of.remove(&connection);
        } else {
            self.turns.push_back(connection);
        }
        Some((connection, work))
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn connections_take_turns() {
        let queue = Queue::default();
        let order = Arc::new(Mutex::new(Vec::new()));
        for (connection, call) in [(1, 0), (1, 1), (1, 2), (2, 0), (3, 0), (2, 1)] {
            let order = order.clone();
            queue.add(connection, Box::new(move || order.lock().unwrap().push((connection, call))));
        }
        queue.close();
        queue.serve();
        assert_eq!(*order.lock().unwrap(), [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2)]);
    }
}

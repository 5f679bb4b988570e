//! The threads that run handlers.
//!
//! Calls of one connection wait in order, and connections take turns. So a client with many calls
//! does not hold up one with few. Work that runs is not interrupted, so a limit can keep one
//! connection from occupying all threads.

use farside_connect::lock;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

/// Work that waits for a thread.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// The work of all connections.
pub(crate) struct Queue {
    state: Mutex<State>,
    /// The most work of one connection that runs at once.
    running_max: usize,
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
    /// The number of works of each connection that run.
    running: HashMap<u64, usize>,
    /// The work that waits or runs.
    unfinished: usize,
    /// The threads that wait for work, and those that wait until some finishes. A system call wakes
    /// them, so it is not made for nothing.
    idle_threads: usize,
    watchers: usize,
    is_closed: bool,
}

impl Queue {
    pub(crate) fn new(running_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            running_max,
            waiting: AtomicUsize::new(0),
            changed: Condvar::new(),
            finished: Condvar::new(),
        }
    }

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
        let (connection, work) = lock(&self.state).take(&self.waiting, self.running_max)?;
        self.run(connection, work);
        Some(connection)
    }

    fn run(&self, connection: u64, work: Work) {
        work();
        let mut state = lock(&self.state);
        if let Entry::Occupied(mut running) = state.running.entry(connection) {
            *running.get_mut() -= 1;
            if *running.get() == 0 {
                running.remove();
            }
        }
        // What waits may be of this connection, and may run now.
        if !state.turns.is_empty() && state.idle_threads > 0 {
            self.changed.notify_one();
        }
        self.end_one(state);
    }

    /// Takes the next work, and waits for it. `None` once the queue is closed and empty.
    fn take(&self) -> Option<(u64, Work)> {
        let mut state = lock(&self.state);
        loop {
            if let Some(taken) = state.take(&self.waiting, self.running_max) {
                return Some(taken);
            }
            if state.is_closed && state.turns.is_empty() {
                // Other threads that wait have nothing to do, either.
                self.changed.notify_all();
                return None;
            }
            state.idle_threads += 1;
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
            state.idle_threads -= 1;
        }
    }

    /// Runs work until the queue is closed and empty.
    pub(crate) fn serve(&self) {
        while let Some((connection, work)) = self.take() {
            self.run(connection, work);
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
        self.end_one(lock(&self.state));
    }

    fn end_one(&self, mut state: MutexGuard<'_, State>) {
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
    fn take(&mut self, count: &AtomicUsize, running_max: usize) -> Option<(u64, Work)> {
        let may_run = |connection: &u64| self.running.get(connection).is_none_or(|running| *running < running_max);
        let place = self.turns.iter().position(may_run)?;
        let connection = self.turns.remove(place)?;
        let waiting = self.of.get_mut(&connection)?;
        let work = waiting.pop_front()?;
        count.fetch_sub(1, Ordering::Relaxed);
        *self.running.entry(connection).or_default() += 1;
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
    use std::sync::{Arc, mpsc};

    use super::*;

    #[test]
    fn connections_take_turns() {
        let queue = Queue::new(usize::MAX);
        let order = Arc::new(Mutex::new(Vec::new()));
        for (connection, call) in [(1, 0), (1, 1), (1, 2), (2, 0), (3, 0), (2, 1)] {
            let order = order.clone();
            queue.add(connection, Box::new(move || order.lock().unwrap().push((connection, call))));
        }
        queue.close();
        queue.serve();
        assert_eq!(*order.lock().unwrap(), [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2)]);
    }

    /// Two of three threads serve a connection whose work takes long. The third serves others.
    #[test]
    fn one_connection_does_not_occupy_all_threads() {
        let queue = Queue::new(2);
        let (release, released) = mpsc::channel();
        let released = Arc::new(Mutex::new(released));
        let (done, others) = mpsc::channel();
        std::thread::scope(|scope| {
            (0..3).for_each(|_| drop(scope.spawn(|| queue.serve())));
            for _ in 0..5 {
                let released = released.clone();
                queue.add(1, Box::new(move || released.lock().unwrap().recv().unwrap()));
            }
            for number in 0..10 {
                let done = done.clone();
                queue.add(2, Box::new(move || done.send(number).unwrap()));
                assert_eq!(others.recv_timeout(farside_testbed::limit()), Ok(number));
            }
            (0..5).for_each(|_| release.send(()).unwrap());
            queue.close();
        });
        assert_eq!(queue.unfinished(), 0);
    }
}

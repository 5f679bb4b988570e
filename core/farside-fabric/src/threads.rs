//! [`ThreadPool`]: threads that run work of several sources.
//!
//! Work of one source begins in order, and sources take turns: a source with much work does not
//! delay a source with little. Work that runs is not interrupted, so an option limits how much work
//! of one source runs at once.
//!
//! | [`PoolOptions::are_lasting`] | threads start | a thread without work |
//! |---|---|---|
//! | true | all in [`ThreadPool::start`] | sleeps until work comes or the pool closes |
//! | false | with work for which no thread is left | ends |
//!
//! A panic of the work ends that work only. Work that waits when the pool closes still runs.

use std::any::Any;
use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::clock::{Clock, SeatEnd, lock};

/// Work for a thread.
pub type Work = Box<dyn FnOnce() + Send>;

/// The options of a [`ThreadPool`].
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// The name of the threads.
    pub name: &'static str,
    /// The most threads at once. With 0, only [`ThreadPool::run_one`] runs work.
    pub threads: usize,
    /// True if threads stay when there is no work. Must be false for simulated threads, which would
    /// sleep in the system.
    pub are_lasting: bool,
    /// The most work of one source that runs at once.
    pub running_max: usize,
    /// The most work that waits or runs. More is refused.
    pub unfinished_max: usize,
}

impl PoolOptions {
    /// Options for threads that end when there is no work, without limits for work.
    pub const fn new(name: &'static str, threads: usize) -> Self {
        Self { name, threads, are_lasting: false, running_max: usize::MAX, unfinished_max: usize::MAX }
    }
}

/// Threads that run work.
///
/// *Cost*: work takes a lock when it is added and one when it has run. Adding it makes a system
/// call only if a thread sleeps or must be started.
///
/// ```
/// use farside_fabric::clock::Clock;
/// use farside_fabric::threads::{PoolOptions, ThreadPool};
///
/// let pool = ThreadPool::new(Clock::real(), PoolOptions::new("example", 2));
/// assert!(pool.add(0, Box::new(|| println!("on a thread")))?);
/// pool.close();
/// assert!(pool.join().is_ok());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ThreadPool(Arc<Shared>);

struct Shared {
    options: PoolOptions,
    clock: Clock,
    state: Mutex<State>,
    /// The work that waits. Changed under the lock.
    waiting: AtomicUsize,
    /// Wakes threads that sleep.
    added: Condvar,
    /// Wakes those that wait until work has ended.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// The sources that have work.
    sources: HashMap<u64, Source>,
    /// The sources with work that waits, in turn.
    turns: VecDeque<u64>,
    /// The first work of each thread that is starting. It counts as running.
    first: VecDeque<(u64, Work)>,
    unfinished: usize,
    threads: usize,
    idle_threads: usize,
    watchers: usize,
    is_closed: bool,
    /// The threads, perhaps with some that have ended.
    started: Vec<(JoinHandle<()>, SeatEnd)>,
    /// The first panic of the work.
    panic: Option<Box<dyn Any + Send>>,
}

#[derive(Default)]
struct Source {
    waiting: VecDeque<Work>,
    running: usize,
}

impl ThreadPool {
    /// Makes a pool without threads. Its threads wait by the clock.
    pub fn new(clock: Clock, options: PoolOptions) -> Self {
        debug_assert!(!(options.are_lasting && clock.is_simulated()), "lasting threads take no turns");
        let (added, ended) = (Condvar::new(), Condvar::new());
        Self(Arc::new(Shared { options, clock, state: Mutex::default(), waiting: AtomicUsize::new(0), added, ended }))
    }

    /// Starts all threads of a pool whose threads are lasting. After a failure, some may run until
    /// the pool closes.
    ///
    /// # Errors
    /// The error of the system if a thread cannot be started.
    pub fn start(&self) -> io::Result<()> {
        let mut state = lock(&self.0.state);
        (0..self.0.options.threads).try_for_each(|_| self.start_thread(&mut state))
    }

    /// Starts a thread. Its first action is to take the lock.
    fn start_thread(&self, state: &mut State) -> io::Result<()> {
        #[cfg(test)]
        if tests::LACKS_THREADS.get() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let (shared, seat) = (self.0.clone(), self.0.clock.seat());
        let end = seat.end();
        let named = thread::Builder::new().name(shared.options.name.to_owned());
        let thread = named.spawn(move || {
            let unserved = Unserved { shared: &shared, serves: Cell::new(false) };
            seat.take(|| {
                unserved.serves.set(true);
                shared.serve();
            });
        })?;
        state.started.retain(|(thread, _)| !thread.is_finished());
        state.started.push((thread, end));
        state.threads += 1;
        Ok(())
    }

    /// Has a thread run work. Returns false and drops the work if the pool is full or closed.
    ///
    /// # Errors
    /// The error of the system if a thread is needed and cannot be started.
    pub fn add(&self, source: u64, work: Work) -> io::Result<bool> {
        let PoolOptions { threads, are_lasting, running_max, unfinished_max, .. } = self.0.options;
        // Unlocked before refused work is dropped, because the work may own a user of this pool.
        let mut guard = lock(&self.0.state);
        let state = &mut *guard;
        if state.is_closed || state.unfinished >= unfinished_max {
            return Ok(false);
        }
        if !are_lasting && state.threads < threads && state.may_run(source, running_max) {
            // Another thread may start, so no work waits that may run. None of this source does.
            self.start_thread(state)?;
            state.unfinished += 1;
            state.sources.entry(source).or_default().running += 1;
            state.first.push_back((source, work));
            return Ok(true);
        }
        state.unfinished += 1;
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        let of_source = state.sources.entry(source).or_default();
        of_source.waiting.push_back(work);
        if of_source.waiting.len() == 1 {
            state.turns.push_back(source);
        }
        let wakes = state.idle_threads > 0 && of_source.running < running_max;
        drop(guard);
        if wakes {
            self.0.added.notify_one();
        }
        Ok(true)
    }

    /// Runs the next work of a pool without threads, if there is some. Returns its source.
    pub fn run_one(&self) -> Option<u64> {
        debug_assert_eq!(self.0.options.threads, 0, "its threads would not learn of work that may run now");
        let (source, work) = self.0.take(&mut lock(&self.0.state))?;
        drop(self.0.run(source, work));
        Some(source)
    }

    /// Returns how much work waits for a thread.
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// Returns how much work waits or runs.
    pub fn unfinished(&self) -> usize {
        lock(&self.0.state).unfinished
    }

    /// Counts one more piece of work as unfinished, which waits for something else than a thread.
    pub fn count_one(&self) {
        lock(&self.0.state).unfinished += 1;
    }

    /// Ends work that was [counted](Self::count_one).
    pub fn end_one(&self) {
        self.0.end_one(&mut lock(&self.0.state));
    }

    /// Waits until some work ends, at most until `by`. Returns how much is unfinished.
    pub fn wait_until_less(&self, by: Instant) -> usize {
        let mut state = lock(&self.0.state);
        if state.unfinished > 0 {
            let left = by.saturating_duration_since(Instant::now());
            state.watchers += 1;
            state = self.0.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.watchers -= 1;
        }
        state.unfinished
    }

    /// Takes no more work. Threads end when no work waits.
    pub fn close(&self) {
        lock(&self.0.state).is_closed = true;
        self.0.added.notify_all();
    }

    /// Waits for the threads of a pool that is [closed](Self::close). Not for a thread of the pool.
    ///
    /// # Errors
    /// The first panic of the work.
    pub fn join(&self) -> thread::Result<()> {
        let started = std::mem::take(&mut lock(&self.0.state).started);
        let mut joined = Ok(());
        for (thread, end) in started {
            end.wait();
            joined = joined.and(thread.join());
        }
        lock(&self.0.state).panic.take().map_or(joined, Err)
    }
}

/// A thread that has not begun to serve. A simulated process may be killed before: then the work
/// for which the thread was started is dropped.
struct Unserved<'a> {
    shared: &'a Shared,
    serves: Cell<bool>,
}

impl Drop for Unserved<'_> {
    fn drop(&mut self) {
        if !self.serves.get() {
            // Dropped after the lock is free.
            let _work = lock(&self.shared.state).first.pop_front();
        }
    }
}

impl Shared {
    /// Runs work until there is none, and for lasting threads until the pool is closed as well.
    fn serve(&self) {
        let mut state = lock(&self.state);
        let mut first = state.first.pop_front();
        loop {
            if let Some((source, work)) = first.take().or_else(|| self.take(&mut state)) {
                drop(state);
                state = self.run(source, work);
            } else if state.is_closed || !self.options.are_lasting {
                break;
            } else {
                state.idle_threads += 1;
                state = self.added.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle_threads -= 1;
            }
        }
        state.threads -= 1;
        if !state.is_closed {
            // No thread joins it before the pool is closed, and its stack would stay until then.
            let own = thread::current().id();
            state.started.retain(|(thread, _)| thread.thread().id() != own);
        }
    }

    /// Takes the next work that may run.
    fn take(&self, state: &mut State) -> Option<(u64, Work)> {
        let running_max = self.options.running_max;
        let place = state.turns.iter().position(|source| state.may_run(*source, running_max))?;
        let source = state.turns.remove(place)?;
        let of_source = state.sources.get_mut(&source)?;
        let work = of_source.waiting.pop_front()?;
        of_source.running += 1;
        if !of_source.waiting.is_empty() {
            state.turns.push_back(source);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some((source, work))
    }

    /// Runs work, and returns with the lock. The caller takes the work that may run now, so no
    /// other thread is woken for it.
    fn run(&self, source: u64, work: Work) -> MutexGuard<'_, State> {
        let ran = catch_unwind(AssertUnwindSafe(work));
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        if let Err(panic) = ran {
            if state.panic.is_none() {
                state.panic = Some(panic);
            } else {
                // To drop it would run code of others under the lock.
                std::mem::forget(panic);
            }
        }
        if let Entry::Occupied(mut of_source) = state.sources.entry(source) {
            of_source.get_mut().running -= 1;
            if of_source.get().running == 0 && of_source.get().waiting.is_empty() {
                of_source.remove();
            }
        }
        self.end_one(state);
        guard
    }

    fn end_one(&self, state: &mut State) {
        state.unfinished -= 1;
        if state.watchers > 0 {
            self.ended.notify_all();
        }
    }
}

impl State {
    /// Returns whether work of a source may begin to run.
    fn may_run(&self, source: u64, running_max: usize) -> bool {
        self.sources.get(&source).is_none_or(|of_source| of_source.running < running_max)
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool").field("options", &self.0.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use farside_testbed::{deadline, limit, now, wait_until};

    use super::*;

    thread_local! {
        /// True if this thread can start no other thread.
        pub(super) static LACKS_THREADS: Cell<bool> = const { Cell::new(false) };
    }

    fn pool(options: PoolOptions) -> ThreadPool {
        ThreadPool::new(Clock::real(), options)
    }

    /// Work that runs until something is sent.
    fn gate() -> (Sender<()>, Work) {
        let (open, opened) = channel();
        (open, Box::new(move || opened.recv_timeout(limit()).unwrap()))
    }

    /// Makes work that sends its number.
    fn notes() -> (impl Fn(u64) -> Work, Receiver<u64>) {
        let (note, noted) = channel();
        let work = move |number| {
            let note = note.clone();
            Box::new(move || note.send(number).unwrap()) as Work
        };
        (work, noted)
    }

    fn end(pool: &ThreadPool) {
        pool.close();
        pool.join().unwrap();
        assert_eq!((pool.unfinished(), pool.waiting()), (0, 0));
        assert!(lock(&pool.0.state).sources.is_empty());
    }

    #[test]
    fn sources_take_turns() {
        let pool = pool(PoolOptions::new("turns", 0));
        let (note, noted) = notes();
        for (source, number) in [(1, 10), (1, 11), (1, 12), (2, 20), (3, 30), (2, 21)] {
            assert!(pool.add(source, note(number)).unwrap());
        }
        assert_eq!((pool.unfinished(), pool.waiting()), (6, 6));
        while pool.run_one().is_some() {}
        assert_eq!(noted.try_iter().collect::<Vec<_>>(), [10, 20, 30, 11, 21, 12]);
        end(&pool);
    }

    /// Two of three threads serve a source whose work takes long. The third serves others.
    #[test]
    fn one_source_does_not_occupy_all_threads() {
        for are_lasting in [true, false] {
            let pool = pool(PoolOptions { are_lasting, running_max: 2, ..PoolOptions::new("shared", 3) });
            if are_lasting {
                pool.start().unwrap();
            }
            let gates: Vec<_> = (0..5).map(|_| gate()).collect();
            let (opens, works): (Vec<_>, Vec<_>) = gates.into_iter().unzip();
            works.into_iter().for_each(|work| assert!(pool.add(1, work).unwrap()));
            let (note, noted) = notes();
            for number in 0..10 {
                assert!(pool.add(2, note(number)).unwrap());
                assert_eq!(noted.recv_timeout(limit()), Ok(number));
            }
            opens.iter().for_each(|open| open.send(()).unwrap());
            end(&pool);
        }
    }

    #[test]
    fn a_panic_of_the_work_does_not_lose_the_thread() {
        for are_lasting in [true, false] {
            let pool = pool(PoolOptions { are_lasting, running_max: 1, ..PoolOptions::new("panics", 1) });
            if are_lasting {
                pool.start().unwrap();
            }
            let (note, noted) = notes();
            assert!(pool.add(1, Box::new(|| panic!("planted"))).unwrap());
            assert!(pool.add(1, note(5)).unwrap());
            assert_eq!(noted.recv_timeout(limit()), Ok(5));
            pool.close();
            assert_eq!(pool.join().unwrap_err().downcast_ref(), Some(&"planted"));
            end(&pool);
        }
    }

    #[test]
    fn a_full_pool_refuses_work() {
        let pool = pool(PoolOptions { unfinished_max: 2, ..PoolOptions::new("full", 1) });
        let (open, work) = gate();
        let (note, noted) = notes();
        assert!(pool.add(0, work).unwrap());
        assert!(pool.add(0, note(1)).unwrap());
        assert!(!pool.add(0, note(2)).unwrap());
        open.send(()).unwrap();
        assert_eq!(noted.recv_timeout(limit()), Ok(1));
        wait_until("the work has ended", || pool.unfinished() == 0);
        assert!(pool.add(0, note(3)).unwrap());
        assert_eq!(noted.recv_timeout(limit()), Ok(3));
        end(&pool);
    }

    #[test]
    fn work_that_waits_at_the_end_runs() {
        for are_lasting in [true, false] {
            let pool = pool(PoolOptions { are_lasting, running_max: 1, ..PoolOptions::new("ends", 2) });
            if are_lasting {
                pool.start().unwrap();
            }
            let (open, work) = gate();
            let (note, noted) = notes();
            assert!(pool.add(1, work).unwrap());
            (0..4).for_each(|number| assert!(pool.add(1, note(number)).unwrap()));
            pool.close();
            assert!(!pool.add(2, note(9)).unwrap());
            open.send(()).unwrap();
            end(&pool);
            assert_eq!(noted.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
        }
    }

    #[test]
    fn work_for_which_no_thread_starts_is_refused() {
        let pool = pool(PoolOptions { running_max: 1, ..PoolOptions::new("lacking", 2) });
        let (note, noted) = notes();
        LACKS_THREADS.set(true);
        let refused = pool.add(1, note(0)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        assert!(pool.start().is_err());
        LACKS_THREADS.set(false);
        let (open, work) = gate();
        assert!(pool.add(1, work).unwrap());
        LACKS_THREADS.set(true);
        pool.add(2, note(1)).unwrap_err();
        // The thread of this source runs it later.
        assert!(pool.add(1, note(2)).unwrap());
        open.send(()).unwrap();
        assert_eq!(noted.recv_timeout(limit()), Ok(2));
        LACKS_THREADS.set(false);
        end(&pool);
        assert_eq!(noted.try_iter().count(), 0);
    }

    #[test]
    fn threads_that_do_not_last_keep_the_order_of_a_source() {
        let pool = pool(PoolOptions { running_max: 1, ..PoolOptions::new("passing", 4) });
        let (note, noted) = notes();
        (0..2000).for_each(|number| assert!(pool.add(number % 7, note(number)).unwrap()));
        pool.close();
        pool.join().unwrap();
        let noted: Vec<_> = noted.try_iter().collect();
        assert_eq!(noted.len(), 2000);
        for source in 0..7 {
            assert!(noted.iter().filter(|number| *number % 7 == source).is_sorted());
        }
        end(&pool);
    }

    #[test]
    fn the_end_of_work_is_awaited() {
        let pool = pool(PoolOptions::new("awaited", 1));
        assert_eq!(pool.wait_until_less(deadline()), 0);
        let (open, work) = gate();
        assert!(pool.add(0, work).unwrap());
        pool.count_one();
        assert_eq!(pool.wait_until_less(now()), 2);
        open.send(()).unwrap();
        while pool.wait_until_less(deadline()) > 1 {}
        pool.end_one();
        end(&pool);
    }
}

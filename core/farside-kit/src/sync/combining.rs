//! Combining: the thread that holds the value also runs the operations of the others.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use farside::Refused;
use farside::kit::{end_accesses_here, this_thread_handles};
use farside_fabric::clock::pause_in_turns;

use super::atomics::ValueCell;
use super::error::{Result, SyncError};
use super::operation::{After, Asked, Guarded, Outcome, POSTED_MAX, Posted};
use super::requests::{Ended, List, Requests, run};
use super::{WAIT_POLICY, this_thread};

/// A value on which many threads work, each by submitting operations. A thread that finds the value
/// free runs its own operation, and then those that other threads submitted meanwhile.
///
/// A lock moves from core to core with each holder, and the cache lines of its value follow. Here
/// the value stays on one core as long as there is work, and the operations move. So this suits
/// values that many threads use at the same time by short operations: counters, queues, maps in
/// which the calls of several workers end. Operations run in the order of submission, no thread
/// waits while others have a second turn, and a handler can submit without waiting. A mutex
/// promises none of that. On two cores a mutex therefore has the higher throughput, since it lets
/// one thread have many turns in a row (`farside bench sync`). Where its promises are enough, use a
/// mutex.
///
/// ```
/// use farside_kit::sync::Combining;
///
/// let hits = Combining::new(vec![0_u64; 16]);
/// std::thread::scope(|scope| {
///     for thread in 0..4 {
///         let hits = &hits;
///         scope.spawn(move || {
///             for hit in 0..1000 {
///                 let ran = hits.run(|buckets| buckets[(hit + thread) % 16] += 1);
///                 ran.expect("no operation panics");
///             }
///         });
///     }
/// });
/// assert_eq!(hits.into_inner()?.iter().sum::<u64>(), 4000);
/// # Ok::<(), farside::Error>(())
/// ```
///
/// # In handlers
///
/// A handler must not wait, and [`run`](Self::run) waits for earlier operations, so it is refused
/// in handlers. Use [`post`](Self::post) there: the operation runs at once, or in the thread that
/// holds the value, and can answer a call by a [`Reply`](farside::Reply) that it takes along. Or
/// use [`try_run`](Self::try_run), which gives the operation back if the value is not free. Both
/// may run the operations of others: at most 1024 posted ones, and those of at most 64 waiting
/// threads. Threads that may block use `run`: a worker's own body, the
/// [pool](farside::Worker::pool_of) of a process, threads of the program.
///
/// ```no_run
/// # use farside::prelude::*;
/// # use farside_kit::sync::Combining;
/// # use std::collections::BTreeMap;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// // One map in each process, shared by all workers of the process.
/// let map = Dist::new(me, || Combining::new(BTreeMap::<u64, u64>::new()))?;
/// type Answer = Reply<Option<u64>>;
/// let to = me.neighbor(1);
/// let before = me.call_with_reply(to, (map, 7_u64), |there, (map, key), reply: Answer| {
///     // Without room, the operation and its reply are dropped, and the caller gets an error.
///     let _ = map.here(there).post(move |map| reply.send(map.insert(key, 42)));
/// })?;
/// assert_eq!(before.wait()?, None);
/// # Ok(())
/// # }
/// ```
///
/// # Panics of operations
///
/// An operation that panics does so in the thread that submitted it, whichever thread ran it. Since
/// the value may then be half changed, it is *poisoned*: later operations do not run and get
/// [`SyncError::Poisoned`], until an operation given to [`repair`](Self::repair) has restored it.
///
/// *Cost*: uncontended, two compare-and-swaps and a guard against panics, about twice a mutex.
/// Contended, one compare-and-swap for each operation, and the transfer of the operation and its
/// result between cores. A thread that waits longer than about a microsecond sleeps. A post takes
/// one allocation; nothing else allocates.
pub struct Combining<T> {
    requests: Requests<Guarded<T>>,
    guarded: ValueCell<Guarded<T>>,
    /// The number of posted operations whose runner has not freed the value yet. Written by all
    /// threads; only counts.
    posted: AtomicU32,
}

/// The number of waiting threads' operations that a thread runs before it passes the value on to
/// one of them.
const SERVED_MAX: u32 = 64;

// SAFETY: `requests` gives the value to one thread at a time, and each sees what the one before it
// did. So sharing it only requires that the value can be sent.
unsafe impl<T: Send> Sync for Combining<T> {}

impl<T> Combining<T> {
    /// Makes a value to be shared.
    pub fn new(value: T) -> Self {
        Self { requests: Requests::free(), guarded: ValueCell::new(Guarded::new(value)), posted: AtomicU32::new(0) }
    }

    /// Returns the value.
    ///
    /// # Errors
    /// [`SyncError::Poisoned`].
    pub fn into_inner(self) -> Result<T> {
        let Guarded { value, is_poisoned } = self.guarded.into_inner();
        if is_poisoned { Err(SyncError::Poisoned) } else { Ok(value) }
    }
}

impl<T: Send> Combining<T> {
    /// Runs an operation on the value, in this thread or in the one that holds the value, and waits
    /// for its result. That takes as long as the earlier operations. Handlers must not call it.
    ///
    /// # Errors
    /// [`SyncError::Poisoned`]; [`SyncError::InHandler`] in a handler, also for an operation run by
    /// a handler that submits one to another value.
    ///
    /// # Panics
    /// If the operation panics; if an operation on this value calls it, since it would wait for
    /// itself.
    #[track_caller]
    pub fn run<R: Send>(&self, operation: impl FnOnce(&mut T) -> R + Send) -> Result<R> {
        self.run_after(After::Refuse, operation)
    }

    /// Like [`run`](Self::run), but also runs on a poisoned value, and clears the poison.
    ///
    /// # Errors
    /// [`SyncError::InHandler`].
    ///
    /// # Panics
    /// Those of [`run`](Self::run).
    #[track_caller]
    pub fn repair<R: Send>(&self, operation: impl FnOnce(&mut T) -> R + Send) -> Result<R> {
        self.run_after(After::Mend, operation)
    }

    /// Runs an operation if the value is free. Handlers may call it.
    ///
    /// # Errors
    /// With the operation: [`SyncError::Busy`]. As the result: [`SyncError::Poisoned`].
    ///
    /// # Panics
    /// If the operation panics.
    pub fn try_run<R, F: FnOnce(&mut T) -> R>(&self, operation: F) -> Result<Result<R>, Refused<F, SyncError>> {
        end_accesses_here();
        if !self.requests.try_hold(this_thread()) {
            return Err(Refused { error: SyncError::Busy, arguments: operation });
        }
        let outcome = self.run_here(After::Refuse, operation);
        self.serve(List::empty());
        Ok(outcome.into_result())
    }

    /// Submits an operation. It runs here and now if the value is free, and otherwise in the thread
    /// that holds the value, after earlier operations. Does not wait for other threads. Handlers
    /// may call it.
    ///
    /// The operation itself must send on any result. If it panics, or does not run because the
    /// value is poisoned, everything that it owns is dropped: the caller of a
    /// [`Reply`](farside::Reply) gets an error.
    ///
    /// # Errors
    /// With the operation: [`SyncError::Full`] if 1024 posted operations are unfinished.
    pub fn post<F: FnOnce(&mut T) + Send + 'static>(&self, operation: F) -> Result<(), Refused<F, SyncError>> {
        if self.posted.fetch_add(1, Ordering::Relaxed) >= POSTED_MAX {
            self.posted.fetch_sub(1, Ordering::Relaxed);
            return Err(Refused { error: SyncError::Full { max: POSTED_MAX as usize }, arguments: operation });
        }
        end_accesses_here();
        let mark = this_thread();
        if self.requests.try_hold(mark) {
            self.run_here(After::Refuse, operation).discard();
            self.serve(List::empty());
            self.posted.fetch_sub(1, Ordering::Relaxed);
            return Ok(());
        }
        let request = Posted::<T, F>::boxed(operation);
        // SAFETY: the request is new, and stays in its box until it was run.
        let is_left = unsafe { self.requests.leave_or_hold(request, mark) };
        if !is_left {
            // SAFETY: the request was not left, so only this thread has it; this thread also holds
            // the value.
            unsafe { run(request, &self.guarded) };
            self.serve(List::empty());
            self.posted.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }

    #[track_caller]
    fn run_after<R: Send>(&self, after: After, operation: impl FnOnce(&mut T) -> R + Send) -> Result<R> {
        if this_thread_handles() {
            return Err(SyncError::InHandler);
        }
        end_accesses_here();
        let mark = this_thread();
        if self.hold_in_turns(mark) {
            let outcome = self.run_here(after, operation);
            self.serve(List::empty());
            return outcome.into_result();
        }
        assert!(!self.requests.is_held_by(mark), "an operation asks for another one on the value that it has itself");
        let asked = Asked::new(after, operation);
        // SAFETY: the request is new, and stays here until it was run or this thread holds the
        // value.
        let is_left = unsafe { self.requests.leave_or_hold(asked.as_request(), mark) };
        let ended = match is_left {
            true => self.requests.wait(asked.request(), WAIT_POLICY, mark),
            false => Ended::Chosen(List::empty()),
        };
        if let Ended::Chosen(rest) = ended {
            // SAFETY: this thread holds the value, so nothing else reaches it.
            self.guarded.with_mut(|guarded| asked.run(unsafe { &mut *guarded }));
            self.serve(rest);
        }
        asked.into_outcome().into_result()
    }

    /// Takes hold of the value if it is free. In a simulation, the holder may have passed on its
    /// turn within its operation, and would not get the turn back while this thread slept. So there
    /// this waits until it holds the value.
    #[inline]
    fn hold_in_turns(&self, mark: usize) -> bool {
        loop {
            if self.requests.try_hold(mark) {
                return true;
            }
            if self.requests.is_held_by(mark) || !pause_in_turns() {
                return false;
            }
        }
    }

    /// Runs an operation of this thread. This thread holds the value.
    fn run_here<R>(&self, after: After, operation: impl FnOnce(&mut T) -> R) -> Outcome<R> {
        // SAFETY: this thread holds the value, so nothing else reaches it.
        self.guarded.with_mut(|guarded| unsafe { &mut *guarded }.run(after, operation))
    }

    /// Runs the submitted operations. This thread holds the value, and does not afterwards.
    fn serve(&self, list: List<Guarded<T>>) {
        // SAFETY: this thread holds the value, so nothing else reaches it.
        let posted = unsafe { self.requests.serve(&self.guarded, list, SERVED_MAX, this_thread()) };
        // Only now, so that no more operations are posted than this thread may run in one call.
        if posted > 0 {
            self.posted.fetch_sub(posted, Ordering::Relaxed);
        }
    }
}

impl<T> fmt::Debug for Combining<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Combining").field("is_held", &self.requests.is_held()).finish_non_exhaustive()
    }
}

//! Combining: whoever has the value runs the operations of the others, too.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use farside_fabric::clock::pause_in_turns;

use super::atomics::ValueCell;
use super::error::{Result, SyncError};
use super::operation::{After, Asked, Guarded, Outcome, POSTED_MAX, Posted};
use super::requests::{Ended, List, Requests, run};
use super::ticket::Ticket;
use super::{WAIT_POLICY, this_thread};
use crate::error::Refused;
use crate::invoke::inbox::this_thread_handles;
use crate::runtime::observer::end_accesses_here;

/// A value that many threads work on, each by handing in an operation. Who finds it free runs its own, and then those of all who came
/// meanwhile; these find theirs done.
///
/// A lock goes from core to core with each holder, and the value's cache lines follow it. Here they stay where they are as long as there is
/// something to do, and what goes from core to core are the operations. So this is for values that many threads want at the same time,
/// by operations that are short: counters, queues, maps that the calls of several workers end in. Operations run in the order in which they were
/// asked for, none waits while others have a second turn, and a handler can leave one behind without waiting at all. A mutex promises none of
/// that, and on two cores it has the higher throughput for it, since it lets one thread have many turns in a row
/// (`farside bench sync`): where its promises are enough, use a mutex.
///
/// ```
/// use farside::sync::Combining;
///
/// let hits = Combining::new(vec![0_u64; 16]);
/// std::thread::scope(|scope| {
///     for thread in 0..4 {
///         let hits = &hits;
///         scope.spawn(move || {
///             for hit in 0..1000 {
///                 hits.run(|buckets| buckets[(hit + thread) % 16] += 1).expect("no operation panics");
///             }
///         });
///     }
/// });
/// assert_eq!(hits.into_inner()?.iter().sum::<u64>(), 4000);
/// # Ok::<(), farside::Error>(())
/// ```
///
/// # In functions that are called
///
/// A handler must not wait, and [`run`](Self::run) waits for the operations before its own. There, use [`post`](Self::post), whose operation is
/// run at once or by whoever has the value, and which can answer a call itself by the [`Reply`](crate::Reply) it takes along; or
/// [`try_run`](Self::try_run), which gives the operation back when the value is not free. (`run` is refused there.) Both may run what others have posted, at most 1024
/// operations, and the operations of at most 64 threads that wait. Threads that may block (a worker's own body, the
/// [service threads](crate::Job::service_threads) of a job, threads of the program) use `run`.
///
/// ```no_run
/// # use farside::prelude::*;
/// # use farside::sync::Combining;
/// # use std::collections::BTreeMap;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// // One map in each process, on which all workers of the process work.
/// let map = Dist::new(me, || Combining::new(BTreeMap::<u64, u64>::new()))?;
/// let before = me.call_with_reply(me.neighbor(1), (map, 7_u64), |there, (map, key), reply: Reply<Option<u64>>| {
///     // When there is no room the operation is dropped, and the reply with it: the caller is told.
///     let _ = map.here(there).post(move |map| reply.send(map.insert(key, 42)));
/// })?;
/// assert_eq!(before.wait()?, None);
/// # Ok(())
/// # }
/// ```
///
/// # Panics of operations
///
/// An operation that panics does so in the thread that asked for it, whoever ran it. The value may be half changed then, so that it is
/// *poisoned*: later operations are not run, and get [`SyncError::Poisoned`], until one that was given to [`mend`](Self::mend) has put it in order.
///
/// *Cost*: uncontended two compare-and-swaps and a guard against panics, about twice a mutex. Under contention one for each operation, and its own and its result's way to the
/// other core; a thread that waits longer than about a microsecond sleeps. No allocation but for posts, which take one each.
pub struct Combining<T> {
    requests: Requests<Guarded<T>>,
    guarded: ValueCell<Guarded<T>>,
    /// Operations that were posted, and for which the one who ran them still has the value. Written by all; counts only.
    posted: AtomicU32,
}

/// So many operations of others a thread runs before it passes the value on to one of them.
const SERVED_MAX: u32 = 64;

// SAFETY: threads reach the value one at a time, by `requests`, each after what the one before it did; so that it must be possible to send it.
unsafe impl<T: Send> Sync for Combining<T> {}

impl<T> Combining<T> {
    /// A value for all.
    pub fn new(value: T) -> Self {
        Self { requests: Requests::free(), guarded: ValueCell::new(Guarded::new(value)), posted: AtomicU32::new(0) }
    }

    /// The value, when nobody else has it any more.
    ///
    /// # Errors
    /// [`SyncError::Poisoned`].
    pub fn into_inner(self) -> Result<T> {
        let Guarded { value, is_poisoned } = self.guarded.into_inner();
        if is_poisoned { Err(SyncError::Poisoned) } else { Ok(value) }
    }
}

impl<T: Send> Combining<T> {
    /// Runs an operation on the value, here or where it is at the moment, and waits for its result: for as long as the operations before
    /// it take. Not for handlers.
    ///
    /// # Errors
    /// [`SyncError::Poisoned`]; in a handler, [`SyncError::InHandler`], also when an operation asks for one on another value, and is
    /// run in a handler.
    ///
    /// # Panics
    /// When the operation does; when it is called by an operation on this same value, which would wait for itself.
    #[track_caller]
    pub fn run<R: Send>(&self, operation: impl FnOnce(&mut T) -> R + Send) -> Result<R> {
        self.run_after(After::Refuse, operation)
    }

    /// As [`run`](Self::run), also when the value is poisoned. Afterwards it is so no more.
    ///
    /// # Errors
    /// [`SyncError::InHandler`].
    ///
    /// # Panics
    /// As there.
    #[track_caller]
    pub fn mend<R: Send>(&self, operation: impl FnOnce(&mut T) -> R + Send) -> Result<R> {
        self.run_after(After::Mend, operation)
    }

    /// Runs an operation on the value, if nobody has it. For handlers, too.
    ///
    /// # Errors
    /// With the operation: [`SyncError::Busy`]. Without, as a result: [`SyncError::Poisoned`].
    ///
    /// # Panics
    /// When the operation does.
    pub fn try_run<R, F: FnOnce(&mut T) -> R>(&self, operation: F) -> Result<Result<R>, Refused<F, SyncError>> {
        end_accesses_here();
        if !self.requests.try_hold(this_thread()) {
            return Err(Refused { error: SyncError::Busy, arguments: operation });
        }
        let outcome = self.run_here(After::Refuse, operation);
        self.serve(List::empty());
        Ok(outcome.into_result())
    }

    /// Has an operation run, here and now if nobody has the value, and else by whoever has it, after those that came before. Does not wait for
    /// others to run it. For handlers, too.
    ///
    /// What it finds out it must send to somebody itself. If it panics, or is not run because the value is poisoned, what it carries is
    /// dropped, as a [`Reply`](crate::Reply) whose caller is told so.
    ///
    /// # Errors
    /// With the operation: [`SyncError::Full`] when 1024 were posted that are not done with yet.
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
        // SAFETY: it is new, and in a box that stays until it was run.
        let is_left = unsafe { self.requests.leave_or_hold(request, mark) };
        if !is_left {
            // SAFETY: it was not left, so that only this thread has it, which also has the value.
            unsafe { run(request, &self.guarded) };
            self.serve(List::empty());
            self.posted.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Posts an operation whose result is to be looked for later, or waited for until a deadline.
    ///
    /// # Errors
    /// As for [`post`](Self::post).
    pub fn start<R, F>(&self, operation: F) -> Result<Ticket<R>>
    where
        R: Send + 'static,
        F: FnOnce(&mut T) -> R + Send + 'static,
    {
        let (ticket, operation) = Ticket::of(operation);
        self.post(operation)?;
        Ok(ticket)
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
        // SAFETY: it is new, and stays here until it was run, or this thread holds.
        let is_left = unsafe { self.requests.leave_or_hold(asked.as_request(), mark) };
        let ended = match is_left {
            true => self.requests.wait(asked.request(), WAIT_POLICY, mark),
            false => Ended::Chosen(List::empty()),
        };
        if let Ended::Chosen(rest) = ended {
            // SAFETY: this thread holds, and so nobody else reaches the value.
            self.guarded.with_mut(|guarded| asked.run(unsafe { &mut *guarded }));
            self.serve(rest);
        }
        asked.into_outcome().into_result()
    }

    /// Holds, if nobody does. In a simulation the holder may have handed its turn on in its operation, and would not have it again while this
    /// thread slept: there this waits until it can hold.
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

    /// Runs an operation of this thread's own. This thread holds.
    fn run_here<R>(&self, after: After, operation: impl FnOnce(&mut T) -> R) -> Outcome<R> {
        // SAFETY: this thread holds, and so nobody else reaches the value.
        self.guarded.with_mut(|guarded| unsafe { &mut *guarded }.run(after, operation))
    }

    /// Does what the others want. This thread holds, and does not after that.
    fn serve(&self, list: List<Guarded<T>>) {
        // SAFETY: this thread holds.
        let posted = unsafe { self.requests.serve(&self.guarded, list, SERVED_MAX, this_thread()) };
        // Only now: so no more are posted than this thread may run in one go.
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

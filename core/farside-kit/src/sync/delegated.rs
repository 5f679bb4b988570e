//! Delegation: one thread owns the value and runs the operations of the others.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle, ThreadId};

use farside::kit::{end_accesses_here, this_thread_handles};
use farside::{Error, Refused};
use farside_fabric::wait::Backoff;

use super::atomics::ValueCell;
use super::error::{Result, SyncError};
use super::operation::{After, Asked, Guarded, POSTED_MAX, Posted};
use super::requests::{Ended, Request, Requests, run};
use super::ticket::Ticket;
use super::{WAIT_POLICY, this_thread};

/// A value with a thread of its own. Other threads submit operations and get the results
/// (delegation, by Calciu, Gottschlich and Herlihy).
///
/// The value is made in its thread and never leaves it, so it need not be `Send`. Delegation pays
/// for a large value that should stay in one core's caches, if there is a core to spare, and for a
/// value that only one thread can use. Otherwise [`Combining`](super::Combining) does the same
/// without a thread, in a fraction of the time. In a [simulation](farside::Simulation) the thread
/// does not take turns with the others: what it does there, such as answering a call, may not be
/// noticed in (virtual) time. Use `Combining` there.
///
/// ```
/// use std::cell::RefCell;
/// use std::rc::Rc;
///
/// use farside_kit::sync::Delegated;
///
/// let log = Delegated::new(|| Rc::new(RefCell::new(Vec::new())))?;
/// std::thread::scope(|scope| {
///     for thread in 0..4 {
///         let log = &log;
///         let add = move || log.run(|lines| lines.borrow_mut().push(thread));
///         scope.spawn(move || add().expect("no operation panics"));
///     }
/// });
/// assert_eq!(log.run(|lines| lines.borrow().len())?, 4);
/// # Ok::<(), farside::Error>(())
/// ```
///
/// Handlers use [`post`](Self::post), or [`start`](Self::start) and take the result later;
/// [`run`](Self::run) is for threads that may block. A panic of an operation goes to the thread
/// that submitted it, and poisons the value, as with [`Combining`](super::Combining).
///
/// Dropping it runs all posted operations and ends the thread. The drop waits for that, unless an
/// operation drops it.
///
/// *Cost*: one compare-and-swap for each operation, and the transfer of the operation and its
/// result between cores. A system call if the thread sleeps, which it does about a microsecond
/// after the last operation. A post takes one allocation; nothing else allocates.
pub struct Delegated<T: 'static> {
    pub(super) shared: Arc<Shared<T>>,
    thread: Option<JoinHandle<()>>,
    owner: ThreadId,
}

pub(super) struct Shared<T> {
    requests: Requests<Guarded<T>>,
    /// The number of posted operations that have not run. Written by all threads; only counts.
    posted: AtomicU32,
    /// The thread is to end when there is nothing left to do. Written by the drop, read by the
    /// thread.
    stop: AtomicBool,
}

impl<T> Delegated<T> {
    /// Starts a thread, which makes the value.
    ///
    /// # Errors
    /// [`Error::System`] if the thread cannot be started.
    ///
    /// # Panics
    /// If `make` panics.
    pub fn new(make: impl FnOnce() -> T + Send + 'static) -> Result<Self> {
        let shared =
            Arc::new(Shared { requests: Requests::free(), posted: AtomicU32::new(0), stop: AtomicBool::new(false) });
        let (made, is_made) = sync_channel(1);
        let its = shared.clone();
        let thread = thread::Builder::new().name("farside delegate".to_owned()).spawn(move || {
            let value = match catch_unwind(AssertUnwindSafe(make)) {
                Ok(value) => value,
                Err(panic) => return drop(made.send(panic)),
            };
            drop(made);
            its.serve(&ValueCell::new(Guarded::new(value)));
        });
        let thread = thread.map_err(|cause| Error::System { doing: "starting a thread for a value", cause })?;
        if let Ok(panic) = is_made.recv() {
            resume_unwind(panic);
        }
        Ok(Self { shared, owner: thread.thread().id(), thread: Some(thread) })
    }

    /// Runs an operation on the value, and waits for its result. That takes as long as the earlier
    /// operations. Handlers must not call it.
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

    /// Submits an operation, and does not wait. Handlers may call it.
    ///
    /// The operation itself must send on any result. If it panics, or does not run because the
    /// value is poisoned, everything that it owns is dropped: the caller of a
    /// [`Reply`](farside::Reply) gets an error.
    ///
    /// # Errors
    /// With the operation: [`SyncError::Full`] if 1024 posted operations have not run.
    pub fn post<F: FnOnce(&mut T) + Send + 'static>(&self, operation: F) -> Result<(), Refused<F, SyncError>> {
        if self.shared.posted.fetch_add(1, Ordering::Relaxed) >= POSTED_MAX {
            self.shared.posted.fetch_sub(1, Ordering::Relaxed);
            return Err(Refused { error: SyncError::Full { max: POSTED_MAX as usize }, arguments: operation });
        }
        // SAFETY: the request is new, and stays in its box until it was run.
        unsafe { self.submit(Posted::<T, F>::boxed(operation)) };
        Ok(())
    }

    /// Submits an operation whose result the caller takes later, or waits for until a deadline.
    ///
    /// # Errors
    /// Those of [`post`](Self::post).
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
        let is_inside = thread::current().id() == self.owner;
        assert!(!is_inside, "an operation asks for another one on the value that it has itself");
        if this_thread_handles() {
            return Err(SyncError::InHandler);
        }
        let asked = Asked::new(after, operation);
        // SAFETY: the request is new, and stays here until it was run: `wait` returns only then.
        unsafe { self.submit(asked.as_request()) };
        let ended = self.shared.requests.wait(asked.request(), WAIT_POLICY, this_thread());
        debug_assert!(matches!(ended, Ended::Done), "the thread of the value chooses no other");
        asked.into_outcome().into_result()
    }

    /// Leaves a request to the thread, and wakes the thread if it sleeps.
    ///
    /// # Safety
    /// The request is new, and stays until it was run.
    unsafe fn submit(&self, request: std::ptr::NonNull<Request<Guarded<T>>>) {
        end_accesses_here();
        let mut is_asleep = false;
        // The word is free while the thread sleeps. Then this holds it on behalf of the thread,
        // which is woken once a request is left. SAFETY: by this function's contract the request is
        // new and stays until it was run.
        while unsafe { !self.shared.requests.leave_or_hold(request, this_thread()) } {
            is_asleep = true;
        }
        if is_asleep {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl<T> Shared<T> {
    /// Runs requests until the value is dropped.
    fn serve(&self, guarded: &ValueCell<Guarded<T>>) {
        let mark = this_thread();
        loop {
            let mut backoff = Backoff::new(WAIT_POLICY);
            while !self.requests.is_held() {
                if self.stop.load(Ordering::Acquire) {
                    return;
                }
                thread::park();
            }
            loop {
                let mut list = self.requests.take();
                let mut posted = 0;
                let mut any = false;
                while let Some(request) = list.pop() {
                    // SAFETY: only this thread takes requests, and each once, so this one was not
                    // run. Only this thread has the value.
                    posted += u32::from(unsafe { !run(request, guarded) });
                    any = true;
                }
                self.posted.fetch_sub(posted, Ordering::Relaxed);
                if any {
                    backoff.reset();
                } else if !backoff.pause() && self.requests.try_free(mark) {
                    break;
                }
            }
        }
    }
}

impl<T> Drop for Delegated<T> {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take()
            // An operation may have owned it last. Its thread cannot wait for itself, and ends by
            // itself.
            && thread::current().id() != self.owner
        {
            // The thread has caught every panic of an operation. A panic of the value's own drop is
            // ignored.
            let _ = thread.join();
        }
    }
}

impl<T> fmt::Debug for Delegated<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegated").field("owner", &self.owner).finish_non_exhaustive()
    }
}

//! Delegation: one thread owns the value, and others have it do things to it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle, ThreadId};

use farside_fabric::wait::Backoff;

use super::atomics::ValueCell;
use super::error::{Result, SyncError};
use super::operation::{After, Asked, Guarded, POSTED_MAX, Posted};
use super::requests::{Ended, Request, Requests, run};
use super::ticket::Ticket;
use super::{WAIT_POLICY, this_thread};
use crate::error::{Error, Refused};
use crate::invoke::inbox::this_thread_handles;
use crate::runtime::observer::end_accesses_here;

/// A value that belongs to a thread of its own. Others hand operations over, and get the results (Calciu, Gottschlich, Herlihy: delegation).
///
/// The value never leaves its thread, and need not be `Send`: it is made there. It pays where the value is large, so that it is good for it to
/// stay in one core's caches, and there is a core to spare; or where it can only be used by one thread. Otherwise [`Combining`](super::Combining)
/// does the same without a thread, and in a fraction of the time. In a [simulation](crate::Simulation) its thread is not one of those that take turns: what it
/// does there, such as answering a call, others may not notice in (virtual) time. Use `Combining` there.
///
/// ```
/// use std::cell::RefCell;
/// use std::rc::Rc;
///
/// use farside::sync::Delegated;
///
/// let log = Delegated::new(|| Rc::new(RefCell::new(Vec::new())))?;
/// std::thread::scope(|scope| {
///     for thread in 0..4 {
///         let log = &log;
///         scope.spawn(move || log.run(|lines| lines.borrow_mut().push(thread)).expect("no operation panics"));
///     }
/// });
/// assert_eq!(log.run(|lines| lines.borrow().len())?, 4);
/// # Ok::<(), farside::Error>(())
/// ```
///
/// Handlers use [`post`](Self::post), or [`start`](Self::start) and look for the result later; [`run`](Self::run) is for threads that may block.
/// Panics of operations go to the one who asked, and poison the value, as with [`Combining`](super::Combining).
///
/// Dropping it runs what was posted, and ends the thread; it waits for that, unless an operation drops it.
///
/// *Cost*: one compare-and-swap for each operation, its own and its result's way to the other core; a system call when the thread sleeps, which
/// it does about a microsecond after the last operation. No allocation but for posts, which take one each.
pub struct Delegated<T: 'static> {
    pub(super) shared: Arc<Shared<T>>,
    thread: Option<JoinHandle<()>>,
    owner: ThreadId,
}

pub(super) struct Shared<T> {
    requests: Requests<Guarded<T>>,
    /// Operations that were posted and not run yet. Written by all; counts only.
    posted: AtomicU32,
    /// The thread is to end when there is nothing more to do. Written by who drops it.
    stop: AtomicBool,
}

impl<T> Delegated<T> {
    /// Starts a thread and has it make the value.
    ///
    /// # Errors
    /// [`Error::System`] when there can be no thread.
    ///
    /// # Panics
    /// When `make` does.
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

    /// Has an operation run on the value, and waits for its result: for as long as the operations before it take. Not for handlers.
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

    /// Hands an operation over, and waits for nothing. For handlers, too.
    ///
    /// What it finds out it must send to somebody itself. If it panics, or is not run because the value is poisoned, what it carries is
    /// dropped, as a [`Reply`](crate::Reply) whose caller is told so.
    ///
    /// # Errors
    /// With the operation: [`SyncError::Full`] when 1024 were posted that were not run yet.
    pub fn post<F: FnOnce(&mut T) + Send + 'static>(&self, operation: F) -> Result<(), Refused<F, SyncError>> {
        if self.shared.posted.fetch_add(1, Ordering::Relaxed) >= POSTED_MAX {
            self.shared.posted.fetch_sub(1, Ordering::Relaxed);
            return Err(Refused { error: SyncError::Full { max: POSTED_MAX as usize }, arguments: operation });
        }
        // SAFETY: it is new, and in a box that stays until it was run.
        unsafe { self.submit(Posted::<T, F>::boxed(operation)) };
        Ok(())
    }

    /// Hands an operation over whose result is to be looked for later, or waited for until a deadline.
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
        let is_inside = thread::current().id() == self.owner;
        assert!(!is_inside, "an operation asks for another one on the value that it has itself");
        if this_thread_handles() {
            return Err(SyncError::InHandler);
        }
        let asked = Asked::new(after, operation);
        // SAFETY: it is new, and stays here until it was run.
        unsafe { self.submit(asked.as_request()) };
        let ended = self.shared.requests.wait(asked.request(), WAIT_POLICY, this_thread());
        debug_assert!(matches!(ended, Ended::Done), "the thread of the value chooses nobody");
        asked.into_outcome().into_result()
    }

    /// # Safety
    /// The request is a new one, and stays until it was run.
    unsafe fn submit(&self, request: std::ptr::NonNull<Request<Guarded<T>>>) {
        end_accesses_here();
        let mut is_asleep = false;
        // The word is free when the thread sleeps: then it is held for the thread, which is woken when it has something to do.
        // SAFETY: passed on.
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
    /// The life of the thread that has the value.
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
                    // SAFETY: only this thread takes requests, and each once; only it has the value.
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
            // An operation may have had it last. Its thread cannot wait for itself, and ends by itself.
            && thread::current().id() != self.owner
        {
            // It has caught every panic of an operation; that of the value's own drop has nobody to go to.
            let _ = thread.join();
        }
    }
}

impl<T> fmt::Debug for Delegated<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegated").field("owner", &self.owner).finish_non_exhaustive()
    }
}

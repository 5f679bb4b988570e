//! Scopes: threads that a worker starts for a limited time, and that make calls themselves.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use farside_fabric::clock::{Clock, SeatEnd};

use super::Worker;
use crate::error::{Error, Result};
use crate::invoke::caller::Caller;
use crate::runtime::process::Process;
use farside_launch::settings::FOREVER;

/// A scope in which a worker starts threads: [`Worker::scope`].
#[derive(Debug)]
pub struct Scope<'scope, 'env> {
    threads: &'scope thread::Scope<'scope, 'env>,
    caller: Caller,
    process: Arc<Process>,
    local: usize,
    running: Arc<AtomicUsize>,
    ends: RefCell<Vec<SeatEnd>>,
}

impl Worker {
    /// Starts threads that make calls themselves, and serves other workers until all of them have
    /// ended.
    ///
    /// The threads may borrow what outlives this call. They need no setup: their calls go through
    /// the rings that the threads of a process share ([`Caller`]). Meanwhile this worker runs
    /// calls, so the threads may also call it and wait for the result.
    ///
    /// In a [simulation](crate::Simulation) this is the only way to have threads besides the
    /// workers.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let peer = me.neighbor(1);
    /// me.scope(|scope| -> farside::Result<()> {
    ///     for x in 0..4_u64 {
    ///         scope.spawn(move |caller| {
    ///             let doubled = caller.call_return(peer, x, |_, x| x * 2).unwrap();
    ///             assert_eq!(doubled.wait().unwrap(), 2 * x);
    ///         })?;
    ///     }
    ///     Ok(())
    /// })?
    /// # }
    /// ```
    ///
    /// *Cost*: the start of one system thread for each.
    ///
    /// # Errors
    /// [`Error::InHandler`] in a handler. After the threads have ended, [`Error::JobEnded`], or the
    /// error of a call that ran here meanwhile.
    ///
    /// # Panics
    /// If one of the threads panicked.
    pub fn scope<'env, T>(&self, work: impl for<'scope> FnOnce(&Scope<'scope, 'env>) -> T) -> Result<T> {
        self.not_in_handler("a scope of threads")?;
        thread::scope(|threads| {
            let scope = Scope {
                threads,
                caller: self.caller(),
                process: self.process_handle().clone(),
                local: self.local,
                running: Arc::default(),
                ends: RefCell::default(),
            };
            let made = work(&scope);
            self.serve_until_ended(&scope).map(|()| made)
        })
    }

    /// Serves until the threads of the scope have ended. No error may leave earlier: the threads
    /// may borrow what belongs to the caller.
    fn serve_until_ended(&self, scope: &Scope<'_, '_>) -> Result<()> {
        let mut outcome = Ok(());
        // SYNC: pairs with the release in `Leaving`.
        while scope.running.load(Ordering::Acquire) > 0 {
            let served = self.wait_until("waiting for the threads of a scope", FOREVER, |_| {
                (scope.running.load(Ordering::Acquire) == 0).then_some(Ok(()))
            });
            let is_over = matches!(served, Err(Error::JobEnded { .. }));
            outcome = outcome.and(served);
            if is_over {
                // The threads get the same error from every call.
                break;
            }
        }
        scope.ends.borrow().iter().for_each(SeatEnd::wait);
        outcome
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread.
    ///
    /// # Errors
    /// [`Error::System`] if the system cannot start another thread.
    pub fn spawn(&self, work: impl FnOnce(&Caller) + Send + 'scope) -> Result<()> {
        let clock: &Clock = self.process.clock();
        let seat = clock.seat();
        let end = seat.end();
        let caller = self.caller.clone();
        self.running.fetch_add(1, Ordering::Relaxed);
        let leaving = Leaving { running: self.running.clone(), process: self.process.clone(), local: self.local };
        let started = thread::Builder::new().name("farside scope".to_owned()).spawn_scoped(self.threads, move || {
            seat.take(|| {
                let _leaving = leaving;
                work(&caller);
            });
        });
        started.map_err(|cause| Error::System { doing: "starting a thread of a scope", cause })?;
        self.ends.borrow_mut().push(end);
        Ok(())
    }
}

/// Tells the worker, when dropped, that a thread of its scope has ended, also by a panic.
struct Leaving {
    running: Arc<AtomicUsize>,
    process: Arc<Process>,
    local: usize,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        // SYNC: release, for the acquire in `serve_until_ended`: what the thread did happened
        // before.
        self.running.fetch_sub(1, Ordering::Release);
        self.process.mailboxes.call_attention(self.local);
    }
}

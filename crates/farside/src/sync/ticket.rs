//! The result of an operation that was handed over.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use super::error::{Result, SyncError};
use crate::error::Error;

/// The result of an operation that was [started](super::Combining::start) on a value, on its way. Dropping it discards the result, and the
/// operation is run all the same.
#[derive(Debug)]
#[must_use = "dropping it discards the result"]
pub struct Ticket<R> {
    result: Receiver<thread::Result<R>>,
}

impl<R: Send + 'static> Ticket<R> {
    /// The operation, and where its result will be.
    pub(crate) fn of<T, F: FnOnce(&mut T) -> R + Send + 'static>(
        operation: F,
    ) -> (Self, impl FnOnce(&mut T) + Send + 'static) {
        let (sender, result): (SyncSender<thread::Result<R>>, _) = sync_channel(1);
        let operation = move |value: &mut T| {
            let outcome = catch_unwind(AssertUnwindSafe(|| operation(value)));
            let panicked = outcome.is_err();
            // Nobody may wait for it any more.
            let _ = sender.try_send(outcome);
            if panicked {
                // The panic is the asker's; here it only says that the value may be half changed.
                resume_unwind(Box::new(()));
            }
        };
        (Self { result }, operation)
    }

    /// The result, if it is here. Does not wait: for handlers, too.
    ///
    /// # Errors
    /// [`SyncError::Poisoned`] when it was not run, inside the `Some`.
    ///
    /// # Panics
    /// When the operation did.
    pub fn poll(&mut self) -> Option<Result<R>> {
        match self.result.try_recv() {
            Ok(outcome) => Some(Ok(taken(outcome))),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(SyncError::Poisoned)),
        }
    }

    /// Waits for the result, for at most this long. After [`Error::Deadline`] it can be waited for again. Not for handlers.
    ///
    /// # Errors
    /// [`Error::Deadline`]; [`SyncError::Poisoned`] when it was not run.
    ///
    /// # Panics
    /// When the operation did.
    pub fn wait_for(&mut self, time: Duration) -> Result<R> {
        match self.result.recv_timeout(time) {
            Ok(outcome) => Ok(taken(outcome)),
            Err(RecvTimeoutError::Timeout) => {
                Err(Error::Deadline { doing: "waiting for an operation", after: time }.into())
            }
            Err(RecvTimeoutError::Disconnected) => Err(SyncError::Poisoned),
        }
    }
}

fn taken<R>(outcome: thread::Result<R>) -> R {
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}

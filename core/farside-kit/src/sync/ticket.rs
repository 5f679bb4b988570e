//! The result of a submitted operation.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use farside::Error;

use super::error::{Result, SyncError};

/// The pending result of an operation that was [started](super::Combining::start). Dropping it
/// discards the result; the operation runs in any case.
#[derive(Debug)]
#[must_use = "dropping it discards the result"]
pub struct Ticket<R> {
    result: Receiver<thread::Result<R>>,
}

impl<R: Send + 'static> Ticket<R> {
    /// Returns the ticket of an operation, and the operation that fulfils it.
    pub(crate) fn of<T, F: FnOnce(&mut T) -> R + Send + 'static>(
        operation: F,
    ) -> (Self, impl FnOnce(&mut T) + Send + 'static) {
        let (sender, result): (SyncSender<thread::Result<R>>, _) = sync_channel(1);
        let operation = move |value: &mut T| {
            let outcome = catch_unwind(AssertUnwindSafe(|| operation(value)));
            let panicked = outcome.is_err();
            // The ticket may be dropped.
            let _ = sender.try_send(outcome);
            if panicked {
                // The caller gets the panic with the result; this one only poisons the value.
                resume_unwind(Box::new(()));
            }
        };
        (Self { result }, operation)
    }

    /// Returns the result if it is there. Does not wait, so handlers may call it.
    ///
    /// # Errors
    /// Inside the `Some`: [`SyncError::Poisoned`] if the operation did not run.
    ///
    /// # Panics
    /// If the operation did.
    pub fn poll(&mut self) -> Option<Result<R>> {
        match self.result.try_recv() {
            Ok(outcome) => Some(Ok(taken(outcome))),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(SyncError::Poisoned)),
        }
    }

    /// Waits for the result, for at most `time`. After [`Error::Deadline`] the caller may wait
    /// again. Handlers must not call it.
    ///
    /// # Errors
    /// [`Error::Deadline`]; [`SyncError::Poisoned`] if the operation did not run.
    ///
    /// # Panics
    /// If the operation did.
    pub fn wait_for(&mut self, time: Duration) -> Result<R> {
        match self.result.recv_timeout(time) {
            Ok(outcome) => Ok(taken(outcome)),
            Err(RecvTimeoutError::Timeout) => {
                Err(Error::Deadline { doing: "waiting for an operation", after: time, waiting_for: Vec::new() }.into())
            }
            Err(RecvTimeoutError::Disconnected) => Err(SyncError::Poisoned),
        }
    }
}

fn taken<R>(outcome: thread::Result<R>) -> R {
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}

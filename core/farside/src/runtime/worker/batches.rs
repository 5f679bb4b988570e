//! Calls that libraries keep back, to send many of them as one.

use std::rc::{Rc, Weak};

use super::Worker;
use crate::error::Result;

/// Calls that a library keeps back on one worker, to send many of them as one.
///
/// The worker sends them when it has nothing else to do, so no item waits for its batch to become
/// full: see [`Worker::look_after`].
pub trait Batches {
    /// Returns whether nothing is kept back.
    fn is_empty(&self) -> bool;

    /// Sends all that is kept back. Must not wait: send with
    /// [`WhenFull::Spill`](crate::WhenFull::Spill).
    ///
    /// # Errors
    /// The wait in which this ran returns the error. What is kept after an error is sent again
    /// later; what can never be sent must be dropped.
    fn send(&self, me: &Worker) -> Result<()>;
}

/// The batches of the libraries on one worker.
#[derive(Default)]
pub(super) struct AllBatches(Vec<Weak<dyn Batches>>);

impl std::fmt::Debug for AllBatches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AllBatches").field(&self.0.len()).finish()
    }
}

impl Worker {
    /// Registers `batches`. This worker then sends them when it waits or makes progress and has
    /// nothing else to do, and in [`flush`](Self::flush). [`quiesce`](Self::quiesce) and the end of
    /// the job wait until they are empty. The registration ends when the last `Rc` is dropped.
    ///
    /// This is for libraries that collect many small items for one call.
    ///
    /// # Panics
    /// On a thread of a [pool](Self::pool_of): what it keeps would not be counted.
    #[track_caller]
    pub fn look_after(&self, batches: &Rc<dyn Batches>) {
        assert!(!self.is_pool_member(), "batches are registered on a worker, not on a thread of a pool");
        let mut all = self.batches.borrow_mut();
        all.0.retain(|batches| batches.strong_count() > 0);
        all.0.push(Rc::downgrade(batches));
    }

    /// Returns whether libraries keep calls back.
    pub(super) fn keeps_batches(&self) -> bool {
        self.batches.borrow().0.iter().filter_map(Weak::upgrade).any(|batches| !batches.is_empty())
    }

    /// Sends the calls that libraries keep back. Returns whether there were any.
    ///
    /// # Errors
    /// The first error of [`Batches::send`], after all libraries had their turn.
    #[inline]
    pub(super) fn send_batches(&self) -> Result<bool> {
        // Most programs have none, and a worker that waits comes here at each look.
        if self.batches.borrow().0.is_empty() { Ok(false) } else { self.send_all_batches() }
    }

    #[inline(never)]
    fn send_all_batches(&self) -> Result<bool> {
        let mut outcome = Ok(false);
        for next in 0.. {
            let Some(batches) = self.batches.borrow().0.get(next).map(Weak::upgrade) else { break };
            if let Some(batches) = batches.filter(|batches| !batches.is_empty()) {
                let sent = batches.send(self);
                outcome = outcome.and(sent.map(|()| true));
            }
        }
        outcome
    }
}

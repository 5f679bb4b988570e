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
    /// An error for the function of the worker that waits.
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
    /// Has this worker send these batches when it waits and has nothing else to do, in
    /// [`flush`](Self::flush), before [`quiesce`](Self::quiesce) returns, and before the job ends.
    /// Ends when the last other owner of the batches drops them.
    ///
    /// This is for libraries that collect many small items for a call. While batches are not empty,
    /// the worker counts as one that has calls to send.
    pub fn look_after(&self, batches: &Rc<impl Batches + 'static>) {
        let batches: Weak<dyn Batches> = Rc::downgrade(&(batches.clone() as Rc<dyn Batches>));
        let mut all = self.batches.borrow_mut();
        all.0.retain(|batches| batches.strong_count() > 0);
        all.0.push(batches);
    }

    /// Returns whether libraries keep calls back.
    pub(super) fn keeps_batches(&self) -> bool {
        self.batches.borrow().0.iter().filter_map(Weak::upgrade).any(|batches| !batches.is_empty())
    }

    /// Sends the calls that libraries keep back. Returns whether there were any.
    ///
    /// # Errors
    /// Those of [`Batches::send`].
    pub(super) fn send_batches(&self) -> Result<bool> {
        let mut any = false;
        for next in 0.. {
            let Some(batches) = self.batches.borrow().0.get(next).map(Weak::upgrade) else { break };
            if let Some(batches) = batches.filter(|batches| !batches.is_empty()) {
                any = true;
                batches.send(self)?;
            }
        }
        Ok(any)
    }
}

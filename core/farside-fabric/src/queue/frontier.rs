//! The progress of a queue.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A number that only grows: an operation with this tag or a smaller one is over.
///
/// ```
/// use farside_fabric::queue::Frontier;
///
/// let frontier = Frontier::default();
/// frontier.raise(7);
/// frontier.raise(3);
/// assert_eq!(frontier.completed(), 7);
/// assert!(frontier.has_passed(7) && !frontier.has_passed(8));
/// ```
#[derive(Debug, Default)]
pub struct Frontier {
    /// Raised by the thread that makes the transport's progress, when a signalled operation is
    /// over. Read by threads that want to reuse memory. The release of `raise` pairs with the
    /// acquire of `completed`: the operations have read local memory before it is used again.
    completed: AtomicU64,
    /// Set once, when the queue has failed.
    failed: AtomicU32,
}

impl Frontier {
    /// Records that the signalled operation of this number is over. Called by queues.
    pub fn raise(&self, number: u64) {
        self.completed.fetch_max(number, Ordering::Release);
    }

    /// Records that the queue has failed: operations in flight will never be over in the ordinary
    /// way. Called by queues.
    pub fn fail(&self) {
        self.failed.store(1, Ordering::Release);
    }

    /// Records that the transport has released all memory. Called by queues that have failed.
    pub fn release(&self) {
        self.raise(u64::MAX);
    }

    /// The largest number of a signalled operation that is over.
    #[inline]
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Returns whether operations with this tag are over.
    #[inline]
    pub fn has_passed(&self, tag: u64) -> bool {
        self.completed() >= tag
    }

    /// Returns whether the queue has failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire) != 0
    }
}

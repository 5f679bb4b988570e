//! How far a queue has come.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A number that only grows: what is tagged with it or less is over.
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
    /// Raised by whoever makes the transport's progress, when a signalled operation is over; read by whoever wants its memory back.
    /// The release of `raise` is acquired by `completed`: what the operations read of local memory comes before it is used again.
    completed: AtomicU64,
    /// Set once, when the queue has failed.
    failed: AtomicU32,
}

impl Frontier {
    /// A signalled operation of this number is over. For queues.
    pub fn raise(&self, number: u64) {
        self.completed.fetch_max(number, Ordering::Release);
    }

    /// The queue has failed: what is under way will never be over in the ordinary way. For queues.
    pub fn fail(&self) {
        self.failed.store(1, Ordering::Release);
    }

    /// The transport has let go of all memory. For queues that have failed.
    pub fn release(&self) {
        self.raise(u64::MAX);
    }

    /// The largest number of a signalled operation that is over.
    #[inline]
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Whether what has this tag is over.
    #[inline]
    pub fn has_passed(&self, tag: u64) -> bool {
        self.completed() >= tag
    }

    /// Whether the queue has failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire) != 0
    }
}

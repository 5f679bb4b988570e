//! Marks: words by which a peer that reads memory directly finds out whether it was exposed all the
//! time. A mark has the number of the exposed memory, or 0.

use super::atomics::{AtomicU64, Ordering, fence};

/// Exposes memory.
pub(crate) fn set(word: &AtomicU64, number: u64) {
    // SYNC: pairs with the load in `is_set`: a reader that finds the number has read the bytes that
    // this thread wrote before.
    word.store(number, Ordering::Release);
}

/// Ends that. The memory may change when this has returned, also by another thread that learns of
/// it.
pub(crate) fn clear(word: &AtomicU64) {
    word.store(0, Ordering::Relaxed);
    // SYNC: pairs with the fence in `is_set`: a reader that still finds the number has read before
    // the memory changes.
    fence(Ordering::SeqCst);
}

/// Returns whether the memory was exposed while the reader read it, which it has done before.
pub(crate) fn is_set(word: &AtomicU64, number: u64) -> bool {
    // SYNC: pairs with the release store in `set` and the fence in `clear`.
    fence(Ordering::SeqCst);
    word.load(Ordering::Acquire) == number
}

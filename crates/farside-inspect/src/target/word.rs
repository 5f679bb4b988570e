//! [`LockWord`]: the word that says whether memory is locked, and by which a reader finds out
//! whether the memory changed while it copied.
//!
//! The word is even while the memory is free, and rises by 1 with each lock and each end of one. A
//! reader that finds the same even number before and after its copy has copied no half update.

use super::atomics::{AtomicU64, Ordering, fence};

/// How many times the lock of one area is taken before its words could be those of the next area.
const CHANGES: u64 = 1 << 40;

/// The word of memory that is shown as it is now.
#[derive(Debug)]
pub(crate) struct LockWord(
    /// Changed by the program and by the door's threads; each change releases what the holder
    /// wrote, and each lock acquires it.
    AtomicU64,
);

impl LockWord {
    /// The word of memory that is free. The number is one that no other memory of this process has,
    /// so that a reader does not take another memory for the one that it copied.
    pub(crate) fn new(number: u64) -> Self {
        Self(AtomicU64::new(number.wrapping_mul(CHANGES)))
    }

    /// Locks the memory if it is free.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        // SYNC: acquires what the last holder released in `unlock`. The fence keeps the holder's
        // writes behind the odd word, which `is_unchanged` looks for.
        let is_locked = word.is_multiple_of(2)
            && self.0.compare_exchange(word, word.wrapping_add(1), Ordering::Acquire, Ordering::Relaxed).is_ok();
        fence(Ordering::Release);
        is_locked
    }

    /// Ends the caller's lock.
    #[inline]
    pub(crate) fn unlock(&self) {
        // SYNC: releases what the holder wrote; pairs with the acquires in `try_lock` and
        // `version`. It is sequentially consistent with the flag of waiting readers: either this
        // thread sees that a reader waits, or the reader sees that the memory is free.
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// The word, if the memory is free. A copy begins behind it.
    pub(crate) fn version(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|word| word.is_multiple_of(2))
    }

    /// Whether the memory was not locked since the word was this one. Says it of a copy that this
    /// thread has made, or that has happened before.
    pub(crate) fn is_unchanged(&self, version: u64) -> bool {
        // SYNC: the copy is before this fence, and a holder's writes behind its odd word.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == version
    }
}

//! [`LockWord`]: the word that says whether memory is locked, and by which a reader finds out
//! whether the memory changed while it copied.
//!
//! | bits | meaning |
//! |---|---|
//! | 0 | readers wait for the end of a lock |
//! | 1 | the program has a claim to the next lock, so no reader takes it |
//! | others | the count of locks and ends of locks. It is odd while the memory is locked |
//!
//! A reader that finds the same even count before and after its copy has copied no half update.

use super::atomics::{AtomicU64, Ordering, fence};

const IS_AWAITED: u64 = 1;
const IS_CLAIMED: u64 = 2;
const FLAGS: u64 = IS_AWAITED | IS_CLAIMED;
/// The increment of a lock, and of its end. As a bit of the word, it says that the memory is
/// locked.
const CHANGE: u64 = 4;

/// How many times the lock of one area is taken before its words could be those of the next area.
const CHANGES: u64 = 1 << 40;

/// The word of memory that is shown as it is now.
#[derive(Debug)]
pub(crate) struct LockWord(
    /// Changed by the program and by the door's threads; each end of a lock releases what the
    /// holder wrote, and each lock acquires it.
    AtomicU64,
);

impl LockWord {
    /// The word of memory that is free. The number is one that no other memory of this process has,
    /// so that a reader does not take another memory for the one that it copied.
    pub(crate) fn new(number: u64) -> Self {
        Self(AtomicU64::new(number.wrapping_mul(CHANGES * CHANGE)))
    }

    /// Locks the memory for the program if it is free.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        self.try_lock_unless(CHANGE)
    }

    /// Locks the memory for a reader if it is free and the program does not wait for it.
    pub(crate) fn try_lock_outside(&self) -> bool {
        self.try_lock_unless(CHANGE | IS_CLAIMED)
    }

    /// Locks the memory unless one of these bits is set.
    #[inline]
    fn try_lock_unless(&self, bits: u64) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        let is_locked = loop {
            if word & bits != 0 {
                break false;
            }
            // SYNC: acquires what the last holder released in `unlock`. The flags are set by
            // read-modify-writes, which continue that release.
            match self.0.compare_exchange(word, word.wrapping_add(CHANGE), Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break true,
                Err(changed) => word = changed,
            }
        };
        // The fence keeps the holder's writes behind the odd count, which `is_unchanged` looks for.
        fence(Ordering::Release);
        is_locked
    }

    /// Ends the caller's lock. Returns whether the program or readers wait for that: either they
    /// set a flag before, or they see that the memory is free.
    #[inline]
    #[must_use]
    pub(crate) fn unlock(&self) -> bool {
        // SYNC: releases what the holder wrote; pairs with the acquires of a lock and of `version`.
        self.0.fetch_add(CHANGE, Ordering::Release) & FLAGS != 0
    }

    /// Claims the next lock for the program, which then [tries](Self::try_lock) to take it.
    pub(crate) fn claim(&self) {
        // Relaxed: the flag publishes nothing. Those that wait are noted under a mutex.
        self.0.fetch_or(IS_CLAIMED, Ordering::Relaxed);
    }

    /// Ends the program's claim. Returns whether readers wait.
    pub(crate) fn end_claim(&self) -> bool {
        self.0.fetch_and(!IS_CLAIMED, Ordering::Relaxed) & IS_AWAITED != 0
    }

    /// Notes whether readers wait. Those that begin to wait then look at the memory again.
    pub(crate) fn set_awaited(&self, is_awaited: bool) {
        // Relaxed: as in `claim`.
        match is_awaited {
            true => self.0.fetch_or(IS_AWAITED, Ordering::Relaxed),
            false => self.0.fetch_and(!IS_AWAITED, Ordering::Relaxed),
        };
    }

    /// The count, if the memory is free. A copy begins behind it.
    pub(crate) fn version(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire) & !FLAGS).filter(|word| word & CHANGE == 0)
    }

    /// Returns whether the memory was not locked since the count was this one. Says it of a copy
    /// that this thread has made, or that has happened before.
    pub(crate) fn is_unchanged(&self, version: u64) -> bool {
        // SYNC: the copy is before this fence, and a holder's writes behind its odd count.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) & !FLAGS == version
    }
}

//! [`Receiving`]: the right to receive, and the threads that wait for another one that has it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use farside_sys::net::Waker;

use crate::lock::lock;

/// The right to receive on a link. One thread at a time has it; others sleep until it wakes them.
#[derive(Debug)]
pub(super) struct Receiving {
    /// Locked by the thread that receives; memory for it.
    scratch: Mutex<Vec<u8>>,
    /// How often a thread began to receive. Written by the thread that receives.
    begun: AtomicU64,
    /// Guards nothing; for the threads that wait.
    others: Mutex<()>,
    other_count: AtomicUsize,
    changed: Condvar,
    /// Wakes the thread that receives, where there is no loop.
    pub(super) poke: Option<Waker>,
}

impl Receiving {
    pub(super) fn new(has_loop: bool) -> Self {
        // Without a descriptor to spare, a thread that needs the receiver's help waits for longer.
        let poke = if has_loop { None } else { Waker::new().ok() };
        let (scratch, others, changed) = Default::default();
        let (begun, other_count) = (AtomicU64::new(0), AtomicUsize::new(0));
        Self { scratch, begun, others, other_count, changed, poke }
    }

    /// The right to receive, unless another thread has it.
    #[inline]
    pub(super) fn try_take(&self) -> Option<MutexGuard<'_, Vec<u8>>> {
        match self.scratch.try_lock() {
            Ok(scratch) => Some(scratch),
            // A function of the program panicked in it. The memory has no meaning between steps.
            Err(TryLockError::Poisoned(scratch)) => Some(scratch.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The right to receive, as soon as no other thread has it.
    pub(super) fn take(&self) -> MutexGuard<'_, Vec<u8>> {
        lock(&self.scratch)
    }

    /// Counts that the calling thread, which has the right, begins.
    #[inline]
    pub(super) fn count(&self) {
        self.begun.store(self.begun.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Wakes the threads that wait.
    #[inline]
    pub(super) fn wake_others(&self) {
        // SYNC: a thread counts itself under the lock before it looks; either this load sees the
        // count, or the thread's look sees what was changed before the call.
        fence(Ordering::SeqCst);
        if self.other_count.load(Ordering::Relaxed) > 0 {
            drop(lock(&self.others));
            self.changed.notify_all();
        }
    }

    /// Looks, and sleeps until it is woken if `look` says for how long. Returns what else it says.
    pub(super) fn wait<T>(&self, look: impl FnOnce() -> (T, Option<Duration>)) -> T {
        let guard = lock(&self.others);
        self.other_count.fetch_add(1, Ordering::Relaxed);
        // SYNC: pairs with the fence in `wake_others`.
        fence(Ordering::SeqCst);
        let (found, sleep) = look();
        if let Some(time) = sleep {
            drop(self.changed.wait_timeout(guard, time));
        }
        self.other_count.fetch_sub(1, Ordering::Relaxed);
        found
    }
}

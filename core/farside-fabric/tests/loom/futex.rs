//! A futex made of the checker's mutex and condition variable.

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};

/// The sleepers on one word. The lock is that of the kernel's queue, under which the word is
/// compared.
#[derive(Debug)]
pub(crate) struct Futex {
    queue: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    pub(crate) fn new() -> Self {
        Self { queue: Mutex::new(()), woken: Condvar::new() }
    }

    /// Sleeps until a wake-up, if the word still has the value `seen`.
    pub(crate) fn wait(&self, word: &AtomicU32, seen: u32) {
        let queue = self.queue.lock().unwrap();
        if word.load(Ordering::Relaxed) == seen {
            drop(self.woken.wait(queue).unwrap());
        }
    }

    /// Wakes all sleepers.
    pub(crate) fn wake(&self) {
        let queue = self.queue.lock().unwrap();
        self.woken.notify_all();
        drop(queue);
    }
}

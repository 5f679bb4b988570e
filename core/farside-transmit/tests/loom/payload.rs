//! A word of memory under the model checker, which reports races on it.

use loom::cell::UnsafeCell;

/// One word of payload.
#[derive(Debug, Default)]
pub(crate) struct Payload(UnsafeCell<u64>);

// SAFETY: the model checker fails the test if two threads access the cell without an order, and
// runs one thread at a time.
unsafe impl Sync for Payload {}

impl Payload {
    pub(crate) fn write(&self, value: u64) {
        // SAFETY: nothing else accesses the cell now, or the checker would have failed the test.
        self.0.with_mut(|word| unsafe { *word = value });
    }

    pub(crate) fn read(&self) -> u64 {
        // SAFETY: nothing writes the cell now, or the checker would have failed the test.
        self.0.with(|word| unsafe { *word })
    }
}

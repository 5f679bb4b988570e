//! A worker's count of the global-memory operations that it has started.
//!
//! It is a field of the worker, like the [cache of addresses](super::address_cache), so that an
//! operation on mapped memory is numbered without a lookup. The room `global` alone uses it.

use std::cell::Cell;

/// A worker's knowledge of its operations, without a lock.
#[derive(Debug, Default)]
pub(crate) struct StartedOperations {
    /// The number of the last operation.
    last: Cell<u64>,
    /// True if a fence may delay new operations.
    is_fenced: Cell<bool>,
}

impl StartedOperations {
    /// Returns the number of the last operation.
    #[inline]
    pub(crate) fn last(&self) -> u64 {
        self.last.get()
    }

    /// Counts an operation and returns its number.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        let number = self.last.get() + 1;
        self.last.set(number);
        number
    }

    #[inline]
    pub(crate) fn is_fenced(&self) -> bool {
        self.is_fenced.get()
    }

    pub(crate) fn set_fenced(&self, is_fenced: bool) {
        self.is_fenced.set(is_fenced);
    }
}

//! The primitives of the protocol in [`requests`](super::requests): the real ones here. The model
//! check (`tests/models/combining.rs`) compiles that file with those of the model checker.

pub(crate) use std::sync::Mutex;
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
pub(crate) use std::thread::{Thread, current, park};

/// A value that threads access by pointer, one at a time.
#[derive(Debug)]
pub(crate) struct ValueCell<T>(std::cell::UnsafeCell<T>);

impl<T> ValueCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

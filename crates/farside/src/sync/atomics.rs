//! What the protocol in [`requests`](super::requests) is made of: the real things here. Its model check (`tests/all/combining_model.rs`) compiles
//! that file with those of the model checker.

pub(crate) use std::sync::Mutex;
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
pub(crate) use std::thread::{Thread, current, park};

/// A value that is reached by pointer, by whoever may.
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

//! A vector that others may write.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// The memory of a vector, which is no reference and no vector as long as others may write it.
#[derive(Debug)]
pub(super) struct Held<T> {
    base: NonNull<T>,
    length: usize,
    capacity: usize,
}

// SAFETY: it owns what its vector owned.
unsafe impl<T: Send> Send for Held<T> {}

impl<T> Held<T> {
    pub(super) fn new(values: Vec<T>) -> Self {
        let mut values = ManuallyDrop::new(values);
        let base = NonNull::new(values.as_mut_ptr()).expect("a vector's pointer is not null");
        Self { base, length: values.len(), capacity: values.capacity() }
    }

    pub(super) fn base(&self) -> NonNull<T> {
        self.base
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// The vector again.
    ///
    /// # Safety
    /// Nobody else reaches the memory any more, and its values are values of the type.
    pub(super) unsafe fn into_vec(self) -> Vec<T> {
        let held = ManuallyDrop::new(self);
        // SAFETY: these are the parts of the vector that `new` took apart, put together once; the contract gives us the memory.
        unsafe { Vec::from_raw_parts(held.base.as_ptr(), held.length, held.capacity) }
    }
}

impl<T> Drop for Held<T> {
    /// Whoever lets it go has seen to it that nobody reaches the memory.
    fn drop(&mut self) {
        // SAFETY: these are the parts of the vector that `new` took apart. Without values: those of this module need no dropping.
        drop(unsafe { Vec::from_raw_parts(self.base.as_ptr(), 0, self.capacity) });
    }
}

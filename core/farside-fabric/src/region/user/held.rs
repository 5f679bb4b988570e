//! A vector whose memory other processes may write.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// The memory of a vector. While others may write it, there is no reference to it and no vector.
#[derive(Debug)]
pub struct Held<T> {
    base: NonNull<T>,
    length: usize,
    capacity: usize,
}

// SAFETY: it owns what its vector owned.
unsafe impl<T: Send> Send for Held<T> {}

impl<T> Held<T> {
    /// Takes a vector apart. Its values are dropped only if it is reassembled.
    pub fn new(values: Vec<T>) -> Self {
        let mut values = ManuallyDrop::new(values);
        let base = NonNull::new(values.as_mut_ptr()).expect("a vector's pointer is not null");
        Self { base, length: values.len(), capacity: values.capacity() }
    }

    /// The address of the values.
    pub fn base(&self) -> NonNull<T> {
        self.base
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Reassembles the vector.
    ///
    /// # Safety
    /// Nothing else can access the memory any more, and its bytes are values of the type.
    pub unsafe fn into_vec(self) -> Vec<T> {
        let held = ManuallyDrop::new(self);
        // SAFETY: these are the parts of the vector that `new` took apart, reassembled once; the
        // contract grants exclusive access to the memory.
        unsafe { Vec::from_raw_parts(held.base.as_ptr(), held.length, held.capacity) }
    }
}

impl<T> Drop for Held<T> {
    /// Frees the memory. The code that drops it has ensured that nothing else can access it.
    fn drop(&mut self) {
        // SAFETY: these are the parts of the vector that `new` took apart. The length is 0, because
        // the values may no longer be valid.
        drop(unsafe { Vec::from_raw_parts(self.base.as_ptr(), 0, self.capacity) });
    }
}

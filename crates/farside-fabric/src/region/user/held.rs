//! A vector that others may write.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// The memory of a vector, which is no reference and no vector as long as others may write it.
#[derive(Debug)]
pub struct Held<T> {
    base: NonNull<T>,
    length: usize,
    capacity: usize,
}

// SAFETY: it owns what its vector owned.
unsafe impl<T: Send> Send for Held<T> {}

impl<T> Held<T> {
    /// Takes a vector apart. Its values are not dropped if it is not put together again.
    pub fn new(values: Vec<T>) -> Self {
        let mut values = ManuallyDrop::new(values);
        let base = NonNull::new(values.as_mut_ptr()).expect("a vector's pointer is not null");
        Self { base, length: values.len(), capacity: values.capacity() }
    }

    /// Where the values lie.
    pub fn base(&self) -> NonNull<T> {
        self.base
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The vector again.
    ///
    /// # Safety
    /// Nobody else reaches the memory any more, and its values are values of the type.
    pub unsafe fn into_vec(self) -> Vec<T> {
        let held = ManuallyDrop::new(self);
        // SAFETY: these are the parts of the vector that `new` took apart, put together once; the contract gives us the memory.
        unsafe { Vec::from_raw_parts(held.base.as_ptr(), held.length, held.capacity) }
    }
}

impl<T> Drop for Held<T> {
    /// Whoever lets it go has seen to it that nobody reaches the memory.
    fn drop(&mut self) {
        // SAFETY: these are the parts of the vector that `new` took apart. Without values: what they are by now nobody knows.
        drop(unsafe { Vec::from_raw_parts(self.base.as_ptr(), 0, self.capacity) });
    }
}

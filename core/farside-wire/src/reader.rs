//! [`Reader`]: the receiving end of a record.

use std::any::Any;
use std::marker::PhantomData;

use super::WireError;

/// The bytes of a record that are still to be read.
#[derive(Debug)]
pub struct Reader<'a> {
    next: *const u8,
    end: *const u8,
    record: PhantomData<&'a [u8]>,
    /// The context for handles, which become usable only at the receiver.
    context: Option<&'a dyn Any>,
}

impl<'a> Reader<'a> {
    /// Sets the context that handles need to become usable at the receiver.
    #[inline(always)]
    #[must_use]
    pub fn within(self, context: &'a dyn Any) -> Self {
        Self { context: Some(context), ..self }
    }

    /// Returns the context, if it is a `C`.
    #[must_use]
    pub fn context<C: Any>(&self) -> Option<&'a C> {
        self.context?.downcast_ref()
    }

    /// Returns a reader of the `bytes` bytes at `start`.
    ///
    /// # Safety
    /// For the life of the reader the bytes are readable, part of one allocation, and not written.
    #[inline(always)]
    #[must_use]
    pub unsafe fn new(start: *const u8, bytes: usize) -> Self {
        // SAFETY: the caller guarantees that all the bytes belong to one allocation, so its end may
        // be computed.
        let end = unsafe { start.add(bytes) };
        Self { next: start, end, record: PhantomData, context: None }
    }

    /// Returns the number of bytes that are left.
    #[inline(always)]
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.end.addr() - self.next.addr()
    }

    /// Consumes `bytes` bytes and returns their address. They are readable for the life of the
    /// reader. They are not aligned, and uninitialised where the written value has padding.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if fewer are left; then nothing is consumed.
    #[inline(always)]
    pub fn take(&mut self, bytes: usize) -> Result<*const u8, WireError> {
        self.take_for::<[u8]>(bytes)
    }

    /// Consumes bytes as [`take`](Self::take) does. An error names `T` as the type that was read.
    #[inline(always)]
    pub(crate) fn take_for<T: ?Sized>(&mut self, bytes: usize) -> Result<*const u8, WireError> {
        let available = self.remaining();
        if bytes > available {
            return Err(WireError::truncated::<T>(bytes, available));
        }
        let taken = self.next;
        // SAFETY: `bytes` is at most the distance to `end`, which belongs to the same allocation.
        self.next = unsafe { taken.add(bytes) };
        Ok(taken)
    }
}

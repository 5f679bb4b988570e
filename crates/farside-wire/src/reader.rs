//! The receiving end of a record.

use std::any::Any;
use std::marker::PhantomData;

use super::WireError;

/// The bytes of a record that are still to be read.
#[derive(Debug)]
pub struct Reader<'a> {
    next: *const u8,
    end: *const u8,
    record: PhantomData<&'a [u8]>,
    /// Where the value is read, for values that mean something only there.
    context: Option<&'a dyn Any>,
}

impl<'a> Reader<'a> {
    /// The same reader with a context: what handles need to become usable where they are read.
    #[inline(always)]
    #[must_use]
    pub fn within(self, context: &'a dyn Any) -> Self {
        Self { context: Some(context), ..self }
    }

    /// The context, if it is a `C`.
    #[must_use]
    pub fn context<C: Any>(&self) -> Option<&'a C> {
        self.context?.downcast_ref()
    }

    /// A reader of the `bytes` bytes at `start`.
    ///
    /// # Safety
    /// For the life of the reader the bytes are readable, part of one allocation, and written by nobody.
    #[inline(always)]
    #[must_use]
    pub unsafe fn new(start: *const u8, bytes: usize) -> Self {
        // SAFETY: the caller says that all the bytes belong to one allocation, so its end may be computed.
        let end = unsafe { start.add(bytes) };
        Self { next: start, end, record: PhantomData, context: None }
    }

    /// How many bytes are left.
    #[inline(always)]
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.end.addr() - self.next.addr()
    }

    /// Consumes `bytes` bytes and returns where they are: readable for the life of the reader, not aligned, and
    /// uninitialised where the value that was written has padding.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if fewer are left; then nothing is consumed.
    #[inline(always)]
    pub fn take(&mut self, bytes: usize) -> Result<*const u8, WireError> {
        self.take_for::<[u8]>(bytes)
    }

    /// [`take`](Self::take) on behalf of `T`, which an error names.
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

//! The receiving end of a record.

use std::marker::PhantomData;
use std::sync::Arc;

use super::WireError;
use crate::job::process::Process;

/// The bytes of a record that are still to be read.
#[derive(Debug)]
pub struct Reader<'a> {
    next: *const u8,
    end: *const u8,
    record: PhantomData<&'a [u8]>,
    /// The process that reads, for values that mean something only there.
    process: Option<&'a Arc<Process>>,
}

impl<'a> Reader<'a> {
    /// The same reader, in a process of a job.
    #[inline(always)]
    #[must_use]
    pub(crate) fn in_process(self, process: &'a Arc<Process>) -> Self {
        Self { process: Some(process), ..self }
    }

    /// The process that reads.
    pub(crate) fn process(&self) -> Option<&'a Arc<Process>> {
        self.process
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
        Self { next: start, end, record: PhantomData, process: None }
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
    pub(super) fn take_for<T: ?Sized>(&mut self, bytes: usize) -> Result<*const u8, WireError> {
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

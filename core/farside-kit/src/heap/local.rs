//! The local side of a heap: memory of the initiator with the same layout as R at the peer.

use std::alloc::{self, Layout};
use std::ptr::NonNull;

use super::error::HeapError;
use super::layout::{ALIGN_MAX, UNIT_BYTES};

/// The initiator's copy of all units of the heap, all zero at first. Untouched pages cost nothing.
#[derive(Debug)]
pub(super) struct LocalMemory {
    allocated: NonNull<u8>,
    layout: Layout,
    /// The first unit, at the beginning of a page.
    first: NonNull<u8>,
    bytes: usize,
}

impl LocalMemory {
    pub(super) fn new(units: u32) -> Result<Self, HeapError> {
        let bytes = u64::from(units) * UNIT_BYTES;
        let none = || HeapError::NoLocalMemory { bytes };
        let size = usize::try_from(bytes + ALIGN_MAX).map_err(|_| none())?;
        // An alignment that plain `calloc` supports, so that the allocator takes zero pages from
        // the system. A larger alignment would make it write zeros to all of them.
        let layout = Layout::from_size_align(size, 16).map_err(|_| none())?;
        // SAFETY: the layout's size is not 0, because it includes `ALIGN_MAX`.
        let allocated = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or_else(none)?;
        let lead = allocated.addr().get().next_multiple_of(ALIGN_MAX as usize) - allocated.addr().get();
        // SAFETY: `lead` is less than `ALIGN_MAX`, and the allocation has `ALIGN_MAX` bytes more
        // than the units need.
        let first = unsafe { allocated.add(lead) };
        Ok(Self { allocated, layout, first, bytes: bytes as usize })
    }

    /// Returns a pointer to `bytes` bytes from the beginning of a unit.
    ///
    /// # Panics
    /// If they extend beyond the heap.
    #[track_caller]
    pub(super) fn place(&self, start: u32, bytes: usize) -> NonNull<u8> {
        let offset = start as usize * UNIT_BYTES as usize;
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "a block lies in its heap");
        // SAFETY: the range lies in the allocation, by the assertion above.
        unsafe { self.first.add(offset) }
    }
}

impl Drop for LocalMemory {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout, and is deallocated once, here.
        unsafe { alloc::dealloc(self.allocated.as_ptr(), self.layout) };
    }
}

//! The local side of a heap: memory of the initiator, laid out as that at the peer.

use std::alloc::{self, Layout};
use std::ptr::NonNull;

use super::error::HeapError;
use super::layout::{ALIGN_MAX, UNIT_BYTES};

/// As many units as the heap has, all zero at first. Pages that were never touched cost nothing.
#[derive(Debug)]
pub(super) struct LocalMemory {
    allocated: NonNull<u8>,
    layout: Layout,
    /// The first unit, on a page.
    first: NonNull<u8>,
    bytes: usize,
}

impl LocalMemory {
    pub(super) fn new(units: u32) -> Result<Self, HeapError> {
        let bytes = u64::from(units) * UNIT_BYTES;
        let none = || HeapError::NoLocalMemory { bytes };
        let size = usize::try_from(bytes + ALIGN_MAX).map_err(|_| none())?;
        // No more than what `calloc` gives by itself, which takes zero pages of the system: more would be written to.
        let layout = Layout::from_size_align(size, 16).map_err(|_| none())?;
        // SAFETY: the layout has a size that is not 0.
        let allocated = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or_else(none)?;
        let lead = allocated.addr().get().next_multiple_of(ALIGN_MAX as usize) - allocated.addr().get();
        // SAFETY: less than a page, of which there is one more than needed.
        let first = unsafe { allocated.add(lead) };
        Ok(Self { allocated, layout, first, bytes: bytes as usize })
    }

    /// So many bytes from the beginning of a unit on.
    ///
    /// # Panics
    /// When there are not so many.
    #[track_caller]
    pub(super) fn place(&self, start: u32, bytes: usize) -> NonNull<u8> {
        let offset = start as usize * UNIT_BYTES as usize;
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "a block lies in its heap");
        // SAFETY: inside of the allocation, as was just seen.
        unsafe { self.first.add(offset) }
    }
}

impl Drop for LocalMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and given back once.
        unsafe { alloc::dealloc(self.allocated.as_ptr(), self.layout) };
    }
}

//! A worker's cache of the ranges of global memory that are mapped in this process.
//!
//! It is a field of the worker, so that an access to mapped memory reaches it without a lookup. The
//! room `global` fills it and defines what a segment is; here a segment is a number.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of lines, a power of two. A region has a segment for each 512 MiB.
pub(crate) const LINE_COUNT: usize = 256;

/// A direct-mapped cache from segments to mapped memory.
#[derive(Debug)]
pub(crate) struct AddressCache {
    lines: Box<[Line; LINE_COUNT]>,
    /// The number of losses of processes when the lines were last cleared, with [`DETOUR`] if
    /// accesses make one.
    losses: Cell<u32>,
    /// [`DETOUR`] or 0.
    detour: Cell<u32>,
}

/// A bit that no number of losses has.
const DETOUR: u32 = 1 << 31;

/// One cached segment.
#[derive(Debug)]
struct Line {
    segment: Cell<u64>,
    base: Cell<*mut u8>,
    /// End of the region plus one, counted from the base. 0 marks an empty line, so every bounds
    /// check on it fails.
    end: Cell<u64>,
    /// The state word of the region's slot in the owner's table.
    state: Cell<*const AtomicU64>,
    expected: Cell<u64>,
}

impl Line {
    fn empty() -> Self {
        Self {
            segment: Cell::new(0),
            base: Cell::new(ptr::null_mut()),
            end: Cell::new(0),
            state: Cell::new(ptr::null()),
            expected: Cell::new(0),
        }
    }

    /// Empties the line. Only the end marks it as empty: any number may be a segment.
    fn clear(&self) {
        self.segment.set(0);
        self.end.set(0);
    }
}

/// The contents of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// The first byte of the segment.
    pub(crate) base: *mut u8,
    /// The bytes from there to the end of the region. An access may reach into the next segment.
    pub(crate) bytes: u64,
    /// The state word of the region's slot in the owner's table.
    pub(crate) state: *const AtomicU64,
    pub(crate) expected: u64,
}

impl AddressCache {
    pub(crate) fn new() -> Self {
        Self { lines: Box::new(std::array::from_fn(|_| Line::empty())), losses: Cell::new(0), detour: Cell::new(0) }
    }

    /// Returns the address of `bytes` bytes at `offset` in a segment.
    ///
    /// Returns `None` unless the line holds that segment, the bytes are inside it and its region
    /// still exists. Also returns `None` if a process was lost since the line was filled.
    #[inline(always)]
    pub(crate) fn find(&self, line: usize, segment: u64, offset: u32, bytes: usize, losses: u32) -> Option<*mut u8> {
        let line = &self.lines[line];
        let offset = u64::from(offset);
        // The size of a section or a copy can be any number. For a constant size, the compiler
        // removes the overflow check.
        let ends_inside = offset.checked_add(bytes as u64).is_some_and(|end| end < line.end.get());
        if line.segment.get() != segment || !ends_inside || self.losses.get() != losses {
            return None;
        }
        // SAFETY: the line is filled, since nothing ends inside an empty one. So `fill` was called
        // and the line was not cleared since: by its contract, the pointer leads to an atomic in
        // memory that is mapped.
        let state = unsafe { &*line.state.get() };
        (state.load(Ordering::Acquire) == line.expected.get()).then(|| line.base.get().wrapping_add(offset as usize))
    }

    /// Fills a line.
    ///
    /// # Safety
    /// Until the line is cleared or filled again, `range.state` points to an atomic word in mapped
    /// memory, and `range.bytes` bytes from `range.base` on are mapped.
    pub(crate) unsafe fn fill(&self, line: usize, segment: u64, range: Range) {
        let line = &self.lines[line];
        line.base.set(range.base);
        line.end.set(range.bytes.saturating_add(1));
        line.state.set(range.state);
        line.expected.set(range.expected);
        line.segment.set(segment);
    }

    /// Notes the number of losses. If it has changed, clears all lines; later accesses fill them
    /// again.
    pub(crate) fn note_losses(&self, losses: u32) {
        let losses = losses ^ self.detour.get();
        if self.losses.replace(losses) != losses {
            self.lines.iter().for_each(Line::clear);
        }
    }

    /// Has all accesses find nothing, though the lines stay as they are, or ends that. Accesses
    /// then take their slow paths, which may record them. Returns whether it was so before.
    pub(crate) fn set_detour(&self, is_made: bool) -> bool {
        let detour = if is_made { DETOUR } else { 0 };
        let before = self.detour.replace(detour);
        self.losses.set(self.losses.get() ^ before ^ detour);
        before != 0
    }

    /// Returns whether accesses find nothing.
    pub(crate) fn makes_detour(&self) -> bool {
        self.detour.get() != 0
    }

    /// Clears a line if it holds this segment.
    pub(crate) fn clear(&self, line: usize, segment: u64) {
        let line = &self.lines[line];
        if line.segment.get() == segment {
            line.clear();
        }
    }
}

//! How large a pipe is, and where things lie in the memory at its reader.
//!
//! ```text
//! count of messages taken       128 B               written by the reader
//! flags                         width x 64 B        each with up to 56 B of message; written by the writer
//! data                          width x stride      longer messages; none where no message is longer than 56 B
//! ```

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use farside_sys::racy;
use farside_sys::shm::SharedMemory;

use super::error::PipeCause;
use super::protocol::{FLAG_BYTES_MAX, Flag, Kind, Words};
use crate::Wire;

/// Messages up to this size travel in the cache line of their flag.
pub const INLINE_BYTES_MAX: usize = 56;
/// The largest width of a pipe.
pub const WIDTH_MAX: usize = 1 << 16;

/// A cache line: a flag, and what is behind it.
const LINE_BYTES: usize = 64;
/// The count of messages taken has a pair of lines to itself.
const COUNT_BYTES: usize = 128;

/// How many messages of what size a pipe holds. Both ends must say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub struct PipeShape {
    /// Messages that may be under way at a time, 1 to [`WIDTH_MAX`].
    pub width: usize,
    /// The longest message.
    pub message_bytes: usize,
    /// What the messages are values of; 0 for bytes.
    pub(crate) content: u64,
}

impl Default for PipeShape {
    /// 16 messages of up to 4096 bytes: 66 KiB.
    fn default() -> Self {
        Self { width: 16, message_bytes: 4096, content: 0 }
    }
}

impl PipeShape {
    /// # Errors
    /// [`PipeCause::Width`], [`PipeCause::MessageBytes`].
    pub(crate) fn check(self) -> Result<Self, PipeCause> {
        if !(1..=WIDTH_MAX).contains(&self.width) {
            return Err(PipeCause::Width { width: self.width });
        }
        // A usize has room for the product: 16 bits of width, 30 of length.
        if self.message_bytes > FLAG_BYTES_MAX {
            return Err(PipeCause::MessageBytes { bytes: self.message_bytes });
        }
        Ok(self)
    }

    /// Whether a message of this pipe can have such a flag. Whoever puts a message into its slot, or reads it there, asks this first.
    pub(super) fn can_have(self, flag: Flag) -> bool {
        match flag.kind {
            Kind::Inline => flag.bytes <= self.message_bytes.min(INLINE_BYTES_MAX),
            Kind::Slot => flag.bytes > INLINE_BYTES_MAX && flag.bytes <= self.message_bytes,
            Kind::Offered => flag.bytes <= FLAG_BYTES_MAX,
        }
    }

    /// Bytes between the data of two slots.
    fn stride(self) -> usize {
        if self.message_bytes <= INLINE_BYTES_MAX { 0 } else { self.message_bytes.next_multiple_of(LINE_BYTES) }
    }

    /// Where the data begins.
    fn data(self) -> usize {
        COUNT_BYTES + self.width * LINE_BYTES
    }

    /// The memory that the pipe takes at its reader.
    pub(crate) fn bytes(self) -> usize {
        self.data() + self.width * self.stride()
    }

    /// Where the data of a slot is.
    pub(crate) fn data_of(self, slot: usize) -> usize {
        self.data() + slot * self.stride()
    }
}

/// The memory of a pipe, mapped here.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    base: *mut u8,
    shape: PipeShape,
    stride: usize,
    _keeper: Arc<SharedMemory>,
}

// SAFETY: the base is an address in a mapping of the whole process, kept alive by `_keeper`; all access through it is atomic, by racy
// copies, or by the one side that has the slot.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

impl Slots {
    /// `None` unless the pipe lies inside of the memory, at the beginning of a line.
    pub(crate) fn new(memory: Arc<SharedMemory>, offset: usize, shape: PipeShape) -> Option<Self> {
        let inside = offset.checked_add(shape.bytes()).is_some_and(|end| end <= memory.bytes());
        if !inside || !offset.is_multiple_of(LINE_BYTES) {
            return None;
        }
        let base = memory.base().as_ptr().wrapping_add(offset);
        Some(Self { base, shape, stride: shape.stride(), _keeper: memory })
    }

    /// As a pipe begins: nothing sent, nothing taken.
    pub(crate) fn reset(&self) {
        use std::sync::atomic::Ordering::Relaxed;
        self.taken().store(0, Relaxed);
        (0..self.shape.width).for_each(|slot| self.flag(slot).store(0, Relaxed));
    }

    #[inline]
    pub(crate) fn shape(&self) -> PipeShape {
        self.shape
    }

    /// The bytes behind a flag, [`INLINE_BYTES_MAX`] of them.
    #[inline]
    pub(crate) fn inline(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.shape.width, "a slot of this pipe");
        self.base.wrapping_add(COUNT_BYTES + slot * LINE_BYTES + 8)
    }

    /// The data of a slot, as long as the pipe's longest message if that is not inline.
    #[inline]
    pub(crate) fn data(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.shape.width, "a slot of this pipe");
        self.base.wrapping_add(COUNT_BYTES + self.shape.width * LINE_BYTES + slot * self.stride)
    }

    /// Where a message of so many bytes goes, if it is not longer than the longest.
    #[inline]
    pub(crate) fn place(&self, slot: usize, bytes: usize) -> *mut u8 {
        debug_assert!(bytes <= self.shape.message_bytes, "lengths are checked before");
        if bytes <= INLINE_BYTES_MAX { self.inline(slot) } else { self.data(slot) }
    }
}

impl Words for Slots {
    #[inline]
    fn flag(&self, slot: usize) -> &AtomicU64 {
        assert!(slot < self.shape.width, "a slot of this pipe");
        // SAFETY: `new` found all of the pipe's memory inside the mapping, which lives as long as `self`; it begins on a line, and the flags of
        // its slots do, too. Nobody accesses a flag but atomically.
        unsafe { racy::atomic_u64(self.base.wrapping_add(COUNT_BYTES + slot * LINE_BYTES)) }
    }

    #[inline]
    fn taken(&self) -> &AtomicU64 {
        // SAFETY: as for `flag`; the count is the first word.
        unsafe { racy::atomic_u64(self.base) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps() {
        for (width, message_bytes) in [(1, 0), (1, 56), (3, 57), (7, 64), (8, 4097), (WIDTH_MAX, 65)] {
            let shape = PipeShape { width, message_bytes, content: 0 }.check().unwrap();
            let memory = Arc::new(SharedMemory::create("pipe-test", shape.bytes() + 64).unwrap());
            let slots = Slots::new(memory.clone(), 64, shape).unwrap();
            let beyond = (memory.bytes() - shape.bytes()).next_multiple_of(64) + 64;
            assert!(Slots::new(memory, beyond, shape).is_none(), "it does not fit there");
            let base = slots.base.addr();
            let mut end = base + COUNT_BYTES;
            for slot in 0..width {
                assert_eq!(slots.flag(slot).as_ptr().addr(), end);
                assert_eq!(slots.inline(slot).addr(), end + 8);
                end += LINE_BYTES;
            }
            for slot in 0..width {
                let data = slots.data(slot).addr();
                assert!(data == end && data.is_multiple_of(64) && data - base == shape.data_of(slot));
                end += if message_bytes > INLINE_BYTES_MAX { message_bytes.next_multiple_of(64) } else { 0 };
            }
            assert_eq!(end - base, shape.bytes());
        }
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let check = |width, message_bytes| PipeShape { width, message_bytes, content: 0 }.check();
        assert_eq!(check(0, 8), Err(PipeCause::Width { width: 0 }));
        assert_eq!(check(WIDTH_MAX + 1, 8), Err(PipeCause::Width { width: WIDTH_MAX + 1 }));
        assert_eq!(check(1, 1 << 30), Err(PipeCause::MessageBytes { bytes: 1 << 30 }));
        assert_eq!(check(1, usize::MAX), Err(PipeCause::MessageBytes { bytes: usize::MAX }));
        check(1, FLAG_BYTES_MAX).unwrap();
    }
}

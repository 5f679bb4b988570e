//! The size of a pipe, and the layout of its memory at the reader.
//!
//! ```text
//! count of messages taken       128 B               by the reader
//! flags                         width x 64 B        each with up to 56 B; by the writer
//! data                          width x stride      only if messages exceed 56 B
//! ```

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use farside::Wire;
use farside_sys::racy;
use farside_sys::shm::SharedMemory;

use super::error::PipeCause;
use super::protocol::{FLAG_BYTES_MAX, Flag, Kind, Words};

/// Messages up to this size travel in the cache line of their flag.
pub const INLINE_BYTES_MAX: usize = 56;
/// The largest width of a pipe.
pub const WIDTH_MAX: usize = 1 << 16;

/// A cache line: a flag and the bytes behind it.
const LINE_BYTES: usize = 64;
/// The count of messages taken has two cache lines to itself.
const COUNT_BYTES: usize = 128;

/// The number and size of the messages that a pipe holds. Both ends must use the same shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub struct PipeShape {
    /// The number of messages that may be in transit, 1 to [`WIDTH_MAX`].
    pub width: usize,
    /// The length of the longest message.
    pub message_bytes: usize,
    /// Identifies the type of the values; 0 for bytes.
    pub(crate) content: u64,
}

/// The largest number of bytes of the name of a type that travels. Longer names are cut.
pub(super) const TYPE_NAME_BYTES_MAX: usize = 256;

/// The terms of one end of a pipe: its shape and the type of its values.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(crate) struct Terms {
    pub(crate) shape: PipeShape,
    /// The name of the type of the values, for errors: at most [`TYPE_NAME_BYTES_MAX`] bytes, and
    /// none for bytes.
    type_name: String,
}

impl Terms {
    /// # Errors
    /// [`PipeCause::Width`], [`PipeCause::MessageBytes`].
    pub(super) fn new(shape: PipeShape, type_name: &str) -> Result<Self, PipeCause> {
        let ends = 0..=type_name.len().min(TYPE_NAME_BYTES_MAX);
        let end = ends.rev().find(|end| type_name.is_char_boundary(*end)).unwrap_or(0);
        Ok(Self { shape: shape.check()?, type_name: type_name[..end].to_owned() })
    }

    /// Returns whether a correct process can have sent this.
    pub(super) fn is_possible(&self) -> bool {
        self.shape.check().is_ok() && self.type_name.len() <= TYPE_NAME_BYTES_MAX
    }

    /// Returns the error of an end with these terms whose other end has different ones.
    pub(super) fn mismatch(&self, there: &Self) -> PipeCause {
        let values = |terms: &Self| match &*terms.type_name {
            "" => "bytes".to_owned(),
            name => format!("`{name}`"),
        };
        PipeCause::Mismatch {
            here: self.shape,
            there: there.shape,
            here_values: values(self),
            there_values: values(there),
        }
    }
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
        // The product of 16 bits of width and 30 bits of length fits into a `usize`.
        if self.message_bytes > FLAG_BYTES_MAX {
            return Err(PipeCause::MessageBytes { bytes: self.message_bytes });
        }
        Ok(self)
    }

    /// Returns whether a message of this pipe can have this flag. Both ends check it before they
    /// access a message in its slot.
    pub(super) fn can_have(self, flag: Flag) -> bool {
        match flag.kind {
            Kind::Inline => flag.bytes <= self.message_bytes.min(INLINE_BYTES_MAX),
            Kind::Slot => flag.bytes > INLINE_BYTES_MAX && flag.bytes <= self.message_bytes,
            Kind::Offered => flag.bytes <= FLAG_BYTES_MAX,
        }
    }

    /// The bytes from the data of one slot to that of the next.
    fn stride(self) -> usize {
        if self.message_bytes <= INLINE_BYTES_MAX { 0 } else { self.message_bytes.next_multiple_of(LINE_BYTES) }
    }

    /// The offset of the data.
    fn data(self) -> usize {
        COUNT_BYTES + self.width * LINE_BYTES
    }

    /// The bytes of the pipe's memory at its reader.
    pub(crate) fn bytes(self) -> usize {
        self.data() + self.width * self.stride()
    }

    /// The offset of a slot's data.
    pub(crate) fn data_of(self, slot: usize) -> usize {
        self.data() + slot * self.stride()
    }
}

/// The mapped memory of a pipe.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    base: *mut u8,
    shape: PipeShape,
    stride: usize,
    _keeper: Arc<SharedMemory>,
}

// SAFETY: the base is an address in a mapping that belongs to the whole process and that `_keeper`
// keeps alive. All access through it is atomic, by racy copies, or by the end that owns the slot.
unsafe impl Send for Slots {}
// SAFETY: as for `Send`: access from several threads is atomic, by racy copies, or by the one end
// that owns the slot.
unsafe impl Sync for Slots {}

impl Slots {
    /// Returns the pipe at `offset`, or `None` unless it lies inside the memory and begins on a
    /// cache line.
    pub(crate) fn new(memory: Arc<SharedMemory>, offset: usize, shape: PipeShape) -> Option<Self> {
        let inside = offset.checked_add(shape.bytes()).is_some_and(|end| end <= memory.bytes());
        if !inside || !offset.is_multiple_of(LINE_BYTES) {
            return None;
        }
        let base = memory.base().as_ptr().wrapping_add(offset);
        Some(Self { base, shape, stride: shape.stride(), _keeper: memory })
    }

    /// Resets the pipe: nothing sent, nothing taken.
    pub(crate) fn reset(&self) {
        use std::sync::atomic::Ordering::Relaxed;
        self.taken().store(0, Relaxed);
        (0..self.shape.width).for_each(|slot| self.flag(slot).store(0, Relaxed));
    }

    #[inline]
    pub(crate) fn shape(&self) -> PipeShape {
        self.shape
    }

    /// Returns the [`INLINE_BYTES_MAX`] bytes behind a flag.
    #[inline]
    pub(crate) fn inline(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.shape.width, "a slot of this pipe");
        self.base.wrapping_add(COUNT_BYTES + slot * LINE_BYTES + 8)
    }

    /// Returns the data of a slot, which has room for the pipe's longest message unless that one is
    /// inline.
    #[inline]
    pub(crate) fn data(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.shape.width, "a slot of this pipe");
        self.base.wrapping_add(COUNT_BYTES + self.shape.width * LINE_BYTES + slot * self.stride)
    }

    /// Returns the place of a message of `bytes`, which is at most the pipe's longest.
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
        // SAFETY: `new` found all of the pipe's memory inside the mapping, which lives as long as
        // `self`. The memory begins on a cache line, and so do the flags. Every access to a flag is
        // atomic.
        unsafe { racy::atomic_u64(self.base.wrapping_add(COUNT_BYTES + slot * LINE_BYTES)) }
    }

    #[inline]
    fn taken(&self) -> &AtomicU64 {
        // SAFETY: `new` found all of the pipe's memory inside the mapping, which lives as long as
        // `self`. The count is the first word of it, on a cache line. Every access to it is atomic.
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

    #[test]
    fn names_of_types_have_a_limit() {
        let shape = PipeShape::default();
        let long = Terms::new(shape, &"é".repeat(TYPE_NAME_BYTES_MAX)).unwrap();
        assert_eq!(long.type_name, "é".repeat(TYPE_NAME_BYTES_MAX / 2));
        assert!(long.is_possible());
        let odd = Terms::new(shape, &format!("x{}", long.type_name)).unwrap();
        assert_eq!(odd.type_name.len(), TYPE_NAME_BYTES_MAX - 1);
        assert!(!Terms { shape, type_name: "x".repeat(TYPE_NAME_BYTES_MAX + 1) }.is_possible());
        assert!(!Terms { shape: PipeShape { width: 0, ..shape }, ..odd }.is_possible());
    }
}

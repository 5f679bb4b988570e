//! A stream of records from one worker to another, in the receiver's memory. Only the sender writes
//! records.
//!
//! The memory is a circle of *chunks*. A record is an 8-byte [`Header`] and its payload, padded to
//! 8 bytes; records never cross a chunk's end. A zero header means that no record has been
//! published there yet.
//!
//! *Publishing.* The sender writes the payload, then a zero at the place of the next header, then
//! the header with a release store. The receiver loads headers with acquire. So there is no
//! separate tail word to contend for, and no zeroing of whole chunks. A sender that has many
//! records writes them in memory of its own first. It copies them behind each other, and all become
//! visible when it releases the first header. The wide stores of one copy wait together for the
//! lines that the receiver read; narrow stores wait for one line after the other (measured on AMD
//! processors: half the rate, or less).
//!
//! *Rotating.* When a chunk is full, the sender zeroes the first header of the next chunk and then
//! publishes a rotate record. It may enter a chunk only after the receiver has consumed the chunk's
//! earlier contents. The receiver reports this once per chunk in the [`RingControl`] that both
//! share. A sender without room may be granted a new chunk, which it splices into the circle at its
//! current position. The rotate record says so, and both circles stay alike (Seriema §4.4.1).
//!
//! A published record belongs to the receiver until its chunk is credited: the sender does not
//! touch it. The receiver checks what it reads before it uses it. A malformed header is
//! [`Corrupt`], and never leads to memory outside the chunk.

mod receiver;
mod record;
mod sender;

use std::mem::MaybeUninit;
use std::sync::Arc;

#[cfg(not(loom))]
use farside_sys::racy;
use farside_sys::shm::SharedMemory;

use crate::sync::{AtomicU32, AtomicU64};

pub use self::receiver::{Corrupt, Next, Receiver, RunEnd};
pub use self::record::{Header, as_record_words, record_bytes};
pub use self::sender::{NoRoom, Sender};

/// The smallest chunk: a header, a record of one word, and the rotate record.
pub const CHUNK_BYTES_MIN: usize = 64;

/// State that the two sides of a ring share besides records. Lies in the receiver's memory.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct RingControl {
    /// Number of chunks that the receiver has consumed, in the order in which the sender filled
    /// them. Written by the receiver; a release store of `n` means that the sender may overwrite
    /// chunk fillings up to `n`.
    pub consumed: AtomicU64,
    /// 1 while the sender waits for `consumed` to grow. Written by the sender, read by the receiver
    /// after each credit.
    pub sender_waits: AtomicU32,
}

impl Default for RingControl {
    fn default() -> Self {
        Self { consumed: AtomicU64::new(0), sender_waits: AtomicU32::new(0) }
    }
}

/// The memory of a ring's words. The protocol is written over this trait, so that the model checker
/// can supply the memory.
pub trait RingMemory: Clone {
    /// The size of this chunk.
    fn bytes(&self) -> usize;

    /// The word at `offset`, a multiple of 8 below [`bytes`](Self::bytes).
    fn word(&self, offset: usize) -> &AtomicU64;

    /// Returns the word at `offset` without checking the offset.
    ///
    /// # Safety
    /// `offset` is a multiple of 8 below [`bytes`](Self::bytes).
    #[inline]
    unsafe fn word_unchecked(&self, offset: usize) -> &AtomicU64 {
        self.word(offset)
    }

    /// Writes words from `offset` on, which belong to the sender. Uninitialised bytes get some
    /// value.
    ///
    /// # Panics
    /// Unless `offset` is a multiple of 8, and the words lie inside the chunk.
    fn put(&self, offset: usize, words: &[MaybeUninit<u64>]);
}

/// The memory of a ring's control block.
pub trait RingControlMemory {
    /// The block.
    fn control(&self) -> &RingControl;
}

/// A chunk in mapped memory.
#[derive(Clone, Debug)]
pub struct MappedChunk {
    base: *mut u8,
    bytes: usize,
    _keeper: Arc<SharedMemory>,
}

// SAFETY: the chunk is an address in a mapping of the whole process, kept alive by `_keeper`; every
// access through it is atomic, or is made by the one side that owns the record at the time.
unsafe impl Send for MappedChunk {}

impl MappedChunk {
    /// Creates the chunk of `bytes` bytes at `offset` of `memory`.
    ///
    /// `None` unless the chunk lies inside `memory`, starts on a cache line, is a multiple of 8
    /// long, and is at least [`CHUNK_BYTES_MIN`] long.
    pub fn new(memory: Arc<SharedMemory>, offset: usize, bytes: usize) -> Option<Self> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= memory.bytes());
        if !inside || !offset.is_multiple_of(64) || !bytes.is_multiple_of(8) || bytes < CHUNK_BYTES_MIN {
            return None;
        }
        let base = memory.base().as_ptr().wrapping_add(offset);
        Some(Self { base, bytes, _keeper: memory })
    }

    /// The address of the byte at `offset`. Only the owner of the record there may access it.
    #[inline]
    pub fn address(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.bytes, "records lie inside their chunk");
        self.base.wrapping_add(offset)
    }

    /// Writes bytes from `offset` on, which belong to the sender.
    ///
    /// # Panics
    /// Unless they lie inside the chunk.
    #[cfg(not(loom))]
    #[inline]
    pub fn put_bytes(&self, offset: usize, bytes: &[u8]) {
        self.check_inside(offset, bytes.len());
        // SAFETY: the source is a slice of this process, which is no memory of a chunk. The
        // destination lies inside the mapping, by `new` and `check_inside`, and the mapping lives
        // as long as `self`.
        unsafe { racy::copy_out(bytes.as_ptr(), self.base.wrapping_add(offset), bytes.len()) };
    }

    /// Reads bytes from `offset` on into private memory. Another process may write them meanwhile.
    ///
    /// # Panics
    /// Unless they lie inside the chunk.
    #[cfg(not(loom))]
    #[inline]
    pub fn take_bytes(&self, offset: usize, into: &mut [u8]) {
        self.check_inside(offset, into.len());
        // SAFETY: the source lies inside the mapping, by `new` and `check_inside`, and the mapping
        // lives as long as `self`. The destination is a slice of this process, which is no memory
        // of a chunk.
        unsafe { racy::copy_in(self.base.wrapping_add(offset), into.as_mut_ptr(), into.len()) };
    }

    #[cfg(not(loom))]
    #[inline]
    fn check_inside(&self, offset: usize, bytes: usize) {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "records lie inside their chunk");
    }

    /// An address for a prefetch, which may lie beyond the chunk.
    #[inline]
    pub fn ahead(&self, offset: usize) -> *const u8 {
        self.base.wrapping_add(offset)
    }
}

#[cfg(not(loom))]
impl RingMemory for MappedChunk {
    #[inline]
    fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < self.bytes, "headers lie inside their chunk");
        // SAFETY: `new` checked that the chunk lies inside the mapping, is aligned to 64 and is a
        // multiple of 8 long; the mapping lives as long as `self`; and the assertion above checked
        // that `offset` is that of a whole word.
        unsafe { racy::atomic_u64(self.base.wrapping_add(offset)) }
    }

    #[inline]
    unsafe fn word_unchecked(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: `new` checked that the chunk lies inside the mapping, aligned to 64; the mapping
        // lives as long as `self`; and `offset` is that of a whole word by the contract.
        unsafe { racy::atomic_u64(self.base.wrapping_add(offset)) }
    }

    #[inline]
    fn put(&self, offset: usize, words: &[MaybeUninit<u64>]) {
        let bytes = size_of_val(words);
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(offset.is_multiple_of(8) && is_inside, "records lie inside their chunk");
        // SAFETY: the source is a slice of this process. The destination lies inside the mapping,
        // by `new` and by the assertion above, and the mapping lives as long as `self`. A slice of
        // this process is no memory of a chunk, so the two do not overlap.
        unsafe { racy::copy_out(words.as_ptr().cast(), self.base.wrapping_add(offset), bytes) };
    }
}

/// A control block in mapped memory.
#[derive(Clone, Debug)]
pub struct MappedControl {
    control: *const RingControl,
    _keeper: Arc<SharedMemory>,
}

// SAFETY: the block is an address in a mapping of the whole process, kept alive by `_keeper`, and
// it holds only atomics.
unsafe impl Send for MappedControl {}

impl MappedControl {
    /// Creates the control block at `offset` of `memory`. `None` unless it lies inside, aligned.
    pub fn new(memory: Arc<SharedMemory>, offset: usize) -> Option<Self> {
        let inside = offset.checked_add(size_of::<RingControl>()).is_some_and(|end| end <= memory.bytes());
        if !inside || !offset.is_multiple_of(align_of::<RingControl>()) {
            return None;
        }
        let control = memory.base().as_ptr().wrapping_add(offset).cast_const().cast();
        Some(Self { control, _keeper: memory })
    }
}

impl RingControlMemory for MappedControl {
    #[inline]
    fn control(&self) -> &RingControl {
        // SAFETY: `new` checked that the block lies inside the mapping and is aligned, the mapping
        // lives as long as `self`, and the block holds only atomics, for which all bytes are valid
        // and writes of other processes are no race.
        unsafe { &*self.control }
    }
}

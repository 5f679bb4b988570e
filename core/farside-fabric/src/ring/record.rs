//! The header of a record.

use std::mem::MaybeUninit;

/// The 8 bytes before a record's payload.
///
/// ```text
/// bits  0..32  operand: for the layer above (an offset in the program's text)
/// bits 32..48  entry: the index of a function in the link-time table, or ROTATE
/// bits 48..64  length of the record in units of 8 bytes,
///              or LONG: the payload's first word is the length
/// ```
///
/// Never zero, because a record is at least one unit long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Header(u64);

const ROTATE: u16 = u16::MAX;
const LONG: u16 = u16::MAX;

/// The longest payload of a record whose header tells its length.
const SHORT_PAYLOAD_BYTES_MAX: usize = (LONG as usize - 2) * 8;

/// The number of bytes that a record with `payload_bytes` bytes of payload occupies in the ring.
///
/// A payload that no memory can hold yields a size that no memory can hold. At most that is the
/// largest multiple of 8 that is an `isize`, so its sum with the size of a chunk does not overflow.
#[inline]
pub const fn record_bytes(payload_bytes: usize) -> usize {
    if payload_bytes <= SHORT_PAYLOAD_BYTES_MAX {
        8 + payload_bytes.next_multiple_of(8)
    } else {
        long_bytes(payload_bytes)
    }
}

const fn long_bytes(payload_bytes: usize) -> usize {
    // The header, the length, and at most 7 bytes behind the payload.
    let bytes = payload_bytes.saturating_add(8 + 8 + 7);
    (if bytes < isize::MAX as usize { bytes } else { isize::MAX as usize }) / 8 * 8
}

/// Returns initialised words as those of records, whose payloads may have uninitialised padding.
pub fn as_record_words(words: &[u64]) -> &[MaybeUninit<u64>] {
    // SAFETY: `MaybeUninit<u64>` has the layout of `u64`, and nothing is written through a shared
    // slice.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
}

impl Header {
    /// The first entry value that is not a function's index.
    pub const ENTRY_COUNT_MAX: usize = ROTATE as usize;

    /// Builds the header of a record of `record_bytes` bytes, a value of the function
    /// [`record_bytes`].
    #[inline]
    pub const fn new(entry: u16, operand: u32, record_bytes: usize) -> Self {
        debug_assert!(entry != ROTATE && record_bytes.is_multiple_of(8) && record_bytes >= 8);
        let units = record_bytes / 8;
        let units = if units < LONG as usize { units as u64 } else { LONG as u64 };
        Self(operand as u64 | (entry as u64) << 32 | units << 48)
    }

    /// Returns whether a record of this length stores its length in its first payload word.
    #[inline]
    pub const fn is_long_for(record_bytes: usize) -> bool {
        record_bytes / 8 >= LONG as usize
    }

    #[inline]
    pub(super) const fn rotate(splice: bool) -> Self {
        Self(splice as u64 | (ROTATE as u64) << 32 | 1 << 48)
    }

    /// Interprets a word in memory as a header.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The header as a word in memory.
    #[inline]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The index of the function in the table.
    #[inline]
    pub const fn entry(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// The operand.
    #[inline]
    pub const fn operand(self) -> u32 {
        self.0 as u32
    }

    /// Returns whether this is not a plain record: a rotation, a long record, or length 0, which no
    /// sender writes.
    #[cfg(not(loom))]
    #[inline]
    pub(super) const fn is_special(self) -> bool {
        let units = (self.0 >> 48) as u16;
        // One comparison covers both 0 and LONG.
        units.wrapping_sub(1) >= LONG - 1 || self.is_rotate()
    }

    /// The length of a plain record.
    #[cfg(not(loom))]
    #[inline]
    pub(super) const fn unit_bytes(self) -> usize {
        (self.0 >> 48) as usize * 8
    }

    #[inline]
    pub(super) const fn is_rotate(self) -> bool {
        self.entry() == ROTATE
    }

    /// The length in bytes, header included; `None` if the payload's first word holds it.
    #[inline]
    pub const fn short_bytes(self) -> Option<usize> {
        let units = (self.0 >> 48) as u16;
        if units == LONG { None } else { Some(units as usize * 8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_tells_what_was_put_in() {
        for bytes in [8, 16, 256, 65536, (LONG as usize - 1) * 8] {
            let header = Header::new(0xfffe, u32::MAX, bytes);
            assert_eq!(header, Header::from_word(header.word()));
            assert_eq!((header.entry(), header.operand()), (0xfffe, u32::MAX));
            assert_eq!(header.short_bytes(), Some(bytes));
            assert!(!header.is_rotate() && header.word() != 0 && !Header::is_long_for(bytes));
        }
        let long = Header::new(0, 0, LONG as usize * 8);
        assert_eq!(long.short_bytes(), None);
        assert!(Header::is_long_for(LONG as usize * 8));
        assert!(Header::rotate(true).is_rotate() && Header::rotate(false).is_rotate());
        assert_ne!(Header::rotate(true), Header::rotate(false));
    }

    #[test]
    fn records_are_whole_words_and_long_ones_have_room_for_their_length() {
        assert_eq!([0, 1, 8, 9].map(record_bytes), [8, 16, 16, 24]);
        let longest_short = (LONG as usize - 1) * 8;
        assert_eq!(record_bytes(longest_short - 8), longest_short);
        assert_eq!(record_bytes(longest_short - 7), longest_short + 16);
        assert_eq!(record_bytes(longest_short), longest_short + 16);
        assert_eq!(record_bytes(longest_short + 1), longest_short + 24);
    }

    #[test]
    fn a_payload_beyond_all_memory_fits_nowhere() {
        let most = isize::MAX as usize - 7;
        for bytes in [most - 16, most - 15, most, isize::MAX as usize, usize::MAX - 15, usize::MAX - 7, usize::MAX] {
            assert_eq!(record_bytes(bytes), most, "{bytes}");
        }
        assert_eq!(record_bytes(most - 24), most - 8);
    }
}

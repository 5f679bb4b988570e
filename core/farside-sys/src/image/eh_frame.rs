//! `.eh_frame_hdr`: the linker's sorted table of functions with unwinding information.
//!
//! The layout (Linux Standard Base, "DWARF Extensions"): a version, three encodings, a pointer to
//! `.eh_frame`, and the number of entries. Then follow, for each function, its start and its
//! unwinding information.

const VERSION: u8 = 1;
/// An absolute, unsigned number of four bytes.
const UDATA4: u8 = 0x03;
/// A signed number of four bytes, counted from the start of this header.
const DATA_RELATIVE_SDATA4: u8 = 0x3b;
const ENTRY_BYTES: usize = 8;

/// The addresses of all function starts in the table `header`, which lies at `address`.
///
/// `None` for an encoding that linkers do not use, and for a truncated table. The caller checks
/// that the addresses lie in code.
pub(super) fn function_starts(header: &[u8], address: usize) -> Option<impl Iterator<Item = usize>> {
    let (&[version, pointer_encoding, count_encoding, table_encoding], rest) = header.split_first_chunk()?;
    if (version, count_encoding, table_encoding) != (VERSION, UDATA4, DATA_RELATIVE_SDATA4) {
        return None;
    }
    let (count, table) = rest.get(encoded_bytes(pointer_encoding)?..)?.split_first_chunk()?;
    let table_bytes = (u32::from_ne_bytes(*count) as usize).checked_mul(ENTRY_BYTES)?;
    let (entries, _) = table.get(..table_bytes)?.as_chunks::<ENTRY_BYTES>();
    Some(entries.iter().map(move |&[a, b, c, d, ..]| {
        let relative = i32::from_ne_bytes([a, b, c, d]);
        address.wrapping_add_signed(relative as isize)
    }))
}

/// The size of a pointer in DWARF's encoding. The low half of the byte is the pointer's format.
fn encoded_bytes(encoding: u8) -> Option<usize> {
    const OMITTED: u8 = 0xff;

    match (encoding, encoding & 0x0f) {
        (OMITTED, _) => Some(0),
        (_, 0x00) => Some(size_of::<usize>()),
        (_, 0x02 | 0x0a) => Some(2),
        (_, 0x03 | 0x0b) => Some(4),
        (_, 0x04 | 0x0c) => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: usize = 0x10_0000;

    fn header(pointer_encoding: u8, pointer_bytes: usize, starts: &[i32]) -> Vec<u8> {
        let mut bytes = vec![VERSION, pointer_encoding, UDATA4, DATA_RELATIVE_SDATA4];
        bytes.resize(4 + pointer_bytes, 0x77);
        bytes.extend((starts.len() as u32).to_ne_bytes());
        for start in starts {
            bytes.extend(start.to_ne_bytes());
            bytes.extend(0x55_u32.to_ne_bytes());
        }
        bytes
    }

    fn read(header: &[u8]) -> Option<Vec<usize>> {
        function_starts(header, ADDRESS).map(Iterator::collect)
    }

    #[test]
    fn starts_are_relative_to_the_header() {
        for (encoding, bytes) in [(0x1b, 4), (0x03, 4), (0x1c, 8), (0x0a, 2), (0x00, size_of::<usize>()), (0xff, 0)] {
            let read = read(&header(encoding, bytes, &[-0x1000, 0, 0x20, i32::MAX]));
            let expected = [ADDRESS - 0x1000, ADDRESS, ADDRESS + 0x20, ADDRESS + i32::MAX as usize];
            assert_eq!(read.as_deref(), Some(expected.as_slice()), "encoding {encoding:#x}");
        }
    }

    #[test]
    fn an_empty_table_has_no_starts_and_bytes_after_a_table_are_ignored() {
        assert_eq!(read(&header(0x1b, 4, &[])), Some(Vec::new()));
        let mut longer = header(0x1b, 4, &[8]);
        longer.extend([1, 2, 3]);
        assert_eq!(read(&longer), Some(vec![ADDRESS + 8]));
    }

    #[test]
    fn every_truncation_is_unknown() {
        let whole = header(0x1b, 4, &[1, 2, 3]);
        for len in 0..whole.len() {
            assert_eq!(read(&whole[..len]), None, "{len} of {}", whole.len());
        }
    }

    #[test]
    fn other_versions_and_encodings_are_unknown() {
        for (at, byte) in [(0, 0), (0, 2), (1, 0x01), (1, 0x19), (2, 0x0b), (2, 0xff), (3, 0x1b), (3, 0x3c), (3, 0xff)]
        {
            let mut bytes = header(0x1b, 4, &[1, 2, 3]);
            bytes[at] = byte;
            assert_eq!(read(&bytes), None, "byte {at} is {byte:#x}");
        }
    }

    #[test]
    fn a_count_beyond_the_table_is_unknown() {
        for count in [4_u32, 1 << 29, u32::MAX] {
            let mut bytes = header(0x1b, 4, &[1, 2, 3]);
            bytes[8..12].copy_from_slice(&count.to_ne_bytes());
            assert_eq!(read(&bytes), None, "{count}");
        }
    }
}

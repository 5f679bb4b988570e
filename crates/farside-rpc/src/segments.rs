//! The segments of a peer's memory: how they travel, and which of them make up a range.
//!
//! A segment travels as the distance from the end of the one before, and its length. Both have as
//! many bytes as they need, seven bits in each. So segments at regular distances take few bytes.

/// An address and a length.
pub(crate) type Segment = (usize, usize);

/// Describes segments in at most `bytes_max` bytes. `None` if that is too little.
pub(crate) fn pack(segments: impl IntoIterator<Item = Segment>, bytes_max: usize) -> Option<Vec<u8>> {
    let (mut packed, mut end) = (Vec::new(), 0_u64);
    for (address, bytes) in segments {
        let distance = (address as u64).wrapping_sub(end).cast_signed();
        // Small distances in either direction become small numbers.
        push_number(&mut packed, (distance.cast_unsigned() << 1) ^ (distance >> 63).cast_unsigned());
        push_number(&mut packed, bytes as u64);
        end = (address as u64).wrapping_add(bytes as u64);
        if packed.len() > bytes_max {
            return None;
        }
    }
    Some(packed)
}

/// Reads what [`pack`] wrote. `None` if it did not write that, or if a program cannot have so much
/// memory.
pub(crate) fn unpack(mut packed: &[u8]) -> Option<Vec<Segment>> {
    let (mut segments, mut end, mut sum) = (Vec::new(), 0_u64, 0_usize);
    while !packed.is_empty() {
        let distance = take_number(&mut packed)?;
        let bytes = usize::try_from(take_number(&mut packed)?).ok()?;
        let distance = (distance >> 1) ^ (distance & 1).wrapping_neg();
        let address = end.wrapping_add(distance);
        sum = sum.checked_add(bytes).filter(|sum| isize::try_from(*sum).is_ok())?;
        end = address.wrapping_add(bytes as u64);
        segments.push((usize::try_from(address).ok()?, bytes));
    }
    Some(segments)
}

fn push_number(packed: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        packed.push(number as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

fn take_number(packed: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = packed.split_first()?;
        *packed = rest;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has one bit left.
        if shift > 63 || bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(number)
}

/// The parts of segments that make up a range.
pub(crate) fn sub_range(segments: &[Segment], mut skip: usize, mut bytes: usize) -> Vec<Segment> {
    let mut parts = Vec::new();
    for (address, length) in segments {
        if bytes == 0 {
            break;
        }
        if skip >= *length {
            skip -= length;
            continue;
        }
        let taken = (length - skip).min(bytes);
        parts.push((address.wrapping_add(skip), taken));
        bytes -= taken;
        skip = 0;
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_range_of_segments_is_cut_out() {
        let segments = [(100, 10), (200, 0), (300, 5)];
        assert_eq!(sub_range(&segments, 0, 15), [(100, 10), (300, 5)]);
        assert_eq!(sub_range(&segments, 8, 4), [(108, 2), (300, 2)]);
        assert_eq!(sub_range(&segments, 10, 1), [(300, 1)]);
        assert_eq!(sub_range(&segments, 3, 0), []);
    }

    #[test]
    fn regular_segments_take_few_bytes() {
        let segments = (0..10_000).map(|index| (0x7fff_0000_1000 + index * 512, 256));
        let packed = pack(segments.clone(), 48 << 10).unwrap();
        assert!(packed.len() <= 40_010, "{}", packed.len());
        assert!(unpack(&packed).unwrap().into_iter().eq(segments.clone()));
        assert_eq!(pack(segments, 30_000), None);
    }

    #[test]
    fn impossible_segments_are_refused() {
        assert_eq!(unpack(&[]), Some(Vec::new()));
        assert_eq!(unpack(&[2]), None);
        assert_eq!(unpack(&[0x80]), None);
        assert_eq!(unpack(&[0xff; 12]), None);
        let most = isize::MAX as usize;
        assert_eq!(unpack(&pack([(1, most)], 100).unwrap()), Some(vec![(1, most)]));
        assert_eq!(unpack(&pack([(1, most), (2, 1)], 100).unwrap()), None);
        assert_eq!(unpack(&pack([(1, usize::MAX)], 100).unwrap()), None);
    }

    proptest! {
        #[test]
        fn packed_segments_are_unpacked(segments in prop::collection::vec((any::<usize>(), 0..1_usize << 40), 0..50)) {
            let packed = pack(segments.clone(), 10_000).unwrap();
            prop_assert_eq!(unpack(&packed).unwrap(), segments);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = unpack(&bytes);
        }
    }
}

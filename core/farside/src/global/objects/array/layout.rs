//! The places of an array's values.

use super::divisor::Divisor;

/// The distribution of the values of an array over its parts. They are dealt in blocks: block `k`
/// goes to part `k` modulo the number of parts. The blocks of a part lie one after the other. If
/// the blocks are so long that each part has at most one, this is a block distribution. With blocks
/// of one value it is a cyclic distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    length: u64,
    block: Divisor,
    parts: Divisor,
}

/// The place of a value: its part, and the number of the part's values before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) part: u64,
    pub(crate) offset: u64,
}

/// The values that one part has of a range of indices. They are contiguous in the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// The place of the first value.
    pub(crate) place: Place,
    /// The number of values.
    pub(crate) count: u64,
    /// The position of the first value in the range, and the number of values in the first piece.
    first: u64,
    first_count: u64,
    /// The distance from the start of one block of the part to the start of the next.
    stride: u64,
    block: u64,
}

impl Layout {
    /// Makes the layout of `length` values in blocks of `block` values. If `block` is 0, each part
    /// has one block, as short as possible.
    pub(crate) fn new(length: u64, block: u64, parts: u64) -> Self {
        debug_assert!(parts > 0);
        let even = length.div_ceil(parts);
        let block = if block == 0 { even } else { block.min(length) };
        Self { length, block: Divisor::new(block.max(1)), parts: Divisor::new(parts) }
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn parts(&self) -> u64 {
        self.parts.value()
    }

    /// Returns the place of an index.
    #[inline(always)]
    pub(crate) fn place(&self, index: u64) -> Place {
        let (block, within) = self.block.divide(index);
        // Always true with a block distribution and seldom with others, so the processor predicts
        // it well.
        if block < self.parts.value() {
            return Place { part: block, offset: within };
        }
        let (round, part) = self.parts.divide(block);
        Place { part, offset: round * self.block.value() + within }
    }

    /// Returns the index at a place.
    pub(crate) fn index(&self, place: Place) -> u64 {
        let (round, within) = self.block.divide(place.offset);
        (round * self.parts.value() + place.part) * self.block.value() + within
    }

    /// Returns the number of values of a part. The first part has the most.
    pub(crate) fn part_length(&self, part: u64) -> u64 {
        let block = self.block.value();
        // A product that overflows exceeds the length of any array.
        let round = block.saturating_mul(self.parts.value());
        let (rounds, rest) = (self.length / round, self.length % round);
        rounds * block + rest.saturating_sub(part.saturating_mul(block)).min(block)
    }

    /// Returns the shares of the parts that have any of the `count` values from `start` on. The
    /// range must be inside the array.
    pub(crate) fn shares(&self, start: u64, count: u64) -> impl Iterator<Item = Share> + use<> {
        let layout = *self;
        let (block, parts) = (self.block.value(), self.parts.value());
        let (first_block, _) = self.block.divide(start);
        let blocks = match count.checked_sub(1) {
            None => 0,
            Some(more) => self.block.divide(start + more).0 - first_block + 1,
        };
        (first_block..first_block + blocks.min(parts)).map(move |number| {
            let begin = (number * block).max(start);
            let place = layout.place(begin);
            let first = begin - start;
            let first_count = ((number + 1) * block - begin).min(count - first);
            // After the first piece come the gap to the part's next block, whole blocks, and the
            // last block as far as the range reaches.
            let stride = block.saturating_mul(parts);
            let beyond = (count - first).saturating_sub(first_count);
            let gap = stride - block;
            let rest = beyond.saturating_sub(gap);
            let more = if beyond <= gap { 0 } else { rest / stride * block + (rest % stride).min(block) };
            Share { place, count: first_count + more, first, first_count, stride, block }
        })
    }
}

impl Share {
    /// Returns its pieces in the range, in the order of the part: the start of each, and its number
    /// of values.
    pub(crate) fn pieces(self) -> impl Iterator<Item = (usize, usize)> {
        let mut begin = self.first;
        let mut left = self.count;
        let mut length = self.first_count;
        std::iter::from_fn(move || {
            let piece = (begin as usize, length as usize);
            left = left.checked_sub(length).filter(|_| length > 0)?;
            // Only the first piece may begin inside a block.
            begin = begin.saturating_add(length).saturating_add(self.stride - self.block);
            length = self.block.min(left);
            Some(piece)
        })
    }

    /// Returns the start of its only piece in the range, or `None` if it has several.
    pub(crate) fn single(self) -> Option<usize> {
        (self.count == self.first_count).then_some(self.first as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layouts() -> impl Strategy<Value = Layout> {
        (0..300_u64, 0..40_u64, 1..40_u64).prop_map(|(length, block, parts)| Layout::new(length, block, parts))
    }

    proptest! {
        #[test]
        fn every_index_has_a_place_of_its_own(layout in layouts()) {
            let lengths: Vec<u64> = (0..layout.parts()).map(|part| layout.part_length(part)).collect();
            prop_assert_eq!(lengths.iter().sum::<u64>(), layout.length());
            prop_assert!(lengths.iter().all(|length| *length <= lengths[0]));
            let mut seen: Vec<Vec<bool>> = lengths.iter().map(|length| vec![false; *length as usize]).collect();
            for index in 0..layout.length() {
                let place = layout.place(index);
                prop_assert_eq!(layout.index(place), index);
                let taken = &mut seen[place.part as usize][place.offset as usize];
                prop_assert!(!std::mem::replace(taken, true), "{:?} is taken", place);
            }
            prop_assert!(seen.iter().flatten().all(|seen| *seen));
        }

        #[test]
        fn a_range_is_shared_out_whole(layout in layouts(), from: u64, to: u64) {
            let (from, to) = (from % (layout.length() + 1), to % (layout.length() + 1));
            let (start, end) = (from.min(to), from.max(to));
            let mut seen = vec![false; (end - start) as usize];
            let mut parts = Vec::new();
            for share in layout.shares(start, end - start) {
                prop_assert!(share.count > 0 && !parts.contains(&share.place.part));
                parts.push(share.place.part);
                let mut offset = share.place.offset;
                for (begin, length) in share.pieces() {
                    prop_assert!(length > 0);
                    for (at, seen) in (begin as u64..).zip(&mut seen[begin..begin + length]) {
                        prop_assert_eq!(layout.place(start + at), Place { part: share.place.part, offset });
                        prop_assert!(!std::mem::replace(seen, true));
                        offset += 1;
                    }
                }
                prop_assert_eq!(offset, share.place.offset + share.count);
                prop_assert_eq!(share.single(), (share.pieces().count() == 1).then(|| share.pieces().next().unwrap().0));
            }
            prop_assert!(seen.iter().all(|seen| *seen));
        }

        #[test]
        fn long_arrays_have_places(index in 0..1_u64 << 50, block in 0..1_u64 << 50, parts in 1..1_u64 << 30) {
            let layout = Layout::new(1 << 50, block, parts);
            let place = layout.place(index);
            prop_assert_eq!(layout.index(place), index);
            prop_assert!(place.part < parts && place.offset < layout.part_length(place.part));
        }
    }

    #[test]
    fn blocks_are_as_even_as_they_can_be() {
        let lengths = |length, block, parts| {
            let layout = Layout::new(length, block, parts);
            (0..parts).map(|part| layout.part_length(part)).collect::<Vec<_>>()
        };
        assert_eq!(lengths(10, 0, 4), [3, 3, 3, 1]);
        assert_eq!(lengths(10, 1, 4), [3, 3, 2, 2]);
        assert_eq!(lengths(10, 3, 2), [6, 4]);
        assert_eq!(lengths(2, 0, 4), [1, 1, 0, 0]);
        assert_eq!(lengths(0, 0, 3), [0, 0, 0]);
        assert_eq!(lengths(5, u64::MAX, 3), [5, 0, 0]);
    }
}

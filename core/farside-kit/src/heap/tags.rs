//! Lists of freed blocks, from the peer to the shadow.
//!
//! They are encoded by hand: a list is words in the initiator's memory, covered by a checksum, and
//! each `free` of the hot path adds to one.

use std::collections::BTreeMap;

use super::layout::{Layout, words};

/// One freed block, or several adjacent ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) start: u32,
    /// The units of all these blocks, headers included.
    pub(super) units: u32,
    /// The sum of the blocks' stamps. Other blocks at the same place have another sum.
    pub(super) marks: u64,
}

pub(super) const TAG_BYTES: usize = 16;
/// A list begins with its checksum, and then its number and length in one word.
pub(super) const HEAD_BYTES: usize = 16;
/// The bits of the length in the second word. The other 48 bits are the number, which no job
/// exhausts.
const COUNT_BITS: u32 = 16;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

/// The freed blocks that are not reported yet, sorted, with neighbours merged.
#[derive(Debug, Default)]
pub(super) struct FreedTags {
    by_start: BTreeMap<u32, (u32, u64)>,
    /// The number of blocks added since the last list.
    pub(super) blocks_since: u64,
    /// The total units.
    pub(super) units: u64,
}

impl FreedTags {
    /// Adds a block. Returns false if it overlaps another block here.
    pub(super) fn add(&mut self, block: Tag) -> bool {
        let Tag { mut start, mut units, mut marks } = block;
        let Some(end) = start.checked_add(units).filter(|end| *end > start) else { return false };
        let before = self.by_start.range(..end).next_back().map(|(start, tag)| (*start, *tag));
        if let Some((before, (before_units, before_marks))) = before {
            let before_end = before + before_units;
            if before_end > start {
                return false;
            }
            if before_end == start {
                self.by_start.remove(&before);
                (start, units, marks) = (before, before_units + units, before_marks.wrapping_add(marks));
            }
        }
        if let Some((after_units, after_marks)) = self.by_start.remove(&end) {
            (units, marks) = (units + after_units, marks.wrapping_add(after_marks));
        }
        self.by_start.insert(start, (units, marks));
        self.blocks_since += 1;
        self.units += u64::from(block.units);
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Removes and returns the first `max` tags.
    pub(super) fn take(&mut self, max: usize) -> Vec<Tag> {
        let first_left = self.by_start.keys().nth(max).copied();
        let rest = first_left.map(|start| self.by_start.split_off(&start)).unwrap_or_default();
        let taken = std::mem::replace(&mut self.by_start, rest);
        self.blocks_since = 0;
        self.units = self.by_start.values().map(|(units, _)| u64::from(*units)).sum();
        taken.into_iter().map(|(start, (units, marks))| Tag { start, units, marks }).collect()
    }
}

/// Encodes a list for one transfer. The checksum tells its reader when the list is complete.
pub(super) fn encode(layout: &Layout, sequence: u64, tags: &[Tag]) -> Vec<u8> {
    let mut words = vec![0, sequence << COUNT_BITS | tags.len() as u64];
    for tag in tags {
        words.extend([u64::from(tag.start) << 32 | u64::from(tag.units), tag.marks]);
    }
    words[0] = layout.sum_of(words[1..].iter().copied());
    words.into_iter().flat_map(u64::to_ne_bytes).collect()
}

/// Returns the number and the length of a list.
pub(super) fn read_head(bytes: &[u8; HEAD_BYTES]) -> (u64, usize) {
    let [_, head] = words(bytes);
    (head >> COUNT_BITS, (head & COUNT_MAX) as usize)
}

/// Decodes a list, if it is complete.
pub(super) fn decode(layout: &Layout, bytes: &[u8]) -> Option<(u64, Vec<Tag>)> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let (sequence, count) = read_head(head);
    if rest.len() != count.checked_mul(TAG_BYTES)? {
        return None;
    }
    let [sum] = words(head);
    let all = bytes[8..].chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("chunks of eight")));
    if layout.sum_of(all) != sum {
        return None;
    }
    let tag = |bytes| {
        let [place, marks] = words(bytes);
        Tag { start: (place >> 32) as u32, units: place as u32, marks }
    };
    Some((sequence, rest.chunks_exact(TAG_BYTES).map(tag).collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::heap::layout::tests::layout;

    proptest! {
        #[test]
        fn neighbours_are_joined_and_nothing_is_lost(order in Just((0..40_u32).collect::<Vec<_>>()).prop_shuffle(), count in 0..40_usize, max in 1..6_usize) {
            let mut freed = FreedTags::default();
            // In random order, so that blocks merge with the one before, the one after, and both.
            let added: Vec<u32> = order.into_iter().take(count).collect();
            // Every other block has two units.
            let block = |at: u32| Tag { start: at * 3, units: 3 - at % 2, marks: 1 << at };
            for at in &added {
                prop_assert!(freed.add(block(*at)));
                prop_assert!(!freed.add(block(*at)), "what is there is not added again");
            }
            prop_assert_eq!(freed.blocks_since, count as u64);
            prop_assert_eq!(freed.units, added.iter().map(|at| u64::from(block(*at).units)).sum::<u64>());
            let mut marks = 0;
            let mut end = 0;
            while !freed.is_empty() {
                let tags = freed.take(max);
                prop_assert!(!tags.is_empty() && tags.len() <= max);
                for tag in tags {
                    // A block of two units leaves a hole.
                    prop_assert!(tag.start > end || tag.start == 0 || end == 0, "joined with the one before");
                    end = tag.start + tag.units;
                    marks |= tag.marks;
                }
            }
            prop_assert_eq!(marks, added.iter().map(|at| 1 << at).sum::<u64>());
        }

        #[test]
        fn lists_come_back_whole_or_not_at_all(
            sequence in 0..1_u64 << 40,
            tags in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u64>()), 0..20),
            damage in any::<(prop::sample::Index, u8)>(),
        ) {
            let tags: Vec<_> = tags.into_iter().map(|(start, units, marks)| Tag { start, units, marks }).collect();
            let layout = layout(1, 1000);
            let mut bytes = encode(&layout, sequence, &tags);
            prop_assert_eq!(read_head(bytes.first_chunk().unwrap()), (sequence, tags.len()));
            prop_assert_eq!(decode(&layout, &bytes), Some((sequence, tags)));
            let place = damage.0.index(bytes.len());
            bytes[place] ^= damage.1;
            prop_assert_eq!(decode(&layout, &bytes).is_some(), damage.1 == 0, "damage is noticed");
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(decode(&layout(1, 1000), &bytes), None);
        }
    }

    /// A list that overwrites an older one reads as the older one, as the newer one, or as none.
    #[test]
    fn a_torn_list_is_none() {
        let layout = layout(1, 1000);
        let list = |sequence, marks| {
            let tags: Vec<_> = (0..4).map(|at| Tag { start: at * 10, units: 3, marks }).collect();
            encode(&layout, sequence, &tags)
        };
        let (old, new) = (list(1, 5), list(2, 6));
        for words in 1..new.len() / 8 {
            for from in 0..new.len() / 8 - words {
                let mut torn = old.clone();
                torn[from * 8..(from + words) * 8].copy_from_slice(&new[from * 8..(from + words) * 8]);
                assert!(decode(&layout, &torn).is_none_or(|(sequence, _)| sequence == 1 && torn == old));
            }
        }
        assert_eq!(decode(&layout, &new).unwrap().0, 2);
        // Nor is it a list of another heap.
        assert_eq!(decode(&super::super::layout::tests::layout(2, 1000), &new), None);
    }
}

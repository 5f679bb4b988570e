//! What the peer has freed, on its way to the shadow.

use std::collections::BTreeMap;

use super::layout::{Layout, words};

/// Blocks side by side that were freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) start: u32,
    /// Of all of them, with their headers.
    pub(super) units: u32,
    /// The sum of their stamps: other blocks at the same place have another.
    pub(super) marks: u64,
}

pub(super) const TAG_BYTES: usize = 16;
/// The sum of the list, and then its number and its length.
pub(super) const HEAD_BYTES: usize = 16;

/// What was freed and not told, in order and with neighbours joined.
#[derive(Debug, Default)]
pub(super) struct FreedTags {
    by_start: BTreeMap<u32, (u32, u64)>,
    /// How many blocks were added since any were taken out.
    pub(super) blocks_since: u64,
    /// All units in them.
    pub(super) units: u64,
}

impl FreedTags {
    /// Adds a block. Says whether it could be: it is nowhere near what is there.
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

    /// Takes the first of them out, at most so many.
    pub(super) fn take(&mut self, max: usize) -> Vec<Tag> {
        let first_left = self.by_start.keys().nth(max).copied();
        let rest = first_left.map(|start| self.by_start.split_off(&start)).unwrap_or_default();
        let taken = std::mem::replace(&mut self.by_start, rest);
        self.blocks_since = 0;
        self.units = self.by_start.values().map(|(units, _)| u64::from(*units)).sum();
        taken.into_iter().map(|(start, (units, marks))| Tag { start, units, marks }).collect()
    }
}

/// A list as it goes across in one transfer. Whoever reads it knows by the sum that it is whole.
pub(super) fn encode(layout: &Layout, sequence: u32, tags: &[Tag]) -> Vec<u8> {
    let mut words = vec![0, u64::from(sequence) << 32 | tags.len() as u64];
    for tag in tags {
        words.extend([u64::from(tag.start) << 32 | u64::from(tag.units), tag.marks]);
    }
    words[0] = layout.sum_of(words[1..].iter().copied());
    words.into_iter().flat_map(u64::to_ne_bytes).collect()
}

/// The number and the length that a list begins with.
pub(super) fn read_head(bytes: &[u8; HEAD_BYTES]) -> (u32, usize) {
    let [_, head] = words(bytes);
    ((head >> 32) as u32, head as u32 as usize)
}

/// The list, if it is whole.
pub(super) fn decode(layout: &Layout, bytes: &[u8]) -> Option<(u32, Vec<Tag>)> {
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

//! The shadow: the initiator's books about the memory at the peer, with the owner of every part.
//! Only the initiator allocates, so only it needs these books, and no other process can write to
//! them.

use std::collections::BTreeMap;

use farside_fabric::memory::{Fit, FreeSpace};

use super::error::TagFault;
use super::layout::UNIT_BYTES;
use super::tags::Tag;

/// The owner of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Initiator,
    /// The block was handed over, and is not known to be freed.
    Peer,
    /// A write to the block began and did not end. It may still take effect, so the place is never
    /// used again.
    Nobody,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// Includes the header.
    pub(super) units: u32,
    pub(super) serial: u64,
    pub(super) holder: Holder,
}

/// An allocated block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) start: u32,
    pub(super) serial: u64,
}

/// The total of some blocks, headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) blocks: u64,
    pub(super) bytes: u64,
}

#[derive(Debug)]
pub(super) struct Shadow {
    fit: Fit,
    units: u32,
    free: FreeSpace,
    /// By the blocks' first units.
    held: BTreeMap<u32, Held>,
    next_serial: u64,
}

impl Shadow {
    pub(super) fn new(units: u32, fit: Fit) -> Self {
        let mut free = FreeSpace::default();
        free.release(0, units.into());
        Self { fit, units, free, held: BTreeMap::new(), next_serial: 1 }
    }

    /// Allocates `units`, header included, such that the second unit lies on a multiple of `align`.
    /// Serial numbers are never reused.
    pub(super) fn take(&mut self, units: u32, align: u64) -> Option<Taken> {
        let start = self.free.take_aligned(units.into(), self.fit, 1, align)?;
        let start = u32::try_from(start).expect("the heap has no more units");
        let serial = self.next_serial;
        self.next_serial += 1;
        self.held.insert(start, Held { units, serial, holder: Holder::Initiator });
        Some(Taken { start, serial })
    }

    /// Changes the owner of a block.
    pub(super) fn pass_to(&mut self, start: u32, holder: Holder) {
        if let Some(held) = self.held.get_mut(&start) {
            held.holder = holder;
        }
    }

    /// Frees a block.
    pub(super) fn free(&mut self, start: u32) {
        if let Some(held) = self.held.remove(&start) {
            self.free.release(start.into(), held.units.into());
        }
    }

    pub(super) fn find(&self, start: u32) -> Option<&Held> {
        self.held.get(&start)
    }

    /// Returns whether this serial number was ever given to a block.
    pub(super) fn has_given(&self, serial: u64) -> bool {
        (1..self.next_serial).contains(&serial)
    }

    /// Frees the blocks that a list of the peer names: all of them, or none if any tag is wrong.
    /// `mark` returns a block's contribution to the marks of its tag.
    pub(super) fn accept(&mut self, tags: &[Tag], mark: impl Fn(u64, u32) -> u64) -> Result<Amount, TagFault> {
        let mut end_before = 0;
        for tag in tags {
            let end = tag.start.checked_add(tag.units).filter(|end| *end <= self.units).ok_or(TagFault::OutOfRange)?;
            if tag.start < end_before || tag.units == 0 {
                return Err(TagFault::Order);
            }
            end_before = end;
            let (mut at, mut sum) = (tag.start, 0_u64);
            for (start, held) in self.held.range(tag.start..end) {
                if *start != at {
                    return Err(TagFault::NoBlock);
                }
                if held.holder != Holder::Peer {
                    return Err(TagFault::NotHandedOver);
                }
                at += held.units;
                sum = sum.wrapping_add(mark(held.serial, *start));
            }
            if at != end {
                return Err(TagFault::NoBlock);
            }
            if sum != tag.marks {
                return Err(TagFault::OtherBlocks);
            }
        }
        let mut freed = Amount::default();
        for tag in tags {
            let end = tag.start + tag.units;
            while let Some((start, held)) = self.held.range(tag.start..end).next() {
                let start = *start;
                freed.blocks += 1;
                freed.bytes += u64::from(held.units) * UNIT_BYTES;
                self.free(start);
            }
        }
        Ok(freed)
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.free.total() * UNIT_BYTES
    }

    pub(super) fn largest_free_bytes(&self) -> u64 {
        self.free.longest() * UNIT_BYTES
    }

    pub(super) fn free_pieces(&self) -> usize {
        self.free.pieces()
    }

    /// Returns the total of the blocks of `holder`.
    pub(super) fn amount_of(&self, holder: Holder) -> Amount {
        let of_holder = self.held.values().filter(|held| held.holder == holder);
        of_holder.fold(Amount::default(), |sum, held| Amount {
            blocks: sum.blocks + 1,
            bytes: sum.bytes + u64::from(held.units) * UNIT_BYTES,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::heap::layout::tests::layout;
    use crate::heap::layout::{Layout, StampKind};
    use crate::heap::tags::{self, FreedTags};

    const UNITS: u32 = 120;

    fn mark(layout: &Layout) -> impl Fn(u64, u32) -> u64 + '_ {
        |serial, start| layout.stamp(serial, start, StampKind::Given)
    }

    /// A block in the oracle.
    #[derive(Clone, Copy, Debug)]
    struct Known {
        start: u32,
        units: u32,
        serial: u64,
        holder: Holder,
        /// The peer has freed it, and the initiator does not know yet.
        is_freed: bool,
    }

    #[derive(Clone, Debug)]
    enum Step {
        Take {
            units: u32,
            align: u64,
        },
        HandOver(prop::sample::Index),
        /// The initiator frees a block.
        Free(prop::sample::Index),
        SetAside(prop::sample::Index),
        TakeBack(prop::sample::Index),
        PeerFrees(prop::sample::Index),
        /// The peer makes a list, which is then in transit.
        Tell {
            max: usize,
        },
        /// A list arrives.
        Arrive,
        /// A list arrives for a second time, or a wrong list arrives.
        ArriveWrong {
            which: prop::sample::Index,
            start: i8,
            units: i8,
            marks: u64,
        },
    }

    fn step() -> impl Strategy<Value = Step> {
        let any_one = any::<prop::sample::Index>;
        prop_oneof![
            6 => (1..30_u32, prop::sample::select(vec![1_u64, 1, 1, 4, 16])).prop_map(|(units, align)| Step::Take { units, align }),
            4 => any_one().prop_map(Step::HandOver),
            2 => any_one().prop_map(Step::Free),
            1 => any_one().prop_map(Step::SetAside),
            1 => any_one().prop_map(Step::TakeBack),
            4 => any_one().prop_map(Step::PeerFrees),
            2 => (1..4_usize).prop_map(|max| Step::Tell { max }),
            2 => Just(Step::Arrive),
            1 => (any_one(), -2..3_i8, -2..3_i8, any::<u64>())
                .prop_map(|(which, start, units, marks)| Step::ArriveWrong { which, start, units, marks }),
        ]
    }

    struct Oracle {
        layout: Layout,
        known: Vec<Known>,
        freed: FreedTags,
        /// The lists in transit.
        lists: std::collections::VecDeque<Vec<Tag>>,
    }

    impl Oracle {
        fn pick(&self, which: prop::sample::Index, of: impl Fn(&Known) -> bool) -> Option<usize> {
            let fitting: Vec<usize> = (0..self.known.len()).filter(|at| of(&self.known[*at])).collect();
            (!fitting.is_empty()).then(|| fitting[which.index(fitting.len())])
        }

        fn check(&self, shadow: &Shadow) {
            let mut taken = [false; UNITS as usize];
            for block in &self.known {
                let units = &mut taken[block.start as usize..(block.start + block.units) as usize];
                assert!(units.iter().all(|taken| !taken), "blocks do not overlap");
                units.fill(true);
                let held = shadow.find(block.start).expect("what is in use is in the books");
                assert_eq!((held.units, held.serial, held.holder), (block.units, block.serial, block.holder));
            }
            let free = taken.iter().filter(|taken| !**taken).count() as u64;
            assert_eq!(shadow.free_bytes(), free * UNIT_BYTES, "all that is not in use is free");
            let pieces = taken.chunk_by(|a, b| a == b).filter(|run| !run[0]);
            assert_eq!(shadow.largest_free_bytes(), pieces.map(<[_]>::len).max().unwrap_or(0) as u64 * UNIT_BYTES);
            for holder in [Holder::Initiator, Holder::Peer, Holder::Nobody] {
                let blocks = self.known.iter().filter(|block| block.holder == holder).count() as u64;
                assert_eq!(shadow.amount_of(holder).blocks, blocks);
            }
        }
    }

    proptest! {
        /// Allocates and frees in random order from both sides, with lists that are late or split.
        /// The books are right after each step, and when everything is reported the heap is one
        /// free range.
        #[test]
        fn the_books_are_right(fit in prop::sample::select(&Fit::ALL[..]), steps in prop::collection::vec(step(), 1..150)) {
            let layout = layout(1, UNITS);
            let mut shadow = Shadow::new(UNITS, fit);
            let mut oracle = Oracle { layout, known: Vec::new(), freed: FreedTags::default(), lists: Default::default() };
            for step in steps {
                match step {
                    Step::Take { units, align } => {
                        if let Some(Taken { start, serial }) = shadow.take(units, align) {
                            prop_assert!((u64::from(start) + 1).is_multiple_of(align));
                            prop_assert!(oracle.known.iter().all(|block| block.serial < serial));
                            oracle.known.push(Known { start, units, serial, holder: Holder::Initiator, is_freed: false });
                        }
                    }
                    Step::HandOver(which) => {
                        if let Some(at) = oracle.pick(which, |block| block.holder == Holder::Initiator) {
                            shadow.pass_to(oracle.known[at].start, Holder::Peer);
                            oracle.known[at].holder = Holder::Peer;
                        }
                    }
                    Step::SetAside(which) => {
                        if let Some(at) = oracle.pick(which, |block| block.holder == Holder::Initiator) {
                            shadow.pass_to(oracle.known[at].start, Holder::Nobody);
                            oracle.known[at].holder = Holder::Nobody;
                        }
                    }
                    Step::Free(which) => {
                        if let Some(at) = oracle.pick(which, |block| block.holder == Holder::Initiator) {
                            shadow.free(oracle.known.swap_remove(at).start);
                        }
                    }
                    Step::TakeBack(which) => {
                        // The header decides which end was first.
                        if let Some(at) = oracle.pick(which, |block| block.holder == Holder::Peer && !block.is_freed) {
                            shadow.free(oracle.known.swap_remove(at).start);
                        }
                    }
                    Step::PeerFrees(which) => {
                        if let Some(at) = oracle.pick(which, |block| block.holder == Holder::Peer && !block.is_freed) {
                            let Known { start, units, serial, .. } = oracle.known[at];
                            oracle.known[at].is_freed = true;
                            let marks = mark(&layout)(serial, start);
                            let is_added = oracle.freed.add(Tag { start, units, marks });
                            prop_assert!(is_added);
                        }
                    }
                    Step::Tell { max } => oracle.lists.extend((!oracle.freed.is_empty()).then(|| oracle.freed.take(max))),
                    Step::Arrive => {
                        if let Some(list) = oracle.lists.pop_front() {
                            // Through the encoding.
                            let bytes = tags::encode(&oracle.layout, 1, &list);
                            let (_, list) = tags::decode(&oracle.layout, &bytes).expect("it is whole");
                            let freed = shadow.accept(&list, mark(&layout)).expect("the peer has freed it");
                            let before = oracle.known.len();
                            oracle.known.retain(|block| {
                                !list.iter().any(|tag| (tag.start..tag.start + tag.units).contains(&block.start))
                            });
                            prop_assert_eq!(freed.blocks, (before - oracle.known.len()) as u64);
                        }
                    }
                    Step::ArriveWrong { which, start, units, marks } => {
                        let Some(at) = oracle.pick(which, |_| true) else { continue };
                        let block = oracle.known[at];
                        let changed = Tag {
                            start: block.start.wrapping_add_signed(start.into()),
                            units: block.units.wrapping_add_signed(units.into()),
                            marks: mark(&layout)(block.serial, block.start),
                        };
                        let is_true = start == 0 && units == 0 && block.holder == Holder::Peer;
                        if !is_true {
                            prop_assert!(shadow.accept(&[changed], mark(&layout)).is_err());
                        }
                        // Nor does the initiator apply the right tag before a wrong one.
                        let wrong_marks = Tag { start: block.start, units: block.units, marks };
                        let right = oracle.known.iter().find(|other| other.holder == Holder::Peer && other.start < block.start);
                        let right = right.map(|one| Tag {
                            start: one.start,
                            units: one.units,
                            marks: mark(&layout)(one.serial, one.start),
                        });
                        let list: Vec<Tag> = right.into_iter().chain([wrong_marks]).collect();
                        prop_assert!(shadow.accept(&list, mark(&layout)).is_err());
                    }
                }
                oracle.check(&shadow);
            }
            // Free and report everything.
            for block in &oracle.known {
                match block.holder {
                    Holder::Peer if !block.is_freed => {
                        let marks = mark(&layout)(block.serial, block.start);
                        let is_added = oracle.freed.add(Tag { start: block.start, units: block.units, marks });
                        prop_assert!(is_added);
                    }
                    Holder::Peer => {}
                    _ => shadow.free(block.start),
                }
            }
            while !oracle.freed.is_empty() {
                oracle.lists.push_back(oracle.freed.take(3));
            }
            // Late and out of order: each list is valid by itself.
            while let Some(list) = oracle.lists.pop_back() {
                shadow.accept(&list, mark(&layout)).expect("the peer has freed it");
                prop_assert!(shadow.accept(&list, mark(&layout)).is_err(), "a list is taken once");
            }
            prop_assert_eq!(shadow.free_pieces(), 1);
            prop_assert_eq!(shadow.free_bytes(), u64::from(UNITS) * UNIT_BYTES);
        }

        #[test]
        fn no_list_confuses_the_books(
            blocks in prop::collection::vec((1..20_u32, any::<bool>()), 0..10),
            tags in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u64>()), 1..5),
        ) {
            let mut shadow = Shadow::new(UNITS, Fit::Next);
            for (units, is_peers) in blocks {
                if let Some(Taken { start, .. }) = shadow.take(units, 1) && is_peers {
                    shadow.pass_to(start, Holder::Peer);
                }
            }
            let tags: Vec<_> = tags.into_iter().map(|(start, units, marks)| Tag { start: start % 150, units: units % 150, marks }).collect();
            let free_before = shadow.free_bytes();
            prop_assert!(shadow.accept(&tags, mark(&layout(1, UNITS))).is_err());
            prop_assert_eq!(shadow.free_bytes(), free_before);
        }
    }
}

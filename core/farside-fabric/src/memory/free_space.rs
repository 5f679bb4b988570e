//! The free parts of a range, and the choice among them.
//!
//! This state is kept outside the memory that is given out. Peers may write that memory, and an
//! allocator that trusted its contents could be misled.

use std::collections::{BTreeMap, BTreeSet};

/// The choice among the free pieces that are large enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    /// The first one, from the beginning of the memory. Fills the front, and leaves large pieces at
    /// the end.
    First,
    /// The smallest one; the first of several. Preserves large pieces, and leaves small remainders.
    #[default]
    Best,
    /// The next one after the last allocation, cyclically. Spreads allocations over the range.
    Next,
    /// The largest one. Leaves remainders that are large enough for reuse.
    Worst,
}

impl Fit {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::First, Self::Best, Self::Next, Self::Worst];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Best => "best",
            Self::Next => "next",
            Self::Worst => "worst",
        }
    }
}

/// The free pieces of a range of numbers, for allocators. Neighbouring pieces are always joined.
///
/// The allocator decides what the numbers stand for: bytes, or units of some size. Initially
/// nothing is free.
///
/// *Cost*: two trees. Best and worst fit search one of them; first and next fit visit one free
/// piece after the other.
#[derive(Debug, Default)]
pub struct FreeSpace {
    /// Length by start.
    by_start: BTreeMap<u64, u64>,
    /// The same pieces as (length, start).
    by_length: BTreeSet<(u64, u64)>,
    /// The end of the last allocation.
    cursor: u64,
    /// Total length of the free pieces.
    total: u64,
}

impl FreeSpace {
    /// Takes `length` consecutive numbers. `None` if no free piece is as long, or if `length` is 0.
    pub fn take(&mut self, length: u64, fit: Fit) -> Option<u64> {
        self.take_aligned(length, fit, 0, 1)
    }

    /// Takes `length` consecutive numbers, of which the one after the first `lead` is a multiple of
    /// `align`. `None` if no free piece has room for that, or if `length` is 0.
    ///
    /// *Cost*: with an alignment, best and worst fit may visit more than one piece.
    ///
    /// # Panics
    /// If `align` is 0.
    #[track_caller]
    pub fn take_aligned(&mut self, length: u64, fit: Fit, lead: u64, align: u64) -> Option<u64> {
        if length == 0 {
            return None;
        }
        let place = |start: u64, free: u64| {
            let at = start.checked_add(lead)?.checked_next_multiple_of(align)? - lead;
            let fits = (at - start).checked_add(length)? <= free;
            fits.then_some((start, free, at))
        };
        let in_piece = |(start, free): (&u64, &u64)| place(*start, *free);
        let long_enough = self.by_length.range((length, 0)..);
        let (start, free, at) = match fit {
            Fit::First => self.by_start.iter().find_map(in_piece),
            Fit::Next => {
                let (before, after) = (self.by_start.range(..self.cursor), self.by_start.range(self.cursor..));
                after.chain(before).find_map(in_piece)
            }
            Fit::Best => long_enough.map(|(free, start)| (start, free)).find_map(in_piece),
            Fit::Worst => long_enough.rev().map(|(free, start)| (start, free)).find_map(in_piece),
        }?;
        self.remove(start, free);
        if at > start {
            self.insert(start, at - start);
        }
        let (end, piece_end) = (at + length, start + free);
        if piece_end > end {
            self.insert(end, piece_end - end);
        }
        self.cursor = end;
        Some(at)
    }

    /// Frees `length` numbers from `start` on. A length of 0 has no effect, whatever `start` is.
    ///
    /// # Panics
    /// If one of them is already free.
    #[track_caller]
    pub fn release(&mut self, start: u64, length: u64) {
        if length == 0 {
            return;
        }
        let (mut start, mut end) = (start, start + length);
        let before = self.by_start.range(..end).next_back().map(|(start, length)| (*start, *length));
        if let Some((before, free)) = before {
            assert!(before + free <= start, "memory must be given back once");
            if before + free == start {
                self.remove(before, free);
                start = before;
            }
        }
        if let Some(free) = self.by_start.get(&end).copied() {
            self.remove(end, free);
            end += free;
        }
        self.insert(start, end - start);
    }

    /// Takes exactly this piece, if it is one free piece. Returns whether it was.
    pub(super) fn take_whole(&mut self, start: u64, length: u64) -> bool {
        let is_one = self.by_start.get(&start) == Some(&length);
        if is_one {
            self.remove(start, length);
        }
        is_one
    }

    /// Length of the longest free piece.
    pub fn longest(&self) -> u64 {
        self.by_length.last().map_or(0, |(length, _)| *length)
    }

    /// Total length of all free pieces.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Number of free pieces.
    pub fn pieces(&self) -> usize {
        self.by_start.len()
    }

    fn insert(&mut self, start: u64, length: u64) {
        self.total += length;
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
    }

    fn remove(&mut self, start: u64, length: u64) {
        self.total -= length;
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROOM: usize = 200;

    /// A simple model of `FreeSpace`: one flag for each number.
    struct Oracle {
        taken: [bool; ROOM],
        cursor: usize,
    }

    impl Oracle {
        /// The free pieces, as (start, length).
        fn pieces(&self) -> Vec<(usize, usize)> {
            let mut pieces = Vec::new();
            let mut at = 0;
            for run in self.taken.chunk_by(|a, b| a == b) {
                if !run[0] {
                    pieces.push((at, run.len()));
                }
                at += run.len();
            }
            pieces
        }

        fn take(&mut self, length: usize, fit: Fit, lead: usize, align: usize) -> Option<u64> {
            let place = |(start, free): &(usize, usize)| {
                (*start..*start + *free).find(|at| (at + lead).is_multiple_of(align) && at + length <= start + free)
            };
            let fitting: Vec<_> = self.pieces().into_iter().filter(|piece| place(piece).is_some()).collect();
            let piece = match fit {
                Fit::First => *fitting.first()?,
                Fit::Best => *fitting.iter().min_by_key(|(start, free)| (*free, *start))?,
                Fit::Worst => *fitting.iter().max_by_key(|(start, free)| (*free, *start))?,
                Fit::Next => *fitting.iter().find(|(start, _)| *start >= self.cursor).or_else(|| fitting.first())?,
            };
            let start = place(&piece)?;
            self.taken[start..start + length].fill(true);
            self.cursor = start + length;
            Some(start as u64)
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Take {
            length: usize,
            fit: Fit,
            lead: usize,
            align: usize,
        },
        /// One of the taken pieces, by its index among them.
        Release(prop::sample::Index),
        TakeWhole(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (1..40_usize, prop::sample::select(&Fit::ALL[..]), 0..3_usize, prop_oneof![3 => Just(1), 1 => 2..17_usize])
                .prop_map(|(length, fit, lead, align)| Step::Take { length, fit, lead, align }),
            2 => any::<prop::sample::Index>().prop_map(Step::Release),
            1 => any::<prop::sample::Index>().prop_map(Step::TakeWhole),
        ]
    }

    proptest! {
        #[test]
        fn it_does_what_a_list_of_flags_does(steps in prop::collection::vec(step(), 1..200)) {
            let mut oracle = Oracle { taken: [false; ROOM], cursor: 0 };
            let mut space = FreeSpace::default();
            space.release(0, ROOM as u64);
            let mut taken: Vec<(u64, usize)> = Vec::new();
            for step in steps {
                match step {
                    Step::Take { length, fit, lead, align } => {
                        let start = space.take_aligned(length as u64, fit, lead as u64, align as u64);
                        prop_assert_eq!(start, oracle.take(length, fit, lead, align));
                        taken.extend(start.map(|start| (start, length)));
                    }
                    Step::Release(which) => {
                        if !taken.is_empty() {
                            let (start, length) = taken.swap_remove(which.index(taken.len()));
                            space.release(start, length as u64);
                            oracle.taken[start as usize..start as usize + length].fill(false);
                        }
                    }
                    Step::TakeWhole(which) => {
                        let pieces = oracle.pieces();
                        if !pieces.is_empty() {
                            let (start, length) = pieces[which.index(pieces.len())];
                            prop_assert!(!space.take_whole(start as u64, length as u64 + 1));
                            prop_assert!(space.take_whole(start as u64, length as u64));
                            oracle.taken[start..start + length].fill(true);
                            taken.push((start as u64, length));
                        }
                    }
                }
                let pieces: Vec<_> = space.by_start.iter().map(|(start, free)| (*start as usize, *free as usize)).collect();
                prop_assert_eq!(&pieces, &oracle.pieces(), "neighbours are joined, and nothing is lost");
                let by_length: BTreeSet<_> = pieces.iter().map(|(start, free)| (*free as u64, *start as u64)).collect();
                prop_assert_eq!(&space.by_length, &by_length);
                prop_assert_eq!(space.total(), pieces.iter().map(|(_, free)| *free as u64).sum::<u64>());
                prop_assert_eq!(space.pieces(), pieces.len());
                prop_assert_eq!(space.longest(), pieces.iter().map(|(_, free)| *free as u64).max().unwrap_or(0));
            }
        }
    }

    #[test]
    fn nothing_is_neither_taken_nor_given_back() {
        let mut space = FreeSpace::default();
        space.release(7, 0);
        assert_eq!((space.pieces(), space.total()), (0, 0));
        space.release(10, 10);
        for start in [0, 10, 15, 20] {
            space.release(start, 0);
        }
        for fit in Fit::ALL {
            assert_eq!(space.take(0, fit), None);
            // A second piece next to the first would be left.
            assert_eq!(space.take_aligned(0, fit, 0, 16), None);
        }
        assert!(!space.take_whole(10, 0));
        assert_eq!((space.pieces(), space.total(), space.longest()), (1, 10, 10));
        assert_eq!(space.take(10, Fit::First), Some(10));
    }

    #[test]
    #[should_panic = "given back once"]
    fn a_free_range_is_not_freed_again() {
        let mut space = FreeSpace::default();
        space.release(0, 10);
        space.release(9, 2);
    }

    #[test]
    #[should_panic = "given back once"]
    fn a_range_that_contains_a_free_range_is_not_freed() {
        let mut space = FreeSpace::default();
        space.release(5, 2);
        space.release(0, 10);
    }
}

//! The pieces of sections: the values that move in one copy.

use super::{Form, LEVELS_MAX, Section};

/// A repetition of what lies inside: `extent` times, `stride` values apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) extent: usize,
    pub(super) stride: usize,
}

/// Contiguous values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) offset: usize,
    pub(super) length: usize,
}

/// Returns whether each stride is at least the size of what lies inside, so that no two runs
/// overlap.
pub(super) fn nest(levels: &[Level], run: usize) -> bool {
    let mut levels = levels.to_vec();
    levels.sort_unstable_by_key(|level| level.stride);
    let mut inside = run;
    levels.iter().all(|level| {
        let fits = level.stride >= inside;
        // This does not overflow: it is at most the span, which fits into a `usize`.
        inside += (level.extent - 1) * level.stride;
        fits
    })
}

impl Section {
    /// Returns its runs, in order.
    pub(super) fn runs(&self) -> Runs<'_> {
        let at = match &self.form {
            Form::Regular { offset, .. } => *offset,
            Form::Indexed(_) => 0,
        };
        Runs { section: self, at, indices: [0; LEVELS_MAX], left: self.length }
    }
}

/// The runs of a section.
#[derive(Debug)]
pub(super) struct Runs<'a> {
    section: &'a Section,
    /// The offset of the next run of a regular section, or the index of the next run in the list.
    at: usize,
    /// The current index of each level.
    indices: [usize; LEVELS_MAX],
    /// The number of values in the remaining runs.
    left: usize,
}

impl Iterator for Runs<'_> {
    type Item = Run;

    #[inline]
    fn next(&mut self) -> Option<Run> {
        if self.left == 0 {
            return None;
        }
        match &self.section.form {
            Form::Indexed(runs) => {
                let run = runs[self.at];
                self.at += 1;
                self.left -= run.length;
                Some(run)
            }
            Form::Regular { levels, run, .. } => {
                let found = Run { offset: self.at, length: *run };
                self.left -= *run;
                if self.left > 0 {
                    self.turn(levels);
                }
                Some(found)
            }
        }
    }
}

impl Runs<'_> {
    /// Moves to the next run.
    #[inline]
    fn turn(&mut self, levels: &[Level]) {
        for (level, index) in levels.iter().zip(&mut self.indices[..levels.len()]).rev() {
            *index += 1;
            if *index < level.extent {
                self.at += level.stride;
                return;
            }
            *index = 0;
            self.at -= (level.extent - 1) * level.stride;
        }
    }
}

/// Values that are contiguous in both of two sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) to: usize,
    pub(super) from: usize,
    pub(super) length: usize,
}

/// The pieces of two sections with the same number of values.
#[derive(Debug)]
pub(super) struct Pieces<'a> {
    to: Runs<'a>,
    from: Runs<'a>,
    to_run: Run,
    from_run: Run,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(to: &'a Section, from: &'a Section) -> Self {
        debug_assert_eq!(to.len(), from.len());
        let none = Run { offset: 0, length: 0 };
        Self { to: to.runs(), from: from.runs(), to_run: none, from_run: none }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        if self.to_run.length == 0 {
            self.to_run = self.to.next()?;
        }
        if self.from_run.length == 0 {
            self.from_run = self.from.next()?;
        }
        let length = self.to_run.length.min(self.from_run.length);
        let piece = Piece { to: self.to_run.offset, from: self.from_run.offset, length };
        for run in [&mut self.to_run, &mut self.from_run] {
            run.offset += length;
            run.length -= length;
        }
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::super::Hyperslab;
    use super::*;

    /// Returns the place of every value.
    fn places(section: &Section) -> Vec<usize> {
        section.runs().flat_map(|run| run.offset..run.offset + run.length).collect()
    }

    /// Checks a section whose values are at the places `expected`.
    fn check(section: &Section, expected: &[usize]) -> Result<(), TestCaseError> {
        prop_assert_eq!(places(section), expected);
        prop_assert_eq!(section.len(), expected.len());
        prop_assert_eq!(section.span(), expected.iter().max().map_or(0, |last| last + 1));
        let distinct: HashSet<_> = expected.iter().collect();
        prop_assert!(!section.is_disjoint() || distinct.len() == expected.len(), "it overlaps");
        let is_one_run = expected.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        prop_assert_eq!(section.runs().count() <= 1, is_one_run);
        Ok(())
    }

    /// Returns all indices of an array. The last dimension changes fastest.
    fn indices(extents: &[usize]) -> Vec<Vec<usize>> {
        extents.iter().fold(vec![Vec::new()], |outer, &extent| {
            let inner = |index: &Vec<usize>| (0..extent).map(|next| [&index[..], &[next]].concat()).collect::<Vec<_>>();
            outer.iter().flat_map(inner).collect()
        })
    }

    proptest! {
        #[test]
        fn strided(count in 0..6_usize, block in 0..5_usize, stride in 0..9_usize, by in 0..9_usize) {
            let section = Section::strided(count, block, stride).unwrap().shifted(by).unwrap();
            let expected: Vec<usize> =
                (0..count).flat_map(|at| (0..block).map(move |inside| by + at * stride + inside)).collect();
            check(&section, &expected)?;
            prop_assert_eq!(section.is_disjoint(), count <= 1 || block == 0 || stride >= block);
        }

        #[test]
        fn indexed(pieces in proptest::collection::vec((0..50_usize, 0..6_usize), 0..12), by in 0..9_usize) {
            let section = Section::indexed(pieces.clone()).unwrap().shifted(by).unwrap();
            let expected: Vec<usize> = pieces.iter().flat_map(|(at, length)| by + at..by + at + length).collect();
            check(&section, &expected)?;
            let distinct: HashSet<_> = expected.iter().collect();
            prop_assert_eq!(section.is_disjoint(), distinct.len() == expected.len());
        }

        #[test]
        fn grids(dimensions in proptest::collection::vec((0..4_usize, 0..20_usize), 0..5)) {
            let (extents, strides): (Vec<usize>, Vec<usize>) = dimensions.into_iter().unzip();
            let section = Section::grid(&extents, &strides).unwrap();
            let place = |index: &Vec<usize>| index.iter().zip(&strides).map(|(index, stride)| index * stride).sum();
            check(&section, &indices(&extents).iter().map(place).collect::<Vec<usize>>())?;
        }

        #[test]
        fn hyperslabs(
            dimensions in proptest::collection::vec((1..9_usize, 0..4_usize, 0..4_usize, 0..3_usize, 0..3_usize), 0..4),
        ) {
            let shape: Vec<usize> = dimensions.iter().map(|dimension| dimension.0).collect();
            let slabs: Vec<Hyperslab> = dimensions
                .iter()
                .map(|&(_, start, stride, count, block)| Hyperslab { start, stride, count, block })
                .collect();
            let is_inside = slabs.iter().zip(&shape).all(|(slab, &extent)| {
                slab.start + slab.count.saturating_sub(1) * slab.stride + slab.block <= extent
            });
            let section = Section::hyperslab(&shape, &slabs);
            prop_assert_eq!(section.is_ok(), is_inside);
            let Ok(section) = section else { return Ok(()) };
            let chosen: Vec<Vec<usize>> = slabs
                .iter()
                .map(|slab| {
                    let block = |at| (0..slab.block).map(move |inside| slab.start + at * slab.stride + inside);
                    (0..slab.count).flat_map(block).collect()
                })
                .collect();
            let place = |index: &Vec<usize>| {
                let indices = index.iter().zip(&chosen).map(|(index, chosen)| chosen[*index]);
                indices.zip(&shape).fold(0, |place, (index, extent)| place * extent + index)
            };
            let counts: Vec<usize> = chosen.iter().map(Vec::len).collect();
            check(&section, &indices(&counts).iter().map(place).collect::<Vec<usize>>())?;
        }

        #[test]
        fn any_numbers_are_a_section_or_refused(
            dimensions in proptest::collection::vec(any::<[usize; 5]>(), 0..10), by: usize, small in 0..5_usize,
        ) {
            let narrow = |number: usize| number >> (small * 14);
            let column = |index: usize| dimensions.iter().map(|numbers| narrow(numbers[index])).collect::<Vec<usize>>();
            let slabs: Vec<Hyperslab> = dimensions
                .iter()
                .map(|numbers| numbers.map(narrow))
                .map(|[start, stride, count, block, _]| Hyperslab { start, stride, count, block })
                .collect();
            let sections = [
                Section::grid(&column(0), &column(1)),
                Section::subarray(&column(0), &column(1), &column(2)),
                Section::hyperslab(&column(4), &slabs),
                Section::strided(narrow(by), small, narrow(by) / 2),
                Section::indexed(column(0).into_iter().zip(column(1))),
            ];
            for section in sections.into_iter().flatten() {
                if let Ok(section) = section.shifted(narrow(by)) {
                    prop_assert!(section.runs().take(100).all(|run| run.offset + run.length <= section.span()));
                }
            }
        }

        #[test]
        fn two_sections_are_cut_into_common_pieces(
            count in 1..6_usize, block in 1..5_usize, lengths in proptest::collection::vec(1..7_usize, 24),
        ) {
            let to = Section::strided(count, block, block + 1).unwrap();
            let mut left = to.len();
            let pieces = lengths.iter().map(|length| {
                let length = (*length).min(left);
                left -= length;
                (left * 10, length)
            });
            let from = Section::indexed(pieces.collect::<Vec<_>>()).unwrap();
            prop_assert_eq!(left, 0);
            let one_by_one = |piece: Piece| (0..piece.length).map(move |at| (piece.to + at, piece.from + at));
            let moved: Vec<(usize, usize)> = Pieces::new(&to, &from).flat_map(one_by_one).collect();
            prop_assert_eq!(moved, places(&to).into_iter().zip(places(&from)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn adjacent_values_form_one_run() {
        let runs = |section: farside::Result<Section>| section.unwrap().runs().count();
        assert_eq!(runs(Section::strided(10, 4, 4)), 1);
        assert_eq!(runs(Section::grid(&[3, 4, 5], &[20, 5, 1])), 1);
        assert_eq!(runs(Section::grid(&[3, 4, 5], &[100, 5, 1])), 3);
        assert_eq!(runs(Section::subarray(&[10, 10, 10], &[2, 0, 0], &[3, 10, 10])), 1);
        assert_eq!(runs(Section::subarray(&[10, 10, 10], &[2, 1, 0], &[3, 2, 10])), 3);
        assert_eq!(runs(Section::indexed([(0, 2), (2, 3), (9, 1), (5, 1)])), 3);
    }
}

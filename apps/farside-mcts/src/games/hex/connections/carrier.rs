//! The carrier of a connection.

use std::array;

use super::board::Point;

/// A set of empty cells, by their points: at most 64 `W` of them.
///
/// The search mostly compares carriers, so they are as narrow as the position allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carrier<const W: usize>([u64; W]);

impl<const W: usize> Carrier<W> {
    pub(super) const EMPTY: Self = Self([0; W]);

    /// Returns whether the set contains a point. It contains no edges and chains.
    #[inline]
    pub(super) fn contains(self, point: Point) -> bool {
        let point = usize::from(point);
        self.0.get(point / 64).is_some_and(|word| word >> (point % 64) & 1 == 1)
    }

    #[inline]
    pub(super) fn with(mut self, cell: Point) -> Self {
        self.0[usize::from(cell) / 64] |= 1 << (cell % 64);
        self
    }

    #[inline]
    pub(super) fn and(self, other: Self) -> Self {
        Self(array::from_fn(|word| self.0[word] & other.0[word]))
    }

    #[inline]
    pub(super) fn or(self, other: Self) -> Self {
        Self(array::from_fn(|word| self.0[word] | other.0[word]))
    }

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    #[inline]
    pub(super) fn is_disjoint(self, other: Self) -> bool {
        self.and(other).is_empty()
    }

    #[inline]
    pub(super) fn is_subset(self, other: Self) -> bool {
        self.and(other) == self
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
}

//! Sets of cells.

use std::array;

use super::Cell;
use super::flood::MAX_SIZE;

/// A set of cells. The bit of a cell is its index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CellSet([u64; 4]);

impl CellSet {
    pub(super) const EMPTY: Self = Self([0; 4]);

    /// Returns the set whose cells in row r are the bits of `row(r)`.
    #[inline]
    pub(super) fn from_rows(row: impl Fn(usize) -> u16) -> Self {
        let word = |first: usize| (0..4).fold(0, |bits, i| bits | u64::from(row(first + i)) << (16 * i));
        // `array::from_fn` would not inline the closure.
        Self([word(0), word(4), word(8), word(12)])
    }

    /// Returns a random set; all sets are equally likely.
    #[inline]
    pub(super) fn random(mut word: impl FnMut() -> u64) -> Self {
        Self(array::from_fn(|_| word()))
    }

    #[inline]
    pub(super) fn rows(self) -> [u16; MAX_SIZE] {
        array::from_fn(|row| (self.0[row / 4] >> (16 * (row % 4))) as u16)
    }

    #[inline]
    pub(super) fn contains(self, cell: Cell) -> bool {
        self.0[cell.index() / 64] >> (cell.index() % 64) & 1 == 1
    }

    pub(super) fn insert(&mut self, cell: Cell) {
        self.0[cell.index() / 64] |= 1 << (cell.index() % 64);
    }

    /// Removes a cell. Returns 1 if it was in the set, else 0.
    #[inline]
    pub(super) fn take(&mut self, cell: Cell) -> u32 {
        let word = &mut self.0[cell.index() / 64];
        let found = *word >> (cell.index() % 64) & 1;
        *word ^= found << (cell.index() % 64);
        found as u32
    }

    #[inline]
    pub(super) fn len(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
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
    pub(super) fn xor(self, other: Self) -> Self {
        Self(array::from_fn(|word| self.0[word] ^ other.0[word]))
    }

    /// Returns the cells, row by row.
    pub(super) fn iter(self) -> Cells {
        Cells { left: self, word: 0 }
    }
}

/// The cells of a set.
pub(super) struct Cells {
    left: CellSet,
    /// Index of the first word that may not be empty.
    word: usize,
}

impl Iterator for Cells {
    type Item = Cell;

    #[inline]
    fn next(&mut self) -> Option<Cell> {
        while let Some(bits) = self.left.0.get_mut(self.word) {
            if *bits != 0 {
                let bit = bits.trailing_zeros() as usize;
                *bits &= *bits - 1;
                return Some(Cell::from_index((64 * self.word + bit) as u8));
            }
            self.word += 1;
        }
        None
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.left.len() as usize;
        (count, Some(count))
    }
}

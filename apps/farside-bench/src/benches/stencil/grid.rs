//! A square field, or the part of it that one process has: adjacent whole rows.

use std::ops::Range;

/// The side of a neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Above,
    Below,
}

impl Side {
    pub(super) const BOTH: [Self; 2] = [Self::Above, Self::Below];

    pub(super) fn index(self) -> usize {
        self as usize
    }

    pub(super) fn opposite(self) -> Self {
        match self {
            Side::Above => Side::Below,
            Side::Below => Side::Above,
        }
    }
}

/// Rows of a field, with a row of a neighbor or of the border above and below, and a column of the
/// border on both sides.
///
/// A cell becomes the mean of its four neighbors (Jacobi). The border stays.
#[derive(Debug)]
pub(super) struct Grid {
    size: usize,
    /// Number of rows and columns of the whole field.
    first_row: usize,
    rows: usize,
    now: Vec<f64>,
    next: Vec<f64>,
}

impl Grid {
    /// Creates these rows of a field of `size` rows and columns, in the initial state.
    pub(super) fn new(size: usize, rows: Range<usize>) -> Self {
        let cells = (rows.len() + 2) * (size + 2);
        let (now, next) = (vec![0.0; cells], vec![0.0; cells]);
        let mut grid = Self { size, first_row: rows.start, rows: rows.len(), now, next };
        grid.reset();
        grid
    }

    /// The initial state of a cell. It avoids zeros and tiny numbers, whose arithmetic takes other
    /// times.
    pub(super) fn reset(&mut self) {
        let columns = self.size + 2;
        for (index, row) in self.now.chunks_exact_mut(columns).enumerate() {
            for (column, cell) in row.iter_mut().enumerate() {
                *cell = (((self.first_row + index) * 31 + column * 17) % 97) as f64 / 97.0;
            }
        }
        self.next.copy_from_slice(&self.now);
    }

    /// Returns the inner rows, which need no row of a neighbor, numbered as for
    /// [`sweep`](Self::sweep).
    pub(super) fn inside(&self) -> Range<usize> {
        2..self.rows
    }

    /// Returns all rows.
    pub(super) fn all(&self) -> Range<usize> {
        1..self.rows + 1
    }

    /// Returns the first row, and the last if it is another.
    pub(super) fn edges(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        [1, self.rows].into_iter().take(self.rows.min(2)).map(|row| row..row + 1)
    }

    /// Returns the number of cells in these rows.
    pub(super) fn cells(&self, rows: &Range<usize>) -> usize {
        rows.len() * self.size
    }

    /// Computes the next state of these rows. The first row of this part is row 1.
    pub(super) fn sweep(&mut self, rows: Range<usize>) {
        let columns = self.size + 2;
        for row in rows {
            let at = |row: usize| &self.now[row * columns..(row + 1) * columns];
            let (above, here, below) = (at(row - 1), at(row), at(row + 1));
            let out = &mut self.next[row * columns + 1..(row + 1) * columns - 1];
            let vertical = above[1..].iter().zip(&below[1..]);
            let horizontal = here.iter().zip(&here[2..]);
            for ((cell, (up, down)), (left, right)) in out.iter_mut().zip(vertical).zip(horizontal) {
                // This order is fixed, so that all programs round the sums alike.
                *cell = ((up + down) + (left + right)) * 0.25;
            }
        }
    }

    /// Makes the computed state the current state.
    pub(super) fn advance(&mut self) {
        std::mem::swap(&mut self.now, &mut self.next);
    }

    /// Returns the row for the neighbor on this side.
    pub(super) fn edge(&self, side: Side) -> &[f64] {
        let row = match side {
            Side::Above => 1,
            Side::Below => self.rows,
        };
        &self.now[self.inside_of_row(row)]
    }

    /// Returns the place of the neighbor's row.
    pub(super) fn ghost(&mut self, side: Side) -> &mut [f64] {
        let row = match side {
            Side::Above => 0,
            Side::Below => self.rows + 1,
        };
        let cells = self.inside_of_row(row);
        &mut self.now[cells]
    }

    fn inside_of_row(&self, row: usize) -> Range<usize> {
        let start = row * (self.size + 2) + 1;
        start..start + self.size
    }

    /// Returns a sum over the bits and places of all cells. The sums of all parts add up to that of
    /// the whole field.
    pub(super) fn sum(&self) -> u64 {
        let columns = self.size + 2;
        let mut sum = 0_u64;
        for row in self.all() {
            let first_place = (self.first_row + row) * columns + 1;
            for (column, cell) in self.now[self.inside_of_row(row)].iter().enumerate() {
                let weight = 2 * (first_place + column) as u64 + 1;
                sum = sum.wrapping_add(cell.to_bits().wrapping_mul(weight));
            }
        }
        sum
    }
}

/// Returns the checksum that is printed and compared: half of the sum, which is exact as a number
/// in any program.
pub(super) fn checksum(sum: u64) -> u64 {
    u64::from((sum ^ sum >> 32) as u32)
}

/// Returns the rows of part `index` of `count` parts.
pub(super) fn rows_of(size: usize, part: usize, parts: usize) -> Range<usize> {
    size * part / parts..size * (part + 1) / parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_becomes_the_mean_of_its_neighbors() {
        let mut grid = Grid::new(3, 0..3);
        let value = |row: usize, column: usize| ((row * 31 + column * 17) % 97) as f64 / 97.0;
        let mean = ((value(1, 2) + value(3, 2)) + (value(2, 1) + value(2, 3))) * 0.25;
        grid.sweep(grid.all());
        grid.advance();
        assert_eq!(grid.now[2 * 5 + 2], mean);
        // The border stays.
        assert_eq!((grid.now[2], grid.now[4 * 5 + 2], grid.now[2 * 5]), (value(0, 2), value(4, 2), value(2, 0)));
    }

    /// Computes one part after the other in one thread.
    fn in_parts(size: usize, parts: usize, steps: usize) -> u64 {
        let mut grids: Vec<_> = (0..parts).map(|part| Grid::new(size, rows_of(size, part, parts))).collect();
        for _ in 0..steps {
            for upper in 0..parts - 1 {
                let (down, up) = (grids[upper].edge(Side::Below).to_vec(), grids[upper + 1].edge(Side::Above).to_vec());
                grids[upper].ghost(Side::Below).copy_from_slice(&up);
                grids[upper + 1].ghost(Side::Above).copy_from_slice(&down);
            }
            for grid in &mut grids {
                grid.sweep(grid.inside());
                grid.edges().for_each(|rows| grid.sweep(rows));
                grid.advance();
            }
        }
        checksum(grids.iter().fold(0, |sum, grid| sum.wrapping_add(grid.sum())))
    }

    #[test]
    fn parts_come_to_what_the_whole_does() {
        for size in [1, 2, 3, 16, 33] {
            let whole = in_parts(size, 1, 20);
            for parts in [2, 3, 7].into_iter().filter(|parts| *parts <= size) {
                assert_eq!(in_parts(size, parts, 20), whole, "{size} {parts}");
            }
            // Small fields reach a fixed point.
            assert!(size < 16 || in_parts(size, 1, 21) != whole, "{size}");
        }
    }

    #[test]
    fn the_checksum_sees_where_a_value_is() {
        let mut grid = Grid::new(8, 0..8);
        let before = grid.sum();
        let row = grid.inside_of_row(3);
        grid.now.swap(row.start, row.start + 1);
        assert_ne!(grid.sum(), before);
        assert_eq!(rows_of(10, 0, 3).len() + rows_of(10, 1, 3).len() + rows_of(10, 2, 3).len(), 10);
    }
}

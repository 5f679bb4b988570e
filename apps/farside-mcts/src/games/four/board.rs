//! The geometry of a board: the bits of cells and lines.

use farside::Wire;

use super::Column;

/// A set of cells. Column c begins at bit c × (height + 1), with the lowest cell first. The bit
/// above the highest cell is always clear, so that lines do not continue in the next column.
pub(super) type Cells = u64;

/// The width and height of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub(super) struct Board {
    pub(super) width: u8,
    pub(super) height: u8,
}

/// Number of discs in a line.
const LINE: u32 = 4;

impl Board {
    pub(super) fn new(width: usize, height: usize) -> Option<Self> {
        let bits = height.checked_add(1)?.checked_mul(width)?;
        (width > 0 && height > 0 && bits <= 64).then_some(Self { width: width as u8, height: height as u8 })
    }

    /// Returns the distance from a cell to its neighbour in the next column.
    #[inline]
    const fn pitch(self) -> u32 {
        self.height as u32 + 1
    }

    /// Returns the steps along lines: vertical, horizontal, falling and rising.
    #[inline]
    fn steps(self) -> [u32; 4] {
        [1, self.pitch(), self.pitch() - 1, self.pitch() + 1]
    }

    /// Returns the lowest cells of all columns.
    #[inline]
    fn bottom(self) -> Cells {
        (0..u32::from(self.width)).fold(0, |cells, column| cells | 1 << (column * self.pitch()))
    }

    #[inline]
    fn column(self, column: Column) -> Cells {
        ((1 << self.height) - 1) << (u32::from(column.0) * self.pitch())
    }

    /// Returns all cells.
    #[inline]
    pub(super) fn cells(self) -> Cells {
        self.bottom() * ((1 << self.height) - 1)
    }

    /// Returns the cells of the next disc in each column that is not full.
    #[inline]
    pub(super) fn drops(self, discs: Cells) -> Cells {
        // The carry runs through the discs of a column to its first empty cell.
        discs.wrapping_add(self.bottom()) & self.cells()
    }

    /// Returns the cell of the next disc in a column; empty if the column is full.
    #[inline]
    pub(super) fn drop_in(self, discs: Cells, column: Column) -> Cells {
        self.drops(discs) & self.column(column)
    }

    pub(super) fn is_open(self, discs: Cells, column: Column) -> bool {
        self.drop_in(discs, column) != 0
    }

    pub(super) fn open_columns(self, discs: Cells) -> impl Iterator<Item = Column> + use<> {
        self.columns_of(self.drops(discs))
    }

    /// Returns the columns of cells, of which each column has at most one.
    pub(super) fn columns_of(self, mut cells: Cells) -> impl Iterator<Item = Column> + use<> {
        let pitch = self.pitch();
        std::iter::from_fn(move || {
            let column = (cells != 0).then(|| Column((cells.trailing_zeros() / pitch) as u8));
            cells &= cells.wrapping_sub(1);
            column
        })
    }

    /// Returns whether four of these discs form a line.
    #[inline]
    pub(super) fn has_line(self, discs: Cells) -> bool {
        self.steps().into_iter().any(|step| {
            let pairs = discs & down(discs, step);
            pairs & down(pairs, 2 * step) != 0
        })
    }

    /// Returns the cells, on the board or beyond it, that complete a line with three of these
    /// discs.
    pub(super) fn completions(self, discs: Cells) -> Cells {
        let mut cells = 0;
        for step in self.steps() {
            for place in 0..LINE {
                // The cell has this place in the line, the discs have the other three.
                cells |= (0..LINE).filter(|other| *other != place).fold(Cells::MAX, |cells, other| {
                    let shifted = match place.checked_sub(other) {
                        Some(places) => up(discs, places * step),
                        None => down(discs, (other - place) * step),
                    };
                    cells & shifted
                });
            }
        }
        cells
    }

    pub(super) fn read(self, text: &str) -> Option<Column> {
        let &[letter] = text.as_bytes() else { return None };
        let index = letter.to_ascii_lowercase().checked_sub(b'a')?;
        (index < self.width).then_some(Column(index))
    }
}

/// Moves all cells along a line. Cells that leave the 64 bits are lost: on narrow boards lines are
/// longer than the board.
#[inline]
fn up(cells: Cells, distance: u32) -> Cells {
    cells.checked_shl(distance).unwrap_or(0)
}

/// Moves all cells along a line in the opposite direction of [`up`].
#[inline]
fn down(cells: Cells, distance: u32) -> Cells {
    cells.checked_shr(distance).unwrap_or(0)
}

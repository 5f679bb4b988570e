//! Cells and their names.

use std::fmt;
use std::str::FromStr;

use farside::Wire;

use super::flood::MAX_SIZE;

/// A cell of a board of any size, such as `c4`.
///
/// ```
/// use farside_mcts::games::hex::Cell;
///
/// let cell: Cell = "C4".parse()?;
/// assert_eq!((cell.column(), cell.row()), (2, 3));
/// assert_eq!(cell.to_string(), "c4");
/// # Ok::<(), farside_mcts::games::hex::CellError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Wire)]
pub struct Cell {
    /// Row in the upper four bits, column in the lower four: the cell's bit in 16 rows of 16 bits.
    index: u8,
}

impl Cell {
    /// Returns the cell of a column and a row, both counted from 0, or `None` if no board has it.
    #[must_use]
    pub const fn new(column: usize, row: usize) -> Option<Self> {
        if column < MAX_SIZE && row < MAX_SIZE { Some(Self::from_index((row << 4 | column) as u8)) } else { None }
    }

    /// Returns the column, counted from 0.
    #[must_use]
    #[inline]
    pub const fn column(self) -> usize {
        self.index as usize & 15
    }

    /// Returns the row, counted from 0.
    #[must_use]
    #[inline]
    pub const fn row(self) -> usize {
        self.index as usize >> 4
    }

    /// Returns the reflection in the long diagonal, which exchanges column and row.
    #[must_use]
    pub const fn reflected(self) -> Self {
        Self::from_index(self.index.rotate_left(4))
    }

    #[inline]
    pub(super) const fn index(self) -> usize {
        self.index as usize
    }

    #[inline]
    pub(super) const fn from_index(index: u8) -> Self {
        Self { index }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", char::from(b'a' + (self.index & 15)), self.row() + 1)
    }
}

/// The errors of a text that names no cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CellError {
    /// The text is not a letter followed by a number.
    #[error("not a cell: expected a letter and a number, such as c4")]
    Unreadable,
    /// The cell is outside the largest board.
    #[error("not a cell of any board: expected a1 to p16")]
    OffBoard,
}

impl FromStr for Cell {
    type Err = CellError;

    fn from_str(text: &str) -> Result<Self, CellError> {
        let (letter, number) = text.split_at_checked(1).ok_or(CellError::Unreadable)?;
        let letter = letter.as_bytes()[0].to_ascii_lowercase();
        let is_number = number.bytes().all(|digit| digit.is_ascii_digit()) && !number.is_empty();
        if !letter.is_ascii_lowercase() || !is_number || number.starts_with('0') {
            return Err(CellError::Unreadable);
        }
        // A number too large for the type is outside every board.
        let row: usize = number.parse().unwrap_or(usize::MAX);
        Self::new(usize::from(letter - b'a'), row - 1).ok_or(CellError::OffBoard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_read_back_from_its_name() {
        for row in 0..MAX_SIZE {
            for column in 0..MAX_SIZE {
                let cell = Cell::new(column, row).unwrap();
                let name = cell.to_string();
                assert_eq!(name.parse(), Ok(cell));
                assert_eq!(name.to_uppercase().parse(), Ok(cell));
            }
        }
        assert_eq!("i9".parse(), Ok(Cell::new(8, 8).unwrap()));
        assert_eq!(Cell::new(3, 15).unwrap().reflected(), Cell::new(15, 3).unwrap());
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "a", "4", "a0", "a01", "a-1", "a+1", "a1 ", " a1", "aa1", "ä1", "1a", "a1b"] {
            assert_eq!(text.parse::<Cell>(), Err(CellError::Unreadable), "{text:?}");
        }
        for text in ["a17", "q1", "z99", "a99999999999999999999999"] {
            assert_eq!(text.parse::<Cell>(), Err(CellError::OffBoard), "{text:?}");
        }
        assert_eq!(Cell::new(16, 0), None);
        assert_eq!(Cell::new(0, 16), None);
    }
}

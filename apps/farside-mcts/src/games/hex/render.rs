//! Positions as text.

use std::collections::BTreeMap;
use std::fmt;

use super::{Cell, Position};
use crate::game::Player;

/// A board as text: a rhombus with `B` and `W` for stones, and optional percentages in empty cells.
///
/// ```
/// use farside_mcts::games::hex::{Diagram, Position};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let position = Position::from_moves(3, "b2 a3")?;
/// let diagram = Diagram::new(&position);
/// let lines = ["  a b c", " 1 . . . 1", "  2 . B . 2", "   3 W . . 3", "      a b c"];
/// assert_eq!(diagram.to_string().lines().collect::<Vec<_>>(), lines);
///
/// let visits = diagram.share("c1".parse()?, 0.875).share("b1".parse()?, 0.125);
/// let lines = [
///     "    a   b   c",
///     "  1   .  12  88 1",
///     "    2   .   B   . 2",
///     "      3   W   .   . 3",
///     "            a   b   c",
/// ];
/// assert_eq!(visits.to_string().lines().collect::<Vec<_>>(), lines);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Diagram {
    position: Position,
    shares: BTreeMap<Cell, f64>,
}

impl Diagram {
    /// Returns a diagram of the stones of a position.
    #[must_use]
    pub fn new(position: &Position) -> Self {
        Self { position: *position, shares: BTreeMap::new() }
    }

    /// Adds a share from 0 to 1 as a percentage in a cell. A stone on the cell hides it.
    #[must_use]
    pub fn share(mut self, cell: Cell, share: f64) -> Self {
        self.shares.insert(cell, share);
        self
    }

    fn symbol(&self, cell: Cell) -> String {
        match (self.position.stone(cell), self.shares.get(&cell)) {
            (Some(Player::First), _) => "B".into(),
            (Some(Player::Second), _) => "W".into(),
            (None, Some(share)) => format!("{:.0}", 100.0 * share),
            (None, None) => ".".into(),
        }
    }

    fn write_columns(&self, f: &mut fmt::Formatter<'_>, indent: usize, pitch: usize) -> fmt::Result {
        write!(f, "{:indent$}", "")?;
        for letter in ('a'..).take(self.position.size()) {
            write!(f, "{letter:>pitch$}")?;
        }
        writeln!(f)
    }
}

impl fmt::Display for Diagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.position.size();
        let number_width = size.to_string().len();
        // A space and a symbol, or three digits with percentages. Each row is half a cell further
        // right.
        let pitch = if self.shares.is_empty() { 2 } else { 4 };
        self.write_columns(f, number_width, pitch)?;
        for row in 0..size {
            write!(f, "{:indent$}{:>number_width$}", "", row + 1, indent = (row + 1) * pitch / 2)?;
            for column in 0..size {
                let cell = Cell::new(column, row).expect("the cell is on the board");
                write!(f, "{:>pitch$}", self.symbol(cell))?;
            }
            writeln!(f, " {}", row + 1)?;
        }
        self.write_columns(f, number_width + (size + 1) * pitch / 2, pitch)
    }
}

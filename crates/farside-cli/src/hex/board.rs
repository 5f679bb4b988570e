//! A position as a rhombus of text, with what a search found in its empty cells.

use std::collections::HashMap;
use std::fmt;

use farside_mcts::games::hex::{Cell, Position};
use farside_mcts::{MoveReport, Player, Report};

/// A board: stones as `B` and `W`, the chosen move in brackets, and in every empty cell the share of all rollouts that
/// went through it, in percent. What had less than half of one shows a dot.
#[derive(Debug)]
pub(super) struct Board<'a> {
    position: &'a Position,
    chosen: Cell,
    shares: HashMap<Cell, f64>,
}

/// Characters of a cell. Each row begins half a cell further to the right than the one above.
const CELL_WIDTH: usize = 4;

impl<'a> Board<'a> {
    pub(super) fn new(position: &'a Position, report: &Report<Cell>) -> Self {
        Self::of(position, report.best.chosen, &report.moves)
    }

    fn of(position: &'a Position, chosen: Cell, moves: &[MoveReport<Cell>]) -> Self {
        let all = moves.iter().map(|known| f64::from(known.visits)).sum::<f64>().max(1.0);
        let shares = moves.iter().map(|known| (known.chosen, f64::from(known.visits) / all)).collect();
        Self { position, chosen, shares }
    }

    fn cell_text(&self, cell: Cell) -> String {
        match self.position.stone(cell) {
            Some(Player::First) => "B".into(),
            Some(Player::Second) => "W".into(),
            None => {
                // Two digits, so that brackets fit around.
                let percent = (self.shares.get(&cell).copied().unwrap_or_default() * 100.0).round().min(99.0);
                let text = if percent > 0.0 { format!("{percent}") } else { ".".into() };
                if cell == self.chosen { format!("[{text}]") } else { text }
            }
        }
    }
}

impl fmt::Display for Board<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.position.size();
        let letters = (b'a'..).take(size).map(|letter| format!("{:^CELL_WIDTH$}", char::from(letter)));
        writeln!(f, "   {}  (% of the rollouts)", letters.collect::<String>())?;
        for row in 0..size {
            let cells = (0..size).filter_map(|column| Cell::new(column, row));
            let cells: String = cells.map(|cell| format!("{:^CELL_WIDTH$}", self.cell_text(cell))).collect();
            let indent = row * CELL_WIDTH / 2;
            writeln!(f, "{:indent$}{:>2} {}", "", row + 1, cells)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use farside_mcts::games::hex::Hex;
    use farside_mcts::{Budget, Search};

    use super::*;

    #[test]
    fn a_board_shows_stones_shares_and_the_move() {
        let position = Position::from_moves(3, "a1 c1 pass a3").unwrap();
        let report = Search::new(Hex::new(3).unwrap()).run(&position, Budget::Rollouts(500)).unwrap();
        let text = Board::new(&position, &report).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!(lines[0], "    a   b   c    (% of the rollouts)");
        let row = |number: usize| lines[number].split_whitespace().collect::<Vec<_>>();
        assert_eq!((row(1)[0], row(1)[1], row(1)[3]), ("1", "B", "W"), "{text}");
        assert_eq!(row(3)[1], "W", "{text}");
        assert_eq!([1, 2, 3].map(|number| row(number).len()), [4, 4, 4], "{text}");
        let column = row(report.best.chosen.row() + 1)[report.best.chosen.column() + 1];
        assert!(column.starts_with('[') && column.ends_with(']'), "{text}");
        // A rhombus: each row is half a cell further to the right.
        let first = |number: usize| lines[number].find(|letter: char| letter != ' ').unwrap();
        assert_eq!([1, 2, 3].map(first), [1, 3, 5], "{text}");
    }

    #[test]
    fn a_share_of_all_rollouts_has_room() {
        let position = Position::from_moves(2, "a1 b1 pass b2").unwrap();
        let mut report = Search::new(Hex::new(2).unwrap()).run(&position, Budget::Rollouts(1)).unwrap();
        report.moves.truncate(1);
        let text = Board::new(&position, &report).to_string();
        assert!(text.contains("[99]"), "{text}");
    }
}

//! The winning first stones on solved boards.

use crate::games::hex::Cell;

/// Rows of the boards of sizes 2 to 5: `B` where black's first stone wins with best play.
const SOLVED: [&[&str]; 4] = [
    &["wB", "Bw"],
    &["wwB", "BBB", "Bww"],
    &["wwwB", "wwBw", "wBww", "Bwww"],
    &["wwwwB", "wBBBB", "wBBBw", "BBBBw", "Bwwww"],
];

/// Returns whether black's first stone on `cell` wins, or `None` on boards that are not solved.
pub(super) fn wins_by(size: usize, cell: Cell) -> Option<bool> {
    let rows = SOLVED.get(size.checked_sub(2)?)?;
    let mark = rows.get(cell.row())?.as_bytes().get(cell.column())?;
    Some(*mark == b'B')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::games::hex::{Hex, Position};
    use crate::search::{Budget, Params, Search};
    use crate::{Outcome, Player};

    #[test]
    fn the_table_is_what_a_search_proves() {
        for size in 2..=5 {
            for column in 0..size {
                for row in 0..size {
                    let cell = Cell::new(column, row).unwrap();
                    let position = Position::from_moves(size, &cell.to_string()).unwrap();
                    let hex = Hex::new(size).unwrap().with_connections();
                    let params = Params { expand_after: 1, ..Params::default() };
                    let report = Search::new(hex).params(params).run(&position, Budget::Rollouts(20_000)).unwrap();
                    let winner = if wins_by(size, cell).unwrap() { Player::First } else { Player::Second };
                    assert_eq!(report.solved, Some(Outcome::Won(winner)), "{cell} on size {size}");
                }
            }
        }
        assert_eq!(wins_by(6, Cell::new(0, 0).unwrap()), None);
        assert_eq!(wins_by(3, Cell::new(3, 0).unwrap()), None);
    }
}

//! Perfect play of Hex by exhaustive search, for tests.

use std::collections::HashMap;

use super::{Cell, Position};
use crate::game::Player;
use crate::rng::Rng;

pub(super) const BOTH: [Player; 2] = [Player::First, Player::Second];

/// An exhaustive search with a table of known winners.
#[derive(Default)]
pub(super) struct BruteForce {
    known: HashMap<Position, Player>,
}

impl BruteForce {
    pub(super) fn winner(&mut self, position: &Position) -> Player {
        if let Some(winner) = position.winner() {
            return winner;
        }
        if let Some(&winner) = self.known.get(position) {
            return winner;
        }
        let mover = position.to_move();
        let wins = position.empty_cells().any(|cell| self.wins_by(position, cell));
        let winner = if wins { mover } else { mover.opponent() };
        self.known.insert(*position, winner);
        winner
    }

    /// Returns whether the player to move wins by this move.
    pub(super) fn wins_by(&mut self, position: &Position, cell: Cell) -> bool {
        let mut next = *position;
        next.play(cell);
        self.winner(&next) == position.to_move()
    }
}

/// Returns a random board with `empty` empty cells. It need not come from a game, and may be won.
pub(super) fn random_board(size: usize, empty: usize, rng: &mut Rng) -> Position {
    let mut position = Position::new(size).unwrap();
    for _ in empty..size * size {
        let cells: Vec<Cell> = position.empty_cells().collect();
        position.add_stone(cells[rng.below(cells.len() as u32) as usize], BOTH[rng.below(2) as usize]);
    }
    if rng.below(2) == 0 {
        position.pass();
    }
    position
}

/// Number of boards of each kind that [`undecided_boards`] tries.
pub(super) fn boards_of_a_kind() -> usize {
    farside_testbed::scaled(6) as usize
}

/// Returns random boards of several sizes without a winner, with few enough cells for exhaustive
/// search.
pub(super) fn undecided_boards(seed: u64) -> impl Iterator<Item = Position> {
    let mut rng = Rng::new(seed);
    let kinds = [(3, 8), (4, 10), (4, 11), (5, 11), (4, 12), (5, 12), (6, 12)];
    let boards = kinds.into_iter().flat_map(|kind| vec![kind; boards_of_a_kind()]);
    boards.map(move |(size, empty)| random_board(size, empty, &mut rng)).filter(|position| position.winner().is_none())
}

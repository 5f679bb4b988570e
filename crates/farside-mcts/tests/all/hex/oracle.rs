//! The simplest implementation of Hex: a flood from cell to cell, and an exhaustive search.

use std::collections::HashMap;

use farside_mcts::games::hex::{Cell, Position};
use farside_mcts::{Player, Rng};

/// Whether the player's stones join its edges, by a flood from cell to cell.
pub(crate) fn joins(position: &Position, player: Player) -> bool {
    let size = position.size();
    let has = |column: usize, row: usize| position.stone(Cell::new(column, row).unwrap()) == Some(player);
    let along = |(column, row): (usize, usize)| if player == Player::First { row } else { column };
    let mut seen = vec![vec![false; size]; size];
    let mut open: Vec<(usize, usize)> = (0..size)
        .map(|k| if player == Player::First { (k, 0) } else { (0, k) })
        .filter(|&(column, row)| has(column, row))
        .collect();
    while let Some(at) = open.pop() {
        let (column, row) = at;
        if std::mem::replace(&mut seen[row][column], true) {
            continue;
        }
        if along(at) == size - 1 {
            return true;
        }
        for (columns, rows) in [(1, 0), (-1, 0), (0, 1), (0, -1), (1, -1), (-1, 1)] {
            let next = (column.checked_add_signed(columns), row.checked_add_signed(rows));
            if let (Some(column), Some(row)) = next
                && column < size
                && row < size
                && has(column, row)
            {
                open.push((column, row));
            }
        }
    }
    false
}

/// Returns the stones of a random board, which need not come from a game.
pub(crate) fn random_stones(size: usize, percent_full: u32, rng: &mut Rng) -> [Vec<Cell>; 2] {
    let mut stones = [Vec::new(), Vec::new()];
    for row in 0..size {
        for column in 0..size {
            if rng.below(100) < percent_full {
                stones[rng.below(2) as usize].push(Cell::new(column, row).unwrap());
            }
        }
    }
    stones
}

/// Perfect play, by an exhaustive search with a table.
#[derive(Default)]
pub(crate) struct Minimax {
    known: HashMap<Position, Player>,
}

impl Minimax {
    /// Returns the winner.
    pub(crate) fn winner(&mut self, position: &Position) -> Player {
        if let Some(winner) = position.winner() {
            return winner;
        }
        if let Some(&winner) = self.known.get(position) {
            return winner;
        }
        let mover = position.to_move();
        let wins = position.empty_cells().any(|cell| self.winner(&after(position, cell)) == mover);
        let winner = if wins { mover } else { mover.opponent() };
        self.known.insert(*position, winner);
        winner
    }

    /// Returns the winning moves of the player to move.
    pub(crate) fn winning_moves(&mut self, position: &Position) -> Vec<Cell> {
        let mover = position.to_move();
        position.empty_cells().filter(|&cell| self.winner(&after(position, cell)) == mover).collect()
    }
}

pub(crate) fn after(position: &Position, cell: Cell) -> Position {
    let mut next = *position;
    next.play(cell);
    next
}

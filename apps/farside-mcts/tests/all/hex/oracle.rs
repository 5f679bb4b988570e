//! The simplest implementation of Hex: a flood from cell to cell, and an exhaustive search.

use std::collections::{HashMap, VecDeque};

use farside_mcts::games::hex::{Cell, Position};
use farside_mcts::{Player, Rng};

/// Columns and rows from a cell to its neighbours.
const NEIGHBOURS: [(isize, isize); 6] = [(1, 0), (-1, 0), (0, 1), (0, -1), (1, -1), (-1, 1)];

/// Returns whether the player's stones join its edges, by a flood from cell to cell.
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
        for (columns, rows) in NEIGHBOURS {
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

/// Perfect play on larger boards than [`Minimax`] can search.
///
/// A winner needs only some cells: whatever happens elsewhere, it wins. So after a losing move only
/// moves on the cells that its refutation needs are left to try.
#[derive(Default)]
pub(crate) struct Solver {
    known: HashMap<Position, (Player, Cells)>,
}

/// Cells of a board of up to 11 × 11 by bit, row by row.
type Cells = u128;

impl Solver {
    /// Returns the winner, and the empty cells that it needs.
    fn solve(&mut self, position: &Position) -> (Player, Cells) {
        if let Some(winner) = position.winner() {
            return (winner, 0);
        }
        if let Some(&known) = self.known.get(position) {
            return known;
        }
        let (size, mover) = (position.size(), position.to_move());
        let [own, other] = [mover, mover.opponent()].map(|player| distances(position, player));
        // Cells that win at once come first, then those that would let the opponent win at once.
        let promise = |at: usize| match (own[at], other[at]) {
            (2, _) => 0,
            (_, 2) => 1,
            (own, other) => own + other,
        };
        let mut cells: Vec<Cell> = position.empty_cells().collect();
        cells.sort_by_key(|cell| promise(cell.row() * size + cell.column()));
        let (mut open, mut needed) = (Cells::MAX, 0);
        for cell in cells {
            let bit = 1 << (cell.row() * size + cell.column());
            if open & bit == 0 {
                continue;
            }
            let (winner, refutation) = self.solve(&after(position, cell));
            if winner == mover {
                self.known.insert(*position, (mover, refutation | bit));
                return (mover, refutation | bit);
            }
            open &= refutation;
            needed |= refutation;
        }
        self.known.insert(*position, (mover.opponent(), needed));
        (mover.opponent(), needed)
    }

    /// Returns the winning moves of the player to move.
    pub(crate) fn winning_moves(&mut self, position: &Position) -> Vec<Cell> {
        let mover = position.to_move();
        position.empty_cells().filter(|&cell| self.solve(&after(position, cell)).0 == mover).collect()
    }
}

/// Returns for each cell the number of stones that `player` lacks from there to both of its edges.
/// An empty cell counts for both.
fn distances(position: &Position, player: Player) -> Vec<u32> {
    let size = position.size();
    let lacking = |at: usize| match position.stone(Cell::new(at % size, at / size).unwrap()) {
        None => Some(1),
        Some(owner) => (owner == player).then_some(0),
    };
    let mut sums = vec![0; size * size];
    for edge in [0, size - 1] {
        let mut known = vec![1000; size * size];
        let starts = (0..size).map(|k| if player == Player::First { (k, edge) } else { (edge, k) });
        let mut open: VecDeque<_> = starts.map(|at| (at, 0)).collect();
        while let Some(((column, row), before)) = open.pop_front() {
            let at = row * size + column;
            let Some(stones) = lacking(at).map(|cost| before + cost).filter(|stones| *stones < known[at]) else {
                continue;
            };
            known[at] = stones;
            for (columns, rows) in NEIGHBOURS {
                let next = (column.wrapping_add_signed(columns), row.wrapping_add_signed(rows));
                if next.0 < size && next.1 < size {
                    open.push_back((next, stones));
                }
            }
        }
        sums.iter_mut().zip(known).for_each(|(sum, stones)| *sum += stones);
    }
    sums
}

pub(crate) fn after(position: &Position, cell: Cell) -> Position {
    let mut next = *position;
    next.play(cell);
    next
}

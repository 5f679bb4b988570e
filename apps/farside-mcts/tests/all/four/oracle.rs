//! The same game, played cell by cell, and an exhaustive solver.

use std::collections::HashMap;

use farside_mcts::games::four::{Column, FourInARow, Position};
use farside_mcts::{Game, Outcome, Player};

/// A board as an array of cells, each with its owner.
#[derive(Clone)]
pub(crate) struct Cells {
    width: usize,
    height: usize,
    columns: Vec<Vec<Player>>,
}

impl Cells {
    pub(crate) fn new(width: usize, height: usize) -> Self {
        Self { width, height, columns: vec![Vec::new(); width] }
    }

    pub(crate) fn to_move(&self) -> Player {
        let discs: usize = self.columns.iter().map(Vec::len).sum();
        if discs.is_multiple_of(2) { Player::First } else { Player::Second }
    }

    pub(crate) fn open(&self) -> Vec<usize> {
        (0..self.width).filter(|&column| self.columns[column].len() < self.height).collect()
    }

    pub(crate) fn drop_disc(&mut self, column: usize) {
        let player = self.to_move();
        self.columns[column].push(player);
    }

    fn at(&self, column: isize, row: isize) -> Option<Player> {
        let column = self.columns.get(usize::try_from(column).ok()?)?;
        column.get(usize::try_from(row).ok()?).copied()
    }

    pub(crate) fn outcome(&self) -> Option<Outcome> {
        for column in 0..self.width as isize {
            for row in 0..self.height as isize {
                for (right, up) in [(0, 1), (1, 0), (1, 1), (1, -1)] {
                    let line = [0, 1, 2, 3].map(|step| self.at(column + step * right, row + step * up));
                    if line[0].is_some() && line.iter().all(|cell| *cell == line[0]) {
                        return line[0].map(Outcome::Won);
                    }
                }
            }
        }
        self.open().is_empty().then_some(Outcome::Drawn)
    }

    pub(crate) fn show(&self) -> String {
        let mut text = String::new();
        for row in (0..self.height as isize).rev() {
            let cells = (0..self.width as isize).map(|column| match self.at(column, row) {
                Some(Player::First) => "X",
                Some(Player::Second) => "O",
                None => ".",
            });
            text += &(cells.collect::<Vec<_>>().join(" ") + "\n");
        }
        let letters = ('a'..).take(self.width).map(String::from).collect::<Vec<_>>().join(" ");
        text + &letters + "\n"
    }
}

/// Outcomes with best play, by exhaustive search.
#[derive(Default)]
pub(crate) struct Solver(HashMap<Position, Outcome>);

impl Solver {
    pub(crate) fn outcome(&mut self, four: &FourInARow, position: &Position) -> Outcome {
        if let Some(known) = four.outcome(position).or_else(|| self.0.get(position).copied()) {
            return known;
        }
        let mover = four.to_move(position);
        let mut best = Outcome::Won(mover.opponent());
        let mut moves = Vec::new();
        four.moves(position, &mut moves);
        for column in moves {
            match self.outcome_after(four, position, column) {
                Outcome::Drawn => best = Outcome::Drawn,
                Outcome::Won(winner) if winner == mover => {
                    best = Outcome::Won(winner);
                    break;
                }
                Outcome::Won(_) => {}
            }
        }
        self.0.insert(*position, best);
        best
    }

    /// Returns the outcome of each move.
    pub(crate) fn outcomes(&mut self, four: &FourInARow, position: &Position) -> Vec<(Column, Outcome)> {
        let mut moves = Vec::new();
        four.moves(position, &mut moves);
        moves.into_iter().map(|column| (column, self.outcome_after(four, position, column))).collect()
    }

    fn outcome_after(&mut self, four: &FourInARow, position: &Position, column: Column) -> Outcome {
        let mut after = *position;
        four.play(&mut after, column);
        self.outcome(four, &after)
    }
}

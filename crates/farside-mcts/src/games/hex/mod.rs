//! Hex: two players colour the cells of a rhombus, and who joins his two edges wins.
//!
//! Black is [`Player::First`] and joins the top (row 1) with the bottom; white is [`Player::Second`] and joins the left
//! (column a) with the right. A cell is named by its column's letter and its row's number: `a1` is the acute corner at
//! the top left. The neighbours of column c, row r are (c ± 1, r), (c, r ± 1), (c + 1, r − 1) and (c − 1, r + 1). A full
//! board has exactly one winner.
//!
//! ```
//! use farside_mcts::Player;
//! use farside_mcts::games::hex::Position;
//!
//! # fn main() -> Result<(), farside_mcts::games::hex::HexError> {
//! let position = Position::from_moves(3, "b2 a1 B1 pass c1")?;
//! assert_eq!(position.to_move(), Player::Second);
//! assert_eq!(position.winner(), None);
//! # Ok(())
//! # }
//! ```

mod cell;
mod error;
mod flood;
mod playout;
mod position;
mod render;
mod virt;
mod links;

use std::ops::RangeInclusive;

use crate::game::{Game, Outcome, Player, Points};
use crate::rng::Rng;

pub use cell::{Cell, CellError};
pub use error::HexError;
pub use playout::black_wins;
pub use position::Position;
pub use render::Diagram;

/// The sizes a board may have.
pub const SIZES: RangeInclusive<usize> = 2..=flood::MAX_SIZE;

/// The game of Hex on a board of some size, for [`Search`](crate::Search).
///
/// Leaves are evaluated by [`black_wins`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hex {
    empty: Position,
}

impl Hex {
    /// Hex on a board of `size` × `size` cells.
    ///
    /// # Errors
    /// [`HexError::Size`] unless the size is one of [`SIZES`].
    pub fn new(size: usize) -> Result<Self, HexError> {
        Position::new(size).map(|empty| Self { empty })
    }
}

impl Game for Hex {
    type State = Position;
    type Move = Cell;

    fn initial(&self) -> Position {
        self.empty
    }

    #[inline]
    fn to_move(&self, position: &Position) -> Player {
        position.to_move()
    }

    fn moves(&self, position: &Position, moves: &mut Vec<Cell>) {
        moves.extend(position.empty_cells());
    }

    #[inline]
    fn play(&self, position: &mut Position, cell: Cell) {
        position.play(cell);
    }

    #[inline]
    fn outcome(&self, position: &Position) -> Option<Outcome> {
        position.winner().map(Outcome::Won)
    }

    fn hash(&self, p: &Position) -> u64 {
        let mut h = p.to_move() as u64 + 1;
        for r in p.stones.iter().flatten() { h = (h ^ *r as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15); h ^= h >> 29; }
        h
    }
    fn expand(&self, p: &Position, moves: &mut Vec<Cell>) -> Option<Outcome> {
        if let Some(o) = self.outcome(p) { return Some(o); }
        let q = p.to_move();
        let mine = links::threats(p, q);
        if mine.semi { return Some(Outcome::Won(q)); }
        let theirs = links::threats(p, q.opponent());
        if theirs.full { return Some(Outcome::Won(q.opponent())); }
        if theirs.semi { moves.extend(p.empty_cells().filter(|c| theirs.must_has(*c))); }
        else { self.moves(p, moves); }
        if std::env::var_os("ORD").is_some() {
            let score = playout::amaf(p);
            let me = q as usize;
            moves.sort_by(|a, b| score[me][b.row() * 16 + b.column()].total_cmp(&score[me][a.row() * 16 + a.column()]));
        }
        None
    }
    #[inline]
    fn simulate(&self, position: &Position, simulations: u32, rng: &mut Rng) -> Points {
        if std::env::var_os("NOPAIR").is_none() { return Points::wins(playout::black_wins_paired(position, simulations, rng)); }

        Points::wins(black_wins(position, simulations, rng))
    }
}

//! Four in a row: two players drop discs into columns, and the first with four in a line wins.
//!
//! The line may be vertical, horizontal or diagonal. If the board is full without a line, the game
//! is drawn. The board has any width and height that fit into 64 bits ([`FourInARow::new`]);
//! usually it is 7 wide and 6 high. A move is a column, named by its letter from the left.
//!
//! ```
//! use farside_mcts::games::four::FourInARow;
//! use farside_mcts::{Budget, Search};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let four = FourInARow::new(7, 6)?;
//! let position = four.after("d a d a d b")?;
//! let report = Search::new(four).run(&position, Budget::Rollouts(1000))?;
//! assert_eq!(report.best.chosen.to_string(), "d");
//! # Ok(())
//! # }
//! ```

mod board;
mod error;
mod position;

use std::fmt;

use farside::Wire;

use crate::game::{Game, Outcome, Player, Points};
use crate::rng::Rng;
use board::Board;

pub use error::FourError;
pub use position::Position;

/// Four in a row on a board of one width and height, for [`Search`](crate::Search).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub struct FourInARow {
    board: Board,
    sees_threats: bool,
}

/// A column of the board, such as `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Wire)]
pub struct Column(u8);

impl Column {
    /// Returns the number of the column, from 0 on the left.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", char::from(b'a' + self.0))
    }
}

impl FourInARow {
    /// Returns the game with no knowledge besides the rules.
    ///
    /// # Errors
    /// [`FourError::Board`] unless the board has at least one column and one row, and (height + 1)
    /// × width is at most 64.
    pub fn new(width: usize, height: usize) -> Result<Self, FourError> {
        let board = Board::new(width, height).ok_or(FourError::Board { width, height })?;
        Ok(Self { board, sees_threats: false })
    }

    /// Lets the search recognise lines that a player can finish at once or must stop. It then skips
    /// moves that let the opponent finish a line.
    #[must_use]
    pub fn with_threats(self) -> Self {
        Self { sees_threats: true, ..self }
    }

    /// Returns the position after moves separated by white space.
    ///
    /// # Errors
    /// [`FourError`], which names the first illegal move.
    pub fn after(&self, moves: &str) -> Result<Position, FourError> {
        let mut position = self.initial();
        for (text, number) in moves.split_whitespace().zip(1..) {
            let column = self.board.read(text).ok_or_else(|| FourError::NoColumn {
                number,
                text: text.into(),
                last: Column(self.board.width - 1),
            })?;
            if let Some(outcome) = self.outcome(&position) {
                return Err(FourError::GameOver { number, outcome });
            }
            if !self.board.is_open(position.discs(), column) {
                return Err(FourError::Full { number, column });
            }
            self.play(&mut position, column);
        }
        Ok(position)
    }
}

impl Game for FourInARow {
    type State = Position;
    type Move = Column;

    fn initial(&self) -> Position {
        Position::empty(self.board)
    }

    #[inline]
    fn to_move(&self, position: &Position) -> Player {
        position.to_move()
    }

    fn moves(&self, position: &Position, moves: &mut Vec<Column>) {
        moves.extend(self.board.open_columns(position.discs()));
    }

    #[inline]
    fn play(&self, position: &mut Position, column: Column) {
        position.drop_disc(column);
    }

    #[inline]
    fn outcome(&self, position: &Position) -> Option<Outcome> {
        position.outcome()
    }

    fn study(&self, position: &Position, moves: &mut Vec<Column>) -> Option<Outcome> {
        if !self.sees_threats {
            self.moves(position, moves);
            return None;
        }
        let board = self.board;
        let mover = position.to_move();
        let discs = position.discs();
        let drops = board.drops(discs);
        let finishing = |player| board.completions(position.discs_of(player)) & board.cells() & !discs;
        if finishing(mover) & drops != 0 {
            return Some(Outcome::Won(mover));
        }
        let dangers = finishing(mover.opponent());
        let forced = dangers & drops;
        if forced.count_ones() > 1 {
            return Some(Outcome::Won(mover.opponent()));
        }
        // A disc directly below a danger lets the opponent reach it.
        let sound = if forced == 0 { drops } else { forced } & !(dangers >> 1);
        moves.extend(board.columns_of(sound));
        moves.is_empty().then_some(Outcome::Won(mover.opponent()))
    }

    fn simulate(&self, position: &Position, simulations: u32, rng: &mut Rng) -> Points {
        let mut points = Points::default();
        for _ in 0..simulations {
            points += Points::certain(position.played_out(rng), 1);
        }
        points
    }
}

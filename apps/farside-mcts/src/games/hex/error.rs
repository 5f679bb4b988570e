//! The errors of boards and positions.

use super::{Cell, SIZES};
use crate::game::Player;

/// The errors of boards and positions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HexError {
    /// No board has this size.
    #[error("invalid board size {size}: expected {min} to {max}", min = SIZES.start(), max = SIZES.end())]
    Size {
        /// The size.
        size: usize,
    },
    /// A move is neither a cell nor `pass`.
    #[error("invalid move {number}, {text:?}: expected a letter and a number such as c4, or pass")]
    Unreadable {
        /// Number of the move, from 1.
        number: usize,
        /// The move.
        text: String,
    },
    /// A move is outside the board.
    #[error("invalid move {number}, {text}: off the board; on size {size} use a1 to {last}", last = last_cell(*size))]
    OffBoard {
        /// Number of the move, from 1.
        number: usize,
        /// The move.
        text: String,
        /// The size of the board.
        size: usize,
    },
    /// The cell of a move has a stone.
    #[error("illegal move {number}, {cell}: the cell is occupied; choose an empty one")]
    Occupied {
        /// Number of the move, from 1.
        number: usize,
        /// The move.
        cell: Cell,
    },
    /// A move follows the end of the game.
    #[error("illegal move {number}, {text}: {} has won; leave out this move", colour(*winner))]
    GameOver {
        /// Number of the move, from 1.
        number: usize,
        /// The move.
        text: String,
        /// The winner.
        winner: Player,
    },
}

/// Returns the name of a player.
pub(super) const fn colour(player: Player) -> &'static str {
    match player {
        Player::First => "black",
        Player::Second => "white",
    }
}

fn last_cell(size: usize) -> String {
    Cell::new(size - 1, size - 1).map_or_else(String::new, |cell| cell.to_string())
}

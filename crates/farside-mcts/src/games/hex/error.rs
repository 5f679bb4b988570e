//! Why there is no such position.

use super::{Cell, SIZES};
use crate::game::Player;

/// Why there is no such board or position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HexError {
    /// No board has this size.
    #[error("a board of size {size}: choose {min} to {max}", min = SIZES.start(), max = SIZES.end())]
    Size {
        /// What was asked for.
        size: usize,
    },
    /// A move that is neither a cell nor `pass`.
    #[error("move {number}, {text:?}, cannot be read: write a letter and a number such as c4, or pass")]
    Unreadable {
        /// Which move, counted from 1.
        number: usize,
        /// The move.
        text: String,
    },
    /// A move outside of the board.
    #[error("move {number}, {text}, is off the board: on size {size} cells run from a1 to {last}", last = last_cell(*size))]
    OffBoard {
        /// Which move, counted from 1.
        number: usize,
        /// The move.
        text: String,
        /// The size of the board.
        size: usize,
    },
    /// A move to a cell that has a stone.
    #[error("move {number}, {cell}, is illegal: the cell is occupied")]
    Occupied {
        /// Which move, counted from 1.
        number: usize,
        /// The move.
        cell: Cell,
    },
    /// A move after the end of the game.
    #[error("move {number}, {text}, comes after the end: {} has won", colour(*winner))]
    GameOver {
        /// Which move, counted from 1.
        number: usize,
        /// The move.
        text: String,
        /// Who has won.
        winner: Player,
    },
}

/// What the players of Hex are called.
pub(super) const fn colour(player: Player) -> &'static str {
    match player {
        Player::First => "black",
        Player::Second => "white",
    }
}

fn last_cell(size: usize) -> String {
    Cell::new(size - 1, size - 1).map_or_else(String::new, |cell| cell.to_string())
}

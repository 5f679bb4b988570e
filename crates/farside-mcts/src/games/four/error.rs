//! Why there is no such position.

use super::Column;
use crate::game::Outcome;

/// Why there is no such board or position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FourError {
    /// No board is like this.
    #[error("a board of {width} x {height}: at least 1 x 1, and width x (height + 1) at most 64")]
    Board {
        /// The width that was asked for.
        width: usize,
        /// The height that was asked for.
        height: usize,
    },
    /// A move that names no column of the board.
    #[error("move {number}, {text:?}, is no column: they run from a to {last}")]
    NoColumn {
        /// Which move, counted from 1.
        number: usize,
        /// The move.
        text: String,
        /// The last column.
        last: Column,
    },
    /// A move into a full column.
    #[error("move {number}, {column}, is illegal: the column is full")]
    Full {
        /// Which move, counted from 1.
        number: usize,
        /// The column.
        column: Column,
    },
    /// A move after the end of the game.
    #[error("move {number} comes after the end: {outcome}")]
    GameOver {
        /// Which move, counted from 1.
        number: usize,
        /// How it ended.
        outcome: Outcome,
    },
}

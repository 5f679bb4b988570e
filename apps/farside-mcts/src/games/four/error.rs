//! The errors of boards and positions.

use super::Column;
use crate::game::Outcome;

/// The errors of boards and positions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FourError {
    /// The width or height is outside its range.
    #[error("invalid board of {width} x {height}: expected at least 1 x 1, and width x (height + 1) at most 64")]
    Board {
        /// The width.
        width: usize,
        /// The height.
        height: usize,
    },
    /// A move names no column of the board.
    #[error("invalid move {number}, {text:?}: expected a column from a to {last}")]
    NoColumn {
        /// Number of the move, from 1.
        number: usize,
        /// The move.
        text: String,
        /// The last column.
        last: Column,
    },
    /// The column of a move is full.
    #[error("illegal move {number}, {column}: the column is full; choose another")]
    Full {
        /// Number of the move, from 1.
        number: usize,
        /// The column.
        column: Column,
    },
    /// A move follows the end of the game.
    #[error("illegal move {number}: {outcome}; leave out this move")]
    GameOver {
        /// Number of the move, from 1.
        number: usize,
        /// The outcome of the game.
        outcome: Outcome,
    },
}

//! Connections that hold whoever moves: Anshelevich's H-search (*A hierarchical approach to computer Hex*, 2002).
//!
//! Two stones that share two empty neighbours form a *bridge*: if the opponent takes one of the two cells, the other
//! joins the stones. Whole chains from edge to edge are made of such links, so a game is often decided long before it
//! is over, and before that there are few moves that put it off. This module finds out, from a player's stones.
//!
//! The ends of a connection are [points](board::Point): empty cells (as if the player's stone lay there), edges, and
//! chains of his stones. The cells that a connection needs, its ends left out, are its *carrier*.
//!
//! **Invariant:** every carrier recorded keeps its promise, if nothing but cells of the carrier is played:
//!
//! - a **full** connection's ends get joined although the opponent moves first;
//! - a **semi** connection's ends get joined if its owner moves first.
//!
//! Both are built from adjacent points, which are fully connected over no cell at all, by two rules:
//!
//! - **and:** two full connections meet in a point. They have no cell in common, and neither goes through an end of the other.
//!   Over a chain they make a full connection of the outer ends: wherever the opponent intrudes, one is answered and the
//!   other stays whole. Over an empty cell they make a semi one, whose owner begins by taking the cell;
//! - **or:** semis of the same ends, no cell in common to all, make a full one: whatever the opponent takes, one of
//!   them is left whole.
//!
//! An opponent who has to stop a semi connection from edge to edge must play in its carrier, and if there are several,
//! in all of them.
//!
//! How many carriers are kept for two ends, how many semis are put together and how many connections are tried on each
//! other is [limited](search), which costs completeness, but never truth. Nor is an edge ever the point in which
//! connections meet: that seldom tells anything new.

mod board;
mod carrier;
mod search;

use super::Position;
use super::cell_set::CellSet;
use super::flood::transposed;
use crate::game::Player;
use board::Board;
use search::{Search, Until};

/// How close a player is to joining his edges, when the opponent is to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prospect {
    /// Nothing is certain.
    Open,
    /// He wins unless the opponent plays on one of these cells now.
    Threat(CellSet),
    /// He wins whatever the opponent does.
    Won,
}

/// What `player`, who has not yet won, can count on when the opponent is to move.
pub(super) fn prospect(position: &Position, player: Player) -> Prospect {
    look(position, player, Until::Full)
}

/// Whether `player`, who has not yet won, is seen to win when he is to move himself.
pub(super) fn can_join(position: &Position, player: Player) -> bool {
    look(position, player, Until::Semi) != Prospect::Open
}

fn look(position: &Position, player: Player, until: Until) -> Prospect {
    // A stone seldom holds more than two rows on either side of it; nor does the stone still to be played.
    if 4 * (position.stones_of(player).len() as usize + 1) + 1 < position.size() {
        return Prospect::Open;
    }
    // White's edges are black's on the transposed board.
    let seen = |set: CellSet| match player {
        Player::First => set,
        Player::Second => {
            let columns = transposed(set.rows());
            CellSet::from_rows(|row| columns[row])
        }
    };
    let board = Board::new(position.size(), seen(position.stones_of(player)), seen(position.empty_set()));
    // No wider carriers than it takes.
    let prospect = match board.cells.len() {
        0..=64 => Search::<1>::new(&board).run(until),
        65..=128 => Search::<2>::new(&board).run(until),
        _ => Search::<4>::new(&board).run(until),
    };
    match prospect {
        Prospect::Threat(cells) => Prospect::Threat(seen(cells)),
        certain => certain,
    }
}

#[cfg(test)]
mod tests;

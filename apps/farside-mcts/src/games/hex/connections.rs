//! Virtual connections, by Anshelevich's H-search (*A hierarchical approach to computer Hex*,
//! 2002).
//!
//! Two stones that share two empty neighbours form a *bridge*: if the opponent takes one of the two
//! cells, the other joins the stones. Such links form whole chains from edge to edge. So a game is
//! often decided long before it is over, and shortly before that few moves delay the decision. This
//! module derives both from a player's stones.
//!
//! The ends of a connection are [points](board::Point): empty cells (as if the player had a stone
//! there), edges, and chains of the player's stones. The cells that a connection needs, without its
//! ends, are its *carrier*.
//!
//! **Invariant:** if both players play only in the carrier, then
//!
//! - the owner of a **full** connection joins its ends even if the opponent moves first;
//! - the owner of a **semi** connection joins its ends if it moves first.
//!
//! Adjacent points have a full connection with an empty carrier. All others follow by two rules:
//!
//! - **and:** two full connections meet in a point. Their carriers are disjoint, and neither
//!   contains an end of the other. If the point is a chain, the outer ends have a full connection:
//!   where the opponent intrudes, the owner answers, and the other connection stays intact. If the
//!   point is an empty cell, the outer ends have a semi connection: the owner first takes the cell.
//! - **or:** semi connections of the same ends, whose carriers have no cell in common to all, form
//!   a full connection: whichever cell the opponent takes, one of them stays intact.
//!
//! To stop a semi connection from edge to edge, the opponent must play in its carrier. If there are
//! several, it must play in the intersection of their carriers.
//!
//! The numbers of carriers for two ends, of combined semi connections and of combinations are
//! [limited](search). The limits cost completeness, but not soundness. Connections do not meet in
//! an edge, as that seldom yields a new one.

mod board;
mod carrier;
mod search;

use super::Position;
use super::cell_set::CellSet;
use super::flood::transposed;
use crate::game::Player;
use board::Board;
use search::{Search, Until};

/// A player's certainty of joining its edges, with the opponent to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prospect {
    /// Nothing is certain.
    Open,
    /// The player wins unless the opponent plays on one of these cells now.
    Threat(CellSet),
    /// The player wins against any play.
    Won,
}

/// Returns the prospect of `player`, which has not won yet, with the opponent to move.
pub(super) fn prospect(position: &Position, player: Player) -> Prospect {
    look(position, player, Until::Full)
}

/// Returns whether `player`, which has not won yet, certainly wins with `player` to move.
pub(super) fn can_join(position: &Position, player: Player) -> bool {
    look(position, player, Until::Semi) != Prospect::Open
}

fn look(position: &Position, player: Player, until: Until) -> Prospect {
    // A stone, including the next one, seldom connects more than two rows on either side of it.
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
    // Uses the narrowest carriers that hold all empty cells.
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

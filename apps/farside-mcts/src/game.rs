//! The description of a game: [`Game`].

use std::fmt::{self, Debug};
use std::ops::{Add, AddAssign};

use farside::Wire;

use crate::Rng;

/// A game of two players with full information and no chance.
///
/// The description is sequential: it knows no trees, threads or processes. A state moves between
/// workers by value, so it contains the whole position and no references.
///
/// ```
/// use farside_mcts::{Game, Outcome, Player};
///
/// /// Take one, two or three matches; the player that takes the last one wins.
/// struct Nim;
///
/// impl Game for Nim {
///     type State = (u32, bool); // matches left, and whether the second player is to move
///     type Move = u32;
///
///     fn initial(&self) -> Self::State {
///         (21, false)
///     }
///     fn to_move(&self, &(_, second): &Self::State) -> Player {
///         if second { Player::Second } else { Player::First }
///     }
///     fn moves(&self, &(left, _): &Self::State, moves: &mut Vec<u32>) {
///         moves.extend(1..=left.min(3));
///     }
///     fn play(&self, state: &mut Self::State, taken: u32) {
///         *state = (state.0 - taken, !state.1);
///     }
///     fn outcome(&self, state: &Self::State) -> Option<Outcome> {
///         (state.0 == 0).then(|| Outcome::Won(self.to_move(state).opponent()))
///     }
/// }
/// ```
pub trait Game: Send + Sync + 'static {
    /// A position, with everything that the rest of the game depends on.
    type State: Wire + Clone;
    /// A move. A tree stores one for each edge, so it should be small.
    type Move: Wire + Sync + Copy + Eq + Debug;

    /// Returns the initial position.
    fn initial(&self) -> Self::State;

    /// Returns the player to move. Players need not alternate.
    fn to_move(&self, state: &Self::State) -> Player;

    /// Appends every legal move once, in an order that depends only on the state. The search does
    /// not call it after the end of the game.
    fn moves(&self, state: &Self::State, moves: &mut Vec<Self::Move>);

    /// Plays a legal move.
    fn play(&self, state: &mut Self::State, chosen: Self::Move);

    /// Returns the outcome, or `None` if the game is not over. The search calls it for each new
    /// leaf, so it should be fast.
    fn outcome(&self, state: &Self::State) -> Option<Outcome>;

    /// Either appends at least one move to search, or returns the outcome with best play. The
    /// search calls it once for each node, while the game is not over.
    ///
    /// By default it appends all legal moves. A game may skip a move that is no better than an
    /// appended one.
    fn study(&self, state: &Self::State, moves: &mut Vec<Self::Move>) -> Option<Outcome> {
        self.moves(state, moves);
        None
    }

    /// Returns the first player's points in `simulations` random games from `state`.
    ///
    /// By default it plays each game move by move, with equal probability for all legal moves. A
    /// game may replace this by a faster or better estimate.
    fn simulate(&self, state: &Self::State, simulations: u32, rng: &mut Rng) -> Points {
        let mut moves = Vec::new();
        let mut points = Points::default();
        for _ in 0..simulations {
            let mut state = state.clone();
            let outcome = loop {
                if let Some(outcome) = self.outcome(&state) {
                    break outcome;
                }
                moves.clear();
                self.moves(&state, &mut moves);
                let count = u32::try_from(moves.len()).expect("fewer than 2^32 moves");
                self.play(&mut state, moves[rng.below(count) as usize]);
            };
            points += Points::certain(outcome, 1);
        }
        points
    }
}

/// One of the two players.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Wire)]
pub enum Player {
    /// The player to move in the initial position.
    First,
    /// The other player.
    Second,
}

impl Player {
    /// Returns the other player.
    #[must_use]
    #[inline]
    pub const fn opponent(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// The outcome of a game.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub enum Outcome {
    /// This player won.
    Won(Player),
    /// No player won.
    Drawn,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Won(Player::First) => "the first player has won",
            Self::Won(Player::Second) => "the second player has won",
            Self::Drawn => "the game is drawn",
        })
    }
}

/// The first player's points in a number of games: 2 for each win, 1 for each draw.
///
/// Points are integers, so that sums do not depend on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Wire)]
pub struct Points(u32);

impl Points {
    /// Returns the points of `count` wins of the first player.
    #[must_use]
    #[inline]
    pub const fn wins(count: u32) -> Self {
        Self(2 * count)
    }

    /// Returns the points of `count` draws.
    #[must_use]
    #[inline]
    pub const fn draws(count: u32) -> Self {
        Self(count)
    }

    /// Returns the points of `count` games with this outcome.
    #[must_use]
    #[inline]
    pub const fn certain(outcome: Outcome, count: u32) -> Self {
        match outcome {
            Outcome::Won(Player::First) => Self::wins(count),
            Outcome::Won(Player::Second) => Self(0),
            Outcome::Drawn => Self::draws(count),
        }
    }

    /// Returns these points of `count` games, raised to those of draws if `player` has fewer.
    pub(crate) fn at_least_drawn(self, player: Player, count: u32) -> Self {
        match player {
            Player::First => self.max(Self::draws(count)),
            Player::Second => self.min(Self::draws(count)),
        }
    }

    /// Returns the points of `player`, if these are the first player's in `count` games.
    #[inline]
    pub(crate) const fn of(self, player: Player, count: u32) -> u32 {
        match player {
            Player::First => self.0,
            Player::Second => 2 * count - self.0,
        }
    }
}

impl Add for Points {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Points {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

//! What a game must say about itself to be searched: [`Game`].

use std::fmt::{self, Debug};
use std::ops::{Add, AddAssign};

use farside::Wire;

use crate::Rng;

/// A game of two players with full information and no chance, described sequentially.
///
/// Nothing here knows of trees, threads or processes. A state travels between workers by value, so it holds the whole
/// position and points at nothing.
///
/// ```
/// use farside_mcts::{Game, Outcome, Player};
///
/// /// Take one, two or three matches; who takes the last one wins.
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
    /// A position with everything that decides how the game goes on.
    type State: Wire + Clone;
    /// A move. Small: a tree keeps one for each edge.
    type Move: Wire + Sync + Copy + Eq + Debug;

    /// Where a game begins.
    fn initial(&self) -> Self::State;

    /// Who moves next. Players need not alternate.
    fn to_move(&self, state: &Self::State) -> Player;

    /// Appends every legal move, each once, always in the same order. Never called when the game is over.
    fn moves(&self, state: &Self::State, moves: &mut Vec<Self::Move>);

    /// Plays a legal move.
    fn play(&self, state: &mut Self::State, chosen: Self::Move);

    /// How the game ended, or `None` while it goes on. Called for each new leaf, so it is worth being quick.
    fn outcome(&self, state: &Self::State) -> Option<Outcome>;

    /// What is worth searching in a position in which the game goes on: appends moves to search, at least one, or tells
    /// how the game ends if both sides play their best. Asked once for each node.
    ///
    /// By default all legal moves. A game that knows better leaves out what is no better than a move that it appends.
    fn study(&self, state: &Self::State, moves: &mut Vec<Self::Move>) -> Option<Outcome> {
        self.moves(state, moves);
        None
    }

    /// What the first player makes of `simulations` random games played on from `state`.
    ///
    /// By default each is played move by move, every legal move equally likely. A game that can estimate a position
    /// faster, or better, does so here.
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

/// One of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Wire)]
pub enum Player {
    /// The side that moves first from the initial position.
    First,
    /// The other one.
    Second,
}

impl Player {
    /// The other side.
    #[must_use]
    #[inline]
    pub const fn opponent(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// How a game ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub enum Outcome {
    /// This side won.
    Won(Player),
    /// Nobody did.
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

/// What the first player made of a number of games: 2 for each win, 1 for each draw.
///
/// Whole numbers, so that sums do not depend on the order in which workers report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Wire)]
pub struct Points(u32);

impl Points {
    /// So many games won by the first player.
    #[must_use]
    #[inline]
    pub const fn wins(count: u32) -> Self {
        Self(2 * count)
    }

    /// So many drawn games.
    #[must_use]
    #[inline]
    pub const fn draws(count: u32) -> Self {
        Self(count)
    }

    /// So many games that all ended like this.
    #[must_use]
    #[inline]
    pub const fn certain(outcome: Outcome, count: u32) -> Self {
        match outcome {
            Outcome::Won(Player::First) => Self::wins(count),
            Outcome::Won(Player::Second) => Self(0),
            Outcome::Drawn => Self::draws(count),
        }
    }

    /// These points of so many games, but no fewer than draws for `player`.
    pub(crate) fn at_least_drawn(self, player: Player, count: u32) -> Self {
        match player {
            Player::First => self.max(Self::draws(count)),
            Player::Second => self.min(Self::draws(count)),
        }
    }

    /// The points of `player`, when these are the first player's of `count` games.
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

//! Searching: a game, parameters, where to run, and a budget.

mod budget;
mod job;
mod local;
mod params;
mod report;
mod session;

use std::fmt;
use std::ops::ControlFlow;

use crate::game::{Game, Outcome};

pub use budget::{Budget, MAX_ROLLOUTS};
pub use job::{Costs, JobError, JobReport, JobSession, OnJob, Pace, Placement, Replicas, Sharing, WorkerReport};
pub use local::Local;
pub use params::Params;
pub use report::{MoveReport, Report};
pub use session::Session;

/// A search of one game, with its parameters and the place where it runs.
///
/// ```
/// use farside_mcts::{Budget, Game, Local, Params, Search, games::hex::Hex};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let hex = Hex::new(3)?;
/// let start = hex.initial();
/// let report = Search::new(hex)
///     .params(Params { seed: 7, ..Params::default() })
///     .on(Local)
///     .run(&start, Budget::Rollouts(1000))?;
/// assert_eq!(report.rollouts, 1000);
/// assert_eq!(report.best.chosen.to_string(), "b2");
/// # Ok(())
/// # }
/// ```
pub struct Search<G: Game, P = Local> {
    pub(crate) game: G,
    pub(crate) params: Params,
    pub(crate) place: P,
    pub(crate) observer: Option<Observer<G>>,
}

/// Who is shown interim reports, and how often.
pub(crate) struct Observer<G: Game> {
    pub(crate) every: u64,
    pub(crate) show: Box<ShowReport<G>>,
}

type ShowReport<G> = dyn FnMut(&Report<<G as Game>::Move>) -> ControlFlow<()> + Send;

impl<G: Game> Search<G> {
    /// A search with default parameters, in this thread.
    #[must_use]
    pub fn new(game: G) -> Self {
        Self { game, params: Params::default(), place: Local, observer: None }
    }
}

impl<G: Game, P> Search<G, P> {
    /// Replaces the parameters.
    #[must_use]
    pub fn params(mut self, params: Params) -> Self {
        self.params = params;
        self
    }

    /// Says where the search runs.
    #[must_use]
    pub fn on<Q>(self, place: Q) -> Search<G, Q> {
        Search { game: self.game, params: self.params, place, observer: self.observer }
    }

    /// Shows an interim report after every so many rollouts (0 counts as 1); a `Break` ends the search there.
    ///
    /// *Cost:* a report takes about as long as one rollout.
    #[must_use]
    pub fn observe(
        mut self,
        every: u64,
        show: impl FnMut(&Report<G::Move>) -> ControlFlow<()> + Send + 'static,
    ) -> Self {
        self.observer = Some(Observer { every: every.max(1), show: Box::new(show) });
        self
    }

    /// The game.
    #[must_use]
    pub fn game(&self) -> &G {
        &self.game
    }
}

impl<G: Game + fmt::Debug, P: fmt::Debug> fmt::Debug for Search<G, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Search")
            .field("game", &self.game)
            .field("params", &self.params)
            .field("place", &self.place)
            .field("observed_every", &self.observer.as_ref().map(|observer| observer.every))
            .finish()
    }
}

/// What may be searched at the root of a tree.
///
/// # Errors
/// When that is nothing.
fn root_moves<G: Game>(game: &G, state: &G::State) -> Result<Vec<G::Move>, SearchError> {
    if let Some(outcome) = game.outcome(state) {
        return Err(SearchError::GameOver(outcome));
    }
    let mut moves = Vec::new();
    if game.study(state, &mut moves).is_some() {
        // The outcome is known, but not yet the move that leads there.
        moves.clear();
        game.moves(state, &mut moves);
    }
    if moves.is_empty() { Err(SearchError::NoMoves) } else { Ok(moves) }
}

/// The position after a move, and what may be searched there.
///
/// # Errors
/// When the move is not legal, or there is nothing left to search after it.
fn after<G: Game>(game: &G, state: &G::State, chosen: G::Move) -> Result<(G::State, Vec<G::Move>), SearchError> {
    let mut moves = Vec::new();
    game.moves(state, &mut moves);
    if !moves.contains(&chosen) {
        return Err(SearchError::IllegalMove);
    }
    let mut next = state.clone();
    game.play(&mut next, chosen);
    let moves = root_moves(game, &next)?;
    Ok((next, moves))
}

/// Why a search cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// There is nothing left to search.
    #[error("{0}: search a position in which the game still goes on")]
    GameOver(Outcome),
    /// The game goes on, but says that there are no moves.
    #[error("the position has no legal move and yet is not over: correct the game's `moves` or `outcome`")]
    NoMoves,
    /// The budget allows for nothing.
    #[error("the budget is zero: allow at least one rollout, or some time")]
    ZeroBudget,
    /// The budget is more than visits can be counted.
    #[error("the budget of {rollouts} rollouts is above the {left} that can still be counted: allow for fewer")]
    BudgetTooLarge {
        /// What was asked for.
        rollouts: u64,
        /// [`MAX_ROLLOUTS`], without those that were made already.
        left: u64,
    },
    /// A session was to go on with a move that cannot be played.
    #[error("the move is not legal in the position that is searched: advance by moves that the game offers there")]
    IllegalMove,
    /// The number of simulations for a leaf is outside its range.
    #[error("{simulations} simulations for a leaf: choose 1 to {max}", max = Params::MAX_SIMULATIONS)]
    Simulations {
        /// What was asked for.
        simulations: u32,
    },
    /// The exploration constant is negative or no number.
    #[error("the exploration constant is {exploration}: choose a number from 0, such as 0.5")]
    Exploration {
        /// What was asked for.
        exploration: f32,
    },
    /// The memory limit leaves no room for the first node.
    #[error("{bytes} bytes cannot hold a single node: raise the memory limit")]
    Memory {
        /// What was asked for.
        bytes: usize,
    },
}

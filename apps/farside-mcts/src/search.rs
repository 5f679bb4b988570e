//! A search: a game, parameters, a place to run, and a budget.

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
pub use job::{Branch, Costs, JobError, JobReport, JobSession, OnJob, Placement, Window, WorkerReport};
pub use local::Local;
pub use params::Params;
pub use report::{MoveReport, Report};
pub use session::Session;

/// A search of one game, with its parameters and its place to run.
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
/// // The search ends early when the outcome is proven.
/// assert!(report.rollouts <= 1000);
/// assert_eq!(report.best.chosen.to_string(), "b2");
/// # Ok(())
/// # }
/// ```
pub struct Search<G: Game, P = Local> {
    pub(crate) game: G,
    pub(crate) params: Params,
    pub(crate) place: P,
    pub(crate) observer: Option<Observer<G>>,
    pub(crate) tuner: Option<Tuner>,
}

/// Returns the exploration constant when a search asks for it.
type Tuner = Box<dyn FnMut() -> f32 + Send>;

/// The receiver of interim reports.
pub(crate) struct Observer<G: Game> {
    /// Number of rollouts between two reports.
    pub(crate) every: u64,
    pub(crate) show: Box<ShowReport<G>>,
}

type ShowReport<G> = dyn FnMut(&Report<<G as Game>::Move>) -> ControlFlow<()> + Send;

impl<G: Game> Search<G> {
    /// Returns a search with default parameters, in this thread.
    #[must_use]
    pub fn new(game: G) -> Self {
        Self { game, params: Params::default(), place: Local, observer: None, tuner: None }
    }
}

impl<G: Game, P> Search<G, P> {
    /// Replaces the parameters.
    #[must_use]
    pub fn params(mut self, params: Params) -> Self {
        self.params = params;
        self
    }

    /// Sets the place to run: [`Local`] or [`OnJob`](crate::OnJob).
    #[must_use]
    pub fn on<Q>(self, place: Q) -> Search<G, Q> {
        Search { game: self.game, params: self.params, place, observer: self.observer, tuner: self.tuner }
    }

    /// Calls `show` with an interim report after each `every` rollouts (0 counts as 1). If it
    /// returns `Break`, the search ends.
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

    /// Returns the game.
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

/// Returns the moves to search at the root of a tree.
///
/// # Errors
/// [`SearchError::GameOver`] or [`SearchError::NoMoves`] if there is none.
fn root_moves<G: Game>(game: &G, state: &G::State) -> Result<Vec<G::Move>, SearchError> {
    if let Some(outcome) = game.outcome(state) {
        return Err(SearchError::GameOver(outcome));
    }
    let mut moves = Vec::new();
    if game.study(state, &mut moves).is_some() {
        // The outcome is known, but not the move that leads to it.
        moves.clear();
        game.moves(state, &mut moves);
    }
    if moves.is_empty() { Err(SearchError::NoMoves) } else { Ok(moves) }
}

/// Returns the position after a move, and the moves to search there.
///
/// # Errors
/// If the move is illegal, or the position after it has no moves to search.
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

/// The errors of a search that cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// The game is over.
    #[error("cannot search: {0}; pass a position in which the game is not over")]
    GameOver(Outcome),
    /// The game is not over, but has no moves.
    #[error("cannot search: the game is not over and has no legal move; correct its `moves` or `outcome`")]
    NoMoves,
    /// The budget is zero.
    #[error("cannot search: the budget is zero; allow at least one rollout, or some time")]
    ZeroBudget,
    /// The budget exceeds the range of the visit counters.
    #[error("cannot search: the budget of {rollouts} rollouts exceeds the {left} that can be counted; allow fewer")]
    BudgetTooLarge {
        /// The budget.
        rollouts: u64,
        /// [`MAX_ROLLOUTS`] minus the rollouts made before.
        left: u64,
    },
    /// A session was advanced by an illegal move.
    #[error("cannot advance: the move is illegal in the session's position; pass one of the game's moves")]
    IllegalMove,
    /// The number of simulations for a leaf is outside its range.
    #[error("invalid value {simulations} for simulations: expected 1 to {max}", max = Params::MAX_SIMULATIONS)]
    Simulations {
        /// The number.
        simulations: u32,
    },
    /// The exploration constant is negative or not finite.
    #[error("invalid value {exploration} for exploration: expected a finite number from 0, such as 0.1")]
    Exploration {
        /// The constant.
        exploration: f32,
    },
    /// The memory limit is too small for one node on each worker.
    #[error("cannot search: {bytes} bytes of memory cannot hold a node; raise the memory limit")]
    Memory {
        /// The limit.
        bytes: usize,
    },
}

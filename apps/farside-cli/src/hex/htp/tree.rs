//! Keeps the tree of one search for the next.

use farside_mcts::games::hex::{Cell, Hex, Position};
use farside_mcts::{Budget, JobError, JobSession, Params, Report, SearchError, Session};

/// The part of an order that all workers need.
#[derive(Clone, Copy, Debug, farside::Wire)]
pub(super) struct Task {
    pub(super) game: Hex,
    pub(super) position: Position,
    pub(super) params: Params,
    pub(super) budget: Budget,
    pub(super) reuses: bool,
}

/// A search that keeps its tree, in one thread or on a job.
pub(super) trait Keeps {
    fn position(&self) -> &Position;
    fn run(&mut self, budget: Budget) -> Result<Report<Cell>, JobError>;
    fn advance(&mut self, cell: Cell) -> Result<(), JobError>;
}

impl Keeps for Session<Hex> {
    fn position(&self) -> &Position {
        self.state()
    }

    fn run(&mut self, budget: Budget) -> Result<Report<Cell>, JobError> {
        Ok(Session::run(self, budget)?)
    }

    fn advance(&mut self, cell: Cell) -> Result<(), JobError> {
        Ok(Session::advance(self, cell)?)
    }
}

impl Keeps for JobSession<'_, Hex> {
    fn position(&self) -> &Position {
        self.state()
    }

    fn run(&mut self, budget: Budget) -> Result<Report<Cell>, JobError> {
        JobSession::run(self, budget)
    }

    fn advance(&mut self, cell: Cell) -> Result<(), JobError> {
        JobSession::advance(self, cell)
    }
}

/// The last search, if there was one.
#[derive(Debug)]
pub(super) struct Kept<S>(Option<(Hex, Params, S)>);

impl<S> Default for Kept<S> {
    fn default() -> Self {
        Self(None)
    }
}

impl<S: Keeps> Kept<S> {
    /// Continues the last search if the task can use it, or begins a new one.
    ///
    /// The outer result is that of the job. Workers that get the same tasks all decide the same.
    pub(super) fn search(
        &mut self,
        task: &Task,
        begin: impl Fn() -> Result<S, JobError>,
    ) -> farside::Result<Result<Report<Cell>, SearchError>> {
        match self.try_search(task, begin) {
            Ok(report) => Ok(Ok(report)),
            Err(JobError::Search(error)) => Ok(Err(error)),
            Err(error) => Err(error.into()),
        }
    }

    fn try_search(&mut self, task: &Task, begin: impl Fn() -> Result<S, JobError>) -> Result<Report<Cell>, JobError> {
        let mut session = match self.follow(task)? {
            Some(session) => session,
            None => begin()?,
        };
        let report = match session.run(task.budget) {
            // The counters of the kept tree have no room for the budget: begin with an empty tree.
            Err(JobError::Search(SearchError::BudgetTooLarge { .. })) => {
                // Only one session can be open at a time.
                drop(session);
                session = begin()?;
                session.run(task.budget)
            }
            other => other,
        }?;
        self.0 = Some((task.game, task.params, session));
        Ok(report)
    }

    /// Returns the last search, advanced to the position of the task.
    fn follow(&mut self, task: &Task) -> Result<Option<S>, JobError> {
        let Some((game, params, mut session)) = self.0.take() else { return Ok(None) };
        if !task.reuses || (game, params) != (task.game, task.params) {
            return Ok(None);
        }
        let Some(moves) = session.position().moves_to(&task.position) else { return Ok(None) };
        for cell in moves {
            match session.advance(cell) {
                Ok(()) => {}
                Err(JobError::Search(_)) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(session))
    }
}

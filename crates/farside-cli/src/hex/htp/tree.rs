//! What is kept of one search for the next.

use farside_mcts::games::hex::{Cell, Hex, Position};
use farside_mcts::{Budget, JobError, JobSession, Params, Report, SearchError, Session};

/// What all workers must know of an order.
#[derive(Clone, Copy, Debug, farside::Wire)]
pub(super) struct Task {
    pub(super) game: Hex,
    pub(super) position: Position,
    pub(super) params: Params,
    pub(super) budget: Budget,
    pub(super) reuses: bool,
}

/// A search that keeps its tree, wherever it runs.
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

/// The search before, if there was one.
#[derive(Debug)]
pub(super) struct Kept<S>(Option<(Hex, Params, S)>);

impl<S> Default for Kept<S> {
    fn default() -> Self {
        Self(None)
    }
}

impl<S: Keeps> Kept<S> {
    /// Goes on with the search before, if the task can make use of it, or begins another.
    ///
    /// The outer result is that of the job. Workers who are given the same tasks all do the same.
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
            // There have been so many that no more can be counted.
            Err(JobError::Search(SearchError::BudgetTooLarge { .. })) => {
                // There may only be one at a time.
                drop(session);
                session = begin()?;
                session.run(task.budget)
            }
            other => other,
        }?;
        self.0 = Some((task.game, task.params, session));
        Ok(report)
    }

    /// The search before, led to the position of the task.
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

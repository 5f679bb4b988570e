//! A search in one thread that keeps its tree from move to move.

use std::fmt;
use std::time::Instant;

use super::local::Descent;
use super::{Budget, Local, Report, Search, SearchError, after};
use crate::game::Game;

/// A search that keeps its tree between runs, and follows the game as moves are played.
///
/// ```
/// use farside_mcts::{Budget, Game, Search, games::hex::Hex};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let hex = Hex::new(7)?;
/// let mut session = Search::new(hex).session(&hex.initial())?;
/// let report = session.run(Budget::Rollouts(5000))?;
/// session.advance(report.best.chosen)?;
/// let answer = session.run(Budget::Rollouts(5000))?;
/// assert!(answer.kept > 0 && answer.rollouts == 5000);
/// # Ok(())
/// # }
/// ```
pub struct Session<G: Game> {
    search: Search<G, Local>,
    descent: Descent<G>,
    state: G::State,
}

impl<G: Game> Search<G, Local> {
    /// Begins a search that keeps its tree.
    ///
    /// # Errors
    /// [`SearchError`] if the game is over or a parameter is invalid.
    pub fn session(self, state: &G::State) -> Result<Session<G>, SearchError> {
        let descent = Descent::new(&self.game, &self.params, state)?;
        Ok(Session { search: self, descent, state: state.clone() })
    }
}

impl<G: Game> Session<G> {
    /// Continues the search in its tree. The moves of the report count the visits of all runs; its
    /// other figures are those of this run.
    ///
    /// # Errors
    /// [`SearchError`] if the budget is invalid. The session is unchanged.
    pub fn run(&mut self, budget: Budget) -> Result<Report<G::Move>, SearchError> {
        self.descent.run(&mut self.search, &self.state, budget)
    }

    /// Plays a move. The next run searches the position after it.
    ///
    /// Keeps the part of the tree below the move, and frees the rest. A legal move that was not
    /// searched leaves an empty tree.
    ///
    /// *Cost*: one walk through the tree, which moves the nodes that stay.
    ///
    /// # Errors
    /// [`SearchError::IllegalMove`]; [`SearchError::GameOver`] or [`SearchError::NoMoves`] if the
    /// position after the move cannot be searched. The session is unchanged.
    pub fn advance(&mut self, chosen: G::Move) -> Result<(), SearchError> {
        let (state, moves) = after(&self.search.game, &self.state, chosen)?;
        self.descent.advance(self.search.game.to_move(&state), chosen, &moves)?;
        self.state = state;
        Ok(())
    }

    /// Returns a report of the kept tree without a run, or `None` if the tree is empty.
    #[must_use]
    pub fn report(&self) -> Option<Report<G::Move>> {
        self.descent.report(Instant::now())
    }

    /// Returns the position of the next run.
    #[must_use]
    pub fn state(&self) -> &G::State {
        &self.state
    }

    /// Returns the game.
    #[must_use]
    pub fn game(&self) -> &G {
        &self.search.game
    }

    /// Drops the tree and returns the search.
    #[must_use]
    pub fn end(self) -> Search<G, Local> {
        self.search
    }
}

impl<G: Game + fmt::Debug> fmt::Debug for Session<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("search", &self.search).field("nodes", &self.descent.node_count()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::games::hex::{Cell, Hex};
    use crate::search::local::KnownEdge;
    use crate::{MAX_ROLLOUTS, Params};

    const SOME: Budget = Budget::Rollouts(3000);

    fn session(size: usize, params: Params) -> Session<Hex> {
        let hex = Hex::new(size).unwrap();
        Search::new(hex).params(params).session(&hex.initial()).unwrap()
    }

    #[test]
    fn advancing_keeps_the_nodes_below_the_move_and_frees_the_rest() {
        for seed in 0..4 {
            let mut session = session(5, Params { seed, expand_after: 1, ..Params::default() });
            for ply in 0..5 {
                let report = session.run(SOME).unwrap();
                assert_eq!(
                    report.moves.iter().map(|known| u64::from(known.visits)).sum::<u64>(),
                    report.kept + report.rollouts
                );
                // Different moves, the best one among them.
                let chosen = report.moves[(seed as usize * ply) % 3].chosen;
                let known = session.descent.knowledge();
                let expected: Vec<_> = known
                    .into_iter()
                    .filter(|(path, ..)| path.len() > 1 && path[0] == chosen)
                    .map(|(path, visits, rate, proof)| (path[1..].to_vec(), visits, rate, proof))
                    .collect();
                session.advance(chosen).unwrap();
                let mut found = session.descent.knowledge();
                let mut expected = expected;
                let name = |known: &KnownEdge<Cell>| format!("{:?}", known.0);
                expected.sort_by_key(name);
                found.sort_by_key(name);
                assert_eq!(found, expected);
                assert!(!found.is_empty());
                let now = session.report().unwrap();
                assert!(now.nodes < report.nodes && now.tree_bytes < report.tree_bytes);
                assert_eq!((now.rollouts, now.mean_depth), (0, 0.0));
            }
        }
    }

    #[test]
    fn a_run_continues_the_last_one() {
        let mut in_steps = session(6, Params::default());
        in_steps.run(SOME).unwrap();
        let steps = in_steps.run(SOME).unwrap();
        let at_once = session(6, Params::default()).run(Budget::Rollouts(6000)).unwrap();
        assert_eq!((steps.rollouts, steps.kept), (3000, 3000));
        assert_eq!((steps.moves, steps.line, steps.nodes), (at_once.moves, at_once.line, at_once.nodes));
    }

    #[test]
    fn an_untried_move_leaves_an_empty_tree() {
        let mut session = session(9, Params::default());
        let report = session.run(Budget::Rollouts(1)).unwrap();
        let untried = session.state().empty_cells().find(|cell| *cell != report.best.chosen).unwrap();
        session.advance(untried).unwrap();
        assert_eq!(session.report(), None);
        assert_eq!(session.run(SOME).unwrap().kept, 0);
        // Advancing frees the memory of a full tree.
        let mut session = self::session(9, Params { memory_bytes: 40_000, expand_after: 1, ..Params::default() });
        let full = session.run(SOME).unwrap();
        let known = session.descent.knowledge();
        let leaf = known.iter().find(|(path, ..)| {
            path.len() == 1 && !known.iter().any(|(below, ..)| below.len() > 1 && below[0] == path[0])
        });
        session.advance(leaf.unwrap().0[0]).unwrap();
        let again = session.run(SOME).unwrap();
        assert!(again.nodes > 1 && full.nodes > 1 && again.tree_bytes <= 40_000);
    }

    #[test]
    fn invalid_arguments_are_refused_and_change_nothing() {
        let mut session = session(2, Params { expand_after: 0, ..Params::default() });
        let report = session.run(SOME).unwrap();
        assert!(report.solved.is_some() && report.rollouts < 3000);
        let elsewhere: Cell = "c3".parse().unwrap();
        assert_eq!(session.advance(elsewhere), Err(SearchError::IllegalMove));
        let rollouts = MAX_ROLLOUTS;
        let left = MAX_ROLLOUTS - report.rollouts;
        assert_eq!(session.run(Budget::Rollouts(rollouts)), Err(SearchError::BudgetTooLarge { rollouts, left }));
        // The position is solved, so a run makes no rollouts.
        let again = session.run(SOME).unwrap();
        assert_eq!((again.rollouts, again.kept, again.solved), (0, report.rollouts, report.solved));
        session.advance("a2".parse().unwrap()).unwrap();
        session.advance("a1".parse().unwrap()).unwrap();
        let before = *session.state();
        let over = session.advance("b1".parse().unwrap()).unwrap_err();
        assert!(matches!(over, SearchError::GameOver(_)), "{over}");
        assert_eq!(*session.state(), before);
    }
}

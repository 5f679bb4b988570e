//! A search in one thread that goes on from move to move.

use std::fmt;
use std::time::Instant;

use super::local::Descent;
use super::{Budget, Local, Report, Search, SearchError, after};
use crate::game::Game;

/// A search that keeps its tree: it can be continued, and follow the game as moves are played.
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
    /// Begins a search that can be continued.
    ///
    /// # Errors
    /// [`SearchError`] if the game is over, or a parameter makes no sense.
    pub fn session(self, state: &G::State) -> Result<Session<G>, SearchError> {
        let descent = Descent::new(&self.game, &self.params, state)?;
        Ok(Session { search: self, descent, state: state.clone() })
    }
}

impl<G: Game> Session<G> {
    /// Searches on, in the tree that there is. The report's moves count the visits of all runs, its other figures are of
    /// this one.
    ///
    /// # Errors
    /// [`SearchError`] if the budget makes no sense. The session is as it was.
    pub fn run(&mut self, budget: Budget) -> Result<Report<G::Move>, SearchError> {
        self.descent.run(&mut self.search, &self.state, budget)
    }

    /// Plays a move: the position after it is searched from now on. What is known of it is kept, the rest of the tree is
    /// dropped, and its memory used again.
    ///
    /// Any legal move will do, also one that was not searched; the tree then begins anew.
    ///
    /// *Cost*: the tree is walked through once, and what is kept is moved.
    ///
    /// # Errors
    /// [`SearchError::IllegalMove`]; [`SearchError::GameOver`] or [`SearchError::NoMoves`] if there is nothing to search
    /// after this move. The session is as it was.
    pub fn advance(&mut self, chosen: G::Move) -> Result<(), SearchError> {
        let (state, moves) = after(&self.search.game, &self.state, chosen)?;
        self.descent.advance(self.search.game.to_move(&state), chosen, &moves)?;
        self.state = state;
        Ok(())
    }

    /// What is known without searching on. `None` if nothing is.
    #[must_use]
    pub fn report(&self) -> Option<Report<G::Move>> {
        self.descent.report(Instant::now())
    }

    /// The position that is searched.
    #[must_use]
    pub fn state(&self) -> &G::State {
        &self.state
    }

    /// The game.
    #[must_use]
    pub fn game(&self) -> &G {
        &self.search.game
    }

    /// The search that this was, without its tree.
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
    fn advancing_keeps_what_is_known_and_gives_the_rest_back() {
        for seed in 0..4 {
            let mut session = session(5, Params { seed, expand_after: 1, ..Params::default() });
            for ply in 0..5 {
                let report = session.run(SOME).unwrap();
                assert_eq!(
                    report.moves.iter().map(|known| u64::from(known.visits)).sum::<u64>(),
                    report.kept + report.rollouts
                );
                // The best move, and others.
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
    fn a_run_goes_on_where_the_last_one_ended() {
        let mut in_steps = session(6, Params::default());
        in_steps.run(SOME).unwrap();
        let steps = in_steps.run(SOME).unwrap();
        let at_once = session(6, Params::default()).run(Budget::Rollouts(6000)).unwrap();
        assert_eq!((steps.rollouts, steps.kept), (3000, 3000));
        assert_eq!((steps.moves, steps.line, steps.nodes), (at_once.moves, at_once.line, at_once.nodes));
    }

    #[test]
    fn a_move_that_was_never_tried_begins_anew() {
        let mut session = session(9, Params::default());
        let report = session.run(Budget::Rollouts(1)).unwrap();
        let untried = session.state().empty_cells().find(|cell| *cell != report.best.chosen).unwrap();
        session.advance(untried).unwrap();
        assert_eq!(session.report(), None);
        assert_eq!(session.run(SOME).unwrap().kept, 0);
        // The memory of a tree that is full is free again.
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
    fn what_cannot_be_is_refused_and_changes_nothing() {
        let mut session = session(2, Params { expand_after: 0, ..Params::default() });
        let report = session.run(SOME).unwrap();
        assert!(report.solved.is_some() && report.rollouts < 3000);
        let elsewhere: Cell = "c3".parse().unwrap();
        assert_eq!(session.advance(elsewhere), Err(SearchError::IllegalMove));
        let rollouts = MAX_ROLLOUTS;
        let left = MAX_ROLLOUTS - report.rollouts;
        assert_eq!(session.run(Budget::Rollouts(rollouts)), Err(SearchError::BudgetTooLarge { rollouts, left }));
        // Solved already: nothing is left to do.
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

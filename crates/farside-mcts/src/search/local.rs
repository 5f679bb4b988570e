//! The sequential search: one thread, one tree, one loop.

use std::ops::ControlFlow;
use std::time::Instant;

use super::report::Tally;
use super::{Budget, Params, Report, Search, SearchError};
use crate::game::{Game, Outcome};
use crate::rng::Rng;
use crate::tree::{NodeId, Sample, Step, Tree};

/// Runs a search in the calling thread. The yardstick of every other place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local;

impl<G: Game> Search<G, Local> {
    /// Searches the best move for the side to move in `state`.
    ///
    /// The same game, state, parameters and budget of rollouts give the same report, apart from the time it took, on
    /// every machine.
    ///
    /// # Errors
    /// [`SearchError`] if the game is over, or the budget or a parameter makes no sense.
    pub fn run(&mut self, state: &G::State, budget: Budget) -> Result<Report<G::Move>, SearchError> {
        let start = Instant::now();
        budget.check()?;
        let mut descent = Descent::new(&self.game, &self.params, state)?;
        let root = descent.root;
        let mut until_shown = self.observer.as_ref().map_or(u64::MAX, |observer| observer.every);
        while !budget.is_spent(descent.tally.rollouts, start, descent.tree.proof(root).is_some()) {
            descent.rollout(state.clone());
            until_shown -= 1;
            if until_shown == 0
                && let Some(observer) = &mut self.observer
            {
                until_shown = observer.every;
                if (observer.show)(&descent.report(start)) == ControlFlow::Break(()) {
                    break;
                }
            }
        }
        Ok(descent.report(start))
    }
}

/// A tree and what it takes to go down and up in it.
struct Descent<'a, G: Game> {
    game: &'a G,
    params: &'a Params,
    tree: Tree<G::Move>,
    root: NodeId,
    rng: Rng,
    path: Vec<Step>,
    moves: Vec<G::Move>,
    tally: Tally,
}

impl<'a, G: Game> Descent<'a, G> {
    fn new(game: &'a G, params: &'a Params, state: &G::State) -> Result<Self, SearchError> {
        params.check()?;
        if let Some(outcome) = game.outcome(state) {
            return Err(SearchError::GameOver(outcome));
        }
        let mut moves = Vec::new();
        if game.study(state, &mut moves).is_some() {
            // The outcome is known, but not yet the move that leads there.
            moves.clear();
            game.moves(state, &mut moves);
        }
        if moves.is_empty() {
            return Err(SearchError::NoMoves);
        }
        let mut tree = Tree::new(params.rules());
        let bytes = params.memory_bytes;
        let root = tree.add(game.to_move(state), &moves).ok_or(SearchError::Memory { bytes })?;
        Ok(Self {
            game,
            params,
            tree,
            root,
            rng: Rng::new(params.seed),
            path: Vec::new(),
            moves,
            tally: Tally::default(),
        })
    }

    fn rollout(&mut self, mut state: G::State) {
        self.path.clear();
        let mut sample = self.descend(&mut state);
        for &step in self.path.iter().rev() {
            sample = self.tree.backup(step, sample);
        }
        let depth = self.path.len() as u32;
        self.tally.rollouts += 1;
        self.tally.depth += u64::from(depth);
        self.tally.max_depth = self.tally.max_depth.max(depth);
    }

    /// Selects down to a leaf, expands it if it is due, and evaluates it.
    fn descend(&mut self, state: &mut G::State) -> Sample {
        let mut node = self.root;
        loop {
            let selected = self.tree.select(node, &mut self.rng);
            self.path.push(selected.step);
            self.game.play(state, selected.chosen);
            if let Some(outcome) = selected.proof {
                return self.certain(outcome);
            }
            if let Some(child) = selected.child {
                node = child;
                continue;
            }
            if selected.visit == 1
                && let Some(outcome) = self.game.outcome(state)
            {
                return self.certain(outcome);
            }
            if selected.visit > self.params.expand_after && !self.tree.is_full() {
                match self.expand(selected.step, state) {
                    Expanded::Node(child) => {
                        node = child;
                        continue;
                    }
                    Expanded::Proven(outcome) => return self.certain(outcome),
                    Expanded::Full => {}
                }
            }
            self.tally.simulations += u64::from(self.params.simulations);
            return Sample::estimated(self.game.simulate(state, self.params.simulations, &mut self.rng));
        }
    }

    fn certain(&self, outcome: Outcome) -> Sample {
        Sample::proven(outcome, self.params.simulations)
    }

    fn expand(&mut self, step: Step, state: &G::State) -> Expanded {
        self.moves.clear();
        if let Some(outcome) = self.game.study(state, &mut self.moves) {
            return Expanded::Proven(outcome);
        }
        match self.tree.add(self.game.to_move(state), &self.moves) {
            Some(child) => {
                self.tree.link(step, child);
                Expanded::Node(child)
            }
            None => Expanded::Full,
        }
    }

    fn report(&self, start: Instant) -> Report<G::Move> {
        Report::of(&self.tree, self.root, self.tally, start.elapsed(), Some).expect("a rollout was made")
    }
}

/// What became of a leaf that was due to get a node.
enum Expanded {
    Node(NodeId),
    Proven(Outcome),
    /// Nothing, for want of memory.
    Full,
}

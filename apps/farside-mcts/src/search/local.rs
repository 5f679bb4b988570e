//! The search in one thread.

use std::ops::ControlFlow;
use std::time::Instant;

use super::report::Tally;
use super::{Budget, Params, Report, Search, SearchError, root_moves};
use crate::game::{Game, Outcome, Player};
use crate::rng::Rng;
use crate::tree::{NodeId, Sample, Step, Tree};

/// Runs a search in the calling thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local;

impl<G: Game> Search<G, Local> {
    /// Searches for the best move for the side to move in `state`.
    ///
    /// The same game, state, parameters and budget of rollouts give the same report on every
    /// machine, except for the elapsed time.
    ///
    /// # Errors
    /// [`SearchError`] if the game is over, or the budget or a parameter is invalid.
    pub fn run(&mut self, state: &G::State, budget: Budget) -> Result<Report<G::Move>, SearchError> {
        Descent::new(&self.game, &self.params, state)?.run(self, state, budget)
    }
}

/// A tree with the state of the search in it.
pub(super) struct Descent<G: Game> {
    tree: Tree<G::Move>,
    root: NodeId,
    rng: Rng,
    path: Vec<Step>,
    moves: Vec<G::Move>,
    tally: Tally,
}

/// The constants of a search.
struct Given<'a, G> {
    game: &'a G,
    params: &'a Params,
}

impl<G: Game> Descent<G> {
    pub(super) fn new(game: &G, params: &Params, state: &G::State) -> Result<Self, SearchError> {
        params.check()?;
        let moves = root_moves(game, state)?;
        let mut tree = Tree::new(params.rules());
        let bytes = params.memory_bytes;
        let root = tree.add(game.to_move(state), &moves).ok_or(SearchError::Memory { bytes })?;
        let tally = Tally::default();
        Ok(Self { tree, root, rng: Rng::new(params.seed), path: Vec::new(), moves, tally })
    }

    /// Continues the search from the root, whose state is `state`.
    pub(super) fn run(
        &mut self,
        search: &mut Search<G, Local>,
        state: &G::State,
        budget: Budget,
    ) -> Result<Report<G::Move>, SearchError> {
        let start = Instant::now();
        let kept = u64::from(self.tree.visits(self.root));
        let rollouts_max = budget.rollouts_max(kept)?;
        self.tally = Tally { kept, ..Tally::default() };
        let given = Given { game: &search.game, params: &search.params };
        let mut until_shown = search.observer.as_ref().map_or(u64::MAX, |observer| observer.every);
        while self.tally.rollouts < rollouts_max
            && self.tree.proof(self.root).is_none()
            && !budget.is_timed_out(self.tally.rollouts, start)
        {
            self.rollout(&given, state.clone());
            until_shown -= 1;
            if until_shown == 0
                && let Some(observer) = &mut search.observer
            {
                until_shown = observer.every;
                let report = self.report(start).expect("a rollout was made");
                if (observer.show)(&report) == ControlFlow::Break(()) {
                    break;
                }
            }
        }
        Ok(self.report(start).expect("a rollout was made, or the root proven by an earlier one"))
    }

    /// Makes the child of the root by a move the new root, and drops the nodes that are not below
    /// it. If there is no child, the new root gets `to_move` and `moves`.
    pub(super) fn advance(&mut self, to_move: Player, chosen: G::Move, moves: &[G::Move]) -> Result<(), SearchError> {
        let bytes = self.tree.memory_bytes();
        let mut kept = self.tree.nothing_kept();
        let child = self.tree.edges(self.root).find(|edge| edge.chosen == chosen).and_then(|edge| edge.child);
        if let Some(child) = child {
            self.tree.mark(child, &mut kept, |_| {});
        } else if !self.tree.could_begin(moves) {
            return Err(SearchError::Memory { bytes });
        }
        self.tree.keep(&mut kept);
        let moved = child.and_then(|child| kept.new_id(child));
        self.root = moved.or_else(|| self.tree.add(to_move, moves)).ok_or(SearchError::Memory { bytes })?;
        self.tally = Tally { kept: u64::from(self.tree.visits(self.root)), ..Tally::default() };
        Ok(())
    }

    fn rollout(&mut self, given: &Given<'_, G>, mut state: G::State) {
        self.path.clear();
        let mut sample = self.descend(given, &mut state);
        for &step in self.path.iter().rev() {
            sample = self.tree.backup(step, sample);
        }
        let depth = self.path.len() as u32;
        self.tally.rollouts += 1;
        self.tally.depth += u64::from(depth);
        self.tally.max_depth = self.tally.max_depth.max(depth);
    }

    /// Selects down to a leaf, expands it if it has enough visits, and evaluates it.
    fn descend(&mut self, given: &Given<'_, G>, state: &mut G::State) -> Sample {
        let mut node = self.root;
        loop {
            let selected = self.tree.select(node, &mut self.rng);
            self.path.push(selected.step);
            given.game.play(state, selected.chosen);
            if let Some(outcome) = selected.proof {
                return given.certain(outcome);
            }
            if let Some(child) = selected.child {
                node = child;
                continue;
            }
            if selected.visit == 1
                && let Some(outcome) = given.game.outcome(state)
            {
                return given.certain(outcome);
            }
            if selected.visit > given.params.expand_after && !self.tree.is_full() {
                match self.expand(given, selected.step, state) {
                    Expanded::Node(child) => {
                        node = child;
                        continue;
                    }
                    Expanded::Proven(outcome) => return given.certain(outcome),
                    Expanded::Full => {}
                }
            }
            self.tally.simulations += u64::from(given.params.simulations);
            return Sample::estimated(given.game.simulate(state, given.params.simulations, &mut self.rng));
        }
    }

    fn expand(&mut self, given: &Given<'_, G>, step: Step, state: &G::State) -> Expanded {
        self.moves.clear();
        if let Some(outcome) = given.game.study(state, &mut self.moves) {
            return Expanded::Proven(outcome);
        }
        match self.tree.add(given.game.to_move(state), &self.moves) {
            Some(child) => {
                self.tree.link(step, child);
                Expanded::Node(child)
            }
            None => Expanded::Full,
        }
    }

    pub(super) fn report(&self, start: Instant) -> Option<Report<G::Move>> {
        Report::of(&self.tree, self.root, self.tally, start.elapsed())
    }

    pub(super) fn node_count(&self) -> usize {
        self.tree.node_count()
    }
}

impl<G> Given<'_, G> {
    fn certain(&self, outcome: Outcome) -> Sample {
        Sample::proven(outcome, self.params.simulations)
    }
}

/// The result of an expansion.
enum Expanded {
    Node(NodeId),
    Proven(Outcome),
    /// No node, because memory is used up.
    Full,
}

/// The moves to an edge, and its visits, win rate and proof.
#[cfg(test)]
pub(super) type KnownEdge<M> = (Vec<M>, u32, f64, Option<Outcome>);

#[cfg(test)]
impl<G: Game> Descent<G> {
    /// Returns the statistics of every edge below the root.
    pub(super) fn knowledge(&self) -> Vec<KnownEdge<G::Move>> {
        let mut known = Vec::new();
        let mut open = vec![(self.root, Vec::new())];
        while let Some((node, path)) = open.pop() {
            for edge in self.tree.edges(node) {
                let path = [&path[..], &[edge.chosen]].concat();
                open.extend(edge.child.map(|child| (child, path.clone())));
                known.push((path, edge.visits, edge.win_rate, edge.proof));
            }
        }
        known
    }
}

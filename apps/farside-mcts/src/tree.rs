//! The part of a search tree that one worker owns.
//!
//! A tree knows neither games nor how a rollout moves from node to node. It offers the four steps
//! of a rollout, each on one node, and the caller connects them. In one thread the caller is a loop
//! ([`Local`](crate::Local)). On a job each step runs at the owner of the node.
//!
//! | step | operation | changes |
//! |---|---|---|
//! | selection | [`Tree::select`] | one more visit in flight on the chosen edge |
//! | expansion | [`Tree::add`], then [`Tree::link`] at the parent | a new node; the edge leads to it |
//! | evaluation | none: a [`Sample`] comes from the game | |
//! | backpropagation | [`Tree::backup`] on each edge of the path, last first | the visit is complete |
//!
//! **Unobserved samples** (Liu et al., WU-UCT, 2020): a visit in flight counts in the exploration
//! term of the UCB rule, but not in an edge's value. So overlapping rollouts spread out, without a
//! virtual loss. In one thread at most one visit is in flight, and the rule is plain UCT.
//!
//! **Proofs** (Winands et al., MCTS-Solver, 2008): a sample may be certain. A node is proven if one
//! of its moves wins, or all of its moves are proven. Selection skips proven moves. Once a move is
//! proven a draw, samples count as a draw at least for the side that moves.
//!
//! **Invariant:** the visits of a node are the sum of its edges' visits, complete and in flight.

mod arena;
mod copy;
mod keep;
mod math;

use std::num::NonZeroU32;

use farside::Wire;

use crate::game::{Outcome, Player, Points};
use crate::rng::Rng;
use arena::{Block, Slots};

pub(crate) use copy::EdgeCopy;
pub(crate) use keep::{EdgeTarget, Kept};

/// The number of a node in its tree, from 1, so that an `Option` of it is as small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(NonZeroU32);

/// An edge of a tree: a node and the index of one of its tried moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    node: NodeId,
    edge: u32,
}

/// The result of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(crate) struct Sample {
    /// Points of the first player, in as many simulations as evaluate a leaf.
    points: Points,
    /// The outcome with best play, if it is known.
    proof: Option<Outcome>,
}

/// The result of [`Tree::select`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selected<M, L> {
    /// The edge. The caller backs it up once.
    pub(crate) step: Step,
    /// The move of the edge.
    pub(crate) chosen: M,
    /// The number of this visit of the edge, from 1.
    pub(crate) visit: u32,
    /// The target of the edge, if it was expanded.
    pub(crate) child: Option<L>,
    /// The outcome of the edge, if it is proven. A rollout ends there.
    pub(crate) proof: Option<Outcome>,
}

/// The statistics of a tried move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EdgeView<M, L> {
    pub(crate) chosen: M,
    /// Complete visits.
    pub(crate) visits: u32,
    /// Share of points of the side that moves, exact if proven.
    pub(crate) win_rate: f64,
    pub(crate) child: Option<L>,
    pub(crate) proof: Option<Outcome>,
}

/// The constants of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Constant c of the UCB rule.
    pub(crate) exploration: f32,
    /// Number of simulations of a sample.
    pub(crate) simulations: u32,
    /// Memory limit.
    pub(crate) memory_bytes: usize,
}

/// Nodes over moves `M`, with edges to `L`: a node of this tree, or the name of a node elsewhere.
#[derive(Debug)]
pub(crate) struct Tree<M, L = NodeId> {
    rules: Rules,
    nodes: Vec<Node>,
    /// All moves of all nodes. Of each node the tried ones come first, in the order of its edges.
    moves: Vec<M>,
    slots: Slots<L>,
    /// True if a node was refused.
    full: bool,
}

#[derive(Debug)]
struct Node {
    /// The edges of the tried moves, from the beginning of this block.
    block: Block,
    tried: u32,
    first_move: u32,
    move_count: u32,
    /// Visits, complete and in flight.
    visits: u32,
    /// Number of proven edges.
    proven: u32,
    /// True if an edge is a proven draw.
    draw_in_hand: bool,
    to_move: Player,
    proof: Option<Outcome>,
}

/// An edge, without the two numbers that selection reads.
#[derive(Clone, Copy, Debug)]
struct Edge<L> {
    /// Points of the side that moves, over all complete visits. 32 bits would overflow after
    /// minutes of a large job.
    points: u64,
    visits: u32,
    in_flight: u32,
    child: Option<L>,
    proof: Option<Outcome>,
}

impl NodeId {
    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl Sample {
    /// Returns an estimate.
    pub(crate) const fn estimated(points: Points) -> Self {
        Self { points, proof: None }
    }

    /// Returns a certainty, with the weight of `simulations`.
    pub(crate) const fn proven(outcome: Outcome, simulations: u32) -> Self {
        Self { points: Points::certain(outcome, simulations), proof: Some(outcome) }
    }
}

impl<M: Copy, L: Copy> Tree<M, L> {
    /// Returns a tree without nodes.
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules, nodes: Vec::new(), moves: Vec::new(), slots: Slots::new(), full: false }
    }

    /// Adds a node. Returns `None` if the memory for new nodes is used up.
    ///
    /// A quarter of the limit is reserved for existing nodes, which grow as their moves are tried.
    pub(crate) fn add(&mut self, to_move: Player, moves: &[M]) -> Option<NodeId> {
        let added = self.try_add(to_move, moves);
        self.full |= added.is_none();
        added
    }

    /// Returns whether a node was refused. Then all further ones are.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Chooses an edge, and puts a visit in flight on it.
    ///
    /// Untried moves come first, in random order. After that it chooses the edge that maximises
    /// *value* + c √(ln *visits* / *edge visits*). At a proven node it chooses the best edge.
    #[inline]
    pub(crate) fn select(&mut self, id: NodeId, rng: &mut Rng) -> Selected<M, L> {
        let node = &self.nodes[id.index()];
        let edge = if node.proof.is_some() {
            self.best_edge(id)
        } else if node.tried < node.move_count && self.widen(id) {
            self.try_move(id, rng)
        } else {
            self.highest_bound(id)
        };
        self.depart(Step { node: id, edge })
    }

    /// Sets the target of an edge.
    pub(crate) fn link(&mut self, step: Step, child: L) {
        let slot = self.slot(step);
        self.slots.edges[slot].child = Some(child);
    }

    /// Completes a visit, and returns the sample for the edge above.
    #[inline]
    pub(crate) fn backup(&mut self, step: Step, sample: Sample) -> Sample {
        let slot = self.slot(step);
        let node = &mut self.nodes[step.node.index()];
        let edge = &mut self.slots.edges[slot];
        let simulations = self.rules.simulations;
        edge.in_flight -= 1;
        edge.visits += 1;
        edge.points += u64::from(sample.points.of(node.to_move, simulations));
        if let (None, Some(outcome)) = (edge.proof, sample.proof) {
            edge.proof = Some(outcome);
            node.learn(outcome);
        }
        let up = match node.proof {
            Some(outcome) => Sample::proven(outcome, simulations),
            None if node.draw_in_hand => Sample::estimated(sample.points.at_least_drawn(node.to_move, simulations)),
            None => Sample::estimated(sample.points),
        };
        self.rate(step);
        up
    }

    /// Updates the value of an edge for selection.
    #[inline]
    fn rate(&mut self, step: Step) {
        let slot = self.slot(step);
        let edge = &self.slots.edges[slot];
        self.slots.value[slot] = match edge.proof {
            Some(_) => f32::NEG_INFINITY,
            None => edge.share(self.rules.simulations) as f32,
        };
    }

    /// Returns the visits of a node, complete and in flight.
    pub(crate) fn visits(&self, id: NodeId) -> u32 {
        self.nodes[id.index()].visits
    }

    /// Returns the outcome of a node, if it is proven.
    pub(crate) fn proof(&self, id: NodeId) -> Option<Outcome> {
        self.nodes[id.index()].proof
    }

    /// Returns the statistics of the tried moves of a node.
    pub(crate) fn edges(&self, id: NodeId) -> impl Iterator<Item = EdgeView<M, L>> {
        let tried = self.nodes[id.index()].tried;
        (0..tried).map(move |edge| self.view(Step { node: id, edge }))
    }

    /// Returns the move to play: a proven best one, else the one with the most visits. `None` if
    /// none was tried.
    pub(crate) fn best(&self, id: NodeId) -> Option<EdgeView<M, L>> {
        let tried = self.nodes[id.index()].tried;
        (tried > 0).then(|| self.view(Step { node: id, edge: self.best_edge(id) }))
    }

    /// Returns the number of nodes.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the memory of nodes, moves and edges. Spare capacity does not count, as it is never
    /// touched.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.nodes) + size_of_val(&*self.moves) + self.slots.bytes()
    }

    /// Sets the constant c of the UCB rule for later selections.
    pub(crate) fn set_exploration(&mut self, exploration: f32) {
        self.rules.exploration = exploration;
    }

    /// Returns the memory limit.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.rules.memory_bytes
    }

    /// Returns whether an empty tree has memory for a node with these moves.
    pub(crate) fn could_begin(&self, moves: &[M]) -> bool {
        Self::new(self.rules).add(Player::First, moves).is_some()
    }

    fn try_add(&mut self, to_move: Player, moves: &[M]) -> Option<NodeId> {
        let first_capacity = Slots::<L>::first_capacity(moves.len());
        let bytes = self.bytes() + size_of::<Node>() + size_of_val(moves) + self.slots.cost(first_capacity);
        if self.full || bytes > self.rules.memory_bytes / 4 * 3 {
            return None;
        }
        let first_move = u32::try_from(self.moves.len()).ok()?;
        let move_count = u32::try_from(moves.len()).ok()?;
        first_move.checked_add(move_count)?;
        let id = u32::try_from(self.nodes.len() + 1).ok().and_then(NonZeroU32::new)?;
        self.nodes.push(Node {
            block: self.slots.take(first_capacity)?,
            tried: 0,
            first_move,
            move_count,
            visits: 0,
            proven: 0,
            draw_in_hand: false,
            to_move,
            proof: None,
        });
        self.moves.extend_from_slice(moves);
        Some(NodeId(id))
    }

    fn slot(&self, step: Step) -> usize {
        self.nodes[step.node.index()].block.first() + step.edge as usize
    }

    fn view(&self, step: Step) -> EdgeView<M, L> {
        let node = &self.nodes[step.node.index()];
        let edge = &self.slots.edges[self.slot(step)];
        EdgeView {
            chosen: self.moves[(node.first_move + step.edge) as usize],
            visits: edge.visits,
            win_rate: edge.proof.map_or_else(
                || edge.share(self.rules.simulations),
                |outcome| f64::from(Points::certain(outcome, 1).of(node.to_move, 1)) / 2.0,
            ),
            child: edge.child,
            proof: edge.proof,
        }
    }

    /// Makes room for one more tried move. Returns `false` if memory is used up.
    fn widen(&mut self, id: NodeId) -> bool {
        let node = &mut self.nodes[id.index()];
        if (node.tried as usize) < node.block.capacity() {
            return true;
        }
        let left = self.rules.memory_bytes.saturating_sub(self.bytes());
        match self.slots.grow(&self.nodes[id.index()].block, left) {
            Some(block) => self.nodes[id.index()].block = block,
            None => return false,
        }
        true
    }

    /// Tries a random untried move: one step of a lazy shuffle.
    fn try_move(&mut self, id: NodeId, rng: &mut Rng) -> u32 {
        let node = &mut self.nodes[id.index()];
        let edge = node.tried;
        node.tried += 1;
        self.slots.open(&node.block, edge);
        let picked = edge + rng.below(node.move_count - edge);
        self.moves.swap((node.first_move + edge) as usize, (node.first_move + picked) as usize);
        edge
    }

    fn highest_bound(&self, id: NodeId) -> u32 {
        let node = &self.nodes[id.index()];
        let weight = self.rules.exploration * math::ln(node.visits).sqrt();
        let slots = node.block.scanned(node.tried);
        let edge = math::argmax(&self.slots.value[slots.clone()], &self.slots.rarity[slots], weight);
        if self.slots.value[node.block.first() + edge as usize] > f32::NEG_INFINITY {
            return edge;
        }
        // All tried moves are proven, and there is no memory to try the others.
        self.best_edge(id)
    }

    fn best_edge(&self, id: NodeId) -> u32 {
        let edges = self.edges(id).map(|edge| (edge.proof.map(|_| edge.win_rate), edge.visits, edge.win_rate));
        best_of(edges)
    }

    fn depart(&mut self, step: Step) -> Selected<M, L> {
        let slot = self.slot(step);
        let node = &mut self.nodes[step.node.index()];
        let edge = &mut self.slots.edges[slot];
        node.visits += 1;
        edge.in_flight += 1;
        let visit = edge.visits + edge.in_flight;
        self.slots.rarity[slot] = 1.0 / (visit as f32).sqrt();
        Selected {
            step,
            chosen: self.moves[(node.first_move + step.edge) as usize],
            visit,
            child: edge.child,
            proof: edge.proof,
        }
    }
}

/// Returns the edge to play. Each item is an edge's proven win rate, its visits and its observed
/// win rate.
///
/// The choice is a win, else the open edge with the most visits, which is steadier than the win
/// rate. A draw is better if that edge's win rate is below one half. Of lost edges the one with the
/// most visits takes longest to refute.
fn best_of(edges: impl Iterator<Item = (Option<f64>, u32, f64)>) -> u32 {
    let mut best = (0, (f64::NEG_INFINITY, 0, 0.0));
    let mut open = None;
    for (edge, (certain, visits, rate)) in (0..).zip(edges) {
        match certain {
            Some(rate) if (rate, visits, rate) > best.1 => best = (edge, (rate, visits, rate)),
            Some(_) => {}
            None if open.is_none_or(|(_, known)| (visits, rate) > known) => open = Some((edge, (visits, rate))),
            None => {}
        }
    }
    match open {
        Some((edge, (_, rate))) if best.1.0 < 0.5 || best.1.0 == 0.5 && rate >= 0.5 => edge,
        _ => best.0,
    }
}

impl Node {
    /// Notes that one more edge is proven.
    fn learn(&mut self, outcome: Outcome) {
        self.proven += 1;
        self.draw_in_hand |= outcome == Outcome::Drawn;
        if outcome == Outcome::Won(self.to_move) {
            self.proof = Some(outcome);
        } else if self.proven == self.move_count && self.proof.is_none() {
            self.proof = Some(if self.draw_in_hand { Outcome::Drawn } else { Outcome::Won(self.to_move.opponent()) });
        }
    }
}

impl<L> Edge<L> {
    const UNTRIED: Self = Self { points: 0, visits: 0, in_flight: 0, child: None, proof: None };

    /// Returns the share of points. It is 0 before the first visit is complete, so that a second
    /// rollout chooses another edge.
    fn share(&self, simulations: u32) -> f64 {
        let most = 2.0 * f64::from(simulations) * f64::from(self.visits.max(1));
        self.points as f64 / most
    }
}

#[cfg(test)]
mod tests;

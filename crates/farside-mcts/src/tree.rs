//! The part of a search tree that one worker owns.
//!
//! A tree knows nothing of games, nor of how a rollout gets from node to node: it offers the four steps of a rollout,
//! each on one node, and leaves it to the caller to string them together. In one process that is a loop
//! ([`Local`](crate::Local)); where nodes belong to different workers, each step runs at the node's owner.
//!
//! | step | operation | changes |
//! |---|---|---|
//! | selection | [`Tree::select`] | one visit more in flight on the chosen edge |
//! | expansion | [`Tree::add`], then [`Tree::link`] at the parent | a new node; the edge leads to it |
//! | evaluation | none: a [`Sample`] comes from the game | |
//! | backpropagation | [`Tree::backup`] on each edge of the path, last first | the visit is complete |
//!
//! **Unobserved samples** (Liu et al., WU-UCT, 2020): a visit in flight counts as a visit where the rule asks how well
//! an edge is explored, and not at all where it asks how good the edge is. So rollouts that overlap spread out, and no
//! loss is invented. A loop never has more than one in flight, and then the rule is plain UCT.
//!
//! **Proofs** (Winands et al., MCTS-Solver, 2008): a sample may be certain. A node is proven when one of its moves
//! wins or all of its moves are proven. Proven moves are no longer chosen, as there is nothing left to learn. A side that
//! has found a draw is taken to get no less than that.
//!
//! **Invariant:** for every node, its visits are the sum of its edges' visits, complete and in flight.

mod arena;
mod copy;
mod keep;
mod math;
mod nodes;
mod shared;

use std::num::NonZeroU32;

use farside::Wire;

use crate::game::{Outcome, Player, Points};
use crate::rng::Rng;
use arena::{Block, Slots};

pub(crate) use copy::EdgeCopy;
pub(crate) use keep::{Kept, Lead};
pub(crate) use nodes::{Look, Nodes};
pub(crate) use shared::{Packed, SharedTree};

/// A node of one tree. Counted from 1, so that an edge without a child takes no more room than one with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(NonZeroU32);

/// An edge of one tree: a node and which of its tried moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    node: NodeId,
    edge: u32,
}

/// What a rollout brings back to an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(crate) struct Sample {
    /// The first player's, of as many simulations as a leaf gets.
    points: Points,
    /// How the game ends from here if both sides play their best, once that is known.
    proof: Option<Outcome>,
}

/// The answer of [`Tree::select`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selected<M, L> {
    /// The edge, to be backed up once.
    pub(crate) step: Step,
    /// Its move.
    pub(crate) chosen: M,
    /// Which visit of the edge this is, from 1.
    pub(crate) visit: u32,
    /// Where the edge leads, if it was expanded.
    pub(crate) child: Option<L>,
    /// The outcome of the edge, if it is proven; nothing is left to learn below it.
    pub(crate) proof: Option<Outcome>,
}

/// What is known of a tried move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EdgeView<M, L> {
    pub(crate) chosen: M,
    /// Complete visits.
    pub(crate) visits: u32,
    /// The share of points of the side that moves, exact where proven.
    pub(crate) win_rate: f64,
    pub(crate) child: Option<L>,
    pub(crate) proof: Option<Outcome>,
}

/// What stays the same while a tree grows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The constant c of the UCB rule.
    pub(crate) exploration: f32,
    /// How many simulations make a sample.
    pub(crate) simulations: u32,
    /// How many bytes the tree may take.
    pub(crate) memory_bytes: usize,
}

/// Nodes over moves `M`, with edges that lead to `L`: a node of this tree, or whatever names a node elsewhere.
#[derive(Debug)]
pub(crate) struct Tree<M, L = NodeId> {
    rules: Rules,
    nodes: Vec<Node>,
    /// All moves of all nodes: of each node first those tried, in the order of its edges, then the others.
    moves: Vec<M>,
    slots: Slots<L>,
    /// A node could not be added, and none ever will be.
    full: bool,
}

#[derive(Debug)]
struct Node {
    /// The edges of tried moves lie in this block, from its beginning.
    block: Block,
    tried: u32,
    first_move: u32,
    move_count: u32,
    /// Complete and in flight.
    visits: u32,
    /// How many edges are proven.
    proven: u32,
    /// Whether one of them is drawn.
    draw_in_hand: bool,
    /// Another worker owns it.
    is_copy: bool,
    to_move: Player,
    proof: Option<Outcome>,
}

/// What an edge has besides the two numbers that selection reads.
#[derive(Clone, Copy, Debug)]
struct Edge<L> {
    /// Of the side that moves, over all complete visits. 64 bits: 32 would overflow after minutes of a large job.
    points: u64,
    visits: u32,
    in_flight: u32,
    child: Option<L>,
    proof: Option<Outcome>,
}

impl NodeId {
    pub(crate) fn number(self) -> u32 {
        self.0.get()
    }

    pub(crate) fn of_number(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl Sample {
    /// An estimate.
    pub(crate) const fn estimated(points: Points) -> Self {
        Self { points, proof: None }
    }

    /// The certainty, if it is one.
    pub(crate) const fn proof(&self) -> Option<Outcome> {
        self.proof
    }

    /// A certainty, worth as many simulations as an estimate.
    pub(crate) const fn proven(outcome: Outcome, simulations: u32) -> Self {
        Self { points: Points::certain(outcome, simulations), proof: Some(outcome) }
    }
}

impl<M: Copy, L: Copy> Tree<M, L> {
    /// A tree without nodes.
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules, nodes: Vec::new(), moves: Vec::new(), slots: Slots::new(), full: false }
    }

    /// Adds a node, or gives `None` when the memory that new nodes may take is used up.
    ///
    /// A quarter of the limit is kept for nodes that exist to widen as their moves are tried.
    pub(crate) fn add(&mut self, to_move: Player, moves: &[M]) -> Option<NodeId> {
        let added = self.try_add(to_move, moves);
        self.full |= added.is_none();
        added
    }

    /// Whether a node was refused, and further ones are not worth preparing.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Chooses an edge and puts a visit in flight on it.
    ///
    /// Untried moves come first, at random; then the edge that maximises *value* + c √(ln *visits* / *edge visits*).
    /// A proven node gives the edge that proves it.
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

    /// Makes the edge lead to a node.
    pub(crate) fn link(&mut self, step: Step, child: L) {
        let slot = self.slot(step);
        self.slots.edges[slot].child = Some(child);
    }

    /// Completes a visit, and says what the rollout means for the edge above.
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

    /// Says what an edge is worth to selection.
    #[inline]
    fn rate(&mut self, step: Step) {
        let slot = self.slot(step);
        let edge = &self.slots.edges[slot];
        self.slots.value[slot] = match edge.proof {
            Some(_) => f32::NEG_INFINITY,
            None => edge.share(self.rules.simulations) as f32,
        };
    }

    /// Visits of a node, complete and in flight.
    pub(crate) fn visits(&self, id: NodeId) -> u32 {
        self.nodes[id.index()].visits
    }

    /// How the game ends from this node, if that is proven.
    pub(crate) fn proof(&self, id: NodeId) -> Option<Outcome> {
        self.nodes[id.index()].proof
    }

    /// The moves tried so far.
    pub(crate) fn edges(&self, id: NodeId) -> impl Iterator<Item = EdgeView<M, L>> {
        let tried = self.nodes[id.index()].tried;
        (0..tried).map(move |edge| self.view(Step { node: id, edge }))
    }

    /// The move to play: one that is proven to be as good as it gets, else the one visited most. `None` before any
    /// was tried.
    pub(crate) fn best(&self, id: NodeId) -> Option<EdgeView<M, L>> {
        let tried = self.nodes[id.index()].tried;
        (tried > 0).then(|| self.view(Step { node: id, edge: self.best_edge(id) }))
    }

    /// How many nodes there are.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// How much memory nodes, moves and edges take. Reserve for growth is not counted, as it is never touched.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.nodes) + size_of_val(&*self.moves) + self.slots.bytes()
    }

    /// How many bytes the tree may take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.rules.memory_bytes
    }

    /// Whether a tree without nodes could have one with these moves.
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
            is_copy: false,
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

    /// Makes room for one more tried move; false when memory is used up.
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

    /// Tries a move picked at random among the untried ones: one step of a lazy shuffle.
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
        // All that was tried is proven, and there is no memory to try the rest.
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

/// The edge to play, of such as are told by the win rate they are proven to have, their visits, and the rate seen.
///
/// A win, else the one visited most: that is the steadier measure than the rate. A draw is better if that one promises less, and
/// of lost ones the one visited most takes longest to refute.
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
    /// One more edge is proven.
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

    /// The share of all points; 0 before the first visit is complete, so that a second one goes elsewhere.
    fn share(&self, simulations: u32) -> f64 {
        let most = 2.0 * f64::from(simulations) * f64::from(self.visits.max(1));
        self.points as f64 / most
    }
}

#[cfg(test)]
mod tests;

//! A tree whose nodes all workers of a process change at once (Seriema §5.3.2).
//!
//! It offers the same steps as [`Tree`](super::Tree), by shared reference. Counters are atomics that order nothing: a selection
//! that reads some of them before and some after another's step chooses a little differently, and nothing is lost, as each
//! change is one atomic addition. What does publish something says so.
//!
//! **Virtual loss** (the seed's): a visit counts from its selection on, its points only when it is complete. Until then it looks
//! like a lost one, which keeps threads from all taking the same way. So visits in flight need no counters of their own.
//!
//! **Invariant:** once nothing is in flight, the visits of a node are the sum of its edges' visits.

mod group;
mod keep;
mod node;

use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};

use super::{EdgeView, NodeId, Rules, Sample, Selected, Step, best_of};
use crate::game::{Outcome, Player, Points};
use node::SharedNode;

/// What can be kept in one atomic word.
pub(crate) trait Packed: Copy {
    /// Where an edge leads, as a word.
    fn pack(link: Option<Self>) -> u64;
    /// The other way round.
    fn unpack(word: u64) -> Option<Self>;
}

/// A place for a node, and once it is filled the node.
type Slot<M> = OnceLock<SharedNode<M>>;

/// Nodes that several threads grow together.
#[derive(Debug)]
pub(crate) struct SharedTree<M, L> {
    rules: Rules,
    /// Each chunk has twice as many nodes as the one before; made when its first node is added, and never moved.
    chunks: [OnceLock<Box<[Slot<M>]>>; CHUNK_COUNT],
    /// Numbers given to nodes so far. Added to by who adds a node, and read for reports.
    count: AtomicU32,
    /// What they take. Who adds to it then looks whether that was too much.
    bytes: AtomicUsize,
    /// A node was refused. Set once; a late look costs no more than a node that is refused.
    is_full: AtomicBool,
    link: PhantomData<fn() -> L>,
}

/// Nodes of the first chunk.
const FIRST_CHUNK: usize = 1 << 10;
/// Enough for 2^31 nodes.
const CHUNK_COUNT: usize = 21;

impl<M: Copy, L: Packed> SharedTree<M, L> {
    /// A tree without nodes.
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            chunks: [const { OnceLock::new() }; CHUNK_COUNT],
            count: AtomicU32::new(0),
            bytes: AtomicUsize::new(0),
            is_full: AtomicBool::new(false),
            link: PhantomData,
        }
    }

    /// Adds a node, whose moves are tried in this order, or gives `None` when the memory that nodes may take is used up.
    ///
    /// A quarter of the limit is kept for nodes that exist to widen as their moves are tried.
    pub(crate) fn add(&self, to_move: Player, moves: &[M]) -> Option<NodeId> {
        let bytes = SharedNode::<M>::first_bytes(moves.len());
        if self.is_full() || !self.take(bytes, self.rules.memory_bytes / 4 * 3) {
            self.is_full.store(true, Relaxed);
            return None;
        }
        self.put(SharedNode::new(to_move, moves))
    }

    fn put(&self, node: SharedNode<M>) -> Option<NodeId> {
        let index = self.count.fetch_add(1, Relaxed);
        let (chunk, place) = place_of(index as usize);
        let make = || (0..FIRST_CHUNK << chunk).map(|_| OnceLock::new()).collect();
        // Setting the slot publishes the node: whoever finds it there finds it whole.
        self.chunks.get(chunk)?.get_or_init(make).get(place)?.set(node).ok()?;
        NonZeroU32::new(index + 1).map(NodeId)
    }

    /// Takes so many bytes more, if they are there.
    fn take(&self, bytes: usize, limit: usize) -> bool {
        let is_there = self.bytes.fetch_add(bytes, Relaxed) + bytes <= limit;
        if !is_there {
            self.bytes.fetch_sub(bytes, Relaxed);
        }
        is_there
    }

    #[inline]
    fn node(&self, id: NodeId) -> &SharedNode<M> {
        let (chunk, place) = place_of(id.index());
        self.chunks[chunk]
            .get()
            .and_then(|chunk| chunk[place].get())
            .expect("ids are given out for nodes that are there")
    }

    /// Whether a node was refused, and further ones are not worth preparing.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// Whether a tree without nodes could have one with these moves.
    pub(crate) fn could_begin(&self, moves: &[M]) -> bool {
        SharedNode::<M>::first_bytes(moves.len()) <= self.rules.memory_bytes / 4 * 3
    }

    /// Chooses an edge and counts a visit of it: as [`Tree::select`](super::Tree::select), but that moves are tried in the
    /// order in which the node has them.
    #[inline]
    pub(crate) fn select(&self, id: NodeId) -> Selected<M, L> {
        let node = self.node(id);
        let edge = match node.proof() {
            Some(_) => self.best_edge(id),
            None => match node.try_next(|bytes| self.take(bytes, self.rules.memory_bytes)) {
                Some(edge) => edge,
                None => node.highest_bound(self.rules.exploration).unwrap_or_else(|| self.best_edge(id)),
            },
        };
        let (group, lane) = node.edge(edge);
        node.visits.fetch_add(1, Relaxed);
        let visit = group.visits[lane].fetch_add(1, Relaxed) + 1;
        group.rate(lane, self.rules.simulations);
        Selected {
            step: Step { node: id, edge },
            chosen: node.moves[edge as usize],
            visit,
            child: L::unpack(group.child(lane)),
            proof: group.proof(lane),
        }
    }

    /// Completes a visit, and says what the rollout means for the edge above.
    #[inline]
    pub(crate) fn backup(&self, step: Step, sample: Sample) -> Sample {
        let node = self.node(step.node);
        let (group, lane) = node.edge(step.edge);
        let simulations = self.rules.simulations;
        group.points[lane].fetch_add(u64::from(sample.points.of(node.to_move, simulations)), Relaxed);
        if let Some(outcome) = sample.proof
            && group.prove(lane, outcome)
        {
            node.learn(outcome);
        }
        group.rate(lane, simulations);
        match node.proof() {
            Some(outcome) => Sample::proven(outcome, simulations),
            None if node.has_draw() => Sample::estimated(sample.points.at_least_drawn(node.to_move, simulations)),
            None => Sample::estimated(sample.points),
        }
    }

    /// Has an edge lead somewhere that leads nowhere. False if another thread was first.
    pub(crate) fn claim(&self, step: Step, link: L) -> bool {
        let (group, lane) = self.node(step.node).edge(step.edge);
        group.replace_child(lane, L::pack(None), L::pack(Some(link)))
    }

    /// Makes the edge lead somewhere, or nowhere.
    pub(crate) fn link(&self, step: Step, link: Option<L>) {
        let (group, lane) = self.node(step.node).edge(step.edge);
        group.set_child(lane, L::pack(link));
    }

    /// Visits of a node, complete and in flight.
    pub(crate) fn visits(&self, id: NodeId) -> u32 {
        self.node(id).visits.load(Relaxed)
    }

    /// How the game ends from this node, if that is proven.
    pub(crate) fn proof(&self, id: NodeId) -> Option<Outcome> {
        self.node(id).proof()
    }

    /// The moves of a node: first those tried, in the order of its edges, then the others.
    pub(crate) fn moves(&self, id: NodeId) -> &[M] {
        &self.node(id).moves
    }

    /// The moves tried so far. Visits that are in flight are counted, too.
    pub(crate) fn edges(&self, id: NodeId) -> impl Iterator<Item = EdgeView<M, L>> {
        let node = self.node(id);
        (0..node.tried()).map(move |edge| {
            let (group, lane) = node.edge(edge);
            let (visits, points) = (group.visits[lane].load(Relaxed), group.points[lane].load(Relaxed));
            let proof = group.proof(lane);
            let exact = |outcome| f64::from(Points::certain(outcome, 1).of(node.to_move, 1)) / 2.0;
            EdgeView {
                chosen: node.moves[edge as usize],
                visits,
                win_rate: proof.map_or(group::share(points, visits, self.rules.simulations), exact),
                child: L::unpack(group.child(lane)),
                proof,
            }
        })
    }

    fn best_edge(&self, id: NodeId) -> u32 {
        best_of(self.edges(id).map(|edge| (edge.proof.map(|_| edge.win_rate), edge.visits, edge.win_rate)))
    }

    /// The move to play. `None` before any was tried.
    pub(crate) fn best(&self, id: NodeId) -> Option<EdgeView<M, L>> {
        self.edges(id).nth(self.best_edge(id) as usize)
    }

    /// How many nodes there are.
    pub(crate) fn node_count(&self) -> usize {
        self.count.load(Relaxed) as usize
    }

    /// How much memory nodes, moves and edges take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}

/// The chunk of a node, and its place there.
#[inline]
fn place_of(index: usize) -> (usize, usize) {
    let from_first = index + FIRST_CHUNK;
    let chunk = (from_first / FIRST_CHUNK).ilog2() as usize;
    (chunk, from_first - (FIRST_CHUNK << chunk))
}

#[cfg(test)]
mod tests;

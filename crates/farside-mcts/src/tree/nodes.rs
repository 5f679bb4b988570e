//! The nodes that a worker can reach without asking another: its own, or those of all workers of its process.

use std::sync::Arc;

use super::{EdgeCopy, EdgeView, Kept, Lead, NodeId, Packed, Sample, Selected, SharedTree, Step, Tree};
use crate::game::{Outcome, Player};
use crate::rng::Rng;

/// A tree of one worker's, or one that is shared.
#[derive(Debug)]
pub(crate) enum Nodes<M, L> {
    /// In plain memory.
    Own(Tree<M, L>),
    /// With the other workers of the process.
    Shared(Arc<SharedTree<M, L>>),
}

/// What a report says of a tree.
pub(crate) trait Look<M, L> {
    /// How the game ends from this node, if that is proven.
    fn proof(&self, id: NodeId) -> Option<Outcome>;
    /// The moves tried so far.
    fn edges(&self, id: NodeId) -> Vec<EdgeView<M, L>>;
    /// The move to play. `None` before any was tried.
    fn best(&self, id: NodeId) -> Option<EdgeView<M, L>>;
    /// How many nodes there are.
    fn node_count(&self) -> usize;
    /// What they take.
    fn bytes(&self) -> usize;
}

/// Does the same with either.
macro_rules! either {
    ($nodes:expr, $tree:ident => $act:expr) => {
        match $nodes {
            Nodes::Own($tree) => $act,
            Nodes::Shared($tree) => $act,
        }
    };
}

impl<M: Copy, L: Lead + Packed> Nodes<M, L> {
    /// Adds a node. In a shared tree its moves are put into random order, as it tries them one after another.
    pub(crate) fn add(&mut self, to_move: Player, moves: &mut [M], rng: &mut Rng) -> Option<NodeId> {
        match self {
            Self::Own(tree) => tree.add(to_move, moves),
            Self::Shared(tree) => {
                rng.shuffle(moves);
                tree.add(to_move, moves)
            }
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        either!(self, tree => tree.is_full())
    }

    pub(crate) fn could_begin(&self, moves: &[M]) -> bool {
        either!(self, tree => tree.could_begin(moves))
    }

    #[inline]
    pub(crate) fn select(&mut self, id: NodeId, rng: &mut Rng) -> Selected<M, L> {
        match self {
            Self::Own(tree) => tree.select(id, rng),
            Self::Shared(tree) => tree.select(id),
        }
    }

    #[inline]
    pub(crate) fn backup(&mut self, step: Step, sample: Sample) -> Sample {
        either!(self, tree => tree.backup(step, sample))
    }

    /// Has an edge lead somewhere that leads nowhere. False if another thread was first.
    pub(crate) fn claim(&mut self, step: Step, link: L) -> bool {
        match self {
            Self::Own(tree) => {
                tree.link(step, link);
                true
            }
            Self::Shared(tree) => tree.claim(step, link),
        }
    }

    /// Makes an edge lead somewhere else.
    pub(crate) fn link(&mut self, step: Step, link: L) {
        match self {
            Self::Own(tree) => tree.link(step, link),
            Self::Shared(tree) => tree.link(step, Some(link)),
        }
    }

    pub(crate) fn visits(&self, id: NodeId) -> u32 {
        either!(self, tree => tree.visits(id))
    }

    pub(crate) fn moves(&self, id: NodeId) -> &[M] {
        either!(self, tree => tree.moves(id))
    }

    pub(crate) fn copy_edges(&self, id: NodeId) -> Vec<(EdgeCopy, Option<L>)> {
        either!(self, tree => tree.copy_edges(id))
    }

    pub(crate) fn restore(&mut self, to_move: Player, moves: &[M], edges: &[(EdgeCopy, Option<L>)]) -> Option<NodeId> {
        either!(self, tree => tree.restore(to_move, moves, edges))
    }

    pub(crate) fn nothing_kept(&self) -> Kept {
        either!(self, tree => tree.nothing_kept())
    }

    pub(crate) fn mark(&self, top: NodeId, kept: &mut Kept, elsewhere: impl FnMut(L)) {
        either!(self, tree => tree.mark(top, kept, elsewhere));
    }

    /// Whether the node is a copy of another worker's. There are none in shared trees.
    #[inline]
    pub(crate) fn is_copy(&self, id: NodeId) -> bool {
        match self {
            Self::Own(tree) => tree.is_copy(id),
            Self::Shared(_) => false,
        }
    }

    /// The tree that is this worker's alone, where nodes can be copies.
    pub(crate) fn own(&mut self) -> Option<&mut Tree<M, L>> {
        match self {
            Self::Own(tree) => Some(tree),
            Self::Shared(_) => None,
        }
    }
}

impl<M: Copy, L: Lead + Packed> Look<M, L> for Nodes<M, L> {
    fn proof(&self, id: NodeId) -> Option<Outcome> {
        either!(self, tree => tree.proof(id))
    }

    fn edges(&self, id: NodeId) -> Vec<EdgeView<M, L>> {
        either!(self, tree => tree.edges(id).collect())
    }

    fn best(&self, id: NodeId) -> Option<EdgeView<M, L>> {
        either!(self, tree => tree.best(id))
    }

    fn node_count(&self) -> usize {
        either!(self, tree => tree.node_count())
    }

    fn bytes(&self) -> usize {
        either!(self, tree => tree.bytes())
    }
}

impl<M: Copy, L: Lead> Look<M, L> for Tree<M, L> {
    fn proof(&self, id: NodeId) -> Option<Outcome> {
        self.proof(id)
    }

    fn edges(&self, id: NodeId) -> Vec<EdgeView<M, L>> {
        self.edges(id).collect()
    }

    fn best(&self, id: NodeId) -> Option<EdgeView<M, L>> {
        self.best(id)
    }

    fn node_count(&self) -> usize {
        self.node_count()
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }
}

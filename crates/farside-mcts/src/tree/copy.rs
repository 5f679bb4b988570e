//! What a node tells about itself to a copy of it in another tree, and what comes back.

use farside::Wire;

use super::{Edge, NodeId, Sample, Step, Tree};
use crate::game::{Outcome, Player};

/// What is known of an edge besides its move and where it leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
pub(crate) struct EdgeCopy {
    /// Of the side that moves, over all complete visits.
    pub(crate) points: u64,
    /// Complete ones.
    pub(crate) visits: u32,
    pub(crate) proof: Option<Outcome>,
}

impl<M: Copy, L: Copy> Tree<M, L> {
    /// The moves of a node: first those tried, in the order of its edges, then the others.
    pub(crate) fn moves(&self, id: NodeId) -> &[M] {
        let node = &self.nodes[id.index()];
        &self.moves[node.first_move as usize..][..node.move_count as usize]
    }

    /// What is known of the tried moves of a node, in their order, and where they lead.
    pub(crate) fn copy_edges(&self, id: NodeId) -> Vec<(EdgeCopy, Option<L>)> {
        let edges = (0..self.nodes[id.index()].tried).map(|edge| self.slots.edges[self.slot(Step { node: id, edge })]);
        edges.map(|Edge { points, visits, proof, child, .. }| (EdgeCopy { points, visits, proof }, child)).collect()
    }

    /// Adds a node of which this is known. `None` when there is no room for it.
    pub(crate) fn restore(&mut self, to_move: Player, moves: &[M], edges: &[(EdgeCopy, Option<L>)]) -> Option<NodeId> {
        let id = self.add(to_move, moves)?;
        for (edge, &(known, child)) in edges.iter().enumerate() {
            if !self.widen(id) {
                break;
            }
            let node = &mut self.nodes[id.index()];
            node.tried += 1;
            self.slots.open(&node.block, edge as u32);
            self.know(id, edge as u32, known);
            if let Some(child) = child {
                self.link(Step { node: id, edge: edge as u32 }, child);
            }
        }
        Some(id)
    }

    /// All moves of the node have been tried, so that their order stays.
    pub(crate) fn is_wide(&self, id: NodeId) -> bool {
        let node = &self.nodes[id.index()];
        node.tried == node.move_count
    }

    /// What a sample that comes to an edge of this node is worth there.
    pub(crate) fn worth(&self, step: Step, sample: Sample) -> (u32, u64) {
        let to_move = self.nodes[step.node.index()].to_move;
        (step.edge, u64::from(sample.points.of(to_move, self.rules.simulations)))
    }

    /// Adds complete visits to an edge.
    pub(crate) fn absorb(&mut self, id: NodeId, edge: u32, more: EdgeCopy) {
        let known = self.slots.edges[self.slot(Step { node: id, edge })];
        let total = EdgeCopy {
            points: known.points + more.points,
            visits: known.visits + more.visits,
            proof: known.proof.or(more.proof),
        };
        self.know(id, edge, total);
    }

    /// Says what is known of an edge. Visits that are in flight stay so, and what is proven stays proven.
    pub(crate) fn know(&mut self, id: NodeId, edge: u32, total: EdgeCopy) {
        let step = Step { node: id, edge };
        let slot = self.slot(step);
        let known = &mut self.slots.edges[slot];
        let node = &mut self.nodes[id.index()];
        node.visits = node.visits - known.visits + total.visits;
        (known.points, known.visits) = (total.points, total.visits);
        self.slots.rarity[slot] = 1.0 / ((known.visits + known.in_flight) as f32).sqrt();
        if let (None, Some(outcome)) = (known.proof, total.proof) {
            known.proof = Some(outcome);
            node.learn(outcome);
        }
        self.rate(step);
    }

    /// Whether the node is a copy of one elsewhere.
    #[inline]
    pub(crate) fn is_copy(&self, id: NodeId) -> bool {
        self.nodes[id.index()].is_copy
    }

    /// Notes that the node is a copy of one elsewhere.
    pub(crate) fn mark_copy(&mut self, id: NodeId) {
        self.nodes[id.index()].is_copy = true;
    }

    /// Where an edge leads.
    pub(crate) fn child(&self, id: NodeId, edge: u32) -> Option<L> {
        self.slots.edges[self.slot(Step { node: id, edge })].child
    }

    /// Has edges lead elsewhere.
    pub(crate) fn relink(&mut self, new: impl Fn(L) -> L) {
        for node in &self.nodes {
            let tried = node.block.first()..node.block.first() + node.tried as usize;
            self.slots.edges[tried].iter_mut().for_each(|edge| edge.child = edge.child.map(&new));
        }
    }
}

impl Step {
    /// The edge of a node with this number.
    pub(crate) fn new(node: NodeId, edge: u32) -> Self {
        Self { node, edge }
    }

    /// The node that it starts from.
    #[inline]
    pub(crate) fn node(self) -> NodeId {
        self.node
    }
}

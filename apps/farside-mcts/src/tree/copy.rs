//! The transfer of a node to another tree.

use farside::Wire;

use super::{Edge, NodeId, Step, Tree};
use crate::game::{Outcome, Player};

/// The statistics of an edge, without its move and target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(crate) struct EdgeCopy {
    /// Points of the side that moves, over all complete visits.
    points: u64,
    /// Complete visits.
    visits: u32,
    proof: Option<Outcome>,
}

impl<M: Copy, L: Copy> Tree<M, L> {
    /// Returns the moves of a node: the tried ones in the order of its edges, then the others.
    pub(crate) fn moves(&self, id: NodeId) -> &[M] {
        let node = &self.nodes[id.index()];
        &self.moves[node.first_move as usize..][..node.move_count as usize]
    }

    /// Returns the statistics and targets of the edges of a node. No visit is in flight.
    pub(crate) fn copy_edges(&self, id: NodeId) -> Vec<(EdgeCopy, Option<L>)> {
        let edges = (0..self.nodes[id.index()].tried).map(|edge| self.slots.edges[self.slot(Step { node: id, edge })]);
        edges.map(|Edge { points, visits, proof, child, .. }| (EdgeCopy { points, visits, proof }, child)).collect()
    }

    /// Adds a node with these statistics. Returns `None` if there is no memory for it.
    pub(crate) fn restore(&mut self, to_move: Player, moves: &[M], edges: &[(EdgeCopy, Option<L>)]) -> Option<NodeId> {
        let id = self.add(to_move, moves)?;
        for (&(EdgeCopy { points, visits, proof }, child), edge) in edges.iter().zip(0..) {
            if !self.widen(id) {
                break;
            }
            let step = Step { node: id, edge };
            let slot = self.slot(step);
            let node = &mut self.nodes[id.index()];
            node.tried += 1;
            node.visits += visits;
            self.slots.open(&node.block, edge);
            if let Some(outcome) = proof {
                node.learn(outcome);
            }
            self.slots.edges[slot] = Edge { points, visits, in_flight: 0, child, proof };
            self.slots.rarity[slot] = 1.0 / (visits as f32).sqrt();
            self.rate(step);
        }
        Some(id)
    }
}

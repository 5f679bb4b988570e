//! Keeping a part of a tree, and giving the rest of its memory back to it.

use std::num::NonZeroU32;

use farside::Wire;

use super::{Edge, NodeId, Step, Tree};
use crate::game::{Outcome, Player};

/// Where an edge may lead.
pub(crate) trait Lead: Copy {
    /// The node, if it is one of the same tree.
    fn here(self) -> Option<NodeId>;

    /// The same, when nodes of this tree have other numbers or none. `None` if an edge is to lead nowhere now.
    fn renumbered(self, new: impl Fn(NodeId) -> Option<NodeId>) -> Option<Self>;
}

impl Lead for NodeId {
    fn here(self) -> Option<NodeId> {
        Some(self)
    }

    fn renumbered(self, new: impl Fn(NodeId) -> Option<NodeId>) -> Option<Self> {
        new(self)
    }
}

/// Which nodes of a tree stay, and what numbers they get.
#[derive(Debug)]
pub(crate) struct Kept {
    /// By the number a node has now: its next number, or 0 if it goes. Until [`Tree::keep`] any number that is not 0.
    numbers: Vec<u32>,
}

impl Kept {
    /// The number that a node has after [`Tree::keep`]; `None` if it went.
    pub(crate) fn new_id(&self, old: NodeId) -> Option<NodeId> {
        NonZeroU32::new(self.numbers[old.index()]).map(NodeId)
    }
}

/// What is known of an edge besides its move and where it leads. No visit is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(crate) struct EdgeCopy {
    points: u64,
    visits: u32,
    proof: Option<Outcome>,
}

impl<M: Copy, L: Lead> Tree<M, L> {
    /// The moves of a node: first those tried, in the order of its edges, then the others.
    pub(crate) fn moves(&self, id: NodeId) -> &[M] {
        let node = &self.nodes[id.index()];
        &self.moves[node.first_move as usize..][..node.move_count as usize]
    }

    /// What is known of the tried moves of a node, in their order.
    pub(crate) fn copy_edges(&self, id: NodeId) -> Vec<(EdgeCopy, Option<L>)> {
        let edges = (0..self.nodes[id.index()].tried).map(|edge| self.slots.edges[self.slot(Step { node: id, edge })]);
        edges.map(|Edge { points, visits, proof, child, .. }| (EdgeCopy { points, visits, proof }, child)).collect()
    }

    /// Adds a node of which this is known. `None` when there is no room for it.
    pub(crate) fn restore(&mut self, to_move: Player, moves: &[M], edges: &[(EdgeCopy, Option<L>)]) -> Option<NodeId> {
        let id = self.add(to_move, moves)?;
        for &(EdgeCopy { points, visits, proof }, child) in edges {
            if !self.widen(id) {
                break;
            }
            let node = &mut self.nodes[id.index()];
            let step = Step { node: id, edge: node.tried };
            node.tried += 1;
            node.visits += visits;
            self.slots.open(&node.block, step.edge);
            let slot = self.slot(step);
            self.slots.edges[slot] = Edge { points, visits, in_flight: 0, child, proof };
            self.slots.rarity[slot] = 1.0 / (visits as f32).sqrt();
            if let Some(outcome) = proof {
                self.nodes[id.index()].learn(outcome);
            }
            self.rate(step);
        }
        Some(id)
    }

    /// No node stays, as yet.
    pub(crate) fn nothing_kept(&self) -> Kept {
        Kept { numbers: vec![0; self.nodes.len()] }
    }

    /// Marks a node and all below it as far as they are in this tree, and tells of edges that lead elsewhere.
    pub(crate) fn mark(&self, top: NodeId, kept: &mut Kept, mut elsewhere: impl FnMut(L)) {
        let mut open = vec![top];
        while let Some(id) = open.pop() {
            kept.numbers[id.index()] = 1;
            for link in self.edges(id).filter_map(|edge| edge.child) {
                match link.here() {
                    Some(child) => open.push(child),
                    None => elsewhere(link),
                }
            }
        }
    }

    /// Drops all nodes but those marked, with which it moves to the front of its memory. Everything behind is free to be
    /// used again.
    ///
    /// *Cost*: every node is looked at, and those that stay are copied at most once.
    pub(crate) fn keep(&mut self, kept: &mut Kept) {
        let stays = |number: &&mut u32| **number != 0;
        kept.numbers.iter_mut().filter(stays).zip(1..).for_each(|(number, next)| *number = next);
        let mut index = 0;
        self.nodes.retain(|_| {
            index += 1;
            kept.numbers[index - 1] != 0
        });
        // Moves lie in the order of their nodes.
        let mut end = 0;
        for node in &mut self.nodes {
            let first = node.first_move as usize;
            self.moves.copy_within(first..first + node.move_count as usize, end);
            node.first_move = end as u32;
            end += node.move_count as usize;
        }
        self.moves.truncate(end);
        self.slots.compact(self.nodes.iter_mut().map(|node| &mut node.block).collect());
        for node in &self.nodes {
            let tried = node.block.first()..node.block.first() + node.tried as usize;
            for Edge { child, .. } in &mut self.slots.edges[tried] {
                *child = child.and_then(|link| link.renumbered(|old| kept.new_id(old)));
            }
        }
        self.full = false;
    }
}

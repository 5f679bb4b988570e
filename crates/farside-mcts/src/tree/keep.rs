//! Keeping a part of a tree, and giving the rest of its memory back to it.

use std::num::NonZeroU32;

use super::{Edge, NodeId, Tree};

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
    pub(super) numbers: Vec<u32>,
}

impl Kept {
    /// Gives those that stay their numbers.
    pub(super) fn number(&mut self) {
        let stays = |number: &&mut u32| **number != 0;
        self.numbers.iter_mut().filter(stays).zip(1..).for_each(|(number, next)| *number = next);
    }

    /// The number that a node has after [`Tree::keep`]; `None` if it went.
    pub(crate) fn new_id(&self, old: NodeId) -> Option<NodeId> {
        NonZeroU32::new(self.numbers[old.index()]).map(NodeId)
    }
}

impl<M: Copy, L: Lead> Tree<M, L> {
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
        kept.number();
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

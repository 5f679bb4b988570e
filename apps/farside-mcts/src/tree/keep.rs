//! Keeps a part of a tree, and frees the memory of the rest.

use std::num::NonZeroU32;

use super::{Edge, NodeId, Tree};

/// The target of an edge.
pub(crate) trait EdgeTarget: Copy {
    /// Returns the node, if it is in the same tree.
    fn here(self) -> Option<NodeId>;

    /// Returns the target after nodes of this tree got new numbers, or `None` if the edge loses it.
    fn renumbered(self, new: impl Fn(NodeId) -> Option<NodeId>) -> Option<Self>;
}

impl EdgeTarget for NodeId {
    fn here(self) -> Option<NodeId> {
        Some(self)
    }

    fn renumbered(self, new: impl Fn(NodeId) -> Option<NodeId>) -> Option<Self> {
        new(self)
    }
}

/// The nodes of a tree that stay, and their new numbers.
#[derive(Debug)]
pub(crate) struct Kept {
    /// New number of each node, or 0 if the node is dropped. Before [`Tree::keep`], 1 for each node
    /// that stays.
    pub(super) numbers: Vec<u32>,
}

impl Kept {
    /// Numbers the nodes that stay.
    pub(super) fn number(&mut self) {
        let stays = |number: &&mut u32| **number != 0;
        self.numbers.iter_mut().filter(stays).zip(1..).for_each(|(number, next)| *number = next);
    }

    /// Returns the number of a node after [`Tree::keep`], or `None` if it was dropped.
    pub(crate) fn new_id(&self, old: NodeId) -> Option<NodeId> {
        NonZeroU32::new(self.numbers[old.index()]).map(NodeId)
    }
}

impl<M: Copy, L: EdgeTarget> Tree<M, L> {
    /// Returns a set that keeps no node.
    pub(crate) fn nothing_kept(&self) -> Kept {
        Kept { numbers: vec![0; self.nodes.len()] }
    }

    /// Adds a node, and all nodes of this tree below it. Calls `elsewhere` with the targets of
    /// edges that leave the tree.
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

    /// Drops all nodes that are not in `kept`, and moves the others to the front of the memory.
    ///
    /// *Cost*: one pass over all nodes; each node that stays is copied at most once.
    pub(crate) fn keep(&mut self, kept: &mut Kept) {
        kept.number();
        let mut index = 0;
        self.nodes.retain(|_| {
            index += 1;
            kept.numbers[index - 1] != 0
        });
        // Moves have the order of their nodes.
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

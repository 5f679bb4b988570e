//! Keeping a part of a shared tree. Nothing may be in flight.

use std::sync::atomic::Ordering::Relaxed;

use super::node::SharedNode;
use super::{Packed, SharedTree};
use crate::game::Player;
use crate::tree::{EdgeCopy, Kept, Lead, NodeId};

impl<M: Copy, L: Packed + Lead> SharedTree<M, L> {
    /// No node stays, as yet.
    pub(crate) fn nothing_kept(&self) -> Kept {
        Kept { numbers: vec![0; self.node_count()] }
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

    /// A tree of the nodes that were marked.
    pub(crate) fn kept(&self, kept: &mut Kept) -> Self {
        kept.number();
        let new = Self::new(self.rules);
        for number in (1..).take(kept.numbers.len()) {
            let old = NodeId(std::num::NonZeroU32::new(number).expect("counted from 1"));
            if kept.new_id(old).is_some() {
                let edges: Vec<_> = self
                    .copy_edges(old)
                    .into_iter()
                    .map(|(known, link)| (known, link.and_then(|link| link.renumbered(|node| kept.new_id(node)))))
                    .collect();
                new.restore(self.node(old).to_move, self.moves(old), &edges);
            }
        }
        new
    }

    /// What is known of the tried moves of a node, in their order, and where they lead.
    pub(crate) fn copy_edges(&self, id: NodeId) -> Vec<(EdgeCopy, Option<L>)> {
        let node = self.node(id);
        let edges = (0..node.tried()).map(|edge| {
            let (group, lane) = node.edge(edge);
            let (points, visits) = (group.points[lane].load(Relaxed), group.visits[lane].load(Relaxed));
            (EdgeCopy { points, visits, proof: group.proof(lane) }, L::unpack(group.child(lane)))
        });
        edges.collect()
    }

    /// Adds a node of which this is known, whatever memory it takes: it was there before, in this tree or in another.
    pub(crate) fn restore(&self, to_move: Player, moves: &[M], edges: &[(EdgeCopy, Option<L>)]) -> Option<NodeId> {
        let node = SharedNode::new(to_move, moves);
        node.widen(edges.len() as u32);
        for (&(EdgeCopy { points, visits, proof }, link), edge) in edges.iter().zip(0..) {
            let (group, lane) = node.edge(edge);
            group.points[lane].store(points, Relaxed);
            group.visits[lane].store(visits, Relaxed);
            node.visits.fetch_add(visits, Relaxed);
            group.set_child(lane, L::pack(link));
            if let Some(outcome) = proof {
                group.prove(lane, outcome);
                node.learn(outcome);
            }
            group.rate(lane, self.rules.simulations);
        }
        self.bytes.fetch_add(node.bytes(), Relaxed);
        self.put(node)
    }
}

//! Hot nodes, of which every worker has a copy.
//!
//! A node that is visited very often is copied to all workers. Each selects and backs up in its own copy, tells the owner from
//! time to time what that came to, and is told how the node stands by now. So rollouts need not go where a hot node is; and who
//! has a copy of the root starts rollouts.
//!
//! **Invariant:** what a copy knows is what the owner knew when it last told, and what came to the copy since. When all have
//! told what came to them, the owner knows all visits, each once.
//!
//! Copies grow no children: they learn of those that the owner made, or had made.

use std::collections::{BTreeMap, HashMap};

use farside::WorkerId;

use super::{Link, Part, Source};
use crate::game::Game;
use crate::search::job::message::{EntryId, Flush, NodeCopy, Post, Refresh, Replicate};
use crate::tree::{EdgeCopy, NodeId, Nodes, Sample, Step};

/// A node that is owned by another worker.
#[derive(Debug)]
pub(super) struct Replica {
    owner: WorkerId,
    entry: EntryId,
    /// What came to each edge since the owner was told.
    fresh: Vec<EdgeCopy>,
    fresh_visits: u32,
    /// The owner was told, and has not answered yet.
    is_awaiting: bool,
}

/// The copies that a worker has, and the nodes that it has given copies of.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// In an order that is the same every time.
    by_node: BTreeMap<NodeId, Replica>,
    by_name: HashMap<(WorkerId, EntryId), NodeId>,
    /// Own nodes that all others have copies of: the entries of their children, so far.
    given: HashMap<EntryId, Vec<Option<EntryId>>>,
}

impl Copies {
    pub(super) fn len(&self) -> usize {
        self.by_node.len()
    }

    /// Whose node this is a copy of.
    pub(super) fn original(&self, copy: NodeId) -> Option<(WorkerId, EntryId)> {
        self.by_node.get(&copy).map(|replica| (replica.owner, replica.entry))
    }

    /// The copy of a node, if there is one.
    #[inline]
    pub(super) fn of(&self, owner: WorkerId, entry: EntryId) -> Option<NodeId> {
        if self.by_name.is_empty() { None } else { self.by_name.get(&(owner, entry)).copied() }
    }

    pub(super) fn forget_given(&mut self, entry: EntryId) {
        self.given.remove(&entry);
    }

    pub(super) fn is_given(&self, entry: EntryId) -> bool {
        self.given.contains_key(&entry)
    }
}

impl<G: Game> Part<G> {
    /// Whether a node of this worker is to be copied to all others.
    #[inline]
    pub(super) fn is_hot(&self, node: NodeId) -> bool {
        let Some(replicas) = self.settings.replicas else { return false };
        let Nodes::Own(tree) = &self.tree else { return false };
        self.neighbours.count() > 1
            && tree.visits(node) > replicas.visits
            && tree.is_wide(node)
            && tree.proof(node).is_none()
    }

    /// Copies a node of this worker to all others.
    pub(super) fn replicate(&mut self, id: EntryId, is_root: bool, post: &mut impl Post<G>) {
        let Some(state) = self.entries.get(id).map(|entry| entry.state.clone()) else { return };
        self.copies.given.insert(id, Vec::new());
        let Some(copy) = self.copy(id) else { return };
        for worker in (0..self.neighbours.count()).map(WorkerId::new).filter(|worker| *worker != self.me) {
            let (state, copy) = (state.clone(), copy.clone());
            post.replicate(worker, Replicate { owner: self.me, entry: id, is_root, state, copy });
        }
    }

    /// What others are to know of a node of this worker. Its children get entries, if they have none and there is room.
    pub(super) fn copy(&mut self, id: EntryId) -> Option<NodeCopy<G::Move>> {
        let entry = self.entries.get(id)?;
        let (node, state) = (entry.node, entry.state.clone());
        let mut children = self.copies.given.remove(&id).unwrap_or_default();
        let moves = self.tree.moves(node).to_vec();
        let edges = self.tree.copy_edges(node);
        children.resize(edges.len(), None);
        let edges = edges.into_iter().zip(&moves).zip(&mut children).map(|(((known, link), &chosen), child)| {
            let link = match link {
                Some(Link::There(owner, entry)) => Some((owner, entry)),
                Some(Link::Here(node)) if self.tree.is_copy(node) => self.copies.original(node),
                Some(Link::Here(node)) => {
                    if child.is_none() && self.entries.room() > 0 {
                        let mut state = state.clone();
                        self.game.play(&mut state, chosen);
                        *child = Some(self.entries.add(node, state));
                    }
                    child.map(|entry| (self.me, entry))
                }
                Some(Link::Awaited(_) | Link::Leaf) | None => None,
            };
            (known, link)
        });
        let edges = edges.collect();
        self.copies.given.insert(id, children);
        Some(NodeCopy { moves, edges })
    }

    /// Whether there are all the workers to whom links lead.
    fn lead_somewhere(&self, mut links: impl Iterator<Item = (WorkerId, EntryId)>) -> bool {
        links.all(|(owner, _)| owner.number() < self.neighbours.count())
    }

    /// A link, as it is here.
    fn resolve(&self, (owner, entry): (WorkerId, EntryId)) -> Link {
        let own = self.entries.get(entry).filter(|_| owner == self.me).map(|entry| entry.node);
        own.or_else(|| self.copies.of(owner, entry)).map_or(Link::There(owner, entry), Link::Here)
    }

    pub(in super::super) fn receive_replicate(
        &mut self,
        message: Replicate<G::State, G::Move>,
        post: &mut impl Post<G>,
    ) {
        let Replicate { owner, entry, is_root, state, copy: NodeCopy { moves, edges } } = message;
        let links = edges.iter().filter_map(|(_, link)| *link);
        if !self.lead_somewhere(links.chain([(owner, entry)])) {
            self.mismatch = Some("a worker");
            return;
        }
        let fresh = vec![EdgeCopy::default(); edges.len()];
        let edges: Vec<_> =
            edges.into_iter().map(|(known, link)| (known, link.map(|link| self.resolve(link)))).collect();
        // Without room rollouts go on to the owner, as before.
        let Some(tree) = self.tree.own() else { return };
        let node = tree.restore(self.game.to_move(&state), &moves, &edges);
        let Some(node) = node.filter(|node| tree.is_wide(*node)) else { return };
        tree.mark_copy(node);
        let replica = Replica { owner, entry, fresh, fresh_visits: 0, is_awaiting: false };
        self.copies.by_node.insert(node, replica);
        self.copies.by_name.insert((owner, entry), node);
        if is_root && self.root.is_none() {
            self.source = Some(Source::new(node, state));
            self.tell_done(post);
        }
    }

    /// A sample has come to an edge of a copy.
    pub(super) fn note_fresh(&mut self, step: Step, sample: Sample, post: &mut impl Post<G>) {
        let Some((edge, points)) = self.tree.own().map(|tree| tree.worth(step, sample)) else { return };
        let Some(replica) = self.copies.by_node.get_mut(&step.node()) else { return };
        let Some(fresh) = replica.fresh.get_mut(edge as usize) else { return };
        let is_news = sample.proof().is_some() && fresh.proof.is_none();
        fresh.points += points;
        fresh.visits += 1;
        fresh.proof = fresh.proof.or(sample.proof());
        replica.fresh_visits += 1;
        let flush_every = self.settings.replicas.map_or(1, |replicas| replicas.flush_every);
        if !replica.is_awaiting && (is_news || replica.fresh_visits >= flush_every) {
            self.flush(step.node(), post);
        }
    }

    fn flush(&mut self, copy: NodeId, post: &mut impl Post<G>) {
        let Some(replica) = self.copies.by_node.get_mut(&copy) else { return };
        let more =
            replica.fresh.iter().zip(0..).filter(|(fresh, _)| fresh.visits > 0).map(|(fresh, edge)| (edge, *fresh));
        let flush = Flush { from: self.me, entry: replica.entry, more: more.collect() };
        replica.fresh.fill(EdgeCopy::default());
        (replica.fresh_visits, replica.is_awaiting) = (0, true);
        post.flush(replica.owner, flush);
    }

    /// Tells the owners of all copies what came to them.
    pub(in super::super) fn flush_all(&mut self, post: &mut impl Post<G>) {
        let stale = self.copies.by_node.iter().filter(|(_, replica)| replica.fresh_visits > 0).map(|(node, _)| *node);
        for node in stale.collect::<Vec<_>>() {
            self.flush(node, post);
        }
    }

    pub(in super::super) fn receive_flush(&mut self, message: Flush, post: &mut impl Post<G>) {
        let Flush { from, entry, more } = message;
        let node = self.entries.get(entry).map(|entry| entry.node).filter(|_| self.copies.is_given(entry));
        let Some(node) = node.filter(|_| from.number() < self.neighbours.count()) else {
            self.mismatch = Some("a node with copies");
            return;
        };
        let Some(tree) = self.tree.own() else { return };
        for (edge, known) in more {
            if edge as usize >= tree.moves(node).len() {
                self.mismatch = Some("an edge");
                return;
            }
            tree.absorb(node, edge, known);
        }
        self.stop_when_proven();
        let Some(NodeCopy { edges, .. }) = self.copy(entry) else { return };
        post.refresh(from, Refresh { owner: self.me, entry, edges });
    }

    pub(in super::super) fn receive_refresh(&mut self, message: Refresh, post: &mut impl Post<G>) {
        let Refresh { owner, entry, edges } = message;
        if !self.lead_somewhere(edges.iter().filter_map(|(_, link)| *link)) {
            self.mismatch = Some("a worker");
            return;
        }
        let Some(node) = self.copies.of(owner, entry) else {
            self.mismatch = Some("a copy");
            return;
        };
        let Some(replica) = self.copies.by_node.get_mut(&node).filter(|replica| replica.fresh.len() == edges.len())
        else {
            self.mismatch = Some("a copy");
            return;
        };
        replica.is_awaiting = false;
        let flush_every = self.settings.replicas.map_or(1, |replicas| replicas.flush_every);
        let is_due = replica.fresh_visits >= flush_every;
        let fresh = replica.fresh.clone();
        for (((known, link), fresh), edge) in edges.into_iter().zip(fresh).zip(0..) {
            let proof = known.proof.or(fresh.proof);
            let total = EdgeCopy { points: known.points + fresh.points, visits: known.visits + fresh.visits, proof };
            let Some(tree) = self.tree.own() else { return };
            tree.know(node, edge, total);
            if let (None, Some(link)) = (tree.child(node, edge), link) {
                let link = self.resolve(link);
                self.tree.link(Step::new(node, edge), link);
            }
        }
        if is_due {
            self.flush(node, post);
        }
    }

    /// Forgets all copies, here and elsewhere: everybody does so at once. What came to them has been told.
    pub(in super::super) fn drop_copies(&mut self) {
        let copies = std::mem::take(&mut self.copies);
        if let Some(tree) = self.tree.own().filter(|_| copies.len() > 0) {
            tree.relink(|link| match link {
                Link::Here(node) => copies.original(node).map_or(link, |(owner, entry)| Link::There(owner, entry)),
                other => other,
            });
        }
        self.source = None;
        if let Some(root) = &mut self.root {
            root.forget_starters();
        }
    }

    /// Complete visits of the copy of a node.
    #[cfg(test)]
    pub(in super::super) fn copy_visits(&self, (owner, entry): (WorkerId, EntryId)) -> Option<u32> {
        let copy = self.copies.of(owner, entry)?;
        Some(self.tree.copy_edges(copy).iter().map(|(known, _)| known.visits).sum())
    }

    /// Whose node this is a copy of.
    #[cfg(test)]
    pub(in super::super) fn original(&self, copy: NodeId) -> Option<(WorkerId, EntryId)> {
        self.copies.original(copy)
    }
}

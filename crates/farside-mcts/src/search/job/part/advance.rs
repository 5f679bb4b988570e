//! A new root for the tree: one of the old root's children. Nothing may be under way.
//!
//! The node goes to worker 0, if it is not there; all below it stays where it is. Every worker then keeps what the new root
//! leads to, as told by messages where an edge leads from one worker to another, and gives up the rest.

use std::sync::Arc;

use farside::{Wire, WorkerId};

use super::commons::lock;
use super::{Commons, Link, Part};
use crate::game::{Game, Player};
use crate::search::SearchError;
use crate::search::job::message::{EntryId, Keep, NodeCopy, Post};
use crate::tree::{Kept, Lead, Look, NodeId, Nodes};

/// Where the node of a move of the root is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(in super::super) enum Whereabouts {
    /// There is none.
    Nowhere,
    /// At worker 0.
    First,
    /// At another worker.
    There(WorkerId, EntryId),
}

/// What a worker has been told to keep.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    /// Of a tree of its own. Workers that share one mark in what they have in common.
    kept: Option<Kept>,
    entries: Vec<EntryId>,
    /// On worker 0: the new root, by its old number.
    top: Option<NodeId>,
}

impl<G: Game> Part<G> {
    /// On worker 0: where the node of this move is.
    pub(in super::super) fn whereabouts(&self, chosen: G::Move) -> Option<Whereabouts> {
        let root = self.root.as_ref()?;
        let edge = self.root_edge(root.node, chosen);
        Some(match edge {
            Some(Link::Here(_)) => Whereabouts::First,
            Some(Link::There(owner, entry)) => Whereabouts::There(owner, entry),
            Some(Link::Awaited(_) | Link::Leaf) | None => Whereabouts::Nowhere,
        })
    }

    /// A node of this worker, for worker 0 to own. Children for whose entries there is no room are lost.
    pub(in super::super) fn uproot(&mut self, id: EntryId) -> Option<NodeCopy<G::Move>> {
        let copy = self.copy(id);
        self.copies.forget_given(id);
        copy
    }

    fn root_edge(&self, root: NodeId, chosen: G::Move) -> Option<Link> {
        self.tree.edges(root).into_iter().find(|edge| edge.chosen == chosen)?.child
    }

    /// Begins to keep what is told from now on.
    pub(in super::super) fn begin_keeping(&mut self) {
        let mut keeping = Keeping::default();
        match &self.commons {
            Some(commons) if self.counts_nodes() => *lock(&commons.kept) = Some(self.tree.nothing_kept()),
            Some(_) => {}
            None => keeping.kept = Some(self.tree.nothing_kept()),
        }
        self.keeping = Some(keeping);
    }

    /// On worker 0: keeps what is below a move of the root, or below the node that came from another worker for it. Everybody
    /// has begun.
    pub(in super::super) fn keep_below(
        &mut self,
        chosen: G::Move,
        uprooted: Option<&NodeCopy<G::Move>>,
        post: &mut impl Post<G>,
    ) {
        let Some(root) = &self.root else { return };
        let Some(uprooted) = uprooted else {
            if let Some(Link::Here(node)) = self.root_edge(root.node, chosen) {
                self.keep_node(node, post);
                self.keeping.as_mut().map(|keeping| keeping.top.replace(node));
            }
            return;
        };
        for &(owner, entry) in uprooted.edges.iter().filter_map(|(_, link)| link.as_ref()) {
            match self.entries.get(entry).filter(|_| owner == self.me).map(|entry| entry.node) {
                Some(node) => self.keep_node(node, post),
                None => post.keep(owner, Keep { entry }),
            }
        }
    }

    fn keep_node(&mut self, node: NodeId, post: &mut impl Post<G>) {
        let mut elsewhere = Vec::new();
        let own = self.keeping.as_mut().and_then(|keeping| keeping.kept.as_mut());
        let mut shared = self.commons.as_ref().map(|commons| lock(&commons.kept));
        match own.or_else(|| shared.as_mut()?.as_mut()) {
            Some(kept) => self.tree.mark(node, kept, |link| elsewhere.push(link)),
            None => self.mismatch = Some("a new root"),
        }
        drop(shared);
        // Only now, as nothing is sent while others may want what is in common.
        for link in elsewhere {
            if let Link::There(owner, entry) = link {
                post.keep(owner, Keep { entry });
            }
        }
    }

    pub(in super::super) fn receive_keep(&mut self, message: Keep, post: &mut impl Post<G>) {
        let Some(node) = self.entries.get(message.entry).map(|entry| entry.node) else {
            self.mismatch = Some("a node");
            return;
        };
        self.keep_node(node, post);
        if let Some(keeping) = &mut self.keeping {
            keeping.entries.push(message.entry);
        }
    }

    /// Gives up all nodes that are not kept. Everybody has been told what to keep. Where nodes are shared, one worker does so for
    /// all, and nobody uses them until that is done.
    pub(in super::super) fn compact(&mut self) {
        let own = self.keeping.as_mut().and_then(|keeping| keeping.kept.as_mut());
        match (&mut self.tree, &self.commons) {
            (Nodes::Own(tree), _) => {
                if let Some(kept) = own {
                    tree.keep(kept);
                }
            }
            (Nodes::Shared(tree), Some(commons)) if self.me == self.team.first => {
                let next = lock(&commons.kept).as_mut().map(|kept| Arc::new(Commons::of(tree.kept(kept))));
                *lock(&commons.next) = next;
            }
            (Nodes::Shared(_), _) => {}
        }
    }

    /// Goes on with what is kept. On worker 0 `state` becomes the root, with these moves if nothing is known of it.
    pub(in super::super) fn end_keeping(
        &mut self,
        (state, moves): (&G::State, &[G::Move]),
        uprooted: Option<NodeCopy<G::Move>>,
    ) {
        let Some(Keeping { kept, entries, top }) = self.keeping.take() else { return };
        self.neighbours.have_room_again();
        (self.root_entry, self.source) = (None, None);
        let old = self.commons.clone();
        let shared = old.as_ref().map(|commons| lock(&commons.kept));
        let Some(kept) = kept.as_ref().or_else(|| shared.as_ref()?.as_ref()) else { return };
        if let Some(next) = old.as_ref().and_then(|commons| lock(&commons.next).clone()) {
            self.tree = Nodes::Shared(Arc::clone(&next.tree));
            self.births = Arc::clone(&next.births);
            self.commons = Some(next);
        }
        let new = |link: Link| link.renumbered(|node| kept.new_id(node));
        let edges: Option<(_, Vec<_>)> = uprooted.map(|NodeCopy { moves, edges }| {
            let own = |(owner, entry): (WorkerId, EntryId)| match self.entries.get(entry) {
                Some(entry) if owner == self.me => new(Link::Here(entry.node)),
                _ => Some(Link::There(owner, entry)),
            };
            (moves, edges.into_iter().map(|(known, link)| (known, link.and_then(own))).collect())
        });
        let mut entries: Vec<_> = entries.into_iter().map(|id| id.0).collect();
        entries.sort_unstable();
        self.entries.renumber(|id, node| kept.new_id(node).filter(|_| entries.binary_search(&id.0).is_ok()));
        if self.root.is_none() {
            return;
        }
        let to_move = self.game.to_move(state);
        let known = match (edges, top) {
            (Some((moves, edges)), _) => self.tree.restore(to_move, &moves, &edges),
            (None, top) => top.and_then(|node| kept.new_id(node)),
        };
        let node = known.unwrap_or_else(|| self.begin_anew(to_move, moves));
        drop(shared);
        self.take_root(node, state);
        if let Some(commons) = &self.commons {
            *lock(&commons.root) = Some(node);
        }
    }

    /// A root of which nothing is known.
    fn begin_anew(&mut self, to_move: Player, moves: &[G::Move]) -> NodeId {
        let mut moves = moves.to_vec();
        if let Some(node) = self.tree.add(to_move, &mut moves, &mut self.rng) {
            return node;
        }
        // What is left here takes all room. Nothing leads there from a new root.
        if let Nodes::Own(tree) = &mut self.tree {
            tree.keep(&mut tree.nothing_kept());
            self.entries.renumber(|_, _| None);
        }
        self.tree.restore(to_move, &moves, &[]).expect("a tree of one node was found to fit")
    }

    /// Where nodes are shared: starts from the new root, which worker 0 has made.
    pub(in super::super) fn adopt_root(&mut self, state: &G::State) {
        let root = self.commons.as_ref().and_then(|commons| *lock(&commons.root));
        if let Some(node) = root.filter(|_| self.root.is_none()) {
            self.take_root(node, state);
        }
    }

    /// Whether a tree with these moves could begin here; the same on every worker.
    pub(in super::super) fn check_room(&self, moves: &[G::Move]) -> Result<(), SearchError> {
        let bytes = self.params.memory_bytes;
        if self.tree.could_begin(moves) { Ok(()) } else { Err(SearchError::Memory { bytes }) }
    }

    /// Visits of the root, on worker 0.
    pub(in super::super) fn root_visits(&self) -> u64 {
        self.root.as_ref().map_or(0, |root| u64::from(self.tree.visits(root.node)))
    }
}

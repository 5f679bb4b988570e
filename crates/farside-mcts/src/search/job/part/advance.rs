//! A new root for the tree: one of the old root's children. Nothing may be under way.
//!
//! The node goes to worker 0, if it is not there; all below it stays where it is. Every worker then keeps what the new root
//! leads to, as told by messages where an edge leads from one worker to another, and gives up the rest.

use farside::{Wire, WorkerId};

use super::{Link, Part, Root};
use crate::game::Game;
use crate::search::SearchError;
use crate::search::job::message::{EntryId, Keep, NodeCopy, Post};
use crate::tree::{Kept, Lead, NodeId};

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
#[derive(Debug)]
pub(super) struct Keeping {
    kept: Kept,
    entries: Vec<EntryId>,
}

impl<G: Game> Part<G> {
    /// On worker 0: where the node of this move is.
    pub(in super::super) fn whereabouts(&self, chosen: G::Move) -> Option<Whereabouts> {
        let root = self.root.as_ref()?;
        let edge = self.tree.edges(root.node).find(|edge| edge.chosen == chosen);
        Some(match edge.and_then(|edge| edge.child) {
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

    /// Begins to keep what is told from now on.
    pub(in super::super) fn begin_keeping(&mut self) {
        self.keeping = Some(Keeping { kept: self.tree.nothing_kept(), entries: Vec::new() });
    }

    /// On worker 0: keeps what is below a move of the root, or below the node that came from another worker for it.
    pub(in super::super) fn keep_below(
        &mut self,
        chosen: G::Move,
        uprooted: Option<&NodeCopy<G::Move>>,
        post: &mut impl Post<G>,
    ) {
        let Some(root) = &self.root else { return };
        match uprooted {
            Some(uprooted) => {
                for &(owner, entry) in uprooted.edges.iter().filter_map(|(_, link)| link.as_ref()) {
                    match self.entries.get(entry).filter(|_| owner == self.me).map(|entry| entry.node) {
                        Some(node) => self.keep_node(node, post),
                        None => post.keep(owner, Keep { entry }),
                    }
                }
            }
            None => {
                let edge = self.tree.edges(root.node).find(|edge| edge.chosen == chosen);
                if let Some(Link::Here(node)) = edge.and_then(|edge| edge.child) {
                    self.keep_node(node, post);
                }
            }
        }
    }

    fn keep_node(&mut self, node: NodeId, post: &mut impl Post<G>) {
        let Some(keeping) = &mut self.keeping else {
            self.mismatch = Some("a new root");
            return;
        };
        self.tree.mark(node, &mut keeping.kept, |link| {
            if let Link::There(owner, entry) = link {
                post.keep(owner, Keep { entry });
            }
        });
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

    /// Gives up what is not kept. On worker 0 `state` becomes the root, with these moves if nothing is known of it.
    pub(in super::super) fn end_keeping(
        &mut self,
        (chosen, state, moves): (G::Move, &G::State, &[G::Move]),
        uprooted: Option<NodeCopy<G::Move>>,
    ) {
        let Some(Keeping { mut kept, mut entries }) = self.keeping.take() else { return };
        self.neighbours.have_room_again();
        self.root_entry = None;
        let old_root = self.root.take().map(|root| root.node);
        let below = old_root.and_then(|root| self.tree.edges(root).find(|edge| edge.chosen == chosen)?.child);
        let own = |(owner, entry): (WorkerId, EntryId)| match self.entries.get(entry) {
            Some(entry) if owner == self.me => Link::Here(entry.node),
            _ => Link::There(owner, entry),
        };
        let resolved = uprooted.map(|NodeCopy { moves, edges }| {
            let edges: Vec<_> = edges.into_iter().map(|(copy, link)| (copy, link.map(own))).collect();
            (moves, edges)
        });
        self.tree.keep(&mut kept);
        entries.sort_unstable_by_key(|id| id.0);
        self.entries.renumber(|id, node| {
            entries.binary_search_by_key(&id.0, |entry| entry.0).ok().and_then(|_| kept.new_id(node))
        });
        if old_root.is_none() {
            return;
        }
        let to_move = self.game.to_move(state);
        let moved = |link: Link| link.renumbered(|old| kept.new_id(old));
        let known = match (below.and_then(moved), resolved) {
            (_, Some((moves, edges))) => {
                let edges: Vec<_> = edges.into_iter().map(|(copy, link)| (copy, link.and_then(moved))).collect();
                self.tree.restore(to_move, &moves, &edges)
            }
            (Some(Link::Here(node)), None) => Some(node),
            _ => None,
        };
        let node = known.or_else(|| self.tree.add(to_move, moves)).unwrap_or_else(|| {
            // What is left here takes all room. Nothing leads there from a new root.
            self.tree.keep(&mut self.tree.nothing_kept());
            self.entries.renumber(|_, _| None);
            self.tree.add(to_move, moves).expect("a tree of one node was found to fit")
        });
        self.root = Some(Root::new(node, state.clone(), self.neighbours.count()));
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

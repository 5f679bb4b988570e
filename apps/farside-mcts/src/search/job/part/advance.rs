//! Makes a child of the root the new root. No rollout may be under way.
//!
//! The child moves to worker 0, if another worker owns it; all nodes below it stay at their owners.
//! Every worker then keeps the nodes below the new root and drops the rest. Where an edge leads
//! from one worker to another, a [`Keep`] message tells the owner to keep its node.

use farside::{Wire, WorkerId};

use super::{Link, Part};
use crate::game::{Game, Player};
use crate::search::SearchError;
use crate::search::job::message::{EntryId, Keep, Message, Post};
use crate::tree::{EdgeCopy, EdgeTarget, Kept, NodeId};

/// The owner of a child of the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(in super::super) enum Whereabouts {
    /// There is no node.
    Nowhere,
    /// Worker 0.
    First,
    /// Another worker.
    There(WorkerId, EntryId),
}

/// A node that moves to worker 0: its moves, and the statistics and targets of its tried ones.
#[derive(Clone, Debug, Wire)]
pub(in super::super) struct Uprooted<M> {
    moves: Vec<M>,
    edges: Vec<(EdgeCopy, Option<(WorkerId, EntryId)>)>,
}

/// The nodes that a worker keeps.
#[derive(Debug)]
pub(super) struct Keeping {
    kept: Kept,
    entries: Vec<EntryId>,
    /// At worker 0: the old number of the new root.
    top: Option<NodeId>,
}

impl<G: Game> Part<G> {
    /// At worker 0: returns the owner of the node of a move.
    pub(in super::super) fn whereabouts(&self, chosen: G::Move) -> Option<Whereabouts> {
        let root = self.root.as_ref()?;
        Some(match self.root_edge(root.node, chosen) {
            Some(Link::Here(_)) => Whereabouts::First,
            Some(Link::There(owner, entry)) => Whereabouts::There(owner, entry),
            Some(Link::Awaited(_) | Link::Leaf) | None => Whereabouts::Nowhere,
        })
    }

    /// Returns a node of this worker for worker 0. Its children become entries; those for which
    /// there is no room are lost.
    pub(in super::super) fn uproot(&mut self, id: EntryId) -> Option<Uprooted<G::Move>> {
        let entry = self.entries.get(id)?;
        let (node, state) = (entry.node, entry.state.clone());
        let moves = self.tree.moves(node).to_vec();
        let edges = self.tree.copy_edges(node).into_iter().zip(&moves).map(|((known, link), &chosen)| {
            let link = match link {
                Some(Link::There(owner, entry)) => Some((owner, entry)),
                Some(Link::Here(child)) if self.entries.room() > 0 => {
                    let mut state = state.clone();
                    self.game.play(&mut state, chosen);
                    Some((self.me, self.entries.add(child, state)))
                }
                Some(Link::Here(_) | Link::Awaited(_) | Link::Leaf) | None => None,
            };
            (known, link)
        });
        let edges = edges.collect();
        Some(Uprooted { moves, edges })
    }

    fn root_edge(&self, root: NodeId, chosen: G::Move) -> Option<Link> {
        self.tree.edges(root).find(|edge| edge.chosen == chosen)?.child
    }

    /// Begins to record which nodes to keep.
    pub(in super::super) fn begin_keeping(&mut self) {
        self.keeping = Some(Keeping { kept: self.tree.nothing_kept(), entries: Vec::new(), top: None });
    }

    /// At worker 0: keeps the nodes below a move of the root, or below the node that another worker
    /// sent for it. All workers have called [`begin_keeping`](Self::begin_keeping).
    pub(in super::super) fn keep_below(
        &mut self,
        chosen: G::Move,
        uprooted: Option<&Uprooted<G::Move>>,
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
                None => post.send(owner, Keep { entry }),
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
                post.send(owner, Keep { entry });
            }
        });
    }

    /// Drops all nodes that are not kept, and continues with the rest. No [`Keep`] message is under
    /// way.
    ///
    /// At worker 0 `state` becomes the root. It gets `moves` if its node is unknown.
    pub(in super::super) fn end_keeping(
        &mut self,
        (state, moves): (&G::State, &[G::Move]),
        uprooted: Option<Uprooted<G::Move>>,
    ) {
        let Some(Keeping { mut kept, entries, top }) = self.keeping.take() else { return };
        self.neighbours.have_room_again();
        self.tree.keep(&mut kept);
        let new = |link: Link| link.renumbered(|node| kept.new_id(node));
        let edges: Option<(_, Vec<_>)> = uprooted.map(|Uprooted { moves, edges }| {
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
        self.root = Some(super::Root::new(node, state.clone()));
    }

    /// Makes a root without statistics.
    fn begin_anew(&mut self, to_move: Player, moves: &[G::Move]) -> NodeId {
        if let Some(node) = self.tree.add(to_move, moves) {
            return node;
        }
        // The nodes that are left here use all memory. A new root does not lead to them, so drop
        // them.
        self.tree.keep(&mut self.tree.nothing_kept());
        self.entries.renumber(|_, _| None);
        self.tree.add(to_move, moves).expect("a tree of one node fits, as `check_room` has found")
    }

    /// Checks that a tree with these moves at its root fits; the same on every worker.
    pub(in super::super) fn check_room(&self, moves: &[G::Move]) -> Result<(), SearchError> {
        let bytes = self.params.memory_bytes;
        if self.tree.could_begin(moves) { Ok(()) } else { Err(SearchError::Memory { bytes }) }
    }

    /// At worker 0: returns the visits of the root. Elsewhere 0.
    pub(in super::super) fn root_visits(&self) -> u64 {
        self.root.as_ref().map_or(0, |root| u64::from(self.tree.visits(root.node)))
    }
}

impl<G: Game> Message<G> for Keep {
    fn receive(self, part: &mut Part<G>, post: &mut impl Post<G>) {
        let Some(node) = part.entries.get(self.entry).map(|entry| entry.node) else {
            part.mismatch = Some("a node");
            return;
        };
        part.keep_node(node, post);
        if let Some(keeping) = &mut part.keeping {
            keeping.entries.push(self.entry);
        }
    }
}

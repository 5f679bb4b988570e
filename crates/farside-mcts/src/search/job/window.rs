//! [`Window`]: a look at a search while it runs.

use std::cell::RefCell;
use std::collections::BinaryHeap;

use farside::{PerWorker, Worker, WorkerId};

use super::desk::{Desk, Seat};
use super::part::{Link, Part};
use crate::game::Game;
use crate::tree::NodeId;

/// A look at the searches of the workers of a job, while they run: [`OnJob::window`]. For functions
/// that run when the worker makes progress.
///
/// [`OnJob::window`]: crate::OnJob::window
#[derive(Clone, Copy, Debug)]
pub struct Window(PerWorker<RefCell<Desk>>);

/// A node of a search tree.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct NodeReport<M> {
    /// The index of its parent among the nodes. `None` for the root.
    pub parent: Option<usize>,
    /// The move that leads to it. `None` for the root.
    pub chosen: Option<M>,
    /// Complete visits.
    pub visits: u32,
    /// Share of points of the side that makes the move.
    pub win_rate: f64,
    /// Whether its outcome is known.
    pub is_proven: bool,
    /// The worker that owns it.
    pub owner: WorkerId,
}

/// A node that waits for its turn, those with many visits first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    visits: u32,
    parent: usize,
    node: NodeId,
}

impl Window {
    pub(super) fn new(desk: PerWorker<RefCell<Desk>>) -> Self {
        Self(desk)
    }

    /// Calls `look` with the part of this worker in a search of `G`. Returns `None` if it does not
    /// take part in one now.
    fn look<G: Game, R>(&self, me: &Worker, look: impl FnOnce(&Part<G>) -> R) -> Option<R> {
        let desk = self.0.here(me).try_borrow().ok()?;
        desk.seat()?.downcast_ref::<Seat<G>>().map(|seat| look(&seat.part))
    }

    /// Returns up to `count` nodes of the tree, those with the most visits: the root and its moves,
    /// and so on, as far as the tree lies at this worker. Of nodes elsewhere it returns what their
    /// parents know. Returns none unless this worker owns the root and the search runs.
    ///
    /// *Cost*: some hundred nanoseconds for each node.
    pub fn nodes<G: Game>(&self, me: &Worker, count: usize) -> Vec<NodeReport<G::Move>> {
        let nodes = self.look(me, |part: &Part<G>| {
            let root = part.root()?.node;
            Some(nodes(part, root, me.id(), count))
        });
        nodes.flatten().unwrap_or_default()
    }

    /// Returns the expected line of play, as far as the tree lies at this worker. Returns none
    /// unless it owns the root and the search runs.
    pub fn line<G: Game>(&self, me: &Worker) -> Vec<G::Move> {
        let mut line = Vec::new();
        self.look(me, |part: &Part<G>| part.follow(None, &mut line));
        line
    }

    /// Returns the number of rollouts that are complete. `None` unless this worker owns the root and
    /// the search runs.
    pub fn rollouts<G: Game>(&self, me: &Worker) -> Option<u64> {
        self.look(me, |part: &Part<G>| part.root().map(|root| root.completed)).flatten()
    }
}

fn nodes<G: Game>(part: &Part<G>, root: NodeId, me: WorkerId, count: usize) -> Vec<NodeReport<G::Move>> {
    let tree = part.tree();
    let of_root = NodeReport {
        parent: None,
        chosen: None,
        visits: tree.visits(root),
        win_rate: 0.5,
        is_proven: tree.proof(root).is_some(),
        owner: me,
    };
    let mut found = vec![of_root];
    let mut waiting = BinaryHeap::from([Waiting { visits: u32::MAX, parent: 0, node: root }]);
    while let Some(Waiting { parent, node, .. }) = waiting.pop() {
        for edge in tree.edges(node) {
            if found.len() >= count {
                return found;
            }
            let owner = if let Some(Link::There(owner, _)) = edge.child { owner } else { me };
            if let Some(Link::Here(node)) = edge.child {
                waiting.push(Waiting { visits: edge.visits, parent: found.len(), node });
            }
            found.push(NodeReport {
                parent: Some(parent),
                chosen: Some(edge.chosen),
                visits: edge.visits,
                win_rate: edge.win_rate,
                is_proven: edge.proof.is_some(),
                owner,
            });
        }
    }
    found
}

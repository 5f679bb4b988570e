//! [`Window`]: a look into a search on a job while it runs.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use farside::{PerWorker, Worker, WorkerId};

use super::desk::{Desk, Seat};
use super::message::EntryId;
use super::part::{Link, Part};
use super::{OnJob, Search};
use crate::game::Game;
use crate::tree::NodeId;

/// A look into the search that a worker takes part in, for functions that the worker runs when it
/// makes progress. Made by [`OnJob::window`].
#[derive(Clone, Copy, Debug)]
pub struct Window {
    desk: PerWorker<RefCell<Desk>>,
}

/// A move that was tried in a position of the tree, with what is known of the position after it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Branch<M> {
    /// The name of the position after the move. Branches of all workers have different names.
    pub id: String,
    /// The name of the position before it. That of the root is [`Window::ROOT`].
    pub parent: String,
    /// The move.
    pub chosen: M,
    /// Number of rollouts through this move, complete and in flight.
    pub visits: u32,
    /// Share of games that the side to move won, from 0 to 1.
    pub win_rate: f64,
    /// The worker that owns the position after the move.
    pub owner: WorkerId,
}

impl<'w> OnJob<'w> {
    /// A look into searches while they run.
    #[must_use]
    pub fn window(&self) -> Window {
        Window { desk: self.desk }
    }
}

impl<G: Game> Search<G, OnJob<'_>> {
    /// Asks `exploration` for the constant c of the UCB rule again and again while the search runs:
    /// every few rollouts. Values that are negative or no numbers are ignored. Each worker asks its
    /// own.
    #[must_use]
    pub fn tune(mut self, exploration: impl FnMut() -> f32 + Send + 'static) -> Self {
        self.tuner = Some(Box::new(exploration));
        self
    }
}

impl Window {
    /// The name of the root's position.
    pub const ROOT: &'static str = "root";

    /// The branches of this worker's nodes that have the most visits: at most `count_max`. There
    /// are none if no search of this game runs.
    ///
    /// Together with those of all other workers, they are the upper part of the tree.
    ///
    /// *Cost*: a look at each node that other workers know, and a few comparisons for each branch.
    #[must_use]
    pub fn branches<G: Game>(&self, me: &Worker, count_max: usize) -> Vec<Branch<G::Move>> {
        let desk = self.desk.here(me);
        // A handler may ask while the worker is at work.
        let Ok(mut desk) = desk.try_borrow_mut() else { return Vec::new() };
        let seat = desk.seat().and_then(|seat| seat.downcast_mut::<Seat<G>>());
        seat.map_or_else(Vec::new, |seat| branches(&seat.part, count_max))
    }
}

/// A node whose branches are to be listed. The one with the most visits comes first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    visits: u32,
    name: String,
    node: u32,
}

fn branches<G: Game>(part: &Part<G>, count_max: usize) -> Vec<Branch<G::Move>> {
    let (me, tree) = (part.me(), part.tree());
    let known: HashMap<NodeId, EntryId> = part.known_nodes().map(|(entry, node)| (node, entry)).collect();
    let entry_name = |owner: WorkerId, entry: EntryId| format!("{}.e{}", owner.number(), entry.0);
    let mut nodes = Vec::new();
    let mut candidates = BinaryHeap::new();
    let root = part.root().map(|root| (Window::ROOT.to_owned(), root.node));
    let starts = root.into_iter().chain(known.iter().map(|(node, entry)| (entry_name(me, *entry), *node)));
    for ((name, node), number) in starts.zip(0..) {
        candidates.push(Candidate { visits: tree.visits(node), name, node: number });
        nodes.push(node);
    }
    let mut found = Vec::new();
    // The most visits that were found: at most `count_max`, the fewest on top.
    let mut most = BinaryHeap::new();
    while let Some(Candidate { visits, name: parent, node }) = candidates.pop() {
        // No branch of this node or of those that are left has more visits than the node itself.
        if most.len() == count_max && most.peek().is_none_or(|Reverse(fewest)| visits <= *fewest) {
            break;
        }
        let node = nodes[node as usize];
        for (edge, number) in tree.edges(node).zip(0..) {
            let mut owner = me;
            let id = match edge.child {
                Some(Link::Here(child)) if known.contains_key(&child) => entry_name(me, known[&child]),
                Some(Link::Here(child)) => {
                    let name = format!("{parent}.{number}");
                    candidates.push(Candidate { visits: edge.visits, name: name.clone(), node: nodes.len() as u32 });
                    nodes.push(child);
                    name
                }
                Some(Link::There(worker, entry)) => {
                    owner = worker;
                    entry_name(worker, entry)
                }
                Some(Link::Awaited(_) | Link::Leaf) | None => format!("{parent}.{number}"),
            };
            let (parent, chosen, visits, win_rate) = (parent.clone(), edge.chosen, edge.visits, edge.win_rate);
            found.push(Branch { id, parent, chosen, visits, win_rate, owner });
            most.push(Reverse(visits));
            if most.len() > count_max {
                most.pop();
            }
        }
    }
    found.sort_by_key(|branch| Reverse(branch.visits));
    found.truncate(count_max);
    found
}

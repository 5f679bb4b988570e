//! The root and the budget, which worker 0 owns.

use super::Part;
use crate::game::Game;
use crate::search::job::message::Post;
use crate::tree::NodeId;

/// The root of the tree and the budget of a run.
#[derive(Debug)]
pub(in super::super) struct Root<S> {
    pub(in super::super) node: NodeId,
    state: S,
    /// Visits before this run.
    pub(in super::super) kept: u64,
    pub(in super::super) started: u64,
    /// Maximum of `started`.
    limit: u64,
    pub(in super::super) completed: u64,
    in_flight_max: u32,
}

impl<S> Root<S> {
    pub(super) fn new(node: NodeId, state: S) -> Self {
        Self { node, state, kept: 0, started: 0, limit: 0, completed: 0, in_flight_max: 0 }
    }

    pub(super) fn begin(&mut self, visits: u64, rollouts: u64) {
        self.kept = visits;
        (self.started, self.completed, self.in_flight_max) = (0, 0, 0);
        self.limit = rollouts;
    }

    /// Returns whether all rollouts are complete.
    pub(in super::super) fn is_complete(&self) -> bool {
        self.completed == self.limit
    }

    /// Starts no more rollouts.
    pub(in super::super) fn stop(&mut self) {
        self.limit = self.limit.min(self.started);
    }

    pub(in super::super) fn in_flight_max(&self) -> u32 {
        self.in_flight_max
    }

    fn in_flight(&self) -> u64 {
        self.started - self.completed
    }
}

/// Number of complete rollouts for each rollout in flight, besides two in flight for each worker.
///
/// The first rollouts decide where the next ones go, so few of them overlap.
const COMPLETED_PER_IN_FLIGHT: u64 = 16;

impl<G: Game> Part<G> {
    /// Returns the maximum number of rollouts in flight in the whole job.
    fn in_flight_max(&self, visits: u64) -> u64 {
        let workers = u64::from(self.neighbours.count());
        let at_first = 2 * workers + visits / COMPLETED_PER_IN_FLIGHT;
        at_first.min(u64::from(self.settings.in_flight) * workers)
    }

    pub(super) fn may_start(&self) -> bool {
        self.root.as_ref().is_some_and(|root| {
            root.started < root.limit && root.in_flight() < self.in_flight_max(root.kept + root.completed)
        })
    }

    /// Starts a rollout.
    pub(super) fn start(&mut self, post: &mut impl Post<G>) {
        let Some(root) = &mut self.root else { return };
        root.started += 1;
        root.in_flight_max = root.in_flight_max.max(root.in_flight() as u32);
        let (node, state) = (root.node, root.state.clone());
        self.descend(node, state, None, 0, post);
    }

    /// Counts a complete rollout. A proven root ends the run.
    pub(super) fn complete(&mut self) {
        let Some(root) = &mut self.root else {
            self.mismatch = Some("a root");
            return;
        };
        root.completed += 1;
        if self.tree.proof(root.node).is_some() {
            root.stop();
        }
    }
}

//! Where rollouts begin.
//!
//! Worker 0 has the [`Root`] and the budget. A worker that can start at the root, too, because it has a copy of it or shares its
//! memory, is a [`Source`]: it is granted so many rollouts at a time, and tells when they are done.

use std::collections::VecDeque;

use farside::WorkerId;

use super::{Part, Team};
use crate::game::Game;
use crate::search::job::message::{Done, Grant, Post};
use crate::tree::{Look, NodeId};

/// The root of the tree, and the budget of a run.
#[derive(Debug)]
pub(in super::super) struct Root<S> {
    pub(in super::super) node: NodeId,
    pub(super) state: S,
    /// Its visits before this run.
    pub(in super::super) kept: u64,
    /// Or granted.
    pub(in super::super) started: u64,
    /// No more are to be started in this phase.
    started_max: u64,
    /// Nor in this run.
    limit: u64,
    pub(in super::super) completed: u64,
    in_flight_max: u32,
    /// Workers that have nothing granted to start.
    waiting: VecDeque<WorkerId>,
    /// By worker: granted and not done.
    granted: Vec<u32>,
    granted_sum: u64,
    starters: u32,
}

impl<S> Root<S> {
    pub(super) fn new(node: NodeId, state: S, workers: u32) -> Self {
        Self {
            node,
            state,
            kept: 0,
            started: 0,
            started_max: 0,
            limit: 0,
            completed: 0,
            in_flight_max: 0,
            waiting: VecDeque::new(),
            granted: vec![0; workers as usize],
            granted_sum: 0,
            starters: 1,
        }
    }

    /// All workers of the team may start rollouts, and wait to be told to.
    pub(super) fn started_by(mut self, team: Team) -> Self {
        self.starters = team.count;
        self.waiting.extend((1..team.count).map(WorkerId::new));
        self
    }

    pub(super) fn begin(&mut self, visits: u64, rollouts: u64) {
        self.kept = visits;
        (self.started, self.completed, self.in_flight_max) = (0, 0, 0);
        (self.started_max, self.limit) = (rollouts, rollouts);
    }

    /// Rollouts that the run has left.
    pub(in super::super) fn left(&self) -> u64 {
        self.limit - self.started
    }

    /// Allows for so many rollouts, as far as the run has any left.
    pub(in super::super) fn begin_phase(&mut self, rollouts: u64) {
        self.started_max = self.limit.min(self.started.saturating_add(rollouts));
    }

    /// All rollouts are done.
    pub(in super::super) fn is_complete(&self) -> bool {
        self.completed == self.started_max
    }

    /// No more rollouts are started.
    pub(in super::super) fn stop(&mut self) {
        self.limit = self.limit.min(self.started);
        self.started_max = self.limit;
    }

    pub(in super::super) fn in_flight_max(&self) -> u32 {
        self.in_flight_max
    }

    /// How many workers start rollouts.
    pub(in super::super) fn starters(&self) -> u32 {
        self.starters
    }

    /// The worker has rollouts of its own to start or to complete.
    pub(super) fn has_granted(&self, worker: WorkerId) -> bool {
        self.granted[worker.index()] > 0
    }

    pub(super) fn forget_starters(&mut self) {
        self.waiting.clear();
        self.starters = 1;
    }

    fn in_flight(&self) -> u64 {
        self.started - self.completed
    }

    fn start(&mut self, count: u64) {
        self.started += count;
        self.in_flight_max = self.in_flight_max.max(self.in_flight() as u32);
    }
}

/// Where a worker other than the first starts rollouts.
#[derive(Debug)]
pub(super) struct Source<S> {
    node: NodeId,
    state: S,
    /// May be started.
    granted: u32,
    under_way: u32,
    /// Worker 0 has not been told.
    done: u32,
}

impl<S> Source<S> {
    pub(super) fn new(node: NodeId, state: S) -> Self {
        Self { node, state, granted: 0, under_way: 0, done: 0 }
    }

    pub(super) fn may_start(&self) -> bool {
        self.granted > 0
    }
}

/// The first rollouts decide where the next ones go: besides two for each worker, only one is under way for so many that
/// are complete.
const COMPLETED_PER_IN_FLIGHT: u64 = 16;

impl<G: Game> Part<G> {
    /// How many rollouts may be under way in the whole job.
    fn in_flight_max(&self, visits: u64) -> u64 {
        let workers = u64::from(self.neighbours.count());
        let at_first = 2 * workers + visits / COMPLETED_PER_IN_FLIGHT;
        at_first.min(u64::from(self.settings.in_flight) * workers)
    }

    pub(super) fn may_start(&self) -> bool {
        let Some(root) = &self.root else { return self.source.as_ref().is_some_and(Source::may_start) };
        let in_flight_max = self.in_flight_max(root.kept + root.completed);
        let here_max = in_flight_max / u64::from(self.neighbours.count()) * u64::from(root.others_than_starters());
        root.started < root.started_max
            && root.in_flight() < in_flight_max
            && (root.starters == 1 || root.in_flight() - root.granted_sum < here_max)
    }

    pub(super) fn start(&mut self, post: &mut impl Post<G>) {
        let (node, state) = match (&mut self.root, &mut self.source) {
            (Some(root), _) => {
                root.start(1);
                (root.node, root.state.clone())
            }
            (None, Some(source)) => {
                source.granted -= 1;
                source.under_way += 1;
                (source.node, source.state.clone())
            }
            (None, None) => return,
        };
        if self.root.is_some() && self.root_entry.is_none() && self.is_hot(node) && self.entries.room() > 0 {
            let entry = self.entries.add(node, state.clone());
            self.root_entry = Some(entry);
            self.replicate(entry, true, post);
        }
        self.descend(node, state, None, 0, post);
    }

    /// A rollout that began here is complete.
    pub(super) fn complete(&mut self, post: &mut impl Post<G>) {
        match (&mut self.root, &mut self.source) {
            (Some(root), _) => {
                root.completed += 1;
                self.stop_when_proven();
                self.grant(post);
            }
            (None, Some(source)) => {
                source.under_way -= 1;
                source.done += 1;
                let is_idle = source.granted == 0 && source.under_way == 0;
                if is_idle || source.done >= self.settings.in_flight / 2 {
                    self.tell_done(post);
                }
            }
            (None, None) => self.mismatch = Some("a root"),
        }
    }

    /// On worker 0: a proven root ends the run.
    pub(super) fn stop_when_proven(&mut self) {
        if let Some(root) = &mut self.root
            && self.tree.proof(root.node).is_some()
        {
            root.stop();
        }
    }

    /// Tells worker 0 what is done, which asks for more.
    pub(super) fn tell_done(&mut self, post: &mut impl Post<G>) {
        if let Some(source) = &mut self.source {
            post.done(WorkerId::new(0), Done { from: self.me, count: std::mem::take(&mut source.done) });
        }
    }

    pub(in super::super) fn receive_grant(&mut self, message: Grant) {
        match &mut self.source {
            Some(source) => source.granted += message.count,
            None => self.mismatch = Some("a root"),
        }
    }

    pub(in super::super) fn receive_done(&mut self, message: Done, post: &mut impl Post<G>) {
        let Done { from, count } = message;
        let Some((root, granted)) = self.root.as_mut().and_then(|root| {
            let granted = root.granted.get(from.index()).copied()?.checked_sub(count)?;
            Some((root, granted))
        }) else {
            self.mismatch = Some("rollouts");
            return;
        };
        root.granted[from.index()] = granted;
        root.granted_sum -= u64::from(count);
        root.completed += u64::from(count);
        // Its first word says that it can start rollouts.
        if count == 0 && granted == 0 {
            root.starters += 1;
        }
        if !root.waiting.contains(&from) {
            root.waiting.push_back(from);
        }
        self.grant(post);
    }

    /// Whether there is something to start for a worker that waits for it.
    pub(super) fn may_grant(&self) -> bool {
        self.root.as_ref().is_some_and(|root| {
            let in_flight_max = self.in_flight_max(root.kept + root.completed);
            !root.waiting.is_empty() && root.started < root.started_max && root.in_flight() < in_flight_max
        })
    }

    /// On worker 0: gives those who wait as much to start as there may be.
    pub(super) fn grant(&mut self, post: &mut impl Post<G>) {
        while self.may_grant() {
            let Some(root) = &self.root else { return };
            let visits = root.kept + root.completed;
            let in_flight_max = self.in_flight_max(visits);
            let share = (in_flight_max / u64::from(self.neighbours.count())).max(1);
            let Some(root) = &mut self.root else { return };
            let Some(worker) = root.waiting.pop_front() else { return };
            let granted = u64::from(root.granted[worker.index()]);
            let left = (root.started_max - root.started).min(in_flight_max - root.in_flight());
            let count = left.min(share.saturating_sub(granted));
            if count == 0 {
                // It has enough, and will say when it has not.
                continue;
            }
            root.start(count);
            root.granted[worker.index()] += count as u32;
            root.granted_sum += count;
            post.grant(worker, Grant { count: count as u32 });
        }
    }
}

impl<S> Root<S> {
    /// How many workers start nothing by themselves, and worker 0, which does so for them.
    fn others_than_starters(&self) -> u32 {
        (self.granted.len() as u32 + 1).saturating_sub(self.starters).max(1)
    }
}

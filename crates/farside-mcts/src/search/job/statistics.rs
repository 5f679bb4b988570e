//! What a search on a job tells about itself.

use farside::Wire;

/// How a search on a job went about it.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[non_exhaustive]
pub struct JobReport {
    /// What each worker did.
    pub workers: Vec<WorkerReport>,
    /// Rollouts that were started; as many as there were in the end.
    pub started: u64,
    /// The most rollouts under way at once.
    pub in_flight_max: u32,
    /// How many workers started rollouts: with [`Replicas`](crate::Replicas) those that got a copy of the root, else one.
    pub starters: u32,
}

/// What one worker did in a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
#[non_exhaustive]
pub struct WorkerReport {
    /// Random games that it played.
    pub simulations: u64,
    /// Steps of selection that it made.
    pub steps: u64,
    /// Nodes that it owns.
    pub nodes: usize,
    /// What these take.
    pub tree_bytes: usize,
    /// Calls that it made to others.
    pub messages: u64,
    /// Their bytes, with headers.
    pub bytes: u64,
    /// Rollouts that waited at one of its nodes until another worker had made the next.
    pub deferred: u64,
    /// Leaves that it let others evaluate.
    pub given_away: u64,
    pub(super) depth: u64,
    pub(super) max_depth: u32,
}

impl JobReport {
    /// Calls between workers.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.sum(|worker| worker.messages)
    }

    /// The bytes of these, with headers.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sum(|worker| worker.bytes)
    }

    /// Steps of selection: what Seriema calls visits.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.sum(|worker| worker.steps)
    }

    /// Rollouts that waited for a node to be made.
    #[must_use]
    pub fn deferred(&self) -> u64 {
        self.sum(|worker| worker.deferred)
    }

    pub(super) fn sum(&self, of: impl Fn(&WorkerReport) -> u64) -> u64 {
        self.workers.iter().map(of).sum()
    }
}

//! The statistics of a search on a job.

use farside::Wire;

/// Statistics of a search on a job.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[non_exhaustive]
pub struct JobReport {
    /// Statistics of each worker.
    pub workers: Vec<WorkerReport>,
    /// Number of rollouts started. All of them were completed.
    pub started: u64,
    /// Maximum number of rollouts in flight at once.
    pub in_flight_max: u32,
}

/// Statistics of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
#[non_exhaustive]
pub struct WorkerReport {
    /// Number of random games it played.
    pub simulations: u64,
    /// Number of its steps of selection.
    pub steps: u64,
    /// Number of nodes it owns.
    pub nodes: usize,
    /// Memory of these nodes.
    pub tree_bytes: usize,
    /// Number of calls it made to other workers.
    pub messages: u64,
    /// Bytes of these calls, including headers.
    pub bytes: u64,
    /// Number of rollouts that waited at one of its nodes while another worker made the next node.
    pub deferred: u64,
    /// Number of leaves it had other workers evaluate.
    pub given_away: u64,
    pub(super) depth: u64,
    pub(super) max_depth: u32,
}

impl JobReport {
    /// Returns the number of calls between workers.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.sum(|worker| worker.messages)
    }

    /// Returns the bytes of these calls, including headers.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sum(|worker| worker.bytes)
    }

    /// Returns the number of steps of selection, which Seriema calls visits.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.sum(|worker| worker.steps)
    }

    /// Returns the number of rollouts that waited for a node.
    #[must_use]
    pub fn deferred(&self) -> u64 {
        self.sum(|worker| worker.deferred)
    }

    pub(super) fn sum(&self, of: impl Fn(&WorkerReport) -> u64) -> u64 {
        self.workers.iter().map(of).sum()
    }
}

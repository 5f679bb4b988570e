//! [`Waits`]: how the threads of a process wait.

use std::sync::Arc;

use farside_fabric::bell::Fencing;
use farside_fabric::clock::Clock;
use farside_fabric::wait::WaitPolicy;
use farside_sys::fence;

use crate::runtime::deadline::DeadlinePauses;

/// The clock of a process, and how its threads wait.
#[derive(Debug)]
pub struct Waits {
    /// The clock of this process's threads, by which they also sleep.
    pub(crate) clock: Clock,
    /// The steps by which a thread waits.
    pub policy: WaitPolicy,
    /// True if the fence of another process also reaches this one.
    pub is_reached_by_fences: bool,
    /// The pauses of this process's deadlines.
    pub(crate) pauses: Arc<DeadlinePauses>,
}

impl Waits {
    /// `callable` is the number of callable threads of the job, and `cpus` that of the CPUs.
    pub(super) fn new(clock: Clock, callable: usize, cpus: usize) -> Self {
        let policy = match clock.is_simulated() {
            true => WaitPolicy::SIMULATED,
            false => WaitPolicy::for_load(callable, cpus),
        };
        let pauses = Arc::new(DeadlinePauses::new(clock.clone()));
        Self { clock, policy, is_reached_by_fences: fence::register(), pauses }
    }

    /// Returns how the threads of this process keep order with their senders. If each worker has a
    /// CPU, it seldom sleeps, and its fence also serves the senders.
    #[inline]
    pub(crate) fn fencing(&self) -> Fencing {
        if self.is_reached_by_fences && self.policy == WaitPolicy::DEDICATED {
            Fencing::ByReceiver
        } else {
            Fencing::Mutual
        }
    }
}

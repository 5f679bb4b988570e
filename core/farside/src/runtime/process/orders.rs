//! [`Orders`]: the link of a process with its coordinator, and the orders that came over it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use farside_fabric::clock::lock;
use farside_launch::LaunchError;
use farside_launch::control::{Control, Ending, ToCoordinator};

use crate::error::Result;

/// The link of a process with its coordinator, and the orders that came over it.
#[derive(Debug)]
pub(crate) struct Orders {
    pub(crate) control: Arc<dyn Control>,
    /// Why the job ended, once it has.
    ended: OnceLock<Ending>,
    finished: AtomicBool,
    /// The coordinator's current round of the drain.
    round: AtomicU32,
    quiet: Mutex<Quiet>,
}

/// The threads of this process that have reported themselves quiet in a round, with their counts of
/// calls sent and executed.
#[derive(Debug)]
struct Quiet {
    round: u32,
    reports: Vec<Option<(u64, u64)>>,
}

impl Orders {
    pub(super) fn new(control: Arc<dyn Control>, threads: usize) -> Self {
        Self {
            control,
            ended: OnceLock::new(),
            finished: AtomicBool::new(false),
            round: AtomicU32::new(0),
            quiet: Mutex::new(Quiet { round: 0, reports: vec![None; threads] }),
        }
    }

    /// Notes why the job ended. Only the first reason is kept.
    pub(super) fn set_ended(&self, why: Ending) {
        let _ = self.ended.set(why);
    }

    /// Returns whether the job ended too early.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.get().is_some()
    }

    /// # Errors
    /// The reason for which the job ended, if it has.
    pub(crate) fn check_ended(&self) -> Result<()> {
        match self.ended.get() {
            None => Ok(()),
            Some(why) => Err(LaunchError::from(why.clone()).into()),
        }
    }

    pub(super) fn set_finished(&self) {
        self.finished.store(true, Ordering::Release);
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    pub(super) fn set_round(&self, round: u32) {
        self.round.store(round, Ordering::Release);
    }

    pub(crate) fn round(&self) -> u32 {
        self.round.load(Ordering::Acquire)
    }

    /// Notes that a thread has nothing left to do. Tells the coordinator once this holds for all
    /// threads, and returns whether it did. `sent_by_others` is the number of calls that threads
    /// have sent which are not counted one by one.
    pub(super) fn report_quiet(
        &self,
        (local, round): (usize, u32),
        (sent, executed): (u64, u64),
        sent_by_others: impl FnOnce() -> u64,
    ) -> bool {
        let mut quiet = lock(&self.quiet);
        if quiet.round != round {
            quiet.round = round;
            quiet.reports.fill(None);
        }
        quiet.reports[local] = Some((sent, executed));
        let Some(reports) = quiet.reports.iter().copied().collect::<Option<Vec<_>>>() else { return false };
        let sent = reports.iter().map(|(sent, _)| sent).sum::<u64>() + sent_by_others();
        let executed = reports.iter().map(|(_, executed)| executed).sum();
        self.control.send(ToCoordinator::Idle { round, sent, executed });
        true
    }
}

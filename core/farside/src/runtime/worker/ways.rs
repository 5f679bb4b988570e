//! Setting up and shutting down a worker's rings to other workers, and counters of what it sent.

use farside_fabric::WorkerId;

use super::Worker;
use crate::error::{Error, Result};
use crate::invoke::outbox::SendCounters;
use farside_launch::ring_options::RingOptions;

impl Worker {
    pub(crate) fn setup(&self, to: WorkerId) -> Result<()> {
        self.begin_setup(to)?;
        self.wait_for_way(to)
    }

    pub(crate) fn setup_all(&self) -> Result<()> {
        self.workers().try_for_each(|to| self.begin_setup(to))?;
        self.workers().try_for_each(|to| self.wait_for_way(to))
    }

    pub(crate) fn setup_with(&self, to: WorkerId, options: RingOptions) -> Result<()> {
        options.check(self.process_handle().settings().ring_cap_bytes)?;
        self.outbox(to).ok_or_else(|| self.unknown(to))?.choose(options)?;
        self.setup(to)
    }

    fn begin_setup(&self, to: WorkerId) -> Result<()> {
        self.not_in_handler("setting a ring up")?;
        self.check_peer(to)?;
        self.outbox(to).ok_or_else(|| self.unknown(to))?.ensure_asked(self.process_handle())
    }

    fn wait_for_way(&self, to: WorkerId) -> Result<()> {
        let waited = self.wait_until("setting a ring up", self.default_deadline(), |worker| {
            worker.outbox(to)?.is_set_up().then_some(Ok(()))
        });
        waited.map_err(|error| error.late(to))?;
        self.check_peer(to)
    }

    pub(crate) fn shutdown(&self, to: WorkerId) -> Result<()> {
        if self.outbox_cell(to).is_none() {
            return Err(self.unknown(to));
        }
        let waited = self.wait_until("shutting a ring down", self.default_deadline(), |worker| {
            let shut = worker.outbox(to)?.shut_down(worker.process_handle());
            shut.map(|shut| shut.then_some(())).transpose()
        });
        waited.map_err(|error| error.late(to))?;
        self.check_peer(to)
    }

    pub(crate) fn shutdown_all(&self) -> Result<()> {
        let used = self.outboxes.iter().zip(0..).filter(|(outbox, _)| outbox.get().is_some());
        let mut outcome = Ok(());
        for (_, to) in used {
            outcome = outcome.and(self.shutdown(WorkerId::new(to)));
        }
        outcome
    }

    #[track_caller]
    pub(crate) fn counters_to(&self, to: WorkerId) -> SendCounters {
        let outbox = self.outboxes.get(to.index()).expect("the worker belongs to this job");
        outbox.get().map_or_else(SendCounters::default, |outbox| outbox.borrow().counters())
    }

    fn check_peer(&self, to: WorkerId) -> Result<()> {
        let (process, _) = self.process_handle().job.place_of(to).ok_or_else(|| self.unknown(to))?;
        self.process_handle().losses.lost(process).map_or(Ok(()), Err::<(), Error>)
    }
}

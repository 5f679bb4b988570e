//! A worker's ways to others as things that are set up and shut down, and what went over them.

use farside_fabric::WorkerId;

use super::Worker;
use crate::error::{Error, Result};
use crate::invoke::outbox::SendCounters;
use farside_launch::ring_options::RingOptions;

impl Worker {
    /// Sets the way to a worker up and waits until it stands; at most for the job's deadline. Nobody has to: the first call does it in the
    /// background. But then that call takes longer to arrive.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::UnknownWorker`], [`Error::Deadline`], and those of [`progress`](Self::progress).
    pub fn setup(&self, to: WorkerId) -> Result<()> {
        self.begin_setup(to)?;
        self.wait_for_way(to)
    }

    /// As [`setup`](Self::setup), to all workers of the job.
    ///
    /// *Cost*: memory for a ring at each of them.
    ///
    /// # Errors
    /// As for [`setup`](Self::setup).
    pub fn setup_all(&self) -> Result<()> {
        self.workers().try_for_each(|to| self.begin_setup(to))?;
        self.workers().try_for_each(|to| self.wait_for_way(to))
    }

    /// As [`setup`](Self::setup), with a ring that differs from what the [job](crate::Job::ring) says. Before the first call to that worker,
    /// or after a [`shutdown`](Self::shutdown): it holds also for rings that are set up to it later.
    ///
    /// # Errors
    /// [`Error::RingOptions`] when there can be no such ring, or there is one already; otherwise as for [`setup`](Self::setup).
    pub fn setup_with(&self, to: WorkerId, options: RingOptions) -> Result<()> {
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
        self.wait_until("setting a ring up", self.default_deadline(), |worker| {
            worker.outbox(to)?.is_set_up().then_some(Ok(()))
        })?;
        self.check_peer(to)
    }

    /// Shuts the way to a worker down: everything that was called before runs there, and then both sides give the ring's memory back. The
    /// next call sets a new one up. Waits until that is so; at most for the job's deadline.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::UnknownWorker`], [`Error::InHandler`], [`Error::Deadline`] when the other made no progress for so long
    /// (the ring is shut down all the same when it does), and those of [`progress`](Self::progress).
    pub fn shutdown(&self, to: WorkerId) -> Result<()> {
        if self.outbox_cell(to).is_none() {
            return Err(self.unknown(to));
        }
        self.wait_until("shutting a ring down", self.default_deadline(), |worker| {
            let shut = worker.outbox(to)?.shut_down(worker.process_handle());
            shut.map(|shut| shut.then_some(())).transpose()
        })?;
        self.check_peer(to)
    }

    /// As [`shutdown`](Self::shutdown), to all workers.
    ///
    /// # Errors
    /// The first of those of [`shutdown`](Self::shutdown), after all were shut down that can be.
    pub fn shutdown_all(&self) -> Result<()> {
        let used = self.outboxes.iter().zip(0..).filter(|(outbox, _)| outbox.get().is_some());
        let mut outcome = Ok(());
        for (_, to) in used {
            outcome = outcome.and(self.shutdown(WorkerId::new(to)));
        }
        outcome
    }

    /// What was sent to one worker so far.
    ///
    /// # Panics
    /// When there is no such worker.
    #[track_caller]
    pub fn counters_to(&self, to: WorkerId) -> SendCounters {
        let outbox = self.outboxes.get(to.index()).expect("a worker of this job");
        outbox.get().map_or_else(SendCounters::default, |outbox| outbox.borrow().counters())
    }

    fn check_peer(&self, to: WorkerId) -> Result<()> {
        let (process, _) = self.process_handle().place_of(to).ok_or_else(|| self.unknown(to))?;
        self.process_handle().lost(process).map_or(Ok(()), Err::<(), Error>)
    }
}

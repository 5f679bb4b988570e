//! Rings for the calls to each worker: set up in advance, and shut down.

use farside_fabric::WorkerId;
use farside_launch::ring_options::RingOptions;

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::invoke::outbox::SendCounters;
use crate::runtime::worker::{Worker, extension};

extension! {
    /// Rings for the calls to each worker: set up in advance, and shut down.
    ///
    /// This is a part of [`Worker`]. The prelude brings it in.
    Ways:

    /// Sets up the ring to a worker and waits until it is ready, for at most the job's deadline.
    /// This is optional: the first call sets the ring up in the background. But then that call
    /// takes longer to arrive.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if the worker's process is lost; [`Error::UnknownWorker`];
    /// [`Error::Deadline`] if the ring is not ready in time; [`Error::InHandler`] in a handler.
    fn setup(&self, to: WorkerId) -> Result<()>;

    /// Sets up a ring as [`setup`](Self::setup) does, with options that differ from [those of the
    /// job](crate::Job::ring). Call it before the first call to that worker or after a
    /// [`shutdown`](Self::shutdown). The options also hold for later rings to it.
    ///
    /// # Errors
    /// [`LaunchError::RingOptions`](crate::LaunchError::RingOptions) if the options are invalid or
    /// the ring exists already; [`Error::PeerLost`] if the worker's process is lost;
    /// [`Error::UnknownWorker`]; [`Error::Deadline`] if the ring is not ready in time;
    /// [`Error::InHandler`] in a handler.
    fn setup_with(&self, to: WorkerId, options: RingOptions) -> Result<()>;

    /// Sets up the rings to all workers of the job, as [`setup`](Self::setup) does for one.
    ///
    /// *Cost*: memory for a ring at each of them.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process is lost; [`Error::Deadline`] if a ring is not ready in
    /// time; [`Error::InHandler`] in a handler.
    fn setup_all(&self) -> Result<()>;

    /// Shuts down the ring to a worker. All earlier calls run there, and then both sides return the
    /// ring's memory. Waits until that is done, for at most the job's deadline. The next call sets
    /// up a new ring.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if the worker's process is lost; [`Error::UnknownWorker`];
    /// [`Error::InHandler`] in a handler. [`Error::Deadline`] if the other worker made no progress
    /// in time; the ring is shut down all the same once it does.
    fn shutdown(&self, to: WorkerId) -> Result<()>;

    /// Shuts down the rings to all workers, as [`shutdown`](Self::shutdown) does for one.
    ///
    /// # Errors
    /// The first error of [`shutdown`](Self::shutdown), after all rings that can be shut down are.
    fn shutdown_all(&self) -> Result<()>;

    /// Returns counters of what was sent to one worker so far.
    ///
    /// # Panics
    /// If there is no such worker.
    fn counters_to(&self, to: WorkerId) -> SendCounters;
}

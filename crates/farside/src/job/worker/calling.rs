//! A worker's ways to call others. The forms with all choices are on [`To`].

use farside_fabric::WorkerId;

use super::Worker;
use crate::error::{Refused, Result};
use crate::invoke::call::{Aggregator, Everyone, To, WhenFull};
use crate::invoke::caller::{Caller, Waiter};
use crate::invoke::notify::Synchronizer;
use crate::invoke::pending::Pending;
use crate::invoke::reply::Reply;
use crate::wire::Wire;

impl Worker {
    /// The way to a worker, with choices: when full, notification, send-based.
    #[inline]
    pub fn to(&self, worker: WorkerId) -> To<'_> {
        To::new(self, worker)
    }

    /// The way to all workers of the job, this one included: a tree of calls.
    pub fn everyone(&self) -> Everyone<'_> {
        Everyone::new(self)
    }

    /// Batches calls to a worker.
    #[inline]
    pub fn aggregate(&self, worker: WorkerId) -> Aggregator<'_> {
        Aggregator::new(self.to(worker))
    }

    /// Has a function run on another worker: [`To::call`].
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn call<A: Wire, R>(
        &self,
        to: WorkerId,
        arguments: A,
        function: fn(&Worker, A) -> R,
    ) -> Result<(), Refused<A>> {
        self.to(to).call(arguments, function)
    }

    /// Has a function run on another worker with a buffer: [`To::call_buffer`].
    ///
    /// # Errors
    /// See there.
    pub fn call_buffer<A: Wire, R>(
        &self,
        to: WorkerId,
        arguments: A,
        buffer: &[u8],
        function: fn(&Worker, A, &[u8]) -> R,
    ) -> Result<(), Refused<A>> {
        self.to(to).call_buffer(arguments, buffer, function)
    }

    /// Has a function run on another worker and brings its result: [`To::call_return`].
    ///
    /// # Errors
    /// See there.
    pub fn call_return<A: Wire, R: Wire>(
        &self,
        to: WorkerId,
        arguments: A,
        function: fn(&Worker, A) -> R,
    ) -> Result<Pending<'_, R>, Refused<A>> {
        self.to(to).call_return(arguments, function)
    }

    /// Has a function run on another worker that may answer later: [`To::call_with_reply`].
    ///
    /// # Errors
    /// See there.
    pub fn call_with_reply<A: Wire, R: Wire>(
        &self,
        to: WorkerId,
        arguments: A,
        function: fn(&Worker, A, Reply<R>),
    ) -> Result<Pending<'_, R>, Refused<A>> {
        self.to(to).call_with_reply(arguments, function)
    }

    /// A counter of calls that are to be sent or executed, to wait for.
    ///
    /// # Errors
    /// [`Error::TooLarge`](crate::Error::TooLarge) when 1024 are in use in this process already.
    pub fn synchronizer(&self, calls: u32) -> Result<Synchronizer<'_>> {
        Synchronizer::new(Waiter::Worker(self), calls)
    }

    /// What other threads of this process call with, for as long as the job runs.
    pub fn caller(&self) -> Caller {
        Caller::new(self.process_handle().clone())
    }

    /// How internal calls are made: they wait for room.
    pub(crate) fn internal(&self, to: WorkerId) -> To<'_> {
        self.to(to).when_full(WhenFull::Retry)
    }
}

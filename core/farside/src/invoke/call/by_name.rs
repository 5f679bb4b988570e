//! Calls of functions by name, also in processes of other binaries.

use farside_fabric::WorkerId;

use super::{Sends, To};
#[cfg(doc)]
use crate::error::Error;
use crate::error::{Refused, Result};
use crate::invoke::named::{After, Named};
use crate::invoke::notify::Notify;
use crate::invoke::pending::{ByName, Pending};
use crate::invoke::reply_slots::RESULT_BYTES_UNKNOWN;
use crate::runtime::worker::Worker;
use crate::wire::Wire;

impl<'w, S: Sends<'w>> To<'w, S> {
    /// Runs a function on the other worker that is [registered](crate::Job::register) there by its
    /// name, perhaps in a process of another binary. The call keeps its order among the other calls
    /// to that worker.
    ///
    /// The receiver checks whether it has such a function. If not, that worker reports
    /// [`Error::NamedCallRefused`] as it reports a panic, and this worker learns nothing. Use
    /// [`call_named_return`](Self::call_named_return) to learn of it.
    ///
    /// *Completion*: as for [`call`](Self::call). *Cost*: the sender encodes the arguments part by
    /// part, and the receiver checks each part. Each side makes one copy more than for
    /// [`call`](Self::call), and the receiver looks the name up. Never batched.
    ///
    /// # Errors
    /// [`Error::Full`], or [`Error::Deadline`] after a wait, if the receiver has no room;
    /// [`Error::TooLarge`]; [`Error::UnknownWorker`]; [`Error::PeerLost`] if the receiver is lost;
    /// [`Error::NotPortable`]; [`Error::InHandler`] if a handler would have to wait.
    #[track_caller]
    pub fn call_named<A: Wire, R: Wire>(self, function: Named<A, R>, arguments: A) -> Result<(), Refused<A>> {
        let after = match self.notify {
            Notify::Executed(latch) => After::CountDown(latch),
            _ => After::Nothing,
        };
        self.submit_named(function, after, &arguments).map_err(|error| Refused { error, arguments })
    }

    /// Calls as [`call_named`](Self::call_named) does, and returns the function's result.
    ///
    /// # Errors
    /// [`Error::Full`], or [`Error::Deadline`] after a wait, if the receiver has no room;
    /// [`Error::TooLarge`]; [`Error::UnknownWorker`]; [`Error::PeerLost`] if the receiver is lost;
    /// [`Error::NotPortable`]; [`Error::InHandler`] if a handler would have to wait. If the
    /// function did not run, the [`Pending`] says so.
    #[track_caller]
    pub fn call_named_return<A: Wire, R: Wire>(
        self,
        function: Named<A, R>,
        arguments: A,
    ) -> Result<S::Pending<R, ByName>, Refused<A>> {
        let submit = |arguments: &A| {
            let (_, result_bytes_max) = function.head(After::Nothing)?;
            let room = result_bytes_max.unwrap_or(RESULT_BYTES_UNKNOWN);
            let (pending, address) = S::reserve(&self, room, ByName { name: function.name() })?;
            self.submit_named(function, After::Answer(address), arguments)?;
            Ok(pending)
        };
        submit(&arguments).map_err(|error| Refused { error, arguments })
    }

    #[track_caller]
    fn submit_named<A: Wire, R: Wire>(&self, function: Named<A, R>, after: After, arguments: &A) -> Result<()> {
        let (head, _) = function.head(after)?;
        S::submit_named(self, head, arguments)
    }
}

impl Worker {
    pub(crate) fn runs_same_binary(&self, worker: WorkerId) -> bool {
        self.process_handle()
            .job
            .place_of(worker)
            .is_some_and(|(process, _)| self.process_handle().job.is_alike(process))
    }

    #[track_caller]
    pub(crate) fn call_named<A: Wire, R: Wire>(
        &self,
        to: WorkerId,
        function: Named<A, R>,
        arguments: A,
    ) -> Result<(), Refused<A>> {
        self.to(to).call_named(function, arguments)
    }

    #[track_caller]
    pub(crate) fn call_named_return<A: Wire, R: Wire>(
        &self,
        to: WorkerId,
        function: Named<A, R>,
        arguments: A,
    ) -> Result<Pending<'_, R, ByName>, Refused<A>> {
        self.to(to).call_named_return(function, arguments)
    }
}

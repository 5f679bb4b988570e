//! Calls of functions by their names, also of other programs of the job.

use farside_fabric::WorkerId;

use crate::error::Refused;
#[cfg(doc)]
use crate::invoke::call::To;
use crate::invoke::named::Named;
use crate::invoke::pending::{ByName, Pending};
use crate::runtime::worker::{Worker, extension};
use crate::wire::Wire;

extension! {
    /// Calls of functions by their names, also of other programs of the job.
    ///
    /// This is a part of [`Worker`]. The prelude brings it in.
    NamedCalls:

    /// Returns whether the process of a worker runs the same binary as this one, so that closures
    /// and function pointers can be called there. `false` for a worker that does not exist.
    fn runs_same_binary(&self, worker: WorkerId) -> bool;

    /// Runs a function on another worker that is registered there by its name; see
    /// [`To::call_named`].
    ///
    /// # Errors
    /// [`Error::Full`](crate::Error::Full), or [`Error::Deadline`](crate::Error::Deadline) after a
    /// wait, if the receiver has no room; [`Error::TooLarge`](crate::Error::TooLarge);
    /// [`Error::UnknownWorker`](crate::Error::UnknownWorker);
    /// [`Error::PeerLost`](crate::Error::PeerLost) if the receiver is lost;
    /// [`Error::NotPortable`](crate::Error::NotPortable);
    /// [`Error::InHandler`](crate::Error::InHandler) if a handler would have to wait.
    fn call_named [A: Wire, R: Wire](
        &self,
        to: WorkerId,
        function: Named<A, R>,
        arguments: A,
    ) -> Result<(), Refused<A>>;

    /// Runs a named function on another worker and returns its result; see
    /// [`To::call_named_return`].
    ///
    /// # Errors
    /// [`Error::Full`](crate::Error::Full), or [`Error::Deadline`](crate::Error::Deadline) after a
    /// wait, if the receiver has no room; [`Error::TooLarge`](crate::Error::TooLarge);
    /// [`Error::UnknownWorker`](crate::Error::UnknownWorker);
    /// [`Error::PeerLost`](crate::Error::PeerLost) if the receiver is lost;
    /// [`Error::NotPortable`](crate::Error::NotPortable);
    /// [`Error::InHandler`](crate::Error::InHandler) if a handler would have to wait. If the
    /// function did not run, the pending result says so.
    fn call_named_return [A: Wire, R: Wire](
        &self,
        to: WorkerId,
        function: Named<A, R>,
        arguments: A,
    ) -> Result<Pending<'_, R, ByName>, Refused<A>>;
}

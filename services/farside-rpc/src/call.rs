//! [`Call`]: what a handler knows of the call that it handles.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use farside_connect::patience::{Cancellation, End, Patience};
use farside_connect::{Peer, patience};
use tracing::Span;

use crate::answer::Refused;

/// The call that a handler handles.
#[derive(Debug)]
pub struct Call {
    /// The time that its caller had left when it arrived.
    time: Duration,
    /// When that time ends. An inline call asks the clock only if its handler does.
    deadline: OnceLock<Instant>,
    /// `None` for an inline call, which nothing cancels: the receiving thread runs it.
    cancelled: Option<Arc<Cancellation>>,
    peer: Arc<Peer>,
    connection: u64,
    /// In which the handler runs.
    span: Span,
}

impl Clone for Call {
    /// The clone ends when this does, however late it is asked.
    fn clone(&self) -> Self {
        Self {
            time: self.time,
            deadline: self.deadline().into(),
            cancelled: self.cancelled.clone(),
            peer: self.peer.clone(),
            connection: self.connection,
            span: self.span.clone(),
        }
    }
}

impl Call {
    /// A call whose handler runs at once, on the receiving thread.
    #[inline]
    pub(crate) fn inline(time: Duration, peer: Arc<Peer>, connection: u64, span: Span) -> Self {
        Self { time, deadline: OnceLock::new(), cancelled: None, peer, connection, span }
    }

    /// The same call, whose handler runs later: until `deadline`, or until it is `cancelled`.
    pub(crate) fn until(self, deadline: Instant, cancelled: Arc<Cancellation>) -> Self {
        Self { deadline: deadline.into(), cancelled: Some(cancelled), ..self }
    }

    /// When the caller stops waiting. Time in queues counts. The time of an inline call begins when
    /// its handler first asks, or clones the call.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        *self.deadline.get_or_init(|| Instant::now() + self.time)
    }

    /// The time until the [deadline](Self::deadline).
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }

    /// Returns whether the caller no longer waits: it cancelled the call, its deadline has passed,
    /// or its connection has ended. A handler that works for long asks now and then.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.is_given_up() || Instant::now() >= self.deadline()
    }

    fn is_given_up(&self) -> bool {
        self.cancelled.as_ref().is_some_and(|cancelled| cancelled.is_set())
    }

    /// The caller.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The number of the caller's connection. The server gives no other connection the same one.
    #[must_use]
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// Why the call need not run any more.
    pub(crate) fn expiry(&self, now: Instant) -> Option<Refused> {
        match () {
            () if self.is_given_up() => Some(Refused::Cancelled),
            () if now >= self.deadline() => Some(Refused::Expired),
            () => None,
        }
    }

    /// Has the call end as if its caller had cancelled it.
    pub(crate) fn cancel(&self) {
        if let Some(cancelled) = &self.cancelled {
            cancelled.set();
        }
    }

    pub(crate) fn patience(&self) -> Patience {
        Patience { deadline: self.deadline(), cancelled: self.cancelled.clone() }
    }
}

/// Runs a handler. Calls that it makes on this thread end with its own, at its deadline or when it
/// is cancelled.
pub(crate) fn handle<T>(call: &Call, handler: impl FnOnce() -> T) -> T {
    let end = call.deadline.get().map_or(End::After(call.time), |deadline| End::At(*deadline));
    patience::handle(end, call.cancelled.clone(), || call.span.in_scope(handler))
}

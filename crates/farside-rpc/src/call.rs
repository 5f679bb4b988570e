//! [`Call`]: what a handler knows of the call that it handles.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tracing::Span;

use crate::answer::Refused;
use crate::link::Patience;
use crate::peer::Peer;

/// The call that a handler handles.
#[derive(Clone, Debug)]
pub struct Call {
    deadline: Instant,
    cancelled: Arc<AtomicBool>,
    peer: Arc<Peer>,
    connection: u64,
    /// In which the handler runs.
    span: Span,
}

impl Call {
    pub(crate) fn new(
        deadline: Instant,
        cancelled: Arc<AtomicBool>,
        peer: Arc<Peer>,
        connection: u64,
        span: Span,
    ) -> Self {
        Self { deadline, cancelled, peer, connection, span }
    }

    /// When the caller stops waiting. Time in queues counts.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The time until the [deadline](Self::deadline).
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Whether the caller no longer waits: it cancelled the call, its deadline has passed, or its
    /// connection has ended. A handler that works for long asks now and then.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || Instant::now() >= self.deadline
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
            () if self.cancelled.load(Ordering::Relaxed) => Some(Refused::Cancelled),
            () if now >= self.deadline => Some(Refused::Expired),
            () => None,
        }
    }

    /// Has the call end as if its caller had cancelled it.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn patience(&self) -> Patience {
        Patience { deadline: self.deadline, cancelled: Some(self.cancelled.clone()) }
    }
}

thread_local! {
    /// The deadline of the call that this thread handles.
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The deadline of the call that this thread handles.
pub(crate) fn deadline() -> Option<Instant> {
    DEADLINE.get()
}

/// Whether this thread is in a handler.
pub(crate) fn is_handling() -> bool {
    DEADLINE.get().is_some()
}

/// Runs a handler. Calls that it makes on this thread end with its own.
pub(crate) fn handle<T>(call: &Call, handler: impl FnOnce() -> T) -> T {
    struct Restore(Option<Instant>);
    impl Drop for Restore {
        fn drop(&mut self) {
            DEADLINE.set(self.0);
        }
    }
    let _restore = Restore(DEADLINE.replace(Some(call.deadline)));
    call.span.in_scope(handler)
}

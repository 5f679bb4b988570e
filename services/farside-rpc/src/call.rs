//! [`Call`]: what a handler knows of the call that it handles.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tracing::Span;

use crate::answer::Refused;
use crate::link::{Cancellation, Patience};
use crate::peer::Peer;

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

    /// Whether the caller no longer waits: it cancelled the call, its deadline has passed, or its
    /// connection has ended. A handler that works for long asks now and then.
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

/// When the call that a thread handles ends.
#[derive(Clone, Copy)]
enum End {
    At(Instant),
    /// After this time, counted from when it is asked for. An inline call has just begun.
    After(Duration),
}

thread_local! {
    /// That of the call that this thread handles.
    static END: Cell<Option<End>> = const { Cell::new(None) };
    /// Whether that call was cancelled.
    static CANCELLATION: RefCell<Option<Arc<Cancellation>>> = const { RefCell::new(None) };
}

/// The deadline of the call that this thread handles.
pub(crate) fn deadline() -> Option<Instant> {
    END.get().map(|end| match end {
        End::At(deadline) => deadline,
        End::After(time) => {
            let deadline = Instant::now() + time;
            END.set(Some(End::At(deadline)));
            deadline
        }
    })
}

/// Whether the call that this thread handles was cancelled. `None` if it handles none, or an inline
/// one.
#[inline]
pub(crate) fn cancellation() -> Option<Arc<Cancellation>> {
    // A thread that ends handles no call.
    END.get().and_then(|_| CANCELLATION.try_with(|known| known.borrow().clone()).ok()?)
}

/// Whether this thread is in a handler.
pub(crate) fn is_handling() -> bool {
    END.get().is_some()
}

/// Runs a handler. Calls that it makes on this thread end with its own, at its deadline or when it
/// is cancelled.
pub(crate) fn handle<T>(call: &Call, handler: impl FnOnce() -> T) -> T {
    struct Restore(Option<End>, Option<Arc<Cancellation>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            END.set(self.0);
            let _ = CANCELLATION.try_with(|known| known.replace(self.1.take()));
        }
    }
    let end = call.deadline.get().map_or(End::After(call.time), |deadline| End::At(*deadline));
    let cancellation = CANCELLATION.try_with(|known| known.replace(call.cancelled.clone()));
    let _restore = Restore(END.replace(Some(end)), cancellation.ok().flatten());
    call.span.in_scope(handler)
}

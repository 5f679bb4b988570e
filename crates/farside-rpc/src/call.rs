//! [`Call`]: what a handler knows of the call that it handles.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::link::Patience;
use crate::peer::Peer;

/// The call that a handler handles.
#[derive(Clone, Debug)]
pub struct Call {
    deadline: Instant,
    cancelled: Arc<AtomicBool>,
    peer: Arc<Peer>,
}

impl Call {
    pub(crate) fn new(deadline: Instant, cancelled: Arc<AtomicBool>, peer: Arc<Peer>) -> Self {
        Self { deadline, cancelled, peer }
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

    pub(crate) fn patience(&self) -> Patience {
        Patience { deadline: self.deadline, cancelled: Some(self.cancelled.clone()) }
    }
}

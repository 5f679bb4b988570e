//! [`Points`]: numbered places at which a test kills this process.
//!
//! `FARSIDE_INSPECT_KILL=SIDE:N` in the environment has a process kill itself with SIGKILL when it
//! passes a point for the N-th time. The side is `client`: then the points are before each call of
//! a door. Or it is `target`: then they are in the handlers of its door. A test counts N up until
//! the process survives, and so meets them all. Only builds with debug assertions have points.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use farside_sys::process::kill_self;

/// The variable that says where.
const KILL: &str = "FARSIDE_INSPECT_KILL";

/// The points of one side. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Points(Option<Arc<AtomicU32>>);

impl Points {
    /// Reads from the environment whether this side is killed.
    pub fn of(side: &str) -> Self {
        if !cfg!(debug_assertions) {
            return Self(None);
        }
        let text = std::env::var(KILL).unwrap_or_default();
        let number = text.strip_prefix(side).and_then(|rest| rest.strip_prefix(':')?.parse().ok());
        Self(number.map(|number| Arc::new(AtomicU32::new(number))))
    }

    /// Passes a point.
    #[inline]
    pub fn pass(&self) {
        if let Some(left) = &self.0
            && left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            kill_self();
        }
    }
}

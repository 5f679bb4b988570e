//! [`OpenValues`]: the long values that are being read.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::values::Value;
use crate::{lock, watch};

/// The most values that are kept open.
const VALUES_MAX: usize = 128;
/// A value that was not read for this time is closed.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// A long value that is open, with the CRC-32 of its pieces.
#[derive(Debug)]
pub(crate) struct OpenValue {
    pub(crate) key: String,
    pub(crate) version: u64,
    pub(crate) bytes: u64,
    pub(crate) value: Value,
    pub(crate) pieces: Vec<u32>,
}

/// The values that were read a moment ago, the latest at the end.
///
/// A client reads a long value by several calls. It gets all parts of one value, also if the value
/// is replaced in between: the file has no name then, but it is still open here.
#[derive(Debug, Default)]
pub(crate) struct OpenValues(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// When each was read last.
    values: Vec<(Instant, Arc<OpenValue>)>,
    /// True if a thread closes what is idle.
    is_watched: bool,
}

impl OpenValues {
    /// A value that is open.
    pub(crate) fn find(&self, key: &str, version: u64) -> Option<Arc<OpenValue>> {
        let values = &mut lock(&self.0).values;
        let at = values.iter().position(|(_, value)| value.version == version && value.key == key)?;
        let (_, value) = values.remove(at);
        values.push((Instant::now(), value.clone()));
        Some(value)
    }

    pub(crate) fn add(self: &Arc<Self>, value: OpenValue) -> Arc<OpenValue> {
        let value = Arc::new(value);
        self.close_idle();
        let mut state = lock(&self.0);
        let oldest = (state.values.len() == VALUES_MAX).then(|| state.values.remove(0));
        state.values.push((Instant::now(), value.clone()));
        // Without a thread, the next call that opens or changes a value closes what is idle.
        state.is_watched = state.is_watched || watch(self, Self::look).is_ok();
        // The lock is free while a file is closed.
        drop(state);
        drop(oldest);
        value
    }

    /// Closes what was not read for a while.
    pub(crate) fn close_idle(&self) {
        let idle: Vec<_> = lock(&self.0).values.extract_if(.., |(used, _)| used.elapsed() >= IDLE_MAX).collect();
        // The lock is free while files are closed.
        drop(idle);
    }

    /// The same, by the thread. Returns when to look again, if any is left.
    fn look(&self) -> Option<Duration> {
        self.close_idle();
        let mut state = lock(&self.0);
        let again = state.values.first().map(|(used, _)| IDLE_MAX.saturating_sub(used.elapsed()));
        state.is_watched = again.is_some();
        again
    }
}

//! [`OpenValues`]: the long values that are being read.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock;
use crate::values::Value;

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
pub(crate) struct OpenValues(Mutex<Vec<(Instant, Arc<OpenValue>)>>);

impl OpenValues {
    /// A value that is open.
    pub(crate) fn find(&self, key: &str, version: u64) -> Option<Arc<OpenValue>> {
        let mut values = lock(&self.0);
        let at = values.iter().position(|(_, value)| value.version == version && value.key == key)?;
        let (_, value) = values.remove(at);
        values.push((Instant::now(), value.clone()));
        Some(value)
    }

    pub(crate) fn add(&self, value: OpenValue) -> Arc<OpenValue> {
        let value = Arc::new(value);
        self.close_idle();
        let mut values = lock(&self.0);
        let oldest = (values.len() == VALUES_MAX).then(|| values.remove(0));
        values.push((Instant::now(), value.clone()));
        // The lock is free while a file is closed.
        drop(values);
        drop(oldest);
        value
    }

    /// Closes what was not read for a while.
    pub(crate) fn close_idle(&self) {
        let idle: Vec<_> = lock(&self.0).extract_if(.., |(used, _)| used.elapsed() >= IDLE_MAX).collect();
        // The lock is free while files are closed.
        drop(idle);
    }
}

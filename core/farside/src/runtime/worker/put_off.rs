//! Work that a worker retries at each progress until it is done.

use std::fmt;

use super::Worker;

/// An action that the worker retries until it is done.
pub struct PutOff(Box<dyn FnMut(&Worker) -> bool>);

impl PutOff {
    /// Wraps `again`, which the worker calls whenever it makes progress, until it returns true.
    pub fn new(again: impl FnMut(&Worker) -> bool + 'static) -> Self {
        Self(Box::new(again))
    }

    /// Retries the action. Returns whether it is done.
    pub(super) fn try_again(&mut self, worker: &Worker) -> bool {
        (self.0)(worker)
    }
}

impl fmt::Debug for PutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PutOff")
    }
}

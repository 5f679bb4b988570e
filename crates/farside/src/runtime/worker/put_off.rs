//! Work that a worker tries again at each progress until it is done.

use std::fmt;

use super::Worker;

/// Something that had no room, to be tried again.
pub(crate) struct PutOff(Box<dyn FnMut(&Worker) -> bool>);

impl PutOff {
    /// `again` is called whenever the worker makes progress, until it returns true.
    pub(crate) fn new(again: impl FnMut(&Worker) -> bool + 'static) -> Self {
        Self(Box::new(again))
    }

    /// Tries again. Returns whether it is done.
    pub(super) fn try_again(&mut self, worker: &Worker) -> bool {
        (self.0)(worker)
    }
}

impl fmt::Debug for PutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PutOff")
    }
}

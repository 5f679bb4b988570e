//! The calls to all workers that not all have received.

use std::cell::Cell;

/// A worker's calls to all workers. Such calls travel in order. So when all workers have
/// answered a *mark*, a call of the library's own, they have received all calls before it.
#[derive(Debug, Default)]
pub(crate) struct SentToAll {
    /// The size of the calls since the last mark.
    pub(crate) bytes: Cell<usize>,
    /// The number of workers that have not answered the last mark.
    pub(crate) unanswered: Cell<u32>,
}

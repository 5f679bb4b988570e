//! The names of operations, and what says when they may start.

use std::fmt;

use farside_fabric::WorkerId;

/// The name of an operation that a worker has started. A plain value: it may be copied, kept and forgotten.
///
/// The operations of a worker have growing numbers, and [`complete`](crate::Worker::complete) is for all up to one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    pub(super) worker: WorkerId,
    pub(super) number: u64,
}

impl Handle {
    /// Who started it.
    pub const fn worker(self) -> WorkerId {
        self.worker
    }

    /// How many operations that worker had started with this one.
    pub const fn number(self) -> u64 {
        self.number
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {} of {}", self.number, self.worker)
    }
}

/// When an operation may start, as seen from its worker. ACP's four.
///
/// An operation that starts after another finds all that the other did, and nobody who sees something of the later one misses anything of
/// the earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Now.
    #[default]
    None,
    /// When this one has ended well. Those that were started before it need not have.
    After(Handle),
    /// When all that this worker has started before have ended well.
    All,
    /// When the previous operation of this worker has ended well, if the two go the same way (the same process carries them out, and they
    /// reach memory of the same processes); otherwise as [`All`](Self::All). So it starts under the previous one's condition, and does not
    /// overtake it. When the previous one has ended already, that was met: now.
    Continuing,
}

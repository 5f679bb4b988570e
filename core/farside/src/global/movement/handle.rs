//! The handles of operations, and the orders in which they start.

use std::fmt;

use farside_fabric::WorkerId;

/// The name of an operation that a worker has started: a plain value, which may be copied, kept and
/// dropped.
///
/// The operations of a worker have increasing numbers. [`complete`](crate::MoveMemory::complete)
/// waits for all up to one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    pub(super) worker: WorkerId,
    pub(super) number: u64,
}

impl Handle {
    /// Returns the worker that started it.
    pub const fn worker(self) -> WorkerId {
        self.worker
    }

    /// Returns its number: the number of operations that the worker had started, this one included.
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

/// The order in which an operation starts, as seen from its worker. These are the four orders of
/// ACP.
///
/// An operation that starts after another one sees all effects of that one. A process that sees any
/// effect of the later one sees all effects of the earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// At once.
    #[default]
    None,
    /// When this operation has ended well. Operations that were started before it may still be
    /// open.
    After(Handle),
    /// When all operations that this worker has started before have ended well.
    All,
    /// When the previous operation of this worker has ended well, if the two have the same route:
    /// the same process executes them, and they access memory of the same processes. Otherwise as
    /// [`All`](Self::All). So it starts under the previous one's condition, and does not overtake
    /// it. If the previous one has already ended, it starts at once.
    Continuing,
}

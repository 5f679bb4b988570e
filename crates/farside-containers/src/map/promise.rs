//! [`Promise`]: what the program says about the operations of all workers.

use super::MapError;
use farside::Result;

/// What the workers do with a map until the next collective. The less they do, the cheaper the
/// operations. Operations that break the promise may read half-written entries.
///
/// | promise | allowed | one-sided | published, as in the seed |
/// |---|---|---|---|
/// | `ALL` | insertions | `A_CAS + W` | `A_CAS + W + A_FAO` |
/// | `ALL` | finds | `R` | `2 A_FAO + R` |
/// | `INSERT_ONLY` | insertions | `A_CAS + W` | `A_CAS + W` |
/// | `FIND_ONLY` | finds | `R`, not verified | `R` |
/// | `LOCAL` | each worker uses keys that it owns | no atomics | no atomics |
///
/// The costs are those of a key in the first slot that is tried: W a put, R a get, A an atomic.
/// Where memory is not mapped, an insertion finds by its failed CAS that a slot is taken. A miss
/// costs an R for each slot up to the first one that was never used.
///
/// The levels are those of Table II of *RDMA vs. RPC for Implementing Distributed Data Structures*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise(Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    All,
    InsertOnly,
    FindOnly,
    Local,
}

impl Promise {
    /// Any operation, at any time.
    pub const ALL: Self = Self(Level::All);
    /// Only insertions.
    pub const INSERT_ONLY: Self = Self(Level::InsertOnly);
    /// Only finds.
    pub const FIND_ONLY: Self = Self(Level::FindOnly);
    /// Each worker uses only keys that it [owns](super::Map::owner_of).
    pub const LOCAL: Self = Self(Level::Local);

    /// Refuses an operation outside of the promise.
    #[inline]
    pub(super) fn check(self, operation: &'static str, is_change: bool) -> Result<()> {
        let is_outside = if is_change { self == Self::FIND_ONLY } else { self == Self::INSERT_ONLY };
        if is_outside { Err(MapError::Promise { operation, promise: self.name() }.into()) } else { Ok(()) }
    }

    fn name(self) -> &'static str {
        match self.0 {
            Level::All => "ALL",
            Level::InsertOnly => "INSERT_ONLY",
            Level::FindOnly => "FIND_ONLY",
            Level::Local => "LOCAL",
        }
    }
}

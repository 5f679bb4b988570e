//! When a search ends.

use std::time::{Duration, Instant};

use farside::Wire;

use super::SearchError;

/// The most rollouts of one search: what 32 bits count.
pub const MAX_ROLLOUTS: u64 = u32::MAX as u64;

/// How long a search goes on. It ends earlier once the position is solved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub enum Budget {
    /// So many descents of the tree, which with those of earlier runs of a session are at most [`MAX_ROLLOUTS`].
    Rollouts(u64),
    /// So much time, or less if [`MAX_ROLLOUTS`] is reached.
    Time(Duration),
}

/// How often a budget of time looks at the clock, in rollouts.
const CLOCK_INTERVAL: u64 = 16;

impl Budget {
    /// How many rollouts there may be, when the root has been visited so often before.
    pub(crate) fn rollouts_max(self, kept: u64) -> Result<u64, SearchError> {
        let left = MAX_ROLLOUTS.saturating_sub(kept);
        match self {
            Self::Rollouts(0) | Self::Time(Duration::ZERO) => Err(SearchError::ZeroBudget),
            Self::Rollouts(rollouts) if rollouts > left => Err(SearchError::BudgetTooLarge { rollouts, left }),
            Self::Rollouts(rollouts) => Ok(rollouts),
            Self::Time(_) => Ok(left),
        }
    }

    /// Whether the time is up after so many rollouts. There is to be something to report, so never before the first.
    #[inline]
    pub(crate) fn is_timed_out(self, rollouts: u64, start: Instant) -> bool {
        match self {
            Self::Rollouts(_) => false,
            Self::Time(limit) => rollouts > 0 && rollouts.is_multiple_of(CLOCK_INTERVAL) && start.elapsed() >= limit,
        }
    }
}

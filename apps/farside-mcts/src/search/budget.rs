//! The budget of a search.

use std::time::{Duration, Instant};

use farside::Wire;

use super::SearchError;

/// Maximum number of rollouts of one search. Visit counters have 32 bits.
pub const MAX_ROLLOUTS: u64 = u32::MAX as u64;

/// The budget of a search. The search ends earlier if it solves the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub enum Budget {
    /// Number of rollouts. Together with those of a session's earlier runs at most
    /// [`MAX_ROLLOUTS`].
    Rollouts(u64),
    /// Duration. The search ends earlier if it reaches [`MAX_ROLLOUTS`].
    Time(Duration),
}

/// Number of rollouts between two reads of the clock.
const CLOCK_INTERVAL: u64 = 16;

impl Budget {
    /// Returns the maximum number of rollouts, for a root with `kept` visits.
    pub(crate) fn rollouts_max(self, kept: u64) -> Result<u64, SearchError> {
        let left = MAX_ROLLOUTS.saturating_sub(kept);
        match self {
            Self::Rollouts(0) | Self::Time(Duration::ZERO) => Err(SearchError::ZeroBudget),
            Self::Rollouts(rollouts) if rollouts > left => Err(SearchError::BudgetTooLarge { rollouts, left }),
            Self::Rollouts(rollouts) => Ok(rollouts),
            Self::Time(_) => Ok(left),
        }
    }

    /// Returns whether the time is up after `rollouts`. Never before the first, as a report needs
    /// one.
    #[inline]
    pub(crate) fn is_timed_out(self, rollouts: u64, start: Instant) -> bool {
        match self {
            Self::Rollouts(_) => false,
            Self::Time(limit) => rollouts > 0 && rollouts.is_multiple_of(CLOCK_INTERVAL) && start.elapsed() >= limit,
        }
    }
}

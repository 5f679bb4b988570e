//! When a search ends.

use std::time::{Duration, Instant};

use farside::Wire;

use super::SearchError;

/// The most rollouts of one search: what 32 bits count.
pub const MAX_ROLLOUTS: u64 = u32::MAX as u64;

/// How long a search goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub enum Budget {
    /// Exactly so many descents of the tree, at most [`MAX_ROLLOUTS`]. Once the position is solved they cost next to
    /// nothing.
    Rollouts(u64),
    /// So much time, or less if the position is solved before, or [`MAX_ROLLOUTS`] reached.
    Time(Duration),
}

/// How often a budget of time looks at the clock, in rollouts.
const CLOCK_INTERVAL: u64 = 16;

impl Budget {
    pub(crate) fn check(self) -> Result<(), SearchError> {
        match self {
            Self::Rollouts(0) | Self::Time(Duration::ZERO) => Err(SearchError::ZeroBudget),
            Self::Rollouts(rollouts) if rollouts > MAX_ROLLOUTS => Err(SearchError::BudgetTooLarge { rollouts }),
            Self::Rollouts(_) | Self::Time(_) => Ok(()),
        }
    }

    /// Whether a search ends after so many rollouts.
    #[inline]
    pub(crate) fn is_spent(self, rollouts: u64, start: Instant, solved: bool) -> bool {
        match self {
            Self::Rollouts(limit) => rollouts >= limit,
            Self::Time(limit) => {
                let timed_out = rollouts.is_multiple_of(CLOCK_INTERVAL) && start.elapsed() >= limit;
                rollouts > 0 && (solved || timed_out || rollouts >= MAX_ROLLOUTS)
            }
        }
    }
}

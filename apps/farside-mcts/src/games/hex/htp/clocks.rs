//! The players' clocks.

use std::time::Duration;

use crate::game::Player;

/// Time reserved for each move beyond its search.
///
/// It covers the delay until the search notices its deadline, its workers stop, and the
/// answer is written. The share of a search leaves this reserve for every move that the player may
/// still make. So no clock runs out as long as no move exceeds its reserve.
pub(super) const MARGIN: Duration = Duration::from_millis(250);

/// Minimum time for a search, granted even if no time is left.
const LEAST: Duration = Duration::from_millis(1);

/// Remaining time of each player for the game, if there is a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clocks {
    left: [Option<Duration>; 2],
}

impl Clocks {
    /// Sets both clocks to the same time.
    pub(super) fn both(left: Option<Duration>) -> Self {
        Self { left: [left; 2] }
    }

    pub(super) fn left(&self, player: Player) -> Option<Duration> {
        self.left[player as usize]
    }

    pub(super) fn set(&mut self, player: Player, left: Duration) {
        self.left[player as usize] = Some(left);
    }

    /// Subtracts the time that a move took.
    pub(super) fn charge(&mut self, player: Player, taken: Duration) {
        if let Some(left) = &mut self.left[player as usize] {
            *left = left.saturating_sub(taken);
        }
    }

    /// Returns the time for a search in a position with `empty_cells` empty cells.
    ///
    /// Few games fill the board, so the time is divided among half of the possible moves. The
    /// minimum for all possible moves is reserved first.
    pub(super) fn share(&self, player: Player, empty_cells: usize, max: Duration) -> Duration {
        let Some(left) = self.left(player) else { return max };
        let moves = u32::try_from(empty_cells.div_ceil(2)).unwrap_or(u32::MAX).max(1);
        let to_share = left.saturating_sub((LEAST + MARGIN).saturating_mul(moves));
        (LEAST + to_share / moves.div_ceil(2)).min(max)
    }
}

/// Formats a time as minutes and seconds.
pub(super) fn formatted(left: Option<Duration>) -> String {
    match left {
        None => "unlimited".into(),
        Some(left) => format!("{:02}:{:02}", left.as_secs() / 60, left.as_secs() % 60),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn without_a_limit_only_the_maximum_counts() {
        assert_eq!(Clocks::default().share(Player::First, 121, Duration::from_secs(10)), Duration::from_secs(10));
        let mut clocks = Clocks::both(Some(Duration::from_secs(600)));
        assert_eq!(clocks.share(Player::First, 121, Duration::from_secs(1)), Duration::from_secs(1));
        clocks.charge(Player::First, Duration::from_secs(601));
        assert_eq!(clocks.left(Player::First), Some(Duration::ZERO));
        assert_eq!(clocks.left(Player::Second), Some(Duration::from_secs(600)));
        assert_eq!(clocks.share(Player::First, 121, Duration::from_secs(1)), LEAST);
    }

    #[test]
    fn times_are_shown_in_minutes() {
        assert_eq!(formatted(Some(Duration::from_secs(605))), "10:05");
        assert_eq!(formatted(Some(Duration::from_secs(36_000))), "600:00");
        assert_eq!(formatted(None), "unlimited");
    }

    proptest! {
        /// Plays a whole game, in which each move takes its share and up to the margin.
        #[test]
        fn no_clock_runs_out(
            size in 2..=16_usize,
            spare_ms in 0..600_000_u64,
            late_ms in prop::collection::vec(0..=250_u64, 128),
        ) {
            let cells = size * size;
            let least = (LEAST + MARGIN) * u32::try_from(cells.div_ceil(2)).unwrap();
            let mut clocks = Clocks::both(Some(least + Duration::from_millis(spare_ms)));
            for (late, number) in late_ms.into_iter().zip(0..cells.div_ceil(2)) {
                let share = clocks.share(Player::First, cells - 2 * number, Duration::from_secs(60));
                let taken = share + Duration::from_millis(late);
                let left = clocks.left(Player::First).unwrap();
                prop_assert!(taken <= left, "move {}: {:?} of {:?}", number, taken, left);
                clocks.charge(Player::First, taken);
            }
        }
    }
}

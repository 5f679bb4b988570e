//! Keeps the two ends of a stream off each other's heels.
//!
//! A reader that takes every message as soon as it is there fights with the writer for the cache lines that both work on, and so does a writer that
//! fills every slot as soon as it is free: each message then costs the way of its lines there and back, where it could go with others. So an
//! end that finds *little* again and again looks away for a moment once. Is there more then, it was a stream, and it goes on so. If not, it was a
//! dialogue, in which looking away only delays the answer, and it tries again much later. (The receivers of calls do the same: [`StreamWatch`](farside_fabric::wait::StreamWatch).)

use std::hint;

use farside_fabric::wait::WaitPolicy;

/// Fewer free slots than so many are little.
pub(super) const LITTLE: usize = 4;
/// A reader looks so many messages ahead, once in as many, or half of the pipe's width if that is less: whoever is nearer to the writer has its
/// processor fetch lines that are about to be written.
const DISTANCE: usize = 32;
/// How often in a row it is little before one looks away: at first, in a stream, and at most.
const STREAK_MIN: u32 = 8;
const STREAK_IN_STREAM: u32 = 1;
const STREAK_MAX: u32 = 8192;
/// For how long one looks away: about 2.5 us. A writer that nobody disturbs writes more than [`DISTANCE`] messages meanwhile, and one that has
/// its lines taken away about 15.
const PAUSES: u32 = 256;

/// What one end of a pipe has learned.
#[derive(Debug)]
pub(super) struct Pacing {
    /// Finds in a row that were little.
    streak: u32,
    streak_needed: u32,
}

impl Pacing {
    pub(super) fn new() -> Self {
        Self { streak: 0, streak_needed: STREAK_MIN }
    }

    /// One look has found little, or not. Looks away if it is time to; then the caller [says](Self::learn) what it finds after that.
    #[inline]
    pub(super) fn found(&mut self, is_little: bool, policy: WaitPolicy) -> bool {
        if !is_little {
            self.streak = 0;
            return false;
        }
        self.streak += 1;
        // Without a CPU for everybody a pause is time taken from others.
        let is_due = self.streak >= self.streak_needed && policy == WaitPolicy::DEDICATED;
        if is_due {
            (0..PAUSES).for_each(|_| hint::spin_loop());
        }
        is_due
    }

    /// What was found after looking away.
    pub(super) fn learn(&mut self, is_little: bool) {
        self.streak = 0;
        self.streak_needed = if is_little { (self.streak_needed * 4).min(STREAK_MAX) } else { STREAK_IN_STREAM };
    }
}

/// How many messages ahead, and how often, the reader of a pipe of this width looks.
pub(super) fn distance(width: usize) -> usize {
    DISTANCE.min(width / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often of so many finds one looks away, where they are little, but for those after looking away as is said.
    fn looks_away(finds: u32, is_little_after: bool) -> u32 {
        let mut pacing = Pacing::new();
        let mut look = |_: &u32| {
            let looked_away = pacing.found(true, WaitPolicy::DEDICATED);
            if looked_away {
                pacing.learn(is_little_after);
            }
            looked_away
        };
        (0..finds).filter(|find| look(find)).count() as u32
    }

    #[test]
    fn a_dialogue_is_hardly_ever_kept_waiting() {
        let times = looks_away(100_000, true);
        assert!((2..20).contains(&times), "{times}");
    }

    #[test]
    fn a_stream_in_lockstep_is_broken_up_again_and_again() {
        let times = looks_away(1000, false);
        assert!(times > 400, "{times}");
    }

    #[test]
    fn a_stream_that_runs_well_and_one_without_cpus_are_left_alone() {
        let mut pacing = Pacing::new();
        for find in 0..1000 {
            assert!(!pacing.found(find % STREAK_MIN != 0, WaitPolicy::DEDICATED));
            assert!(!Pacing::new().found(true, WaitPolicy::OVERSUBSCRIBED));
        }
    }
}

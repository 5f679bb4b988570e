//! The time to spin before sleeping.
//!
//! If every worker has a CPU, a peer answers within a microsecond, and a sleep costs twenty. With
//! more workers than CPUs, the peer may be waiting for the very CPU that spins. Spinning then
//! delays the answer, so a few looks must suffice.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

/// Number of looks before yielding, and number of yields before sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPolicy {
    /// Looks with a CPU pause between them (about 10 ns each).
    pub pauses: u32,
    /// Looks with a yield of the CPU between them.
    pub yields: u32,
}

impl WaitPolicy {
    /// For one CPU per worker: spins for about as long as a wake-up takes.
    pub const DEDICATED: Self = Self { pauses: 2000, yields: 4 };

    /// For more workers than CPUs: hardly spins.
    pub const OVERSUBSCRIBED: Self = Self { pauses: 20, yields: 3 };

    /// For a simulation: a waiting thread lets the other threads run at once.
    pub const SIMULATED: Self = Self { pauses: 0, yields: 0 };

    /// Returns the policy for `workers` workers on a machine that grants them `cpus` CPUs.
    pub fn for_load(workers: usize, cpus: usize) -> Self {
        if workers <= cpus { Self::DEDICATED } else { Self::OVERSUBSCRIBED }
    }
}

/// Number of long looks that follow each other without a pause.
const EAGER_LOOKS: u32 = 64;

/// One wait, with the number of its looks that found nothing.
#[derive(Debug)]
pub struct Backoff {
    policy: WaitPolicy,
    looks: u32,
}

impl Backoff {
    /// Begins a wait.
    pub fn new(policy: WaitPolicy) -> Self {
        Self { policy, looks: 0 }
    }

    /// Begins the wait again, after a look that found something.
    #[inline]
    pub fn reset(&mut self) {
        self.looks = 0;
    }

    /// Records a look that found nothing and that takes about as long as a pause itself. At first
    /// there is no pause, because most answers come soon: a pause after each look would double the
    /// time until one is noticed.
    #[inline]
    pub fn pause_after_long_look(&mut self) -> bool {
        if self.looks < EAGER_LOOKS && self.policy == WaitPolicy::DEDICATED {
            self.looks += 1;
            return true;
        }
        self.pause()
    }

    /// Records a look that found nothing. Pauses briefly and returns `true`, or returns `false`
    /// when it is time to sleep.
    #[inline]
    pub fn pause(&mut self) -> bool {
        let looks = self.looks;
        if looks < self.policy.pauses {
            hint::spin_loop();
        } else if looks < self.policy.pauses.saturating_add(self.policy.yields) {
            thread::yield_now();
        } else {
            return false;
        }
        self.looks += 1;
        true
    }
}

/// Decides when to poll a source that costs a system call per poll, next to sources that are free
/// to poll. While polls find something, the next one is due at once. The longer they find nothing,
/// the rarer they become.
///
/// Pauses are measured in time, not in opportunities. Between two opportunities the program may
/// yield its processor, so a count of them can be a long time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollPace {
    /// Time of the next poll; `None` means at once.
    next: Option<Instant>,
    pause: Duration,
}

impl PollPace {
    /// Increase of the pause after each poll that finds nothing.
    const STEP: Duration = Duration::from_nanos(50);
    const PAUSE_MAX: Duration = Duration::from_nanos(600);
    /// Approximate duration of a poll itself, which is not part of the pause.
    const LOOK: Duration = Duration::from_nanos(600);

    /// Returns whether a poll is due.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| now >= next)
    }

    /// Records a poll that began at `now`. `found`: it found something.
    #[inline]
    pub fn looked(&mut self, now: Instant, found: bool) {
        *self = if found {
            Self::default()
        } else {
            let pause = (self.pause + Self::STEP).min(Self::PAUSE_MAX);
            Self { next: Some(now + Self::LOOK + pause), pause }
        };
    }
}

/// Detects a stream of single records during one wait, and then pauses the polling briefly.
///
/// A receiver that takes every record at once competes with its sender for the cache line on which
/// both work. Each record then costs the sender a round trip of the line, in which it could have
/// written ten records. After a streak of small finds, the receiver therefore looks away once. If
/// several records have arrived by then, it was a stream, and the receiver continues so. If only
/// one has arrived, it was a dialogue, in which looking away only delays the answer. The next
/// streak must then be longer before the receiver tries again.
#[derive(Debug)]
pub struct StreamWatch {
    policy: WaitPolicy,
    /// Consecutive looks that found something, but little.
    streak: u32,
    /// Streak length at which the receiver looks away.
    streak_needed: u32,
    /// Consecutive looks that found nothing.
    misses: u32,
    looked_away: bool,
}

impl StreamWatch {
    const STREAK_MIN: u32 = 8;
    const STREAK_MAX: u32 = 8192;
    /// The same after the last look away has found a stream.
    const STREAK_IN_STREAM: u32 = 2;
    /// Number of consecutive misses that ends a streak.
    const MISSES: u32 = 4;
    /// Number of records after a look away that makes a stream.
    const STREAM_RECORDS: u64 = 4;
    /// Number of records from which a find is not small.
    const MANY_RECORDS: u64 = 32;
    /// Pauses of one look away: about 600 ns.
    const PAUSES: u32 = 64;

    /// Begins a wait.
    pub fn new(policy: WaitPolicy) -> Self {
        Self { policy, streak: 0, streak_needed: Self::STREAK_MIN, misses: 0, looked_away: false }
    }

    /// Records a look that found nothing.
    #[inline]
    pub fn found_nothing(&mut self) {
        self.misses += 1;
        if self.misses >= Self::MISSES {
            self.streak = 0;
        }
    }

    /// Records a look that found `records` records.
    #[inline]
    pub fn found(&mut self, records: u64) {
        self.misses = 0;
        if std::mem::take(&mut self.looked_away) {
            if records >= Self::STREAM_RECORDS {
                self.streak_needed = Self::STREAK_IN_STREAM;
            } else {
                self.streak = 0;
                self.streak_needed = (self.streak_needed * 4).min(Self::STREAK_MAX);
            }
        }
        if records > 0 && records < Self::MANY_RECORDS {
            self.streak += 1;
        }
        // Without a CPU per worker, a pause takes time from other workers.
        if self.streak >= self.streak_needed && self.policy == WaitPolicy::DEDICATED {
            self.looked_away = true;
            (0..Self::PAUSES).for_each(|_| hint::spin_loop());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_comes_to_its_end() {
        for (workers, cpus, policy) in [(2, 2, WaitPolicy::DEDICATED), (3, 2, WaitPolicy::OVERSUBSCRIBED)] {
            assert_eq!(WaitPolicy::for_load(workers, cpus), policy);
            let mut backoff = Backoff::new(policy);
            let looks = |backoff: &mut Backoff| std::iter::repeat_with(|| backoff.pause()).take_while(|on| *on).count();
            assert_eq!(looks(&mut backoff) as u32, policy.pauses + policy.yields);
            assert_eq!(looks(&mut backoff), 0);
            backoff.reset();
            assert!(looks(&mut backoff) > 0);
        }
    }

    #[test]
    fn looks_in_vain_become_rare_and_a_find_brings_them_back() {
        let (mut pace, mut now) = (PollPace::default(), farside_testbed::now());
        let mut looks = |pace: &mut PollPace, chances: u32, apart: Duration| {
            let mut count = 0;
            for _ in 0..chances {
                now += apart;
                if pace.is_due(now) {
                    pace.looked(now, false);
                    count += 1;
                }
            }
            count
        };
        let apart = Duration::from_nanos(50);
        let first = looks(&mut pace, 100, apart);
        assert!((5..10).contains(&first), "{first}");
        looks(&mut pace, 200, apart);
        assert_eq!(looks(&mut pace, 2400, apart), 100);
        assert_eq!(looks(&mut pace, 100, Duration::from_micros(2)), 100, "rare chances are all taken");
        assert!(!pace.is_due(now));
        pace.looked(now, true);
        assert_eq!(pace, PollPace::default());
        assert!(pace.is_due(now));
    }

    #[test]
    fn a_stream_is_distinguished_from_a_dialogue() {
        let mut watch = StreamWatch::new(WaitPolicy::DEDICATED);
        (0..StreamWatch::STREAK_MIN).for_each(|_| watch.found(1));
        assert!(watch.looked_away);
        watch.found(20);
        assert!(watch.looked_away, "a stream goes on");
        watch.found(1);
        assert!(!watch.looked_away, "one record is an answer");
        (0..StreamWatch::STREAK_MIN).for_each(|_| watch.found(1));
        assert!(!watch.looked_away, "the next streak must be longer");
        (0..StreamWatch::MISSES).for_each(|_| watch.found_nothing());
        assert_eq!(watch.streak, 0);
    }

    #[test]
    fn oversubscribed_waits_never_look_away() {
        let mut watch = StreamWatch::new(WaitPolicy::OVERSUBSCRIBED);
        (0..100).for_each(|_| watch.found(1));
        assert!(!watch.looked_away);
    }
}

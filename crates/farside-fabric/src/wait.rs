//! How long to spin before sleeping.
//!
//! With a CPU for everybody a peer answers within a microsecond, and a sleep costs twenty. With more workers than CPUs the
//! peer may be waiting for the very CPU that spins, and each turn spun is a turn lost: there a few looks must do.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

/// How often to look before yielding, and how often to yield before sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPolicy {
    /// Looks with a CPU pause between (about 10 ns each).
    pub pauses: u32,
    /// Looks with the CPU offered to others between.
    pub yields: u32,
}

impl WaitPolicy {
    /// With a CPU for every worker: spin for about as long as a wake-up takes.
    pub const DEDICATED: Self = Self { pauses: 2000, yields: 4 };

    /// With more workers than CPUs: hardly spin at all.
    pub const OVERSUBSCRIBED: Self = Self { pauses: 20, yields: 3 };

    /// In a simulation: whoever waits lets others have their turns at once.
    pub const SIMULATED: Self = Self { pauses: 0, yields: 0 };

    /// The policy for so many workers on a machine that lets them use so many CPUs.
    pub fn for_load(workers: usize, cpus: usize) -> Self {
        if workers <= cpus { Self::DEDICATED } else { Self::OVERSUBSCRIBED }
    }
}

/// One wait: counts its fruitless looks.
#[derive(Debug)]
pub struct Backoff {
    policy: WaitPolicy,
    looks: u32,
}

impl Backoff {
    /// A wait that begins now.
    pub fn new(policy: WaitPolicy) -> Self {
        Self { policy, looks: 0 }
    }

    /// Something came: begin again.
    #[inline]
    pub fn reset(&mut self) {
        self.looks = 0;
    }

    /// A fruitless look. Pauses a little and says `true`, or says `false` when it is time to sleep.
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

/// How often to look at something whose every look costs a system call, beside things that cost nothing to look at: at once while it
/// brings something, and the less often the longer it does not.
///
/// Pauses are times and not chances: a chance may be a round of a program that yields its processor in between, and then a count of them is
/// a long time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollPace {
    /// `None` for at once.
    next: Option<Instant>,
    pause: Duration,
}

impl PollPace {
    /// How much longer the pause is after each look in vain.
    const STEP: Duration = Duration::from_nanos(50);
    const PAUSE_MAX: Duration = Duration::from_nanos(600);
    /// What a look itself takes, about, which is no pause.
    const LOOK: Duration = Duration::from_nanos(600);

    /// Whether it is time to look.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| now >= next)
    }

    /// A look that began when it was `now` is over. `found`: it brought something.
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

/// Notices when records come one by one during one wait, and then looks away for a moment.
///
/// A receiver that takes every record as soon as it is there fights with its sender for the cache line they both work on: each
/// record then costs the sender the line's way there and back, in which it could have written ten. So after a streak of small finds
/// it looks away once. If several records are there then, it was a stream, and it goes on so. If there is only one, it was a
/// dialogue, in which looking away only delays the answer; the next streak must be longer before it is tried again.
#[derive(Debug)]
pub struct StreamWatch {
    policy: WaitPolicy,
    /// Looks in a row that found something, but little.
    streak: u32,
    /// How long a streak must be.
    streak_needed: u32,
    /// Looks in a row that found nothing.
    misses: u32,
    looked_away: bool,
}

impl StreamWatch {
    const STREAK_MIN: u32 = 8;
    const STREAK_MAX: u32 = 8192;
    /// The same where the last look away has found a stream.
    const STREAK_IN_STREAM: u32 = 2;
    /// So many misses in a row end a streak.
    const MISSES: u32 = 4;
    /// So many records after a look away are a stream.
    const STREAM_RECORDS: u64 = 4;
    /// So many are no small find.
    const MANY_RECORDS: u64 = 32;
    /// For how long to look away: about 600 ns.
    const PAUSES: u32 = 64;

    /// A wait that begins now.
    pub fn new(policy: WaitPolicy) -> Self {
        Self { policy, streak: 0, streak_needed: Self::STREAK_MIN, misses: 0, looked_away: false }
    }

    /// A look found nothing.
    #[inline]
    pub fn found_nothing(&mut self) {
        self.misses += 1;
        if self.misses >= Self::MISSES {
            self.streak = 0;
        }
    }

    /// A look found so many records.
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
        // Without a CPU for everybody a pause is time taken from others.
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
        let (mut pace, mut now) = (PollPace::default(), Instant::now());
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
    fn a_stream_is_told_from_a_dialogue() {
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

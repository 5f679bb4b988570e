//! How long to spin before sleeping.
//!
//! With a CPU for everybody a peer answers within a microsecond, and a sleep costs twenty. With more workers than CPUs the
//! peer may be waiting for the very CPU that spins, and each turn spun is a turn lost: there a few looks must do.

use std::hint;
use std::thread;

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
}

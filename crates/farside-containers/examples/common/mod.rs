//! What the workloads share: random numbers and the clock.

use std::time::Instant;

use farside::{Result, Worker, WorkerId};

/// A generator of random numbers (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    /// Returns the generator of a worker.
    pub(crate) fn of(me: &Worker) -> Self {
        Self(u64::from(me.id().number()) << 32)
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % bound
    }
}

/// Returns the numbers that the program was started with, or these.
pub(crate) fn arguments<const N: usize>(mut numbers: [u32; N]) -> [u32; N] {
    for (number, word) in numbers.iter_mut().zip(std::env::args().skip(1)) {
        *number = word.parse().expect("the arguments are numbers");
    }
    numbers
}

/// Times `work` between two barriers, three times, and calls `check` after each. Prints the best
/// rate of `count` operations of each worker; the time of a round is the mean over the workers.
pub(crate) fn timed(
    me: &Worker,
    form: &str,
    count: u32,
    mut work: impl FnMut() -> Result<()>,
    mut check: impl FnMut(u32) -> Result<()>,
) -> Result<()> {
    let mut best = f64::INFINITY;
    for round in 1..=ROUNDS {
        me.barrier()?;
        let begun = Instant::now();
        work()?;
        let mean = me.all_reduce(begun.elapsed().as_secs_f64(), |a, b| a + b)? / f64::from(me.worker_count());
        best = best.min(mean);
        check(round)?;
    }
    if me.id() == WorkerId::new(0) {
        println!("{form}: {:.2} million per second and worker", f64::from(count) / best / 1e6);
    }
    me.barrier()
}

/// The number of rounds that are timed.
const ROUNDS: u32 = 3;

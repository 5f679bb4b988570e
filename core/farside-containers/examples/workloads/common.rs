//! The common parts of the workloads: arguments, random numbers and the clock.
#![allow(dead_code, reason = "no workload uses all of it")]

use std::cell::RefCell;
use std::time::Instant;

use farside::{Result, Wire, Worker, WorkerId};
use farside_containers::{Exchange, Items};

/// One form of a workload: its two numbers, and the clock for its rounds.
pub(crate) type Form = fn(&Worker, [u32; 2], &Clock<'_>) -> Result<()>;

/// The flags of bale besides the numbers of a workload.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// Workloads with the same seed are the same (`-s`).
    pub(crate) seed: u32,
    /// The items of a batch of an exchange (`-b`).
    pub(crate) batch_items: u32,
}

impl Default for Settings {
    /// Those of bale.
    fn default() -> Self {
        Self { seed: 122_222, batch_items: 1024 }
    }
}

/// Runs the forms of a workload in a job of two processes and prints their figures. The flags are
/// those of bale: two with the numbers of the workload, which have these defaults; `-b` for the
/// items of a batch, `-s` for the seed, and `-M` for the forms, as a sum: 1 for `agp`, and 2, 4 or
/// 8 for `exchange`.
pub(crate) fn main(forms: &[(&str, Form)], defaults: [(&str, u32); 2]) -> Result<()> {
    let (mut numbers, mut settings, mut mask) = (defaults.map(|(_, number)| number), Settings::default(), 15);
    let words: Vec<String> = std::env::args().skip(1).collect();
    for pair in words.chunks(2) {
        let value = pair.get(1).and_then(|word| word.parse().ok());
        let value = value.unwrap_or_else(|| panic!("{} needs a number behind it", pair[0]));
        match &*pair[0] {
            "-b" => settings.batch_items = value,
            "-s" => settings.seed = value,
            "-M" => mask = value,
            flag => {
                let known = defaults.iter().position(|(known, _)| *known == flag);
                let known = known.unwrap_or_else(|| {
                    panic!("unknown flag {flag}: use {}, {}, -b, -s or -M", defaults[0].0, defaults[1].0)
                });
                numbers[known] = value;
            }
        }
    }
    farside::job().processes(2).run(|me| {
        let is_wanted = |name: &str| mask & if name == "agp" { 1 } else { 14 } != 0;
        for (name, form) in forms.iter().filter(|(name, _)| is_wanted(name)) {
            let clock = Clock { settings, ..Clock::new(3, &|| Ok(())) };
            form(me, numbers, &clock)?;
            if me.id() == WorkerId::new(0) {
                println!("{name}: {}", clock.report());
            }
        }
        me.barrier()
    })
}

/// Times the rounds of a workload, and has its settings.
pub(crate) struct Clock<'c> {
    pub(crate) settings: Settings,
    rounds: u32,
    before: &'c dyn Fn() -> Result<()>,
    taken: RefCell<Vec<Round>>,
    alone: RefCell<Vec<f64>>,
}

/// One round: means over the workers.
#[derive(Clone, Copy)]
pub(crate) struct Round {
    pub(crate) operations: f64,
    pub(crate) seconds: f64,
}

impl<'c> Clock<'c> {
    /// Returns the clock for this number of rounds. `before` runs before each of them.
    pub(crate) fn new(rounds: u32, before: &'c dyn Fn() -> Result<()>) -> Self {
        let (settings, taken, alone) = (Settings::default(), RefCell::default(), RefCell::default());
        Self { settings, rounds, before, taken, alone }
    }

    /// The number of rounds.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Makes an exchange with batches as the settings say.
    pub(crate) fn exchange<T: Wire>(
        &self,
        me: &Worker,
        run: impl Fn(&Worker, Items<'_, T>) + 'static,
    ) -> Result<Exchange<T>> {
        Exchange::with_batches_of(me, self.settings.batch_items as usize * size_of::<T>(), run)
    }

    /// Times each round of `work` between two barriers and calls `check` after it. Both get the
    /// number of the round, from 0. `work` returns how many operations of this worker it has done
    /// and waits until those of all workers are done.
    pub(crate) fn time(
        &self,
        me: &Worker,
        mut work: impl FnMut(u32) -> Result<u64>,
        mut check: impl FnMut(u32) -> Result<()>,
    ) -> Result<()> {
        for round in 0..self.rounds {
            (self.before)()?;
            me.barrier()?;
            let begun = Instant::now();
            let operations = work(round)?;
            let own = (operations as f64, begun.elapsed().as_secs_f64());
            let (operations, seconds) = me.all_reduce(own, |a, b| (a.0 + b.0, a.1 + b.1))?;
            let workers = f64::from(me.worker_count());
            self.taken.borrow_mut().push(Round { operations: operations / workers, seconds: seconds / workers });
            check(round)?;
        }
        Ok(())
    }

    /// Times the same work as one thread does it.
    pub(crate) fn alone<T>(&self, program: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = program();
        self.alone.borrow_mut().push(begun.elapsed().as_secs_f64());
        result
    }

    /// Returns the rounds that were timed, and the seconds of one thread for each of them, if it
    /// was timed.
    pub(crate) fn into_taken(self) -> (Vec<Round>, Vec<f64>) {
        (self.taken.into_inner(), self.alone.into_inner())
    }

    /// Describes the best round.
    fn report(self) -> String {
        let (rounds, alone) = self.into_taken();
        let best = rounds.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds)).expect("there was a round");
        let rate = best.operations / best.seconds / 1e6;
        let alone = alone.into_iter().min_by(f64::total_cmp);
        let alone = alone.map_or(String::new(), |alone| format!(", {:.2} x one thread", alone / best.seconds));
        format!("{rate:.2} million per second and worker, {:.4} s{alone}", best.seconds)
    }
}

/// A generator of random numbers (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    /// Returns the generator of this number. Each has other random numbers, and with another seed
    /// all have others.
    pub(crate) fn new(seed: u32, number: u32) -> Self {
        Self(mixed(u64::from(seed) << 32 | u64::from(number)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// Returns a number below `bound`.
    #[inline]
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u32
    }

    /// Returns a number above 0, up to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

/// Mixes the bits of a number.
#[inline]
pub(crate) fn mixed(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The worker that owns an index, and the place of the index there: indices go round robin.
#[inline]
pub(crate) fn place(me: &Worker, index: u32) -> (WorkerId, u32) {
    (WorkerId::new(index % me.worker_count()), index / me.worker_count())
}

/// The indices below `count` that a worker owns, in the order of their places.
pub(crate) fn owned(me: &Worker, count: u32) -> impl ExactSizeIterator<Item = u32> + use<> {
    (me.id().number()..count).step_by(me.worker_count() as usize)
}

/// Returns the sum of the counts of the workers before this one.
pub(crate) fn counted_before(me: &Worker, count: u64) -> Result<u64> {
    let counts = me.all_reduce(vec![(me.id(), count)], |a, b| [a, b].concat())?;
    Ok(counts.iter().filter(|(worker, _)| *worker < me.id()).map(|(_, count)| count).sum())
}

/// A pseudo-random permutation of the numbers below `count`, which every worker computes by itself.
#[derive(Clone, Copy)]
pub(crate) struct Shuffle {
    count: u32,
    seed: u32,
}

impl Shuffle {
    /// Returns the permutation number `seed` of the numbers below `count`.
    pub(crate) fn new(count: u32, seed: u32) -> Self {
        Self { count, seed }
    }

    /// Returns where `x` goes. Each step permutes the numbers of as many bits as the largest has;
    /// a number that is too large goes on.
    pub(crate) fn at(self, mut x: u32) -> u32 {
        let bits = (u32::BITS - (self.count - 1).leading_zeros()).max(2);
        loop {
            for factor in [0x9e37_79b1_u32, 0x85eb_ca6b, 0xc2b2_ae35] {
                x = (x ^ self.seed).wrapping_mul(factor) & (u32::MAX >> (u32::BITS - bits));
                x ^= x >> (bits / 2);
            }
            if x < self.count {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffles_are_permutations() {
        for count in [1, 2, 3, 4, 5, 1000, 1023, 1024, 1025] {
            let shuffle = Shuffle::new(count, count / 2);
            let mut shuffled: Vec<_> = (0..count).map(|x| shuffle.at(x)).collect();
            let stayed = (0..count).zip(&shuffled).filter(|(x, to)| x == *to).count();
            assert!(count < 1000 || stayed < 10, "{stayed} of {count} stayed");
            shuffled.sort_unstable();
            assert!(shuffled.into_iter().eq(0..count), "{count}");
        }
    }
}

//! Counting the k-mers of reads, as genome assemblers such as Meraculous do: all parts of `k` bases
//! of all reads, where a part and its reverse complement are one k-mer. The result is a histogram:
//! how many k-mers were read once, twice and so on. Those with few counts are errors.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use farside::prelude::*;
use farside_containers::Items;

use super::common::{Clock, Random, mixed, owned};

/// The bases of a read.
const READ_BASES: usize = 100;
/// How often a place of the genome is read.
const COVERAGE: usize = 30;
/// One base of this many is read wrongly.
const BASES_PER_ERROR: u32 = 200;
/// The longest bar of the histogram stands for all counts from here on.
const COUNT_MAX: usize = 100;

/// Reads of a random genome. A base is a number below 4; that of the other strand is 3 minus it.
struct Sequencer {
    seed: u32,
    genome: Vec<u8>,
}

impl Sequencer {
    fn new(seed: u32, reads: u32) -> Self {
        let bases = (reads as usize * READ_BASES / COVERAGE).max(2 * READ_BASES);
        let mut random = Random::new(seed, u32::MAX);
        Self { seed, genome: (0..bases).map(|_| random.below(4) as u8).collect() }
    }

    /// A read of either strand, with errors.
    fn read(&self, number: u32) -> impl Iterator<Item = u8> {
        let mut random = Random::new(self.seed, number);
        let start = random.below((self.genome.len() - READ_BASES + 1) as u32) as usize;
        let (read, is_other) = (&self.genome[start..start + READ_BASES], random.below(2) == 1);
        (0..READ_BASES).map(move |at| {
            let base = if is_other { 3 - read[READ_BASES - 1 - at] } else { read[at] };
            let error = if random.below(BASES_PER_ERROR) == 0 { 1 + random.below(3) as u8 } else { 0 };
            (base + error) % 4
        })
    }
}

/// The k-mers of a read, each as the smaller of the two numbers of its strands.
fn kmers(read: &[u8], k: u32) -> impl Iterator<Item = u64> {
    let mask = u64::MAX >> (64 - 2 * k);
    let (mut forward, mut backward, mut length) = (0, 0, 0);
    read.iter().filter_map(move |base| {
        forward = (forward << 2 | u64::from(*base)) & mask;
        backward = backward >> 2 | u64::from(3 - *base) << (2 * (k - 1));
        length += 1;
        (length >= k).then_some(forward.min(backward))
    })
}

/// Counts of k-mers.
type Counts = HashMap<u64, u32, BuildHasherDefault<Mixer>>;

/// The hash of one number.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, _: &[u8]) {
        unreachable!("k-mers are numbers");
    }

    fn write_u64(&mut self, kmer: u64) {
        self.0 = mixed(kmer);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// How many k-mers have each count.
fn histogram(counts: impl Iterator<Item = u32>) -> Vec<u64> {
    let mut bars = vec![0; COUNT_MAX + 1];
    counts.for_each(|count| bars[COUNT_MAX.min(count as usize)] += 1);
    bars
}

/// Counts as one thread does it.
fn count_alone(reads: &[u8], k: u32) -> Vec<u64> {
    let mut counts = Counts::default();
    for read in reads.chunks(READ_BASES) {
        kmers(read, k).for_each(|kmer| *counts.entry(kmer).or_default() += 1);
    }
    histogram(counts.into_values())
}

/// The beginning of both forms.
struct Reads {
    /// Those of this worker, one behind the other.
    own: Vec<u8>,
    /// All reads, at worker 0.
    all: Option<Vec<u8>>,
    k: u32,
    /// The k-mers that this worker counts.
    own_count: u64,
}

impl Reads {
    fn new(me: &Worker, seed: u32, [reads, k]: [u32; 2]) -> Self {
        assert!((1..=32).contains(&k), "a k-mer is a number of 64 bits");
        let all = reads * me.worker_count();
        let sequencer = Sequencer::new(seed, all);
        let own = owned(me, all).flat_map(|number| sequencer.read(number)).collect();
        let all = me.is_first().then(|| (0..all).flat_map(|number| sequencer.read(number)).collect());
        Self { own, all, k, own_count: u64::from(reads) * (READ_BASES as u64 + 1 - u64::from(k)) }
    }

    /// Calls `count` with each k-mer of this worker's reads.
    #[inline(always)]
    fn for_each(&self, mut count: impl FnMut(u64) -> farside::Result<()>) -> farside::Result<()> {
        self.own.chunks(READ_BASES).try_for_each(|read| kmers(read, self.k).try_for_each(&mut count))
    }

    /// Times the rounds of `count`, which returns the histogram of the k-mers that this worker has.
    /// Checks the sum.
    fn time(
        &self,
        me: &Worker,
        clock: &Clock<'_>,
        count: impl Fn() -> farside::Result<Vec<u64>>,
    ) -> farside::Result<()> {
        let bars = RefCell::new(Vec::new());
        let work = |_| {
            let sum = |a: Vec<u64>, b: Vec<u64>| a.iter().zip(&b).map(|(a, b)| a + b).collect();
            *bars.borrow_mut() = me.all_reduce(count()?, sum)?;
            Ok(self.own_count)
        };
        let check = |_| {
            if let Some(reads) = &self.all {
                assert_eq!(*bars.borrow(), clock.alone(|| count_alone(reads, self.k)));
            }
            Ok(())
        };
        clock.time(me, work, check)
    }
}

/// One word at a time, in a table of k-mers and one of their counts. A k-mer claims the first free
/// slot behind its place by a compare-and-swap.
pub(crate) fn agp(me: &Worker, numbers: [u32; 2], clock: &Clock<'_>) -> farside::Result<()> {
    let reads = Reads::new(me, clock.settings.seed, numbers);
    // Most k-mers of a genome are read often, so half of the slots are enough by far.
    let slots = (reads.own_count * u64::from(me.worker_count()) / 2).next_power_of_two();
    let found = me.global_array::<u64>(slots as usize)?;
    let counts = me.global_array::<u32>(slots as usize)?;
    let count = || {
        found.local(me).fill(0);
        counts.local(me).fill(0);
        me.barrier()?;
        reads.for_each(|kmer| {
            let (mut slot, name) = (mixed(kmer) & (slots - 1), !kmer);
            loop {
                // The smaller number of two strands is not the largest number, so no name is 0.
                let place = found.at(slot as usize)?;
                let before = match place.load(me)? {
                    0 => place.compare_swap(me, 0, name)?,
                    before => before,
                };
                if before == 0 || before == name {
                    return counts.at(slot as usize)?.fetch_add(me, 1).map(drop);
                }
                slot = (slot + 1) & (slots - 1);
            }
        })?;
        me.barrier()?;
        Ok(histogram(counts.local(me).iter().filter(|count| *count > 0)))
    };
    reads.time(me, clock, count)?;
    found.free(me)?;
    counts.free(me)
}

/// Sends each k-mer to its owner, which counts it.
pub(crate) fn exchange(me: &Worker, numbers: [u32; 2], clock: &Clock<'_>) -> farside::Result<()> {
    let reads = Reads::new(me, clock.settings.seed, numbers);
    let counts = Rc::new(RefCell::new(Counts::default()));
    let part = counts.clone();
    let counting = clock.exchange(me, move |_, kmers: Items<'_, u64>| {
        let mut part = part.borrow_mut();
        kmers.for_each(|kmer| *part.entry(kmer).or_default() += 1);
    })?;
    let count = || {
        *counts.borrow_mut() = Counts::default();
        me.barrier()?;
        let (sender, workers) = (counting.on(me), u64::from(me.worker_count()));
        reads.for_each(|kmer| {
            // Not the hash of the map: its high bits would be alike in the map of an owner.
            let owner = ((kmer.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) * workers) >> 32;
            let owner = WorkerId::new(owner as u32);
            if owner == me.id() {
                *counts.borrow_mut().entry(kmer).or_default() += 1;
                return Ok(());
            }
            sender.push(owner, kmer)
        })?;
        me.quiesce()?;
        Ok(histogram(counts.borrow().values().copied()))
    };
    reads.time(me, clock, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_strands_have_the_same_kmers() {
        let read = Vec::from_iter(Sequencer::new(5, 1).read(7));
        let other: Vec<u8> = read.iter().rev().map(|base| 3 - base).collect();
        for k in [1, 2, 21, 31, 32] {
            let mut found = Vec::from_iter(kmers(&read, k));
            found.reverse();
            assert_eq!(found.len(), READ_BASES + 1 - k as usize);
            assert!(kmers(&other, k).eq(found), "k = {k}");
        }
        // A C A G has the 3-mers ACA and CAG, whose other strands are TGT and CTG.
        assert!(kmers(&[0, 1, 0, 2], 3).eq([0b00_01_00, 0b01_00_10]));
    }
}

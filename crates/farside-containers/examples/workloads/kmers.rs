//! Counting the k-mers of reads, as genome assemblers such as Meraculous do: all parts of `k` bases
//! of all reads, where a part and its reverse complement are one k-mer. The result is a histogram:
//! how many k-mers were read once, twice and so on. Those with few counts are errors.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use farside::prelude::*;
use farside_containers::{Exchange, Items};

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
    genome: Vec<u8>,
}

impl Sequencer {
    fn new(reads: u32) -> Self {
        let bases = (reads as usize * READ_BASES / COVERAGE).max(2 * READ_BASES);
        let mut random = Random::new(u32::MAX);
        Self { genome: (0..bases).map(|_| random.below(4) as u8).collect() }
    }

    /// A read of either strand, with errors.
    fn read(&self, number: u32) -> impl Iterator<Item = u8> {
        let mut random = Random::new(number);
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
fn histogram(counts: &Counts) -> Vec<u64> {
    let mut bars = vec![0; COUNT_MAX + 1];
    counts.values().for_each(|count| bars[COUNT_MAX.min(*count as usize)] += 1);
    bars
}

/// Counts as one thread does it.
fn count_alone(reads: &[u8], k: u32) -> Vec<u64> {
    let mut counts = Counts::default();
    for read in reads.chunks(READ_BASES) {
        kmers(read, k).for_each(|kmer| *counts.entry(kmer).or_default() += 1);
    }
    histogram(&counts)
}

/// Sends each k-mer to its owner, which counts it.
pub(crate) fn exchange(me: &Worker, [reads, k]: [u32; 2], clock: &Clock<'_>) -> farside::Result<()> {
    assert!((1..=32).contains(&k), "a k-mer is a number of 64 bits");
    let all = reads * me.worker_count();
    let sequencer = Sequencer::new(all);
    let own_reads: Vec<u8> = owned(me, all).flat_map(|number| sequencer.read(number)).collect();
    let all_reads = (me.id() == WorkerId::new(0)).then(|| (0..all).flat_map(|number| sequencer.read(number)));
    let all_reads: Option<Vec<u8>> = all_reads.map(Iterator::collect);
    let counts = Rc::new(RefCell::new(Counts::default()));
    let part = counts.clone();
    let counting = Exchange::new(me, move |_, kmers: Items<'_, u64>| {
        let mut part = part.borrow_mut();
        kmers.for_each(|kmer| *part.entry(kmer).or_default() += 1);
    })?;
    let bars = RefCell::new(Vec::new());
    let work = |_| {
        *counts.borrow_mut() = Counts::default();
        me.barrier()?;
        let (sender, workers) = (counting.on(me), u64::from(me.worker_count()));
        for read in own_reads.chunks(READ_BASES) {
            for kmer in kmers(read, k) {
                // Not the hash of the map: its high bits would be alike in the map of an owner.
                let owner = ((kmer.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) * workers) >> 32;
                match WorkerId::new(owner as u32) {
                    owner if owner == me.id() => *counts.borrow_mut().entry(kmer).or_default() += 1,
                    owner => sender.push(owner, kmer)?,
                }
            }
        }
        me.quiesce()?;
        let sum = |a: Vec<u64>, b: Vec<u64>| a.iter().zip(&b).map(|(a, b)| a + b).collect();
        *bars.borrow_mut() = me.all_reduce(histogram(&counts.borrow()), sum)?;
        Ok(u64::from(reads) * (READ_BASES as u64 + 1 - u64::from(k)))
    };
    let check = |_| {
        if let Some(reads) = &all_reads {
            assert_eq!(*bars.borrow(), clock.alone(|| count_alone(reads, k)));
        }
        Ok(())
    };
    clock.time(me, work, check)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_strands_have_the_same_kmers() {
        let read = Vec::from_iter(Sequencer::new(1).read(7));
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

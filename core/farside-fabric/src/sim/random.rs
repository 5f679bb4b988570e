//! Pseudo-random numbers that are the same on every machine and in every version.

/// The generator SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014).
///
/// The simulator and the conformance checks draw from it, so that a failure can be replayed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "the sequence has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to `max`, both included.
    pub fn up_to(&mut self, max: u64) -> u64 {
        // The high word of the product is spread evenly enough: its error is max / 2^64.
        ((u128::from(self.next()) * (u128::from(max) + 1)) >> 64) as u64
    }

    /// Returns an index into a sequence of `len` elements. `len` must not be 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.up_to(len as u64 - 1) as usize
    }

    /// Returns true or false with equal probability.
    pub fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }

    /// Fills `bytes` with pseudo-random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_published_sequence() {
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn stays_in_range_and_reaches_both_ends() {
        for max in [0, 1, 6, 7, 8] {
            let mut random = Random::new(max);
            let drawn: Vec<u64> = (0..1000).map(|_| random.up_to(max)).collect();
            assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&0), Some(&max)));
        }
        let mut random = Random::new(1);
        assert!((0..10).any(|_| random.up_to(u64::MAX) > u64::MAX / 2));
    }
}

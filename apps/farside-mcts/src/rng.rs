//! Random numbers that never change.
//!
//! A seed replays a search, on any machine and with any later version. So the generator is part of
//! this crate: xoshiro256++ (Blackman and Vigna, 2019), whose state SplitMix64 fills. The sequence
//! of a seed and the derivation of a stream must never change; the tests hold the published values.

/// A xoshiro256++ generator.
///
/// ```
/// use farside_mcts::Rng;
///
/// let mut rng = Rng::new(7);
/// assert_eq!(rng.next_u64(), Rng::new(7).next_u64());
/// assert!(rng.below(6) < 6);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Returns the generator of a seed, which is stream 0 of that seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::stream(seed, 0)
    }

    /// Returns one of 2^64 independent generators of a seed: one for each worker of a job.
    ///
    /// The stream number is scrambled before it is combined with the seed, so that consecutive
    /// streams share no state words.
    #[must_use]
    pub fn stream(seed: u64, stream: u64) -> Self {
        let mut split = SplitMix64 { state: seed ^ scramble(stream) };
        // Four consecutive outputs of a bijection on distinct inputs are never all zero. xoshiro
        // could not leave the state of all zeros.
        Self { state: [split.next_u64(), split.next_u64(), split.next_u64(), split.next_u64()] }
    }

    /// Returns the next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let c_next = c ^ a;
        let d_next = d ^ b;
        self.state = [a ^ d_next, b ^ c_next, c_next ^ (b << 17), d_next.rotate_left(45)];
        result
    }

    /// Returns a number from 0 to `bound - 1`, all equally likely (Lemire's method with its
    /// rejection step).
    ///
    /// # Panics
    /// If `bound` is 0.
    #[inline]
    #[track_caller]
    pub fn below(&mut self, bound: u32) -> u32 {
        assert!(bound != 0, "cannot draw a number below 0: pass a bound of at least 1");
        loop {
            let product = (self.next_u64() >> 32) * u64::from(bound);
            let fraction = product as u32;
            // 2^32 mod bound fractions occur once too often and are rejected. The first comparison
            // avoids most divisions.
            if fraction >= bound || fraction >= bound.wrapping_neg() % bound {
                return (product >> 32) as u32;
            }
        }
    }

    /// Puts `items` into random order (Fisher and Yates); all orders are equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for left in (1..items.len()).rev() {
            let bound = u32::try_from(left + 1).expect("fewer than 2^32 items");
            items.swap(left, self.below(bound) as usize);
        }
    }
}

/// The generator of Steele, Lea and Flood: a bijection of a Weyl sequence.
struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        scramble(self.state)
    }
}

/// The output function of SplitMix64. It maps 0 to 0.
fn scramble(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_gives_the_published_values() {
        let mut split = SplitMix64 { state: 1_234_567 };
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(expected.map(|_| split.next_u64()), expected);
    }

    #[test]
    fn xoshiro_gives_the_published_values() {
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let expected = [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
            9_228_616_714_210_784_205,
            9_973_669_472_204_895_162,
            14_011_001_112_246_962_877,
            12_406_186_145_184_390_807,
            15_849_039_046_786_891_736,
            10_450_023_813_501_588_000,
        ];
        assert_eq!(expected.map(|_| rng.next_u64()), expected);
    }

    #[test]
    fn a_seed_fills_the_state_with_splitmix() {
        // The published SplitMix64 values of seed 1234567, since stream 0 does not change the seed.
        assert_eq!(
            Rng::new(1_234_567).state,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431
            ]
        );
    }

    #[test]
    fn streams_of_a_seed_differ_from_the_first_number_on() {
        let mut first: Vec<u64> = (0..1000).map(|stream| Rng::stream(5, stream).next_u64()).collect();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), 1000);
    }

    #[test]
    fn below_is_uniform() {
        for bound in [1, 2, 3, 7, 8, 9, 121] {
            let mut rng = Rng::stream(11, u64::from(bound));
            let draws = 20_000 * bound;
            let mut count = vec![0_u32; bound as usize];
            for _ in 0..draws {
                count[rng.below(bound) as usize] += 1;
            }
            // Each count has mean 20,000 and standard deviation below 142; 6 of these never occur
            // by chance.
            assert!(count.iter().all(|&n| n.abs_diff(20_000) < 850), "below({bound}): {count:?}");
        }
    }

    #[test]
    fn below_rejects_surplus_fractions() {
        // With bound 3 * 2^30 a quarter of all draws is rejected; else multiples of 3 would be
        // twice as frequent.
        let mut rng = Rng::new(3);
        let bound = 3 << 30;
        let multiples = (0..30_000).filter(|_| rng.below(bound).is_multiple_of(3)).count();
        assert!(multiples.abs_diff(10_000) < 500, "{multiples} of 30,000");
    }

    #[test]
    fn shuffle_reaches_every_order_equally() {
        let mut rng = Rng::new(23);
        let mut count = std::collections::BTreeMap::new();
        for _ in 0..24_000 {
            let mut items = [0, 1, 2, 3];
            rng.shuffle(&mut items);
            *count.entry(items).or_insert(0_u32) += 1;
        }
        assert_eq!(count.len(), 24);
        assert!(count.values().all(|n| n.abs_diff(1000) < 200), "{count:?}");
    }
}

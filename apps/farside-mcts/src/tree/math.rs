//! The arithmetic of selection.

use std::array;

use super::arena::GROUP;

/// Returns the index of the largest `value + weight * rarity`, the first of equal ones. Returns 0
/// if all are minus infinity.
///
/// The slices have equal lengths, a multiple of [`GROUP`]. The first pass finds the maximum, the
/// second its index: a single pass takes three times as many instructions with SSE2. Each lane
/// keeps its own maximum, so no branch depends on a single bound.
#[inline]
pub(super) fn argmax(value: &[f32], rarity: &[f32], weight: f32) -> u32 {
    let groups = || value.as_chunks::<GROUP>().0.iter().zip(rarity.as_chunks::<GROUP>().0);
    let bounds = |value: &[f32; GROUP], rarity: &[f32; GROUP]| -> [f32; GROUP] {
        array::from_fn(|lane| value[lane] + weight * rarity[lane])
    };
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    let maxima = groups().fold([f32::NEG_INFINITY; GROUP], |maxima, (value, rarity)| {
        let bounds = bounds(value, rarity);
        array::from_fn(|lane| larger(bounds[lane], maxima[lane]))
    });
    let maximum = maxima.into_iter().fold(f32::NEG_INFINITY, larger);
    for (group, (value, rarity)) in groups().enumerate() {
        let hits = bounds(value, rarity).map(|bound| bound == maximum);
        if hits.into_iter().fold(false, |any, hit| any | hit) {
            let lane = hits.into_iter().position(|hit| hit).unwrap_or(0);
            return (group * GROUP + lane) as u32;
        }
    }
    0
}

/// Returns the natural logarithm of a positive integer, with an error of at most 1e-9.
///
/// The result of the system's library may differ in the last bit between machines, and that would
/// change the search. This function uses only operations with exactly defined results: additions,
/// multiplications and a division.
#[inline]
pub(super) fn ln(n: u32) -> f32 {
    const MANTISSA_BITS: u32 = 52;
    const ONE: u64 = 1023 << MANTISSA_BITS;
    let bits = f64::from(n).to_bits();
    let power = (bits >> MANTISSA_BITS) as i32 - 1023;
    let from_1_to_2 = f64::from_bits(ONE | bits & ((1 << MANTISSA_BITS) - 1));
    // n = 2^power * fraction. With a fraction from 1/√2 to √2 the series below is short.
    let upper = from_1_to_2 > std::f64::consts::SQRT_2;
    let power = f64::from(power + i32::from(upper));
    let fraction = if upper { from_1_to_2 / 2.0 } else { from_1_to_2 };
    let t = (fraction - 1.0) / (fraction + 1.0);
    // Pairs of terms shorten the chain of dependent operations.
    let (t2, t4) = (t * t, t * t * t * t);
    let (first, second, third) = (1.0 + t2 * (1.0 / 3.0), 0.2 + t2 * (1.0 / 7.0), 1.0 / 9.0 + t2 * (1.0 / 11.0));
    let series = 2.0 * t * (first + t4 * (second + t4 * third));
    (power * std::f64::consts::LN_2 + series) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn argmax_finds_the_first_of_the_largest() {
        let mut rng = Rng::new(1);
        for groups in 0..6 {
            for _ in 0..500 {
                // Few different values give ties. Minus infinity marks edges that may not be
                // chosen.
                let mut draw = |kinds| rng.below(kinds) as f32 / 4.0;
                let rarity: Vec<f32> = (0..groups * GROUP).map(|_| draw(3)).collect();
                let value: Vec<f32> =
                    (0..groups * GROUP).map(|_| if draw(4) == 0.0 { f32::NEG_INFINITY } else { draw(5) }).collect();
                let bounds: Vec<f32> = value.iter().zip(&rarity).map(|(value, rarity)| value + 1.5 * rarity).collect();
                let largest = bounds.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let first = bounds.iter().position(|&bound| bound == largest).unwrap_or(0);
                assert_eq!(argmax(&value, &rarity, 1.5), first as u32, "{bounds:?}");
            }
        }
    }

    #[test]
    fn ln_agrees_with_the_system() {
        let powers = (0..32).flat_map(|power| [(1_u32 << power).saturating_sub(1), 1 << power, (1 << power) + 1]);
        for n in (1..100_000).chain(powers).chain([u32::MAX]).filter(|&n| n > 0) {
            let expected = f64::from(n).ln();
            assert!((f64::from(ln(n)) - expected).abs() <= 1e-7 * expected, "ln {n}");
        }
        assert_eq!(ln(1), 0.0);
    }
}

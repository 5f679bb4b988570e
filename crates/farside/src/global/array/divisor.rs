//! Division by the same number again and again.

/// A number to divide by, and its reciprocal: two multiplications take the place of a division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divisor {
    value: u64,
    /// 2^64 - 1, divided by the value and rounded down.
    reciprocal: u64,
}

impl Divisor {
    /// # Panics
    /// When it is zero.
    pub(crate) const fn new(value: u64) -> Self {
        Self { value, reciprocal: u64::MAX / value }
    }

    pub(crate) const fn value(self) -> u64 {
        self.value
    }

    /// Quotient and remainder.
    #[inline(always)]
    pub(crate) const fn divide(self, number: u64) -> (u64, u64) {
        // With d the value and r = (2^64 - 1 - e) / d the reciprocal, where e < d: n r / 2^64 = n / d - n (1 + e) / (d 2^64), and what
        // is taken off is less than 1, since n < 2^64 and 1 + e <= d. So rounded down it is the quotient, or one less.
        let quotient = ((number as u128 * self.reciprocal as u128) >> 64) as u64;
        let rest = number - quotient * self.value;
        if rest < self.value { (quotient, rest) } else { (quotient + 1, rest - self.value) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers of all lengths: half of all numbers have 64 bits.
    fn any_length() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..64_u32).prop_map(|(bits, shift)| bits >> shift)
    }

    fn check(number: u64, by: u64) {
        assert_eq!(Divisor::new(by).divide(number), (number / by, number % by), "{number} / {by}");
    }

    proptest! {
        #[test]
        fn it_divides(number in any_length(), by in any_length()) {
            check(number, by.max(1));
        }

        #[test]
        fn it_divides_beside_multiples(times in any_length(), by in any_length()) {
            let by = by.max(1);
            let multiple = by.saturating_mul(times);
            for number in [multiple.saturating_sub(1), multiple, multiple.saturating_add(1)] {
                check(number, by);
            }
        }
    }

    #[test]
    fn it_divides_at_the_ends() {
        let near = |middle: u64| [middle.wrapping_sub(1), middle, middle.wrapping_add(1)];
        let numbers: Vec<u64> = (0..64).flat_map(|shift| near(1 << shift)).chain(near(u64::MAX)).collect();
        for by in numbers.iter().filter(|by| **by > 0) {
            numbers.iter().for_each(|number| check(*number, *by));
        }
    }
}

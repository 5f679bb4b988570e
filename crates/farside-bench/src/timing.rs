//! Timing things that are shorter than the clock is precise.

use std::time::Instant;

use crate::stats::{median, quantile};

/// Operations that are timed together. Reading the clock takes some 25 ns, which is then less than 1 ns of each.
pub(crate) const TOGETHER: u64 = 32;
/// Each operation by itself, where they differ so much that their mean says little.
pub(crate) const ALONE: u64 = 1;

/// Does `operation` so many times and returns the nanoseconds that one takes, for each batch.
pub(crate) fn time_batches<E>(
    count: u64,
    batch_max: u64,
    mut operation: impl FnMut() -> Result<(), E>,
) -> Result<Vec<f64>, E> {
    let mut batches = Vec::with_capacity(count.div_ceil(batch_max) as usize);
    let mut left = count;
    while left > 0 {
        let batch = left.min(batch_max);
        let start = Instant::now();
        for _ in 0..batch {
            operation()?;
        }
        batches.push(start.elapsed().as_nanos() as f64 / batch as f64);
        left -= batch;
    }
    Ok(batches)
}

/// What one operation takes typically, and at worst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    /// The median of the batches' means.
    pub(crate) median_ns: f64,
    /// What 99 % of the operations do not exceed, each timed alone and the clock included.
    pub(crate) p99_ns: f64,
}

/// Operations that take longer than this are timed alone: that costs them nothing, and one that was interrupted spoils no others.
const LONG_NS: f64 = 10_000.0;

/// Times `operation`, a quarter of `count` times alone, and `count` times in batches if it is short.
pub(crate) fn time_latency<E>(count: u64, mut operation: impl FnMut() -> Result<(), E>) -> Result<Latency, E> {
    let alone = time_batches(count.div_ceil(4), ALONE, &mut operation)?;
    let batch_max = if median(&alone) < LONG_NS { TOGETHER } else { ALONE };
    let median_ns = median(&time_batches(count, batch_max, operation)?);
    Ok(Latency { median_ns, p99_ns: quantile(&alone, 0.99) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_done_once() {
        for batch in [ALONE, TOGETHER] {
            for count in [1, TOGETHER - 1, TOGETHER, TOGETHER + 1, 10 * TOGETHER] {
                let mut done = 0;
                let batches = time_batches::<()>(count, batch, || {
                    done += 1;
                    Ok(())
                });
                assert_eq!((done, batches.unwrap().len() as u64), (count, count.div_ceil(batch)));
            }
        }
    }

    #[test]
    fn an_error_ends_it() {
        let mut done = 0;
        let result = time_latency(100, || {
            done += 1;
            if done == 40 { Err("stop") } else { Ok(()) }
        });
        assert_eq!((result.unwrap_err(), done), ("stop", 40));
    }
}

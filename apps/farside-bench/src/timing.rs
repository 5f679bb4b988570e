//! Timing operations that are shorter than the resolution of the clock.

use std::collections::VecDeque;
use std::time::Instant;

use crate::stats::{median, quantile};

/// Number of operations that are timed together. Reading the clock takes some 25 ns, which is then
/// less than 1 ns of each.
pub(crate) const TOGETHER: u64 = 32;
/// Times each operation alone, for operations that differ so much that their mean says little.
pub(crate) const ALONE: u64 = 1;

/// Performs `operation` `count` times, and returns the nanoseconds of one operation for each batch.
///
/// It stays a function of its own for each operation. Otherwise the registers that are left to the
/// loop, and so its time, depend on the code around it.
#[inline(never)]
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

/// The typical and the worst time of one operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latency {
    /// The median of the means of the batches.
    pub(crate) median_ns: f64,
    /// The time that 99 % of the operations do not exceed, each timed alone, including the clock.
    pub(crate) p99_ns: f64,
}

/// Operations longer than this are timed alone. The clock costs them nothing, and an interrupted
/// one spoils no others.
const LONG_NS: f64 = 10_000.0;

/// Times `operation`: `count / 4` times alone, and `count` times in batches if it is short.
pub(crate) fn time_latency<E>(count: u64, mut operation: impl FnMut() -> Result<(), E>) -> Result<Latency, E> {
    let alone = time_batches(count.div_ceil(4), ALONE, &mut operation)?;
    let batch_max = if median(&alone) < LONG_NS { TOGETHER } else { ALONE };
    let median_ns = median(&time_batches(count, batch_max, operation)?);
    Ok(Latency { median_ns, p99_ns: quantile(&alone, 0.99) })
}

/// Starts `count` operations and ends each of them, with up to `depth` of them under way.
pub(crate) fn pipelined<T, E>(
    count: u64,
    depth: usize,
    mut start: impl FnMut(u64) -> Result<T, E>,
    mut end: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    let mut under_way = VecDeque::with_capacity(depth);
    for number in 0..count {
        if under_way.len() == depth
            && let Some(first) = under_way.pop_front()
        {
            end(first)?;
        }
        under_way.push_back(start(number)?);
    }
    under_way.into_iter().try_for_each(end)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn every_operation_is_performed_once() {
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
    fn operations_end_in_the_order_of_their_starts() {
        for depth in [1, 3, 100] {
            let (started, mut ended) = (Cell::new(0), 0);
            let start = |number| {
                started.set(started.get() + 1);
                Ok::<_, ()>(number)
            };
            let result = pipelined(10, depth, start, |number| {
                assert!(number == ended && started.get() - ended <= depth as u64);
                ended += 1;
                Ok(())
            });
            assert_eq!((result, ended), (Ok(()), 10));
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

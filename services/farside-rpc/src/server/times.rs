//! [`Times`]: how long the calls of a procedure took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The bits that tell the buckets of one power of two apart.
const PART_BITS: u32 = 2;
/// Four buckets for each power of two of nanoseconds, up to 73 minutes. The last one has no end.
const BUCKETS: usize = 40 << PART_BITS;

/// The times of calls. All counters only grow. Threads that answer calls write them, `stats` reads
/// them, and nothing else depends on them.
#[derive(Debug)]
pub(super) struct Times {
    buckets: [AtomicU64; BUCKETS],
    max_ns: AtomicU64,
    queued_ns: AtomicU64,
    running_ns: AtomicU64,
}

/// A summary of [`Times`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) count: u64,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) max: Duration,
    pub(super) queued: Duration,
    pub(super) running: Duration,
    /// The largest time of each bucket that is not empty, and the number of calls in it.
    pub(super) buckets: Vec<(Duration, u64)>,
}

impl Default for Times {
    fn default() -> Self {
        let buckets = [const { AtomicU64::new(0) }; BUCKETS];
        Self { buckets, max_ns: AtomicU64::new(0), queued_ns: AtomicU64::new(0), running_ns: AtomicU64::new(0) }
    }
}

impl Times {
    /// Counts a call that arrived, left the queue and ended at these times.
    pub(super) fn record(&self, arrived: Instant, started: Instant, ended: Instant) {
        let ns = |from: Instant, to: Instant| {
            u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
        };
        let whole_ns = ns(arrived, ended);
        self.buckets[bucket(whole_ns)].fetch_add(1, Ordering::Relaxed);
        if whole_ns > self.max_ns.load(Ordering::Relaxed) {
            self.max_ns.fetch_max(whole_ns, Ordering::Relaxed);
        }
        // An inline call has started when it arrived.
        if started > arrived {
            self.queued_ns.fetch_add(ns(arrived, started), Ordering::Relaxed);
        }
        self.running_ns.fetch_add(ns(started, ended), Ordering::Relaxed);
    }

    pub(super) fn summary(&self) -> Summary {
        let counts = self.buckets.each_ref().map(|count| count.load(Ordering::Relaxed));
        let count: u64 = counts.iter().sum();
        let max_ns = self.max_ns.load(Ordering::Relaxed);
        let percentile = |percent: u64| {
            let mut left = (count * percent).div_ceil(100);
            let reached = counts.iter().position(|count| {
                left = left.saturating_sub(*count);
                left == 0
            });
            Duration::from_nanos(reached.map_or(max_ns, |index| end_ns(index).min(max_ns)))
        };
        let read = |ns: &AtomicU64| Duration::from_nanos(ns.load(Ordering::Relaxed));
        let filled = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let buckets = filled.map(|(index, count)| (Duration::from_nanos(end_ns(index)), *count)).collect();
        Summary {
            buckets,
            count,
            p50: percentile(50),
            p99: percentile(99),
            max: Duration::from_nanos(max_ns),
            queued: read(&self.queued_ns),
            running: read(&self.running_ns),
        }
    }
}

/// The bucket of a time.
fn bucket(ns: u64) -> usize {
    let ns = ns.max(1 << PART_BITS);
    let octave = ns.ilog2() - PART_BITS;
    let part = (ns >> octave) as usize & ((1 << PART_BITS) - 1);
    ((octave as usize) << PART_BITS | part).min(BUCKETS - 1)
}

/// The largest time of a bucket.
fn end_ns(bucket: usize) -> u64 {
    if bucket == BUCKETS - 1 {
        return u64::MAX;
    }
    let (octave, part) = (bucket >> PART_BITS, bucket as u64 & ((1 << PART_BITS) - 1));
    (((1 << PART_BITS) + part + 1) << octave) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_lies_in_a_bucket_that_is_a_quarter_of_it_wide() {
        for exponent in 2..42 {
            for ns in [1_u64 << exponent, (1 << exponent) + 1, (3 << exponent) / 2, (2 << exponent) - 1] {
                let index = bucket(ns);
                assert!(index == BUCKETS - 1 || ns <= end_ns(index), "{ns}");
                assert!(index == 0 || end_ns(index - 1) < ns, "{ns}");
                assert!(index == BUCKETS - 1 || end_ns(index) - ns <= ns / 4, "{ns}");
            }
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn percentiles_are_those_of_the_calls() {
        let (times, start) = (Times::default(), farside_testbed::deadline());
        let none = times.summary();
        assert_eq!((none.count, none.p50, none.max), (0, Duration::ZERO, Duration::ZERO));
        for us in 1..=100 {
            let started = start + Duration::from_micros(us) / 4;
            times.record(start, started, start + Duration::from_micros(us));
        }
        let Summary { count, p50, p99, max, queued, running, buckets } = times.summary();
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 100);
        assert!(buckets.is_sorted() && buckets.last().unwrap().0 >= max, "{buckets:?}");
        assert_eq!((count, max), (100, Duration::from_micros(100)));
        assert!((50..63).contains(&p50.as_micros()), "{p50:?}");
        assert!((99..=100).contains(&p99.as_micros()), "{p99:?}");
        assert_eq!((queued + running, running), (Duration::from_micros(5050), queued * 3));
        times.record(start, start, start + Duration::from_secs(1 << 20));
        assert_eq!(times.summary().max, Duration::from_secs(1 << 20));
    }
}

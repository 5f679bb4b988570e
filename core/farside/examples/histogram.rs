//! One of two programs of a job: it keeps a histogram, to which the other program, `sampler`, adds.
//!
//! `farside run -n 2 ./histogram : -n 2 ./sampler`

use std::sync::atomic::{AtomicU64, Ordering};

use farside::Named;
use farside::prelude::*;

// Shared by both programs: the names and types of the functions.

/// Adds to a bucket: its index and the amount.
const ADD: Named<(u64, u64)> = Named::new("histogram/add");
/// Returns the count of a bucket; `None` if there is no such bucket.
const COUNT: Named<u64, Option<u64>> = Named::new("histogram/count");

/// This process's part of the histogram. Functions that are called by name capture nothing, so they
/// find it here.
static BUCKETS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

fn main() -> farside::Result<()> {
    farside::job()
        .register(ADD, |_, (bucket, by)| {
            BUCKETS[bucket as usize % BUCKETS.len()].fetch_add(by, Ordering::Relaxed);
        })
        .register(COUNT, |_, bucket| BUCKETS.get(bucket as usize).map(|bucket| bucket.load(Ordering::Relaxed)))
        .run(|me: &Worker| {
            // All processes take part in collectives, whatever program they run. Calls from others
            // run meanwhile.
            me.barrier()?;
            let own = BUCKETS.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum();
            let total: u64 = me.all_reduce(own, |a, b| a + b)?;
            if me.id().number() == 0 {
                println!("{total} samples");
            }
            me.barrier()
        })
}

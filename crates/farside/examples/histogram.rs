//! One of two programs of a job: it keeps a histogram, to which the other program, `sampler`, adds.
//!
//! `farside run -n 2 ./histogram : -n 2 ./sampler`

use std::sync::atomic::{AtomicU64, Ordering};

use farside::Named;
use farside::prelude::*;

// What both programs know: the names, and what goes with them.

/// Adds to a bucket.
const ADD: Named<(u64, u64)> = Named::new("histogram/add");
/// How much is in a bucket; `None` when there is no such bucket.
const COUNT: Named<u64, Option<u64>> = Named::new("histogram/count");

/// This process's part of the histogram. The functions that are called by name capture nothing, and find it here.
static BUCKETS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

fn main() -> farside::Result<()> {
    farside::job()
        .register(ADD, |_, (bucket, by)| {
            BUCKETS[bucket as usize % BUCKETS.len()].fetch_add(by, Ordering::Relaxed);
        })
        .register(COUNT, |_, bucket| BUCKETS.get(bucket as usize).map(|bucket| bucket.load(Ordering::Relaxed)))
        .run(|me: &Worker| {
            // Collectives are for all processes, whatever they run. What others call here runs meanwhile.
            me.barrier()?;
            let own = BUCKETS.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum();
            let total: u64 = me.all_reduce(own, |a, b| a + b)?;
            if me.id().number() == 0 {
                println!("{total} samples");
            }
            me.barrier()
        })
}

//! One of two programs of a job: it adds samples to the histogram that the other program,
//! `histogram`, keeps.
//!
//! `farside run -n 2 ./histogram : -n 2 ./sampler`

use farside::Named;
use farside::prelude::*;

// Shared by both programs: the names and types of the functions.

/// Adds to a bucket: its index and the amount.
const ADD: Named<(u64, u64)> = Named::new("histogram/add");
/// Returns the count of a bucket; `None` if there is no such bucket.
const COUNT: Named<u64, Option<u64>> = Named::new("histogram/count");

fn main() -> farside::Result<()> {
    farside::job().processes(2).run(|me: &Worker| {
        let histograms: Vec<WorkerId> = me.workers().filter(|worker| !me.runs_same_binary(*worker)).collect();
        for to in &histograms {
            let added = me.synchronizer(16)?;
            for bucket in 0..16 {
                me.to(*to).notify(&added, On::Executed).call_named(ADD, (bucket, bucket))?;
            }
            added.wait()?;
            let count = me.call_named_return(*to, COUNT, 15)?.wait()?;
            println!("{} finds {count:?} in the last bucket of {to}", me.id());
        }
        me.barrier()?;
        let total: u64 = me.all_reduce(0, |a, b| a + b)?;
        println!("{} of {total} samples are from {}", 120 * histograms.len(), me.id());
        me.barrier()
    })
}

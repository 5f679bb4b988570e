//! A call on every worker, beside as many round trips as its tree is deep.

use farside::{Worker, WorkerId};

use crate::metric::Metric;
use crate::stats::median;
use crate::timing::{ALONE, time_batches};
use crate::{BenchError, Options};

/// Calls of one run by default.
const CALLS: u64 = 2000;

/// Worker 0 calls every worker and waits until all have executed the call. In turns, it makes three
/// round trips, one after the other, to three of them. The others wait at a barrier.
pub(super) fn to_eight(me: &Worker, options: Options) -> Result<Vec<Metric>, BenchError> {
    let is_caller = me.id() == WorkerId::new(0);
    let calls = options.operations_or(CALLS);
    let (mut samples, mut limits) = (Vec::new(), Vec::new());
    // The first run sets up the rings.
    for run in 0..=options.runs() {
        me.barrier()?;
        if is_caller {
            let three = time_batches(calls, ALONE, || {
                [1, 2, 4]
                    .into_iter()
                    .try_for_each(|to| me.call_return(WorkerId::new(to), to, |_, number| number)?.wait().map(drop))
            })?;
            let all = me.synchronizer(0)?;
            let broadcast = time_batches(calls, ALONE, || {
                all.add(me.worker_count());
                me.everyone().notify(&all).call((), |_, ()| ())?;
                all.wait()
            })?;
            if run > 0 {
                limits.push(median(&three));
                samples.push(median(&broadcast));
            }
        }
    }
    me.barrier()?;
    Ok(vec![Metric::new("rtt_ns", "ns", samples).against("three calls", limits)])
}

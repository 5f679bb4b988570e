//! A call on every worker, compared with as many round trips as its tree is deep.

use farside::{Worker, WorkerId};

use crate::kit::*;

/// Calls of one run by default.
const CALLS: u64 = 2000;

/// Worker 0 calls every worker and waits until all have executed the call. In turns, it makes three
/// round trips, one after the other, to three of them. The others wait at a barrier.
pub(super) fn to_eight(me: &Worker, options: Options) -> Measured {
    let calls = options.operations_or(CALLS);
    // The first run sets up the rings.
    let taken = warmed(options, |_| {
        on_first(me, || {
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
            Ok([median(&broadcast), median(&three)])
        })
    })?;
    Ok(taken.rows([column("rtt_ns", "ns", 0).against("three calls", 1)]))
}

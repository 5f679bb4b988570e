//! The cost of checked accesses.

use std::hint::black_box;

use farside::{GlobalPtr, MakeArrays, MoveMemory, Order, ProcessId, Ways, Worker, WorkerId};

use super::over_ofi::Participants;
use crate::kit::*;

/// Operations of one run by default. Checked ones take a hundred microseconds.
const COUNT: u64 = 2_000;
/// Operations that are timed together. Unchecked ones are shorter than a read of the clock.
const BATCH: u64 = TOGETHER;

/// The case in a checked job, compared with an unchecked one.
pub(super) fn case() -> Case {
    Case::checked_job("checked", 2, measure)
}

/// Measures puts of a word, a started put, and a call with a result, by worker 0. Collective.
pub(super) fn measure(me: &Worker, options: Options) -> Measured {
    let values = me.symmetric::<u64>(2)?;
    let at = |process: u32| values.at(ProcessId::new(process)).map(|values| values.start());
    let (own, other) = (at(0)?, at(1)?);
    let next = WorkerId::new(1);
    me.setup_all()?;
    let count = options.operations_or(COUNT);
    let put = |to: GlobalPtr<u64>| {
        let put = || Ok::<_, BenchError>(black_box(to).put(me, black_box(7))?);
        Ok::<_, BenchError>(median(&time_batches(count, BATCH, put)?))
    };
    let start = || {
        let started = me.start_put(black_box(other).address(), &black_box([7_u8; 16]), Order::None)?;
        Ok::<_, BenchError>(me.complete(started)?)
    };
    let call = || {
        let called = me.call_return(next, black_box(7_u64), |_, x| x).map_err(farside::Error::from)?;
        Ok::<_, BenchError>(called.wait().map(drop)?)
    };
    let taken = Participants::new(me)?.measure(options, |participants| {
        Ok([
            participants.attended(|| put(own))?,
            participants.attended(|| put(other))?,
            participants.attended(|| Ok(median(&time_batches(count, BATCH, start)?)))?,
            participants.attended(|| Ok(median(&time_batches(count, ALONE, call)?)))?,
        ])
    })?;
    values.free(me)?;
    let names = ["own_put_ns", "put_ns", "start_put_ns", "call_return_ns"];
    Ok(taken.rows((0..).zip(names).map(|(thing, name)| column(name, "ns", thing))))
}

//! Calls of a worker to itself, which it makes and runs, with and without a trace.

use std::hint::black_box;
use std::time::{Duration, Instant};

use farside::Worker;

use crate::kit::*;

/// Calls of one run. Each is two events, and all have room until they are taken.
const CALLS: u64 = 30_000;
/// Calls made before they run.
const TOGETHER: u64 = 30;
/// The time of a trace; it is renewed for each run.
const TIME: Duration = Duration::from_secs(60);
const SESSION: u32 = 1;

pub(super) fn cases() -> Vec<Case> {
    let off = |me: &Worker, options| Ok(against_a_trace(me, options)?.rows([column("call_ns", "ns", 0)]));
    let on = |me: &Worker, options| {
        let taken = against_a_trace(me, options)?;
        Ok(taken.rows([column("call_ns", "ns", 1).against("without a trace", 0), column("event_ns", "ns", 2)]))
    };
    vec![Case::job("trace/off", 1, off), Case::job("trace/on", 1, on)]
}

/// Measures calls without and with a trace, in turns, and an event.
fn against_a_trace(me: &Worker, options: Options) -> Result<Taken, BenchError> {
    let activity = me.activity();
    // The first calls wait for their ring, and would run in the first trace.
    me.call(me.id(), (), |_, ()| ()).map_err(farside::Error::from)?;
    me.quiesce()?;
    // The first run warms up.
    warmed(options, |_| {
        let off = calls(me)?;
        activity.trace(SESSION, TIME, true);
        me.progress()?;
        let on = calls(me)?;
        activity.end_trace();
        me.progress()?;
        let taken = activity.take_events(usize::MAX);
        let events: usize = taken.iter().map(|taken| taken.events.len()).sum();
        let lost: u64 = taken.iter().map(|taken| taken.lost).sum();
        assert!(events as u64 >= 2 * CALLS && lost == 0, "{events} events, {lost} lost");
        Ok([off, on, (on - off) / 2.0])
    })
}

/// Returns the nanoseconds of one call, made and run.
fn calls(me: &Worker) -> farside::Result<f64> {
    let begun = Instant::now();
    for round in 0..CALLS / TOGETHER {
        for number in 0..TOGETHER {
            me.call(me.id(), round ^ number, |_, number| {
                black_box(number);
            })?;
        }
        while me.progress()? {}
    }
    Ok(begun.elapsed().as_nanos() as f64 / CALLS as f64)
}

//! Calls of a worker to itself, which it makes and runs, with and without a trace.

use std::hint::black_box;
use std::time::{Duration, Instant};

use farside::Worker;

use crate::case::Case;
use crate::metric::Metric;
use crate::{BenchError, Options};

/// Calls of one run. Each is two events, and all have room until they are taken.
const CALLS: u64 = 30_000;
/// Calls made before they run.
const TOGETHER: u64 = 30;
/// The time of a trace; it is renewed for each run.
const TIME: Duration = Duration::from_secs(60);
const SESSION: u32 = 1;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::job("trace/off", 1, |me, options| {
            let (off, _) = in_turns(me, options)?;
            Ok(vec![Metric::new("call_ns", "ns", off)])
        }),
        Case::job("trace/on", 1, |me, options| {
            let (off, on) = in_turns(me, options)?;
            let event = off.iter().zip(&on).map(|(off, on)| (on - off) / 2.0).collect();
            Ok(vec![
                Metric::new("call_ns", "ns", on).against("without a trace", off),
                Metric::new("event_ns", "ns", event),
            ])
        }),
    ]
}

/// Measures calls without and with a trace, in turns.
fn in_turns(me: &Worker, options: Options) -> Result<(Vec<f64>, Vec<f64>), BenchError> {
    let activity = me.activity();
    let (mut off, mut on) = (Vec::new(), Vec::new());
    // The first calls wait for their ring, and would run in the first trace.
    me.call(me.id(), (), |_, ()| ()).map_err(farside::Error::from)?;
    me.quiesce()?;
    // The first run warms up.
    for run in 0..=options.runs() {
        let without = calls(me)?;
        activity.trace(SESSION, TIME, true);
        me.progress()?;
        let with = calls(me)?;
        activity.end_trace();
        me.progress()?;
        let taken = activity.take_events(usize::MAX);
        let events: usize = taken.iter().map(|taken| taken.events.len()).sum();
        let lost: u64 = taken.iter().map(|taken| taken.lost).sum();
        assert!(events as u64 >= 2 * CALLS && lost == 0, "{events} events, {lost} lost");
        if run > 0 {
            off.push(without);
            on.push(with);
        }
    }
    Ok((off, on))
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

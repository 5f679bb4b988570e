//! More processes than CPUs, where the way of waiting decides; and the cost of waiting, starting
//! and ending.

use std::thread;
use std::time::{Duration, Instant};

use farside::{Worker, WorkerId};
use farside_sys::process::{cpu_time_used, monotonic_time};

use crate::kit::*;

pub(crate) const ABOUT: &str =
    "round trips and barriers of more processes than CPUs; what waiting, starting and ending cost";

/// Round trips or barriers of each run by default.
const TRIPS: u64 = 20_000;
/// How long waiting processes are watched.
const IDLE: Duration = Duration::from_secs(1);
/// The same over libfabric, whose processes now and then poll for events that it does not announce.
const IDLE_OVER_OFI: Duration = Duration::from_secs(2);

/// Measures waiting while a process watches libfabric.
pub(crate) fn over_ofi(_: &OfiFabric) -> Vec<Case> {
    vec![Case::job("idle/2p", 3, |me, options| wait_idly(me, options, IDLE_OVER_OFI))]
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for processes in [2, 4, 8] {
        cases.push(Case::job(format!("call-return/{processes}p"), processes, |me, options| {
            measure(me, options, me.id().number() % 2 == 0, |me| {
                me.call_return(me.neighbor(1), me.id().number(), |_, number| number)?.wait().map(drop)
            })
        }));
    }
    for processes in [2, 4, 8] {
        cases.push(Case::job(format!("barrier/{processes}p"), processes, |me, options| {
            measure(me, options, true, Worker::barrier)
        }));
    }
    // The name counts four processes; the fifth is the one that the others wait for.
    cases.push(Case::job("idle/4p", 5, |me, options| wait_idly(me, options, IDLE)));
    cases.push(Case::around_job("start/4p", 4, start_and_end, time_start));
    cases.push(Case::around_job("end/4p", 4, start_and_end, time_end));
    cases
}

/// Measures an operation of the `active` workers, all at the same time, in turns with the ping-pong
/// of each pair. The other workers execute calls while they wait at a barrier.
fn measure(
    me: &Worker,
    options: Options,
    active: bool,
    operation: impl Fn(&Worker) -> farside::Result<()>,
) -> Measured {
    let pairs = me.worker_count() as usize / 2;
    let memory = Shared::new(me, pairs * PingPong::BYTES)?;
    let ping_pong = PingPong::new(&memory, me.id().index() / 2, Patience::new(me.worker_count()));
    let asks = me.id().index().is_multiple_of(2);
    let trips = options.operations_or(TRIPS);
    // The first run sets up the rings.
    let taken = warmed(options, |_| {
        me.barrier()?;
        let limit = if asks { ping_pong.ask(trips, ALONE)? } else { ping_pong.answer(trips).map(|()| vec![])? };
        me.barrier()?;
        let samples = if active { time_batches(trips, ALONE, || operation(me))? } else { vec![] };
        let own = [median(&samples), quantile(&samples, 0.99), median(&limit)];
        Ok(me.gather(WorkerId::FIRST, own)?.map_or([0.0; 3], |all| middle(&all)))
    })?;
    Ok(taken.rows([column("rtt_ns", "ns", 0), column("rtt_p99_ns", "ns", 1)].map(|each| each.against(TWO_LINES, 2))))
}

/// Returns the medians of those workers that measured something; the others have 0.
fn middle(all: &[[f64; 3]]) -> [f64; 3] {
    [0, 1, 2].map(|at: usize| median(&all.iter().map(|own| own[at]).filter(|value| *value > 0.0).collect::<Vec<_>>()))
}

/// Measures the share of a CPU that each worker uses while it waits at a barrier. The last worker
/// comes late.
fn wait_idly(me: &Worker, options: Options, time: Duration) -> Measured {
    let is_late = me.id().number() + 1 == me.worker_count();
    let taken = cold(options, |_| {
        me.barrier()?;
        let (start, used_before) = (Instant::now(), cpu_time_used());
        if is_late {
            thread::sleep(time);
        }
        me.barrier()?;
        let used = cpu_time_used() - used_before;
        let of_all = me.gather(WorkerId::new(0), used.as_secs_f64() / start.elapsed().as_secs_f64())?;
        let Some([waiting @ .., _]) = of_all.as_deref() else { return Ok([0.0]) };
        Ok([waiting.iter().sum::<f64>() / waiting.len() as f64])
    })?;
    Ok(taken.rows([column("cpu_fraction", "1", 0)]))
}

const STARTED: &str = "started_at";
const ENDED: &str = "ended_at";

/// Returns the moments when all workers have begun, and when they are about to return.
fn start_and_end(me: &Worker, _: Options) -> Measured {
    let own_start = now();
    let started = me.all_reduce(own_start, f64::max)?;
    me.barrier()?;
    Ok(vec![Metric::new(STARTED, "s", vec![started]), Metric::new(ENDED, "s", vec![now()])])
}

/// Measures from the launch of an empty job until all its workers run.
fn time_start(options: Options, run_once: RunOnce<'_>) -> Measured {
    time_ms("start_ms", options, || Ok((now(), moment(&run_once(options)?, STARTED))))
}

/// Measures from the return of its last worker until the launcher returns.
fn time_end(options: Options, run_once: RunOnce<'_>) -> Measured {
    time_ms("end_ms", options, || Ok((moment(&run_once(options)?, ENDED), now())))
}

/// Returns the time between the two moments of each run.
fn time_ms(name: &str, options: Options, mut run: impl FnMut() -> Result<(f64, f64), BenchError>) -> Measured {
    let taken = cold(options, |_| run().map(|(from, to)| [(to - from) * 1e3]))?;
    Ok(taken.rows([column(name, "ms", 0)]))
}

/// Returns the moment of this name from the metrics of a job.
fn moment(metrics: &[Metric], name: &str) -> f64 {
    let found = metrics.iter().find(|metric| metric.name == name);
    found.map_or(f64::NAN, |metric| median(&metric.samples))
}

fn now() -> f64 {
    monotonic_time().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_workers_that_measured_count() {
        assert_eq!(middle(&[[3.0, 30.0, 7.0], [0.0; 3], [1.0, 10.0, 9.0], [0.0; 3]]), [2.0, 20.0, 8.0]);
    }

    #[test]
    fn times_are_between_moments() {
        let moments = [Metric::new(STARTED, "s", vec![2.0]), Metric::new(ENDED, "s", vec![5.0])];
        assert_eq!((moment(&moments, STARTED), moment(&moments, ENDED)), (2.0, 5.0));
        assert!(moment(&moments[..1], ENDED).is_nan());
        let metrics = time_ms("start_ms", Options::new(), || Ok((2.0, 2.5))).unwrap();
        assert_eq!(metrics[0].samples, vec![500.0; Options::new().runs()]);
    }
}

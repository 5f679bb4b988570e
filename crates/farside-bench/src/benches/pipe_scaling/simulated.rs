//! The same on a simulated network, beside what rpipe's authors measured on Aries.

use std::sync::Mutex;

use farside::{SimOptions, Simulation, WorkerId};

use super::{Load, NAME, OF_A_PIPE, PROCESSES, messages, repeat};
use crate::metric::Metric;
use crate::row::Row;
use crate::simulated::{SimNetwork, report};
use crate::{BenchError, Options};

/// Messages of all processes in one run, when nothing else is asked for.
const MESSAGES: u64 = 4000;
/// Through each pipe on average, when it must be quick: each message takes the simulation a tenth of a millisecond.
const OF_A_PIPE_QUICK: u64 = 3;
/// "Scaling up to 32 nodes, randomized rwrite(), 0.65-3.8us avg latency": the least and the most of all loads.
const PUBLISHED: [(&str, f64); 2] = [("ns_least", 650.0), ("ns_most", 3800.0)];
const PUBLISHED_PEER: &str = "rpipe-published";
/// What that was measured on.
const PUBLISHED_ON: &str = "aries";

pub(crate) fn run(
    network: SimNetwork,
    options: Options,
    on_row: &mut dyn FnMut(Row) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let mut all = Vec::new();
    for load in Load::all(&PROCESSES) {
        let metrics = simulate(load, network, options)?;
        for metric in metrics {
            all.extend(metric.samples.iter().copied());
            report(NAME, &format!("{}/{network}", load.case()), &metric, None, on_row)?;
        }
    }
    let case = format!("all/{network}");
    let ends = [all.iter().copied().fold(f64::INFINITY, f64::min), all.iter().copied().fold(0.0, f64::max)];
    for ((name, published), found) in PUBLISHED.into_iter().zip(ends) {
        report(NAME, &case, &Metric::new(name, "ns", vec![found]), None, on_row)?;
        if network.preset() == PUBLISHED_ON {
            let metric = Metric::new(name, "ns", vec![published]).of_peer(PUBLISHED_PEER);
            report(NAME, &case, &metric, None, on_row)?;
        }
    }
    Ok(())
}

fn simulate(load: Load, network: SimNetwork, options: Options) -> Result<Vec<Metric>, BenchError> {
    let of_a_pipe = if options.quick { OF_A_PIPE_QUICK } else { OF_A_PIPE };
    let messages = messages(load.processes, MESSAGES, of_a_pipe, options);
    let sim = SimOptions { network: network.model(), delay_max_ns: 0, ..SimOptions::default() };
    let found = Mutex::new(Vec::new());
    let simulated = Simulation::new(load.processes, 1, options.seed).options(sim).run(|me| {
        // The same every time.
        let metrics = repeat(me, load, messages, 1)?;
        if me.id() == WorkerId::new(0) {
            *found.lock().expect("nobody has panicked") = metrics;
        }
        Ok(())
    })?;
    simulated.verdict?;
    Ok(found.into_inner().expect("nobody has panicked"))
}

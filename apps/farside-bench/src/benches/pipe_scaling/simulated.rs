//! The same messages on a simulated network, compared with the measurements of the authors of rpipe
//! on Aries.

use farside::Simulation;

use super::{Load, METRIC, OF_A_PIPE, PROCESSES, messages, repeat};
use crate::kit::*;

/// Messages of all processes in one run by default.
const MESSAGES: u64 = 4000;
/// Messages through each pipe on average in a quick run. Each message takes the simulation a tenth
/// of a millisecond.
const OF_A_PIPE_QUICK: u64 = 3;
/// "Scaling up to 32 nodes, randomized rwrite(), 0.65-3.8us avg latency": the least and the most of
/// all loads.
const PUBLISHED: [(&str, f64); 2] = [("ns_least", 650.0), ("ns_most", 3800.0)];
const PUBLISHED_PEER: &str = "rpipe-published";
/// The network of that measurement.
const PUBLISHED_ON: &str = "aries";

pub(crate) fn cases(network: SimNetwork) -> Vec<Case> {
    let case = |load: Load| Case::here(load.case(), move |options| simulate(load, network, options));
    let all = Case::from_rows("all", move |rows| ends(rows, network));
    Load::all(&PROCESSES).map(case).chain([all]).collect()
}

/// Returns the least and the most of all loads, compared with the published figures.
fn ends(rows: &[Row], network: SimNetwork) -> Vec<Metric> {
    let times = || rows.iter().filter(|row| row.metric == METRIC).map(|row| row.value);
    if times().next().is_none() {
        return Vec::new();
    }
    let found = [times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max)];
    let mut metrics = Vec::new();
    for ((name, published), found) in PUBLISHED.into_iter().zip(found) {
        metrics.push(Metric::new(name, "ns", vec![found]));
        if network.preset() == PUBLISHED_ON {
            metrics.push(Metric::new(name, "ns", vec![published]).of_peer(PUBLISHED_PEER));
        }
    }
    metrics
}

fn simulate(load: Load, network: SimNetwork, options: Options) -> Measured {
    let of_a_pipe = if options.quick { OF_A_PIPE_QUICK } else { OF_A_PIPE };
    let messages = messages(load.processes, MESSAGES, of_a_pipe, options);
    let simulation = Simulation::new(load.processes, 1, options.seed).options(network.settings());
    // One run suffices, because every run is the same.
    on_simulation(simulation, |me| repeat(me, load, messages, options.with_runs(1)))
}

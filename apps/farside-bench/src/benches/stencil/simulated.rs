//! The same iteration on a simulated network. Computation is charged in virtual time, too.

use farside::{SimOptions, Simulation};

use super::{Plan, SHAPES, each_plan, measure, with_hidden, without_checksum};
use crate::kit::*;

/// Steps of a run by default.
const STEPS: u64 = 50;
/// Bytes of a message, with room for a row of the largest field.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

pub(crate) fn cases(network: SimNetwork) -> Vec<Case> {
    let case = |(name, plan): (String, Plan)| Case::here(name, move |options| simulate(plan, network, options));
    each_plan(&SHAPES).map(case).collect()
}

fn simulate(plan: Plan, network: SimNetwork, options: Options) -> Measured {
    let sim = SimOptions { message_bytes_max: MESSAGE_BYTES_MAX, ..network.settings() };
    let options = options.operations(Some(options.operations_or(STEPS)));
    let simulation = Simulation::new(plan.shape.processes, 1, options.seed).options(sim);
    let metrics = on_simulation(simulation, |me| measure(me, plan, options))?;
    let metrics = with_hidden(without_checksum(metrics).0);
    // Limits are times of this machine, which say nothing about virtual time.
    Ok(metrics.into_iter().map(|metric| Metric { limit: None, ..metric }).collect())
}

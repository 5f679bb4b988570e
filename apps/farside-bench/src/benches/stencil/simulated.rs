//! The same iteration on a simulated network. Computation is charged in virtual time, too.

use std::sync::Mutex;

use farside::{SimOptions, Simulation, WorkerId};

use super::{Plan, SHAPES, each_plan, measure, with_hidden, without_checksum};
use crate::case::Case;
use crate::fabric::SimNetwork;
use crate::metric::Metric;
use crate::{BenchError, Options};

/// Steps of a run by default.
const STEPS: u64 = 50;
/// Bytes of a message, with room for a row of the largest field.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

pub(super) fn cases(network: SimNetwork) -> Vec<Case> {
    let case = |(name, plan): (String, Plan)| Case::here(name, move |options| simulate(plan, network, options));
    each_plan(&SHAPES).map(case).collect()
}

fn simulate(plan: Plan, network: SimNetwork, options: Options) -> Result<Vec<Metric>, BenchError> {
    let found = Mutex::new(Vec::new());
    let sim = SimOptions {
        network: network.model(),
        delay_max_ns: 0,
        message_bytes_max: MESSAGE_BYTES_MAX,
        ..SimOptions::default()
    };
    let options = options.operations(Some(options.operations_or(STEPS)));
    let simulated = Simulation::new(plan.shape.processes, 1, options.seed).options(sim).run(|me| {
        let metrics = measure(me, plan, options)?;
        if me.id() == WorkerId::new(0) {
            *found.lock().expect("no thread has panicked") = metrics;
        }
        Ok(())
    })?;
    simulated.verdict?;
    let metrics = with_hidden(without_checksum(found.into_inner().expect("no thread has panicked")).0);
    // Limits are times of this machine, which say nothing about virtual time.
    Ok(metrics.into_iter().map(|metric| Metric { limit: None, ..metric }).collect())
}

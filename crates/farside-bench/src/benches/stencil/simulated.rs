//! The same on a simulated network. Computing is charged, and so all of it is virtual time.

use std::sync::Mutex;

use farside::{SimOptions, Simulation, WorkerId};

use super::{NAME, Plan, SHAPES, each_plan, measure, with_hidden, without_checksum};
use crate::metric::Metric;
use crate::row::Row;
use crate::simulated::{SimNetwork, report};
use crate::{BenchError, Options};

/// Steps of a run, when nothing else is asked for.
const STEPS: u64 = 50;
/// A row of the largest field in one message.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

pub(crate) fn run(
    network: SimNetwork,
    options: Options,
    on_row: &mut dyn FnMut(Row) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    for (name, plan) in each_plan(&SHAPES) {
        let case = format!("{name}/{network}");
        for metric in simulate(plan, network, options)? {
            // What this machine takes for it says nothing about virtual time.
            let metric = Metric { limit: None, ..metric };
            report(NAME, &case, &metric, None, on_row)?;
        }
    }
    Ok(())
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
            *found.lock().expect("nobody has panicked") = metrics;
        }
        Ok(())
    })?;
    simulated.verdict?;
    Ok(with_hidden(without_checksum(found.into_inner().expect("nobody has panicked")).0))
}

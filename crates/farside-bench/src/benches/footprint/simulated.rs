//! The same on a simulated network, with more processes than a machine could start.
//!
//! They share this program, so its memory is divided by their number: the stacks of three threads for each, what the network itself takes, and
//! what Farside has for a process. Memory is real, and so these rows are not the same every time, unlike others of a simulation;
//! `reported_bytes` is. In large jobs a process reaches its next neighbors only.

use std::sync::Mutex;

use farside::{SimOptions, Simulation, WorkerId};

use super::{METRICS, NAME, REPORTED, TALKED, fit, reported_bytes, walk};
use crate::metric::Metric;
use crate::resident::Resident;
use crate::row::Row;
use crate::simulated::{SimNetwork, report};
use crate::{BenchError, Options};

/// Our rings are as large from the first call on, and each call takes the simulation some 10 µs.
const TALK: u32 = 1;
/// Ascending: what an earlier simulation has freed is used by later ones, and does not count twice.
const SIZES: [u32; 7] = [2, 4, 8, 16, 32, 256, 1024];

pub(crate) fn run(
    network: SimNetwork,
    options: Options,
    on_row: &mut dyn FnMut(Row) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let idle = Resident::of_this_process()?.data_bytes;
    let mut rows = Vec::new();
    let mut keep = |row: Row| {
        rows.push(row.clone());
        on_row(row)
    };
    // The largest takes most of the time.
    let sizes = if options.quick { &SIZES[..SIZES.len() - 1] } else { &SIZES[..] };
    for &processes in sizes {
        let case = format!("{processes}/{network}");
        for metric in simulate(processes, idle, network, options)? {
            report(NAME, &case, &metric, None, &mut keep)?;
        }
    }
    for (case, metrics) in [("per-peer", fit::per_peer(&rows)), ("estimate/1M", fit::estimate(&rows))] {
        for metric in metrics {
            report(NAME, &format!("{case}/{network}"), &metric, None, on_row)?;
        }
    }
    Ok(())
}

/// A job of so many processes in this program, which had so many bytes before.
fn simulate(processes: u32, idle: u64, network: SimNetwork, options: Options) -> Result<Vec<Metric>, BenchError> {
    let found = Mutex::new([0; METRICS.len()]);
    let sim = SimOptions { network: network.model(), delay_max_ns: 0, ..SimOptions::default() };
    let simulated = Simulation::new(processes, 1, options.seed).options(sim).run(|me| {
        walk(me, TALK, |stage| {
            let mut found = found.lock().expect("nobody has panicked");
            if me.id() == WorkerId::new(0) {
                found[stage] = Resident::of_this_process()?.data_bytes.saturating_sub(idle);
            }
            if stage == TALKED {
                found[REPORTED] += reported_bytes(me);
            }
            Ok(())
        })?;
        Ok(())
    })?;
    simulated.verdict?;
    let found = found.into_inner().expect("nobody has panicked");
    let of_each = |(name, bytes)| Metric::new(name, "B", vec![bytes as f64 / f64::from(processes)]);
    Ok(METRICS.into_iter().zip(found).map(of_each).collect())
}

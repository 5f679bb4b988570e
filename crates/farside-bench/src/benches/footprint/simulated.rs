//! The same on a simulated network, with more processes than a machine could start.
//!
//! They share this program, so its memory is divided by their number: the stacks of three threads for each, what the network itself takes, and
//! what Farside has for a process. Memory is real, and so these rows are not the same every time, unlike others of a simulation;
//! `reported_bytes` is. In large jobs a process reaches its next neighbors only.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Mutex;

use farside::{SimOptions, Simulation, WorkerId};

use super::{METRICS, REPORTED, TALKED, reported_bytes, walk};
use crate::case::Case;
use crate::fabric::SimNetwork;
use crate::metric::Metric;
use crate::resident::Resident;
use crate::{BenchError, Options};

/// Our rings are as large from the first call on, and each call takes the simulation some 10 µs.
const TALK: u32 = 1;
/// Ascending: what an earlier simulation has freed is used by later ones, and does not count twice.
const SIZES: [u32; 7] = [2, 4, 8, 16, 32, 256, 1024];

pub(super) fn cases(network: SimNetwork) -> Vec<Case> {
    // The memory of this process before the first simulation.
    let idle = Rc::new(OnceCell::new());
    let of_size = |processes: u32| {
        let idle = idle.clone();
        let measure = move |options: Options| {
            if options.quick && processes == SIZES[SIZES.len() - 1] {
                // The largest takes most of the time.
                return Ok(Vec::new());
            }
            let now = Resident::of_this_process()?.data_bytes;
            simulate(processes, *idle.get_or_init(|| now), network, options)
        };
        Case::here(processes.to_string(), measure)
    };
    SIZES.map(of_size).into()
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

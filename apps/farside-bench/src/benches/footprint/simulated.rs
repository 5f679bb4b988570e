//! The same stages on a simulated network, with more processes than a machine could start.
//!
//! All processes share this program, so its memory is divided by their number: the stacks of three
//! threads for each, the memory of the network, and the memory of Farside for a process. Memory is
//! real, so these rows vary from run to run, unlike other simulated rows; `reported_bytes` does not
//! vary. In large jobs a process reaches only its next neighbors.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Mutex;

use farside::Simulation;

use super::{METRICS, REPORTED, TALKED, reported_bytes, walk};
use crate::kit::*;
use crate::resident::Resident;

/// Calls to each process. Rings have their size from the first call on, and each call takes the
/// simulation some 10 µs.
const TALK: u32 = 1;
/// Sizes in ascending order: later simulations use the memory that earlier ones freed, which so
/// counts once.
const SIZES: [u32; 7] = [2, 4, 8, 16, 32, 256, 1024];

pub(super) fn cases(network: SimNetwork) -> Vec<Case> {
    // The memory of this process before the first simulation.
    let idle = Rc::new(OnceCell::new());
    let of_size = |processes: u32| {
        let idle = idle.clone();
        let measure = move |options: Options| {
            if options.quick && processes == SIZES[SIZES.len() - 1] {
                // The largest size takes most of the time.
                return Ok(Vec::new());
            }
            let now = Resident::of_this_process()?.data_bytes;
            simulate(processes, *idle.get_or_init(|| now), network, options)
        };
        Case::here(processes.to_string(), measure)
    };
    SIZES.map(of_size).into()
}

/// Simulates a job in this program, which had `idle` bytes before.
fn simulate(processes: u32, idle: u64, network: SimNetwork, options: Options) -> Measured {
    let found = Mutex::new([0; METRICS.len()]);
    let simulation = Simulation::new(processes, 1, options.seed).options(network.settings());
    on_simulation(simulation, |me| {
        walk(me, TALK, |stage| {
            let mut found = found.lock().expect("no thread has panicked");
            if me.is_first() {
                found[stage] = Resident::of_this_process()?.data_bytes.saturating_sub(idle);
            }
            if stage == TALKED {
                found[REPORTED] += reported_bytes(me);
            }
            Ok(())
        })
    })?;
    let found = found.into_inner().expect("no thread has panicked");
    let of_each = |(name, bytes)| Metric::new(name, "B", vec![bytes as f64 / f64::from(processes)]);
    Ok(METRICS.into_iter().zip(found).map(of_each).collect())
}

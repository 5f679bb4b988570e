//! Ways between workers: setup, aggregation, overflow, helpers, growth, shutdown and reclaim; over
//! shared memory, libfabric and the simulated network.

mod aggregation;
mod helpers;
mod interleavings;
mod reclaim;
mod setup;

use std::cell::RefCell;

use farside::job::FabricChoice;
use farside::prelude::*;
use farside::{Job, Result, Simulation};
use farside_testbed::scaled;

use crate::support::{is_launched, take_notes, verdict};

/// Runs a job over shared memory and over libfabric.
fn over_real_fabrics(test: &str, job: Job, body: impl Fn(&Worker) -> Result<()> + Send + Sync) {
    let fabrics = ["shm", "ofi:tcp"].map(|name| name.parse::<FabricChoice>().unwrap());
    for fabric in fabrics {
        if fabric == FabricChoice::Shm || !farside_testbed::is_left_out("fabric") {
            let verdict = verdict(test, job.clone().force_fabric(fabric.clone()), &body);
            take_notes(std::process::id(), test, 1);
            verdict.unwrap_or_else(|error| panic!("over {fabric}: {error}"));
        }
    }
}

/// Runs a job over shared memory, libfabric and the simulated network.
fn over_all_fabrics(test: &str, processes: u32, body: impl Fn(&Worker) -> Result<()> + Send + Sync) {
    if !is_launched() {
        for seed in 0..scaled(3) {
            let simulated = Simulation::new(processes, 1, seed).run(&body).unwrap();
            simulated.verdict.unwrap_or_else(|error| panic!("simulated with seed {seed}: {error}"));
        }
    }
    over_real_fabrics(test, farside::job().processes(processes), body);
}

/// The number of the last call from each sender.
type Last = PerWorker<RefCell<Vec<u64>>>;

fn new_last(me: &Worker) -> Result<Last> {
    PerWorker::new(me, RefCell::new(vec![0; me.worker_count() as usize]))
}

type Numbered = (Last, WorkerId, u64);

/// Checks that the calls of a sender arrive in order, each once.
fn arrive(there: &Worker, (last, from, number): Numbered) {
    let before = std::mem::replace(&mut last.here(there).borrow_mut()[from.index()], number);
    assert_eq!(before + 1, number, "calls of {from} come in order, each once");
}

fn arrive_with(there: &Worker, call: Numbered, buffer: &[u8]) {
    assert!(buffer.iter().all(|byte| *byte == call.2 as u8));
    arrive(there, call);
}

/// Waits until `number` calls of another worker have arrived.
fn wait_for(me: &Worker, last: Last, from: WorkerId, number: u64) -> Result<()> {
    me.wait_while_serving(|| last.here(me).borrow()[from.index()] == number)
}

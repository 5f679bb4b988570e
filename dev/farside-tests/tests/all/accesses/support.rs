//! Checked jobs, and a counter that orders accesses without the knowledge of the checker.

use std::time::Duration;

use farside::RemoteRegion;
use farside::prelude::*;
use farside::{AccessConflict, GlobalAddress, GlobalPtr, Result, Simulation};
use farside_testbed::{limit, scaled};

use crate::support::{is_over_missing_libfabric, room, verdict};

pub(crate) type Body = fn(&Worker) -> Result<()>;

/// Runs a checked job whose processes reach this call by running the test of this name.
pub(crate) fn by_processes(test: &str, fabric: &str, processes: u32, threads: u32, body: Body) {
    if is_over_missing_libfabric(fabric) {
        return;
    }
    let job = farside::job().processes(processes).threads_per_process(threads).check_accesses(true);
    let job = job.pool_threads(2).force_fabric(fabric.parse().unwrap());
    verdict(test, job, body).unwrap();
}

/// Runs a checked job in the simulator, once for each seed below `seeds` times the depth.
pub(crate) fn simulated(seeds: u64, processes: u32, body: Body) {
    for seed in 0..scaled(seeds) {
        let simulation = Simulation::new(processes, 1, seed).check_accesses(true).pool_threads(2);
        if let Err(error) = simulation.run(body).unwrap().verdict {
            panic!("seed {seed}: {error}");
        }
    }
}

/// Lets a simulated moment pass, or other threads run.
pub(crate) fn take_time(me: &Worker) {
    me.charge(Duration::from_micros(5));
    std::thread::yield_now();
}

/// Lets a moment pass and makes progress.
pub(crate) fn serve(me: &Worker) -> Result<()> {
    take_time(me);
    me.progress().map(drop)
}

/// Returns a word of a process's starter memory.
pub(crate) fn word(process: u32, index: u32) -> GlobalPtr<u64> {
    GlobalAddress::starter(ProcessId::new(process), index * 8).cast()
}

#[track_caller]
pub(crate) fn report<T: std::fmt::Debug>(result: Result<T>) -> AccessConflict {
    match room::<_, AccessConflict>(&result) {
        Some(conflict) => conflict.clone(),
        None => panic!("{result:?} is no report"),
    }
}

/// A counter that workers advance and watch through the fabric, which the checker does not see. It
/// puts accesses one after another in time without ordering them for the checker.
pub(crate) struct Blind {
    region: RemoteRegion,
    offset: u64,
}

impl Blind {
    pub(crate) fn new(me: &Worker) -> Result<Self> {
        let root = WorkerId::new(0);
        let memory = (me.id() == root).then(|| me.allocate_at(me.process(), 8)).transpose()?;
        let memory = me.broadcast(root, memory)?;
        let (region, offset) = memory.region(me)?;
        let blind = Self { region, offset };
        if me.id() == root {
            blind.reach(me, 0)?;
        }
        me.barrier()?;
        Ok(blind)
    }

    /// Advances the counter to a step.
    pub(crate) fn reach(&self, me: &Worker, step: u64) -> Result<()> {
        Ok(self.region.put(self.offset, &step.to_ne_bytes(), me.now() + limit())?)
    }

    /// Waits until another worker has reached a step. Makes no progress, so no call runs here.
    pub(crate) fn wait_for(&self, me: &Worker, step: u64) -> Result<()> {
        let deadline = me.now() + limit();
        loop {
            if self.is_at(me, step) {
                return Ok(());
            }
            assert!(me.now() < deadline, "step {step} was not reached");
            take_time(me);
        }
    }

    pub(crate) fn is_at(&self, me: &Worker, step: u64) -> bool {
        let mut now = [0; 8];
        self.region.get(self.offset, &mut now, me.now() + limit()).expect("the memory is there");
        u64::from_ne_bytes(now) >= step
    }
}

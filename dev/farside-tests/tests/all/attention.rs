//! The interval between two looks of a worker, as another one reads it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farside::{Dist, Error, ProcessId, Result, Simulation, Worker, WorkerId};

const OTHER: WorkerId = WorkerId::new(1);
const COMPUTE: Duration = Duration::from_micros(200);

everywhere! {
    as_processes(processes = 2, threads = 1),
    simulated(processes = 2, threads = 1, seeds = 5);
    a_worker_that_computes_looks_seldom
    a_worker_that_sleeps_is_woken
}

fn compute(me: &Worker) {
    let start = me.now();
    me.charge(COMPUTE);
    while me.now() - start < COMPUTE {
        std::hint::spin_loop();
    }
}

fn a_worker_that_computes_looks_seldom(me: &Worker) -> Result<()> {
    let is_done = Dist::new(me, || AtomicBool::new(false))?;
    me.barrier()?;
    if me.is_first() {
        // The other one has begun to compute once it has run a call.
        let watch = |there: &Worker, ()| matches!(there.progress_interval(OTHER), Err(Error::InHandler { .. }));
        assert!(me.call_return(OTHER, (), watch)?.wait()?, "a handler cannot watch");
        compute(me);
        let found = me.progress_interval(OTHER)?;
        // A busy machine may make it longer.
        assert!(found >= COMPUTE / 2, "{found:?}");
        me.call(OTHER, is_done, |there, is_done| is_done.here(there).store(true, Ordering::Release))?;
    } else {
        while !is_done.here(me).load(Ordering::Acquire) {
            compute(me);
            me.progress()?;
        }
    }
    me.barrier()
}

fn a_worker_that_sleeps_is_woken(me: &Worker) -> Result<()> {
    me.barrier()?;
    if me.is_first() {
        while me.progress_interval(OTHER)? != Duration::ZERO {}
    }
    me.barrier()
}

#[test]
fn a_lost_process_has_no_interval() {
    let dead = ProcessId::new(1);
    let simulation = Simulation::new(2, 1, 3).kill(dead, Duration::from_millis(3));
    let simulated = simulation.run(|me| {
        loop {
            match me.progress_interval(WorkerId::new(1 - me.id().number())) {
                Ok(_) => {}
                Err(Error::PeerLost { process, .. }) => {
                    assert_eq!(process, dead);
                    return Ok(());
                }
                Err(other) => panic!("{other}"),
            }
        }
    });
    assert!(simulated.unwrap().verdict.is_err());
}

//! Programs whose accesses are ordered: not one report.

use farside::prelude::*;
use farside::{Result, Simulation};

use super::support::{Body, by_processes, simulated, word};

/// Everybody writes, all meet, everybody reads what another wrote, all meet.
fn by_barriers(me: &Worker) -> Result<()> {
    let count = me.worker_count();
    let own = me.id().number();
    for round in 0..10_u32 {
        for process in 0..me.process_count() {
            word(process, own).put(me, u64::from(own + round))?;
        }
        me.barrier()?;
        let other = (own + round) % count;
        for process in 0..me.process_count() {
            assert_eq!(word(process, other).get(me)?, u64::from(other + round));
        }
        me.barrier()?;
    }
    Ok(())
}

const BODIES: [Body; 1] = [by_barriers];

fn all(me: &Worker) -> Result<()> {
    BODIES.into_iter().try_for_each(|body| body(me))
}

#[test]
fn pass_by_processes() {
    by_processes("accesses::ordered::pass_by_processes", "shm", 3, 2, all);
}

#[test]
fn pass_over_libfabric() {
    by_processes("accesses::ordered::pass_over_libfabric", "ofi:tcp", 3, 1, all);
}

#[test]
fn pass_in_the_simulator() {
    simulated(20, 3, all);
}

#[test]
fn are_not_counted_unless_they_are_checked() {
    let simulation = Simulation::new(2, 1, 1).check_accesses(false);
    let run = simulation.run(|me| {
        assert_eq!(me.access_checks(), None);
        by_barriers(me)
    });
    run.unwrap().verdict.unwrap();
}

//! Processes that are lost, and processes that do not answer.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::{spread, verdict};
use farside::prelude::*;
use farside::{Error, Simulation};
use farside_testbed::scaled;

use super::support::{Blind, report, serve, word};

/// A lost process's last accesses conflict with nothing after the loss. The others go on.
#[test]
fn accesses_of_a_lost_process_are_dropped() {
    for seed in 0..scaled(10) {
        let well = AtomicU32::new(0);
        let simulation = Simulation::new(3, 1, seed).check_accesses(true);
        let simulated = simulation.kill(ProcessId::new(1), Duration::from_millis(5)).run(|me| {
            let blind = Blind::new(me)?;
            let (at, theirs) = (word(0, 0), word(1, 0));
            match me.id().number() {
                1 => {
                    at.put(me, 1)?;
                    blind.reach(me, 1)?;
                    me.wait_together(Duration::from_secs(60), || false)
                }
                2 => {
                    blind.wait_for(me, 1)?;
                    assert_eq!(report(at.put(me, 2)).there.worker, WorkerId::new(1));
                    theirs.put(me, 2)?;
                    while me.lost_processes().is_empty() {
                        serve(me)?;
                    }
                    at.put(me, 2)?;
                    let lost = theirs.put(me, 3);
                    assert!(matches!(lost, Err(Error::PeerLost { process, .. }) if process.number() == 1), "{lost:?}");
                    well.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                }
                _ => me.wait_together(Duration::from_secs(60), || false).or(Ok(())),
            }
        });
        assert!(simulated.unwrap().verdict.is_err());
        assert_eq!(well.into_inner(), 1, "seed {seed}");
    }
}

/// A process is killed at any moment while others ask it.
#[test]
fn asking_a_killed_process_is_an_error() {
    for seed in spread(20) {
        let simulation = Simulation::new(3, 1, seed).check_accesses(true);
        let simulation = simulation.kill(ProcessId::new(2), Duration::from_micros(200 + 37 * seed));
        let told = AtomicU32::new(0);
        let simulated = simulation.run(|me| {
            if me.process().number() == 2 {
                return me.wait_together(Duration::from_secs(60), || false);
            }
            for round in 0.. {
                match word(2, me.id().number()).put(me, round) {
                    Ok(()) => {}
                    Err(Error::PeerLost { process, .. }) if process.number() == 2 => break,
                    Err(other) => return Err(other),
                }
            }
            told.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err());
        assert_eq!(told.into_inner(), 2, "seed {seed}");
    }
}

mod timing {
    use super::*;

    /// The owner of the memory is stopped. An access fails at the deadline and succeeds later.
    #[test]
    fn asking_a_stopped_process_has_a_deadline() {
        let job = farside::job().processes(3).check_accesses(true).force_fabric("shm".parse().unwrap());
        let test = "accesses::losses::timing::asking_a_stopped_process_has_a_deadline";
        let verdict = verdict(test, job.deadline(Duration::from_secs(3)), |me| {
            let root = WorkerId::new(0);
            let processes = me.gather(root, std::process::id())?;
            let at = word(1, 0);
            if let Some(processes) = processes {
                at.put(me, 1)?;
                signal("-STOP", processes[1]);
                // The process may run for a moment after the signal.
                let begun = me.now();
                let mut late = at.put(me, 2);
                while late.is_ok() && me.now() - begun < Duration::from_secs(20) {
                    late = at.put(me, 2);
                }
                signal("-CONT", processes[1]);
                assert!(matches!(late, Err(Error::Deadline { .. })), "{late:?}");
                at.put(me, 3)?;
                assert_eq!(at.get(me)?, 3);
            }
            // The deadline of a call covers the time of the stop.
            me.call(root, (), |_, ()| ())?;
            if me.id() == root {
                return me.wait_while_serving(|| me.counters().executed >= 3);
            }
            Ok(())
        });
        verdict.unwrap();
    }

    fn signal(which: &str, process: u32) {
        let sent = Command::new("kill").args([which, &process.to_string()]).status().expect("there is such a command");
        assert!(sent.success());
    }
}

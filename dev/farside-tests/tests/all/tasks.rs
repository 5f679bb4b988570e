//! Pools of tasks that make further tasks.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside::prelude::*;
use farside::{Error, Result, Simulation, simulate};
use farside_kit::tasks::TaskPool;

use crate::support::failure;

everywhere! {
    as_processes(processes = 2, threads = 2),
    simulated(processes = 3, threads = 2, seeds = 6);
    every_task_runs_once
    tasks_of_all_sizes_are_given
}

/// Runs binary trees of this height, one for each seed. Returns how many tasks ran on all workers.
fn grow(me: &Worker, seeds: usize, height: u32) -> Result<u64> {
    let ran = TaskPool::run(me, vec![height; seeds], |_, height, pool| {
        if height > 0 {
            (0..2).for_each(|_| pool.push(height - 1));
        }
        Ok(())
    })?;
    me.all_reduce(ran, |a, b| a + b)
}

fn every_task_runs_once(me: &Worker) -> Result<()> {
    // No task, one task, and many; from one worker, from another one and from all. One pool follows
    // the other at once.
    for round in 0..3 {
        assert_eq!(grow(me, 0, 5)?, 0);
        assert_eq!(grow(me, me.is_first().into(), 0)?, 1);
        let last = me.id().number() + 1 == me.worker_count();
        assert_eq!(grow(me, last.into(), 9 + round)?, (2 << (9 + round)) - 1);
        assert_eq!(grow(me, 1, 6)?, 127 * u64::from(me.worker_count()));
    }
    Ok(())
}

/// Each task takes a while and is long, so that all workers get some.
fn tasks_of_all_sizes_are_given(me: &Worker) -> Result<()> {
    let seeds = (0..200).filter(|_| me.is_first()).map(|number| vec![7_u8; number * 1000]);
    let mut bytes = 0;
    let ran = TaskPool::run(me, seeds, |me, task: Vec<u8>, _| {
        me.charge(Duration::from_micros(200));
        assert!(task.iter().all(|byte| *byte == 7));
        bytes += task.len();
        Ok(())
    })?;
    let all = me.all_reduce((ran, bytes, ran), |a, b| (a.0 + b.0, a.1 + b.1, a.2.min(b.2)))?;
    assert_eq!((all.0, all.1), (200, 199 * 100 * 1000));
    let is_simulated = me.process_count() == 3;
    assert!(all.2 > 0 || !is_simulated, "a worker got nothing");
    Ok(())
}

/// The only task does not travel, and idle workers neither poll nor pass the token while it runs.
#[test]
fn a_single_task_stays() {
    let (calls, ran_on_first) = (AtomicU64::new(0), AtomicU64::new(0));
    simulate(4, 1, 3, |me| {
        let before = me.counters().sent.calls;
        let ran = TaskPool::run(me, me.is_first().then_some(1000_u32), |me, left, pool| {
            me.charge(Duration::from_micros(50));
            if left > 0 {
                pool.push(left - 1);
            }
            Ok(())
        })?;
        calls.fetch_add(me.counters().sent.calls - before, Ordering::Relaxed);
        if me.is_first() {
            ran_on_first.store(ran, Ordering::Relaxed);
        }
        me.barrier()
    })
    .unwrap();
    assert_eq!(ran_on_first.into_inner(), 1001);
    // A barrier, a request to each neighbour, two or three rounds of the token, and the end.
    let calls = calls.into_inner();
    assert!(calls <= 4 * 2 + 4 * 2 + 4 * 3 + 4, "{calls} calls");
}

#[test]
fn a_lost_process_and_a_failed_task_are_errors() {
    let (victim, survivors) = (ProcessId::new(1), AtomicU64::new(0));
    for after_us in [50, 200, 1000, 3000] {
        let simulation = Simulation::new(4, 1, after_us).kill(victim, Duration::from_micros(after_us));
        let simulated = simulation.run(|me| {
            let outcome = TaskPool::run(me, [20_u32], |me, height, pool| {
                me.charge(Duration::from_micros(1));
                if height > 0 {
                    (0..2).for_each(|_| pool.push(height - 1));
                }
                Ok(())
            });
            let is_lost = matches!(outcome, Err(Error::PeerLost { process, .. }) if process == victim);
            survivors.fetch_add(is_lost.into(), Ordering::Relaxed);
            Ok(())
        });
        assert_eq!(failure(simulated.unwrap().verdict).0, victim.number());
        assert_eq!(survivors.swap(0, Ordering::Relaxed), 3, "after {after_us} us");
    }

    let failed = simulate(3, 1, 1, |me| {
        let left = Cell::new(100);
        TaskPool::run(me, me.is_first().then_some(0_u8), |me, task, pool| {
            left.set(left.get() - 1);
            pool.push(task);
            if left.get() == 0 { me.call(WorkerId::new(9), (), |_, ()| ()).map_err(Error::from) } else { Ok(()) }
        })
        .map(drop)
    });
    let why = failed.unwrap_err().to_string();
    assert!(why.contains("worker 9 does not exist"), "{why}");
}

//! Pauses of the deadlines of a process.

use std::cell::{Cell, RefCell};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farside::{DeadlinePause, Dist, Error, PerWorker, Result, Simulation, Worker, WorkerId};
use farside_testbed::scaled;

const SECOND: Duration = Duration::from_secs(1);
const OTHER: WorkerId = WorkerId::new(1);

/// Runs a job whose deadline is 1 s, and returns how a barrier of worker 0 ends. Worker 1 is late
/// for it: by 3 s, and by `more` after the pause of worker 0 has ended, if it has one.
fn late_barrier(has_pause: bool, more: Duration, seed: u64) -> Result<()> {
    let outcome = Mutex::new(None);
    let simulated = Simulation::new(2, 1, seed).deadline(SECOND).run(|me| {
        let pause = PerWorker::new(me, RefCell::new(None::<DeadlinePause>))?;
        me.barrier()?;
        if has_pause {
            pause.here(me).replace(Some(me.pause_deadlines()));
        }
        if me.is_first() {
            *outcome.lock().unwrap() = Some(me.barrier());
            return Ok(());
        }
        me.charge(3 * SECOND);
        me.call(WorkerId::FIRST, pause, |there, pause| drop(pause.here(there).take()))?;
        me.progress()?;
        me.charge(more);
        // It fails if worker 0 has not waited for it.
        let _ = me.barrier();
        Ok(())
    });
    simulated?.verdict?;
    outcome.into_inner().unwrap().expect("worker 0 has come to the barrier")
}

#[test]
fn a_held_deadline_does_not_pass_and_goes_on_afterwards() {
    for seed in 0..scaled(10) {
        let is_late = |outcome: &Result<()>| match outcome {
            Err(Error::Deadline { waiting_for, .. }) => waiting_for == &[OTHER],
            _ => false,
        };
        let without = late_barrier(false, Duration::ZERO, seed);
        assert!(is_late(&without), "seed {seed}: {without:?}");
        late_barrier(true, SECOND * 9 / 10, seed).unwrap();
        let too_long = late_barrier(true, SECOND * 12 / 10, seed);
        assert!(is_late(&too_long), "seed {seed}: {too_long:?}");
    }
}

/// Waits for a result whose time is shorter than the pause.
#[test]
fn waits_for_results_are_held() {
    for seed in 0..scaled(10) {
        farside::simulate(2, 1, seed, |me| {
            me.barrier()?;
            if me.id() == OTHER {
                // Longer than the wait of worker 0. It answers no call meanwhile.
                me.charge(10 * SECOND);
                return me.barrier();
            }
            let pause = me.pause_deadlines();
            assert_eq!(me.call_return(OTHER, 20_u64, |_, x| x + 1)?.wait_for(SECOND)?, 21);
            drop(pause);
            let late = me.wait_together(SECOND, || false);
            assert!(matches!(late, Err(Error::Deadline { .. })), "{late:?}");
            me.barrier()
        })
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

mod timing {
    use super::*;

    /// Waits whose time is shorter than the pause, of a worker and of a thread that is none.
    #[farside::test(processes = 2, threads = 1)]
    fn waits_in_processes_are_held(me: &Worker) -> Result<()> {
        let short = Duration::from_millis(50);
        let is_done = Dist::new(me, || AtomicBool::new(false))?;
        let times = PerWorker::new(me, Cell::new(0_u32))?;
        me.barrier()?;
        if me.id() == OTHER {
            // Longer than the waits of the others. It answers no call meanwhile.
            me.wait_while_serving(|| times.here(me).get() == 1)?;
            std::thread::sleep(10 * short);
            is_done.here(me).store(true, Ordering::Release);
            return me.barrier();
        }
        let late = me.wait_together(short, || false);
        assert!(matches!(late, Err(Error::Deadline { .. })), "{late:?}");
        me.call(OTHER, times, |there, times| times.here(there).set(1))?;
        let pause = me.pause_deadlines();
        let second = me.pause_deadlines();
        drop(second);
        let ask = |there: &Worker, is_done: Dist<AtomicBool>| is_done.here(there).load(Ordering::Acquire);
        let caller = me.caller();
        // A question may arrive before worker 1 sleeps. The next one waits until it has slept.
        let asker = std::thread::spawn(move || {
            while !caller.call_return(OTHER, is_done, ask)?.wait_for(short)? {}
            Ok::<_, Error>(())
        });
        while !me.call_return(OTHER, is_done, ask)?.wait_for(short)? {}
        asker.join().unwrap()?;
        drop(pause);
        let late = me.wait_together(short, || false);
        assert!(matches!(late, Err(Error::Deadline { .. })), "{late:?}");
        me.barrier()
    }
}

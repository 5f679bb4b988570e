//! Several threads or workers on one object: combining against a mutex, and locks of a job
//! against the calls that they consist of.

use std::hint::black_box;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use farside::{Worker, WorkerId};
use farside_kit::sync::{Combining, LockManager};

use crate::kit::*;

pub(crate) const ABOUT: &str = "several on one thing: combining, and locks of the job";

/// Operations of one run over all threads by default.
const OPERATIONS: u64 = 400_000;
/// Locks of one run.
const LOCKS: u64 = 20_000;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for threads in [1, 2, 8] {
        cases.push(Case::here(format!("combining/{threads}t"), move |options| combining(threads, options)));
    }
    cases.push(Case::job("lock/uncontended", 2, |me, options| locks(me, options, |me| me.id().number() == 1)));
    cases.push(Case::job("lock/contended/2p", 2, |me, options| locks(me, options, |_| true)));
    cases.push(Case::job("lock/contended/4p", 4, |me, options| locks(me, options, |_| true)));
    cases
}

/// The object that the threads share: eight cache lines. Each operation changes every line.
type Lines = [u64; 64];

fn change(lines: &mut Lines) -> u64 {
    for word in lines.iter_mut().step_by(8) {
        *word = word.wrapping_add(1);
    }
    black_box(lines)[0]
}

fn combining(threads: u64, options: Options) -> Measured {
    let value = Combining::new([0; 64]);
    against_a_mutex(threads, options, || value.run(change).map(drop).expect("no operation panics"))
}

/// Measures one operation under contention of all threads, in turns with the same under a mutex.
fn against_a_mutex(threads: u64, options: Options, operation: impl Fn() + Sync) -> Measured {
    let mutex = Mutex::new([0; 64]);
    let locked = || _ = change(&mut mutex.lock().unwrap_or_else(PoisonError::into_inner));
    let each = options.operations_or(OPERATIONS) / threads;
    // The first run warms up.
    let taken =
        warmed(options, |_| Ok([time_threads(threads, each, &locked), time_threads(threads, each, &operation)]))?;
    Ok(taken.rows([column("operation_ns", "ns", 1).against("std mutex", 0)]))
}

/// Returns the nanoseconds of one operation of `threads` threads, each of which runs `each`: from
/// the beginning of the first thread to the end of the last.
fn time_threads(threads: u64, each: u64, operation: &(impl Fn() + Sync)) -> f64 {
    let start = Barrier::new(threads as usize);
    let run = || {
        start.wait();
        let begun = Instant::now();
        (0..each).for_each(|_| operation());
        (begun, Instant::now())
    };
    let times: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no operation panics")).collect()
    });
    let begun = times.iter().map(|(begun, _)| *begun).min();
    let ended = times.iter().map(|(_, ended)| *ended).max();
    let time = begun.zip(ended).map(|(begun, ended)| ended - begun).unwrap_or_default();
    time.as_nanos() as f64 / (threads * each) as f64
}

/// Measures the `active` workers taking and releasing a lock at worker 0, in turns with a round
/// trip of a call.
fn locks(me: &Worker, options: Options, active: fn(&Worker) -> bool) -> Measured {
    let manager = LockManager::new(me)?;
    let home = WorkerId::new(0);
    let lock = manager.named(me, "bench").at(me.process_of(home));
    let count = options.operations_or(LOCKS);
    let taken = warmed(options, |_| {
        let measure = |operation: &dyn Fn() -> farside::Result<()>| -> Result<f64, BenchError> {
            me.barrier()?;
            let samples = if active(me) { time_batches(count, ALONE, operation)? } else { Vec::new() };
            me.barrier()?;
            let of_all = me.gather(home, median(&samples))?.unwrap_or_default();
            Ok(median(&of_all.into_iter().filter(|sample| *sample > 0.0).collect::<Vec<_>>()))
        };
        let call = measure(&|| me.call_return(home, 1_u64, |_, x| x)?.wait().map(drop))?;
        Ok([call, measure(&|| Ok(lock.lock().map(drop)?))?])
    })?;
    Ok(taken.rows([column("lock_ns", "ns", 1).against("call_return", 0)]))
}

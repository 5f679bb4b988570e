//! Calls to processes, which run them on their pools.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use farside::prelude::*;
use farside::{Error, LaunchError, Named, Result, Simulation};
use farside_testbed::wait_until;

use crate::support::{is_over_missing_libfabric, verdict};

type Sums = Dist<AtomicU64>;

fn add(there: &Worker, (sums, x): (Sums, u64)) {
    sums.here(there).fetch_add(x, Ordering::Relaxed);
}

fn processes(me: &Worker) -> impl Iterator<Item = ProcessId> + use<> {
    (0..me.process_count()).map(ProcessId::new)
}

const DOUBLE: Named<u64, u64> = Named::new("test/double");

/// Makes calls of all forms to the pools of all processes.
fn every_way(me: &Worker) -> Result<()> {
    let sums = Dist::new(me, || AtomicU64::new(0))?;
    for process in processes(me) {
        let pool = me.pool_of(process).expect("the job has pools");
        let executed = me.synchronizer(100)?;
        for _ in 0..100 {
            me.call(pool, (sums, 1), add)?;
            me.to(pool).send_based().call((sums, 1), add)?;
            me.to(pool).notify(&executed, On::Executed).call((sums, 1), add)?;
        }
        let aggregator = me.aggregate(pool);
        (0..100).try_for_each(|_| aggregator.call((sums, 1), add))?;
        drop(aggregator);
        for bytes in [0, 9, 1000, 300_000] {
            me.call_buffer(pool, (sums, bytes), &vec![1; bytes as usize], |there, (sums, bytes), buffer| {
                assert_eq!(buffer.as_ptr().addr() % 8, 0);
                assert_eq!(bytes, buffer.iter().map(|byte| u64::from(*byte)).sum::<u64>());
                add(there, (sums, bytes));
            })?;
        }
        executed.wait()?;
        assert_eq!(me.call_return(pool, 5_u64, |there, x| (there.process(), x * 2))?.wait()?, (process, 10));
        assert_eq!(me.call_with_reply(pool, 5_u64, |_, x, reply: Reply<u64>| reply.send(x))?.wait()?, 5);
        assert_eq!(me.call_named_return(pool, DOUBLE, 4)?.wait()?, 8);
        let panicked = me.call_return(pool, 1_u8, |_, x| -> u8 { panic!("{x} is one") })?.wait();
        assert!(matches!(panicked, Err(Error::RemotePanic { .. })), "{panicked:?}");
        let waited = me.call_return(pool, (), |there, ()| there.progress().is_ok())?;
        assert!(waited.wait()?);
    }
    me.call(me.pool_of(me.process()).expect("the job has pools"), (sums, 50), hop)?;
    me.quiesce()?;
    let here = sums.here(me).load(Ordering::Relaxed);
    let workers = u64::from(me.worker_count());
    // Each chain of 51 calls alternates between the processes, and half of them begin in each.
    assert_eq!(here, workers * (400 + 301_009) + workers / 2 * 51);
    me.barrier()
}

/// Calls the pool of the other process, which calls back, and so on.
fn hop(there: &Worker, (sums, hops): (Sums, u64)) {
    add(there, (sums, 1));
    if hops > 0 {
        let other = there.pool_of(ProcessId::new(1 - there.process().number())).expect("the job has pools");
        there.call(other, (sums, hops - 1), hop).unwrap();
    }
}

fn job() -> farside::Job {
    farside::job().processes(2).pool_threads(2).register(DOUBLE, |_, x| 2 * x)
}

/// Runs a job whose processes reach this call by running the test of this name.
fn run(test: &str, body: impl Fn(&Worker) -> Result<()> + Send + Sync) {
    run_over("shm", test, body);
}

fn run_over(fabric: &str, test: &str, body: impl Fn(&Worker) -> Result<()> + Send + Sync) {
    if is_over_missing_libfabric(fabric) {
        return;
    }
    verdict(test, job().force_fabric(fabric.parse().unwrap()), body).unwrap();
}

#[test]
fn pools_run_all_forms_of_calls() {
    run("pools::pools_run_all_forms_of_calls", every_way);
}

#[test]
fn also_over_libfabric() {
    run_over("ofi:tcp", "pools::also_over_libfabric", every_way);
}

#[test]
fn functions_may_wait_over_libfabric() {
    run_over("ofi:tcp", "pools::functions_may_wait_over_libfabric", waiting);
}

fn simulation(seed: u64) -> Simulation {
    let simulation = Simulation::new(2, 2, seed).pool_threads(2);
    simulation.register(DOUBLE, |_, x| 2 * x)
}

#[test]
fn also_in_a_simulation() {
    simulation(41).run(every_way).unwrap().verdict.unwrap();
}

/// Two calls wait for each other, so both must run at the same time.
#[test]
fn pools_run_calls_at_the_same_time() {
    run("pools::pools_run_calls_at_the_same_time", |me| {
        let met = Dist::new(me, || (AtomicU64::new(0), Mutex::new(HashSet::<ThreadId>::new())))?;
        if me.id().number() == 0 {
            let pool = me.pool_of(ProcessId::new(1)).expect("the job has pools");
            let meet = |there: &Worker, met: Dist<(AtomicU64, Mutex<HashSet<ThreadId>>)>| {
                let (met, threads) = met.here(there);
                threads.lock().unwrap().insert(std::thread::current().id());
                met.fetch_add(1, Ordering::SeqCst);
                while met.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
            };
            let both = [me.call_return(pool, met, meet)?, me.call_return(pool, met, meet)?];
            both.into_iter().try_for_each(farside::Pending::wait)?;
        }
        me.barrier()?;
        let threads = met.here(me).1.lock().unwrap().len();
        assert_eq!(threads, if me.process().number() == 1 { 2 } else { 0 });
        me.barrier()
    });
}

/// Functions call each other between two processes and wait for the results.
fn waiting(me: &Worker) -> Result<()> {
    fn descend(there: &Worker, depth: u64) -> u64 {
        if depth == 0 {
            return 0;
        }
        let other = ProcessId::new(1 - there.process().number());
        let next = there.pool_of(other).expect("the job has pools");
        let one = there.call_return(next, 1_u64, |_, x| x).unwrap().wait().unwrap();
        there.call_return(next, depth - 1, descend).unwrap().wait().unwrap() + one
    }
    let pool = me.pool_of(me.process()).expect("the job has pools");
    // Every descent needs both threads in both processes.
    if me.id().number() == 0 {
        assert_eq!(me.call_return(pool, 3_u64, descend)?.wait()?, 3);
    }
    me.barrier()?;
    let own = me.call_return(pool, me.id(), |there, back| {
        there.call_return(back, (), |_, ()| 7_u64).map_err(Error::from).and_then(farside::Pending::wait).unwrap_or(0)
    })?;
    assert_eq!(own.wait()?, 7);
    // The same with buffers, whichever thread reads them and when.
    let other = me.pool_of(ProcessId::new(1 - me.process().number())).expect("the job has pools");
    let ran = me.synchronizer(2)?;
    let way = || me.to(other).notify(&ran, On::Executed);
    let wait = |there: &Worker, (), _: &[u8]| assert!(there.progress().is_ok(), "it may wait");
    let lent = way().call_buffer_get((), me.allocate(50_000)?, wait)?;
    let unordered = way().call_buffer_get_unordered((), me.allocate(50_000)?, wait)?;
    lent.wait()?;
    unordered.wait()?;
    ran.wait()?;
    let barred = me.call_return(pool, (), |there, ()| matches!(there.barrier(), Err(Error::UnknownWorker { .. })))?;
    assert!(barred.wait()?);
    me.barrier()
}

#[test]
fn functions_may_wait() {
    run("pools::functions_may_wait", waiting);
}

#[test]
fn functions_may_wait_in_a_simulation() {
    simulation(42).run(waiting).unwrap().verdict.unwrap();
}

/// Functions go on after answers that come when nothing else is under way.
#[test]
fn quiescence_includes_what_functions_do_later() {
    run("pools::quiescence_includes_what_functions_do_later", |me| {
        fn go_on_after_answer(there: &Worker, (sums, bytes): (Sums, usize)) {
            let answered = there.call_with_reply(there.neighbor(1), bytes, |there, bytes, reply: Reply<Vec<u8>>| {
                let activity = there.activity();
                std::thread::spawn(move || {
                    let is_waiting = || activity.workers().iter().any(|worker| worker.wait.is_some());
                    wait_until("a worker waits for this answer", is_waiting);
                    reply.send(vec![1; bytes]);
                });
            });
            answered.unwrap().then(move |there, result| {
                there.call(WorkerId::FIRST, (sums, result.unwrap().len() as u64), add).unwrap();
            });
        }
        let sums = Dist::new(me, || AtomicU64::new(0))?;
        let pool = me.pool_of(me.process()).expect("the job has pools");
        // Into a slot, and as a message reply.
        let (short, long) = (10, 100_000);
        for round in 1..=2 {
            me.call(pool, (sums, short), go_on_after_answer)?;
            me.call(pool, (sums, long), go_on_after_answer)?;
            me.quiesce()?;
            if me.is_first() {
                let all = round * u64::from(me.worker_count()) * (short + long) as u64;
                assert_eq!(sums.here(me).load(Ordering::Relaxed), all);
            }
            me.barrier()?;
        }
        Ok(())
    });
}

/// Makes more calls than the pool queues. Its threads are slow.
fn flood(me: &Worker) -> Result<()> {
    let sums = Dist::new(me, || AtomicU64::new(0))?;
    if me.id().number() == 0 {
        let pool = me.pool_of(ProcessId::new(1)).expect("the job has pools");
        for x in 0..400_u64 {
            me.to(pool).when_full(WhenFull::Retry).call_buffer((sums, x), &[1; 20_000], |there, call, _| {
                there.charge(Duration::from_micros(20));
                add(there, call);
            })?;
        }
    }
    me.barrier()?;
    me.wait_while_serving(|| me.process().number() == 0 || sums.here(me).load(Ordering::Relaxed) == 400 * 399 / 2)
}

#[test]
fn a_full_pool_holds_its_callers_back() {
    run("pools::a_full_pool_holds_its_callers_back", flood);
}

#[test]
fn a_full_pool_holds_its_callers_back_in_a_simulation() {
    simulation(43).run(flood).unwrap().verdict.unwrap();
}

#[farside::test(processes = 1, threads = 1)]
fn without_threads_there_is_no_pool(me: &Worker) -> Result<()> {
    assert_eq!(me.pool_of(me.process()), None);
    Ok(())
}

#[test]
fn a_panic_without_a_waiting_caller_ends_the_job() {
    let simulated = simulation(44).run(|me| {
        if me.id().number() == 0 {
            me.call(me.pool_of(me.process()).unwrap(), (), |_, ()| panic!("no thread likes this"))?;
        }
        Ok(())
    });
    let verdict = simulated.unwrap().verdict;
    assert!(verdict.as_ref().is_err_and(|error| error.to_string().contains("no thread likes this")), "{verdict:?}");
}

/// A wait for a call ends when the process of its pool dies.
#[test]
fn pools_die_with_their_process() {
    let doomed = ProcessId::new(1);
    // The verdict is the first failure and would hide a later one.
    let well = AtomicU64::new(0);
    let simulated = simulation(45).kill(doomed, Duration::from_millis(5)).run(|me| {
        if me.process() == doomed {
            return me.wait_while_serving(|| false);
        }
        let pool = me.pool_of(doomed).expect("the job has pools");
        let result = me.call_with_reply(pool, (), |_, (), reply: Reply<()>| std::mem::forget(reply));
        let result = result.map_err(Error::from).and_then(farside::Pending::wait);
        assert!(matches!(result, Err(Error::PeerLost { process, .. }) if process == doomed), "{result:?}");
        well.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    assert_eq!(well.load(Ordering::Relaxed), 2);
    let verdict = simulated.unwrap().verdict;
    assert!(
        matches!(verdict, Err(Error::Launch(LaunchError::ProcessFailed { process, .. })) if process == doomed),
        "{verdict:?}"
    );
}

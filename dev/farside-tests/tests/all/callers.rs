//! Calls from threads that are not workers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside::prelude::*;
use farside::{Error, LaunchError, Named, Result, Simulation, simulate};
use farside_testbed::{limit, wait_until};

use crate::support::{has_note, only, take_notes, verdict, write_note};

type Sums = Dist<AtomicU64>;

fn add(there: &Worker, (sums, x): (Sums, u64)) {
    sums.here(there).fetch_add(x, Ordering::Relaxed);
}

fn add_all(there: &Worker, sums: Sums, buffer: &[u8]) {
    add(there, (sums, buffer.iter().map(|byte| u64::from(*byte)).sum()));
}

/// The threads of a scope call every worker in every way, including the worker that started them.
fn every_way(me: &Worker) -> Result<()> {
    let sums = Dist::new(me, || AtomicU64::new(0))?;
    let outcomes = std::sync::Mutex::new(Vec::new());
    me.scope(|scope| {
        for thread in 0..3_u64 {
            let outcomes = &outcomes;
            scope.spawn(move |caller| {
                let calls = || -> Result<()> {
                    for to in caller.workers() {
                        caller.call(to, (sums, 1), add)?;
                        caller.to(to).call_buffer(sums, &[1; 5000], add_all)?;
                        let executed = caller.synchronizer(2)?;
                        caller.to(to).notify(&executed, On::Executed).call((sums, 1), add)?;
                        caller.to(to).notify(&executed, On::Sent).call((sums, 1), add)?;
                        executed.wait()?;
                        let (there, sum) =
                            caller.call_return(to, (thread, 2), |there, (a, b)| (there.id(), a + b))?.wait()?;
                        assert_eq!((there, sum), (to, thread + 2));
                        let long = caller.call_return(to, 9_u8, |_, x| [x; 5000])?.wait()?;
                        assert_eq!(long, [9; 5000]);
                        let reply = caller.to(to).call_with_reply(3_u64, |_, x, reply: Reply<u64>| reply.send(x * x));
                        assert_eq!(reply?.wait()?, 9);
                        let panicked = caller.call_return(to, 1_u8, |_, x| -> u8 { panic!("{x} is one") })?.wait();
                        assert!(matches!(panicked, Err(Error::RemotePanic { .. })), "{panicked:?}");
                    }
                    Ok(())
                };
                let outcome = calls();
                outcomes.lock().unwrap().push(outcome);
            })?;
        }
        Result::<()>::Ok(())
    })??;
    outcomes.into_inner().unwrap().into_iter().collect::<Result<Vec<()>>>()?;
    let all = u64::from(me.worker_count()) * 3 * u64::from(me.threads_per_process()) * 5003;
    me.barrier()?;
    me.wait_while_serving(|| sums.here(me).load(Ordering::Relaxed) == all)?;
    me.barrier()
}

#[farside::test(processes = 2, threads = 2)]
fn threads_without_set_up_call_in_every_way(me: &Worker) -> Result<()> {
    every_way(me)
}

#[test]
fn also_over_libfabric() {
    farside_testbed::needs!("fabric");
    let job = farside::job().processes(2).threads_per_process(2).force_fabric("ofi:tcp".parse().unwrap());
    verdict("callers::also_over_libfabric", job, every_way).unwrap();
}

#[test]
fn also_in_a_simulation() {
    simulate(2, 2, 31, every_way).unwrap();
}

/// Sends more than a shared ring holds at first, so that callers wait for room.
fn stream(me: &Worker) -> Result<()> {
    const CALLS: u64 = 3000;
    let sums = Dist::new(me, || AtomicU64::new(0))?;
    me.scope(|scope| {
        scope.spawn(|caller| {
            for x in 0..CALLS {
                for to in caller.workers() {
                    caller.to(to).call_buffer((sums, x), &[7; 200], |there, call, _| add(there, call)).unwrap();
                }
            }
        })
    })??;
    me.barrier()?;
    let all = u64::from(me.worker_count()) * CALLS * (CALLS - 1) / 2;
    me.wait_while_serving(|| sums.here(me).load(Ordering::Relaxed) == all)?;
    me.barrier()
}

#[farside::test(processes = 2, threads = 1)]
fn callers_wait_for_room(me: &Worker) -> Result<()> {
    stream(me)
}

#[test]
fn callers_wait_for_room_in_a_simulation() {
    simulate(2, 1, 32, stream).unwrap();
}

/// A thread that is not a worker outlives the body that started it. The job waits for its
/// outstanding call and refuses later calls.
#[test]
fn calls_outstanding_at_the_end_are_drained() {
    const TEST: &str = "callers::calls_outstanding_at_the_end_are_drained";
    let job = farside::job().processes(2).entry(only(TEST)).quiet_stdout().time_limit(limit());
    let (calls, outcome) = std::sync::mpsc::channel();
    let verdict = job.run(|me| {
        let (caller, to, calls) = (me.caller(), me.neighbor(1), calls.clone());
        let (begins, begun) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // The caller gets the answer when both bodies have returned.
            let pending = caller.to(to).call_with_reply((), |_, (), reply: Reply<()>| {
                std::thread::spawn(move || {
                    wait_until("both bodies return", || has_note(TEST, 0) && has_note(TEST, 1));
                    reply.send(());
                });
            });
            begins.send(()).unwrap();
            let drained = pending.map_err(Error::from).and_then(|pending| pending.wait());
            let refused = loop {
                match caller.call_return(to, 1_u64, |_, x| x + 1) {
                    Ok(pending) => assert_eq!(pending.wait().unwrap(), 2),
                    Err(refused) => break refused.error,
                }
            };
            calls.send((drained, refused)).unwrap();
        });
        begun.recv().unwrap();
        write_note(TEST, me.id().number(), "returns");
        Ok(())
    });
    if std::env::var_os("FARSIDE_LAUNCHER").is_some() {
        // The job is over, but the thread may not have run since. Only the results of its calls are
        // certain.
        let outcome = outcome.recv_timeout(limit());
        let is_right = matches!(outcome, Ok((Ok(()), Error::JobEnded { .. })));
        if verdict.is_err() || !is_right {
            eprintln!("the job ended with {verdict:?}, its calls with {outcome:?}");
        }
        std::process::exit((verdict.is_err() || !is_right).into());
    }
    take_notes(std::process::id(), TEST, 2);
    verdict.unwrap();
}

const DOUBLE: Named<u64, u64> = Named::new("test/double");

#[test]
fn named_functions_can_be_called_too() {
    let simulation = Simulation::new(2, 1, 33).register(DOUBLE, |_, x| 2 * x).binary(ProcessId::new(1), 1);
    let simulated = simulation.run(|me| {
        me.scope(|scope| {
            scope.spawn(|caller| {
                let to = WorkerId::new(1 - caller.process().number());
                assert_eq!(caller.to(to).call_named_return(DOUBLE, 21).unwrap().wait().unwrap(), 42);
                caller.to(to).call_named(DOUBLE, 21).unwrap();
                let refused = caller.call(to, (), |_, ()| ());
                assert!(matches!(refused.unwrap_err().error, Error::DifferentBinaries { .. }));
                let unknown = caller.call(WorkerId::new(2), (), |_, ()| ());
                assert!(matches!(unknown.unwrap_err().error, Error::UnknownWorker { .. }));
                let long = caller.to(to).call_buffer((), &vec![0; 5 << 20], |_, (), _| ());
                assert!(matches!(long.unwrap_err().error, Error::DifferentBinaries { .. }));
            })
        })??;
        me.barrier()
    });
    simulated.unwrap().verdict.unwrap();
}

#[test]
fn waiting_for_a_lost_process_fails() {
    let doomed = ProcessId::new(1);
    let simulation = Simulation::new(2, 1, 34).kill(doomed, Duration::from_millis(5));
    // The verdict is the first failure and would hide a later one.
    let well = AtomicU64::new(0);
    let simulated = simulation.run(|me| {
        let lost = |result: Result<()>| matches!(result, Err(Error::PeerLost { process, .. }) if process.number() == 1);
        if me.process() == doomed {
            return me.wait_while_serving(|| false);
        }
        me.scope(|scope| {
            scope.spawn(|caller| {
                let to = WorkerId::new(1);
                let result = caller.to(to).call_with_reply((), |_, (), reply: Reply<()>| std::mem::forget(reply));
                assert!(lost(result.unwrap().wait()));
                assert!(lost(caller.call(to, (), |_, ()| ()).map_err(Error::from)));
            })
        })??;
        well.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    assert_eq!(well.load(Ordering::Relaxed), 1);
    let verdict = simulated.unwrap().verdict;
    assert!(
        matches!(verdict, Err(Error::Launch(LaunchError::ProcessFailed { process, .. })) if process == doomed),
        "{verdict:?}"
    );
}

#[farside::test(processes = 1, threads = 1)]
fn a_scope_is_refused_in_a_handler(me: &Worker) -> Result<()> {
    let refused =
        me.call_return(me.id(), (), |there, ()| matches!(there.scope(|_| ()), Err(Error::InHandler { .. })))?;
    assert!(refused.wait()?);
    Ok(())
}

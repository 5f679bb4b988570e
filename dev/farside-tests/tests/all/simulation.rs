//! Simulations of whole jobs: replay, virtual time, and deaths of processes.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::spread;
use farside::prelude::*;
use farside::{Caller, Error, LaunchError, LogGp, ProcessEnd, Result, SimOptions, Simulated, Simulation, Trace};
use farside_testbed::scaled;

/// Options of a network without random delays.
fn exact(network: LogGp) -> SimOptions {
    SimOptions { network, delay_max_ns: 0, ..SimOptions::default() }
}

/// Runs a job with a little of everything. Process 3 is killed half way.
fn eventful(seed: u64, options: SimOptions) -> Simulated {
    let simulation = Simulation::new(5, 2, seed).options(options).kill(ProcessId::new(3), Duration::from_micros(300));
    let simulated = simulation.run(|me| {
        let sum = PerWorker::new(me, Cell::new(0_u64))?;
        let add = |there: &Worker, (sum, x): (PerWorker<Cell<u64>>, u64)| {
            sum.here(there).set(sum.here(there).get() + x);
            there.charge(Duration::from_nanos(x));
        };
        me.barrier()?;
        for round in 0..200_u64 {
            let to = me.neighbor(1 + round as u32 % 9);
            let called = match round % 4 {
                0 => me.call(to, (sum, round), add).map_err(Error::from),
                1 => me.to(to).send_based().call((sum, round), add).map_err(Error::from),
                2 => me.call_buffer(to, sum, &vec![7; 100 * round as usize], |_, _, _| ()).map_err(Error::from),
                _ => me
                    .call_return(to, (sum, round), |there, (sum, x)| sum.here(there).get() ^ x)
                    .map_err(Error::from)
                    .and_then(|pending| pending.wait().map(drop)),
            };
            me.charge(Duration::from_micros(3));
            match called {
                Err(Error::PeerLost { process, .. }) if process == ProcessId::new(3) => {}
                other => other?,
            }
        }
        match me.barrier() {
            Err(Error::PeerLost { .. }) => Ok(()),
            other => other,
        }
    });
    simulated.unwrap()
}

#[test]
fn the_same_seed_is_the_same_run() {
    for options in
        [SimOptions::default(), exact(LogGp::FDR), SimOptions { network: LogGp::ARIES, ..SimOptions::default() }]
    {
        let traces: Vec<Trace> = (0..scaled(2))
            .map(|seed| {
                let simulated = eventful(seed, options);
                let Err(Error::Launch(LaunchError::ProcessFailed { process, how: ProcessEnd::Killed(_) })) =
                    simulated.verdict
                else {
                    panic!("{:?}", simulated.verdict);
                };
                assert_eq!(process, ProcessId::new(3));
                simulated.trace
            })
            .collect();
        for (seed, trace) in (0..).zip(&traces) {
            let again = eventful(seed, options);
            assert_eq!(again.trace, *trace, "of seed {seed}");
        }
        let different: BTreeSet<u64> = traces.iter().map(|trace| trace.hash).collect();
        assert_eq!(different.len(), traces.len(), "another seed is another run");
        assert!(traces.iter().all(|trace| trace.deliveries > 1000 && trace.switches > 1000), "{traces:?}");
    }
}

#[test]
fn time_is_what_the_model_says() {
    let network = LogGp { latency_ns: 5000, overhead_ns: 300, gap_ns: 400, gap_per_byte_ps: 1000, ..LogGp::IDEAL };
    let simulated = Simulation::new(2, 1, 1).options(exact(network)).run(|me| {
        me.barrier()?;
        me.barrier()?;
        if me.id().number() == 0 {
            let before = me.now();
            me.call_return(me.neighbor(1), 7_u64, |_, x| x)?.wait()?;
            let passed = (me.now() - before).as_nanos() as u64;
            // Two latencies and four overheads. The credit may come before the answer. Two messages
            // have less than 150 bytes each.
            let least = 2 * network.latency_ns + 4 * network.overhead_ns;
            assert!((least..least + 2 * network.overhead_ns + network.gap_ns + 300).contains(&passed), "{passed} ns");
        }
        me.barrier()
    });
    simulated.unwrap().verdict.unwrap();
}

#[test]
fn a_burst_is_as_fast_as_the_ports() {
    const CALLS: u64 = 1000;
    const WORDS: usize = 50;
    // The bytes take most of the time: calls that wait for the port may share a message.
    let network = LogGp { latency_ns: 1000, overhead_ns: 100, gap_ns: 100, gap_per_byte_ps: 10_000, ..LogGp::IDEAL };
    let simulated = Simulation::new(2, 1, 1).options(exact(network)).run(|me| {
        let count = PerWorker::new(me, Cell::new(0_u64))?;
        me.barrier()?;
        let before = me.now();
        if me.id().number() == 0 {
            for _ in 0..CALLS {
                me.call(me.neighbor(1), (count, [1_u64; WORDS]), |there, (count, words)| {
                    count.here(there).set(count.here(there).get() + words[WORDS - 1]);
                })?;
            }
        } else {
            me.wait_while_serving(|| count.here(me).get() == CALLS)?;
            let passed = (me.now() - before).as_nanos() as u64;
            let of_port = CALLS * WORDS as u64 * 8 * network.gap_per_byte_ps / 1000;
            assert!(
                (of_port..of_port * 6 / 5).contains(&passed),
                "{passed} ns for {CALLS} calls, {of_port} ns of bytes"
            );
        }
        me.barrier()
    });
    simulated.unwrap().verdict.unwrap();
}

#[test]
fn a_slow_process_computes_for_longer() {
    let times = Mutex::new(vec![Duration::ZERO; 3]);
    let simulated = Simulation::new(3, 1, 1).slow_down(ProcessId::new(1), 40).run(|me| {
        let before = me.now();
        me.charge(Duration::from_micros(10));
        times.lock().unwrap()[me.id().index()] = me.now() - before;
        // Process 1 does not answer while it computes.
        if me.id().number() == 2 {
            let answer = me.call_return(WorkerId::new(1), (), |there, ()| there.charge(Duration::from_micros(1)))?;
            answer.wait()?;
            assert!(me.now() - before >= Duration::from_micros(440));
        }
        me.barrier()
    });
    simulated.unwrap().verdict.unwrap();
    assert_eq!(*times.lock().unwrap(), [10, 400, 10].map(Duration::from_micros));
}

#[test]
fn deadlines_are_met_in_virtual_time() {
    // No thread waits for it in real time.
    let deadline = Duration::from_secs(2 * 3600);
    let simulated = Simulation::new(2, 1, 1).deadline(deadline).run(|me| {
        if me.id().number() == 0 {
            let waited = me.wait_while_serving(|| false);
            assert!(matches!(waited, Err(Error::Deadline { .. })), "{waited:?}");
        }
        Ok(())
    });
    let simulated = simulated.unwrap();
    simulated.verdict.unwrap();
    assert!(simulated.time >= deadline);
}

#[test]
fn polling_lets_time_pass() {
    Simulation::new(2, 2, 1)
        .options(exact(LogGp::FDR))
        .run(|me| {
            let met = PerWorker::new(me, Cell::new(0_u32))?;
            for to in me.workers() {
                me.call(to, met, |there, met| met.here(there).set(met.here(there).get() + 1))?;
            }
            while met.here(me).get() < 4 {
                me.progress()?;
            }
            me.barrier()
        })
        .unwrap()
        .verdict
        .unwrap();
}

/// Counts its drops.
struct Counted<'a>(&'a AtomicU64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_killed_process_drops_nothing_while_others_run() {
    for seed in spread(20) {
        let drops = AtomicU64::new(0);
        let survivors = AtomicU64::new(0);
        let dead = ProcessId::new(1);
        let simulated = Simulation::new(3, 2, seed).kill(dead, Duration::from_micros(50)).run(|me| {
            let counted = (me.process() == dead).then(|| Counted(&drops));
            let lost = me.wait_together(Duration::from_secs(5), || false);
            assert!(counted.is_none(), "{} has survived", me.id());
            let Err(Error::PeerLost { process, .. }) = lost else { panic!("{lost:?}") };
            assert_eq!(process, dead);
            let refused = me.call_return(WorkerId::new(2), (), |_, ()| ()).map_err(Error::from).and_then(Pending::wait);
            assert!(matches!(refused, Err(Error::PeerLost { .. })), "{refused:?}");
            assert_eq!(drops.load(Ordering::Relaxed), 0, "nothing was dropped by then");
            survivors.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let simulated = simulated.unwrap();
        assert!(
            matches!(simulated.verdict, Err(Error::Launch(LaunchError::ProcessFailed { process, .. })) if process == dead)
        );
        assert_eq!(survivors.load(Ordering::Relaxed), 4);
        assert_eq!(drops.load(Ordering::Relaxed), 2, "afterwards all was");
        assert!(simulated.time < Duration::from_secs(1), "{:?}", simulated.time);
    }
}

/// A process dies at many moments of a job's beginning, middle and end.
#[test]
fn death_at_any_moment_is_survived() {
    for step in spread(60) {
        let after = Duration::from_nanos(step * step * 40);
        let simulated = Simulation::new(4, 1, step).kill(ProcessId::new(2), after).run(|me| -> Result<()> {
            for _ in 0..5 {
                match me.all_reduce(1_u64, |a, b| a + b) {
                    Ok(sum) => assert_eq!(sum, 4),
                    Err(Error::PeerLost { process, .. }) if process == ProcessId::new(2) => return Ok(()),
                    Err(other) => return Err(other),
                }
            }
            Ok(())
        });
        match simulated.unwrap().verdict {
            Ok(()) | Err(Error::Launch(LaunchError::ProcessFailed { how: ProcessEnd::Killed(_), .. })) => {}
            // A death before the start keeps the job from starting.
            Err(Error::JobEnded { .. }) if after < Duration::from_millis(2) => {}
            other => panic!("killed after {after:?}: {other:?}"),
        }
    }
}

/// The collectives in which each worker, or the root, waits for worker 3 in the end.
const COLLECTIVES: [fn(&Worker) -> Result<()>; 4] = [
    |me| me.barrier(),
    |me| me.all_reduce(1_u32, |a, b| a + b).map(drop),
    |me| me.gather(WorkerId::new(0), me.id()).map(drop),
    |me| {
        let root = WorkerId::new(3);
        me.broadcast(root, (me.id() == root).then_some(7)).map(drop)
    },
];

/// Runs each collective in a job of six workers, in which worker 3 does something else first.
/// Returns the text of the first error of the others, and the time that passed.
fn without_worker_3(otherwise: fn(&Worker) -> bool) -> Vec<(String, Duration)> {
    let run = |collective: &fn(&Worker) -> Result<()>| {
        let errors = Mutex::new(Vec::new());
        let simulation = Simulation::new(6, 1, 3).options(exact(LogGp::FDR)).deadline(Duration::from_secs(8));
        let simulated = simulation.run(|me| {
            if me.id().number() == 3 && !otherwise(me) {
                return Ok(());
            }
            let result = collective(me).and_then(|()| me.barrier());
            result.inspect_err(|error| errors.lock().unwrap().push((me.now(), error.to_string())))
        });
        let first = errors.into_inner().unwrap().into_iter().min();
        (first.expect("worker 3 is missing").1, simulated.unwrap().time)
    };
    COLLECTIVES.iter().map(run).collect()
}

#[test]
fn a_collective_that_waits_in_vain_names_the_worker_that_did_not_come() {
    let computes = |me: &Worker| {
        me.charge(Duration::from_secs(3600));
        true
    };
    for (error, _) in without_worker_3(computes) {
        let is_named =
            error.starts_with("deadline passed after 8s while waiting") && error.contains(": worker 3 is late");
        assert!(is_named && error.contains("raise `Job::deadline` or FARSIDE_TIMEOUT_S"), "{error}");
    }
}

/// Waits of worker 0 for worker 1, which does not come.
const WAITS: [fn(&Worker) -> Result<()>; 3] = [
    |me| me.call_return(me.neighbor(1), 1_u64, |_, x| x)?.wait().map(drop),
    |me| me.setup(me.neighbor(1)).and_then(|()| me.shutdown(me.neighbor(1))),
    |me| {
        let outcome = Mutex::new(Ok(()));
        let ask = |caller: &Caller| caller.call_return(WorkerId::new(1), (), |_, ()| ())?.wait();
        me.scope(|scope| {
            let outcome = &outcome;
            scope.spawn(move |caller| *outcome.lock().unwrap() = ask(caller))
        })??;
        outcome.into_inner().unwrap()
    },
];

#[test]
fn a_wait_for_one_worker_names_it_and_the_settings_of_the_deadline() {
    for wait in WAITS {
        let simulation = Simulation::new(2, 1, 3).deadline(Duration::from_secs(8));
        let simulated = simulation.run(|me| {
            if me.id().number() == 1 {
                me.charge(Duration::from_secs(60));
                return Ok(());
            }
            let error = wait(me).unwrap_err();
            let Error::Deadline { waiting_for, .. } = &error else { panic!("{error}") };
            assert_eq!(*waiting_for, [WorkerId::new(1)], "{error}");
            let text = error.to_string();
            let is_named =
                text.contains(": worker 1 is late; ") && text.contains("raise `Job::deadline` or FARSIDE_TIMEOUT_S");
            assert!(is_named, "{text}");
            Err(Error::program("as planned"))
        });
        let verdict = simulated.unwrap().verdict.unwrap_err().to_string();
        assert!(verdict.contains("as planned"), "{verdict}");
    }
}

#[test]
fn a_worker_that_has_returned_is_not_waited_for() {
    for (error, time) in without_worker_3(|_| false) {
        assert!(error.contains("worker 3 in none, because its body has returned"), "{error}");
        assert!(time < Duration::from_secs(7), "the deadline was not waited for: {time:?}");
    }
}

/// Each process waits for the next one only, and fails when that is lost.
#[test]
fn all_survivors_of_a_chain_of_failures_name_its_root() {
    for seed in spread(30) {
        let errors = Mutex::new(Vec::new());
        let simulation = Simulation::new(8, 1, seed).kill(ProcessId::new(5), Duration::from_micros(300));
        let simulated = simulation.run(|me| {
            let work = || -> Result<()> {
                loop {
                    me.call_return(me.neighbor(1), (), |_, ()| ())?.wait()?;
                }
            };
            let Err(error) = work() else { unreachable!("it works until it fails") };
            errors.lock().unwrap().push(error.to_string());
            Err(error)
        });
        let root = "process 5 was killed by signal 9";
        assert_eq!(errors.into_inner().unwrap(), [root; 7], "seed {seed}");
        assert_eq!(simulated.unwrap().verdict.unwrap_err().to_string(), root);
    }
}

/// A body may fail for a reason of its own, which the verdict has.
#[test]
fn a_body_may_return_an_error_of_the_program() {
    type Body = fn(&Worker) -> Result<()>;
    let reads: Body = |_| {
        std::fs::File::open("/there/is/no/such/file")?;
        Ok(())
    };
    let parses: Body = |_| {
        "seven".parse::<u8>()?;
        Ok(())
    };
    fn of_any_kind(me: &Worker) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        me.barrier()?;
        std::sync::mpsc::channel::<()>().1.try_recv()?;
        Ok(())
    }
    let bodies: [(Body, &str); 5] = [
        (reads, "No such file"),
        (parses, "invalid digit"),
        (|me| Ok(of_any_kind(me)?), "empty channel"),
        (|me| of_any_kind(me).map_err(Error::program), "empty channel"),
        (|_| Err(Error::program("it has had enough")), ": it has had enough"),
    ];
    for (body, why) in bodies {
        let error = farside::simulate(2, 1, 1, body).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    // An error that follows from a loss is not the verdict, however the program wraps it.
    let wrapped: [fn(Error) -> Error; 2] = [Error::program, |error| Error::program(OfStep(error))];
    for wrap in wrapped {
        let simulated = Simulation::new(3, 1, 1)
            .kill(ProcessId::new(1), Duration::from_millis(1))
            .run(|me| me.wait_together(Duration::from_secs(10), || false).map_err(wrap));
        assert_eq!(simulated.unwrap().verdict.unwrap_err().to_string(), "process 1 was killed by signal 9");
    }
}

/// An error of a program that has an error of the library as its source.
#[derive(Debug)]
struct OfStep(Error);

impl std::fmt::Display for OfStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a step failed")
    }
}

impl std::error::Error for OfStep {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// An error of the library that was boxed on its way is that error again.
#[test]
fn an_error_of_the_library_stays_itself_in_a_box() {
    type AnyError = Box<dyn std::error::Error + Send + Sync>;
    let boxed = || -> AnyError { Error::UnknownProcess { process: ProcessId::new(7), count: 2 }.into() };
    assert!(matches!(Error::from(boxed()), Error::UnknownProcess { count: 2, .. }));
    assert!(matches!(Error::program(boxed()), Error::UnknownProcess { count: 2, .. }));
    let of_a_module: AnyError = farside_kit::sync::SyncError::Poisoned.into();
    assert!(matches!(Error::from(of_a_module).room_error(), Some(farside_kit::sync::SyncError::Poisoned)));
}

#[farside::test(processes = 2)]
fn a_test_may_return_any_error(me: &Worker) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let workers: u32 = "2".parse()?;
    assert!(me.worker_count() >= workers);
    Ok(me.barrier()?)
}

#[test]
fn killing_an_unknown_process_is_an_error() {
    let refused = Simulation::new(2, 1, 1).kill(ProcessId::new(2), Duration::ZERO).run(|_| Ok(()));
    assert!(matches!(refused, Err(Error::Fabric(_))), "{refused:?}");
}

#[test]
fn short_queues_lose_nothing() {
    for seed in 0..scaled(10) {
        let options =
            SimOptions { messages_max: 1, operations_max: 1, message_bytes_max: 256, ..SimOptions::default() };
        let simulated = Simulation::new(3, 1, seed).options(options).run(|me| {
            let sum = PerWorker::new(me, Cell::new(0_u64))?;
            for x in 0..300_u64 {
                for to in me.workers() {
                    me.call(to, (sum, x), |there, (sum, x)| sum.here(there).set(sum.here(there).get() + x))?;
                }
            }
            me.wait_while_serving(|| sum.here(me).get() == 3 * 300 * 299 / 2)?;
            me.barrier()
        });
        simulated.unwrap().verdict.unwrap();
    }
}

/// Simulations do not affect each other, even if one runs inside another.
#[test]
fn simulations_do_not_mix() {
    let inner = || {
        let simulated = Simulation::new(2, 1, 9).run(|me| {
            me.charge(Duration::from_micros(10));
            me.barrier()
        });
        simulated.unwrap().trace
    };
    let expected = inner();
    Simulation::new(2, 2, 1)
        .run(|me| {
            me.barrier()?;
            let before = me.now();
            assert_eq!(inner(), expected);
            assert_eq!(me.now(), before);
            me.barrier()
        })
        .unwrap()
        .verdict
        .unwrap();
}

#[test]
fn hundreds_of_processes() {
    let (calls, many) = (AtomicU64::new(0), scaled(100).min(1000));
    let simulated = Simulation::new(many as u32, 1, 1).options(exact(LogGp::FDR)).run(|me| {
        me.barrier()?;
        let sum = me.all_reduce(u64::from(me.id().number()), |a, b| a + b)?;
        assert_eq!(sum, many * (many - 1) / 2);
        let far = me.neighbor(many as u32 / 2);
        assert_eq!(me.call_return(far, (), |there, ()| there.id())?.wait()?, far);
        calls.fetch_add(1, Ordering::Relaxed);
        me.barrier()
    });
    let simulated = simulated.unwrap();
    simulated.verdict.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), many);
    let rounds = many.next_power_of_two().ilog2();
    let time = Duration::from_micros(2) * 2 * rounds;
    assert!(simulated.time > time, "{rounds} rounds of a barrier, twice: {:?}", simulated.time);
}

//! Jobs of several programs: the calls that their processes can make on each other, and the calls
//! that are refused.
//!
//! The processes of one program run this test program again, with arguments that select the same
//! test. The others run the example `histogram`.

use std::path::{Path, PathBuf};
use std::process::exit;
use std::time::Duration;

use farside::job::launch::{Launch, Program};
use farside::prelude::*;
use farside::{Error, LaunchError, NameRefusal, Named, ProcessEnd, Refused, Result, Simulation, Source, remote};
use farside_testbed::scaled;

use crate::support::{is_launched, only, within_time};

const ADD: Named<(u64, u64)> = Named::new("histogram/add");
const COUNT: Named<u64, Option<u64>> = Named::new("histogram/count");

fn this_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// Returns the path of an example of this package, which lies next to the folder of test programs.
fn example(name: &str) -> PathBuf {
    let this = this_program();
    let target = this.parent().and_then(Path::parent).expect("test binaries are in a folder of the target folder");
    let path = target.join("examples").join(name);
    assert!(path.exists(), "{} is missing: build it with `cargo build -p farside --examples`", path.display());
    path
}

fn program(command: PathBuf, arguments: &[&str], processes: u32) -> Program {
    Program { command, arguments: arguments.iter().map(Into::into).collect(), processes }
}

/// Runs a job of two processes of `histogram` and two that reach this call by running the test of
/// this name.
fn with_histogram(test: &str, body: impl Fn(&Worker) -> Result<()> + Send + Sync) {
    if is_launched() {
        exit(farside::job().run(body).is_err().into());
    }
    let arguments = only(test);
    let programs = vec![program(example("histogram"), &[], 2), program(this_program(), &arguments, 2)];
    within_time(|| Launch::new(programs).quiet_stdout().run()).unwrap();
}

/// Takes part in the collectives with which `histogram` ends.
fn leave(me: &Worker) -> Result<u64> {
    me.barrier()?;
    let total = me.all_reduce(0_u64, |a, b| a + b)?;
    me.barrier()?;
    Ok(total)
}

const HISTOGRAMS: [WorkerId; 2] = [WorkerId::new(0), WorkerId::new(1)];

fn other_of_this_binary(me: &Worker) -> WorkerId {
    WorkerId::new(5 - me.id().number())
}

#[test]
fn two_programs_make_one_job() {
    let programs = vec![program(example("histogram"), &[], 2), program(example("sampler"), &[], 2)];
    within_time(|| Launch::new(programs).quiet_stdout().run()).unwrap();
    // The programs may come in any order.
    let programs = vec![program(example("sampler"), &[], 1), program(example("histogram"), &[], 3)];
    within_time(|| Launch::new(programs).quiet_stdout().threads_per_process(2).run()).unwrap();
}

#[test]
fn named_functions_run_in_order_and_answer() {
    with_histogram("names::named_functions_run_in_order_and_answer", |me| {
        let bucket = u64::from(me.id().number());
        for to in HISTOGRAMS {
            for round in 1..=1000 {
                me.call_named(to, ADD, (bucket, 1))?;
                if round % 100 == 0 {
                    assert_eq!(me.call_named_return(to, COUNT, bucket)?.wait()?, Some(round));
                }
            }
            // Through the shared ring, which has an order of its own.
            let done = me.synchronizer(10)?;
            for _ in 0..10 {
                me.to(to).send_based().notify(&done, On::Executed).call_named(ADD, (bucket, 1))?;
            }
            done.wait()?;
            assert_eq!(me.call_named_return(to, COUNT, bucket)?.wait()?, Some(1010));
            assert_eq!(me.call_named_return(to, COUNT, 16)?.wait()?, None);
        }
        assert_eq!(leave(me)?, 4040);
        Ok(())
    });
}

#[test]
fn closures_are_called_where_they_exist_only() {
    with_histogram("names::closures_are_called_where_they_exist_only", |me| {
        fn is_refused<A: PartialEq + std::fmt::Debug>(me: &Worker, refused: Refused<A>, to: WorkerId, expected: A) {
            assert_eq!(refused.arguments, expected, "they come back");
            match refused.error {
                Error::DifferentBinaries { a, b } => assert_eq!((a, b), (me.process(), me.process_of(to))),
                other => panic!("another error: {other}"),
            }
        }
        let like = other_of_this_binary(me);
        assert!(me.runs_same_binary(like) && me.runs_same_binary(me.id()));
        for to in HISTOGRAMS {
            assert!(!me.runs_same_binary(to));
            // Before there is a ring, and with a ring.
            for _ in 0..2 {
                let text = || String::from("unharmed");
                is_refused(me, me.call(to, text(), |_, _| ()).unwrap_err(), to, text());
                is_refused(me, me.call_return(to, text(), |_, text| text).unwrap_err(), to, text());
                is_refused(me, me.call_buffer(to, text(), &[1], |_, _, _| ()).unwrap_err(), to, text());
                let with_reply = me.call_with_reply(to, text(), |_, _, reply: Reply<()>| reply.send(()));
                is_refused(me, with_reply.unwrap_err(), to, text());
                is_refused(me, me.to(to).call_remote(7_u64, remote!(|_, _: u64| ())).unwrap_err(), to, 7);
                is_refused(me, me.to(to).send_based().call(8_u64, |_, _| ()).unwrap_err(), to, 8);
                is_refused(me, me.aggregate(to).call(9_u64, |_, _| ()).unwrap_err(), to, 9);
                let queued = me.to(to).when_full(WhenFull::Queue);
                is_refused(me, queued.call(10_u64, |_, _| ()).unwrap_err(), to, 10);
                assert_eq!(me.call_named_return(to, COUNT, 3)?.wait()?, Some(0));
            }
        }
        assert_eq!(me.call_return(like, 20_u64, |_, x| x + 1)?.wait()?, 21);
        assert_eq!(leave(me)?, 0);
        Ok(())
    });
}

#[test]
fn other_types_and_unknown_names_are_refused() {
    with_histogram("names::other_types_and_unknown_names_are_refused", |me| {
        for to in HISTOGRAMS {
            let why = |result: Result<()>| match result {
                Err(Error::NamedRefused { on, name, why }) => {
                    assert_eq!(on, to);
                    (name, why)
                }
                other => panic!("it ran: {other:?}"),
            };
            let unknown = Named::<u64, Option<u64>>::new("histogram/counts");
            let refusal = why(me.call_named_return(to, unknown, 3)?.wait().map(drop));
            assert_eq!(refusal, ("histogram/counts", NameRefusal::Unknown));
            let other_arguments = Named::<u32, Option<u64>>::new("histogram/count");
            let refusal = why(me.call_named_return(to, other_arguments, 3)?.wait().map(drop));
            assert_eq!(refusal, ("histogram/count", NameRefusal::OtherTypes));
            let other_result = Named::<u64, u64>::new("histogram/count");
            let refusal = why(me.call_named_return(to, other_result, 3)?.wait().map(drop));
            assert_eq!(refusal, ("histogram/count", NameRefusal::OtherTypes));
            // The way there still works.
            assert_eq!(me.call_named_return(to, COUNT, 3)?.wait()?, Some(0));
            // A value that other programs cannot decode is refused at once.
            let unportable = Named::<Option<Reply<u64>>>::new("histogram/add");
            let refused = me.call_named(to, unportable, None).unwrap_err();
            assert!(matches!(refused.error, Error::NotPortable { name: "histogram/add", .. }), "{refused}");
        }
        leave(me)?;
        Ok(())
    });
}

/// The called process reports a refused call without a result. By default the job fails, as after a
/// panic.
#[test]
fn a_refused_call_without_a_waiting_caller_ends_the_job() {
    let test = "names::a_refused_call_without_a_waiting_caller_ends_the_job";
    let body = |me: &Worker| {
        if me.id().number() == 2 {
            me.call_named(WorkerId::new(0), Named::<u8>::new("histogram/add"), 1)?;
        }
        leave(me).map(drop)
    };
    if is_launched() {
        exit(farside::job().run(body).is_err().into());
    }
    let arguments = only(test);
    let programs = vec![program(example("histogram"), &[], 2), program(this_program(), &arguments, 1)];
    match within_time(|| Launch::new(programs).quiet_stdout().run().map_err(Error::from)) {
        Err(Error::Launch(LaunchError::ProcessFailed { process, how: ProcessEnd::Reported(why) })) => {
            assert_eq!(process.number(), 0);
            assert!(why.contains("\"histogram/add\" from worker 2") && why.contains("other types"), "{why}");
        }
        other => panic!("it was not reported: {other:?}"),
    }
}

/// A call by name may be refused in a process of the same binary, too: for an unknown name or other
/// types.
#[farside::test(processes = 2, threads = 1)]
fn names_are_looked_up_in_like_processes_too(me: &Worker) -> Result<()> {
    let refused = me.call_named_return(me.neighbor(1), COUNT, 1)?.wait();
    assert!(matches!(refused, Err(Error::NamedRefused { why: NameRefusal::Unknown, .. })), "{refused:?}");
    assert_eq!(me.call_return(me.neighbor(1), 1_u8, |_, x| x)?.wait()?, 1);
    // The other worker's refused call has arrived here as well.
    me.barrier()?;
    assert_eq!(me.counters().refused, 1);
    Ok(())
}

const DOUBLE: Named<u64, u64> = Named::new("test/double");
const PANIC: Named<(), ()> = Named::new("test/panic");
const LONG_RESULT: Named<u32, Vec<u8>> = Named::new("test/long");
const TALLY: Named<(PerWorker<std::cell::Cell<u64>>, u64)> = Named::new("test/tally");
const SHAPE: Named<Shape, Shape> = Named::new("test/shape");

#[derive(Clone, Debug, PartialEq, Wire)]
enum Shape {
    Point,
    Circle { radius: f64 },
    Group(Vec<Shape>),
}

/// Runs a job on a simulated network. Processes 1 and 2 run another binary than 0 and 3.
fn mixed(seed: u64, body: impl Fn(&Worker) -> Result<()> + Send + Sync) -> Result<()> {
    let simulation = Simulation::new(4, 1, seed)
        .binary(ProcessId::new(1), 7)
        .binary(ProcessId::new(2), 7)
        .register(DOUBLE, |_, x| x * 2)
        .register(PANIC, |_, ()| panic!("it was asked to"))
        .register(LONG_RESULT, |_, bytes| vec![7; bytes as usize])
        .register(TALLY, |there, (tally, by)| tally.here(there).set(tally.here(there).get() + by))
        .register(SHAPE, |_, shape| Shape::Group(vec![shape, Shape::Point]));
    simulation.run(body)?.verdict
}

fn is_alike(a: WorkerId, b: WorkerId) -> bool {
    let binary = |worker: WorkerId| [0, 1, 1, 0][worker.index()];
    binary(a) == binary(b)
}

#[test]
fn collectives_are_for_all_binaries() {
    for seed in 0..scaled(3) {
        mixed(seed, |me| {
            for round in 0..5 {
                for root in me.workers() {
                    let shape = Shape::Circle { radius: round.into() };
                    let everywhere = me.broadcast(root, (me.id() == root).then(|| shape.clone()))?;
                    assert_eq!(everywhere, shape);
                    let gathered = me.gather(root, (me.id(), vec![Some(round)]))?;
                    let expected = me.workers().map(|worker| (worker, vec![Some(round)])).collect::<Vec<_>>();
                    assert_eq!(gathered, (me.id() == root).then_some(expected));
                }
                assert_eq!(me.all_reduce(u64::from(me.id().number()), |a, b| a + b)?, 6);
                me.barrier()?;
            }
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn a_collective_is_of_one_type() {
    mixed(1, |me| {
        let root = WorkerId::new(0);
        let unportable = me.gather(root, None::<Reply<u8>>);
        assert!(matches!(unportable, Err(Error::NotPortable { .. })), "{unportable:?}");
        me.barrier()?;
        if me.id() == root {
            me.broadcast(root, Some(1_u64))?;
        } else {
            let mismatch = me.broadcast::<u32>(root, None);
            assert!(matches!(mismatch, Err(Error::CollectiveMismatch { .. })), "{mismatch:?}");
        }
        Ok(())
    })
    .unwrap();
}

/// Worker 1 gathers many values, and worker 0, which runs another binary, gathers none.
#[test]
fn a_binary_that_runs_ahead_is_an_error_and_not_memory() {
    const KEPT_MAX: usize = 1 << 16;
    mixed(3, |me| {
        let root = WorkerId::new(0);
        if me.id() == root {
            // The first value is of the first gather; those of the others are early.
            me.wait_while_serving(|| me.counters().executed > KEPT_MAX as u64 + 1)?;
            let overrun = me.gather(root, 0_u8);
            assert!(
                matches!(overrun, Err(Error::CollectiveOverrun { worker, values: KEPT_MAX, .. }) if worker == root),
                "{overrun:?}"
            );
            assert!(me.barrier().unwrap_err().to_string().contains("call the same collectives"));
        } else if me.id() == WorkerId::new(1) {
            for _ in 0..=KEPT_MAX + 1 {
                me.gather(root, 0_u8)?;
            }
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn every_pair_calls_what_it_may() {
    for seed in 0..scaled(3) {
        mixed(seed, |me| {
            let tally = PerWorker::new(me, std::cell::Cell::new(0))?;
            for to in me.workers() {
                assert_eq!(me.runs_same_binary(to), is_alike(me.id(), to));
                assert_eq!(me.call_named_return(to, DOUBLE, 21)?.wait()?, 42);
                let shape = Shape::Group(vec![Shape::Circle { radius: 0.5 }]);
                let answer = me.call_named_return(to, SHAPE, shape.clone())?.wait()?;
                assert_eq!(answer, Shape::Group(vec![shape, Shape::Point]));
                for by in 1..=50 {
                    me.call_named(to, TALLY, (tally, by))?;
                }
                match me.call_return(to, 1_u8, |_, x| x + 1) {
                    Ok(pending) => assert!(is_alike(me.id(), to) && pending.wait()? == 2),
                    Err(refused) => {
                        assert!(!is_alike(me.id(), to) && matches!(refused.error, Error::DifferentBinaries { .. }));
                    }
                }
                let panicked = me.call_named_return(to, PANIC, ())?.wait();
                assert!(matches!(&panicked, Err(Error::RemotePanic { message, .. }) if message == "it was asked to"));
                for bytes in [3000_u32, 5000, 500_000] {
                    assert_eq!(me.call_named_return(to, LONG_RESULT, bytes)?.wait()?, vec![7; bytes as usize]);
                }
                // The call keeps its place among the others.
                assert_eq!(me.to(to).send_based().call_named_return(DOUBLE, 4)?.wait()?, 8);
            }
            me.wait_while_serving(|| tally.here(me).get() == 4 * 50 * 51 / 2)?;
            me.barrier()
        })
        .unwrap();
    }
}

#[test]
fn a_handle_of_another_type_is_refused() {
    mixed(5, |me| {
        let tally = PerWorker::new(me, std::cell::Cell::new(0_u64))?;
        let text = PerWorker::new(me, String::from("no number"))?;
        let (caller, callee) = (WorkerId::new(1), WorkerId::new(0));
        if me.id() == caller {
            // The callee has made its values by then, and waits.
            let _ = me.wait_together(Duration::from_millis(10), || false);
            // A program may have another type behind the handle.
            me.call_named(callee, Named::<(PerWorker<String>, u64)>::new("test/tally"), (text, 1))?;
        }
        if me.id() == callee {
            let reported = me.wait_while_serving(|| false);
            let Err(Error::NamedCallRefused { from, name, why }) = reported else { panic!("{reported:?}") };
            assert_eq!((from, &*name, why), (Source::Worker(caller), "test/tally", NameRefusal::Malformed));
            assert_eq!(me.counters().refused, 1);
        }
        assert_eq!(tally.here(me).get(), 0);
        me.barrier()
    })
    .unwrap();
}

#[test]
fn a_job_of_one_binary_looks_no_different() {
    let simulation = Simulation::new(2, 1, 9).register(DOUBLE, |_, x| x * 2);
    let simulated = simulation.run(|me| {
        assert_eq!(me.call_named_return(me.neighbor(1), DOUBLE, 4)?.wait()?, 8);
        assert_eq!(me.call_return(me.neighbor(1), 4_u64, |_, x| x * 2)?.wait()?, 8);
        me.barrier()
    });
    simulated.unwrap().verdict.unwrap();
}

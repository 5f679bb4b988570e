//! The activity of workers is seen from outside.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use farside::{Background, Caller, MakeArrays, ProcessId, Signal, Worker, WorkerId};
use farside_inspect::Expose;
use farside_kit::prelude::*;
use farside_testbed::{wait_for, wait_until};
use farside_viewer::{Awaited, InspectError, Inspector, Occurrence, Trace, WorkerState};

use crate::targets::{Gate, Target, breathe, pass_gate, say_shown};

/// A job in which worker 0 calls worker 1 and waits for it, again and again, writes into its memory
/// and sends it messages. It shows no area. The other process opens its door when process 0 is
/// asked.
pub(crate) fn work(me: &Worker) -> farside::Result<()> {
    if me.is_first() {
        me.open_door()?;
    }
    say_shown(me)?;
    let memory = me.symmetric::<u64>(8)?;
    let there = memory.at(ProcessId::new(1))?;
    let mut writer = me.is_first().then(|| me.pipe(WorkerId::new(1)).writer()).transpose()?;
    let mut reader = (!me.is_first()).then(|| me.pipe(WorkerId::new(0)).reader()).transpose()?;
    for round in 0_u64.. {
        if let Some(reader) = &mut reader {
            assert_eq!(*reader.recv()?, round.to_ne_bytes());
            assert_eq!(memory.here().get(0), round);
        }
        if let Some(writer) = &mut writer {
            there.at(0)?.put(me, round)?;
            there.at(1)?.put_signal(me, round, there.at(2)?, Signal::Add(1))?;
            writer.write(&round.to_ne_bytes())?;
            for number in 0..100_u64 {
                me.call_return(WorkerId::new(1), number, |_, number| number + 1)?.wait()?;
            }
            me.call_return(WorkerId::new(1), (), |_, ()| (0..30).for_each(|_| breathe()))?.wait()?;
        }
        me.barrier()?;
    }
    Ok(())
}

#[test]
fn workers_without_areas_are_seen_and_traced() {
    let (_target, job) = Target::inspected("working", 2);
    assert!(job.list().unwrap().is_empty());
    // On a busy machine, a worker answers late.
    let has_answered = |workers: &Vec<WorkerState>| workers.iter().all(|worker| worker.counters.is_some());
    let before = wait_for("all workers answer", || job.workers().ok().filter(has_answered));
    // A worker that has no processor for a while has nothing new to say.
    let has_moved = |now: &WorkerState, before: &WorkerState| {
        let counters = now.counters.zip(before.counters);
        counters.is_some_and(|(now, before)| now.since(&before).executed > 0)
    };
    let now = wait_for("the workers do something", || {
        let now = job.workers().unwrap();
        let looks = now[0].since(&before[0]).is_some_and(|shares| !shares.waits.is_empty());
        (looks && has_moved(&now[1], &before[1])).then_some(now)
    });
    assert!(now.iter().map(|worker| (worker.process, worker.worker)).eq([(0, 0), (1, 1)]));
    let shares = now[0].since(&before[0]).unwrap();
    assert!(shares.waits.iter().any(|(site, _)| site.file.ends_with("activity.rs")), "{shares:?}");
    assert!(shares.time >= shares.all_waits() + shares.calls);
    let ran = now[1].counters.unwrap().since(&before[1].counters.unwrap());
    assert!(ran.executed > 0 && ran.at > Duration::ZERO, "{ran:?}");

    let is_sent = |what: &Occurrence| matches!(what, Occurrence::Sent { to: 1, number: Some(_), .. });
    let is_run = |what: &Occurrence| matches!(what, Occurrence::Ran { from: Awaited::Worker(0), number: Some(_), .. });
    let trace = trace_until(&job, |trace| {
        let [of_0, of_1] = &trace.workers[..] else { panic!("two workers are traced") };
        assert!(of_0.events.iter().all(|event| event.at + event.time >= trace.begin && event.at <= trace.end));
        of_0.events.iter().any(|event| is_sent(&event.what))
            && of_1.events.iter().any(|event| is_run(&event.what))
            && trace.puts().len() == 2
            && !trace.messages().is_empty()
            && trace.calls().iter().filter(|call| call.delay.is_some()).count() >= 2
    });
    // Puts of 8 bytes, and of 8 bytes with a signal.
    let bytes: Vec<u64> = trace.puts().iter().map(|put| put.bytes / put.count).collect();
    assert_eq!(bytes, [16, 8], "{:?}", trace.puts());
    assert!(trace.puts().iter().all(|put| put.site.file.ends_with("activity.rs")));
    let [message] = &trace.messages()[..] else { panic!("there is one pipe: {:?}", trace.messages()) };
    assert_eq!((message.from, message.to, message.bytes / message.count), (0, 1, 8));
}

/// Traces a job for longer and longer, until a trace has what is wanted. While it is traced, a
/// worker may have no processor.
fn trace_until(job: &Inspector, mut has_all: impl FnMut(&Trace) -> bool) -> Trace {
    let mut time = Duration::from_millis(50);
    wait_for("a trace has what the workers do", || {
        let trace = job.trace(time).unwrap();
        time = (time * 2).min(Duration::from_secs(10));
        has_all(&trace).then_some(trace)
    })
}

/// A process that shows nothing opens its door when another one is asked, though its worker
/// computes for long. So it is seen, and would be paused.
#[test]
fn a_process_that_computes_and_shows_nothing_is_seen() {
    let mut target = Target::start("shy", &[("FARSIDE_INSPECT_TEST_COMPUTES", "1")]);
    let job = target.inspect(2);
    wait_until("both processes are seen", || {
        job.workers().is_ok_and(|workers| workers.iter().map(|worker| worker.process).eq([0, 1]))
    });
}

/// A function that runs outside of the workers until the test opens the gate.
struct Nap;

impl Background for Nap {
    fn run(_: &Caller, _: &[u8]) {
        pass_gate();
    }
}

/// Has process 1 run as many functions outside of its worker as it may.
pub(crate) fn occupy(me: &Worker) -> farside::Result<()> {
    if !me.is_first() {
        (0..16).try_for_each(|_| me.caller().run_in_background::<Nap>(me.process(), &[]))?;
    }
    me.barrier()
}

/// It drops the question for its door, and is asked again.
#[test]
fn a_process_that_can_open_no_door_at_first_is_asked_again() {
    let gate = Gate::new("occupied");
    let mut target = Target::start("occupied", &[gate.setting()]);
    let job = target.inspect(1);
    // This has process 1 asked once more.
    assert!(job.found().unwrap().processes.iter().map(|about| about.process).eq([0]));
    gate.open();
    let job = target.inspect(2);
    assert!(job.workers().unwrap().iter().map(|worker| worker.process).eq([0, 1]));
}

/// While one client traces, another one is informed so. When it is gone, its trace ends by itself.
#[test]
fn one_client_traces_at_a_time() {
    let (mut target, job) = Target::inspected("working", 2);
    // Either one may be faster. The other one is refused then.
    let try_to_trace = |time| match job.trace(time) {
        Err(InspectError::Traced { .. }) => false,
        traced => traced.map(|_| true).unwrap(),
    };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                try_to_trace(Duration::from_millis(200));
            }
        });
        wait_until("the other client is in the middle of a trace", || !try_to_trace(Duration::from_millis(1)));
        is_over.store(true, Ordering::Relaxed);
        other.join().unwrap();
    });
    wait_until("no trace is left", || try_to_trace(Duration::from_millis(1)));
    assert!(target.is_running());
}

mod deep {
    use farside_testbed::is_privileged;

    use super::*;

    /// The clock of the job's machine is another one: here, that of a namespace.
    #[test]
    fn a_job_with_another_clock_is_traced_by_this_one() {
        farside_testbed::needs!("netns");
        let mut words = vec!["unshare", "--time", "--monotonic", "50000", "--fork", "--kill-child"];
        if !is_privileged() {
            words.extend(["--user", "--map-current-user"]);
        }
        let mut target = Target::start_by(&words, "working", &[]);
        let job = target.inspect(2);
        let trace = trace_until(&job, |trace| trace.calls().iter().any(|call| call.delay.is_some()));
        for worker in &trace.workers {
            assert!(worker.events.iter().all(|event| event.at + event.time >= trace.begin && event.at <= trace.end));
        }
        assert!(target.is_running());
    }
}

//! What workers do is seen from outside.

use std::thread;
use std::time::{Duration, Instant};

use farside::{Caller, Errand, MakeArrays, ProcessId, Signal, Worker, WorkerId};
use farside_inspect::{Awaited, Expose, InspectError, Occurrence, WorkerState};
use farside_testbed::{is_left_out, is_privileged};

use crate::targets::{Target, say_shown};

/// A job in which worker 0 calls worker 1 and waits for it, again and again, writes into its memory
/// and sends it messages. It shows no area. The other process opens its door when process 0 is
/// asked.
pub(crate) fn work(me: &Worker) -> farside::Result<()> {
    if me.is_first() {
        me.open_door()?;
    }
    say_shown(me)?;
    let until = Instant::now() + Duration::from_secs(100);
    let memory = me.symmetric::<u64>(8)?;
    let there = memory.at(ProcessId::new(1))?;
    let mut writer = me.is_first().then(|| me.pipe(WorkerId::new(1)).writer()).transpose()?;
    let mut reader = (!me.is_first()).then(|| me.pipe(WorkerId::new(0)).reader()).transpose()?;
    for round in 0_u64.. {
        if Instant::now() > until {
            break;
        }
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
            me.call_return(WorkerId::new(1), (), |_, ()| thread::sleep(Duration::from_millis(5)))?.wait()?;
        }
        me.barrier()?;
    }
    Ok(())
}

#[test]
fn workers_without_areas_are_seen_and_traced() {
    let mut target = Target::start("working", &[]);
    let job = target.inspect(2);
    assert!(job.list().unwrap().is_empty());
    let until = Instant::now() + Duration::from_secs(60);
    // On a busy machine, a worker answers late.
    let has_answered = |workers: &[WorkerState]| workers.iter().all(|worker| worker.counters.is_some());
    let before = loop {
        let workers = job.workers().unwrap();
        if has_answered(&workers) {
            break workers;
        }
        assert!(Instant::now() < until, "a worker does not answer in a minute: {workers:?}");
    };
    // A worker that has no processor for a while has nothing new to say.
    let has_moved = |now: &WorkerState, before: &WorkerState| {
        let counters = now.counters.zip(before.counters);
        counters.is_some_and(|(now, before)| now.since(&before).executed > 0)
    };
    let now = loop {
        thread::sleep(Duration::from_millis(300));
        let now = job.workers().unwrap();
        let looks = now[0].since(&before[0]).is_some_and(|shares| !shares.waits.is_empty());
        if looks && has_moved(&now[1], &before[1]) {
            break now;
        }
        assert!(Instant::now() < until, "the workers have done nothing in a minute: {now:?}");
    };
    assert!(now.iter().map(|worker| (worker.process, worker.worker)).eq([(0, 0), (1, 1)]));
    let shares = now[0].since(&before[0]).unwrap();
    assert!(shares.waits.iter().any(|(site, _)| site.file.ends_with("activity.rs")), "{shares:?}");
    assert!(shares.time >= shares.all_waits() + shares.calls);
    let ran = now[1].counters.unwrap().since(&before[1].counters.unwrap());
    assert!(ran.executed > 0 && ran.at > Duration::ZERO, "{ran:?}");

    let trace = job.trace(Duration::from_millis(500)).unwrap();
    let [of_0, of_1] = &trace.workers[..] else { panic!("two workers are traced") };
    assert!(of_0.events.iter().all(|event| event.at + event.time >= trace.begin && event.at <= trace.end));
    let is_sent = |what: &Occurrence| matches!(what, Occurrence::Sent { to: 1, number: Some(_), .. });
    assert!(of_0.events.iter().any(|event| is_sent(&event.what)));
    let is_run = |what: &Occurrence| matches!(what, Occurrence::Ran { from: Awaited::Worker(0), number: Some(_), .. });
    assert!(of_1.events.iter().any(|event| is_run(&event.what)));
    // Puts of 8 bytes, and of 8 bytes with a signal.
    let bytes: Vec<u64> = trace.puts().iter().map(|put| put.bytes / put.count).collect();
    assert_eq!(bytes, [16, 8], "{:?}", trace.puts());
    assert!(trace.puts().iter().all(|put| put.site.file.ends_with("activity.rs")));
    let [message] = &trace.messages()[..] else { panic!("there is one pipe: {:?}", trace.messages()) };
    assert_eq!((message.from, message.to, message.bytes / message.count), (0, 1, 8));
    let calls = trace.calls();
    let paired: Vec<_> = calls.iter().filter(|call| call.delay.is_some()).collect();
    assert!(paired.len() >= 2, "{calls:?}");
}

/// A process that shows nothing opens its door when another one is asked, though its worker
/// computes for long. So it is seen, and would be paused.
#[test]
fn a_process_that_computes_and_shows_nothing_is_seen() {
    let mut target = Target::start("shy", &[("FARSIDE_INSPECT_TEST_COMPUTES", "1")]);
    let job = target.inspect(2);
    assert!(job.workers().unwrap().iter().map(|worker| worker.process).eq([0, 1]));
}

/// A function that runs beside the workers for a while.
struct Nap;

impl Errand for Nap {
    fn run(_: &Caller, _: &[u8]) {
        thread::sleep(Duration::from_millis(400));
    }
}

/// Has process 1 run as many functions beside its worker as it may.
pub(crate) fn occupy(me: &Worker) -> farside::Result<()> {
    if !me.is_first() {
        (0..16).try_for_each(|_| me.caller().run_beside::<Nap>(me.process(), &[]))?;
    }
    me.barrier()
}

/// It drops the question for its door, and is asked again.
#[test]
fn a_process_that_can_open_no_door_at_first_is_asked_again() {
    let mut target = Target::start("occupied", &[]);
    let job = target.inspect(2);
    assert!(job.workers().unwrap().iter().map(|worker| worker.process).eq([0, 1]));
}

/// While one client traces, another one is told so. When it is gone, its trace ends by itself.
#[test]
fn one_client_traces_at_a_time() {
    let mut target = Target::start("working", &[]);
    let job = target.inspect(2);
    let other = job.clone();
    let until = Instant::now() + Duration::from_secs(60);
    // It tries again if the other one was faster.
    let first = thread::spawn(move || {
        loop {
            match other.trace(Duration::from_secs(3)) {
                Err(InspectError::Traced { .. }) if Instant::now() < until => {}
                ended => return ended,
            }
        }
    });
    let error = loop {
        match job.trace(Duration::from_millis(1)) {
            Err(error) => break error,
            // The other one has not begun.
            Ok(_) => assert!(Instant::now() < until),
        }
        thread::sleep(Duration::from_millis(1));
    };
    assert!(matches!(error, InspectError::Traced { .. }), "{error}");
    first.join().unwrap().unwrap();
    job.trace(Duration::from_millis(1)).unwrap();
    assert!(target.is_running());
}

/// The clock of the job's machine is another one: here, that of a namespace.
#[test]
fn a_job_with_another_clock_is_traced_by_this_one() {
    if is_left_out("netns") {
        return;
    }
    let mut words = vec!["unshare", "--time", "--monotonic", "50000", "--fork", "--kill-child"];
    if !is_privileged() {
        words.extend(["--user", "--map-current-user"]);
    }
    let mut target = Target::start_by(&words, "working", &[]);
    let job = target.inspect(2);
    let until = Instant::now() + Duration::from_secs(60);
    // On a busy machine, a worker may have no processor while it is traced.
    let trace = loop {
        let trace = job.trace(Duration::from_millis(500)).unwrap();
        if trace.calls().iter().any(|call| call.delay.is_some()) {
            break trace;
        }
        let counts: Vec<usize> = trace.workers.iter().map(|worker| worker.events.len()).collect();
        assert!(Instant::now() < until, "no calls were traced in a minute, but {counts:?} events");
    };
    for worker in &trace.workers {
        assert!(worker.events.iter().all(|event| event.at + event.time >= trace.begin && event.at <= trace.end));
    }
    assert!(target.is_running());
}

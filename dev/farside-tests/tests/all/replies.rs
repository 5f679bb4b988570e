//! Results of calls: many at once, long ones, and those that never come.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use farside::prelude::*;
use farside::{Error, ProcessEnd, Result, Simulation};
use farside_testbed::scaled;

use crate::support::{
    call_for_attention, failure, is_launched, pay_no_attention, spread, take_notes, verdict, write_note,
};

/// More calls than a worker has reply slots, by far.
fn many() -> u64 {
    scaled(20_000)
}

const TEXT_BYTES: usize = 64 << 10;

everywhere! {
    as_processes(processes = 2, threads = 1), simulated(processes = 2, threads = 1, seeds = 1);
    many_calls_wait_for_their_results
    results_of_every_size_come_back
    many_long_results_wait_to_be_taken
    continuations_follow_many_calls
    futures_of_many_calls_become_ready
    replies_travel_in_results_and_collectives
    results_that_are_not_wanted_leave_nothing
    threads_that_are_not_workers_have_no_limits_either
}

// Worker 0 calls. The others return and serve until the job ends, so no wait of theirs has a
// deadline.

fn many_calls_wait_for_their_results(me: &Worker) -> Result<()> {
    if me.id().number() > 0 {
        return Ok(());
    }
    let call = |x| me.call_return(me.neighbor(1), x, |_, x: u64| !x);
    let pending: Vec<_> = (0..many()).map(call).collect::<Result<_, _>>()?;
    assert_eq!(me.counters().replies_pending, many());
    for (x, one) in (0..).zip(pending) {
        assert_eq!(one.wait()?, !x);
    }
    assert_eq!(me.counters().replies_pending, 0);
    Ok(())
}

fn results_of_every_size_come_back(me: &Worker) -> Result<()> {
    if me.id().number() > 0 {
        return Ok(());
    }
    for to in me.workers() {
        let sizes = [0, 1, 48, 49, 56, 57, 4088, 4089, 65_527, 65_528, 65_529, 5 << 20];
        for bytes in sizes {
            let text = me.call_return(to, bytes, |_, bytes| "x".repeat(bytes))?.wait()?;
            assert!(text.len() == bytes && text.bytes().all(|byte| byte == b'x'));
        }
        // Plain types, inside and beyond the largest room.
        let words = me.call_return(to, 7_u64, |_, x| std::array::from_fn::<_, 8192, _>(|place| place as u64 ^ x))?;
        assert!(words.wait()?.iter().enumerate().all(|(place, word)| *word == place as u64 ^ 7));
        let words = me.call_return(to, 7_u64, |_, x| std::array::from_fn::<_, 8193, _>(|place| place as u64 ^ x))?;
        assert!(words.wait()?.iter().enumerate().all(|(place, word)| *word == place as u64 ^ 7));
        let panicked = me.call_return(to, 9000, |_, bytes| -> u8 { panic!("{}", "y".repeat(bytes)) })?.wait();
        assert!(matches!(panicked, Err(Error::RemotePanic { message, .. }) if message.len() == 9000));
    }
    assert_eq!(me.counters().replies_pending, 0);
    Ok(())
}

/// A text that depends on a number.
fn text(_: &Worker, number: usize) -> String {
    let word = format!("{number:08}");
    word.repeat(TEXT_BYTES / word.len())
}

fn many_long_results_wait_to_be_taken(me: &Worker) -> Result<()> {
    if me.id().number() > 0 {
        return Ok(());
    }
    let pending: Vec<_> =
        (0..300).map(|number| me.call_return(me.neighbor(1), number, text)).collect::<Result<_, _>>()?;
    for (number, one) in pending.into_iter().enumerate().rev() {
        assert_eq!(one.wait()?, text(me, number));
    }
    Ok(())
}

fn continuations_follow_many_calls(me: &Worker) -> Result<()> {
    const CALLS: u64 = 20_000;
    if me.id().number() > 0 {
        return Ok(());
    }
    let (count, sum) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for x in 0..CALLS {
        let (count, sum) = (count.clone(), sum.clone());
        me.call_return(me.neighbor(1), x, |_, x| 2 * x)?.then(move |_, result| {
            count.set(count.get() + 1);
            sum.set(sum.get() + result.unwrap());
        });
    }
    me.wait_while_serving(|| count.get() == CALLS)?;
    assert_eq!(sum.get(), CALLS * (CALLS - 1));
    Ok(())
}

fn futures_of_many_calls_become_ready(me: &Worker) -> Result<()> {
    const CALLS: u64 = 1000;
    if me.id().number() > 0 {
        return Ok(());
    }
    let pending: Vec<_> =
        (0..CALLS).map(|x| me.call_return(me.neighbor(1), x, |_, x| 2 * x)).collect::<Result<_, _>>()?;
    let sum = me.block_on(async {
        let mut sum = 0;
        for (place, one) in pending.into_iter().enumerate() {
            match place % 10 {
                0 => drop(Pin::new(&mut { one }).poll(&mut Context::from_waker(Waker::noop()))),
                _ => sum += one.await?,
            }
        }
        Result::<u64>::Ok(sum)
    })??;
    assert_eq!(sum, (0..CALLS).filter(|x| x % 10 > 0).map(|x| 2 * x).sum::<u64>());
    Ok(())
}

fn results_that_are_not_wanted_leave_nothing(me: &Worker) -> Result<()> {
    if me.id().number() > 0 {
        return Ok(());
    }
    let call = |number| me.call_return(me.neighbor(1), number, text);
    // Some are given up before their answers begin to arrive, some while they arrive, and some
    // later.
    for wait_for in [None, Some(0), Some(299)] {
        let mut pending: Vec<_> = (0..300).map(call).collect::<Result<_, _>>()?;
        if let Some(number) = wait_for {
            assert_eq!(pending.remove(number).wait()?, text(me, number));
        }
    }
    // Slots whose answers were being written are free when the answers are complete.
    assert_eq!(call(7)?.wait()?, text(me, 7));
    for _ in 0..1000 {
        me.call_return(me.neighbor(1), (), |_, ()| ())?.wait()?;
    }
    Ok(())
}

fn threads_that_are_not_workers_have_no_limits_either(me: &Worker) -> Result<()> {
    if me.id().number() > 0 {
        return Ok(());
    }
    let next = me.neighbor(1);
    let outcome = Mutex::new(Ok(()));
    me.scope(|scope| {
        let outcome = &outcome;
        scope.spawn(move |caller| {
            let make_calls = || -> Result<()> {
                let pending: Vec<_> =
                    (0..many()).map(|x| caller.call_return(next, x, |_, x| !x)).collect::<Result<_, _>>()?;
                for (x, one) in (0..).zip(pending) {
                    assert_eq!(one.wait()?, !x);
                }
                let pending: Vec<_> = (0..100).map(|x| caller.call_return(next, x, text)).collect::<Result<_, _>>()?;
                for one in pending.into_iter().rev() {
                    assert_eq!(one.wait()?.len(), TEXT_BYTES);
                }
                let long = caller.call_return(next, 5 << 20, |_, bytes| "x".repeat(bytes))?;
                assert_eq!(long.wait()?.len(), 5 << 20);
                Ok(())
            };
            let made = make_calls();
            *outcome.lock().unwrap() = made;
        })
    })??;
    outcome.into_inner().unwrap()
}

/// The memory of this process in use now, and at most so far.
fn memory_bytes() -> (usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let read = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    };
    (read("VmRSS:"), read("VmHWM:"))
}

type Duties = PerWorker<RefCell<Vec<Reply<String>>>>;

/// Calls that wait for results reserve no memory for them, and results wait at their caller, not at
/// the callee. All results together have 650 MB, or 6.5 GB in the deep tier.
#[farside::test(processes = 2, threads = 1, timeout_s = 480)]
fn long_results_pass_through_little_memory(me: &Worker) -> Result<()> {
    const AT_A_TIME: usize = 2000;
    const GROWTH_MAX: usize = 64 << 20;
    let duties: Duties = PerWorker::new(me, RefCell::default())?;
    if me.id().number() > 0 {
        return Ok(());
    }
    let next = me.neighbor(1);
    let (before, _) = memory_bytes();
    let many = scaled(5).min(50) * AT_A_TIME as u64;
    let ask = |_| me.call_with_reply(next, duties, |there, duties, reply| duties.here(there).borrow_mut().push(reply));
    let pending: Vec<_> = (0..many).map(ask).collect::<Result<_, _>>()?;
    let kept = me.call_return(next, duties, |there, duties| duties.here(there).borrow().len())?.wait()?;
    let (with_all_pending, _) = memory_bytes();
    assert_eq!(kept as u64, many);
    assert!(with_all_pending < before + GROWTH_MAX, "{before} became {with_all_pending}");
    let (mut pending, mut number) = (pending.into_iter(), 0);
    while pending.len() > 0 {
        // The callee answers these at once. It sends no more than its caller's process takes in.
        let growth = me.call_return(next, (duties, many as usize), |there, (duties, many)| {
            let (before, most_before) = memory_bytes();
            let left = duties.here(there).borrow().len();
            let answered: Vec<_> = duties.here(there).borrow_mut().drain(..AT_A_TIME).collect();
            for (place, reply) in answered.into_iter().enumerate() {
                reply.send(text(there, many - left + place));
            }
            // The system counts the pages of each CPU apart, so its sums are not exact.
            memory_bytes().1.saturating_sub(before.max(most_before))
        })?;
        for one in pending.by_ref().take(AT_A_TIME) {
            let result = one.wait()?;
            assert!(result.len() == TEXT_BYTES && result.starts_with(&format!("{number:08}")), "result {number}");
            number += 1;
        }
        let growth = growth.wait()?;
        assert!(growth < GROWTH_MAX, "the callee kept {growth} bytes");
    }
    let (_, most) = memory_bytes();
    let growth_max = 2 * AT_A_TIME * TEXT_BYTES;
    assert!(most < with_all_pending + growth_max, "{with_all_pending} became {most}");
    Ok(())
}

/// Calls worker 1, which hands the reply on to worker 2, which runs `$then` with it.
macro_rules! ask_a_third {
    ($to:expr, $then:expr) => {
        $to.call_with_reply((), |there, (), reply: Reply<u64>| {
            // If worker 2 is lost already, this drops the reply.
            drop(there.call(WorkerId::new(2), reply, $then));
        })
    };
}

fn answers_soon(third: &Worker, reply: Reply<u64>) {
    third.charge(Duration::from_micros(20));
    reply.send(42);
}

/// Calls until a call fails, and checks that it did so at once and for a lost worker 2.
fn call_until_a_loss(now: impl Fn() -> Instant, call: impl Fn() -> Result<u64>) {
    loop {
        let begin = now();
        match call() {
            Ok(answer) => assert_eq!(answer, 42),
            Err(error) => {
                let is_lost = matches!(&error, Error::PeerLost { process, .. } if process.number() == 2);
                assert!(is_lost || matches!(error, Error::ReplyDropped { .. }), "{error}");
                assert!(now() - begin < Duration::from_secs(1), "the caller learnt it from its deadline");
                return;
            }
        }
    }
}

/// Worker 2 is killed at some moment: before the reply arrives, while it has it, or later.
#[test]
fn callers_learn_that_the_holder_of_a_reply_is_lost() {
    for step in spread(60) {
        let doomed = ProcessId::new(2);
        let simulation = Simulation::new(4, 1, step).kill(doomed, Duration::from_micros(2000 + 7 * step));
        // The verdict is the first failure and would hide a later one.
        let well = AtomicU64::new(0);
        let simulated = simulation.run(|me| {
            if me.process() == doomed && step % 3 == 0 {
                // Replies arrive while this worker computes.
                me.charge(Duration::from_secs(10));
            }
            if me.id().number() > 0 {
                return Ok(());
            }
            if step % 2 == 0 {
                call_until_a_loss(|| me.now(), || ask_a_third!(me.to(WorkerId::new(1)), answers_soon)?.wait());
            } else {
                me.scope(|scope| {
                    scope.spawn(|caller| {
                        let call = || ask_a_third!(caller.to(WorkerId::new(1)), answers_soon)?.wait();
                        call_until_a_loss(|| caller.now(), call);
                    })
                })??;
            }
            well.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert_eq!(failure(simulated.unwrap().verdict), (2, ProcessEnd::Killed(9)));
        assert_eq!(well.load(Ordering::Relaxed), 1, "step {step}");
    }
}

type Kept = PerWorker<RefCell<Option<Reply<u64>>>>;

fn replies_travel_in_results_and_collectives(me: &Worker) -> Result<()> {
    let kept: Kept = PerWorker::new(me, RefCell::default())?;
    let [first, second] = [0, 1].map(WorkerId::new);
    let ask = || {
        me.call_with_reply(second, kept, |there, kept, reply| {
            kept.here(there).replace(Some(reply));
        })
    };
    if me.id() == first {
        let asked = ask()?;
        let reply = me.call_return(second, kept, |there, kept| kept.here(there).take())?.wait()?;
        reply.expect("worker 1 has it").send(42);
        assert_eq!(asked.wait()?, 42);
        let asked = ask()?;
        // Also to a thread that is not a worker.
        let reply = Mutex::new(None);
        me.scope(|scope| {
            scope.spawn(|caller| {
                let taken = caller.call_return(second, kept, |there, kept| kept.here(there).take()).unwrap();
                *reply.lock().unwrap() = taken.wait().unwrap();
            })
        })??;
        reply.into_inner().unwrap().expect("worker 1 has it").send(43);
        assert_eq!(asked.wait()?, 43);
    }
    me.barrier()?;
    let asked = if me.id() == first { Some(ask()?) } else { None };
    me.quiesce()?;
    let gathered = me.gather(first, kept.here(me).take())?;
    gathered.into_iter().flatten().flatten().for_each(|reply| reply.send(44));
    if let Some(asked) = asked {
        assert_eq!(asked.wait()?, 44);
    }
    me.barrier()
}

/// A reply at a process that lives is answered, whichever other process is lost meanwhile.
#[test]
fn a_reply_outlives_other_processes() {
    for dead in [1, 3].map(ProcessId::new) {
        let well = AtomicU64::new(0);
        let simulation = Simulation::new(4, 1, 62).kill(dead, Duration::from_millis(5));
        let simulated = simulation.run(|me| {
            let kept: Kept = PerWorker::new(me, RefCell::default())?;
            match me.id().number() {
                0 => {
                    let asked = me.call_with_reply(WorkerId::new(1), kept, |there, kept, reply| {
                        let keep = |third: &Worker, (kept, reply): (Kept, _)| {
                            kept.here(third).replace(Some(reply));
                        };
                        assert!(there.call(WorkerId::new(2), (kept, reply), keep).is_ok());
                    })?;
                    assert_eq!(asked.wait()?, 42);
                    assert_eq!(me.lost_processes(), [dead]);
                    well.fetch_add(1, Ordering::Relaxed);
                }
                2 => {
                    me.wait_while_serving(|| me.lost_processes() == [dead])?;
                    // The caller must have looked after the loss.
                    me.charge(Duration::from_millis(5));
                    kept.here(me).take().expect("the reply came before").send(42);
                }
                _ => {}
            }
            Ok(())
        });
        assert_eq!(failure(simulated.unwrap().verdict), (dead.number(), ProcessEnd::Killed(9)));
        assert_eq!(well.load(Ordering::Relaxed), 1);
    }
}

fn ends_with(_: &Worker, reply: Reply<u64>) {
    std::mem::forget(reply);
    farside_sys::process::kill_self();
}

/// Runs a job in which worker 2 ends during `third`. Worker 0 asks it through worker 1.
fn is_told(test: &str, third: impl Fn(&Worker) + Send + Sync) {
    // A caller that misses the loss gets another error.
    let job = farside::job().processes(3);
    let verdict = verdict(test, job, |me| {
        if me.id().number() == 1 {
            // This makes the ring, so that the reply needs no progress of worker 2.
            me.call_return(WorkerId::new(2), (), |_, ()| ())?.wait()?;
        }
        me.barrier()?;
        match me.id().number() {
            0 => {
                let asked = ask_a_third!(me.to(WorkerId::new(1)), ends_with)?;
                // When this has run, worker 1 has handed the reply on.
                me.call_return(WorkerId::new(1), (), |_, ()| ())?.wait()?;
                call_for_attention(test);
                let told = asked.wait();
                assert!(matches!(&told, Err(Error::PeerLost { process, .. }) if process.number() == 2), "{told:?}");
                write_note(test, 1, "told");
            }
            2 => third(me),
            _ => {}
        }
        Ok(())
    });
    assert!(!is_launched());
    assert_eq!(failure(verdict), (2, ProcessEnd::Killed(9)));
    let notes = ["now", "told"].map(|text| Some(text.to_owned()));
    assert_eq!(take_notes(std::process::id(), test, 2), notes);
}

#[test]
fn a_killed_process_held_a_reply() {
    is_told("replies::a_killed_process_held_a_reply", |_| {});
}

#[test]
fn a_reply_was_on_its_way_to_a_killed_process() {
    let test = "replies::a_reply_was_on_its_way_to_a_killed_process";
    is_told(test, |_| {
        pay_no_attention(test);
        farside_sys::process::kill_self();
    });
}

//! Calls between the workers of real processes.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside::prelude::*;
use farside::wire::{Reader, WireError};
use farside::{Error, FlushCause, FullCause, GlobalAddress, Result};
use farside_testbed::wait_until;

#[farside::test(processes = 2, threads = 2)]
fn a_call_runs_there(me: &Worker) -> Result<()> {
    let seen = PerWorker::new(me, RefCell::new(Vec::new()))?;
    for to in me.workers() {
        me.call(to, (seen, me.id(), 7_u8), |there, (seen, from, x)| seen.here(there).borrow_mut().push((from, x)))?;
    }
    me.wait_while_serving(|| seen.here(me).borrow().len() == me.worker_count() as usize)?;
    let mut got = seen.here(me).borrow().clone();
    got.sort();
    assert_eq!(got, me.workers().map(|worker| (worker, 7)).collect::<Vec<_>>());
    me.barrier()
}

#[farside::test(processes = 2, threads = 1)]
fn a_result_comes_back(me: &Worker) -> Result<()> {
    let next = me.neighbor(1);
    assert_eq!(me.call_return(next, (20_u64, 22_u64), |_, (a, b)| a + b)?.wait()?, 42);
    let text =
        me.call_return(next, ("far".to_owned(), 3_usize), |there, (word, times)| (word.repeat(times), there.id()));
    assert_eq!(text?.wait()?, ("farfarfar".to_owned(), next));
    let large = me.call_return(next, 5_u8, |_, x| [x; 50_000])?.wait()?;
    assert_eq!(large, [5; 50_000]);
    let me_myself = me.call_return(me.id(), 1_u32, |there, x| (there.id(), x + 1))?.wait()?;
    assert_eq!(me_myself, (me.id(), 2));
    Ok(())
}

#[farside::test(processes = 3, threads = 2, timeout_s = 120)]
fn calls_keep_their_order(me: &Worker) -> Result<()> {
    const CALLS: u64 = 20_000;
    let last = PerWorker::new(me, RefCell::new(vec![0_u64; me.worker_count() as usize]))?;
    let check = |there: &Worker, (last, from, number): (PerWorker<RefCell<Vec<u64>>>, WorkerId, u64)| {
        let mut last = last.here(there).borrow_mut();
        assert_eq!(last[from.index()] + 1, number);
        last[from.index()] = number;
    };
    for number in 1..=CALLS {
        for to in me.workers() {
            // All ways of sending share one order.
            match number % 4 {
                0 => me.call(to, (last, me.id(), number), check)?,
                1 => me.aggregate(to).call((last, me.id(), number), check)?,
                2 => me.to(to).when_full(WhenFull::Retry).call((last, me.id(), number), check)?,
                _ => {
                    let queued = me.to(to).when_full(WhenFull::Queue).call((last, me.id(), number), check);
                    if let Err(refused) = queued {
                        assert!(matches!(refused.error, Error::Full { cause: FullCause::Queue { .. }, .. }));
                        me.call(to, refused.arguments, check)?;
                    }
                }
            }
        }
    }
    me.wait_while_serving(|| last.here(me).borrow().iter().all(|last| *last == CALLS))?;
    me.barrier()
}

#[farside::test(processes = 2, threads = 1)]
fn aggregated_calls_arrive_without_being_flushed(me: &Worker) -> Result<()> {
    let count = PerWorker::new(me, Cell::new(0_u64))?;
    // The ring exists once a result has come back over it. Calls before that are staged.
    me.call_return(me.neighbor(1), (), |_, ()| ())?.wait()?;
    let aggregator = me.aggregate(me.neighbor(1));
    for _ in 0..10 {
        aggregator.call(count, |there, count| count.here(there).set(count.here(there).get() + 1))?;
    }
    // The wait publishes the batch because the worker is idle or the batch is old. A wait that ends
    // at once publishes nothing.
    me.wait_while_serving(|| count.here(me).get() == 10)?;
    drop(aggregator);
    let flushes = me.counters().sent.flushes;
    let [idle, age, dropped] =
        [FlushCause::Idle, FlushCause::Age, FlushCause::Dropped].map(|cause| flushes[cause as usize]);
    assert_eq!(idle + age + dropped, 1);
    me.barrier()
}

#[farside::test(processes = 2, threads = 1)]
fn batches_are_published_by_size(me: &Worker) -> Result<()> {
    let count = PerWorker::new(me, Cell::new(0_u64))?;
    if me.id().number() == 0 {
        // Without an open ring, the calls would wait in one long line, not in batches.
        me.call_return(me.neighbor(1), (), |_, ()| ())?.wait()?;
        let aggregator = me.aggregate(me.neighbor(1)).batch_bytes(256);
        for _ in 0..1000 {
            let hit = farside::remote!(|there, count: PerWorker<Cell<u64>>| count
                .here(there)
                .set(count.here(there).get() + 1));
            aggregator.call_remote(count, hit)?;
        }
    } else if me.id().number() == 1 {
        me.wait_while_serving(|| count.here(me).get() == 1000)?;
    }
    me.barrier()?;
    if me.id().number() == 0 {
        assert!(me.counters().sent.flushes[FlushCause::Size as usize] >= 10);
    }
    Ok(())
}

#[farside::test(processes = 2, threads = 1)]
fn a_batch_published_by_another_call_is_done_with(me: &Worker) -> Result<()> {
    let to = me.neighbor(1);
    me.call_return(to, 1_u32, |_, x| x + 1)?.wait()?;
    let aggregator = me.aggregate(to);
    aggregator.call(1_u32, |_, _| ())?;
    me.call(to, 2_u32, |_, _| ())?;
    drop(aggregator);
    // The job would never become quiet if the batch counted as open.
    Ok(())
}

#[farside::test(processes = 2, threads = 1)]
fn buffers_of_all_sizes_travel(me: &Worker) -> Result<()> {
    let sums = PerWorker::new(me, Cell::new((0_u64, 0_u64)))?;
    let sizes = [0, 1, 7, 8, 9, 55, 56, 57, 4000, 4096, 65_535, 65_536, 65_537, 600_000, 1 << 20, 3 << 20];
    let mut sent = (0_u64, 0_u64);
    for (round, size) in sizes.into_iter().enumerate() {
        let buffer: Vec<u8> = (0..size).map(|i| (i * 31 + round) as u8).collect();
        sent.0 += size as u64;
        sent.1 += buffer.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        me.call_buffer(me.neighbor(1), (sums, size as u64), &buffer, |there, (sums, size), buffer| {
            assert_eq!(buffer.len() as u64, size);
            let (bytes, sum) = sums.here(there).get();
            let more = buffer.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            sums.here(there).set((bytes + size, sum + more));
        })?;
    }
    me.wait_while_serving(|| sums.here(me).get() == sent)?;
    me.barrier()
}

#[farside::test(processes = 2, threads = 1)]
fn a_panic_answers_its_caller(me: &Worker) -> Result<()> {
    let pending = me.call_return(me.neighbor(1), 3_u64, |_, x| -> u64 {
        if x == 3 {
            panic!("three is too many");
        }
        x
    })?;
    let error = pending.wait().unwrap_err();
    assert!(matches!(&error, Error::RemotePanic { message, .. } if message == "three is too many"), "{error}");
    me.barrier()
}

#[farside::test(processes = 2, threads = 1)]
fn waiting_in_a_handler_is_refused(me: &Worker) -> Result<()> {
    let refused = me.call_return(me.neighbor(1), (), |there, ()| {
        let is_refused = |result: Result<()>| matches!(result, Err(Error::InHandler { .. }));
        let full = there.to(there.id()).when_full(WhenFull::Retry).call((), |_, ()| ());
        let waited = there.call_return(there.neighbor(1), 1_u8, |_, x| x).map(|pending| pending.wait());
        [
            is_refused(there.barrier()),
            is_refused(there.progress().map(drop)),
            // A call that finds room does not wait, so it is not refused.
            full.is_ok() || is_refused(full.map_err(Error::from)),
            waited.is_ok_and(|result| is_refused(result.map(drop))),
            is_refused(Dist::new(there, || 0_u8).map(drop)),
        ]
    })?;
    assert_eq!(refused.wait()?, [true; 5]);
    me.barrier()
}

#[farside::test(processes = 2, threads = 1)]
fn handlers_go_on_after_calls_of_their_own(me: &Worker) -> Result<()> {
    // The function calls back, and a continuation there sends the answer.
    let answer = me.call_with_reply(me.neighbor(1), 20_u64, |there, x, reply: Reply<u64>| {
        match there.call_return(there.neighbor(1), x, |_, x| x * 2) {
            Ok(pending) => pending.then(move |_, result| {
                if let Ok(result) = result {
                    reply.send(result + 2);
                }
            }),
            Err(_) => drop(reply),
        }
    })?;
    assert_eq!(answer.wait()?, 42);
    let dropped = me.call_with_reply(me.neighbor(1), (), |_, (), reply: Reply<u64>| drop(reply))?;
    assert!(matches!(dropped.wait(), Err(Error::ReplyDropped { .. })));
    let panicked = me.call_with_reply(me.neighbor(1), (), |_, (), _: Reply<u64>| panic!("not today"))?;
    assert!(matches!(panicked.wait(), Err(Error::RemotePanic { .. })));
    me.barrier()
}

#[farside::test(processes = 3, threads = 1)]
fn a_reply_may_be_given_to_a_third(me: &Worker) -> Result<()> {
    let answer = me.call_with_reply(me.neighbor(1), 5_u64, |there, x, reply: Reply<(u64, WorkerId)>| {
        let passed = there.call(there.neighbor(1), (x, reply), |third, (x, reply)| reply.send((x * x, third.id())));
        assert!(passed.is_ok());
    })?;
    assert_eq!(answer.wait()?, (25, me.neighbor(2)));
    me.barrier()
}

#[farside::test(processes = 2, threads = 1)]
fn pending_results_are_polled_waited_for_and_awaited(me: &Worker) -> Result<()> {
    let next = me.neighbor(1);
    let mut pending = me.call_return(next, 1_u64, |_, x| x + 1)?;
    let polled = loop {
        if let Some(result) = pending.poll() {
            break result?;
        }
        me.progress()?;
    };
    assert_eq!(polled, 2);
    let sum = me.block_on(async {
        let (a, b) = (me.call_return(next, 1_u64, |_, x| x + 1)?, me.call_return(next, 2_u64, |_, x| x + 1)?);
        Result::<u64>::Ok(a.await? + b.await?)
    })??;
    assert_eq!(sum, 5);
    // A wait of no time may miss the result, which comes later.
    let mut slow = me.call_with_reply(me.id(), (), |_, (), reply: Reply<u8>| reply.send(9))?;
    let at_once = slow.wait_for(Duration::ZERO);
    assert!(matches!(at_once, Ok(9) | Err(Error::Deadline { .. })));
    if at_once.is_err() {
        assert_eq!(slow.wait()?, 9);
    }
    me.barrier()
}

#[farside::test(processes = 2, threads = 1)]
fn results_without_a_waiter_are_discarded(me: &Worker) -> Result<()> {
    // Makes many more calls than there are reply slots. Each slot is free again in time.
    for round in 0..5000_u64 {
        let pending = me.call_return(me.neighbor(1), round, |_, x| x)?;
        match round % 3 {
            0 => assert_eq!(pending.wait()?, round),
            _ => drop(pending),
        }
    }
    me.barrier()
}

#[farside::test(processes = 2, threads = 2)]
fn synchronizers_count_executions_and_sendings(me: &Worker) -> Result<()> {
    let hits = Dist::new(me, || AtomicU64::new(0))?;
    let executed = me.synchronizer(me.worker_count() * 10)?;
    let sent = me.synchronizer(0)?;
    for to in me.workers() {
        for _ in 0..10 {
            let hit = |there: &Worker, hits: Dist<AtomicU64>| hits.here(there).fetch_add(1, Ordering::Relaxed);
            me.to(to).notify(&executed, On::Executed).call(hits, hit)?;
            sent.add(1);
            me.to(to).notify(&sent, On::Sent).call(hits, hit)?;
        }
    }
    executed.wait()?;
    sent.wait()?;
    assert_eq!((executed.left(), sent.left()), (0, 0));
    me.barrier()?;
    me.wait_while_serving(|| hits.here(me).load(Ordering::Relaxed) == 2 * u64::from(me.worker_count()) * 20)?;
    me.barrier()
}

#[farside::test(processes = 2, threads = 2)]
fn lanes_are_shared_by_a_process(me: &Worker) -> Result<()> {
    const CALLS: u64 = 5000;
    let sum = PerWorker::new(me, Cell::new(0_u64))?;
    for x in 1..=CALLS {
        for to in me.workers() {
            me.to(to).send_based().call((sum, x), |there, (sum, x)| sum.here(there).set(sum.here(there).get() + x))?;
        }
    }
    let all = u64::from(me.worker_count()) * CALLS * (CALLS + 1) / 2;
    me.wait_while_serving(|| sum.here(me).get() == all)?;
    me.barrier()
}

#[farside::test(processes = 2, threads = 1)]
fn a_full_ring_hands_the_arguments_back(me: &Worker) -> Result<()> {
    let got = PerWorker::new(me, Cell::new(0_u64))?;
    // A word of process 1. Worker 0 sets it to have worker 1 make progress again.
    let is_refused = GlobalAddress::starter(ProcessId::new(1), 0).cast::<u64>();
    me.setup(me.neighbor(1))?;
    me.barrier()?;
    if me.id().number() == 0 {
        let to = me.to(me.neighbor(1)).when_full(WhenFull::Fail);
        let mut accepted = 0_u64;
        // Worker 1 makes no progress, so at some point there is no room.
        let refused = loop {
            let arguments = (got, accepted, [1_u8; 1000]);
            match to.call(arguments, |there, (got, _, _)| got.here(there).set(got.here(there).get() + 1)) {
                Ok(()) => accepted += 1,
                Err(refused) => break refused,
            }
            assert!(accepted < 100_000);
        };
        assert!(matches!(refused.error, Error::Full { .. }), "{}", refused.error);
        assert!(accepted > 0);
        assert_eq!((refused.arguments.1, refused.arguments.2), (accepted, [1; 1000]));
        is_refused.put(me, 1)?;
        me.barrier()?;
        let arrived = me.call_return(me.neighbor(1), got, |there, got| got.here(there).get())?.wait()?;
        assert_eq!(arrived, accepted);
    } else {
        wait_until("the other worker is refused", || is_refused.get(me).unwrap() != 0);
        me.barrier()?;
    }
    me.barrier()
}

/// A value of a size that saturates.
#[derive(Clone)]
struct Endless;

// SAFETY: it has no bytes and no address. Its size fits no buffer, so it is never written or read.
unsafe impl Wire for Endless {
    const PLAIN: bool = false;

    fn wire_bytes(&self) -> usize {
        usize::MAX
    }

    unsafe fn write(self, _: *mut u8) {
        unreachable!("it fits nowhere");
    }

    unsafe fn read(_: &mut Reader<'_>) -> Result<Self, WireError> {
        unreachable!("it was never written");
    }
}

#[farside::test(processes = 2, threads = 1)]
fn calls_without_end_are_refused(me: &Worker) -> Result<()> {
    fn ignore(_: &Worker, _: Endless) {}
    let to = me.neighbor(1);
    me.setup(to)?;
    me.barrier()?;
    let aggregator = me.aggregate(to);
    // The first ones find an open batch.
    aggregator.call(7_u8, |_, _| ())?;
    for refused in [
        aggregator.call(Endless, ignore),
        aggregator.call_buffer(Endless, &[1; 9], |_, _, _| ()),
        me.call(to, Endless, ignore),
        me.call_buffer(to, Endless, &[1; 9], |_, _, _| ()),
        me.to(to).send_based().call(Endless, ignore),
        me.aggregate(to).flush_within(Duration::from_secs(1)).call(Endless, ignore),
        me.call_return(to, Endless, ignore).map(drop),
        me.caller().to(to).call(Endless, ignore),
    ] {
        let error = refused.unwrap_err().error;
        assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    }
    me.barrier()
}

#[farside::test(processes = 2, threads = 1)]
fn calls_that_can_never_fit_are_refused(me: &Worker) -> Result<()> {
    let buffer = vec![0; 64 << 20];
    let refused = me.call_buffer(me.neighbor(1), 5_u8, &buffer, |_, _, _| ()).unwrap_err();
    assert!(matches!(refused.error, Error::TooLarge { .. }), "{}", refused.error);
    assert!(refused.error.to_string().contains("raise `Job::ring_cap_bytes`"), "{}", refused.error);
    assert_eq!(refused.arguments, 5);
    // A result may have any length.
    let plain = me.call_return(me.neighbor(1), (), |_, ()| [7_u8; 20_000])?.wait()?;
    assert_eq!(plain, [7; 20_000]);
    let text = me.call_return(me.neighbor(1), 100_000_usize, |_, bytes| "x".repeat(bytes))?.wait()?;
    assert_eq!(text.len(), 100_000);
    me.barrier()
}

#[farside::test(processes = 2, threads = 1)]
fn calls_to_unknown_workers_are_errors(me: &Worker) -> Result<()> {
    let workers = me.worker_count();
    for number in [workers, workers + 1, u32::MAX] {
        let refused = me.call(WorkerId::new(number), 1_u8, |_, _| ()).unwrap_err();
        assert!(matches!(refused.error, Error::UnknownWorker { count, .. } if count == workers));
        assert!(me.call_return(WorkerId::new(number), 1_u8, |_, x| x).is_err());
        assert!(me.to(WorkerId::new(number)).send_based().call(1_u8, |_, _| ()).is_err());
    }
    Ok(())
}

#[farside::test(processes = 4, threads = 2)]
fn collectives_agree(me: &Worker) -> Result<()> {
    let count = u64::from(me.worker_count());
    for round in 0..20_u64 {
        let root = WorkerId::new((round % count) as u32);
        let word = me.broadcast(root, (me.id() == root).then(|| format!("round {round}")))?;
        assert_eq!(word, format!("round {round}"));
        let sum = me.all_reduce(u64::from(me.id().number()) + round, |a, b| a + b)?;
        assert_eq!(sum, count * (count - 1) / 2 + count * round);
        let gathered = me.gather(root, (me.id(), vec![round; 3]))?;
        assert_eq!(gathered.is_some(), me.id() == root);
        if let Some(gathered) = gathered {
            assert!(
                gathered.iter().zip(me.workers()).all(|((id, values), worker)| *id == worker && *values == [round; 3])
            );
        }
        me.barrier()?;
    }
    assert!(matches!(me.broadcast(WorkerId::new(99), Some(1_u8)), Err(Error::UnknownWorker { .. })));
    Ok(())
}

#[farside::test(processes = 8, threads = 1, timeout_s = 120)]
fn barriers_hold_all_workers(me: &Worker) -> Result<()> {
    let passed = PerWorker::new(me, Cell::new(0_u64))?;
    for round in 0..200_u64 {
        passed.here(me).set(round);
        me.barrier()?;
        let other = me.neighbor(round as u32);
        let there = me.call_return(other, passed, |there, passed| passed.here(there).get())?.wait()?;
        assert!(there >= round, "{other} was at {there} when {} had passed barrier {round}", me.id());
    }
    me.barrier()
}

#[farside::test(processes = 8, threads = 1, timeout_s = 120)]
fn nothing_is_lost_between_eight_on_two_cores(me: &Worker) -> Result<()> {
    // Each call makes another at random until its hops are used up. All have run when the job is
    // quiet.
    let landed = PerWorker::new(me, Cell::new(0_u64))?;
    type Hop = (PerWorker<Cell<u64>>, u64, u32);
    fn hop(there: &Worker, (landed, seed, hops): Hop) {
        if hops == 0 {
            landed.here(there).set(landed.here(there).get() + 1);
            return;
        }
        let seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let to = WorkerId::new((seed >> 33) as u32 % there.worker_count());
        let sent = there.to(to).when_full(WhenFull::Queue).call((landed, seed, hops - 1), hop);
        assert!(sent.is_ok());
    }
    for seed in 0..2000_u64 {
        me.call(me.neighbor(seed as u32), (landed, seed * 8 + u64::from(me.id().number()), 10), hop)?;
    }
    let all = u64::from(me.worker_count()) * 2000;
    loop {
        let total = me.all_reduce(landed.here(me).get(), |a, b| a + b)?;
        if total == all {
            return Ok(());
        }
    }
}

#[farside::test(processes = 2, threads = 1)]
fn the_end_waits_for_everything_that_was_sent(me: &Worker) -> Result<()> {
    // Returns at once. The call and those that it makes still run, and a panic in one would fail
    // the job.
    fn again(there: &Worker, left: u32) {
        if left > 0 {
            let sent = there.call(there.neighbor(1), left - 1, again);
            assert!(sent.is_ok());
        }
    }
    me.call(me.neighbor(1), 1000, again)?;
    Ok(())
}

/// `Duration::MAX` is a valid time to wait.
#[farside::test(processes = 2, threads = 1)]
fn the_longest_time_is_a_time(me: &Worker) -> Result<()> {
    let mut pending = me.call_return(me.neighbor(1), 41_u64, |_, x| x + 1)?;
    assert_eq!(pending.wait_for(Duration::MAX)?, 42);
    me.wait_together(Duration::MAX, || true)?;
    me.barrier()
}

//! Batches by size, age and overflow, and batches that are published in time while their worker
//! computes.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use farside::prelude::*;
use farside::{Error, FlushCause, FullCause, Result, Simulation};
use farside_testbed::{limit, scaled, wait_until};

use crate::support::{call_for_attention, failure, pay_no_attention, verdict};
use crate::ways::{Last, arrive, arrive_with, new_last, over_all_fabrics, over_real_fabrics, wait_for};

thread_local! {
    static GO: Cell<bool> = const { Cell::new(false) };
}

#[test]
fn overflow_publishes_one_by_one_while_there_is_room() {
    over_all_fabrics("ways::aggregation::overflow_publishes_one_by_one_while_there_is_room", 2, |me| {
        let last = new_last(me)?;
        let to = me.neighbor(1);
        me.setup(to)?;
        let aggregator = me.aggregate(to).overflow(1 << 20);
        let before = me.counters_to(to);
        for number in 1..=10 {
            aggregator.call((last, me.id(), number), arrive)?;
        }
        let after = me.counters_to(to);
        assert_eq!(after.flushes, before.flushes);
        assert_eq!(after.staged, before.staged);
        drop(aggregator);
        wait_for(me, last, to, 10)?;
        me.barrier()
    });
}

/// Calls that the ring does not take are kept in order up to the limit. Later calls fail and return
/// their arguments. When the receiver runs, all kept calls go in few flushes.
#[test]
fn overflow_is_kept_up_to_its_limit() {
    const LIMIT: usize = 64 << 10;
    let test = "ways::aggregation::overflow_is_kept_up_to_its_limit";
    over_real_fabrics(test, farside::job().processes(2).queue_cap_bytes(1 << 10).ring_cap_bytes(64 << 10), |me| {
        let last = new_last(me)?;
        let to = me.neighbor(1);
        me.setup(to)?;
        me.barrier()?;
        if me.id().number() == 1 {
            pay_no_attention(test);
        } else {
            let aggregator = me.aggregate(to).mode(Aggregation::Overflow { limit_bytes: LIMIT });
            let mut accepted = 0;
            let refused = loop {
                match aggregator.call((last, me.id(), accepted + 1), arrive) {
                    Ok(()) => accepted += 1,
                    Err(refused) => break refused,
                }
                assert!(accepted < 1_000_000);
            };
            let (Error::Full { cause, .. }, (_, from, number)) = (&refused.error, refused.arguments) else {
                panic!("{}", refused.error)
            };
            // The cause may also be that the ring has reached its cap.
            assert!(
                matches!(cause, FullCause::Queue { queued_bytes } if *queued_bytes <= LIMIT)
                    || matches!(cause, FullCause::RingCap { .. })
            );
            assert_eq!((from, number), (me.id(), accepted + 1));
            let counters = me.counters_to(to);
            assert!(counters.staged > 500 || counters.rings == 0, "{counters:?}");
            call_for_attention(test);
            let most = counters.staged_bytes_max;
            assert!(most as usize <= LIMIT && most as usize > LIMIT - 100, "{most}");
            assert_eq!(counters.staged_chunks_max(4096), most.div_ceil(4096));

            // A call may also wait for room.
            let patient = me.aggregate(to).overflow(LIMIT).when_full(WhenFull::Retry);
            patient.call((last, me.id(), accepted + 1), arrive)?;
            me.call(to, (last, me.id(), accepted + 2), arrive)?;
            let arrived = me.call_return(to, last, |there, last| last.here(there).borrow()[0])?.wait()?;
            assert_eq!(arrived, accepted + 2);
            let counters = me.counters_to(to);
            assert!(counters.flushes[FlushCause::Credit as usize] > 0 || counters.rings == 0, "{counters:?}");
        }
        me.barrier()
    });
}

#[test]
fn timed_batches_to_a_killed_process_are_an_error() {
    let doomed = ProcessId::new(1);
    // The verdict is the first failure and would hide a later one.
    let well = AtomicBool::new(false);
    let simulation = Simulation::new(2, 1, 7).kill(doomed, Duration::from_millis(1));
    let simulated = simulation.run(|me| {
        let to = me.neighbor(1);
        if me.process() == doomed {
            return me.wait_while_serving(|| false);
        }
        me.setup(to)?;
        me.wait_while_serving(|| me.lost_processes() == [doomed])?;
        let lost = me.aggregate(to).flush_within(Duration::from_millis(1)).call((), |_, ()| ()).unwrap_err().error;
        assert!(matches!(lost, Error::PeerLost { .. }), "{lost}");
        well.store(true, Ordering::Relaxed);
        Ok(())
    });
    assert!(well.into_inner());
    assert!(simulated.unwrap().verdict.is_err());
}

#[test]
fn overflow_to_a_killed_process_is_an_error() {
    let test = "ways::aggregation::overflow_to_a_killed_process_is_an_error";
    let verdict = verdict(test, farside::job().processes(2), |me| {
        let last = new_last(me)?;
        me.setup(me.neighbor(1))?;
        me.barrier()?;
        if me.id().number() == 1 {
            // The other worker keeps calls for it.
            me.wait_while_serving(|| last.here(me).borrow()[0] > 0)?;
            farside_sys::process::kill_self();
        }
        let aggregator = me.aggregate(me.neighbor(1)).overflow(16 << 10);
        let (end, mut number) = (me.now() + limit(), 0);
        let lost = loop {
            match aggregator.call((last, me.id(), number + 1), arrive) {
                Ok(()) => number += 1,
                Err(refused) => match refused.error {
                    Error::Full { .. } => drop(me.progress()?),
                    lost => break lost,
                },
            }
            assert!(me.now() < end, "the loss is not told");
        };
        assert!(matches!(lost, Error::PeerLost { .. }), "{lost}");
        Ok(())
    });
    assert_eq!(failure(verdict).0, 1);
}

/// The aggregator's age decides. It is checked when the worker next makes progress.
#[test]
fn a_batch_is_published_at_its_age() {
    over_all_fabrics("ways::aggregation::a_batch_is_published_at_its_age", 2, |me| {
        let to = me.neighbor(1);
        me.setup(to)?;
        me.barrier()?;
        let by_age = |me: &Worker| me.counters_to(to).flushes[FlushCause::Age as usize];
        let aggregator = me.aggregate(to).age(Duration::from_secs(3600));
        aggregator.call(1_u8, |_, _| ())?;
        for _ in 0..100 {
            me.progress()?;
        }
        assert_eq!(by_age(me), 0);
        aggregator.flush();
        let before = me.counters_to(to).flushes;
        let young = me.aggregate(to).age(Duration::ZERO);
        young.call(1_u8, |_, _| ())?;
        assert_eq!(me.counters_to(to).flushes, before);
        me.progress()?;
        assert_eq!(by_age(me), 1);
        drop((aggregator, young));
        me.barrier()
    });
}

/// A worker makes calls and then makes no progress. Its batch is published in time.
#[test]
fn a_batch_is_published_in_time_while_its_worker_computes() {
    let test = "ways::aggregation::a_batch_is_published_in_time_while_its_worker_computes";
    over_real_fabrics(test, farside::job().processes(2), |me| {
        let (last, to) = (new_last(me)?, me.neighbor(1));
        // With a ring the helper sends. Without one the batch would go when the ring is granted.
        me.setup(to)?;
        me.barrier()?;
        if me.id().number() == 1 {
            wait_for(me, last, to, 5)?;
            // The other worker goes on only now.
            me.to(to).send_based().call((), |_, ()| GO.set(true))?;
            return me.barrier();
        }
        let aggregator = me.aggregate(to).flush_within(Duration::from_millis(5));
        for number in 1..=5 {
            aggregator.call((last, me.id(), number), arrive)?;
        }
        // This worker makes no progress until the calls have run.
        let by_age = || me.counters_to(to).flushes[FlushCause::Age as usize];
        wait_until("the batch is published at its age", || by_age() > 0);
        assert!(me.counters_to(to).helped > 0);
        me.wait_while_serving(|| GO.get())?;
        drop(aggregator);
        me.barrier()
    });
}

/// Runs `send` on worker 0 of a simulation, where calls travel as frames. `send` gets a function
/// that computes for long, and then checks the number of calls that have run.
fn runs_while_its_worker_computes(send: impl Fn(&Worker, Last, &dyn Fn(u64)) -> Result<()> + Send + Sync) {
    for seed in 0..scaled(3) {
        let (ran, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let simulated = Simulation::new(2, 1, seed).run(|me| {
            let (last, to) = (new_last(me)?, me.neighbor(1));
            me.setup(to)?;
            me.barrier()?;
            if me.is_first() {
                // All credit for earlier calls arrives, which would also send what is staged.
                me.charge(Duration::from_secs(1));
                send(me, last, &|calls| {
                    me.charge(Duration::from_secs(1));
                    over.store(true, Ordering::Relaxed);
                    assert_eq!(ran.load(Ordering::Relaxed), calls);
                })?;
            } else {
                while !over.load(Ordering::Relaxed) {
                    me.progress()?;
                    me.charge(Duration::from_micros(100));
                    ran.store(last.here(me).borrow()[to.index()], Ordering::Relaxed);
                }
            }
            me.barrier()
        });
        simulated.unwrap().verdict.unwrap();
    }
}

/// A batch that is too long for a frame is staged before the timed call, and does not keep it.
#[test]
fn a_timed_call_is_published_in_time_behind_a_long_batch() {
    runs_while_its_worker_computes(|me, last, compute| {
        let to = me.neighbor(1);
        let hour = Duration::from_secs(3600);
        let (long, timed) = (me.aggregate(to).batch_bytes(16 << 10).age(hour), me.aggregate(to));
        let timed = timed.batch_bytes(1 << 20).flush_within(Duration::from_millis(1));
        for number in 1..=200 {
            long.call((last, me.id(), number), arrive)?;
        }
        assert_eq!(me.counters_to(to).flushes, [0; 7], "the batch is open");
        timed.call((last, me.id(), 201), arrive)?;
        compute(201);
        Ok(())
    });
}

/// The timed call that finds the queue full is published in time, too.
#[test]
fn a_timed_call_is_published_in_time_behind_a_full_queue() {
    runs_while_its_worker_computes(|me, last, compute| {
        let to = me.neighbor(1);
        // Longer than the queue, which is therefore sent when it is full.
        let timed = me.aggregate(to).batch_bytes(16 << 20).flush_within(Duration::from_millis(1));
        let mut calls = 0;
        while me.counters_to(to).flushes[FlushCause::Size as usize] == 0 {
            calls += 1;
            timed.call_buffer((last, me.id(), calls), &[calls as u8; 1000], arrive_with)?;
        }
        compute(calls);
        Ok(())
    });
}

#[test]
fn a_timed_batch_is_published_by_size_and_by_other_calls() {
    over_all_fabrics("ways::aggregation::a_timed_batch_is_published_by_size_and_by_other_calls", 2, |me| {
        let (last, to) = (new_last(me)?, me.neighbor(1));
        me.setup(to)?;
        let hour = Duration::from_secs(3600);
        let aggregator = me.aggregate(to).batch_bytes(1000).flush_within(hour);
        for number in 1..=100 {
            aggregator.call((last, me.id(), number), arrive)?;
        }
        assert!(me.counters_to(to).flushes[FlushCause::Size as usize] >= 2);
        me.call(to, (last, me.id(), 101), arrive)?;
        aggregator.call((last, me.id(), 102), arrive)?;
        me.aggregate(to).call((last, me.id(), 103), arrive)?;
        aggregator.call((last, me.id(), 104), arrive)?;
        me.flush();
        aggregator.call((last, me.id(), 105), arrive)?;
        drop(aggregator);
        wait_for(me, last, to, 105)?;
        me.barrier()
    });
}

//! Rings that are shut down, and rings whose memory other senders need.

use std::cell::Cell;
use std::time::Duration;

use farside::prelude::*;
use farside::{Error, FullCause, Result, RingOptions, Simulation};
use farside_testbed::limit;

use crate::faults::sweep::{VICTIM, is_victim_lost, report_end};
use crate::support::{call_for_attention, pay_no_attention, set_up, take_notes, verdict};
use crate::ways::{arrive, new_last, over_all_fabrics, wait_for};

/// Calls, shuts down and calls again. Calls of every mode are outstanding at each shutdown.
#[test]
fn everything_before_a_shutdown_runs() {
    over_all_fabrics("ways::reclaim::everything_before_a_shutdown_runs", 2, |me| {
        let (last, to) = (new_last(me)?, me.neighbor(1));
        me.barrier()?;
        let mut number = 0;
        for round in 0..20 {
            for mode in 0..40 {
                number += 1;
                let call = (last, me.id(), number);
                match mode % 4 {
                    0 => me.call(to, call, arrive)?,
                    1 => std::mem::forget({
                        let aggregator = me.aggregate(to);
                        aggregator.call(call, arrive)?;
                        aggregator
                    }),
                    2 => me.to(to).when_full(WhenFull::Queue).call(call, arrive)?,
                    _ => me.aggregate(to).overflow(1 << 20).call(call, arrive)?,
                }
            }
            let outstanding =
                me.call_return(to, last, |there, last| last.here(there).borrow().iter().max().copied())?;
            me.shutdown(to)?;
            assert!(outstanding.wait()? > Some(0));
            assert_eq!(me.counters_to(to).rings_reclaimed, round + 1);
        }
        wait_for(me, last, to, number)?;
        me.barrier()
    });
}

/// The memory of closed rings is used again: however often rings come and go, no more is registered
/// than at first.
#[test]
fn memory_comes_back() {
    verdict("ways::reclaim::memory_comes_back", farside::job().processes(3), |me| {
        let here = || (me.counters().ring_bytes_here, me.counters().ring_bytes_registered_here);
        let mut after_first = None;
        for _ in 0..100 {
            for to in me.workers() {
                // This also makes the ring grow.
                for _ in 0..100 {
                    me.call(to, [0_u64; 100], |_, _| ())?;
                }
            }
            me.shutdown_all()?;
            me.barrier()?;
            me.shutdown_all()?;
            // Other workers may still be at the barrier. Each of three rings takes at most what one
            // ring was ever granted.
            let (_, registered) = here();
            let first = *after_first.get_or_insert(registered);
            assert!(registered <= first + 3 * (300 << 10), "{registered} registered, {first} after the first time");
        }
        let counters = me.counters().sent;
        assert!(counters.rings_reclaimed >= 300 && counters.reclaimed_bytes >= 300 * (8 << 10), "{counters:?}");
        me.barrier()
    })
    .unwrap();
}

/// Worker 1 has a ring to worker 0 that it does not use. Worker 2 needs its memory.
#[test]
fn an_idle_ring_makes_room_for_another() {
    let ring = RingOptions { chunk_bytes: 16 << 10, ..RingOptions::default() };
    let job = farside::job().processes(3).ring_cap_bytes(80 << 10).ring(ring);
    verdict("ways::reclaim::an_idle_ring_makes_room_for_another", job, |me| {
        let (last, to) = (new_last(me)?, WorkerId::new(0));
        if me.id() != to {
            me.setup(to)?;
            me.call(to, (last, me.id(), 1), arrive)?;
        }
        me.barrier()?;
        if me.id().number() == 2 {
            // The existing rings of the three workers leave at most 16 KiB of the cap. This call
            // needs 24 KiB.
            let end = me.now() + limit();
            while let Err(refused) = me.to(to).call_buffer((last, me.id(), 2), &[2; 20_000], crate::ways::arrive_with) {
                assert!(
                    matches!(refused.error, Error::Full { cause: FullCause::RingCap { .. }, .. }),
                    "{}",
                    refused.error
                );
                assert!(me.now() < end, "the idle ring keeps its memory");
                me.progress()?;
            }
        }
        me.wait_while_serving(|| me.id() != to || last.here(me).borrow()[2] == 2)?;
        me.barrier()?;
        if me.id().number() == 1 {
            // A new ring is made when it is needed.
            me.call(to, (last, me.id(), 2), arrive)?;
        }
        me.wait_while_serving(|| me.id() != to || last.here(me).borrow()[1] == 2)?;
        let reclaimed = me.all_reduce(me.counters().sent.rings_reclaimed, |a, b| a + b)?;
        assert!(reclaimed > 0);
        me.barrier()
    })
    .unwrap();
}

/// A worker that makes no progress exhausts the credit of its senders. Their calls and shutdowns
/// fail at the deadline.
#[test]
fn exhausted_credit_with_a_dead_consumer_is_an_error() {
    // In a simulation no memory is mapped. Its worker 1 is busy in virtual time.
    let simulation = Simulation::new(2, 1, 1).deadline(Duration::from_millis(300));
    let busy = |me: &Worker| me.charge(Duration::from_millis(1500));
    simulation.run(|me| exhausts_credit(me, busy, || ())).unwrap().verdict.unwrap();
}

mod timing {
    use super::*;

    /// The deadline also bounds the start of the job.
    #[test]
    fn exhausted_credit_with_a_dead_consumer_is_an_error() {
        let test = "ways::reclaim::timing::exhausted_credit_with_a_dead_consumer_is_an_error";
        let job = farside::job().processes(2).deadline(Duration::from_secs(1)).ring_cap_bytes(64 << 10);
        verdict(test, job, |me| exhausts_credit(me, |_| pay_no_attention(test), || call_for_attention(test))).unwrap();
        take_notes(std::process::id(), test, 1);
    }
}

/// Worker 1 is `busy` while worker 0 sends to it. Worker 0 calls `attend` after two refusals.
fn exhausts_credit(me: &Worker, busy: impl Fn(&Worker), attend: impl Fn()) -> Result<()> {
    thread_local! {
        static OVER: Cell<bool> = const { Cell::new(false) };
    }
    set_up(me, me.neighbor(1))?;
    if me.id().number() == 1 {
        busy(me);
        let end = me.now() + limit();
        while !OVER.get() {
            assert!(me.now() < end, "worker 0 does not come to its end");
            me.progress()?;
        }
        return Ok(());
    }
    let to = me.neighbor(1);
    let refused = loop {
        if let Err(refused) = me.call(to, [0_u64; 100], |_, _| ()) {
            break refused.error;
        }
    };
    assert!(matches!(refused, Error::Deadline { .. } | Error::Full { .. }), "{refused}");
    let refused = me.shutdown(to).unwrap_err();
    assert!(matches!(refused, Error::Deadline { .. }), "{refused}");
    attend();
    // The shutdown completes as soon as worker 1 makes progress.
    let end = me.now() + limit();
    while let Err(error) = me.shutdown(to) {
        assert!(matches!(error, Error::Deadline { .. }) && me.now() < end, "{error}");
    }
    me.call(to, (), |_, ()| OVER.set(true))?;
    Ok(())
}

const PROGRAM: &str = "ways::reclaim::program";

/// Calls every worker and shuts the way down again, many times, for
/// [`sweep`](crate::faults::sweep).
#[test]
#[ignore = "a program for other tests"]
fn program() {
    let job = farside::job().processes(3);
    let verdict = job.run(|me| {
        for number in 0..200_u64 {
            for to in me.workers() {
                let answer =
                    me.call_return(to, number, |_, x| x + 1).map_err(Error::from).and_then(|answer| answer.wait());
                match answer.and_then(|answer| me.shutdown(to).map(|()| answer)) {
                    Ok(answer) => assert_eq!(answer, number + 1),
                    Err(Error::PeerLost { process, .. }) if process.number() == VICTIM => {
                        assert_eq!(me.process_of(to), process);
                    }
                    Err(other) => return Err(other),
                }
            }
        }
        assert_eq!(me.lost_processes().is_empty(), !is_victim_lost());
        report_end(PROGRAM, me);
        Ok(())
    });
    if let Err(error) = verdict {
        eprintln!("verdict: {error}");
        std::process::exit(1);
    }
}

//! The calls that a worker has queued are sent although it makes no progress.

use std::cell::Cell;
use std::time::Duration;

use farside::prelude::*;
use farside::{Error, FullCause, Result};
use farside_testbed::wait_until;

use crate::support::{call_for_attention, pay_no_attention};
use crate::ways::{arrive, new_last, over_real_fabrics, wait_for};

thread_local! {
    static ALL_HERE: Cell<bool> = const { Cell::new(false) };
}

/// Worker 0 queues more calls than the ring takes, some behind a held call. It makes no progress
/// until worker 1 has run all of them, which it learns by other means.
fn queues_and_computes(me: &Worker, test: &str, set_up: bool, held: u64) -> Result<()> {
    let (last, to) = (new_last(me)?, me.neighbor(1));
    if set_up {
        me.setup(to)?;
    }
    // More than the largest ring takes.
    let calls = 20_000;
    let done = me.synchronizer(1)?;
    let sent = me.synchronizer((calls - held) as u32)?;
    me.barrier()?;
    if me.id().number() == 1 {
        // Worker 0 finds its ring full.
        pay_no_attention(test);
        wait_for(me, last, to, calls)?;
        me.barrier()?;
        return wait_for(me, last, to, calls + 1);
    }
    let hour = me.aggregate(to).flush_within(Duration::from_secs(3600));
    (1..=held).try_for_each(|number| hour.call((last, me.id(), number), arrive))?;
    let queueing = me.to(to).when_full(WhenFull::Queue).notify(&sent, On::Sent);
    for number in held + 1..=calls {
        queueing.call((last, me.id(), number), arrive)?;
    }
    assert!(me.counters_to(to).staged_bytes_max > 0);
    call_for_attention(test);
    // Worker 1 counts this word down, so worker 0 need not make progress.
    me.to(to).when_full(WhenFull::Queue).notify(&done, On::Executed).call((), |_, ()| ALL_HERE.set(true))?;
    wait_until("queued calls are sent while their worker computes", || done.left() == 0 && sent.left() == 0);
    assert!(me.counters_to(to).helped > 0);
    me.barrier()?;
    me.call(to, (last, me.id(), calls + 1), arrive)?;
    Ok(())
}

#[test]
fn while_it_computes() {
    let test = "ways::helpers::while_it_computes";
    over_real_fabrics(test, farside::job().processes(2).queue_cap_bytes(4 << 20), |me| {
        queues_and_computes(me, test, true, 0)
    });
}

/// The ring does not even exist when the worker stops making progress.
#[test]
fn before_the_ring_stands() {
    let test = "ways::helpers::before_the_ring_stands";
    over_real_fabrics(test, farside::job().processes(2).queue_cap_bytes(4 << 20), |me| {
        queues_and_computes(me, test, false, 0)
    });
}

/// The service thread looks for room soon, although it knows of an earlier batch that may wait for
/// an hour.
#[test]
fn behind_a_held_call() {
    let test = "ways::helpers::behind_a_held_call";
    over_real_fabrics(test, farside::job().processes(2).queue_cap_bytes(4 << 20), |me| {
        queues_and_computes(me, test, true, 1)
    });
}

/// Many workers send, in turn by themselves and through the helper.
#[test]
fn calls_that_are_made_meanwhile_stay_in_order() {
    const CALLS: u64 = 3000;
    let job = farside::job().processes(3).threads_per_process(2).ring_cap_bytes(128 << 10).queue_cap_bytes(16 << 10);
    over_real_fabrics("ways::helpers::calls_that_are_made_meanwhile_stay_in_order", job, |me| {
        let last = new_last(me)?;
        me.barrier()?;
        for number in 1..=CALLS {
            for to in me.workers() {
                let call = (last, me.id(), number);
                let queued = me.to(to).when_full(WhenFull::Queue).call(call, arrive);
                match queued {
                    Err(refused)
                        if matches!(
                            refused.error,
                            Error::Full { cause: FullCause::Queue { .. } | FullCause::RingCap { .. }, .. }
                        ) =>
                    {
                        me.call(to, call, arrive)?;
                    }
                    other => other?,
                }
            }
            if number % 500 == 0 {
                // The helper may run, without progress of this worker.
                (0..100).for_each(|_| std::thread::yield_now());
            }
        }
        me.wait_while_serving(|| last.here(me).borrow().iter().all(|last| *last == CALLS))?;
        me.barrier()
    });
}

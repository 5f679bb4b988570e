//! Calls and waits at the limits that a job sets.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use farside::prelude::*;
use farside::{Error, FullCause, Result, Simulation};
use farside_testbed::{limit, wait_until};

use crate::support::{call_for_attention, has_note, pay_no_attention, set_up, take_notes, verdict, write_note};

/// An argument so large that calls soon fill a ring.
type Load = (PerWorker<Cell<u64>>, [u64; 50]);

fn count(there: &Worker, (counted, _): Load) {
    counted.here(there).set(counted.here(there).get() + 1);
}

fn full(error: &Error) -> FullCause {
    match error {
        Error::Full { cause, .. } => *cause,
        other => panic!("not full, but {other}"),
    }
}

/// Calls the other worker, which pays no attention, until a call is refused for a `wanted` cause.
fn fill(me: &Worker, when_full: WhenFull, counted: PerWorker<Cell<u64>>, wanted: fn(FullCause) -> bool) -> Result<u64> {
    let to = me.to(me.neighbor(1)).when_full(when_full);
    let mut accepted = 0;
    loop {
        match to.call((counted, [accepted; 50]), count) {
            Ok(()) => accepted += 1,
            Err(refused) => {
                assert_eq!(refused.arguments.1, [accepted; 50]);
                if wanted(full(&refused.error)) {
                    return Ok(accepted);
                }
                // The answer to a request for more memory may be on its way.
                me.progress()?;
            }
        }
        assert!(accepted < 100_000);
    }
}

/// Worker 0 fills the ring while worker 1 pays no attention. Then all calls arrive, and there is
/// room again.
fn filled_and_emptied(me: &Worker, test: &str, when_full: WhenFull, wanted: fn(FullCause) -> bool) -> Result<()> {
    let counted = PerWorker::new(me, Cell::new(0))?;
    if me.id().number() == 1 {
        me.wait_while_serving(|| counted.here(me).get() > 0)?;
        pay_no_attention(test);
        return me.barrier();
    }
    me.call(me.neighbor(1), (counted, [0; 50]), count)?;
    let accepted = fill(me, when_full, counted, wanted)?;
    call_for_attention(test);
    let arrived = me.call_return(me.neighbor(1), counted, |there, counted| counted.here(there).get());
    assert_eq!(arrived?.wait()?, 1 + accepted);
    me.to(me.neighbor(1)).when_full(when_full).call((counted, [0; 50]), count)?;
    me.barrier()
}

#[test]
fn a_ring_grows_to_the_cap_and_is_used_again() {
    let job = farside::job().processes(2).ring_cap_bytes(64 << 10);
    let test = "faults::limits::a_ring_grows_to_the_cap_and_is_used_again";
    let verdict = verdict(test, job, |me| {
        let cap = |cause| matches!(cause, FullCause::RingCap { cap_bytes } if cap_bytes == 64 << 10);
        filled_and_emptied(me, test, WhenFull::Fail, cap)?;
        // Two chunks of 4 KiB and one of 32 KiB, and no growth beyond the cap.
        assert!(me.id().number() != 0 || me.counters().sent.ring_bytes == 40 << 10);
        Ok(())
    });
    take_notes(std::process::id(), test, 1);
    verdict.unwrap();
}

#[test]
fn a_ring_is_made_however_small_the_cap() {
    let job = farside::job().processes(4).ring_cap_bytes(1 << 10);
    let verdict = verdict("faults::limits::a_ring_is_made_however_small_the_cap", job, |me| {
        let sum = PerWorker::new(me, Cell::new(0_u64))?;
        for to in me.workers() {
            for x in 0..1000_u64 {
                me.call(to, (sum, x), |there, (sum, x)| sum.here(there).set(sum.here(there).get() + x))?;
            }
            let refused = me.call(to, [0_u64; 1000], |_, _| ()).unwrap_err();
            assert!(matches!(refused.error, Error::TooLarge { max: 512, .. }), "{}", refused.error);
        }
        me.wait_while_serving(|| sum.here(me).get() == 4 * 999 * 500)?;
        me.barrier()
    });
    verdict.unwrap();
}

#[test]
fn a_call_that_the_cap_leaves_no_room_for_is_refused() {
    let job = farside::job().processes(2).ring_cap_bytes(16 << 10);
    let verdict = verdict("faults::limits::a_call_that_the_cap_leaves_no_room_for_is_refused", job, |me| {
        // Less than half of the cap, and more than the existing ring leaves of it.
        let buffer = [7; 8000];
        let to = me.to(me.neighbor(1));
        me.call_return(me.neighbor(1), (), |_, ()| ())?.wait()?;
        for when_full in [WhenFull::Retry, WhenFull::Retry, WhenFull::Fail] {
            let refused = to.when_full(when_full).call_buffer((), &buffer, |_, (), _| ()).unwrap_err();
            assert!(matches!(full(&refused.error), FullCause::RingCap { cap_bytes: 16_384 }), "{}", refused.error);
        }
        to.call_buffer((), &buffer[..3000], |_, (), _| ())?;
        me.barrier()
    });
    verdict.unwrap();
}

/// A call that was queued arrives, and calls keep their order.
#[test]
fn a_queued_call_that_the_cap_leaves_no_room_for_arrives() {
    let job = farside::job().processes(2).ring_cap_bytes(16 << 10);
    let verdict = verdict("faults::limits::a_queued_call_that_the_cap_leaves_no_room_for_arrives", job, |me| {
        let lengths = PerWorker::new(me, RefCell::new(Vec::new()))?;
        me.barrier()?;
        let wanted = [10, 8000, 20, 8000, 30];
        if me.id().number() == 0 {
            for bytes in wanted {
                let to = me.to(me.neighbor(1)).when_full(WhenFull::Queue);
                to.call_buffer(lengths, &vec![7; bytes], |there, lengths, bytes| {
                    lengths.here(there).borrow_mut().push(bytes.len());
                })?;
            }
        } else {
            me.wait_while_serving(|| lengths.here(me).borrow().len() == wanted.len())?;
            assert_eq!(*lengths.here(me).borrow(), wanted);
        }
        me.barrier()
    });
    verdict.unwrap();
}

#[test]
fn a_queue_is_bounded_and_used_again() {
    let job = farside::job().processes(2).ring_cap_bytes(16 << 10).queue_cap_bytes(8 << 10);
    let test = "faults::limits::a_queue_is_bounded_and_used_again";
    let verdict = verdict(test, job, |me| {
        filled_and_emptied(me, test, WhenFull::Queue, |cause| match cause {
            FullCause::Queue { queued_bytes } => queued_bytes <= 8 << 10,
            FullCause::RingCap { .. } => true,
            _ => false,
        })
    });
    take_notes(std::process::id(), test, 1);
    verdict.unwrap();
}

/// Every wait of worker 0 fails at the job's deadline while worker 1 is `busy`, which ends after
/// `done`.
fn every_wait_ends(me: &Worker, busy: impl Fn(&Worker), done: impl Fn()) -> Result<()> {
    thread_local! {
        static BEGUN: Cell<bool> = const { Cell::new(false) };
    }
    let other = me.neighbor(1);
    set_up(me, other)?;
    if me.id().number() == 1 {
        let sent = me.synchronizer(1)?;
        me.to(other).notify(&sent, On::Sent).call((), |_, ()| BEGUN.set(true))?;
        sent.wait_for(limit())?;
        busy(me);
        return Ok(());
    }
    me.wait_together(limit(), || BEGUN.get())?;
    let mut late = me.call_return(other, 20, |_, x| x + 1)?;
    let executed = me.synchronizer(1)?;
    me.to(other).notify(&executed, On::Executed).call((), |_, ()| ())?;
    let waits = [
        late.wait_for(Duration::from_millis(1)).map(drop),
        executed.wait_for(Duration::from_millis(1)),
        executed.wait(),
        me.call_return(other, (), |_, ()| ())?.wait(),
        me.wait_while_serving(|| false),
        me.wait_together(Duration::from_millis(1), || false),
        me.block_on(std::future::pending::<()>()),
        me.barrier(),
        me.all_reduce(1_u8, |a, _| a).map(drop),
        me.broadcast::<u8>(other, None).map(drop),
        fill_and_wait(me.to(other)),
        fill_and_wait(me.to(other).send_based()),
    ];
    for (number, result) in waits.iter().enumerate() {
        assert!(matches!(result, Err(Error::Deadline { .. })), "wait {number}: {result:?}");
    }
    done();
    // The results that missed their deadline come later.
    assert_eq!(late.wait_for(limit())?, 21);
    executed.wait_for(limit())
}

#[test]
fn every_wait_ends_at_the_deadline() {
    let simulation = Simulation::new(2, 1, 1).deadline(Duration::from_millis(500));
    let busy = |me: &Worker| me.charge(Duration::from_secs(20));
    simulation.run(|me| every_wait_ends(me, busy, || ())).unwrap().verdict.unwrap();
}

mod timing {
    use super::*;

    /// The deadline also bounds the start of the job and the attachment of a ring's memory, which
    /// take a while on a busy machine.
    #[test]
    fn every_wait_ends_at_the_deadline() {
        let test = "faults::limits::timing::every_wait_ends_at_the_deadline";
        let verdict = verdict(test, farside::job().processes(2).deadline(Duration::from_millis(500)), |me| {
            // Makes no progress until worker 0 is done.
            let busy = |_: &Worker| wait_until("the other worker is done", || has_note(test, 0));
            every_wait_ends(me, busy, || write_note(test, 0, "done"))
        });
        verdict.unwrap();
        take_notes(std::process::id(), test, 2);
    }
}

/// Calls until a call finds no room before its deadline.
fn fill_and_wait(to: farside::To<'_>) -> Result<()> {
    for number in 0.. {
        if let Err(refused) = to.call([number; 50], |_, _: [u64; 50]| ()) {
            assert_eq!(refused.arguments, [number; 50]);
            return Err(refused.error);
        }
    }
    Ok(())
}

/// A job whose calls make further calls without end is ended after its bodies have returned.
#[test]
fn a_job_without_quiescence_is_ended() {
    fn again(there: &Worker, hop: u64) {
        let sent = there.call(there.neighbor(1), hop + 1, again);
        assert!(sent.is_ok());
    }
    let job = farside::job().processes(2).finalize_deadline(Duration::from_millis(200));
    let verdict = verdict("faults::limits::a_job_without_quiescence_is_ended", job, |me| {
        Ok(me.call(me.neighbor(1), 0, again)?)
    });
    match verdict {
        Err(Error::JobEnded { why }) => {
            assert!(why.starts_with("it did not become idle within 200ms") && why.contains("process 1 "), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

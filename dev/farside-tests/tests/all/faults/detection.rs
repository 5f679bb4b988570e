//! Every wait for a process that dies ends with an error.

use std::cell::Cell;

use farside::prelude::*;
use farside::{Error, ProcessEnd, Result};
use farside_testbed::{limit, wait_until};

use crate::support::{announce_wait, failure, is_launched, see_it_wait, take_notes, verdict, write_note};

/// The number that a process adds to its own as the author of another note: that it waits.
const WAITS: u32 = 3;

thread_local! {
    /// The doomed process has said that it makes no more progress.
    static BEGUN: Cell<bool> = const { Cell::new(false) };
}

/// Runs a job of three processes. Process 1 stops making progress and then dies while the others
/// are in `wait`, which must fail.
fn is_told(test: &str, wait: impl Fn(&Worker, WorkerId) -> Result<()> + Send + Sync) {
    // A wait that misses the loss ends with another error.
    let job = farside::job().processes(3).queue_cap_bytes(64 << 10);
    let verdict = verdict(test, job, |me| {
        let doomed = WorkerId::new(1);
        if me.id() == doomed {
            let others = [0, 2].map(WorkerId::new);
            // These calls make the rings, so that later calls need no progress here.
            for other in others {
                me.call_return(other, (), |_, ()| ())?.wait()?;
            }
            for other in others {
                me.call(other, (), |_, ()| BEGUN.set(true))?;
            }
            // The others have fallen asleep in their waits.
            [WAITS, WAITS + 2].into_iter().for_each(|author| see_it_wait(test, author));
            farside_sys::process::kill_self();
        }
        me.wait_while_serving(|| BEGUN.get())?;
        announce_wait(test, WAITS + me.process().number());
        let error = wait(me, doomed).expect_err("what is waited for never comes");
        assert!(matches!(&error, Error::PeerLost { process, .. } if process.number() == 1), "{error}");
        write_note(test, me.process().number(), "told");
        Ok(())
    });
    assert_eq!(failure(verdict), (1, ProcessEnd::Killed(9)));
    let told = || Some("told".to_owned());
    let notes = take_notes(std::process::id(), test, WAITS + 3);
    assert_eq!(notes[..3], [told(), None, told()]);
}

/// An argument so large that calls soon fill a ring.
type Load = [u64; 100];

fn nothing(_: &Worker, _: Load) {}

#[test]
fn in_a_barrier() {
    is_told("faults::detection::in_a_barrier", |me, _| me.barrier());
}

#[test]
fn in_an_all_reduce() {
    is_told("faults::detection::in_an_all_reduce", |me, _| me.all_reduce(1, |a, b| a + b).map(drop));
}

#[test]
fn in_a_broadcast_from_it() {
    is_told("faults::detection::in_a_broadcast_from_it", |me, doomed| me.broadcast::<u8>(doomed, None).map(drop));
}

#[test]
fn in_a_gather() {
    is_told("faults::detection::in_a_gather", |me, _| {
        // Only the root waits.
        me.gather(WorkerId::new(0), 1_u8)?;
        me.barrier()
    });
}

#[test]
fn in_a_wait_together() {
    is_told("faults::detection::in_a_wait_together", |me, _| me.wait_together(limit(), || false));
}

#[test]
fn in_a_wait_for_a_result() {
    is_told("faults::detection::in_a_wait_for_a_result", |me, doomed| {
        me.call_return(doomed, 1_u8, |_, x| x)?.wait().map(drop)
    });
}

#[test]
fn in_a_future() {
    is_told("faults::detection::in_a_future", |me, doomed| {
        let result = me.block_on(async { me.call_return(doomed, 1_u8, |_, x| x)?.await });
        result?.map(drop)
    });
}

#[test]
fn in_a_continuation() {
    is_told("faults::detection::in_a_continuation", |me, doomed| {
        thread_local! {
            static TOLD: Cell<Option<Error>> = const { Cell::new(None) };
        }
        me.call_return(doomed, 1_u8, |_, x| x)?.then(|_, result| TOLD.set(result.err()));
        let mut told = None;
        me.wait_while_serving(|| {
            told = TOLD.take();
            told.is_some()
        })?;
        told.map_or(Ok(()), Err)
    });
}

#[test]
fn in_a_wait_for_execution() {
    is_told("faults::detection::in_a_wait_for_execution", |me, doomed| {
        let executed = me.synchronizer(1)?;
        me.to(doomed).notify(&executed, On::Executed).call((), |_, ()| ())?;
        executed.wait()
    });
}

#[test]
fn in_a_wait_for_sending() {
    is_told("faults::detection::in_a_wait_for_sending", |me, doomed| {
        // More than the ring and the queue take.
        let calls = 10_000;
        let sent = me.synchronizer(calls)?;
        let to = me.to(doomed).when_full(WhenFull::Queue).notify(&sent, On::Sent);
        for _ in 0..calls {
            if to.call([0; 100], nothing).is_err() {
                break;
            }
        }
        sent.wait()
    });
}

#[test]
fn in_a_wait_for_room_in_a_ring() {
    is_told("faults::detection::in_a_wait_for_room_in_a_ring", |me, doomed| {
        loop {
            me.call(doomed, [0; 100], nothing)?;
        }
    });
}

#[test]
fn in_a_wait_for_room_in_a_shared_ring() {
    is_told("faults::detection::in_a_wait_for_room_in_a_shared_ring", |me, doomed| {
        loop {
            me.to(doomed).send_based().call([0; 100], nothing)?;
        }
    });
}

/// After the loss every call fails at once, in every form, and no reply slot or latch leaks.
#[test]
fn and_at_every_later_call() {
    is_told("faults::detection::and_at_every_later_call", |me, doomed| {
        me.wait_while_serving(|| me.lost_processes() == [doomed].map(|worker| me.process_of(worker)))?;
        let lost = |result: Result<()>| assert!(matches!(result, Err(Error::PeerLost { .. })), "{result:?}");
        for _ in 0..2000 {
            lost(me.call(doomed, 1_u8, |_, _| ()).map_err(Error::from));
            lost(me.aggregate(doomed).call(1_u8, |_, _| ()).map_err(Error::from));
            lost(me.to(doomed).when_full(WhenFull::Queue).call(1_u8, |_, _| ()).map_err(Error::from));
            lost(me.to(doomed).send_based().call(1_u8, |_, _| ()).map_err(Error::from));
            lost(me.call_buffer(doomed, 1_u8, b"buffer", |_, _, _| ()).map_err(Error::from));
            lost(me.call_return(doomed, 1_u8, |_, x| x).map(drop).map_err(Error::from));
        }
        assert_eq!(me.counters().replies_pending, 0);
        me.barrier()
    });
}

/// The calls that a process published before it died run before any worker learns of its death.
#[test]
fn and_not_before_its_last_calls_have_run() {
    const CALLS: u64 = 10_000;
    thread_local! {
        static RUN: Cell<u64> = const { Cell::new(0) };
    }
    let test = "faults::detection::and_not_before_its_last_calls_have_run";
    let verdict = verdict(test, farside::job().processes(3), |me| {
        me.barrier()?;
        if me.id().number() == 1 {
            for number in 1..=CALLS {
                for to in [0, 2].map(WorkerId::new) {
                    me.call(to, number, |_, number| {
                        assert_eq!(RUN.get() + 1, number);
                        RUN.set(number);
                    })?;
                }
            }
            farside_sys::process::kill_self();
        }
        let mut told = me.barrier();
        if me.id().number() == 0 {
            // The second barrier fails as well, when the loss is known.
            wait_until("the loss is known", || !me.lost_processes().is_empty());
            told = me.barrier();
        }
        assert!(matches!(told, Err(Error::PeerLost { .. })), "{told:?}");
        assert_eq!(RUN.get(), CALLS);
        write_note(test, me.process().number(), "told");
        Ok(())
    });
    assert!(!is_launched());
    assert_eq!(failure(verdict), (1, ProcessEnd::Killed(9)));
    let told = || Some("told".to_owned());
    assert_eq!(take_notes(std::process::id(), test, 3), [told(), None, told()]);
}

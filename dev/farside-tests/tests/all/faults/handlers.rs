//! Called functions that panic or wait, and functions that cannot be called.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use farside::prelude::*;
use farside::{Error, ProcessEnd, Result};
use farside_testbed::limit;

use crate::support::{announce_wait, failure, see_it_wait, take_notes, verdict, write_note};

/// Runs a job in which worker 0 uses `call` to run a function on worker 1 that panics with "so it
/// goes". The job must fail with that message and the name of the caller. The others must learn
/// that process 1 is lost.
fn panics(test: &str, caller: &str, call: impl Fn(&Worker, WorkerId) -> Result<()> + Send + Sync) {
    let verdict = verdict(test, farside::job().processes(3), |me| {
        let mut told = me.barrier();
        if me.id().number() == 0 {
            call(me, WorkerId::new(1))?;
        }
        // Worker 2 may still be in the barrier when process 1 is lost.
        told = told.and_then(|()| me.wait_together(limit(), || false));
        if me.id().number() != 1 {
            assert!(matches!(&told, Err(Error::PeerLost { process, .. }) if process.number() == 1), "{told:?}");
            write_note(test, me.process().number(), "told");
            return Ok(());
        }
        told
    });
    let (process, how) = failure(verdict);
    let why = format!("worker 1: a function that {caller} called here panicked: so it goes");
    assert_eq!((process, how), (1, ProcessEnd::Reported(why)));
    let told = || Some("told".to_owned());
    assert_eq!(take_notes(std::process::id(), test, 3), [told(), None, told()]);
}

#[test]
fn a_panic_in_a_call_ends_the_job() {
    panics("faults::handlers::a_panic_in_a_call_ends_the_job", "worker 0", |me, to| {
        Ok(me.call(to, "it goes".to_owned(), |_, what| panic!("so {what}"))?)
    });
}

#[test]
fn a_panic_in_a_call_on_a_shared_ring_ends_the_job() {
    panics("faults::handlers::a_panic_in_a_call_on_a_shared_ring_ends_the_job", "process 0", |me, to| {
        Ok(me.to(to).send_based().call((), |_, ()| panic!("so it goes"))?)
    });
}

#[test]
fn a_panic_in_a_call_with_a_buffer_ends_the_job() {
    panics("faults::handlers::a_panic_in_a_call_with_a_buffer_ends_the_job", "worker 0", |me, to| {
        Ok(me.call_buffer(to, (), b"so it goes", |_, (), buffer| panic!("{}", String::from_utf8_lossy(buffer)))?)
    });
}

#[test]
fn a_panic_in_a_notified_call_ends_the_job() {
    panics("faults::handlers::a_panic_in_a_notified_call_ends_the_job", "worker 0", |me, to| {
        let executed = me.synchronizer(1)?;
        me.to(to).notify(&executed, On::Executed).call((), |_, ()| panic!("so it goes"))?;
        match executed.wait() {
            Err(Error::PeerLost { .. }) => Ok(()),
            other => panic!("it was not executed: {other:?}"),
        }
    });
}

#[test]
fn a_panic_in_a_continuation_ends_the_job() {
    // The continuation runs on the worker that waited for the result, which made the call itself.
    panics("faults::handlers::a_panic_in_a_continuation_ends_the_job", "worker 1", |me, to| {
        Ok(me.call(to, (), |there, ()| {
            let pending = there.call_return(there.neighbor(1), (), |_, ()| ()).expect("there is room");
            pending.then(|_, _| panic!("so it goes"));
        })?)
    });
}

#[test]
fn a_panic_after_the_body_ends_the_job() {
    let test = "faults::handlers::a_panic_after_the_body_ends_the_job";
    let verdict = verdict(test, farside::job().processes(2), |me| {
        if me.id().number() == 0 {
            // The other worker has returned from its body.
            see_it_wait(test, 1);
            me.call(me.neighbor(1), (), |_, ()| panic!("so it goes"))?;
        } else {
            announce_wait(test, 1);
        }
        Ok(())
    });
    take_notes(std::process::id(), test, 2);
    let why = "worker 1: a function that worker 0 called here panicked: so it goes".to_owned();
    assert_eq!(failure(verdict), (1, ProcessEnd::Reported(why)));
}

/// Every form of a call whose caller gets no result reports an error of its function.
#[test]
fn an_error_of_a_function_without_a_caller_is_reported() {
    type Form = fn(&Worker, WorkerId) -> Result<()>;
    type Fails = Result<(), &'static str>;
    let forms: [(&str, Form); 9] = [
        ("call", |me, to| Ok(me.call(to, (), |_, ()| -> Fails { Err("so it goes") })?)),
        ("remote", |me, to| Ok(me.to(to).call_remote((), farside::remote!(|_, (): ()| Fails::Err("so it goes")))?)),
        ("shared ring", |me, to| Ok(me.to(to).send_based().call((), |_, ()| -> Fails { Err("so it goes") })?)),
        ("aggregated", |me, to| Ok(me.aggregate(to).call((), |_, ()| -> Fails { Err("so it goes") })?)),
        ("counted", |me, to| {
            let executed = me.synchronizer(1)?;
            me.to(to).notify(&executed, On::Executed).call((), |_, ()| -> Fails { Err("so it goes") })?;
            executed.wait()
        }),
        ("buffer", |me, to| Ok(me.call_buffer(to, (), b"so", |_, (), _| -> Fails { Err("so it goes") })?)),
        ("put", |me, to| {
            let place = (me.allocate_at(to, 8)?, 0);
            Ok(me.to(to).call_buffer_put((), b"so", place, |_, ((), _)| -> Fails { Err("so it goes") })?)
        }),
        ("get", |me, to| {
            let lent = me.to(to).call_buffer_get((), me.allocate(8)?, |_, (), _| -> Fails { Err("so it goes") });
            lent.map_err(Error::from)?.wait().map(drop)
        }),
        ("everyone", |me, _| Ok(me.everyone().call((), |_, ()| -> Fails { Err("so it goes") })?)),
    ];
    for (name, form) in forms {
        let verdict = farside::simulate(2, 1, 5, |me| {
            if me.id().number() == 0 {
                form(me, WorkerId::new(1))?;
            }
            me.barrier()
        });
        let error = verdict.expect_err(name).to_string();
        assert!(error.contains(" called here failed: so it goes"), "{name}: {error}");
    }
    // Other results are dropped.
    farside::simulate(2, 1, 5, |me| {
        me.call(me.neighbor(1), 7, |_, x: u64| Ok::<_, String>(Some(x)))?;
        Ok(me.call(me.neighbor(1), 7, |_, x: u64| x)?)
    })
    .unwrap();
}

/// A wait that fails for another reason leaves the result, which can be waited for again.
#[farside::test(processes = 2, threads = 1)]
fn a_result_outlives_a_wait_that_fails(me: &Worker) -> Result<()> {
    let kept = PerWorker::new(me, Cell::new(None::<Reply<u32>>))?;
    if me.id().number() == 1 {
        let peer = me.neighbor(1);
        let mut pending = me.call_with_reply(peer, kept, |there, kept, reply| {
            kept.here(there).set(Some(reply));
            there.call(there.neighbor(1), (), |_, ()| panic!("in the way")).expect("it is queued at least");
        })?;
        let ended = pending.wait_for(limit());
        assert!(matches!(&ended, Err(Error::HandlerPanicked { .. })), "{ended:?}");
        me.call(peer, kept, |there, kept| kept.here(there).take().expect("it is kept").send(42))?;
        assert_eq!(pending.wait()?, 42);
        assert_eq!(me.counters().replies_pending, 0);
    }
    me.barrier()
}

/// The panic of a call with a result is its answer. The panic of another call is an error that the
/// worker may ignore: later calls still run.
#[farside::test(processes = 2, threads = 1)]
fn calls_behind_a_panic_run(me: &Worker) -> Result<()> {
    let seen = PerWorker::new(me, RefCell::new(Vec::new()))?;
    let awaited = PerWorker::new(me, Cell::new(false))?;
    if me.id().number() == 0 {
        me.wait_while_serving(|| awaited.here(me).get())?;
        for number in 0..100_u32 {
            me.call(me.neighbor(1), (seen, number), |there, (seen, number)| {
                seen.here(there).borrow_mut().push(number);
                assert!(number % 10 != 5, "number {number}");
            })?;
        }
    } else {
        me.call(me.neighbor(1), awaited, |there, awaited| awaited.here(there).set(true))?;
        let mut panics = 0;
        while seen.here(me).borrow().len() < 100 || panics < 10 {
            match me.progress() {
                Ok(_) => {}
                Err(Error::HandlerPanicked { from: farside::Source::Worker(from), message }) => {
                    assert_eq!((from, message), (me.neighbor(1), format!("number {}", panics * 10 + 5)));
                    panics += 1;
                }
                Err(other) => return Err(other),
            }
        }
        assert_eq!(*seen.here(me).borrow(), (0..100).collect::<Vec<_>>());
    }
    me.barrier()
}

#[farside::test(processes = 2, threads = 1)]
fn nothing_waits_in_a_handler(me: &Worker) -> Result<()> {
    let state = PerWorker::new(me, ())?;
    let refused = me.call_return(me.neighbor(1), state, |there, _| {
        let is_refused = |result: Result<()>| matches!(result, Err(Error::InHandler { .. }));
        let synchronizer = there.synchronizer(1).unwrap();
        // The worker does not read its own ring now, and a handler may not wait for room in it.
        let mut waited_for_room = Ok(());
        for _ in 0..5000 {
            waited_for_room = there.to(there.id()).when_full(WhenFull::Retry).call([0_u64; 100], |_, _| ());
            if waited_for_room.is_err() {
                break;
            }
        }
        let mut waited_for_shared_ring = Ok(());
        for _ in 0..5000 {
            waited_for_shared_ring =
                there.to(there.id()).when_full(WhenFull::Retry).send_based().call([0_u64; 100], |_, _| ());
            if waited_for_shared_ring.is_err() {
                break;
            }
        }
        [
            is_refused(there.wait_while_serving(|| true)),
            is_refused(there.wait_together(Duration::ZERO, || true)),
            is_refused(there.block_on(async {})),
            is_refused(synchronizer.wait()),
            is_refused(synchronizer.wait_for(Duration::ZERO)),
            is_refused(there.broadcast(there.id(), Some(1_u8)).map(drop)),
            is_refused(there.gather(there.id(), 1_u8).map(drop)),
            is_refused(there.all_reduce(1_u8, |a, _| a).map(drop)),
            is_refused(PerWorker::new(there, 0_u8).map(drop)),
            is_refused(waited_for_room.map_err(Error::from)),
            is_refused(waited_for_shared_ring.map_err(Error::from)),
        ]
    })?;
    assert_eq!(refused.wait()?, [true; 11]);
    me.barrier()
}

unsafe extern "C" {
    fn getpid() -> i32;
}

/// A function of a dynamic library is not part of the text that all processes share.
#[farside::test(processes = 1, threads = 1)]
fn functions_of_libraries_are_refused(me: &Worker) -> Result<()> {
    let foreign: unsafe extern "C" fn() -> i32 = getpid;
    // SAFETY: both types are code addresses of the same size, and this one is never called: the
    // library refuses to name it.
    let foreign: fn(&Worker, ()) = unsafe { std::mem::transmute(foreign) };
    let refused = me.call(me.id(), (), foreign).unwrap_err();
    let address = foreign as usize;
    assert!(
        matches!(refused.error, Error::ForeignFunction { address: found } if found == address),
        "{}",
        refused.error
    );
    assert_eq!(me.counters().executed, 0);
    Ok(())
}

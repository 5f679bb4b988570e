//! Limits on calls and on the bytes that a server holds for them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use farside_rpc::bulk::{Bulk, Read};
use farside_rpc::server::Builder;
use farside_rpc::{CallError, Client, Handling, Never, Ran, Service};

use farside_testbed::wait_until;

use crate::{connect, credentials, everywhere};

/// Handlers that wait until the door is open; `length` waits with its arguments, `make` returns as
/// many bytes as the caller asks for.
fn held(door: &'static AtomicBool, running: &'static AtomicU32) -> Service {
    let wait = || wait_until("the door opens", || door.load(Ordering::Relaxed));
    Service::new("held")
        .procedure("length", Handling::Pooled, move |_, bytes: Vec<u8>| {
            running.fetch_add(1, Ordering::Relaxed);
            wait();
            Ok::<_, Never>(bytes.len() as u64)
        })
        .procedure("make", Handling::Inline, |_, bytes: u64| Ok::<_, Never>(Bulk::from(vec![1_u8; bytes as usize])))
}

fn busy<T: std::fmt::Debug>(called: Result<T, CallError<Never>>, limit: u64, what: &str) {
    let error = called.unwrap_err();
    assert_eq!(error, CallError::Busy { limit, what: what.into() });
    assert_eq!(error.ran(), Ran::No);
}

#[test]
fn a_call_beyond_the_limit_is_refused_at_once() {
    static DOOR: AtomicBool = AtomicBool::new(false);
    static RUNNING: AtomicU32 = AtomicU32::new(0);
    let serve = |builder: Builder| builder.provider(0, held(&DOOR, &RUNNING)).max_calls(3);
    everywhere(serve, |client| {
        DOOR.store(false, Ordering::Relaxed);
        let length = client.procedure::<Vec<u8>, u64, Never>("held", 0, "length");
        let calls = [1, 2, 3].map(|bytes| length.start(&vec![0; bytes]).unwrap());
        busy(length.call(&vec![]), 3, "calls of one connection");
        DOOR.store(true, Ordering::Relaxed);
        assert_eq!(calls.map(|call| call.wait().unwrap()), [1, 2, 3]);
        assert_eq!(length.call(&vec![]), Ok(0));
    });
}

/// Arguments in the queue count, long ones when they are fetched, and those of all connections.
#[test]
fn arguments_beyond_the_limit_on_bytes_are_refused() {
    static DOOR: AtomicBool = AtomicBool::new(false);
    static RUNNING: AtomicU32 = AtomicU32::new(0);
    let serve = |builder: Builder| {
        builder.provider(0, held(&DOOR, &RUNNING)).max_connection_bytes(200_000).max_total_bytes(250_000)
    };
    everywhere(serve, |client| {
        DOOR.store(false, Ordering::Relaxed);
        RUNNING.store(0, Ordering::Relaxed);
        let length = |client: &Client| client.procedure::<Vec<u8>, u64, Never>("held", 0, "length");
        let first = [90_000, 90_000].map(|bytes| length(client).start(&vec![0; bytes]).unwrap());
        // Their handlers run, so their long arguments have been fetched.
        wait_until("the calls run", || RUNNING.load(Ordering::Relaxed) >= 2);
        busy(length(client).call(&vec![0; 30_000]), 200_000, "bytes of calls of one connection");
        let other = connect(client.address().to_string(), credentials());
        let second = length(&other).start(&vec![0; 50_000]).unwrap();
        let third = length(&other).start(&vec![0; 50_000]).unwrap();
        busy(third.wait(), 250_000, "bytes of calls");
        // What looks after a server is answered.
        assert_eq!(other.ping(1), Ok(1));
        DOOR.store(true, Ordering::Relaxed);
        assert_eq!(first.map(|call| call.wait().unwrap()), [90_000, 90_000]);
        assert_eq!(second.wait(), Ok(50_000));
        let error = length(&other).call(&vec![0; 200_001]).unwrap_err();
        assert!(matches!(error, CallError::TooLarge { max: 200_000, .. }), "{error}");
    });
}

#[test]
fn results_that_are_not_taken_count() {
    static DOOR: AtomicBool = AtomicBool::new(true);
    static RUNNING: AtomicU32 = AtomicU32::new(0);
    let serve = |builder: Builder| builder.provider(0, held(&DOOR, &RUNNING)).max_connection_bytes(100_000);
    everywhere(serve, |client| {
        let make = client.procedure::<u64, Bulk<Read>, Never>("held", 0, "make");
        let first = make.call(&60_000).unwrap();
        // It has run before its result is too large.
        let second = make.call(&60_000).unwrap();
        busy(make.call(&1), 100_000, "bytes of calls of one connection");
        assert_eq!((first.pull_all().unwrap().len(), second.bytes()), (60_000, 60_000));
        drop(first);
        wait_until("the bytes come back", || make.call(&1).is_ok());
    });
}

//! One-way calls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use farside_rpc::bulk::{Bulk, Read};
use farside_rpc::server::Builder;
use farside_rpc::{CallError, Handling, Never, Service, Stage};

use farside_testbed::wait_until;

use crate::{everywhere, paths, start};

/// Adds what it is sent.
fn sum(sum: &'static AtomicU64) -> impl Fn(Builder) -> Builder {
    move |builder| {
        let add = |number| {
            sum.fetch_add(number, Ordering::Relaxed);
            Ok::<_, Never>(())
        };
        let service = Service::new("sum")
            .procedure("add", Handling::Pooled, move |_, number: u64| add(number))
            .procedure("add-inline", Handling::Inline, move |_, number: u64| add(number))
            .procedure("add-bytes", Handling::Pooled, move |_, bytes: Vec<u8>| add(bytes.len() as u64))
            .procedure("add-memory", Handling::Pooled, move |_, memory: Bulk<Read>| {
                add(memory.pull_all().expect("the caller has not ended").len() as u64)
            })
            .procedure("panic", Handling::Pooled, |_, (): ()| -> Result<(), Never> { panic!("one more") });
        builder.provider(0, service)
    }
}

#[test]
fn all_one_way_calls_run() {
    static SUM: AtomicU64 = AtomicU64::new(0);
    everywhere(sum(&SUM), |client| {
        // More than a server allows for one connection.
        const CALLS: u64 = 2000;
        for name in ["add", "add-inline"] {
            SUM.store(0, Ordering::Relaxed);
            let add = client.procedure::<u64, (), Never>("sum", 0, name);
            for number in 0..CALLS {
                add.send(&number).unwrap();
            }
            assert_eq!(client.flush(), Ok(0));
            assert_eq!(SUM.load(Ordering::Relaxed), CALLS * (CALLS - 1) / 2);
        }
        assert_eq!(client.flush(), Ok(0));
    });
}

#[test]
fn threads_send_beside_other_calls() {
    static SUM: AtomicU64 = AtomicU64::new(0);
    everywhere(sum(&SUM), |client| {
        SUM.store(0, Ordering::Relaxed);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    let add = client.procedure::<u64, (), Never>("sum", 0, "add");
                    for number in 0..500 {
                        if thread % 2 == 0 || number % 10 == 0 {
                            add.send(&1).unwrap();
                        } else {
                            assert_eq!(add.call(&1), Ok(()));
                        }
                    }
                    assert_eq!(client.flush(), Ok(0));
                });
            }
        });
        assert_eq!(SUM.load(Ordering::Relaxed), 2000);
    });
}

#[test]
fn long_arguments_and_memory_stay_until_a_one_way_call_ends() {
    static SUM: AtomicU64 = AtomicU64::new(0);
    everywhere(sum(&SUM), |client| {
        SUM.store(0, Ordering::Relaxed);
        let bytes = client.procedure::<Vec<u8>, (), Never>("sum", 0, "add-bytes");
        let memory = client.procedure::<Bulk<Read>, (), Never>("sum", 0, "add-memory");
        for _ in 0..20 {
            bytes.send(&vec![1; 300_000]).unwrap();
            memory.send(&vec![1; 300_000].into()).unwrap();
        }
        assert_eq!(client.flush(), Ok(0));
        assert_eq!(SUM.load(Ordering::Relaxed), 40 * 300_000);
    });
}

#[test]
fn failures_are_counted() {
    static SUM: AtomicU64 = AtomicU64::new(0);
    everywhere(sum(&SUM), |client| {
        let (panic, add) = (client.procedure("sum", 0, "panic"), client.procedure("sum", 0, "add"));
        for number in 0..5_u64 {
            panic.send(&()).unwrap();
            add.send(&number).unwrap();
        }
        assert_eq!(client.flush(), Ok(5));
        assert_eq!(client.flush(), Ok(0));
        // What cannot be sent fails at once.
        let error = client.procedure::<u8, (), Never>("sum", 0, "subtract").send(&1).unwrap_err();
        assert!(matches!(error, CallError::Unknown { .. }), "{error}");
    });
}

/// A handler that waits to be released.
fn gate(is_open: &'static AtomicBool) -> impl Fn(Builder) -> Builder {
    move |builder| {
        let service = Service::new("gate").procedure("wait", Handling::Pooled, |_, (): ()| {
            wait_until("the gate opens", || is_open.load(Ordering::Relaxed));
            Ok::<_, Never>(())
        });
        builder.provider(0, service).max_calls(5)
    }
}

#[test]
fn sending_waits_when_too_many_calls_are_under_way() {
    static IS_OPEN: AtomicBool = AtomicBool::new(false);
    everywhere(gate(&IS_OPEN), |client| {
        IS_OPEN.store(false, Ordering::Relaxed);
        let wait = client.procedure::<(), (), Never>("gate", 0, "wait");
        for _ in 0..4 {
            wait.send(&()).unwrap();
        }
        let hasty = client.deadline(Duration::from_millis(20));
        let error = hasty.procedure::<(), (), Never>("gate", 0, "wait").send(&()).unwrap_err();
        assert_eq!(error, CallError::Deadline { stage: Stage::Sending });
        assert_eq!(hasty.flush(), Err(CallError::Deadline { stage: Stage::Waiting }));
        IS_OPEN.store(true, Ordering::Relaxed);
        for _ in 0..40 {
            wait.send(&()).unwrap();
        }
        assert_eq!(client.flush(), Ok(0));
    });
}

#[test]
fn one_way_calls_are_lost_with_their_server() {
    static IS_OPEN: AtomicBool = AtomicBool::new(false);
    for address in paths() {
        IS_OPEN.store(false, Ordering::Relaxed);
        let (server, client) = start(address, |builder| gate(&IS_OPEN)(builder.pool(1)));
        let wait = client.procedure::<(), (), Never>("gate", 0, "wait");
        for _ in 0..3 {
            wait.send(&()).unwrap();
        }
        // The server has accepted them now.
        assert_eq!(client.ping(1), Ok(1));
        drop(server);
        assert_eq!(client.flush(), Ok(3));
        IS_OPEN.store(true, Ordering::Relaxed);
    }
}

/// Calls that do not fit into the connection's buffers, and ones whose arguments the server
/// fetches, go on although the client does nothing more.
#[test]
fn one_way_calls_go_on_by_themselves() {
    static SUM: AtomicU64 = AtomicU64::new(0);
    static MAY_RUN: AtomicBool = AtomicBool::new(false);
    let serve = |builder: Builder| {
        let add = |bytes: u64| {
            wait_until("the calls may run", || MAY_RUN.load(Ordering::Relaxed));
            SUM.fetch_add(bytes, Ordering::Relaxed);
            Ok::<_, Never>(())
        };
        let service = Service::new("sum")
            .procedure("inline", Handling::Inline, move |_, bytes: Vec<u8>| add(bytes.len() as u64))
            .procedure("memory", Handling::Pooled, move |_, memory: Bulk<Read>| {
                add(memory.pull_all().expect("the caller has not ended").len() as u64)
            });
        builder.provider(0, service)
    };
    let wait_for = |sum| wait_until("the calls go on", || SUM.load(Ordering::Relaxed) >= sum);
    everywhere(serve, |client| {
        SUM.store(0, Ordering::Relaxed);
        MAY_RUN.store(false, Ordering::Relaxed);
        // The receiving thread of the server is held up, until the buffers are full.
        let inline = client.procedure::<Vec<u8>, (), Never>("sum", 0, "inline");
        let bytes = vec![1; 60_000];
        (0..200).for_each(|_| inline.send(&bytes).unwrap());
        MAY_RUN.store(true, Ordering::Relaxed);
        wait_for(200 * 60_000);
        let memory = client.procedure::<Bulk<Read>, (), Never>("sum", 0, "memory");
        (0..3).for_each(|_| memory.send(&vec![1; 3_000_000].into()).unwrap());
        wait_for(200 * 60_000 + 9_000_000);
        assert_eq!(client.flush(), Ok(0));
    });
}

//! Calls, their errors, and what the built-in service answers.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use farside_rpc::server::Builder;
use farside_rpc::{CallError, Credentials, Handling, LinkEnd, Never, Ran, Server, Service, Signature, Stub};

use farside_testbed::{deadline, wait_until};

use crate::{connect, everywhere, hold_until_cancelled, near, paths, start, unique};

/// Adds numbers, in both handlings.
fn arithmetic() -> Service {
    let add = |_: &farside_rpc::Call, (a, b): (u64, u64)| a.checked_add(b).ok_or_else(|| "too large".to_string());
    Service::new("arithmetic")
        .procedure("add", Handling::Pooled, add)
        .procedure("add-inline", Handling::Inline, add)
        .procedure("reverse", Handling::Pooled, |_, mut bytes: Vec<u8>| {
            bytes.reverse();
            Ok::<_, Never>(bytes)
        })
        .procedure("panic", Handling::Pooled, |_, text: String| -> Result<(), Never> { panic!("{text}") })
        .procedure("panic-inline", Handling::Inline, |_, text: String| -> Result<(), Never> { panic!("{text}") })
}

fn with_arithmetic(builder: Builder) -> Builder {
    builder.provider(0, arithmetic())
}

#[test]
fn results_and_errors_of_a_service_travel() {
    everywhere(with_arithmetic, |client| {
        for name in ["add", "add-inline"] {
            let add = client.procedure::<(u64, u64), u64, String>("arithmetic", 0, name);
            for number in 0..100 {
                assert_eq!(add.call(&(number, 1)), Ok(number + 1));
            }
            assert_eq!(add.call(&(u64::MAX, 1)), Err(CallError::Service("too large".into())));
        }
    });
}

#[test]
fn many_calls_of_many_threads_are_under_way() {
    everywhere(with_arithmetic, |client| {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    let add = client.procedure::<(u64, u64), u64, String>("arithmetic", 0, "add");
                    // Together as many as a server allows for one connection.
                    let calls: Vec<_> = (0..64).map(|number| add.start(&(thread, number)).unwrap()).collect();
                    for (number, call) in (0..).zip(calls) {
                        assert_eq!(call.wait(), Ok(thread + number));
                    }
                });
            }
        });
    });
}

/// Sizes around those at which arguments and results leave the frame.
#[test]
fn arguments_and_results_of_any_size_travel() {
    everywhere(with_arithmetic, |client| {
        let reverse = client.procedure::<Vec<u8>, Vec<u8>, Never>("arithmetic", 0, "reverse");
        for bytes in [0, 1, 4095, 65_536, 66_551, 66_552, 66_553, 1 << 20, (5 << 20) + 1] {
            let sent: Vec<u8> = (0..bytes).map(|index: u32| (index % 251) as u8).collect();
            let mut received = reverse.call(&sent).unwrap();
            received.reverse();
            assert!(received == sent, "{bytes} bytes");
        }
    });
}

#[test]
fn a_panic_is_an_answer() {
    everywhere(with_arithmetic, |client| {
        for name in ["panic", "panic-inline"] {
            let panic = client.procedure::<String, (), Never>("arithmetic", 0, name);
            let error = panic.call(&"no such luck".into()).unwrap_err();
            assert_eq!(error, CallError::Panicked("no such luck".into()));
            assert_eq!(error.ran(), Ran::Maybe);
        }
        assert_eq!(client.ping(7), Ok(7));
    });
}

#[test]
fn names_and_types_that_differ_are_refused() {
    everywhere(with_arithmetic, |client| {
        let error = client.procedure::<u64, u64, Never>("geometry", 0, "area").call(&1).unwrap_err();
        assert!(error.to_string().contains("arithmetic (provider 0)"), "{error}");
        let error = client.procedure::<u64, u64, Never>("arithmetic", 0, "subtract").call(&1).unwrap_err();
        assert!(error.to_string().contains("add, add-inline, reverse"), "{error}");
        let error = client.procedure::<(u64, u64), u64, String>("arithmetic", 9, "add").call(&(1, 2)).unwrap_err();
        assert!(matches!(error, CallError::Unknown { .. }), "{error}");
        // To ask for the number of a procedure may take more bytes than a frame has.
        let long = client.procedure::<(), (), Never>("numbers", 0, &"x".repeat(200_000));
        let error = long.call(&()).unwrap_err();
        assert!(matches!(error, CallError::Unknown { .. }), "{error}");
        let error = client.procedure::<(u64, u32), u64, String>("arithmetic", 0, "add").call(&(1, 2)).unwrap_err();
        assert_eq!(error.ran(), Ran::No);
        let text = error.to_string();
        assert!(text.contains("( u64 u32 )") && text.contains("( u64 u64 )"), "{text}");
    });
}

#[test]
fn arguments_beyond_the_limit_are_refused() {
    let limited = |builder: Builder| with_arithmetic(builder).max_bytes(100_000);
    everywhere(limited, |client| {
        let reverse = client.procedure::<Vec<u8>, Vec<u8>, Never>("arithmetic", 0, "reverse");
        assert_eq!(reverse.call(&vec![1; 90_000]).unwrap().len(), 90_000);
        let error = reverse.call(&vec![1; 100_001]).unwrap_err();
        assert!(matches!(error, CallError::TooLarge { max: 100_000, .. }), "{error}");
    });
}

/// A service whose handler runs until its call is cancelled and `may_end` is set: no answer
/// overtakes the client's clock.
fn patience(runs: &'static AtomicU32, was_told: &'static AtomicU32, may_end: &'static AtomicBool) -> Service {
    Service::new("patience").procedure("wait", Handling::Pooled, |call, (): ()| {
        runs.fetch_add(1, Ordering::Relaxed);
        hold_until_cancelled(call);
        was_told.fetch_add(1, Ordering::Relaxed);
        wait_until("the handler may end", || may_end.load(Ordering::Relaxed));
        Ok::<_, Never>(())
    })
}

/// Waits until a counter has changed.
#[track_caller]
fn wait_for(counter: &AtomicU32, before: u32) {
    wait_until("the counter changes", || counter.load(Ordering::Relaxed) != before);
}

#[test]
fn a_call_beyond_its_deadline_is_cancelled_at_the_server() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    static WAS_TOLD: AtomicU32 = AtomicU32::new(0);
    static MAY_END: AtomicBool = AtomicBool::new(false);
    let serve = |builder: Builder| builder.provider(0, patience(&RUNS, &WAS_TOLD, &MAY_END));
    everywhere(serve, |client| {
        MAY_END.store(false, Ordering::Relaxed);
        let hasty = client.deadline(Duration::from_millis(50));
        let error = hasty.procedure::<(), (), Never>("patience", 0, "wait").call(&()).unwrap_err();
        assert!(matches!(error, CallError::Deadline { .. }), "{error}");
        MAY_END.store(true, Ordering::Relaxed);
        let wait = client.procedure::<(), (), Never>("patience", 0, "wait");
        let (runs, told) = (RUNS.load(Ordering::Relaxed), WAS_TOLD.load(Ordering::Relaxed));
        let pending = wait.start(&()).unwrap();
        wait_for(&RUNS, runs);
        drop(pending);
        wait_for(&WAS_TOLD, told);
    });
}

/// A handler waits for a call of its own, in one of two ways, when its caller cancels. Both
/// handlers hear of it, long before the deadline.
#[test]
fn cancelling_reaches_the_calls_of_a_handler() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    static WAS_TOLD: AtomicU32 = AtomicU32::new(0);
    static ENDED: AtomicU32 = AtomicU32::new(0);
    fn end<T, E>(result: Result<T, CallError<E>>) -> Result<(), Never> {
        assert!(matches!(result, Err(CallError::Cancelled)));
        ENDED.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    static MAY_END: AtomicBool = AtomicBool::new(true);
    let serve = |builder: Builder| builder.provider(0, patience(&RUNS, &WAS_TOLD, &MAY_END));
    everywhere(serve, |inner| {
        let [call, start] = [(); 2].map(|()| inner.procedure::<(), (), Never>("patience", 0, "wait"));
        let outer = Service::new("outer")
            .procedure("call", Handling::Pooled, move |_, (): ()| end(call.call(&())))
            .procedure("start", Handling::Pooled, move |_, (): ()| end(start.start(&()).unwrap().wait()));
        let (server, client) = crate::start(near(), |builder| builder.provider(0, outer));
        for way in ["call", "start"] {
            let [runs, told, ended] = [&RUNS, &WAS_TOLD, &ENDED].map(|count| count.load(Ordering::Relaxed));
            let pending = client.procedure::<(), (), Never>("outer", 0, way).start(&()).unwrap();
            wait_for(&RUNS, runs);
            drop(pending);
            wait_for(&ENDED, ended);
            wait_for(&WAS_TOLD, told);
        }
        drop(server);
    });
}

/// One handler holds the only thread; the next call expires in the queue.
#[test]
fn a_call_that_expired_in_a_queue_does_not_run() {
    static HELD: Barrier = Barrier::new(2);
    static RAN: AtomicBool = AtomicBool::new(false);
    let service = Service::new("queue")
        .procedure("hold", Handling::Pooled, |_, (): ()| {
            HELD.wait();
            HELD.wait();
            Ok::<_, Never>(())
        })
        .procedure("run", Handling::Pooled, |_, (): ()| {
            RAN.store(true, Ordering::Relaxed);
            Ok::<_, Never>(())
        })
        .procedure("pass", Handling::Pooled, |_, (): ()| Ok::<_, Never>(()));
    let (server, client) = start(near(), |builder| builder.provider(0, service).pool(1));
    let hold = client.procedure::<(), (), Never>("queue", 0, "hold").start(&()).unwrap();
    HELD.wait();
    let hasty = client.deadline(Duration::from_millis(20));
    let error = hasty.procedure::<(), (), Never>("queue", 0, "run").call(&()).unwrap_err();
    assert!(matches!(error, CallError::Deadline { .. }), "{error}");
    // The server reads frames in order, so it knows by now that the call is over.
    assert_eq!(client.ping(1), Ok(1));
    HELD.wait();
    assert_eq!(hold.wait(), Ok(()));
    // The only thread takes calls in order, so it has passed that call by.
    assert_eq!(client.procedure::<(), (), Never>("queue", 0, "pass").call(&()), Ok(()));
    assert!(!RAN.load(Ordering::Relaxed));
    let left = server.stats().iter().find(|stats| stats.name == "queue/0/run").map(|stats| stats.done);
    assert_eq!(left, Some(0));
    drop(client);
    drop(server);
}

#[test]
fn calls_in_flight_are_lost_with_the_server_and_a_new_one_is_found() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    static WAS_TOLD: AtomicU32 = AtomicU32::new(0);
    let name = format!("shm:{}", unique("life"));
    static MAY_END: AtomicBool = AtomicBool::new(true);
    let service = || patience(&RUNS, &WAS_TOLD, &MAY_END);
    let start = || Server::builder().listen(&name).unwrap().provider(0, service()).pool(1).start().unwrap();
    let server = start();
    let client = connect(&name, Credentials::own_user());
    let first = client.incarnation();
    let wait = client.procedure::<(), (), Never>("patience", 0, "wait").start(&()).unwrap();
    wait_for(&RUNS, 0);
    drop(server);
    let error = wait.wait().unwrap_err();
    assert_eq!(error, CallError::Lost { ran: Ran::Maybe, cause: LinkEnd::ByPeer });
    let server = start();
    assert_eq!(client.ping(1), Ok(1));
    assert_ne!(client.incarnation(), first);
    drop(server);
}

#[test]
fn the_server_describes_itself_and_counts() {
    everywhere(with_arithmetic, |client| {
        let services = client.describe().unwrap();
        let names: Vec<_> = services.iter().map(|service| (service.service.as_str(), service.provider)).collect();
        assert_eq!(names, [("arithmetic", 0), ("farside", 0)]);
        let add = client.procedure::<(u64, u64), u64, String>("arithmetic", 0, "add");
        for number in 0..10 {
            let _ = add.call(&(u64::MAX - 4, number));
        }
        let stats = client.stats().unwrap();
        let add = stats.iter().find(|stats| stats.name == "arithmetic/0/add").unwrap();
        assert_eq!((add.done, add.failed, add.refused), (5, 5, 0));
    });
}

#[test]
fn a_stub_calls_the_server_of_its_client() {
    let servers = [1, 2_u64].map(|number| {
        let service = Service::new("who").procedure("number", Handling::Inline, move |_, ()| Ok::<_, Never>(number));
        start(near(), |builder| builder.provider(0, service))
    });
    let [first, second] = servers.each_ref().map(|(_, client)| client.clone());
    let signature = Signature::new("who").procedure::<(), u64, Never>("number", false);
    let stub = Stub::new(first, Arc::new(signature), 0);
    assert_eq!(stub.call(0, &()), Ok::<_, CallError<Never>>(1_u64));
    assert_eq!(stub.with_client(second).call(0, &()), Ok::<_, CallError<Never>>(2_u64));
    assert_eq!(stub.call(0, &()), Ok::<_, CallError<Never>>(1_u64));
}

/// An inline call asks the clock late. What keeps a clone of it learns of its end all the same.
#[test]
fn a_clone_of_an_inline_call_ends_with_it() {
    const TIME: Duration = Duration::from_millis(300);
    let (keep, kept) = mpsc::channel();
    let service = Service::new("keeping").procedure("keep", Handling::Inline, move |call, ()| {
        keep.send(call.clone()).unwrap();
        Ok::<_, Never>(())
    });
    let (_server, client) = start(near(), |builder| builder.provider(0, service));
    // On a busy machine it may be late, or not arrive at all.
    let keep = client.deadline(TIME).procedure::<(), (), Never>("keeping", 0, "keep");
    let clone = farside_testbed::wait_for("a call", || {
        let _ = keep.call(&());
        kept.try_recv().ok()
    });
    wait_until("the clone has ended", || clone.is_cancelled());
}

/// Answers of calls that were accepted arrive, also long ones that the client fetches.
#[test]
fn a_server_that_shuts_down_answers_first() {
    for address in paths() {
        let (begun, may_end) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (runs, is_released) = (begun.clone(), may_end.clone());
        let service = Service::new("late").procedure("fill", Handling::Pooled, move |_, bytes: u64| {
            runs.fetch_add(1, Ordering::Relaxed);
            wait_until("the handler may end", || is_released.load(Ordering::Relaxed));
            Ok::<_, Never>(vec![7_u8; bytes as usize])
        });
        let (server, client) = start(address, |builder| builder.provider(0, service).pool(4));
        let fill = client.procedure::<u64, Vec<u8>, Never>("late", 0, "fill");
        assert_eq!(client.ping(1), Ok(1));
        let pending: Vec<_> = [10, 60_000, 3 << 20].map(|bytes| fill.start(&bytes).unwrap()).into();
        wait_until("the calls run", || begun.load(Ordering::Relaxed) == 3);
        std::thread::scope(|scope| {
            let shutdown = scope.spawn(|| server.shutdown(deadline()));
            wait_until("the server shuts down", || client.ping(2) == Err(CallError::ShuttingDown));
            may_end.store(true, Ordering::Relaxed);
            let lengths = pending.into_iter().map(|call| call.wait().map(|bytes| bytes.len()));
            assert_eq!(lengths.collect::<Vec<_>>(), [Ok(10), Ok(60_000), Ok(3 << 20)]);
            assert_eq!(shutdown.join().unwrap(), Ok(()));
        });
    }
}

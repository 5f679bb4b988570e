//! Servers that end while calls are under way: what they wait for, and what they name.

use std::future::poll_fn;
use std::sync::mpsc;
use std::task::Poll;
use std::time::{Duration, Instant};

use farside_rpc::server::Unfinished;
use farside_rpc::{Client, Credentials, Handling, Never, Pending, Server, Service};

use crate::unique;

const LONG: Duration = Duration::from_secs(60);

/// A service whose calls end when they are told so or cancelled, in both kinds of handlers.
fn held() -> Service {
    Service::new("held")
        .procedure("pooled", Handling::Pooled, |call, (): ()| {
            while !call.is_cancelled() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok::<_, Never>(())
        })
        .async_procedure("async", |_, (): ()| async {
            // A handler that nothing can wake ends at once.
            let mut kept = Vec::new();
            poll_fn(move |context| {
                kept.push(context.waker().clone());
                if kept.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            Ok::<_, Never>(())
        })
        .procedure("double", Handling::Pooled, |_, number: u64| Ok::<_, Never>(2 * number))
}

fn start(address: &str, procedure: &str) -> Pending<(), Never> {
    let client = Client::connect(address, Credentials::own_user()).unwrap().deadline(LONG);
    client.procedure("held", 0, procedure).start(&()).unwrap()
}

fn assert_names(left: &Unfinished, procedure: &str) {
    assert_eq!((left.count(), left.more_calls), (1, 0));
    let call = &left.calls[0];
    assert_eq!((call.procedure.as_str(), call.peer.clone()), (procedure, format!("process {}", std::process::id())));
    assert!(call.age() > Duration::ZERO);
    let text = left.to_string();
    for part in [procedure, "of process ", " old)", "; give the server more time"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_server_names_the_calls_that_it_cuts_off() {
    for procedure in ["pooled", "async"] {
        let address = format!("shm:{}", unique("named"));
        let server = Server::builder().listen(&address).unwrap().provider(0, held()).pool(1).start().unwrap();
        let call = start(&address, procedure);
        let until = Instant::now() + LONG;
        while server.dump().calls.iter().all(|call| call.running.is_none()) {
            assert!(Instant::now() < until, "no call arrived");
            std::thread::sleep(Duration::from_millis(1));
        }
        let left = server.shutdown(Instant::now() + Duration::from_millis(10)).unwrap_err();
        assert_names(&left, &format!("held/0/{procedure}"));
        call.wait().unwrap_err();
    }
}

/// The program turns the server itself, which drains in further turns.
#[test]
fn a_server_in_turns_drains_and_names_what_is_left() {
    let address = format!("shm:{}", unique("drained"));
    let mut turns = Server::builder().listen(&address).unwrap().provider(0, held()).turns().unwrap();
    let monitor = turns.monitor();
    let (done, is_done) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let client = Client::connect(&address, Credentials::own_user()).unwrap().deadline(LONG);
            let double = client.procedure::<u64, u64, Never>("held", 0, "double");
            assert_eq!(double.call(&1), Ok(2));
            let calls: Vec<_> = (0..20).map(|number| double.start(&number).unwrap()).collect();
            done.send(()).unwrap();
            // They were sent before the server stopped.
            for (number, call) in (0..).zip(calls) {
                assert_eq!(call.wait(), Ok(2 * number));
            }
            drop(done);
        });
        let until = Instant::now() + LONG;
        while is_done.try_recv().is_err() {
            assert!(Instant::now() < until, "no calls arrived");
            turns.turn(Duration::from_millis(1));
        }
        while turns.monitor().stats().iter().map(|one| one.done).sum::<u64>() < 22 {
            assert!(Instant::now() < until, "the calls did not end");
            turns.turn(Duration::from_millis(1));
        }
        turns.shutdown(until).unwrap();
    });
    assert_eq!((monitor.connection_count(), monitor.dump().calls.len()), (0, 0));
    let doubled = monitor.stats().into_iter().find(|one| one.name == "held/0/double").unwrap();
    assert_eq!(doubled.done, 21);

    let address = format!("shm:{}", unique("cut"));
    let mut turns = Server::builder().listen(&address).unwrap().provider(0, held()).turns().unwrap();
    let caller = std::thread::spawn(move || start(&address, "async").wait());
    let until = Instant::now() + LONG;
    while turns.monitor().dump().calls.is_empty() {
        assert!(Instant::now() < until, "no call arrived");
        turns.turn(Duration::from_millis(1));
    }
    turns.stop();
    assert!(!turns.is_drained());
    let left = turns.shutdown(Instant::now() + Duration::from_millis(10)).unwrap_err();
    assert_names(&left, "held/0/async");
    caller.join().unwrap().unwrap_err();
}

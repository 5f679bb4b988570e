//! Servers that end while calls are under way: what they wait for, and what they name.

use std::future::poll_fn;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use farside_rpc::server::Unfinished;
use farside_rpc::{Credentials, Handling, Never, Pending, Server, Service};

use farside_testbed::{deadline, soon, wait_until};

use crate::{connect, hold_until_cancelled, turn_until, unique};

/// A service whose calls end when they are asked to or cancelled, in both kinds of handlers.
fn held() -> Service {
    Service::new("held")
        .procedure("pooled", Handling::Pooled, |call, (): ()| {
            hold_until_cancelled(call);
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
    let client = connect(address, Credentials::own_user());
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
        wait_until("a call runs", || server.dump().calls.iter().any(|call| call.running.is_some()));
        let left = server.shutdown(soon()).unwrap_err();
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
            let client = connect(&address, Credentials::own_user());
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
        turn_until(&mut turns, "all calls are sent", || is_done.try_recv().is_ok());
        let ended = || monitor.stats().iter().map(|one| one.done).sum::<u64>();
        turn_until(&mut turns, "the calls end", || ended() >= 22);
        turns.shutdown(deadline()).unwrap();
    });
    assert_eq!((monitor.connection_count(), monitor.dump().calls.len()), (0, 0));
    let doubled = monitor.stats().into_iter().find(|one| one.name == "held/0/double").unwrap();
    assert_eq!(doubled.done, 21);

    let address = format!("shm:{}", unique("cut"));
    let mut turns = Server::builder().listen(&address).unwrap().provider(0, held()).turns().unwrap();
    let caller = std::thread::spawn(move || start(&address, "async").wait());
    let monitor = turns.monitor();
    turn_until(&mut turns, "a call arrives", || !monitor.dump().calls.is_empty());
    turns.stop();
    assert!(!turns.is_drained());
    let left = turns.shutdown(soon()).unwrap_err();
    assert_names(&left, "held/0/async");
    caller.join().unwrap().unwrap_err();
}

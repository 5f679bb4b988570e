//! Memory of a caller that a handler passes on to another server.

use std::sync::atomic::{AtomicBool, Ordering};

use farside_rpc::bulk::{Bulk, Memory, Read, Write, scope};
use farside_rpc::server::Builder;
use farside_rpc::{CallError, Client, Handling, Server, Service};

use farside_testbed::{deadline, wait_until};

use crate::bulk::{SIZES, mappings_of, mover, pattern};
use crate::{credentials, paths, tokens, turn_for};

type Fill = (Bulk<Write>, u64, u64);

/// A service that passes everything on to a mover.
fn forwarder(builder: Builder, to: &Client) -> Builder {
    let text = |error: CallError<String>| error.to_string();
    let sums = ["sum", "sum_async", "pipeline"].map(|name| to.procedure::<Bulk<Read>, u64, String>("mover", 0, name));
    let pipeline = to.procedure::<(Bulk<Read>, u64), u64, String>("mover", 0, "pipeline");
    let fills = ["fill", "fill_async"].map(|name| to.procedure::<Fill, (), String>("mover", 0, name));
    let [sum, sum_async, _] = sums;
    let [fill, fill_async] = fills;
    let service = Service::new("forwarder")
        .procedure("sum", Handling::Pooled, move |_, memory: Bulk<Read>| sum.call(&memory).map_err(text))
        .procedure("pipeline", Handling::Pooled, move |_, all: (Bulk<Read>, u64)| pipeline.call(&all).map_err(text))
        .procedure("fill", Handling::Pooled, move |_, all: Fill| fill.call(&all).map_err(text))
        .async_procedure("sum_async", move |_, memory: Bulk<Read>| {
            let sent = sum_async.start(&memory);
            async move { sent.map_err(text)?.await.map_err(text) }
        })
        .async_procedure("fill_async", move |_, all: Fill| {
            let sent = fill_async.start(&all);
            async move { sent.map_err(text)?.await.map_err(text) }
        });
    builder.provider(0, service)
}

fn address_of(path: &str) -> String {
    paths().into_iter().find(|address| address.starts_with(path)).unwrap()
}

fn start(path: &str, serve: impl FnOnce(Builder) -> Builder) -> (Server, String) {
    let builder = Server::builder().listen(address_of(path)).unwrap().tokens(tokens()).pool(3);
    let server = serve(builder).start().unwrap();
    let address = server.addresses()[0].to_string();
    (server, address)
}

fn connect(address: &str) -> Client {
    crate::connect(address, credentials())
}

/// Runs a test over each pair of paths: from the client to the forwarder, and to the third party.
fn everywhere(test: impl Fn(&Client, [&str; 2])) {
    for paths in [["shm", "shm"], ["shm", "tcp"], ["tcp", "shm"], ["tcp", "tcp"]] {
        let (third, address) = start(paths[1], mover);
        let to = connect(&address);
        let (server, address) = start(paths[0], |builder| forwarder(builder, &to));
        let client = connect(&address);
        test(&client, paths);
        drop((client, to));
        assert_eq!((server.shutdown(deadline()), third.shutdown(deadline())), (Ok(()), Ok(())));
    }
}

#[test]
fn memory_that_is_passed_on_is_pulled() {
    everywhere(|client, paths| {
        let sums = ["sum", "sum_async"].map(|name| client.procedure::<Bulk<Read>, u64, String>("forwarder", 0, name));
        let pipeline = client.procedure::<(Bulk<Read>, u64), u64, String>("forwarder", 0, "pipeline");
        for bytes in SIZES {
            let sent = pattern(bytes);
            let expected = sent.iter().map(|byte| u64::from(*byte)).sum();
            let memory = Memory::new_read_only(bytes + 9).unwrap();
            memory.write(9, &sent).unwrap();
            for sum in &sums {
                assert_eq!(sum.call(&sent.clone().into()), Ok(expected), "{paths:?} {bytes} bytes");
                // Many small segments travel by messages, also on one machine.
                scope(|scope| {
                    assert_eq!(sum.call(&scope.lend(&sent)), Ok(expected), "{paths:?} {bytes} bytes lent");
                    let pieces = scope.lend_all(sent.chunks(700));
                    assert_eq!(sum.call(&pieces), Ok(expected), "{paths:?} {bytes} bytes in pieces");
                });
                assert_eq!(sum.call(&memory.to_read(9..bytes + 9).unwrap()), Ok(expected), "{paths:?} {bytes} mapped");
            }
            scope(|scope| assert_eq!(pipeline.call(&(scope.lend(&sent), 100_000)), Ok(expected), "{paths:?} {bytes}"));
        }
    });
}

#[test]
fn memory_that_is_passed_on_is_pushed() {
    everywhere(|client, paths| {
        for name in ["fill", "fill_async"] {
            let fill = client.procedure::<Fill, (), String>("forwarder", 0, name);
            for bytes in SIZES {
                let mut room = vec![255; bytes + 20];
                scope(|scope| fill.call(&(scope.lend_mut(&mut room), 10, bytes as u64))).unwrap();
                assert!(room[10..bytes + 10] == pattern(bytes), "{paths:?} {name} {bytes} bytes");
                assert!(room[..10].iter().chain(&room[bytes + 10..]).all(|byte| *byte == 255), "{paths:?} {bytes}");
                let memory = Memory::new(bytes + 20).unwrap();
                let parts = [0..5, 5..bytes + 20];
                fill.call(&(memory.to_write_all(parts).unwrap(), 10, bytes as u64)).unwrap();
                let mut found = vec![255; bytes + 20];
                memory.read(0, &mut found).unwrap();
                assert!(found[10..bytes + 10] == pattern(bytes), "{paths:?} {name} {bytes} bytes mapped");
                assert!(found[..10].iter().chain(&found[bytes + 10..]).all(|byte| *byte == 0), "{paths:?} {bytes}");
            }
        }
        let fill = client.procedure::<Fill, (), String>("forwarder", 0, "fill");
        let mut room = [0; 10];
        let error = scope(|scope| fill.call(&(scope.lend_mut(&mut room), 1, 10))).unwrap_err();
        assert!(matches!(&error, CallError::Service(text) if text.contains("not inside")), "{error}");
    });
}

/// The forwarder has no thread but the one that calls `turn`.
#[test]
fn a_forwarder_in_turns_passes_memory_on() {
    for paths in [["shm", "shm"], ["tcp", "tcp"]] {
        let (third, address) = start(paths[1], mover);
        let to = connect(&address);
        let builder = Server::builder().listen(address_of(paths[0])).unwrap().tokens(tokens());
        turn_for(forwarder(builder, &to).turns().unwrap(), |client| {
            let sent = pattern(5 << 20);
            let expected = sent.iter().map(|byte| u64::from(*byte)).sum();
            for suffix in ["", "_async", "", "_async"] {
                let sum = client.procedure::<Bulk<Read>, u64, String>("forwarder", 0, &format!("sum{suffix}"));
                let fill = client.procedure::<Fill, (), String>("forwarder", 0, &format!("fill{suffix}"));
                scope(|scope| {
                    assert_eq!(sum.call(&scope.lend(&sent)), Ok(expected), "{paths:?} {suffix}");
                    assert_eq!(sum.call(&scope.lend_all(sent.chunks(700))), Ok(expected), "{paths:?} {suffix}");
                });
                let mut room = vec![0; 5 << 20];
                scope(|scope| fill.call(&(scope.lend_mut(&mut room), 0, 5 << 20))).unwrap();
                assert!(room == sent, "{paths:?} {suffix}");
                assert_eq!(client.ping(1), Ok(1));
            }
        });
        drop(to);
        third.shutdown(deadline()).unwrap();
    }
}

/// Memory of a server in a result is passed on, too: as a result, and as an argument.
#[test]
fn memory_of_a_result_is_passed_on() {
    for paths in [["shm", "shm"], ["shm", "tcp"], ["tcp", "shm"], ["tcp", "tcp"]] {
        let memory = Memory::new(3 << 20).unwrap();
        memory.write(0, &pattern(3 << 20)).unwrap();
        let shown = memory.clone();
        let (third, address) = start(paths[1], |builder| {
            let service = Service::new("shower")
                .procedure("owned", Handling::Pooled, |_, ()| Ok::<Bulk<Read>, String>(pattern(3 << 20).into()))
                .procedure("mapped", Handling::Pooled, move |_, ()| {
                    shown.to_read(0..3 << 20).map_err(|error| error.to_string())
                });
            mover(builder).provider(0, service)
        });
        let to = connect(&address);
        let (server, address) = start(paths[0], |builder| {
            let mut service = Service::new("shower");
            for name in ["owned", "mapped"] {
                let show = to.procedure::<(), Bulk<Read>, String>("shower", 0, name);
                let pass = move |_: &_, ()| show.call(&()).map_err(|error| error.to_string());
                service = service.procedure(name, Handling::Pooled, pass);
            }
            builder.provider(0, service)
        });
        let client = connect(&address);
        let sum = to.procedure::<Bulk<Read>, u64, String>("mover", 0, "sum");
        let expected = pattern(3 << 20).iter().map(|byte| u64::from(*byte)).sum();
        for name in ["owned", "mapped"] {
            let shown = client.procedure::<(), Bulk<Read>, String>("shower", 0, name).call(&()).unwrap();
            assert!(shown.pull_all().unwrap() == pattern(3 << 20), "{paths:?} {name}");
            assert_eq!(sum.call(&shown), Ok(expected), "{paths:?} {name}");
        }
        drop((client, to, sum));
        assert_eq!((server.shutdown(deadline()), third.shutdown(deadline())), (Ok(()), Ok(())));
    }
}

/// On one machine, the third party maps what the client has allocated, until its end.
#[test]
fn all_three_map_the_memory() {
    let (_third, address) = start("shm", mover);
    let to = connect(&address);
    let (_server, address) = start("shm", |builder| forwarder(builder, &to));
    let client = connect(&address);
    let sum = client.procedure::<Bulk<Read>, u64, String>("forwarder", 0, "sum");
    // Nothing else here has this size.
    let bytes = 41 * 4096;
    let memory = Memory::new(bytes).unwrap();
    for _ in 0..10 {
        memory.write(5, &[1]).unwrap();
        let parts = (0..1000).map(|part| part * 100..part * 100 + 50);
        assert_eq!(sum.call(&memory.to_read_all(parts).unwrap()), Ok(1));
        assert_eq!(mappings_of(bytes), 3);
    }
    drop(memory);
    wait_until("the servers forget memory that is gone", || {
        // The word about it is received with the next frames.
        assert_eq!(to.ping(1), Ok(1));
        mappings_of(bytes) == 0
    });
}

/// The third party's connection serves other calls while a client does not send its memory.
#[test]
fn a_slow_client_holds_up_no_other() {
    let (_third, address) = start("tcp", mover);
    let to = connect(&address);
    let (_server, address) = start("tcp", |builder| forwarder(builder, &to));
    let (slow, quick) = (connect(&address), connect(&address));
    let sent = pattern(5 << 20);
    let expected = sent.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    let procedure = |client: &Client| client.procedure::<Bulk<Read>, u64, String>("forwarder", 0, "sum");
    assert_eq!(procedure(&slow).call(&vec![1; 10].into()), Ok(10));
    // Nothing receives for this client until it waits, but for a look each second.
    let pending = procedure(&slow).start(&sent.clone().into()).unwrap();
    for _ in 0..20 {
        assert_eq!(procedure(&quick).call(&sent.clone().into()), Ok(expected));
    }
    assert_eq!(pending.wait(), Ok(expected));
}

/// A client that gives up its call, or whose deadline passes, takes the memory from the third
/// party.
#[test]
fn a_call_that_ends_takes_its_memory_back() {
    static STARTED: AtomicBool = AtomicBool::new(false);
    static FOUND: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
    let late = |builder: Builder| {
        let service = Service::new("late").procedure("pull", Handling::Pooled, |call, memory: Bulk<Read>| {
            STARTED.store(true, Ordering::Relaxed);
            // The end of the memory shows here alone: this call was not cancelled.
            let error = loop {
                match memory.pull(0, &mut vec![0; 3 << 20]) {
                    Ok(()) if call.time_left().is_zero() => break "no error".to_string(),
                    Ok(()) => {}
                    Err(error) => break error.to_string(),
                }
            };
            FOUND.lock().unwrap().push(error.clone());
            Err::<u64, _>(error)
        });
        builder.provider(0, service)
    };
    for paths in [["shm", "shm"], ["shm", "tcp"], ["tcp", "shm"], ["tcp", "tcp"]] {
        let (third, address) = start(paths[1], late);
        let to = connect(&address);
        let pull = to.procedure::<Bulk<Read>, u64, String>("late", 0, "pull");
        let (server, address) = start(paths[0], |builder| {
            // The call of another thread is not cancelled with the handler's.
            let forward = move |_: &_, memory: Bulk<Read>| {
                let called = std::thread::scope(|scope| scope.spawn(|| pull.call(&memory)).join().unwrap());
                called.map_err(|error| error.to_string())
            };
            builder.provider(0, Service::new("forwarder").procedure("pull", Handling::Pooled, forward))
        });
        let client = connect(&address);
        let pull = client.procedure::<Bulk<Read>, u64, String>("forwarder", 0, "pull");
        STARTED.store(false, Ordering::Relaxed);
        let sent = pattern(3 << 20);
        scope(|scope| {
            let _pending = pull.start(&scope.lend(&sent)).unwrap();
            wait_until("the call arrives", || {
                assert_eq!(client.ping(1), Ok(1));
                STARTED.load(Ordering::Relaxed)
            });
        });
        wait_until("the third party notices", || !FOUND.lock().unwrap().is_empty());
        let found = std::mem::take(&mut *FOUND.lock().unwrap());
        assert!(found[0].contains("gone"), "{paths:?}: {found:?}");
        assert_eq!((server.shutdown(deadline()), third.shutdown(deadline())), (Ok(()), Ok(())));
    }
}

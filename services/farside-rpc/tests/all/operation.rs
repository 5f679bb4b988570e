//! The tools of operators: dumps, times, and calls by programs that do not know the types.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use farside_rpc::bulk::{Bulk, Read, Write, scope};
use farside_rpc::server::{CallDump, DUMP_RIGHT, Dump, NoRight};
use farside_rpc::{CallError, Client, Credentials, Encoded, Handling, Never, Server, Service, Tokens, wire};

use farside_testbed::{limit, wait_for, wait_until};

use crate::{connect, everywhere, near, paths, start, unique};

/// A service whose calls run until the door is open.
fn held(door: &Arc<AtomicBool>) -> Service {
    let hold = |door: &Arc<AtomicBool>| {
        let door = door.clone();
        move |_: &farside_rpc::Call, (): ()| {
            wait_until("the door opens", || door.load(Ordering::Relaxed));
            Ok::<_, Never>(())
        }
    };
    Service::new("held").procedure("first", Handling::Pooled, hold(door)).procedure(
        "second",
        Handling::Pooled,
        hold(door),
    )
}

/// Asks until the dump is as expected.
#[track_caller]
fn dump_until(ask: impl Fn() -> Dump, is_expected: impl Fn(&Dump) -> bool) -> Dump {
    wait_for("the dump is as expected", || Some(ask()).filter(&is_expected))
}

#[test]
fn a_dump_lists_what_is_under_way() {
    for address in paths() {
        let door = Arc::new(AtomicBool::new(false));
        let tokens = Tokens::new().with("operator", "a secret", [DUMP_RIGHT]);
        let builder = Server::builder().listen(&address).unwrap().tokens(tokens).pool(1);
        let server = builder.provider(7, held(&door)).start().unwrap();
        let address = server.addresses()[0].to_string();
        let operator = connect(&address, Credentials::token("operator", "a secret"));
        let calls = |client: &Client, name| client.procedure::<(), (), Never>("held", 7, name).start(&()).unwrap();
        let client = Client::to(&address, Credentials::token("operator", "a secret")).unwrap();
        let client = client.deadline(Duration::from_secs(3600)).lazily();
        let first = calls(&client, "first");
        dump_until(|| operator.dump().unwrap(), |dump| dump.calls.first().is_some_and(|call| call.running.is_some()));
        let second = calls(&client, "second");
        calls(&client, "second").cancel();
        let dump = dump_until(
            || operator.dump().unwrap(),
            |dump| dump.calls.len() == 3 && dump.calls.iter().any(|call| call.is_cancelled),
        );
        assert_eq!((dump.more_connections, dump.more_calls), (0, 0));
        let [own, other] = &dump.connections[..] else { panic!("{dump:#?}") };
        assert_eq!((own.calls, other.calls), (0, 3));
        let path = if address.starts_with("tcp") { "tcp" } else { "shm" };
        assert!(other.path == path && other.peer.contains("operator") && other.number > own.number, "{other:?}");
        let named: Vec<_> = dump.calls.iter().map(|call| (call.procedure.as_str(), call.is_cancelled)).collect();
        assert_eq!(named, [("held/7/first", false), ("held/7/second", false), ("held/7/second", true)]);
        let is_right = |call: &CallDump| {
            let left = Duration::from_secs(3600) - limit()..=Duration::from_secs(3600);
            call.connection == other.number && left.contains(&call.time_left)
        };
        assert!(dump.calls.iter().all(is_right), "{dump:#?}");
        let runs: Vec<_> = dump.calls.iter().map(|call| call.running.is_some()).collect();
        assert_eq!(runs, [true, false, false]);
        assert_eq!(server.dump().calls.len(), 3);
        // The caller of a handler that runs on has gone.
        drop((first, second, client));
        let dump =
            dump_until(|| operator.dump().unwrap(), |dump| dump.connections.iter().any(|one| one.path == "ended"));
        assert!(dump.calls.iter().all(|call| call.is_cancelled), "{dump:#?}");
        door.store(true, Ordering::Relaxed);
        let dump = dump_until(|| operator.dump().unwrap(), |dump| dump.connections.len() == 1);
        assert_eq!(dump.calls, []);
    }
}

#[test]
fn a_dump_is_for_those_with_the_right() {
    let refused = Err(CallError::Service(NoRight { right: DUMP_RIGHT.into() }));
    everywhere(|builder| builder, |client| assert_eq!(client.dump(), refused));
    let (server, client) = start(near(), |builder| builder);
    assert_eq!(client.dump().unwrap().connections.len(), 1);
    drop(server);
}

#[test]
fn a_dump_is_bounded() {
    let door = Arc::new(AtomicBool::new(false));
    let name = format!("shm:{}", unique("many"));
    let server = Server::builder().listen(&name).unwrap().provider(0, held(&door)).pool(1).start().unwrap();
    let clients = [(); 5].map(|()| connect(&name, Credentials::own_user()));
    let start = |client: &Client| client.procedure::<(), (), Never>("held", 0, "first").start(&()).unwrap();
    let pending: Vec<_> = clients.iter().flat_map(|client| (0..250).map(|_| start(client))).collect();
    let dump = dump_until(|| clients[0].dump().unwrap(), |dump| dump.calls.len() as u64 + dump.more_calls == 1250);
    assert_eq!((dump.calls.len(), dump.more_calls), (1000, 250));
    // The calls that arrived first are listed.
    let ages: Vec<_> = dump.calls.iter().map(|call| call.queued + call.running.unwrap_or_default()).collect();
    assert!(ages.is_sorted_by(|a, b| a >= b));
    assert!(dump.calls[0].running.is_some());
    door.store(true, Ordering::Relaxed);
    drop((pending, server));
}

/// All calls have times, those that run inline without time in a queue.
#[test]
fn calls_are_timed() {
    static BOTH: Barrier = Barrier::new(2);
    let number = |_: &farside_rpc::Call, number: u64| Ok::<_, Never>(number);
    // It looks at a clock, but no verdict depends on how long it takes.
    let pause = |call: &farside_rpc::Call, is_first: bool| {
        if is_first {
            BOTH.wait();
        }
        let end = call.time_left() - Duration::from_millis(20);
        wait_until("some time passes", || call.time_left() <= end);
        Ok::<_, Never>(())
    };
    let service = Service::new("timed")
        .procedure("inline", Handling::Inline, number)
        .procedure("pooled", Handling::Pooled, number)
        .async_procedure("async", |_, number: u64| async move { Ok::<_, Never>(number) })
        .procedure("pause", Handling::Pooled, pause);
    let (server, client) = start(near(), |builder| builder.provider(0, service).pool(1));
    for procedure in ["inline", "pooled", "async"] {
        let procedure = client.procedure::<u64, u64, Never>("timed", 0, procedure);
        (0..100).for_each(|number| assert_eq!(procedure.call(&number), Ok(number)));
    }
    let pause = client.procedure::<bool, (), Never>("timed", 0, "pause");
    let first = pause.start(&true).unwrap();
    let second = pause.start(&false).unwrap();
    dump_until(|| server.dump(), |dump| dump.calls.len() == 2);
    BOTH.wait();
    first.wait().unwrap();
    second.wait().unwrap();
    let stats = client.stats().unwrap();
    let of = |name: &str| stats.iter().find(|stats| stats.name == format!("timed/0/{name}")).unwrap();
    assert_eq!(of("inline").queued, Duration::ZERO);
    // Later ones are not all timed.
    let inline = client.procedure::<u64, u64, Never>("timed", 0, "inline");
    (0..1700).for_each(|number| assert_eq!(inline.call(&number), Ok(number)));
    let later = client.stats().unwrap().into_iter().find(|stats| stats.name == "timed/0/inline").unwrap();
    assert_eq!((later.done, later.timed), (1800, 1100));
    for called in [of("inline"), of("pooled"), of("async")] {
        assert_eq!((called.done, called.timed), (100, 100));
        assert!(Duration::ZERO < called.p50 && called.p50 <= called.p99 && called.p99 <= called.max, "{called:?}");
        assert_eq!(called.buckets.iter().map(|(_, count)| count).sum::<u64>(), 100);
        assert!(called.buckets.last().unwrap().0 >= called.max, "{called:?}");
    }
    let pause = of("pause");
    assert_eq!(pause.timed, 2);
    assert!(pause.running >= Duration::from_millis(40), "{pause:?}");
    // The second call waited while the first one slept.
    assert!(pause.queued >= Duration::from_millis(20) && pause.max >= Duration::from_millis(40), "{pause:?}");
    drop(server);
}

#[test]
fn a_program_calls_what_it_knows_as_text() {
    let copy = |_: &farside_rpc::Call, (from, into, at): (Bulk<Read>, Bulk<Write>, u64)| {
        let bytes = from.pull_all().map_err(|error| error.to_string())?;
        into.push(at, &bytes).map_err(|error| error.to_string())
    };
    let service = || Service::new("mover").procedure("copy", Handling::Pooled, copy);
    everywhere(
        |builder| builder.provider(0, service()),
        |client| {
            let types = client.describe().unwrap().swap_remove(1).procedures.swap_remove(0).1;
            let copy = client.encoded_procedure("mover", 0, "copy", &types);
            let mut room = vec![0; 100_000];
            let sent: Vec<u8> = (0..90_000).map(|index: u32| (index % 251) as u8).collect();
            scope(|scope| {
                let call = |at: u64| {
                    let bytes = wire::encode(&(0_u32, 1_u32, at), Vec::new());
                    Encoded::new(bytes).with(&scope.lend(&sent))
                };
                let into = scope.lend_mut(&mut room);
                assert!(copy.call(&call(10).with(&into)).unwrap().bytes().is_empty());
                let error = copy.call(&call(10_001).with(&into)).unwrap_err();
                assert!(matches!(error, CallError::Service(_)), "{error}");
                // Memory that is named but not sent.
                let error = copy.call(&call(0)).unwrap_err();
                assert!(matches!(error, CallError::Undecodable { .. }), "{error}");
            });
            assert!(room[10..90_010] == sent && room[..10] == [0; 10]);
            let other = client.encoded_procedure("mover", 0, "copy", "u8 -> u8 ! u8");
            let error = other.call(&Encoded::new(vec![1])).unwrap_err();
            assert!(matches!(error, CallError::Shape { .. }), "{error}");
        },
    );
}

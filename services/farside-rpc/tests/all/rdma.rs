//! Bulk data by RDMA, over the provider that `FARSIDE_TEST_CONNECTED` names, or `tcp`.

use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use farside_rpc::bulk::{Bulk, Memory, Read, Withdrawal, Write, scope};
use farside_rpc::server::{Builder, ConnectionDump, StartError};
use farside_rpc::{CallError, Client, ConnectError, Handling, Never, Rdma, Server, Service, TransferError};
use farside_testbed::{deadline, is_left_out, limit, scaled, wait_until};

use crate::bulk::{mover, pattern};
use crate::processes::Other;
use crate::{credentials, tokens};

fn ip() -> IpAddr {
    std::env::var("FARSIDE_TEST_ADDRESS").map_or([127, 0, 0, 1].into(), |address| address.parse().unwrap())
}

pub(crate) fn rdma() -> Rdma {
    Rdma::over(std::env::var("FARSIDE_TEST_CONNECTED").unwrap_or_else(|_| "tcp".into())).at(ip())
}

fn builder() -> Builder {
    let address = match ip() {
        IpAddr::V4(ip) => format!("tcp://{ip}:0"),
        IpAddr::V6(ip) => format!("tcp://[{ip}]:0"),
    };
    Server::builder().listen(address).unwrap().tokens(tokens()).pool(3).rdma(&rdma()).unwrap()
}

fn connect(server: &Server) -> Client {
    let address = server.addresses()[0].to_string();
    Client::to(address, credentials()).unwrap().deadline(limit()).rdma(rdma()).connect().unwrap()
}

/// The only connection of the server.
fn only(server: &Server) -> ConnectionDump {
    let mut connections = server.dump().connections;
    assert_eq!(connections.len(), 1);
    connections.remove(0)
}

/// A server with RDMA, and a client of it. `None` without libfabric.
fn served(set_up: impl FnOnce(Builder) -> Builder) -> Option<(Server, Client)> {
    if is_left_out("fabric") {
        return None;
    }
    let server = set_up(builder()).start().unwrap();
    let client = connect(&server);
    Some((server, client))
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

fn filled(bytes: &[u8]) -> Memory {
    let memory = Memory::new(bytes.len()).unwrap();
    memory.write(0, bytes).unwrap();
    memory
}

#[test]
fn memory_is_pulled_and_pushed_by_rdma() {
    let Some((server, client)) = served(mover) else { return };
    assert_eq!(only(&server).path, "tcp+rdma");
    let pull = client.procedure::<Bulk<Read>, u64, String>("mover", 0, "sum");
    let fill = client.procedure::<(Bulk<Write>, u64, u64), (), String>("mover", 0, "fill");
    let mut moved = 0;
    for bytes in [64 << 10, (512 << 10) - 1, 512 << 10, (512 << 10) + 1, (9 << 20) + 3] {
        let sent = pattern(bytes);
        let memory = filled(&sent);
        assert_eq!(pull.call(&memory.to_read(0..bytes).unwrap()), Ok(sum(&sent)), "{bytes} bytes");
        moved += bytes as u64;
        assert_eq!(only(&server).rdma_bytes, moved, "{bytes} bytes went by messages");
        let room = Memory::new(bytes + 20).unwrap();
        fill.call(&(room.to_write(0..bytes + 20).unwrap(), 10, bytes as u64)).unwrap();
        let mut found = vec![1; bytes + 20];
        room.read(0, &mut found).unwrap();
        assert!(found[10..bytes + 10] == sent && found[..10] == [0; 10] && found[bytes + 10..] == [0; 10]);
        moved += bytes as u64;
        assert_eq!(only(&server).rdma_bytes, moved, "{bytes} bytes went by messages");
    }
}

/// Handlers in tasks, more of them than slots.
#[test]
fn memory_is_pulled_and_pushed_in_tasks() {
    let Some((server, client)) = served(mover) else { return };
    let pull = client.procedure::<Bulk<Read>, u64, String>("mover", 0, "sum_async");
    let fill = client.procedure::<(Bulk<Write>, u64, u64), (), String>("mover", 0, "fill_async");
    let sent = pattern((9 << 20) + 3);
    let (memory, rooms) = (filled(&sent), (0..8).map(|_| Memory::new(sent.len()).unwrap()).collect::<Vec<_>>());
    let pulls: Vec<_> = (0..8).map(|_| pull.start(&memory.to_read(0..sent.len()).unwrap()).unwrap()).collect();
    let fills: Vec<_> = rooms
        .iter()
        .map(|room| fill.start(&(room.to_write(0..sent.len()).unwrap(), 0, sent.len() as u64)).unwrap())
        .collect();
    pulls.into_iter().for_each(|pull| assert_eq!(pull.wait(), Ok(sum(&sent))));
    fills.into_iter().for_each(|fill| fill.wait().unwrap());
    for room in rooms {
        let mut found = vec![0; sent.len()];
        room.read(0, &mut found).unwrap();
        assert!(found == sent);
    }
    assert_eq!(only(&server).rdma_bytes, 16 * sent.len() as u64);
}

/// Memory that RDMA has no use for travels as messages.
#[test]
fn other_memory_travels_as_messages() {
    let Some((server, client)) = served(mover) else { return };
    let pull = client.procedure::<Bulk<Read>, u64, String>("mover", 0, "sum");
    let pipeline = client.procedure::<(Bulk<Read>, u64), u64, String>("mover", 0, "pipeline");
    let paint = client.procedure::<(Bulk<Write>, u8), (), String>("mover", 0, "paint");
    let sent = pattern(1 << 20);
    let memory = filled(&sent);
    // Heap memory, short memory, and short segments.
    scope(|scope| assert_eq!(pull.call(&scope.lend(&sent)), Ok(sum(&sent))));
    assert_eq!(pull.call(&memory.to_read(0..60_000).unwrap()), Ok(sum(&sent[..60_000])));
    let short = || (0..1 << 10).map(|index| index << 10..(index << 10) + 1000);
    let expected = short().map(|part| sum(&sent[part])).sum();
    assert_eq!(pull.call(&memory.to_read_all(short()).unwrap()), Ok(expected));
    let mut room = vec![0; 1 << 20];
    scope(|scope| paint.call(&(scope.lend_mut(&mut room), 7))).unwrap();
    assert!(room == vec![7; 1 << 20]);
    assert_eq!(only(&server).rdma_bytes, 0);
    // Long segments, and pieces of a pipeline, go by RDMA.
    let long = || (0..100).rev().map(|index| index * 10_000..index * 10_000 + 5000);
    let expected = long().map(|part| sum(&sent[part])).sum();
    assert_eq!(pull.call(&memory.to_read_all(long()).unwrap()), Ok(expected));
    assert_eq!(pipeline.call(&(memory.to_read(0..1 << 20).unwrap(), 300_000)), Ok(sum(&sent)));
    assert_eq!(only(&server).rdma_bytes, 500_000 + (1 << 20));
}

/// A client pulls from memory of the server in the same way.
#[test]
fn memory_of_a_result_is_pulled_by_rdma() {
    let sent = pattern(3 << 20);
    let memory = filled(&sent);
    let service = Service::new("board")
        .procedure("show", Handling::Pooled, move |_, ()| Ok::<_, Never>(memory.to_read(0..3 << 20).unwrap()));
    let Some((_server, client)) = served(|builder| builder.provider(0, service)) else { return };
    let show = client.procedure::<(), Bulk<Read>, Never>("board", 0, "show");
    // A server learns of its client's endpoint apart from the calls, so the first one may be early.
    for round in 0..3 {
        let shown = show.call(&()).unwrap();
        assert!(shown.pull_all().unwrap() == sent && shown.mapped().is_none(), "round {round}");
    }
}

/// Memory that was taken back is gone, though its pages are registered still.
#[test]
fn memory_that_was_taken_back_is_gone() {
    let memory = filled(&pattern(1 << 20));
    let taken_back: Arc<std::sync::Mutex<Vec<Withdrawal>>> = Arc::default();
    let (shown, withdrawals) = (memory.clone(), taken_back.clone());
    let service = Service::new("board").procedure("show", Handling::Pooled, move |_, ()| {
        let bulk = shown.to_read(0..1 << 20).unwrap();
        withdrawals.lock().unwrap().extend(bulk.withdrawal());
        Ok::<_, Never>(bulk)
    });
    let Some((_server, client)) = served(|builder| builder.provider(0, service)) else { return };
    let show = client.procedure::<(), Bulk<Read>, Never>("board", 0, "show");
    let (one, other) = (show.call(&()).unwrap(), show.call(&()).unwrap());
    assert!(one.pull_all().unwrap() == pattern(1 << 20));
    taken_back.lock().unwrap()[0].withdraw();
    assert_eq!(one.pull_all(), Err(TransferError::Gone));
    assert!(other.pull_all().unwrap() == pattern(1 << 20));
    drop(memory);
}

#[test]
fn memory_for_reading_is_not_written() {
    let Some((server, client)) = served(mover) else { return };
    let paint = client.procedure::<(Bulk<Write>, u8), (), String>("mover", 0, "paint");
    let pull = client.procedure::<Bulk<Read>, u64, String>("mover", 0, "sum");
    // Peers may not write it directly, but the owner does so for them.
    let memory = Memory::new_read_only(1 << 20).unwrap();
    paint.call(&(memory.to_write(0..1 << 20).unwrap(), 7)).unwrap();
    assert_eq!(only(&server).rdma_bytes, 0);
    assert_eq!(pull.call(&memory.to_read(0..1 << 20).unwrap()), Ok(7 << 20));
    assert_eq!(only(&server).rdma_bytes, 1 << 20);
}

/// More memories than a connection registers, of which each is free as soon as it is not used.
#[test]
fn memories_come_and_go() {
    let Some((server, client)) = served(mover) else { return };
    let pull = client.procedure::<Bulk<Read>, u64, String>("mover", 0, "sum");
    let sent = pattern(64 << 10);
    for _ in 0..scaled(70) {
        assert_eq!(pull.call(&filled(&sent).to_read(0..64 << 10).unwrap()), Ok(sum(&sent)));
    }
    let all: Vec<_> = (0..100).map(|_| filled(&sent)).collect();
    for memory in &all {
        assert_eq!(pull.call(&memory.to_read(0..64 << 10).unwrap()), Ok(sum(&sent)));
    }
    // Over `tcp`, memory is held until the connection ends, so later ones go by messages.
    assert!(only(&server).rdma_bytes >= 60 * (64 << 10));
}

#[test]
fn many_threads_share_a_connection() {
    let Some((server, client)) = served(mover) else { return };
    std::thread::scope(|threads| {
        for index in 0..6 {
            let client = &client;
            threads.spawn(move || {
                let copy = client.procedure::<(Bulk<Read>, Bulk<Write>), (), String>("mover", 0, "copy");
                let sent = pattern((3 << 20) + index);
                let (from, to) = (filled(&sent), Memory::new(sent.len()).unwrap());
                for _ in 0..5 {
                    copy.call(&(from.to_read(0..sent.len()).unwrap(), to.to_write(0..sent.len()).unwrap())).unwrap();
                }
                let mut found = vec![0; sent.len()];
                to.read(0, &mut found).unwrap();
                assert!(found == sent);
            });
        }
    });
    assert!(only(&server).rdma_bytes >= 6 * 5 * 2 * (3 << 20));
}

/// A service that pulls until its call is over, and then once more from memory that it has kept. It
/// counts the calls that have begun.
fn endless(begun: &Arc<AtomicU64>, error: &Arc<std::sync::Mutex<Vec<String>>>) -> Service {
    let (begun, error) = (begun.clone(), error.clone());
    Service::new("endless").procedure("pull", Handling::Pooled, move |_, memory: Bulk<Read>| {
        begun.fetch_add(1, Ordering::Relaxed);
        let mut into = vec![0; 4 << 20];
        let failed = loop {
            if let Err(error) = memory.pull(0, &mut into) {
                break error;
            }
        };
        error.lock().unwrap().push(failed.to_string());
        // The owner may have freed the memory by now. Other calls of the connection go on.
        let again = memory.pull(0, &mut into).unwrap_err();
        error.lock().unwrap().push(again.to_string());
        Ok::<_, Never>(())
    })
}

/// A call that is given up in the middle of a transfer ends it, and its memory may be freed at
/// once. The connection goes on.
#[test]
fn a_call_that_is_given_up_ends_its_transfers() {
    let (begun, errors) = (Arc::default(), Arc::default());
    let serve = |builder| mover(builder).provider(1, endless(&begun, &errors));
    let Some((server, client)) = served(serve) else { return };
    let sum_of = client.procedure::<Bulk<Read>, u64, String>("mover", 0, "sum");
    // Each round takes two of the 65 memories that a connection of a provider in software
    // registers: it never gives one back. All later memory would travel as messages.
    let rounds = scaled(6).min(30);
    for round in 0..rounds {
        let memory = Memory::new(4 << 20).unwrap();
        let bulk = memory.to_read(0..4 << 20).unwrap();
        if round % 2 == 0 {
            let pull = client.procedure::<Bulk<Read>, (), Never>("endless", 1, "pull");
            let before = begun.load(Ordering::Relaxed);
            let pending = pull.start(&bulk).unwrap();
            wait_until("the call begins", || begun.load(Ordering::Relaxed) != before);
            assert_eq!(only(&server).path, "tcp+rdma", "in round {round}");
            // It has moved some bytes then, and is in the middle of others.
            let bytes = only(&server).rdma_bytes + (round << 16);
            wait_until("bytes are moved", || only(&server).rdma_bytes > bytes);
            pending.cancel();
        } else {
            // On a busy machine the deadline is over before the call begins.
            let short = client.deadline(Duration::from_millis(30));
            let pull = short.procedure::<Bulk<Read>, (), Never>("endless", 1, "pull");
            // The handler may notice before its caller does.
            assert!(matches!(pull.call(&bulk), Ok(()) | Err(CallError::Deadline { .. })));
        }
        drop((bulk, memory));
        assert_eq!(sum_of.call(&filled(&pattern(100_000)).to_read(0..100_000).unwrap()), Ok(sum(&pattern(100_000))));
    }
    // It was one connection all the time.
    assert_eq!(only(&server).path, "tcp+rdma");
    server.shutdown(deadline()).unwrap();
    let errors = errors.lock().unwrap();
    // Two of each cancelled call.
    assert!(errors.len() as u64 >= rounds && errors.iter().all(|error| !error.contains("RDMA")), "{errors:?}");
}

/// Where only one side asks for RDMA, there is none. Neither side opens libfabric for the other.
#[test]
fn both_sides_must_ask() {
    farside_testbed::needs!("fabric");
    let server = mover(builder()).start().unwrap();
    let address = server.addresses()[0].to_string();
    let without = Client::to(address, credentials()).unwrap().deadline(limit()).connect().unwrap();
    let plain = mover(Server::builder().listen("tcp://127.0.0.1:0").unwrap().tokens(tokens())).start().unwrap();
    for (server, client) in [(&server, without), (&plain, connect(&plain))] {
        let pull = client.procedure::<Bulk<Read>, u64, String>("mover", 0, "sum");
        let sent = pattern(1 << 20);
        assert_eq!(pull.call(&filled(&sent).to_read(0..1 << 20).unwrap()), Ok(sum(&sent)));
        let dump = only(server);
        assert_eq!((dump.path.as_str(), dump.rdma_bytes), ("tcp", 0));
    }
}

#[test]
fn what_is_missing_is_an_error_of_the_side_that_asked() {
    farside_testbed::needs!("fabric");
    let wrong = Rdma::over("no provider");
    let error = Server::builder().rdma(&wrong).unwrap_err();
    assert!(matches!(error, StartError::Rdma(_)) && error.to_string().contains("name verbs"), "{error}");
    let server = mover(builder()).start().unwrap();
    let address = server.addresses()[0].to_string();
    let error = Client::to(address, credentials()).unwrap().rdma(wrong.clone()).connect().unwrap_err();
    assert!(matches!(&error, ConnectError::Rdma { cause, .. } if cause.contains("name verbs")), "{error}");
    // Over shared memory nothing looks for it.
    let name = format!("shm:no-rdma-{}", std::process::id());
    let _server = mover(Server::builder()).listen(&name).unwrap().start().unwrap();
    Client::to(name, credentials()).unwrap().rdma(wrong).connect().unwrap();
}

/// A stranger that knows no token is not let in, and holds no other client up.
#[test]
fn strangers_are_refused() {
    farside_testbed::needs!("fabric");
    use farside_fabric::ofi::connected::Connection;
    let server = mover(builder()).start().unwrap();
    let address = server.rdma_address().unwrap();
    let provider = std::env::var("FARSIDE_TEST_CONNECTED").unwrap_or_else(|_| "tcp".into());
    let silent: Vec<_> =
        if provider == "tcp" { (0..50).map(|_| TcpStream::connect(address)).collect() } else { Vec::new() };
    for proof in [[0; 32], [7; 32]] {
        let error = Connection::connect(&provider, address, &proof, deadline()).unwrap_err().to_string();
        assert!(error.contains("refused") || error.contains("reject"), "{error}");
    }
    let client = connect(&server);
    let pull = client.procedure::<Bulk<Read>, u64, String>("mover", 0, "sum");
    let sent = pattern(1 << 20);
    assert_eq!(pull.call(&filled(&sent).to_read(0..1 << 20).unwrap()), Ok(sum(&sent)));
    assert!(server.dump().connections.iter().any(|one| one.rdma_bytes == 1 << 20));
    drop(silent);
}

/// Two processes, of which one is killed in the middle of transfers.
#[test]
fn a_client_that_is_killed_leaves_the_server_whole() {
    farside_testbed::needs!("fabric");
    let seen = Arc::new(AtomicBool::new(false));
    let pulled = seen.clone();
    let service = Service::new("victim").procedure("pull", Handling::Pooled, move |_, memory: Bulk<Read>| {
        let mut into = vec![0; memory.bytes() as usize];
        loop {
            if let Err(error) = memory.pull(0, &mut into) {
                return Err::<(), _>(error.to_string());
            }
            assert!(into == pattern(into.len()));
            pulled.store(true, Ordering::Relaxed);
        }
    });
    let server = mover(builder()).provider(1, service).start().unwrap();
    for _ in 0..scaled(1) {
        seen.store(false, Ordering::Relaxed);
        let mut other = Other::start("rdma", &server.addresses()[0].to_string());
        wait_until("the other process comes", || seen.load(Ordering::Relaxed));
        assert!(only(&server).rdma_bytes >= 8 << 20);
        other.kill();
        let is_clean = || server.connection_count() == 0 && server.dump().calls.is_empty();
        wait_until("nothing of the other process is left", is_clean);
    }
    let client = connect(&server);
    let pull = client.procedure::<Bulk<Read>, u64, String>("mover", 0, "sum");
    assert_eq!(pull.call(&filled(&pattern(1 << 20)).to_read(0..1 << 20).unwrap()), Ok(sum(&pattern(1 << 20))));
}

/// A client that stops in the middle of transfers. They end by the deadline, and by its end.
#[test]
fn transfers_with_a_client_that_stops_end_by_the_deadline() {
    farside_testbed::needs!("fabric");
    let seen = Arc::new(AtomicU64::new(0));
    let (pulled, error) = (seen.clone(), Arc::new(std::sync::Mutex::new(String::new())));
    let told = error.clone();
    let service = Service::new("victim").procedure("pull", Handling::Pooled, move |_, memory: Bulk<Read>| {
        let mut into = vec![0; memory.bytes() as usize];
        // The whole memory may take longer than the call on a busy machine.
        let failed = loop {
            let begun = memory.pull(0, &mut into[..64 << 10]);
            pulled.fetch_add(u64::from(begun.is_ok()), Ordering::Relaxed);
            if let Err(error) = begun.and_then(|()| memory.pull(0, &mut into)) {
                break error;
            }
        };
        *told.lock().unwrap() = failed.to_string();
        Err::<(), _>(failed.to_string())
    });
    let server = builder().provider(1, service).max_time(Duration::from_secs(1)).start().unwrap();
    let mut other = Other::start("rdma", &server.addresses()[0].to_string());
    let is_pulling = || server.dump().calls.iter().any(|call| call.running.is_some());
    wait_until("the other process stops in the middle of a call", || {
        let before = seen.load(Ordering::Relaxed);
        wait_until("the other process pulls", || seen.load(Ordering::Relaxed) > before);
        other.stop();
        // Another call may have begun since then, or not yet.
        let is_stopped = is_pulling();
        if !is_stopped {
            other.signal("CONT");
        }
        is_stopped
    });
    wait_until("the transfer ends", || !is_pulling());
    assert_eq!(*error.lock().unwrap(), TransferError::Deadline.to_string());
    other.kill();
    wait_until("the connection ends", || server.connection_count() == 0);
}

/// Memory of a client by RDMA is passed on to a third party, with and without RDMA there.
#[test]
fn memory_is_passed_on() {
    farside_testbed::needs!("fabric");
    let third = mover(builder()).start().unwrap();
    let text = |error: CallError<String>| error.to_string();
    let to = [connect(&third), {
        let address = third.addresses()[0].to_string();
        Client::to(address, credentials()).unwrap().deadline(limit()).connect().unwrap()
    }];
    let mut forwarders = builder();
    for (provider, to) in (0..).zip(&to) {
        let sum = to.procedure::<Bulk<Read>, u64, String>("mover", 0, "sum");
        let paint = to.procedure::<(Bulk<Write>, u8), (), String>("mover", 0, "paint");
        let service = Service::new("forwarder")
            .procedure("sum", Handling::Pooled, move |_, memory: Bulk<Read>| sum.call(&memory).map_err(text))
            .procedure("paint", Handling::Pooled, move |_, memory: (Bulk<Write>, u8)| {
                paint.call(&memory).map_err(text)
            });
        forwarders = forwarders.provider(provider, service);
    }
    let forwarders = forwarders.start().unwrap();
    let client = connect(&forwarders);
    let sent = pattern((3 << 20) + 1);
    for provider in [0, 1] {
        let memory = filled(&sent);
        let sum_of = client.procedure::<Bulk<Read>, u64, String>("forwarder", provider, "sum");
        assert_eq!(sum_of.call(&memory.to_read(0..sent.len()).unwrap()), Ok(sum(&sent)));
        let paint = client.procedure::<(Bulk<Write>, u8), (), String>("forwarder", provider, "paint");
        paint.call(&(memory.to_write(0..sent.len()).unwrap(), 9)).unwrap();
        let mut found = vec![0; sent.len()];
        memory.read(0, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 9));
    }
    assert!(only(&forwarders).rdma_bytes > 0);
}

/// Plays the client that is stopped or killed.
pub(crate) fn victim(address: &str) {
    let client = Client::to(address, credentials()).unwrap().deadline(limit()).rdma(rdma()).connect().unwrap();
    let memory = filled(&pattern(8 << 20));
    let pull = client.procedure::<Bulk<Read>, (), String>("victim", 1, "pull");
    loop {
        let _ = pull.call(&memory.to_read(0..8 << 20).unwrap());
    }
}

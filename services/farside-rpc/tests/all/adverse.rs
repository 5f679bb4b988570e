//! Processes that are stopped or killed, that may not read each other's memory, that have no
//! descriptor left, or that come in crowds.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use farside_rpc::bulk::{Bulk, Memory, Read, Write, scope};
use farside_rpc::server::Builder;
use farside_rpc::{
    CallError, Client, ConnectError, Handling, LinkEnd, Never, Ran, Server, Service, Signature, Stream, Stub,
};
use farside_sys::process_memory;
use farside_testbed::{Holdings, deadline, hold_still, limit, scaled, wait_for, wait_until};

use crate::bulk::pattern;
use crate::processes::Other;
use crate::{credentials, hold_until_cancelled, paths, tokens, unique};

/// The number of calls of `wait` that this process has begun to handle.
static WAITING: AtomicU64 = AtomicU64::new(0);

fn service() -> Service {
    Service::new("adverse")
        .procedure("echo", Handling::Inline, |_, number: u64| Ok::<_, Never>(number))
        .procedure("waiting", Handling::Inline, |_, ()| Ok::<_, Never>(WAITING.load(Ordering::Relaxed)))
        .procedure("wait", Handling::Pooled, |call, ()| {
            WAITING.fetch_add(1, Ordering::Relaxed);
            hold_until_cancelled(call);
            Ok::<_, Never>(())
        })
        .procedure("pull", Handling::Pooled, |_, memory: Bulk<Read>| {
            memory.pull_all().map_err(|error| error.to_string())
        })
        .procedure("push", Handling::Pooled, |_, memory: Bulk<Write>| {
            memory.push(0, &pattern(memory.bytes() as usize)).map_err(|error| error.to_string())
        })
        .procedure("count", Handling::Pooled, |_, ()| Ok::<_, Never>(Stream::new(0_u64..)))
        .procedure("look", Handling::Pooled, |call, place: u64| {
            let own = Box::new(PROOF);
            // In a namespace of processes, those outside have no number.
            let can_read = call.peer().process.is_some_and(|pid| can_read(pid, place));
            Ok::<_, String>((std::process::id(), can_read, {
                // It stays where it is until the process ends.
                std::ptr::from_ref(Box::leak(own)).expose_provenance() as u64
            }))
        })
}

fn start(address: &str) -> Server {
    let builder = Server::builder().listen(address).unwrap().tokens(tokens());
    builder.provider(0, service()).pool(2).start().unwrap()
}

/// A server until its parent kills it.
pub(crate) fn serve(address: &str) {
    let _server = start(address);
    hold_still();
}

fn connect(address: &str) -> Client {
    crate::connect(address, credentials())
}

/// An address for a server in another process.
fn addresses() -> [String; 2] {
    [format!("shm:{}", unique("adverse")), format!("tcp://127.0.0.1:{}", farside_testbed::free_port())]
}

fn echo(client: &Client, number: u64) -> Result<u64, CallError<Never>> {
    client.procedure::<u64, u64, Never>("adverse", 0, "echo").call(&number)
}

/// A server listens on IPv6 and on shared memory, and serves both.
#[test]
fn a_server_listens_on_ipv6_and_shared_memory() {
    if let Err(error) = std::net::TcpListener::bind("[::1]:0") {
        eprintln!("left out: a_server_listens_on_ipv6_and_shared_memory: no IPv6 here ({error})");
        return;
    }
    let shm = format!("shm:{}", unique("six"));
    let builder = Server::builder().listen("tcp://[::1]:0").unwrap().listen(&shm).unwrap();
    let server = builder.tokens(tokens()).provider(0, service()).start().unwrap();
    let addresses: Vec<_> = server.addresses().iter().map(ToString::to_string).collect();
    let [tcp, named] = &addresses[..] else { panic!("{addresses:?}") };
    assert!(tcp.starts_with("tcp://[::1]:") && !tcp.ends_with(":0") && *named == shm, "{addresses:?}");
    let clients = [tcp, named].map(|address| {
        let connect = Client::to(address, credentials()).unwrap().deadline(limit());
        connect.over_network().connect().unwrap()
    });
    let sent = pattern(300_001);
    for (number, client) in (0..).zip(&clients) {
        assert_eq!(echo(client, number), Ok(number));
        let pull = client.procedure::<Bulk<Read>, Vec<u8>, String>("adverse", 0, "pull");
        assert!(scope(|scope| pull.call(&scope.lend(&sent))) == Ok(sent.clone()));
    }
    let mut paths: Vec<_> = server.dump().connections.into_iter().map(|found| (found.path, found.peer)).collect();
    paths.sort();
    assert!(paths[0].0 == "shm" && paths[1].0 == "tcp" && paths[1].1.contains("::1"), "{paths:?}");
    drop(clients);
    server.shutdown(deadline()).unwrap();
}

/// A call to a stopped server ends with its deadline. Other servers answer meanwhile. When the
/// server goes on, the same client calls it.
#[test]
fn a_stopped_server_is_a_deadline() {
    let beside = start(&format!("shm:{}", unique("beside")));
    let undisturbed = connect(&beside.addresses()[0].to_string());
    for address in addresses() {
        let server = Other::start("adverse-server", &address);
        let client = connect(&address);
        assert_eq!(echo(&client, 1), Ok(1));
        let signature = Signature::new("adverse").procedure::<u64, u64, Never>("echo", false);
        let patient = Stub::new(client.clone(), Arc::new(signature), 0);
        assert_eq!(patient.call::<u64, u64, Never>(0, &1), Ok(1));
        // Both know the procedure now.
        let hasty = patient.with_client(client.deadline(Duration::from_millis(100)));
        server.stop();
        for number in 0..3_u64 {
            let late = hasty.call::<u64, u64, Never>(0, &number);
            // On a busy machine, the time may be over before the call is sent.
            assert!(matches!(late, Err(CallError::Deadline { .. })), "{address}: {late:?}");
            assert_eq!(echo(&undisturbed, number), Ok(number));
        }
        let late = Client::to(&address, credentials()).unwrap().deadline(Duration::from_millis(100)).connect();
        assert_eq!(late.unwrap_err(), ConnectError::TimedOut { address: address.clone() });
        server.signal("CONT");
        assert_eq!(echo(&client, 2), Ok(2), "{address}");
        assert_eq!(echo(&connect(&address), 3), Ok(3), "{address}");
    }
}

/// Uses a server without end.
pub(crate) fn use_it(address: &str) {
    let client = connect(address);
    let pull = client.procedure::<Bulk<Read>, Vec<u8>, String>("adverse", 0, "pull");
    let push = client.procedure::<Bulk<Write>, (), String>("adverse", 0, "push");
    let mut items = client.procedure::<(), Stream<u64>, Never>("adverse", 0, "count").call(&()).unwrap();
    let mut room = pattern(3 << 20);
    for number in 0.. {
        assert_eq!(items.next(), Some(Ok(number)));
        assert!(scope(|scope| pull.call(&scope.lend(&room))).unwrap() == room);
        scope(|scope| push.call(&scope.lend_mut(&mut room))).unwrap();
    }
}

/// A client that is stopped in the middle of something holds up no other. What it has comes back
/// when it is killed.
#[test]
fn a_stopped_client_disturbs_nobody() {
    for address in paths() {
        let serve = |builder: Builder| builder.provider(0, service()).pool(4).max_threads(2);
        let (server, honest) = crate::start(address, serve);
        let address = server.addresses()[0].to_string();
        let pull = honest.procedure::<Bulk<Read>, Vec<u8>, String>("adverse", 0, "pull");
        let sent = pattern(300_001);
        for round in 0..scaled(1) {
            let done = || server.stats().iter().find(|stats| stats.name == "adverse/0/push").unwrap().done;
            let before = done();
            let mut client = Other::start("adverse-client", &address);
            wait_until("the client calls", || done() > before + round % 5);
            client.stop();
            for number in 0..20 {
                assert_eq!(echo(&honest, number), Ok(number));
                assert!(scope(|scope| pull.call(&scope.lend(&sent))) == Ok(sent.clone()));
            }
            // Over TCP, the system ends a connection whose peer takes nothing for some seconds.
            assert!(server.connection_count() == 2 || address.starts_with("tcp"), "{address}");
            client.kill();
            wait_until("the server forgets the client", || {
                let dump = server.dump();
                server.connection_count() == 1 && dump.connections.len() == 1 && dump.calls.is_empty()
            });
        }
        drop((honest, pull));
        server.shutdown(deadline()).unwrap();
    }
}

/// A call that may take a day fails when its server is killed.
#[test]
fn a_killed_server_fails_calls_at_once() {
    for address in addresses() {
        let mut server = Other::start("adverse-server", &address);
        let client = connect(&address);
        let waiting = client.procedure::<(), u64, Never>("adverse", 0, "waiting");
        let (sender, ends) = mpsc::channel();
        let patient = client.deadline(Duration::from_secs(86_400)).procedure::<(), (), Never>("adverse", 0, "wait");
        let wait = std::thread::spawn(move || sender.send(patient.call(&())).unwrap());
        wait_until("the call begins", || waiting.call(&()) == Ok(1));
        server.kill();
        let lost = CallError::Lost { ran: Ran::Maybe, cause: LinkEnd::ByPeer };
        assert_eq!(ends.recv_timeout(limit()), Ok(Err(lost)), "{address}");
        wait.join().unwrap();
    }
}

/// The secret that one process looks for in the memory of another.
const PROOF: u64 = 0x6673_7270_6370_726f;

/// Returns whether the system lets this process read the memory of another.
fn can_read(pid: i32, place: u64) -> bool {
    let mut found = [0; 8];
    let read = process_memory::read(pid, place as usize, &mut found);
    matches!(read, Ok(8)) && u64::from_ne_bytes(found) == PROOF
}

/// Moves bulk data in both directions. Returns whether the server and the client can read each
/// other's memory.
fn exchange(address: &str) -> (bool, bool) {
    let client = connect(address);
    let own = Box::new(PROOF);
    let look = client.procedure::<u64, (u32, bool, u64), String>("adverse", 0, "look");
    let (server, server_reads, place) = look.call(&(std::ptr::from_ref(&*own).expose_provenance() as u64)).unwrap();
    let client_reads = can_read(server as i32, place);
    let pull = client.procedure::<Bulk<Read>, Vec<u8>, String>("adverse", 0, "pull");
    let push = client.procedure::<Bulk<Write>, (), String>("adverse", 0, "push");
    for bytes in [5_001, (5 << 20) + 3] {
        let sent = pattern(bytes);
        let memory = Memory::new(bytes).unwrap();
        // The second time, both know how they read each other.
        for _ in 0..2 {
            assert!(scope(|scope| pull.call(&scope.lend(&sent))) == Ok(sent.clone()));
            assert!(scope(|scope| pull.call(&scope.lend_all(sent.chunks(5003)))) == Ok(sent.clone()));
            let mut room = vec![0; bytes];
            scope(|scope| push.call(&scope.lend_mut(&mut room))).unwrap();
            assert!(room == sent);
            // Both map this.
            memory.write(0, &vec![0; bytes]).unwrap();
            push.call(&memory.to_write(0..bytes).unwrap()).unwrap();
            assert!(pull.call(&memory.to_read(0..bytes).unwrap()) == Ok(sent.clone()));
        }
    }
    (server_reads, client_reads)
}

/// A client that may not read its server's memory.
pub(crate) fn exchange_apart(address: &str) {
    let (_, client_reads) = exchange(address);
    assert!(!client_reads, "the system lets it read the server");
}

/// Processes in different user namespaces have no right to read each other's memory. In different
/// namespaces of processes they do not know each other's numbers. Their bulk data travels by
/// messages.
#[test]
fn processes_that_may_not_read_each_other_exchange_data() {
    let mut try_it = Command::new("unshare");
    try_it.args(Other::APART).arg("true").stderr(Stdio::null());
    if !try_it.status().is_ok_and(|status| status.success()) {
        eprintln!(
            "left out: processes_that_may_not_read_each_other_exchange_data: it needs unshare and user namespaces"
        );
        return;
    }
    let by_name = || format!("shm:{}", unique("apart"));
    let by_path = || format!("shm:{}", std::env::temp_dir().join(unique("apart")).display());
    for unknown in [false, true] {
        for new_address in [&by_name as &dyn Fn() -> String, &by_path] {
            let address = new_address();
            let apart = Other::start_apart(unknown, "adverse-server", &address);
            assert!(!exchange(&address).0, "the system lets the server read its client");
            assert!(Other::start_apart(unknown, "exchange", &address).succeeds());
            drop(apart);
            if let Some(path) = address.strip_prefix("shm:/") {
                // The server was killed.
                std::fs::remove_file(format!("/{path}")).unwrap();
            }
            let server = start(&new_address());
            assert!(Other::start_apart(unknown, "exchange", &server.addresses()[0].to_string()).succeeds());
            server.shutdown(deadline()).unwrap();
        }
    }
}

/// A server without a free descriptor serves those that it has, and others when there is room.
#[test]
fn a_server_without_descriptors_keeps_its_clients() {
    const DESCRIPTORS: usize = 64;
    /// The most descriptors that the server has for one connection.
    const NEEDED_MAX: usize = 8;
    for address in addresses() {
        let server = Other::start_with_descriptors(DESCRIPTORS as u32, "adverse-server", &address);
        let mut clients = vec![connect(&address)];
        let has_few_left = || Holdings::of(&server.id().to_string()).descriptors > DESCRIPTORS - NEEDED_MAX;
        let refused = wait_for("the server has no descriptor left", || {
            let connect = Client::to(&address, credentials()).unwrap().deadline(Duration::from_millis(200));
            match connect.connect() {
                Ok(client) => clients.push(client),
                Err(error) if has_few_left() => return Some(error),
                // The server was not quick enough.
                Err(_) => {}
            }
            assert!(clients.len() < DESCRIPTORS, "{address}: the server has a descriptor for each");
            None
        });
        assert!(matches!(refused, ConnectError::TimedOut { .. } | ConnectError::Failed { .. }), "{refused}");
        assert!(clients.len() > 5, "{address}: {} clients", clients.len());
        for (number, client) in (0..).zip(&clients) {
            assert_eq!(echo(client, number), Ok(number), "{address}");
        }
        clients.truncate(clients.len() / 2);
        let again: Vec<_> = (0..3).map(|_| connect(&address)).collect();
        for (number, client) in (0..).zip(clients.iter().chain(&again)) {
            assert_eq!(echo(client, number), Ok(number), "{address}");
        }
        drop(server);
    }
}

/// The clients that come at once, and those that come one after the other.
fn crowd_sizes() -> (usize, u64) {
    (scaled(30) as usize, scaled(300))
}

/// The descriptors and threads of this process.
fn usage() -> (usize, usize) {
    let count = |folder| std::fs::read_dir(folder).unwrap().count();
    (count("/proc/self/fd"), count("/proc/self/task"))
}

/// In a process that has no other tests: clients at once, then one after the other.
pub(crate) fn crowd(address: &str) {
    let server = start(address);
    let address = &server.addresses()[0].to_string();
    let honest = connect(address);
    assert_eq!(echo(&honest, 1), Ok(1));
    let before = usage();
    let (at_once, visitors) = crowd_sizes();
    let all_here = Barrier::new(at_once);
    std::thread::scope(|scope| {
        for number in 0..at_once as u64 {
            let all_here = &all_here;
            scope.spawn(move || {
                all_here.wait();
                let client = connect(address);
                assert_eq!(echo(&client, number), Ok(number));
                // All are connected at the same time.
                all_here.wait();
                assert_eq!(echo(&client, number), Ok(number));
            });
        }
    });
    let is_as_before = || server.connection_count() == 1 && usage() == before;
    wait_until("the crowd has left nothing", is_as_before);
    for visitor in 0..visitors {
        assert_eq!(echo(&connect(address), visitor), Ok(visitor));
    }
    wait_until("the visitors have left nothing", is_as_before);
    assert_eq!(echo(&honest, 2), Ok(2));
    drop(honest);
    server.shutdown(deadline()).unwrap();
}

#[test]
fn crowds_are_served_and_leave_nothing() {
    for address in paths() {
        let mut crowd = Other::start_with_descriptors(4096, "adverse-crowd", &address);
        assert!(crowd.succeeds(), "{address}");
    }
}

mod timing {
    use std::time::Instant;

    use super::*;

    #[test]
    fn ten_thousand_clients_come_in_a_minute() {
        for address in paths() {
            let server = start(&address);
            let address = &server.addresses()[0].to_string();
            let begun = Instant::now();
            for visitor in 0..10_000 {
                assert_eq!(echo(&connect(address), visitor), Ok(visitor));
            }
            let took = begun.elapsed();
            assert!(took < Duration::from_secs(60), "{address}: {took:?}");
        }
    }
}

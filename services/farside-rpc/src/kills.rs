//! Processes that are killed at every point of the protocol.
//!
//! The points are numbered in the order in which a process passes them. A test kills a process at
//! its first point, the next one at its second, and so on, until one comes to its end. With little
//! depth, it leaves points out.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use farside_connect::testing::die_after;
use farside_testbed::{depth, free_port, is_left_out, limit, wait_for, wait_until};

use crate::bulk::{Bulk, Memory, Read, Write, scope};
use crate::{CallError, Client, Credentials, Handling, Never, Rdma, Server, Service, Stream, Tokens, TransferError};

/// The streams and values of this process's handlers that were not dropped.
static HELD: AtomicU64 = AtomicU64::new(0);

/// The variable that makes this program play a part: its name, the point, and addresses.
const PART: &str = "FARSIDE_RPC_KILLS";
const TEST: &str = "kills::other";
/// The points from one kill to the next, with depth 1.
const STEP: f64 = 10.0;
const BYTES: usize = 150_000;

struct Held;

impl Held {
    fn new() -> Self {
        HELD.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}

fn credentials() -> Credentials {
    Credentials::token("killed", "secret")
}

/// The prefix of an address whose bulk data goes by RDMA.
const BY_RDMA: &str = "rdma+";

fn split(address: &str) -> (&str, Option<Rdma>) {
    match address.strip_prefix(BY_RDMA) {
        Some(address) => (address, Some(Rdma::over("tcp").at([127, 0, 0, 1].into()))),
        None => (address, None),
    }
}

fn connect(address: &str, is_once: bool) -> Result<Client, String> {
    let (address, rdma) = split(address);
    let connect = Client::to(address, credentials()).unwrap().deadline(limit());
    let connect = match rdma {
        Some(rdma) => connect.rdma(rdma),
        None => connect,
    };
    let connect = if is_once { connect.once() } else { connect };
    connect.connect().map_err(|error| error.to_string())
}

fn text(error: TransferError) -> String {
    error.to_string()
}

/// A server with every kind of handler. With another server, it passes memory on to that.
fn start(address: &str, third: Option<&Client>) -> Server {
    let memory = Memory::new(BYTES).unwrap();
    let held = || HELD.load(Ordering::Relaxed);
    let mut service = Service::new("kills")
        .procedure("echo", Handling::Inline, |_, bytes: Vec<u8>| Ok::<_, Never>(bytes))
        .procedure("wait", Handling::Pooled, |call, ()| {
            wait_until("the call is cancelled", || call.is_cancelled());
            Ok::<_, Never>(())
        })
        .procedure("sum", Handling::Pooled, |_, memory: Bulk<Read>| {
            Ok::<_, String>(memory.pull_all().map_err(text)?.iter().map(|byte| u64::from(*byte)).sum::<u64>())
        })
        .procedure("fill", Handling::Pooled, |_, memory: Bulk<Write>| {
            memory.push(0, &vec![7; memory.bytes() as usize]).map_err(text)
        })
        .async_procedure("sum_async", |_, memory: Bulk<Read>| async move {
            let bytes = memory.pull_async(0, memory.bytes() as usize).await.map_err(text)?;
            Ok::<_, String>(bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>())
        })
        .procedure("show", Handling::Pooled, move |_, ()| {
            Ok::<_, Never>(memory.to_read(0..BYTES).expect("the range is inside").keeping(Held::new()))
        })
        .procedure("count", Handling::Pooled, |_, ()| {
            let held = Held::new();
            Ok::<_, Never>(Stream::new((0_u64..20_000).inspect(move |_| _ = &held)))
        })
        .procedure("note", Handling::Pooled, |_, _: Bulk<Read>| Ok::<_, Never>(()))
        .procedure("held", Handling::Pooled, move |_, ()| Ok::<_, Never>(held()));
    if let Some(third) = third {
        let sum = third.procedure::<Bulk<Read>, u64, String>("kills", 0, "sum");
        let fill = third.procedure::<Bulk<Write>, (), String>("kills", 0, "fill");
        let failed = |error: CallError<String>| error.to_string();
        service = service
            .procedure("sum_there", Handling::Pooled, move |_, memory: Bulk<Read>| sum.call(&memory).map_err(failed))
            .procedure("fill_there", Handling::Pooled, move |_, memory: Bulk<Write>| {
                fill.call(&memory).map_err(failed)
            });
    }
    let tokens = Tokens::new().with("killed", "secret", ["all"]);
    let (address, rdma) = split(address);
    let builder = Server::builder().listen(address).unwrap().tokens(tokens).provider(0, service).pool(2);
    let builder = match rdma {
        Some(rdma) => builder.rdma(&rdma).unwrap(),
        None => builder,
    };
    builder.start().unwrap()
}

/// Why a call to a process that may be killed failed. No other reason is right.
fn lost<E: std::fmt::Debug + std::fmt::Display>(error: CallError<E>) -> String {
    match error {
        CallError::Lost { .. } | CallError::Connect(_) => error.to_string(),
        error => panic!("{error}"),
    }
}

/// Makes a short call and one with bulk data.
fn greet(client: &Client) -> Result<(), String> {
    let echo = client.procedure::<Vec<u8>, Vec<u8>, Never>("kills", 0, "echo");
    for length in [10, BYTES] {
        assert!(echo.call(&vec![3; length]).map_err(lost)? == vec![3; length]);
    }
    Ok(())
}

/// Makes every kind of call.
fn visit(client: &Client) -> Result<(), String> {
    greet(client)?;
    let bytes = vec![3; BYTES];
    let sum_of = |bytes: usize| 3 * bytes as u64;
    for name in ["sum", "sum_async", "sum_there"] {
        let sum = client.procedure::<Bulk<Read>, u64, String>("kills", 0, name);
        assert_eq!(scope(|scope| sum.call(&scope.lend(&bytes))).map_err(lost)?, sum_of(BYTES));
        // Small segments travel by messages, also on one machine.
        assert_eq!(scope(|scope| sum.call(&scope.lend_all(bytes.chunks(700)))).map_err(lost)?, sum_of(BYTES));
        let memory = Memory::new(BYTES).unwrap();
        memory.write(0, &bytes).unwrap();
        assert_eq!(sum.call(&memory.to_read(0..BYTES).unwrap()).map_err(lost)?, sum_of(BYTES));
    }
    for name in ["fill", "fill_there"] {
        let fill = client.procedure::<Bulk<Write>, (), String>("kills", 0, name);
        let mut room = vec![0; BYTES];
        let filled = scope(|scope| fill.call(&scope.lend_mut(&mut room)));
        // It is free whatever has become of the call.
        let is_full = room.iter().all(|byte| *byte == 7);
        room.fill(0);
        assert!(is_full || filled.is_err());
        filled.map_err(lost)?;
        let memory = Memory::new(BYTES).unwrap();
        fill.call(&memory.to_write(0..BYTES).unwrap()).map_err(lost)?;
    }
    let shown = client.procedure::<(), Bulk<Read>, Never>("kills", 0, "show").call(&()).map_err(lost)?;
    shown.pull(0, &mut [0; 1000]).map_err(text)?;
    let mut stream = client.procedure::<(), Stream<u64>, Never>("kills", 0, "count").call(&()).map_err(lost)?;
    assert_eq!(stream.try_fold(0, |sum, item| item.map(|number| sum + number)).map_err(lost)?, 199_990_000);
    let wait = client.procedure::<(), (), Never>("kills", 0, "wait");
    wait.start(&()).map_err(lost)?.cancel();
    let note = client.procedure::<Bulk<Read>, (), Never>("kills", 0, "note");
    note.send(&bytes.as_slice().into()).map_err(lost)?;
    let failed = client.flush().map_err(lost)?;
    if failed > 0 { Err("a one-way call was lost".into()) } else { Ok(()) }
}

/// A process that plays a part, and ends with its standard input.
struct Victim(Child);

impl Victim {
    fn start(part: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", TEST, "--nocapture", "--quiet"]).env(PART, part);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    /// Returns whether the process has come to its end alive.
    fn has_survived(&mut self) -> bool {
        use std::os::unix::process::ExitStatusExt;

        drop(self.0.stdin.take());
        let status = wait_for("a process ends", || self.0.try_wait().unwrap());
        assert!(status.success() || status.signal() == Some(9), "{status}");
        status.success()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The descriptors and the mappings of the library that this process has.
fn usage() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mappings = std::fs::read_to_string("/proc/self/maps").unwrap();
    (descriptors, mappings.lines().filter(|line| line.contains("farside")).count())
}

/// The same when it does not change any more: threads of connections that ended may be at work.
fn usage_at_rest() -> (usize, usize) {
    const LOOKS: u32 = 100;
    let (mut found, mut same) = (usage(), 0);
    wait_until("descriptors and mappings stay", || {
        same = if usage() == found { same + 1 } else { 0 };
        found = usage();
        same == LOOKS
    });
    found
}

/// Waits until the servers have the connections that stay, and nothing else.
fn wait_until_clean(servers: &[(&Server, usize)], usage_before: (usize, usize)) {
    wait_until("connections, calls, values, descriptors and mappings are as before", || {
        let calls = servers.iter().map(|(server, _)| server.dump().calls.len()).sum::<usize>();
        let has_others = servers.iter().any(|(server, stay)| server.connection_count() != *stay);
        !has_others && calls == 0 && HELD.load(Ordering::Relaxed) == 0 && usage() == usage_before
    });
}

/// The points at which processes are killed: all of them, or some.
fn points() -> impl Iterator<Item = u64> {
    let step = (STEP / depth()).ceil().max(1.0) as u64;
    (0..).map(move |number| 1 + number * step)
}

/// Kills clients of a server that passes memory on. Another client is not disturbed.
fn kill_clients(address: &str) {
    let third_address = format!("shm:kills-third-{}", std::process::id());
    let third = start(&third_address, None);
    let to = connect(&third_address, false).unwrap();
    let server = start(address, Some(&to));
    // Over `tcp`, libfabric holds memory until the connection ends.
    let stays = !address.starts_with(BY_RDMA);
    let honest = stays.then(|| connect(address, false).unwrap());
    let honestly = |call: fn(&Client) -> Result<(), String>| match &honest {
        Some(honest) => call(honest),
        None => call(&connect(address, false).unwrap()),
    };
    honestly(visit).unwrap();
    assert!(Victim::start(&format!("client 0 {address}")).has_survived());
    let servers = [(&server, usize::from(stays)), (&third, 1)];
    let before = usage_at_rest();
    wait_until_clean(&servers, before);
    for (number, point) in points().enumerate() {
        let mut victim = Victim::start(&format!("client {point} {address}"));
        let has_survived = victim.has_survived();
        drop(victim);
        wait_until_clean(&servers, before);
        // A whole visit takes longer than all else here.
        honestly(if has_survived || number % 8 == 0 { visit } else { greet }).unwrap();
        if has_survived {
            eprintln!("{address}: {point} points of a client");
            assert!(point > 100, "{address}: a client passed {point} points");
            break;
        }
    }
}

/// Kills servers that pass memory on. Their clients learn of it, and the next server has the same
/// address.
fn kill_servers(address: &str) {
    let third_address = format!("shm:kills-third-{}", std::process::id());
    let third = start(&third_address, None);
    let mut before = None;
    for point in std::iter::once(0).chain(points()) {
        let mut victim = Victim::start(&format!("server {point} {address} {third_address}"));
        // The server may not have begun to listen, or may be dead.
        let visited = wait_for("the server listens, or is dead", || match connect(address, true) {
            Ok(client) => Some(visit(&client)),
            Err(error) => victim.0.try_wait().unwrap().map(|_| Err(error)),
        });
        let has_survived = victim.has_survived();
        drop(victim);
        wait_until_clean(&[(&third, 0)], *before.get_or_insert_with(usage_at_rest));
        if has_survived {
            assert_eq!(visited, Ok(()), "{address}: point {point}");
            if point > 0 {
                eprintln!("{address}: {point} points of a server");
                assert!(point > 100, "{address}: a server passed {point} points");
                break;
            }
        }
    }
}

fn play(part: &str) {
    let mut words = part.split(' ');
    let (part, point) = (words.next().unwrap(), words.next().unwrap().parse().unwrap());
    let mut address = || words.next().unwrap();
    let die_at = |point: i64| die_after(if point == 0 { i64::MAX } else { point });
    match part {
        "client" => {
            die_at(point);
            visit(&connect(address(), true).unwrap()).unwrap();
        }
        "server" => {
            let (address, third) = (address(), address());
            die_at(point);
            let to = connect(third, true).unwrap();
            let server = start(address, Some(&to));
            let _ = std::io::stdin().read(&mut [0]);
            drop(server);
        }
        "kill-clients" => kill_clients(address()),
        "kill-servers" => kill_servers(address()),
        part => panic!("unknown part {part}"),
    }
}

/// Plays a part, if this process was started for one.
#[test]
fn other() {
    if let Ok(part) = std::env::var(PART) {
        play(&part);
    }
}

/// Every process is one of its own, so that nothing else opens descriptors there.
fn kill_at_points(part: &str, address: &str) {
    assert!(Victim::start(&format!("{part} 0 {address}")).has_survived(), "the test was killed");
}

fn shm() -> String {
    format!("shm:kills-{}", std::process::id())
}

fn tcp() -> String {
    format!("tcp://127.0.0.1:{}", free_port())
}

#[test]
fn killed_clients_leave_nothing_behind() {
    kill_at_points("kill-clients", &shm());
}

#[test]
fn killed_servers_give_way_to_others() {
    kill_at_points("kill-servers", &shm());
}

mod deep {
    use super::*;

    #[test]
    fn killed_clients_leave_nothing_behind_over_tcp() {
        kill_at_points("kill-clients", &tcp());
    }

    #[test]
    fn killed_servers_give_way_to_others_over_tcp() {
        kill_at_points("kill-servers", &tcp());
    }

    #[test]
    fn killed_clients_leave_nothing_behind_over_rdma() {
        if !is_left_out("fabric") {
            kill_at_points("kill-clients", &format!("{BY_RDMA}{}", tcp()));
        }
    }

    #[test]
    fn killed_servers_give_way_to_others_over_rdma() {
        if !is_left_out("fabric") {
            kill_at_points("kill-servers", &format!("{BY_RDMA}{}", tcp()));
        }
    }
}

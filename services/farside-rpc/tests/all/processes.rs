//! Servers and clients in processes of their own, which are killed.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use farside_rpc::bulk::{Bulk, Read, Write, scope};
use farside_rpc::{CallError, Client, Handling, LinkEnd, Never, Ran, Server, Service, Stream};
use farside_testbed::{ended_with_us, ending_with_us, hold_still, scaled, wait_for, wait_until};

use crate::{credentials, hold_until_cancelled, paths, tokens, unique};

/// The variable that makes this test program play a part.
const PART: &str = "FARSIDE_RPC_TEST_PART";

/// A process that is killed in the end.
pub(crate) struct Other(Child);

impl Other {
    /// The options of `unshare` to run a program with the same user in another user namespace.
    pub(crate) const APART: [&str; 4] = ["--user", "--map-current-user", "--keep-caps", "--"];
    /// The command that runs it in another namespace of processes, too, from there.
    const UNKNOWN: [&str; 5] = ["unshare", "--pid", "--fork", "--kill-child", "--"];

    pub(crate) fn start(part: &str, address: &str) -> Self {
        Self::start_as(ended_with_us(std::env::current_exe().unwrap()), part, address)
    }

    /// Starts a process in another user namespace. If it is `unknown`, it does not know the numbers
    /// of the processes outside, as in a container.
    pub(crate) fn start_apart(unknown: bool, part: &str, address: &str) -> Self {
        let mut command = Command::new("unshare");
        command.args(Self::APART).args(ending_with_us());
        command.args(if unknown { &Self::UNKNOWN[..] } else { &[] }).arg(std::env::current_exe().unwrap());
        Self::start_as(command, part, address)
    }

    /// Starts a process that may have this number of descriptors, if the system allows that.
    pub(crate) fn start_with_descriptors(count: u32, part: &str, address: &str) -> Self {
        let mut command = ended_with_us("sh");
        command.args(["-c", r#"ulimit -n "$0"; exec "$@""#, &count.to_string()]);
        command.arg(std::env::current_exe().unwrap());
        Self::start_as(command, part, address)
    }

    fn start_as(mut command: Command, part: &str, address: &str) -> Self {
        command.args(["--exact", "processes::other", "--nocapture", "--quiet"]).env(PART, format!("{part} {address}"));
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits until the process ends. Returns whether it ends well.
    pub(crate) fn succeeds(&mut self) -> bool {
        wait_for("the process ends", || self.0.try_wait().unwrap()).success()
    }

    /// Stops the process, and waits until none of its threads runs any more.
    pub(crate) fn stop(&self) {
        self.signal("STOP");
        let is_stopped = |thread: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('T'))
        };
        let tasks = || std::fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
        wait_until("the process stops", || tasks().all(is_stopped));
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.0.id().to_string()).status();
        assert!(sent.unwrap().success());
    }

    pub(crate) fn kill(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The number of streams that have not ended.
static OPEN: AtomicU64 = AtomicU64::new(0);

struct Open;

impl Open {
    fn new() -> Self {
        OPEN.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

fn service() -> Service {
    Service::new("parts")
        .procedure("wait", Handling::Pooled, |call, (): ()| {
            hold_until_cancelled(call);
            Ok::<_, Never>(())
        })
        .procedure("pull", Handling::Pooled, |_, memory: Bulk<Read>| {
            memory.pull_all().map(|bytes| bytes.len() as u64).map_err(|error| error.to_string())
        })
        .procedure("count", Handling::Pooled, |_, ()| {
            let open = Open::new();
            Ok::<_, Never>(Stream::new((0_u64..).inspect(move |_| _ = &open)))
        })
        .procedure("push", Handling::Pooled, |_, memory: Bulk<Write>| {
            memory.push(0, &vec![7; memory.bytes() as usize]).map_err(|error| error.to_string())
        })
}

fn connect(address: &str) -> Client {
    crate::connect(address, credentials())
}

/// Plays a part, if this process was started for one.
#[test]
fn other() {
    let Ok(part) = std::env::var(PART) else { return };
    let (part, address) = part.split_once(' ').unwrap();
    match part {
        "server" => {
            let server = Server::builder().listen(address).unwrap().tokens(tokens()).provider(0, service()).pool(2);
            let _server = server.start().unwrap();
            hold_still();
        }
        "rdma" => crate::rdma::victim(address),
        "caller" => {
            let client = connect(address);
            let pull = client.procedure::<Bulk<Read>, u64, String>("parts", 0, "pull");
            let push = client.procedure::<Bulk<Write>, (), String>("parts", 0, "push");
            let count = client.procedure::<(), Stream<u64>, Never>("parts", 0, "count");
            let mut room = vec![1; 3 << 20];
            // It is not read further, and ends with the process.
            let mut items = count.call(&()).unwrap();
            assert_eq!(items.next(), Some(Ok(0)));
            loop {
                scope(|scope| pull.call(&scope.lend(&room)).unwrap());
                scope(|scope| push.call(&scope.lend_mut(&mut room)).unwrap());
            }
        }
        "adverse-server" => crate::adverse::serve(address),
        "adverse-client" => crate::adverse::use_it(address),
        "adverse-crowd" => crate::adverse::crowd(address),
        "exchange" => crate::adverse::exchange_apart(address),
        "forker" => crate::forks::fork(address),
        "soak-server" => crate::soak::serve(address),
        "crowd" => crate::soak::crowd(address),
        part => panic!("unknown part {part}"),
    }
}

/// A server that is killed ends the calls under way at once, and its name is free.
#[test]
fn a_killed_server_loses_its_calls() {
    let name = format!("shm:{}", unique("killed"));
    let mut first = Other::start("server", &name);
    let client = connect(&name);
    let wait = client.procedure::<(), (), Never>("parts", 0, "wait");
    let pending = wait.start(&()).unwrap();
    let mut items = client.procedure::<(), Stream<u64>, Never>("parts", 0, "count").call(&()).unwrap();
    for number in 0..10_000 {
        assert_eq!(items.next(), Some(Ok(number)));
    }
    assert_eq!(client.ping(1), Ok(1));
    first.kill();
    let error = pending.wait().unwrap_err();
    let lost = CallError::Lost { ran: Ran::Maybe, cause: LinkEnd::ByPeer };
    assert_eq!(error, lost);
    // What had arrived is still there.
    let end = (10_000..).zip(items).find(|(number, item)| *item != Ok(*number)).map(|(_, item)| item);
    assert_eq!(end, Some(Err(lost)));
    let before = client.incarnation();
    let _second = Other::start("server", &name);
    // The new server has the name as soon as it has started.
    assert_eq!(client.ping(2), Ok(2));
    assert_ne!(client.incarnation(), before);
}

/// Clients that are killed in the middle of bulk data leave nothing behind at the server.
#[test]
fn killed_clients_leave_nothing_behind() {
    for address in paths() {
        let (server, honest) = crate::start(address, |builder| builder.provider(0, service()).pool(2));
        let address = server.addresses()[0].to_string();
        let calls = || {
            let stats = server.stats();
            let of = |name: &str| stats.iter().find(|stats| stats.name == name).unwrap().done;
            of("parts/0/pull") + of("parts/0/push")
        };
        for round in 0..scaled(2) {
            let before = calls();
            let mut clients: Vec<_> = (0..2).map(|_| Other::start("caller", &address)).collect();
            wait_until("the clients call", || calls() >= before + 3 + round);
            clients.iter_mut().for_each(Other::kill);
            assert_eq!(honest.ping(round), Ok(round));
            // The server finds out about the ends a moment later.
            let is_clean = || server.connection_count() == 1 && OPEN.load(Ordering::Relaxed) == 0;
            wait_until("no connection and no stream of them is left", is_clean);
        }
    }
}

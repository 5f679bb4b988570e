//! Servers and clients in processes of their own, which are killed.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farside_rpc::bulk::{Bulk, Read, Write, scope};
use farside_rpc::{CallError, Client, Credentials, Handling, LinkEnd, Never, Ran, Server, Service, Stream};
use farside_testbed::{ended_with_us, ending_with_us};

use crate::{credentials, tokens, unique};

/// The variable that makes this test program play a part.
const PART: &str = "FARSIDE_RPC_TEST_PART";

/// A process that is killed in the end.
pub(crate) struct Other(Child);

impl Other {
    /// What `unshare` takes to run a program with the same user in another user namespace.
    pub(crate) const APART: [&str; 4] = ["--user", "--map-current-user", "--keep-caps", "--"];
    /// What runs it in another namespace of processes, too, from there.
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

    /// Whether the process ends well within two minutes.
    pub(crate) fn succeeds(&mut self) -> bool {
        let until = Instant::now() + Duration::from_secs(120);
        loop {
            match self.0.try_wait().unwrap() {
                Some(status) => return status.success(),
                None if Instant::now() >= until => return false,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Stops the process, or has it go on.
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
            while !call.is_cancelled() {
                std::thread::sleep(Duration::from_millis(1));
            }
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
    let patient = Client::to(address, credentials()).unwrap().deadline(Duration::from_secs(60));
    patient.connect().unwrap()
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
            std::thread::sleep(Duration::from_secs(120));
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
    for address in [format!("shm:{}", unique("clients")), "tcp://127.0.0.1:0".into()] {
        let builder = Server::builder().listen(&address).unwrap().tokens(tokens());
        let server = builder.provider(0, service()).pool(2).start().unwrap();
        let address = server.addresses()[0].to_string();
        let honest = Client::connect(&address, Credentials::token(crate::TOKEN.0, crate::TOKEN.1)).unwrap();
        let calls = || {
            let stats = server.stats();
            let of = |name: &str| stats.iter().find(|stats| stats.name == name).unwrap().done;
            of("parts/0/pull") + of("parts/0/push")
        };
        for round in 0..6 {
            let before = calls();
            let mut clients: Vec<_> = (0..2).map(|_| Other::start("caller", &address)).collect();
            let until = Instant::now() + Duration::from_secs(60);
            while calls() < before + 3 + round {
                assert!(Instant::now() < until, "the clients did not call in a minute");
                std::thread::sleep(Duration::from_millis(1));
            }
            clients.iter_mut().for_each(Other::kill);
            assert_eq!(honest.ping(round), Ok(round));
            // The server finds out about the ends a moment later.
            let streams = || OPEN.load(Ordering::Relaxed);
            while server.connection_count() > 1 || streams() > 0 {
                let connections = server.connection_count();
                assert!(Instant::now() < until, "{connections} connections and {} streams are left", streams());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

//! The checks of Mercury's own tests: over each path, with each way to wait, and with the server in
//! this process or in another. Deaths are in `farside-rpc`: `processes.rs`, `adverse.rs` and
//! `kills.rs`.

use std::future::poll_fn;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;

use farside_rpc::bulk::{Bulk, Memory, Read, Scope, Write, scope};
use farside_rpc::server::Builder;
use farside_rpc::sim::{Profile, Simulation};
use farside_rpc::{CallError, Client, Credentials, Handling, Never, Pending, Ran, Server, Service, Tokens, Wire};
use farside_sys::net::{Interest, wait_ready};
use farside_testbed::{deadline, ended_with_us, limit, soon, wait_for, wait_until};
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

const TOKEN: (&str, &str) = ("cases", "a secret of the cases");
/// The variable that makes this program a server.
const SERVER: &str = "FARSIDE_RPC_CASES_SERVER";

/// How both sides wait.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Waiting {
    /// They look for a while before they sleep.
    Spinning,
    Blocking,
    /// The server runs when its descriptor is ready. Results go to functions.
    EventLoop,
    /// The server is a task, and results are awaited.
    Tokio,
    /// A task also receives for the client.
    OnTokio,
}

use Waiting::{Blocking, EventLoop, OnTokio, Spinning, Tokio};

/// A result that is under way.
enum Started<T, E> {
    Call(Box<Pending<T, E>>),
    Given(mpsc::Receiver<Result<T, CallError<E>>>),
}

/// A client, with its way to wait.
struct Caller<'a> {
    client: Client,
    waiting: Waiting,
    connect: &'a (dyn Fn() -> Client + Sync),
    simulation: Option<&'a Simulation>,
}

impl Caller<'_> {
    fn start<A, T, E>(&self, name: &str, arguments: &A) -> Result<Started<T, E>, CallError<E>>
    where
        A: Wire,
        T: Wire + Send + 'static,
        E: Wire + Send + 'static,
    {
        let call = self.client.procedure::<A, T, E>("cases", 0, name).start(arguments)?;
        if self.waiting != EventLoop {
            return Ok(Started::Call(call.into()));
        }
        let (sender, receiver) = mpsc::channel();
        // A result that is not wanted any more finds no receiver.
        call.then(move |result| drop(sender.send(result)));
        Ok(Started::Given(receiver))
    }

    fn finish<T: Wire, E: Wire>(&self, started: Started<T, E>) -> Result<T, CallError<E>> {
        match started {
            Started::Call(mut call) if matches!(self.waiting, Tokio | OnTokio) => {
                runtime().block_on(poll_fn(|context| {
                    let polled = Pin::new(&mut call).poll(context);
                    if let (Poll::Pending, Some(simulation)) = (&polled, self.simulation) {
                        simulation.step();
                        context.waker().wake_by_ref();
                    }
                    polled
                }))
            }
            Started::Call(call) => call.wait(),
            Started::Given(receiver) => match self.simulation {
                None => receiver.recv_timeout(limit()).expect("an answer"),
                Some(simulation) => wait_for("an answer", || {
                    loop {
                        match receiver.try_recv() {
                            Ok(result) => return Some(result),
                            Err(_) if simulation.step() => {}
                            // Another thread fetches a long result.
                            Err(_) => return None,
                        }
                    }
                }),
            },
        }
    }

    fn call<A, T, E>(&self, name: &str, arguments: &A) -> Result<T, CallError<E>>
    where
        A: Wire,
        T: Wire + Send + 'static,
        E: Wire + Send + 'static,
    {
        self.finish(self.start(name, arguments)?)
    }

    fn echo(&self, number: u64) {
        assert_eq!(self.call::<u64, u64, Never>("echo", &number), Ok(number));
    }

    /// The bytes that were sent one-way, and the handlers that wait: how many have begun and ended.
    fn counts(&self) -> [u64; 3] {
        self.call::<(), [u64; 3], Never>("counts", &()).unwrap()
    }

    /// Waits until a counter has increased.
    fn wait_for(&self, index: usize, before: [u64; 3]) {
        wait_until("the counter has increased", || self.counts()[index] != before[index]);
    }
}

/// A runtime on a thread of its own.
pub(crate) struct Running {
    handle: runtime::Handle,
    _end: oneshot::Sender<()>,
}

impl Running {
    /// Starts it. It ends when this is dropped.
    pub(crate) fn start() -> Self {
        let (runtime, (end, ended)) = (runtime(), oneshot::channel());
        let handle = runtime.handle().clone();
        std::thread::spawn(move || drop(runtime.block_on(ended)));
        Self { handle, _end: end }
    }

    pub(crate) fn enter<T>(&self, action: impl FnOnce() -> T) -> T {
        let _entered = self.handle.enter();
        action()
    }
}

pub(crate) fn runtime() -> runtime::Runtime {
    runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Adds one when it is dropped.
struct Counted(Arc<AtomicU64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Offsets and lengths of parts of a memory.
type Parts = Vec<(u64, u64)>;

/// The services of the server. No handler blocks: a server in turns has one thread.
fn service(builder: Builder) -> Builder {
    let [sent, begun, ended] = [(); 3].map(|()| Arc::new(AtomicU64::new(0)));
    let counters = [sent.clone(), begun.clone(), ended.clone()];
    let text = |error: farside_rpc::TransferError| error.to_string();
    let service = Service::new("cases")
        .procedure("null", Handling::Inline, |_, ()| Ok::<_, Never>(()))
        .procedure("echo", Handling::Pooled, |_, number: u64| Ok::<_, Never>(number))
        .procedure("fail", Handling::Pooled, |_, number: u64| Err::<(), _>(number))
        .procedure("length", Handling::Pooled, |_, bytes: Vec<u8>| Ok::<_, Never>(bytes.len() as u64))
        .procedure("bytes", Handling::Pooled, |_, bytes: u64| Ok::<_, Never>(pattern(bytes)))
        .procedure("send", Handling::Pooled, move |_, bytes: Vec<u8>| {
            sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            Ok::<_, Never>(())
        })
        .procedure("counts", Handling::Pooled, move |_, ()| {
            Ok::<_, Never>(counters.each_ref().map(|counter| counter.load(Ordering::Relaxed)))
        })
        .async_procedure("wait", move |_, ()| {
            let counted = Counted(ended.clone());
            begun.fetch_add(1, Ordering::Relaxed);
            async move {
                std::future::pending::<()>().await;
                drop(counted);
                Ok::<_, Never>(())
            }
        })
        .procedure("pull", Handling::Pooled, move |_, (memory, parts): (Bulk<Read>, Parts)| {
            let pull = |(offset, bytes): (u64, u64)| {
                let mut part = vec![0; bytes as usize];
                memory.pull(offset, &mut part).map(|()| part)
            };
            parts.into_iter().map(pull).collect::<Result<Vec<_>, _>>().map_err(text)
        })
        .procedure("push", Handling::Pooled, move |_, (memory, parts): (Bulk<Write>, Parts)| {
            let mut parts = parts.into_iter();
            parts.try_for_each(|(offset, bytes)| memory.push(offset, &pattern(bytes))).map_err(text)
        });
    let other = Service::new("cases").procedure("echo", Handling::Pooled, |_, number: u64| Ok::<_, Never>(number + 1));
    let tokens = Tokens::new().with(TOKEN.0, TOKEN.1, ["test"]);
    builder.tokens(tokens).provider(0, service).provider(1, other).pool(2)
}

fn pattern(bytes: u64) -> Vec<u8> {
    let unit: Vec<u8> = (0..=250).collect();
    let mut repeated = unit.repeat(bytes as usize / unit.len() + 1);
    repeated.truncate(bytes as usize);
    repeated
}

/// Serves until `end` is dropped at the other side.
fn serve(address: &str, waiting: Waiting, mut end: oneshot::Receiver<()>, ready: impl FnOnce(&str)) {
    let spin = if waiting == Spinning { Duration::from_micros(200) } else { Duration::ZERO };
    let builder = service(Server::builder().listen(address).unwrap()).spin(spin);
    if matches!(waiting, Spinning | Blocking) {
        let server = builder.start().unwrap();
        ready(&server.addresses()[0].to_string());
        let _ = end.blocking_recv();
        server.shutdown(deadline()).unwrap();
        return;
    }
    let mut turns = builder.turns().unwrap();
    ready(&turns.addresses()[0].to_string());
    if matches!(waiting, Tokio | OnTokio) {
        runtime().block_on(turns.run(async { drop(end.await) })).unwrap();
        return;
    }
    while end.try_recv() == Err(TryRecvError::Empty) {
        let until = turns.due().map_or_else(soon, |due| due.min(soon()));
        wait_ready(&[Interest { fd: turns.as_fd(), writable: false }], Some(until)).unwrap();
        turns.turn(Duration::ZERO);
    }
}

/// Serves, if this process was started for that, until it is killed.
#[test]
fn other() {
    let Ok(order) = std::env::var(SERVER) else { return };
    let (waiting, address) = order.split_once(' ').unwrap();
    let waiting = [Spinning, Blocking, EventLoop, Tokio, OnTokio].into_iter().find(|it| format!("{it:?}") == waiting);
    let (_end, ended) = oneshot::channel();
    serve(address, waiting.unwrap(), ended, |address| println!("serving {address}"));
}

/// Runs `test` with the address of a server in another process.
fn with_other_process(address: &str, waiting: Waiting, test: impl FnOnce(&str)) {
    let mut command = ended_with_us(std::env::current_exe().unwrap());
    command.args(["--exact", "cases::other", "--nocapture"]).env(SERVER, format!("{waiting:?} {address}"));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The harness of the tests writes to the same line.
    let told = lines.map(Result::unwrap).find_map(|line| line.split_once("serving ").map(|(_, it)| it.to_string()));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&told.expect("the server starts"))));
    child.kill().unwrap();
    child.wait().unwrap();
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Runs `test` with the address of a server on a thread of this process.
fn with_this_process(address: &str, waiting: Waiting, test: impl FnOnce(&str)) {
    let (end, ended) = oneshot::channel();
    let (told, heard) = mpsc::channel();
    std::thread::scope(|threads| {
        threads.spawn(move || serve(address, waiting, ended, |address| told.send(address.to_string()).unwrap()));
        test(&heard.recv_timeout(limit()).expect("the server starts"));
        drop(end);
    });
}

type Case = (&'static str, fn(&Caller<'_>));

/// The cases that one thread can run, also in a simulation.
const CASES: &[Case] = &[
    ("nothing there and back", |caller| assert_eq!(caller.call::<(), (), Never>("null", &()), Ok(()))),
    ("a result", |caller| (0..20).for_each(|number| caller.echo(number))),
    ("the service's error", |caller| {
        assert_eq!(caller.call::<u64, (), u64>("fail", &7), Err(CallError::Service(7)));
    }),
    ("one-way", |caller| {
        let (send, before) = (caller.client.procedure::<Vec<u8>, (), Never>("cases", 0, "send"), caller.counts());
        (0..300).for_each(|_| send.send(&vec![1; 3]).unwrap());
        assert_eq!(caller.client.flush(), Ok(0));
        assert_eq!(caller.counts()[0] - before[0], 900);
    }),
    ("not registered", |caller| {
        let error = caller.call::<u64, u64, Never>("absent", &1).unwrap_err();
        assert!(matches!(error, CallError::Unknown { .. }) && error.ran() == Ran::No, "{error}");
        let error = caller.client.procedure::<(), (), Never>("absent", 0, "null").call(&()).unwrap_err();
        assert!(matches!(error, CallError::Unknown { .. }) && error.ran() == Ran::No, "{error}");
    }),
    ("clients that come and go", |caller| {
        for number in 0..10 {
            Caller { client: (caller.connect)(), ..*caller }.echo(number);
        }
    }),
    ("arguments that are longer than a frame", |caller| {
        assert_eq!(caller.call::<Vec<u8>, u64, Never>("length", &pattern(200_000)), Ok(200_000));
    }),
    ("one-way arguments that are longer than a frame", |caller| {
        let (send, before) = (caller.client.procedure::<Vec<u8>, (), Never>("cases", 0, "send"), caller.counts());
        (0..3).for_each(|_| send.send(&pattern(200_000)).unwrap());
        assert_eq!(caller.client.flush(), Ok(0));
        assert_eq!(caller.counts()[0] - before[0], 600_000);
    }),
    ("a result that is longer than a frame", |caller| {
        assert!(caller.call::<u64, Vec<u8>, Never>("bytes", &200_000) == Ok(pattern(200_000)));
    }),
    ("a call that is given up", |caller| {
        let before = caller.counts();
        let wait = caller.client.procedure::<(), (), Never>("cases", 0, "wait").start(&()).unwrap();
        caller.wait_for(1, before);
        wait.cancel();
        caller.wait_for(2, before);
    }),
    ("several under way", |caller| {
        let start = |number| (number, caller.start::<u64, u64, Never>("echo", &number).unwrap());
        let mut started: Vec<_> = (0..50).map(start).collect();
        while let Some((number, call)) = started.pop() {
            assert_eq!(caller.finish(call), Ok(number));
        }
    }),
    ("several providers", |caller| {
        let other = caller.client.procedure::<u64, u64, Never>("cases", 1, "echo");
        for number in 0..10 {
            caller.echo(number);
            assert_eq!(other.call(&number), Ok(number + 1));
        }
    }),
    ("no memory", |caller| moved(caller, &[], &[vec![(0, 0)], vec![]])),
    ("segments without bytes", |caller| moved(caller, &[0, 0], &[vec![(0, 0)]])),
    ("one segment, in a message", |caller| moved(caller, &[1000], &parts_of(1000))),
    ("one segment", |caller| moved(caller, &[80_007], &parts_of(80_007))),
    ("short segments, in a message", |caller| moved(caller, &[60, 1, 0, 64, 3, 700], &parts_of(828))),
    ("segments", |caller| moved(caller, &[50_000, 1, 20_001, 40_000, 0, 7], &parts_of(110_009))),
    // More than the system takes at once: 1024.
    ("very many segments", |caller| {
        let lengths: Vec<_> = (0..3000).map(|index| 3 + index * 7 % 19).collect();
        moved(caller, &lengths, &parts_of(lengths.iter().sum::<usize>() as u64));
    }),
];

/// The cases that take threads.
const THREADED: &[Case] = &[
    ("threads that call", |caller| {
        std::thread::scope(|threads| {
            for thread in 0..4 {
                threads.spawn(move || (0..10).for_each(|number| caller.echo(100 * thread + number)));
            }
        });
    }),
    ("threads that wait for calls of others", |caller| {
        let start = |number| (number, caller.start::<u64, u64, Never>("echo", &number).unwrap());
        let (mine, theirs): (Vec<_>, Vec<_>) = (0..60).map(start).partition(|(number, _)| number % 2 == 0);
        let finish = |calls: Vec<(u64, _)>| {
            calls.into_iter().for_each(|(number, call)| assert_eq!(caller.finish(call), Ok(number)));
        };
        std::thread::scope(|threads| {
            threads.spawn(|| finish(theirs));
            finish(mine);
        });
    }),
    ("threads that call while others connect", |caller| {
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| (0..10).for_each(|number| caller.echo(number)));
                threads.spawn(|| {
                    for number in 0..5 {
                        Caller { client: (caller.connect)(), ..*caller }.echo(number);
                    }
                });
            }
        });
    }),
];

/// The whole; a quarter at an odd offset; an eighth at two odd offsets.
fn parts_of(bytes: u64) -> [Parts; 3] {
    let eighth = bytes / 8;
    [vec![(0, bytes)], vec![(eighth | 1, bytes / 4)], vec![(1, eighth), ((5 * eighth + 2) | 1, eighth)]]
}

/// Where segments of these lengths lie, with gaps of 5 bytes behind them.
fn ranges_of(lengths: &[usize]) -> Vec<Range<usize>> {
    let mut at = 0;
    let range = |length: &usize| {
        let start = at;
        at += length + 5;
        start..start + length
    };
    lengths.iter().map(range).collect()
}

/// Pulls and pushes parts of segments of these lengths, of ordinary memory and of mapped memory.
fn moved(caller: &Caller<'_>, lengths: &[usize], parts: &[Parts]) {
    let bytes = lengths.iter().sum::<usize>();
    let sent = pattern(bytes as u64 + 100).split_off(100);
    let mut room = vec![0; bytes + 5 * lengths.len() + 1];
    let ranges = ranges_of(lengths);
    let mapped = Memory::new(room.len()).unwrap();
    for parts in parts {
        let mut at = 0;
        for range in &ranges {
            let part = &sent[at..at + range.len()];
            room[range.clone()].copy_from_slice(part);
            mapped.write(range.start, part).unwrap();
            at += range.len();
        }
        let slice = |(offset, bytes): &(u64, u64)| sent[*offset as usize..(offset + bytes) as usize].to_vec();
        let expected: Vec<_> = parts.iter().map(slice).collect();
        let pull = |memory| caller.call::<(Bulk<Read>, Parts), Vec<Vec<u8>>, String>("pull", &(memory, parts.clone()));
        let push = |memory| caller.call::<(Bulk<Write>, Parts), (), String>("push", &(memory, parts.clone()));
        scope(|scope| {
            assert!(pull(scope.lend_all(ranges.iter().map(|range| &room[range.clone()]))) == Ok(expected.clone()))
        });
        assert!(pull(mapped.to_read_all(ranges.clone()).unwrap()) == Ok(expected));
        scope(|scope| push(lend_mut(scope, &mut room, &ranges))).unwrap();
        push(mapped.to_write_all(ranges.clone()).unwrap()).unwrap();
        let mut filled = sent.clone();
        for (offset, bytes) in parts {
            filled[*offset as usize..(offset + bytes) as usize].copy_from_slice(&pattern(*bytes));
        }
        let mut found = vec![0; room.len()];
        mapped.read(0, &mut found).unwrap();
        for room in [&room, &found] {
            let inside = ranges.iter().map(|range| &room[range.clone()]).collect::<Vec<_>>().concat();
            assert!(inside == filled);
            assert!(ranges.iter().all(|range| room[range.end..range.end + 5] == [0; 5]), "between the segments");
        }
    }
}

fn lend_mut<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    room: &'scope mut [u8],
    ranges: &[Range<usize>],
) -> Bulk<Write> {
    let (mut rest, mut at, mut slices) = (room, 0, Vec::new());
    for range in ranges {
        let (slice, behind) = rest[range.start - at..].split_at_mut(range.len());
        slices.push(slice);
        (rest, at) = (behind, range.end);
    }
    scope.lend_all_mut(slices)
}

/// Runs cases. If one fails, the last line that was printed names it.
fn run(caller: &Caller<'_>, cases: &[Case], place: &str) {
    for (name, case) in cases {
        println!("{:?}, {place}: {name}", caller.waiting);
        case(caller);
    }
}

/// Runs all cases with some ways to wait, with the server in this process and in another.
fn check(ways: &[Waiting], address: impl Fn() -> String) {
    for waiting in ways.iter().copied() {
        let test = |address: &str, place: &str| {
            let receiving = (waiting == OnTokio).then(Running::start);
            let connect = || {
                let spin = if waiting == Spinning { Duration::from_micros(200) } else { Duration::ZERO };
                let client = Client::to(address, Credentials::token(TOKEN.0, TOKEN.1)).unwrap();
                let client = client.deadline(limit()).spin(spin);
                let client = match &receiving {
                    Some(running) => running.enter(|| client.on_tokio()),
                    None => client,
                };
                client.connect().unwrap()
            };
            let caller = Caller { client: connect(), waiting, connect: &connect, simulation: None };
            run(&caller, CASES, place);
            run(&caller, THREADED, place);
        };
        with_this_process(&address(), waiting, |address| test(address, "in this process"));
        with_other_process(&address(), waiting, |address| test(address, "in another process"));
    }
}

fn check_over_shared_memory(ways: &[Waiting]) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    check(ways, || format!("shm:cases-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
}

fn check_over_tcp(ways: &[Waiting]) {
    check(ways, || "tcp://127.0.0.1:0".to_string());
}

/// A simulation has one thread, which does not sleep: it waits for results, or lets time pass until
/// a function or a task has them.
fn check_over_a_simulated_network(ways: &[Waiting]) {
    for waiting in ways.iter().copied() {
        let simulation = Simulation::new(service(Server::builder()), Profile::default(), 1).unwrap();
        let connect = || simulation.connect().unwrap().deadline(limit());
        let caller = Caller { client: connect(), waiting, connect: &connect, simulation: Some(&simulation) };
        run(&caller, CASES, "simulated");
    }
}

#[test]
fn over_shared_memory() {
    check_over_shared_memory(&[Blocking]);
}

#[test]
fn over_tcp() {
    check_over_tcp(&[OnTokio]);
}

#[test]
fn over_a_simulated_network() {
    check_over_a_simulated_network(&[EventLoop]);
}

mod deep {
    use super::*;

    #[test]
    fn over_shared_memory_with_each_way_to_wait() {
        check_over_shared_memory(&[Spinning, EventLoop, Tokio, OnTokio]);
    }

    #[test]
    fn over_tcp_with_each_way_to_wait() {
        check_over_tcp(&[Spinning, Blocking, EventLoop, Tokio]);
    }

    #[test]
    fn over_a_simulated_network_with_each_way_to_wait() {
        check_over_a_simulated_network(&[Blocking, Tokio]);
    }
}

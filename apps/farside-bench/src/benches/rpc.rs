//! Remote procedure calls between two processes: worker 0 calls, worker 1 serves.

mod awaited;
mod idle;
mod mover;
mod simulated;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farside::{Worker, WorkerId};
use farside_fabric::ofi::connected;
use farside_rpc::bulk::{Bulk, Memory, Read, Write, scope};
use farside_rpc::server::Turns;
use farside_rpc::{Client, Credentials, Handling, Never, Pending, Rdma, Server, Service, Tokens, TransferError};
use farside_sys::process_memory;

use super::size_name;
use crate::kit::*;
use crate::limits::system::{ByteStream, RoundTrips};
use crate::peers;

pub(crate) const LATENCY: &str = "round trips of remote procedure calls between two processes";
pub(crate) const RATE: &str = "remote procedure calls a second, with several of them under way";
pub(crate) const SCALING: &str = "several clients of one server of remote procedures, and idle ones";
pub(crate) const BULK: &str = "bulk data that the handler of a remote procedure pulls and pushes";

/// The times of a null call on a Cray XE6 that Mercury published: with XDR, and without. They are
/// averages of 20 calls (Section IV-C).
const PUBLISHED: [(&str, f64); 2] = [("mercury-xdr-published", 23_000.0), ("mercury-published", 20_000.0)];
const PUBLISHED_RUNS: usize = 20;

const SPUN_TRIPS: u64 = 100_000;
const BLOCKED_TRIPS: u64 = 10_000;
/// For how long both sides look before they sleep, in cases that spin.
const SPIN: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Shm,
    Tcp,
    /// RDMA together with TCP, over libfabric's provider `tcp`.
    Rdma,
}

/// A way to wait.
#[derive(Clone, Copy)]
struct Wait {
    name: &'static str,
    /// Round trips of a run by default.
    trips: u64,
    /// The time for which both sides look before they sleep.
    spin: Duration,
}

impl Wait {
    const SPIN: Self = Self { name: "spin", trips: SPUN_TRIPS, spin: SPIN };
    const BLOCK: Self = Self { name: "block", trips: BLOCKED_TRIPS, spin: Duration::ZERO };

    fn spins(self) -> bool {
        !self.spin.is_zero()
    }
}

/// The paths, with what follows the name of a case.
const PATHS: [(Over, &str); 2] = [(Over::Shm, ""), (Over::Tcp, "/tcp")];

pub(crate) fn latency_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (over, suffix) in PATHS {
        for wait in [Wait::SPIN, Wait::BLOCK] {
            let name = format!("null/validated/{}{suffix}", wait.name);
            let body = move |me: &Worker, options| latency(me, options, over, wait);
            cases.push(match (over, wait.spins()) {
                (Over::Shm, true) => against_peer(&name, "iceoryx2", wait.trips, body),
                _ => Case::job(name, 2, body),
            });
        }
        if over == Over::Shm {
            cases.push(against_peer("null/validated/tokio", "tarpc", BLOCKED_TRIPS, awaited::null));
        }
        cases.push(Case::job(format!("connect{suffix}"), 2, move |me, options| connects(me, options, over)));
        for bytes in [2, 64, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10] {
            let name = format!("arguments/{}{suffix}", size_name(bytes));
            cases.push(Case::job(name, 2, move |me, options| arguments(me, options, over, bytes)));
        }
    }
    cases
}

/// A case of null calls against those of another library.
fn against_peer(
    name: &str,
    peer: &'static str,
    trips: u64,
    body: impl Fn(&Worker, Options) -> Measured + Send + Sync + 'static,
) -> Case {
    Case::around_job(name, 2, body, move |options, run_once| peers::against_calls(peer, trips, options, run_once))
}

pub(crate) fn rate_cases() -> Vec<Case> {
    let counts = [1, 16, 64, 256];
    let each = PATHS.into_iter().flat_map(|(over, suffix)| counts.map(|in_flight| (over, suffix, in_flight)));
    let cases = each.map(|(over, suffix, in_flight)| {
        let name = format!("{in_flight}-in-flight{suffix}");
        Case::job(name, 2, move |me, options| rate(me, options, over, in_flight))
    });
    cases.collect()
}

pub(crate) fn bulk_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (over, suffix) in PATHS {
        let mut add = |name: String, what: Moved| {
            for (is_mapped, kind) in kinds(over) {
                let what = Moved { is_mapped, ..what };
                let body = move |me: &Worker, options| moved(me, options, over, what);
                cases.push(Case::job(format!("{name}{suffix}{kind}"), 2, body));
            }
        };
        let whole = Moved { bytes: 0, segments: 1, depth: 1, how: How::Pull, is_mapped: false };
        for bytes in [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, MOVED_BYTES_MAX] {
            for (name, how) in [("pull", How::Pull), ("push", How::Push)] {
                for depth in [1, 4, 16] {
                    add(format!("{name}/{}/depth-{depth}", size_name(bytes)), Moved { bytes, depth, how, ..whole });
                }
            }
        }
        for segments in [1, 4, 16, 64, 256, 1024, 4096] {
            add(format!("segments-{segments}"), Moved { bytes: 1 << 20, segments, ..whole });
        }
        for window in [1, 4, 16] {
            let how = How::Pipeline(window);
            add(format!("pipeline-{window}"), Moved { bytes: 16 << 20, how, ..whole });
        }
    }
    // Without libfabric there are no such cases.
    if connected::check(PROVIDER).is_ok() {
        for (name, how) in [("pull", How::Pull), ("push", How::Push)] {
            for bytes in [64 << 10, 1 << 20, 16 << 20] {
                let what = Moved { bytes, segments: 1, depth: 1, how, is_mapped: true };
                let name = format!("{name}/{}/depth-1/rdma-{PROVIDER}", size_name(bytes));
                cases.push(Case::job(name, 2, move |me, options| moved(me, options, Over::Rdma, what)));
            }
        }
    }
    cases
}

/// The provider of libfabric for RDMA.
const PROVIDER: &str = "tcp";

fn rdma() -> Rdma {
    Rdma::over(PROVIDER).at([127, 0, 0, 1].into())
}

/// The most bytes that a handler moves.
const MOVED_BYTES_MAX: usize = 64 << 20;

/// The kinds of memory that make a difference: of the heap, and mapped.
fn kinds(over: Over) -> impl Iterator<Item = (bool, &'static str)> {
    [(false, ""), (true, "/mapped")].into_iter().filter(move |(is_mapped, _)| !is_mapped || over == Over::Shm)
}

pub(crate) fn scaling_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (over, suffix) in PATHS {
        for clients in [1, 2, 4, 8, 16] {
            let name = format!("clients-{clients}{suffix}");
            cases.push(Case::job(name, 2, move |me, options| clients_at_once(me, options, over, clients)));
        }
        for idle in [0, 10, 100, 1000] {
            let name = format!("idle-{idle}{suffix}");
            cases.push(Case::job(name, 2, move |me, options| idle::compared(me, options, over, idle)));
        }
        let name = format!("cost-of-idle{suffix}");
        cases.push(Case::job(name, 2, move |me, options| idle::cost(me, options, over)));
        let name = format!("beside-1GiB{suffix}");
        cases.push(Case::job(name, 2, move |me, options| mover::compared(me, options, over)));
    }
    cases.extend(simulated::cases());
    cases
}

/// Worker 0's client and worker 1's server.
enum Ends {
    Client(Client),
    Server { turns: Box<Turns>, is_over: Arc<AtomicBool> },
}

const TOKEN: (&str, &str) = ("bench", "the measuring programs know each other");

impl Ends {
    /// Starts the server and connects to it. Collective for two workers.
    fn new(me: &Worker, over: Over, spin: Duration) -> Result<Self, BenchError> {
        let server = WorkerId::new(1);
        if me.id() == server {
            let is_over = Arc::new(AtomicBool::new(false));
            let mut builder = Server::builder().listen(address(over)).map_err(failed)?.spin(spin);
            if over == Over::Rdma {
                builder = builder.rdma(&rdma()).map_err(failed)?;
            }
            let mut turns = builder.tokens(tokens()).provider(0, service(&is_over)).turns().map_err(failed)?;
            me.broadcast(server, Some(turns.addresses()[0].to_string()))?;
            // The greeting takes some turns.
            while turns.connection_count() == 0 {
                turns.turn(Duration::from_millis(10));
            }
            return Ok(Self::Server { turns: Box::new(turns), is_over });
        }
        let address: String = me.broadcast(server, None)?;
        Ok(Self::Client(connect(&address, (over == Over::Rdma).then(rdma), spin)?))
    }

    /// Measures on worker 0, while worker 1 serves.
    fn measure<T: Default>(&mut self, lead: impl FnOnce(&Client) -> Result<T, BenchError>) -> Result<T, BenchError> {
        match self {
            Self::Client(client) => {
                let measured = lead(client);
                client.procedure::<(), (), Never>("bench", 0, "end").call(&()).map_err(failed)?;
                measured
            }
            Self::Server { turns, is_over } => {
                let until = Instant::now() + Duration::from_secs(120);
                while !is_over.swap(false, Ordering::Relaxed) {
                    turns.turn(Duration::from_millis(100));
                    if Instant::now() > until {
                        return Err(failed("the client did not end in two minutes"));
                    }
                }
                Ok(T::default())
            }
        }
    }
}

fn connect(address: &str, rdma: Option<Rdma>, spin: Duration) -> Result<Client, BenchError> {
    let connect = Client::to(address, Credentials::token(TOKEN.0, TOKEN.1)).map_err(failed)?;
    let connect = match rdma {
        Some(rdma) => connect.rdma(rdma),
        None => connect,
    };
    connect.spin(spin).connect().map_err(failed)
}

/// Connects further clients, while the server accepts them. Collective for two workers.
fn connect_all(ends: &mut Ends, count: usize) -> Result<Vec<Client>, BenchError> {
    ends.measure(|first| {
        let address = first.address().to_string();
        (0..count).map(|_| connect(&address, None, Duration::ZERO)).collect()
    })
}

fn service(is_over: &Arc<AtomicBool>) -> Service {
    let is_over = is_over.clone();
    let mut room = Vec::new();
    room.resize(MOVED_BYTES_MAX, 1_u8);
    let room = Arc::new(std::sync::Mutex::new(room));
    let source = room.clone();
    Service::new("bench")
        .procedure("echo", Handling::Inline, |_, number: u64| Ok::<_, Never>(number))
        .procedure("length", Handling::Inline, |_, bytes: Vec<u8>| Ok::<_, Never>(bytes.len() as u64))
        .procedure("end", Handling::Inline, move |_, (): ()| {
            is_over.store(true, Ordering::Relaxed);
            Ok::<_, Never>(())
        })
        .procedure("pull", Handling::Pooled, move |_, memory: Bulk<Read>| {
            let mut room = room.lock().map_err(|error| error.to_string())?;
            let bytes = memory.bytes() as usize;
            memory.pull(0, &mut room[..bytes]).map_err(|error| error.to_string())
        })
        .procedure("pipeline", Handling::Pooled, |_, (memory, window): (Bulk<Read>, u64)| {
            let take = |_, piece: &[u8]| {
                black_box(piece);
                Ok::<_, TransferError>(())
            };
            memory.pipeline(PIECE_BYTES, window as usize, take).map_err(|error| error.to_string())
        })
        .procedure("push", Handling::Pooled, move |_, memory: Bulk<Write>| {
            let room = source.lock().map_err(|error| error.to_string())?;
            memory.push(0, &room[..memory.bytes() as usize]).map_err(|error| error.to_string())
        })
}

/// The address of a server in this process.
fn address(over: Over) -> String {
    match over {
        Over::Shm => format!("shm:farside-bench-{}", std::process::id()),
        Over::Tcp | Over::Rdma => "tcp://127.0.0.1:0".to_string(),
    }
}

fn tokens() -> Tokens {
    Tokens::new().with(TOKEN.0, TOKEN.1, ["bench"])
}

/// The limit of a case: the same round trip by the least means.
fn limit_of(me: &Worker, over: Over, wait: Wait) -> Result<Box<dyn Yardstick>, BenchError> {
    let trips = wait.trips;
    Ok(match (over, wait.spins()) {
        (Over::Shm, true) => Box::new(TwoLines { ping_pong: PingPong::of_two(me)?, trips }),
        (Over::Shm, false) => Box::new(RoundTrips::by_eventfds(me, trips)?),
        (Over::Tcp | Over::Rdma, spins) => Box::new(RoundTrips::by_tcp(me, BLOCKED_TRIPS, spins)?),
    })
}

fn latency(me: &Worker, options: Options, over: Over, wait: Wait) -> Measured {
    let mut metrics = compared(me, options, over, wait, |client, trips| {
        let echo = client.procedure::<u64, u64, Never>("bench", 0, "echo");
        time_latency(trips, || {
            black_box(echo.call(&7).map_err(failed)?);
            Ok(())
        })
    })?;
    if over == Over::Shm && wait.spins() && me.is_first() {
        let published = PUBLISHED.map(|(peer, ns)| metrics[0].published(peer, ns, PUBLISHED_RUNS));
        metrics.extend(published);
    }
    Ok(metrics)
}

/// Connects, makes a first call, which asks for the procedure's number, and leaves. Both sides
/// block.
fn connects(me: &Worker, options: Options, over: Over) -> Measured {
    let mut ends = Ends::new(me, over, Duration::ZERO)?;
    let count = options.operations_or(200);
    let taken = in_turns(me, options, |_| {
        me.barrier()?;
        let times = ends.measure(|first| {
            let address = first.address().to_string();
            time_batches(count, ALONE, || {
                let client = connect(&address, None, Duration::ZERO)?;
                black_box(client.procedure::<u64, u64, Never>("bench", 0, "echo").call(&7).map_err(failed)?);
                Ok(())
            })
        })?;
        Ok([median(&times), quantile(&times, 0.99)])
    })?;
    Ok(taken.rows([column("connect_ns", "ns", 0), column("connect_p99_ns", "ns", 1)]))
}

/// A call with arguments of this size.
fn arguments(me: &Worker, options: Options, over: Over, bytes: usize) -> Measured {
    compared(me, options, over, Wait::SPIN, |client, trips| {
        let length = client.procedure::<Vec<u8>, u64, Never>("bench", 0, "length");
        let sent = vec![7_u8; bytes];
        time_latency(trips / 10, || {
            black_box(length.call(&sent).map_err(failed)?);
            Ok(())
        })
    })
}

/// Measures round trips and their limit in turns.
fn compared(
    me: &Worker,
    options: Options,
    over: Over,
    wait: Wait,
    trips: impl Fn(&Client, u64) -> Result<Latency, BenchError>,
) -> Measured {
    let mut limit = limit_of(me, over, wait)?;
    let mut ends = Ends::new(me, over, wait.spin)?;
    let count = options.operations_or(if over == Over::Tcp { BLOCKED_TRIPS } else { wait.trips });
    let taken = in_turns(me, options, |_| {
        let limit_ns = once(me, &mut *limit)?;
        me.barrier()?;
        let latency = ends.measure(|client| trips(client, count))?;
        Ok([limit_ns, latency.median_ns, latency.p99_ns])
    })?;
    Ok(taken.rows([("rtt_ns", 1), ("rtt_p99_ns", 2)].map(|(name, at)| column(name, "ns", at).against(limit.name(), 0))))
}

/// Calls a second, `in_flight` of them under way.
fn rate(me: &Worker, options: Options, over: Over, in_flight: usize) -> Measured {
    let mut ends = Ends::new(me, over, SPIN)?;
    let count = options.operations_or(if over == Over::Tcp { BLOCKED_TRIPS * 10 } else { SPUN_TRIPS * 4 });
    let taken = in_turns(me, options, |_| {
        me.barrier()?;
        let per_second = ends.measure(|client| {
            let echo = client.procedure::<u64, u64, Never>("bench", 0, "echo");
            let start = Instant::now();
            let end = |call: Pending<u64, Never>| call.wait().map(|number| _ = black_box(number)).map_err(failed);
            pipelined(count, in_flight, |number| echo.start(&number).map_err(failed), end)?;
            Ok(count as f64 / start.elapsed().as_secs_f64())
        })?;
        Ok([per_second])
    })?;
    Ok(taken.rows([column("calls_per_s", "1/s", 0)]))
}

/// Memory that handlers move.
#[derive(Clone, Copy)]
struct Moved {
    bytes: usize,
    segments: usize,
    /// The number of calls that are under way at once.
    depth: usize,
    how: How,
    /// True if the handler's process maps the memory.
    is_mapped: bool,
}

/// The work of the handler.
#[derive(Clone, Copy)]
enum How {
    Pull,
    Push,
    /// It pulls pieces, this number of them at a time (Mercury, Table I).
    Pipeline(u64),
}

/// The bytes of a piece.
const PIECE_BYTES: usize = 1 << 20;

/// Calls that move memory, compared with the least that moves as many bytes: a copy of mapped
/// memory, a system call that reads other memory as from another process, or a bare TCP stream.
fn moved(me: &Worker, options: Options, over: Over, what: Moved) -> Measured {
    let Moved { bytes, segments, depth, how, is_mapped } = what;
    let mut stream = if over == Over::Shm { None } else { Some(ByteStream::new(me)?) };
    let mut ends = Ends::new(me, over, SPIN)?;
    let turn_bytes = if options.quick { 64 << 20 } else { 256 << 20 };
    let batches = options.operations_or(turn_bytes / (bytes as u64 + (64 << 10))).div_ceil(depth as u64);
    // The segments are the first halves of blocks, unless there is only one.
    let (part, block) = (bytes / segments, bytes / segments * if segments > 1 { 2 } else { 1 });
    // Each call of a batch has its own memory.
    let call_bytes = block * segments;
    let mut own = vec![3_u8; call_bytes * depth];
    let shared = if is_mapped { Some(Memory::new(own.len()).map_err(failed)?) } else { None };
    if let Some(shared) = &shared {
        shared.write(0, &own).map_err(failed)?;
    }
    let parts =
        |call: usize| (0..segments).map(move |segment| call * call_bytes + segment * block).map(|at| at..at + part);
    let mut copy = vec![1_u8; bytes];
    let from = own.as_ptr().expose_provenance();
    let taken = in_turns(me, options, |_| {
        let count = batches * depth as u64;
        let streamed = match &mut stream {
            Some(stream) => Some(stream.per_second(me, count as usize * bytes, &mut copy)?),
            None => None,
        };
        me.barrier()?;
        let per_second = ends.measure(|client| {
            let rate = |start: Instant| count as f64 * bytes as f64 / start.elapsed().as_secs_f64();
            let start = Instant::now();
            for index in 0..if stream.is_none() { count as usize } else { 0 } {
                let at = index % depth * call_bytes;
                if is_mapped {
                    black_box(&mut copy).copy_from_slice(black_box(&own[at..at + bytes]));
                } else {
                    let pid = std::process::id().cast_signed();
                    process_memory::read(pid, from + at, &mut copy).map_err(failed)?;
                }
            }
            let limit = streamed.unwrap_or_else(|| rate(start));
            let push = client.procedure::<Bulk<Write>, (), String>("bench", 0, "push");
            let pull = client.procedure::<Bulk<Read>, (), String>("bench", 0, "pull");
            let pipeline = client.procedure::<(Bulk<Read>, u64), (), String>("bench", 0, "pipeline");
            let start = Instant::now();
            for _ in 0..batches {
                scope(|scope| {
                    let mut started = Vec::with_capacity(depth);
                    for (call, own) in own.chunks_mut(call_bytes).enumerate() {
                        let pieces = own.chunks_mut(block).map(|piece| &mut piece[..part]);
                        if matches!(how, How::Push) {
                            started.push(push.start(&match &shared {
                                Some(shared) => shared.to_write_all(parts(call)).map_err(failed)?,
                                None => scope.lend_all_mut(pieces),
                            }));
                            continue;
                        }
                        let memory = match &shared {
                            Some(shared) => shared.to_read_all(parts(call)).map_err(failed)?,
                            None => scope.lend_all(pieces.map(|piece| &*piece)),
                        };
                        started.push(match how {
                            How::Pipeline(window) => pipeline.start(&(memory, window)),
                            _ => pull.start(&memory),
                        });
                    }
                    started.into_iter().try_for_each(|call| call.map_err(failed)?.wait().map_err(failed))
                })?;
            }
            Ok((limit, rate(start)))
        })?;
        Ok([per_second.0, per_second.1])
    })?;
    let limit = match over {
        Over::Tcp | Over::Rdma => "TCP stream",
        Over::Shm if is_mapped => "memcpy",
        Over::Shm => "process_vm_readv",
    };
    Ok(taken.rows([column("bytes_per_s", "B/s", 1).against(limit, 0)]))
}

/// The bytes of one pull of several clients.
const PULLED_BYTES: usize = 64 << 10;

/// Pulls of several clients at once, each on a thread and a connection of its own (Mercury, Figure
/// 4). All block, so that they share the CPUs.
fn clients_at_once(me: &Worker, options: Options, over: Over, clients: usize) -> Measured {
    let mut ends = Ends::new(me, over, Duration::ZERO)?;
    let connected = connect_all(&mut ends, clients)?;
    let count = options.operations_or(4000).div_ceil(clients as u64);
    let memory = vec![3_u8; PULLED_BYTES];
    let taken = in_turns(me, options, |_| {
        me.barrier()?;
        let per_second = ends.measure(|_| {
            let pulls = |client: &Client| {
                let pull = client.procedure::<Bulk<Read>, (), String>("bench", 0, "pull");
                (0..count).try_for_each(|_| scope(|scope| pull.call(&scope.lend(&memory))).map_err(failed))
            };
            let start = Instant::now();
            std::thread::scope(|threads| {
                let threads: Vec<_> = connected.iter().map(|client| threads.spawn(|| pulls(client))).collect();
                threads.into_iter().try_for_each(|thread| thread.join().expect("a pull does not panic"))
            })?;
            Ok((count * clients as u64 * PULLED_BYTES as u64) as f64 / start.elapsed().as_secs_f64())
        })?;
        Ok([per_second])
    })?;
    Ok(taken.rows([column("bytes_per_s", "B/s", 0)]))
}

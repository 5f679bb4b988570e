//! [`Server`]: listens, and runs the handlers of services.

mod deadlines;
mod dump;
mod held;
mod registry;
mod session;
mod streaming;
mod task;
mod times;
#[cfg(feature = "tokio")]
mod tokio;
mod turns;

use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farside_connect::door::{Door, Nearby, Policy, RdmaDoor};
use farside_connect::link::{Limits, Unsent};
use farside_connect::{Address, AddressError, Rdma, Tokens, lock};
use farside_fabric::FabricError;
use farside_fabric::clock::Clock;
use farside_fabric::threads::{PoolOptions, ThreadPool};
use farside_sys::net::Waker;
use farside_sys::process::{Origin, random_bytes};

use self::deadlines::Deadlines;
pub use self::dump::{CallDump, ConnectionDump, DUMP_RIGHT, Dump, NoRight, Unfinished};
use self::held::Held;
pub(crate) use self::registry::BUILT_IN;
use self::registry::Registry;
pub use self::registry::{Description, ProcedureStats};
#[cfg(feature = "tokio")]
pub use self::tokio::RunError;
pub use self::turns::{Monitor, Turns};
use crate::service::Service;

/// The state that the parts of a server share.
#[derive(Debug)]
struct Shared {
    registry: Registry,
    policy: Policy,
    /// Their `pool` is 0 if the loop runs handlers.
    options: Options,
    queue: ThreadPool,
    deadlines: Deadlines,
    connection_count: AtomicUsize,
    held: Arc<Held>,
    unsent: Arc<Unsent>,
    waker: Waker,
    /// No new connection or call is accepted.
    is_closing: AtomicBool,
    /// The loop ends.
    is_ended: AtomicBool,
    /// The files that hold an address of the server, and that address.
    announced: Vec<(PathBuf, Address)>,
    /// Until then, connections with answers that were not taken stay open at the end.
    drains_until: Mutex<Option<Instant>>,
}

impl Shared {
    fn limits(&self) -> Limits {
        Limits::of_server(self.options.pool, self.options.spin, self.policy.calls_max, self.unsent.clone())
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The text is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Another process listens at the address, or the system refuses it.
    #[error("cannot listen at {address}: {cause}{}", if cause.kind() == io::ErrorKind::AddrInUse { "; another server has it: stop that one, or choose another address" } else { "; choose an address that this user may have on this machine" })]
    Listen {
        /// The address.
        address: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// Programs of other machines could come, and nothing would prove who they are.
    #[error("{address} can be reached from other machines: give the server tokens with Builder::tokens")]
    NoTokens {
        /// The address.
        address: String,
    },
    /// A token whose secret is empty.
    #[error(
        "the secret of the token {token:?} is empty, so everyone has it: give it one, of 32 random bytes for instance"
    )]
    EmptySecret {
        /// The name of the token.
        token: String,
    },
    /// No address to listen at.
    #[error("the server has no address: call Builder::listen")]
    NoAddress,
    /// The address cannot be [written to a file](Builder::announce).
    #[error("cannot write the address to {}: {cause}; name a file in a folder in which this user may write", path.display())]
    Announce {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// Two services with one name under one provider.
    #[error("the service {service:?} was added twice under provider {provider}: give each a provider of its own")]
    Twice {
        /// The service.
        service: String,
        /// The provider.
        provider: u16,
    },
    /// The server cannot offer [RDMA](Builder::rdma).
    #[error("cannot offer RDMA: {0}")]
    Rdma(#[from] FabricError),
    /// The system refused something.
    #[error("cannot start the server: {0}; look for what this process lacks, such as descriptors, threads or memory")]
    System(#[from] io::Error),
}

/// Sets a server up. See [`Server::builder`].
#[derive(Debug)]
pub struct Builder {
    doors: Vec<Door>,
    announce: Vec<PathBuf>,
    services: Vec<(u16, Service)>,
    tokens: Tokens,
    rdma: Option<RdmaDoor>,
    options: Options,
}

/// The numbers and times of a [`Builder`]: see its methods.
#[derive(Debug)]
struct Options {
    pool: usize,
    max_threads: usize,
    max_connections: u32,
    max_calls: u32,
    max_bytes: u64,
    max_connection_bytes: Option<u64>,
    max_total_bytes: Option<u64>,
    max_unsent_bytes: Option<u64>,
    max_time: Duration,
    spin: Duration,
}

impl Options {
    /// The most bytes that are held for one connection.
    fn connection_bytes_max(&self) -> u64 {
        self.max_connection_bytes.unwrap_or(self.max_bytes.saturating_mul(4))
    }
}

impl Builder {
    /// Listens at an address. May be called several times.
    ///
    /// A server that listens at `tcp://` and at `shm:` serves clients of its own user and machine
    /// over shared memory, also if they name the address of TCP. See
    /// [`Connect::over_network`](crate::Connect::over_network).
    ///
    /// # Errors
    /// [`StartError`] if the text is no address, or the system refuses it.
    pub fn listen(mut self, address: impl AsRef<str>) -> Result<Self, StartError> {
        let address: Address = address.as_ref().parse()?;
        let door = Door::open(&address);
        self.doors.push(door.map_err(|cause| StartError::Listen { address: address.to_string(), cause })?);
        Ok(self)
    }

    /// Writes the first address to a file when the server starts, and removes the file when it
    /// ends. Clients connect to `file:PATH`. If the server listens everywhere (`tcp://[::]:PORT`),
    /// the file has the name of the machine, provided that this name has an address.
    #[must_use]
    pub fn announce(mut self, path: impl Into<PathBuf>) -> Self {
        self.announce.push(path.into());
        self
    }

    /// Accepts clients that prove one of these tokens.
    #[must_use]
    pub fn tokens(mut self, tokens: Tokens) -> Self {
        self.tokens = tokens;
        self
    }

    /// Adds a service. Several services, also of one name, have different providers.
    #[must_use]
    pub fn provider(mut self, provider: u16, service: impl Into<Service>) -> Self {
        self.services.push((provider, service.into()));
        self
    }

    /// Number of threads that run handlers. The default is the number of CPUs.
    #[must_use]
    pub fn pool(mut self, threads: usize) -> Self {
        self.options.pool = threads;
        self
    }

    /// Number of threads of the [pool](Self::pool) that one connection may occupy. By default all
    /// of them: then a client whose calls take long can hold up others.
    #[must_use]
    pub fn max_threads(mut self, threads: usize) -> Self {
        self.options.max_threads = threads.max(1);
        self
    }

    /// Number of connections at once. The default is 4096.
    #[must_use]
    pub fn max_connections(mut self, count: u32) -> Self {
        self.options.max_connections = count;
        self
    }

    /// Number of calls of one connection that run or wait at once. The default is 256. Further ones
    /// are [`Busy`](crate::CallError::Busy) at once. [One-way](crate::Procedure::send) calls leave
    /// an eighth of them to others, and wait at the client for their turn.
    #[must_use]
    pub fn max_calls(mut self, count: u32) -> Self {
        self.options.max_calls = count.max(1);
        self
    }

    /// The most bytes of the arguments of a call, or of its result. The default is 64 MiB. Bulk
    /// data has no limit. The limits for [one connection](Self::max_connection_bytes) and for
    /// [all](Self::max_total_bytes) hold for single calls, too.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.options.max_bytes = bytes;
        self
    }

    /// The most bytes that the server holds for calls of one connection: arguments until the call
    /// has ended, and long results and memory that results own until the client has taken them. The
    /// default is four times [`max_bytes`](Self::max_bytes).
    ///
    /// Further calls are [`Busy`](crate::CallError::Busy) and do not run. A result is held in any
    /// case, because its call has run. Bytes that wait to be sent have a
    /// [limit of their own](Self::max_unsent_bytes).
    #[must_use]
    pub fn max_connection_bytes(mut self, bytes: u64) -> Self {
        self.options.max_connection_bytes = Some(bytes.max(1));
        self
    }

    /// The most bytes that the server holds for calls of all connections together. The default is
    /// 16 times [`max_bytes`](Self::max_bytes).
    #[must_use]
    pub fn max_total_bytes(mut self, bytes: u64) -> Self {
        self.options.max_total_bytes = Some(bytes.max(1));
        self
    }

    /// The most bytes that wait to be sent on all connections together, because clients read
    /// slowly. The default is 16 times [`max_bytes`](Self::max_bytes).
    ///
    /// While more than half of it waits, connections for which some wait get no more work: their
    /// calls are [`Busy`](crate::CallError::Busy) and do not run, and the transfers of their bulk
    /// data pause. Beyond it, those connections end for which the most waits, at least an equal
    /// share. A single connection ends, too, when so much waits that its calls cannot have asked
    /// for it: by default some 50 MiB, and 2 MiB for each thread of the [pool](Self::pool).
    ///
    /// ```
    /// use farside_rpc::Server;
    ///
    /// let name = format!("shm:frugal-{}", std::process::id());
    /// let server = Server::builder().listen(name)?.max_unsent_bytes(256 << 20).start()?;
    /// # Ok::<(), farside_rpc::server::StartError>(())
    /// ```
    #[must_use]
    pub fn max_unsent_bytes(mut self, bytes: u64) -> Self {
        self.options.max_unsent_bytes = Some(bytes.max(1));
        self
    }

    /// The longest time that a call may take, whatever its caller allows. The default is an hour.
    #[must_use]
    pub fn max_time(mut self, time: Duration) -> Self {
        self.options.max_time = time;
        self
    }

    /// How long the server looks for further calls on shared memory before it sleeps. The default
    /// is 0: an idle server uses no CPU, and a call to it costs a wake-up.
    #[must_use]
    pub fn spin(mut self, time: Duration) -> Self {
        self.options.spin = time;
        self
    }

    /// Offers RDMA for bulk data to clients that come over TCP. See [`Rdma`].
    ///
    /// ```no_run
    /// use farside_rpc::{Rdma, Server, Tokens};
    ///
    /// let tokens = Tokens::new().with("reader", "a long random text", ["read"]);
    /// let server = Server::builder().listen("tcp://[::]:7000")?.tokens(tokens);
    /// let server = server.rdma(&Rdma::over("verbs"))?.start()?;
    /// # Ok::<(), farside_rpc::server::StartError>(())
    /// ```
    ///
    /// # Errors
    /// [`StartError::Rdma`], without libfabric or the provider.
    pub fn rdma(mut self, rdma: &Rdma) -> Result<Self, StartError> {
        self.rdma = Some(RdmaDoor::open(rdma)?);
        Ok(self)
    }

    /// Starts the server on a thread of its own.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(self) -> Result<Server, StartError> {
        let pool = self.options.pool.max(1);
        let mut turns = self.build(pool)?;
        let shared = turns.shared().clone();
        let (addresses, origin) = (turns.addresses(), Origin::here());
        // After a failure, this ends the threads that were started.
        let mut server = Server { shared: shared.clone(), receiver: None, addresses, origin };
        shared.queue.start()?;
        let thread = std::thread::Builder::new().name("farside rpc".into());
        server.receiver = Some(thread.spawn(move || turns.serve())?);
        Ok(server)
    }

    /// Prepares a server that does its work when the program calls [`Turns::turn`].
    ///
    /// # Errors
    /// [`StartError`].
    pub fn turns(self) -> Result<Turns, StartError> {
        self.build(0)
    }

    fn build(self, pool: usize) -> Result<Turns, StartError> {
        if self.doors.is_empty() {
            return Err(StartError::NoAddress);
        }
        self.build_anywhere(pool)
    }

    /// Builds a server that may have no address.
    pub(crate) fn build_anywhere(mut self, pool: usize) -> Result<Turns, StartError> {
        if let Some(door) = self.doors.iter().find(|door| door.is_network() && self.tokens.is_empty()) {
            return Err(StartError::NoTokens { address: door.address().to_string() });
        }
        if let Some(token) = self.tokens.without_secret() {
            return Err(StartError::EmptySecret { token: token.into() });
        }
        let incarnation = u64::from_le_bytes(random_bytes()?);
        self.options.pool = pool;
        let Options { max_calls, max_bytes, max_threads, max_total_bytes, max_unsent_bytes, .. } = self.options;
        let [total, unsent] =
            [max_total_bytes, max_unsent_bytes].map(|max| max.unwrap_or(max_bytes.saturating_mul(16)));
        let registry = Registry::new(self.services)?;
        let mut announced = Vec::new();
        if let Some(first) = self.doors.first().map(Door::address_from_elsewhere) {
            for path in self.announce {
                first.write_to(&path).map_err(|cause| StartError::Announce { path: path.clone(), cause })?;
                announced.push((path, first.clone()));
            }
        }
        let shared = Shared {
            registry,
            policy: Policy {
                tokens: self.tokens,
                incarnation,
                calls_max: max_calls,
                bytes_max: max_bytes.min(self.options.connection_bytes_max()).min(total),
                rdma: self.rdma.map(Arc::new),
                nearby: Nearby::of(self.doors.iter().map(Door::address)),
            },
            options: self.options,
            queue: ThreadPool::new(
                Clock::real(),
                PoolOptions {
                    are_lasting: true,
                    running_max: max_threads,
                    ..PoolOptions::new("farside rpc call", pool)
                },
            ),
            deadlines: Deadlines::default(),
            connection_count: AtomicUsize::new(0),
            held: Arc::new(Held::of_server(total)),
            unsent: Arc::new(Unsent::new(usize::try_from(unsent).unwrap_or(usize::MAX))),
            waker: Waker::new()?,
            is_closing: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            announced,
            drains_until: Mutex::new(None),
        };
        Ok(Turns::new(Arc::new(shared), self.doors)?)
    }
}

/// A server that runs on threads of its own. It ends when it is dropped, without waiting for calls;
/// [`shutdown`](Self::shutdown) waits.
///
/// ```
/// use farside_rpc::{Call, Client, Credentials, Handling, Never, Server, Service};
///
/// let name = format!("shm:example-{}", std::process::id());
/// let greet = |_: &Call, name: String| Ok::<_, Never>(format!("Hello, {name}!"));
/// let greeter = Service::new("greeter").procedure("greet", Handling::Pooled, greet);
/// let server = Server::builder().listen(&name)?.provider(0, greeter).start()?;
///
/// let client = Client::connect(&name, Credentials::own_user())?;
/// let greet = client.procedure::<String, String, Never>("greeter", 0, "greet");
/// assert_eq!(greet.call(&"Ada".to_string())?, "Hello, Ada!");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    receiver: Option<JoinHandle<()>>,
    addresses: Vec<Address>,
    /// A forked child has no such threads.
    origin: Origin,
}

impl Server {
    /// Sets a server up.
    #[must_use]
    pub fn builder() -> Builder {
        let options = Options {
            pool: std::thread::available_parallelism().map_or(1, NonZero::get),
            max_threads: usize::MAX,
            max_connections: 4096,
            max_calls: 256,
            max_bytes: 64 << 20,
            max_connection_bytes: None,
            max_total_bytes: None,
            max_unsent_bytes: None,
            max_time: Duration::from_secs(3600),
            spin: Duration::ZERO,
        };
        let (doors, announce, services, tokens, rdma) = Default::default();
        Builder { doors, announce, services, tokens, rdma, options }
    }

    /// Where the server listens, with the real ports.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Where the server listens for RDMA, if it does.
    #[must_use]
    pub fn rdma_address(&self) -> Option<SocketAddr> {
        self.shared.policy.rdma.as_ref().map(|door| door.address())
    }

    /// The number of connections.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.shared.connection_count.load(Ordering::Relaxed)
    }

    /// The statistics of each procedure.
    #[must_use]
    pub fn stats(&self) -> Vec<ProcedureStats> {
        self.shared.registry.stats()
    }

    /// The connections, and the calls that were accepted and not answered.
    #[must_use]
    pub fn dump(&self) -> Dump {
        self.shared.registry.dump()
    }

    /// Accepts no more connections and calls. Waits for the calls that were accepted, and until
    /// clients have taken their answers, at most until `by`.
    ///
    /// # Errors
    /// [`Unfinished`] lists the calls that were still under way then. Their callers get an error.
    /// Handlers that run go on until they return.
    pub fn shutdown(mut self, by: Instant) -> Result<(), Unfinished> {
        if !self.origin.is_here() {
            return Ok(());
        }
        self.shared.is_closing.store(true, Ordering::Relaxed);
        let mut left = self.shared.queue.unfinished();
        while left > 0 && Instant::now() < by {
            left = self.shared.queue.wait_until_less(by);
        }
        let drained = if left == 0 { Ok(()) } else { Unfinished::check(self.dump()) };
        *lock(&self.shared.drains_until) = Some(by);
        self.end();
        drained
    }

    fn end(&mut self) {
        if !self.origin.is_here() {
            return;
        }
        self.shared.is_closing.store(true, Ordering::Relaxed);
        self.shared.is_ended.store(true, Ordering::Relaxed);
        self.shared.waker.wake();
        // The receiving thread ends its connections, which cancels what still runs. A handler that
        // does not look at its call may go on, so then the threads are not waited for.
        if let Some(receiver) = self.receiver.take() {
            let _ = receiver.join();
        }
        self.shared.queue.close();
        if self.shared.queue.unfinished() == 0 {
            // A panic was reported when it came.
            let _ = self.shared.queue.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

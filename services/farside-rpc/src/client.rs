//! [`Client`]: a server, as its callers see it.

mod calls;
mod driver;
mod encoded;
mod incoming;
mod pending;
mod stub;
#[cfg(feature = "tokio")]
mod tokio;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use farside_connect::attachments::Description;
use farside_connect::frame::{Head, Kind};
use farside_connect::link::{Limits, Link, Upper};
use farside_connect::patience::{Patience, WaitEnd};
use farside_connect::{
    Address, AddressError, ConnectError, Credentials, LinkEnd, Path, Rdma, Ways, Welcome, dial, lock,
};
use farside_sys::process::Origin;
use farside_wire::{Decoder, Wire};

use self::calls::{Calls, Heard};
pub use self::encoded::{Encoded, EncodedItems};
pub use self::pending::Pending;
use self::pending::lost;
pub use self::stub::{Procedure, Signature, Stub};
use crate::answer::{BY_BULK, CALLS_OF_ONE, MEMORY, STREAMED};
use crate::error::{CallError, DEFAULT_DEADLINE, Never, Ran, Stage};
use crate::server::{self, BUILT_IN, Dump, NoRight, ProcedureStats};

/// The first pause before another attempt to connect; later ones are longer.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// The longest time of a call, so that sums do not overflow.
const TIME_MAX: Duration = Duration::from_secs(1 << 30);
/// After this time without calls, a connection is looked at before it is used again.
const IDLE: Duration = Duration::from_millis(10);

/// A receiver for the connections of a client, in place of its threads.
trait Receive: fmt::Debug + Send + Sync {
    /// Begins to receive for a connection, and looks for `spin` before it sleeps. It wakes the
    /// threads and tasks that wait, and ends with the connection. If it cannot go on, it ends the
    /// connection.
    fn receive(&self, link: Arc<Link>, calls: Arc<Calls>, spin: Duration);
}

/// A connection to a server, which any number of threads may use. Clones share it.
///
/// A connection that ended is made again by the next call, until that call's deadline. So a server
/// that was started again is found.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    deadline: Duration,
}

#[derive(Debug)]
struct Shared {
    how: Connect,
    origin: Origin,
    current: Mutex<Current>,
    /// A thread has ended its attempt to connect.
    has_dialled: Condvar,
    /// The number of one-way calls that have failed since the last [`Client::flush`].
    failed: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Current {
    connection: Option<Arc<Connection>>,
    /// True if a thread connects at this moment.
    is_dialling: bool,
}

/// One connection to the server.
#[derive(Debug)]
struct Connection {
    link: Arc<Link>,
    welcome: Welcome,
    calls: Arc<Calls>,
    /// When it was made, and when it was last used: microseconds since then.
    made: Instant,
    used_us: AtomicU64,
}

/// The calls, as the link holds them.
struct Handle(Arc<Calls>);

impl Upper for Handle {
    #[inline]
    fn frame(&self, link: &Arc<Link>, head: Head, body: &[u8]) -> Result<(), LinkEnd> {
        if !matches!(head.kind, Kind::Answer | Kind::Item) {
            return Err(LinkEnd::protocol(format_args!("a {:?} frame from a server", head.kind)));
        }
        match self.0.hear(head, body)? {
            Heard::Looks => {}
            Heard::Task(task) => self.0.driver.wake_later(link, task),
            Heard::GivenUp => release_result(link, head.status, body),
            Heard::Left(exposed) => {
                for number in exposed {
                    link.withdraw(number);
                }
                release_result(link, head.status, body);
                if head.status & STREAMED != 0 {
                    link.send_last(Head::new(Kind::Cancel, head.id));
                }
            }
        }
        Ok(())
    }

    fn ended(&self, _: &LinkEnd) {
        // Threads that wait for answers look at the link.
        self.0.driver.end();
        self.0.lose_one_way();
    }

    fn has_backlog(&self, link: &Arc<Link>) {
        self.0.keep_going(link);
    }
}

/// Tells the server that a long result will not be fetched, and that no one uses memory in it.
fn release_result(link: &Arc<Link>, status: u8, body: &[u8]) {
    let mut input = Decoder::new(body);
    let long = if status & BY_BULK == 0 { None } else { Description::decode(&mut input).ok() };
    let memory = if status & MEMORY == 0 { None } else { Vec::<Option<Description>>::decode(&mut input).ok() };
    for described in memory.into_iter().flatten().flatten().chain(long) {
        described.release(link);
    }
}

/// Sets a client up.
#[derive(Clone, Debug)]
pub struct Connect {
    address: Address,
    credentials: Credentials,
    deadline: Duration,
    spin: Duration,
    ways: Ways,
    receiver: Option<Arc<dyn Receive>>,
    is_once: bool,
}

impl Connect {
    fn new(address: Address, credentials: Credentials) -> Self {
        let (spin, ways) = (Duration::ZERO, Ways::default());
        let deadline = DEFAULT_DEADLINE;
        Self { address, credentials, deadline, spin, ways, receiver: None, is_once: false }
    }

    /// The time that each call has, unless it is given another. The default is 30 s.
    #[must_use]
    pub fn deadline(mut self, time: Duration) -> Self {
        self.deadline = time.min(TIME_MAX);
        self
    }

    /// How long a waiting thread looks for the answer before it sleeps. The default is 0. Looking
    /// takes a whole CPU and saves two wake-ups: some 5 µs a call.
    #[must_use]
    pub fn spin(mut self, time: Duration) -> Self {
        self.spin = time;
        self
    }

    /// Reads and writes bulk data by RDMA, if the server offers it. Over shared memory it has no
    /// effect. See [`Rdma`].
    ///
    /// ```
    /// use farside_rpc::{Client, ConnectError, Credentials, Rdma};
    ///
    /// let connect = Client::to("tcp://127.0.0.1:7000", Credentials::token("reader", "secret"))?;
    /// let error = connect.rdma(Rdma::over("no provider")).connect().unwrap_err();
    /// assert!(matches!(error, ConnectError::Rdma { .. }));
    /// # Ok::<(), farside_rpc::AddressError>(())
    /// ```
    ///
    /// The client fails to connect, with [`ConnectError::Rdma`], if it cannot use what the server
    /// offers: without libfabric or the provider, or if the two machines do not reach each other
    /// there.
    #[must_use]
    pub fn rdma(mut self, rdma: Rdma) -> Self {
        self.ways.rdma = Some(rdma);
        self
    }

    /// Stays on TCP, also where the server is on this machine.
    ///
    /// Without this, a client that names an address of `tcp://` is served over shared memory if the
    /// server runs on the same machine as the same user, and also listens at `shm:`. Its token is
    /// proven there anew. Handlers then see its user and process in place of its network address,
    /// and the same token and rights. A client that asks for [RDMA](Self::rdma) stays on TCP.
    ///
    /// ```
    /// use farside_rpc::{Client, Credentials, Server, Tokens};
    ///
    /// let tokens = Tokens::new().with("reader", "a long random text", ["read"]);
    /// let name = format!("shm:near-{}", std::process::id());
    /// let server = Server::builder().listen("tcp://127.0.0.1:0")?.listen(name)?;
    /// let server = server.tokens(tokens).start()?;
    ///
    /// let connect = || {
    ///     let reader = Credentials::token("reader", "a long random text");
    ///     Client::to(server.addresses()[0].to_string(), reader)
    /// };
    /// let (near, far) = (connect()?.connect()?, connect()?.over_network().connect()?);
    /// assert_eq!((near.ping(1)?, far.ping(2)?), (1, 2));
    /// let connections = server.dump().connections;
    /// assert!(connections.iter().any(|one| one.path == "shm"));
    /// assert!(connections.iter().any(|one| one.path == "tcp"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn over_network(mut self) -> Self {
        self.ways.is_over_network = true;
        self
    }

    /// Makes one attempt to connect, and no other connection after the first. When that has ended,
    /// all calls fail at once. So a client learns that its server has gone, and never calls another
    /// one that was started in its place.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.is_once = true;
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// [`ConnectError`]. A server that is absent or full is tried again until the deadline, but not
    /// by a client that connects [once](Self::once).
    pub fn connect(self) -> Result<Client, ConnectError> {
        let client = self.lazily();
        client.connection(&Patience::until(Instant::now() + client.deadline))?;
        Ok(client)
    }

    /// Connects in one attempt. Later the client connects again, as any does.
    ///
    /// # Errors
    /// [`ConnectError`], also if the server is absent or full.
    pub fn attempt(self) -> Result<Client, ConnectError> {
        let client = self.lazily();
        client.dial(Instant::now() + client.deadline)?;
        Ok(client)
    }

    /// Prepares a client that connects with its first call.
    #[must_use]
    pub fn lazily(self) -> Client {
        let (deadline, origin) = (self.deadline, Origin::here());
        let (current, has_dialled, failed) = (Mutex::default(), Condvar::new(), Arc::default());
        let shared = Shared { how: self, origin, current, has_dialled, failed };
        Client { shared: Arc::new(shared), deadline }
    }
}

impl Client {
    /// Connects to a server. An absent server is an error at once.
    ///
    /// # Errors
    /// [`ConnectError`], or an [`AddressError`] within it.
    pub fn connect(address: impl AsRef<str>, credentials: Credentials) -> Result<Self, ConnectError> {
        let connect = Self::to(address, credentials)
            .map_err(|error| ConnectError::Failed { address: error.text.clone(), cause: error.to_string() })?;
        connect.attempt()
    }

    /// Sets up a connection to a server.
    ///
    /// # Errors
    /// [`AddressError`] if the text is no address.
    pub fn to(address: impl AsRef<str>, credentials: Credentials) -> Result<Connect, AddressError> {
        Ok(Connect::new(address.as_ref().parse()?, credentials))
    }

    /// The same connection, with another time for each call.
    #[must_use]
    pub fn deadline(&self, time: Duration) -> Self {
        Self { deadline: time.min(TIME_MAX), ..self.clone() }
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.shared.how.address
    }

    /// A number that each start of a server has for itself. It changes when the server was started
    /// again. `None` without a connection.
    #[must_use]
    pub fn incarnation(&self) -> Option<u64> {
        self.check_origin().ok()?;
        lock(&self.shared.current).connection.as_ref().map(|connection| connection.welcome.incarnation)
    }

    /// The procedure `name` of a service, without a trait that describes it.
    #[must_use]
    pub fn procedure<A: Wire, T: Wire, E: Wire>(&self, service: &str, provider: u16, name: &str) -> Procedure<A, T, E> {
        let signature = Signature::new(service).procedure::<A, T, E>(name, false);
        Procedure::new(Stub::new(self.clone(), Arc::new(signature), provider))
    }

    /// Calls the server, which sends `number` back.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn ping(&self, number: u64) -> Result<u64, CallError<Never>> {
        self.procedure::<u64, u64, Never>(BUILT_IN, 0, "ping").call(&number)
    }

    /// The services of the server.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn describe(&self) -> Result<Vec<server::Description>, CallError<Never>> {
        self.procedure::<(), Vec<server::Description>, Never>(BUILT_IN, 0, "describe").call(&())
    }

    /// The statistics of each procedure of the server.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn stats(&self) -> Result<Vec<ProcedureStats>, CallError<Never>> {
        self.procedure::<(), Vec<ProcedureStats>, Never>(BUILT_IN, 0, "stats").call(&())
    }

    /// Waits until all [one-way calls](Procedure::send) that were sent so far have ended, at most
    /// for the time that each call has. Returns how many have failed since the last time: their
    /// handlers panicked, the server refused them, or their connection ended.
    ///
    /// # Errors
    /// [`CallError::Deadline`].
    pub fn flush(&self) -> Result<u64, CallError<Never>> {
        self.check_origin()?;
        let patience = Patience::until(Instant::now() + self.deadline);
        let connection = lock(&self.shared.current).connection.clone();
        if let Some(Connection { link, calls, .. }) = connection.as_deref() {
            let mut numbers = calls.one_way();
            let waited = link.wait(&patience, || {
                calls.retain(&mut numbers);
                numbers.is_empty().then_some(())
            });
            match waited {
                Ok(()) => {}
                // A connection that has ended has no calls.
                Err(WaitEnd::Link(_)) => calls.lose_one_way(),
                Err(end) => return Err(lost(end)),
            }
        }
        Ok(self.shared.failed.swap(0, Ordering::Relaxed))
    }

    /// The calls that are under way in the server. A client that shows a token needs the right
    /// [`DUMP_RIGHT`](crate::server::DUMP_RIGHT).
    ///
    /// # Errors
    /// [`CallError`].
    pub fn dump(&self) -> Result<Dump, CallError<NoRight>> {
        self.procedure::<(), Dump, NoRight>(BUILT_IN, 0, "dump").call(&())
    }

    /// Refuses to go on in a forked child, before it takes a lock.
    #[inline]
    fn check_origin(&self) -> Result<(), ConnectError> {
        if self.shared.origin.is_here() {
            return Ok(());
        }
        Err(ConnectError::Forked { address: self.address().to_string() })
    }

    /// Returns whether the first call of a procedure would connect before, as far as this side
    /// knows, or wait for what may receive on this very thread. In a forked child it would fail.
    fn would_wait(&self) -> bool {
        let has_ended = |connection: &Arc<Connection>| connection.link.end().is_some();
        let would_connect = || {
            lock(&self.shared.current).connection.as_ref().is_none_or(|it| has_ended(it) && !self.shared.how.is_once)
        };
        self.check_origin().is_ok() && (self.shared.how.receiver.is_some() || would_connect())
    }

    /// The connection, which is made if there is none.
    fn connection(&self, patience: &Patience) -> Result<Arc<Connection>, ConnectError> {
        let mut pause = PAUSE_MIN;
        let may_again = |error: &ConnectError| error.may_pass() && !self.shared.how.is_once && !patience.is_cancelled();
        loop {
            match self.dial(patience.deadline) {
                Err(error) if may_again(&error) && Instant::now() + pause < patience.deadline => {}
                dialled => return dialled,
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// The connection, or one attempt to make it.
    fn dial(&self, deadline: Instant) -> Result<Arc<Connection>, ConnectError> {
        self.check_origin()?;
        let Shared { how, has_dialled, .. } = &*self.shared;
        let Connect { address, credentials, spin, ways, receiver, is_once, .. } = how;
        let mut current = lock(&self.shared.current);
        loop {
            if let Some(connection) = current.connection.as_ref().filter(|it| it.link.end().is_none()) {
                return Ok(connection.clone());
            }
            if *is_once && current.connection.is_some() {
                let cause = "the connection has ended, and the client makes no other".into();
                return Err(ConnectError::Absent { address: address.to_string(), cause });
            }
            if !current.is_dialling {
                break;
            }
            let time_left = deadline.saturating_duration_since(Instant::now());
            if time_left.is_zero() {
                return Err(ConnectError::TimedOut { address: address.to_string() });
            }
            current = has_dialled.wait_timeout(current, time_left).unwrap_or_else(PoisonError::into_inner).0;
        }
        current.is_dialling = true;
        drop(current);
        let dialled = dial(address, credentials, ways, deadline);
        let mut current = lock(&self.shared.current);
        current.is_dialling = false;
        has_dialled.notify_all();
        let (path, welcome) = dialled?;
        let calls = Calls::counting(self.shared.failed.clone(), receiver.is_none());
        let limits = Limits { has_loop: receiver.is_some(), ..Limits::of_client(*spin) };
        let link = Link::new(path, Box::new(Handle(calls.clone())), limits);
        if let Some(receiver) = receiver {
            receiver.receive(link.clone(), calls.clone(), *spin);
            if link.end() == Some(&LinkEnd::Here) {
                return Err(ConnectError::RuntimeEnded { address: address.to_string() });
            }
        }
        let connection = Arc::new(Connection::new(link, welcome, calls));
        current.connection = Some(connection.clone());
        Ok(connection)
    }
}

impl Client {
    /// A client with a connection that was made otherwise, and makes no other.
    pub(crate) fn of(path: Box<dyn Path>, welcome: Welcome) -> Self {
        let address = Address::Shm(path.name().into());
        let connect = Connect::new(address, Credentials::own_user()).once();
        let client = connect.lazily();
        let calls = Calls::counting(Arc::default(), false);
        let link = Link::new(path, Box::new(Handle(calls.clone())), Limits::of_client(Duration::ZERO));
        lock(&client.shared.current).connection = Some(Arc::new(Connection::new(link, welcome, calls)));
        client
    }

    /// The receiver of such a client.
    pub(crate) fn receiver(&self) -> Receiver {
        let connection = lock(&self.shared.current).connection.as_ref().map(Arc::downgrade);
        Receiver(connection.unwrap_or_default())
    }
}

/// Receives for a client that has no thread.
#[derive(Clone)]
pub(crate) struct Receiver(Weak<Connection>);

impl Receiver {
    /// Handles what has arrived, and wakes the threads and tasks whose answers are there.
    pub(crate) fn receive(&self, scratch: &mut Vec<u8>) {
        let Some(connection) = self.0.upgrade() else { return };
        while connection.link.step(scratch).is_ok_and(|count| count > 0) {}
        connection.link.wake_waiting();
        connection.calls.wake_all(connection.link.end().is_some());
    }

    /// Returns whether there is a connection still.
    pub(crate) fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl Connection {
    fn new(link: Arc<Link>, welcome: Welcome, calls: Arc<Calls>) -> Self {
        Self { link, welcome, calls, made: Instant::now(), used_us: AtomicU64::new(0) }
    }

    /// Returns whether calls can be made. A connection that was idle may have ended without a word.
    fn is_alive(&self, now: Instant) -> bool {
        let now_us = u64::try_from((now - self.made).as_micros()).unwrap_or(u64::MAX);
        // Of threads that call at once, any may be the last.
        let used_us = self.used_us.load(Ordering::Relaxed);
        self.used_us.store(now_us, Ordering::Relaxed);
        let was_idle = now_us.saturating_sub(used_us) > IDLE.as_micros() as u64;
        if was_idle { self.link.look() } else { self.link.end().is_none() }
    }

    /// Takes a number for a call. While the server allows no more, the call is refused.
    /// A one-way call waits, as its caller hears of no refusal. Such calls leave some of what the
    /// server allows to others.
    #[inline]
    fn register(&self, is_one_way: bool, patience: &Patience) -> Result<u64, CallError<Never>> {
        let limit = self.welcome.calls_max as usize;
        let most = if is_one_way { limit.saturating_sub((limit / 8).max(1)).max(1) } else { limit };
        let register = || self.calls.add(is_one_way, most);
        if let Some(number) = register() {
            return Ok(number);
        }
        if !is_one_way {
            return Err(CallError::Busy { limit: limit as u64, what: CALLS_OF_ONE.into() });
        }
        self.calls.wanted.fetch_add(1, Ordering::Relaxed);
        let registered = self.link.wait(patience, register);
        self.calls.wanted.fetch_sub(1, Ordering::Relaxed);
        registered.map_err(|end| match end {
            WaitEnd::Deadline => CallError::Deadline { stage: Stage::Sending },
            WaitEnd::Cancelled => CallError::Cancelled,
            WaitEnd::Link(cause) => CallError::Lost { ran: Ran::No, cause },
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The driver's thread uses the link as long as it lives.
        self.link.close(LinkEnd::Here);
    }
}

//! [`Stub`]: the procedures of one service, as a client calls them.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farside_connect::attachments::{Area, attached, expose};
use farside_connect::frame::{BODY_BYTES_MAX, Head, Kind};
use farside_connect::patience::Patience;
use farside_connect::{lock, patience};
use farside_wire::{Encoder, Wire};
use tracing::Span;

use super::pending::{Outcome, Pending, Sent, read};
use super::{Client, Connection};
use crate::answer::{BIND, BY_BULK, Bind, Bound, WITH_MEMORY};
use crate::error::{ARGUMENTS, CallError, Never, Ran, Stage};
use crate::service::shape;

/// The most steps in which the last answers of a connection are received.
const STEPS_MAX: u32 = 1000;

/// The names and types of a service's procedures, as a client expects them.
#[derive(Clone, Debug)]
pub struct Signature {
    service: String,
    procedures: Vec<Expected>,
}

#[derive(Clone, Debug)]
struct Expected {
    name: String,
    shape: String,
    is_idempotent: bool,
}

impl Signature {
    /// A service without procedures.
    #[must_use]
    pub fn new(service: impl Into<String>) -> Self {
        Self { service: service.into(), procedures: Vec::new() }
    }

    /// Adds a procedure. An idempotent one may run twice: it is called again when a connection is
    /// lost.
    #[must_use]
    pub fn procedure<A: Wire, T: Wire, E: Wire>(mut self, name: impl Into<String>, is_idempotent: bool) -> Self {
        self.procedures.push(Expected { name: name.into(), shape: shape::<A, T, E>(), is_idempotent });
        self
    }

    /// Adds a procedure whose types are given as text.
    pub(super) fn procedure_of(mut self, name: &str, shape: &str) -> Self {
        self.procedures.push(Expected { name: name.into(), shape: shape.into(), is_idempotent: false });
        self
    }
}

/// The procedures of one service at one provider. What the macro [`service`](crate::service) writes
/// stands on this.
#[derive(Clone, Debug)]
pub struct Stub {
    // Each call that is under way has a clone.
    parts: Arc<Parts>,
}

#[derive(Clone, Debug)]
struct Parts {
    client: Client,
    signature: Arc<Signature>,
    provider: u16,
    bound: Arc<Mutex<Option<Binding>>>,
}

/// The procedures as the server of one connection has them.
#[derive(Clone, Debug)]
struct Binding {
    connection: Arc<Connection>,
    procedures: Arc<[Bound]>,
}

/// A call's arguments, encoded.
#[derive(Default)]
pub(super) struct Request {
    arguments: Vec<u8>,
    memory: Vec<Arc<Area>>,
    is_one_way: bool,
}

impl Request {
    #[inline]
    fn new<A: Wire>(arguments: &A) -> Self {
        let mut encoder = Encoder::default();
        arguments.encode(&mut encoder);
        let (arguments, things) = encoder.into_parts();
        Self { arguments, memory: attached(things), is_one_way: false }
    }
}

impl Stub {
    /// The procedures of a service at a provider.
    #[must_use]
    pub fn new(client: Client, signature: Arc<Signature>, provider: u16) -> Self {
        Self { parts: Arc::new(Parts { client, signature, provider, bound: Arc::default() }) }
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.parts.client
    }

    /// The same procedures, through another client.
    #[must_use]
    pub fn with_client(&self, client: Client) -> Self {
        // What the server of another connection has is another matter.
        let is_same = Arc::ptr_eq(&client.shared, &self.parts.client.shared);
        let bound = if is_same { self.parts.bound.clone() } else { Arc::default() };
        Self { parts: Arc::new(Parts { client, bound, ..Parts::clone(&self.parts) }) }
    }

    /// Begins a call of the procedure `index`, counted in the order of the [`Signature`]. See
    /// [`Procedure::start`].
    ///
    /// # Errors
    /// [`CallError`], if the call could not be sent.
    ///
    /// # Panics
    /// If there is no such procedure.
    #[inline]
    pub fn start<A: Wire, T: Wire, E: Wire>(&self, index: usize, arguments: &A) -> Result<Pending<T, E>, CallError<E>> {
        let (request, now) = (Request::new(arguments), Instant::now());
        let deadline = self.deadline(now);
        let bound = self.bound(index, now);
        // To connect may take long, and this thread may run tasks. A handler may wait.
        if bound.is_none() && !patience::is_handling() && self.parts.client.would_wait() {
            return Pending::elsewhere(self.clone(), index, request, deadline);
        }
        match self.send_request(index, &request, bound, now, &Patience::until(deadline)) {
            Ok(sent) => {
                sent.connection.watch_over_calls();
                Ok(Pending::new(self.clone(), index, request, deadline, sent))
            }
            Err(error) => Err(error.with_service(|never| match never {})),
        }
    }

    /// Calls the procedure `index` and waits.
    ///
    /// # Errors
    /// [`CallError`].
    ///
    /// # Panics
    /// If there is no such procedure.
    #[inline]
    pub fn call<A: Wire, T: Wire, E: Wire>(&self, index: usize, arguments: &A) -> Result<T, CallError<E>> {
        let (request, now) = (Request::new(arguments), Instant::now());
        let patience = Patience::until(self.deadline(now));
        let sent = self.send_request(index, &request, self.bound(index, now), now, &patience);
        read(self.finish(index, &request, &patience, sent))
    }

    /// Sends a call of the procedure `index`, and does not wait for its end. See
    /// [`Procedure::send`].
    ///
    /// # Errors
    /// [`CallError`], if the call could not be sent.
    ///
    /// # Panics
    /// If there is no such procedure.
    pub fn send<A: Wire>(&self, index: usize, arguments: &A) -> Result<(), CallError<Never>> {
        let (request, now) = (Request { is_one_way: true, ..Request::new(arguments) }, Instant::now());
        // It goes out also if the call of this handler was cancelled.
        let patience = Patience { deadline: self.deadline(now), cancelled: None };
        self.send_request(index, &request, self.bound(index, now), now, &patience)?.leave();
        Ok(())
    }

    /// The deadline of a call that begins now. A call of a handler has no more time than the call
    /// that it handles.
    fn deadline(&self, now: Instant) -> Instant {
        let own = now + self.parts.client.deadline;
        patience::deadline().map_or(own, |outer| own.min(outer))
    }

    pub(super) fn is_idempotent(&self, index: usize) -> bool {
        self.parts.signature.procedures[index].is_idempotent
    }

    /// Waits for the answer of a call. Makes the call again when its connection was lost, if it did
    /// not run or is idempotent.
    pub(super) fn finish(
        &self,
        index: usize,
        request: &Request,
        patience: &Patience,
        mut sent: Result<Sent, CallError<Never>>,
    ) -> Outcome {
        let owner = request.memory.iter().find_map(|area| area.owner_led_here());
        loop {
            let error = match sent.and_then(|sent| sent.finish(patience, owner.as_ref())) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // What the handler has released is not there for a second time.
            let has_memory = !request.memory.iter().any(|area| area.is_gone());
            let may_again = (error.ran() == Ran::No || self.is_idempotent(index)) && has_memory;
            let now = Instant::now();
            let is_wanted = now < patience.deadline && !patience.is_cancelled();
            if !matches!(error, CallError::Lost { .. }) || !may_again || !is_wanted {
                return Err(error);
            }
            sent = self.send_request(index, request, self.bound(index, now), now, patience);
        }
    }

    /// Sends a call: where it is `bound`, or else on a new connection if the last one has ended. A
    /// call that is cancelled before it could be sent does not run.
    #[inline]
    pub(super) fn send_request(
        &self,
        index: usize,
        request: &Request,
        mut bound: Option<(Arc<Connection>, u32)>,
        mut now: Instant,
        patience: &Patience,
    ) -> Result<Sent, CallError<Never>> {
        let (deadline, mut pause) = (patience.deadline, Duration::ZERO);
        loop {
            let bound_now = bound.map_or_else(|| self.bind_anew(index, patience), Ok);
            let sent = if patience.is_cancelled() {
                Err(CallError::Cancelled)
            } else {
                bound_now.and_then(|(at, number)| send(at, number, self.parts.provider, request, now, deadline))
            };
            match sent {
                Err(CallError::Lost { ran: Ran::No, .. }) if Instant::now() + pause < deadline => {
                    // A connection that ends at once is not made without end.
                    std::thread::sleep(pause);
                    pause = (2 * pause).clamp(Duration::from_millis(1), Duration::from_millis(100));
                    now = Instant::now();
                    bound = self.bound(index, now);
                }
                Ok(mut sent) => {
                    sent.span = self.span(index, &sent);
                    return Ok(sent);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The span of a call that was sent. The handler's has the same server, connection and call.
    #[inline]
    fn span(&self, index: usize, sent: &Sent) -> Span {
        let Signature { service, procedures } = &*self.parts.signature;
        let welcome = &sent.connection.welcome;
        tracing::debug_span!(
            "call",
            procedure = format_args!("{service}/{}/{}", self.parts.provider, procedures[index].name),
            server = welcome.incarnation,
            connection = welcome.connection,
            call = sent.number
        )
    }

    /// The connection, and the number of a procedure there, if both are known.
    #[inline]
    pub(super) fn bound(&self, index: usize, now: Instant) -> Option<(Arc<Connection>, u32)> {
        // A forked child must not take the lock. It hears why when it connects.
        self.parts.client.check_origin().ok()?;
        let bound = lock(&self.parts.bound);
        if let Some(Binding { connection, procedures }) = &*bound
            && let Bound::Procedure { number } = procedures[index]
            && connection.is_alive(now)
        {
            return Some((connection.clone(), number));
        }
        None
    }

    /// Connects if there is no connection, and asks the server for the number of a procedure.
    #[cold]
    fn bind_anew(&self, index: usize, patience: &Patience) -> Result<(Arc<Connection>, u32), CallError<Never>> {
        let connection = self.parts.client.connection(patience)?;
        let procedures = self.ask(&connection, patience).map_err(|error| match error {
            // The call itself was not sent.
            CallError::Lost { cause, .. } => CallError::Lost { ran: Ran::No, cause },
            CallError::Deadline { .. } => CallError::Deadline { stage: Stage::Sending },
            error => error,
        })?;
        *lock(&self.parts.bound) = Some(Binding { connection: connection.clone(), procedures: procedures.clone() });
        let Expected { name, shape, .. } = &self.parts.signature.procedures[index];
        let name = || format!("{}/{}/{name}", self.parts.signature.service, self.parts.provider);
        match &procedures[index] {
            Bound::Procedure { number } => Ok((connection, *number)),
            Bound::Unknown { served } => Err(CallError::Unknown { name: name(), served: served.clone() }),
            Bound::Shape { theirs } => {
                Err(CallError::Shape { name: name(), ours: shape.clone(), theirs: theirs.clone() })
            }
        }
    }

    /// Asks the server for the numbers of the procedures.
    fn ask(&self, connection: &Arc<Connection>, patience: &Patience) -> Result<Arc<[Bound]>, CallError<Never>> {
        let procedures = self.parts.signature.procedures.iter();
        let procedures = procedures.map(|expected| (expected.name.clone(), expected.shape.clone())).collect();
        let bind = Bind { service: self.parts.signature.service.clone(), provider: self.parts.provider, procedures };
        let request = Request { arguments: farside_wire::encode(&bind, Vec::new()), ..Request::default() };
        let sent = send(connection.clone(), BIND, 0, &request, Instant::now(), patience.deadline)?;
        let bound: Vec<Bound> = read(sent.finish(patience, None))?;
        if bound.len() != self.parts.signature.procedures.len() {
            let cause = format!("{} answers for {} names", bound.len(), self.parts.signature.procedures.len());
            return Err(CallError::Undecodable { what: crate::error::RESULT, cause });
        }
        Ok(bound.into())
    }
}

/// Sends a call on a connection.
#[inline]
fn send(
    connection: Arc<Connection>,
    procedure: u32,
    provider: u16,
    request: &Request,
    now: Instant,
    deadline: Instant,
) -> Result<Sent, CallError<Never>> {
    let Request { arguments, memory, is_one_way } = request;
    let (bytes, max) = (arguments.len() as u64, connection.welcome.bytes_max);
    if bytes > max {
        return Err(CallError::TooLarge { what: ARGUMENTS, bytes, max });
    }
    let time = deadline.saturating_duration_since(now);
    let number = connection.register(*is_one_way, &Patience::until(deadline))?;
    let mut sent =
        Sent { connection, number, is_over: false, exposed: Vec::new(), watched: None, time, span: Span::none() };
    let link = &sent.connection.link;
    let mut head = Head::new(Kind::Call, number).with_value(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    (head.procedure, head.provider) = (procedure, provider);
    let mut described = Vec::new();
    if !memory.is_empty() {
        let descriptions = expose(link, memory);
        sent.exposed.extend(descriptions.iter().map(|memory| memory.number));
        head.status |= WITH_MEMORY;
        described = farside_wire::encode(&descriptions, described);
    }
    let lost = |cause| {
        // A path that cannot send has ended. What arrived before is still received.
        if let Some(mut drive) = link.try_drive() {
            (0..STEPS_MAX).find(|_| link.step(&mut drive).is_err());
        }
        link.close(crate::LinkEnd::ByPeer);
        CallError::Lost { ran: Ran::No, cause }
    };
    if described.len() + arguments.len() <= BODY_BYTES_MAX {
        link.send(head, &[&described, arguments]).map_err(lost)?;
    } else {
        let area = Arc::new(Area::owned(arguments.clone(), false));
        let first = expose(link, &[area]).remove(0);
        sent.exposed.push(first.number);
        head.status |= BY_BULK;
        let first = farside_wire::encode(&first, Vec::new());
        if first.len() + described.len() > BODY_BYTES_MAX {
            let (what, bytes, max) = (ARGUMENTS, (first.len() + described.len()) as u64, BODY_BYTES_MAX as u64);
            return Err(CallError::TooLarge { what, bytes, max });
        }
        link.send(head, &[&first, &described]).map_err(lost)?;
    }
    Ok(sent)
}

/// One procedure, called by its name.
pub struct Procedure<A, T, E> {
    stub: Stub,
    types: PhantomData<fn(A) -> (T, E)>,
}

impl<A: Wire, T: Wire, E: Wire> Procedure<A, T, E> {
    pub(super) fn new(stub: Stub) -> Self {
        Self { stub, types: PhantomData }
    }

    /// Begins a call. If the client has no connection, a thread of the library connects and makes
    /// the call, so a task is not held up. What goes wrong there is the call's result. A handler
    /// connects by itself. Calls that begin later may be sent before.
    ///
    /// # Errors
    /// [`CallError`], if the call could not be sent. [`CallError::Busy`], at once, if as many calls
    /// of the connection are under way as the server allows.
    pub fn start(&self, arguments: &A) -> Result<Pending<T, E>, CallError<E>> {
        self.stub.start(0, arguments)
    }

    /// Calls and waits.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn call(&self, arguments: &A) -> Result<T, CallError<E>> {
        self.stub.call(0, arguments)
    }
}

impl<A: Wire> Procedure<A, (), Never> {
    /// Sends a one-way call: returns as soon as it was sent. [`Client::flush`] waits for the end of
    /// all of them, and says how many have failed.
    ///
    /// It is a call like others to the server. So it has a deadline. While seven eighths of the
    /// calls that the server allows at once are under way, `send` waits until earlier ones have
    /// ended. It is not made again when its connection is lost. One that the client has sent
    /// shortly before it is dropped may be lost, too.
    ///
    /// # Errors
    /// [`CallError`], if the call could not be sent.
    ///
    /// # Examples
    /// ```
    /// use farside_rpc::{Client, Credentials, Handling, Never, Server, Service};
    /// use std::sync::{Arc, Mutex};
    ///
    /// let name = format!("shm:log-{}", std::process::id());
    /// let lines = Arc::new(Mutex::new(Vec::new()));
    /// let written = lines.clone();
    /// let log = Service::new("log").procedure("write", Handling::Pooled, move |_, line: String| {
    ///     written.lock().unwrap().push(line);
    ///     Ok::<_, Never>(())
    /// });
    /// let server = Server::builder().listen(&name)?.provider(0, log).start()?;
    ///
    /// let client = Client::connect(&name, Credentials::own_user())?;
    /// let write = client.procedure::<String, (), Never>("log", 0, "write");
    /// for number in 0..1000 {
    ///     write.send(&format!("line {number}"))?;
    /// }
    /// assert_eq!(client.flush()?, 0);
    /// assert_eq!(lines.lock().unwrap().len(), 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send(&self, arguments: &A) -> Result<(), CallError<Never>> {
        self.stub.send(0, arguments)
    }
}

impl<A, T, E> fmt::Debug for Procedure<A, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Procedure").field("stub", &self.stub).finish()
    }
}

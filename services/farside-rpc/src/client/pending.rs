//! [`Pending`]: a call that is under way.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use farside_connect::attachments::{Description, Holder, Owner, Received, pull_described};
use farside_connect::frame::{Head, Kind};
use farside_connect::patience::{Cancellation, Patience, WaitEnd};
use farside_connect::{LinkEnd, TransferError, lock};
use farside_sys::process::Origin;
use farside_wire::{Decoder, Wire};
use tracing::Span;

use super::calls::recycle;
use super::incoming::{self, StreamOfCall};
use super::stub::{Request, Stub};
use super::{Connection, release_result};
use crate::answer::{BY_BULK, MEMORY, STREAMED};
use crate::error::{CallError, Never, RESULT, Ran, Stage};

/// A call that is under way. Dropping it cancels the call.
///
/// A thread gets the result by [`wait`](Self::wait), a task by `await`. With [`then`](Self::then),
/// a function gets it.
///
/// *Cost.* While a thread waits, it receives for all calls of the connection. If none waits, but
/// calls are awaited or have a function, a thread of the library receives for them. It starts with
/// the first such call and serves all calls of its connection. If the system has no thread left, a
/// call that is awaited waits as in [`wait`](Self::wait).
///
/// ```
/// use farside_rpc::{Client, Credentials, Handling, Never, Server, Service};
///
/// let name = format!("shm:later-{}", std::process::id());
/// let double = Service::new("double")
///     .procedure("it", Handling::Pooled, |_, x: u64| Ok::<_, Never>(2 * x));
/// let server = Server::builder().listen(&name)?.provider(0, double).start()?;
///
/// let client = Client::connect(&name, Credentials::own_user())?;
/// let double = client.procedure::<u64, u64, Never>("double", 0, "it");
/// let (sender, results) = std::sync::mpsc::channel();
/// for x in 0..10 {
///     let sender = sender.clone();
///     double.start(&x)?.then(move |result| sender.send(result).unwrap());
/// }
/// let sum: u64 = results.iter().take(10).map(Result::unwrap).sum();
/// assert_eq!(sum, 90);
///
/// let future = async { double.start(&3)?.await };
/// # let three = std::pin::pin!(future);
/// # struct Unpark(std::thread::Thread);
/// # impl std::task::Wake for Unpark { fn wake(self: std::sync::Arc<Self>) { self.0.unpark() } }
/// # let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
/// # let (mut three, mut context) = (three, std::task::Context::from_waker(&waker));
/// # let result = loop {
/// #     match three.as_mut().poll(&mut context) {
/// #         std::task::Poll::Ready(result) => break result,
/// #         std::task::Poll::Pending => std::thread::park(),
/// #     }
/// # };
/// # assert_eq!(result, Ok(6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a pending call cancels it"]
pub struct Pending<T, E> {
    stub: Stub,
    index: usize,
    request: Request,
    deadline: Instant,
    progress: Progress,
    result: PhantomData<fn() -> (T, E)>,
}

enum Progress {
    /// The answer arrives here.
    Sent(Sent),
    /// A thread gets the answer.
    Elsewhere(Awaited),
    /// A task has got the result.
    Over,
}

impl Progress {
    /// Refuses to go on in a forked child, before it takes a lock.
    fn check_origin(&self) -> Result<(), CallError<Never>> {
        let is_forked = match self {
            Self::Sent(sent) => sent.connection.link.is_forked(),
            Self::Elsewhere(awaited) => !awaited.origin.is_here(),
            Self::Over => false,
        };
        if is_forked { Err(lost(WaitEnd::Link(LinkEnd::Forked))) } else { Ok(()) }
    }
}

/// A call that takes system calls besides its own: the client must connect, the result is long, or
/// the call is made again.
#[derive(Default)]
struct Elsewhere {
    state: Mutex<(Option<Outcome>, Option<Waker>)>,
    cancelled: Arc<Cancellation>,
}

/// The caller's side of such a call. Dropping it cancels the call.
struct Awaited {
    elsewhere: Arc<Elsewhere>,
    origin: Origin,
}

impl Awaited {
    /// Has a thread do `work`, and end the call with its outcome.
    fn spawn(work: impl FnOnce(&Patience) -> Outcome + Send + 'static, deadline: Instant) -> io::Result<Self> {
        let elsewhere = Arc::<Elsewhere>::default();
        let done = elsewhere.clone();
        let run = move || {
            let patience = Patience { deadline, cancelled: Some(done.cancelled.clone()) };
            done.end(work(&patience));
        };
        thread::Builder::new().name("farside rpc call".into()).spawn(run)?;
        Ok(Self { elsewhere, origin: Origin::here() })
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        if self.origin.is_here() {
            self.elsewhere.cancelled.set();
        }
    }
}

/// The answer of a call whose types its caller knows: the status, the body, and what came with it.
pub(super) type Outcome = Result<(u8, Vec<u8>, Option<Box<Received>>), CallError<Never>>;

/// A call that was sent.
pub(super) struct Sent {
    pub(super) connection: Arc<Connection>,
    pub(super) number: u64,
    /// True if its answer was taken, or it was left to itself.
    pub(super) is_over: bool,
    /// The memory that the server may access until the call ends.
    pub(super) exposed: Vec<u64>,
    /// The deadline under which tasks wait for it.
    pub(super) watched: Option<Instant>,
    /// The time that each access to memory of the result has.
    pub(super) time: Duration,
    /// Ends with the call.
    pub(super) span: Span,
}

impl Drop for Sent {
    #[inline]
    fn drop(&mut self) {
        let Connection { link, calls, .. } = &*self.connection;
        if link.is_forked() {
            return;
        }
        for number in self.exposed.drain(..) {
            link.withdraw(number);
        }
        if let Some(deadline) = self.watched {
            calls.driver.forget(deadline, self.number);
        }
        if !self.is_over
            && let Some(slot) = calls.remove(self.number)
        {
            if slot.is_under_way {
                link.send_last(Head::new(Kind::Cancel, self.number));
            }
            if let Some((status, body)) = &slot.answer {
                release_result(link, *status, body);
            }
        }
        if calls.wanted.load(Ordering::Relaxed) > 0 {
            link.wake_waiting();
            link.wake_driver();
        }
    }
}

impl<T: Wire, E: Wire> Pending<T, E> {
    pub(super) fn new(stub: Stub, index: usize, request: Request, deadline: Instant, sent: Sent) -> Self {
        Self { stub, index, request, deadline, progress: Progress::Sent(sent), result: PhantomData }
    }

    /// Has a thread connect and make the call.
    pub(super) fn elsewhere(
        stub: Stub,
        index: usize,
        request: Request,
        deadline: Instant,
    ) -> Result<Self, CallError<E>> {
        let (caller, outer) = (stub.clone(), Span::current());
        let work = move |patience: &Patience| {
            outer.in_scope(|| {
                let sent = caller.send_request(index, &request, None, Instant::now(), patience);
                caller.finish(index, &request, patience, sent)
            })
        };
        let awaited = Awaited::spawn(work, deadline);
        let awaited = awaited.map_err(|error| CallError::Lost { ran: Ran::No, cause: LinkEnd::failed(&error) })?;
        let (progress, request) = (Progress::Elsewhere(awaited), Request::default());
        Ok(Self { stub, index, request, deadline, progress, result: PhantomData })
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// [`CallError`]. A call that did not run, or that is idempotent, is made again when its
    /// connection was lost, until its deadline.
    ///
    /// # Panics
    /// If the result was awaited before.
    pub fn wait(self) -> Result<T, CallError<E>> {
        let Self { stub, index, request, deadline, progress, .. } = self;
        progress.check_origin().map_err(|error| error.with_service(|never| match never {}))?;
        match progress {
            Progress::Sent(sent) => read(stub.finish(index, &request, &Patience::until(deadline), Ok(sent))),
            Progress::Elsewhere(awaited) => read(awaited.elsewhere.wait()),
            Progress::Over => panic!("a result is taken once"),
        }
    }

    /// Calls `finish` with the result: on a thread of the library, or at once if the result is
    /// there. It must not wait for long: other calls of the connection wait meanwhile.
    pub fn then(self, finish: impl FnOnce(Result<T, CallError<E>>) + Send + 'static) {
        let task = Then(Mutex::new(Some((self, finish))));
        Arc::new(task).wake();
    }

    /// Cancels the call. Its handler learns of it.
    pub fn cancel(self) {
        drop(self);
    }
}

/// Reads an answer.
#[inline]
pub(super) fn read<T: Wire, E: Wire>(outcome: Outcome) -> Result<T, CallError<E>> {
    match outcome {
        Ok((status, body, None)) => {
            let result = incoming::read(status, &body, None);
            recycle(body);
            result
        }
        Ok((status, body, Some(attached))) => incoming::read(status, &body, Some(*attached)),
        Err(error) => Err(error.with_service(|never| match never {})),
    }
}

/// Gets the result, as the task of an `async` function. Dropping it cancels the call.
///
/// # Panics
/// If it is polled after it returned the result.
impl<T: Wire, E: Wire> Future for Pending<T, E> {
    type Output = Result<T, CallError<E>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (index, deadline) = (self.index, self.deadline);
        if let Err(error) = self.progress.check_origin() {
            return Poll::Ready(Err(error.with_service(|never| match never {})));
        }
        if let Progress::Sent(sent) = &mut self.progress {
            if sent.watch(deadline, context.waker()).is_pending() {
                return Poll::Pending;
            }
            let Progress::Sent(sent) = std::mem::replace(&mut self.progress, Progress::Over) else { unreachable!() };
            let patience = Patience::until(deadline);
            if sent.is_short(self.stub.is_idempotent(index)) {
                return Poll::Ready(read(self.stub.finish(index, &self.request, &patience, Ok(sent))));
            }
            // The rest takes system calls, or a new connection.
            let (stub, request) = (self.stub.clone(), std::mem::take(&mut self.request));
            let work = move |patience: &Patience| stub.finish(index, &request, patience, Ok(sent));
            match Awaited::spawn(work, deadline) {
                Ok(awaited) => self.progress = Progress::Elsewhere(awaited),
                Err(error) => {
                    return Poll::Ready(Err(CallError::Lost { ran: Ran::Maybe, cause: LinkEnd::failed(&error) }));
                }
            }
        }
        match &self.progress {
            Progress::Elsewhere(awaited) => awaited.elsewhere.poll(context.waker()).map(read),
            Progress::Sent(_) | Progress::Over => panic!("a result is taken once"),
        }
    }
}

impl Elsewhere {
    fn end(&self, outcome: Outcome) {
        let task = {
            let mut state = lock(&self.state);
            state.0 = Some(outcome);
            state.1.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Waits for the outcome, on a thread.
    fn wait(&self) -> Outcome {
        let waker = Arc::new(Unpark(std::thread::current())).into();
        loop {
            match self.poll(&waker) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    fn poll(&self, task: &Waker) -> Poll<Outcome> {
        let mut state = lock(&self.state);
        if let Some(outcome) = state.0.take() {
            return Poll::Ready(outcome);
        }
        let known = state.1.replace(task.clone());
        // To drop a task runs code of the program.
        drop(state);
        drop(known);
        Poll::Pending
    }
}

/// A call with a function that gets its result.
struct Then<T, E, F>(Mutex<Option<(Pending<T, E>, F)>>);

impl<T: Wire, E: Wire, F: FnOnce(Result<T, CallError<E>>) + Send + 'static> Wake for Then<T, E, F> {
    fn wake(self: Arc<Self>) {
        let waker = self.clone().into();
        let mut state = lock(&self.0);
        let Some((pending, _)) = &mut *state else { return };
        if let Poll::Ready(result) = Pin::new(pending).poll(&mut Context::from_waker(&waker)) {
            let (pending, finish) = state.take().expect("it was there a moment ago");
            drop(state);
            drop(pending);
            finish(result);
        }
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Why a call that was sent has no result.
pub(super) fn lost(end: WaitEnd) -> CallError<Never> {
    match end {
        WaitEnd::Deadline => CallError::Deadline { stage: Stage::Waiting },
        WaitEnd::Cancelled => CallError::Cancelled,
        WaitEnd::Link(cause) => CallError::Lost { ran: Ran::Maybe, cause },
    }
}

impl Sent {
    /// Wakes `task` when the answer is there, the deadline has passed or the connection has ended.
    /// Ready if that is so already.
    fn watch(&mut self, deadline: Instant, task: &Waker) -> Poll<()> {
        if !self.connection.calls.set_task(self.number, task) {
            return Poll::Ready(());
        }
        let is_over = self.have_task_woken(deadline).is_ready();
        let is_answered = || self.connection.calls.status(self.number).is_some();
        if is_over || is_answered() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Has the driver wake the task in the slot also at the deadline, and when the connection ends.
    /// Ready if that is so already, or if there is no driver.
    pub(super) fn have_task_woken(&mut self, deadline: Instant) -> Poll<()> {
        let Self { connection, number, watched, .. } = self;
        if watched.is_none() {
            if Connection::watch(connection, deadline, *number).is_err() {
                drop(connection.calls.take_task(*number));
                return Poll::Ready(());
            }
            *watched = Some(deadline);
        }
        let is_over = connection.link.end().is_some() || Instant::now() >= deadline;
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns whether what is left to do takes no system call. The call is made again if it
    /// `may_again`.
    fn is_short(&self, may_again: bool) -> bool {
        match self.connection.calls.status(self.number) {
            Some(status) => status & BY_BULK == 0,
            None => !may_again || self.connection.link.end().is_none(),
        }
    }

    /// Leaves a one-way call to itself. Its answer is counted when it arrives.
    pub(super) fn leave(mut self) {
        let is_fetched = !self.exposed.is_empty();
        self.is_over = self.connection.calls.leave(self.number, &mut self.exposed);
        let Connection { link, calls, .. } = &*self.connection;
        if link.end().is_some() {
            calls.lose_one_way();
        } else if is_fetched || link.path().backlog_bytes() > 0 {
            calls.keep_going(link);
        }
    }

    /// Waits for the answer of a call, and fetches it if it is long. Also receives for the `owner`
    /// of memory that was passed on.
    #[inline]
    pub(super) fn finish(mut self, patience: &Patience, owner: Option<&Owner>) -> Outcome {
        let Connection { link, calls, .. } = &*self.connection;
        let take = || calls.take_answer(self.number);
        let taken = match owner {
            None => link.wait(patience, take),
            Some(owner) => link.wait_and_receive(patience, || owner.look(), take),
        };
        let (status, body) = taken.map_err(lost)?;
        // A stream goes on. What is long is released here.
        self.is_over = status & STREAMED == 0;
        if status & (BY_BULK | STREAMED | MEMORY) != 0 {
            let (body, attached) = self.unpack(status, &body, patience)?;
            return Ok((status & !(BY_BULK | STREAMED | MEMORY), body, Some(Box::new(attached))));
        }
        Ok((status, body, None))
    }

    /// Fetches a result if it is long, and finds what came with it.
    fn unpack(self, status: u8, body: &[u8], patience: &Patience) -> Result<(Vec<u8>, Received), CallError<Never>> {
        let Self { connection, .. } = &self;
        let undecodable = |error| CallError::undecodable(RESULT, &error);
        let mut input = Decoder::new(body);
        let long = if status & BY_BULK == 0 { None } else { Some(Description::decode(&mut input)) };
        let memory = if status & MEMORY == 0 { Ok(Vec::new()) } else { Vec::decode(&mut input) };
        // What holds memory of the server releases it in any case.
        let holder = Holder::Caller { time: self.time, _connection: connection.clone() };
        let memory = Mutex::new(memory.map_err(undecodable)?);
        let received = Received { holder, link: connection.link.clone(), memory, stream: Mutex::default() };
        let body = match long {
            None => input.rest().to_vec(),
            Some(described) => self.fetch(&described.map_err(undecodable)?, patience)?,
        };
        if status & STREAMED != 0 {
            // The stream outlives what waits for the answer.
            let patience = Patience::until(patience.deadline);
            *lock(&received.stream) = Some(Box::new(StreamOfCall::begin(self, patience)));
        }
        Ok((body, received))
    }

    /// Fetches a long result.
    fn fetch(&self, described: &Description, patience: &Patience) -> Result<Vec<u8>, CallError<Never>> {
        let Self { connection, .. } = self;
        let (bytes, max) = (described.bytes, connection.welcome.bytes_max);
        let pulled = (bytes <= max).then(|| pull_described(&connection.link, described, patience));
        // The server keeps the result until it hears this.
        described.release(&connection.link);
        pulled.ok_or(CallError::TooLarge { what: RESULT, bytes, max })?.map_err(|error| match error {
            TransferError::Link(cause) => CallError::Lost { ran: Ran::Maybe, cause },
            // The server keeps a result until it is released, unless it has ended.
            TransferError::Gone => CallError::Lost { ran: Ran::Maybe, cause: LinkEnd::ByPeer },
            TransferError::Deadline => CallError::Deadline { stage: Stage::Waiting },
            other => CallError::Undecodable { what: RESULT, cause: other.to_string() },
        })
    }
}

impl<T, E> fmt::Debug for Pending<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

//! [`Session`]: what a server knows of one connection, and the way of a call through the server.

use std::any::Any;
use std::cell::Cell;
use std::collections::{HashMap, hash_map};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use farside_wire::{Decoder, Wire};

use super::Shared;
use super::deadlines::Key;
use super::held::{Held, Hold, Holdings};
use super::registry::Entry;
use super::streaming::Streaming;
use super::task::Task;
use super::times::Times;
use crate::answer::{BY_BULK, CALLS_OF_ONE, DONE, FAILED, MEMORY, REFUSED, Refused, STREAMED, WITH_MEMORY};
use crate::area::Area;
use crate::bulk::Received;
use crate::call::{self, Call};
use crate::frame::{BODY_BYTES_MAX, Head, Kind};
use crate::link::{Link, TransferError, Upper, lock};
use crate::path::LinkEnd;
use crate::peer::Peer;
use crate::remote::{self, Description, Holder};
use crate::service::{Beside, Handling, Outcome};
use crate::stream::drop_quietly;

/// The longest time that a call may have, so that sums do not overflow.
const TIME_MAX: Duration = Duration::from_secs(1 << 30);

/// How many inline calls of a procedure are timed, and which part of later ones: reading the clock
/// takes a tenth as long as such a call.
const TIMED_AT_FIRST: u64 = 1000;
const TIMED_LATER: u64 = 8;

thread_local! {
    /// Memory for the next result of this thread.
    static OUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// One connection of a server.
pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u64,
    pub(super) peer: Arc<Peer>,
    /// The calls that were accepted and not answered, but for inline ones.
    running: Mutex<HashMap<u64, Running>>,
    /// Those of them whose answers were sent, and whose streams have not ended.
    streams: Mutex<HashMap<u64, Arc<Streaming>>>,
    pub(super) holdings: Arc<Holdings>,
    /// For inline calls, which nothing cancels: the receiving thread runs them.
    never: Arc<AtomicBool>,
}

/// A call that was accepted.
struct Running {
    procedure: u32,
    arrived: Instant,
    deadline: Instant,
    /// When a thread took it.
    started: Option<Instant>,
    cancelled: Arc<AtomicBool>,
    /// Its `async` handler.
    task: Weak<Task>,
    /// What came with it, and its long arguments.
    _held: Hold,
    held_long: Option<Hold>,
}

impl Running {
    /// Cancels the call. The task that is returned must hear of it.
    fn cancel(&self) -> Option<Waker> {
        self.cancelled.store(true, Ordering::Relaxed);
        self.task.upgrade().map(Waker::from)
    }

    /// Counts the times of the call, which is over.
    fn record(&self, times: &Times) {
        let now = Instant::now();
        times.record(self.arrived, self.started.unwrap_or(now), now);
    }
}

/// A call that was accepted, as a dump copies it. The oldest is the smallest.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Underway {
    pub(super) arrived: Instant,
    pub(super) procedure: u32,
    pub(super) deadline: Instant,
    pub(super) started: Option<Instant>,
    pub(super) is_cancelled: bool,
}

/// A call on its way through the server.
#[derive(Clone)]
pub(super) struct Incoming {
    pub(super) head: Head,
    pub(super) call: Call,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>, number: u64, peer: Peer) -> Self {
        let (running, streams) = (Mutex::default(), Mutex::default());
        let connection = Held::of_connection(shared.connection_bytes_max);
        let holdings = Arc::new(Holdings { connection, server: shared.held.clone() });
        Self { shared, number, peer: Arc::new(peer), running, streams, holdings, never: Arc::default() }
    }

    /// Passes each call that was accepted and not answered to `take`, but for inline ones.
    pub(super) fn each_underway(&self, mut take: impl FnMut(Underway)) {
        for running in lock(&self.running).values() {
            let Running { procedure, arrived, deadline, started, .. } = *running;
            let is_cancelled = running.cancelled.load(Ordering::Relaxed);
            take(Underway { arrived, procedure, deadline, started, is_cancelled });
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.registry.connections.remove(self.number);
    }
}

/// The session, as the link holds it.
pub(super) struct Handle(pub(super) Arc<Session>);

impl Upper for Handle {
    #[inline]
    fn frame(&self, link: &Arc<Link>, head: Head, body: &[u8]) -> Result<(), LinkEnd> {
        match head.kind {
            Kind::Call => self.0.accept(link, head, body),
            Kind::Cancel => {
                let task = lock(&self.0.running).get(&head.id).and_then(Running::cancel);
                task.into_iter().for_each(Waker::wake);
                link.wake_waiting();
                if let Some(stream) = self.0.stream(head.id) {
                    stream.unpark();
                }
                Ok(())
            }
            // Credit for a stream that has ended may have been on its way.
            Kind::Credit => self.0.stream(head.id).map_or(Ok(()), |stream| stream.credit(head.value)),
            kind => Err(LinkEnd::protocol(format_args!("a {kind:?} frame from a client"))),
        }
    }

    fn ended(&self, _: &LinkEnd) {
        let tasks: Vec<_> = lock(&self.0.running).values().filter_map(Running::cancel).collect();
        tasks.into_iter().for_each(Waker::wake);
        let streams: Vec<_> = lock(&self.0.streams).values().cloned().collect();
        streams.iter().for_each(Streaming::unpark);
    }
}

impl Session {
    fn stream(&self, id: u64) -> Option<Arc<Streaming>> {
        lock(&self.streams).get(&id).cloned()
    }

    /// Makes the stream of a call known, until [`forget`](Self::forget).
    pub(super) fn add_stream(&self, head: Head, stream: Arc<Streaming>) {
        lock(&self.streams).insert(head.id, stream);
    }

    /// Forgets a call. The client may make its next one as soon as it knows.
    pub(super) fn forget(&self, head: Head) {
        lock(&self.streams).remove(&head.id);
        let over = lock(&self.running).remove(&head.id);
        if let Some(over) = over {
            over.record(&self.entry(head).counters.times);
        }
    }

    fn accept(self: &Arc<Self>, link: &Arc<Link>, head: Head, body: &[u8]) -> Result<(), LinkEnd> {
        let Some(entry) = self.shared.registry.entry(head.procedure) else {
            let name = format!("procedure {}", head.procedure);
            return refuse(link, head, Refused::Unknown { name, served: "others".into() });
        };
        if self.shared.is_closing.load(Ordering::Relaxed) {
            return refuse(link, head, Refused::ShuttingDown);
        }
        let arrived = Instant::now();
        let deadline = arrived + Duration::from_micros(head.value).min(self.shared.max_time.min(TIME_MAX));
        let is_inline = entry.procedure.handling == Handling::Inline;
        let is_built_in = self.shared.registry.is_built_in(head.procedure);
        if is_inline && head.status != 0 && is_built_in {
            return Err(LinkEnd::protocol("a call of a built-in procedure with bulk data"));
        }
        // Who looks after a server is answered also when it holds too much.
        if !is_built_in && let Err(busy) = self.holdings.check(0) {
            return refuse_counted(link, head, entry, busy);
        }
        if is_inline && head.status == 0 {
            let incoming = Incoming { head, call: self.call(head, entry, deadline, self.never.clone()) };
            let outcome = self.run(link, &incoming, entry, body);
            let [done, failed] =
                [&entry.counters.done, &entry.counters.failed].map(|count| count.load(Ordering::Relaxed));
            let ended = done + failed;
            if ended < TIMED_AT_FIRST || ended.is_multiple_of(TIMED_LATER) {
                // The caller may look at the times as soon as it has the answer.
                entry.counters.times.record(arrived, arrived, Instant::now());
            }
            return self.conclude(link, head, entry, outcome);
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        {
            let mut running = lock(&self.running);
            let limit = u64::from(self.shared.policy.calls_max);
            if running.len() as u64 >= limit {
                drop(running);
                return refuse_counted(link, head, entry, Refused::Busy { limit, what: CALLS_OF_ONE.into() });
            }
            let held = match self.holdings.hold(body.len() as u64) {
                Ok(held) => held,
                Err(busy) => {
                    drop(running);
                    return refuse_counted(link, head, entry, busy);
                }
            };
            let (procedure, cancelled) = (head.procedure, cancelled.clone());
            let accepted = Running {
                procedure,
                arrived,
                deadline,
                started: None,
                cancelled,
                task: Weak::new(),
                _held: held,
                held_long: None,
            };
            match running.entry(head.id) {
                // The first one stays, to be cancelled with the connection.
                hash_map::Entry::Occupied(_) => return Err(LinkEnd::protocol("two calls under one number")),
                hash_map::Entry::Vacant(place) => {
                    place.insert(accepted);
                }
            }
        }
        let incoming = Incoming { head, call: self.call(head, entry, deadline, cancelled) };
        let (session, link, body) = (self.clone(), link.clone(), body.to_vec());
        let work = move || {
            let (entry, started) = (session.entry(head), Instant::now());
            if let Some(running) = lock(&session.running).get_mut(&head.id) {
                running.started = Some(started);
            }
            let outcome = match incoming.call.expiry(started) {
                Some(why) => Err(why),
                None => session.run(&link, &incoming, entry, &body),
            };
            match outcome {
                Ok(Outcome::Later(future)) => Task::start(session, link, incoming, future),
                // The link's end is told to all who use it.
                outcome => drop(session.end_call(&link, &incoming, outcome)),
            }
        };
        self.shared.queue.add(self.number, Box::new(work));
        Ok(())
    }

    /// What the handler of a call knows of it.
    #[inline]
    fn call(&self, head: Head, entry: &Entry, deadline: Instant, cancelled: Arc<AtomicBool>) -> Call {
        let Self { shared, number, peer, .. } = self;
        let server = shared.policy.incarnation;
        // The client's span has the same server, connection and call.
        let span = tracing::debug_span!(
            "handle",
            procedure = entry.name,
            client = %peer,
            server,
            connection = number,
            call = head.id
        );
        Call::new(deadline, cancelled, peer.clone(), *number, span)
    }

    /// What the server's [`Deadlines`](super::deadlines::Deadlines) know a call by.
    pub(super) fn key(&self, incoming: &Incoming) -> Key {
        (incoming.call.deadline(), self.number, incoming.head.id)
    }

    pub(super) fn entry(&self, head: Head) -> &Entry {
        self.shared.registry.entry(head.procedure).expect("it was found when the call was accepted")
    }

    /// Notes the task that runs a call.
    pub(super) fn set_task(&self, head: Head, task: &Arc<Task>) {
        if let Some(running) = lock(&self.running).get_mut(&head.id) {
            running.task = Arc::downgrade(task);
        }
    }

    /// Ends a call that was accepted, and answers it. With a stream it goes on.
    pub(super) fn end_call(
        self: &Arc<Self>,
        link: &Arc<Link>,
        incoming: &Incoming,
        outcome: Result<Outcome, Refused>,
    ) -> Result<(), LinkEnd> {
        let head = incoming.head;
        let outcome = match outcome {
            Ok(Outcome::With(result, Beside { memory, items: Some(items) })) => {
                match self.prepare(link, head, DONE | STREAMED, result, &memory) {
                    Ok(answer) => {
                        let stream = Streaming::new(self, link, incoming, items);
                        // The link's end shows when the stream runs.
                        let sent = answer.send(link);
                        stream.run();
                        return sent;
                    }
                    Err(why) => {
                        drop_quietly(items);
                        Err(why)
                    }
                }
            }
            outcome => outcome,
        };
        // The client may make its next call as soon as it has the answer.
        let over = lock(&self.running).remove(&head.id);
        let entry = self.entry(head);
        if let Some(over) = over {
            over.record(&entry.counters.times);
        }
        self.conclude(link, head, entry, outcome)
    }

    /// Runs the handler of a call.
    #[inline]
    fn run(&self, link: &Arc<Link>, incoming: &Incoming, entry: &Entry, body: &[u8]) -> Result<Outcome, Refused> {
        let limit = 4 * u64::from(self.shared.policy.calls_max);
        if link.exposed_count() as u64 >= limit {
            return Err(Refused::Busy { limit, what: "results that the client has not taken".into() });
        }
        guard(&incoming.call, || self.decode_and_run(link, incoming.head, &incoming.call, entry, body))?
    }

    /// Counts a call, and answers it.
    #[inline]
    fn conclude(
        &self,
        link: &Arc<Link>,
        head: Head,
        entry: &Entry,
        outcome: Result<Outcome, Refused>,
    ) -> Result<(), LinkEnd> {
        let counters = &entry.counters;
        let (counter, status, bytes, memory) = match outcome {
            Ok(Outcome::Done(result)) => (&counters.done, DONE, result, Vec::new()),
            Ok(Outcome::Failed(error)) => (&counters.failed, FAILED, error, Vec::new()),
            Ok(Outcome::With(result, Beside { memory, items: None })) => (&counters.done, DONE, result, memory),
            Ok(Outcome::Undecodable(cause)) => {
                return self.conclude(link, head, entry, Err(Refused::Undecodable { cause }));
            }
            Ok(Outcome::Later(_) | Outcome::With(..)) => unreachable!("such a handler is pooled"),
            Err(why) => (&counters.refused, REFUSED, farside_wire::encode(&why, Vec::new()), Vec::new()),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if memory.is_empty() && bytes.len() <= BODY_BYTES_MAX {
            let (answer, mut bytes) = (Head::new(Kind::Answer, head.id).with_status(status), bytes);
            link.send(answer, &[&bytes])?;
            bytes.clear();
            OUT.set(bytes);
            return Ok(());
        }
        match self.prepare(link, head, status, bytes, &memory) {
            Ok(answer) => answer.send(link),
            Err(why) => refuse(link, head, why),
        }
    }

    #[inline]
    fn decode_and_run(
        &self,
        link: &Arc<Link>,
        head: Head,
        call: &Call,
        entry: &Entry,
        body: &[u8],
    ) -> Result<Outcome, Refused> {
        if head.status == 0 {
            return Ok((entry.procedure.run)(call, Decoder::new(body), OUT.take()));
        }
        let invalid = |error: farside_wire::WireError| Refused::Undecodable { cause: error.to_string() };
        let mut input = Decoder::new(body);
        let mut pulled = Vec::new();
        if head.status & BY_BULK != 0 {
            let arguments = Description::decode(&mut input).map_err(invalid)?;
            let max = self.shared.policy.bytes_max;
            if arguments.bytes > max {
                return Err(Refused::TooLarge { is_result: false, bytes: arguments.bytes, max });
            }
            let held = self.holdings.hold(arguments.bytes)?;
            if let Some(running) = lock(&self.running).get_mut(&head.id) {
                running.held_long = Some(held);
            }
            pulled = remote::pull_described(link, &arguments, &call.patience()).map_err(|error| match error {
                TransferError::Deadline => Refused::Expired,
                TransferError::Cancelled | TransferError::Gone | TransferError::Link(_) => Refused::Cancelled,
                other => Refused::Undecodable { cause: other.to_string() },
            })?;
        }
        let memory = match head.status & WITH_MEMORY {
            0 => Vec::new(),
            _ => Vec::<Description>::decode(&mut input).map_err(invalid)?,
        };
        if head.status & BY_BULK != 0 {
            input = Decoder::new(&pulled);
        }
        let memory = Mutex::new(memory.into_iter().map(Some).collect());
        let holder = Holder::Handler(call.clone());
        let received = Received { holder, link: link.clone(), memory, stream: Mutex::default() };
        let arguments = Decoder::new(input.rest()).within(&received);
        Ok((entry.procedure.run)(call, arguments, Vec::new()))
    }

    /// Counts memory of a result for as long as the client has it.
    fn hold_result(&self, area: &Area) {
        match area.owned_bytes() {
            0 => {}
            bytes => area.keep(Box::new(self.holdings.hold_result(bytes))),
        }
    }

    /// Prepares an answer that is long or has memory.
    fn prepare(
        &self,
        link: &Arc<Link>,
        head: Head,
        mut status: u8,
        result: Vec<u8>,
        memory: &[Option<Arc<Area>>],
    ) -> Result<Answer, Refused> {
        let (bytes, max) = (result.len() as u64, self.shared.policy.bytes_max);
        if bytes > max {
            return Err(Refused::TooLarge { is_result: true, bytes, max });
        }
        let (mut body, mut exposed) = (Vec::new(), Vec::new());
        if memory.iter().any(Option::is_some) {
            for area in memory.iter().flatten() {
                self.hold_result(area);
            }
            status |= MEMORY;
            let described = remote::expose_in_result(link, memory);
            exposed.extend(described.iter().flatten().map(|memory| memory.number));
            body = farside_wire::encode(&described, body);
        }
        if body.len() + result.len() <= BODY_BYTES_MAX {
            body.extend(result);
        } else {
            status |= BY_BULK;
            let area = Arc::new(Area::owned(result, false));
            self.hold_result(&area);
            let long = remote::expose(link, &[area]).remove(0);
            exposed.push(long.number);
            body.splice(0..0, farside_wire::encode(&long, Vec::new()));
        }
        let answer = Answer { head: Head::new(Kind::Answer, head.id).with_status(status), body, exposed };
        let (bytes, max) = (answer.body.len() as u64, BODY_BYTES_MAX as u64);
        if bytes > max {
            answer.withdraw(link);
            return Err(Refused::TooLarge { is_result: true, bytes, max });
        }
        Ok(answer)
    }
}

/// An answer that is long or has memory.
struct Answer {
    head: Head,
    body: Vec<u8>,
    exposed: Vec<u64>,
}

impl Answer {
    fn send(self, link: &Link) -> Result<(), LinkEnd> {
        let sent = link.send(self.head, &[&self.body]);
        if sent.is_err() {
            self.withdraw(link);
        }
        sent
    }

    fn withdraw(self, link: &Link) {
        for number in self.exposed {
            link.withdraw(number);
        }
    }
}

fn refuse(link: &Link, head: Head, why: Refused) -> Result<(), LinkEnd> {
    let answer = Head::new(Kind::Answer, head.id).with_status(REFUSED);
    link.send(answer, &[&farside_wire::encode(&why, Vec::new())])
}

fn refuse_counted(link: &Link, head: Head, entry: &Entry, why: Refused) -> Result<(), LinkEnd> {
    entry.counters.refused.fetch_add(1, Ordering::Relaxed);
    refuse(link, head, why)
}

/// Runs code of the program for a call. A panic is an answer.
#[inline]
pub(super) fn guard<T>(call: &Call, run: impl FnOnce() -> T) -> Result<T, Refused> {
    let caught = catch_unwind(AssertUnwindSafe(|| call::handle(call, run)));
    caught.map_err(|panic| Refused::Panicked { message: message_of(&*panic) })
}

/// The message of a panic, or its beginning if it is long.
fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").chars().take(1000).collect()
}

//! [`Session`]: what a server knows of one connection, and the way of a call through the server.

use std::any::Any;
use std::cell::Cell;
use std::collections::{HashMap, hash_map};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::task::Wake;
use std::time::{Duration, Instant};

use farside_connect::attachments::{
    Area, Description, Holder, Received, expose, expose_in_result, pull_described_async,
};
use farside_connect::frame::{BODY_BYTES_MAX, Head, Kind};
use farside_connect::link::{Link, Upper};
use farside_connect::patience::Cancellation;
use farside_connect::{LinkEnd, Peer, TransferError, lock};
use farside_wire::{Decoder, Wire};

use super::Shared;
use super::deadlines::Key;
use super::held::{Charge, Held, Holdings};
use super::registry::Entry;
use super::streaming::Streaming;
use super::task::Task;
use super::times::Times;
use crate::answer::{BIND, BY_BULK, CALLS_OF_ONE, DONE, FAILED, MEMORY, REFUSED, Refused, STREAMED, WITH_MEMORY};
use crate::call::{self, Call};
use crate::service::{Attachments, Handling, Outcome};
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
}

/// A call that was accepted.
struct Running {
    procedure: u32,
    arrived: Instant,
    deadline: Instant,
    /// When its handler began.
    started: Option<Instant>,
    cancelled: Arc<Cancellation>,
    /// The task in which it waits without a thread.
    task: Weak<Task>,
    /// The memory that came with it, and its long arguments.
    _held: Charge,
    held_long: Option<Charge>,
}

impl Running {
    /// Returns a function that cancels the call. It wakes threads, so the lock of the calls must be
    /// free then.
    fn canceller(&self) -> impl FnOnce() + use<> {
        let (cancelled, task) = (self.cancelled.clone(), self.task.clone());
        move || {
            cancelled.set();
            task.upgrade().into_iter().for_each(Wake::wake);
        }
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
        let connection = Held::of_connection(shared.options.connection_bytes_max());
        let holdings = Arc::new(Holdings { connection, server: shared.held.clone() });
        Self { shared, number, peer: Arc::new(peer), running, streams, holdings }
    }

    /// Passes each call that was accepted and not answered to `take`, but for inline ones.
    pub(super) fn each_underway(&self, mut take: impl FnMut(Underway)) {
        for running in lock(&self.running).values() {
            let Running { procedure, arrived, deadline, started, .. } = *running;
            let is_cancelled = running.cancelled.is_set();
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
                let canceller = lock(&self.0.running).get(&head.id).map(Running::canceller);
                canceller.into_iter().for_each(|cancel| cancel());
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
        let cancellers: Vec<_> = lock(&self.0.running).values().map(Running::canceller).collect();
        cancellers.into_iter().for_each(|cancel| cancel());
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
        let time = Duration::from_micros(head.value).min(self.shared.options.max_time.min(TIME_MAX));
        let is_inline = entry.procedure.handling == Handling::Inline;
        let is_built_in = self.shared.registry.is_built_in(head.procedure);
        // The names and types of a large service are long.
        if is_inline && head.status != 0 && is_built_in && head.procedure != BIND {
            return Err(LinkEnd::protocol("a call of a built-in procedure with bulk data"));
        }
        // Who looks after a server is answered also when it holds too much.
        if !is_built_in && let Err(busy) = self.holdings.check(0) {
            return refuse_counted(link, head, entry, busy);
        }
        if is_inline && head.status == 0 {
            let counters = &entry.counters;
            let [done, failed] = [&counters.done, &counters.failed].map(|count| count.load(Ordering::Relaxed));
            let before = done + failed;
            let is_timed = before < TIMED_AT_FIRST || before.is_multiple_of(TIMED_LATER);
            let arrived = is_timed.then(Instant::now);
            let incoming = Incoming { head, call: self.call(head, entry, time) };
            let outcome = self.run(link, &incoming, entry, body, None);
            if let Some(arrived) = arrived {
                // The caller may look at the times as soon as it has the answer.
                counters.times.record(arrived, arrived, Instant::now());
            }
            return self.conclude(link, head, entry, outcome);
        }
        let arrived = Instant::now();
        let deadline = arrived + time;
        let cancelled = Arc::<Cancellation>::default();
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
        let incoming = Incoming { head, call: self.call(head, entry, time).until(deadline, cancelled) };
        let (session, link, body) = (self.clone(), link.clone(), body.to_vec());
        let work = move || {
            let now = Instant::now();
            let outcome = match incoming.call.expiry(now) {
                Some(why) => Err(why),
                None if head.status & BY_BULK == 0 => {
                    session.note_start(head, now);
                    session.run(&link, &incoming, session.entry(head), &body, None)
                }
                None => {
                    let later = session.clone().fetch_and_run(link.clone(), incoming.clone(), body);
                    Ok(Outcome::Later(Box::pin(later)))
                }
            };
            match outcome {
                Ok(Outcome::Later(future)) => Task::start(session, link, incoming, future),
                // All users of the link learn of its end.
                outcome => drop(session.end_call(&link, &incoming, outcome)),
            }
        };
        // A server that has ended runs nothing, and its connections are cut.
        let _ = self.shared.queue.add(self.number, Box::new(work));
        Ok(())
    }

    /// The call, as its handler sees it.
    #[inline]
    fn call(&self, head: Head, entry: &Entry, time: Duration) -> Call {
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
        Call::inline(time, peer.clone(), *number, span)
    }

    /// The key of a call in the server's [`Deadlines`](super::deadlines::Deadlines).
    pub(super) fn key(&self, incoming: &Incoming) -> Key {
        (incoming.call.deadline(), self.number, incoming.head.id)
    }

    pub(super) fn entry(&self, head: Head) -> &Entry {
        self.shared.registry.entry(head.procedure).expect("it was found when the call was accepted")
    }

    /// Notes that the handler of a call begins to run.
    fn note_start(&self, head: Head, now: Instant) {
        if let Some(running) = lock(&self.running).get_mut(&head.id) {
            running.started = Some(now);
        }
    }

    /// Returns whether the handler of a call has begun to run.
    pub(super) fn has_started(&self, head: Head) -> bool {
        lock(&self.running).get(&head.id).is_some_and(|running| running.started.is_some())
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
            Ok(Outcome::With(result, Attachments { memory, items: Some(items) })) => {
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

    /// Fetches the long arguments of a call, and runs its handler. A client that is slow to send
    /// them occupies no thread.
    async fn fetch_and_run(
        self: Arc<Self>,
        link: Arc<Link>,
        incoming: Incoming,
        body: Vec<u8>,
    ) -> Result<Outcome, Refused> {
        let Incoming { head, call } = &incoming;
        let (described, rest) = {
            let mut input = Decoder::new(&body);
            (Description::decode(&mut input), input.rest())
        };
        let described = described.map_err(|error| Refused::Undecodable { cause: error.to_string() })?;
        let (bytes, max) = (described.bytes, self.shared.policy.bytes_max);
        if bytes > max {
            return Err(Refused::TooLarge { is_result: false, bytes, max });
        }
        let held = self.holdings.hold(bytes)?;
        if let Some(running) = lock(&self.running).get_mut(&head.id) {
            running.held_long = Some(held);
        }
        let fetched = pull_described_async(link.clone(), described, call.patience()).await;
        let long = fetched.map_err(|error| match error {
            TransferError::Deadline => Refused::Expired,
            TransferError::Cancelled | TransferError::Gone | TransferError::Link(_) => Refused::Cancelled,
            other => Refused::Undecodable { cause: other.to_string() },
        })?;
        self.note_start(*head, Instant::now());
        let outcome = self.run(&link, &incoming, self.entry(*head), rest, Some(&long))?;
        // The handler has its arguments, and may wait for long.
        drop(long);
        if let Outcome::Later(future) = outcome { future.await } else { Ok(outcome) }
    }

    /// Runs the handler of a call. `long` has its arguments if they are not in the body.
    #[inline]
    fn run(
        &self,
        link: &Arc<Link>,
        incoming: &Incoming,
        entry: &Entry,
        body: &[u8],
        long: Option<&[u8]>,
    ) -> Result<Outcome, Refused> {
        let limit = 4 * u64::from(self.shared.policy.calls_max);
        if link.exposed_count() as u64 >= limit {
            return Err(Refused::Busy { limit, what: "results that the client has not taken".into() });
        }
        if link.is_crowded() && !self.shared.registry.is_built_in(incoming.head.procedure) {
            let limit = self.shared.unsent.max() as u64;
            return Err(Refused::Busy { limit, what: "bytes that wait to be sent to clients".into() });
        }
        let Incoming { head, call } = incoming;
        guard(call, || {
            if head.status == 0 {
                return Ok((entry.procedure.run)(call, Decoder::new(body), OUT.take()));
            }
            let mut input = Decoder::new(body);
            let memory = match head.status & WITH_MEMORY {
                0 => Ok(Vec::new()),
                _ => Vec::<Description>::decode(&mut input),
            };
            let memory = memory.map_err(|error| Refused::Undecodable { cause: error.to_string() })?;
            let memory = Mutex::new(memory.into_iter().map(Some).collect());
            let holder = Holder::Handler(call.patience());
            let received = Received { holder, link: link.clone(), memory, stream: Mutex::default() };
            let arguments = Decoder::new(long.unwrap_or(input.rest())).within(&received);
            Ok((entry.procedure.run)(call, arguments, Vec::new()))
        })?
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
            Ok(Outcome::With(result, Attachments { memory, items: None })) => (&counters.done, DONE, result, memory),
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
            let described = expose_in_result(link, memory);
            exposed.extend(described.iter().flatten().map(|memory| memory.number));
            body = farside_wire::encode(&described, body);
        }
        if body.len() + result.len() <= BODY_BYTES_MAX {
            body.extend(result);
        } else {
            status |= BY_BULK;
            let area = Arc::new(Area::owned(result, false));
            self.hold_result(&area);
            let long = expose(link, &[area]).remove(0);
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

//! [`Session`]: what a server knows of one connection, and the way of a call through the server.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farside_wire::{Decoder, Wire};

use super::Shared;
use super::registry::Entry;
use super::streaming::Streaming;
use crate::answer::{BY_BULK, DONE, FAILED, REFUSED, Refused, STREAMED, WITH_MEMORY};
use crate::area::Area;
use crate::bulk::{self, Received};
use crate::call::Call;
use crate::frame::{Head, Kind, PIECE_BYTES};
use crate::link::{Link, TransferError, Upper, lock};
use crate::path::LinkEnd;
use crate::peer::Peer;
use crate::service::{Handling, Outcome};
use crate::stream::drop_quietly;

/// The longest time that a call may have, so that sums do not overflow.
const TIME_MAX: Duration = Duration::from_secs(1 << 30);

/// One connection of a server.
pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u64,
    pub(super) peer: Arc<Peer>,
    /// The calls that were accepted and not answered, with their flags for cancelling.
    pub(super) running: Mutex<HashMap<u64, Arc<AtomicBool>>>,
    /// Those of them whose answers were sent, and whose streams have not ended.
    pub(super) streams: Mutex<HashMap<u64, Arc<Streaming>>>,
}

/// A call on its way through the server.
pub(super) struct Incoming {
    pub(super) head: Head,
    pub(super) cancelled: Arc<AtomicBool>,
    pub(super) deadline: Instant,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>, number: u64, peer: Peer) -> Self {
        Self { shared, number, peer: Arc::new(peer), running: Mutex::default(), streams: Mutex::default() }
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
                if let Some(cancelled) = lock(&self.0.running).get(&head.id) {
                    cancelled.store(true, Ordering::Relaxed);
                    link.wake_waiting();
                }
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
        for cancelled in lock(&self.0.running).values() {
            cancelled.store(true, Ordering::Relaxed);
        }
        let streams: Vec<_> = lock(&self.0.streams).values().cloned().collect();
        streams.iter().for_each(Streaming::unpark);
    }
}

impl Session {
    fn stream(&self, id: u64) -> Option<Arc<Streaming>> {
        lock(&self.streams).get(&id).cloned()
    }

    fn accept(self: &Arc<Self>, link: &Arc<Link>, head: Head, body: &[u8]) -> Result<(), LinkEnd> {
        let Some(entry) = self.shared.registry.entry(head.procedure) else {
            let name = format!("procedure {}", head.procedure);
            return refuse(link, head, Refused::Unknown { name, served: "others".into() });
        };
        if self.shared.is_closing.load(Ordering::Relaxed) {
            return refuse(link, head, Refused::ShuttingDown);
        }
        let deadline = Instant::now() + Duration::from_micros(head.value).min(self.shared.max_time.min(TIME_MAX));
        let cancelled = Arc::new(AtomicBool::new(false));
        let incoming = Incoming { head, cancelled, deadline };
        if entry.procedure.handling == Handling::Inline
            && head.status != 0
            && self.shared.registry.is_built_in(head.procedure)
        {
            return Err(LinkEnd::protocol("a call of a built-in procedure with bulk data"));
        }
        if entry.procedure.handling == Handling::Inline && head.status == 0 {
            return self.run(link, incoming, entry, body);
        }
        {
            let mut running = lock(&self.running);
            let limit = u64::from(self.shared.policy.calls_max);
            if running.len() as u64 >= limit {
                drop(running);
                entry.counters.refused.fetch_add(1, Ordering::Relaxed);
                return refuse(link, head, Refused::Busy { limit, what: "calls of one connection".into() });
            }
            if running.insert(head.id, incoming.cancelled.clone()).is_some() {
                return Err(LinkEnd::protocol("two calls under one number"));
            }
        }
        let (session, link, body) = (self.clone(), link.clone(), body.to_vec());
        let work = move || {
            let entry = session.shared.registry.entry(incoming.head.procedure).expect("it was found before");
            // The link's end is told to all who use it.
            let _ = session.run(&link, incoming, entry, &body);
        };
        self.shared.queue.add(self.number, Box::new(work));
        Ok(())
    }

    /// Runs a call and answers it.
    #[inline]
    fn run(self: &Arc<Self>, link: &Arc<Link>, incoming: Incoming, entry: &Entry, body: &[u8]) -> Result<(), LinkEnd> {
        let head = incoming.head;
        let counters = &entry.counters;
        let is_queued = head.status != 0 || entry.procedure.handling != Handling::Inline;
        // The client may make its next call as soon as it has the answer.
        let is_over = || {
            if is_queued {
                lock(&self.running).remove(&head.id);
            }
        };
        let refused = |why| {
            counters.refused.fetch_add(1, Ordering::Relaxed);
            is_over();
            refuse(link, head, why)
        };
        if incoming.cancelled.load(Ordering::Relaxed) {
            return refused(Refused::Cancelled);
        }
        if is_queued && Instant::now() >= incoming.deadline {
            return refused(Refused::Expired);
        }
        let limit = 4 * u64::from(self.shared.policy.calls_max);
        if link.exposed_count() as u64 >= limit {
            return refused(Refused::Busy { limit, what: "results that the client has not taken".into() });
        }
        let call = Call::new(incoming.deadline, incoming.cancelled.clone(), self.peer.clone());
        match catch_unwind(AssertUnwindSafe(|| self.decode_and_run(link, head, &call, entry, body))) {
            Ok(Ok(Outcome::Done(result))) => {
                counters.done.fetch_add(1, Ordering::Relaxed);
                is_over();
                self.answer(link, head, DONE, result)
            }
            Ok(Ok(Outcome::Streamed(result, items))) => {
                let (bytes, max) = (result.len() as u64, self.shared.policy.bytes_max);
                if bytes > max {
                    drop_quietly(Some(items));
                    return refused(Refused::TooLarge { is_result: true, bytes, max });
                }
                let stream = Streaming::new(self, link, incoming, counters, items);
                // The link's end shows when the stream runs.
                let sent = self.answer(link, head, DONE | STREAMED, result);
                stream.run();
                sent
            }
            Ok(Ok(Outcome::Failed(error))) => {
                counters.failed.fetch_add(1, Ordering::Relaxed);
                is_over();
                self.answer(link, head, FAILED, error)
            }
            Ok(Ok(Outcome::Undecodable(cause))) => refused(Refused::Undecodable { cause }),
            Ok(Err(why)) => refused(why),
            Err(panic) => refused(Refused::Panicked { message: message_of(&*panic) }),
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
            return Ok((entry.procedure.run)(call, Decoder::new(body), Vec::new()));
        }
        let invalid = |error: farside_wire::WireError| Refused::Undecodable { cause: error.to_string() };
        let mut input = Decoder::new(body);
        let mut pulled = Vec::new();
        if head.status & BY_BULK != 0 {
            let arguments = bulk::Description::decode(&mut input).map_err(invalid)?;
            let max = self.shared.policy.bytes_max;
            if arguments.bytes > max {
                return Err(Refused::TooLarge { is_result: false, bytes: arguments.bytes, max });
            }
            pulled = bulk::pull_described(link, &arguments, &call.patience()).map_err(|error| match error {
                TransferError::Deadline => Refused::Expired,
                TransferError::Cancelled | TransferError::Gone | TransferError::Link(_) => Refused::Cancelled,
                other => Refused::Undecodable { cause: other.to_string() },
            })?;
        }
        let memory = match head.status & WITH_MEMORY {
            0 => Vec::new(),
            _ => Vec::<bulk::Description>::decode(&mut input).map_err(invalid)?,
        };
        if head.status & BY_BULK != 0 {
            input = Decoder::new(&pulled);
        }
        let memory = Mutex::new(memory.into_iter().map(Some).collect());
        let received = Received { call: call.clone(), link: link.clone(), memory };
        let arguments = Decoder::new(input.rest()).within(&received);
        Ok((entry.procedure.run)(call, arguments, Vec::new()))
    }

    #[inline]
    fn answer(&self, link: &Arc<Link>, head: Head, status: u8, result: Vec<u8>) -> Result<(), LinkEnd> {
        let answer = Head::new(Kind::Answer, head.id).with_status(status);
        if result.len() <= PIECE_BYTES {
            return link.send(answer, &[&result]);
        }
        let (bytes, max) = (result.len() as u64, self.shared.policy.bytes_max);
        if bytes > max {
            return refuse(link, head, Refused::TooLarge { is_result: true, bytes, max });
        }
        let described = bulk::expose(link, &[Arc::new(Area::owned(result, false))]);
        link.send(answer.with_status(status | BY_BULK), &[&farside_wire::encode(&described[0], Vec::new())])
    }
}

fn refuse(link: &Link, head: Head, why: Refused) -> Result<(), LinkEnd> {
    let answer = Head::new(Kind::Answer, head.id).with_status(REFUSED);
    link.send(answer, &[&farside_wire::encode(&why, Vec::new())])
}

/// The message of a panic, or its beginning if it is long.
pub(super) fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").chars().take(1000).collect()
}

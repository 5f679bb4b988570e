//! [`Pending`]: a call that is under way.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use farside_wire::{Decoder, Wire};

use super::incoming::Arrived;
use super::stub::{Request, Stub};
use super::{Connection, release_result};
use crate::answer::{BY_BULK, STREAMED};
use crate::bulk::{Description, pull_described};
use crate::error::{CallError, Never, RESULT, Ran, Stage};
use crate::frame::{Head, Kind};
use crate::link::{Patience, TransferError, WaitEnd, lock};
use crate::path::LinkEnd;

/// Where the answer of a call arrives.
#[derive(Debug, Default)]
pub(super) struct Slot {
    is_answered: AtomicBool,
    answer: Mutex<Option<(u8, Vec<u8>)>>,
    /// What of a stream has arrived, from the answer that begins it on.
    arrived: Mutex<Option<Box<Arrived>>>,
    /// For a one-way call.
    pub(super) one_way: Option<Box<OneWay>>,
}

/// A call for whose answer no thread waits.
#[derive(Debug, Default)]
pub(super) struct OneWay {
    /// The memory that the server may access until the call ends. `None` before the call was sent.
    pub(super) exposed: Mutex<Option<Vec<u64>>>,
}

impl Slot {
    pub(super) fn new(is_one_way: bool) -> Self {
        Self { one_way: is_one_way.then(Box::default), ..Self::default() }
    }

    #[inline]
    pub(super) fn answer(&self, status: u8, body: &[u8]) {
        if status & STREAMED != 0 {
            *lock(&self.arrived) = Some(Box::default());
        }
        *lock(&self.answer) = Some((status, body.to_vec()));
        // SYNC: pairs with the acquire load in `take`.
        self.is_answered.store(true, Ordering::Release);
    }

    #[inline]
    fn take(&self) -> Option<(u8, Vec<u8>)> {
        if !self.is_answered.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.answer).take()
    }

    /// Passes what of a stream has arrived to `use_it`. `None` if the answer has begun no stream.
    pub(super) fn with_arrived<T>(&self, use_it: impl FnOnce(&mut Arrived) -> T) -> Option<T> {
        lock(&self.arrived).as_deref_mut().map(use_it)
    }
}

/// A call that is under way. Dropping it cancels the call.
///
/// Something must drive the connection: a thread in [`wait`](Self::wait) drives it for all calls.
#[must_use = "dropping a pending call cancels it"]
pub struct Pending<T, E> {
    stub: Stub,
    index: usize,
    request: Request,
    deadline: Instant,
    sent: Sent,
    result: PhantomData<fn() -> (T, E)>,
}

/// A call that was sent.
pub(super) struct Sent {
    pub(super) connection: Arc<Connection>,
    pub(super) slot: Arc<Slot>,
    pub(super) number: u64,
    /// The memory that the server may access until the call ends.
    pub(super) exposed: Vec<u64>,
}

impl Drop for Sent {
    fn drop(&mut self) {
        for number in self.exposed.drain(..) {
            self.connection.link.withdraw(number);
        }
        let Connection { link, calls, .. } = &*self.connection;
        let is_under_way = lock(&calls.waiting).remove(self.number).is_some();
        if is_under_way {
            // A server that is gone needs no word.
            let _ = link.send(Head::new(Kind::Cancel, self.number), &[]);
        }
        if let Some((status, body)) = self.slot.take() {
            release_result(link, status, &body);
        }
        if calls.wanted.load(Ordering::Relaxed) > 0 {
            link.wake_waiting();
            link.poke_leader();
        }
    }
}

impl<T: Wire, E: Wire> Pending<T, E> {
    pub(super) fn new(stub: Stub, index: usize, request: Request, deadline: Instant, sent: Sent) -> Self {
        Self { stub, index, request, deadline, sent, result: PhantomData }
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// [`CallError`]. A call that did not run, or that is idempotent, is made again when its
    /// connection was lost, until its deadline.
    pub fn wait(self) -> Result<T, CallError<E>> {
        let Self { stub, index, request, deadline, sent, .. } = self;
        stub.finish(index, &request, deadline, Ok(sent))
    }

    /// Cancels the call. Its handler is told.
    pub fn cancel(self) {
        drop(self);
    }
}

impl Sent {
    /// Leaves a one-way call to itself. Its answer is counted when it arrives.
    pub(super) fn leave(mut self) {
        let Connection { link, calls, .. } = &*self.connection;
        let mut waiting = lock(&calls.waiting);
        if let Some(slot) = waiting.get(self.number)
            && let Some(one_way) = &slot.one_way
        {
            *lock(&one_way.exposed) = Some(std::mem::take(&mut self.exposed));
            // No call has this number, so dropping this cancels none.
            self.number = 0;
        }
        drop(waiting);
        if link.end().is_some() {
            calls.lose_one_way();
        }
    }

    /// Waits for the answer of a call, and fetches it if it is long.
    pub(super) fn finish(&self, patience: &Patience) -> Result<(u8, Vec<u8>), CallError<Never>> {
        let Self { connection, slot, .. } = self;
        let (status, body) = connection.link.wait(patience, || slot.take()).map_err(lost)?;
        if status & BY_BULK == 0 {
            return Ok((status, body));
        }
        let described: Description =
            farside_wire::decode(Decoder::new(&body), 0).map_err(|error| CallError::undecodable(RESULT, &error))?;
        let max = connection.welcome.bytes_max;
        if described.bytes > max {
            return Err(CallError::TooLarge { what: RESULT, bytes: described.bytes, max });
        }
        let pulled = pull_described(&connection.link, &described, patience);
        // The server keeps the result until it hears this.
        let _ = connection.link.send(Head::new(Kind::Release, described.number), &[]);
        let body = pulled.map_err(|error| match error {
            TransferError::Link(cause) => CallError::Lost { ran: Ran::Maybe, cause },
            // The server keeps a result until it is released, unless it has ended.
            TransferError::Gone => CallError::Lost { ran: Ran::Maybe, cause: LinkEnd::ByPeer },
            TransferError::Deadline => CallError::Deadline { stage: Stage::Waiting },
            other => CallError::Undecodable { what: RESULT, cause: other.to_string() },
        })?;
        Ok((status & !BY_BULK, body))
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

impl<T, E> fmt::Debug for Pending<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

//! The result of a call, on its way.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use farside_fabric::WorkerId;
use farside_sys::racy;

use super::reply::{Holder, Status};
use super::reply_slots::{ReplyOutcome, ReplySlots, SlotHandle};
use crate::error::{Error, NameRefusal, Result};
use crate::runtime::activity::Whom;
use crate::runtime::activity::recorder::Wait;
use crate::runtime::process::Process;
use crate::runtime::worker::Worker;
use crate::wire::{self, Decoder, Wire, from_bytes_in};

/// The result of a call made with [`call_return`](Worker::call_return) or
/// [`call_named_return`](crate::NamedCalls::call_named_return), on its way.
///
/// Check for it with [`poll`](Self::poll), wait with [`wait`](Self::wait) or
/// [`wait_for`](Self::wait_for), continue with [`then`](Self::then), or use it as a [`Future`].
/// Dropping it lets the call go on and discards its result.
///
/// The future becomes ready while this worker makes progress; [`Worker::block_on`] polls it and
/// makes progress.
#[derive(Debug)]
#[must_use = "dropping it discards the result"]
pub struct Pending<'w, R, H = FromLike> {
    worker: &'w Worker,
    /// `None` once the result was taken.
    slot: Option<SlotHandle>,
    how: H,
    result: PhantomData<fn() -> R>,
}

/// The way in which a result is read.
pub trait Reading<R>: Copy + std::fmt::Debug + 'static {
    /// Reads a result, with the context of handles that it may have.
    ///
    /// # Safety
    /// The bytes are a complete answer of the call whose `Pending` this belongs to, and are read
    /// once. For [`FromLike`] no thread writes them meanwhile.
    #[doc(hidden)]
    unsafe fn read(self, on: WorkerId, context: &dyn Any, place: *const u8, bytes: usize) -> Result<R>;

    /// The name of the called function, if it was called by name.
    #[doc(hidden)]
    fn name(self) -> &'static str {
        ""
    }
}

/// Reads a result from a process of the same binary, which writes values as this one reads them.
#[derive(Clone, Copy, Debug)]
pub struct FromLike;

impl<R: Wire> Reading<R> for FromLike {
    unsafe fn read(self, on: WorkerId, context: &dyn Any, place: *const u8, bytes: usize) -> Result<R> {
        // SAFETY: by the contract the bytes are a complete answer, which no thread writes
        // meanwhile.
        let content = unsafe { std::slice::from_raw_parts(place, bytes) };
        // SAFETY: a complete answer was written from an `R`: callers and callees agree on it, being
        // one binary and one function. It is read once, because its slot or message reply goes now.
        unsafe { from_bytes_in(content, context) }.map_err(|cause| Error::Wire { from: on, cause })
    }
}

/// Reads a checked result of a function called by its name, perhaps in a process of another binary.
#[derive(Clone, Copy, Debug)]
pub struct ByName {
    pub(crate) name: &'static str,
}

impl<R: Wire> Reading<R> for ByName {
    unsafe fn read(self, on: WorkerId, context: &dyn Any, place: *const u8, bytes: usize) -> Result<R> {
        let mut content = vec![0; bytes];
        // SAFETY: by the contract `bytes` bytes are readable; the buffer is new, and as long.
        unsafe { racy::copy_in(place, content.as_mut_ptr(), bytes) };
        wire::decode(Decoder::new(&content).within(context), 0).map_err(|cause| Error::Wire { from: on, cause })
    }

    fn name(self) -> &'static str {
        self.name
    }
}

impl<'w, R: Wire, H: Reading<R>> Pending<'w, R, H> {
    pub(crate) fn new(worker: &'w Worker, slot: SlotHandle, how: H) -> Self {
        Self { worker, slot: Some(slot), how, result: PhantomData }
    }

    /// Returns the result if it has arrived. Makes no progress, so handlers may use it.
    ///
    /// # Errors
    /// Inside the `Some`: [`Error::RemotePanic`] if the function panicked; [`Error::ReplyDropped`]
    /// if its reply was dropped; [`Error::PeerLost`] if the process that must answer is lost;
    /// [`Error::NamedRefused`] or [`Error::Wire`] for a named function.
    ///
    /// # Panics
    /// When the result was taken before.
    pub fn poll(&mut self) -> Option<Result<R>> {
        let slot = self.slot.expect("the result was already taken");
        let outcome = take_on(self.worker, slot, self.how)?;
        self.slot = None;
        Some(outcome)
    }

    /// Waits for the result, and meanwhile runs calls that arrive here. Waits for the job's
    /// [deadline](crate::Job::deadline) at most.
    ///
    /// # Errors
    /// [`Error::RemotePanic`] if the function panicked; [`Error::ReplyDropped`] if its reply was
    /// dropped; [`Error::PeerLost`] if the process that must answer is lost;
    /// [`Error::NamedRefused`] or [`Error::Wire`] for a named function; [`Error::Deadline`] if no
    /// result arrives in time; [`Error::InHandler`] in a handler.
    #[track_caller]
    pub fn wait(mut self) -> Result<R> {
        self.wait_for(self.worker.default_deadline())
    }

    /// Waits for at most this long. After [`Error::Deadline`] the caller may wait again.
    ///
    /// # Errors
    /// [`Error::RemotePanic`] if the function panicked; [`Error::ReplyDropped`] if its reply was
    /// dropped; [`Error::PeerLost`] if the process that must answer is lost;
    /// [`Error::NamedRefused`] or [`Error::Wire`] for a named function; [`Error::Deadline`] if no
    /// result arrives in time; [`Error::InHandler`] in a handler.
    ///
    /// # Panics
    /// When the result was taken before.
    #[track_caller]
    pub fn wait_for(&mut self, time: Duration) -> Result<R> {
        let slot = self.slot.expect("the result was already taken");
        self.wait_at(Wait::here("waiting for the result of a call").on_debtor(slot), time)
    }

    /// Like [`wait_for`](Self::wait_for), for a wait of which the caller may know more.
    pub(crate) fn wait_at(&mut self, wait: Wait, time: Duration) -> Result<R> {
        let slot = self.slot.expect("the result was already taken");
        loop {
            // An error of the wait itself says nothing of the result, which may still come.
            let waited = self.worker.wait_for_result(wait, slot, time);
            waited.map_err(|error| with_debtor(&self.worker.replies(), slot, error))?;
            // A holder that seemed lost may have passed the reply on.
            if let Some(result) = take_on(self.worker, slot, self.how) {
                self.slot = None;
                return result;
            }
        }
    }

    /// Returns whether the result was taken.
    pub(crate) fn is_taken(&self) -> bool {
        self.slot.is_none()
    }

    /// Runs `next` on this worker when the result has arrived, as a handler, while the worker makes
    /// progress. So a handler can continue after a call of its own without waiting.
    pub fn then(mut self, next: impl FnOnce(&Worker, Result<R>) + 'static) {
        let slot = self.slot.take().expect("the result was already taken");
        let how = self.how;
        let run = move |worker: &Worker| {
            if let Some(result) = take_on(worker, slot, how) {
                next(worker, result);
            }
        };
        self.worker.add_continuation(Continuation { slot, run: Box::new(run) });
    }
}

/// A continuation of a call without a slot.
pub(crate) enum Next {
    Run(Box<dyn FnOnce(&Worker)>),
    Wake(Waker),
}

impl std::fmt::Debug for Next {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Next").finish_non_exhaustive()
    }
}

/// The continuation of a call, run when its result has arrived.
pub(crate) struct Continuation {
    pub(crate) slot: SlotHandle,
    pub(crate) run: Box<dyn FnOnce(&Worker)>,
}

impl std::fmt::Debug for Continuation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Continuation").field("slot", &self.slot).finish_non_exhaustive()
    }
}

/// Adds to the error of a wait for a result the worker that owes it. A `Reply` may have been passed
/// on, and then only its holder knows.
pub(super) fn with_debtor(replies: &ReplySlots, slot: SlotHandle, error: Error) -> Error {
    match replies.outcome(slot) {
        ReplyOutcome::Waits(on, Holder::Called) => error.late(on),
        _ => error,
    }
}

/// Returns who owes a result, as far as is known.
pub(crate) fn debtor(replies: &ReplySlots, slot: SlotHandle) -> Whom {
    match replies.outcome(slot) {
        ReplyOutcome::Waits(on, Holder::Called) => Whom::Worker(on),
        ReplyOutcome::Waits(_, Holder::Process(process)) => Whom::Process(process),
        _ => Whom::Unknown,
    }
}

fn take_on<R: Wire, H: Reading<R>>(worker: &Worker, slot: SlotHandle, how: H) -> Option<Result<R>> {
    let lost = |on, holder| worker.holder_lost(on, holder);
    take(worker.process_handle(), &mut worker.replies(), slot, how, lost)
}

/// Takes the result out of its slot or message reply and releases the slot, if the result has
/// arrived or, as `lost` tells, never will.
pub(crate) fn take<R: Wire, H: Reading<R>>(
    process: &Arc<Process>,
    replies: &mut ReplySlots,
    slot: SlotHandle,
    how: H,
    lost: impl FnOnce(WorkerId, Holder) -> Option<Error>,
) -> Option<Result<R>> {
    match replies.outcome(slot) {
        ReplyOutcome::Waits(on, holder) => {
            let lost = lost(on, holder)?;
            replies.give_up(slot);
            Some(Err(lost))
        }
        ReplyOutcome::InSlot(on, status, place, bytes) => {
            // SAFETY: `outcome` found the answer complete and inside the slot's room. No callee
            // writes there until the slot is released, which happens after this.
            let result = unsafe { read(status, place, bytes, on, process, how) };
            replies.release(slot);
            Some(result)
        }
        ReplyOutcome::MessageReply => {
            let (on, status, content) = replies.take_message_reply(slot);
            // SAFETY: the message reply is complete, and was removed for this one reading. Its
            // bytes belong to this thread.
            Some(unsafe { read(status, content.as_ptr(), content.len(), on, process, how) })
        }
    }
}

/// Reads a complete answer.
///
/// # Safety
/// The contract of [`Reading::read`], for an answer of any status.
unsafe fn read<R: Wire, H: Reading<R>>(
    status: Status,
    place: *const u8,
    bytes: usize,
    on: WorkerId,
    process: &Arc<Process>,
    how: H,
) -> Result<R> {
    if status == Status::Done {
        // SAFETY: by the contract.
        return unsafe { how.read(on, process, place, bytes) };
    }
    // SAFETY: by the contract `bytes` bytes are readable, and no thread writes them meanwhile.
    let content = unsafe { std::slice::from_raw_parts(place, bytes) };
    match status {
        Status::Panicked => Err(Error::RemotePanic { on, message: String::from_utf8_lossy(content).into_owned() }),
        Status::Refused => match content.first().copied().and_then(NameRefusal::from_byte) {
            Some(why) => Err(Error::NamedRefused { on, name: how.name(), why }),
            None => Err(Error::ReplyDropped { on }),
        },
        _ => Err(Error::ReplyDropped { on }),
    }
}

impl<R, H> Drop for Pending<'_, R, H> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.worker.replies().give_up(slot);
        }
    }
}

impl<R: Wire, H: Reading<R> + Unpin> Future for Pending<'_, R, H> {
    type Output = Result<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R>> {
        match Pending::poll(&mut self) {
            Some(result) => Poll::Ready(result),
            None => {
                let slot = self.slot.expect("it was not ready");
                self.worker.add_waker(slot, context.waker());
                Poll::Pending
            }
        }
    }
}

//! The return of a result to the caller.
//!
//! The caller reserves a slot in its own memory before the call, and the record carries the slot's
//! address. The callee claims the slot with a compare-and-swap on its state, writes the result
//! there, and marks it done. So an answer needs no room in any ring and cannot be refused. A caller
//! that gives up takes the slot back with a compare-and-swap of its own. A late answer then finds
//! another generation and is discarded.
//!
//! An answer that finds no slot, or is longer than its slot's room, travels in messages and becomes
//! a [message reply](super::message_replies) at the caller.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_fabric::ProcessId;
use farside_fabric::bell::Fencing;

use crate::invoke::message::CallMessage;
use crate::invoke::message_replies::{take_mark, take_piece};
use crate::invoke::reply_slots::SlotHandle;
use crate::runtime::process::Process;
use crate::wire::{self, Reader, Wire, WireError};
use farside_launch::kill_point::KillPoint;

/// The name of a call that waits for its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, farside_macros::Wire)]
#[repr(C)]
pub(crate) struct ReplyName {
    /// The caller.
    pub(crate) worker: u32,
    /// The caller's slot, or a number that no slot has.
    pub(crate) slot: u32,
    /// The number of earlier uses of the slot.
    pub(crate) generation: u32,
}

impl ReplyName {
    pub(crate) fn handle(self) -> SlotHandle {
        SlotHandle { index: self.slot, generation: self.generation }
    }
}

/// The place of a result. Travels with the call. It is small: a record with eight bytes of
/// arguments takes half a cache line, so it never reaches into a second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, farside_macros::Wire)]
#[repr(C)]
pub struct ReplyAddress {
    pub(crate) name: ReplyName,
    pub(crate) room: ReplyRoom,
}

/// The room for a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, farside_macros::Wire)]
#[repr(C)]
pub(crate) struct ReplyRoom {
    /// The first unit in the caller's reply space.
    pub(crate) first_unit: u16,
    /// The number of units. 0: the result lies in the slot itself.
    pub(crate) units: u16,
}

/// The status of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    Free = 0,
    Waiting = 1,
    /// An answer is being written, or is arriving in messages.
    Claimed = 2,
    Done = 3,
    /// The function panicked; the result is the panic's message.
    Panicked = 4,
    /// The [`Reply`] was dropped.
    Dropped = 5,
    /// The result does not fit into its [`ResultPlace`](crate::ResultPlace), which holds its size
    /// as a `u64`.
    TooLarge = 6,
    /// The function called by name did not run; the result is a
    /// [`NameRefusal`](crate::error::NameRefusal).
    Refused = 7,
    /// The answer is a message reply, which is complete at the caller.
    MessageReply = 8,
}

impl Status {
    /// Returns the status of an answer that came as a message; `None` if the byte is none.
    pub(crate) fn of_answer(byte: u8) -> Option<Self> {
        Self::from_byte(byte)
            .filter(|status| !matches!(status, Self::Free | Self::Waiting | Self::Claimed | Self::MessageReply))
    }

    fn from_byte(byte: u8) -> Option<Self> {
        use Status::*;
        [Free, Waiting, Claimed, Done, Panicked, Dropped, TooLarge, Refused, MessageReply]
            .into_iter()
            .find(|status| *status as u8 == byte)
    }
}

/// The word at the head of a slot: generation, size of the result, status.
///
/// The caller writes it while the slot is free or waiting. The callee that claimed the slot writes
/// it from then until it is done. While the slot waits, a process that receives or sends the
/// [`Reply`] writes the [`Holder`] in the place of the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotState {
    pub(crate) generation: u32,
    pub(crate) bytes: u32,
    pub(crate) status: Status,
}

impl SlotState {
    pub(crate) const BYTES_MAX: usize = (1 << 24) - 1;

    #[inline]
    pub(crate) fn new(generation: u32, status: Status) -> Self {
        Self { generation, bytes: 0, status }
    }

    #[inline]
    pub(crate) fn word(self) -> u64 {
        debug_assert!(self.bytes as usize <= Self::BYTES_MAX);
        (self.generation as u64) << 32 | (self.bytes as u64) << 8 | self.status as u64
    }

    /// Decodes a word; `None` if it is no valid state.
    #[inline]
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        let status = Status::from_byte(word as u8)?;
        Some(Self { generation: (word >> 32) as u32, bytes: (word as u32) >> 8, status })
    }
}

/// The process that owes an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Holder {
    /// That of the worker that was called.
    #[default]
    Called,
    /// One that has received the [`Reply`].
    Process(ProcessId),
    /// The [`Reply`] is on its way to one that its sender had not given up. The sender had given up
    /// `losses` processes before.
    OnTheWay { losses: u32 },
}

impl Holder {
    /// Returns the number that stands for this holder in a [`SlotState`].
    fn code(self) -> u32 {
        match self {
            Self::Called => 0,
            Self::Process(process) => process.number().saturating_mul(2).saturating_add(1),
            Self::OnTheWay { losses } => losses.saturating_mul(2).saturating_add(2),
        }
    }

    pub(crate) fn of_code(code: u32) -> Self {
        match code.checked_sub(1) {
            None => Self::Called,
            Some(code) if code % 2 == 0 => Self::Process(ProcessId::new(code / 2)),
            Some(code) => Self::OnTheWay { losses: code / 2 },
        }
    }
}

thread_local! {
    /// The number of lost processes to which the worker of this thread sends nothing more. `None`
    /// if this thread has no worker.
    static LOSSES: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The processes to which a worker may send. Its thread counts the others, for the [marks](Mark) of
/// replies, while it lives.
#[derive(Debug)]
pub(crate) struct Recipients {
    /// Marks that the reply belongs to one thread.
    _thread: PhantomData<*const ()>,
}

impl Recipients {
    pub(crate) fn new() -> Self {
        LOSSES.set(Some(0));
        Self { _thread: PhantomData }
    }

    /// Notes that the worker sends nothing more to one of them, which is lost.
    pub(crate) fn note_loss(&self) {
        LOSSES.set(LOSSES.get().map(|losses| losses + 1));
    }

    /// The number of lost processes to which this thread has sent nothing since it noticed. A loss
    /// that it has not noticed does not count: what it sends there now is lost, too.
    fn losses(process: &Process) -> u32 {
        LOSSES.get().unwrap_or_else(|| process.losses.unsendable())
    }
}

impl Drop for Recipients {
    fn drop(&mut self) {
        LOSSES.set(None);
    }
}

/// A message to the caller about a [`Reply`] that travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(crate) enum Mark {
    /// The process has sent the reply to another process, which is none of the `losses` lost
    /// processes to which its sender sends nothing more.
    Sent { losses: u32 },
    /// The process has received the reply.
    Received,
}

impl Mark {
    pub(crate) fn holder(self, by: ProcessId) -> Holder {
        match self {
            Self::Sent { losses } => Holder::OnTheWay { losses },
            Self::Received => Holder::Process(by),
        }
    }
}

/// Answers a call: claims its slot, writes the result, and wakes the caller. Discards the answer if
/// the caller has given up or is gone.
pub(crate) fn answer(process: &Process, to: ReplyAddress, status: Status, result: impl Answer) {
    process.accesses.end_for(to.name.worker);
    let bytes = result.bytes();
    let Some((caller, local)) = process.shape().answer_place(to.name.worker) else { return };
    let slot = to.name.slot as usize;
    let home = process.links.home_of(caller).filter(|home| slot < home.layout().reply_slots(local));
    let found = home.and_then(|home| Some((home, home.reply_place(local, slot, to.room, bytes)?)));
    let Some((home, place)) = found else {
        return send_message_reply(process, caller, to.name, status, result.into_bytes());
    };
    let state = home.reply_state(local, slot);
    if !claim(state, to.name.generation) {
        return;
    }
    process.hot_kill_point(KillPoint::ReplyClaimed);
    // SAFETY: `reply_place` found `bytes` bytes there, inside the caller's mapped memory. The claim
    // reserves them for this thread until the slot is marked done.
    unsafe { result.write(place) };
    finish(state, SlotState { generation: to.name.generation, bytes: bytes as u32, status });
    let bell = home.doorbell(local);
    bell.ring(if process.waits.is_reached_by_fences { bell.fencing() } else { Fencing::Mutual });
}

/// A piece of an answer that travels in messages.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(crate) struct AnswerPiece {
    pub(crate) status: u8,
    /// The size of the whole answer.
    pub(crate) total: u64,
    /// The offset of the piece in the answer.
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Sends an answer in messages. Waits while too many of them are unsent, so that results wait at
/// their caller and not here.
#[cold]
fn send_message_reply(process: &Process, caller: ProcessId, to: ReplyName, status: Status, mut content: Vec<u8>) {
    let (status_byte, total) = (status as u8, content.len() as u64);
    if caller == process.id() {
        let piece = AnswerPiece { status: status_byte, total, offset: 0, bytes: content };
        return take_piece(process, caller, to, piece);
    }
    let max = process.transport().message_bytes_max(caller) - CallMessage::OVERHEAD_BYTES;
    let mut offset = 0;
    loop {
        let end = content.len().min(offset + max);
        let is_last = end == content.len();
        let bytes = if is_last && offset == 0 { std::mem::take(&mut content) } else { content[offset..end].to_vec() };
        let piece = AnswerPiece { status: status_byte, total, offset: offset as u64, bytes };
        let sent = process.send_call(caller, &CallMessage::Reply { reply: to, piece });
        // A service thread, which never waits, gives answers without content only.
        if total > 0 {
            process.wait_for_unsent(caller);
        }
        // A caller that cannot be reached is gone, and needs no answer.
        if sent.is_err() || is_last {
            return;
        }
        offset = end;
    }
}

/// Tells the caller that the process has sent or received a reply of which `messages` marks have
/// travelled as messages. Does nothing if the caller has given up or is gone. Returns the number of
/// marks that have travelled as messages now.
///
/// While all processes that had the reply can map the caller's slot, each stores its mark there,
/// and the order of the stores is that of the marks. Marks in messages may overtake each other, so
/// from the first one on all marks are messages with numbers.
#[cold]
fn mark(process: &Process, to: ReplyName, mark: Mark, messages: u32) -> u32 {
    let Some((caller, local)) = process.shape().answer_place(to.worker) else { return messages };
    let home = process.links.home_of(caller).filter(|home| (to.slot as usize) < home.layout().reply_slots(local));
    if let Some(home) = home.filter(|_| messages == 0) {
        let holder = mark.holder(process.id());
        set_holder(home.reply_state(local, to.slot as usize), to.generation, holder);
        return messages;
    }
    let number = messages.saturating_add(1);
    match caller == process.id() {
        true => take_mark(process, caller, to, number, mark),
        // A caller that cannot be reached is gone.
        false => drop(process.send_call(caller, &CallMessage::ReplyMoved { reply: to, number, mark })),
    }
    number
}

/// Changes the holder of a slot that waits.
pub(crate) fn set_holder(state: &AtomicU64, generation: u32, holder: Holder) {
    let code = holder.code();
    // Relaxed: the holder publishes nothing, and is read with the rest of the word.
    let _ = state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
        let now = waiting(word, generation)?;
        (code as usize <= SlotState::BYTES_MAX).then(|| SlotState { bytes: code, ..now }.word())
    });
}

/// Returns the state in a word, if it waits for the answer of this generation.
pub(crate) fn waiting(word: u64, generation: u32) -> Option<SlotState> {
    SlotState::from_word(word).filter(|now| now.status == Status::Waiting && now.generation == generation)
}

/// Marks a claimed slot with the status of its answer.
#[inline]
pub(crate) fn finish(state: &AtomicU64, done: SlotState) {
    // SYNC: pairs with the acquire load in `ReplySlots::outcome`: the result becomes visible with
    // it.
    state.store(done.word(), Ordering::Release);
}

/// Claims a slot for the one answer of this generation. Returns whether it did.
#[inline]
pub(crate) fn claim(state: &AtomicU64, generation: u32) -> bool {
    let waiting = SlotState::new(generation, Status::Waiting).word();
    let claimed = SlotState::new(generation, Status::Claimed).word();
    // SYNC: acquire, so that no write to the slot comes before the claim. Its partner is the
    // compare-and-swap in `ReplySlots::take_back`: only one of the two succeeds.
    match state.compare_exchange(waiting, claimed, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => true,
        Err(_) => claim_moved(state, generation),
    }
}

/// Claims a slot whose reply has travelled: its word names a holder, who stays in it.
#[cold]
fn claim_moved(state: &AtomicU64, generation: u32) -> bool {
    // SYNC: as in `claim`.
    let claimed = state.fetch_update(Ordering::Acquire, Ordering::Relaxed, |word| {
        waiting(word, generation).map(|now| SlotState { status: Status::Claimed, ..now }.word())
    });
    claimed.is_ok()
}

/// The content of an answer.
pub(crate) trait Answer: Sized {
    fn bytes(&self) -> usize;

    /// # Safety
    /// `out` is valid for writes of `self.bytes()` bytes.
    unsafe fn write(self, out: *mut u8);

    fn into_bytes(self) -> Vec<u8>;
}

/// A result.
pub(crate) struct Returned<R>(pub(crate) R);

impl<R: Wire> Answer for Returned<R> {
    #[inline]
    fn bytes(&self) -> usize {
        if R::PLAIN { size_of::<R>() } else { self.0.wire_bytes() }
    }

    #[inline]
    unsafe fn write(self, out: *mut u8) {
        // SAFETY: by the contract `out` has room for `bytes` bytes, which is `wire_bytes`.
        unsafe { self.0.write(out) };
    }

    fn into_bytes(self) -> Vec<u8> {
        wire::to_bytes(self.0)
    }
}

/// Text, a refusal, or an encoded result.
impl Answer for &[u8] {
    fn bytes(&self) -> usize {
        self.len()
    }

    unsafe fn write(self, out: *mut u8) {
        // SAFETY: `out` has room for all of it, and is no part of this slice: it is a slot.
        unsafe { std::ptr::copy_nonoverlapping(self.as_ptr(), out, self.len()) };
    }

    fn into_bytes(self) -> Vec<u8> {
        self.to_vec()
    }
}

/// The duty to answer a call, kept for later.
///
/// Functions called by [`call_with_reply`](crate::Worker::call_with_reply) receive one. A program
/// may keep it, give it to another thread, or send it to another process (it is [`Wire`]). Its last
/// owner answers with [`send`](Self::send). Dropping it tells the caller
/// [`ReplyDropped`](crate::Error::ReplyDropped). So every call is answered exactly once.
///
/// ```no_run
/// # use farside::prelude::*;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let doubled = me.call_with_reply(me.neighbor(1), 21_u64, |there, x, reply: Reply<u64>| {
///     // Answers later, when another call has returned.
///     let pending = there.call_return(there.neighbor(1), x, |_, x| x * 2);
///     match pending {
///         Ok(pending) => pending.then(move |_, result| {
///             if let Ok(result) = result {
///                 reply.send(result);
///             }
///         }),
///         Err(_) => drop(reply),
///     }
/// })?;
/// assert_eq!(doubled.wait()?, 42);
/// # Ok(())
/// # }
/// ```
///
/// A caller gets [`PeerLost`](crate::Error::PeerLost) at once when the process that holds its reply
/// is lost. If any process is lost while a reply is on its way to another process, the caller
/// cannot know whether the two are the same. It then gets `PeerLost` as well, and a later answer is
/// discarded.
///
/// *Completion*: a result of the size that the caller has room for is visible to it when
/// [`send`](Self::send) returns. *Cost*: one compare-and-swap and one store in the caller's memory,
/// without waiting. For a larger result, or a caller on another machine, see
/// [`To::call_return`](crate::To::call_return). Sending a reply to another process, and receiving
/// it there, cost one compare-and-swap in the caller's memory each, or one message.
#[derive(Debug)]
#[must_use = "dropping a reply tells the caller that there will be no answer"]
pub struct Reply<R> {
    address: ReplyAddress,
    /// The number of [marks](Mark) of this reply that have travelled as messages.
    messages: u32,
    process: Arc<Process>,
    result: PhantomData<fn(R)>,
}

impl<R: Wire> Reply<R> {
    pub(crate) fn new(process: Arc<Process>, address: ReplyAddress) -> Self {
        Self { address, messages: 0, process, result: PhantomData }
    }

    /// Answers the call. The answer is discarded if the caller has given up.
    pub fn send(self, result: R) {
        let (process, address) = self.into_parts();
        answer(&process, address, Status::Done, Returned(result));
    }
}

impl<R> Reply<R> {
    fn into_parts(self) -> (Arc<Process>, ReplyAddress) {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, so the one reference that it held is moved out and not
        // doubled.
        let process = unsafe { std::ptr::read(&this.process) };
        (process, this.address)
    }
}

impl<R> Drop for Reply<R> {
    fn drop(&mut self) {
        let panicked = std::thread::panicking();
        let status = if panicked { Status::Panicked } else { Status::Dropped };
        let message: &[u8] =
            if panicked { b"it held the reply; its own message went to its error output" } else { b"" };
        answer(&self.process, self.address, status, message);
    }
}

// SAFETY: the address means the same everywhere and is written and read whole. The reference to the
// process is translated: `read` takes that of the process it runs in. Writing takes the duty along,
// without answering. 20 bytes.
unsafe impl<R: 'static> Wire for Reply<R> {
    const PLAIN: bool = false;

    fn wire_bytes(&self) -> usize {
        size_of::<ReplyAddress>() + size_of::<u32>()
    }

    unsafe fn write(self, out: *mut u8) {
        let messages = self.messages;
        let (process, address) = self.into_parts();
        let sent = Mark::Sent { losses: Recipients::losses(&process) };
        let messages = mark(&process, address.name, sent, messages);
        // SAFETY: by the contract `out` has room for `wire_bytes` bytes, the sizes of both values.
        unsafe { address.write(out) };
        // SAFETY: as above; the number follows the address.
        unsafe { messages.write(out.wrapping_add(size_of::<ReplyAddress>())) };
    }

    unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        // SAFETY: by the contract a `Reply` was written here, whose bytes begin with its address.
        let address = unsafe { ReplyAddress::read(input) }?;
        // SAFETY: as above; the number of its marks follows.
        let messages = unsafe { u32::read(input) }?;
        let process = input.context::<Arc<Process>>().ok_or_else(WireError::outside_a_job::<Self>)?.clone();
        let messages = mark(&process, address.name, Mark::Received, messages);
        Ok(Self { address, messages, process, result: PhantomData })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_what_its_word_says() {
        for status in 0..=10 {
            let word = 0xfedc_ba98_0000_0000 | 0x00ab_cdef << 8 | status;
            match SlotState::from_word(word) {
                Some(state) => assert_eq!(state.word(), word),
                None => assert!(status > 8),
            }
        }
    }

    #[test]
    fn a_holder_is_what_its_code_says() {
        for code in 0..1000 {
            assert_eq!(Holder::of_code(code).code(), code);
        }
    }

    /// A reply travels between its reservation and its answer; each step is one word.
    #[test]
    fn a_slot_keeps_its_holder_until_it_is_done() {
        let third = Holder::Process(ProcessId::new(2));
        let state = AtomicU64::new(SlotState::new(5, Status::Waiting).word());
        set_holder(&state, 4, third);
        assert_eq!(state.load(Ordering::Relaxed), SlotState::new(5, Status::Waiting).word());
        set_holder(&state, 5, third);
        assert!(!claim(&state, 4) && claim(&state, 5) && !claim(&state, 5));
        let claimed = SlotState::from_word(state.load(Ordering::Relaxed)).unwrap();
        assert_eq!((claimed.status, Holder::of_code(claimed.bytes)), (Status::Claimed, third));
        set_holder(&state, 5, Holder::Called);
        assert_eq!(SlotState::from_word(state.load(Ordering::Relaxed)), Some(claimed));
    }
}

//! How a result returns to the caller.
//!
//! The caller reserves a slot in its own memory before the call, and the record carries the slot's
//! address. The callee claims the slot with a compare-and-swap on its state, writes the result
//! there, and marks it done. So an answer needs no room in any ring and cannot be refused. A caller
//! that gives up takes the slot back with a compare-and-swap of its own. A late answer then finds
//! another generation and is discarded.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_fabric::ProcessId;

use crate::invoke::message::CallMessage;
use crate::runtime::process::Process;
use crate::wire::{self, Reader, Wire, WireError};
use farside_launch::kill_point::KillPoint;

/// The place of a result. Travels with the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, farside_macros::Wire)]
#[repr(C)]
pub struct ReplyAddress {
    /// The caller.
    pub(crate) worker: u32,
    /// The caller's slot.
    pub(crate) slot: u32,
    /// The number of earlier uses of the slot.
    pub(crate) generation: u32,
    /// The room for the result in bytes.
    pub(crate) capacity: u32,
    /// The place of the result in the caller's starter memory.
    pub(crate) place: u64,
}

/// The status of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    Free = 0,
    Waiting = 1,
    /// The callee is writing the result.
    Claimed = 2,
    Done = 3,
    /// The function panicked; the result is the panic's message.
    Panicked = 4,
    /// The [`Reply`] was dropped.
    Dropped = 5,
    /// The result does not fit; the slot holds its size as a `u64`.
    TooLarge = 6,
    /// The function called by name did not run; the result is a
    /// [`NameRefusal`](crate::error::NameRefusal).
    Refused = 7,
}

impl Status {
    /// Returns the status of an answer that came as a message; `None` if the byte is none.
    pub(crate) fn of_answer(byte: u8) -> Option<Self> {
        Self::from_byte(byte).filter(|status| !matches!(status, Self::Free | Self::Waiting | Self::Claimed))
    }

    fn from_byte(byte: u8) -> Option<Self> {
        use Status::*;
        [Free, Waiting, Claimed, Done, Panicked, Dropped, TooLarge, Refused].into_iter().find(|s| *s as u8 == byte)
    }
}

/// The word at the head of a slot: generation, size of the result, status.
///
/// The caller writes it while the slot is free or waiting. The callee that claimed the slot writes
/// it from then until it is done.
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

/// Answers a call: claims its slot, writes the result, and wakes the caller. Discards the answer if
/// the caller has given up or is gone.
pub(crate) fn answer(process: &Process, to: ReplyAddress, status: Status, result: impl Answer) {
    process.end_accesses();
    let (bytes, capacity) = (result.bytes(), to.capacity as usize);
    if bytes > capacity {
        return match result.shortened(capacity) {
            Some(shortened) => answer(process, to, status, shortened),
            None => answer(process, to, Status::TooLarge, wire::encode(&(bytes as u64), Vec::new()).as_slice()),
        };
    }
    let Some((caller, local)) = process.shape().answer_place(to.worker) else { return };
    let Some(home) = process.home_of(caller) else {
        let mut content = vec![0; bytes];
        // SAFETY: the buffer is as long as the result.
        unsafe { result.write(content.as_mut_ptr()) };
        return send_in_pieces(process, caller, to, status, &content);
    };
    let slot = to.slot as usize;
    let Some(place) = home.range(to.place as usize, bytes).filter(|_| slot < home.layout().reply_slots(local)) else {
        return;
    };
    let state = home.reply_state(local, slot);
    if !claim(state, to.generation) {
        return;
    }
    process.hot_kill_point(KillPoint::ReplyClaimed);
    // SAFETY: `range` found the place inside the caller's mapped memory; the claim reserves it for
    // this thread until the slot is marked done.
    unsafe { result.write(place) };
    finish(state, SlotState { generation: to.generation, bytes: bytes as u32, status });
    home.doorbell(local).ring_if_asleep();
}

/// A piece of an answer that travels in messages, because the caller's memory is not mapped at the
/// callee.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(crate) struct AnswerPiece {
    pub(crate) status: u8,
    /// The size of the whole answer.
    pub(crate) total: u32,
    /// The offset of the piece in the answer.
    pub(crate) offset: u32,
    pub(crate) bytes: Vec<u8>,
}

fn send_in_pieces(process: &Process, caller: ProcessId, to: ReplyAddress, status: Status, content: &[u8]) {
    let max = process.transport().capabilities().message_bytes_max - CallMessage::OVERHEAD_BYTES;
    let mut rest = content;
    loop {
        let (bytes, after) = rest.split_at(rest.len().min(max));
        let (total, offset) = (content.len() as u32, (content.len() - rest.len()) as u32);
        let piece = AnswerPiece { status: status as u8, total, offset, bytes: bytes.to_vec() };
        // A caller that cannot be reached is gone, and needs no answer.
        let _ = process.send_call(caller, &CallMessage::Reply { slot: to, piece });
        if after.is_empty() {
            return;
        }
        rest = after;
    }
}

/// Writes a piece of an answer into its slot in this process. Pieces come in order: the first
/// claims the slot, the last marks it done.
pub(crate) fn take_piece(process: &Process, to: ReplyAddress, piece: &AnswerPiece) {
    let place = process.shape().answer_place(to.worker).filter(|(of, _)| *of == process.id());
    let (Some((_, local)), Some(status)) = (place, Status::of_answer(piece.status)) else { return };
    let (home, slot) = (process.home(), to.slot as usize);
    let (total, offset) = (piece.total as usize, piece.offset as usize);
    let end = offset + piece.bytes.len();
    if slot >= home.layout().reply_slots(local) || total > to.capacity as usize || end > total {
        return;
    }
    let Some(target) = home.range(to.place as usize, total) else { return };
    let state = home.reply_state(local, slot);
    let claimed = SlotState::new(to.generation, Status::Claimed).word();
    let is_ours = if offset == 0 { claim(state, to.generation) } else { state.load(Ordering::Relaxed) == claimed };
    if !is_ours {
        return;
    }
    let target = target.wrapping_add(offset);
    // SAFETY: `range` found the place of the whole answer inside this process's memory, and the
    // piece ends inside the answer. The claim, which the pieces of one answer share, reserves the
    // place for this answer until the slot is marked done.
    unsafe { piece.bytes.as_slice().write(target) };
    if end == total {
        finish(state, SlotState { generation: to.generation, bytes: piece.total, status });
        home.doorbell(local).ring_if_asleep();
    }
}

fn finish(state: &AtomicU64, done: SlotState) {
    // SYNC: pairs with the acquire load in `ReplySlots::outcome`: the result becomes visible with
    // it.
    state.store(done.word(), Ordering::Release);
}

fn claim(state: &AtomicU64, generation: u32) -> bool {
    let waiting = SlotState::new(generation, Status::Waiting).word();
    let claimed = SlotState::new(generation, Status::Claimed).word();
    // SYNC: acquire, so that no write to the slot comes before the claim. Its partner is the
    // compare-and-swap in `ReplySlots::take_back`: only one of the two succeeds.
    state.compare_exchange(waiting, claimed, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// The content of an answer.
pub(crate) trait Answer: Sized {
    fn bytes(&self) -> usize;

    /// # Safety
    /// `out` is valid for writes of `self.bytes()` bytes.
    unsafe fn write(self, out: *mut u8);

    /// Returns a shorter answer that still tells the caller enough, if there is one.
    fn shortened(&self, bytes: usize) -> Option<&[u8]>;
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

    fn shortened(&self, _: usize) -> Option<&[u8]> {
        None
    }
}

/// Text, or the size of a result that does not fit.
impl Answer for &[u8] {
    fn bytes(&self) -> usize {
        self.len()
    }

    unsafe fn write(self, out: *mut u8) {
        // SAFETY: `out` has room for all of it, and is no part of this slice: it is a slot or a
        // buffer just made.
        unsafe { std::ptr::copy_nonoverlapping(self.as_ptr(), out, self.len()) };
    }

    fn shortened(&self, bytes: usize) -> Option<&[u8]> {
        Some(&self[..bytes])
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
/// *Completion*: the result is visible to the caller when [`send`](Self::send) returns. *Cost*: one
/// compare-and-swap and one store in the caller's memory; never waits, never needs room.
#[derive(Debug)]
#[must_use = "dropping a reply tells the caller that there will be no answer"]
pub struct Reply<R> {
    address: ReplyAddress,
    process: Arc<Process>,
    result: PhantomData<fn(R)>,
}

impl<R: Wire> Reply<R> {
    pub(crate) fn new(process: Arc<Process>, address: ReplyAddress) -> Self {
        Self { address, process, result: PhantomData }
    }

    /// Answers the call. A result longer than the caller's room becomes
    /// [`TooLarge`](crate::Error::TooLarge) there. The answer is discarded if the caller has given
    /// up.
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
// without answering. 24 bytes.
unsafe impl<R: 'static> Wire for Reply<R> {
    const PLAIN: bool = false;

    fn wire_bytes(&self) -> usize {
        size_of::<ReplyAddress>()
    }

    unsafe fn write(self, out: *mut u8) {
        let (_, address) = self.into_parts();
        // SAFETY: by the contract `out` has room for `wire_bytes` bytes, the size of the address.
        unsafe { address.write(out) };
    }

    unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        // SAFETY: by the contract a `Reply` was written here, whose bytes are those of its address.
        let address = unsafe { ReplyAddress::read(input) }?;
        let process = input.context::<Arc<Process>>().ok_or_else(WireError::outside_a_job::<Self>)?.clone();
        Ok(Self { address, process, result: PhantomData })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_what_its_word_says() {
        for status in 0..=9 {
            let word = 0xfedc_ba98_0000_0000 | 0x00ab_cdef << 8 | status;
            match SlotState::from_word(word) {
                Some(state) => assert_eq!(state.word(), word),
                None => assert!(status > 7),
            }
        }
    }
}

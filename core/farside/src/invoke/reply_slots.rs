//! The caller's side of its reply slots.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_fabric::WorkerId;

use super::message_replies::{MessageReplies, book, read_book};
use super::reply::{Holder, ReplyAddress, ReplyName, ReplyRoom, SlotState, Status, waiting};
use crate::runtime::home::{Home, REPLY_INLINE_BYTES, REPLY_UNIT_BYTES};
use crate::wire::Wire;

/// The room for a result whose type does not fix its size.
pub(crate) const RESULT_BYTES_UNKNOWN: usize = 4 << 10;
/// The most room for a result in reply space. A longer result becomes a message reply.
const ROOM_BYTES_MAX: usize = 64 << 10;

/// The calls of one worker, or of all non-worker threads of one process, that wait for their
/// results: the slots in the starter memory, and [`MessageReplies`] for the calls that find no
/// slot.
#[derive(Debug)]
pub(crate) struct ReplySlots {
    home: Home,
    local: usize,
    worker: WorkerId,
    /// The generation of each slot and the worker that was called; shared with `message_replies`.
    books: Arc<[AtomicU64]>,
    message_replies: Arc<MessageReplies>,
    /// The room of each slot's result.
    rooms: Vec<ReplyRoom>,
    free: Vec<u16>,
    /// Slots given up while an answer was being written. Each is freed when the answer is complete.
    /// A slot whose writer was lost is never freed: a process may be lost to the job and still
    /// about to write.
    given_up: Vec<u16>,
    space: Vec<bool>,
    /// The number of calls without a slot.
    without_slot: usize,
}

/// A call that waits for its result: its slot, or a number that no slot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlotHandle {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// The state of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReplyOutcome {
    /// There is no answer yet. Knows the worker that was called, and the process that owes the
    /// answer.
    Waits(WorkerId, Holder),
    /// The answer is in the slot: the worker that was called, the status, and the place and length
    /// of the result. The bytes stay unchanged until the slot is released.
    InSlot(WorkerId, Status, *const u8, usize),
    /// The answer is a message reply, to be [taken](ReplySlots::take_message_reply).
    MessageReply,
}

impl ReplySlots {
    pub(crate) fn new(home: Home, local: usize, worker: WorkerId, message_replies: Arc<MessageReplies>) -> Self {
        let books = message_replies.books();
        let count = books.len();
        Self {
            worker,
            books,
            message_replies,
            rooms: vec![ReplyRoom::default(); count],
            free: (0..count as u16).rev().collect(),
            given_up: Vec::new(),
            space: vec![false; home.layout().reply_space_bytes(local) / REPLY_UNIT_BYTES],
            without_slot: 0,
            home,
            local,
        }
    }

    /// Returns the room for a result of this type.
    pub(crate) fn room_for<R: Wire>() -> usize {
        if R::PLAIN { size_of::<R>() } else { RESULT_BYTES_UNKNOWN }
    }

    /// Reserves a slot for a call to `on`, with room for a result of `bytes` bytes if there is such
    /// room. A longer result, or one of a call for which no slot is free, becomes a message reply.
    pub(crate) fn reserve(&mut self, bytes: usize, on: WorkerId) -> (SlotHandle, ReplyAddress) {
        if self.free.is_empty() {
            self.collect();
        }
        let Some(index) = self.free.pop() else { return self.reserve_message_reply(on) };
        let slot = index as usize;
        let has_space = REPLY_INLINE_BYTES < bytes && bytes <= ROOM_BYTES_MAX;
        let room = if has_space { self.take_space(bytes) } else { ReplyRoom::default() };
        self.rooms[slot] = room;
        let generation = self.generation(slot).wrapping_add(1);
        // Relaxed: published to the callee by the record that carries the address.
        self.books[slot].store(book(generation, on), Ordering::Relaxed);
        self.state_word(slot).store(SlotState::new(generation, Status::Waiting).word(), Ordering::Relaxed);
        let handle = SlotHandle { index: index.into(), generation };
        (handle, ReplyAddress { name: self.name(handle), room })
    }

    #[cold]
    fn reserve_message_reply(&mut self, on: WorkerId) -> (SlotHandle, ReplyAddress) {
        self.without_slot += 1;
        let handle = self.message_replies.expect(on);
        (handle, ReplyAddress { name: self.name(handle), room: ReplyRoom::default() })
    }

    fn name(&self, handle: SlotHandle) -> ReplyName {
        ReplyName { worker: self.worker.number(), slot: handle.index, generation: handle.generation }
    }

    /// Takes reply space for a result; none if there is not enough.
    fn take_space(&mut self, bytes: usize) -> ReplyRoom {
        let units = bytes.div_ceil(REPLY_UNIT_BYTES);
        let Some(first_unit) = self.space.windows(units).position(|window| !window.contains(&true)) else {
            return ReplyRoom::default();
        };
        self.space[first_unit..first_unit + units].fill(true);
        ReplyRoom { first_unit: first_unit as u16, units: units as u16 }
    }

    fn state_word(&self, slot: usize) -> &AtomicU64 {
        self.home.reply_state(self.local, slot)
    }

    fn generation(&self, slot: usize) -> u32 {
        read_book(&self.books[slot]).0
    }

    /// Returns whether a call has a slot.
    #[inline]
    pub(crate) fn has_slot(&self, handle: SlotHandle) -> bool {
        (handle.index as usize) < self.rooms.len()
    }

    /// The message replies to the owner of these slots.
    pub(crate) fn message_replies(&self) -> &MessageReplies {
        &self.message_replies
    }

    /// Returns whether the answer to a call has arrived.
    #[inline]
    pub(crate) fn has_answer(&self, handle: SlotHandle) -> bool {
        if !self.has_slot(handle) {
            return self.message_replies.awaited(handle).is_none();
        }
        // Relaxed: `outcome` loads the state again before anything of the answer is read.
        let state = SlotState::from_word(self.state_word(handle.index as usize).load(Ordering::Relaxed));
        !matches!(state, Some(SlotState { status: Status::Waiting | Status::Claimed, .. }))
    }

    /// Returns what has become of a call.
    pub(crate) fn outcome(&self, handle: SlotHandle) -> ReplyOutcome {
        let slot = handle.index as usize;
        if !self.has_slot(handle) {
            return self
                .message_replies
                .awaited(handle)
                .map_or(ReplyOutcome::MessageReply, |(on, holder)| ReplyOutcome::Waits(on, holder));
        }
        let (_, on) = read_book(&self.books[slot]);
        // SYNC: pairs with the release store in `reply::finish`.
        let state = SlotState::from_word(self.state_word(slot).load(Ordering::Acquire));
        if let Some(SlotState { status: Status::Waiting | Status::Claimed, bytes, .. }) = state {
            return ReplyOutcome::Waits(on, Holder::of_code(bytes));
        }
        let found = match state {
            Some(SlotState { status: Status::MessageReply, .. }) => return ReplyOutcome::MessageReply,
            Some(SlotState { generation, bytes, status }) if generation == handle.generation => {
                let place = self.home.reply_place(self.local, slot, self.rooms[slot], bytes as usize);
                place.map(|place| ReplyOutcome::InSlot(on, status, place, bytes as usize))
            }
            _ => None,
        };
        // No callee writes such a state, so it counts as no answer.
        found.unwrap_or(ReplyOutcome::InSlot(on, Status::Dropped, std::ptr::dangling(), 0))
    }

    /// Takes the message reply with the outcome of a call, and releases the slot. Returns the
    /// worker that was called, the status and the result. A message reply that does not exist
    /// counts as no answer.
    pub(crate) fn take_message_reply(&mut self, handle: SlotHandle) -> (WorkerId, Status, Vec<u8>) {
        let reply = self.message_replies.take(handle);
        self.release(handle);
        reply.unwrap_or_else(|| {
            let on = self.books.get(handle.index as usize).map_or(self.worker, |book| read_book(book).1);
            (on, Status::Dropped, Vec::new())
        })
    }

    /// Releases a slot whose outcome was taken.
    #[inline]
    pub(crate) fn release(&mut self, handle: SlotHandle) {
        if !self.has_slot(handle) {
            self.without_slot -= 1;
            return;
        }
        let free = SlotState::new(handle.generation, Status::Free).word();
        self.state_word(handle.index as usize).store(free, Ordering::Relaxed);
        self.free_slot(handle.index as u16);
    }

    /// Gives up the answer. The slot is free at once, or when an answer that is being written is
    /// complete.
    pub(crate) fn give_up(&mut self, handle: SlotHandle) {
        if !self.has_slot(handle) {
            self.take_message_reply(handle);
        } else if !self.take_back(handle.index as u16) {
            self.given_up.push(handle.index as u16);
        }
    }

    fn collect(&mut self) {
        let given_up = std::mem::take(&mut self.given_up);
        for index in given_up {
            if !self.take_back(index) {
                self.given_up.push(index);
            }
        }
    }

    /// Frees the slot unless a callee is writing to it. Returns whether it did.
    fn take_back(&mut self, index: u16) -> bool {
        let generation = self.generation(index as usize);
        let free = SlotState::new(generation, Status::Free).word();
        let state = self.state_word(index as usize);
        // SYNC: acquire, pairs with the release store in `reply::finish`, so that the slot is not
        // used again before the answer in it is complete.
        let found =
            state.fetch_update(Ordering::Acquire, Ordering::Acquire, |word| waiting(word, generation).map(|_| free));
        let found = found.err().and_then(SlotState::from_word).filter(|found| found.generation == generation);
        if let Some(SlotState { status: status @ (Status::Claimed | Status::MessageReply), .. }) = found {
            // Pieces of a message reply come through a thread of this process, which finds the
            // message reply gone.
            if self.message_replies.take(SlotHandle { index: index.into(), generation }).is_none()
                && status == Status::Claimed
            {
                return false;
            }
            state.store(free, Ordering::Relaxed);
        }
        self.free_slot(index);
        true
    }

    #[inline]
    fn free_slot(&mut self, index: u16) {
        let ReplyRoom { first_unit, units } = self.rooms[index as usize];
        self.space[first_unit as usize..(first_unit + units) as usize].fill(false);
        self.free.push(index);
    }

    /// The number of calls that wait for results, and of slots given up but not free yet.
    pub(crate) fn in_use(&self) -> usize {
        self.rooms.len() - self.free.len() + self.without_slot
    }
}

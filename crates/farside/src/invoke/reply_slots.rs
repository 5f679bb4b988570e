//! The caller's side of its reply slots.

use std::sync::atomic::Ordering;

use farside_fabric::WorkerId;

use super::reply::{ReplyAddress, SlotState, Status};
use crate::error::FullCause;
use crate::runtime::home::{Home, REPLY_INLINE_BYTES};
use crate::wire::Wire;

/// The unit in which reply space is given out.
const UNIT_BYTES: usize = 1024;

/// The longest result.
pub(crate) const RESULT_BYTES_MAX: usize = 64 << 10;
/// The room for a result whose type does not fix its size.
pub(crate) const RESULT_BYTES_UNKNOWN: usize = 4 << 10;

/// The reply slots of one worker, or of all non-worker threads of one process: the free slots, and
/// the worker called for each slot in use.
#[derive(Debug)]
pub(crate) struct ReplySlots {
    home: Home,
    local: usize,
    worker: WorkerId,
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// Slots given up while an answer was being written. Each is freed when the answer is complete.
    /// A slot whose writer was lost is never freed: a process may be lost to the job and still
    /// about to write.
    given_up: Vec<u16>,
    space: Vec<bool>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    generation: u32,
    /// The worker that was called.
    on: WorkerId,
    /// The units of reply space that belong to the slot.
    first_unit: u16,
    units: u16,
}

/// A slot in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotHandle {
    index: u16,
    generation: u32,
}

impl ReplySlots {
    pub(crate) fn new(home: Home, local: usize, worker: WorkerId) -> Self {
        let unused = Slot { generation: 0, on: worker, first_unit: 0, units: 0 };
        let count = home.layout().reply_slots(local);
        Self {
            worker,
            slots: vec![unused; count],
            free: (0..count as u16).rev().collect(),
            given_up: Vec::new(),
            space: vec![false; home.layout().reply_space_bytes(local) / UNIT_BYTES],
            home,
            local,
        }
    }

    /// Returns the room for a result of this type.
    pub(crate) fn room_for<R: Wire>() -> usize {
        Self::room_of(if R::PLAIN { size_of::<R>() } else { RESULT_BYTES_UNKNOWN })
    }

    /// Returns the room for a result of at most `bytes` bytes.
    pub(crate) fn room_of(bytes: usize) -> usize {
        if bytes <= REPLY_INLINE_BYTES { REPLY_INLINE_BYTES } else { bytes.next_multiple_of(UNIT_BYTES) }
    }

    /// Reserves a slot for a result of at most `bytes` bytes from a call to `on`.
    ///
    /// # Errors
    /// [`FullCause::Replies`].
    pub(crate) fn reserve(&mut self, bytes: usize, on: WorkerId) -> Result<(SlotHandle, ReplyAddress), FullCause> {
        debug_assert!(bytes <= RESULT_BYTES_MAX);
        if self.free.is_empty() {
            self.collect();
        }
        let full = FullCause::Replies { pending: self.in_use() };
        let units = if bytes <= REPLY_INLINE_BYTES { 0 } else { bytes.div_ceil(UNIT_BYTES) };
        let first_unit = self.find_space(units).ok_or(full)?;
        let index = self.free.pop().ok_or(full)?;
        self.space[first_unit..first_unit + units].fill(true);
        let slot = &mut self.slots[index as usize];
        let generation = slot.generation.wrapping_add(1);
        *slot = Slot { generation, on, first_unit: first_unit as u16, units: units as u16 };
        // Published to the callee by the record that carries the address.
        self.state_word(index).store(SlotState::new(generation, Status::Waiting).word(), Ordering::Relaxed);
        let handle = SlotHandle { index, generation };
        let (place, room) = self.place(index);
        let address = ReplyAddress {
            worker: self.worker.number(),
            slot: index.into(),
            generation,
            capacity: room as u32,
            place: place as u64,
        };
        Ok((handle, address))
    }

    /// Returns the place of a slot's result, and its room in bytes.
    fn place(&self, index: u16) -> (usize, usize) {
        let slot = &self.slots[index as usize];
        match slot.units {
            0 => (self.home.layout().reply_slot(self.local, index as usize) + 8, REPLY_INLINE_BYTES),
            units => {
                let offset = slot.first_unit as usize * UNIT_BYTES;
                (self.home.layout().reply_space(self.local) + offset, units as usize * UNIT_BYTES)
            }
        }
    }

    fn find_space(&self, units: usize) -> Option<usize> {
        if units == 0 {
            return Some(0);
        }
        self.space.windows(units).position(|window| !window.contains(&true))
    }

    fn state_word(&self, index: u16) -> &std::sync::atomic::AtomicU64 {
        self.home.reply_state(self.local, index as usize)
    }

    /// The worker that was called.
    pub(crate) fn on(&self, handle: SlotHandle) -> WorkerId {
        self.slots[handle.index as usize].on
    }

    /// Returns the outcome of the call, if there is one: the status, and the place and length of
    /// the result.
    ///
    /// The bytes stay unchanged until the slot is released.
    pub(crate) fn outcome(&self, handle: SlotHandle) -> Option<(Status, *const u8, usize)> {
        // SYNC: pairs with the release store in `reply::finish`.
        let state = SlotState::from_word(self.state_word(handle.index).load(Ordering::Acquire));
        let (place, room) = self.place(handle.index);
        match state {
            Some(SlotState { status: Status::Waiting | Status::Claimed, .. }) => None,
            Some(state) if state.generation == handle.generation && state.bytes as usize <= room => {
                let address = self.home.range(place, room).expect("the layout has it");
                Some((state.status, address, state.bytes as usize))
            }
            // No callee writes such a state, so it counts as no answer.
            _ => Some((Status::Dropped, std::ptr::null(), 0)),
        }
    }

    /// Releases a slot whose outcome was taken.
    pub(crate) fn release(&mut self, handle: SlotHandle) {
        self.state_word(handle.index).store(SlotState::new(handle.generation, Status::Free).word(), Ordering::Relaxed);
        self.free_slot(handle.index);
    }

    /// Gives up the answer. The slot is free at once, or when an answer that is being written is
    /// complete.
    pub(crate) fn give_up(&mut self, handle: SlotHandle) {
        if !self.take_back(handle.index) {
            self.given_up.push(handle.index);
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
        let generation = self.slots[index as usize].generation;
        let waiting = SlotState::new(generation, Status::Waiting).word();
        let free = SlotState::new(generation, Status::Free).word();
        // SYNC: acquire, pairs with the release store in `reply::finish`, so that the slot is not
        // used again before the answer in it is complete.
        match self.state_word(index).compare_exchange(waiting, free, Ordering::Acquire, Ordering::Acquire) {
            Err(word) if word == SlotState::new(generation, Status::Claimed).word() => false,
            _ => {
                self.free_slot(index);
                true
            }
        }
    }

    fn free_slot(&mut self, index: u16) {
        let Slot { first_unit, units, .. } = self.slots[index as usize];
        self.space[first_unit as usize..(first_unit + units) as usize].fill(false);
        self.free.push(index);
    }

    /// The number of slots in use: calls that wait for results, and slots given up but not free
    /// yet.
    pub(crate) fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

//! Where things lie in the memory of a queue.
//!
//! ```text
//! tail | head | retirements | pushes | pops | retired slots | slots
//! ```
//!
//! The first five are words with 128 bytes each. A retired slot is a bit.
//!
//! A slot is a stamp and an item. The ticket `t` of an item is its number since the queue was made.
//! Its slot is `t` modulo the number of slots, and its stamp says whether the item is there.

use farside::{GlobalAddress, GlobalPtr, Result};

use super::{Item, QueueError};
use crate::announced;
use crate::promise::Op;

/// The distance of words that different workers change: two cache lines, fetched together.
const APART: u64 = 128;
/// The number of such words.
const WORDS: u64 = 5;
/// The most items that one change of the tail makes room for.
pub(super) const BATCH_MAX: u64 = 64;
/// The bytes of a queue are fewer.
const BYTES_END: u64 = 1 << 38;
/// The bytes of a stamp.
pub(super) const STAMP: usize = 8;

/// The places and sizes of a queue. Any worker changes its words, atomically unless it uses the
/// queue alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    base: GlobalAddress,
    /// The number of items that always find room. 0 after the queue was freed.
    pub(super) capacity: u64,
    /// The number of slots, a power of two. Each worker may have one batch of tickets beyond the
    /// capacity, so that each ticket can be used.
    pub(super) slots: u64,
    /// The most tickets that a worker takes at once.
    pub(super) batch: u64,
    slot_bytes: u64,
}

impl Ring {
    pub(super) fn new<T: Item>(capacity: u64, workers: u32) -> Result<Self, QueueError> {
        let payload = size_of::<T>().next_multiple_of(8) as u64;
        // A slot of up to a line lies in one line.
        let slot_bytes = match STAMP as u64 + payload {
            bytes @ ..=64 => bytes.next_power_of_two(),
            bytes => bytes,
        };
        let batch = (capacity / u64::from(workers)).clamp(1, BATCH_MAX);
        let slots = capacity.checked_add(u64::from(workers) * batch).and_then(u64::checked_next_power_of_two);
        let fits = |slots: &u64| slots.checked_mul(slot_bytes).is_some_and(|bytes| bytes < BYTES_END);
        let ring = |slots| Self { base: GlobalAddress::NULL, capacity, slots, batch, slot_bytes };
        match slots.filter(fits).map(ring) {
            Some(ring) if capacity > 0 && ring.bytes() < BYTES_END => Ok(ring),
            _ => Err(QueueError::Capacity { capacity, item_bytes: size_of::<T>() }),
        }
    }

    /// The ring of a queue without memory.
    pub(super) const FREED: Self =
        Self { base: GlobalAddress::NULL, capacity: 0, slots: 1, batch: 1, slot_bytes: STAMP as u64 };

    pub(super) fn at(self, base: GlobalAddress) -> Self {
        Self { base, ..self }
    }

    /// The bytes of the whole queue.
    pub(super) fn bytes(&self) -> u64 {
        self.first_slot() + self.slots * self.slot_bytes
    }

    pub(super) fn slot_bytes(&self) -> usize {
        self.slot_bytes as usize
    }

    fn first_slot(&self) -> u64 {
        (WORDS * APART + self.slots.div_ceil(64) * 8).next_multiple_of(64)
    }

    /// An address inside the memory, which is one object of a job and so has an address throughout.
    #[inline]
    fn place(&self, offset: u64) -> GlobalAddress {
        self.base.checked_add(offset).unwrap_or(GlobalAddress::NULL)
    }

    /// The ticket of the next push: pushers add to it.
    #[inline]
    pub(super) fn tail(&self) -> GlobalPtr<u64> {
        self.place(0).cast()
    }

    /// The ticket of the next pop: poppers compare and swap it.
    #[inline]
    pub(super) fn head(&self) -> GlobalPtr<u64> {
        self.place(APART).cast()
    }

    /// The number of times that a slot was retired.
    pub(super) fn retirements(&self) -> GlobalPtr<u64> {
        self.place(2 * APART).cast()
    }

    /// The words of operations that are announced.
    pub(super) fn announced(&self) -> announced::Words {
        [(Op::Push, self.place(3 * APART).cast()), (Op::Pop, self.place(4 * APART).cast())]
    }

    /// The words of the retired slots, a bit each.
    pub(super) fn retired(&self) -> GlobalPtr<u64> {
        self.place(WORDS * APART).cast()
    }

    #[inline]
    pub(super) fn index(&self, ticket: u64) -> u64 {
        ticket & (self.slots - 1)
    }

    /// The stamp of the slot of a ticket. The item follows it.
    #[inline]
    pub(super) fn slot(&self, ticket: u64) -> GlobalPtr<u64> {
        self.place(self.first_slot() + self.index(ticket) * self.slot_bytes).cast()
    }

    /// The item of a ticket, behind its stamp.
    #[inline]
    pub(super) fn item(&self, ticket: u64) -> GlobalAddress {
        self.place(self.first_slot() + self.index(ticket) * self.slot_bytes + STAMP as u64)
    }
}

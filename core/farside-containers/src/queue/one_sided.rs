//! Pushes and pops by one-sided operations.
//!
//! A push adds to the tail and so takes a ticket. No ticket can be given back, so a worker takes
//! one only if its own last ticket is below the limit: the head that it knows, and the capacity.
//! Others may have taken tickets meanwhile, so a worker may get tickets above the limit, but only
//! one batch, since it then knows of them. The ring has slots for these, so each ticket can be
//! used. Then the item is put, and after it the stamp: the ticket and one.
//!
//! A batch of items is put with all its stamps but the first, and after it the first. If its pusher
//! is lost in between, the other stamps may stand in front of torn items. So each stamp also tells
//! the item's place in its batch, and the item is there only if the first one was. The slot of the
//! first tells: it has the stamp of the first, or of a later lap.
//!
//! A pop reads the stamp at the head, then the item, and then moves the head by compare-and-swap.
//! So it holds no ticket, and the slot is free as soon as the head has moved. The item may be torn,
//! but only if another worker has popped it and its slot was used again. Then the head has moved.

use std::sync::atomic::{Ordering, fence};

use farside::bytemuck::{bytes_of, pod_read_unaligned};
use farside::{AccessBytes, AwaitSignals, Result, Signal};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::ends::Ends;
use super::ring::{BATCH_MAX, Ring, STAMP};
use super::{Item, QueueError};
use crate::promise::Implementation;

/// The bits of a stamp that tell the ticket, which is smaller than half of what they can tell. The
/// others tell the place in a batch.
const TICKET_BITS: u32 = 64 - BATCH_MAX.ilog2();

/// Returns the stamp of an item that is there: its ticket and one, and its place in a batch.
#[inline]
fn stamp(ticket: u64, place: u64) -> u64 {
    ticket.wrapping_add(1) | place << TICKET_BITS
}

/// Mixes the ticket into the words of an item, or takes it out again. With checksums, equal items
/// would otherwise leave the same words in a slot. The checksum alone would then show an item whose
/// words are still on their way, and these would spoil a later item.
#[inline]
pub(super) fn mask(bytes: &mut [u8], ticket: u64) {
    // The steps of splitmix64: all bits depend on the ticket.
    let mut word = ticket.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    for word_bytes in bytes.chunks_mut(8) {
        word_bytes.iter_mut().zip((word ^ word >> 31).to_ne_bytes()).for_each(|(byte, mask)| *byte ^= mask);
    }
}

impl<T: Item> Ends<'_, T> {
    /// Pushes up to a batch of items. Returns how many.
    #[inline]
    pub(super) fn push_some(&self, ring: &Ring, items: &[T]) -> Result<u64> {
        loop {
            let count = self.room(ring, ring.batch.min(items.len() as u64))?;
            if count == 0 {
                let is_worn_out = self.retired_count() == ring.slots;
                return if is_worn_out { Err(QueueError::WornOut { slots: ring.slots }.into()) } else { Ok(0) };
            }
            let ticket = ring.tail().fetch_add(self.me, count).inspect_err(|_| self.doubt())?;
            self.part.open.set((ticket, ticket.wrapping_add(count)));
            let written = self.write(ring, ticket, &items[..count as usize]);
            if written.is_err() {
                // The first error says more than one of the clean-up.
                let _ = self.give_up(ring, ticket, count);
            }
            self.part.open.set((0, 0));
            match written? {
                // All tickets were for retired slots.
                0 if self.retired_count() == ring.slots => return Err(QueueError::WornOut { slots: ring.slots }.into()),
                0 => {}
                written => return Ok(written),
            }
        }
    }

    /// Notes that this worker may have tickets that it does not know, after an error. They count
    /// from its next push on, and poppers pass them.
    #[cold]
    fn doubt(&self) {
        self.part.has_doubt.set(true);
        self.part.limit.set(self.part.tail.get());
    }

    /// Returns how many tickets this worker may take, up to `most`.
    #[inline]
    fn room(&self, ring: &Ring, most: u64) -> Result<u64> {
        let part = &*self.part;
        let room = || part.limit.get().wrapping_sub(part.tail.get()).cast_signed();
        if room() < most.cast_signed() {
            self.look_for_room(ring)?;
        }
        Ok(most.min(room().max(0).cast_unsigned()))
    }

    /// Learns how far the slots are free. The retirements come after the head: one that came before
    /// the head moved is seen with it.
    #[cold]
    fn look_for_room(&self, ring: &Ring) -> Result<()> {
        let part = &*self.part;
        if part.has_doubt.get() {
            part.tail.set(ring.tail().load(self.me)?);
            part.has_doubt.set(false);
        }
        let head = ring.head().load(self.me)?;
        part.limit.set(head.wrapping_add(ring.capacity));
        if head.wrapping_sub(part.tail.get()).cast_signed() > 0 {
            part.tail.set(head);
        }
        self.look_for_retired(ring)
    }

    /// Writes items into the slots of their tickets, but for those that are retired. Returns how
    /// many were written.
    #[inline]
    fn write(&self, ring: &Ring, ticket: u64, items: &[T]) -> Result<u64> {
        let (part, end) = (&*self.part, ticket.wrapping_add(items.len() as u64));
        part.tail.set(end);
        // The slots were used before, and may have been retired since this worker last looked.
        let beyond = || {
            let known = part.limit.get().wrapping_add(ring.slots - ring.capacity);
            end.wrapping_sub(known).cast_signed() > 0
        };
        if beyond() {
            self.look_for_room(ring)?;
            // A push that failed while it took its tickets may have done so later.
            if beyond() {
                return Err(QueueError::NoSlot { ticket }.into());
            }
        }
        if self.part.retirements.get() > 0 {
            let mut left = items.iter();
            for ticket in (0..items.len() as u64).map(|number| ticket.wrapping_add(number)) {
                if !self.is_retired(ring, ticket) {
                    let Some(item) = left.next() else { break };
                    self.write_one(ring, ticket, item)?;
                }
            }
            return Ok((items.len() - left.len()) as u64);
        }
        match items {
            [item] => self.write_one(ring, ticket, item)?,
            items => self.write_many(ring, ticket, items)?,
        }
        Ok(items.len() as u64)
    }

    #[inline]
    pub(super) fn write_one(&self, ring: &Ring, ticket: u64, item: &T) -> Result<()> {
        let (address, bytes) = (ring.item(ticket), bytes_of(item));
        match self.implementation() {
            Implementation::Checksum => {
                let mut buffer = self.part.outgoing.borrow_mut();
                let slot = &mut buffer[..STAMP + size_of::<T>()];
                self.fill(slot, ticket, 0, item);
                self.put_unordered(ring, ticket, slot)
            }
            _ => self.me.put_signal(address, bytes, ring.slot(ticket), Signal::Set(stamp(ticket, 0))),
        }
    }

    /// Writes a batch by one put, or by two where the ring ends. The stamp of the first item alone
    /// must come after all items.
    fn write_many(&self, ring: &Ring, ticket: u64, items: &[T]) -> Result<()> {
        let (mut buffer, slot_bytes) = (self.part.outgoing.borrow_mut(), ring.slot_bytes());
        let slots = &mut buffer[..items.len() * slot_bytes];
        for ((slot, place), item) in slots.chunks_mut(slot_bytes).zip(0..).zip(items) {
            self.fill(slot, ticket.wrapping_add(place), place, item);
        }
        let before_end = (ring.slots - ring.index(ticket)) as usize;
        let (first, second) = slots.split_at(before_end.min(items.len()) * slot_bytes);
        if !second.is_empty() {
            self.me.put_bytes(ring.slot(ticket.wrapping_add(before_end as u64)).address(), second)?;
        }
        match self.implementation() {
            Implementation::OneSided => {
                let signal = Signal::Set(stamp(ticket, 0));
                self.me.put_signal(ring.item(ticket), &first[STAMP..], ring.slot(ticket), signal)
            }
            _ => self.put_unordered(ring, ticket, first),
        }
    }

    /// Puts slots whose readers find out by themselves whether they are whole. The checker of
    /// accesses cannot know that, and so must not expect a word that says it.
    fn put_unordered(&self, ring: &Ring, ticket: u64, slots: &[u8]) -> Result<()> {
        self.me.put_bytes(ring.slot(ticket).address(), slots)?;
        self.me.end_accesses();
        Ok(())
    }

    /// Makes a slot with its stamp or checksum.
    fn fill(&self, slot: &mut [u8], ticket: u64, place: u64, item: &T) {
        let (mark, bytes) = slot[..STAMP + size_of::<T>()].split_at_mut(STAMP);
        bytes.copy_from_slice(bytes_of(item));
        let stamp = match self.implementation() {
            Implementation::Checksum => {
                mask(bytes, ticket);
                xxh3_64_with_seed(bytes, stamp(ticket, 0))
            }
            _ => stamp(ticket, place),
        };
        mark.copy_from_slice(&stamp.to_ne_bytes());
    }

    /// Returns whether a slot that was read holds the item of a ticket.
    fn fits(&self, ring: &Ring, slot: &[u8], ticket: u64) -> Result<bool> {
        let (mark, item) = slot.split_at(STAMP);
        let mark = pod_read_unaligned(mark);
        match self.implementation() {
            Implementation::Checksum => Ok(mark == xxh3_64_with_seed(&item[..size_of::<T>()], stamp(ticket, 0))),
            _ => self.is_whole(ring, ticket, mark),
        }
    }

    /// Returns whether the stamp that stands in the slot of a ticket is that of the ticket, and all
    /// of its batch was written.
    #[inline]
    fn is_whole(&self, ring: &Ring, ticket: u64, found: u64) -> Result<bool> {
        let difference = found ^ stamp(ticket, 0);
        if difference << (u64::BITS - TICKET_BITS) != 0 {
            return Ok(false);
        }
        let (first, whole) = (ticket.wrapping_sub(difference >> TICKET_BITS), &self.part.whole);
        if first != ticket && first != whole.get() {
            // A later ticket has a greater stamp, apart from the place.
            let later = ring.slot(first).look(self.me)?.wrapping_sub(stamp(first, 0));
            if (later << (u64::BITS - TICKET_BITS)).cast_signed() < 0 {
                return Ok(false);
            }
        }
        whole.set(first);
        Ok(true)
    }

    /// Reads bytes that others may write meanwhile.
    #[inline]
    fn look(&self, address: farside::GlobalAddress, bytes: &mut [u8]) -> Result<()> {
        address.cast::<u8>().slice(bytes.len()).look(self.me, 0, bytes)
    }

    /// Reads the item of a ticket into the buffer, if it is there.
    #[inline]
    fn read(&self, ring: &Ring, ticket: u64, slot: &mut [u8]) -> Result<bool> {
        if self.implementation() == Implementation::Checksum {
            self.look(ring.slot(ticket).address(), slot)?;
            return self.fits(ring, slot, ticket);
        }
        if !self.is_whole(ring, ticket, ring.slot(ticket).look(self.me)?)? {
            return Ok(false);
        }
        // SYNC: acquire, for the release of the signal that set the stamp of the batch: the item is
        // there.
        fence(Ordering::Acquire);
        self.look(ring.item(ticket), &mut slot[STAMP..])?;
        Ok(true)
    }

    /// Returns whether the item of a ticket is there.
    pub(super) fn is_there(&self, ring: &Ring, ticket: u64) -> Result<bool> {
        self.read(ring, ticket, &mut self.part.buffer.borrow_mut()[..STAMP + size_of::<T>()])
    }

    /// Pops an item.
    #[inline]
    pub(super) fn pop_one(&self, ring: &Ring) -> Result<Option<T>> {
        let part = &*self.part;
        let mut head = part.head.get();
        loop {
            let mut buffer = part.buffer.borrow_mut();
            let slot = &mut buffer[..STAMP + size_of::<T>()];
            if self.read(ring, head, slot)? {
                let next = head.wrapping_add(1);
                let found = ring.head().compare_swap(self.me, head, next)?;
                if found == head {
                    part.head.set(next);
                    return self.value(head, &mut slot[STAMP..]).map(Some);
                }
                head = found;
                continue;
            }
            drop(buffer);
            match self.next_head(ring, head)? {
                Some(next) => head = next,
                None => return Ok(None),
            }
        }
    }

    /// Pops up to a batch of items, as far as the ring goes on.
    pub(super) fn pop_some(&self, ring: &Ring, most: u64, items: &mut Vec<T>) -> Result<()> {
        let (part, slot_bytes) = (&*self.part, ring.slot_bytes());
        let mut head = part.head.get();
        loop {
            let most = most.min(ring.batch).min(ring.slots - ring.index(head)) as usize;
            let mut buffer = part.buffer.borrow_mut();
            let slots = &mut buffer[..most * slot_bytes];
            self.look(ring.slot(head).address(), slots)?;
            let mut count = 0;
            for (slot, ticket) in slots.chunks(slot_bytes).zip(head..) {
                if !self.fits(ring, slot, ticket)? {
                    break;
                }
                count += 1;
            }
            if count > 0 {
                let slots = &mut slots[..count * slot_bytes];
                if self.implementation() == Implementation::OneSided {
                    // SYNC: as in `read`. A stamp says nothing about bytes that were read with it.
                    fence(Ordering::Acquire);
                    self.look(ring.slot(head).address(), slots)?;
                }
                let next = head.wrapping_add(count as u64);
                let found = ring.head().compare_swap(self.me, head, next)?;
                if found == head {
                    part.head.set(next);
                    for (slot, ticket) in slots.chunks_mut(slot_bytes).zip(head..) {
                        items.push(self.value(ticket, &mut slot[STAMP..][..size_of::<T>()])?);
                    }
                    return Ok(());
                }
                head = found;
                continue;
            }
            drop(buffer);
            match self.next_head(ring, head)? {
                Some(next) => head = next,
                None => return Ok(()),
            }
        }
    }

    /// Returns where to look for an item if there is none at `head`: at the real head if that is
    /// another, or behind a place that no item will come to.
    #[cold]
    fn next_head(&self, ring: &Ring, head: u64) -> Result<Option<u64>> {
        let now = ring.head().load(self.me)?;
        self.part.head.set(now);
        if now != head {
            return Ok(Some(now));
        }
        if !self.is_void(ring, head)? {
            return Ok(None);
        }
        let next = head.wrapping_add(1);
        let found = ring.head().compare_swap(self.me, head, next)?;
        Ok(Some(if found == head { next } else { found }))
    }

    /// Reads the item of a ticket below the tail while no worker pushes. Without it, no item will
    /// come.
    pub(super) fn settled(&self, ring: &Ring, ticket: u64) -> Result<Option<T>> {
        let mut buffer = self.part.buffer.borrow_mut();
        let slot = &mut buffer[..STAMP + size_of::<T>()];
        self.look(ring.slot(ticket).address(), slot)?;
        if self.fits(ring, slot, ticket)? { self.value(ticket, &mut slot[STAMP..]).map(Some) } else { Ok(None) }
    }

    /// Pops an item while no worker pushes.
    pub(super) fn pop_settled(&self, ring: &Ring) -> Result<Option<T>> {
        while let Some(ticket) = self.claim(ring)? {
            let item = self.settled(ring, ticket)?;
            if item.is_some() {
                return Ok(item);
            }
            self.retire(ring, ticket)?;
        }
        Ok(None)
    }

    /// Takes a ticket of a pop that is below the tail, or returns `None` if there is none.
    fn claim(&self, ring: &Ring) -> Result<Option<u64>> {
        let part = &*self.part;
        let mut head = part.head.get();
        loop {
            if head >= part.ready.get() {
                // The head first: if it is not below the tail, the queue was empty then.
                head = ring.head().load(self.me)?;
                part.head.set(head);
                part.ready.set(ring.tail().load(self.me)?);
                if head >= part.ready.get() {
                    return Ok(None);
                }
            }
            let next = head.wrapping_add(1);
            let found = ring.head().compare_swap(self.me, head, next)?;
            if found == head {
                part.head.set(next);
                return Ok(Some(head));
            }
            head = found;
        }
    }

    /// Pushes an item while no other worker uses the queue.
    pub(super) fn push_locally(&self, ring: &Ring, item: &T) -> Result<bool> {
        self.look_for_retired(ring)?;
        let (mut tail, head) = (ring.tail().get(self.me)?, ring.head().get(self.me)?);
        while tail.wrapping_sub(head) < ring.capacity {
            let is_retired = self.is_retired(ring, tail);
            if !is_retired {
                self.write_one(ring, tail, item)?;
            }
            tail = tail.wrapping_add(1);
            ring.tail().put(self.me, tail)?;
            self.part.tail.set(tail);
            if !is_retired {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Pops an item while no other worker uses the queue.
    pub(super) fn pop_locally(&self, ring: &Ring) -> Result<Option<T>> {
        let (tail, mut head) = (ring.tail().get(self.me)?, ring.head().get(self.me)?);
        while head < tail {
            let ticket = head;
            head = head.wrapping_add(1);
            let item = self.settled(ring, ticket)?;
            if item.is_none() {
                self.retire(ring, ticket)?;
            }
            ring.head().put(self.me, head)?;
            if item.is_some() {
                return Ok(item);
            }
        }
        Ok(None)
    }
}

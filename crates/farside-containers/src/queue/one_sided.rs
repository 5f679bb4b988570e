//! Pushes and pops by one-sided operations.
//!
//! A push adds to the tail and so takes a ticket. No ticket can be given back, so a worker takes
//! one only if its own last ticket is below the limit: the head that it knows, and the capacity.
//! Others may have taken tickets meanwhile, so a worker may get tickets above the limit, but only
//! one batch, since it then knows of them. The ring has slots for these, so each ticket can be
//! used. Then the item is put, and after it the stamp: the ticket and one.
//!
//! A pop reads the stamp at the head, then the item, and then moves the head by compare-and-swap.
//! So it holds no ticket, and the slot is free as soon as the head has moved. The item may be torn,
//! but only if another worker has popped it and its slot was used again. Then the head has moved.

use std::sync::atomic::{Ordering, fence};

use farside::bytemuck::bytes_of;
use farside::{Result, Signal};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::ends::Ends;
use super::ring::{Ring, STAMP};
use super::{Implementation, Item, Promise, QueueError};

/// What stands in the slot of an item that is there.
#[inline]
fn stamp(ticket: u64) -> u64 {
    ticket.wrapping_add(1)
}

impl<T: Item> Ends<'_, T> {
    /// Pushes up to a batch of items. Returns how many.
    #[inline]
    pub(super) fn push_some(&self, ring: &Ring, promise: Promise, items: &[T]) -> Result<u64> {
        loop {
            let most = ring.batch.min(items.len() as u64);
            let Some((ticket, count)) = self.claim(ring, most)? else { return Ok(0) };
            self.part.open.set((ticket, ticket.wrapping_add(count)));
            let written = self.write(ring, promise, ticket, &items[..count as usize]);
            self.part.open.set((0, 0));
            match written? {
                // All tickets were for retired slots.
                0 => {}
                written => return Ok(written),
            }
        }
    }

    /// Takes tickets for up to `most` items. Returns the first and how many, or `None` if the queue
    /// is full.
    #[inline]
    fn claim(&self, ring: &Ring, most: u64) -> Result<Option<(u64, u64)>> {
        let part = self.part;
        let mut count = most;
        if part.limit.get().wrapping_sub(part.tail.get()).cast_signed() < count.cast_signed() {
            self.look_for_room(ring)?;
            let room = part.limit.get().wrapping_sub(part.tail.get()).cast_signed();
            if room <= 0 {
                return Ok(None);
            }
            count = count.min(room.cast_unsigned());
        }
        let ticket = ring.tail().fetch_add(self.me, count)?;
        let end = ticket.wrapping_add(count);
        part.tail.set(end);
        // The slots were used before, and may have been retired since this worker last looked.
        let known = part.limit.get().wrapping_add(ring.slots - ring.capacity);
        if end.wrapping_sub(known).cast_signed() > 0 {
            self.look_for_room(ring)?;
        }
        Ok(Some((ticket, count)))
    }

    /// Learns how far the slots are free. The retirements come after the head: one that came before
    /// the head moved is seen with it.
    #[cold]
    fn look_for_room(&self, ring: &Ring) -> Result<()> {
        let part = self.part;
        let freed = match self.implementation {
            Implementation::OneSidedPublished => ring.taken(),
            _ => ring.head(),
        };
        let head = freed.load(self.me)?;
        part.limit.set(head.wrapping_add(ring.capacity));
        if head.wrapping_sub(part.tail.get()).cast_signed() > 0 {
            part.tail.set(head);
        }
        self.look_for_retired(ring)
    }

    /// Writes items into the slots of their tickets, but for those that are retired. Returns how
    /// many were written.
    #[inline]
    fn write(&self, ring: &Ring, promise: Promise, ticket: u64, items: &[T]) -> Result<u64> {
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
        if self.implementation == Implementation::OneSidedPublished {
            self.publish(ring, promise, ticket, items.len() as u64)?;
        }
        Ok(items.len() as u64)
    }

    #[inline]
    pub(super) fn write_one(&self, ring: &Ring, ticket: u64, item: &T) -> Result<()> {
        let (address, bytes) = (ring.item(ticket), bytes_of(item));
        match self.implementation {
            Implementation::OneSidedPublished => self.me.put_bytes(address, bytes),
            Implementation::Checksum => {
                let mut buffer = self.part.outgoing.borrow_mut();
                let slot = &mut buffer[..STAMP + size_of::<T>()];
                self.fill(slot, ticket, item);
                self.put_unordered(ring, ticket, slot)
            }
            _ => self.me.put_signal(address, bytes, ring.slot(ticket), Signal::Set(stamp(ticket))),
        }
    }

    /// Writes a batch by one put, or by two where the ring ends. Poppers come to the first item
    /// first, so its stamp alone must come after all items.
    fn write_many(&self, ring: &Ring, ticket: u64, items: &[T]) -> Result<()> {
        let (mut buffer, slot_bytes) = (self.part.outgoing.borrow_mut(), ring.slot_bytes());
        let slots = &mut buffer[..items.len() * slot_bytes];
        for ((slot, ticket), item) in slots.chunks_mut(slot_bytes).zip(ticket..).zip(items) {
            self.fill(slot, ticket, item);
        }
        let before_end = (ring.slots - ring.index(ticket)) as usize;
        let (first, second) = slots.split_at(before_end.min(items.len()) * slot_bytes);
        if !second.is_empty() {
            self.me.put_bytes(ring.slot(ticket.wrapping_add(before_end as u64)).address(), second)?;
        }
        match self.implementation {
            Implementation::OneSided => {
                let signal = Signal::Set(stamp(ticket));
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
    fn fill(&self, slot: &mut [u8], ticket: u64, item: &T) {
        let bytes = bytes_of(item);
        let mark = match self.implementation {
            Implementation::Checksum => xxh3_64_with_seed(bytes, stamp(ticket)),
            _ => stamp(ticket),
        };
        slot[..STAMP].copy_from_slice(&mark.to_ne_bytes());
        slot[STAMP..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Returns whether a slot that was read holds the item of a ticket.
    fn fits(&self, slot: &[u8], ticket: u64) -> bool {
        let mark = match self.implementation {
            Implementation::OneSidedPublished => return true,
            Implementation::Checksum => xxh3_64_with_seed(&slot[STAMP..][..size_of::<T>()], stamp(ticket)),
            _ => stamp(ticket),
        };
        slot[..STAMP] == mark.to_ne_bytes()
    }

    /// Reads bytes that others may write meanwhile.
    #[inline]
    fn look(&self, address: farside::GlobalAddress, bytes: &mut [u8]) -> Result<()> {
        address.cast::<u8>().slice(bytes.len()).look(self.me, 0, bytes)
    }

    /// Reads the item of a ticket into the buffer, if it is there.
    #[inline]
    fn read(&self, ring: &Ring, ticket: u64, slot: &mut [u8]) -> Result<bool> {
        if self.implementation == Implementation::Checksum {
            self.look(ring.slot(ticket).address(), slot)?;
            return Ok(self.fits(slot, ticket));
        }
        if ring.slot(ticket).look(self.me)? != stamp(ticket) {
            return Ok(false);
        }
        // SYNC: acquire, for the release of the signal that set the stamp: the item is there.
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
        let part = self.part;
        let mut head = part.head.get();
        loop {
            let mut buffer = part.buffer.borrow_mut();
            let slot = &mut buffer[..STAMP + size_of::<T>()];
            if self.read(ring, head, slot)? {
                let next = head.wrapping_add(1);
                let found = ring.head().compare_swap(self.me, head, next)?;
                if found == head {
                    part.head.set(next);
                    return self.value(head, &slot[STAMP..]).map(Some);
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
        let (part, slot_bytes) = (self.part, ring.slot_bytes());
        let mut head = part.head.get();
        loop {
            let most = most.min(ring.batch).min(ring.slots - ring.index(head)) as usize;
            let mut buffer = part.buffer.borrow_mut();
            let slots = &mut buffer[..most * slot_bytes];
            self.look(ring.slot(head).address(), slots)?;
            let ready = slots.chunks(slot_bytes).zip(head..).take_while(|(slot, ticket)| self.fits(slot, *ticket));
            let count = ready.count();
            if count > 0 {
                let slots = &mut slots[..count * slot_bytes];
                if self.implementation == Implementation::OneSided {
                    // SYNC: as in `read`. A stamp says nothing about bytes that were read with it.
                    fence(Ordering::Acquire);
                    self.look(ring.slot(head).address(), slots)?;
                }
                let next = head.wrapping_add(count as u64);
                let found = ring.head().compare_swap(self.me, head, next)?;
                if found == head {
                    part.head.set(next);
                    for (slot, ticket) in slots.chunks(slot_bytes).zip(head..) {
                        items.push(self.value(ticket, &slot[STAMP..][..size_of::<T>()])?);
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

    /// Pops an item while no worker pushes: every ticket below the tail has its item. A worker that
    /// gets a ticket above the tail sets the head back.
    pub(super) fn pop_settled(&self, ring: &Ring) -> Result<Option<T>> {
        let part = self.part;
        loop {
            if part.head.get() >= part.ready.get() {
                part.ready.set(ring.tail().load(self.me)?);
                part.head.set(ring.head().load(self.me)?);
                if part.head.get() >= part.ready.get() {
                    return Ok(None);
                }
            }
            let ticket = ring.head().fetch_add(self.me, 1)?;
            part.head.set(ticket.wrapping_add(1));
            if ticket >= part.ready.get() {
                let tail = ring.tail().load(self.me)?;
                part.ready.set(tail);
                if ticket >= tail {
                    ring.head().fetch_min(self.me, tail)?;
                    part.head.set(tail);
                    return Ok(None);
                }
            }
            let mut buffer = part.buffer.borrow_mut();
            let slot = &mut buffer[..STAMP + size_of::<T>()];
            self.look(ring.slot(ticket).address(), slot)?;
            if self.implementation == Implementation::OneSidedPublished {
                ring.taken().fetch_add(self.me, 1)?;
            }
            if self.fits(slot, ticket) {
                return self.value(ticket, &slot[STAMP..]).map(Some);
            }
        }
    }

    fn check_local(&self) -> Result<()> {
        let host = self.part.host.0;
        if self.me.process() == host { Ok(()) } else { Err(QueueError::NotLocal { host }.into()) }
    }

    /// Pushes an item while no other worker uses the queue.
    pub(super) fn push_locally(&self, ring: &Ring, item: &T) -> Result<bool> {
        self.check_local()?;
        self.look_for_retired(ring)?;
        let (mut tail, head) = (ring.tail().get(self.me)?, ring.head().get(self.me)?);
        while tail.wrapping_sub(head) < ring.capacity {
            let is_retired = self.is_retired(ring, tail);
            if !is_retired {
                self.write_one(ring, tail, item)?;
            }
            tail = tail.wrapping_add(1);
            ring.tail().put(self.me, tail)?;
            if self.implementation == Implementation::OneSidedPublished {
                ring.published().put(self.me, tail)?;
            }
            if !is_retired {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Pops an item while no other worker uses the queue.
    pub(super) fn pop_locally(&self, ring: &Ring) -> Result<Option<T>> {
        self.check_local()?;
        let (tail, mut head) = (ring.tail().get(self.me)?, ring.head().get(self.me)?);
        while head < tail {
            let ticket = head;
            head = head.wrapping_add(1);
            let mut buffer = self.part.buffer.borrow_mut();
            let slot = &mut buffer[..STAMP + size_of::<T>()];
            self.look(ring.slot(ticket).address(), slot)?;
            ring.head().put(self.me, head)?;
            if self.implementation == Implementation::OneSidedPublished {
                ring.taken().put(self.me, head)?;
            }
            if self.fits(slot, ticket) {
                return self.value(ticket, &slot[STAMP..]).map(Some);
            }
        }
        Ok(None)
    }
}

//! What a process leaves behind that is lost while it pushes.
//!
//! It may have taken tickets, and their items do not come. The ticket does not say whose it is, and
//! the memory of a lost process cannot be read. So a popper that finds no item at the head asks
//! all others. Each knows its open tickets, and answers between two operations. If none of them
//! has the ticket, a lost process had it. The lost process may yet write the slot, so the slot is
//! retired: pushers leave it out, and poppers pass it.

use farside::{Error, ProcessId, Result};

use super::ends::Ends;
use super::ring::Ring;
use super::{Item, Queue};

impl<T: Item> Ends<'_, T> {
    /// Returns whether the slot of a ticket is retired, as far as this worker knows.
    #[inline]
    pub(super) fn is_retired(&self, ring: &Ring, ticket: u64) -> bool {
        let index = ring.index(ticket);
        let word = self.part.retired.borrow().get((index / 64) as usize).copied();
        self.part.retirements.get() > 0 && word.is_some_and(|word| word & 1 << (index % 64) != 0)
    }

    /// Learns which slots are retired.
    pub(super) fn look_for_retired(&self, ring: &Ring) -> Result<()> {
        let (part, count) = (self.part, ring.retirements().load(self.me)?);
        if count != part.retirements.get() {
            let mut words = vec![0; ring.slots.div_ceil(64) as usize];
            ring.retired().slice(words.len()).look(self.me, 0, &mut words)?;
            *part.retired.borrow_mut() = words;
            part.retirements.set(count);
        }
        Ok(())
    }

    /// Returns whether no item will come to the ticket at the head.
    pub(super) fn is_void(&self, ring: &Ring, ticket: u64) -> Result<bool> {
        let me = self.me;
        let any_lost = || (0..me.process_count()).any(|process| me.is_lost(ProcessId::new(process)));
        if self.part.retirements.get() == 0 && !any_lost() {
            return Ok(false);
        }
        if ring.tail().load(me)? <= ticket {
            return Ok(false);
        }
        self.look_for_retired(ring)?;
        if self.is_retired(ring, ticket) {
            return Ok(true);
        }
        if !any_lost() || self.is_open_anywhere(ticket)? {
            return Ok(false);
        }
        // Its owner may have written it just before it answered.
        if self.is_there(ring, ticket)? {
            return Ok(false);
        }
        let index = ring.index(ticket);
        ring.retired().add((index / 64) as usize)?.fetch_or(me, 1 << (index % 64))?;
        ring.retirements().fetch_add(me, 1)?;
        self.look_for_retired(ring)?;
        Ok(true)
    }

    /// Asks all workers that are not lost whether they hold a ticket. Where this worker must not
    /// wait, one might.
    fn is_open_anywhere(&self, ticket: u64) -> Result<bool> {
        let holds = |there: &farside::Worker, (queue, ticket): (Queue<T>, u64)| {
            let (first, end) = queue.on(there).part.open.get();
            first <= ticket && ticket < end
        };
        let others = self.me.workers().filter(|worker| *worker != self.me.id());
        let mut is_open = false;
        for worker in others {
            let asked = self.me.call_return(worker, (self.queue, ticket), holds);
            match asked.map_err(Error::from).and_then(|answer| answer.wait()) {
                Ok(holds) => is_open |= holds,
                Err(Error::PeerLost { .. }) => {}
                Err(Error::InHandler { .. } | Error::Borrowed { .. }) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(is_open)
    }
}

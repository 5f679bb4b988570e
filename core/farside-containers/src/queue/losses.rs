//! The traces of a process that is lost while it pushes, and of a push that fails.
//!
//! Such a push may have taken tickets, and their items do not come. The ticket does not say whose
//! it is, and the memory of a lost process cannot be read. So a popper that finds no item at the
//! head asks all others. Each knows its open tickets, and answers between two operations. If none
//! of them has the ticket, a lost process had it, or a push that failed while it took its ticket,
//! so that it does not know which. What failed may yet write the slot, so the slot is retired:
//! pushers leave it out, and poppers pass it. A worker whose push fails after it has taken tickets
//! retires their slots itself.
//!
//! | a ticket at the head without its item | a popper |
//! |---|---|
//! | no process is lost, and the popper has not seen it there for long | returns |
//! | a worker has it, or does not answer | returns |
//! | all others have answered that they do not have it | retires the slot, and passes it |
//! | its slot is retired, and all have answered since the popper learned that | passes it |
//!
//! A slot may be retired late: its item has come after all, was popped, and a pusher that does not
//! know of the retirement has the ticket of the next lap. So a popper asks before it first passes a
//! retired slot, and a worker that is asked looks for retired slots before its next push.

use std::time::Duration;

use farside::{Error, ProcessId, Result, WhenFull, Wire, Worker};

use super::ends::Ends;
use super::ring::Ring;
use super::{Item, Queue};

/// The longest time that a pop waits for the answers of other workers.
const PATIENCE: Duration = Duration::from_millis(20);
/// The time that a ticket stands at the head before a failed push may be the reason.
const STANDSTILL: Duration = Duration::from_secs(1);
/// The number of retirements of a worker that must look.
const UNKNOWN: u64 = u64::MAX;

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
        let (part, count) = (&*self.part, ring.retirements().load(self.me)?);
        if count != part.retirements.get() {
            let mut words = vec![0; ring.slots.div_ceil(64) as usize];
            ring.retired().slice(words.len()).look(self.me, 0, &mut words)?;
            *part.retired.borrow_mut() = words;
            part.retirements.set(count);
        }
        Ok(())
    }

    /// Returns whether no item will come to the ticket at the head, or the head has left it.
    pub(super) fn is_void(&self, ring: &Ring, ticket: u64) -> Result<bool> {
        let (me, part) = (self.me, &*self.part);
        if ring.tail().load(me)? <= ticket {
            return Ok(false);
        }
        self.look_for_retired(ring)?;
        let (is_retired, retirements) = (self.is_retired(ring, ticket), part.retirements.get());
        let mut are_agreed = false;
        if !is_retired || part.agreed.get() != retirements {
            let any_lost = || (0..me.process_count()).any(|process| me.is_lost(ProcessId::new(process)));
            let may_be_void = is_retired || any_lost() || self.stands_still(ticket);
            if !may_be_void {
                return Ok(false);
            }
            let open = self.open_anywhere(ticket)?;
            if open == Open::Ticket {
                // Others may have passed it meanwhile.
                return Ok(ring.head().load(me)? != ticket);
            }
            are_agreed = open == Open::None;
        }
        // Its owner may have written it before the slot was retired, or just before it answered.
        // Then another worker may have popped it, and the slot may have another item.
        if self.is_there(ring, ticket)? {
            return Ok(false);
        }
        if ring.head().load(me)? != ticket {
            return Ok(true);
        }
        match is_retired {
            // No worker is pushing that does not know of all these retirements.
            true if are_agreed => part.agreed.set(retirements),
            true => {}
            false => self.retire(ring, ticket)?,
        }
        // A failed push may have more tickets: the next one has stood still for as long.
        let still = part.standing.get().filter(|(standing, _)| *standing == ticket);
        part.standing.set(still.map(|(_, since)| {
            let earlier = since.checked_sub(self.standstill()).unwrap_or(since);
            (ticket.wrapping_add(1), earlier)
        }));
        Ok(true)
    }

    /// Returns whether a ticket has been at the head for long, and starts again then.
    fn stands_still(&self, ticket: u64) -> bool {
        let now = self.me.now();
        let since = self.part.standing.get().filter(|(standing, _)| *standing == ticket).map(|(_, since)| since);
        let is_long = since.is_some_and(|since| now.saturating_duration_since(since) >= self.standstill());
        if is_long || since.is_none() {
            self.part.standing.set(Some((ticket, now)));
        }
        is_long
    }

    fn standstill(&self) -> Duration {
        STANDSTILL.min(self.me.default_deadline())
    }

    /// Retires the slots of tickets whose items did not all come. Items that were popped did. A
    /// ticket of a later lap has no slot yet, and poppers pass it when it has stood still.
    #[cold]
    pub(super) fn give_up(&self, ring: &Ring, ticket: u64, count: u64) -> Result<()> {
        let head = ring.head().load(self.me)?;
        let end = (ticket + count).min(head + ring.slots);
        (ticket.max(head)..end).try_for_each(|ticket| self.retire(ring, ticket))
    }

    /// Returns the number of slots that are retired, as far as this worker knows.
    pub(super) fn retired_count(&self) -> u64 {
        self.part.retired.borrow().iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Retires the slot of a ticket, for all workers.
    #[cold]
    pub(super) fn retire(&self, ring: &Ring, ticket: u64) -> Result<()> {
        self.look_for_retired(ring)?;
        if self.is_retired(ring, ticket) {
            return Ok(());
        }
        let index = ring.index(ticket);
        ring.retired().add((index / 64) as usize)?.fetch_or(self.me, 1 << (index % 64))?;
        ring.retirements().fetch_add(self.me, 1)?;
        self.look_for_retired(ring)
    }

    /// Asks all workers that are not lost what they are pushing. One that does not answer in time
    /// may hold the ticket, and so may any if this worker must not wait.
    fn open_anywhere(&self, ticket: u64) -> Result<Open> {
        let open = |there: &Worker, (queue, ticket): (Queue<T>, u64)| queue.on(there).open(ticket);
        if self.open(ticket) == Open::Ticket || self.may_wait().is_err() {
            return Ok(Open::Ticket);
        }
        let others = self.me.workers().filter(|worker| *worker != self.me.id());
        let ask = |worker| self.me.to(worker).when_full(WhenFull::Fail).call_return((self.queue, ticket), open);
        let answers: Vec<_> = others.map(ask).collect();
        let end = self.me.now() + PATIENCE;
        let mut most = Open::None;
        for answer in answers {
            let left = end.saturating_duration_since(self.me.now());
            match answer.map_err(Error::from).and_then(|mut answer| answer.wait_for(left)) {
                Ok(open) => most = most.max(open),
                Err(Error::PeerLost { .. }) => {}
                Err(Error::InHandler { .. } | Error::Borrowed { .. } | Error::Deadline { .. } | Error::Full { .. }) => {
                    return Ok(Open::Ticket);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(most)
    }

    /// Returns what this worker is pushing. Its next push looks for retired slots.
    fn open(&self, ticket: u64) -> Open {
        let part = &*self.part;
        part.limit.set(part.tail.get());
        part.retirements.set(UNKNOWN);
        match part.open.get() {
            (first, end) if first == end => Open::None,
            (first, end) if first <= ticket && ticket < end => Open::Ticket,
            _ => Open::Other,
        }
    }
}

/// The items that workers are pushing when they are asked about a ticket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Wire)]
enum Open {
    None,
    /// Items of other tickets.
    Other,
    /// The item of the ticket, perhaps.
    Ticket,
}

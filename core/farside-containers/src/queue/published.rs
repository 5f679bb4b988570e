//! The algorithms of the seed: *RDMA vs. RPC for Implementing Distributed Data Structures*, section
//! III-B2. A second counter says how far items are there, and another how far they were read. Each
//! worker moves it past its own item, after those before it have done so.
//!
//! The counters have 64 bits, a full queue gives out no ticket, and a pop claims its item by
//! compare-and-swap, since a ticket for an item that does not come could not be given back.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use farside::{AccessBytes, Error, GlobalPtr, Losses, ProcessId, Result};

use super::ends::Ends;
use super::ring::{Ring, STAMP};
use super::{Item, Usage};
use crate::promise::Op;

/// The number of attempts between looks at the clock.
const ATTEMPTS_PER_CLOCK: u32 = 64;
/// The time that the attempts take in a simulation: more and more while the counter stands still.
const TURN: Duration = Duration::from_nanos(500);
const TURN_MAX: Duration = Duration::from_millis(1);
/// The time that a counter stands still before a loss is the reason.
const STANDSTILL: Duration = Duration::from_secs(1);

impl<T: Item> Ends<'_, T> {
    /// Lets poppers see items.
    pub(super) fn publish(&self, ring: &Ring, usage: Usage, ticket: u64, count: u64) -> Result<()> {
        match usage {
            Usage::PushOnly => self.count(ring, Op::Push, count),
            _ => self.advance(ring.published(), ticket, count),
        }
    }

    /// Counts pushes or pops under a promise. No worker looks at the second counter before all have
    /// ended, so their order does not matter. In a phase it moves once, at the end.
    pub(super) fn count(&self, ring: &Ring, op: Op, count: u64) -> Result<()> {
        if self.part.phase.get() == Usage::All {
            return ring.second(op).fetch_add(self.me, count).map(drop);
        }
        let uncounted = &self.part.uncounted[usize::from(op == Op::Pop)];
        uncounted.set(uncounted.get() + count);
        Ok(())
    }

    pub(super) fn pop_published(&self, ring: &Ring) -> Result<Option<T>> {
        let Some(ticket) = self.claim(ring, ring.published())? else { return Ok(None) };
        let mut buffer = self.part.buffer.borrow_mut();
        let bytes = &mut buffer[STAMP..][..size_of::<T>()];
        self.me.get_bytes(ring.item(ticket), bytes)?;
        self.advance(ring.taken(), ticket, 1)?;
        self.value(ticket, bytes).map(Some)
    }

    /// Moves a counter past tickets of this worker, as soon as it has come to them. No call runs
    /// meanwhile: one could push, and would wait for this one.
    fn advance(&self, counter: GlobalPtr<u64>, ticket: u64, count: u64) -> Result<()> {
        let (me, deadline) = (self.me, self.me.default_deadline());
        let (mut attempts, mut seen, mut turn) = (0_u32, None, TURN);
        loop {
            let found = counter.compare_swap(me, ticket, ticket.wrapping_add(count))?;
            if found == ticket {
                return Ok(());
            }
            std::hint::spin_loop();
            attempts = attempts.wrapping_add(1);
            if !attempts.is_multiple_of(ATTEMPTS_PER_CLOCK) {
                continue;
            }
            thread::yield_now();
            // In a simulation, the others go on while this worker charges time.
            me.charge(turn);
            let since = match seen {
                Some((value, since)) if value == found => {
                    turn = TURN_MAX.min(2 * turn);
                    since
                }
                _ => {
                    turn = TURN;
                    me.now()
                }
            };
            seen = Some((found, since));
            let stood = me.now().saturating_duration_since(since);
            if stood >= STANDSTILL.min(deadline)
                && let Some(process) = self.find_lost()
            {
                let why = "may have been in a push or pop of a published queue, which others cannot pass: use the \
                           implementation `OneSided`";
                return Err(Error::PeerLost { process, root: process, why: why.to_owned() });
            }
            if stood >= deadline {
                let doing = "waiting for earlier pushes or pops of a published queue";
                return Err(Error::Deadline { doing, after: deadline, waiting_for: Vec::new() });
            }
        }
    }
}

impl<T: 'static> Ends<'_, T> {
    /// Returns a lost process, if there is one. This worker runs no calls, so it asks what its
    /// process has heard. That takes no time, also if a process is stopped.
    fn find_lost(&self) -> Option<ProcessId> {
        (0..self.me.process_count()).map(ProcessId::new).find(|process| self.me.has_heard_of_loss(*process))
    }

    /// Moves the second counters by what was pushed and popped in the phase that ends.
    pub(super) fn count_phase(&self) -> Result<()> {
        let ring = self.part.ring.get();
        let count = |(op, uncounted): (Op, &Cell<u64>)| match uncounted.take() {
            0 => Ok(()),
            count => ring.second(op).fetch_add(self.me, count).map(drop),
        };
        [Op::Push, Op::Pop].into_iter().zip(&self.part.uncounted).try_for_each(count)
    }
}

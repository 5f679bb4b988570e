//! The algorithms of the seed: *RDMA vs. RPC for Implementing Distributed Data Structures*, section
//! III-B2. A second counter says how far items are there, and another how far they were read. Each
//! worker moves it past its own item, after those before it have done so.
//!
//! The counters have 64 bits, a full queue gives out no ticket, and a pop claims its item by
//! compare-and-swap, since a ticket for an item that does not come could not be given back.

use std::thread;
use std::time::Duration;

use farside::{Error, GlobalPtr, ProcessId, Result};

use super::ends::Ends;
use super::ring::{Ring, STAMP};
use super::{Item, Promise};

/// The number of attempts between looks at the clock.
const ATTEMPTS_PER_CLOCK: u32 = 64;
/// The longest time that another worker takes between the two ends of a push or pop.
const PATIENCE: Duration = Duration::from_secs(30);

impl<T: Item> Ends<'_, T> {
    /// Lets poppers see items. Under a promise, no popper looks before all items are there, so
    /// their order does not matter.
    pub(super) fn publish(&self, ring: &Ring, promise: Promise, ticket: u64, count: u64) -> Result<()> {
        match promise {
            Promise::PushOnly => ring.published().fetch_add(self.me, count).map(drop),
            _ => self.advance(ring.published(), ticket, count),
        }
    }

    pub(super) fn pop_published(&self, ring: &Ring) -> Result<Option<T>> {
        let part = self.part;
        let mut head = part.head.get();
        loop {
            if head >= part.ready.get() {
                part.ready.set(ring.published().load(self.me)?);
                head = ring.head().load(self.me)?;
                part.head.set(head);
                if head >= part.ready.get() {
                    return Ok(None);
                }
            }
            let found = ring.head().compare_swap(self.me, head, head.wrapping_add(1))?;
            if found == head {
                break;
            }
            head = found;
        }
        part.head.set(head.wrapping_add(1));
        let mut buffer = part.buffer.borrow_mut();
        let bytes = &mut buffer[STAMP..][..size_of::<T>()];
        self.me.get_bytes(ring.item(head), bytes)?;
        self.advance(ring.taken(), head, 1)?;
        self.value(head, bytes).map(Some)
    }

    /// Moves a counter past tickets of this worker, as soon as it has come to them. No call runs
    /// meanwhile: one could push, and would wait for this one.
    fn advance(&self, counter: GlobalPtr<u64>, ticket: u64, count: u64) -> Result<()> {
        let (me, mut attempts, mut end) = (self.me, 0_u32, None);
        while counter.compare_swap(me, ticket, ticket.wrapping_add(count))? != ticket {
            attempts += 1;
            std::hint::spin_loop();
            if attempts.is_multiple_of(ATTEMPTS_PER_CLOCK) {
                thread::yield_now();
                if let Some(process) = (0..me.process_count()).map(ProcessId::new).find(|process| me.is_lost(*process))
                {
                    let why = "may have been in a push or pop of a published queue, which others cannot pass: use the \
                               implementation `OneSided`";
                    return Err(Error::PeerLost { process, root: process, why: why.to_owned() });
                }
                if me.now() >= *end.get_or_insert_with(|| me.now() + PATIENCE) {
                    let doing = "waiting for earlier pushes or pops of a published queue";
                    return Err(Error::Deadline { doing, after: PATIENCE, waiting_for: Vec::new() });
                }
            }
        }
        Ok(())
    }
}

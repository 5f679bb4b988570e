//! [`Slots`]: copies of steps of a view, in memory that readers on the same machine map.
//!
//! A step is copied once, into a slot. Each reader that gets elements of it *pins* the slot: it has
//! a part of the slot's memory in the result of its call, and copies from there, or reads there in
//! place.
//!
//! | a slot is | because | becomes free |
//! |---|---|---|
//! | free | no reader has it | – |
//! | pinned | a reader has it | when the reader lets it go, or its connection ends |
//! | overdue | its readers have had it for [`PIN_TIME`] | when another finds all slots pinned |
//!
//! Readers of an overdue slot lose it: their part is withdrawn before the slot is written, so their
//! copies fail, or `is_valid` tells them. A slot that is young is left out. So readers neither stop
//! the program nor keep each other waiting for longer than [`PIN_TIME`].
//!
//! # Why no reader sees a slot change
//!
//! Inside this process a slot is safe Rust: an `Arc` whose count is the number of pins. It is
//! written through `Arc::get_mut`, so only when no pin is left. New pins come from
//! [`find`](Slots::find) and [`copy`](Slots::copy), which need the lock of the view, as the write
//! does, or from a pin that is there. The list of pins is behind a mutex.
//!
//! What the compiler cannot see is a reader in another process. It looks at a mark behind its copy.
//! The mark is cleared before the pin's count is dropped. `farside-rpc/tests/models` checks that
//! with loom: one thread clears the mark and drops the count, another finds the count at one and
//! writes, a reader copies and looks. Without the fences of the mark, the model fails.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use farside_rpc::bulk::{Bulk, Memory, Read, Withdrawal};

use crate::protocol::Refused;
use crate::spans::Block;
use crate::sync::lock;

/// The number of copies of a view, besides that for a pause.
const SLOTS: usize = 3;
/// The time for which a reader has a slot in any case.
pub(crate) const PIN_TIME: Duration = Duration::from_secs(2);
/// The most bytes that travel with the answer, and are not mapped.
const COPIED_MAX: usize = 4096;
/// The most runs of bytes that are described to a reader. Of more, it gets a copy.
const RUNS_MAX: usize = 256;
/// The most slots of a process that readers map. Each takes a descriptor of the program.
const MAPPED_MAX: usize = 256;

/// The copies of a view.
#[derive(Debug)]
pub(super) struct Slots {
    all: Vec<Arc<Slot>>,
    budget: Arc<Budget>,
}

/// A copy of a step.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) step: u64,
    bytes: Bytes,
    pins: Mutex<Vec<Pin>>,
}

/// Where a slot has its bytes.
#[derive(Debug)]
enum Bytes {
    Mapped(Memory, #[expect(dead_code, reason = "it counts while it is there")] Share),
    Own(Vec<u8>),
}

/// A reader's part of a slot.
#[derive(Debug)]
struct Pin {
    since: Instant,
    withdrawal: Withdrawal,
}

/// Counts the mapped slots of a process.
#[derive(Debug, Default)]
pub(super) struct Budget(AtomicUsize);

/// One mapped slot.
#[derive(Debug)]
struct Share(Arc<Budget>);

impl Budget {
    fn take(self: &Arc<Self>) -> Option<Share> {
        // Relaxed: the number publishes nothing.
        let more = |count| (count < MAPPED_MAX).then_some(count + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Share(self.clone()))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Slots {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { all: Vec::new(), budget }
    }

    /// The copy of a step.
    pub(super) fn find(&self, step: u64) -> Option<&Arc<Slot>> {
        self.all.iter().find(|slot| slot.step == step)
    }

    /// The number of slots that readers have.
    fn pinned(&self) -> usize {
        self.all.iter().filter(|slot| Arc::strong_count(slot) > 1).count()
    }

    /// Copies a step into a free slot. That of a pause may take one more slot than others, as no
    /// later step comes in its place.
    pub(super) fn copy(&mut self, step: u64, bytes: &[u8], is_of_pause: bool) -> Result<Arc<Slot>, Refused> {
        if self.pinned() >= SLOTS + usize::from(is_of_pause) {
            return Err(Refused::Busy);
        }
        let free = self.all.iter_mut().filter(|slot| Arc::strong_count(slot) == 1).min_by_key(|slot| slot.step);
        if let Some(slot) = free
            // SYNC: acquires what readers released when they let the slot go. See `Slot::show`.
            && let Some(free) = Arc::get_mut(slot)
        {
            free.step = step;
            free.bytes.write(bytes);
            // Its readers have let it go or have lost it.
            free.pins.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
            return Ok(slot.clone());
        }
        let slot = Arc::new(Slot { step, bytes: Bytes::of(bytes, &self.budget)?, pins: Mutex::default() });
        self.all.push(slot.clone());
        Ok(slot)
    }

    /// If all slots are pinned and one is overdue, what takes it away from its readers. To be
    /// called without a lock.
    pub(super) fn overdue(&self, now: Instant) -> Vec<Withdrawal> {
        if self.pinned() < SLOTS {
            return Vec::new();
        }
        // The slot whose last reader came first.
        let last = |slot: &Arc<Slot>| lock(&slot.pins).iter().map(|pin| pin.since).max();
        let oldest = self.all.iter().filter_map(|slot| Some((last(slot)?, slot))).min_by_key(|(since, _)| *since);
        let overdue = oldest.filter(|(since, _)| now.duration_since(*since) >= PIN_TIME);
        let pins = overdue.map_or(Vec::new(), |(_, slot)| std::mem::take(&mut *lock(&slot.pins)));
        pins.into_iter().map(|pin| pin.withdrawal).collect()
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
    }
}

impl Slot {
    /// Gives a reader elements: a part of the slot, which stays as it is while the reader has it,
    /// or a copy.
    pub(super) fn show(self: &Arc<Self>, block: Block<'_>) -> Result<Bulk<Read>, Refused> {
        let total = block.bytes();
        if let Bytes::Mapped(memory, _) = &self.bytes
            && total > COPIED_MAX
            && let Some(runs) = block.few_runs(RUNS_MAX)
        {
            let ranges = runs.iter().map(|(offset, bytes)| *offset..*offset + *bytes);
            let shown = memory.to_read_all(ranges).expect("the runs are inside the part");
            // SYNC: the slot is written only when this count is gone. The library drops it behind
            // the mark by which the reader sees that it has the memory no longer.
            let shown = shown.keeping(self.clone());
            let withdrawal = shown.withdrawal().expect("it is memory of this side");
            let mut pins = lock(&self.pins);
            pins.retain(|pin| pin.withdrawal.is_pending());
            pins.push(Pin { since: Instant::now(), withdrawal });
            return Ok(shown);
        }
        let mut packed = room(total)?;
        let mut at = 0;
        block.runs(|offset, bytes| {
            self.bytes.read(offset, &mut packed[at..at + bytes]);
            at += bytes;
        });
        Ok(packed.into())
    }
}

impl Bytes {
    fn of(bytes: &[u8], budget: &Arc<Budget>) -> Result<Self, Refused> {
        if bytes.len() > COPIED_MAX
            && let Some(share) = budget.take()
            && let Ok(memory) = Memory::new_read_only(bytes.len())
        {
            let mut mapped = Self::Mapped(memory, share);
            mapped.write(bytes);
            return Ok(mapped);
        }
        let mut own = Vec::new();
        own.try_reserve_exact(bytes.len()).map_err(|_| no_memory(bytes.len()))?;
        own.extend_from_slice(bytes);
        Ok(Self::Own(own))
    }

    /// Writes all bytes anew.
    fn write(&mut self, bytes: &[u8]) {
        match self {
            Self::Mapped(memory, _) => memory.write(0, bytes).expect("a slot has the size of its part"),
            Self::Own(own) => own.copy_from_slice(bytes),
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        match self {
            Self::Mapped(memory, _) => memory.read(offset, into).expect("the runs are inside the part"),
            Self::Own(own) => into.copy_from_slice(&own[offset..offset + into.len()]),
        }
    }
}

fn no_memory(bytes: usize) -> Refused {
    Refused::NoMemory { bytes: bytes as u64 }
}

/// Memory for bytes, all 0.
pub(super) fn room(bytes: usize) -> Result<Vec<u8>, Refused> {
    bytemuck::allocation::try_zeroed_vec(bytes).map_err(|()| no_memory(bytes))
}

#[cfg(test)]
mod tests {
    use farside_rpc::TransferError;

    use super::*;
    use crate::spans::Span;

    const BYTES: usize = 2 * COPIED_MAX;
    const ALL: Span = Span { start: 0, step: 1, count: BYTES as u64 };

    /// Has a reader take bytes of a copy.
    fn show(slot: &Arc<Slot>, span: Span) -> Bulk<Read> {
        slot.show(Block { shape: &[BYTES as u64], spans: &[span], element_bytes: 1 }).unwrap()
    }

    /// Copies a step and has a reader take all of it.
    fn read(slots: &mut Slots, step: u8) -> Bulk<Read> {
        show(&slots.copy(step.into(), &[step; BYTES], false).unwrap(), ALL)
    }

    /// The moment at which the copy of a step was given out last.
    fn given_out(slots: &Slots, step: u64) -> Instant {
        lock(&slots.find(step).unwrap().pins).last().unwrap().since
    }

    #[test]
    fn an_overdue_copy_is_taken_from_its_readers_and_no_other() {
        let mut slots = Slots::new(Arc::default());
        let readers: Vec<_> = (0..3).map(|step| read(&mut slots, step)).collect();
        let second = show(slots.find(0).unwrap(), ALL);
        assert!(matches!(slots.copy(3, &[3; BYTES], false), Err(Refused::Busy)));
        // The copy of step 0 was given out again last, so that of step 1 is overdue first.
        let given_out = given_out(&slots, 1);
        let soon = given_out + PIN_TIME - Duration::from_nanos(1);
        assert!(slots.overdue(soon).is_empty(), "readers have them for a while");
        let overdue = slots.overdue(given_out + PIN_TIME);
        assert_eq!(overdue.len(), 1);
        overdue.iter().for_each(Withdrawal::withdraw);
        assert_eq!(readers[1].pull_all(), Err(TransferError::Gone));
        let third = read(&mut slots, 3);
        for (bulk, step) in [(&readers[0], 0), (&readers[2], 2), (&second, 0), (&third, 3)] {
            assert!(bulk.pull_all().unwrap() == [step; BYTES], "step {step}");
        }
        // A copy that a reader has let go is free without that.
        drop((readers, third));
        assert!(slots.overdue(given_out + 2 * PIN_TIME).is_empty());
        assert!(read(&mut slots, 4).pull_all().unwrap() == [4; BYTES]);
        assert!(second.pull_all().unwrap() == [0; BYTES]);
    }

    #[test]
    fn the_step_of_a_pause_has_a_copy_beside_those_that_readers_keep() {
        let mut slots = Slots::new(Arc::default());
        let readers: Vec<_> = (0..3).map(|step| read(&mut slots, step)).collect();
        let slot = slots.copy(3, &[3; BYTES], true).unwrap();
        assert!(matches!(slots.copy(4, &[4; BYTES], true), Err(Refused::Busy)), "it is being read");
        drop(slot);
        assert!(matches!(slots.copy(4, &[4; BYTES], false), Err(Refused::Busy)), "it is kept for a pause");
        let overdue = slots.overdue(given_out(&slots, 0) + PIN_TIME);
        assert_eq!(overdue.len(), 1, "others wait for a copy of theirs");
        assert!(slots.copy(4, &[4; BYTES], true).is_ok());
        drop(readers);
        assert!(slots.copy(5, &[5; BYTES], false).is_ok() && slots.all.len() == 4);
    }

    #[test]
    fn few_bytes_and_many_runs_are_copied() {
        let budget = Arc::new(Budget(AtomicUsize::new(MAPPED_MAX - 1)));
        let mut slots = Slots::new(budget.clone());
        let slot = slots.copy(0, &[7; BYTES], false).unwrap();
        let spans = [Span { start: 5, step: 1, count: 100 }, Span { start: 0, step: 2, count: BYTES as u64 / 2 }];
        let bulks = spans.map(|span| show(&slot, span));
        drop(slot);
        slots.copy(1, &[8; BYTES], false).unwrap();
        assert_eq!(slots.all.len(), 1, "no reader has the slot");
        drop(slots);
        assert!(bulks.iter().all(|bulk| bulk.pull_all().unwrap().iter().all(|byte| *byte == 7)));
        assert_eq!(budget.0.load(Ordering::Relaxed), MAPPED_MAX - 1);
        let mut slots = Slots::new(Arc::new(Budget(AtomicUsize::new(MAPPED_MAX))));
        let copy = read(&mut slots, 1);
        assert!(matches!(slots.all[0].bytes, Bytes::Own(_)));
        assert!(read(&mut slots, 2).pull_all().unwrap() == [2; BYTES] && copy.pull_all().unwrap() == [1; BYTES]);
    }
}

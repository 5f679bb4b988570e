//! The shadow: which parts of the memory at the peer are in use, by whom, in the books of the initiator. It alone allocates, so nobody
//! else needs to see them, and nothing that another process could write is believed here.

use std::collections::BTreeMap;

use farside_fabric::memory::{Fit, FreeSpace};

use super::error::TagFault;
use super::layout::UNIT_BYTES;
use super::tags::Tag;

/// Who has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Initiator,
    /// It was handed over, and that it was freed is not known here.
    Peer,
    /// A write to it was begun and never ended. It may still take effect, so the place is not used again.
    Nobody,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// With the header.
    pub(super) units: u32,
    pub(super) serial: u64,
    pub(super) holder: Holder,
}

/// A block that was found room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) start: u32,
    pub(super) serial: u64,
}

/// How much blocks of one holder have, headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) blocks: u64,
    pub(super) bytes: u64,
}

#[derive(Debug)]
pub(super) struct Shadow {
    fit: Fit,
    units: u32,
    free: FreeSpace,
    /// By their first units.
    held: BTreeMap<u32, Held>,
    next_serial: u64,
}

impl Shadow {
    pub(super) fn new(units: u32, fit: Fit) -> Self {
        let mut free = FreeSpace::default();
        free.release(0, units.into());
        Self { fit, units, free, held: BTreeMap::new(), next_serial: 1 }
    }

    /// Room for a block of so many units, header included, of which the second lies on a multiple of `align`. No serial number is given
    /// twice.
    pub(super) fn take(&mut self, units: u32, align: u64) -> Option<Taken> {
        let start = self.free.take_aligned(units.into(), self.fit, 1, align)?;
        let start = u32::try_from(start).expect("the heap has no more units");
        let serial = self.next_serial;
        self.next_serial += 1;
        self.held.insert(start, Held { units, serial, holder: Holder::Initiator });
        Some(Taken { start, serial })
    }

    /// Says who has a block from now on.
    pub(super) fn pass_to(&mut self, start: u32, holder: Holder) {
        if let Some(held) = self.held.get_mut(&start) {
            held.holder = holder;
        }
    }

    /// Makes a block free.
    pub(super) fn free(&mut self, start: u32) {
        if let Some(held) = self.held.remove(&start) {
            self.free.release(start.into(), held.units.into());
        }
    }

    pub(super) fn find(&self, start: u32) -> Option<&Held> {
        self.held.get(&start)
    }

    /// Whether a block was ever given this number.
    pub(super) fn has_given(&self, serial: u64) -> bool {
        (1..self.next_serial).contains(&serial)
    }

    /// Makes free what the peer says it has freed: all of it, or nothing if any of it cannot be. `mark` is what a block adds to its tag.
    pub(super) fn accept(&mut self, tags: &[Tag], mark: impl Fn(u64, u32) -> u64) -> Result<Amount, TagFault> {
        let mut end_before = 0;
        for tag in tags {
            let end = tag.start.checked_add(tag.units).filter(|end| *end <= self.units).ok_or(TagFault::OutOfRange)?;
            if tag.start < end_before || tag.units == 0 {
                return Err(TagFault::Order);
            }
            end_before = end;
            let (mut at, mut sum) = (tag.start, 0_u64);
            for (start, held) in self.held.range(tag.start..end) {
                if *start != at {
                    return Err(TagFault::NoBlock);
                }
                if held.holder != Holder::Peer {
                    return Err(TagFault::NotHandedOver);
                }
                at += held.units;
                sum = sum.wrapping_add(mark(held.serial, *start));
            }
            if at != end {
                return Err(TagFault::NoBlock);
            }
            if sum != tag.marks {
                return Err(TagFault::OtherBlocks);
            }
        }
        let mut freed = Amount::default();
        for tag in tags {
            let end = tag.start + tag.units;
            while let Some((start, held)) = self.held.range(tag.start..end).next() {
                let start = *start;
                freed.blocks += 1;
                freed.bytes += u64::from(held.units) * UNIT_BYTES;
                self.free(start);
            }
        }
        Ok(freed)
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.free.total() * UNIT_BYTES
    }

    pub(super) fn largest_free_bytes(&self) -> u64 {
        self.free.longest() * UNIT_BYTES
    }

    pub(super) fn free_pieces(&self) -> usize {
        self.free.pieces()
    }

    /// How much somebody has.
    pub(super) fn amount_of(&self, holder: Holder) -> Amount {
        let of_holder = self.held.values().filter(|held| held.holder == holder);
        of_holder.fold(Amount::default(), |sum, held| Amount {
            blocks: sum.blocks + 1,
            bytes: sum.bytes + u64::from(held.units) * UNIT_BYTES,
        })
    }
}

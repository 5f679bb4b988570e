//! The table of a process's regions that have global addresses. It lies in the process's starter
//! memory; the owner writes it, and peers read it.

use std::sync::atomic::Ordering;

use farside_fabric::{ProcessId, RemoteKey};

use super::address::{SLOT_BYTES, SLOT_COUNT, Segment};
use crate::runtime::home::Home;

/// The bit of a slot's state that says that the slot is in use. The lower half is the generation.
/// Between them is the number of slots before it in the same region.
const IN_USE: u64 = 1 << 63;

/// The entry of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The generation of the slot's use, the slots of the region before it, and [`IN_USE`].
    pub(crate) state: u64,
    /// The size of the region.
    pub(crate) bytes: u64,
}

impl Entry {
    /// The entry of the region's slot that has `earlier` others before it.
    fn of(key: RemoteKey, earlier: u32) -> Self {
        Self { state: IN_USE | u64::from(earlier) << 32 | u64::from(key.generation), bytes: key.bytes }
    }

    /// Returns the key of the region that an address of this segment lies in, and the bytes of the
    /// region before the segment. `None` if the region is gone or never existed.
    pub(crate) fn key(self, owner: ProcessId, segment: Segment) -> Option<(RemoteKey, u64)> {
        self.key_of(owner, segment.slot()).filter(|(key, _)| segment.is_of(key.generation))
    }

    /// Returns the key of the region in the slot, and the bytes of the region before the slot.
    /// `None` if there is none. The entry may be a peer's, which may have written anything.
    pub(crate) fn key_of(self, owner: ProcessId, slot: u32) -> Option<(RemoteKey, u64)> {
        let earlier = (self.state >> 32) as u32 & (SLOT_COUNT - 1);
        let key = RemoteKey {
            process: owner,
            slot: slot.checked_sub(earlier)?,
            generation: self.state as u32,
            reserved: 0,
            bytes: self.bytes,
        };
        let is_used = self.state & IN_USE != 0;
        (is_used && earlier < key.slot_count()).then_some((key, u64::from(earlier) * SLOT_BYTES))
    }
}

/// The slots of a region that have addresses, each with the number of those before it.
fn slots_of(key: RemoteKey) -> impl DoubleEndedIterator<Item = (u32, u32)> {
    let end = key.slot.saturating_add(key.slot_count()).min(SLOT_COUNT);
    (key.slot..end).map(move |slot| (slot, slot - key.slot))
}

/// Gives a region of this process addresses. Regions of slots beyond the table have none.
///
/// Only a part of the starter region is the program's. Its entry has the size of the whole region;
/// the part's bounds are in the layout.
pub(crate) fn publish(home: &Home, key: RemoteKey) {
    if is_published(home, key) {
        return;
    }
    // The first slot comes last: a thread that finds it published finds all of them.
    for (slot, earlier) in slots_of(key).rev() {
        let ((state, bytes), entry) = (home.segment(slot), Entry::of(key, earlier));
        // A peer that reads the new state also reads the size that goes with it. If the slot is
        // being used again meanwhile, the peer may read a size that no region of that generation
        // has, and is refused when it attaches.
        state.store(0, Ordering::Release);
        bytes.store(entry.bytes, Ordering::Release);
        state.store(entry.state, Ordering::Release);
    }
}

/// Takes the addresses of a region of this process back. A peer that reads its entry from now on
/// finds no region.
pub(crate) fn retire(home: &Home, key: RemoteKey) {
    for (slot, earlier) in slots_of(key) {
        let state = home.segment(slot).0;
        if state.load(Ordering::Relaxed) == Entry::of(key, earlier).state {
            state.store(0, Ordering::Release);
        }
    }
}

/// Returns whether a region has addresses, by its owner's table.
pub(crate) fn is_published(home: &Home, key: RemoteKey) -> bool {
    key.slot < SLOT_COUNT && look_up(home, key.slot) == Entry::of(key, 0)
}

/// Reads the entry of a slot in a table that is mapped here.
pub(crate) fn look_up(home: &Home, slot: u32) -> Entry {
    let (state, bytes) = home.segment(slot);
    Entry { state: state.load(Ordering::Acquire), bytes: bytes.load(Ordering::Acquire) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use farside_sys::shm::SharedMemory;

    use super::super::address::GlobalAddress;
    use super::*;
    use crate::runtime::home::{HomeLayout, Shape};

    #[test]
    fn a_region_is_in_the_table_until_it_is_retired() {
        let layout = HomeLayout::new(Shape { processes: 1, threads: 1, without_body: 0 }, 0);
        let home = Home::new(layout, Arc::new(SharedMemory::create("test", layout.bytes()).unwrap()));
        let owner = ProcessId::new(0);
        let key = |generation| RemoteKey { process: owner, slot: 5, generation, reserved: 0, bytes: 100 };
        let found = |generation| {
            let segment = GlobalAddress::in_region(key(generation), 0).unwrap().segment();
            look_up(&home, 5).key(owner, segment).map(|(key, _)| key)
        };
        assert_eq!(found(0), None);
        publish(&home, key(3));
        assert_eq!((found(3), found(4)), (Some(key(3)), None));
        retire(&home, key(3));
        assert_eq!((found(3), look_up(&home, 5).key_of(owner, 5)), (None, None));
        publish(&home, key(4));
        retire(&home, key(3));
        assert_eq!(
            (found(4), found(20), found(3)),
            (Some(key(4)), Some(key(4)), None),
            "the next use of the slot stays"
        );
    }

    #[test]
    fn every_slot_of_a_large_region_leads_to_it() {
        let layout = HomeLayout::new(Shape { processes: 1, threads: 1, without_body: 0 }, 0);
        let home = Home::new(layout, Arc::new(SharedMemory::create("test", layout.bytes()).unwrap()));
        let owner = ProcessId::new(0);
        let key = RemoteKey { process: owner, slot: 7, generation: 2, reserved: 0, bytes: 5 * SLOT_BYTES + 1 };
        publish(&home, key);
        assert!(is_published(&home, key));
        for earlier in 0..6 {
            let offset = u64::from(earlier) * SLOT_BYTES;
            let segment = GlobalAddress::in_region(key, offset).unwrap().segment();
            assert_eq!(segment.slot(), 7 + earlier);
            assert_eq!(look_up(&home, segment.slot()).key(owner, segment), Some((key, offset)));
        }
        let around = || [6, 13].map(|slot| look_up(&home, slot).key_of(owner, slot));
        assert_eq!(around(), [None, None]);
        // Entries that no owner writes.
        for (slot, earlier) in [(7, 6), (3, 4), (0, SLOT_COUNT - 1)] {
            assert_eq!(Entry::of(key, earlier).key_of(owner, slot), None);
        }
        retire(&home, key);
        assert!((7..13).all(|slot| look_up(&home, slot).key_of(owner, slot).is_none()));
    }
}

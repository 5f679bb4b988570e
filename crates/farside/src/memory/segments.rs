//! The table of a process's regions that have global addresses. It lies in the process's starter
//! memory; the owner writes it, and peers read it.

use std::sync::atomic::Ordering;

use farside_fabric::{ProcessId, RemoteKey};

use super::address::{SLOT_COUNT, Segment};
use crate::runtime::home::Home;

/// The bit of a slot's state that says that the slot is in use. The lower bits are the generation.
const IN_USE: u64 = 1 << 63;

/// The entry of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The generation of the slot's use, and [`IN_USE`].
    pub(crate) state: u64,
    /// The size of the region.
    pub(crate) bytes: u64,
}

impl Entry {
    fn of(key: RemoteKey) -> Self {
        Self { state: IN_USE | u64::from(key.generation), bytes: key.bytes }
    }

    /// Returns the key of the region that an address of this segment lies in, or `None` if the
    /// region is gone or never existed.
    pub(crate) fn key(self, owner: ProcessId, segment: Segment) -> Option<RemoteKey> {
        self.key_of(owner, segment.slot()).filter(|key| segment.is_of(key.generation))
    }

    /// Returns the key of the region in the slot, or `None` if there is none.
    pub(crate) fn key_of(self, owner: ProcessId, slot: u32) -> Option<RemoteKey> {
        let generation = self.state as u32;
        let is_used = self.state & IN_USE != 0;
        is_used.then_some(RemoteKey { process: owner, slot, generation, reserved: 0, bytes: self.bytes })
    }
}

/// Gives a region of this process addresses. Regions of slots beyond the table have none.
///
/// Only a part of the starter region is the program's. Its entry has the size of the whole region;
/// the part's bounds are in the layout.
pub(crate) fn publish(home: &Home, key: RemoteKey) {
    if key.slot >= SLOT_COUNT {
        return;
    }
    let (state, bytes) = home.segment(key.slot);
    let entry = Entry::of(key);
    if state.load(Ordering::Relaxed) == entry.state {
        return;
    }
    // A peer that reads the new state also reads the size that goes with it. If the slot is being
    // used again meanwhile, the peer may read a size that no region of that generation has, and is
    // refused when it attaches.
    state.store(0, Ordering::Release);
    bytes.store(entry.bytes, Ordering::Release);
    state.store(entry.state, Ordering::Release);
}

/// Takes the addresses of a region of this process back. A peer that reads its entry from now on
/// finds no region.
pub(crate) fn retire(home: &Home, key: RemoteKey) {
    if key.slot >= SLOT_COUNT {
        return;
    }
    let state = home.segment(key.slot).0;
    if state.load(Ordering::Relaxed) == Entry::of(key).state {
        state.store(0, Ordering::Release);
    }
}

/// Returns whether a region has addresses, by its owner's table.
pub(crate) fn is_published(home: &Home, key: RemoteKey) -> bool {
    key.slot < SLOT_COUNT && look_up(home, key.slot) == Entry::of(key)
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
            look_up(&home, 5).key(owner, segment)
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
}

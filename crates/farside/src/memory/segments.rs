//! The table of a process's regions that have global addresses. It lies in the starter memory; the owner writes it, and peers read it.

use std::sync::atomic::Ordering;

use farside_fabric::{ProcessId, RemoteKey};

use super::address::{SLOT_COUNT, Segment};
use crate::runtime::home::Home;

/// Set in the state of a slot that is in use, beside the generation.
const IN_USE: u64 = 1 << 63;

/// What a process's table says of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The generation of the slot's use; [`IN_USE`].
    pub(crate) state: u64,
    /// The size of the region.
    pub(crate) bytes: u64,
}

impl Entry {
    fn of(key: RemoteKey) -> Self {
        Self { state: IN_USE | u64::from(key.generation), bytes: key.bytes }
    }

    /// The key of the region that an address of this segment lies in; `None` when the region is gone, or never was.
    pub(crate) fn key(self, owner: ProcessId, segment: Segment) -> Option<RemoteKey> {
        self.key_of(owner, segment.slot()).filter(|key| segment.is_of(key.generation))
    }

    /// The key of the region that is there; `None` when there is none.
    pub(crate) fn key_of(self, owner: ProcessId, slot: u32) -> Option<RemoteKey> {
        let generation = self.state as u32;
        let is_used = self.state & IN_USE != 0;
        is_used.then_some(RemoteKey { process: owner, slot, generation, reserved: 0, bytes: self.bytes })
    }
}

/// Gives a region of this process addresses. Those of slots beyond the table have none.
///
/// The starter region is not all the program's: its entry says how much is.
pub(crate) fn publish(home: &Home, key: RemoteKey) {
    if key.slot >= SLOT_COUNT {
        return;
    }
    let (state, bytes) = home.segment(key.slot);
    let entry = Entry::of(key);
    if state.load(Ordering::Relaxed) == entry.state {
        return;
    }
    // Who reads the state finds the size that goes with it, or, with the slot being used again, a size that no region of that
    // generation has, and is refused when it attaches.
    state.store(0, Ordering::Release);
    bytes.store(entry.bytes, Ordering::Release);
    state.store(entry.state, Ordering::Release);
}

/// Takes the addresses of a region of this process back. Who sees its entry from now on finds nothing there.
pub(crate) fn retire(home: &Home, key: RemoteKey) {
    if key.slot >= SLOT_COUNT {
        return;
    }
    let state = home.segment(key.slot).0;
    if state.load(Ordering::Relaxed) == Entry::of(key).state {
        state.store(0, Ordering::Release);
    }
}

/// Whether a region has addresses, by its owner's table.
pub(crate) fn is_published(home: &Home, key: RemoteKey) -> bool {
    key.slot < SLOT_COUNT && look_up(home, key.slot) == Entry::of(key)
}

/// The entry of a slot in a table that is mapped here.
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
        let layout = HomeLayout::new(Shape { processes: 1, threads: 1, service_threads: 0 }, 0);
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

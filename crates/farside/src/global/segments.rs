//! The table of a process's regions that have global addresses. It lies in the starter memory; the owner writes it, and peers read it.

use std::sync::atomic::Ordering;

use farside_fabric::{ProcessId, RemoteKey};

use super::address::{SLOT_COUNT, Segment};
use crate::job::home::Home;

/// Set in the state of a slot that is in use, beside the generation.
const IN_USE: u64 = 1 << 63;

/// What a process's table says of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The generation of the slot's use; [`IN_USE`].
    pub(super) state: u64,
    /// The size of the region.
    pub(super) bytes: u64,
}

impl Entry {
    fn of(key: RemoteKey) -> Self {
        Self { state: IN_USE | u64::from(key.generation), bytes: key.bytes }
    }

    /// The key of the region that an address of this segment lies in; `None` when the region is gone, or never was.
    pub(super) fn key(self, owner: ProcessId, segment: Segment) -> Option<RemoteKey> {
        self.key_of(owner, segment.slot()).filter(|key| segment.is_of(key.generation))
    }

    /// The key of the region that is there; `None` when there is none.
    pub(super) fn key_of(self, owner: ProcessId, slot: u32) -> Option<RemoteKey> {
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

/// The entry of a slot in a table that is mapped here.
pub(super) fn look_up(home: &Home, slot: u32) -> Entry {
    let (state, bytes) = home.segment(slot);
    Entry { state: state.load(Ordering::Acquire), bytes: bytes.load(Ordering::Acquire) }
}

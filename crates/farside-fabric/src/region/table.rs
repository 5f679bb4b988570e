//! The regions that one process has registered.

use std::collections::VecDeque;
use std::sync::Arc;

use farside_sys::shm::SharedMemory;

use super::{LocalRegion, RegionMemory};
use crate::ids::ProcessId;
use crate::operation::{FabricError, INTERNAL, RegionKind, RegionName, RemoteKey};

/// Number of slots that are used before a slot is reused: as many as a global address can name. A
/// global address has room for only the low four bits of the generation, which should wrap around
/// as seldom as possible.
const FRESH_SLOTS: usize = 1024;

/// The origin of a region's name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Naming {
    /// The table of regions assigns it.
    Here(RegionKind),
    /// The caller has assigned it, as all others of this table.
    Elsewhere(RegionName),
}

/// Assigns the names of regions. Slot 0 always belongs to the starter memory.
#[derive(Debug)]
pub(crate) struct Names {
    /// The next generation of each slot.
    generations: Vec<u32>,
    /// Returned slots, the one that has been free longest first.
    free: VecDeque<u32>,
}

impl Names {
    /// Creates the names of a process; the starter memory already has its name.
    pub(crate) fn new() -> Self {
        Self { generations: vec![1], free: VecDeque::new() }
    }

    /// Returns a name that was never used before (or not for two billion uses of its slot).
    pub(crate) fn take(&mut self, kind: RegionKind) -> RegionName {
        let used = if self.generations.len() < FRESH_SLOTS { None } else { self.free.pop_front() };
        let slot = used.unwrap_or_else(|| {
            self.generations.push(0);
            self.generations.len() as u32 - 1
        });
        let next = &mut self.generations[slot as usize];
        let uses = *next;
        *next = (uses + 1) & !INTERNAL;
        let generation = if kind == RegionKind::Internal { uses | INTERNAL } else { uses };
        RegionName { slot, generation }
    }

    /// Takes back a name that nothing uses any more.
    pub(crate) fn give_back(&mut self, name: RegionName) {
        debug_assert!(name.slot != 0 && !self.free.contains(&name.slot), "a name is given back once");
        self.free.push_back(name.slot);
    }
}

/// The regions by slot.
#[derive(Debug)]
pub(crate) struct RegionTable {
    starter: LocalRegion,
    names: Names,
    slots: Vec<Option<Slot>>,
}

#[derive(Debug)]
struct Slot {
    key: RemoteKey,
    memory: RegionMemory,
    /// Whether its key was withdrawn: only its holders still know it.
    is_leaving: bool,
    /// Whether its name comes from this table.
    is_named_here: bool,
}

impl RegionTable {
    /// Creates a table that holds the starter memory, the first `bytes` bytes of `memory`.
    pub(crate) fn new(process: ProcessId, memory: Arc<SharedMemory>, bytes: usize) -> Self {
        let starter = LocalRegion::new(RemoteKey::starter(process, bytes as u64), memory);
        let memory = RegionMemory::Shared(starter.memory().clone());
        let first = Slot { key: starter.key(), memory, is_leaving: false, is_named_here: true };
        Self { names: Names::new(), slots: vec![Some(first)], starter }
    }

    pub(crate) fn starter(&self) -> LocalRegion {
        self.starter.clone()
    }

    /// Registers memory as a region.
    ///
    /// # Errors
    /// [`FabricError::Memory`] for user memory of zero bytes.
    ///
    /// # Panics
    /// If the name is in use.
    pub(crate) fn register(
        &mut self,
        naming: Naming,
        memory: RegionMemory,
        bytes: usize,
    ) -> Result<RemoteKey, FabricError> {
        memory.hold()?;
        let (is_named_here, RegionName { slot, generation }) = match naming {
            Naming::Here(kind) => (true, self.names.take(kind)),
            Naming::Elsewhere(name) => (false, name),
        };
        let process = self.starter.key().process;
        let key = RemoteKey { process, slot, generation, reserved: 0, bytes: bytes as u64 };
        let index = slot as usize;
        self.slots.resize_with(self.slots.len().max(index + 1), || None);
        assert!(self.slots[index].is_none(), "a slot has one region at a time");
        self.slots[index] = Some(Slot { key, memory, is_leaving: false, is_named_here });
        Ok(key)
    }

    /// Withdraws a key: it is no longer found. If it is of user memory, no thread of this process
    /// accesses that memory any more.
    ///
    /// # Errors
    /// [`FabricError::StaleKey`].
    pub(crate) fn withdraw(&mut self, key: RemoteKey) -> Result<(), FabricError> {
        if key.slot == 0 || self.find(key).is_none() {
            return Err(FabricError::StaleKey { key });
        }
        if let Some(slot) = &mut self.slots[key.slot as usize] {
            slot.is_leaving = true;
            slot.memory.close();
        }
        Ok(())
    }

    /// Frees the slot of a withdrawn region that has no holder any more.
    pub(crate) fn free(&mut self, name: RegionName) -> Option<RegionMemory> {
        let slot = self.slots.get_mut(name.slot as usize)?;
        let gone = slot.take_if(|slot| slot.is_leaving && slot.key.generation == name.generation)?;
        if gone.is_named_here {
            self.names.give_back(name);
        }
        Some(gone.memory)
    }

    /// The region with exactly this key.
    pub(crate) fn find(&self, key: RemoteKey) -> Option<&RegionMemory> {
        let (found, memory) = self.find_named(key.into())?;
        (found == key).then_some(memory)
    }

    /// The region with this name.
    pub(crate) fn find_named(&self, name: RegionName) -> Option<(RemoteKey, &RegionMemory)> {
        self.slot(name).filter(|slot| !slot.is_leaving).map(|slot| (slot.key, &slot.memory))
    }

    /// The memory of a withdrawn region.
    pub(crate) fn find_leaving(&self, name: RegionName) -> Option<&RegionMemory> {
        self.slot(name).filter(|slot| slot.is_leaving).map(|slot| &slot.memory)
    }

    fn slot(&self, name: RegionName) -> Option<&Slot> {
        self.slots.get(name.slot as usize)?.as_ref().filter(|slot| slot.key.generation == name.generation)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn shared(bytes: usize) -> RegionMemory {
        RegionMemory::Shared(Arc::new(SharedMemory::create("test", bytes).unwrap()))
    }

    #[test]
    fn slots_rest_as_long_as_may_be() {
        let mut names = Names::new();
        let first: Vec<RegionName> = (1..FRESH_SLOTS).map(|_| names.take(RegionKind::Shared)).collect();
        assert!(first.iter().zip(1..).all(|(name, slot)| *name == RegionName { slot, generation: 0 }));
        [5, 3, 9].iter().for_each(|index| names.give_back(first[*index]));
        let next: Vec<RegionName> = (0..4).map(|_| names.take(RegionKind::Shared)).collect();
        let wanted = [(6, 1), (4, 1), (10, 1), (1024, 0)].map(|(slot, generation)| RegionName { slot, generation });
        assert_eq!(next, wanted, "in the order in which they were given back, and new ones when there is none");
    }

    #[test]
    fn no_name_is_given_out_twice() {
        let mut names = Names::new();
        let all: HashSet<RegionName> = (0..5 * FRESH_SLOTS)
            .map(|_| {
                let name = names.take(RegionKind::Shared);
                names.give_back(name);
                name
            })
            .collect();
        assert_eq!(all.len(), 5 * FRESH_SLOTS);
    }

    #[test]
    fn the_kind_of_a_region_is_part_of_its_name() {
        let process = ProcessId::new(3);
        let mut table = RegionTable::new(process, Arc::new(SharedMemory::create("test", 10).unwrap()), 10);
        assert!(table.starter().key().is_internal());
        // The slots were used so often that generations wrap around.
        table.names = Names { generations: vec![INTERNAL - 1; FRESH_SLOTS], free: (1..FRESH_SLOTS as u32).collect() };
        for kind in [RegionKind::Shared, RegionKind::Internal].into_iter().cycle().take(3 * FRESH_SLOTS) {
            let key = table.register(Naming::Here(kind), shared(10), 10).unwrap();
            assert_eq!(key.is_internal(), kind == RegionKind::Internal);
            let other = RemoteKey { generation: key.generation ^ INTERNAL, ..key };
            assert!(table.find(key).is_some() && table.find(other).is_none());
            assert!(table.withdraw(other).is_err());
            table.withdraw(key).unwrap();
            assert!(table.free(key.into()).is_some());
        }
    }

    #[test]
    fn a_slot_is_free_when_its_region_is() {
        let process = ProcessId::new(3);
        let mut table = RegionTable::new(process, Arc::new(SharedMemory::create("test", 10).unwrap()), 10);
        let starter = table.starter().key();
        assert!(table.withdraw(starter).is_err() && table.find(starter).is_some());
        let name = RegionName { slot: 7, generation: 2 };
        let key = table.register(Naming::Elsewhere(name), shared(10), 10).unwrap();
        assert_eq!(RegionName::from(key), name);
        assert!(table.find(RemoteKey { bytes: 9, ..key }).is_none());
        assert!(table.free(name).is_none(), "it is in use");
        table.withdraw(key).unwrap();
        assert!(table.withdraw(key).is_err() && table.find(key).is_none() && table.find_leaving(name).is_some());
        assert!(table.free(RegionName { generation: 1, ..name }).is_none());
        assert!(table.free(name).is_some() && table.free(name).is_none() && table.find_leaving(name).is_none());
        table.register(Naming::Elsewhere(RegionName { generation: 3, ..name }), shared(10), 10).unwrap();
    }
}

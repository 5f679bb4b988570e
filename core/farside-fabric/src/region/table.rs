//! The regions that one process has registered.

use std::ops::Range;
use std::sync::Arc;

use farside_sys::shm::SharedMemory;

use super::{LocalRegion, RegionMemory};
use crate::ids::ProcessId;
use crate::operation::{FabricError, INTERNAL, RegionKind, RegionName, RemoteKey, SLOT_COUNT};

/// Number of slots that are used before a slot is reused, as long as these suffice.
const FIRST_SLOTS: usize = 1024;
/// Marks a slot that a region takes after its first one.
const INSIDE: u32 = u32::MAX;

/// The origin of a region's name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Naming {
    /// The table of regions assigns it.
    Here(RegionKind),
    /// The caller has assigned it, as all others of this table.
    Elsewhere(RegionName),
}

/// Assigns the names of regions. Slot 0 always belongs to the starter memory.
///
/// Slots are given out in rounds, each at most once a round, so that a slot rests as long as
/// possible. The generation is the number of the round, and a last bit that alternates from region
/// to region. A global address has room for its low four bits. So the address of a region that is
/// gone is noticed for seven rounds, and an address that has left its region is not one of the
/// neighbour, unless the neighbour is several rounds older.
#[derive(Debug)]
pub(crate) struct Names {
    /// For each slot, the number of slots of the region that begins there. 0 if the slot is free,
    /// [`INSIDE`] if the region begins earlier.
    taken: Vec<u32>,
    /// The slots before this one have had their turn in this round.
    next: usize,
    round: u32,
    /// The last bit of the next generation.
    turn: u32,
    /// The next generation of slots without addresses, from [`SLOT_COUNT`] on.
    spare_generation: u32,
}

impl Names {
    /// Creates the names of a process, whose starter memory already has its name.
    pub(crate) fn new(starter: RemoteKey) -> Self {
        let slot_count = starter.slot_count() as usize;
        let taken = vec![0; FIRST_SLOTS.max(slot_count)];
        let mut names = Self { taken, next: slot_count, round: 0, turn: 0, spare_generation: 0 };
        names.mark(0, slot_count);
        names
    }

    /// Returns a name that was never used before (or not for a billion rounds), for a region of
    /// this size. If no run of slots with addresses is free, the region gets others.
    pub(crate) fn take(&mut self, kind: RegionKind, bytes: usize) -> RegionName {
        let slot_count = RemoteKey::starter(ProcessId::new(0), bytes as u64).slot_count() as usize;
        let (slot, uses) = match self.take_run(slot_count) {
            Some(slot) => {
                self.next = slot + slot_count;
                self.turn ^= 1;
                (slot, self.round << 1 | (self.turn ^ 1))
            }
            None => {
                let spare = SLOT_COUNT as usize;
                let slot = self.free_run(spare..self.taken.len(), slot_count).unwrap_or(self.taken.len().max(spare));
                self.taken.resize(self.taken.len().max(slot + slot_count), 0);
                self.spare_generation = self.spare_generation.wrapping_add(1);
                (slot, self.spare_generation)
            }
        };
        self.mark(slot, slot_count);
        let internal = if kind == RegionKind::Internal { INTERNAL } else { 0 };
        RegionName { slot: slot as u32, generation: uses & !INTERNAL | internal }
    }

    /// Finds consecutive free slots that have addresses: in this round, in the next one, or among
    /// slots that were never used.
    fn take_run(&mut self, slot_count: usize) -> Option<usize> {
        let named = SLOT_COUNT as usize;
        let end = self.taken.len().min(named);
        if let Some(slot) = self.free_run(self.next..end, slot_count) {
            return Some(slot);
        }
        if let Some(slot) = self.free_run(1..end, slot_count) {
            self.round = self.round.wrapping_add(1);
            return Some(slot);
        }
        if end == named {
            return None;
        }
        let more = (2 * end).max(end + slot_count).min(named);
        self.taken.resize(more, 0);
        self.free_run(self.next..more, slot_count)
    }

    fn free_run(&self, mut within: Range<usize>, slot_count: usize) -> Option<usize> {
        let mut first = within.start;
        within.find_map(|slot| {
            if self.taken[slot] != 0 {
                first = slot + 1;
            }
            (slot + 1 - first == slot_count).then_some(first)
        })
    }

    fn mark(&mut self, slot: usize, slot_count: usize) {
        self.taken[slot..slot + slot_count].fill(INSIDE);
        self.taken[slot] = slot_count as u32;
    }

    /// Takes back a name that nothing uses any more.
    pub(crate) fn give_back(&mut self, name: RegionName) {
        let slot = name.slot as usize;
        let slot_count = self.taken[slot];
        debug_assert!(slot != 0 && slot_count != 0 && slot_count != INSIDE, "a name is given back once");
        self.taken[slot..slot + slot_count as usize].fill(0);
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
    /// True if its key was withdrawn: only its holders still know it.
    is_leaving: bool,
    /// True if its name comes from this table.
    is_named_here: bool,
}

impl RegionTable {
    /// Creates a table that holds the starter memory, the first `bytes` bytes of `memory`.
    pub(crate) fn new(process: ProcessId, memory: Arc<SharedMemory>, bytes: usize) -> Self {
        let starter = LocalRegion::new(RemoteKey::starter(process, bytes as u64), memory);
        let memory = RegionMemory::Shared(starter.memory().clone());
        let first = Slot { key: starter.key(), memory, is_leaving: false, is_named_here: true };
        Self { names: Names::new(starter.key()), slots: vec![Some(first)], starter }
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
            Naming::Here(kind) => (true, self.names.take(kind, bytes)),
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
    use crate::operation::SLOT_BYTES;

    fn shared(bytes: usize) -> RegionMemory {
        RegionMemory::Shared(Arc::new(SharedMemory::create("test", bytes).unwrap()))
    }

    fn names() -> Names {
        Names::new(RemoteKey::starter(ProcessId::new(0), 10))
    }

    fn take(names: &mut Names, slots: u64) -> RegionName {
        names.take(RegionKind::Shared, (slots * SLOT_BYTES) as usize)
    }

    #[test]
    fn slots_rest_as_long_as_may_be() {
        let mut names = names();
        let first: Vec<RegionName> = (1..FIRST_SLOTS).map(|_| take(&mut names, 1)).collect();
        let alternating = |(name, slot): (&RegionName, u32)| *name == RegionName { slot, generation: (slot - 1) & 1 };
        assert!(first.iter().zip(1..).all(alternating));
        [5, 3, 9].iter().for_each(|index| names.give_back(first[*index]));
        let next: Vec<u32> = (0..4).map(|_| take(&mut names, 1).slot).collect();
        assert_eq!(next, [4, 6, 10, 1024], "the free ones in turn, and new ones when there is none");
        names.give_back(first[3]);
        names.give_back(first[9]);
        assert_eq!(take(&mut names, 1).slot, 1025, "the round goes on");
    }

    #[test]
    fn no_name_is_given_out_twice() {
        let mut names = names();
        let kept = (0..40).map(|index| take(&mut names, 1 + index % 3)).step_by(2).collect::<Vec<_>>();
        let mut all: HashSet<RegionName> = kept.into_iter().collect();
        for index in 0..5 * FIRST_SLOTS as u64 {
            let name = take(&mut names, 1 + index % 5);
            assert!(all.insert(name), "{name:?}");
            names.give_back(name);
        }
    }

    /// An address has the low four bits of the generation.
    #[test]
    fn seven_rounds_have_generations_of_their_own() {
        let mut names = names();
        let mut uses: Vec<(u32, u32)> = Vec::new();
        for _ in 0..7 * (FIRST_SLOTS / 2 - 1) {
            let name = take(&mut names, 2);
            let generation = name.generation & 15;
            for slot in name.slot..name.slot + 2 {
                assert!(!uses.contains(&(slot, generation)) || slot > 3, "{name:?}");
                if slot <= 3 {
                    uses.push((slot, generation));
                }
            }
            names.give_back(name);
        }
    }

    #[test]
    fn a_large_region_takes_consecutive_slots() {
        let mut names = names();
        let small = take(&mut names, 1);
        let large = take(&mut names, 24);
        let after = take(&mut names, 1);
        assert_eq!((small.slot, large.slot, after.slot), (1, 2, 26));
        let generations = [small, large, after].map(|name| name.generation);
        assert!(generations[0] != generations[1] && generations[1] != generations[2], "neighbours differ");
        let exact = names.take(RegionKind::Shared, SLOT_BYTES as usize + 1);
        assert_eq!((exact.slot, take(&mut names, 1).slot), (27, 29));
        // All but a hole that is too short.
        let rest = take(&mut names, u64::from(SLOT_COUNT) - 30);
        assert_eq!(rest.slot, 30);
        names.give_back(large);
        let beyond = take(&mut names, 25);
        assert_eq!(beyond.slot, SLOT_COUNT, "no addresses are left for it");
        assert_eq!(take(&mut names, 24).slot, 2);
        names.give_back(beyond);
        let again = take(&mut names, 1);
        assert!(again.slot == SLOT_COUNT && again.generation != beyond.generation);
        names.give_back(rest);
        assert_eq!(take(&mut names, 3).slot, 30);
    }

    #[test]
    fn the_kind_of_a_region_is_part_of_its_name() {
        let process = ProcessId::new(3);
        let mut table = RegionTable::new(process, Arc::new(SharedMemory::create("test", 10).unwrap()), 10);
        assert!(table.starter().key().is_internal());
        // In the next round, generations wrap around.
        table.names.round = (INTERNAL >> 1) - 1;
        for kind in [RegionKind::Shared, RegionKind::Internal].into_iter().cycle().take(3 * FIRST_SLOTS) {
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

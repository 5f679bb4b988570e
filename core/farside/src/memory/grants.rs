//! The memory of this process that other processes have, as its owner records it.

use std::sync::Arc;
use std::time::Instant;

use farside_fabric::memory::{Block, ChunkSource, Heap, HeapOptions};
use farside_fabric::transport::AtomicChange;
use farside_fabric::{FabricError, ProcessId};

use super::{MemoryRefusal, RemoteMemory, STAMP_BYTES};

/// Returns the source of chunks on a NUMA node.
type SourceOf = Box<dyn Fn(Option<u32>) -> Arc<dyn ChunkSource> + Send>;

/// The grants: which process has which memory. They alone decide whether memory is in use; no
/// memory that peers can write does.
pub(crate) struct Grants {
    own: ProcessId,
    limit_bytes: u64,
    source_of: SourceOf,
    /// By NUMA node; `None` for memory that may be anywhere.
    heaps: Vec<(Option<u32>, Heap)>,
    slots: Vec<Slot>,
    /// The slots without a grant.
    free: Vec<u32>,
    /// The bytes that other processes have.
    granted_bytes: u64,
    /// The number of grants that other processes have.
    granted: u64,
}

#[derive(Debug)]
struct Slot {
    /// The number of times that the slot was used before.
    generation: u32,
    grant: Option<Grant>,
}

#[derive(Debug)]
struct Grant {
    holder: ProcessId,
    heap_index: usize,
    block: Block,
    memory: RemoteMemory,
}

impl Grants {
    pub(crate) fn new(own: ProcessId, limit_bytes: u64, source_of: SourceOf) -> Self {
        Self {
            own,
            limit_bytes,
            source_of,
            heaps: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            granted_bytes: 0,
            granted: 0,
        }
    }

    /// Gives memory to a process. Its contents are those of an earlier use.
    ///
    /// # Errors
    /// [`MemoryRefusal::Limit`], [`MemoryRefusal::NoMemory`].
    pub(crate) fn allocate(
        &mut self,
        holder: ProcessId,
        bytes: u64,
        node: Option<u32>,
    ) -> Result<RemoteMemory, MemoryRefusal> {
        let beyond = MemoryRefusal::Limit { held: self.granted_bytes, limit: self.limit_bytes };
        let with_stamp = bytes.checked_add(STAMP_BYTES).and_then(|bytes| usize::try_from(bytes).ok()).ok_or(beyond)?;
        // The limit does not count what this process gives itself. It also bounds the number of
        // grants, to the number of units in the limit: otherwise grants of no bytes would be
        // unlimited.
        let grants_max = self.limit_bytes.div_ceil(STAMP_BYTES);
        if holder != self.own
            && (self.granted >= grants_max
                || self.granted_bytes.checked_add(bytes).is_none_or(|sum| sum > self.limit_bytes))
        {
            return Err(beyond);
        }
        let heap_index = self.heap_of(node);
        let heap = &mut self.heaps[heap_index].1;
        let block = heap.allocate(with_stamp).map_err(|error| match error {
            FabricError::MemoryLimit { held, limit, .. } => {
                MemoryRefusal::Limit { held: held as u64, limit: limit as u64 }
            }
            _ => MemoryRefusal::NoMemory,
        })?;
        let (region, offset) = heap.place_of(&block);
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, grant: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[id as usize];
        let generation = slot.generation;
        let memory = RemoteMemory { key: region.key(), offset: offset + STAMP_BYTES, bytes, id, generation };
        if holder != self.own {
            self.granted_bytes += bytes;
            self.granted += 1;
        }
        slot.grant = Some(Grant { holder, heap_index, block, memory });
        self.stamp(id, memory.stamp());
        Ok(memory)
    }

    fn heap_of(&mut self, node: Option<u32>) -> usize {
        self.heaps.iter().position(|(other, _)| *other == node).unwrap_or_else(|| {
            self.heaps.push((node, Heap::new((self.source_of)(node), HeapOptions::default())));
            self.heaps.len() - 1
        })
    }

    /// Writes the stamp before a grant's memory. Peers that have it mapped check the stamp to see
    /// whether the memory is still theirs.
    fn stamp(&self, id: u32, stamp: u64) {
        let Some(grant) = &self.slots[id as usize].grant else { return };
        let (region, offset) = self.heaps[grant.heap_index].1.place_of(&grant.block);
        // This process's memory is mapped, so the access does not wait.
        let stamped = region.as_remote().atomic64(offset, AtomicChange::Swap(stamp), Instant::now());
        debug_assert!(stamped.is_ok(), "a block begins on a unit, inside of its region");
    }

    /// Returns whether the memory was zero when it was given out.
    pub(crate) fn was_zero(&self, memory: &RemoteMemory) -> bool {
        let slot = self.slots.get(memory.id as usize);
        slot.and_then(|slot| slot.grant.as_ref()).is_some_and(|grant| grant.block.is_zero())
    }

    /// Takes memory back.
    ///
    /// # Errors
    /// [`MemoryRefusal::Released`], [`MemoryRefusal::Foreign`].
    pub(crate) fn release(&mut self, memory: &RemoteMemory) -> Result<(), MemoryRefusal> {
        self.check(memory)?;
        self.take_back(memory.id);
        Ok(())
    }

    /// Checks that this is a handle of memory that is in use.
    ///
    /// # Errors
    /// [`MemoryRefusal::Released`], [`MemoryRefusal::Foreign`].
    pub(crate) fn check(&self, memory: &RemoteMemory) -> Result<(), MemoryRefusal> {
        let slot = self.slots.get(memory.id as usize).ok_or(MemoryRefusal::Foreign)?;
        if slot.grant.as_ref().is_some_and(|grant| grant.memory == *memory) {
            return Ok(());
        }
        // Generations wrap around; half of them are in the past.
        let age = slot.generation.wrapping_sub(memory.generation);
        Err(if (1..=u32::MAX / 2).contains(&age) { MemoryRefusal::Released } else { MemoryRefusal::Foreign })
    }

    fn take_back(&mut self, id: u32) {
        self.stamp(id, 0);
        let slot = &mut self.slots[id as usize];
        let Some(grant) = slot.grant.take() else { return };
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id);
        self.heaps[grant.heap_index].1.give_back(grant.block);
        if grant.holder != self.own {
            self.granted_bytes -= grant.memory.bytes;
            self.granted -= 1;
        }
    }

    /// Takes back all memory that a lost process has.
    pub(crate) fn release_all_of(&mut self, holder: ProcessId) {
        let is_its = |slot: &Slot| slot.grant.as_ref().is_some_and(|grant| grant.holder == holder);
        let ids: Vec<u32> = (0..).zip(&self.slots).filter(|(_, slot)| is_its(slot)).map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.take_back(id));
    }

    /// Returns the region that a handle's memory lies in, if it is in use.
    ///
    /// # Errors
    /// [`MemoryRefusal::Released`], [`MemoryRefusal::Foreign`].
    pub(crate) fn region_of(&self, memory: &RemoteMemory) -> Result<farside_fabric::RemoteRegion, MemoryRefusal> {
        self.check(memory)?;
        let grant = self.slots[memory.id as usize].grant.as_ref().ok_or(MemoryRefusal::Released)?;
        Ok(self.heaps[grant.heap_index].1.place_of(&grant.block).0.as_remote())
    }

    /// Returns the bytes that other processes have.
    pub(crate) fn granted_bytes(&self) -> u64 {
        self.granted_bytes
    }
}

impl std::fmt::Debug for Grants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grants").field("granted_bytes", &self.granted_bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;

    use farside_fabric::memory::{NodeMemory, NodeOptions};
    use farside_fabric::sim::{SimFabric, SimOptions};
    use farside_fabric::{RemoteKey, Transport};
    use farside_sys::shm::PageKind;
    use farside_sys::topology::NumaNodeId;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    const OWN: ProcessId = ProcessId::new(0);
    const LIMIT: u64 = 100_000;

    /// Each memory that was made, and its node.
    type Made = Arc<Mutex<Vec<(Option<u32>, Arc<NodeMemory>)>>>;

    /// The grants of process 0 of 4, and all memory that they use.
    fn books() -> (Grants, Made) {
        let end = SimFabric::new(4, 4096, 1, SimOptions::default()).unwrap().endpoint(OWN);
        let transport: Arc<dyn Transport> = end;
        let made = Made::default();
        let all = made.clone();
        let source_of = move |node: Option<u32>| {
            let options = NodeOptions { node: node.map(NumaNodeId), pages: PageKind::Base, ..NodeOptions::default() };
            let memory = Arc::new(NodeMemory::new(transport.clone(), options));
            all.lock().unwrap().push((node, memory.clone()));
            memory as Arc<dyn ChunkSource>
        };
        (Grants::new(OWN, LIMIT, Box::new(source_of)), made)
    }

    fn stamp_of(grants: &Grants, memory: &RemoteMemory) -> u64 {
        let region = grants.region_of(memory).unwrap();
        region.atomic64(memory.offset - STAMP_BYTES, AtomicChange::Load, farside_testbed::deadline()).unwrap()
    }

    #[derive(Clone, Debug)]
    enum Step {
        Allocate {
            holder: u32,
            bytes: u64,
            node: Option<u32>,
        },
        Release(Index),
        /// Release again what was released before.
        ReleaseAgain(Index),
        Lose(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        let node = prop_oneof![Just(None), Just(Some(0)), Just(Some(3))];
        prop_oneof![
            6 => (0..4_u32, 0..20_000_u64, node).prop_map(|(holder, bytes, node)| Step::Allocate { holder, bytes, node }),
            3 => any::<Index>().prop_map(Step::Release),
            1 => any::<Index>().prop_map(Step::ReleaseAgain),
            1 => (1..4_u32).prop_map(Step::Lose),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_books_are_right(steps in prop::collection::vec(step(), 1..100)) {
            let (mut grants, _made) = books();
            let mut live: Vec<(u32, RemoteMemory)> = Vec::new();
            let mut gone: Vec<RemoteMemory> = Vec::new();
            let mut names = HashSet::new();
            for step in steps {
                let theirs: u64 = live.iter().filter(|(holder, _)| *holder != 0).map(|(_, memory)| memory.bytes).sum();
                prop_assert_eq!(grants.granted_bytes(), theirs);
                match step {
                    Step::Allocate { holder, bytes, node } => match grants.allocate(ProcessId::new(holder), bytes, node) {
                        Ok(memory) => {
                            prop_assert!(holder == 0 || theirs + bytes <= LIMIT);
                            prop_assert!(names.insert((memory.id, memory.generation)), "a name is given twice");
                            let end = memory.offset + memory.bytes;
                            for (_, other) in live.iter().filter(|(_, other)| other.key == memory.key) {
                                let apart = other.offset + other.bytes <= memory.offset - STAMP_BYTES
                                    || end <= other.offset - STAMP_BYTES;
                                prop_assert!(apart, "{other:?} and {memory:?} overlap");
                            }
                            prop_assert!(end <= memory.key.bytes && memory.bytes == bytes);
                            live.push((holder, memory));
                        }
                        Err(why) => {
                            prop_assert_eq!(why, MemoryRefusal::Limit { held: theirs, limit: LIMIT });
                            prop_assert!(holder != 0 && theirs + bytes > LIMIT);
                        }
                    },
                    Step::Release(which) if !live.is_empty() => {
                        let (_, memory) = live.swap_remove(which.index(live.len()));
                        prop_assert_eq!(grants.release(&memory), Ok(()));
                        gone.push(memory);
                    }
                    Step::ReleaseAgain(which) if !gone.is_empty() => {
                        prop_assert_eq!(grants.release(&gone[which.index(gone.len())]), Err(MemoryRefusal::Released));
                    }
                    Step::Release(_) | Step::ReleaseAgain(_) => {}
                    Step::Lose(holder) => {
                        grants.release_all_of(ProcessId::new(holder));
                        gone.extend(live.extract_if(.., |(other, _)| *other == holder).map(|(_, memory)| memory));
                    }
                }
                for (_, memory) in &live {
                    prop_assert_eq!(stamp_of(&grants, memory), memory.stamp(), "a grant lost its stamp");
                }
            }
        }
    }

    #[test]
    fn unknown_handles_are_foreign() {
        let (mut grants, _made) = books();
        let memory = grants.allocate(ProcessId::new(1), 100, None).unwrap();
        let other = grants.allocate(ProcessId::new(1), 200, None).unwrap();
        let made_up = [
            RemoteMemory { id: 99, ..memory },
            RemoteMemory { id: u32::MAX, ..memory },
            RemoteMemory { id: other.id, ..memory },
            RemoteMemory { generation: 1, ..memory },
            RemoteMemory { bytes: 101, ..memory },
            RemoteMemory { offset: memory.offset + 64, ..memory },
            RemoteMemory { offset: 0, ..memory },
            RemoteMemory { key: RemoteKey { slot: 7, ..memory.key }, ..memory },
        ];
        for handle in made_up {
            assert_eq!(grants.release(&handle), Err(MemoryRefusal::Foreign), "{handle:?}");
            assert!(grants.region_of(&handle).is_err());
        }
        assert_eq!(grants.granted_bytes(), 300);
        grants.release(&memory).unwrap();
        assert_eq!(grants.release(&memory), Err(MemoryRefusal::Released));
        // The next one is not to be taken for it, nor for one after it.
        assert_eq!(grants.release(&RemoteMemory { generation: 1, ..memory }), Err(MemoryRefusal::Foreign));
        grants.release(&other).unwrap();
    }

    /// Not even a forged handle, which has any numbers, fits memory that was never given out.
    #[test]
    fn no_handle_has_the_stamp_of_untouched_memory() {
        let (mut grants, _made) = books();
        let memory = grants.allocate(ProcessId::new(1), 100, None).unwrap();
        let numbers = [0, 1, 2, u32::MAX / 2, u32::MAX - 1, u32::MAX];
        for (id, generation) in numbers.into_iter().flat_map(|id| numbers.map(|generation| (id, generation))) {
            assert_ne!(RemoteMemory { id, generation, ..memory }.stamp(), 0, "{id} {generation}");
        }
    }

    #[test]
    fn grants_of_nothing_come_to_an_end() {
        let (mut grants, _made) = books();
        let other = ProcessId::new(1);
        let all: Vec<_> = std::iter::from_fn(|| grants.allocate(other, 0, None).ok()).take(LIMIT as usize).collect();
        assert_eq!(all.len() as u64, LIMIT.div_ceil(STAMP_BYTES));
        assert_eq!(grants.allocate(other, 0, None), Err(MemoryRefusal::Limit { held: 0, limit: LIMIT }));
        grants.release(&all[5]).unwrap();
        assert!(grants.allocate(other, 0, None).is_ok());
        grants.release_all_of(other);
        assert_eq!((grants.granted, grants.granted_bytes()), (0, 0));
    }

    #[test]
    fn a_grant_says_before_its_memory_whose_it_is() {
        let (mut grants, _made) = books();
        let memory = grants.allocate(ProcessId::new(1), 100, None).unwrap();
        let region = grants.region_of(&memory).unwrap();
        let stamp =
            || region.atomic64(memory.offset - STAMP_BYTES, AtomicChange::Load, farside_testbed::deadline()).unwrap();
        assert_eq!((stamp(), memory.offset % STAMP_BYTES), (memory.stamp(), 0));
        grants.release(&memory).unwrap();
        assert_eq!(stamp(), 0, "peers that have it mapped see that it is gone");
        let again = grants.allocate(ProcessId::new(2), 100, None).unwrap();
        assert_eq!((again.offset, again.id), (memory.offset, memory.id));
        assert_ne!(again.stamp(), memory.stamp());
        assert_eq!(stamp(), again.stamp());
    }

    #[test]
    fn each_node_has_its_own_memory() {
        let (mut grants, made) = books();
        let wanted = [None, Some(0), Some(3), Some(0), None];
        let keys: Vec<_> =
            wanted.iter().map(|node| grants.allocate(ProcessId::new(1), 100, *node).unwrap().key).collect();
        assert_eq!((keys[0], keys[1]), (keys[4], keys[3]));
        assert_eq!(HashSet::<RemoteKey>::from_iter(keys).len(), 3);
        let nodes: Vec<_> = made.lock().unwrap().iter().map(|(node, memory)| (*node, memory.options().node)).collect();
        assert_eq!(nodes, [(None, None), (Some(0), Some(NumaNodeId(0))), (Some(3), Some(NumaNodeId(3)))]);
    }

    #[test]
    fn a_size_beyond_all_counting_is_refused() {
        let (mut grants, _made) = books();
        for (holder, bytes) in [(1, u64::MAX), (1, LIMIT + 1), (0, u64::MAX)] {
            let refused = grants.allocate(ProcessId::new(holder), bytes, None);
            assert!(matches!(refused, Err(MemoryRefusal::Limit { .. })), "{refused:?}");
        }
        assert_eq!(grants.allocate(OWN, 1 << 37, None), Err(MemoryRefusal::NoMemory));
        assert_eq!(grants.granted_bytes(), 0);
    }
}

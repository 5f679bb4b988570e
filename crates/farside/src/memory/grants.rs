//! The memory of this process that others have asked for, in the books of its owner.

use std::sync::Arc;
use std::time::Instant;

use farside_fabric::memory::{Block, ChunkSource, Heap, HeapOptions};
use farside_fabric::transport::AtomicChange;
use farside_fabric::{FabricError, ProcessId};

use super::{MemoryRefusal, RemoteMemory, STAMP_BYTES};

/// Where chunks of a node come from.
type SourceOf = Box<dyn Fn(Option<u32>) -> Arc<dyn ChunkSource> + Send>;

/// What was given to whom. This alone decides whether memory is in use: nothing that peers could write does.
pub(crate) struct Grants {
    own: ProcessId,
    limit_bytes: u64,
    source_of: SourceOf,
    /// By NUMA node, `None` for memory that is anywhere.
    heaps: Vec<(Option<u32>, Heap)>,
    slots: Vec<Slot>,
    /// Slots without a grant.
    free: Vec<u32>,
    /// In use by others than this process.
    granted_bytes: u64,
}

#[derive(Debug)]
struct Slot {
    /// How often the slot was used before.
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
        Self { own, limit_bytes, source_of, heaps: Vec::new(), slots: Vec::new(), free: Vec::new(), granted_bytes: 0 }
    }

    /// Gives memory to a process. What it holds is left from before.
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
        // What this process gives itself is not what others take.
        if holder != self.own && self.granted_bytes.checked_add(bytes).is_none_or(|sum| sum > self.limit_bytes) {
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

    /// Writes the word before a grant's memory by which peers who have it mapped see whether it is still theirs.
    fn stamp(&self, id: u32, stamp: u64) {
        let Some(grant) = &self.slots[id as usize].grant else { return };
        let (region, offset) = self.heaps[grant.heap_index].1.place_of(&grant.block);
        // Own memory is mapped: nothing is waited for.
        let stamped = region.as_remote().atomic64(offset, AtomicChange::Swap(stamp), Instant::now());
        debug_assert!(stamped.is_ok(), "a block begins on a unit, inside of its region");
    }

    /// Takes memory back, whoever says so.
    ///
    /// # Errors
    /// [`MemoryRefusal::Released`], [`MemoryRefusal::Foreign`].
    pub(crate) fn release(&mut self, memory: &RemoteMemory) -> Result<(), MemoryRefusal> {
        self.check(memory)?;
        self.take_back(memory.id);
        Ok(())
    }

    /// Whether this is a handle of memory that is in use.
    ///
    /// # Errors
    /// Those of [`release`](Self::release).
    pub(crate) fn check(&self, memory: &RemoteMemory) -> Result<(), MemoryRefusal> {
        let slot = self.slots.get(memory.id as usize).ok_or(MemoryRefusal::Foreign)?;
        if slot.grant.as_ref().is_some_and(|grant| grant.memory == *memory) {
            return Ok(());
        }
        // Generations go round; half of them are the past.
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
        }
    }

    /// Takes back all that a process asked for that is gone.
    pub(crate) fn release_all_of(&mut self, holder: ProcessId) {
        let is_its = |slot: &Slot| slot.grant.as_ref().is_some_and(|grant| grant.holder == holder);
        let ids: Vec<u32> = (0..).zip(&self.slots).filter(|(_, slot)| is_its(slot)).map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.take_back(id));
    }

    /// The region that a handle's memory lies in, if it is in use.
    ///
    /// # Errors
    /// Those of [`release`](Self::release).
    pub(crate) fn region_of(&self, memory: &RemoteMemory) -> Result<farside_fabric::RemoteRegion, MemoryRefusal> {
        self.check(memory)?;
        let grant = self.slots[memory.id as usize].grant.as_ref().ok_or(MemoryRefusal::Released)?;
        Ok(self.heaps[grant.heap_index].1.place_of(&grant.block).0.as_remote())
    }

    /// How much others have here.
    pub(crate) fn granted_bytes(&self) -> u64 {
        self.granted_bytes
    }
}

impl std::fmt::Debug for Grants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grants").field("granted_bytes", &self.granted_bytes).finish_non_exhaustive()
    }
}

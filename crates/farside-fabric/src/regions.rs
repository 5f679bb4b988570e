//! The regions that one process has registered.

use std::sync::Arc;

use farside_sys::shm::SharedMemory;

use crate::ids::ProcessId;
use crate::region::LocalRegion;
use crate::transport::{FabricError, RemoteKey};

/// Slot 0 is the starter's for good. A slot that was given back is used again, under the next generation.
#[derive(Debug)]
pub(crate) struct RegionTable {
    starter: LocalRegion,
    slots: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    region: Option<LocalRegion>,
}

impl RegionTable {
    /// A table that holds the starter, which is the first `bytes` bytes of `memory`.
    pub(crate) fn new(process: ProcessId, memory: Arc<SharedMemory>, bytes: usize) -> Self {
        let starter = LocalRegion::new(RemoteKey::starter(process, bytes as u64), memory);
        Self { slots: vec![Slot { generation: 0, region: Some(starter.clone()) }], starter }
    }

    pub(crate) fn starter(&self) -> LocalRegion {
        self.starter.clone()
    }

    pub(crate) fn register(&mut self, memory: Arc<SharedMemory>, bytes: usize) -> LocalRegion {
        let index = self.slots.iter().position(|slot| slot.region.is_none()).unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, region: None });
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        let key = RemoteKey {
            process: self.starter.key().process,
            slot: index as u32,
            generation: slot.generation,
            reserved: 0,
            bytes: bytes as u64,
        };
        slot.region.insert(LocalRegion::new(key, memory)).clone()
    }

    pub(crate) fn deregister(&mut self, key: RemoteKey) -> Result<(), FabricError> {
        if key.slot == 0 || self.find(key).is_none() {
            return Err(FabricError::StaleKey { key });
        }
        let slot = &mut self.slots[key.slot as usize];
        slot.region = None;
        slot.generation = slot.generation.wrapping_add(1);
        Ok(())
    }

    /// The region with exactly this key.
    pub(crate) fn find(&self, key: RemoteKey) -> Option<&LocalRegion> {
        self.find_slot(key.slot, key.generation).filter(|region| region.key() == key)
    }

    /// The region in this slot, if it is of this generation.
    pub(crate) fn find_slot(&self, slot: u32, generation: u32) -> Option<&LocalRegion> {
        self.slots.get(slot as usize)?.region.as_ref().filter(|region| region.key().generation == generation)
    }
}

//! The regions that one simulated process has registered.

use std::sync::Arc;

use farside_sys::shm::SharedMemory;

use crate::ids::ProcessId;
use crate::region::LocalRegion;
use crate::transport::{FabricError, RemoteKey};

/// Slot 0 is the starter's for good. A slot that was given back is used again, under the next generation.
#[derive(Debug)]
pub(super) struct RegionTable {
    process: ProcessId,
    starter: LocalRegion,
    slots: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    region: Option<LocalRegion>,
}

impl RegionTable {
    pub(super) fn new(process: ProcessId, starter_bytes: usize) -> Result<Self, FabricError> {
        let memory = Arc::new(SharedMemory::create("farside-sim-starter", starter_bytes)?);
        let starter = LocalRegion::new(RemoteKey::starter(process, starter_bytes as u64), memory);
        let slots = vec![Slot { generation: 0, region: Some(starter.clone()) }];
        Ok(Self { process, starter, slots })
    }

    pub(super) fn starter(&self) -> LocalRegion {
        self.starter.clone()
    }

    pub(super) fn register(&mut self, memory: Arc<SharedMemory>, bytes: usize) -> LocalRegion {
        let index = self.slots.iter().position(|slot| slot.region.is_none()).unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, region: None });
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        let key = RemoteKey {
            process: self.process,
            slot: index as u32,
            generation: slot.generation,
            reserved: 0,
            bytes: bytes as u64,
        };
        slot.region.insert(LocalRegion::new(key, memory)).clone()
    }

    pub(super) fn deregister(&mut self, key: RemoteKey) -> Result<(), FabricError> {
        if key.slot == 0 || self.find(key).is_none() {
            return Err(FabricError::StaleKey { key });
        }
        let slot = &mut self.slots[key.slot as usize];
        slot.region = None;
        slot.generation = slot.generation.wrapping_add(1);
        Ok(())
    }

    pub(super) fn find(&self, key: RemoteKey) -> Option<&LocalRegion> {
        self.slots.get(key.slot as usize)?.region.as_ref().filter(|region| region.key() == key)
    }
}

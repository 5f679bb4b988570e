//! What others ask of this process.

use std::collections::HashMap;

use super::packet::{Answer, Ask, NativeAccess, Packet, Refusal, RegionName, RequestId};
use super::{Malformed, Registration};
use crate::ids::ProcessId;
use crate::region::{self, LocalRegion};
use crate::regions::RegionTable;
use crate::transport::{FabricError, Operation, Outcome, RemoteKey};

#[derive(Debug)]
pub(super) struct Owner {
    regions: RegionTable,
    /// What those who attach a region are told, for each that is registered.
    access: HashMap<RemoteKey, NativeAccess>,
    /// The regions that each peer has attached, also those whose keys were taken back since.
    granted: HashMap<(ProcessId, RegionName), LocalRegion>,
}

impl Owner {
    pub(super) fn new(process: ProcessId, starter: Registration) -> Self {
        let regions = RegionTable::new(process, starter.memory, starter.bytes);
        let access = HashMap::from([(regions.starter().key(), starter.access)]);
        Self { regions, access, granted: HashMap::new() }
    }

    pub(super) fn starter(&self) -> LocalRegion {
        self.regions.starter()
    }

    pub(super) fn register(&mut self, registration: Registration) -> LocalRegion {
        let region = self.regions.register(registration.memory, registration.bytes);
        self.access.insert(region.key(), registration.access);
        region
    }

    pub(super) fn deregister(&mut self, key: RemoteKey) -> Result<(), FabricError> {
        self.regions.deregister(key)?;
        self.access.remove(&key);
        Ok(())
    }

    pub(super) fn find(&self, key: RemoteKey) -> Option<&LocalRegion> {
        self.regions.find(key)
    }

    /// What a region was registered with; nothing when its key was taken back.
    pub(super) fn access(&self, key: RemoteKey) -> NativeAccess {
        self.access.get(&key).copied().unwrap_or_default()
    }

    pub(super) fn is_held(&self, key: RemoteKey) -> bool {
        self.granted.values().any(|region| region.key() == key)
    }

    pub(super) fn lose(&mut self, peer: ProcessId) {
        self.granted.retain(|(holder, _), _| *holder != peer);
    }

    /// Does what is asked, and encodes the answer.
    pub(super) fn answer(
        &mut self,
        from: ProcessId,
        id: RequestId,
        region: RegionName,
        ask: &Ask<'_>,
        data_max: usize,
    ) -> Result<Vec<u8>, Malformed> {
        let operation = match *ask {
            Ask::Attach => {
                let answer = self.grant(from, region).unwrap_or(Answer::Refused(Refusal::StaleKey));
                return Ok(Packet::Answer { id, answer }.encode());
            }
            Ask::Put { offset, data } => Operation::Put { offset, data: data.to_vec() },
            // Checked before memory is taken for it.
            Ask::Get { bytes, .. } if bytes as usize > data_max => {
                return Err(Malformed::TooMuch { bytes: bytes as usize, max: data_max });
            }
            Ask::Get { offset, bytes } => Operation::Get { offset, bytes: bytes as usize },
            Ask::Atomic32 { offset, change } => Operation::Atomic32 { offset, change },
            Ask::Atomic64 { offset, change } => Operation::Atomic64 { offset, change },
        };
        let outcome = match self.granted.get(&(from, region)) {
            Some(region) => region::execute(region.key(), region.memory(), operation).map_err(|error| match error {
                FabricError::Misaligned { .. } => Refusal::Misaligned,
                _ => Refusal::OutOfRange,
            }),
            None => Err(Refusal::StaleKey),
        };
        let answer = match &outcome {
            Ok(Outcome::Put(_)) => Answer::Done,
            Ok(Outcome::Got(data)) => Answer::Got(data),
            Ok(Outcome::Previous(previous)) => Answer::Previous(*previous),
            Err(refusal) => Answer::Refused(*refusal),
        };
        Ok(Packet::Answer { id, answer }.encode())
    }

    fn grant(&mut self, from: ProcessId, name: RegionName) -> Option<Answer<'static>> {
        let region = self.regions.find_slot(name.slot, name.generation)?;
        let key = region.key();
        self.granted.insert((from, name), region.clone());
        Some(Answer::Attached { bytes: key.bytes, access: self.access(key) })
    }
}

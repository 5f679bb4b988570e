//! The requests of other processes to this one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::packet::{Answer, Ask, NativeAccess, Packet, Refusal, RequestId};
use super::{Malformed, Registration};
use crate::ids::ProcessId;
use crate::region::LocalRegion;
use crate::region::{Lease, Naming, RegionMemory, RegionTable, UserRegion};
use crate::transport::{Completion, FabricError, Operation, Outcome, RegionName, RemoteKey};

#[derive(Debug)]
pub(crate) struct Owner {
    regions: RegionTable,
    /// The native access of each region that has one, sent to the peers that attach it, as long as
    /// a peer may use it.
    access: HashMap<RegionName, NativeAccess>,
    /// The holders of each region. A withdrawn region is held by those that have not reported its
    /// release.
    holders: BTreeMap<(RegionName, ProcessId), Holder>,
    /// Withdrawn regions with holders, or with accesses of this process under way.
    leaving: BTreeMap<RegionName, Completion>,
    /// The withdrawn regions that no peer uses any more.
    unheld: BTreeSet<RegionName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Alive,
    /// The holder is gone, and its native accesses may still be in flight.
    Lost,
}

impl Owner {
    pub(crate) fn new(process: ProcessId, starter: Registration) -> Self {
        let regions = RegionTable::new(process, starter.memory, starter.bytes);
        let name = RegionName::from(regions.starter().key());
        let access = starter.access.map(|access| (name, access)).into_iter().collect();
        Self { regions, access, holders: BTreeMap::new(), leaving: BTreeMap::new(), unheld: BTreeSet::new() }
    }

    pub(crate) fn starter(&self) -> LocalRegion {
        self.regions.starter()
    }

    pub(crate) fn register(&mut self, naming: Naming, registration: Registration) -> LocalRegion {
        let Registration { memory, bytes, access } = registration;
        let key = self.regions.register(naming, RegionMemory::Shared(memory.clone()), bytes);
        let key = key.expect("only user memory is refused");
        self.access.extend(access.map(|access| (key.into(), access)));
        LocalRegion::new(key, memory)
    }

    pub(crate) fn register_user(
        &mut self,
        naming: Naming,
        lease: Arc<Lease>,
        access: Option<NativeAccess>,
    ) -> Result<UserRegion, FabricError> {
        let key = self.regions.register(naming, RegionMemory::User(lease.clone()), lease.memory().bytes())?;
        self.access.extend(access.map(|access| (key.into(), access)));
        Ok(UserRegion::new(key, lease))
    }

    /// Withdraws a key. Returns the holders to tell.
    pub(crate) fn deregister(&mut self, key: RemoteKey) -> Result<(Completion, Vec<ProcessId>), FabricError> {
        self.regions.withdraw(key)?;
        let completion = Completion::pending();
        self.leaving.insert(key.into(), completion.clone());
        self.note_if_unheld(key.into());
        let told = self.holders_of(key.into()).filter(|(_, holder)| *holder == Holder::Alive);
        let told = told.map(|(process, _)| process).collect();
        self.settle();
        Ok((completion, told))
    }

    /// Records that a holder has released a region.
    pub(crate) fn released(&mut self, by: ProcessId, name: RegionName) {
        self.holders.remove(&(name, by));
        self.note_if_unheld(name);
        self.settle();
    }

    /// Records that a peer is gone. Its requests have been executed or never will be. Only its
    /// native accesses may still be in flight.
    pub(crate) fn lose(&mut self, peer: ProcessId) {
        let Self { holders, access, .. } = self;
        holders.retain(|(name, process), holder| {
            if *process == peer {
                *holder = Holder::Lost;
            }
            *process != peer || access.contains_key(name)
        });
        self.note_all_unheld();
        self.settle();
    }

    /// Records that no access of a lost peer is in flight any more.
    pub(super) fn confirm_loss(&mut self, peer: ProcessId) {
        self.holders.retain(|(_, process), holder| *process != peer || *holder == Holder::Alive);
        self.note_all_unheld();
        self.settle();
    }

    fn note_if_unheld(&mut self, name: RegionName) {
        if self.leaving.contains_key(&name) && self.holders_of(name).next().is_none() {
            self.unheld.insert(name);
        }
    }

    fn note_all_unheld(&mut self) {
        let leaving: Vec<RegionName> = self.leaving.keys().copied().collect();
        leaving.into_iter().for_each(|name| self.note_if_unheld(name));
    }

    /// The regions that a process holds with native access.
    pub(super) fn natively_held_by(&self, peer: ProcessId) -> impl Iterator<Item = RegionName> {
        let held = self.holders.keys().filter(move |(_, process)| *process == peer);
        held.map(|(name, _)| *name).filter(|name| self.access.contains_key(name))
    }

    /// Ends the deregistrations that have no holder any more. Those of regions with a native access
    /// are left to the transport.
    pub(crate) fn settle(&mut self) {
        let is_done = |name: &RegionName| !self.access.contains_key(name) && self.is_idle(*name);
        let done: Vec<RegionName> = self.unheld.iter().copied().filter(is_done).collect();
        done.into_iter().for_each(|name| self.finish(name, true));
    }

    /// The withdrawn regions with a native access that have no holder any more.
    pub(super) fn left(&self) -> impl Iterator<Item = RegionName> {
        self.unheld.iter().copied().filter(|name| self.access.contains_key(name) && self.is_idle(*name))
    }

    /// Frees the slot of a region that has no holder any more. `is_released`: no peer can access
    /// its memory either.
    pub(super) fn finish(&mut self, name: RegionName, is_released: bool) {
        self.access.remove(&name);
        self.unheld.remove(&name);
        if let Some(memory) = self.regions.free(name)
            && is_released
        {
            memory.release();
        }
        if let Some(completion) = self.leaving.remove(&name) {
            completion.end(Ok(Outcome::Got(Vec::new())));
        }
    }

    pub(super) fn leave_what_is_held(&self) {
        for (name, _) in self.holders.keys().filter(|(name, _)| self.access.contains_key(name)) {
            let memory = self.regions.find_named(*name).map(|(_, memory)| memory);
            if let Some(RegionMemory::User(lease)) = memory.or_else(|| self.regions.find_leaving(*name)) {
                std::mem::forget(lease.clone());
            }
        }
    }

    /// Returns whether no thread of this process accesses a withdrawn region.
    fn is_idle(&self, name: RegionName) -> bool {
        self.regions.find_leaving(name).is_none_or(RegionMemory::is_idle)
    }

    fn holders_of(&self, name: RegionName) -> impl Iterator<Item = (ProcessId, Holder)> {
        let all = (name, ProcessId::new(0))..=(name, ProcessId::new(u32::MAX));
        self.holders.range(all).map(|((_, process), holder)| (*process, *holder))
    }

    pub(crate) fn find(&self, key: RemoteKey) -> Option<&RegionMemory> {
        self.regions.find(key)
    }

    pub(super) fn find_named(&self, name: RegionName) -> Option<(RemoteKey, &RegionMemory)> {
        self.regions.find_named(name)
    }

    /// The memory of a region for a process that accesses it. This includes a withdrawn region that
    /// the process holds.
    pub(crate) fn memory_for(&self, by: ProcessId, key: RemoteKey) -> Option<&RegionMemory> {
        let is_holder = self.holders.contains_key(&(key.into(), by));
        self.regions.find(key).or_else(|| self.regions.find_leaving(key.into()).filter(|_| is_holder))
    }

    pub(super) fn access(&self, key: RemoteKey) -> Option<NativeAccess> {
        self.access.get(&key.into()).copied()
    }

    pub(super) fn is_held_by(&self, peer: ProcessId, key: RemoteKey) -> bool {
        self.holders.contains_key(&(key.into(), peer))
    }

    pub(super) fn is_held(&self, key: RemoteKey) -> bool {
        self.holders_of(key.into()).next().is_some()
    }

    /// Executes a request, and encodes the answer.
    pub(super) fn answer(
        &mut self,
        from: ProcessId,
        id: RequestId,
        region: RegionName,
        (ask, data): (Ask, &[u8]),
        data_max: usize,
    ) -> Result<Vec<u8>, Malformed> {
        let operation = match ask {
            Ask::Attach => {
                let answer = self.grant(from, region).map_or(Answer::Refused(Refusal::StaleKey), |(key, memory)| {
                    let is_writable = memory.is_writable();
                    Answer::Attached { bytes: key.bytes, access: self.access(key), is_writable }
                });
                return Ok(Packet::Answer { id, answer }.encode(&[]));
            }
            Ask::Put { offset } => Operation::Put { offset, data: data.to_vec() },
            // Checked before memory is allocated for it.
            Ask::Get { bytes, .. } if bytes as usize > data_max => {
                return Err(Malformed::TooMuch { bytes: bytes as usize, max: data_max });
            }
            Ask::Get { offset, bytes } => Operation::get(offset, bytes as usize),
            Ask::Atomic32 { offset, change } => Operation::Atomic32 { offset, change },
            Ask::Atomic64 { offset, change } => Operation::Atomic64 { offset, change },
        };
        let is_holder = self.holders.contains_key(&(region, from));
        let outcome = match self.regions.find_named(region).filter(|_| is_holder) {
            Some((key, memory)) => memory.execute(key, operation).map_err(|error| match error {
                FabricError::Misaligned { .. } => Refusal::Misaligned,
                FabricError::ReadOnly { .. } => Refusal::ReadOnly,
                FabricError::StaleKey { .. } => Refusal::StaleKey,
                _ => Refusal::OutOfRange,
            }),
            None => Err(Refusal::StaleKey),
        };
        let (answer, data) = match &outcome {
            Ok(Outcome::Put(_)) => (Answer::Done, &[][..]),
            Ok(Outcome::Got(data)) => (Answer::Got, &data[..]),
            Ok(Outcome::Previous(previous)) => (Answer::Previous(*previous), &[][..]),
            Err(refusal) => (Answer::Refused(*refusal), &[][..]),
        };
        Ok(Packet::Answer { id, answer }.encode(data))
    }

    /// Records that a process holds a region from now on.
    pub(crate) fn grant(&mut self, to: ProcessId, name: RegionName) -> Option<(RemoteKey, RegionMemory)> {
        let (key, memory) = self.regions.find_named(name)?;
        self.holders.insert((name, to), Holder::Alive);
        Some((key, memory.clone()))
    }
}

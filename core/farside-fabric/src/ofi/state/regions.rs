//! Memory of this process that libfabric accesses, and the release of that memory and of its peers'
//! memory.
//!
//! # When a registration may be closed
//!
//! Over `tcp`, the provider looks a key up when the head of a write has arrived. It then reads the
//! rest from the socket directly into the target memory, as it arrives. It holds no registration
//! meanwhile, so closing the registration does not stop a write that has begun. Memory may
//! therefore go only while no peer's write is incomplete.
//!
//! A *live* holder reports that: this side has acknowledged each of its puts, and each of its gets
//! has all its bytes. (Over `verbs`, closing would suffice: the adapter refuses later accesses.)
//!
//! For a *lost* holder there is no such report. Its data may still be in the socket, and libfabric
//! does not report the end of a connection. Memory that a lost peer holds therefore goes into
//! *quarantine*: it stays registered until the endpoint is closed, and is counted. That is possible
//! only for memory that the fabric owns. The owner of **borrowed** private memory is promised to
//! get it back, so such memory is never registered with libfabric. This process copies for the
//! requester instead, and stops when it has withdrawn the key.

use std::sync::Arc;

use farside_sys::shm::SharedMemory;

use super::State;
use crate::emulated::{NativeAccess, Registration as NewRegion};
use crate::ids::ProcessId;
use crate::ofi::port::{Port, Registration, Rights, random_key};
use crate::region::LocalRegion;
use crate::region::{Lease, Naming, RegionMemory, UserRegion};
use crate::transport::{Completion, FabricError, RegionName, RemoteKey};

/// A region of this process that is registered with libfabric.
#[derive(Debug)]
pub(super) struct Native {
    generation: u32,
    registration: Registration,
    /// Kept alive as long as it is registered.
    memory: RegionMemory,
    is_leaving: bool,
    /// True if a lost peer held it.
    is_tainted: bool,
}

/// The regions of this process that are registered with libfabric, by slot.
#[derive(Debug, Default)]
pub(super) struct Natives {
    slots: Vec<Option<Native>>,
    /// Regions that a lost peer may still write. They stay until the endpoint is closed.
    quarantine: Vec<(Registration, RegionMemory)>,
    /// Withdrawn regions of peers to which this process still has operations in flight.
    closing: Vec<RemoteKey>,
}

impl Natives {
    fn insert(&mut self, key: RemoteKey, registration: Registration, memory: RegionMemory) {
        let slot = key.slot as usize;
        self.slots.resize_with(self.slots.len().max(slot + 1), || None);
        let generation = key.generation;
        self.slots[slot] = Some(Native { generation, registration, memory, is_leaving: false, is_tainted: false });
    }

    fn find(&mut self, name: RegionName) -> Option<&mut Native> {
        let native = self.slots.get_mut(name.slot as usize)?.as_mut();
        native.filter(|native| native.generation == name.generation)
    }

    /// The registration of a region, if the region is in use.
    pub(super) fn registration(&self, name: RegionName) -> Option<Registration> {
        let native = self.slots.get(name.slot as usize)?.as_ref();
        let native = native.filter(|native| native.generation == name.generation && !native.is_leaving);
        native.map(|native| native.registration)
    }
}

impl State {
    pub(in crate::ofi) fn starter(&self) -> LocalRegion {
        self.engine.starter()
    }

    pub(super) fn note_starter(&mut self, registration: Registration, memory: Arc<SharedMemory>) {
        let key = self.engine.starter().key();
        self.natives.insert(key, registration, RegionMemory::Shared(memory));
    }

    pub(in crate::ofi) fn register(
        &mut self,
        naming: Naming,
        memory: Arc<SharedMemory>,
        bytes: usize,
    ) -> Result<LocalRegion, FabricError> {
        let (access, registration) = register_shared(&mut self.port, &memory)?;
        let region = self.engine.register_as(naming, NewRegion { memory: memory.clone(), bytes, access: Some(access) });
        self.natives.insert(region.key(), registration, RegionMemory::Shared(memory));
        Ok(region)
    }

    pub(in crate::ofi) fn register_user(
        &mut self,
        naming: Naming,
        lease: Arc<Lease>,
    ) -> Result<UserRegion, FabricError> {
        let memory = lease.memory();
        if !memory.is_owned() || memory.bytes() == 0 {
            return self.engine.register_user_as(naming, lease, None);
        }
        let (start, bytes) = (memory.base().as_ptr(), memory.bytes());
        let rights = if memory.is_writable() { Rights::All } else { Rights::Read };
        // SAFETY: the lease owns the memory, and is in `natives` until the registration is closed,
        // or until after the port is dropped.
        let registration = unsafe { self.port.register(start, bytes, random_key()?, rights) }?;
        let access = NativeAccess { key: registration.key, base: start.expose_provenance() as u64 };
        match self.engine.register_user_as(naming, lease.clone(), Some(access)) {
            Ok(region) => {
                self.natives.insert(region.key(), registration, RegionMemory::User(lease));
                Ok(region)
            }
            Err(error) => {
                self.port.deregister(registration);
                Err(error)
            }
        }
    }

    pub(in crate::ofi) fn deregister(&mut self, key: RemoteKey) -> Result<Completion, FabricError> {
        let completion = self.engine.deregister(key)?;
        if let Some(native) = self.natives.find(key.into()) {
            native.is_leaving = true;
        }
        self.settle_regions();
        self.flush_engine();
        Ok(completion)
    }

    /// Number of regions that stay registered although they were withdrawn, because a lost peer
    /// held them.
    pub(in crate::ofi) fn quarantined_regions(&self) -> usize {
        self.natives.quarantine.len()
    }

    /// Advances the withdrawal of regions.
    pub(super) fn settle_regions(&mut self) {
        while let Some(key) = self.engine.next_revoked() {
            self.queues.forget_access(key);
            self.natives.closing.push(key);
        }
        if !self.natives.closing.is_empty() {
            self.release_revoked();
        }
        let left: Vec<RegionName> = self.engine.left().collect();
        for name in left {
            self.leave(name);
        }
    }

    /// Releases peers' withdrawn regions to which this process has no operations in flight.
    fn release_revoked(&mut self) {
        for key in std::mem::take(&mut self.natives.closing) {
            // A transfer without a signal is over when a later one is, which its poster may post at
            // any time.
            let Self { queues, port, peers, .. } = self;
            queues.hurry_to(port, key, |peer| peers[peer.index()].address);
            let is_busy = self.queues.reaches(key) || self.transfers.values().any(|transfer| transfer.key == key);
            if !is_busy {
                self.engine.confirm_release(key);
            } else if self.engine.check_peer(key.process).is_ok() {
                self.natives.closing.push(key);
            }
        }
    }

    /// Ends the withdrawal of a region of this process that has no holder any more.
    fn leave(&mut self, name: RegionName) {
        let Self { natives, queues, port, peers, .. } = self;
        let Some(native) = natives.find(name) else { return self.engine.finish(name, true) };
        if let RegionMemory::Shared(memory) = &native.memory
            && queues.uses(memory)
        {
            // The memory is the local side of this process's own transfers. It is checked again
            // when some of them are over.
            return queues.hurry_from(port, memory, |peer| peers[peer.index()].address);
        }
        let is_tainted = native.is_tainted;
        if let Some(native) = self.natives.slots[name.slot as usize].take() {
            if is_tainted {
                self.natives.quarantine.push((native.registration, native.memory));
            } else {
                self.port.deregister(native.registration);
            }
        }
        self.engine.finish(name, !is_tainted);
    }

    /// Marks the regions that a lost peer holds: the peer can never release them.
    pub(super) fn taint_regions_held_by(&mut self, process: ProcessId) {
        for name in self.engine.natively_held_by(process) {
            if let Some(native) = self.natives.find(name) {
                native.is_tainted = true;
            }
        }
    }
}

/// Lets a port access memory that lives as long as its registration.
pub(super) fn register_shared(
    port: &mut Port,
    memory: &Arc<SharedMemory>,
) -> Result<(NativeAccess, Registration), FabricError> {
    let base = memory.base().as_ptr();
    // SAFETY: the callers keep the memory in `natives`, until the registration is closed or after
    // the port is dropped.
    let registration = unsafe { port.register(base, memory.bytes(), random_key()?, Rights::All) }?;
    Ok((NativeAccess { key: registration.key, base: base.expose_provenance() as u64 }, registration))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ofi::pool::tests::{BYTES, finish, pair};
    use crate::region::UserMemory;
    use crate::transport::{Operation, RegionKind};

    const HERE: Naming = Naming::Here(RegionKind::Shared);

    fn register(end: &mut State) -> UserRegion {
        let memory = UserMemory::owned(vec![0; BYTES]);
        end.register_user(HERE, Lease::new(Arc::new(memory))).unwrap()
    }

    fn settle(ends: &mut [State; 2], mut is_done: impl FnMut(&mut [State; 2]) -> bool) {
        let deadline = farside_testbed::deadline();
        while !is_done(ends) {
            assert!(!farside_testbed::is_past(deadline), "the condition does not hold by the deadline");
            ends.iter_mut().for_each(|end| {
                end.progress();
            });
        }
    }

    #[test]
    fn a_holder_releases_nothing_while_a_put_is_under_way() {
        farside_testbed::needs!("fabric");
        let mut ends = pair();
        let region = register(&mut ends[1]);
        let attached = ends[0].attach(region.key()).unwrap();
        finish(&mut ends, &attached);
        let over = ends[1].deregister(region.key()).unwrap();
        // The owner has notified the holder, and makes no progress, so no operation can end.
        let put = ends[0].post(region.key(), Operation::Put { offset: 0, data: vec![7; BYTES] }).unwrap();
        let deadline = farside_testbed::deadline();
        while ends[0].natives.closing.is_empty() {
            assert!(!farside_testbed::is_past(deadline), "the withdrawal has not arrived by the deadline");
            ends[0].progress();
        }
        for _ in 0..1000 {
            ends[0].progress();
        }
        assert!(!put.has_ended() && ends[0].natives.closing == [region.key()], "it has not let go");
        finish(&mut ends, &put);
        finish(&mut ends, &over);
        assert!(region.memory().take_back().unwrap() == vec![7; BYTES]);
        assert!(ends[0].natives.closing.is_empty() && ends[1].natives.registration(region.key().into()).is_none());
    }

    #[test]
    fn blocks_of_a_lost_peer_stay_and_are_counted() {
        farside_testbed::needs!("fabric");
        let mut ends = pair();
        let [held, free] = [0, 1].map(|_| register(&mut ends[1]));
        let attached = ends[0].attach(held.key()).unwrap();
        finish(&mut ends, &attached);
        ends[1].lose(ProcessId::new(0));
        for (region, is_free) in [(held, false), (free, true)] {
            let over = ends[1].deregister(region.key()).unwrap();
            settle(&mut ends, |_| over.has_ended());
            assert_eq!(region.memory().take_back().is_some(), is_free);
        }
        assert_eq!(ends[1].quarantined_regions(), 1);
    }

    /// The owner executes every operation for the others, and can release the memory at once.
    #[test]
    fn borrowed_memory_is_not_registered() {
        farside_testbed::needs!("fabric");
        let mut ends = pair();
        let mut bytes = [0_u8; 100];
        // SAFETY: the bytes are accessed again only when the deregistration is over.
        let memory = unsafe { UserMemory::borrowed(std::ptr::NonNull::from(&mut bytes).cast(), 100) };
        let region = ends[1].register_user(HERE, Lease::new(Arc::new(memory))).unwrap();
        assert!(ends[1].natives.registration(region.key().into()).is_none());
        let attached = ends[0].attach(region.key()).unwrap();
        finish(&mut ends, &attached);
        let put = ends[0].post(region.key(), Operation::Put { offset: 20, data: vec![7; 50] }).unwrap();
        finish(&mut ends, &put);
        ends[1].lose(ProcessId::new(0));
        let over = ends[1].deregister(region.key()).unwrap();
        assert!(over.has_ended() && ends[1].quarantined_regions() == 0);
        assert_eq!(bytes[20..70], [7; 50]);
    }

    #[test]
    fn a_region_is_registered_no_longer_when_its_holders_have_released_it() {
        farside_testbed::needs!("fabric");
        let mut ends = pair();
        let memory = Arc::new(SharedMemory::create("test", 4096).unwrap());
        let weak = Arc::downgrade(&memory);
        let key = ends[1].register(HERE, memory, 4096).unwrap().key();
        let attached = ends[0].attach(key).unwrap();
        finish(&mut ends, &attached);
        let over = ends[1].deregister(key).unwrap();
        assert!(!over.has_ended() && weak.upgrade().is_some());
        finish(&mut ends, &over);
        assert!(weak.upgrade().is_none(), "nothing keeps the memory");
    }
}

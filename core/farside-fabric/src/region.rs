//! Registered memory, from the view of its owner and of its peers.

mod execute;
pub mod flights;
mod gate;
mod nearby;
mod table;
mod user;

use std::sync::Arc;
use std::time::Instant;

use farside_sys::racy;
use farside_sys::shm::SharedMemory;

use self::execute::{apply32, apply64};
use self::flights::nap_while_full;
use crate::operation::{AtomicChange, Carrier, FabricError, Operation, Outcome, RemoteKey};

pub use self::execute::execute;
pub(crate) use self::nearby::{Nearby, Refused};
pub(crate) use self::table::{Names, Naming, RegionTable};
pub use self::user::{Held, UserMemory, UserRegion};
pub(crate) use self::user::{Lease, RegionMemory};

/// Memory of this process that peers can access.
#[derive(Clone, Debug)]
pub struct LocalRegion {
    key: RemoteKey,
    memory: Arc<SharedMemory>,
}

impl LocalRegion {
    /// Creates a region with this key. For transports.
    ///
    /// # Panics
    /// If the key names more bytes than the memory has.
    pub fn new(key: RemoteKey, memory: Arc<SharedMemory>) -> Self {
        assert!(key.bytes as usize <= memory.bytes(), "a key names memory that exists");
        Self { key, memory }
    }

    /// The key by which peers attach the region.
    #[inline]
    pub fn key(&self) -> RemoteKey {
        self.key
    }

    /// The memory of the region.
    #[inline]
    pub fn memory(&self) -> &Arc<SharedMemory> {
        &self.memory
    }

    /// The owner's own access, equal to a peer's.
    pub fn as_remote(&self) -> RemoteRegion {
        RemoteRegion { key: self.key, access: Access::Mapped(self.memory.clone()) }
    }
}

/// A peer's memory, attached by this process.
///
/// Every access is checked against the region's size. `put` and `get` have ended when they return:
/// the local buffer is free again. The bytes of a put are then visible to every process that reads
/// them after it has learned of the put.
///
/// *Cost* when [mapped](Self::mapped): a copy by the caller's CPU, no system call, no attention of
/// the owner. Otherwise a round trip; for [user memory](crate::region::UserMemory) on this machine
/// a system call, if the system allows it.
#[derive(Clone, Debug)]
pub struct RemoteRegion {
    key: RemoteKey,
    access: Access,
}

#[derive(Clone, Debug)]
enum Access {
    Mapped(Arc<SharedMemory>),
    Posted(Arc<dyn Carrier>),
    /// User memory of this process.
    Own(Arc<Lease>),
    /// User memory of another process of this machine; atomics are posted.
    Nearby(Arc<Nearby>, Arc<dyn Carrier>),
}

impl RemoteRegion {
    /// Creates a region whose memory is mapped here. For transports.
    ///
    /// # Panics
    /// If the key names more bytes than are mapped.
    pub fn mapped_at(key: RemoteKey, memory: Arc<SharedMemory>) -> Self {
        assert!(key.bytes as usize <= memory.bytes(), "a key names memory that is mapped");
        Self { key, access: Access::Mapped(memory) }
    }

    /// Creates a region that is accessed by posted operations. For transports.
    pub fn posted_on(key: RemoteKey, transport: Arc<dyn Carrier>) -> Self {
        Self { key, access: Access::Posted(transport) }
    }

    pub(crate) fn of_own(key: RemoteKey, lease: Arc<Lease>) -> Self {
        Self { key, access: Access::Own(lease) }
    }

    pub(crate) fn nearby(key: RemoteKey, nearby: Arc<Nearby>, transport: Arc<dyn Carrier>) -> Self {
        Self { key, access: Access::Nearby(nearby, transport) }
    }

    /// The key by which the region was attached.
    #[inline]
    pub fn key(&self) -> RemoteKey {
        self.key
    }

    /// The mapping, if there is one. The holder of the `Arc` may access the bytes through [`racy`]
    /// or atomics.
    #[inline]
    pub fn mapped(&self) -> Option<&Arc<SharedMemory>> {
        match &self.access {
            Access::Mapped(memory) => Some(memory),
            Access::Posted(_) | Access::Own(_) | Access::Nearby(..) => None,
        }
    }

    /// Returns whether an access may have to wait for the owner. It never has to for this process's
    /// own memory and for mapped memory. On user memory of this machine only atomics wait, as long
    /// as the system allows the system calls.
    pub fn waits(&self, for_word: bool) -> bool {
        match &self.access {
            Access::Mapped(_) | Access::Own(_) => false,
            Access::Posted(_) => true,
            Access::Nearby(nearby, _) => for_word || nearby.is_refused(),
        }
    }

    /// Writes `data` at `offset`.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`]; if the region is not mapped, also [`FabricError::StaleKey`],
    /// [`FabricError::ReadOnly`], [`FabricError::Deadline`], [`FabricError::Disconnected`].
    #[inline]
    pub fn put(&self, offset: u64, data: &[u8], deadline: Instant) -> Result<(), FabricError> {
        self.key.check(offset, data.len())?;
        match &self.access {
            Access::Mapped(memory) => {
                let target = memory.base().as_ptr().wrapping_add(offset as usize);
                // SAFETY: `data` is readable; `check` found the target range inside the region,
                // which is at most as long as the mapping that `memory` keeps alive.
                unsafe { racy::copy_out(data.as_ptr(), target, data.len()) };
                Ok(())
            }
            _ => self.put_otherwise(offset, data, deadline),
        }
    }

    /// Reads into `data` from `offset`.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`]; if the region is not mapped, also [`FabricError::StaleKey`],
    /// [`FabricError::Deadline`], [`FabricError::Disconnected`].
    #[inline]
    pub fn get(&self, offset: u64, data: &mut [u8], deadline: Instant) -> Result<(), FabricError> {
        self.key.check(offset, data.len())?;
        match &self.access {
            Access::Mapped(memory) => {
                let source = memory.base().as_ptr().wrapping_add(offset as usize);
                // SAFETY: `data` is writable; `check` found the source range inside the region,
                // which is at most as long as the mapping that `memory` keeps alive.
                unsafe { racy::copy_in(source, data.as_mut_ptr(), data.len()) };
                Ok(())
            }
            _ => self.get_otherwise(offset, data, deadline),
        }
    }

    fn put_otherwise(&self, offset: u64, data: &[u8], deadline: Instant) -> Result<(), FabricError> {
        let posted =
            |transport| self.run(transport, Operation::Put { offset, data: data.to_vec() }, deadline).map(drop);
        match &self.access {
            Access::Mapped(_) => unreachable!("mapped regions are accessed directly"),
            Access::Own(lease) => lease.put(self.key, offset, data),
            Access::Posted(transport) => posted(transport),
            Access::Nearby(nearby, transport) => match nearby.put(self.key, offset, data, transport) {
                Err(Refused::BySystem) => posted(transport),
                Err(Refused::With(error)) => Err(error),
                Ok(()) => Ok(()),
            },
        }
    }

    fn get_otherwise(&self, offset: u64, data: &mut [u8], deadline: Instant) -> Result<(), FabricError> {
        let transport = match &self.access {
            Access::Mapped(_) => unreachable!("mapped regions are accessed directly"),
            Access::Own(lease) => return lease.get(self.key, offset, data),
            Access::Posted(transport) => transport,
            Access::Nearby(nearby, transport) => match nearby.get(self.key, offset, data, transport) {
                Err(Refused::BySystem) => transport,
                Err(Refused::With(error)) => return Err(error),
                Ok(()) => return Ok(()),
            },
        };
        let got = self.run(transport, Operation::get(offset, data.len()), deadline)?;
        data.copy_from_slice(&got.into_bytes(self.key.process, data.len())?);
        Ok(())
    }

    /// Changes the 64-bit word at `offset` and returns its previous value.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`], [`FabricError::Misaligned`]; if the region is not mapped, also
    /// [`FabricError::StaleKey`], [`FabricError::ReadOnly`], [`FabricError::Deadline`],
    /// [`FabricError::Disconnected`].
    #[inline]
    pub fn atomic64(&self, offset: u64, change: AtomicChange<u64>, deadline: Instant) -> Result<u64, FabricError> {
        self.key.check_word(offset, 8)?;
        match &self.access {
            Access::Mapped(memory) => {
                let address = memory.base().as_ptr().wrapping_add(offset as usize);
                // SAFETY: `check_word` found the word inside the region, which is at most as long
                // as the mapping that `memory` keeps alive. It is aligned, because the mapping is
                // and `check_word` found its offset a multiple of its size.
                Ok(unsafe { apply64(address, change) })
            }
            _ => self.run_atomic(Operation::Atomic64 { offset, change }, deadline),
        }
    }

    /// Changes the 32-bit word at `offset` and returns its previous value.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`], [`FabricError::Misaligned`]; if the region is not mapped, also
    /// [`FabricError::StaleKey`], [`FabricError::ReadOnly`], [`FabricError::Deadline`],
    /// [`FabricError::Disconnected`].
    #[inline]
    pub fn atomic32(&self, offset: u64, change: AtomicChange<u32>, deadline: Instant) -> Result<u32, FabricError> {
        self.key.check_word(offset, 4)?;
        match &self.access {
            Access::Mapped(memory) => {
                let address = memory.base().as_ptr().wrapping_add(offset as usize);
                // SAFETY: `check_word` found the word inside the region, which is at most as long
                // as the mapping that `memory` keeps alive. It is aligned, because the mapping is
                // and `check_word` found its offset a multiple of its size.
                Ok(unsafe { apply32(address, change) })
            }
            _ => self.run_atomic(Operation::Atomic32 { offset, change }, deadline).map(|previous| previous as u32),
        }
    }

    fn run_atomic(&self, operation: Operation, deadline: Instant) -> Result<u64, FabricError> {
        let outcome = match &self.access {
            Access::Mapped(_) => unreachable!("mapped regions are accessed directly"),
            Access::Own(lease) => lease.execute(self.key, operation)?,
            Access::Posted(transport) | Access::Nearby(_, transport) => self.run(transport, operation, deadline)?,
        };
        match outcome {
            Outcome::Previous(previous) => Ok(previous),
            Outcome::Put(_) | Outcome::Got(_) => unreachable!("an atomic ends with the word's previous value"),
        }
    }

    /// Posts an operation as soon as there is room for it, and waits for its end.
    fn run(
        &self,
        transport: &Arc<dyn Carrier>,
        mut operation: Operation,
        deadline: Instant,
    ) -> Result<Outcome, FabricError> {
        let process = self.key.process;
        loop {
            match transport.post(self.key, operation) {
                Ok(completion) => return completion.wait(&**transport, process, deadline),
                Err(unposted) => operation = unposted.for_lack_of_room()?,
            }
            nap_while_full(&**transport, process, deadline)?;
        }
    }
}

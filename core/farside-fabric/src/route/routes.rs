//! Shared memory to some peers, libfabric to the others.
//!
//! What is sent must fit the smaller limit of both transports, whichever of them carries it. A lock
//! of its own guards the names of regions, and is held while both transports register or
//! deregister.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farside_sys::shm::SharedMemory;

use crate::clock::lock;
use crate::ids::ProcessId;
use crate::ofi::OfiEndpoint;
use crate::region::{Lease, Names, Naming, UserMemory, UserRegion};
use crate::region::{LocalRegion, RemoteRegion};
use crate::shm::{ShmConfig, ShmEndpoint};
use crate::transport::{
    Capabilities, Carrier, Completion, Event, FabricError, Operation, Outcome, RegionKind, RegionName, RemoteKey,
    Transport, Unposted,
};

/// Interval at which a sleeping thread checks whether a peer on this machine has freed space.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// The transport by which a peer is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// The peer is on this machine, and shares its memory.
    Shm,
    /// The peer is on another machine, or cannot be reached by shared memory.
    Ofi,
}

/// One process's end of a fabric that reaches each peer by one of two transports.
#[derive(Debug)]
pub struct Routes {
    shm: Arc<ShmEndpoint>,
    ofi: Arc<OfiEndpoint>,
    kinds: Box<[RouteKind]>,
    registered: Mutex<Registered>,
}

/// The names of regions, common to both transports.
#[derive(Debug)]
struct Registered {
    names: Names,
    leaving: Vec<Leaving>,
}

/// A region whose key was withdrawn.
#[derive(Debug)]
struct Leaving {
    name: RegionName,
    both: [Completion; 2],
    completion: Completion,
}

impl Registered {
    /// Completes the deregistrations that have completed on both transports.
    fn settle(&mut self) {
        let Self { names, leaving } = self;
        for gone in leaving.extract_if(.., |leaving| leaving.both.iter().all(Completion::has_ended)) {
            names.give_back(gone.name);
            gone.completion.end(Ok(Outcome::Got(Vec::new())));
        }
    }
}

impl Routes {
    /// Opens shared memory next to an open libfabric endpoint: over the same starter memory, and
    /// for the peers whose entry in `kinds` is [`RouteKind::Shm`].
    ///
    /// # Errors
    /// [`FabricError::System`] if another process already listens under this name, or descriptors
    /// are exhausted.
    ///
    /// # Panics
    /// If `kinds` does not have one entry per process.
    pub fn open(config: ShmConfig, ofi: Arc<OfiEndpoint>, kinds: Vec<RouteKind>) -> Result<Self, FabricError> {
        assert_eq!(kinds.len(), config.process_count as usize, "`kinds` has one entry per process");
        let shared = kinds.iter().filter(|kind| **kind == RouteKind::Shm).count();
        tracing::debug!(process = config.process.number(), shared, processes = kinds.len(), "routes chosen");
        let starter: Arc<SharedMemory> = ofi.starter().memory().clone();
        let shm = ShmEndpoint::open_over(config, starter)?;
        let names = Names::new(ofi.starter().key());
        Ok(Self { shm, ofi, kinds: kinds.into(), registered: Mutex::new(Registered { names, leaving: Vec::new() }) })
    }

    fn kind(&self, process: ProcessId) -> RouteKind {
        self.kinds.get(process.index()).copied().unwrap_or(RouteKind::Ofi)
    }

    /// Returns the end over libfabric, if `process` is reached by it.
    pub fn over_ofi(&self, process: ProcessId) -> Option<&OfiEndpoint> {
        (self.kind(process) == RouteKind::Ofi).then_some(&*self.ofi)
    }

    fn to(&self, process: ProcessId) -> &dyn Transport {
        match self.kind(process) {
            RouteKind::Shm => &*self.shm,
            RouteKind::Ofi => &*self.ofi,
        }
    }

    /// Passes on an event that came by the transport by which its peer is reached.
    fn checked(&self, event: Event, kind: RouteKind) -> Option<Event> {
        let (Event::Message { from: process, .. } | Event::Disconnected { process }) = &event;
        (self.kind(*process) == kind).then_some(event)
    }
}

impl Carrier for Routes {
    fn post(&self, key: RemoteKey, operation: Operation) -> Result<Completion, Unposted> {
        self.to(key.process).post(key, operation)
    }

    fn progress(&self) {
        self.shm.progress();
        self.ofi.progress();
        // If another thread holds the lock, that thread settles the leaving regions, or the next
        // call does.
        if let Ok(mut registered) = self.registered.try_lock() {
            registered.settle();
        }
    }

    fn wake(&self) {
        self.ofi.wake();
    }

    fn stop_polling(&self) {
        self.ofi.stop_polling();
    }
}

impl Transport for Routes {
    fn process(&self) -> ProcessId {
        self.shm.process()
    }

    fn process_count(&self) -> u32 {
        self.shm.process_count()
    }

    fn capabilities(&self) -> Capabilities {
        // The capabilities common to all peers: libfabric guarantees no more than shared memory in
        // every respect except the length of messages.
        let (shm, ofi) = (self.shm.capabilities(), self.ofi.capabilities());
        Capabilities { name: "shm+ofi", message_bytes_max: shm.message_bytes_max.min(ofi.message_bytes_max), ..ofi }
    }

    fn register_memory(
        &self,
        memory: Arc<SharedMemory>,
        bytes: usize,
        kind: RegionKind,
    ) -> Result<LocalRegion, FabricError> {
        let mut registered = lock(&self.registered);
        let name = registered.names.take(kind, bytes);
        // The transport that may refuse comes first.
        match self.ofi.register_memory_as(Naming::Elsewhere(name), memory.clone(), bytes) {
            Ok(_) => Ok(self.shm.register_memory_as(Naming::Elsewhere(name), memory, bytes)),
            Err(error) => {
                registered.names.give_back(name);
                Err(error)
            }
        }
    }

    fn register_user(&self, memory: Arc<UserMemory>) -> Result<UserRegion, FabricError> {
        let mut registered = lock(&self.registered);
        let name = registered.names.take(RegionKind::Shared, memory.bytes());
        let lease = Lease::new(memory);
        match self.ofi.register_user_as(Naming::Elsewhere(name), lease.clone()) {
            // Shared memory refuses only memory of zero bytes, which libfabric has accepted above.
            Ok(_) => self.shm.register_user_as(Naming::Elsewhere(name), lease),
            Err(error) => {
                registered.names.give_back(name);
                Err(error)
            }
        }
    }

    fn deregister(&self, key: RemoteKey) -> Result<Completion, FabricError> {
        let mut registered = lock(&self.registered);
        let both = [self.shm.deregister(key)?, self.ofi.deregister(key)?];
        let completion = Completion::pending();
        registered.leaving.push(Leaving { name: key.into(), both, completion: completion.clone() });
        registered.settle();
        Ok(completion)
    }

    fn starter(&self) -> LocalRegion {
        self.shm.starter()
    }

    fn attach(&self, key: RemoteKey, deadline: Instant) -> Result<RemoteRegion, FabricError> {
        self.to(key.process).attach(key, deadline)
    }

    fn attached(&self, key: RemoteKey) -> Option<RemoteRegion> {
        self.to(key.process).attached(key)
    }

    fn offer(&self, to: ProcessId, key: RemoteKey) -> Result<(), FabricError> {
        self.to(to).offer(to, key)
    }

    fn send(&self, to: ProcessId, message: &[u8]) -> Result<(), FabricError> {
        self.to(to).send(to, message)
    }

    fn send_with(&self, to: ProcessId, bytes: usize, write: &mut dyn FnMut(&mut [u8])) -> Result<(), FabricError> {
        self.to(to).send_with(to, bytes, write)
    }

    fn message_bytes_max(&self, to: ProcessId) -> usize {
        self.to(to).message_bytes_max(to)
    }

    fn receive(&self) -> Option<Event> {
        loop {
            let event = match self.shm.receive() {
                Some(event) => self.checked(event, RouteKind::Shm),
                None => self.checked(self.ofi.receive()?, RouteKind::Ofi),
            };
            if event.is_some() {
                return event;
            }
        }
    }

    fn wait(&self, also: &[BorrowedFd<'_>], deadline: Option<Instant>) {
        let Some(watched) = self.shm.watched() else { return };
        let soon = watched.waits_for_room().then(|| Instant::now() + RETRY_AFTER);
        let all: Vec<BorrowedFd<'_>> = also.iter().copied().chain(watched.fds()).collect();
        self.ofi.wait(&all, [watched.end_of_sleep(deadline), soon].into_iter().flatten().min());
        self.shm.has_woken();
    }

    fn forget(&self, process: ProcessId) {
        self.to(process).forget(process);
    }
}

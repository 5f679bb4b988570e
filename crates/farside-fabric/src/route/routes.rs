//! Shared memory to some peers, libfabric to the others.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use farside_sys::shm::SharedMemory;

use crate::ids::ProcessId;
use crate::ofi::OfiEndpoint;
use crate::region::{LocalRegion, RemoteRegion};
use crate::shm::{ShmConfig, ShmEndpoint};
use crate::transmit::{QueueOptions, TransferQueue};
use crate::transport::{Capabilities, Completion, Event, FabricError, Operation, RemoteKey, Tag, Transport};

/// When a thread that sleeps looks whether a peer on this machine has made room.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// How a peer is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It is on this machine, and shares its memory.
    Shm,
    /// It is on another, or is not to be reached otherwise.
    Ofi,
}

/// The route to a peer, for those who want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The transport's name, with its provider.
    pub name: String,
    /// Why this one.
    pub why: &'static str,
}

/// One process's end of a fabric whose peers are reached in two ways.
#[derive(Debug)]
pub struct Routes {
    shm: Arc<ShmEndpoint>,
    ofi: Arc<OfiEndpoint>,
    ways: Box<[Way]>,
    /// Held while memory is registered or taken back, so that both number it alike.
    registering: Mutex<()>,
}

impl Routes {
    /// Opens shared memory beside an end of libfabric that is open: over the same starter memory, and for the peers whose way
    /// is [`Way::Shm`].
    ///
    /// # Errors
    /// Those of [`ShmEndpoint::open`].
    ///
    /// # Panics
    /// When there is not one way for each process.
    pub fn open(config: ShmConfig, ofi: Arc<OfiEndpoint>, ways: Vec<Way>) -> Result<Self, FabricError> {
        assert_eq!(ways.len(), config.process_count as usize, "there is one way to each process");
        let starter: Arc<SharedMemory> = ofi.starter().memory().clone();
        let shm = ShmEndpoint::open_over(config, starter)?;
        Ok(Self { shm, ofi, ways: ways.into(), registering: Mutex::new(()) })
    }

    /// The route to a peer. A process that does not exist would be reached like others.
    pub fn route_to(&self, process: ProcessId) -> Route {
        match self.way(process) {
            Way::Shm => Route { name: "shm".to_owned(), why: "it is on this machine" },
            Way::Ofi => Route { name: format!("ofi:{}", self.ofi.provider()), why: "it is on another machine" },
        }
    }

    fn way(&self, process: ProcessId) -> Way {
        self.ways.get(process.index()).copied().unwrap_or(Way::Ofi)
    }

    fn to(&self, process: ProcessId) -> &dyn Transport {
        match self.way(process) {
            Way::Shm => &*self.shm,
            Way::Ofi => &*self.ofi,
        }
    }

    /// Passes an event on if it came the way on which its peer is reached.
    fn checked(&self, event: Event, way: Way) -> Option<Event> {
        let (Event::Message { from: process, .. } | Event::Disconnected { process }) = &event;
        (self.way(*process) == way).then_some(event)
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
        // What holds for all peers: libfabric promises less in every respect, except for the length of messages.
        let (shm, ofi) = (self.shm.capabilities(), self.ofi.capabilities());
        Capabilities {
            name: "shm+ofi",
            message_bytes_max: shm.message_bytes_max.min(ofi.message_bytes_max),
            expected_bytes_max: shm.expected_bytes_max.min(ofi.expected_bytes_max),
            ..ofi
        }
    }

    fn register_memory(&self, memory: Arc<SharedMemory>, bytes: usize) -> Result<LocalRegion, FabricError> {
        let _guard = self.registering.lock().unwrap_or_else(PoisonError::into_inner);
        // The one that may refuse comes first: a slot that only one of them has given out and taken back would be of another generation.
        let same = self.ofi.register_memory(memory.clone(), bytes)?;
        let region = self.shm.register_memory(memory, bytes)?;
        debug_assert_eq!(same.key(), region.key(), "both number their regions alike");
        Ok(region)
    }

    fn deregister(&self, key: RemoteKey) -> Result<(), FabricError> {
        let _guard = self.registering.lock().unwrap_or_else(PoisonError::into_inner);
        self.shm.deregister(key)?;
        self.ofi.deregister(key)
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

    fn post(&self, key: RemoteKey, operation: Operation) -> Result<Completion, FabricError> {
        self.to(key.process).post(key, operation)
    }

    fn open_queue(
        &self,
        peer: ProcessId,
        options: QueueOptions,
    ) -> Result<Option<Box<dyn TransferQueue>>, FabricError> {
        self.to(peer).open_queue(peer, options)
    }

    fn send(&self, to: ProcessId, message: &[u8]) -> Result<(), FabricError> {
        let max = self.capabilities().message_bytes_max;
        if message.len() > max {
            return Err(FabricError::MessageTooLong { bytes: message.len(), max });
        }
        self.to(to).send(to, message)
    }

    fn expect(&self, from: ProcessId, tag: Tag, room: usize) -> Result<Completion, FabricError> {
        self.to(from).expect(from, tag, room)
    }

    fn send_expected(&self, to: ProcessId, tag: Tag, message: &[u8]) -> Result<(), FabricError> {
        let max = self.capabilities().expected_bytes_max;
        if message.len() > max {
            return Err(FabricError::MessageTooLong { bytes: message.len(), max });
        }
        self.to(to).send_expected(to, tag, message)
    }

    fn receive(&self) -> Option<Event> {
        loop {
            let event = match self.shm.receive() {
                Some(event) => self.checked(event, Way::Shm),
                None => self.checked(self.ofi.receive()?, Way::Ofi),
            };
            if event.is_some() {
                return event;
            }
        }
    }

    fn progress(&self) {
        self.shm.progress();
        self.ofi.progress();
    }

    fn wait(&self, also: &[BorrowedFd<'_>], deadline: Option<Instant>) {
        let (watched, waits_for_room) = self.shm.watched();
        if self.shm.has_events() {
            return;
        }
        let soon = waits_for_room.then(|| Instant::now() + RETRY_AFTER);
        let all: Vec<BorrowedFd<'_>> = also.iter().copied().chain(watched.fds()).collect();
        self.ofi.wait(&all, [deadline, soon].into_iter().flatten().min());
        self.shm.has_woken();
    }

    fn wake(&self) {
        self.ofi.wake();
    }

    fn stop_polling(&self) {
        self.ofi.stop_polling();
    }

    fn forget(&self, process: ProcessId) {
        self.to(process).forget(process);
    }
}

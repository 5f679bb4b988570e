//! Shared memory to some peers, libfabric to the others.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farside_sys::shm::SharedMemory;

use crate::by_message::RegionName;
use crate::clock::lock;
use crate::ids::ProcessId;
use crate::ofi::OfiEndpoint;
use crate::private::{Lease, PrivateMemory, PrivateRegion};
use crate::region::{LocalRegion, RemoteRegion};
use crate::regions::Names;
use crate::shm::{ShmConfig, ShmEndpoint};
use crate::transport::{
    Capabilities, Completion, Event, FabricError, Operation, Outcome, RemoteKey, Tag, Transport, Unposted,
};

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
    registered: Mutex<Registered>,
}

/// The names of regions, which both ways have in common.
#[derive(Debug)]
struct Registered {
    names: Names,
    leaving: Vec<Leaving>,
}

/// A region whose key was taken back.
#[derive(Debug)]
struct Leaving {
    name: RegionName,
    both: [Completion; 2],
    completion: Completion,
}

impl Registered {
    /// Ends the deregistrations that have ended both ways.
    fn settle(&mut self) {
        let Self { names, leaving } = self;
        for gone in leaving.extract_if(.., |leaving| leaving.both.iter().all(Completion::has_ended)) {
            names.give_back(gone.name);
            gone.completion.end(Ok(Outcome::Got(Vec::new())));
        }
    }
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
        Ok(Self {
            shm,
            ofi,
            ways: ways.into(),
            registered: Mutex::new(Registered { names: Names::new(), leaving: Vec::new() }),
        })
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

    /// Returns the end over libfabric, if `process` is reached by it.
    pub fn over_ofi(&self, process: ProcessId) -> Option<&OfiEndpoint> {
        (self.way(process) == Way::Ofi).then_some(&*self.ofi)
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
        let mut registered = lock(&self.registered);
        let name = registered.names.take();
        // The one that may refuse comes first.
        match self.ofi.register_memory_as(Some(name), memory.clone(), bytes) {
            Ok(_) => Ok(self.shm.register_memory_as(Some(name), memory, bytes)),
            Err(error) => {
                registered.names.give_back(name);
                Err(error)
            }
        }
    }

    fn register_private(&self, memory: Arc<PrivateMemory>) -> Result<PrivateRegion, FabricError> {
        let mut registered = lock(&self.registered);
        let name = registered.names.take();
        let lease = Lease::new(memory);
        match self.ofi.register_private_as(Some(name), lease.clone()) {
            // What is refused is memory without bytes, and it was not.
            Ok(_) => self.shm.register_private_as(Some(name), lease),
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

    fn post(&self, key: RemoteKey, operation: Operation) -> Result<Completion, Unposted> {
        self.to(key.process).post(key, operation)
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
        // Who has it sees to it as well, or is seen to next time.
        if let Ok(mut registered) = self.registered.try_lock() {
            registered.settle();
        }
    }

    fn wait(&self, also: &[BorrowedFd<'_>], deadline: Option<Instant>) {
        let Some(watched) = self.shm.watched() else { return };
        let soon = watched.waits_for_room().then(|| Instant::now() + RETRY_AFTER);
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

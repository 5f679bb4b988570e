//! A transport with the default methods of the trait, and thus without tagged messages.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use farside_conformance::Fabric;
use farside_fabric::clock::Clock;
use farside_fabric::sim::{SimFabric, SimOptions};
use farside_fabric::{
    Capabilities, Carrier, Completion, Event, FabricError, LocalRegion, Operation, ProcessId, RegionKind, RemoteKey,
    RemoteRegion, Transport, Unposted, UserMemory, UserRegion,
};
use farside_sys::shm::SharedMemory;

/// A simulated end that forwards only the required methods.
#[derive(Debug)]
struct Untagged(Arc<dyn Transport>);

impl Carrier for Untagged {
    fn clock(&self) -> Clock {
        self.0.clock()
    }

    fn post(&self, key: RemoteKey, operation: Operation) -> Result<Completion, Unposted> {
        self.0.post(key, operation)
    }

    fn progress(&self) {
        self.0.progress();
    }

    fn wake(&self) {
        self.0.wake();
    }
}

impl Transport for Untagged {
    fn process(&self) -> ProcessId {
        self.0.process()
    }

    fn process_count(&self) -> u32 {
        self.0.process_count()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { name: "untagged", tagged_bytes_max: 0, tagged_receives_max: 0, ..self.0.capabilities() }
    }

    fn register_memory(
        &self,
        memory: Arc<SharedMemory>,
        bytes: usize,
        kind: RegionKind,
    ) -> Result<LocalRegion, FabricError> {
        self.0.register_memory(memory, bytes, kind)
    }

    fn register_user(&self, memory: Arc<UserMemory>) -> Result<UserRegion, FabricError> {
        self.0.register_user(memory)
    }

    fn deregister(&self, key: RemoteKey) -> Result<Completion, FabricError> {
        self.0.deregister(key)
    }

    fn starter(&self) -> LocalRegion {
        self.0.starter()
    }

    fn attach(&self, key: RemoteKey, deadline: Instant) -> Result<RemoteRegion, FabricError> {
        self.0.attach(key, deadline)
    }

    fn attached(&self, key: RemoteKey) -> Option<RemoteRegion> {
        self.0.attached(key)
    }

    fn send(&self, to: ProcessId, message: &[u8]) -> Result<(), FabricError> {
        self.0.send(to, message)
    }

    fn receive(&self) -> Option<Event> {
        self.0.receive()
    }

    fn wait(&self, also: &[BorrowedFd<'_>], deadline: Option<Instant>) {
        self.0.wait(also, deadline);
    }

    fn forget(&self, process: ProcessId) {
        self.0.forget(process);
    }
}

struct Simulated;

impl Fabric for Simulated {
    fn name(&self) -> String {
        "sim without tagged messages".to_owned()
    }

    fn start(&self, processes: u32, starter_bytes: usize) -> Result<Vec<Arc<dyn Transport>>, FabricError> {
        let fabric = SimFabric::new(processes, starter_bytes, 7, SimOptions::default())?;
        let end = |number| Arc::new(Untagged(fabric.endpoint(ProcessId::new(number)))) as Arc<dyn Transport>;
        Ok((0..processes).map(end).collect())
    }
}

farside_conformance::conformance_tests!(untagged, Simulated);

//! The endpoint of one simulated process.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use farside_sys::net::{self, Interest};
use farside_sys::shm::SharedMemory;

use super::network::{Network, SharedNetwork};
use super::turns::{self, Asleep, Turn};
use crate::clock::{self, Clock, SeatNumber};
use crate::emulated::Registration;
use crate::ids::ProcessId;
use crate::region::{Lease, Naming, UserMemory, UserRegion};
use crate::region::{LocalRegion, RemoteRegion};
use crate::transport::{
    Capabilities, Carrier, Completion, Event, FabricError, NeedsTarget, Operation, RegionKind, RemoteKey, Transport,
    Unposted, UserReach,
};

/// The time that a wait spends on its descriptors before it looks at the network again.
const DESCRIPTOR_SLICE: Duration = Duration::from_millis(1);

#[derive(Debug)]
/// One simulated process's end of the network. [`SimFabric::endpoint`](super::SimFabric::endpoint)
/// returns it.
pub struct SimEndpoint {
    process: ProcessId,
    network: Arc<SharedNetwork>,
    this: Weak<Self>,
}

impl SimEndpoint {
    pub(super) fn new(process: ProcessId, network: Arc<SharedNetwork>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { process, network, this: this.clone() })
    }

    fn check_process(&self, process: ProcessId) -> Result<(), FabricError> {
        let count = self.network.process_count;
        if process.number() < count { Ok(()) } else { Err(FabricError::NoSuchProcess { process, count }) }
    }

    fn region(&self, key: RemoteKey) -> RemoteRegion {
        let this = self.this.upgrade().expect("a borrowed endpoint is alive");
        RemoteRegion::posted_on(key, this)
    }

    /// Returns the depth of the deepest queue that this network carries.
    pub fn queue_depth(&self) -> usize {
        self.network.options.queue_depth
    }

    /// Starts an operation of a queue, which has limits of its own instead of
    /// [`SimOptions::operations_max`](super::SimOptions::operations_max).
    pub fn post_queued(&self, key: RemoteKey, operation: Operation) -> Completion {
        self.spend_overhead(key.process);
        let posted = self.network.lock().post_queued(self.process, key, operation);
        self.note_operation();
        posted
    }

    /// This process in a simulation in turns.
    fn turn(&self) -> Option<Turn> {
        Turn::new(&self.network, Some(self.process))
    }

    /// This process, with the seat of the calling thread.
    fn seated(&self) -> Option<(Turn, SeatNumber)> {
        let turn = self.turn()?;
        let seat = clock::seat_here(&turn)?;
        Some((turn, seat))
    }

    /// Charges the calling thread for moving a message or an operation to or from a process.
    fn spend_overhead(&self, peer: ProcessId) {
        if let Some((_, seat)) = self.seated() {
            turns::spend(&self.network, seat, self.network.options.between(self.process, peer).overhead_ns);
        }
    }

    /// Counts an operation for the script. Where the script kills this process, returns only when
    /// the simulation is over.
    fn note_operation(&self) {
        let mut network = self.network.lock();
        if !network.script.as_ref().is_some_and(|script| script.counts_last(self.process)) {
            return;
        }
        network.turns().freeze(self.process);
        network.turns().stir_others();
        network.kill(self.process);
        drop(network);
        if let Some((_, seat)) = self.seated() {
            turns::stay_frozen(&self.network, seat);
        }
    }

    /// [`wait`](Transport::wait) of a thread that takes turns. It does not watch descriptors, which
    /// do not follow virtual time.
    fn wait_in_turn(&self, turn: &Turn, seat: SeatNumber, deadline: Option<Instant>) {
        let deadline_ns = deadline.map(|deadline| turn.nanoseconds_of(deadline));
        let mut network = turns::pay(&self.network, self.network.lock(), seat);
        let Some(sleeper) = network.process(self.process).sleepers.enter() else { return };
        loop {
            let passed = deadline_ns.is_some_and(|deadline| network.now_ns() >= deadline) || network.turns().is_over();
            let process = network.process(self.process);
            let has_room = std::mem::take(&mut process.has_room);
            let has_news = has_room || !process.inbox.is_empty() || !process.arrived.is_empty();
            if passed || has_news || process.sleepers.is_woken(&sleeper) {
                break;
            }
            network = turns::sleep(&self.network, network, seat, Asleep::until(deadline_ns));
        }
        network.process(self.process).sleepers.leave(sleeper);
    }

    /// Releases the lock until something changes for this process, a descriptor is readable, or
    /// `deadline` has passed. Returns whether a descriptor is readable.
    fn sleep<'n>(
        &'n self,
        network: MutexGuard<'n, Network>,
        also: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> (MutexGuard<'n, Network>, bool) {
        let now = Instant::now();
        if !also.is_empty() {
            drop(network);
            let slice = deadline.map_or(now + DESCRIPTOR_SLICE, |deadline| deadline.min(now + DESCRIPTOR_SLICE));
            let interests: Vec<_> = also.iter().map(|fd| Interest { fd: *fd, writable: false }).collect();
            // A descriptor that cannot be watched counts as readable: its owner learns the reason
            // by reading it.
            let readable = net::wait_ready(&interests, Some(slice)).map_or(true, |ready| ready.contains(&true));
            return (self.network.lock(), readable);
        }
        let mut network = network;
        let changed = network.process(self.process).sleepers.changed.clone();
        let network = match deadline {
            None => changed.wait(network).unwrap_or_else(PoisonError::into_inner),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(now);
                changed.wait_timeout(network, left).unwrap_or_else(PoisonError::into_inner).0
            }
        };
        (network, false)
    }
}

impl Carrier for SimEndpoint {
    fn clock(&self) -> Clock {
        self.turn().map_or_else(Clock::real, Clock::simulated)
    }

    fn post(&self, key: RemoteKey, operation: Operation) -> Result<Completion, Unposted> {
        self.spend_overhead(key.process);
        let posted = self.network.lock().post(self.process, key, operation);
        self.note_operation();
        posted
    }

    fn progress(&self) {
        self.network.lock().progress(self.process);
    }

    fn wake(&self) {
        let mut network = self.network.lock();
        network.process(self.process).sleepers.wake();
        network.stir(self.process);
    }
}

impl Transport for SimEndpoint {
    fn process(&self) -> ProcessId {
        self.process
    }

    fn process_count(&self) -> u32 {
        self.network.process_count
    }

    fn capabilities(&self) -> Capabilities {
        let options = &self.network.options;
        Capabilities {
            name: "sim",
            mapped: false,
            needs_target_progress: if options.needs_target_progress {
                NeedsTarget::Everything
            } else {
                NeedsTarget::Nothing
            },
            puts_in_order: false,
            message_bytes_max: options.message_bytes_max,
            operations_max: options.operations_max,
            user_memory: UserReach::Owner,
        }
    }

    fn register_memory(
        &self,
        memory: Arc<SharedMemory>,
        bytes: usize,
        kind: RegionKind,
    ) -> Result<LocalRegion, FabricError> {
        let mut network = self.network.lock();
        network.note_registration(bytes)?;
        let registration = Registration { memory, bytes, access: None };
        Ok(network.process(self.process).regions.register(Naming::Here(kind), registration))
    }

    fn register_user(&self, memory: Arc<UserMemory>) -> Result<UserRegion, FabricError> {
        let mut network = self.network.lock();
        network.note_registration(memory.bytes())?;
        let naming = Naming::Here(RegionKind::Shared);
        network.process(self.process).regions.register_user(naming, Lease::new(memory), None)
    }

    fn deregister(&self, key: RemoteKey) -> Result<Completion, FabricError> {
        self.network.lock().deregister(self.process, key)
    }

    fn starter(&self) -> LocalRegion {
        self.network.lock().process(self.process).regions.starter()
    }

    fn attach(&self, key: RemoteKey, deadline: Instant) -> Result<RemoteRegion, FabricError> {
        self.check_process(key.process)?;
        if let Some(region) = self.attached(key) {
            return Ok(region);
        }
        let found = self.network.lock().start_attaching(self.process, key)?;
        self.note_operation();
        match found.wait(self, key.process, deadline) {
            Ok(_) => Ok(self.region(key)),
            Err(FabricError::Deadline { process, .. }) => {
                Err(FabricError::Deadline { doing: "attaching memory", process })
            }
            Err(error) => Err(error),
        }
    }

    fn attached(&self, key: RemoteKey) -> Option<RemoteRegion> {
        let is_attached = self.network.lock().process(self.process).attached.contains(&key);
        is_attached.then(|| self.region(key))
    }

    fn send(&self, to: ProcessId, message: &[u8]) -> Result<(), FabricError> {
        self.spend_overhead(to);
        let sent = self.network.lock().send(self.process, to, message);
        self.note_operation();
        sent
    }

    fn receive(&self) -> Option<Event> {
        let event = self.network.lock().receive(self.process);
        if let Some(Event::Message { from: peer, .. } | Event::Disconnected { process: peer }) = &event
            && let Some((_, seat)) = self.seated()
        {
            // The time passes at once, so that no other thread learns of the message before it has
            // been received.
            self.spend_overhead(*peer);
            drop(turns::pay(&self.network, self.network.lock(), seat));
        }
        event
    }

    fn wait(&self, also: &[BorrowedFd<'_>], deadline: Option<Instant>) {
        if let Some((turn, seat)) = self.seated() {
            return self.wait_in_turn(&turn, seat, deadline);
        }
        let mut network = self.network.lock();
        network.note_wait(self.process);
        let Some(sleeper) = network.process(self.process).sleepers.enter() else { return };
        let mut ready = false;
        loop {
            let process = network.process(self.process);
            let passed = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if ready || passed || process.can_move() || process.sleepers.is_woken(&sleeper) {
                break;
            }
            (network, ready) = self.sleep(network, also, deadline);
        }
        network.note_wait(self.process);
        let process = network.process(self.process);
        process.sleepers.leave(sleeper);
        let only_time_must_pass = process.inbox.is_empty() && process.arrived.is_empty() && process.under_way > 0;
        drop(network);
        if only_time_must_pass {
            // Other threads may have something to do meanwhile.
            thread::yield_now();
        }
    }

    fn forget(&self, process: ProcessId) {
        self.network.lock().forget(self.process, process);
    }
}

impl Drop for SimEndpoint {
    fn drop(&mut self) {
        self.network.lock().kill(self.process);
    }
}

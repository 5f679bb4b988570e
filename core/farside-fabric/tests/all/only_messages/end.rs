//! One process's end: the wire's messages on one side, an engine for everything else on the other.

use std::collections::{HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::Instant;

use farside_fabric::emulated::{Engine, Limits, Registration};
use farside_fabric::{
    Capabilities, Carrier, Completion, Event, FabricError, LocalRegion, NeedsTarget, Operation, ProcessId, RegionKind,
    RemoteKey, RemoteRegion, Transport, Unposted, UserMemory, UserReach, UserRegion,
};
use farside_sys::net::{Interest, wait_ready};
use farside_sys::shm::SharedMemory;

use super::wire::{Arrival, Wire};

#[derive(Debug)]
pub(crate) struct End {
    process: ProcessId,
    process_count: u32,
    limits: Limits,
    wire: Arc<Wire>,
    state: Mutex<State>,
    this: Weak<Self>,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    events: VecDeque<Event>,
    /// Peers to which something went, or from which something came: their end is news.
    met: HashSet<ProcessId>,
}

fn allocate(bytes: usize) -> Result<Registration, FabricError> {
    let memory = Arc::new(SharedMemory::create("only-messages", bytes)?);
    Ok(Registration { memory, bytes, access: None })
}

impl End {
    pub(crate) fn open(
        process: ProcessId,
        process_count: u32,
        starter_bytes: usize,
        limits: Limits,
        wire: Arc<Wire>,
    ) -> Result<Arc<Self>, FabricError> {
        let engine = Engine::new(process, process_count, allocate(starter_bytes)?, limits);
        let state = Mutex::new(State { engine, events: VecDeque::new(), met: HashSet::new() });
        Ok(Arc::new_cyclic(|this| Self { process, process_count, limits, wire, state, this: this.clone() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics under this lock")
    }

    fn flush(&self, state: &mut State) {
        let State { engine, met, .. } = state;
        engine.flush(|to, packet| {
            met.insert(to);
            self.wire.send(self.process, to, packet)
        });
    }

    fn lose(&self, state: &mut State, process: ProcessId) {
        if state.engine.lose(process) && state.met.contains(&process) {
            state.events.push_back(Event::Disconnected { process });
        }
    }

    /// Gives up a peer that may be alive, and must learn that it is not heard any more.
    fn part_with(&self, state: &mut State, process: ProcessId) {
        if process != self.process && state.engine.check_peer(process).is_ok() {
            self.lose(state, process);
            self.wire.part(self.process, process);
            self.wake();
        }
    }

    fn take(&self, state: &mut State, from: ProcessId, packet: &[u8]) {
        state.met.insert(from);
        match state.engine.take(from, packet) {
            Ok(None) => {}
            Ok(Some(message)) => state.events.push_back(Event::Message { from, message: message.to_vec() }),
            Err(_) => self.part_with(state, from),
        }
    }

    fn region(&self, key: RemoteKey) -> RemoteRegion {
        RemoteRegion::posted_on(key, self.this.upgrade().expect("an end that is borrowed is alive"))
    }
}

impl Carrier for End {
    fn post(&self, key: RemoteKey, operation: Operation) -> Result<Completion, Unposted> {
        let mut state = self.lock();
        let posted = state.engine.post(key, operation)?;
        self.flush(&mut state);
        Ok(posted)
    }

    fn progress(&self) {
        let mut state = self.lock();
        while let Some((from, arrival)) = self.wire.receive(self.process) {
            match arrival {
                Arrival::Packet(packet) => self.take(&mut state, from, &packet),
                Arrival::Gone => self.lose(&mut state, from),
            }
            self.flush(&mut state);
        }
        self.flush(&mut state);
    }

    fn wake(&self) {
        self.wire.waker(self.process).wake();
    }
}

impl Transport for End {
    fn process(&self) -> ProcessId {
        self.process
    }

    fn process_count(&self) -> u32 {
        self.process_count
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "only-messages",
            mapped: false,
            needs_target_progress: NeedsTarget::Everything,
            puts_in_order: false,
            message_bytes_max: self.limits.user_bytes_max(),
            operations_max: self.limits.operations_max,
            user_memory: UserReach::Owner,
        }
    }

    fn register_memory(
        &self,
        memory: Arc<SharedMemory>,
        bytes: usize,
        kind: RegionKind,
    ) -> Result<LocalRegion, FabricError> {
        Ok(self.lock().engine.register(Registration { memory, bytes, access: None }, kind))
    }

    fn register_user(&self, memory: Arc<UserMemory>) -> Result<UserRegion, FabricError> {
        self.lock().engine.register_user(memory, None)
    }

    fn deregister(&self, key: RemoteKey) -> Result<Completion, FabricError> {
        let mut state = self.lock();
        let completion = state.engine.deregister(key)?;
        self.flush(&mut state);
        Ok(completion)
    }

    fn starter(&self) -> LocalRegion {
        self.lock().engine.starter()
    }

    fn attach(&self, key: RemoteKey, deadline: Instant) -> Result<RemoteRegion, FabricError> {
        let late = || FabricError::Deadline { doing: "attaching memory", process: key.process };
        let asked = loop {
            let mut state = self.lock();
            match state.engine.attach(key) {
                Err(FabricError::QueueFull { .. }) if farside_testbed::is_past(deadline) => return Err(late()),
                Err(FabricError::QueueFull { .. }) => {}
                asked => {
                    self.flush(&mut state);
                    break asked?;
                }
            }
            drop(state);
            self.progress();
            thread::yield_now();
        };
        match asked.wait(self, key.process, deadline) {
            Ok(_) => Ok(self.region(key)),
            Err(FabricError::Deadline { .. }) => Err(late()),
            Err(error) => Err(error),
        }
    }

    fn attached(&self, key: RemoteKey) -> Option<RemoteRegion> {
        let is_attached = self.lock().engine.is_attached(key);
        is_attached.then(|| self.region(key))
    }

    fn send(&self, to: ProcessId, message: &[u8]) -> Result<(), FabricError> {
        let mut state = self.lock();
        state.engine.send(to, message)?;
        self.flush(&mut state);
        Ok(())
    }

    fn receive(&self) -> Option<Event> {
        self.lock().events.pop_front()
    }

    fn wait(&self, also: &[BorrowedFd<'_>], deadline: Option<Instant>) {
        if !self.lock().events.is_empty() {
            return;
        }
        let waker = self.wire.waker(self.process);
        let fds = [waker.as_fd()].into_iter().chain(also.iter().copied());
        let interests: Vec<_> = fds.map(|fd| Interest { fd, writable: false }).collect();
        wait_ready(&interests, deadline).expect("descriptors can be watched");
        waker.reset();
    }

    fn forget(&self, process: ProcessId) {
        self.part_with(&mut self.lock(), process);
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.wire.leave(self.process);
    }
}

//! How an endpoint reaches its peers' regions, and how it lets go of them.
//!
//! An access to private memory by a system call must not be under way any more when its owner is told that it is not. While the holder lives,
//! it says so itself. When the two part, nothing can be said: then the *end of their connections* says it. The holder
//! closes its sockets only when none of its accesses is under way, and the system closes them for it after its threads have left the kernel.
//! So an owner that gives a holder up (it was told that this died, or got nonsense from it) keeps the sockets until it has seen the
//! end of each, and its memory until then. Where each holds memory of the other, each says by the end of what it *sends* that its own accesses are
//! over, and so neither waits for the other to close.

use std::sync::Arc;

use farside_sys::net::{MESSAGE_BYTES_MAX, MessageSocket};
use farside_sys::process_memory;
use farside_sys::shm::SharedMemory;

use super::link::Link;
use super::message::{Fetched, Found, Message, Probe, USER_HEADER_BYTES};
use super::{FetchState, ShmEndpoint, State, known_link, map_announced};
use crate::by_message::{Limits, NativeAccess, RegionName, Registration};
use crate::ids::ProcessId;
use crate::nearby::{Nearby, Refused};
use crate::private::{Lease, PrivateRegion, RegionMemory};
use crate::region::{self, LocalRegion, RemoteRegion};
use crate::transport::{Completion, FabricError, Operation, Outcome, RemoteKey};

/// What bounds the engine of an endpoint. It carries no messages of the layer above.
pub(super) const LIMITS: Limits =
    Limits { message_bytes_max: MESSAGE_BYTES_MAX - USER_HEADER_BYTES, operations_max: 64, messages_max: 1 };

/// A region that is attached.
#[derive(Clone, Debug)]
pub(super) enum Attached {
    Mapped(Arc<SharedMemory>),
    /// Private memory of this process.
    Own(Arc<Lease>),
    /// Private memory of a peer, by system calls.
    Nearby(Arc<Nearby>),
    /// The same by its owner.
    Asked,
}

/// What is known of peers' private memory, and of connections that are over but for this.
#[derive(Debug)]
pub(super) struct Reach {
    /// The system's number of each peer whose memory can be reached by a system call.
    pids: Vec<Option<i32>>,
    /// Regions that their owners have taken back, while an access of ours is under way.
    closing: Vec<(RemoteKey, Arc<Nearby>)>,
    /// Sockets of peers that we have parted with, as long as one of our accesses to their memory is under way.
    lingering: Vec<(Arc<MessageSocket>, Vec<Arc<Nearby>>)>,
    /// Sockets of peers that we have parted with, until they end: then none of their accesses is under way.
    parting: Vec<(ProcessId, Arc<MessageSocket>)>,
    /// Those of the peer that we are about to part with, and whether each has ended.
    kept: Vec<(Arc<MessageSocket>, bool)>,
}

impl Reach {
    pub(super) fn new(process_count: u32) -> Self {
        let pids = vec![None; process_count as usize];
        Self { pids, closing: Vec::new(), lingering: Vec::new(), parting: Vec::new(), kept: Vec::new() }
    }

    /// Nothing of those that are gone is kept.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.closing.is_empty() && self.lingering.is_empty() && self.parting.is_empty() && self.kept.is_empty()
    }

    /// Keeps the socket of a link that is taken out, until [`State::part_with`] has seen what is to become of it.
    pub(super) fn keep(&mut self, process: ProcessId, socket: &Arc<MessageSocket>, has_ended: bool) {
        debug_assert!(process.index() < self.pids.len(), "a peer was let in");
        self.kept.push((socket.clone(), has_ended));
    }
}

impl State {
    /// All sockets that are to be watched, and whether each waits for room.
    pub(super) fn sockets(&self) -> impl Iterator<Item = (Arc<MessageSocket>, bool)> {
        let parting = self.reach.parting.iter().map(|(_, socket)| (socket.clone(), false));
        self.links.iter().map(Link::watch).chain(parting)
    }

    /// The link on which messages to a process go, from now on always this one.
    pub(super) fn outgoing_link(&mut self, process: ProcessId) -> Option<&mut Link> {
        let index = known_link(&self.links, &self.outgoing, process)?;
        self.outgoing[process.index()] = Some(self.links[index].id());
        Some(&mut self.links[index])
    }

    /// A peer is gone, and its links are taken out.
    pub(super) fn part_with(&mut self, process: ProcessId) {
        let sockets = std::mem::take(&mut self.reach.kept);
        self.engine.lose(process);
        let Reach { closing, lingering, parting, pids, .. } = &mut self.reach;
        pids[process.index()] = None;
        let is_private = |attached: &Attached| matches!(attached, Attached::Nearby(_) | Attached::Asked);
        let lost = self.attached.extract_if(|key, attached| key.process == process && is_private(attached));
        let held = lost.filter_map(|(_, attached)| match attached {
            Attached::Nearby(nearby) => Some(nearby),
            _ => None,
        });
        let closing = closing.extract_if(.., |(key, _)| key.process == process).map(|(_, nearby)| nearby);
        let busy: Vec<Arc<Nearby>> = held
            .chain(closing)
            .filter(|nearby| {
                nearby.lose();
                !nearby.is_idle()
            })
            .collect();
        let is_held = self.engine.natively_held_by(process).next().is_some();
        for (socket, has_ended) in sockets {
            if is_held && !has_ended {
                parting.push((process, socket.clone()));
            }
            if busy.is_empty() {
                socket.finish_sending();
            } else {
                // The peer takes the end of what we send for the end of our accesses.
                lingering.push((socket, busy.clone()));
            }
        }
        if !parting.iter().any(|(parted, _)| *parted == process) {
            self.engine.bury(process);
        }
    }

    /// Looks whether connections of peers that we have parted with have ended.
    fn look_after_the_parting(&mut self) {
        if self.reach.parting.is_empty() {
            return;
        }
        let mut buffer = [0; MESSAGE_BYTES_MAX + USER_HEADER_BYTES];
        let parting = &mut self.reach.parting;
        let ended: Vec<ProcessId> =
            parting.extract_if(.., |(_, socket)| has_ended(socket, &mut buffer)).map(|(process, _)| process).collect();
        for process in ended {
            if !self.reach.parting.iter().any(|(parted, _)| *parted == process) {
                self.engine.bury(process);
            }
        }
    }

    /// Lets go of what peers have taken back, where none of our accesses is under way.
    fn let_go(&mut self) {
        while let Some(key) = self.engine.next_revoked() {
            self.fetches.remove(&key);
            match self.attached.remove(&key) {
                Some(Attached::Nearby(nearby)) => {
                    nearby.close();
                    self.reach.closing.push((key, nearby));
                }
                // Pages that are mapped harm nobody, and whoever has them keeps them.
                _ => self.engine.let_go(key),
            }
        }
        for (key, _) in self.reach.closing.extract_if(.., |(_, nearby)| nearby.is_idle()) {
            self.engine.let_go(key);
        }
        let is_over = |busy: &[Arc<Nearby>]| busy.iter().all(|nearby| nearby.is_idle());
        for (socket, _) in self.reach.lingering.extract_if(.., |(_, busy)| is_over(busy)) {
            // It may stay open for a while, since the peer has accesses of its own under way.
            socket.finish_sending();
        }
    }
}

impl ShmEndpoint {
    /// Moves on what has to do with regions and their ends, and sends what the engine has to say.
    pub(super) fn settle(&self, state: &mut State) {
        state.let_go();
        state.look_after_the_parting();
        let left: Vec<RegionName> = state.engine.left().collect();
        left.into_iter().for_each(|name| state.engine.finish(name, true));
        let State { engine, links, outgoing, .. } = state;
        let mut has_backlog = false;
        engine.flush(|to, packet| {
            let Some(index) = known_link(links, outgoing, to) else { return Err(packet) };
            outgoing[to.index()] = Some(links[index].id());
            let sent = links[index].send(&Message::Packet(&packet), None);
            has_backlog |= links[index].has_backlog();
            sent.map_err(|_| packet)
        });
        if has_backlog {
            // The service thread must watch it from now on.
            self.waker.wake();
        }
    }

    pub(crate) fn register_memory_as(
        &self,
        name: Option<RegionName>,
        memory: Arc<SharedMemory>,
        bytes: usize,
    ) -> LocalRegion {
        let mut state = self.lock();
        // Who maps it keeps its pages, so that nobody need wait for the lost.
        let region = state.engine.register_as(name, Registration { memory, bytes, access: None });
        state.attached.insert(region.key(), Attached::Mapped(region.memory().clone()));
        region
    }

    pub(crate) fn register_private_as(
        &self,
        name: Option<RegionName>,
        lease: Arc<Lease>,
    ) -> Result<PrivateRegion, FabricError> {
        let base = lease.memory().base().as_ptr().expose_provenance() as u64;
        let access = NativeAccess { key: 0, base };
        let mut state = self.lock();
        let region = state.engine.register_private_as(name, lease.clone(), Some(access))?;
        state.attached.insert(region.key(), Attached::Own(lease));
        Ok(region)
    }

    /// Tries to read a peer's memory by a system call.
    pub(super) fn probe(&self, state: &mut State, index: usize, process: ProcessId, probe: &Probe) {
        if !self.config.private_by_system_call {
            return;
        }
        let Ok(peer) = state.links[index].socket().peer() else { return };
        let mut found = [0; 16];
        let read = process_memory::read(peer.pid, probe.address as usize, &mut found);
        // Other bytes are of another process: numbers mean something else where it lives.
        let is_reached = matches!(read, Ok(16)) && found == probe.bytes;
        state.reach.pids[process.index()] = is_reached.then_some(peer.pid);
    }

    pub(super) fn region(&self, key: RemoteKey, attached: &Attached) -> RemoteRegion {
        match attached {
            Attached::Mapped(memory) => RemoteRegion::mapped_at(key, memory.clone()),
            Attached::Own(lease) => RemoteRegion::of_own(key, lease.clone()),
            Attached::Nearby(nearby) => RemoteRegion::nearby(key, nearby.clone(), self.shared()),
            Attached::Asked => RemoteRegion::posted_on(key, self.shared()),
        }
    }

    /// Asks for private memory, and says what came of it when that is known.
    pub(super) fn attach_private(
        &self,
        state: &mut State,
        key: RemoteKey,
        asked: &mut Option<Completion>,
    ) -> Option<Result<RemoteRegion, FabricError>> {
        let Some(completion) = asked else {
            match state.engine.attach(key) {
                // There is room soon.
                Err(FabricError::QueueFull { .. }) => {}
                Err(error) => return Some(Err(error)),
                Ok(completion) => *asked = Some(completion),
            }
            self.settle(state);
            return None;
        };
        if let Err(error) = completion.try_take()? {
            return Some(Err(error));
        }
        // It may have been taken back since.
        let Some(access) = state.engine.native(key) else { return Some(Err(FabricError::StaleKey { key })) };
        let is_writable = state.engine.is_writable(key);
        let attached = match state.reach.pids[key.process.index()] {
            Some(pid) => Attached::Nearby(Nearby::new(pid, access.base, is_writable)),
            None => Attached::Asked,
        };
        let region = self.region(key, &attached);
        state.attached.insert(key, attached);
        Some(Ok(region))
    }

    pub(super) fn post_to(
        &self,
        key: RemoteKey,
        attached: &Attached,
        operation: Operation,
    ) -> Result<Completion, FabricError> {
        let done = match attached {
            Attached::Mapped(memory) => region::execute(key, memory, operation),
            Attached::Own(lease) => lease.execute(key, operation),
            Attached::Nearby(nearby) => match self.execute_nearby(key, nearby, operation) {
                Ok(done) => done,
                Err(operation) => return self.ask(key, operation),
            },
            Attached::Asked => return self.ask(key, operation),
        };
        let completion = Completion::pending();
        completion.end(done);
        Ok(completion)
    }

    /// Executes a put or get by a system call. What the owner must carry out is given back.
    fn execute_nearby(
        &self,
        key: RemoteKey,
        nearby: &Nearby,
        operation: Operation,
    ) -> Result<Result<Outcome, FabricError>, Operation> {
        let transport = self.shared();
        let (done, operation) = match operation {
            Operation::Put { offset, data } => {
                let put = key.check(offset, data.len()).map_err(Refused::With);
                match put.and_then(|()| nearby.put(key, offset, &data, &transport)) {
                    Ok(()) => return Ok(Ok(Outcome::Put(data))),
                    Err(refused) => (refused, Operation::Put { offset, data }),
                }
            }
            Operation::Get { offset, bytes } => {
                if let Err(error) = key.check(offset, bytes) {
                    return Ok(Err(error));
                }
                let mut data = vec![0; bytes];
                match nearby.get(key, offset, &mut data, &transport) {
                    Ok(()) => return Ok(Ok(Outcome::Got(data))),
                    Err(refused) => (refused, Operation::Get { offset, bytes }),
                }
            }
            atomic => return Err(atomic),
        };
        match done {
            Refused::BySystem => Err(operation),
            Refused::With(error) => Ok(Err(error)),
        }
    }

    fn ask(&self, key: RemoteKey, operation: Operation) -> Result<Completion, FabricError> {
        let mut state = self.lock();
        let posted = state.engine.post(key, operation)?;
        self.settle(&mut state);
        Ok(posted)
    }
}

impl Drop for ShmEndpoint {
    fn drop(&mut self) {
        // Whoever holds private memory of ours may be writing there, and cannot be waited for: it lives on.
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.engine.leave_what_is_held();
    }
}

/// Reads what is left of a connection. Says whether that was its end.
fn has_ended(socket: &MessageSocket, buffer: &mut [u8]) -> bool {
    loop {
        match socket.receive(buffer) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return false,
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {}
            Err(_) => return true,
        }
    }
}

/// What a peer is told of a region, which it holds then if it is mapped.
pub(super) fn find_for(state: &mut State, peer: ProcessId, name: RegionName) -> (Found, Option<Arc<SharedMemory>>) {
    match state.engine.find_named(name).map(|(key, memory)| (key, memory.clone())) {
        None => (Found::Nothing, None),
        Some((_, RegionMemory::Private(_))) => (Found::Private, None),
        Some((key, RegionMemory::Shared(memory))) => match state.engine.grant(peer, name) {
            Some(_) => (Found::Shared(key.bytes), Some(memory)),
            None => (Found::Nothing, None),
        },
    }
}

pub(super) fn take_fetched(state: &mut State, process: ProcessId, fetched: &Fetched, fd: Option<std::os::fd::OwnedFd>) {
    let name = RegionName { slot: fetched.slot, generation: fetched.generation };
    let asked = |key: &&RemoteKey| key.process == process && RegionName::from(**key) == name;
    // Several keys that differ in their size may be asked for; only the true one is served.
    let keys: Vec<RemoteKey> = state.fetches.keys().filter(asked).copied().collect();
    let memory = match (fetched.found, fd) {
        (Found::Shared(bytes), Some(fd)) => map_announced(fd, bytes).map(|memory| (bytes, memory)),
        _ => None,
    };
    for key in keys {
        match &memory {
            Some((bytes, memory)) if *bytes == key.bytes => {
                state.fetches.remove(&key);
                state.attached.insert(key, Attached::Mapped(memory.clone()));
                state.engine.note_attached(key, NativeAccess::default());
            }
            _ if fetched.found == Found::Private => {
                state.fetches.insert(key, FetchState::Private);
            }
            _ => {
                state.fetches.insert(key, FetchState::Refused);
            }
        }
    }
}

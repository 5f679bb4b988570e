//! Access of an endpoint to its peers' regions, and the release of such a region.
//!
//! When an owner learns that a holder has released private memory, no access to it by a system call
//! may still be under way. A live holder reports this itself. When the two part, no report is
//! possible, and the *end of their connections* takes its place. The holder closes its sockets only
//! while none of its accesses is under way, and the system closes them for it only after its
//! threads have left the kernel.
//!
//! An owner therefore keeps the sockets of a holder that it gives up, because it was reported dead
//! or sent malformed messages. The owner keeps its memory until it has seen the end of each socket.
//! If the holder has forked a child, the child keeps the sockets open after the holder's end. Then
//! the end of the holder itself counts, because its threads have left the kernel by then. (The
//! child has only a copy of the endpoint's memory, and makes no accesses.)
//!
//! If each side holds memory of the other, each reports the end of its own accesses by ending what
//! it *sends*. Neither then waits for the other to close.

use std::collections::hash_map::Entry;
use std::io::ErrorKind;
use std::sync::Arc;

use farside_sys::net::{MESSAGE_BYTES_MAX, MessageSocket, Received, is_end};
use farside_sys::process::ProcessHandle;
use farside_sys::process_memory;
use farside_sys::shm::{SharedMemory, ShmError};

use super::link::{Descriptor, Link, NAP_WHEN_SHORT};
use super::message::{Fetched, Found, Message, Probe, USER_HEADER_BYTES};
use super::{FetchState, ShmEndpoint, State, known_link};
use crate::emulated::{Limits, NativeAccess, Registration};
use crate::ids::ProcessId;
use crate::region::{self, LocalRegion, RemoteRegion};
use crate::region::{Lease, Naming, RegionMemory, UserRegion};
use crate::region::{Nearby, Refused};
use crate::transport::{Carrier, Completion, FabricError, Operation, Outcome, RegionName, RemoteKey, Unposted};

/// Limits of an endpoint's engine. It carries no messages of the layer above.
pub(super) const LIMITS: Limits =
    Limits { message_bytes_max: MESSAGE_BYTES_MAX - USER_HEADER_BYTES, operations_max: 64, messages_max: 1 };

/// Number of messages that are read from an ending connection before other connections get their
/// turn. A peer that goes on sending is read again later.
const READS_AT_A_TIME: usize = 64;

/// An attached region.
#[derive(Clone, Debug)]
pub(super) enum Attached {
    Mapped(Arc<SharedMemory>),
    /// Private memory of this process.
    Own(Arc<Lease>),
    /// Private memory of a peer, accessed by system calls.
    Nearby(Arc<Nearby>),
    /// Private memory of a peer, accessed by its owner on request.
    Asked,
}

/// State of peers' private memory, and of connections that remain only for its sake.
#[derive(Debug)]
pub(super) struct Reach {
    /// The system's process number of each peer whose memory can be accessed by a system call.
    pids: Vec<Option<i32>>,
    /// Regions that their owners have withdrawn while an access of this process is under way.
    closing: Vec<(RemoteKey, Arc<Nearby>)>,
    /// Sockets of peers that this process has parted with, kept while one of its accesses to their
    /// memory is under way.
    lingering: Vec<(Arc<MessageSocket>, Vec<Arc<Nearby>>)>,
    /// Connections of peers that this process has parted with, until they end. From then on none of
    /// the peer's accesses is under way.
    parting: Vec<Parting>,
    /// Connections of the peer that this process is parting with, and whether each has ended.
    kept: Vec<(Arc<MessageSocket>, bool)>,
}

/// A connection of a peer that this process has parted with.
#[derive(Debug)]
struct Parting {
    process: ProcessId,
    socket: Arc<MessageSocket>,
    /// The peer's end, where it can be watched: its process number is known and a descriptor is
    /// available.
    handle: Option<Arc<ProcessHandle>>,
}

impl Parting {
    /// Creates the entry; `None` if the peer has already ended.
    fn new(process: ProcessId, socket: Arc<MessageSocket>) -> Option<Self> {
        // If another process has reused the number, the peer has ended, and this waits longer than
        // necessary.
        let handle = match socket.peer().ok().and_then(|peer| peer.pid).map(ProcessHandle::of) {
            Some(Ok(None)) => return None,
            Some(Ok(Some(handle))) => Some(Arc::new(handle)),
            Some(Err(_)) | None => None,
        };
        Some(Self { process, socket, handle })
    }

    /// Returns whether none of the peer's accesses is under way any more.
    fn is_over(&self, buffer: &mut [u8]) -> bool {
        self.handle.as_ref().is_some_and(|handle| handle.has_ended())
            || has_ended(|| self.socket.receive(buffer).map(|received| received.is_some()))
    }

    /// The descriptors that become readable when the connection may be over.
    fn watch(&self) -> impl Iterator<Item = Arc<dyn Descriptor>> {
        let handle = self.handle.clone().map(|handle| handle as Arc<dyn Descriptor>);
        std::iter::once(self.socket.clone() as Arc<dyn Descriptor>).chain(handle)
    }
}

impl Reach {
    pub(super) fn new(process_count: u32) -> Self {
        let pids = vec![None; process_count as usize];
        Self { pids, closing: Vec::new(), lingering: Vec::new(), parting: Vec::new(), kept: Vec::new() }
    }

    /// Returns whether nothing is kept for peers that are gone.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.closing.is_empty() && self.lingering.is_empty() && self.parting.is_empty() && self.kept.is_empty()
    }

    /// Keeps the socket of a removed link until [`State::part_with`] decides what to do with it.
    pub(super) fn keep(&mut self, process: ProcessId, socket: &Arc<MessageSocket>, has_ended: bool) {
        debug_assert!(process.index() < self.pids.len(), "the peer was admitted");
        self.kept.push((socket.clone(), has_ended));
    }
}

impl State {
    /// All descriptors to be watched, and whether each waits for room to write.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = (Arc<dyn Descriptor>, bool)> {
        let parting = self.reach.parting.iter().flat_map(Parting::watch).map(|descriptor| (descriptor, false));
        self.links.iter().map(Link::watch).chain(parting)
    }

    /// The link that carries messages to a process; from now on always this one.
    pub(super) fn outgoing_link(&mut self, process: ProcessId) -> Option<&mut Link> {
        let index = known_link(&self.links, &self.outgoing, process)?;
        self.outgoing[process.index()] = Some(self.links[index].id());
        Some(&mut self.links[index])
    }

    /// Passes the answer to the threads that wait for a region, if there are any.
    fn answer_fetch(&mut self, key: RemoteKey, answer: FetchState) {
        if let Some(fetch) = self.fetches.get_mut(&key) {
            fetch.state = answer;
        }
    }

    /// Ends one thread's wait for a region that it requested.
    pub(super) fn leave_fetch(&mut self, key: RemoteKey) {
        let Some(fetch) = self.fetches.get_mut(&key) else { return };
        fetch.waiting -= 1;
        if fetch.waiting == 0 {
            self.fetches.remove(&key);
        }
    }

    /// Parts with a peer that is gone and whose links are removed.
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
                parting.extend(Parting::new(process, socket.clone()));
            }
            if busy.is_empty() {
                socket.finish_sending();
            } else {
                // The peer takes the end of this side's sending as the end of its accesses.
                lingering.push((socket, busy.clone()));
            }
        }
        if !parting.iter().any(|parted| parted.process == process) {
            self.engine.confirm_loss(process);
        }
    }

    /// Checks whether connections of peers that this process has parted with have ended.
    fn look_after_the_parting(&mut self) {
        if self.reach.parting.is_empty() {
            return;
        }
        let mut buffer = [0; MESSAGE_BYTES_MAX + USER_HEADER_BYTES];
        let parting = &mut self.reach.parting;
        let ended: Vec<ProcessId> =
            parting.extract_if(.., |parting| parting.is_over(&mut buffer)).map(|parting| parting.process).collect();
        for process in ended {
            if !self.reach.parting.iter().any(|parted| parted.process == process) {
                self.engine.confirm_loss(process);
            }
        }
    }

    /// Releases regions that peers have withdrawn, where no access of this process is under way.
    fn release_revoked(&mut self) {
        while let Some(key) = self.engine.next_revoked() {
            self.answer_fetch(key, FetchState::Refused);
            match self.attached.remove(&key) {
                Some(Attached::Nearby(nearby)) => {
                    nearby.close();
                    self.reach.closing.push((key, nearby));
                }
                // Mapped pages do no harm; each holder keeps its own.
                _ => self.engine.confirm_release(key),
            }
        }
        for (key, _) in self.reach.closing.extract_if(.., |(_, nearby)| nearby.is_idle()) {
            self.engine.confirm_release(key);
        }
        let is_over = |busy: &[Arc<Nearby>]| busy.iter().all(|nearby| nearby.is_idle());
        for (socket, _) in self.reach.lingering.extract_if(.., |(_, busy)| is_over(busy)) {
            // The socket may stay open for a while, because the peer has accesses of its own under
            // way.
            socket.finish_sending();
        }
    }
}

impl ShmEndpoint {
    /// Advances the withdrawal of regions, and sends the engine's packets.
    pub(super) fn settle(&self, state: &mut State) {
        state.release_revoked();
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
            // From now on the service thread must watch the socket.
            self.waker.wake();
        }
    }

    pub(crate) fn register_memory_as(&self, naming: Naming, memory: Arc<SharedMemory>, bytes: usize) -> LocalRegion {
        let mut state = self.lock();
        // A process that maps the memory keeps its pages alive, so no release needs to wait for a
        // lost process.
        let region = state.engine.register_as(naming, Registration { memory, bytes, access: None });
        state.attached.insert(region.key(), Attached::Mapped(region.memory().clone()));
        region
    }

    pub(crate) fn register_user_as(&self, naming: Naming, lease: Arc<Lease>) -> Result<UserRegion, FabricError> {
        let base = lease.memory().base().as_ptr().expose_provenance() as u64;
        let access = NativeAccess { key: 0, base };
        let mut state = self.lock();
        let region = state.engine.register_user_as(naming, lease.clone(), Some(access))?;
        state.attached.insert(region.key(), Attached::Own(lease));
        Ok(region)
    }

    /// Tries to read a peer's memory by a system call.
    pub(super) fn probe(&self, state: &mut State, index: usize, process: ProcessId, probe: &Probe) {
        if !self.config.user_by_system_call {
            return;
        }
        let Some(pid) = state.links[index].socket().peer().ok().and_then(|peer| peer.pid) else { return };
        let mut found = [0; 16];
        let read = process_memory::read(pid, probe.address as usize, &mut found);
        // Other bytes come from another process: the peer lives in a PID namespace with other
        // numbers.
        let is_reached = matches!(read, Ok(16)) && found == probe.bytes;
        state.reach.pids[process.index()] = is_reached.then_some(pid);
    }

    pub(super) fn region(&self, key: RemoteKey, attached: &Attached) -> RemoteRegion {
        match attached {
            Attached::Mapped(memory) => RemoteRegion::mapped_at(key, memory.clone()),
            Attached::Own(lease) => RemoteRegion::of_own(key, lease.clone()),
            Attached::Nearby(nearby) => RemoteRegion::nearby(key, nearby.clone(), self.shared()),
            Attached::Asked => RemoteRegion::posted_on(key, self.shared()),
        }
    }

    /// Requests private memory, and returns the result once it is known.
    pub(super) fn attach_private(
        &self,
        state: &mut State,
        key: RemoteKey,
        asked: &mut Option<Completion>,
    ) -> Option<Result<RemoteRegion, FabricError>> {
        let Some(completion) = asked else {
            match state.engine.attach(key) {
                // The queue has room again soon.
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
        // The region may have been withdrawn since.
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
    ) -> Result<Completion, Unposted> {
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

    /// Executes a put or get by a system call. Returns operations that the owner must execute.
    fn execute_nearby(
        &self,
        key: RemoteKey,
        nearby: &Nearby,
        operation: Operation,
    ) -> Result<Result<Outcome, FabricError>, Operation> {
        let transport: Arc<dyn Carrier> = self.shared();
        let (done, operation) = match operation {
            Operation::Put { offset, data } => {
                let checked = key.check(offset, data.len()).map_err(Refused::With);
                match checked.and_then(|()| nearby.put(key, offset, &data, &transport)) {
                    Ok(()) => return Ok(Ok(Outcome::Put(data))),
                    Err(refused) => (refused, Operation::Put { offset, data }),
                }
            }
            Operation::Get { offset, mut room } => {
                let checked = key.check(offset, room.len()).map_err(Refused::With);
                match checked.and_then(|()| nearby.get(key, offset, &mut room, &transport)) {
                    Ok(()) => return Ok(Ok(Outcome::Got(room))),
                    Err(refused) => (refused, Operation::Get { offset, room }),
                }
            }
            atomic => return Err(atomic),
        };
        match done {
            Refused::BySystem => Err(operation),
            Refused::With(error) => Ok(Err(error)),
        }
    }

    fn ask(&self, key: RemoteKey, operation: Operation) -> Result<Completion, Unposted> {
        let mut state = self.lock();
        let posted = state.engine.post(key, operation)?;
        self.settle(&mut state);
        Ok(posted)
    }
}

impl Drop for ShmEndpoint {
    fn drop(&mut self) {
        // A holder of this process's private memory may be writing there, and cannot be waited for,
        // so the memory is leaked.
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.engine.leave_what_is_held();
    }
}

/// Reads the rest of a connection by `receive`, which returns whether it received a message, or the
/// end. Returns whether the end was found. If that cannot be known, the result is `false`, and the
/// caller tries again later.
fn has_ended(mut receive: impl FnMut() -> std::io::Result<bool>) -> bool {
    for _ in 0..READS_AT_A_TIME {
        match receive() {
            Ok(true) => {}
            Ok(false) => return true,
            Err(error) if is_end(&error) => return true,
            // A malformed message.
            Err(error) if error.kind() == ErrorKind::InvalidData => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return false,
            Err(_) => {
                std::thread::sleep(NAP_WHEN_SHORT);
                return false;
            }
        }
    }
    false
}

/// The answer to a peer's request for a region. If the region is mapped, the peer then holds it.
pub(super) fn find_for(state: &mut State, peer: ProcessId, name: RegionName) -> (Found, Option<Arc<SharedMemory>>) {
    match state.engine.find_named(name).map(|(key, memory)| (key, memory.clone())) {
        None => (Found::Nothing, None),
        Some((_, RegionMemory::User(_))) => (Found::Private, None),
        Some((key, RegionMemory::Shared(memory))) => match state.engine.grant(peer, name) {
            Some(_) => (Found::Shared(key.bytes), Some(memory)),
            None => (Found::Nothing, None),
        },
    }
}

/// The most missed regions that are remembered. A region that was withdrawn is not asked for again.
const MISSED_MAX: usize = 1024;

/// Takes in a region that a peer has sent, asked or unasked, or its refusal. Returns whether this
/// process has no descriptor or no memory to map it.
pub(super) fn take_fetched(state: &mut State, process: ProcessId, fetched: &Fetched, received: Received) -> bool {
    let Fetched { slot, generation, found } = *fetched;
    let mut lack = received.fd_is_lost.then_some(FetchState::NoDescriptor);
    if let (Found::Shared(bytes), Some(fd)) = (found, received.fd) {
        let key = RemoteKey { process, slot, generation, reserved: 0, bytes };
        if let Entry::Vacant(unknown) = state.attached.entry(key) {
            match SharedMemory::from_fd(fd, usize::try_from(bytes).unwrap_or(usize::MAX)) {
                Ok(memory) => {
                    unknown.insert(Attached::Mapped(Arc::new(memory)));
                    state.engine.note_attached(key, NativeAccess::default());
                }
                Err(ShmError::System { .. } | ShmError::NoSpace { .. }) => lack = Some(FetchState::NoMemory),
                Err(_) => {}
            }
        }
    }
    if let (Found::Shared(bytes), Some(_)) = (found, lack) {
        if state.missed.len() >= MISSED_MAX {
            state.missed.clear();
        }
        state.missed.insert(RemoteKey { process, slot, generation, reserved: 0, bytes });
    }
    let name = RegionName { slot, generation };
    let asked = |key: &&RemoteKey| key.process == process && RegionName::from(**key) == name;
    // Several keys that differ in their size may have been requested; only the true one is served.
    let keys: Vec<RemoteKey> = state.fetches.keys().filter(asked).copied().collect();
    let answer = match found {
        Found::Private => FetchState::Private,
        _ => lack.unwrap_or(FetchState::Refused),
    };
    for key in keys {
        if !state.attached.contains_key(&key) {
            state.answer_fetch(key, answer);
        }
    }
    lack.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_state_is_not_an_end() {
        let says = |mut answers: Vec<std::io::Result<bool>>| has_ended(|| answers.remove(0));
        let system = |number| Err(std::io::Error::from_raw_os_error(number));
        let [out_of_memory, out_of_buffers, interrupted, reset] = [12, 105, 4, 104].map(system);
        assert!(!says(vec![Ok(true), out_of_memory]) && !says(vec![out_of_buffers]) && !says(vec![interrupted]));
        assert!(says(vec![Ok(true), reset]));
        assert!(says(vec![Ok(true), Err(ErrorKind::InvalidData.into()), Ok(false)]), "a malformed message is skipped");
        assert!(!says(vec![Ok(true), Err(ErrorKind::WouldBlock.into())]));
    }

    #[test]
    fn an_endless_sender_does_not_starve_others() {
        let mut reads = 0;
        let endless = || {
            reads += 1;
            assert!(reads < 1000, "other connections get their turn");
            Ok(true)
        };
        assert!(!has_ended(endless));
    }
}

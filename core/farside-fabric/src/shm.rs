//! The transport between processes of one machine: sealed shared memory, passed over local sockets
//! and mapped by the peers.
//!
//! Every endpoint listens under a name made from the job's id, its process number and the job's
//! secret. The name is in the abstract namespace, so nothing is left behind. The first side that
//! needs the other connects, and both exchange their starter memory. Other regions are fetched by
//! their key when they are first attached. After that, the sockets carry only small messages, and
//! their closing reports a peer's death.
//!
//! Private memory is read and written by system calls where the system allows that: the connecting
//! side tries it. Otherwise, and for atomics, its owner executes the operation on request over the
//! socket ([`emulated`](crate::emulated)).
//!
//! A peer must run under the same user and know the job's secret. Everything that it sends is
//! checked before use.

mod link;
mod message;
mod reach;
mod strangers;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use farside_sys::limits;
use farside_sys::net::{self, Interest, Listener, MESSAGE_BYTES_MAX, Received, Waker};
use farside_sys::process::random_bytes;
use farside_sys::shm::{SharedMemory, ShmError};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use self::link::{Descriptor, Link, LinkState};
use self::message::{Fetched, Greeting, Message, Probe};
use self::reach::{Attached, LIMITS, Reach, find_for, take_fetched};
use crate::emulated::{Engine, Registration};
use crate::ids::ProcessId;
use crate::region::{Lease, Naming, RegionMemory, UserMemory, UserRegion};
use crate::region::{LocalRegion, RemoteRegion};
use crate::transport::{
    Capabilities, Carrier, Completion, Event, FabricError, NeedsTarget, Operation, RegionKind, RegionName, RemoteKey,
    Transport, Unposted, UserReach,
};

pub(crate) use self::message::message_kinds;

/// Maximum length of a message of the layer above.
const USER_BYTES_MAX: usize = MESSAGE_BYTES_MAX - message::USER_HEADER_BYTES;

/// Pause between attempts to reach a peer that does not listen yet.
const NAP_BEFORE_RECONNECT: Duration = Duration::from_micros(100);

/// The identity of an endpoint, and the peers that it may connect to.
#[derive(Clone, Debug)]
pub struct ShmConfig {
    /// This process.
    pub process: ProcessId,
    /// Number of processes.
    pub process_count: u32,
    /// Distinguishes the jobs of one machine; not secret.
    pub job_id: u64,
    /// The secret that a peer must present to be admitted.
    pub secret: [u8; 16],
    /// Size of every process's starter memory.
    pub starter_bytes: usize,
    /// True if peers' private memory is accessed by system calls where the system allows it.
    /// Otherwise its owner executes the operations on request.
    pub user_by_system_call: bool,
}

/// One process's end of the shared-memory fabric.
#[derive(Debug)]
pub struct ShmEndpoint {
    config: ShmConfig,
    starter: LocalRegion,
    listener: Listener,
    waker: Waker,
    state: Mutex<State>,
    /// Notified whenever `state` has changed in a way that a thread may wait for.
    changed: Condvar,
    /// The bytes that peers try to read; their address does not change.
    probe: Box<[u8; 16]>,
    this: Weak<Self>,
}

#[derive(Debug)]
struct State {
    /// The regions of this process, and what is done by messages: the withdrawal of regions, and
    /// access to private memory that cannot be reached otherwise.
    engine: Engine,
    /// Connections opened by either side, in the order of their numbers. Ended ones are removed.
    links: Vec<Link>,
    next_link: u64,
    /// Nothing is accepted before this time.
    deaf_until: Option<Instant>,
    /// The link that carries messages to each peer. It stays the same while it lives, so that
    /// messages keep their order.
    outgoing: Vec<Option<u64>>,
    /// Peers that were declared or found dead. They stay dead.
    gone: Vec<bool>,
    attached: HashMap<RemoteKey, Attached>,
    /// Requested regions, as long as a thread waits for them.
    fetches: HashMap<RemoteKey, Fetch>,
    /// Offered regions that this process had no descriptor for. They are requested when they are
    /// looked for again.
    missed: HashSet<RemoteKey>,
    events: VecDeque<Event>,
    /// True if a thread sleeps in `wait`, or is about to, and has not been woken. Other threads may
    /// empty the sockets that it watches, and it does not know of new ones.
    sleeps: bool,
    reach: Reach,
}

/// A requested region.
#[derive(Debug)]
struct Fetch {
    state: FetchState,
    /// Number of threads that wait for it. Each stops waiting separately, for example at its
    /// deadline.
    waiting: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FetchState {
    Asked,
    Refused,
    /// This process has no descriptor for the region.
    NoDescriptor,
    /// This process has no memory or no addresses to map the region.
    NoMemory,
    /// The region is private memory, which must be requested in another way.
    Private,
}

impl ShmEndpoint {
    /// Opens this process's endpoint: creates its starter memory and begins to listen.
    ///
    /// # Errors
    /// [`FabricError::Memory`] if the starter memory cannot be created; [`FabricError::System`] if
    /// another process already listens under this name, or descriptors are exhausted.
    pub fn open(config: ShmConfig) -> Result<Arc<Self>, FabricError> {
        let memory = Arc::new(SharedMemory::create("farside-starter", config.starter_bytes)?);
        Self::open_over(config, memory)
    }

    /// Opens an endpoint like [`open`](Self::open), with starter memory that another transport has
    /// registered, too.
    ///
    /// # Errors
    /// [`FabricError::System`] if another process already listens under this name, or descriptors
    /// are exhausted.
    pub fn open_over(config: ShmConfig, memory: Arc<SharedMemory>) -> Result<Arc<Self>, FabricError> {
        let registration = Registration { memory, bytes: config.starter_bytes, access: None };
        let engine = Engine::new(config.process, config.process_count, registration, LIMITS);
        let starter = engine.starter();
        let failed = |doing| move |cause| FabricError::System { doing, cause };
        let listener = Listener::bind(&name(&config, config.process)).map_err(failed("listening for peers"))?;
        let waker = Waker::new().map_err(failed("making a waker"))?;
        let probe = Box::new(random_bytes().map_err(failed("getting random bytes"))?);
        let state = State {
            engine,
            links: Vec::new(),
            next_link: 0,
            deaf_until: None,
            outgoing: vec![None; config.process_count as usize],
            gone: vec![false; config.process_count as usize],
            attached: HashMap::from([(starter.key(), Attached::Mapped(starter.memory().clone()))]),
            fetches: HashMap::new(),
            missed: HashSet::new(),
            events: VecDeque::new(),
            sleeps: false,
            reach: Reach::new(config.process_count),
        };
        Ok(Arc::new_cyclic(|this| Self {
            config,
            starter,
            listener,
            waker,
            state: Mutex::new(state),
            changed: Condvar::new(),
            probe,
            this: this.clone(),
        }))
    }

    /// The descriptors that become readable when there is progress to make. The caller sleeps on
    /// them, here or elsewhere, until it calls [`has_woken`](Self::has_woken). `None` if there is
    /// already an event to [receive](Transport::receive).
    pub(crate) fn watched(&self) -> Option<Watched<'_>> {
        let mut state = self.lock();
        if !state.events.is_empty() {
            return None;
        }
        state.sleeps = true;
        let (listener, until) = self.listening(&state);
        let own = [Some(self.waker.as_fd()), listener];
        Some(Watched { own, until, others: state.descriptors().collect() })
    }

    /// Ends the sleep of a thread that called [`watched`](Self::watched).
    pub(crate) fn has_woken(&self) {
        self.lock().sleeps = false;
        self.waker.reset();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is complete before anything could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_process(&self, process: ProcessId) -> Result<(), FabricError> {
        if process.number() < self.config.process_count {
            Ok(())
        } else {
            Err(FabricError::NoSuchProcess { process, count: self.config.process_count })
        }
    }

    fn greeting(&self) -> Greeting {
        Greeting {
            secret: self.config.secret,
            process: self.config.process,
            starter_bytes: self.config.starter_bytes as u64,
            probe: Probe { address: self.probe.as_ptr().expose_provenance() as u64, bytes: *self.probe },
        }
    }

    /// The link that carries messages to `process`, created if there is none.
    fn link_to<'s>(&self, state: &'s mut State, process: ProcessId) -> Result<&'s mut Link, FabricError> {
        if state.gone[process.index()] {
            return Err(FabricError::Disconnected { process });
        }
        let index = match known_link(&state.links, &state.outgoing, process) {
            Some(index) => index,
            None => {
                let link = self.connect(state, process)?;
                state.links.push(link);
                self.waker.wake();
                state.links.len() - 1
            }
        };
        state.outgoing[process.index()] = Some(state.links[index].id());
        Ok(&mut state.links[index])
    }

    /// Tells the service thread to watch a link whose messages wait until the socket has room.
    fn watch_backlog(&self, link: &Link) {
        if link.has_backlog() {
            self.waker.wake();
        }
    }

    fn connect(&self, state: &mut State, process: ProcessId) -> Result<Link, FabricError> {
        let socket = net::MessageSocket::connect(&name(&self.config, process)).map_err(|cause| match cause.kind() {
            std::io::ErrorKind::ConnectionRefused => FabricError::NotListening { process },
            _ => FabricError::System { doing: "connecting to a peer", cause },
        })?;
        check_user(&socket, process)?;
        state.next_link += 1;
        let mut link = Link::new(state.next_link, socket, LinkState::Greeted(process));
        link.send(&Message::Hello(self.greeting()), Some(self.starter.memory().clone()))?;
        Ok(link)
    }

    /// Requests a region by a message. The greeting of a peer that is not connected yet brings its
    /// starter memory.
    fn ask_for(&self, key: RemoteKey, deadline: Instant) -> Result<(), FabricError> {
        loop {
            let mut state = self.lock();
            match self.link_to(&mut state, key.process) {
                Ok(link) => {
                    if key.slot != 0 || matches!(link.state(), LinkState::Open(_)) {
                        link.send(&Message::Fetch { slot: key.slot, generation: key.generation }, None)?;
                    }
                    let fetch = state.fetches.entry(key).or_insert(Fetch { state: FetchState::Asked, waiting: 0 });
                    // A thread that has not yet seen an earlier refusal waits for this answer, too.
                    fetch.state = FetchState::Asked;
                    fetch.waiting += 1;
                    return Ok(());
                }
                // A peer that started later may not listen yet. The caller that detects a peer's
                // death declares it gone.
                Err(error) if may_pass(&error) && Instant::now() < deadline => {
                    drop(self.changed.wait_timeout(state, NAP_BEFORE_RECONNECT));
                }
                // At the deadline, a live peer would be listening.
                Err(FabricError::NotListening { process }) => return Err(FabricError::Disconnected { process }),
                Err(error) if may_pass(&error) => {
                    return Err(FabricError::Deadline { doing: "connecting to a peer", process: key.process });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until `found` returns a result, and makes progress meanwhile.
    fn wait_for<T>(
        &self,
        process: ProcessId,
        doing: &'static str,
        deadline: Instant,
        mut found: impl FnMut(&mut State) -> Option<Result<T, FabricError>>,
    ) -> Result<T, FabricError> {
        loop {
            let mut state = self.lock();
            self.take_in(&mut state);
            if let Some(result) = found(&mut state) {
                return result;
            }
            if state.gone[process.index()] {
                return Err(FabricError::Disconnected { process });
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(FabricError::Deadline { doing, process });
            }
            // A service thread that blocks in `wait` makes progress; without one, this thread must.
            let nap = (deadline - now).min(Duration::from_millis(1));
            drop(self.changed.wait_timeout(state, nap));
        }
    }

    /// Accepts new connections and processes all messages that wait on the existing ones.
    fn take_in(&self, state: &mut State) {
        let mut any = self.accept_strangers(state);
        let mut buffer = [0; MESSAGE_BYTES_MAX + message::USER_HEADER_BYTES];
        let ids: Vec<u64> = state.links.iter().map(Link::id).collect();
        for id in ids {
            // A message on one link may end another.
            while let Some(index) = index_of(&state.links, id) {
                let link = &mut state.links[index];
                link.send_backlog();
                match link.receive(&mut buffer) {
                    Ok(None) => break,
                    Ok(Some((message, received))) => {
                        any = true;
                        if let Err(why) = self.handle(state, id, message, received) {
                            self.end_link(state, id, why);
                        }
                    }
                    Err(why) => {
                        any = true;
                        self.end_link(state, id, why);
                    }
                }
            }
        }
        self.forget_strangers(state);
        self.settle(state);
        // A sleeping thread may have seen none of these messages.
        if any && std::mem::take(&mut state.sleeps) {
            self.waker.wake();
        }
    }

    /// Processes a message. An error ends the link.
    fn handle(&self, state: &mut State, id: u64, message: Message<'_>, received: Received) -> Result<(), EndOfLink> {
        let index = index_of(&state.links, id).ok_or(EndOfLink::Closed)?;
        let peer = state.links[index].peer();
        match (state.links[index].state(), message) {
            (LinkState::Unknown, Message::Hello(greeting)) => {
                self.admit(state, index, &greeting, received)?;
                let starter = Some(self.starter.memory().clone());
                state.links[index].send(&Message::Welcome(self.greeting()), starter).map_err(|_| EndOfLink::Closed)
            }
            (LinkState::Greeted(expected), Message::Welcome(greeting)) => {
                if greeting.process != expected {
                    return Err(EndOfLink::Intruder);
                }
                self.admit(state, index, &greeting, received)
            }
            (LinkState::Open(process), Message::Fetch { slot, generation }) => {
                let (found, memory) = find_for(state, process, RegionName { slot, generation });
                let answer = Message::Fetched(Fetched { slot, generation, found });
                // The message goes on the link that would also announce the region's withdrawal.
                let link = state.outgoing_link(process).ok_or(EndOfLink::Closed)?;
                // A peer that requests and does not read is alive, and may be accessing our memory,
                // so the link is not marked as closed.
                link.send(&answer, memory).map_err(|_| EndOfLink::Malformed)
            }
            (LinkState::Open(process), Message::Packet(packet)) => {
                // Messages of the layer above are never sent as packets.
                let taken = state.engine.take(process, packet);
                if matches!(taken, Ok(None)) { Ok(()) } else { Err(EndOfLink::Malformed) }
            }
            (LinkState::Open(process), Message::Fetched(fetched)) => {
                take_fetched(state, process, &fetched, received);
                Ok(())
            }
            (LinkState::Open(process), Message::User(bytes)) => {
                state.events.push_back(Event::Message { from: process, message: bytes.to_vec() });
                Ok(())
            }
            _ => Err(if peer.is_some() { EndOfLink::Malformed } else { EndOfLink::Intruder }),
        }
    }

    /// Admits a peer whose greeting is valid, and maps its starter memory.
    fn admit(&self, state: &mut State, index: usize, greeting: &Greeting, received: Received) -> Result<(), EndOfLink> {
        let process = greeting.process;
        let is_a_peer = process.number() < self.config.process_count && process != self.config.process;
        if greeting.secret != self.config.secret || !is_a_peer {
            return Err(EndOfLink::Intruder);
        }
        let key = RemoteKey::starter(process, greeting.starter_bytes);
        let is_short = take_fetched(state, process, &Fetched::shared(key), received);
        // Without a descriptor for it, this process does without the memory until it is asked for.
        if !is_short && !state.attached.contains_key(&key) {
            return Err(EndOfLink::Malformed);
        }
        self.probe(state, index, process, &greeting.probe);
        state.links[index].open(process);
        Ok(())
    }

    fn end_link(&self, state: &mut State, id: u64, why: EndOfLink) {
        let Some(index) = index_of(&state.links, id) else { return };
        let link = state.links.remove(index);
        // A rejected stranger does not count as a dead peer.
        if let (Some(process), EndOfLink::Closed | EndOfLink::Malformed) = (link.peer(), why) {
            state.reach.keep(process, link.socket(), why == EndOfLink::Closed);
            self.mark_gone(state, process);
        }
    }

    fn mark_gone(&self, state: &mut State, process: ProcessId) {
        for link in state.links.extract_if(.., |link| link.peer() == Some(process)) {
            state.reach.keep(process, link.socket(), false);
        }
        state.part_with(process);
        state.missed.retain(|key| key.process != process);
        if !std::mem::replace(&mut state.gone[process.index()], true) {
            tracing::debug!(%process, "connection lost");
            state.events.push_back(Event::Disconnected { process });
        }
    }
}

/// The descriptors that a sleeping thread watches.
pub(crate) struct Watched<'e> {
    own: [Option<BorrowedFd<'e>>; 2],
    /// The time at which there is something to do even if no descriptor is ready.
    until: Option<Instant>,
    /// The flag tells whether messages wait for room there.
    others: Vec<(Arc<dyn Descriptor>, bool)>,
}

impl Watched<'_> {
    /// All descriptors, to be watched for reading.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.interests().map(|interest| interest.fd)
    }

    /// Returns whether messages wait for a peer to free space. Watching for reading does not report
    /// that.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.others.iter().any(|(_, waits)| *waits)
    }

    /// The end of a sleep that may last until `deadline`.
    pub(crate) fn end_of_sleep(&self, deadline: Option<Instant>) -> Option<Instant> {
        [deadline, self.until].into_iter().flatten().min()
    }

    fn interests(&self) -> impl Iterator<Item = Interest<'_>> {
        let others =
            self.others.iter().map(|(descriptor, waits)| Interest { fd: descriptor.as_fd(), writable: *waits });
        self.own.iter().flatten().map(|fd| Interest { fd: *fd, writable: false }).chain(others)
    }
}

/// Why a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndOfLink {
    /// The peer closed it or died.
    Closed,
    /// The other side does not know the secret, runs under another user, or claims another
    /// process's place.
    Intruder,
    /// A peer sent a message that no correct peer sends.
    Malformed,
}

impl Carrier for ShmEndpoint {
    fn post(&self, key: RemoteKey, operation: Operation) -> Result<Completion, Unposted> {
        if let Err(error) = self.check_process(key.process) {
            return Err(operation.refused(error));
        }
        let attached = {
            let state = self.lock();
            state.attached.get(&key).cloned().ok_or(match state.gone[key.process.index()] {
                true => FabricError::Disconnected { process: key.process },
                false => FabricError::StaleKey { key },
            })
        };
        match attached {
            Ok(attached) => self.post_to(key, &attached, operation),
            Err(error) => Err(operation.refused(error)),
        }
    }

    fn progress(&self) {
        let mut state = self.lock();
        self.take_in(&mut state);
        drop(state);
        self.changed.notify_all();
    }

    fn wake(&self) {
        self.waker.wake();
    }
}

impl Transport for ShmEndpoint {
    fn process(&self) -> ProcessId {
        self.config.process
    }

    fn process_count(&self) -> u32 {
        self.config.process_count
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "shm",
            mapped: true,
            needs_target_progress: NeedsTarget::Nothing,
            puts_in_order: true,
            message_bytes_max: USER_BYTES_MAX,
            operations_max: usize::MAX,
            user_memory: UserReach::SystemCall,
        }
    }

    fn register_memory(
        &self,
        memory: Arc<SharedMemory>,
        bytes: usize,
        kind: RegionKind,
    ) -> Result<LocalRegion, FabricError> {
        Ok(self.register_memory_as(Naming::Here(kind), memory, bytes))
    }

    fn register_user(&self, memory: Arc<UserMemory>) -> Result<UserRegion, FabricError> {
        self.register_user_as(Naming::Here(RegionKind::Shared), Lease::new(memory))
    }

    fn deregister(&self, key: RemoteKey) -> Result<Completion, FabricError> {
        let mut state = self.lock();
        let completion = state.engine.deregister(key)?;
        state.attached.remove(&key);
        self.settle(&mut state);
        Ok(completion)
    }

    fn starter(&self) -> LocalRegion {
        self.starter.clone()
    }

    fn attach(&self, key: RemoteKey, deadline: Instant) -> Result<RemoteRegion, FabricError> {
        self.check_process(key.process)?;
        if let Some(region) = self.attached(key) {
            return Ok(region);
        }
        if key.process == self.config.process {
            return Err(FabricError::StaleKey { key });
        }
        self.ask_for(key, deadline)?;
        let mut asked = None;
        let attached = self.wait_for(key.process, "attaching memory", deadline, |state| {
            if let Some(attached) = state.attached.get(&key) {
                return Some(Ok(self.region(key, attached)));
            }
            match state.fetches.get(&key)?.state {
                FetchState::Asked => None,
                FetchState::Private => self.attach_private(state, key, &mut asked),
                FetchState::Refused => Some(Err(FabricError::StaleKey { key })),
                FetchState::NoMemory => {
                    let available = limits::available_memory_bytes();
                    Some(Err(ShmError::NoSpace { bytes: key.bytes as usize, available }.into()))
                }
                FetchState::NoDescriptor => {
                    let cause = net::too_many_open_files();
                    Some(Err(FabricError::System { doing: "receiving the memory of a peer", cause }))
                }
            }
        });
        self.lock().leave_fetch(key);
        attached
    }

    fn attached(&self, key: RemoteKey) -> Option<RemoteRegion> {
        let mut state = self.lock();
        if let Some(attached) = state.attached.get(&key) {
            return Some(self.region(key, attached));
        }
        if state.missed.remove(&key)
            && let Ok(link) = self.link_to(&mut state, key.process)
        {
            // An error is ignored here: the caller does without the region.
            let _ = link.send(&Message::Fetch { slot: key.slot, generation: key.generation }, None);
            self.watch_backlog(link);
        }
        None
    }

    fn offer(&self, to: ProcessId, key: RemoteKey) -> Result<(), FabricError> {
        self.check_process(to)?;
        let mut state = self.lock();
        let Some(region) = state.engine.find(key).cloned() else { return Err(FabricError::StaleKey { key }) };
        // The starter travels with the greetings.
        if to == self.config.process || key.slot == 0 || state.engine.is_held_by(to, key) {
            return Ok(());
        }
        let RegionMemory::Shared(memory) = region else { return Ok(()) };
        let link = self.link_to(&mut state, to)?;
        // Each region is sent once to each peer, so the number of these messages is bounded.
        link.send_anyway(&Message::Fetched(Fetched::shared(key)), Some(memory));
        self.watch_backlog(link);
        state.engine.grant(to, key.into());
        Ok(())
    }

    fn send(&self, to: ProcessId, message: &[u8]) -> Result<(), FabricError> {
        self.check_process(to)?;
        let max = USER_BYTES_MAX;
        if message.len() > max {
            return Err(FabricError::MessageTooLong { bytes: message.len(), max });
        }
        let mut state = self.lock();
        if to == self.config.process {
            state.events.push_back(Event::Message { from: to, message: message.to_vec() });
            self.waker.wake();
            return Ok(());
        }
        let link = self.link_to(&mut state, to)?;
        link.send(&Message::User(message), None)?;
        self.watch_backlog(link);
        Ok(())
    }

    fn receive(&self) -> Option<Event> {
        self.lock().events.pop_front()
    }

    fn wait(&self, also: &[BorrowedFd<'_>], deadline: Option<Instant>) {
        let Some(watched) = self.watched() else { return };
        let also = also.iter().map(|fd| Interest { fd: *fd, writable: false });
        let interests: Vec<Interest<'_>> = watched.interests().chain(also).collect();
        if net::wait_ready(&interests, watched.end_of_sleep(deadline)).is_err() {
            // The system lacks memory for a moment; sleeping keeps the service thread from
            // spinning.
            std::thread::sleep(Duration::from_millis(1));
        }
        self.has_woken();
    }

    fn forget(&self, process: ProcessId) {
        if self.check_process(process).is_ok() && process != self.config.process {
            self.mark_gone(&mut self.lock(), process);
            self.changed.notify_all();
            self.waker.wake();
        }
    }
}

impl ShmEndpoint {
    /// Returns this endpoint as a shared transport.
    ///
    /// # Panics
    /// Never: the caller holds the endpoint.
    pub fn shared(&self) -> Arc<dyn Transport> {
        self.this.upgrade().expect("a borrowed endpoint is alive")
    }
}

/// The link that carries, or would carry, messages to a process.
fn known_link(links: &[Link], outgoing: &[Option<u64>], process: ProcessId) -> Option<usize> {
    match outgoing[process.index()] {
        Some(id) => index_of(links, id),
        None => links.iter().position(|link| link.peer() == Some(process)),
    }
}

/// The link with this number. They are in the order of their numbers.
fn index_of(links: &[Link], id: u64) -> Option<usize> {
    links.binary_search_by_key(&id, Link::id).ok()
}

/// Returns whether a connection may come about later: the peer does not listen yet, its listener is
/// full, or this process has no descriptor.
fn may_pass(error: &FabricError) -> bool {
    let is_short = |cause: &std::io::Error| cause.raw_os_error() == net::too_many_open_files().raw_os_error();
    match error {
        FabricError::NotListening { .. } => true,
        FabricError::System { cause, .. } => cause.kind() == std::io::ErrorKind::WouldBlock || is_short(cause),
        _ => false,
    }
}

fn check_user(socket: &net::MessageSocket, process: ProcessId) -> Result<(), FabricError> {
    let peer = socket.peer().map_err(|cause| FabricError::System { doing: "asking for the peer's identity", cause })?;
    if peer.uid == farside_sys::process::user_id() {
        Ok(())
    } else {
        Err(FabricError::Refused { process, why: "it runs under another user" })
    }
}

/// The name under which a process of the job listens. Every user of the machine can list the names
/// in use. So each name has a part that only the job can compute: a stranger that sees the name of
/// one process cannot take that of another before the other does. The names protect nothing else:
/// strangers are judged when they connect ([`strangers`]).
fn name(config: &ShmConfig, process: ProcessId) -> Vec<u8> {
    let (job_id, number) = (config.job_id, process.number());
    let mut mac = Hmac::<Sha256>::new_from_slice(&config.secret).expect("HMAC accepts keys of any length");
    mac.update(b"name");
    mac.update(&farside_wire::encode(&(job_id, number), Vec::new()));
    let proof: [u8; 32] = mac.finalize().into_bytes().into();
    let part = u64::from_be_bytes(*proof.first_chunk().expect("a proof has more than eight bytes"));
    format!("farside/{job_id:016x}/{number}-{part:016x}").into_bytes()
}

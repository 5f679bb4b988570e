//! Endpoints that are connected one to one, for two programs that are not of one job.
//!
//! A [`Listener`] is found by its address. A client [connects](Connection::connect) with a proof,
//! and the listener's program accepts or rejects the [`Request`] by it. Each side then registers
//! memory, and the other reads and writes it by key and address.
//!
//! A [`Connection`] has a domain of its own, so its keys open nothing on other connections. What
//! libfabric accesses is memory that the connection holds: registered memory, and *slots* through
//! which all bytes of this side go. So a transfer whose end is unknown touches no memory of the
//! program, and a slot is not used again before the transfer has ended.
//!
//! # Progress
//! A thread of each connection makes progress. It sleeps while nothing arrives. The device of
//! `verbs` serves the peer by itself; `tcp` works in software, in this thread. A thread that waits
//! for its own transfer polls, too, before it sleeps.
//!
//! # Trust
//! libfabric checks keys, ranges and rights of what a connected peer asks for: in the device over
//! `verbs`. Over `tcp` version 1.17 believes other fields of what a connected peer sends. So `tcp`
//! is for tests, and for peers that are not hostile.

mod objects;

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker as Task};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farside_sys::net::{Interest, Waker, wait_ready};
use farside_sys::process::Origin;
use farside_sys::shm::{Mapping, MemoryPreference};

pub use self::objects::PROOF_BYTES;
use self::objects::{Endpoint, Event, Fabric, Passive, Rights, Transfer};
use super::library::OneInfo;
use super::provider;
use crate::transport::FabricError;

/// The size of a slot.
pub const SLOT_BYTES: usize = 512 << 10;
/// The number of slots of a connection.
pub const SLOTS: usize = 4;
/// The most pieces that go through a slot at once.
pub const PIECES_MAX: usize = 32;
/// The most memories that a connection holds for libfabric, with that of its slots.
const MEMORIES_MAX: usize = 65;
/// The time between two looks whether a transfer is still wanted.
const SLICE: Duration = Duration::from_millis(10);
/// The pause of a listener after a failure, so that a lasting one takes no processor.
const PAUSE: Duration = Duration::from_millis(10);

/// Checks whether connections can be made over a provider: `verbs`, or `tcp` for tests.
///
/// # Errors
/// [`FabricError::Unavailable`].
pub fn check(provider: &str) -> Result<(), FabricError> {
    Fabric::open(provider, None).map(drop)
}

/// Listens for clients.
pub struct Listener {
    passive: Passive,
    address: SocketAddr,
    fabric: Arc<Fabric>,
}

/// A client that wants to connect.
pub struct Request {
    info: OneInfo,
    proof: Vec<u8>,
    fabric: Arc<Fabric>,
}

impl Listener {
    /// Listens at an address of this machine, by default one that other machines reach.
    ///
    /// # Errors
    /// [`FabricError::Unavailable`] if libfabric, the provider or the address is missing;
    /// [`FabricError::Provider`].
    pub fn open(provider: &str, address: Option<IpAddr>) -> Result<Self, FabricError> {
        let text = address.map(|address| address.to_string());
        let (fabric, info) = Fabric::open(provider, text.as_deref().map(|text| (text, None)))?;
        let passive = Passive::open(&fabric, &info)?;
        let address = provider::socket_address(&passive.name()?).ok_or_else(|| FabricError::Unavailable {
            what: format!("libfabric's provider {provider}"),
            why: "it does not listen at an address of IP".into(),
            remedy: "give the device an address of IP",
        })?;
        Ok(Self { passive, address, fabric })
    }

    /// Returns the address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The provider.
    #[must_use]
    pub fn provider(&self) -> &str {
        self.fabric.provider()
    }

    /// Waits for a client. Returns `None` once `waker` was woken.
    pub fn next(&mut self, waker: &Waker) -> Option<Request> {
        loop {
            match self.passive.events.next() {
                Ok(Some(Event::Request(info, proof))) => {
                    return Some(Request { info, proof, fabric: self.fabric.clone() });
                }
                Ok(Some(_)) => continue,
                Ok(None) if self.passive.events.may_sleep() => {}
                Ok(None) => continue,
                // It concerns a client that has gone.
                Err(_) => std::thread::sleep(PAUSE),
            }
            let interests = [waker.as_fd(), self.passive.events.fd()].map(|fd| Interest { fd, writable: false });
            match wait_ready(&interests, None) {
                Ok(ready) if ready[0] => return None,
                Ok(_) => {}
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Sends a client away.
    pub fn reject(&self, request: Request) {
        self.passive.reject(&request.info);
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Request {
    /// Returns the proof that the client passed, if it passed one.
    #[must_use]
    pub fn proof(&self) -> Option<&[u8; PROOF_BYTES]> {
        // The connection manager may add zeroes.
        self.proof.first_chunk()
    }

    /// Opens the server's end for the client, which must then be [accepted](Connection::accept).
    ///
    /// # Errors
    /// [`FabricError`].
    pub fn open(self) -> Result<Connection, FabricError> {
        Connection::open(&self.fabric, self.info)
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Request")
    }
}

/// One end of a connection.
pub struct Connection {
    shared: Arc<Shared>,
    /// Makes progress.
    progress: Option<JoinHandle<()>>,
    origin: Origin,
}

struct Shared {
    state: Mutex<State>,
    /// Something has ended, or no thread polls.
    changed: Condvar,
    descriptors: [OwnedFd; 2],
    waker: Waker,
    is_closing: AtomicBool,
    /// The number of bytes that this side has read and written.
    moved_bytes: AtomicU64,
}

struct State {
    endpoint: Endpoint,
    is_connected: bool,
    failure: Option<String>,
    /// True if a thread sleeps on the descriptors.
    is_led: bool,
    /// The memory of the slots, and its number at the endpoint.
    room: Option<(Arc<Mapping>, usize)>,
    slots: [SlotState; SLOTS],
    /// Kept values whose transfers have ended. They are dropped without the lock.
    released: Vec<Kept>,
    /// The tasks that wait.
    tasks: Vec<Task>,
}

#[derive(Debug, Default)]
struct SlotState {
    is_taken: bool,
    /// The number of its transfers whose end is not known.
    in_flight: usize,
    /// Kept until they have ended.
    kept: Option<Kept>,
}

/// A value that is dropped when transfers have ended.
pub type Kept = Arc<dyn Any + Send + Sync>;

/// The limits of a wait for a transfer.
#[derive(Clone, Copy)]
pub struct Wait<'a> {
    /// The end of the wait.
    pub deadline: Instant,
    /// Asked now and then. The wait ends if it returns false.
    pub is_wanted: &'a (dyn Fn() -> bool + Sync),
}

impl std::fmt::Debug for Wait<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wait").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// The waiter for a transfer.
#[derive(Clone, Copy, Debug)]
pub enum Waiter<'a> {
    /// This thread, so that nothing is ever pending.
    Thread(Wait<'a>),
    /// A task, which is woken when it may go on.
    Task(&'a Task),
}

/// Why a transfer has not succeeded. It may still be under way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferEnd {
    /// The deadline passed.
    #[error("the deadline passed")]
    Deadline,
    /// The connection is no longer needed.
    #[error("it is no longer wanted")]
    Unwanted,
    /// The connection has failed. Nothing more goes over it.
    #[error("{0}")]
    Failed(String),
}

/// Memory of this side that the peer may access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Its number at the connection.
    pub number: usize,
    /// The name by which the peer reaches it.
    pub remote: RemoteMemory,
}

/// Memory of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMemory {
    /// The key.
    pub key: u64,
    /// The address of the first byte, as libfabric counts.
    pub base: u64,
}

/// Part of a transfer: where in the peer's memory, and how many bytes.
pub type Piece = (u64, usize);

impl Connection {
    /// Connects to a [`Listener`].
    ///
    /// # Errors
    /// [`FabricError`]; among others if the listener rejects the proof, or does not answer by the
    /// deadline.
    pub fn connect(
        provider: &str,
        address: SocketAddr,
        proof: &[u8; PROOF_BYTES],
        deadline: Instant,
    ) -> Result<Self, FabricError> {
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let (fabric, info) = Fabric::open(provider, Some((&host, Some(&port))))?;
        let connection = Self::open(&fabric, info)?;
        connection.shared.lock().endpoint.connect(proof)?;
        let wait = Wait { deadline, is_wanted: &|| true };
        let failed = |why: String| FabricError::Unavailable {
            what: format!("a connection of libfabric's provider {provider} to {address}"),
            why,
            remedy: "see whether the two machines reach each other there, over this provider",
        };
        connection.shared.block(&wait, SLICE, |_| Ok(Some(()))).map_err(|end| failed(end.to_string()))?;
        Ok(connection)
    }

    /// Accepts the client for which this end was opened. Its transfers may begin at once.
    ///
    /// # Errors
    /// [`FabricError`].
    pub fn accept(&self) -> Result<(), FabricError> {
        self.shared.lock().endpoint.accept()
    }

    fn open(fabric: &Arc<Fabric>, info: OneInfo) -> Result<Self, FabricError> {
        let system = |cause| FabricError::System { doing: "opening a connection", cause };
        let endpoint = Endpoint::open(fabric, info, SLOTS * PIECES_MAX)?;
        let descriptors = endpoint.descriptors().map_err(system)?;
        let state = State {
            endpoint,
            is_connected: false,
            failure: None,
            is_led: false,
            room: None,
            slots: Default::default(),
            released: Vec::new(),
            tasks: Vec::new(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            descriptors,
            waker: Waker::new().map_err(system)?,
            is_closing: AtomicBool::new(false),
            moved_bytes: AtomicU64::new(0),
        });
        let thread = std::thread::Builder::new().name("farside rdma".into());
        let progress = thread.spawn({
            let shared = shared.clone();
            move || shared.make_progress()
        });
        Ok(Self { shared, progress: Some(progress.map_err(system)?), origin: Origin::here() })
    }

    /// Lets the peer read memory, or also write it. `None` if there are too many memories already.
    ///
    /// # Errors
    /// [`FabricError::Provider`].
    pub fn register(&self, memory: Arc<Mapping>, may_write: bool) -> Result<Option<Registered>, FabricError> {
        let mut state = self.shared.lock();
        if state.endpoint.held() >= MEMORIES_MAX {
            return Ok(None);
        }
        let rights = if may_write { Rights::ReadAndWrite } else { Rights::Read };
        let (number, key, base) = state.endpoint.register(memory, rights)?;
        Ok(Some(Registered { number, remote: RemoteMemory { key, base } }))
    }

    /// Ends the peer's access. A transfer that it begins later ends the connection.
    pub fn deregister(&self, number: usize) {
        self.shared.lock().endpoint.deregister(number);
    }

    /// The number of bytes that this side has read and written.
    #[must_use]
    pub fn moved_bytes(&self) -> u64 {
        self.shared.moved_bytes.load(Ordering::Relaxed)
    }

    /// Takes a free slot.
    ///
    /// *Cost.* The first call of a connection allocates and registers 2 MiB.
    ///
    /// # Errors
    /// [`TransferEnd`].
    pub fn slot(&self, waiter: Waiter<'_>) -> Poll<Result<Slot<'_>, TransferEnd>> {
        let room = |state: &mut State| -> Result<Arc<Mapping>, FabricError> {
            if let Some((mapping, _)) = &state.room {
                return Ok(mapping.clone());
            }
            let mapping = Mapping::create("farside-rdma", SLOTS * SLOT_BYTES, MemoryPreference::default())?;
            let mapping = Arc::new(mapping);
            let (number, ..) = state.endpoint.register(mapping.clone(), Rights::Local)?;
            state.room = Some((mapping.clone(), number));
            Ok(mapping)
        };
        let taken = self.shared.wait(waiter, |state| {
            let free = state.slots.iter().position(|slot| !slot.is_taken && slot.in_flight == 0);
            let Some(index) = free else { return Ok(None) };
            let mapping = room(state)?;
            state.slots[index].is_taken = true;
            Ok(Some((index, mapping)))
        });
        let slot = |(index, mapping)| Slot { shared: &self.shared, index, mapping, posted: 0, posted_bytes: 0 };
        taken.map(|taken| taken.map(slot))
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("moved_bytes", &self.moved_bytes()).finish_non_exhaustive()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let progress = self.progress.take();
        if !self.origin.is_here() {
            // A forked child has neither the thread nor the device.
            std::mem::forget((self.shared.clone(), progress));
            return;
        }
        self.shared.is_closing.store(true, Ordering::Release);
        self.shared.waker.wake();
        // A kept value may own the connection, and the thread may drop the value.
        if let Some(progress) = progress.filter(|progress| progress.thread().id() != std::thread::current().id()) {
            // It sleeps only on descriptors, one of which is the waker's.
            let _ = progress.join();
        }
    }
}

/// Part of the memory through which transfers go. It is free again when it is dropped and its
/// transfers have ended.
pub struct Slot<'a> {
    shared: &'a Shared,
    index: usize,
    mapping: Arc<Mapping>,
    /// The pieces of a transfer that has been begun in part.
    posted: usize,
    posted_bytes: usize,
}

impl Slot<'_> {
    /// Copies bytes out of the slot.
    ///
    /// # Panics
    /// If the range is not inside the slot.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        let place = self.place(offset, into.len());
        self.mapping.read(place, into).expect("the slot is inside the memory");
    }

    /// Copies bytes into the slot.
    ///
    /// # Panics
    /// If the range is not inside the slot.
    pub fn write(&self, offset: usize, from: &[u8]) {
        let place = self.place(offset, from.len());
        self.mapping.write(place, from).expect("the slot is inside the memory");
    }

    fn place(&self, offset: usize, bytes: usize) -> usize {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= SLOT_BYTES), "the range is inside the slot");
        self.index * SLOT_BYTES + offset
    }

    /// Begins to read pieces of the peer's memory into the slot, or to write them from there. They
    /// lie in the slot one after the other. `kept` is dropped once they have ended, perhaps by
    /// another thread and a moment after a wait for them. A task that is pending calls again, with
    /// the same pieces.
    ///
    /// # Errors
    /// [`TransferEnd`].
    ///
    /// # Panics
    /// If they are longer than the slot together.
    pub fn begin(
        &mut self,
        is_write: bool,
        memory: RemoteMemory,
        pieces: &[Piece],
        kept: &Kept,
        waiter: Waiter<'_>,
    ) -> Poll<Result<(), TransferEnd>> {
        self.shared.wait(waiter, |state| {
            let (_, local) = *state.room.as_ref().expect("a slot is part of it");
            while let Some((offset, bytes)) = pieces.get(self.posted).copied() {
                let transfer = Transfer {
                    is_write,
                    local,
                    local_offset: self.place(self.posted_bytes, bytes),
                    bytes,
                    remote_address: memory.base.wrapping_add(offset),
                    remote_key: memory.key,
                    number: self.index,
                };
                if !state.endpoint.transfer(&transfer)? {
                    return Ok(None);
                }
                let slot = &mut state.slots[self.index];
                slot.in_flight += 1;
                slot.kept.get_or_insert_with(|| kept.clone());
                self.posted += 1;
                self.posted_bytes += bytes;
            }
            self.posted = 0;
            let bytes = std::mem::take(&mut self.posted_bytes);
            self.shared.moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            Ok(Some(()))
        })
    }

    /// Waits until all transfers of the slot have succeeded.
    ///
    /// # Errors
    /// [`TransferEnd`].
    pub fn wait(&self, waiter: Waiter<'_>) -> Poll<Result<(), TransferEnd>> {
        self.shared.wait(waiter, |state| Ok((state.slots[self.index].in_flight == 0).then_some(())))
    }
}

impl std::fmt::Debug for Slot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.slots[self.index].is_taken = false;
        drop(self.shared.tell(state));
    }
}

impl State {
    /// Polls for what has ended. Returns whether anything has.
    fn progress(&mut self) -> bool {
        if self.failure.is_some() {
            return false;
        }
        let before = self.is_connected;
        let mut ended = 0;
        let polled = loop {
            match self.endpoint.events.next() {
                Ok(None) => break Ok(()),
                Ok(Some(Event::Connected)) => self.is_connected = true,
                Ok(Some(Event::Ended)) => break Err("the peer has closed the connection of libfabric".to_owned()),
                Ok(Some(Event::Request(..) | Event::Other)) => {}
                Err(error) => break Err(error.to_string()),
            }
        };
        let Self { slots, released, .. } = self;
        let polled = polled.and_then(|()| {
            let done = self.endpoint.poll(|index| {
                slots[index].in_flight -= 1;
                if slots[index].in_flight == 0 {
                    released.extend(slots[index].kept.take());
                }
            });
            done.map(|count| ended = count).map_err(|error| error.to_string())
        });
        self.failure = polled.err();
        ended > 0 || self.is_connected != before || self.failure.is_some()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is complete before anything could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all that wait, and drops what was kept, which runs code of others.
    fn tell<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.notify_all();
        let (tasks, released) = (std::mem::take(&mut state.tasks), std::mem::take(&mut state.released));
        if tasks.is_empty() && released.is_empty() {
            return state;
        }
        drop(state);
        drop(released);
        tasks.into_iter().for_each(Task::wake);
        self.lock()
    }

    /// Polls, and returns what `look` finds once the connection stands.
    fn look<'a, T>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        look: &mut impl FnMut(&mut State) -> Result<Option<T>, FabricError>,
    ) -> Result<(MutexGuard<'a, State>, Option<T>), TransferEnd> {
        if state.progress() {
            state = self.tell(state);
        }
        if let Some(failure) = &state.failure {
            return Err(TransferEnd::Failed(failure.clone()));
        }
        let found = if state.is_connected { look(&mut state) } else { Ok(None) };
        let found = found.map_err(|error| TransferEnd::Failed(error.to_string()))?;
        Ok((state, found))
    }

    /// Waits until the connection stands and `look` returns something.
    fn wait<T>(
        &self,
        waiter: Waiter<'_>,
        mut look: impl FnMut(&mut State) -> Result<Option<T>, FabricError>,
    ) -> Poll<Result<T, TransferEnd>> {
        match waiter {
            Waiter::Thread(wait) => Poll::Ready(self.block(&wait, SLICE, look)),
            Waiter::Task(task) => {
                let (mut state, found) = self.look(self.lock(), &mut look)?;
                match found {
                    Some(found) => Poll::Ready(Ok(found)),
                    None => {
                        // The thread that makes progress wakes it.
                        if !state.tasks.iter().any(|known| known.will_wake(task)) {
                            state.tasks.push(task.clone());
                        }
                        Poll::Pending
                    }
                }
            }
        }
    }

    /// Waits as [`wait`](Self::wait) does. One of the waiting threads at a time sleeps on the
    /// descriptors.
    fn block<T>(
        &self,
        wait: &Wait<'_>,
        slice: Duration,
        mut look: impl FnMut(&mut State) -> Result<Option<T>, FabricError>,
    ) -> Result<T, TransferEnd> {
        let mut state = self.lock();
        loop {
            let found;
            (state, found) = self.look(state, &mut look)?;
            if let Some(found) = found {
                return Ok(found);
            }
            let now = Instant::now();
            if now >= wait.deadline {
                return Err(TransferEnd::Deadline);
            }
            if !(wait.is_wanted)() {
                return Err(TransferEnd::Unwanted);
            }
            let until = wait.deadline.min(now + slice);
            if state.is_led {
                let waited = self.changed.wait_timeout(state, until - now);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            // Otherwise there is something to poll for.
            if state.endpoint.may_sleep() {
                state.is_led = true;
                drop(state);
                let [cq, eq] = &self.descriptors;
                let interests = [cq.as_fd(), eq.as_fd(), self.waker.as_fd()];
                let interests = interests.map(|fd| Interest { fd, writable: false });
                if wait_ready(&interests, Some(until)).is_err() {
                    // The system lacks memory for a moment.
                    std::thread::sleep(Duration::from_millis(1));
                }
                state = self.lock();
                state.is_led = false;
                self.changed.notify_all();
            }
        }
    }

    /// Makes progress until the connection ends.
    fn make_progress(&self) {
        let year = Duration::from_secs(365 * 24 * 3600);
        let is_wanted = || !self.is_closing.load(Ordering::Acquire);
        loop {
            let wait = Wait { deadline: Instant::now() + year, is_wanted: &is_wanted };
            match self.block::<()>(&wait, year, |_| Ok(None)) {
                Err(TransferEnd::Deadline) => {}
                Ok(()) | Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;

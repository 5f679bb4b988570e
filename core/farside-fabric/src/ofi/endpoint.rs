//! An endpoint as a [`Transport`].

mod queue;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use farside_sys::net::{self, Interest, Waker};
use farside_sys::shm::SharedMemory;

use self::queue::OfiQueue;
use super::events::News;
use super::library::Api;
use super::message::Card;
use super::port::Port;
use super::provider;
use super::state::{MESSAGE_BYTES_MAX, OPERATIONS_MAX, State};
use crate::ids::ProcessId;
use crate::queue::{QueueOptions, TransferQueue};
use crate::region::{Lease, LocalRegion, Naming, RemoteRegion, UserMemory, UserRegion};
use crate::transport::{
    Capabilities, Carrier, Completion, Event, FabricError, NeedsTarget, Operation, RegionKind, RemoteKey, Transport,
    Unposted, UserReach,
};

/// Interval for retries of what libfabric had no room for, and for a thread that stands back to
/// check whether it still should.
const RETRY_AFTER: Duration = Duration::from_millis(1);
/// Interval at which a thread that blocks on libfabric's descriptor polls all the same: some
/// providers fail to announce events.
const LOOK_AFTER: Duration = Duration::from_millis(50);
/// Time limit for the last messages to leave when an endpoint is closed, and for its peers to know.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// The identity of an endpoint, and its fabric.
#[derive(Clone, Debug)]
pub struct OfiConfig {
    /// This process.
    pub process: ProcessId,
    /// Number of processes.
    pub process_count: u32,
    /// Size of every process's starter memory.
    pub starter_bytes: usize,
    /// The provider, or `tcp` or `verbs` for short; `None` for the best available one.
    pub provider: Option<String>,
    /// The address of this machine for peers; `None` for one that other machines can reach.
    pub address: Option<String>,
    /// The device or interface, by the name of libfabric's domain (`farside info` lists them);
    /// `None` for the best available one.
    pub device: Option<String>,
}

/// One process's end of a libfabric fabric.
#[derive(Debug)]
pub struct OfiEndpoint {
    process: ProcessId,
    process_count: u32,
    provider: String,
    card: Vec<u8>,
    works_in_software: bool,
    state: Mutex<State>,
    waker: Waker,
    /// Readable when libfabric has something to do. `None` where libfabric has no such descriptor,
    /// and must be polled.
    activity: Option<OwnedFd>,
    /// Number of calls that made progress.
    looks: AtomicU64,
    /// The value of `looks` at the last check by the thread in `wait`.
    looks_seen: AtomicU64,
    /// True if the threads that make progress repeatedly have stopped.
    unattended: AtomicBool,
    /// True if there is an event to receive.
    news: Arc<News>,
    this: Weak<Self>,
}

impl OfiEndpoint {
    /// Opens this process's endpoint. It reaches no peer before it is
    /// [introduced](Self::introduce).
    ///
    /// *Cost*: some milliseconds, in which libfabric searches for devices; 2 MiB of memory for
    /// messages.
    ///
    /// # Errors
    /// [`FabricError::Unavailable`] if libfabric, the provider or the address is missing;
    /// [`FabricError::Provider`] if the provider refuses; [`FabricError::Memory`].
    pub fn open(config: OfiConfig) -> Result<Arc<Self>, FabricError> {
        let memory = Arc::new(SharedMemory::create("farside-starter", config.starter_bytes)?);
        Self::open_over(config, memory)
    }

    /// Opens an endpoint like [`open`](Self::open), with starter memory that another transport has
    /// registered, too.
    ///
    /// # Errors
    /// [`FabricError::Unavailable`] if libfabric, the provider or the address is missing;
    /// [`FabricError::Provider`] if the provider refuses; [`FabricError::System`] if descriptors
    /// are exhausted.
    pub fn open_over(config: OfiConfig, starter: Arc<SharedMemory>) -> Result<Arc<Self>, FabricError> {
        let api = Api::open()?;
        let (info, provider) =
            provider::choose(api, config.provider.as_deref(), config.address.as_deref(), config.device.as_deref())?;
        tracing::debug!(process = config.process.number(), provider, "libfabric provider chosen");
        let port = Port::open(api, info, provider.clone(), config.process_count as usize)?;
        let card = Card::new(&provider, port.address()?).encode();
        let state = State::new(port, config.process, config.process_count, starter, config.starter_bytes)?;
        let activity = state.port().fd().map(|fd| fd.try_clone_to_owned()).transpose();
        let activity = activity.map_err(|cause| FabricError::System { doing: "sharing a descriptor", cause })?;
        let waker = Waker::new().map_err(|cause| FabricError::System { doing: "making a waker", cause })?;
        Ok(Arc::new_cyclic(|this| Self {
            process: config.process,
            process_count: config.process_count,
            provider,
            card,
            works_in_software: state.works_in_software(),
            news: state.news().clone(),
            state: Mutex::new(state),
            waker,
            activity,
            looks: AtomicU64::new(0),
            looks_seen: AtomicU64::new(0),
            unattended: AtomicBool::new(false),
            this: this.clone(),
        }))
    }

    /// The data that peers need to reach this endpoint: some dozens of bytes, to be passed to all
    /// of them.
    pub fn card(&self) -> &[u8] {
        &self.card
    }

    /// Introduces all processes by their [cards](Self::card), in the order of the processes and
    /// including this one. Only the processes of the job know `secret`; messages from others are
    /// ignored.
    ///
    /// # Errors
    /// [`FabricError::Refused`] if a card is malformed or of another provider, or if the provider
    /// is `shm` and another process of the job is in this program; [`FabricError::Provider`].
    pub fn introduce(&self, cards: &[Vec<u8>], secret: &[u8; 16]) -> Result<(), FabricError> {
        let own = Card::decode(&self.card).expect("our own card is valid");
        let mut addresses = Vec::with_capacity(cards.len());
        for (process, card) in (0..).map(ProcessId::new).zip(cards) {
            let card =
                Card::decode(card).ok_or(FabricError::Refused { process, why: "it has no address on this fabric" })?;
            let refusal = own.refusal(&card).filter(|_| process != self.process);
            if let Some(why) = refusal {
                return Err(FabricError::Refused { process, why });
            }
            if provider::is_loopback(&card.address) != provider::is_loopback(&own.address) {
                let why = "one of the two has an address that only its own machine can reach: see whether its network is up, or set \
                           FARSIDE_ADDRESS there";
                return Err(FabricError::Refused { process, why });
            }
            addresses.push(card.address);
        }
        if addresses.len() != self.process_count as usize {
            let process = ProcessId::new(addresses.len() as u32);
            return Err(FabricError::Refused { process, why: "it has no address on this fabric" });
        }
        let token = u64::from_le_bytes(*secret.first_chunk().expect("a secret has more than eight bytes"));
        self.lock().introduce(&addresses, token)
    }

    /// The provider, as libfabric spells it.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// Opens a queue to a peer, or returns `None` for this process itself, whose memory is reached
    /// by copies.
    ///
    /// # Errors
    /// [`FabricError::NoSuchProcess`], [`FabricError::Disconnected`].
    pub fn open_queue(
        &self,
        peer: ProcessId,
        options: QueueOptions,
    ) -> Result<Option<Box<dyn TransferQueue>>, FabricError> {
        self.check_process(peer)?;
        if peer == self.process {
            return Ok(None);
        }
        let (id, limits, frontier) = self.lock().open_queue(peer, options.depth)?;
        let end = self.this.upgrade().expect("an end that is borrowed is alive");
        Ok(Some(Box::new(OfiQueue { end, id, limits, frontier })))
    }

    /// Number of buffers that libfabric has not released, of operations that ended because their
    /// peers were lost or they were cancelled.
    pub fn quarantined(&self) -> usize {
        self.lock().quarantined()
    }

    /// Number of regions of this process that stay registered although they were withdrawn. A lost
    /// peer held them, and libfabric may still carry an operation on them.
    pub fn quarantined_regions(&self) -> usize {
        self.lock().quarantined_regions()
    }

    pub(crate) fn register_memory_as(
        &self,
        naming: Naming,
        memory: Arc<SharedMemory>,
        bytes: usize,
    ) -> Result<LocalRegion, FabricError> {
        self.lock().register(naming, memory, bytes)
    }

    pub(crate) fn register_user_as(&self, naming: Naming, lease: Arc<Lease>) -> Result<UserRegion, FabricError> {
        self.lock().register_user(naming, lease)
    }

    /// Number of buffers of puts and gets that were registered separately, because the pool had no
    /// registered memory for them. Counted only on a provider that requires registered buffers.
    pub fn registered_by_themselves(&self) -> u64 {
        self.lock().passed_pool()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is complete before anything could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_process(&self, process: ProcessId) -> Result<(), FabricError> {
        if process.number() < self.process_count {
            Ok(())
        } else {
            Err(FabricError::NoSuchProcess { process, count: self.process_count })
        }
    }

    fn region(&self, key: RemoteKey) -> RemoteRegion {
        let this = self.this.upgrade().expect("a borrowed endpoint is alive");
        RemoteRegion::posted_on(key, this)
    }

    /// Wakes the sleeping thread after a message was sent, if it may have to receive the message,
    /// or to send it later. `state` is as the sending left it.
    fn wake_for_message(&self, to: ProcessId, state: MutexGuard<'_, State>) {
        let must_wake = to == self.process || state.waits_for_room();
        drop(state);
        if must_wake {
            self.waker.wake();
        }
    }

    /// Makes progress for a thread that does not wait. A sleeping thread may not have seen what
    /// arrived, so it is woken for that.
    fn move_on(&self, state: &mut State) {
        state.progress();
        if self.news.is_there() && std::mem::take(&mut state.sleeps) {
            self.waker.wake();
        }
    }

    /// Returns how long the thread in `wait` may sleep now; `None` if there is something to do.
    /// `attended`: another thread makes progress.
    fn time_to_sleep(&self, attended: bool) -> Option<Duration> {
        // The other thread holds the lock nearly all the time: if this one requested it too, each
        // would wake the other.
        if attended {
            return (!self.news.is_there()).then_some(RETRY_AFTER);
        }
        let mut state = self.lock();
        if self.news.is_there() || (!state.port().may_sleep() && state.progress()) {
            return None;
        }
        state.sleeps = true;
        let look_soon = self.activity.is_none() || state.waits_for_room();
        Some(if look_soon { RETRY_AFTER } else { LOOK_AFTER })
    }

    /// Returns whether another thread has made progress since the last call. `own` is the caller's
    /// own number of looks.
    fn is_attended(&self, own: u64) -> bool {
        let looks = self.looks.load(Ordering::Relaxed);
        let seen = self.looks_seen.swap(looks, Ordering::Relaxed);
        !self.unattended.swap(false, Ordering::Relaxed) && looks.wrapping_sub(seen) > own
    }
}

impl Carrier for OfiEndpoint {
    fn post(&self, key: RemoteKey, operation: Operation) -> Result<Completion, Unposted> {
        let mut state = self.lock();
        let posted = state.post(key, operation);
        if posted.is_err() {
            // There may be room for the next attempt.
            self.move_on(&mut state);
        }
        posted
    }

    fn progress(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.move_on(&mut self.lock());
    }

    fn wake(&self) {
        self.waker.wake();
    }

    fn stop_polling(&self) {
        self.unattended.store(true, Ordering::Relaxed);
        self.waker.wake();
    }
}

impl Transport for OfiEndpoint {
    fn process(&self) -> ProcessId {
        self.process
    }

    fn process_count(&self) -> u32 {
        self.process_count
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "ofi",
            mapped: false,
            needs_target_progress: if self.works_in_software { NeedsTarget::Everything } else { NeedsTarget::Atomics },
            puts_in_order: false,
            message_bytes_max: MESSAGE_BYTES_MAX,
            operations_max: OPERATIONS_MAX,
            user_memory: UserReach::Native,
        }
    }

    fn register_memory(
        &self,
        memory: Arc<SharedMemory>,
        bytes: usize,
        kind: RegionKind,
    ) -> Result<LocalRegion, FabricError> {
        // libfabric refuses mostly because no more memory may be locked.
        self.register_memory_as(Naming::Here(kind), memory, bytes)
    }

    fn register_user(&self, memory: Arc<UserMemory>) -> Result<UserRegion, FabricError> {
        self.register_user_as(Naming::Here(RegionKind::Shared), Lease::new(memory))
    }

    fn deregister(&self, key: RemoteKey) -> Result<Completion, FabricError> {
        let mut state = self.lock();
        // Receive first: a holder that has closed its endpoint may have sent a farewell. A write to
        // it would only report a broken connection, and the provider would then not deliver the
        // farewell.
        self.move_on(&mut state);
        let completion = state.deregister(key)?;
        let must_wake = state.waits_for_room();
        drop(state);
        if must_wake {
            self.waker.wake();
        }
        Ok(completion)
    }

    fn starter(&self) -> LocalRegion {
        self.lock().starter()
    }

    fn attach(&self, key: RemoteKey, deadline: Instant) -> Result<RemoteRegion, FabricError> {
        self.check_process(key.process)?;
        let asked = self.lock().attach(key)?;
        match asked.wait(self, key.process, deadline) {
            Ok(_) => Ok(self.region(key)),
            Err(FabricError::Deadline { process, .. }) => {
                Err(FabricError::Deadline { doing: "attaching memory", process })
            }
            Err(error) => Err(error),
        }
    }

    fn attached(&self, key: RemoteKey) -> Option<RemoteRegion> {
        let is_attached = self.lock().is_attached(key);
        is_attached.then(|| self.region(key))
    }

    fn send(&self, to: ProcessId, message: &[u8]) -> Result<(), FabricError> {
        self.send_with(to, message.len(), &mut |slot| slot.copy_from_slice(message))
    }

    fn send_with(&self, to: ProcessId, bytes: usize, write: &mut dyn FnMut(&mut [u8])) -> Result<(), FabricError> {
        self.check_process(to)?;
        let mut state = self.lock();
        state.send(to, bytes, write)?;
        self.wake_for_message(to, state);
        Ok(())
    }

    fn receive(&self) -> Option<Event> {
        // Usually there is no event, and another thread that makes progress holds the lock.
        if self.news.is_there() { self.lock().next_event() } else { None }
    }

    fn wait(&self, also: &[BorrowedFd<'_>], deadline: Option<Instant>) {
        // The waiting thread has made progress once since its last wait.
        let mut own = 1;
        loop {
            let attended = self.is_attended(own);
            own = 0;
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return;
            }
            let Some(slice) = self.time_to_sleep(attended) else { return };
            let until = deadline.map_or(now + slice, |deadline| deadline.min(now + slice));
            let activity = self.activity.as_ref().filter(|_| !attended).map(AsFd::as_fd);
            let all = [self.waker.as_fd()].into_iter().chain(also.iter().copied()).chain(activity);
            let interests: Vec<Interest<'_>> = all.map(|fd| Interest { fd, writable: false }).collect();
            let is_woken = match net::wait_ready(&interests, Some(until)) {
                Ok(ready) => {
                    if ready[0] {
                        self.waker.reset();
                    }
                    ready[..=also.len()].contains(&true)
                }
                // The system lacks memory for a moment; sleeping keeps the thread from spinning.
                Err(_) => {
                    std::thread::sleep(RETRY_AFTER);
                    false
                }
            };
            let came_in = !attended && {
                let mut state = self.lock();
                state.sleeps = false;
                !is_woken && state.progress()
            };
            if is_woken || came_in {
                return;
            }
        }
    }

    fn forget(&self, process: ProcessId) {
        if self.check_process(process).is_ok() && process != self.process {
            self.lock().lose(process);
            self.waker.wake();
        }
    }
}

impl Drop for OfiEndpoint {
    fn drop(&mut self) {
        let mut state = self.lock();
        let deadline = Instant::now() + FAREWELL_MAX;
        while !state.say_farewell() && Instant::now() < deadline {
            if !state.progress() {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }
}

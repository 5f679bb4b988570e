//! An endpoint as a [`Transport`].

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use farside_sys::net::{self, Interest, Waker};
use farside_sys::shm::SharedMemory;

use super::events::News;
use super::library::Api;
use super::message::Card;
use super::port::Port;
use super::provider;
use super::queue::OfiQueue;
use super::state::{LIMITS, MESSAGE_BYTES_MAX, OPERATIONS_MAX, State};
use crate::by_message::RegionName;
use crate::ids::ProcessId;
use crate::private::{Lease, PrivateMemory, PrivateRegion};
use crate::queue::{QueueOptions, TransferQueue};
use crate::region::{LocalRegion, RemoteRegion};
use crate::transport::{
    Capabilities, Completion, Event, FabricError, NeedsTarget, Operation, PrivateReach, RemoteKey, Tag, Transport,
    Unposted,
};

/// When something that libfabric has no room for is tried again, and when a thread that stands back looks whether it still should.
const RETRY_AFTER: Duration = Duration::from_millis(1);
/// When a thread that blocks on libfabric's descriptor looks all the same: providers have forgotten to announce things.
const LOOK_AFTER: Duration = Duration::from_millis(50);
/// How long the last messages may take to leave when an endpoint is closed.
const FAREWELL_MAX: Duration = Duration::from_millis(500);

/// Who an endpoint is, and which fabric it is to use.
#[derive(Clone, Debug)]
pub struct OfiConfig {
    /// This process.
    pub process: ProcessId,
    /// How many there are.
    pub process_count: u32,
    /// The size of everybody's starter memory.
    pub starter_bytes: usize,
    /// The provider, `tcp` and `verbs` for short; `None` for the best there is.
    pub provider: Option<String>,
    /// The address of this machine to be reached at; `None` for one that other machines can reach.
    pub address: Option<String>,
    /// The device or interface, as libfabric's domains are called (`farside info` lists them); `None` for the best there is.
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
    /// Readable when libfabric has something to do. `None` where it does not tell, and must be looked at.
    activity: Option<OwnedFd>,
    /// How often somebody made progress.
    looks: AtomicU64,
    /// The number of looks when the thread in `wait` last looked at it.
    looks_seen: AtomicU64,
    /// Nobody makes progress again and again any more.
    unattended: AtomicBool,
    /// Whether there is something to be received.
    news: Arc<News>,
    this: Weak<Self>,
}

impl OfiEndpoint {
    /// Opens this process's end. It reaches nobody before it is [introduced](Self::introduce).
    ///
    /// *Cost*: some milliseconds, in which libfabric looks for devices; memory for messages of 2 MiB.
    ///
    /// # Errors
    /// [`FabricError::Unavailable`] when libfabric, the provider or the address is not there; [`FabricError::Provider`] when it
    /// refuses; [`FabricError::Memory`].
    pub fn open(config: OfiConfig) -> Result<Arc<Self>, FabricError> {
        let memory = Arc::new(SharedMemory::create("farside-starter", config.starter_bytes)?);
        Self::open_over(config, memory)
    }

    /// As [`open`](Self::open), with starter memory that another transport has registered, too.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_over(config: OfiConfig, starter: Arc<SharedMemory>) -> Result<Arc<Self>, FabricError> {
        let api = Api::open()?;
        let (info, provider) =
            provider::choose(api, config.provider.as_deref(), config.address.as_deref(), config.device.as_deref())?;
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

    /// What the others must know to reach this end: some dozens of bytes, to be brought to all of them.
    pub fn card(&self) -> &[u8] {
        &self.card
    }

    /// Gets to know the others, by their [cards](Self::card) in the order of the processes, its own among them. `secret` is
    /// known to the processes of the job only; messages of others are passed over.
    ///
    /// # Errors
    /// [`FabricError::Refused`] when a card is none, or of another provider, or the provider is `shm` and another process of the
    /// job is in this program, too; [`FabricError::Provider`].
    pub fn introduce(&self, cards: &[Vec<u8>], secret: &[u8; 16]) -> Result<(), FabricError> {
        let own = Card::decode(&self.card).expect("our own card is one");
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
        let token = u64::from_le_bytes(*secret.first_chunk().expect("a secret is longer"));
        self.lock().introduce(&addresses, token)
    }

    /// The provider, as libfabric spells it.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// Opens a queue to a peer, or returns `None` for this process itself, whose memory is reached by copies.
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

    /// Buffers of operations that ended because their peers are lost or they were cancelled, and that libfabric has not let go of.
    pub fn quarantined(&self) -> usize {
        self.lock().quarantined()
    }

    /// Regions of this process that were taken back and stay nevertheless, since a peer was lost that held them and that libfabric may
    /// still carry something for.
    pub fn quarantined_regions(&self) -> usize {
        self.lock().quarantined_regions()
    }

    pub(crate) fn register_memory_as(
        &self,
        name: Option<RegionName>,
        memory: Arc<SharedMemory>,
        bytes: usize,
    ) -> Result<LocalRegion, FabricError> {
        self.lock().register(name, memory, bytes)
    }

    pub(crate) fn register_private_as(
        &self,
        name: Option<RegionName>,
        lease: Arc<Lease>,
    ) -> Result<PrivateRegion, FabricError> {
        self.lock().register_private(name, lease)
    }

    /// Buffers of puts and gets that were registered by themselves, on a provider that wants them registered, since they found no
    /// memory that is.
    pub fn registered_by_themselves(&self) -> u64 {
        self.lock().passed_pool()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is finished before anything that could panic.
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
        let this = self.this.upgrade().expect("an end that is borrowed is alive");
        RemoteRegion::posted_on(key, this)
    }

    /// A message was sent, and `state` is as that left it: who sleeps may have to receive it, or to see to its going out.
    fn wake_for_message(&self, to: ProcessId, state: MutexGuard<'_, State>) {
        let must_wake = to == self.process || state.waits_for_room();
        drop(state);
        if must_wake {
            self.waker.wake();
        }
    }

    /// Makes progress for a thread that does not wait. One that sleeps may have seen none of what came in, so it is woken for that.
    fn move_on(&self, state: &mut State) {
        state.progress();
        if self.news.is_there() && std::mem::take(&mut state.sleeps) {
            self.waker.wake();
        }
    }

    /// How long the thread in `wait` may sleep now; `None` when there is something to do. `attended`: another thread makes progress.
    fn time_to_sleep(&self, attended: bool) -> Option<Duration> {
        // That thread has the lock nearly all the time: if this one asked for it, too, each of them would wake the other.
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

    /// Whether another thread has made progress since this was last asked, apart from the caller's own `looks` times.
    fn is_attended(&self, own: u64) -> bool {
        let looks = self.looks.load(Ordering::Relaxed);
        let seen = self.looks_seen.swap(looks, Ordering::Relaxed);
        !self.unattended.swap(false, Ordering::Relaxed) && looks.wrapping_sub(seen) > own
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
            expected_bytes_max: LIMITS.expected_bytes_max(),
            expectations_max: LIMITS.expectations_max(),
            operations_max: OPERATIONS_MAX,
            private_memory: PrivateReach::Native,
        }
    }

    fn register_memory(&self, memory: Arc<SharedMemory>, bytes: usize) -> Result<LocalRegion, FabricError> {
        // libfabric refuses mostly because no more memory may be locked.
        self.register_memory_as(None, memory, bytes)
    }

    fn register_private(&self, memory: Arc<PrivateMemory>) -> Result<PrivateRegion, FabricError> {
        self.register_private_as(None, Lease::new(memory))
    }

    fn deregister(&self, key: RemoteKey) -> Result<Completion, FabricError> {
        let mut state = self.lock();
        // A holder that has left may have said so: who writes to it first is told that the connection broke, and the provider does not
        // read what lies there.
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

    fn post(&self, key: RemoteKey, operation: Operation) -> Result<Completion, Unposted> {
        let mut state = self.lock();
        let posted = state.post(key, operation);
        if posted.is_err() {
            // Perhaps there is room for the next try.
            self.move_on(&mut state);
        }
        posted
    }

    fn send(&self, to: ProcessId, message: &[u8]) -> Result<(), FabricError> {
        self.check_process(to)?;
        let mut state = self.lock();
        state.send(to, message)?;
        self.wake_for_message(to, state);
        Ok(())
    }

    fn expect(&self, from: ProcessId, tag: Tag, room: usize) -> Result<Completion, FabricError> {
        self.lock().expect(from, tag, room)
    }

    fn send_expected(&self, to: ProcessId, tag: Tag, message: &[u8]) -> Result<(), FabricError> {
        let mut state = self.lock();
        state.send_expected(to, tag, message)?;
        self.wake_for_message(to, state);
        Ok(())
    }

    fn receive(&self) -> Option<Event> {
        // Mostly there is nothing, and the lock is somebody's who makes progress.
        if self.news.is_there() { self.lock().next_event() } else { None }
    }

    fn progress(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.move_on(&mut self.lock());
    }

    fn wait(&self, also: &[BorrowedFd<'_>], deadline: Option<Instant>) {
        // The thread that waits has made progress once since it last waited.
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
                // Out of memory for a moment: do not turn the thread into a spinner.
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

    fn wake(&self) {
        self.waker.wake();
    }

    fn stop_polling(&self) {
        self.unattended.store(true, Ordering::Relaxed);
        self.waker.wake();
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
        while (!state.say_farewell() || state.sends()) && Instant::now() < deadline {
            if !state.progress() {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }
}

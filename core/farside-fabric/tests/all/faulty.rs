//! A transport with a fault: a wrapper around a sound one, which breaks the contract in one place.

mod queue;

use std::any::Any;
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use farside_fabric::queue::QueueOptions;
use farside_fabric::transport::AtomicChange;
use farside_fabric::{
    Capabilities, Carrier, Completion, Event, FabricError, LocalRegion, NeedsTarget, Operation, Outcome, ProcessId,
    RegionKind, RemoteKey, RemoteRegion, Transport, Unposted, UserMemory, UserRegion,
};
use farside_sys::shm::SharedMemory;
use farside_transmit::Queue;

/// A fault of a transport or a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// An atomic add of 32 bits carries into the word above.
    AddsTooWide,
    /// Messages to, and receives from, processes that do not exist succeed.
    AcceptsUnknownProcesses,
    AttachesAnything,
    AttachesOnceAtATime,
    /// An access that ends outside the region succeeds without any effect.
    ClipsAccesses,
    ComparesSigned,
    CompletesPutsEarly,
    CutsMessages,
    /// A process can neither attach its own regions nor send itself messages.
    RefusesItself,
    /// A deregistration ends at once.
    EndsDeregistrationsEarly,
    ForgetsAttached,
    ForgetsEarlyWakes,
    HidesEnds,
    HidesMemoryErrors,
    HidesNeedForTargets,
    IgnoresDeadlines,
    IgnoresDescriptors,
    IgnoresForget,
    /// Memory is said to be mapped, and an offer of a region does nothing.
    IgnoresOffers,
    /// A write to read-only memory succeeds without any effect.
    IgnoresRights,
    IgnoresWakes,
    /// Deregistering succeeds, and the key stays valid.
    KeepsKeys,
    KeepsPutBuffers,
    /// Operations on a lost peer never end.
    LeavesOperationsOpen,
    ListensInReceiveOnly,
    LosesAtomics,
    LosesMessages,
    LosesPipelinedPuts,
    /// An operation that a full queue refuses is dropped and reported as done.
    LosesWhenFull,
    MistakesSenders,
    MixesRegions,
    NeverSleeps,
    PutsTooLittle,
    PutsTooMuch,
    /// User memory that is registered again keeps its first region.
    RegistersOnce,
    /// It registers other memory of the same size.
    RegistersOtherMemory,
    ReordersMessages,
    RepeatsMessages,
    ReportsEndsTwice,
    ReturnsAnotherStarter,
    /// A new region is one that was deregistered, with its old key and content.
    ReusesRegions,
    SendsToLostPeers,
    /// A queue reports an operation before it is posted.
    SignalsEarly,
    NeverWakes,
    InventsMessagesOfLostPeers,
    /// A refused put returns its buffer filled with zeros.
    SpoilsRefused,
    /// An atomic change is a load and then a store.
    SplitsAtomics,
    /// As [`SplitsAtomics`](Self::SplitsAtomics), but peers exclude each other: only the owner can
    /// intervene.
    SplitsAtomicsFromOwner,
    SwapsWithoutCompare,
    /// A queue accepts an overrun.
    TakesOverruns,
    TakesMessagesTooLong,
    /// A put of eight bytes is made as two of four.
    TearsWords,
}

/// Faults that occur now and then occur once in this many calls.
const EVERY: u64 = 20;

/// The end of one process: a wrapper around a sound end.
#[derive(Debug)]
pub(crate) struct FaultyEnd {
    fault: Fault,
    sound: Arc<dyn Transport>,
    /// State that all ends of one fabric share.
    common: Arc<Common>,
    this: Weak<Self>,
    counter: AtomicU64,
    /// Events for later calls of `receive`.
    owed: Mutex<VecDeque<Event>>,
    /// Operations whose results may be kept back.
    watched: Mutex<Vec<Watched>>,
    last_put: Mutex<Option<Completion>>,
    registered: Mutex<HashMap<RemoteKey, LocalRegion>>,
    given_back: Mutex<Vec<LocalRegion>>,
    private: Mutex<Vec<UserRegion>>,
    attaching: Mutex<HashSet<RemoteKey>>,
    waiting: AtomicUsize,
    woken: AtomicBool,
}

#[derive(Debug, Default)]
struct Common {
    exclusion: Mutex<()>,
}

#[derive(Debug)]
struct Watched {
    peer: ProcessId,
    sound: Completion,
    faulty: Completion,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics under this lock")
}

fn later() -> Instant {
    farside_testbed::deadline()
}

fn ended(result: Result<Outcome, FabricError>) -> Completion {
    let completion = Completion::pending();
    completion.end(result);
    completion
}

impl FaultyEnd {
    pub(crate) fn around(ends: Vec<Arc<dyn Transport>>, fault: Fault) -> Vec<Arc<dyn Transport>> {
        let common = Arc::new(Common::default());
        let wrap = |sound| -> Arc<dyn Transport> { Self::new(sound, fault, common.clone()) };
        ends.into_iter().map(wrap).collect()
    }

    fn new(sound: Arc<dyn Transport>, fault: Fault, common: Arc<Common>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            fault,
            sound,
            common,
            this: this.clone(),
            counter: AtomicU64::new(0),
            owed: Mutex::default(),
            watched: Mutex::default(),
            last_put: Mutex::default(),
            registered: Mutex::default(),
            given_back: Mutex::default(),
            private: Mutex::default(),
            attaching: Mutex::default(),
            waiting: AtomicUsize::new(0),
            woken: AtomicBool::new(false),
        })
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// Returns whether the fault occurs this time: once in [`EVERY`] calls.
    fn strikes(&self, fault: Fault) -> bool {
        self.has(fault) && self.counter.fetch_add(1, Ordering::SeqCst) % EVERY == EVERY - 1
    }

    fn region(&self, key: RemoteKey) -> RemoteRegion {
        RemoteRegion::posted_on(key, self.this.upgrade().expect("an end that is borrowed is alive"))
    }

    fn run(&self, key: RemoteKey, operation: Operation) -> Result<Outcome, FabricError> {
        self.sound.post(key, operation)?.wait(&*self.sound, key.process, later())
    }
}

/// Faulty operations.
impl FaultyEnd {
    fn put(&self, key: RemoteKey, offset: u64, data: Vec<u8>) -> Result<Completion, FabricError> {
        let post = |offset, data| Ok(self.sound.post(key, Operation::Put { offset, data })?);
        match self.fault {
            Fault::CompletesPutsEarly => {
                post(offset, data.clone())?;
                return Ok(ended(Ok(Outcome::Put(data))));
            }
            Fault::KeepsPutBuffers => {
                self.run(key, Operation::Put { offset, data })?;
                return Ok(ended(Ok(Outcome::Put(Vec::new()))));
            }
            Fault::PutsTooLittle if data.len() > 64 => {
                self.run(key, Operation::Put { offset, data: data[..data.len() - 1].to_vec() })?;
                return Ok(ended(Ok(Outcome::Put(data))));
            }
            Fault::PutsTooMuch if offset + data.len() as u64 + 1 < key.bytes => {
                let longer = data.iter().copied().chain([0xff]).collect();
                self.run(key, Operation::Put { offset, data: longer })?;
                return Ok(ended(Ok(Outcome::Put(data))));
            }
            Fault::TearsWords if data.len() == 8 => {
                self.run(key, Operation::Put { offset, data: data[..4].to_vec() })?;
                self.run(key, Operation::Put { offset: offset + 4, data: data[4..].to_vec() })?;
                return Ok(ended(Ok(Outcome::Put(data))));
            }
            Fault::LosesPipelinedPuts => {
                let mut last = lock(&self.last_put);
                if last.as_ref().is_some_and(|last| !last.has_ended()) {
                    return Ok(ended(Ok(Outcome::Put(data))));
                }
                let completion = post(offset, data)?;
                *last = Some(completion.clone());
                return Ok(completion);
            }
            _ => {}
        }
        post(offset, data)
    }

    fn atomic64(&self, key: RemoteKey, offset: u64, change: AtomicChange<u64>) -> Result<Completion, FabricError> {
        if self.strikes(Fault::LosesAtomics) {
            return Ok(self.sound.post(key, Operation::Atomic64 { offset, change: AtomicChange::Load })?);
        }
        let exclusion = self.has(Fault::SplitsAtomicsFromOwner).then(|| lock(&self.common.exclusion));
        let store = |previous: u64| match (self.fault, change) {
            (Fault::ComparesSigned, AtomicChange::Min(value)) => Some((previous as i64).min(value as i64) as u64),
            (Fault::ComparesSigned, AtomicChange::Max(value)) => Some((previous as i64).max(value as i64) as u64),
            (Fault::SwapsWithoutCompare, AtomicChange::CompareSwap { new, .. }) => Some(new),
            (Fault::SplitsAtomics | Fault::SplitsAtomicsFromOwner, AtomicChange::Add(value)) => {
                Some(previous.wrapping_add(value))
            }
            (Fault::SplitsAtomics, AtomicChange::Swap(value)) => Some(value),
            _ => None,
        };
        if store(0).is_none() {
            return Ok(self.sound.post(key, Operation::Atomic64 { offset, change })?);
        }
        let Outcome::Previous(previous) = self.run(key, Operation::Atomic64 { offset, change: AtomicChange::Load })?
        else {
            unreachable!("an atomic brings the previous value")
        };
        let data = store(previous).map(|word| word.to_ne_bytes().to_vec()).unwrap_or_default();
        self.run(key, Operation::Put { offset, data })?;
        drop(exclusion);
        Ok(ended(Ok(Outcome::Previous(previous))))
    }

    fn is_out_of_range(key: RemoteKey, operation: &Operation) -> bool {
        match operation {
            Operation::Put { offset, data } => key.check(*offset, data.len()).is_err(),
            Operation::Get { offset, room } => key.check(*offset, room.len()).is_err(),
            Operation::Atomic64 { .. } | Operation::Atomic32 { .. } => false,
        }
    }

    fn post_to(&self, key: RemoteKey, operation: Operation) -> Result<Completion, FabricError> {
        match operation {
            Operation::Put { offset, data } => self.put(key, offset, data),
            Operation::Atomic64 { offset, change } => self.atomic64(key, offset, change),
            Operation::Atomic32 { offset, change: AtomicChange::Add(value) }
                if self.has(Fault::AddsTooWide) && offset.is_multiple_of(8) =>
            {
                let wide = Operation::Atomic64 { offset, change: AtomicChange::Add(value.into()) };
                let Outcome::Previous(previous) = self.run(key, wide)? else {
                    unreachable!("an atomic brings the previous value")
                };
                Ok(ended(Ok(Outcome::Previous(previous & u64::from(u32::MAX)))))
            }
            Operation::Atomic32 { offset, .. } if self.strikes(Fault::LosesAtomics) => {
                Ok(self.sound.post(key, Operation::Atomic32 { offset, change: AtomicChange::Load })?)
            }
            other => Ok(self.sound.post(key, other)?),
        }
    }

    fn post_faultily(&self, mut key: RemoteKey, operation: Operation) -> Result<Completion, FabricError> {
        if self.has(Fault::ClipsAccesses) && Self::is_out_of_range(key, &operation) {
            return Ok(ended(Ok(Outcome::Got(Vec::new()))));
        }
        if self.has(Fault::MixesRegions) && key.slot == 19 {
            // The check's regions grow by this much from slot to slot, and the last bit of their
            // generations alternates.
            key = RemoteKey { slot: 20, generation: key.generation ^ 1, bytes: key.bytes + 37, ..key };
        }
        let nothing_done = match &operation {
            Operation::Put { data, .. } => Outcome::Put(data.clone()),
            Operation::Get { room, .. } => Outcome::Got(room.clone()),
            Operation::Atomic64 { .. } | Operation::Atomic32 { .. } => Outcome::Previous(0),
        };
        if self.has(Fault::IgnoresRights) {
            return Ok(ended(match self.run(key, operation) {
                Err(FabricError::ReadOnly { .. }) => Ok(nothing_done),
                other => other,
            }));
        }
        match self.post_to(key, operation) {
            Err(FabricError::QueueFull { .. }) if self.has(Fault::LosesWhenFull) => Ok(ended(Ok(nothing_done))),
            Ok(sound) if self.has(Fault::LeavesOperationsOpen) => Ok(self.watch(key.process, sound)),
            other => other,
        }
    }

    /// Returns a completion in place of a sound one.
    fn watch(&self, peer: ProcessId, sound: Completion) -> Completion {
        let faulty = Completion::pending();
        lock(&self.watched).push(Watched { peer, sound, faulty: faulty.clone() });
        faulty
    }

    /// Passes on the results of watched operations. With [`Fault::LeavesOperationsOpen`] it keeps
    /// back those that report the loss of the peer.
    fn hand_on(&self) {
        lock(&self.watched).retain(|watched| {
            if !watched.sound.has_ended() {
                return true;
            }
            let result = watched.sound.clone().wait(&*self.sound, watched.peer, later());
            if !self.has(Fault::LeavesOperationsOpen) || !matches!(result, Err(FabricError::Disconnected { .. })) {
                watched.faulty.end(result);
            }
            false
        });
    }
}

/// Faulty events.
impl FaultyEnd {
    fn spoil(&self, event: Event) -> Option<Event> {
        match event {
            Event::Message { from, message } => self.spoil_message(from, message),
            Event::Disconnected { process } => {
                let late = Event::Message { from: process, message: b"late".to_vec() };
                match self.fault {
                    Fault::HidesEnds => return None,
                    Fault::ReportsEndsTwice => lock(&self.owed).push_back(event.clone()),
                    Fault::InventsMessagesOfLostPeers => lock(&self.owed).push_back(late),
                    _ => {}
                }
                Some(event)
            }
        }
    }

    fn spoil_message(&self, from: ProcessId, mut message: Vec<u8>) -> Option<Event> {
        if self.strikes(Fault::LosesMessages) {
            return None;
        }
        if self.has(Fault::CutsMessages) && message.len() > 100 {
            message.pop();
        }
        let next = || ProcessId::new((from.number() + 1) % self.process_count());
        let from = if self.strikes(Fault::MistakesSenders) { next() } else { from };
        let event = Event::Message { from, message };
        if self.strikes(Fault::RepeatsMessages) {
            lock(&self.owed).push_back(event.clone());
        }
        if self.strikes(Fault::ReordersMessages) {
            return self.overtaken(from, event);
        }
        Some(event)
    }

    /// Moves a message behind the next one of the same sender, if that has arrived.
    fn overtaken(&self, from: ProcessId, event: Event) -> Option<Event> {
        let mut owed = lock(&self.owed);
        while let Some(next) = self.sound.receive() {
            let overtakes = matches!(&next, Event::Message { from: sender, .. } if *sender == from);
            owed.push_back(next);
            if overtakes {
                break;
            }
        }
        owed.push_back(event);
        owed.pop_front()
    }
}

/// Opens a queue from a faulty end. The queue has the end's fault if that is a fault of queues;
/// otherwise it posts its operations through the end.
pub(crate) fn open_queue(
    end: &Arc<dyn Transport>,
    peer: ProcessId,
    options: QueueOptions,
) -> Result<Queue, FabricError> {
    let any: &dyn Any = &**end;
    let faulty = any.downcast_ref::<FaultyEnd>().expect("the end is a faulty one");
    let sound = farside_transmit::open_queue(&faulty.sound, peer, options)?;
    Ok(match queue::FaultyQueue::around(sound, faulty.fault) {
        Some(own) => Queue::over(end, peer, own),
        None => Queue::open(end, peer, options)?,
    })
}

impl Carrier for FaultyEnd {
    fn post(&self, key: RemoteKey, operation: Operation) -> Result<Completion, Unposted> {
        let kept = operation.clone();
        self.post_faultily(key, operation).map_err(|error| match &kept {
            Operation::Put { offset, data } if self.has(Fault::SpoilsRefused) => {
                Operation::Put { offset: *offset, data: vec![0; data.len()] }.refused(error)
            }
            _ => kept.refused(error),
        })
    }

    fn progress(&self) {
        // Process 0 is the one that attaches; its own progress is not what is at fault.
        if !self.has(Fault::ListensInReceiveOnly) || self.process().number() == 0 {
            self.sound.progress();
        }
        self.hand_on();
    }

    fn wake(&self) {
        let is_lost = match self.fault {
            Fault::IgnoresWakes => true,
            Fault::ForgetsEarlyWakes => self.waiting.load(Ordering::SeqCst) == 0,
            _ => false,
        };
        if !is_lost {
            self.woken.store(true, Ordering::SeqCst);
            self.sound.wake();
        }
    }
}

impl Transport for FaultyEnd {
    fn process(&self) -> ProcessId {
        self.sound.process()
    }

    fn process_count(&self) -> u32 {
        self.sound.process_count()
    }

    fn capabilities(&self) -> Capabilities {
        let sound = self.sound.capabilities();
        if self.has(Fault::HidesNeedForTargets) {
            Capabilities { needs_target_progress: NeedsTarget::Nothing, ..sound }
        } else if self.has(Fault::IgnoresOffers) {
            Capabilities { mapped: true, ..sound }
        } else {
            sound
        }
    }

    fn register(&self, bytes: usize) -> Result<LocalRegion, FabricError> {
        if self.has(Fault::ReusesRegions) {
            let mut given_back = lock(&self.given_back);
            if let Some(index) = given_back.iter().position(|region| region.memory().bytes() >= bytes) {
                let old = given_back.swap_remove(index);
                let key = RemoteKey { bytes: bytes as u64, ..old.key() };
                return Ok(LocalRegion::new(key, old.memory().clone()));
            }
        }
        let refused = |error| match error {
            FabricError::Memory(_) if self.has(Fault::HidesMemoryErrors) => {
                FabricError::QueueFull { process: self.process(), max: 0 }
            }
            other => other,
        };
        let region = self.sound.register(bytes).map_err(refused)?;
        lock(&self.registered).insert(region.key(), region.clone());
        Ok(region)
    }

    fn register_memory(
        &self,
        memory: Arc<SharedMemory>,
        bytes: usize,
        kind: RegionKind,
    ) -> Result<LocalRegion, FabricError> {
        if self.has(Fault::RegistersOtherMemory) {
            self.sound.register(bytes)
        } else {
            self.sound.register_memory(memory, bytes, kind)
        }
    }

    fn register_user(&self, memory: Arc<UserMemory>) -> Result<UserRegion, FabricError> {
        let mut private = lock(&self.private);
        if self.has(Fault::RegistersOnce)
            && let Some(known) = private.iter().find(|region| Arc::ptr_eq(region.memory(), &memory))
        {
            return Ok(known.clone());
        }
        let region = self.sound.register_user(memory)?;
        private.push(region.clone());
        Ok(region)
    }

    fn deregister(&self, key: RemoteKey) -> Result<Completion, FabricError> {
        let nothing = || ended(Ok(Outcome::Got(Vec::new())));
        match self.fault {
            Fault::KeepsKeys => return Ok(nothing()),
            Fault::ReusesRegions => {
                lock(&self.given_back).extend(lock(&self.registered).get(&key).cloned());
                return Ok(nothing());
            }
            Fault::EndsDeregistrationsEarly => {
                self.sound.deregister(key)?;
                return Ok(nothing());
            }
            Fault::LeavesOperationsOpen => {
                self.sound.deregister(key)?;
                return Ok(Completion::pending());
            }
            _ => {}
        }
        self.sound.deregister(key)
    }

    fn starter(&self) -> LocalRegion {
        let starter = self.sound.starter();
        if self.has(Fault::ReturnsAnotherStarter) {
            return self.sound.register(starter.key().bytes as usize).expect("there is memory");
        }
        starter
    }

    fn attach(&self, key: RemoteKey, deadline: Instant) -> Result<RemoteRegion, FabricError> {
        if self.has(Fault::RefusesItself) && key.process == self.process() {
            return Err(FabricError::Disconnected { process: key.process });
        }
        let is_first = lock(&self.attaching).insert(key);
        if self.has(Fault::AttachesOnceAtATime) && !is_first {
            return Err(FabricError::StaleKey { key });
        }
        let attached = self.sound.attach(key, deadline);
        lock(&self.attaching).remove(&key);
        match attached {
            Err(FabricError::StaleKey { .. } | FabricError::Disconnected { .. })
                if self.has(Fault::AttachesAnything) =>
            {
                Ok(self.region(key))
            }
            other => other.map(|_| self.region(key)),
        }
    }

    fn attached(&self, key: RemoteKey) -> Option<RemoteRegion> {
        if self.has(Fault::ForgetsAttached) {
            return None;
        }
        self.sound.attached(key).map(|_| self.region(key))
    }

    fn send(&self, to: ProcessId, message: &[u8]) -> Result<(), FabricError> {
        if self.has(Fault::RefusesItself) && to == self.process() {
            return Err(FabricError::Disconnected { process: to });
        }
        let max = self.capabilities().message_bytes_max;
        if self.has(Fault::TakesMessagesTooLong) && message.len() > max {
            return self.sound.send(to, &message[..max]);
        }
        match self.sound.send(to, message) {
            Err(FabricError::QueueFull { .. }) if self.has(Fault::LosesWhenFull) => Ok(()),
            Err(FabricError::NoSuchProcess { .. }) if self.has(Fault::AcceptsUnknownProcesses) => Ok(()),
            Err(FabricError::Disconnected { .. }) if self.has(Fault::SendsToLostPeers) => Ok(()),
            other => other,
        }
    }

    fn receive(&self) -> Option<Event> {
        if self.has(Fault::ListensInReceiveOnly) {
            self.sound.progress();
        }
        if let Some(event) = lock(&self.owed).pop_front() {
            return Some(event);
        }
        self.spoil(self.sound.receive()?)
    }

    fn wait(&self, also: &[BorrowedFd<'_>], deadline: Option<Instant>) {
        let nap = || std::thread::park_timeout(Duration::from_micros(100));
        match self.fault {
            Fault::NeverSleeps => {}
            Fault::IgnoresDeadlines => self.sound.wait(also, None),
            Fault::IgnoresDescriptors => self.sound.wait(&[], deadline),
            Fault::NeverWakes => {
                while !self.woken.swap(false, Ordering::SeqCst)
                    && deadline.is_none_or(|deadline| !farside_testbed::is_past(deadline))
                {
                    nap();
                }
            }
            _ => {
                self.waiting.fetch_add(1, Ordering::SeqCst);
                self.sound.wait(also, deadline);
                self.waiting.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    fn forget(&self, process: ProcessId) {
        if !self.has(Fault::IgnoresForget) {
            self.sound.forget(process);
        }
    }
}

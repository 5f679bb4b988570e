//! A process of a check: a thread with an endpoint of the fabric, and a service thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use farside_testbed::{is_past, now, soon};
use farside_transmit::{Queue, QueueOptions};

use super::{Service, Shared, expect};
use farside_fabric::ids::ProcessId;
use farside_fabric::region::RemoteRegion;
use farside_fabric::transport::{
    AtomicChange, Completion, Event, FabricError, Operation, Outcome, RemoteKey, Transport, Unposted,
};
use farside_fabric::wait::{Backoff, WaitPolicy};

/// The time for which a thread sleeps after it has polled in vain for a while.
const POLL_NAP: Duration = Duration::from_micros(50);

/// A process of a check, as its own thread uses it.
#[derive(Debug)]
pub(crate) struct Process {
    // Kept for its drop, which precedes that of the endpoint: fields are dropped in order.
    _service: Option<ServiceThread>,
    end: Arc<dyn Transport>,
    seat: Seat,
}

/// A thread's place at the meeting point. It may outlive its process.
#[derive(Debug)]
pub(crate) struct Seat {
    shared: Arc<Shared>,
    meetings: Cell<u64>,
}

impl Process {
    pub(super) fn new(end: Arc<dyn Transport>, shared: Arc<Shared>) -> Self {
        let served = match shared.trial.service {
            Service::Everybody => true,
            Service::TargetsOnly => end.process().number() != 0,
            Service::Nobody => false,
        };
        let _service = served.then(|| ServiceThread::start(end.clone(), shared.clone()));
        Self { _service, end, seat: Seat { shared, meetings: Cell::new(0) } }
    }

    /// Ends the process. Its thread continues, and can still meet the others.
    pub(crate) fn leave(self) -> Seat {
        self.seat
    }

    pub(crate) fn end(&self) -> &dyn Transport {
        &*self.end
    }

    pub(crate) fn shared_end(&self) -> &Arc<dyn Transport> {
        &self.end
    }

    /// Opens a queue to a peer, of the kind that the fabric chooses.
    pub(crate) fn open_queue(&self, peer: ProcessId, depth: usize) -> Queue {
        expect((self.seat.shared.open_queue)(&self.end, peer, QueueOptions { depth }), "opening a queue")
    }

    pub(crate) fn id(&self) -> ProcessId {
        self.end.process()
    }

    pub(crate) fn number(&self) -> u32 {
        self.id().number()
    }

    /// The size of the starter memory, which the check chose.
    pub(crate) fn starter_bytes(&self) -> u64 {
        self.seat.shared.trial.starter_bytes as u64
    }

    /// All processes, including this one.
    pub(crate) fn everyone(&self) -> impl Iterator<Item = ProcessId> + use<> {
        (0..self.seat.shared.trial.processes).map(ProcessId::new)
    }

    /// All other processes.
    pub(crate) fn others(&self) -> impl Iterator<Item = ProcessId> + use<> {
        let this = self.id();
        self.everyone().filter(move |process| *process != this)
    }

    pub(crate) fn deadline(&self) -> Instant {
        now() + self.seat.shared.patience
    }

    /// Waits for all processes, and makes progress meanwhile.
    pub(crate) fn meet(&self) {
        self.seat.meet_doing(|| self.end.progress());
    }

    /// Waits for all processes, and makes no progress.
    pub(crate) fn meet_inattentively(&self) {
        self.seat.meet();
    }

    /// Shares a key with all processes outside of the fabric, and returns the keys of all.
    pub(crate) fn share_key(&self, key: RemoteKey) -> Vec<RemoteKey> {
        let keys = || self.seat.shared.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys()[self.id().index()] = Some(key);
        self.meet();
        let all =
            keys().iter().copied().map(|key| key.expect("every process has sent its key before the meeting")).collect();
        self.meet();
        all
    }

    /// Returns the values of all processes, in no particular order.
    pub(crate) fn gather(&self, values: &[u64]) -> Vec<u64> {
        let heap = || self.seat.shared.values.lock().unwrap_or_else(PoisonError::into_inner);
        heap().extend_from_slice(values);
        self.meet();
        let all = heap().clone();
        self.meet();
        heap().clear();
        self.meet();
        all
    }

    /// Repeats an attempt until it succeeds, and makes progress in between.
    #[track_caller]
    pub(crate) fn until<T>(&self, what: &str, attempt: impl FnMut() -> Option<T>) -> T {
        self.until_doing(|| self.end.progress(), what, attempt)
    }

    /// Repeats an attempt until it succeeds, without a call to the fabric.
    #[track_caller]
    pub(crate) fn until_inattentively<T>(&self, what: &str, attempt: impl FnMut() -> Option<T>) -> T {
        self.until_doing(|| (), what, attempt)
    }

    #[track_caller]
    fn until_doing<T>(&self, chore: impl Fn(), what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
        let give_up = self.deadline();
        let mut pauses = Pauses::new();
        loop {
            if let Some(result) = attempt() {
                return result;
            }
            chore();
            self.seat.shared.check_failure();
            assert!(!is_past(give_up), "{} waited in vain for {what}", self.id());
            pauses.pause();
        }
    }
}

/// Calls of the transport that must succeed.
impl Process {
    #[track_caller]
    pub(crate) fn attach(&self, key: RemoteKey) -> RemoteRegion {
        expect(self.end.attach(key, self.deadline()), "attaching")
    }

    #[track_caller]
    pub(crate) fn attach_starter(&self, of: ProcessId) -> RemoteRegion {
        self.attach(RemoteKey::starter(of, self.starter_bytes()))
    }

    #[track_caller]
    pub(crate) fn put(&self, region: &RemoteRegion, offset: u64, data: &[u8]) {
        expect(region.put(offset, data, self.deadline()), "a put");
    }

    #[track_caller]
    pub(crate) fn get(&self, region: &RemoteRegion, offset: u64, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        expect(region.get(offset, &mut data, self.deadline()), "a get");
        data
    }

    #[track_caller]
    pub(crate) fn atomic64(&self, region: &RemoteRegion, offset: u64, change: AtomicChange<u64>) -> u64 {
        expect(region.atomic64(offset, change, self.deadline()), "an atomic")
    }

    #[track_caller]
    pub(crate) fn atomic32(&self, region: &RemoteRegion, offset: u64, change: AtomicChange<u32>) -> u32 {
        expect(region.atomic32(offset, change, self.deadline()), "an atomic")
    }

    /// Posts an operation, and makes progress while the queue is full.
    #[track_caller]
    pub(crate) fn post(&self, key: RemoteKey, operation: &Operation) -> Completion {
        self.until("room for an operation", || match self.end.post(key, operation.clone()) {
            Err(Unposted { error: FabricError::QueueFull { .. }, .. }) => None,
            posted => Some(expect(posted, "posting")),
        })
    }

    /// Waits until an operation has ended, and does not call the fabric after that: the promises of
    /// the completion must hold at once.
    #[track_caller]
    pub(crate) fn await_end(&self, completion: &Completion) {
        self.until("the end of an operation", || completion.has_ended().then_some(()));
    }

    #[track_caller]
    pub(crate) fn finish(&self, completion: Completion, peer: ProcessId) -> Outcome {
        expect(completion.wait(&*self.end, peer, self.deadline()), "an operation")
    }

    /// Sends a message, and makes progress while the queue is full.
    #[track_caller]
    pub(crate) fn send(&self, to: ProcessId, message: &[u8]) {
        self.until("room for a message", || match self.end.send(to, message) {
            Err(FabricError::QueueFull { .. }) => None,
            sent => {
                expect(sent, "sending");
                Some(())
            }
        });
    }

    #[track_caller]
    pub(crate) fn next_event(&self, what: &str) -> Event {
        self.until(what, || self.end.receive())
    }

    #[track_caller]
    pub(crate) fn next_message(&self) -> (ProcessId, Vec<u8>) {
        match self.next_event("a message") {
            Event::Message { from, message } => (from, message),
            Event::Disconnected { process } => panic!("{process} is reported gone to {}, but has not left", self.id()),
        }
    }

    #[track_caller]
    pub(crate) fn expect_message(&self, from: ProcessId, message: &[u8]) {
        let got = self.next_message();
        assert_eq!(got, (from, message.to_vec()), "an unexpected message reached {}", self.id());
    }
}

impl Seat {
    /// Waits for all processes, without a call to the fabric.
    pub(crate) fn meet(&self) {
        self.meet_doing(|| ());
    }

    fn meet_doing(&self, chore: impl Fn()) {
        self.meetings.set(self.meetings.get() + 1);
        let complete = self.meetings.get() * u64::from(self.shared.trial.processes);
        self.shared.arrivals.fetch_add(1, Ordering::SeqCst);
        let mut pauses = Pauses::new();
        while self.shared.arrivals.load(Ordering::SeqCst) < complete {
            chore();
            // A process that does not arrive fails on its own, or by the watchdog.
            self.shared.check_failure();
            pauses.pause();
        }
    }
}

/// The pauses of a polling thread. Checks run with more threads than CPUs, so the thread soon
/// sleeps.
struct Pauses(Backoff);

impl Pauses {
    fn new() -> Self {
        Self(Backoff::new(WaitPolicy::OVERSUBSCRIBED))
    }

    fn pause(&mut self) {
        if !self.0.pause() {
            thread::park_timeout(POLL_NAP);
        }
    }
}

/// A thread that only makes progress for a process.
#[derive(Debug)]
struct ServiceThread {
    end: Arc<dyn Transport>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ServiceThread {
    fn start(end: Arc<dyn Transport>, shared: Arc<Shared>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (its_end, its_stop) = (end.clone(), stop.clone());
        let thread = thread::spawn(move || {
            shared.guard(|| {
                while !its_stop.load(Ordering::SeqCst) {
                    its_end.progress();
                    its_end.wait(&[], Some(soon()));
                    // A wait need not sleep while the process has not received its messages.
                    thread::yield_now();
                }
            });
        });
        Self { end, stop, thread: Some(thread) }
    }
}

impl Drop for ServiceThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.end.wake();
        // Its panics are caught and reported, so its result carries no information.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

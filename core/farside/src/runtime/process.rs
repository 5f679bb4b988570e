//! [`Process`]: the state that the threads of one process share. It holds the process's identity,
//! its connections to peers, and what the service thread has learned.

mod loss;

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use farside_fabric::bell::Fencing;
use farside_fabric::clock::Clock;
pub(crate) use farside_fabric::clock::lock;
use farside_fabric::wait::WaitPolicy;
use farside_fabric::{MachineId, ProcessId, RemoteKey, RemoteRegion, Transport, WorkerId};
use farside_launch::LaunchError;
use farside_sys::fence;

use crate::error::{Result, Source};
use crate::invoke::calls::{Calls, Functions};
use crate::invoke::message::{CallMessage, Frame, FramePlace, RingName};
use crate::runtime::activity::Activities;
use crate::runtime::deadline::Holds;
use crate::runtime::extent::Extent;
use crate::runtime::home::{Home, HomeLayout, Shape};
use crate::runtime::observer::Observer;
use crate::runtime::outgoing::Outgoing;
use crate::runtime::room::{self, Room, RoomEntry, Rooms, Seed};
use crate::runtime::service::Watch;
use crate::runtime::slots::Shared;
use crate::runtime::worker::Worker;
use farside_launch::control::{Control, Ending, ToCoordinator};
use farside_launch::kill_point::{KillPlan, KillPoint};
use farside_launch::settings::Settings;

pub(crate) use self::loss::Loss;
use self::loss::RecentLoss;

/// The pause between two looks at a queue of unsent messages that is long.
const UNSENT_NAP: Duration = Duration::from_micros(100);

/// One process of a job.
#[derive(Debug)]
pub struct Process {
    id: ProcessId,
    shape: Shape,
    settings: Settings,
    /// The machine of each process. Empty if the job has one machine.
    machines: Box<[MachineId]>,
    transport: Arc<dyn Transport>,
    clock: Clock,
    holds: Arc<Holds>,
    activities: Arc<Activities>,
    outgoing: Outgoing,
    control: Arc<dyn Control>,
    wait_policy: WaitPolicy,
    /// True if the fence of another process also reaches this one.
    is_reached_by_fences: bool,
    home: Home,
    /// The starter memories of connected peers.
    homes: Box<[OnceLock<Home>]>,
    /// True if some peer cannot map this process's memory.
    unmapped_peers: AtomicBool,
    /// True if waiting workers make the transport's progress themselves.
    polls: bool,
    /// Held by the thread that takes in the transport's events, so that they stay in order.
    pub(crate) taking_in: Mutex<()>,
    pub(crate) watch: Watch,
    /// Why each peer was given up, if it was.
    lost: Box<[OnceLock<Loss>]>,
    /// True for each peer that the coordinator has reported as lost.
    confirmed_lost: Box<[AtomicBool]>,
    recent_loss: RecentLoss,
    /// Peers whose connection ended, with the time by which the coordinator should have said why.
    suspects: Mutex<Vec<(ProcessId, Instant)>>,
    /// The number of losses. A peer counts when it is given up, and when an error names it.
    losses: AtomicU32,
    /// The number of processes that were given up and to which no shared ring leads any more.
    unsendable: AtomicU32,
    /// The peers that an error has named as lost, perhaps before they were given up. Written by the
    /// thread that makes the error, and read by every check for a lost process. The flag says
    /// nothing about what the peer did before.
    named_lost: Box<[AtomicBool]>,
    /// Why the job ended, once it has.
    ended: OnceLock<Ending>,
    finished: AtomicBool,
    /// The coordinator's current round of the drain.
    round: AtomicU32,
    quiet: Mutex<Quiet>,
    mailboxes: Box<[Mailbox]>,
    calls: Calls,
    /// Set, if at all, before the process has workers.
    observer: OnceLock<Arc<dyn Observer>>,
    /// Bytes of this process's memory that other processes hold. Written by the room `memory`.
    remote_memory_bytes: AtomicU64,
    shared: Shared<Arc<dyn Any + Send + Sync>>,
    kill_plan: Option<KillPlan>,
    rooms: Rooms,
}

/// The notices for one worker, and a counter of its news.
#[derive(Debug, Default)]
struct Mailbox {
    notices: Mutex<VecDeque<Notice>>,
    /// A counter of events that concern the worker. Written by any thread that has news for it,
    /// read by the worker.
    attention: AtomicU32,
}

/// News for a worker.
#[derive(Debug)]
pub(crate) enum Notice {
    /// A new ring leads to this worker.
    RingOpened { ring: RingName, control: Extent, chunks: Vec<Extent> },
    /// A ring that leads to this worker was granted chunks.
    RingGrown { ring: RingName, chunks: Vec<Extent> },
    /// Nothing more will arrive through a ring that leads to this worker.
    RingClosing { ring: RingName },
    /// The process of worker `to` has answered a request about the ring to it.
    WayAnswered { to: WorkerId },
    /// The process of worker `to` wants the memory of the ring to it back.
    WayWanted { to: WorkerId },
    /// A peer that cannot map this process's memory sent records.
    Frame(Frame),
    /// The mover has read the buffer of a call, or has failed to.
    Fetched { fetch: u64, outcome: Result<Vec<u8>> },
    /// A process is lost.
    Lost { process: ProcessId },
}

/// The threads of this process that have reported themselves quiet in a round, with their counts of
/// calls sent and executed.
#[derive(Debug)]
struct Quiet {
    round: u32,
    reports: Vec<Option<(u64, u64)>>,
}

impl Process {
    pub(crate) fn new(
        settings: Settings,
        mut functions: Functions,
        transport: Arc<dyn Transport>,
        control: Arc<dyn Control>,
        cpus: usize,
        kill_plan: Option<KillPlan>,
        rooms: &[RoomEntry],
    ) -> Arc<Self> {
        let shape = Shape::new(&settings);
        let home = Home::new(HomeLayout::of(&settings), transport.starter().memory().clone());
        let id = transport.process();
        let processes = shape.processes as usize;
        let threads = shape.callable_per_process() as usize;
        let homes: Box<[OnceLock<Home>]> = (0..processes).map(|_| OnceLock::new()).collect();
        let own_is_mapped = homes[id.index()].set(home.clone());
        debug_assert!(own_is_mapped.is_ok());
        let clock = transport.clock();
        let wait_policy = if clock.is_simulated() {
            WaitPolicy::SIMULATED
        } else {
            WaitPolicy::for_load(shape.callable() as usize, cpus)
        };
        let polls = !clock.is_simulated() && !transport.capabilities().mapped;
        let is_reached_by_fences = fence::register();
        let machines = std::mem::take(&mut functions.machines);
        let job_id = functions.job_id;
        let registered: Vec<_> = functions.table.rooms().to_vec();
        let calls = Calls::new(functions, id, shape, &settings, &home);
        let rooms = Rooms::new(
            rooms.iter().chain(&registered),
            &Seed { id, shape, settings: &settings, transport: &transport },
        );
        let process = Self {
            id,
            shape,
            calls,
            machines,
            control,
            activities: Arc::new(Activities::new(threads)),
            holds: Arc::new(Holds::new(clock.clone())),
            clock,
            wait_policy,
            is_reached_by_fences,
            home,
            homes,
            unmapped_peers: AtomicBool::new(false),
            polls,
            taking_in: Mutex::new(()),
            watch: Watch::new(),
            losses: AtomicU32::new(0),
            unsendable: AtomicU32::new(0),
            lost: (0..processes).map(|_| OnceLock::new()).collect(),
            confirmed_lost: (0..processes).map(|_| AtomicBool::new(false)).collect(),
            recent_loss: RecentLoss::default(),
            suspects: Mutex::default(),
            named_lost: (0..processes).map(|_| AtomicBool::new(false)).collect(),
            ended: OnceLock::new(),
            finished: AtomicBool::new(false),
            round: AtomicU32::new(0),
            quiet: Mutex::new(Quiet { round: 0, reports: vec![None; threads] }),
            mailboxes: (0..threads).map(|_| Mailbox::default()).collect(),
            outgoing: Outgoing::new(processes),
            observer: OnceLock::new(),
            remote_memory_bytes: AtomicU64::new(0),
            shared: Shared::new(job_id),
            transport,
            settings,
            kill_plan,
            rooms,
        };
        for local in 0..threads {
            process.home.doorbell(local).set_fencing(process.fencing());
        }
        process.home.watchers().set_fencing(process.fencing());
        process.rooms.begin(&process);
        Arc::new(process)
    }

    /// Returns how the threads of this process keep order with their senders. If each worker has a
    /// CPU, it seldom sleeps, and its fence also serves the senders.
    #[inline]
    pub(crate) fn fencing(&self) -> Fencing {
        if self.is_reached_by_fences && self.wait_policy == WaitPolicy::DEDICATED {
            Fencing::ByReceiver
        } else {
            Fencing::Mutual
        }
    }

    /// Returns the state of calls in this process.
    #[inline(always)]
    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Returns the rooms of this process.
    #[inline(always)]
    pub(crate) fn rooms(&self) -> &Rooms {
        &self.rooms
    }

    /// Returns the state of a room in this process.
    #[inline(always)]
    pub(crate) fn room<R: Room>(&self) -> &R {
        self.rooms.get()
    }

    /// Sends a message to the same room of a peer, now or when the transport has room for it.
    ///
    /// # Errors
    /// [`Error::PeerLost`], or the transport's error.
    pub(crate) fn send<R: Room>(&self, to: ProcessId, message: &R::Message) -> Result<()> {
        self.send_bytes(to, room::encode::<R>(message))
    }

    /// Sends an encoded message of a room.
    ///
    /// # Errors
    /// [`Error::PeerLost`], or the transport's error.
    pub(crate) fn send_bytes(&self, to: ProcessId, message: Vec<u8>) -> Result<()> {
        self.outgoing.send(&*self.transport, to, message).map_err(|error| self.explain(error))
    }

    pub(crate) fn id(&self) -> ProcessId {
        self.id
    }

    #[inline]
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the machine of a process.
    pub(crate) fn machine_of(&self, process: ProcessId) -> MachineId {
        self.machines.get(process.index()).copied().unwrap_or(MachineId::new(0))
    }

    /// Returns the number of machines.
    pub(crate) fn machine_count(&self) -> u32 {
        self.machines.iter().map(|machine| machine.number() + 1).max().unwrap_or(1)
    }

    /// Returns whether the fence of another process also reaches this one.
    #[inline]
    pub(crate) fn is_reached_by_fences(&self) -> bool {
        self.is_reached_by_fences
    }

    pub(crate) fn transport(&self) -> &Arc<dyn Transport> {
        &self.transport
    }

    /// Returns the clock of this process's threads, by which they also sleep.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns what the threads of this process are doing.
    pub(crate) fn activities(&self) -> &Arc<Activities> {
        &self.activities
    }

    /// Returns the holds of this process on its deadlines.
    #[inline]
    pub(crate) fn holds(&self) -> &Arc<Holds> {
        &self.holds
    }

    pub(crate) fn control(&self) -> &dyn Control {
        &*self.control
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    pub(crate) fn wait_policy(&self) -> WaitPolicy {
        self.wait_policy
    }

    /// Returns the number of bytes of this process's memory that other processes hold.
    pub(crate) fn remote_memory_bytes(&self) -> &AtomicU64 {
        &self.remote_memory_bytes
    }

    /// Returns the observer of accesses, if there is one.
    #[inline]
    pub(crate) fn observer(&self) -> Option<&Arc<dyn Observer>> {
        self.observer.get()
    }

    /// Installs an observer of accesses. Must be called before the process has workers; a second
    /// call has no effect.
    pub(crate) fn set_observer(&self, observer: Arc<dyn Observer>) {
        let _ = self.observer.set(observer);
    }

    /// Returns the process of a callable thread and its index there; `None` if there is no such
    /// thread.
    #[inline]
    pub(crate) fn place_of(&self, worker: WorkerId) -> Option<(ProcessId, usize)> {
        (worker.number() < self.shape.callable()).then(|| self.shape.place_of(worker))
    }

    /// Returns whether `worker` is a callable thread of that process.
    pub(crate) fn is_worker_of(&self, worker: u32, process: ProcessId) -> bool {
        self.place_of(WorkerId::new(worker)).is_some_and(|(of, _)| of == process)
    }

    /// Returns the source that fills the rings with this number.
    pub(crate) fn source(&self, index: usize) -> Source {
        match (index as u32).checked_sub(self.shape.callable()) {
            None => Source::Worker(WorkerId::new(index as u32)),
            Some(process) => Source::Process(ProcessId::new(process)),
        }
    }

    /// Returns the process that fills the rings with this number; `None` if there is no such
    /// source.
    pub(crate) fn owner_of(&self, source: u32) -> Option<ProcessId> {
        let exists = (source as usize) < self.shape.sources();
        let (process, _) = exists.then(|| self.process_of_source(self.source(source as usize)))??;
        Some(process)
    }

    /// Returns the process that a source belongs to; `None` if there is no such source.
    pub(crate) fn process_of(&self, source: Source) -> Option<ProcessId> {
        self.process_of_source(source).map(|(process, _)| process)
    }

    /// Returns the process of a source, and the thread's index if the source is a thread.
    pub(crate) fn process_of_source(&self, source: Source) -> Option<(ProcessId, Option<usize>)> {
        match source {
            Source::Worker(worker) => self.place_of(worker).map(|(process, local)| (process, Some(local))),
            Source::Process(process) => (process.number() < self.shape.processes).then_some((process, None)),
        }
    }

    /// Passes a point where a test may kill the process.
    #[inline]
    pub(crate) fn kill_point(&self, point: KillPoint) {
        if let Some(plan) = &self.kill_plan {
            plan.pass(point);
        }
    }

    /// Like [`kill_point`](Self::kill_point), but only with debug assertions, for paths where even
    /// a branch would cost.
    #[inline(always)]
    pub(crate) fn hot_kill_point(&self, point: KillPoint) {
        if cfg!(debug_assertions) {
            self.kill_point(point);
        }
    }

    // Peers.

    /// Returns the memory of a peer that is connected and can be mapped.
    #[inline]
    pub(crate) fn home_of(&self, process: ProcessId) -> Option<&Home> {
        let cell = self.homes.get(process.index())?;
        match cell.get() {
            Some(home) => Some(home),
            None => self.look_for_home(process),
        }
    }

    #[cold]
    fn look_for_home(&self, process: ProcessId) -> Option<&Home> {
        let region = self.transport.attached(self.starter_key(process))?;
        let memory = region.mapped()?.clone();
        Some(self.homes[process.index()].get_or_init(|| Home::new(*self.home.layout(), memory)))
    }

    pub(crate) fn starter_key(&self, process: ProcessId) -> RemoteKey {
        RemoteKey::starter(process, self.home.layout().bytes() as u64)
    }

    /// Returns a peer's starter memory, after connecting if necessary.
    pub(crate) fn starter_region(&self, process: ProcessId, deadline: Instant) -> Result<RemoteRegion> {
        self.transport.attach(self.starter_key(process), deadline).map_err(|error| self.explain(error))
    }

    /// Connects to a peer. Returns `None` if its memory cannot be mapped here.
    pub(crate) fn connect(&self, process: ProcessId) -> Result<Option<&Home>> {
        self.connect_within(process, self.settings.deadline)
    }

    /// Connects to a peer as [`connect`](Self::connect) does, but waits for at most `time`.
    pub(crate) fn connect_within(&self, process: ProcessId, time: Duration) -> Result<Option<&Home>> {
        if let Some(home) = self.home_of(process) {
            return Ok(Some(home));
        }
        let deadline = self.clock.now() + time;
        self.starter_region(process, deadline)?;
        Ok(self.home_of(process))
    }

    /// Returns whether waiting workers must [make the transport's
    /// progress](crate::runtime::service::poll) themselves, because what they wait for arrives as
    /// messages.
    #[inline]
    pub(crate) fn polls(&self) -> bool {
        self.polls
    }

    /// Notes that some peer sends frames.
    pub(crate) fn meet_unmapped_peer(&self) {
        self.unmapped_peers.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_unmapped_peers(&self) -> bool {
        self.unmapped_peers.load(Ordering::Relaxed)
    }

    /// Sends a message to a peer's service thread, now or when the transport has room for it.
    ///
    /// # Errors
    /// [`Error::PeerLost`], or the transport's error.
    pub(crate) fn send_call(&self, to: ProcessId, message: &CallMessage) -> Result<()> {
        self.outgoing.send(&*self.transport, to, message.encode()).map_err(|error| self.explain(error))
    }

    /// Sends a part of a record stream to a peer: `bytes` bytes that `write` writes. Returns
    /// whether the transport had room for it.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost), or the transport's error.
    pub(crate) fn send_frame(
        &self,
        to: ProcessId,
        place: FramePlace,
        bytes: usize,
        write: impl Fn(&mut [u8]),
    ) -> Result<bool> {
        let head = place.encode();
        let mut fill = |message: &mut [u8]| {
            let (start, rest) = message.split_at_mut(head.len());
            start.copy_from_slice(&head);
            write(rest);
        };
        let sent = self.outgoing.try_send_with(&*self.transport, to, head.len() + bytes, &mut fill);
        sent.map_err(|error| self.explain(error))
    }

    /// Sends messages that the transport had no room for. Returns whether some are left.
    pub(crate) fn flush_outgoing(&self) -> bool {
        self.outgoing.flush(&*self.transport)
    }

    /// Returns the longest wait of a handler for a service thread. It is a small part of the job's
    /// deadline: those that wait for calls behind the handler have not given up then.
    pub(crate) fn handlers_patience(&self) -> Duration {
        self.settings.deadline / 10
    }

    /// Waits while the queue of unsent messages to a peer is long, for a tenth of the job's
    /// deadline at most. Waits only for service threads: that of this process, which sends the
    /// queue, and that of the peer, which takes the messages in.
    pub(crate) fn wait_for_unsent(&self, to: ProcessId) {
        if !self.outgoing.is_long(to) {
            return;
        }
        self.transport.stop_polling();
        let deadline = self.clock.now() + self.handlers_patience();
        while self.outgoing.is_long(to) && !self.is_given_up(to) && self.check_ended().is_ok() {
            if self.clock.now() >= deadline {
                tracing::warn!(process = to.number(), "reply: a process does not take its answers in");
                self.outgoing.set_stuck(to);
            }
            self.clock.sleep_for(UNSENT_NAP);
        }
    }

    /// Wakes the threads that fill a ring, because it has room again.
    pub(crate) fn ring_source(&self, source: Source) {
        let Some((process, local)) = self.process_of_source(source) else { return };
        let Some(home) = self.home_of(process) else { return };
        match local {
            Some(local) => home.doorbell(local).ring_if_asleep(),
            // Any thread of the process may be waiting, including threads that are not workers.
            None => (0..=self.shape.callers()).for_each(|local| home.doorbell(local).ring_if_asleep()),
        }
    }

    /// Tells a sender of frames how much was executed.
    pub(crate) fn credit_frames(&self, source: Source, me: &Worker, consumed: u64) {
        let Some((process, _)) = self.process_of_source(source) else { return };
        let source = match source {
            Source::Worker(worker) => worker.number(),
            Source::Process(process) => self.shape.callable() + process.number(),
        };
        let ring = RingName { source, to: me.id().number() };
        // If the sender cannot be reached, it needs no credit.
        let _ = self.send_call(process, &CallMessage::FrameCredit { ring, consumed });
    }

    // Notices.

    /// Puts a notice into the mailbox of a thread of this process and wakes the thread.
    pub(crate) fn notify(&self, local: usize, notice: Notice) {
        lock(&self.mailboxes[local].notices).push_back(notice);
        self.call_attention(local);
    }

    /// Makes a thread of this process check for news.
    pub(crate) fn call_attention(&self, local: usize) {
        // SYNC: release, for the acquire in `attention`: what the worker must see was written
        // before.
        self.mailboxes[local].attention.fetch_add(1, Ordering::Release);
        self.home.doorbell(local).ring_if_asleep();
    }

    /// Makes all threads of this process check for news.
    pub(crate) fn call_attention_of_all(&self) {
        (0..self.mailboxes.len()).for_each(|local| self.call_attention(local));
        self.home.doorbell(self.shape.callers()).ring_if_asleep();
    }

    #[inline]
    pub(crate) fn attention(&self, local: usize) -> u32 {
        self.mailboxes[local].attention.load(Ordering::Acquire)
    }

    pub(crate) fn next_notice(&self, local: usize) -> Option<Notice> {
        lock(&self.mailboxes[local].notices).pop_front()
    }

    // The end.

    /// Ends the job in this process: everything that waits here returns an error.
    pub(crate) fn end(&self, why: Ending) {
        // Only the first reason is kept.
        let _ = self.ended.set(why);
        // A worker may be waiting in the transport for a peer that will not answer any more.
        let others = (0..self.shape.processes).map(ProcessId::new).filter(|process| *process != self.id);
        others.for_each(|process| self.transport.forget(process));
        self.call_attention_of_all();
    }

    pub(crate) fn check_ended(&self) -> Result<()> {
        match self.ended.get() {
            None => Ok(()),
            Some(why) => Err(LaunchError::from(why.clone()).into()),
        }
    }

    pub(crate) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
        self.call_attention_of_all();
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    pub(crate) fn begin_round(&self, round: u32) {
        self.round.store(round, Ordering::Release);
        self.call_attention_of_all();
    }

    pub(crate) fn round(&self) -> u32 {
        self.round.load(Ordering::Acquire)
    }

    /// Notes that a thread has nothing left to do. Tells the coordinator once this holds for all
    /// threads.
    pub(crate) fn report_quiet(&self, local: usize, round: u32, sent: u64, executed: u64) {
        let mut quiet = lock(&self.quiet);
        if quiet.round != round {
            quiet.round = round;
            quiet.reports.fill(None);
        }
        quiet.reports[local] = Some((sent, executed));
        let Some(reports) = quiet.reports.iter().copied().collect::<Option<Vec<_>>>() else { return };
        let sent = reports.iter().map(|(sent, _)| sent).sum::<u64>() + self.calls.lanes.calls();
        let executed = reports.iter().map(|(_, executed)| executed).sum();
        self.control.send(ToCoordinator::Idle { round, sent, executed });
        self.kill_point(KillPoint::RoundReported);
    }

    // Shared values.

    pub(crate) fn shared(&self) -> &Shared<Arc<dyn Any + Send + Sync>> {
        &self.shared
    }
}

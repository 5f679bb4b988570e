//! [`Process`]: the state that the threads of one process share, in parts.

mod job;
mod links;
mod loss;
mod mailboxes;
mod orders;
mod waits;

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_fabric::clock::Clock;
pub(crate) use farside_fabric::clock::lock;
use farside_fabric::{ProcessId, RemoteRegion, Transport};
use farside_launch::control::{Control, Ending};
use farside_launch::kill_point::KillPoint;
use farside_launch::settings::Settings;

use crate::error::{Result, Source};
use crate::invoke::calls::Calls;
use crate::invoke::message::{CallMessage, FramePlace, RingName};
use crate::invoke::named::Names;
use crate::invoke::table::FunctionTable;
use crate::runtime::activity::Activities;
use crate::runtime::deadline::Deadline;
use crate::runtime::home::{Home, Shape};
use crate::runtime::observer::Accesses;
use crate::runtime::room::{self, Room, RoomEntry, Rooms, Seed};
use crate::runtime::service::Watch;
use crate::runtime::slots::Shared;
use crate::runtime::worker::Worker;

pub(crate) use self::job::JobFacts;
pub(crate) use self::links::Links;
pub(crate) use self::loss::Loss;
use self::loss::LostPeers;
use self::mailboxes::Mailboxes;
pub(crate) use self::mailboxes::Notice;
use self::orders::Orders;
use self::waits::Waits;

/// The pause between two looks at a queue of unsent messages that is long.
const UNSENT_NAP: Duration = Duration::from_micros(100);

/// One process of a job.
#[derive(Debug)]
pub struct Process {
    /// The facts of the job that do not change.
    pub job: JobFacts,
    /// The clock, and how threads wait.
    pub waits: Waits,
    /// The links with peers.
    pub links: Links,
    /// The lost peers.
    pub losses: LostPeers,
    /// The link with the coordinator.
    pub(crate) orders: Orders,
    pub(crate) mailboxes: Mailboxes,
    pub(crate) watch: Watch,
    pub(crate) calls: Calls,
    /// The observer of accesses.
    pub accesses: Accesses,
    /// The activity of the threads, for readers.
    pub(crate) activities: Arc<Activities>,
    /// Values that the threads share.
    pub(crate) shared: Shared<Arc<dyn Any + Send + Sync>>,
    pub(crate) rooms: Rooms,
}

impl Process {
    pub(crate) fn new(
        job: JobFacts,
        table: FunctionTable,
        names: Names,
        transport: Arc<dyn Transport>,
        control: Arc<dyn Control>,
        cpus: usize,
        rooms: &[RoomEntry],
    ) -> Arc<Self> {
        let (shape, clock) = (job.shape, transport.clock());
        let (processes, threads) = (shape.processes as usize, shape.callable_per_process() as usize);
        let links = Links::new(transport, job.settings.layout());
        let waits = Waits::new(clock.clone(), shape.callable() as usize, cpus);
        let home = &links.home;
        for local in 0..threads {
            home.doorbell(local).set_fencing(waits.fencing());
        }
        home.watchers().set_fencing(waits.fencing());
        let registered: Vec<_> = table.rooms().to_vec();
        let seed = Seed { id: job.id, shape, settings: &job.settings, transport: &links.transport };
        let process = Self {
            mailboxes: Mailboxes::new(home.clone()),
            calls: Calls::new(table, names, &job, home),
            rooms: Rooms::new(rooms.iter().chain(&registered), &seed),
            losses: LostPeers::new(clock, processes),
            orders: Orders::new(control, threads),
            watch: Watch::new(),
            accesses: Accesses::default(),
            activities: Arc::new(Activities::new(threads)),
            shared: Shared::new(job.job_id),
            job,
            waits,
            links,
        };
        process.rooms.begin(&process);
        Arc::new(process)
    }

    /// Returns the state of a room in this process.
    #[inline(always)]
    pub fn room<R: Room>(&self) -> &R {
        self.rooms.get()
    }

    /// Sends a message to the same room of a peer, now or when the transport has room for it.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost), or the transport's error.
    pub fn send<R: Room>(&self, to: ProcessId, message: &R::Message) -> Result<()> {
        self.send_bytes(to, room::encode::<R>(message))
    }

    /// Sends an encoded message of a room.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost), or the transport's error.
    pub(crate) fn send_bytes(&self, to: ProcessId, message: Vec<u8>) -> Result<()> {
        self.links.outgoing.send(&**self.transport(), to, message).map_err(|error| self.explain(error))
    }

    /// Returns the number of the process.
    #[inline]
    pub fn id(&self) -> ProcessId {
        self.job.id
    }

    /// Returns the shape of the job.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.job.shape
    }

    /// Returns the settings of the job.
    #[inline]
    pub fn settings(&self) -> &Settings {
        &self.job.settings
    }

    /// Returns the transport of the process.
    #[inline]
    pub fn transport(&self) -> &Arc<dyn Transport> {
        &self.links.transport
    }

    /// Returns the clock of this process's threads, by which they also sleep.
    #[inline]
    pub fn clock(&self) -> &Clock {
        &self.waits.clock
    }

    /// Returns the starter memory of the process.
    #[inline]
    pub fn home(&self) -> &Home {
        &self.links.home
    }

    /// Passes a point where a test may kill the process.
    #[inline]
    pub fn kill_point(&self, point: KillPoint) {
        if let Some(plan) = &self.job.kill_plan {
            plan.pass(point);
        }
    }

    /// Like [`kill_point`](Self::kill_point), but only with debug assertions, for paths where even
    /// a branch would cost.
    #[inline(always)]
    pub fn hot_kill_point(&self, point: KillPoint) {
        if cfg!(debug_assertions) {
            self.kill_point(point);
        }
    }

    /// Returns the deadline of a wait that begins now.
    #[inline]
    pub(crate) fn deadline_after(&self, time: Duration) -> Deadline {
        Deadline::after(time, self.clock().now(), self)
    }

    // Peers.

    /// Returns a peer's starter memory, after connecting if necessary.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost), or the transport's error.
    pub fn starter_region(&self, process: ProcessId, deadline: Instant) -> Result<RemoteRegion> {
        self.transport().attach(self.links.starter_key(process), deadline).map_err(|error| self.explain(error))
    }

    /// Connects to a peer. Returns `None` if its memory cannot be mapped here.
    pub(crate) fn connect(&self, process: ProcessId) -> Result<Option<&Home>> {
        self.connect_within(process, self.job.settings.deadline)
    }

    /// Connects to a peer as [`connect`](Self::connect) does, but waits for at most `time`.
    pub(crate) fn connect_within(&self, process: ProcessId, time: Duration) -> Result<Option<&Home>> {
        if let Some(home) = self.links.home_of(process) {
            return Ok(Some(home));
        }
        let deadline = self.clock().now() + time;
        self.starter_region(process, deadline)?;
        Ok(self.links.home_of(process))
    }

    /// Sends a message to a peer's service thread, now or when the transport has room for it.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost), or the transport's error.
    pub(crate) fn send_call(&self, to: ProcessId, message: &CallMessage) -> Result<()> {
        self.links.outgoing.send(&**self.transport(), to, message.encode()).map_err(|error| self.explain(error))
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
        let sent = self.links.outgoing.try_send_with(&**self.transport(), to, head.len() + bytes, &mut fill);
        sent.map_err(|error| self.explain(error))
    }

    /// Waits while the queue of unsent messages to a peer is long, for a tenth of the job's
    /// deadline at most. Waits only for service threads: that of this process, which sends the
    /// queue, and that of the peer, which takes the messages in.
    pub(crate) fn wait_for_unsent(&self, to: ProcessId) {
        if !self.links.outgoing.is_long(to) {
            return;
        }
        self.transport().stop_polling();
        let deadline = self.clock().now() + self.job.handlers_patience();
        while self.links.outgoing.is_long(to) && !self.losses.is_given_up(to) && self.orders.check_ended().is_ok() {
            if self.clock().now() >= deadline {
                tracing::warn!(process = to.number(), "reply: a process does not take its answers in");
                self.links.outgoing.set_stuck(to);
            }
            self.clock().sleep_for(UNSENT_NAP);
        }
    }

    /// Wakes the threads that fill a ring, because it has room again.
    pub(crate) fn ring_source(&self, source: Source) {
        let Some((process, local)) = self.job.process_of_source(source) else { return };
        let Some(home) = self.links.home_of(process) else { return };
        match local {
            Some(local) => home.doorbell(local).ring_if_asleep(),
            // Any thread of the process may be waiting, including threads that are not workers.
            None => (0..=self.job.shape.callers()).for_each(|local| home.doorbell(local).ring_if_asleep()),
        }
    }

    /// Tells a sender of frames how much was executed.
    pub(crate) fn credit_frames(&self, source: Source, me: &Worker, consumed: u64) {
        let Some((process, _)) = self.job.process_of_source(source) else { return };
        let source = match source {
            Source::Worker(worker) => worker.number(),
            Source::Process(process) => self.job.shape.callable() + process.number(),
        };
        let ring = RingName { source, to: me.id().number() };
        // If the sender cannot be reached, it needs no credit.
        let _ = self.send_call(process, &CallMessage::FrameCredit { ring, consumed });
    }

    // The end.

    /// Ends the job in this process: everything that waits here returns an error.
    pub(crate) fn end(&self, why: Ending) {
        self.orders.set_ended(why);
        // A worker may be waiting in the transport for a peer that will not answer any more.
        let others = (0..self.shape().processes).map(ProcessId::new).filter(|process| *process != self.id());
        others.for_each(|process| self.transport().forget(process));
        self.mailboxes.call_attention_of_all();
    }

    /// Notes the order to return.
    pub(crate) fn finish(&self) {
        self.orders.set_finished();
        self.mailboxes.call_attention_of_all();
    }

    /// Notes a round of the drain.
    pub(crate) fn begin_round(&self, round: u32) {
        self.orders.set_round(round);
        self.mailboxes.call_attention_of_all();
    }

    /// Notes that a thread has nothing left to do. Tells the coordinator once this holds for all
    /// threads.
    pub(crate) fn report_quiet(&self, local: usize, round: u32, sent: u64, executed: u64) {
        if self.orders.report_quiet((local, round), (sent, executed), || self.calls.shared_rings.calls()) {
            self.kill_point(KillPoint::RoundReported);
        }
    }
}

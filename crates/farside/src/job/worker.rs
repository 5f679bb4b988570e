//! A worker: a thread of the job that calls and is called.

mod drain;

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use farside_fabric::wait::{Backoff, PollPace, StreamWatch};
use farside_fabric::{MachineId, ProcessId, WorkerId};

use super::collective::Collectives;
use super::home::Home;
use super::process::{Notice, Process};
use super::service::poll;
use crate::error::{Error, Refused, Result};
use crate::invoke::call::{Aggregator, To, WhenFull};
use crate::invoke::inbox::{Handling, Inbox, run_arrivals, run_last, tell_credit};
use crate::invoke::notify::Synchronizer;
use crate::invoke::outbox::{FlushCause, Outbox, SendCounters};
use crate::invoke::pending::{Continuation, Pending};
use crate::invoke::reply::Reply;
use crate::invoke::reply_slots::{ReplySlots, SlotHandle};
use crate::invoke::table::FunctionTable;
use crate::wire::Wire;

/// A batch that is older than this is published at the next progress.
const BATCH_AGE_MAX: Duration = Duration::from_micros(500);
/// The longest sleep. Whoever has something for a sleeper rings; this only bounds what a lost ring could cost.
const NAP_MAX: Duration = Duration::from_secs(1);
/// Steps of a busy wait between looks at the clock.
const STEPS_PER_CLOCK: u32 = 256;

/// A worker thread of the job. Everything a program does with Farside it does through the worker it runs on.
///
/// Workers are numbered through the whole job, process by process. Functions that others call here run on this thread, while it
/// waits or makes [`progress`](Self::progress), one at a time and never inside each other; so what only they and the worker's own
/// code touch needs no lock.
#[derive(Debug)]
pub struct Worker {
    process: Arc<Process>,
    id: WorkerId,
    local: usize,
    home: Home,
    outboxes: Box<[OnceCell<RefCell<Outbox>>]>,
    inbox: RefCell<Inbox>,
    replies: RefCell<ReplySlots>,
    continuations: RefCell<Vec<Continuation>>,
    wakers: RefCell<Vec<(SlotHandle, Waker)>>,
    /// Receivers for whom a batch is open or records are staged.
    unfinished: RefCell<Vec<WorkerId>>,
    /// Processes that are gone, and of whose calls the last has run here.
    lost: RefCell<Vec<ProcessId>>,
    pub(crate) collectives: RefCell<Collectives>,
    locals: Box<[OnceCell<Box<dyn std::any::Any>>]>,
    pub(crate) next_dist: Cell<u32>,
    pub(crate) next_local: Cell<u32>,
    in_handler: Cell<bool>,
    executed: Cell<u64>,
    /// Calls of named functions that did not run here.
    refused: Cell<u64>,
    /// The first of them whose caller gets no answer, until it is reported.
    refusal: RefCell<Option<Error>>,
    /// For values on their way to or from processes of other binaries. Empty while it is in use.
    buffer: RefCell<Vec<u8>>,
    /// The count of things that the service thread had for this worker, when it last looked.
    attention_seen: Cell<u32>,
    poll_pace: Cell<PollPace>,
    /// The function that was found last, and its offset.
    function: Cell<(u32, usize)>,
}

/// What a worker did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// What it sent.
    pub sent: SendCounters,
    /// Calls that it ran for others, with those that it refused.
    pub executed: u64,
    /// Calls of named functions that it refused to run.
    pub refused: u64,
    /// Its calls that wait for their results now.
    pub replies_pending: u64,
    /// Memory of rings that lead to this process, in use now.
    pub ring_bytes_here: u64,
}

/// The largest buffer that is kept.
const BUFFER_BYTES_KEPT: usize = 64 << 10;

/// Things in per-worker memory, at most.
pub(crate) const LOCALS_MAX: usize = 256;

impl Worker {
    pub(crate) fn new(process: Arc<Process>, local: usize) -> Self {
        let shape = process.shape();
        let id = shape.worker_at(process.id(), local);
        let home = process.home().clone();
        Self {
            id,
            local,
            outboxes: (0..shape.callable()).map(|_| OnceCell::new()).collect(),
            inbox: RefCell::new(Inbox::new(home.clone(), local, shape.sources())),
            replies: RefCell::new(ReplySlots::new(home.clone(), local, id)),
            continuations: RefCell::default(),
            wakers: RefCell::default(),
            unfinished: RefCell::default(),
            lost: RefCell::default(),
            collectives: RefCell::default(),
            locals: (0..LOCALS_MAX).map(|_| OnceCell::new()).collect(),
            next_dist: Cell::new(0),
            next_local: Cell::new(0),
            in_handler: Cell::new(false),
            executed: Cell::new(0),
            refused: Cell::new(0),
            refusal: RefCell::default(),
            buffer: RefCell::default(),
            attention_seen: Cell::new(0),
            poll_pace: Cell::default(),
            function: Cell::new((u32::MAX, 0)),
            home,
            process,
        }
    }

    // Who is who.

    /// This worker.
    #[inline]
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// Its process.
    pub fn process(&self) -> ProcessId {
        self.process.id()
    }

    /// Its machine. Processes that share memory are on machine 0, all of them until the job spans several machines.
    pub fn machine(&self) -> MachineId {
        MachineId::new(0)
    }

    /// The number of this thread in its process.
    pub fn thread_index(&self) -> usize {
        self.local
    }

    /// The workers of the job. (User service threads are not counted.)
    pub fn worker_count(&self) -> u32 {
        self.process.shape().workers()
    }

    /// The processes of the job.
    pub fn process_count(&self) -> u32 {
        self.process.shape().processes
    }

    /// The worker threads of each process.
    pub fn threads_per_process(&self) -> u32 {
        self.process.shape().threads
    }

    /// All workers of the job.
    pub fn workers(&self) -> impl ExactSizeIterator<Item = WorkerId> + use<> {
        (0..self.worker_count()).map(WorkerId::new)
    }

    /// The worker so many places after this one, going round.
    pub fn neighbor(&self, distance: u32) -> WorkerId {
        let count = self.worker_count();
        // A service thread has no place among the workers; it counts from worker 0.
        let own = if self.id.number() < count { self.id.number() } else { 0 };
        WorkerId::new(((own as u64 + distance as u64) % count as u64) as u32)
    }

    /// The process that a worker belongs to.
    ///
    /// # Panics
    /// When there is no such worker.
    #[track_caller]
    pub fn process_of(&self, worker: WorkerId) -> ProcessId {
        self.process.place_of(worker).expect("a worker of this job").0
    }

    /// A user service thread of a process, to be called like a worker. `None` unless the job has
    /// [service threads](crate::Job::service_threads).
    pub fn service_of(&self, process: ProcessId) -> Option<WorkerId> {
        let shape = self.process.shape();
        let exists = shape.service_threads > 0 && process.number() < shape.processes;
        exists.then(|| shape.worker_at(process, shape.threads as usize))
    }

    /// Processes that are gone.
    pub fn lost_processes(&self) -> Vec<ProcessId> {
        (0..self.process_count()).map(ProcessId::new).filter(|process| self.lost(*process).is_some()).collect()
    }

    // Calling. The forms with all choices are on `To`.

    /// The way to a worker, with choices: when full, notification, send-based.
    #[inline]
    pub fn to(&self, worker: WorkerId) -> To<'_> {
        To::new(self, worker)
    }

    /// Batches calls to a worker.
    #[inline]
    pub fn aggregate(&self, worker: WorkerId) -> Aggregator<'_> {
        Aggregator::new(self.to(worker))
    }

    /// Has a function run on another worker: [`To::call`].
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn call<A: Wire, R>(
        &self,
        to: WorkerId,
        arguments: A,
        function: fn(&Worker, A) -> R,
    ) -> Result<(), Refused<A>> {
        self.to(to).call(arguments, function)
    }

    /// Has a function run on another worker with a buffer: [`To::call_buffer`].
    ///
    /// # Errors
    /// See there.
    pub fn call_buffer<A: Wire, R>(
        &self,
        to: WorkerId,
        arguments: A,
        buffer: &[u8],
        function: fn(&Worker, A, &[u8]) -> R,
    ) -> Result<(), Refused<A>> {
        self.to(to).call_buffer(arguments, buffer, function)
    }

    /// Has a function run on another worker and brings its result: [`To::call_return`].
    ///
    /// # Errors
    /// See there.
    pub fn call_return<A: Wire, R: Wire>(
        &self,
        to: WorkerId,
        arguments: A,
        function: fn(&Worker, A) -> R,
    ) -> Result<Pending<'_, R>, Refused<A>> {
        self.to(to).call_return(arguments, function)
    }

    /// Has a function run on another worker that may answer later: [`To::call_with_reply`].
    ///
    /// # Errors
    /// See there.
    pub fn call_with_reply<A: Wire, R: Wire>(
        &self,
        to: WorkerId,
        arguments: A,
        function: fn(&Worker, A, Reply<R>),
    ) -> Result<Pending<'_, R>, Refused<A>> {
        self.to(to).call_with_reply(arguments, function)
    }

    /// A counter of calls that are to be sent or executed, to wait for.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when 1024 are in use in this process already.
    pub fn synchronizer(&self, calls: u32) -> Result<Synchronizer<'_>> {
        Synchronizer::new(self, calls)
    }

    // Waiting.

    /// Runs what others have called here, publishes batches that are old enough, and sends what was queued. Says whether there was
    /// anything to do. Does not wait.
    ///
    /// # Errors
    /// [`Error::InHandler`]; [`Error::HandlerPanicked`]; [`Error::CorruptRing`]; [`Error::JobEnded`].
    pub fn progress(&self) -> Result<bool> {
        self.not_in_handler("progress")?;
        let moved = self.step()?;
        if !moved && self.process.clock().is_simulated() {
            self.process.clock().pause();
        }
        Ok(moved)
    }

    /// What time it is: the system's, or in a [simulation](crate::Simulation) that of the simulated network.
    pub fn now(&self) -> Instant {
        self.process.clock().now()
    }

    /// In a [simulation](crate::Simulation): this worker computes for so long, and pays no attention meanwhile. Otherwise this does
    /// nothing, since what a real program computes takes its time anyway.
    pub fn charge(&self, time: Duration) {
        self.process.clock().charge(time);
    }

    /// Makes progress until `condition` holds, sleeping when there is none. At most for the job's deadline.
    ///
    /// The condition is looked at after every call that ran here, so it is meant to depend on what those do.
    ///
    /// # Errors
    /// [`Error::Deadline`], and those of [`progress`](Self::progress).
    pub fn wait_while_serving(&self, mut condition: impl FnMut() -> bool) -> Result<()> {
        self.wait_until("serving", self.default_deadline(), |_| condition().then_some(Ok(())))
    }

    /// As [`wait_while_serving`](Self::wait_while_serving), for something that needs every process of the job, and for at most `time`.
    ///
    /// # Errors
    /// [`Error::PeerLost`] when any process is gone; otherwise the same.
    pub fn wait_together(&self, time: Duration, mut condition: impl FnMut() -> bool) -> Result<()> {
        self.wait_until("serving together with all processes", time, |worker| {
            if condition() {
                return Some(Ok(()));
            }
            worker.any_lost().map(Err)
        })
    }

    /// Drives a future to its end, making progress meanwhile. At most for the job's deadline.
    ///
    /// # Errors
    /// [`Error::Deadline`], and those of [`progress`](Self::progress).
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> Result<T> {
        let mut future = std::pin::pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        self.wait_until("driving a future", self.default_deadline(), |_| match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => Some(Ok(output)),
            Poll::Pending => None,
        })
    }

    /// Publishes all batches, whatever their size.
    pub fn flush(&self) {
        for to in self.unfinished.borrow().iter() {
            self.flush_to(*to, FlushCause::Asked);
        }
    }

    /// What this worker did so far.
    pub fn counters(&self) -> Counters {
        let mut sent = SendCounters::default();
        self.outboxes.iter().filter_map(OnceCell::get).for_each(|outbox| sent.add(&outbox.borrow().counters()));
        let replies_pending = self.replies.borrow().in_use() as u64;
        let ring_bytes_here = self.process.ring_memory_bytes() as u64;
        let (executed, refused) = (self.executed.get(), self.refused.get());
        Counters { sent, executed, refused, replies_pending, ring_bytes_here }
    }

    // For the rooms around.

    pub(crate) fn default_deadline(&self) -> Duration {
        self.process.settings().deadline
    }

    #[inline]
    pub(crate) fn process_handle(&self) -> &Arc<Process> {
        &self.process
    }

    #[inline]
    pub(crate) fn table(&self) -> &FunctionTable {
        self.process.table()
    }

    /// The function at an offset of the program's text.
    #[inline]
    pub(crate) fn function_at(&self, offset: u32) -> Option<usize> {
        let (known, address) = self.function.get();
        if known == offset {
            return Some(address);
        }
        let address = self.process.table().function_at(offset)?;
        self.function.set((offset, address));
        Some(address)
    }

    /// The outbox of a worker; `None` when there is no such worker.
    #[inline]
    pub(crate) fn outbox(&self, to: WorkerId) -> Option<RefMut<'_, Outbox>> {
        self.outbox_cell(to).map(RefCell::borrow_mut)
    }

    #[inline]
    pub(crate) fn outbox_cell(&self, to: WorkerId) -> Option<&RefCell<Outbox>> {
        let cell = self.outboxes.get(to.index())?;
        Some(cell.get_or_init(|| RefCell::new(self.process.new_outbox(self.id.number(), to))))
    }

    pub(crate) fn unknown(&self, worker: WorkerId) -> Error {
        Error::UnknownWorker { worker, count: self.worker_count() }
    }

    pub(crate) fn inbox(&self) -> RefMut<'_, Inbox> {
        self.inbox.borrow_mut()
    }

    pub(crate) fn replies(&self) -> RefMut<'_, ReplySlots> {
        self.replies.borrow_mut()
    }

    pub(crate) fn locals(&self) -> &[OnceCell<Box<dyn std::any::Any>>] {
        &self.locals
    }

    pub(crate) fn in_handler_flag(&self) -> &Cell<bool> {
        &self.in_handler
    }

    pub(crate) fn is_in_handler(&self) -> bool {
        self.in_handler.get()
    }

    #[inline]
    pub(crate) fn executed(&self) -> u64 {
        self.executed.get()
    }

    #[inline]
    pub(crate) fn count_executed(&self, records: u64) {
        self.executed.set(self.executed.get() + records);
    }

    pub(crate) fn count_refused(&self) {
        self.refused.set(self.refused.get() + 1);
    }

    /// Has [`refused`](Self::refused) return this, unless another waits for that.
    pub(crate) fn report_refused(&self, error: Error) {
        self.refusal.borrow_mut().get_or_insert(error);
    }

    /// Whether a named function did not run whose caller gets no answer. Tells it once.
    #[inline]
    pub(crate) fn refused(&self) -> Result<()> {
        if self.refusal.borrow().is_none() {
            return Ok(());
        }
        self.refusal.take().map_or(Ok(()), Err)
    }

    /// A buffer to encode into.
    pub(crate) fn take_buffer(&self) -> Vec<u8> {
        self.buffer.take()
    }

    /// Keeps a buffer for the next time, unless it is large.
    pub(crate) fn give_buffer(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= BUFFER_BYTES_KEPT {
            buffer.clear();
            self.buffer.replace(buffer);
        }
    }

    pub(crate) fn add_continuation(&self, continuation: Continuation) {
        self.continuations.borrow_mut().push(continuation);
    }

    pub(crate) fn add_waker(&self, slot: SlotHandle, waker: &Waker) {
        let mut wakers = self.wakers.borrow_mut();
        wakers.retain(|(other, _)| *other != slot);
        wakers.push((slot, waker.clone()));
    }

    /// Notes that a receiver has a batch open or records staged.
    pub(crate) fn list_unfinished(&self, to: WorkerId) {
        let mut unfinished = self.unfinished.borrow_mut();
        if !unfinished.contains(&to) {
            unfinished.push(to);
        }
    }

    pub(crate) fn flush_to(&self, to: WorkerId, cause: FlushCause) {
        if let Some(mut outbox) = self.outbox(to)
            && outbox.flush(cause)
        {
            // What could not be sent is told by what waits for it.
            let _ = outbox.send_staged(&self.process);
            if !outbox.is_finished() {
                self.list_unfinished(to);
            }
            outbox.count_sent(&self.process);
        }
    }

    /// Why a process is lost, if it is and its last calls have run here.
    pub(crate) fn lost(&self, process: ProcessId) -> Option<Error> {
        self.lost.borrow().contains(&process).then(|| self.process.gone(process))
    }

    /// The first that was lost.
    #[inline]
    pub(crate) fn any_lost(&self) -> Option<Error> {
        self.lost.borrow().first().map(|process| self.process.gone(*process))
    }

    pub(crate) fn has_notices(&self) -> bool {
        self.process.attention(self.local) != self.attention_seen.get()
    }

    pub(crate) fn not_in_handler(&self, what: &'static str) -> Result<()> {
        if self.in_handler.get() { Err(Error::InHandler { what }) } else { Ok(()) }
    }

    /// Waits for room for a record to a worker.
    pub(crate) fn wait_for_room(&self, to: WorkerId, record_bytes: usize, deadline: Instant) -> Result<()> {
        self.not_in_handler("a call with `WhenFull::Retry`")?;
        let wait_for_credit = |begin| {
            if let Some(outbox) = self.outbox(to) {
                outbox.wait_for_credit(begin);
            }
        };
        wait_for_credit(true);
        let left = deadline.saturating_duration_since(self.process.clock().now());
        let result = self.wait_until("waiting for room in a ring", left, |worker| {
            let mut outbox = worker.outbox(to)?;
            // What was asked for last may have been less than this record needs.
            if outbox.needs_chunk_for(record_bytes)
                && let Err(error) = outbox.ask_for_chunk(&worker.process, record_bytes)
            {
                return Some(Err(error));
            }
            outbox.may_send(record_bytes).then_some(Ok(()))
        });
        wait_for_credit(false);
        result
    }

    /// Waits for room in the lane to a worker.
    pub(crate) fn wait_for_lane(&self, to: WorkerId, record_bytes: usize, deadline: Instant) -> Result<()> {
        self.not_in_handler("a send-based call with `WhenFull::Retry`")?;
        let left = deadline.saturating_duration_since(self.process.clock().now());
        self.wait_until("waiting for room in a lane", left, |worker| {
            worker.process.lane_may_send(to, record_bytes).map(|may| may.then_some(())).transpose()
        })
    }

    /// Makes progress until `look` finds something, sleeping when there is none.
    pub(crate) fn wait_until<T>(
        &self,
        doing: &'static str,
        time: Duration,
        mut look: impl FnMut(&Self) -> Option<Result<T>>,
    ) -> Result<T> {
        self.not_in_handler(doing)?;
        let mut backoff = Backoff::new(self.process.wait_policy());
        let mut stream = StreamWatch::new(self.process.wait_policy());
        let mut deadline = None;
        let mut steps = 0_u32;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            let executed = self.executed.get();
            let moved = self.step()? || self.send_unfinished(true)?;
            steps = steps.wrapping_add(1);
            if moved {
                backoff.reset();
                stream.found(self.executed.get() - executed);
                if !steps.is_multiple_of(STEPS_PER_CLOCK) {
                    continue;
                }
            } else {
                stream.found_nothing();
                if backoff.pause() {
                    continue;
                }
            }
            let now = self.process.clock().now();
            let deadline = *deadline.get_or_insert_with(|| now + time);
            if now >= deadline {
                return Err(Error::Deadline { doing, after: time });
            }
            if moved {
                continue;
            }
            tell_credit(self);
            let token = self.home.doorbell(self.local).prepare(self.process.fencing(), || self.inbox().leave_all());
            self.inbox().look_back();
            let nothing_new = !self.has_notices() && !self.inbox.borrow().has_arrivals() && !self.staged_may_move();
            match look(self) {
                None if nothing_new => {
                    if self.process.polls() {
                        self.process.transport().stop_polling();
                    }
                    let time = (deadline - now).min(NAP_MAX);
                    let sleep = |word: &_, seen| self.process.clock().sleep(word, seen, time);
                    self.home.doorbell(self.local).sleep_on(token, sleep);
                }
                found => {
                    self.home.doorbell(self.local).cancel(token);
                    if let Some(found) = found {
                        return found;
                    }
                }
            }
            backoff.reset();
        }
    }

    /// One round of everything that a worker does for others.
    #[inline]
    fn step(&self) -> Result<bool> {
        let polled = self.process.polls() && self.poll_if_due();
        if self.has_notices() {
            self.take_notices()?;
        }
        let mut moved = polled | (run_arrivals(self)? > 0);
        if !self.unfinished.borrow().is_empty() {
            moved |= self.send_unfinished(false)?;
        }
        if self.process.lanes_are_queued() {
            moved |= self.process.send_lanes()?;
        }
        if !self.continuations.borrow().is_empty() {
            moved |= self.run_continuations()?;
        }
        if !self.wakers.borrow().is_empty() {
            self.wake_futures();
        }
        Ok(moved)
    }

    /// Makes the transport's progress, but the less often the longer nothing has come: each look is a system call, and what this worker waits
    /// for may come over mapped memory. Says whether anything came.
    fn poll_if_due(&self) -> bool {
        let mut pace = self.poll_pace.get();
        let found = pace.is_due() && poll(&self.process);
        pace.looked(found);
        self.poll_pace.set(pace);
        found
    }

    /// Publishes batches that are due, or all if the worker is idle, and sends what is staged.
    fn send_unfinished(&self, idle: bool) -> Result<bool> {
        let mut moved = false;
        let mut next = 0;
        loop {
            let Some(to) = self.unfinished.borrow().get(next).copied() else { return Ok(moved) };
            let Some(mut outbox) = self.outbox(to) else { return Ok(moved) };
            if let Some(since) = outbox.batch_since() {
                if idle {
                    moved |= outbox.flush(FlushCause::Idle);
                } else if self.process.clock().now().saturating_duration_since(since) >= BATCH_AGE_MAX {
                    moved |= outbox.flush(FlushCause::Age);
                }
            }
            if outbox.has_staged() {
                moved |= outbox.send_staged(&self.process)?;
            }
            outbox.count_sent(&self.process);
            if outbox.is_finished() {
                self.unfinished.borrow_mut().remove(next);
            } else {
                next += 1;
            }
        }
    }

    /// Whether credit has come for what is staged.
    fn staged_may_move(&self) -> bool {
        let unfinished = self.unfinished.borrow();
        unfinished.iter().any(|to| self.outbox(*to).is_some_and(|outbox| outbox.staged_may_move()))
            || (self.process.lanes_are_queued() && self.process.lanes_may_move())
    }

    /// Runs the continuations whose results are here, or never will be.
    fn run_continuations(&self) -> Result<bool> {
        let is_due = |continuation: &Continuation| {
            let replies = self.replies.borrow();
            let lost = || self.lost(self.process_of(replies.on(continuation.slot))).is_some();
            replies.outcome(continuation.slot).is_some() || lost()
        };
        let due: Vec<Continuation> = self.continuations.borrow_mut().extract_if(.., |next| is_due(next)).collect();
        let any = !due.is_empty();
        for continuation in due {
            let handling = Handling::begin(&self.in_handler);
            let run = std::panic::AssertUnwindSafe(|| (continuation.run)(self));
            let outcome = std::panic::catch_unwind(run);
            drop(handling);
            outcome.map_err(|panic| Error::HandlerPanicked {
                from: crate::error::Source::Worker(self.id),
                message: crate::invoke::inbox::panic_message(&*panic),
            })?;
        }
        Ok(any)
    }

    fn wake_futures(&self) {
        let replies = self.replies.borrow();
        let due = |(slot, _): &mut (SlotHandle, Waker)| {
            replies.outcome(*slot).is_some() || self.lost(self.process_of(replies.on(*slot))).is_some()
        };
        let due: Vec<_> = self.wakers.borrow_mut().extract_if(.., due).collect();
        drop(replies);
        due.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Takes in what the service thread has for this worker.
    #[cold]
    fn take_notices(&self) -> Result<()> {
        self.attention_seen.set(self.process.attention(self.local));
        while let Some(notice) = self.process.next_notice(self.local) {
            self.take_notice(notice)?;
        }
        self.process.check_ended()
    }

    fn take_notice(&self, notice: Notice) -> Result<()> {
        match notice {
            Notice::RingOpened { ring, control, chunks } => {
                let (receiver, pieces) = self.process.receiver_of(control, &chunks)?;
                let source = self.process.source(ring.source as usize);
                self.inbox().open(ring.source as usize, source, receiver, pieces);
            }
            Notice::RingGrown { ring, chunk } => {
                let mapped = self.process.own_chunk(chunk)?;
                self.inbox().grow(ring.source as usize, mapped, chunk);
            }
            Notice::SenderOpened { .. }
            | Notice::SenderGrown { .. }
            | Notice::SenderRefused { .. }
            | Notice::FrameCredit { .. } => {
                let to = notice.receiver().expect("these name their receiver");
                if let Some(mut outbox) = self.outbox(to) {
                    self.process.update_outbox(&mut outbox, notice)?;
                    outbox.send_staged(&self.process)?;
                }
            }
            Notice::Frame { ring, position, bytes } => self.inbox().take_frame(ring, position, &bytes),
            Notice::Lost { process } => self.lose(process)?,
        }
        Ok(())
    }

    /// Runs what a lost process has still published here, and gives up what was meant for it.
    fn lose(&self, process: ProcessId) -> Result<()> {
        let shape = self.process.shape();
        let threads = (0..shape.callable_per_process() as usize).map(|local| shape.worker_at(process, local));
        let lane = (shape.callable() + process.number()) as usize;
        let mut ran = Ok(());
        for source in threads.clone().map(WorkerId::index).chain([lane]) {
            ran = ran.and(run_last(self, source));
            let pieces = self.inbox().close(source);
            self.process.retire(self.local, &pieces);
        }
        for to in threads {
            if let Some(outbox) = self.outboxes[to.index()].get() {
                outbox.borrow_mut().lose();
            }
        }
        let lost = |worker| self.process.place_of(worker).is_some_and(|(of, _)| of == process);
        self.replies().forget_lost(lost);
        // Only now, so that who waits for it finds all that it did.
        self.lost.borrow_mut().push(process);
        ran
    }

    /// How internal calls are made: they wait for room.
    pub(crate) fn internal(&self, to: WorkerId) -> To<'_> {
        self.to(to).when_full(WhenFull::Retry)
    }
}

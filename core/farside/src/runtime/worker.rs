//! [`Worker`]: a thread of the job that calls others and runs their calls.

mod attention;
mod batches;
mod drain;
mod methods;
mod notices;
mod put_off;
mod scope;
mod sent_to_all;
mod waiting;
mod ways;

use batches::AllBatches;
pub use batches::Batches;
pub use methods::Sealed;
pub(crate) use methods::extension;
pub use methods::{Losses, Machines, NamedCalls, Ways};
pub use put_off::PutOff;
pub use scope::Scope;
pub(crate) use sent_to_all::SentToAll;

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::collections::HashMap;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use farside_fabric::wait::PollPace;
use farside_fabric::{MachineId, ProcessId, WorkerId};

use self::notices::LossHook;
use crate::error::{Error, Refused, Result};
use crate::invoke::call::{Aggregator, Aggregators, To, WhenFull};
use crate::invoke::caller::{Caller, Waiter};
use crate::invoke::fetches::Fetches;
use crate::invoke::inbox::Inbox;
use crate::invoke::message::RingName;
use crate::invoke::notify::Synchronizer;
use crate::invoke::outbox::{FlushCause, Outbox, SendCounters};
use crate::invoke::outcome::Outcome;
use crate::invoke::pending::{Continuation, Next, Pending};
use crate::invoke::reply::{Holder, Recipients, Reply};
use crate::invoke::reply_slots::{ReplySlots, SlotHandle};
use crate::invoke::ring::rings::new_outbox;
use crate::invoke::table::FunctionTable;
use crate::runtime::activity::Words;
use crate::runtime::activity::recorder::Recorder;
use crate::runtime::address_cache::AddressCache;
use crate::runtime::collective::Collectives;
use crate::runtime::home::Home;
use crate::runtime::pool::{Pool, Role};
use crate::runtime::process::Process;
use crate::runtime::room::{LocalRooms, Room};
use crate::runtime::slots::{Locals, Numbers};
use crate::runtime::started_operations::StartedOperations;
use crate::wire::Wire;

/// A worker thread of the job. A program does everything with Farside through the worker that it
/// runs on.
///
/// Workers are numbered through the whole job, process by process. Calls from others run on this
/// thread while it waits or makes [`progress`](Self::progress). They run one at a time and never
/// inside each other. So data that only they and the worker's own code touch needs no lock.
#[derive(Debug)]
pub struct Worker {
    process: Arc<Process>,
    id: WorkerId,
    local: usize,
    role: Role,
    home: Home,
    outboxes: Box<[OnceCell<RefCell<Outbox>>]>,
    inbox: RefCell<Inbox>,
    replies: RefCell<ReplySlots>,
    /// Continuations of calls that have slots.
    continuations: RefCell<Vec<Continuation>>,
    /// Continuations of calls without slots.
    after_message_replies: RefCell<HashMap<SlotHandle, Next>>,
    /// The number of lost processes when the worker last looked for message replies that never
    /// come.
    losses_seen: Cell<usize>,
    recipients: Recipients,
    fetches: Fetches,
    /// Rings that their senders have shut down, while their calls wait for buffers.
    closing: RefCell<Vec<RingName>>,
    /// Looks at pipes for tasks that wait for them.
    put_off: RefCell<Vec<PutOff>>,
    batches: RefCell<AllBatches>,
    sent_to_all: SentToAll,
    /// True if the worker waits for memory to change.
    watches: Cell<bool>,
    wakers: RefCell<Vec<(SlotHandle, Waker)>>,
    /// Receivers with an open batch or staged records.
    unfinished: RefCell<Vec<WorkerId>>,
    /// Lost processes whose last calls have run here.
    lost: RefCell<Vec<ProcessId>>,
    /// Hooks that run when a process is lost.
    loss_hooks: RefCell<Vec<LossHook>>,
    pub(crate) collectives: RefCell<Collectives>,
    locals: Locals,
    /// The numbers of values of processes.
    pub(crate) shared_numbers: Numbers,
    /// The numbers of values of workers.
    pub(crate) local_numbers: Numbers,
    /// The words that other threads read of this worker.
    words: Arc<Words>,
    recorder: Recorder,
    /// The place that borrows a value of this worker, while one does.
    borrowed: Cell<Option<&'static Location<'static>>>,
    executed: Cell<u64>,
    /// The number of calls of named functions that did not run here.
    refused: Cell<u64>,
    /// The first refused call whose caller gets no answer, until it is reported.
    refusal: RefCell<Option<Error>>,
    /// A buffer for values to or from processes of other binaries. Empty while it is in use.
    buffer: RefCell<Vec<u8>>,
    /// The value of the attention counter when this worker last checked it.
    attention_seen: Cell<u32>,
    poll_pace: Cell<PollPace>,
    /// Ranges of global memory that are mapped here.
    address_cache: AddressCache,
    started_operations: StartedOperations,
    /// The states of the rooms in this worker.
    rooms: LocalRooms,
    /// The function that was found last: its offset and its address.
    function: Cell<(u32, usize)>,
}

/// Counters of a worker's activity so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// The calls that it sent.
    pub sent: SendCounters,
    /// The number of calls that it ran for others, including those that it refused.
    pub executed: u64,
    /// The number of calls of named functions that it refused to run.
    pub refused: u64,
    /// The number of its calls that still wait for their results.
    pub replies_pending: u64,
    /// Bytes of rings to this process that are in use.
    pub ring_bytes_here: u64,
    /// Bytes registered for rings, in use or not.
    pub ring_bytes_registered_here: u64,
    /// Bytes of this process's memory that other processes hold.
    pub remote_memory_bytes_here: u64,
}

/// The largest buffer that is kept for reuse.
const BUFFER_BYTES_KEPT: usize = 64 << 10;

impl Worker {
    pub(crate) fn new(process: Arc<Process>, local: usize) -> Self {
        let shape = process.shape();
        let id = shape.worker_at(process.id(), local);
        let home = process.home().clone();
        Self {
            id,
            local,
            role: Role::of(local, process.settings()),
            outboxes: (0..shape.callable()).map(|_| OnceCell::new()).collect(),
            inbox: RefCell::new(Inbox::new(home.clone(), local, shape.sources())),
            replies: RefCell::new(ReplySlots::new(
                home.clone(),
                local,
                id,
                process.calls.message_replies[local].clone(),
            )),
            continuations: RefCell::default(),
            after_message_replies: RefCell::default(),
            losses_seen: Cell::new(0),
            recipients: Recipients::new(),
            fetches: Fetches::default(),
            closing: RefCell::default(),
            put_off: RefCell::default(),
            batches: RefCell::default(),
            sent_to_all: SentToAll::default(),
            watches: Cell::new(false),
            wakers: RefCell::default(),
            unfinished: RefCell::default(),
            lost: RefCell::default(),
            loss_hooks: RefCell::default(),
            collectives: RefCell::new(Collectives::new(id)),
            locals: Locals::new(process.job.job_id),
            shared_numbers: Numbers::default(),
            local_numbers: Numbers::default(),
            words: process.activities.words(local).clone(),
            recorder: Recorder::new(process.accesses.is_observed()),
            borrowed: Cell::new(None),
            executed: Cell::new(0),
            refused: Cell::new(0),
            refusal: RefCell::default(),
            buffer: RefCell::default(),
            attention_seen: Cell::new(0),
            poll_pace: Cell::default(),
            address_cache: AddressCache::new(),
            started_operations: StartedOperations::default(),
            function: Cell::new((u32::MAX, 0)),
            rooms: process.rooms.locals(&process, local),
            home,
            process,
        }
    }

    // Identity.

    /// Returns the number of this worker.
    #[inline]
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// Returns whether this is [worker 0](WorkerId::FIRST).
    pub fn is_first(&self) -> bool {
        self.id == WorkerId::FIRST
    }

    /// Returns this worker's share of a range. The shares of all workers follow each other and make
    /// up the range, and their lengths differ by 1 at most.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let own: usize = me.share(0..1_000_000).map(|x| x * x).sum();
    /// let sum = me.all_reduce(own, |a, b| a + b)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn share(&self, range: Range<usize>) -> Range<usize> {
        let count = self.worker_count() as usize;
        // 128 bits hold the product of a length and a number of workers. A thread of a pool has no
        // share.
        let bound = |worker: usize| range.len() as u128 * worker.min(count) as u128 / count as u128;
        let own = self.id.index();
        range.start + bound(own) as usize..range.start + bound(own + 1) as usize
    }

    /// Returns the process of this worker.
    pub fn process(&self) -> ProcessId {
        self.process.id()
    }

    pub(crate) fn machine(&self) -> MachineId {
        self.machine_of(self.process())
    }

    pub(crate) fn machine_of(&self, process: ProcessId) -> MachineId {
        self.process.job.machine_of(process)
    }

    pub(crate) fn machine_count(&self) -> u32 {
        self.process.job.machine_count()
    }

    /// Returns the index of this thread in its process.
    pub fn thread_index(&self) -> usize {
        self.local
    }

    /// Returns the number of workers of the job. Threads of pools are not counted.
    pub fn worker_count(&self) -> u32 {
        self.process.shape().workers()
    }

    /// Returns the number of processes of the job.
    pub fn process_count(&self) -> u32 {
        self.process.shape().processes
    }

    /// Returns the number of worker threads of each process.
    pub fn threads_per_process(&self) -> u32 {
        self.process.shape().threads
    }

    /// Iterates over all workers of the job.
    pub fn workers(&self) -> impl ExactSizeIterator<Item = WorkerId> + use<> {
        (0..self.worker_count()).map(WorkerId::new)
    }

    /// Returns the worker `distance` places after this one, wrapping around at the end.
    pub fn neighbor(&self, distance: u32) -> WorkerId {
        let count = self.worker_count();
        // A service thread is not one of the workers; it counts from worker 0.
        let own = if self.id.number() < count { self.id.number() } else { 0 };
        WorkerId::new(((own as u64 + distance as u64) % count as u64) as u32)
    }

    /// Returns the process that a worker belongs to.
    ///
    /// # Panics
    /// If there is no such worker.
    #[track_caller]
    pub fn process_of(&self, worker: WorkerId) -> ProcessId {
        self.process.job.place_of(worker).expect("the worker belongs to this job").0
    }

    /// Returns the first worker of a process, for errors that know only the process.
    pub(crate) fn first_worker_of(&self, process: ProcessId) -> WorkerId {
        WorkerId::new(process.number().wrapping_mul(self.process.shape().threads))
    }

    /// Returns the pool of threads of a process, which can be called like one worker: any free
    /// thread of the pool runs the call. Returns `None` unless the job has
    /// [such threads](crate::Job::pool_threads).
    ///
    /// Every form of call works. Calls begin in the order of their arrival and may run
    /// concurrently, so what they share must be shareable. A [`Dist`](crate::Dist) is; a
    /// [`PerWorker`](crate::PerWorker) has no value on such a thread. Functions receive the thread
    /// as their `Worker`.
    ///
    /// Functions may wait, without [`InHandler`](crate::Error::InHandler): they may make calls and
    /// wait for results, for a lock or for a file. Only collectives are reserved to workers.
    /// Functions that wait for others of the same pool need enough threads. While all threads are
    /// busy, further calls queue, and callers that wait for them get
    /// [`Deadline`](crate::Error::Deadline) in the end.
    pub fn pool_of(&self, process: ProcessId) -> Option<WorkerId> {
        let shape = self.process.shape();
        let exists = self.process.settings().pool_threads > 0 && process.number() < shape.processes;
        exists.then(|| shape.worker_at(process, shape.threads as usize))
    }

    /// Returns whether this thread runs calls that a receiver has taken out of the rings.
    pub(crate) fn is_pool_member(&self) -> bool {
        self.role == Role::Member
    }

    /// Returns the pool that this thread hands calls over to, if it is a receiver.
    #[inline]
    pub(crate) fn hands_over_to(&self) -> Option<&Pool> {
        (self.role == Role::Receiver).then(|| &self.process.calls.pool)
    }

    /// Returns the job's [deadline](crate::Job::deadline): how long anything waits for another
    /// process unless the program says otherwise.
    #[inline]
    pub fn default_deadline(&self) -> Duration {
        self.process.settings().deadline
    }

    /// Returns the lost processes. A process counts once an error ([`Error::PeerLost`]) has named
    /// it, or once everything that it had published to this worker has run.
    pub fn lost_processes(&self) -> Vec<ProcessId> {
        (0..self.process_count()).map(ProcessId::new).filter(|process| self.is_lost(*process)).collect()
    }

    /// Returns whether a process is lost, as [`lost_processes`](Self::lost_processes) counts it.
    pub fn is_lost(&self, process: ProcessId) -> bool {
        self.process.losses.is_named(process) || self.has_outlived(process)
    }

    /// Returns the lost processes whose last calls have run here: those that
    /// [`when_lost`](crate::Losses::when_lost) has reported.
    pub(crate) fn outlived_processes(&self) -> Vec<ProcessId> {
        self.lost.borrow().clone()
    }

    pub(crate) fn outlived_count(&self) -> usize {
        self.lost.borrow().len()
    }

    fn has_outlived(&self, process: ProcessId) -> bool {
        self.lost.borrow().contains(&process)
    }

    // Calling. `To` has the forms with all options.

    /// Returns the path to a worker with options: what to do when it is full, notification,
    /// send-based.
    #[inline]
    pub fn to(&self, worker: WorkerId) -> To<'_> {
        To::of_worker(self, worker)
    }

    /// Returns an aggregator, which batches calls to a worker.
    #[inline]
    pub fn aggregate(&self, worker: WorkerId) -> Aggregator<'_> {
        Aggregator::new(self.to(worker))
    }

    /// Returns an aggregator for each worker of the job.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let batches = me.aggregate_all();
    /// for key in 0..1000_u64 {
    ///     let owner = WorkerId::new((key % u64::from(me.worker_count())) as u32);
    ///     batches[owner].call(key, |there, key| println!("{} has {key}", there.id()))?;
    /// }
    /// me.quiesce()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// *Cost*: some hundred bytes for each worker that this one has not called yet.
    pub fn aggregate_all(&self) -> Aggregators<'_> {
        Aggregators::new(self.workers().map(|worker| self.aggregate(worker)).collect())
    }

    /// Runs a function on another worker: [`To::call`].
    ///
    /// # Errors
    /// [`Error::Full`], or [`Error::Deadline`] after a wait, if the receiver has no room;
    /// [`Error::TooLarge`]; [`Error::UnknownWorker`]; [`Error::PeerLost`] if the receiver is lost;
    /// [`Error::DifferentBinaries`] or [`Error::ForeignFunction`] if it cannot find the function;
    /// [`Error::InHandler`] if a handler would have to wait.
    #[inline]
    #[track_caller]
    pub fn call<A: Wire, R: Outcome>(
        &self,
        to: WorkerId,
        arguments: A,
        function: fn(&Worker, A) -> R,
    ) -> Result<(), Refused<A>> {
        self.to(to).call(arguments, function)
    }

    /// Runs a function on another worker with a buffer: [`To::call_buffer`].
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Deadline`], [`Error::TooLarge`], [`Error::UnknownWorker`],
    /// [`Error::PeerLost`], [`Error::DifferentBinaries`], [`Error::ForeignFunction`], `InHandler`.
    #[track_caller]
    pub fn call_buffer<A: Wire, R: Outcome>(
        &self,
        to: WorkerId,
        arguments: A,
        buffer: &[u8],
        function: fn(&Worker, A, &[u8]) -> R,
    ) -> Result<(), Refused<A>> {
        self.to(to).call_buffer(arguments, buffer, function)
    }

    /// Runs a function on another worker and returns its pending result: [`To::call_return`].
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Deadline`], [`Error::TooLarge`], [`Error::UnknownWorker`],
    /// [`Error::PeerLost`], [`Error::DifferentBinaries`], [`Error::ForeignFunction`], `InHandler`.
    #[track_caller]
    pub fn call_return<A: Wire, R: Wire>(
        &self,
        to: WorkerId,
        arguments: A,
        function: fn(&Worker, A) -> R,
    ) -> Result<Pending<'_, R>, Refused<A>> {
        self.to(to).call_return(arguments, function)
    }

    /// Runs a function on another worker that may answer later: [`To::call_with_reply`].
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Deadline`], [`Error::TooLarge`], [`Error::UnknownWorker`],
    /// [`Error::PeerLost`], [`Error::DifferentBinaries`], [`Error::ForeignFunction`], `InHandler`.
    #[track_caller]
    pub fn call_with_reply<A: Wire, R: Wire>(
        &self,
        to: WorkerId,
        arguments: A,
        function: fn(&Worker, A, Reply<R>),
    ) -> Result<Pending<'_, R>, Refused<A>> {
        self.to(to).call_with_reply(arguments, function)
    }

    /// Returns a counter of `calls` calls, to wait until they are sent or executed.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if this process already uses 1024 of them.
    pub fn synchronizer(&self, calls: u32) -> Result<Synchronizer<'_>> {
        Synchronizer::new(Waiter::Worker(self), calls)
    }

    /// Returns a caller, with which other threads of this process make calls while the job runs.
    pub fn caller(&self) -> Caller {
        Caller::new(self.process_handle().clone())
    }

    /// Returns the path for internal calls, which wait for room.
    pub(crate) fn internal(&self, to: WorkerId) -> To<'_> {
        self.to(to).when_full(WhenFull::Retry)
    }

    // Counters and flushing.

    /// Publishes all batches, whatever their size.
    pub fn flush(&self) {
        // An error is ignored here: the next wait returns it.
        let _ = self.send_batches();
        let unfinished = self.unfinished.borrow().clone();
        unfinished.into_iter().for_each(|to| self.flush_to(to, FlushCause::Asked));
    }

    /// Returns counters of this worker's activity so far.
    pub fn counters(&self) -> Counters {
        let mut sent = SendCounters::default();
        self.send_counters().for_each(|one| sent.add(&one));
        let replies_pending = self.replies.borrow().in_use() as u64;
        let ring_bytes_here = self.process.calls.rings.used_bytes() as u64;
        let ring_bytes_registered_here = self.process.calls.rings.registered_bytes() as u64;
        let (executed, refused) = (self.executed.get(), self.refused.get());
        let remote_memory_bytes_here = self.process.activities.remote_memory_bytes.load(Ordering::Relaxed);
        Counters {
            sent,
            executed,
            refused,
            replies_pending,
            ring_bytes_here,
            ring_bytes_registered_here,
            remote_memory_bytes_here,
        }
    }

    fn send_counters(&self) -> impl Iterator<Item = SendCounters> {
        self.outboxes.iter().filter_map(OnceCell::get).map(|outbox| outbox.borrow().counters())
    }

    /// Returns the number of calls sent so far.
    pub(crate) fn calls_sent(&self) -> u64 {
        self.send_counters().map(|one| one.calls).sum()
    }

    /// Returns the number of calls sent to some processes that quiescence counts.
    pub(crate) fn counted_calls(&self, is_counted: impl Fn(ProcessId) -> bool) -> u64 {
        let outboxes = self.outboxes.iter().filter_map(OnceCell::get).map(RefCell::borrow);
        outboxes.filter(|outbox| is_counted(outbox.to_process())).map(|outbox| outbox.counted_calls()).sum()
    }

    /// Returns the number of calls sent to each receiver that quiescence counts.
    pub(crate) fn counted_calls_by_receiver(&self) -> impl Iterator<Item = (usize, u64)> {
        let outboxes = self.outboxes.iter().enumerate();
        outboxes.filter_map(|(to, outbox)| Some((to, outbox.get()?.borrow().counted_calls())))
    }

    // For other rooms.

    /// Returns the state of a room in this worker.
    #[inline(always)]
    pub(crate) fn room<R: Room>(&self) -> &R::Local {
        self.rooms.get::<R>()
    }

    /// Returns the time that this thread may wait for a service thread. A handler must not keep
    /// other callers waiting for a process that does not answer.
    pub(crate) fn patience(&self) -> Duration {
        if self.is_in_handler() { self.process.job.handlers_patience() } else { self.default_deadline() }
    }

    /// Returns the error that counts, with the cause of the loss that it names. A called function
    /// does not wait for the cause: others wait for what this worker does next. The caller holds no
    /// lock.
    #[cold]
    pub(crate) fn with_its_root(&self, error: Error) -> Error {
        let patience = if self.is_in_handler() { Duration::ZERO } else { self.patience() };
        self.process.with_its_root(error, patience)
    }

    #[inline]
    pub(crate) fn process_handle(&self) -> &Arc<Process> {
        &self.process
    }

    #[inline]
    pub(crate) fn table(&self) -> &FunctionTable {
        &self.process.calls.table
    }

    /// Returns the address of the function at an offset in the program's text.
    #[inline]
    pub(crate) fn function_at(&self, offset: u32) -> Option<usize> {
        let (known, address) = self.function.get();
        if known == offset {
            return Some(address);
        }
        let address = self.process.calls.table.function_at(offset)?;
        self.function.set((offset, address));
        Some(address)
    }

    /// Returns the outbox to a worker; `None` if there is no such worker.
    #[inline]
    pub(crate) fn outbox(&self, to: WorkerId) -> Option<RefMut<'_, Outbox>> {
        self.outbox_cell(to).map(RefCell::borrow_mut)
    }

    #[inline]
    pub(crate) fn outbox_cell(&self, to: WorkerId) -> Option<&RefCell<Outbox>> {
        let cell = self.outboxes.get(to.index())?;
        Some(cell.get_or_init(|| RefCell::new(new_outbox(&self.process, self.id.number(), to))))
    }

    /// Returns the cache of the ranges of global memory that are mapped here.
    #[inline(always)]
    pub(crate) fn address_cache(&self) -> &AddressCache {
        &self.address_cache
    }

    /// The count of operations that this worker has started.
    #[inline]
    pub(crate) fn started_operations(&self) -> &StartedOperations {
        &self.started_operations
    }

    pub(crate) fn unknown(&self, worker: WorkerId) -> Error {
        Error::UnknownWorker { worker, count: self.worker_count() }
    }

    pub(crate) fn inbox(&self) -> RefMut<'_, Inbox> {
        self.inbox.borrow_mut()
    }

    #[inline]
    pub(crate) fn replies(&self) -> RefMut<'_, ReplySlots> {
        self.replies.borrow_mut()
    }

    /// Schedules an action to be retried at each progress until it is done.
    pub(crate) fn put_off(&self, put_off: PutOff) {
        self.put_off.borrow_mut().push(put_off);
    }

    pub(crate) fn sent_to_all(&self) -> &SentToAll {
        &self.sent_to_all
    }

    pub(crate) fn fetches(&self) -> &Fetches {
        &self.fetches
    }

    #[inline]
    pub(crate) fn locals(&self) -> &Locals {
        &self.locals
    }

    #[inline]
    pub(crate) fn in_handler_flag(&self) -> &AtomicBool {
        &self.words.in_handler
    }

    #[inline]
    pub(crate) fn is_in_handler(&self) -> bool {
        self.words.in_handler.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn words(&self) -> &Words {
        &self.words
    }

    #[inline(always)]
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    #[inline]
    pub(crate) fn executed(&self) -> u64 {
        self.executed.get()
    }

    /// The number of calls executed that quiescence counts.
    #[inline]
    pub(crate) fn executed_counted(&self) -> u64 {
        self.executed.get() - self.collectives.borrow().executed()
    }

    #[inline]
    pub(crate) fn count_executed(&self, records: u64) {
        self.executed.set(self.executed.get() + records);
    }

    pub(crate) fn count_refused(&self) {
        self.refused.set(self.refused.get() + 1);
    }

    /// Makes [`refused`](Self::refused) return this error, unless an earlier one is still
    /// unreported.
    pub(crate) fn report_refused(&self, error: Error) {
        self.refusal.borrow_mut().get_or_insert(error);
    }

    /// Returns the error of a named function that did not run and whose caller gets no answer.
    /// Reports each error once.
    #[inline]
    pub(crate) fn refused(&self) -> Result<()> {
        if self.refusal.borrow().is_none() {
            return Ok(());
        }
        self.refusal.take().map_or(Ok(()), Err)
    }

    /// Takes the worker's buffer for encoding.
    pub(crate) fn take_buffer(&self) -> Vec<u8> {
        self.buffer.take()
    }

    /// Keeps a buffer for reuse, unless it is large.
    pub(crate) fn give_buffer(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= BUFFER_BYTES_KEPT {
            buffer.clear();
            self.buffer.replace(buffer);
        }
    }

    pub(crate) fn add_continuation(&self, continuation: Continuation) {
        if self.replies.borrow().has_slot(continuation.slot) {
            self.continuations.borrow_mut().push(continuation);
        } else {
            self.go_on_after_message_reply(continuation.slot, Next::Run(continuation.run));
        }
    }

    /// Returns the number of calls after which this worker will go on by itself.
    pub(crate) fn continuation_count(&self) -> usize {
        let is_own = |next: &&Next| matches!(next, Next::Run(_));
        self.continuations.borrow().len() + self.after_message_replies.borrow().values().filter(is_own).count()
    }

    fn go_on_after_message_reply(&self, reply: SlotHandle, next: Next) {
        self.replies.borrow().message_replies().watch(reply);
        self.after_message_replies.borrow_mut().insert(reply, next);
    }

    pub(crate) fn add_waker(&self, slot: SlotHandle, waker: &Waker) {
        if !self.replies.borrow().has_slot(slot) {
            return self.go_on_after_message_reply(slot, Next::Wake(waker.clone()));
        }
        let mut wakers = self.wakers.borrow_mut();
        wakers.retain(|(other, _)| *other != slot);
        wakers.push((slot, waker.clone()));
    }

    /// Notes that a receiver has an open batch or staged records.
    pub(crate) fn list_unfinished(&self, to: WorkerId) {
        let mut unfinished = self.unfinished.borrow_mut();
        if !unfinished.contains(&to) {
            unfinished.push(to);
        }
    }

    pub(crate) fn flush_to(&self, to: WorkerId, cause: FlushCause) {
        if let Some(mut outbox) = self.outbox(to) {
            outbox.flush(&self.process, cause);
            if !outbox.is_finished() {
                self.list_unfinished(to);
            }
        }
    }

    /// Returns the error for a lost process whose last calls have run here.
    pub(crate) fn lost(&self, process: ProcessId) -> Option<Error> {
        self.has_outlived(process).then(|| self.process.losses.gone(process))
    }

    /// Returns the error for a call of `on` whose answer `holder` owes, if it never comes.
    #[inline]
    pub(crate) fn holder_lost(&self, on: WorkerId, holder: Holder) -> Option<Error> {
        if self.lost.borrow().is_empty() {
            return None;
        }
        match holder {
            Holder::Called => self.lost(self.process_of(on)),
            Holder::Process(process) => self.lost(process),
            Holder::OnTheWay { losses } => {
                self.lost.borrow().get(losses as usize).map(|process| self.process.losses.gone(*process))
            }
        }
    }

    /// Returns the error for the process that was lost first.
    #[inline]
    pub(crate) fn any_lost(&self) -> Option<Error> {
        self.lost.borrow().first().map(|process| self.process.losses.gone(*process))
    }

    /// Returns a value that changes whenever calls have run or notices were taken here.
    pub(crate) fn news(&self) -> (u64, u32) {
        (self.executed.get(), self.attention_seen.get())
    }

    pub(crate) fn has_notices(&self) -> bool {
        self.process.mailboxes.attention(self.local) != self.attention_seen.get()
    }

    #[inline]
    pub(crate) fn not_in_handler(&self, what: &'static str) -> Result<()> {
        if self.is_in_handler() {
            return Err(Error::InHandler { what });
        }
        self.borrowed.get().map_or(Ok(()), |since| Err(Error::Borrowed { what, since }))
    }

    /// The place that borrows a value of this worker, while one does. No wait begins meanwhile.
    pub(crate) fn borrowed(&self) -> &Cell<Option<&'static Location<'static>>> {
        &self.borrowed
    }
}

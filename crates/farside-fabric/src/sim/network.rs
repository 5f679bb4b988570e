//! The network itself: a clock, what is under way, and the processes at its ends.

mod death;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use farside_sys::shm::SharedMemory;

use super::SimOptions;
use super::parcel::{Due, Parcel, Request, Transfer, TransferId};
use super::process::{Peer, Process};
use super::random::Random;
use super::regions::RegionTable;
use crate::ids::ProcessId;
use crate::transport::{Completion, Event, FabricError, Operation, RemoteKey};

/// How often a process calls `progress` before others that have something to do, and do not, count as inattentive. So many
/// calls take longer than it takes a thread to wake up.
const POLLS_ALONE_MAX: u32 = 200;

/// The network behind its one lock: simulated processes are threads that take turns.
#[derive(Debug)]
pub(super) struct SharedNetwork {
    pub(super) options: SimOptions,
    pub(super) process_count: u32,
    state: Mutex<Network>,
}

#[derive(Debug)]
pub(super) struct Network {
    options: SimOptions,
    random: Random,
    /// The clock.
    step: u64,
    /// How many parcels and transfers there were so far.
    sequence: u64,
    under_way: BTreeMap<Due, Parcel>,
    transfers: BTreeMap<TransferId, Transfer>,
    lanes: BTreeMap<(ProcessId, ProcessId), Lane>,
    processes: Vec<Process>,
    polls: Polls,
}

/// How often the last process that called `progress` has done so, with no wait and nobody else between.
#[derive(Clone, Copy, Debug, Default)]
struct Polls {
    process: Option<ProcessId>,
    count: u32,
    /// The first thread that made progress for any process.
    thread: Option<ThreadId>,
    /// There was another.
    threads_are_many: bool,
}

impl Polls {
    fn count_one(&mut self, process: ProcessId) {
        let thread = thread::current().id();
        self.threads_are_many |= *self.thread.get_or_insert(thread) != thread;
        if self.process.replace(process) != Some(process) {
            self.count = 0;
        }
        self.count += 1;
    }
}

/// What keeps the messages from one process to another in order and in number.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    /// Step and tie of the last one: the next is due no earlier.
    last: (u64, u64),
    /// How many were sent and not received.
    waiting: usize,
}

impl SharedNetwork {
    pub(super) fn new(
        process_count: u32,
        starter_bytes: usize,
        seed: u64,
        options: SimOptions,
    ) -> Result<Self, FabricError> {
        let processes = (0..process_count)
            .map(|number| Ok(Process::new(RegionTable::new(ProcessId::new(number), starter_bytes)?)))
            .collect::<Result<_, FabricError>>()?;
        let network = Network {
            options,
            random: Random::new(seed),
            step: 0,
            sequence: 0,
            under_way: BTreeMap::new(),
            transfers: BTreeMap::new(),
            lanes: BTreeMap::new(),
            processes,
            polls: Polls::default(),
        };
        Ok(Self { options, process_count, state: Mutex::new(network) })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Network> {
        // A panic under the lock is a bug here; its test fails by it, and the other processes may still end.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a process asks of the network.
impl Network {
    pub(super) fn steps(&self) -> u64 {
        self.step
    }

    pub(super) fn process(&mut self, process: ProcessId) -> &mut Process {
        &mut self.processes[process.index()]
    }

    pub(super) fn post(
        &mut self,
        from: ProcessId,
        key: RemoteKey,
        operation: Operation,
    ) -> Result<Completion, FabricError> {
        let max = self.options.operations_max;
        if self.process(from).operations >= max {
            return Err(FabricError::QueueFull { process: key.process, max });
        }
        let completion = Completion::pending();
        match self.admit(from, key, &operation) {
            Ok(memory) => {
                self.process(from).operations += 1;
                self.launch(from, key, Request::access(memory, operation), completion.clone());
            }
            Err(error) => completion.end(Err(error)),
        }
        Ok(completion)
    }

    pub(super) fn start_attaching(&mut self, from: ProcessId, key: RemoteKey) -> Result<Completion, FabricError> {
        self.connect(from, key.process)?;
        let completion = Completion::pending();
        self.launch(from, key, Request::Attach(None), completion.clone());
        Ok(completion)
    }

    pub(super) fn send(&mut self, from: ProcessId, to: ProcessId, message: &[u8]) -> Result<(), FabricError> {
        let max = self.options.message_bytes_max;
        if message.len() > max {
            return Err(FabricError::MessageTooLong { bytes: message.len(), max });
        }
        self.connect(from, to)?;
        let max = self.options.messages_max;
        let lane = self.lanes.entry((from, to)).or_default();
        if lane.waiting >= max {
            return Err(FabricError::QueueFull { process: to, max });
        }
        lane.waiting += 1;
        self.dispatch_in_order(from, to, Parcel::Message { from, to, message: message.to_vec() });
        Ok(())
    }

    pub(super) fn receive(&mut self, process: ProcessId) -> Option<Event> {
        let event = self.process(process).inbox.pop_front()?;
        if let Event::Message { from, .. } = event {
            self.clear_one(from, process);
        }
        Some(event)
    }

    /// A step passes, and what is due happens. For a process that is alone in doing something, and does nothing but
    /// call this, time runs on to the next thing that concerns it.
    pub(super) fn progress(&mut self, process: ProcessId) {
        self.step += 1;
        while self.under_way.first_key_value().is_some_and(|(due, _)| due.step <= self.step) {
            self.deliver_next();
        }
        self.polls.count_one(process);
        if self.is_alone(process) {
            while self.process(process).arrived.is_empty() && self.process(process).under_way > 0 {
                self.deliver_next();
            }
        }
        while let Some(parcel) = self.process(process).arrived.pop_front() {
            self.accept(parcel);
        }
    }

    /// A process is in `wait`: it leaves time to others.
    pub(super) fn note_wait(&mut self, process: ProcessId) {
        if self.polls.process == Some(process) {
            self.polls.count = 0;
        }
    }

    /// Would it be in vain to let time pass slowly, so that others can do something meanwhile?
    fn is_alone(&self, process: ProcessId) -> bool {
        let is_idle = |other: &Process| !other.alive || !other.can_move();
        let mut others = self.processes.iter().enumerate().filter(|(index, _)| *index != process.index());
        match self.polls.count {
            _ if !self.polls.threads_are_many => true,
            POLLS_ALONE_MAX.. => true,
            2.. => others.all(|(_, other)| is_idle(other)),
            _ => false,
        }
    }

    fn admit(
        &self,
        from: ProcessId,
        key: RemoteKey,
        operation: &Operation,
    ) -> Result<Arc<SharedMemory>, FabricError> {
        self.check_connection(from, key.process)?;
        match operation {
            Operation::Put { offset, data } => key.check(*offset, data.len())?,
            Operation::Get { offset, bytes } => key.check(*offset, *bytes)?,
            Operation::Atomic64 { offset, .. } => key.check_word(*offset, 8)?,
            Operation::Atomic32 { offset, .. } => key.check_word(*offset, 4)?,
        }
        self.processes[from.index()].attached.get(&key).cloned().ok_or(FabricError::StaleKey { key })
    }

    fn check_connection(&self, from: ProcessId, to: ProcessId) -> Result<(), FabricError> {
        let count = self.processes.len() as u32;
        if to.number() >= count {
            return Err(FabricError::NoSuchProcess { process: to, count });
        }
        let this = &self.processes[from.index()];
        if !this.alive {
            return Err(FabricError::Disconnected { process: from });
        }
        this.check_peer(to)
    }

    /// Both sides are connected from the first use by either.
    fn connect(&mut self, from: ProcessId, to: ProcessId) -> Result<(), FabricError> {
        self.check_connection(from, to)?;
        if self.process(from).peers.contains_key(&to) {
            return Ok(());
        }
        let target = self.process(to);
        if !target.alive || target.check_peer(from).is_err() {
            return Err(FabricError::Disconnected { process: to });
        }
        target.peers.insert(from, Peer::Connected);
        self.process(from).peers.insert(to, Peer::Connected);
        Ok(())
    }
}

/// How things travel.
impl Network {
    fn launch(&mut self, from: ProcessId, key: RemoteKey, request: Request, completion: Completion) {
        self.sequence += 1;
        let transfer = self.sequence;
        let pieces = request.pieces(&mut self.random);
        let state = Transfer {
            from,
            key,
            completion: Some(completion),
            pieces_left: pieces.len(),
            request,
            error: None,
        };
        self.transfers.insert(transfer, state);
        for piece in pieces {
            self.dispatch(Parcel::Effect { transfer, from, target: key.process, piece });
        }
    }

    fn draw_due(&mut self) -> Due {
        self.sequence += 1;
        let max = self.options.delay_max_steps;
        let (delay, tie) = if max == 0 {
            (0, 0)
        } else {
            // Every order of magnitude is as likely as every other.
            let scale = self.random.up_to(u64::from(u64::BITS - max.leading_zeros() - 1));
            (self.random.up_to(max >> scale), self.random.next())
        };
        Due { step: self.step.saturating_add(delay), tie, sequence: self.sequence }
    }

    fn dispatch(&mut self, parcel: Parcel) {
        let due = self.draw_due();
        self.insert(due, parcel);
    }

    /// Sends a parcel that must not overtake the ones sent so before.
    fn dispatch_in_order(&mut self, from: ProcessId, to: ProcessId, parcel: Parcel) {
        let mut due = self.draw_due();
        let lane = self.lanes.entry((from, to)).or_default();
        (due.step, due.tie) = lane.last.max((due.step, due.tie));
        lane.last = (due.step, due.tie);
        self.insert(due, parcel);
    }

    fn insert(&mut self, due: Due, parcel: Parcel) {
        for process in self.concerned(&parcel).into_iter().flatten() {
            let process = self.process(process);
            process.under_way += 1;
            process.sleepers.notify();
        }
        self.under_way.insert(due, parcel);
    }

    /// Those who can move the parcel on, and must not sleep while it is under way.
    fn concerned(&self, parcel: &Parcel) -> [Option<ProcessId>; 2] {
        match parcel {
            Parcel::Effect { from, target, .. } => {
                let helper = self.options.needs_target_progress && from != target;
                [Some(*from), helper.then_some(*target)]
            }
            other => [Some(other.destination()), None],
        }
    }

    fn take_out(&mut self, due: Due) -> Option<Parcel> {
        let parcel = self.under_way.remove(&due)?;
        for process in self.concerned(&parcel).into_iter().flatten() {
            self.process(process).under_way -= 1;
        }
        Some(parcel)
    }

    /// Lets the next thing happen. There is one.
    fn deliver_next(&mut self) {
        let next = self.under_way.first_key_value().map(|(due, _)| *due);
        let Some((due, parcel)) = next.and_then(|due| Some((due, self.take_out(due)?))) else { return };
        self.step = self.step.max(due.step);
        let attentive = self.process(parcel.destination()).alive
            && (self.options.needs_target_progress || !matches!(parcel, Parcel::Effect { .. }));
        if attentive {
            let process = self.process(parcel.destination());
            process.arrived.push_back(parcel);
            process.sleepers.notify();
        } else {
            self.accept(parcel);
        }
    }

    /// A parcel does what it was sent for.
    fn accept(&mut self, parcel: Parcel) {
        match parcel {
            Parcel::Effect { transfer, piece, .. } => self.take_effect(transfer, piece),
            Parcel::Reply { transfer, .. } => self.end_transfer(transfer),
            Parcel::Message { from, to, message } => {
                let process = self.process(to);
                if process.alive && process.check_peer(from).is_ok() {
                    process.inbox.push_back(Event::Message { from, message });
                } else {
                    self.clear_one(from, to);
                }
            }
            Parcel::Disconnected { with, to } => {
                if self.process(to).alive {
                    self.process(to).lose_peer(with);
                }
            }
        }
    }

    fn take_effect(&mut self, id: TransferId, piece: std::ops::Range<usize>) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        let target = transfer.key.process;
        let process = &self.processes[target.index()];
        if process.alive {
            transfer.take_effect(piece, &process.regions);
        } else {
            transfer.error.get_or_insert(FabricError::Disconnected { process: target });
        }
        transfer.pieces_left -= 1;
        if transfer.pieces_left == 0 {
            let to = transfer.from;
            self.dispatch(Parcel::Reply { transfer: id, to });
        }
    }

    fn end_transfer(&mut self, id: TransferId) {
        let Some(mut transfer) = self.transfers.remove(&id) else { return };
        let Some(completion) = transfer.completion.take() else { return };
        let process = self.process(transfer.from);
        match &transfer.request {
            Request::Attach(Some(memory)) => {
                process.attached.insert(transfer.key, memory.clone());
            }
            Request::Attach(None) => {}
            _ => process.operations -= 1,
        }
        let error = transfer.error.take();
        completion.end(error.map_or_else(|| Ok(transfer.request.into_outcome()), Err));
    }

    /// A message between these two is received, or lost with one of them.
    fn clear_one(&mut self, from: ProcessId, to: ProcessId) {
        self.lanes.entry((from, to)).or_default().waiting -= 1;
    }
}

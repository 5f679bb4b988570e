//! The network itself: a clock, the parcels in transit, and the processes at its ends.
//!
//! One lock guards all of it: a caller with `&mut Network` holds that lock. Nothing here waits.

mod death;
mod travel;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farside_sys::shm::{SharedMemory, ShmError};

use self::travel::Polls;
use super::Random;
use super::SimOptions;
use super::parcel::{Due, Parcel, Request, Transfer, TransferId};
use super::process::{Peer, Process};
use super::script::SimScript;
use super::trace::Trace;
use super::turns::Turns;
use crate::emulated::{Owner, Registration};
use crate::ids::ProcessId;
use crate::transport::{Completion, Event, FabricError, Operation, RemoteKey, Unposted};

/// The network behind its single lock: simulated processes are threads that take turns.
#[derive(Debug)]
pub(super) struct SharedNetwork {
    pub(super) options: SimOptions,
    pub(super) process_count: u32,
    /// True if only one thread runs at a time, and time passes when all of them wait.
    pub(super) takes_turns: bool,
    state: Mutex<Network>,
}

#[derive(Debug)]
pub(super) struct Network {
    options: SimOptions,
    random: Random,
    /// The time of the clock.
    now_ns: u64,
    /// The times from which each process's ports are free: that of the network, and that to the
    /// processes of its machine.
    ports: Vec<[u64; 2]>,
    /// The time from which each word that an atomic operation has changed takes the next one. Words
    /// that are free again are removed from time to time.
    words: HashMap<(RemoteKey, u64), u64>,
    /// The number of words from which those that are free again are removed.
    words_max: usize,
    /// Number of parcels and transfers so far.
    sequence: u64,
    under_way: BTreeMap<Due, Parcel>,
    transfers: BTreeMap<TransferId, Transfer>,
    directions: BTreeMap<(ProcessId, ProcessId), Direction>,
    processes: Vec<Process>,
    polls: Polls,
    /// Set if threads take turns; then they decide how time passes.
    pub(super) turns: Option<Turns>,
    pub(super) trace: Trace,
    pub(super) script: Option<Arc<SimScript>>,
    /// Effects and messages in transit that the script will choose from, in the order of their age.
    held: Vec<Parcel>,
}

/// Keeps the messages from one process to another in order, and counts them.
#[derive(Clone, Copy, Debug, Default)]
struct Direction {
    /// Time and tie of the last message: the next one is due no earlier.
    last: (u64, u64),
    /// Number of messages that were sent and not received.
    waiting: usize,
}

impl Direction {
    /// Places the next message behind the others.
    fn line_up(&mut self, due: &mut Due) {
        self.last = self.last.max((due.at_ns, due.tie));
        (due.at_ns, due.tie) = self.last;
    }
}

impl SharedNetwork {
    pub(super) fn new(
        process_count: u32,
        starter_bytes: usize,
        seed: u64,
        options: SimOptions,
        takes_turns: bool,
    ) -> Result<Self, FabricError> {
        let processes = (0..process_count)
            .map(ProcessId::new)
            .map(|process| {
                let memory = Arc::new(SharedMemory::create("farside-sim-starter", starter_bytes)?);
                let starter = Registration { memory, bytes: starter_bytes, access: None };
                Ok(Process::new(Owner::new(process, starter)))
            })
            .collect::<Result<_, FabricError>>()?;
        let network = Network {
            options,
            random: Random::new(seed),
            now_ns: 0,
            ports: vec![[0; 2]; process_count as usize],
            words: HashMap::new(),
            words_max: 0,
            sequence: 0,
            under_way: BTreeMap::new(),
            transfers: BTreeMap::new(),
            directions: BTreeMap::new(),
            processes,
            polls: Polls::default(),
            turns: takes_turns.then(|| Turns::new(process_count, seed)),
            trace: Trace::new(),
            script: None,
            held: Vec::new(),
        };
        Ok(Self { options, process_count, takes_turns, state: Mutex::new(network) })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Network> {
        // A panic under the lock is a bug in the simulator; it fails its test, and the other
        // processes may still end.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests of a process to the network.
impl Network {
    /// Counts a registration of memory, which the options may let fail.
    ///
    /// # Errors
    /// [`FabricError::Memory`].
    pub(super) fn note_registration(&mut self, bytes: usize) -> Result<(), FabricError> {
        let (first, end) = self.options.failing_registrations;
        let number = self.trace.registrations;
        self.trace.registrations += 1;
        if (first..end).contains(&number) { Err(ShmError::NoSpace { bytes, available: 0 }.into()) } else { Ok(()) }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub(super) fn process(&mut self, process: ProcessId) -> &mut Process {
        &mut self.processes[process.index()]
    }

    pub(super) fn post(
        &mut self,
        from: ProcessId,
        key: RemoteKey,
        operation: Operation,
    ) -> Result<Completion, Unposted> {
        let max = self.options.operations_max;
        if self.process(from).operations >= max {
            return Err(operation.refused(FabricError::QueueFull { process: key.process, max }));
        }
        Ok(self.post_queued(from, key, operation))
    }

    /// Posts an operation of a queue, which has limits of its own.
    pub(super) fn post_queued(&mut self, from: ProcessId, key: RemoteKey, operation: Operation) -> Completion {
        let completion = Completion::pending();
        match self.admit(from, key, &operation) {
            Ok(()) => {
                self.process(from).operations += 1;
                self.launch(from, key, Request::access(operation), completion.clone());
            }
            Err(error) => completion.end(Err(error)),
        }
        completion
    }

    pub(super) fn start_attaching(&mut self, from: ProcessId, key: RemoteKey) -> Result<Completion, FabricError> {
        self.connect(from, key.process)?;
        let completion = Completion::pending();
        self.launch(from, key, Request::Attach, completion.clone());
        Ok(completion)
    }

    /// Withdraws a key of a process. Notifies its holders.
    pub(super) fn deregister(&mut self, process: ProcessId, key: RemoteKey) -> Result<Completion, FabricError> {
        let (completion, holders) = self.process(process).regions.deregister(key)?;
        for holder in holders {
            self.dispatch_in_order(process, holder, 0, Parcel::Revoke { key, to: holder });
        }
        self.stir(process);
        Ok(completion)
    }

    pub(super) fn send(&mut self, from: ProcessId, to: ProcessId, message: &[u8]) -> Result<(), FabricError> {
        let max = self.options.message_bytes_max;
        if message.len() > max {
            return Err(FabricError::MessageTooLong { bytes: message.len(), max });
        }
        self.connect(from, to)?;
        let max = self.options.messages_max;
        let direction = self.directions.entry((from, to)).or_default();
        if direction.waiting >= max {
            self.process(from).awaits_room = true;
            return Err(FabricError::QueueFull { process: to, max });
        }
        direction.waiting += 1;
        self.dispatch_in_order(from, to, message.len(), Parcel::Message { from, to, message: message.to_vec() });
        Ok(())
    }

    pub(super) fn receive(&mut self, process: ProcessId) -> Option<Event> {
        let event = self.process(process).inbox.pop_front()?;
        if let Event::Message { from, .. } = event {
            self.clear_one(from, process);
        }
        Some(event)
    }

    fn admit(&self, from: ProcessId, key: RemoteKey, operation: &Operation) -> Result<(), FabricError> {
        self.check_connection(from, key.process)?;
        match operation {
            Operation::Put { offset, data } => key.check(*offset, data.len())?,
            Operation::Get { offset, room } => key.check(*offset, room.len())?,
            Operation::Atomic64 { offset, .. } => key.check_word(*offset, 8)?,
            Operation::Atomic32 { offset, .. } => key.check_word(*offset, 4)?,
        }
        let is_attached = self.processes[from.index()].attached.contains(&key);
        if is_attached { Ok(()) } else { Err(FabricError::StaleKey { key }) }
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

    /// Connects two processes; the first use by either side connects both.
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

//! The state of the room `memory`: the memory that the threads of a process share, and how its
//! workers ask other processes for memory.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use farside_fabric::clock::lock;
use farside_fabric::memory::{Allocator, AllocatorOptions, ChunkSource, NodeReport, Registered};
use farside_fabric::{ProcessId, RemoteKey, RemoteRegion, Transport};
use farside_sys::topology::Topology;

use super::grants::Grants;
use super::message::{Locality, MemoryMessage};
use super::mover::Mover;
use super::node_memories::NodeMemories;
use super::requests::{Answer, Requests};
use super::{AllocateOptions, GlobalAddress, MemoryError, MemoryRefusal, Nodes, Place, RemoteMemory, publish};
use crate::error::{Error, Result};
use crate::runtime::extent::Extent;
use crate::runtime::observer::{AccessKind, Accessor, Touch};
use crate::runtime::process::Process;
use crate::runtime::room::{Room, Seed};
use crate::runtime::worker::Worker;
use farside_launch::kill_point::KillPoint;
use farside_launch::settings::Settings;

/// The memory of one process, and what it knows about that of others.
#[derive(Debug)]
pub(crate) struct ProcessMemory {
    grants: Mutex<Grants>,
    requests: Mutex<Requests>,
    released: Mutex<Released>,
    nodes: OnceLock<Nodes>,
    by_node: Arc<NodeMemories>,
    mover: Mover,
}

/// The room's state in a worker: its allocator, and the regions that it has used.
#[derive(Debug)]
pub(crate) struct WorkerMemory {
    regions: RefCell<Regions>,
    /// Made when it is first used.
    allocator: OnceCell<Allocator>,
    /// The allocators for other options.
    others: RefCell<Vec<(AllocateOptions, Allocator)>>,
}

impl Room for ProcessMemory {
    const TAG: u8 = 1;
    type Message = MemoryMessage;
    type Local = WorkerMemory;

    fn new(seed: &Seed<'_>) -> Self {
        Self::new(seed.transport, seed.settings)
    }

    fn local(&self, process: &Arc<Process>, _local: usize) -> WorkerMemory {
        let regions = RefCell::new(Regions::new(process.clock().now()));
        WorkerMemory { regions, allocator: OnceCell::new(), others: RefCell::default() }
    }

    fn begin(&self, process: &Process) {
        publish(process.home(), process.links.starter_key(process.id()));
    }

    fn take(&self, process: &Arc<Process>, from: ProcessId, message: MemoryMessage) {
        self.take_memory_message(process, from, message);
    }

    /// Takes back the memory that the lost process asked for.
    fn lose(&self, process: &Process, lost: ProcessId) {
        let mut grants = lock(&self.grants);
        grants.release_all_of(lost);
        self.note_granted(process, &grants);
    }

    fn stop(&self, process: &Process) {
        self.mover.stop(process);
    }

    fn is_settled(&self) -> bool {
        self.mover.is_idle()
    }
}

impl ProcessMemory {
    pub(crate) fn new(transport: &Arc<dyn Transport>, settings: &Settings) -> Self {
        let own = transport.process();
        let by_node = Arc::new(NodeMemories::new(transport.clone()));
        let for_others = by_node.clone();
        let source_of = move |node| for_others.on(node, None) as Arc<dyn ChunkSource>;
        Self {
            grants: Mutex::new(Grants::new(own, settings.remote_memory_limit, Box::new(source_of))),
            requests: Mutex::default(),
            released: Mutex::default(),
            nodes: OnceLock::new(),
            by_node,
            mover: Mover::default(),
        }
    }

    pub(super) fn mover(&self) -> &Mover {
        &self.mover
    }

    /// Returns whether memory of this process was zero when it was given out.
    pub(crate) fn was_zero(&self, memory: &RemoteMemory) -> bool {
        lock(&self.grants).was_zero(memory)
    }

    /// Refuses a handle that this process has released.
    pub(super) fn check_known(&self, memory: &RemoteMemory) -> Result<()> {
        if lock(&self.released).has(memory) { Err(MemoryError::Released { memory: *memory }.into()) } else { Ok(()) }
    }

    /// Returns the region of this key, if it belongs to this process's memory.
    pub(crate) fn own_region(&self, key: RemoteKey) -> Option<RemoteRegion> {
        self.by_node.region(key).map(|region| region.as_remote())
    }
}

/// For each grant that this process has released, the first generation that may be in use. There is
/// at most one entry per grant number of an owner.
#[derive(Debug, Default)]
struct Released(HashMap<(ProcessId, u32), u32>);

impl Released {
    /// Notes a release. Threads of this process may note generations of one grant in another order
    /// than the owner released them in.
    fn add(&mut self, memory: &RemoteMemory) {
        if !self.has(memory) {
            self.0.insert((memory.process(), memory.id), memory.generation.wrapping_add(1));
        }
    }

    fn has(&self, memory: &RemoteMemory) -> bool {
        let alive_from = self.0.get(&(memory.process(), memory.id));
        // Generations wrap around; half of them are in the past.
        alive_from.is_some_and(|from| from.wrapping_sub(memory.generation).wrapping_sub(1) < u32::MAX / 2)
    }
}

impl ProcessMemory {
    /// Returns the room's state in a process.
    pub(crate) fn of(process: &Process) -> &Self {
        process.room()
    }

    /// Notes how much memory of this process others have, for the counters of workers.
    fn note_granted(&self, process: &Process, grants: &Grants) {
        process.activities.remote_memory_bytes.store(grants.granted_bytes(), Ordering::Relaxed);
    }

    /// Returns the region of a handle's memory, attached. Waits for at most `time`.
    pub(super) fn region_of(&self, process: &Process, memory: &RemoteMemory, time: Duration) -> Result<RemoteRegion> {
        if memory.process() == process.id() {
            let region = lock(&self.grants).region_of(memory);
            return region.map_err(|why| refused(memory, why));
        }
        check_process(process, memory.process())?;
        memory.check_kind()?;
        let deadline = process.clock().now() + time;
        process.transport().attach(memory.key, deadline).map_err(|error| process.explain(error))
    }

    /// Gives memory of this process to the process `to`.
    fn grant(
        &self,
        process: &Process,
        to: ProcessId,
        bytes: u64,
        near: Locality,
    ) -> Result<RemoteMemory, MemoryRefusal> {
        let nodes = self.nodes(process);
        let node = match near {
            Locality::Anywhere => None,
            Locality::Node(node) if nodes.has(node) => Some(node),
            Locality::Node(node) => return Err(MemoryRefusal::NoSuchNode { node }),
            Locality::Thread(local) => nodes.of_thread(local as usize),
        };
        let mut grants = lock(&self.grants);
        let memory = grants.allocate(to, bytes, node)?;
        self.note_granted(process, &grants);
        drop(grants);
        publish(process.home(), memory.key);
        if let Some(observer) = process.accesses.observer() {
            observer.renewed(memory.extent());
        }
        Ok(memory)
    }

    /// Takes memory back on behalf of a process, whose note an observer of accesses is given.
    fn take_back(
        &self,
        process: &Process,
        memory: &RemoteMemory,
        by: ProcessId,
        note: &[u8],
    ) -> Result<(), MemoryRefusal> {
        let mut grants = lock(&self.grants);
        grants.release(memory)?;
        self.note_granted(process, &grants);
        if let Some(observer) = process.accesses.observer() {
            // Under the lock: before the memory can be allocated again.
            observer.released(process, memory.extent(), by, note);
        }
        Ok(())
    }

    /// The NUMA nodes of this machine.
    fn nodes(&self, process: &Process) -> &Nodes {
        self.nodes.get_or_init(|| find_nodes(process))
    }

    /// Answers a request of another process about memory, or notes its answer.
    pub(crate) fn take_memory_message(&self, process: &Process, from: ProcessId, message: MemoryMessage) {
        let (request, answer) = match message {
            MemoryMessage::Allocate { request, bytes, near } => {
                let answer = match self.grant(process, from, bytes, near) {
                    // It asked before it was lost; the memory that it had was taken back by then.
                    Ok(memory) if process.losses.is_lost(from) => {
                        let mut grants = lock(&self.grants);
                        let _ = grants.release(&memory);
                        return self.note_granted(process, &grants);
                    }
                    Ok(memory) => MemoryMessage::Allocated { request, memory },
                    Err(why) => MemoryMessage::Refused { request, why },
                };
                process.kill_point(KillPoint::MemoryGranted);
                return respond(process, from, answer);
            }
            MemoryMessage::Release { request, memory, note } => {
                let answer = match self.take_back(process, &memory, from, &note) {
                    Ok(()) => MemoryMessage::Released { request },
                    Err(why) => MemoryMessage::Refused { request, why },
                };
                process.kill_point(KillPoint::MemoryReleased);
                return respond(process, from, answer);
            }
            MemoryMessage::Allocated { request, memory } => (request, Answer::Allocated(memory)),
            MemoryMessage::Released { request } => (request, Answer::Released),
            MemoryMessage::Refused { request, why } => (request, Answer::Refused(why)),
        };
        let waiting = lock(&self.requests).answer(request, answer.clone());
        match (waiting, answer) {
            (Some(local), _) => process.mailboxes.call_attention(local),
            (None, Answer::Allocated(memory)) if memory.process() == from => self.return_unwanted(process, memory),
            (None, _) => {}
        }
    }

    /// Releases memory that arrived after its asker stopped waiting.
    fn return_unwanted(&self, process: &Process, memory: RemoteMemory) {
        // No thread waits for the answer either.
        let request = lock(&self.requests).begin(0);
        lock(&self.requests).give_up(request);
        respond(process, memory.process(), MemoryMessage::Release { request, memory, note: Vec::new() });
    }
}

fn check_process(here: &Process, process: ProcessId) -> Result<()> {
    let count = here.shape().processes;
    if process.number() < count { Ok(()) } else { Err(Error::UnknownProcess { process, count }) }
}

fn find_nodes(process: &Process) -> Nodes {
    if process.clock().is_simulated() {
        return Nodes::unknown();
    }
    let settings = process.settings();
    let (index, count) = (process.id().index(), settings.processes as usize);
    match Topology::of_this_machine() {
        Ok(topology) => Nodes::on(&topology, settings.bind, index, count, settings.threads as usize),
        // Memory can be allocated without knowing the nodes.
        Err(_) => Nodes::unknown(),
    }
}

fn respond(process: &Process, to: ProcessId, message: MemoryMessage) {
    // A process that is lost by now needs no answer.
    let _ = process.send::<ProcessMemory>(to, &message);
}

impl Worker {
    /// The regions of other processes that this worker has used.
    pub(super) fn regions(&self) -> &RefCell<Regions> {
        &self.room::<ProcessMemory>().regions
    }

    /// Allocates a buffer of registered memory of this process, on the NUMA node that this worker
    /// is bound to. This worker or any other thread may use it. Dropping it returns the memory. Its
    /// contents are those of an earlier use.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let buffer = me.allocate(4096)?;
    /// buffer.write_at(0, b"registered")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Other workers reach it by its [address](crate::RegisterMemory::address_of). For memory that
    /// outlives the buffer there is [`allocate_at`](Self::allocate_at), also for this process. A
    /// buffer that outlives the job keeps the job's memory and its connection to the fabric.
    ///
    /// *Cost*: about 18 ns for a size of up to 64 KiB that was returned before; otherwise some
    /// hundred, or those of registering more memory (see [`allocate_at`](Self::allocate_at)).
    ///
    /// Seriema §4.2, the general allocator, one per worker.
    ///
    /// # Errors
    /// [`Error::Fabric`] with `Memory` if the machine has none left.
    pub fn allocate(&self, bytes: usize) -> Result<Registered> {
        let allocator = self.room::<ProcessMemory>().allocator.get_or_init(|| {
            let process = self.process_handle();
            let node = ProcessMemory::of(process).nodes(process).of_thread(self.thread_index());
            Allocator::new(ProcessMemory::of(process).by_node.on(node, None), AllocatorOptions::default())
        });
        Ok(self.renewed(allocator.allocate(bytes)?))
    }

    pub(crate) fn allocate_with(&self, bytes: usize, options: AllocateOptions) -> Result<Registered> {
        let process = self.process_handle();
        let node = match options.node {
            Some(node) if !ProcessMemory::of(process).nodes(process).has(node.0) => {
                let why = MemoryRefusal::NoSuchNode { node: node.0 };
                return Err(MemoryError::Refused { process: self.process(), bytes: bytes as u64, why }.into());
            }
            Some(node) => Some(node.0),
            None => ProcessMemory::of(process).nodes(process).of_thread(self.thread_index()),
        };
        let mut others = self.room::<ProcessMemory>().others.borrow_mut();
        let known = others.iter().position(|(of, _)| *of == options).unwrap_or_else(|| {
            let source = ProcessMemory::of(process).by_node.on(node, options.pages);
            others.push((options, Allocator::new(source, AllocatorOptions::default())));
            others.len() - 1
        });
        Ok(self.renewed(others[known].1.allocate(bytes)?))
    }

    /// Reports a new buffer to an observer of accesses.
    fn renewed(&self, buffer: Registered) -> Registered {
        if let Some(observer) = self.process_handle().accesses.observer() {
            observer.renewed(Extent::of(&buffer));
        }
        buffer
    }

    pub(crate) fn address_of(&self, buffer: &Registered) -> Result<GlobalAddress> {
        publish(self.process_handle().home(), buffer.key());
        GlobalAddress::in_region(buffer.key(), buffer.offset())
            .ok_or_else(|| MemoryError::no_address(buffer.key()).into())
    }

    pub(crate) fn memory_report(&self) -> Vec<NodeReport> {
        ProcessMemory::of(self.process_handle()).by_node.report()
    }

    /// Allocates memory of this process or another: anywhere in it, on one of its NUMA nodes, or
    /// near one of its workers. Its contents are those of an earlier use.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let somewhere = me.allocate_at(ProcessId::new(1), 1 << 20)?;
    /// let near_a_worker = me.allocate_at(me.neighbor(1), 4096)?;
    /// # me.release(somewhere)?;
    /// # me.release(near_a_worker)
    /// # }
    /// ```
    ///
    /// It stays until a worker [releases](Self::release) it, its owner loses this process, or the
    /// job ends. Handles are plain values: dropping one keeps the memory allocated.
    ///
    /// *Cost*: a round trip to the process's service thread, which needs no worker there; about a
    /// microsecond in this process. When its memory is used up, the owner registers more. That
    /// takes half a millisecond per 2 MiB, or four where it gathers transparent huge pages.
    ///
    /// Seriema §3.2.
    ///
    /// # Errors
    /// [`MemoryError::Refused`](crate::memory::MemoryError::Refused) with the reason;
    /// [`Error::PeerLost`]; [`Error::Deadline`], after which memory that arrives late is released;
    /// [`Error::UnknownProcess`], [`Error::UnknownWorker`]; [`Error::InHandler`].
    pub fn allocate_at(&self, place: impl Into<Place>, bytes: u64) -> Result<RemoteMemory> {
        let process = self.process_handle();
        let (owner, near) = match place.into() {
            Place::In(owner) => (owner, Locality::Anywhere),
            Place::OnNode(owner, node) => (owner, Locality::Node(node.0)),
            Place::Near(worker) => {
                let (owner, local) = process.job.place_of(worker).ok_or_else(|| self.unknown(worker))?;
                (owner, Locality::Thread(local as u32))
            }
        };
        check_process(process, owner)?;
        let refused = |why| Error::from(MemoryError::Refused { process: owner, bytes, why });
        if owner == process.id() {
            return ProcessMemory::of(process).grant(process, owner, bytes, near).map_err(refused);
        }
        let ask = |request| MemoryMessage::Allocate { request, bytes, near };
        match self.ask_for_memory(owner, "waiting for memory of another process", ask)? {
            Answer::Allocated(memory) if memory.process() == owner && memory.bytes == bytes => Ok(memory),
            Answer::Refused(why) => Err(refused(why)),
            // No owner of this job answers like this.
            _ => Err(refused(MemoryRefusal::Foreign)),
        }
    }

    /// Releases memory that any worker of the job has allocated. All workers must have finished
    /// with it: what they put there afterwards may change memory of others (see [stale
    /// handles](RemoteMemory#stale-handles)).
    ///
    /// *Cost*: a round trip to the owner's service thread; little in this process.
    ///
    /// # Errors
    /// - [`MemoryError::Released`](crate::memory::MemoryError::Released) if another call has
    ///   released it, or it was taken back because the process that asked for it is lost.
    /// - [`MemoryError::Foreign`](crate::memory::MemoryError::Foreign) if its owner never gave it
    ///   out.
    /// - [`Error::PeerLost`] if the owner is lost, and the memory with it.
    /// - [`Error::Deadline`] if the owner does not answer; it may or may not have released the
    ///   memory.
    /// - [`Error::InHandler`].
    /// - [`AccessConflict`](crate::AccessConflict) in a job whose accesses are
    ///   [checked](crate::Job::check_accesses), if another worker may be using the memory; it is
    ///   not released then.
    #[track_caller]
    pub fn release(&self, memory: RemoteMemory) -> Result<()> {
        let touch = Touch::here(AccessKind::Release);
        let process = self.process_handle();
        let owner = memory.process();
        check_process(process, owner)?;
        let note = self.check_release(&memory, touch)?;
        if owner == process.id() {
            return ProcessMemory::of(process)
                .take_back(process, &memory, owner, &note)
                .map_err(|why| refused(&memory, why));
        }
        let ask = |request| MemoryMessage::Release { request, memory, note };
        match self.ask_for_memory(owner, "giving memory back to another process", ask)? {
            Answer::Refused(why) => Err(refused(&memory, why)),
            _ => {
                lock(&ProcessMemory::of(process).released).add(&memory);
                Ok(())
            }
        }
    }

    /// Reports a release to an observer of accesses. Returns its note for the owner, which is empty
    /// without an observer.
    ///
    /// # Errors
    /// A conflict with an open access of another worker.
    fn check_release(&self, memory: &RemoteMemory, touch: Touch) -> Result<Vec<u8>> {
        let Some(observer) = self.process_handle().accesses.observer() else { return Ok(Vec::new()) };
        // A stale handle releases nothing: the owner refuses it.
        if memory.check(self).is_ok() {
            self.check_access(memory.key, memory.offset, memory.bytes as usize, touch)?;
        }
        Ok(observer.release_note(Accessor::of(self), memory.extent(), touch))
    }

    /// Asks an owner, and waits for its answer.
    fn ask_for_memory(
        &self,
        owner: ProcessId,
        doing: &'static str,
        ask: impl FnOnce(u32) -> MemoryMessage,
    ) -> Result<Answer> {
        self.not_in_handler(doing)?;
        let process = self.process_handle();
        if let Some(lost) = process.losses.lost(owner) {
            return Err(lost);
        }
        let requests = &ProcessMemory::of(process).requests;
        let request = lock(requests).begin(self.thread_index());
        let asked = process.send::<ProcessMemory>(owner, &ask(request));
        process.kill_point(KillPoint::MemoryAsked);
        let answer = asked.and_then(|()| {
            self.wait_until(doing, self.default_deadline(), |worker| {
                if let Some(answer) = lock(requests).take(request) {
                    return Some(Ok(answer));
                }
                worker.process_handle().losses.lost(owner).map(Err)
            })
        });
        if answer.is_err()
            && let Some(Answer::Allocated(memory)) = lock(requests).give_up(request)
            && memory.process() == owner
        {
            ProcessMemory::of(process).return_unwanted(process, memory);
        }
        answer
    }
}

fn refused(memory: &RemoteMemory, why: MemoryRefusal) -> Error {
    match why {
        MemoryRefusal::Foreign => MemoryError::Foreign { memory: *memory }.into(),
        _ => MemoryError::Released { memory: *memory }.into(),
    }
}

/// The regions that a worker has used. The last one is found first.
#[derive(Debug)]
pub(crate) struct Regions {
    regions: Vec<RemoteRegion>,
    since: Instant,
}

impl Regions {
    pub(crate) fn new(since: Instant) -> Self {
        Self { regions: Vec::new(), since }
    }

    /// A time in the past.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    #[inline]
    pub(super) fn find_or_add(
        &mut self,
        key: RemoteKey,
        attach: impl FnOnce() -> Result<RemoteRegion>,
    ) -> Result<&RemoteRegion> {
        if self.regions.first().is_none_or(|first| first.key() != key) {
            match self.regions.iter().position(|region| region.key() == key) {
                // A region that is used repeatedly is found at once.
                Some(found) => self.regions.swap(0, found),
                None => self.regions.insert(0, attach()?),
            }
        }
        Ok(&self.regions[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys of starter memory are known to every program.
    #[test]
    fn a_forged_handle_does_not_open_starter_memory() {
        let body = |me: &Worker| -> Result<()> {
            for process in (0..me.process_count()).map(ProcessId::new) {
                let key = me.process_handle().links.starter_key(process);
                let forged = RemoteMemory { key, offset: 64, bytes: 64, id: 0, generation: 0 };
                for refused in [forged.put(me, 0, &[1]), forged.get(me, 0, &mut [0]), forged.check(me)] {
                    let why = refused.expect_err("starter memory is no grant");
                    assert!(matches!(why.room_error(), Some(MemoryError::Foreign { .. })), "{why}");
                }
            }
            me.barrier()
        };
        crate::simulate(2, 1, 1, body).unwrap();
    }

    #[test]
    fn generations_are_released_in_any_order() {
        let key = RemoteKey { process: ProcessId::new(1), slot: 2, generation: 0, reserved: 0, bytes: 128 };
        let grant = |generation| RemoteMemory { key, offset: 64, bytes: 64, id: 3, generation };
        for first in [0, 7, u32::MAX - 1, u32::MAX] {
            let [older, newer, next] = [0, 1, 2].map(|later| grant(first.wrapping_add(later)));
            let mut released = Released::default();
            assert!(!released.has(&older));
            released.add(&newer);
            // The thread that released the older one may learn of it later.
            released.add(&older);
            assert!(released.has(&older) && released.has(&newer) && !released.has(&next));
        }
    }
}

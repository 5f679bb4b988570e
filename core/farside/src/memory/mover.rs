//! The transfer thread of a process: it reads and writes memory for handlers, which must not wait.
//!
//! It starts with the first transfer, and runs any number of transfers at a time. Attaching a
//! region waits for the region's owner, so other threads do that: one for each owner, while
//! transfers wait for its regions. So a slow peer delays only its own transfers. The continuation
//! of a transfer runs on one of these threads and must not wait either. A call that waited for its
//! bytes returns to its worker as a notice.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farside_fabric::ProcessId;
use farside_fabric::transport::{Completion, Operation, Outcome};

use crate::error::{Error, Result};
use crate::memory::Extent;
use crate::memory::ProcessMemory;
use crate::runtime::aside::Aside;
use crate::runtime::process::{Process, lock};

/// The longest wait for one transfer before all are checked.
const LOOK_AFTER: Duration = Duration::from_micros(200);
/// The longest sleep without transfers.
const NAP_MAX: Duration = Duration::from_secs(1);

/// The continuation of a transfer, called with its outcome.
pub(crate) type Then = Box<dyn FnOnce(&Arc<Process>, Result<Outcome>) + Send>;

/// A transfer that has not been started, and its continuation.
struct Transfer {
    memory: Extent,
    wanted: Wanted,
    then: Then,
    deadline: Instant,
}

enum Wanted {
    /// An operation whose offset is relative to the memory.
    Operation(Operation),
    /// A get of all of the memory. Its buffer is allocated only once the region is known, since a
    /// peer may claim any length.
    Read,
    /// An operation that the transport had no room for, with its offset in the region.
    Again(Operation),
}

/// A transfer that the transport executes.
struct Underway {
    peer: ProcessId,
    completion: Completion,
    then: Then,
    deadline: Instant,
}

/// The state of the transfer thread.
#[derive(Default)]
pub(crate) struct Mover {
    queue: Mutex<VecDeque<Transfer>>,
    /// Incremented when there is a new transfer, or to stop the thread, which sleeps on it.
    news: AtomicU32,
    /// The number of transfers whose continuation has not returned.
    unfinished: AtomicUsize,
    stop: AtomicBool,
    thread: Mutex<Option<Aside>>,
    /// The transfers of each attaching thread, by the owner of their regions.
    attaching: Mutex<HashMap<ProcessId, VecDeque<Transfer>>>,
    /// The attaching threads, perhaps with some that have ended.
    attaching_threads: Mutex<Vec<Aside>>,
}

impl fmt::Debug for Mover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mover").field("unfinished", &self.unfinished).finish_non_exhaustive()
    }
}

impl Mover {
    pub(crate) fn is_idle(&self) -> bool {
        // SYNC: acquire, for the release in `finish`: a thread that finds no transfer unfinished
        // sees the notice of the last one.
        self.unfinished.load(Ordering::Acquire) == 0
    }

    fn ring(&self, process: &Process) {
        self.news.fetch_add(1, Ordering::Release);
        process.clock().wake(&self.news);
    }

    /// Stops the transfer thread if it was started. Transfers under way are given up.
    pub(super) fn stop(&self, process: &Process) {
        self.stop.store(true, Ordering::Release);
        self.ring(process);
        let thread = lock(&self.thread).take();
        // The transfer thread starts the others.
        thread.into_iter().for_each(Aside::join);
        let others = std::mem::take(&mut *lock(&self.attaching_threads));
        others.into_iter().for_each(Aside::join);
    }

    fn finish(&self, process: &Process) {
        // SYNC: release, for the acquire in `is_idle`.
        if self.unfinished.fetch_sub(1, Ordering::Release) == 1
            && process.calls.callers.all_rest(process.shape().callable_per_process())
        {
            // The job may be quiescent now.
            process.mailboxes.call_attention_of_all();
        }
    }
}

/// Executes an operation on memory on the transfer thread, and then calls `then` there with its
/// outcome.
pub fn start_transfer(process: &Arc<Process>, memory: Extent, operation: Operation, then: Then) {
    have_moved(process, memory, Wanted::Operation(operation), then);
}

/// Reads all of some memory, in the same way as [`start_transfer`].
pub(crate) fn start_reading(process: &Arc<Process>, memory: Extent, then: Then) {
    have_moved(process, memory, Wanted::Read, then);
}

fn have_moved(process: &Arc<Process>, memory: Extent, wanted: Wanted, then: Then) {
    let mover = ProcessMemory::of(process).mover();
    let deadline = process.clock().now() + process.settings().deadline;
    mover.unfinished.fetch_add(1, Ordering::Relaxed);
    if let Err(error) = ensure_mover(process) {
        then(process, Err(error));
        mover.finish(process);
        return;
    }
    lock(&mover.queue).push_back(Transfer { memory, wanted, then, deadline });
    mover.ring(process);
}

fn ensure_mover(process: &Arc<Process>) -> Result<()> {
    let mut thread = lock(&ProcessMemory::of(process).mover().thread);
    if thread.is_some() {
        return Ok(());
    }
    *thread = Some(Aside::start(process, "farside mover", move_until_stopped)?);
    Ok(())
}

/// Hands a transfer over to the attaching thread of its region's owner.
fn attach_aside(process: &Arc<Process>, transfer: Transfer) {
    let mover = ProcessMemory::of(process).mover();
    let owner = transfer.memory.process();
    let mut attaching = lock(&mover.attaching);
    if let Some(waiting) = attaching.get_mut(&owner) {
        return waiting.push_back(transfer);
    }
    let started = Aside::start(process, "farside attaching", move |process| attach_all_of(process, owner));
    match started {
        Ok(thread) => {
            attaching.insert(owner, VecDeque::from([transfer]));
            let mut threads = lock(&mover.attaching_threads);
            threads.retain(|thread| !thread.has_ended());
            threads.push(thread);
        }
        Err(error) => {
            drop(attaching);
            end(process, transfer.then, Err(error));
        }
    }
}

/// Attaches the regions of transfers, and hands these back to the transfer thread.
fn attach_all_of(process: &Arc<Process>, owner: ProcessId) {
    let mover = ProcessMemory::of(process).mover();
    let next = || {
        let mut attaching = lock(&mover.attaching);
        let next = attaching.get_mut(&owner)?.pop_front();
        if next.is_none() {
            attaching.remove(&owner);
        }
        next
    };
    while let Some(transfer) = next() {
        match transfer.memory.region_until(process, transfer.deadline) {
            Ok(_) => {
                lock(&mover.queue).push_back(transfer);
                mover.ring(process);
            }
            Err(error) => end(process, transfer.then, Err(error)),
        }
    }
}

/// Calls the continuation of a transfer that has ended.
fn end(process: &Arc<Process>, then: Then, outcome: Result<Outcome>) {
    then(process, outcome);
    ProcessMemory::of(process).mover().finish(process);
}

fn move_until_stopped(process: &Arc<Process>) {
    let mover = ProcessMemory::of(process).mover();
    let mut underway: VecDeque<Underway> = VecDeque::new();
    let mut full: VecDeque<Transfer> = VecDeque::new();
    loop {
        let seen = mover.news.load(Ordering::Acquire);
        if mover.stop.load(Ordering::Acquire) {
            return;
        }
        full.extend(lock(&mover.queue).drain(..));
        let mut moved = false;
        for _ in 0..full.len() {
            let Some(transfer) = full.pop_front() else { break };
            match start(process, transfer) {
                Started::Underway(begun) => underway.push_back(begun),
                Started::Ended => moved = true,
                Started::Full(transfer) => full.push_back(transfer),
            }
        }
        moved |= end_what_has_ended(process, &mut underway);
        if moved {
            continue;
        }
        match underway.front() {
            Some(first) => first.completion.watch(&**process.transport(), process.clock().now() + LOOK_AFTER),
            None if full.is_empty() => process.clock().sleep(&mover.news, seen, NAP_MAX),
            None => {
                process.transport().progress();
                process.clock().sleep(&mover.news, seen, LOOK_AFTER);
            }
        }
    }
}

enum Started {
    Underway(Underway),
    /// The transfer has ended, or an attaching thread has it.
    Ended,
    Full(Transfer),
}

fn start(process: &Arc<Process>, transfer: Transfer) -> Started {
    let is_late = process.clock().now() >= transfer.deadline;
    if let Some(error) = process.losses.lost(transfer.memory.process()).or_else(|| is_late.then(|| overdue(process))) {
        end(process, transfer.then, Err(error));
        return Started::Ended;
    }
    let Some(region) = process.transport().attached(transfer.memory.key) else {
        attach_aside(process, transfer);
        return Started::Ended;
    };
    let Transfer { memory, wanted, then, deadline } = transfer;
    let end = |then, outcome| {
        end(process, then, outcome);
        Started::Ended
    };
    let operation = match wanted {
        Wanted::Operation(operation) => memory.inside_operation(operation),
        Wanted::Read => memory.read_operation(),
        Wanted::Again(operation) => Ok(operation),
    };
    let operation = match operation {
        Ok(operation) => operation,
        Err(error) => return end(then, Err(error.into())),
    };
    if let Some(mapped) = region.mapped() {
        let outcome = farside_fabric::region::execute(region.key(), mapped, operation);
        return end(then, outcome.map_err(|error| process.explain(error)));
    }
    match process.transport().post(region.key(), operation) {
        Ok(completion) => Started::Underway(Underway { peer: memory.process(), completion, then, deadline }),
        Err(unposted) => match unposted.for_lack_of_room() {
            Ok(operation) => Started::Full(Transfer { memory, wanted: Wanted::Again(operation), then, deadline }),
            Err(error) => end(then, Err(process.explain(error))),
        },
    }
}

fn end_what_has_ended(process: &Arc<Process>, underway: &mut VecDeque<Underway>) -> bool {
    let now = process.clock().now();
    let mut any = false;
    for _ in 0..underway.len() {
        let Some(transfer) = underway.pop_front() else { break };
        let result = match transfer.completion.try_take() {
            Some(result) => result.map_err(|error| process.explain(error)),
            None => match process.losses.lost(transfer.peer) {
                Some(lost) => Err(lost),
                None if now >= transfer.deadline => Err(overdue(process)),
                None => {
                    underway.push_back(transfer);
                    continue;
                }
            },
        };
        // It has ended, or is given up.
        transfer.completion.cancel();
        end(process, transfer.then, result);
        any = true;
    }
    any
}

fn overdue(process: &Process) -> Error {
    Error::deadline("moving the bytes of a call", process.settings().deadline)
}

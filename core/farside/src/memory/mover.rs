//! The transfer thread of a process: it reads and writes memory for handlers, which must not wait.
//!
//! It starts with the first transfer, and runs any number of transfers at a time. Attaching a
//! region waits for the region's owner, so other threads do that: one for each owner, while
//! transfers wait for its regions. So a slow peer delays only its own transfers. The continuation
//! of a transfer runs on one of these threads and must not wait either. A call that waited for its
//! bytes returns to its worker as a notice.
//!
//! All of these are threads of one [`ThreadPool`]. The transfer thread is work of it that ends with
//! the process, because it also polls the transport.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farside_fabric::ProcessId;
use farside_fabric::clock::Clock;
use farside_fabric::threads::{PoolOptions, ThreadPool, Work};
use farside_fabric::transport::{Completion, Operation, Outcome};

use crate::error::{Error, Result};
use crate::memory::Extent;
use crate::memory::ProcessMemory;
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

/// The number under which the pool knows the transfer thread. Other numbers are those of processes.
const TRANSFERS: u64 = u64::MAX;

/// The state of the transfer thread.
pub(crate) struct Mover {
    queue: Mutex<VecDeque<Transfer>>,
    /// Incremented when there is a new transfer, or to stop the thread, which sleeps on it.
    news: AtomicU32,
    /// The number of transfers whose continuation has not returned.
    unfinished: AtomicUsize,
    stop: AtomicBool,
    /// True while there is a transfer thread.
    is_started: Mutex<bool>,
    /// The transfer thread, and one thread for each owner of regions that are being attached.
    threads: ThreadPool,
}

impl fmt::Debug for Mover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mover").field("unfinished", &self.unfinished).finish_non_exhaustive()
    }
}

impl Mover {
    pub(super) fn new(clock: Clock) -> Self {
        let options = PoolOptions { running_max: 1, ..PoolOptions::new("farside mover", usize::MAX) };
        Self {
            queue: Mutex::default(),
            news: AtomicU32::new(0),
            unfinished: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            is_started: Mutex::new(false),
            threads: ThreadPool::new(clock, options),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        // SYNC: acquire, for the release in `finish`: a thread that finds no transfer unfinished
        // sees the notice of the last one.
        self.unfinished.load(Ordering::Acquire) == 0
    }

    /// Has a thread run work of the transfer thread or of an owner of regions.
    fn run(&self, source: u64, work: Work) -> Result<()> {
        let cause = match self.threads.add(source, work) {
            Ok(true) => return Ok(()),
            Ok(false) => std::io::Error::other("the process ends"),
            Err(cause) => cause,
        };
        Err(Error::System { doing: "starting a thread that moves bytes", cause })
    }

    fn ring(&self, process: &Process) {
        self.news.fetch_add(1, Ordering::Release);
        process.clock().wake(&self.news);
    }

    /// Stops the transfer thread if it was started. Transfers under way are given up.
    pub(super) fn stop(&self, process: &Process) {
        self.stop.store(true, Ordering::Release);
        self.ring(process);
        self.threads.close();
        if let Err(panic) = self.threads.join() {
            std::panic::resume_unwind(panic);
        }
        // A later transfer ends with an error.
        *lock(&self.is_started) = false;
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
    let mover = ProcessMemory::of(process).mover();
    let mut is_started = lock(&mover.is_started);
    if !*is_started {
        let process = process.clone();
        mover.run(TRANSFERS, Box::new(move || move_until_stopped(&process)))?;
        *is_started = true;
    }
    Ok(())
}

/// Has the thread of its region's owner attach the region of a transfer.
fn attach_elsewhere(process: &Arc<Process>, transfer: Transfer) {
    let owner = transfer.memory.process();
    let unattached = Arc::new(Mutex::new(Some(transfer)));
    let (here, given) = (process.clone(), unattached.clone());
    let attach = move || {
        if let Some(transfer) = lock(&given).take() {
            attach(&here, transfer);
        }
    };
    if let Err(error) = ProcessMemory::of(process).mover().run(owner.number().into(), Box::new(attach))
        && let Some(transfer) = lock(&unattached).take()
    {
        end(process, transfer.then, Err(error));
    }
}

/// Attaches the region of a transfer, and returns this to the transfer thread.
fn attach(process: &Arc<Process>, transfer: Transfer) {
    let mover = ProcessMemory::of(process).mover();
    match transfer.memory.region_until(process, transfer.deadline) {
        Ok(_) => {
            lock(&mover.queue).push_back(transfer);
            mover.ring(process);
        }
        Err(error) => end(process, transfer.then, Err(error)),
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
        attach_elsewhere(process, transfer);
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

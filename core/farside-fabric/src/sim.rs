//! Many processes simulated in one program, over a seeded network.
//!
//! A process is the set of threads that use one [`endpoint`](SimFabric::endpoint). The network
//! between them does everything that the contract in [`transport`](crate::transport) permits, and
//! chooses by the seed:
//!
//! - nothing is mapped: every access is a posted operation, which takes effect some steps later and
//!   is reported some steps after that;
//! - uncompleted operations take effect in any order, and those of more than eight bytes, including
//!   gets, in pieces;
//! - messages between two processes keep their order, but arrive late, and may arrive before or
//!   after an operation that was posted next to them;
//! - queues are short, and refuse operations when they are full;
//! - a process that is [killed](SimFabric::kill), or whose endpoint is dropped, may leave half of a
//!   put behind, and only the first few of its messages in transit arrive.
//!
//! # Time
//!
//! There is no thread and no real time in the network. Its clock counts nanoseconds. Durations
//! follow from [a model](LogGp) and from the delays that the seed adds.
//!
//! **In turns** ([`SimFabric::in_turns`]): the threads of the processes take
//! [seats](crate::clock::Seat), and exactly one of them runs at a time. The seed selects the next
//! thread when the current one waits and, at random, when it calls the transport. Time passes when
//! all threads wait; computing takes no time unless it is [charged](crate::clock::Clock::charge).
//! Everything therefore follows from the seed alone, and every run with one seed is the same
//! ([`Trace`]). The program has three duties. Its threads must wait for each other only through
//! this crate, because a thread that blocks in the system keeps its turn. They must hold no lock of
//! their own across a call that may pass the turn on. And neither addresses nor real time may
//! decide anything.
//!
//! **Freely** ([`SimFabric::new`]): threads run as the system schedules them. A nanosecond passes
//! with every call of [`progress`](crate::Carrier::progress), and what is due by then happens, in
//! order.
//! A [`wait`](Transport::wait) of a process that has something in transit returns at once. Service
//! threads therefore drive the clock, and other threads run meanwhile. A process that calls
//! `progress` repeatedly without a wait has nothing else to do. If the other processes have nothing
//! to do either, or do not act, or one thread drives all processes, the clock jumps to the next
//! event that concerns the caller. What happens follows from the seed and from the order of the
//! calls. One thread that drives all endpoints replays exactly.

mod endpoint;
mod model;
mod network;
mod parcel;
mod process;
mod random;
mod script;
#[cfg(test)]
mod tests;
mod trace;
mod turns;

use std::sync::{Arc, Mutex, PoisonError, Weak};

pub use self::endpoint::SimEndpoint;
pub use self::model::LogGp;
pub use self::random::Random;
pub use self::script::SimScript;
pub use self::trace::Trace;

use self::network::SharedNetwork;
use self::turns::Turn;
use crate::clock::Clock;
use crate::ids::ProcessId;
use crate::transport::{FabricError, Transport};

/// Properties of the simulated network.
///
/// ```
/// use farside_fabric::sim::SimOptions;
///
/// let orderly = SimOptions { delay_max_ns: 0, ..SimOptions::default() };
/// assert!(orderly.operations_max > 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimOptions {
    /// The minimum durations between machines.
    pub network: LogGp,
    /// Number of processes on each machine; they have consecutive numbers. Between the processes
    /// of one machine everything takes what [`LogGp::SHARED_MEMORY`] says, by the same
    /// operations and messages. With 1, each process has a machine of its own.
    pub processes_per_machine: u32,
    /// The largest delay that the seed adds. Short delays are far more frequent than long ones.
    /// With 0, nothing overtakes and nothing is torn.
    pub delay_max_ns: u64,
    /// Maximum number of operations in flight per process.
    pub operations_max: usize,
    /// Maximum number of operations in a [queue](crate::queue). A queue that exceeds it
    /// breaks, as in hardware: by an operation without a signal where none may follow, or by
    /// completions that are not polled.
    pub queue_depth: usize,
    /// Maximum number of messages from one process to another that wait to be received.
    pub messages_max: usize,
    /// The largest message, in bytes.
    pub message_bytes_max: usize,
    /// Operations take effect only while the target makes progress.
    pub needs_target_progress: bool,
    /// The registrations that fail for lack of memory, counted from 0 over all processes: from the
    /// first number up to and without the second.
    pub failing_registrations: (u64, u64),
    /// A put completes once it is posted, although it takes effect later. This is **a broken
    /// fabric**, which shows that a test of ordering can fail.
    pub ends_puts_early: bool,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            network: LogGp::IDEAL,
            processes_per_machine: 1,
            delay_max_ns: 1000,
            operations_max: 64,
            queue_depth: 64,
            messages_max: 64,
            message_bytes_max: 4096,
            needs_target_progress: false,
            failing_registrations: (0, 0),
            ends_puts_early: false,
        }
    }
}

impl SimOptions {
    /// The durations between two processes.
    fn between(&self, one: ProcessId, other: ProcessId) -> LogGp {
        if self.share_memory(one, other) { LogGp::SHARED_MEMORY } else { self.network }
    }

    /// Returns whether two processes are on one machine that has several.
    fn share_memory(&self, one: ProcessId, other: ProcessId) -> bool {
        let each = self.processes_per_machine;
        each > 1 && one.number() / each == other.number() / each
    }
}

/// A network and the processes on it.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use farside_fabric::sim::{SimFabric, SimOptions};
/// use farside_fabric::{ProcessId, RemoteKey, Transport};
///
/// let fabric = SimFabric::new(2, 4096, 7, SimOptions::default())?;
/// let here = fabric.endpoint(ProcessId::new(0));
/// let there = fabric.endpoint(ProcessId::new(1));
///
/// let deadline = Instant::now() + Duration::from_secs(10);
/// let region = here.attach(RemoteKey::starter(there.process(), 4096), deadline)?;
/// region.put(8, b"far side", deadline)?;
///
/// let mut found = [0; 8];
/// there.starter().as_remote().get(8, &mut found, deadline)?;
/// assert_eq!(&found, b"far side");
/// # Ok::<(), farside_fabric::FabricError>(())
/// ```
#[derive(Debug)]
pub struct SimFabric {
    network: Arc<SharedNetwork>,
    ends: Mutex<Vec<End>>,
}

/// Kept alive by the fabric until it is first requested; from then on its users keep it alive, or
/// drop it.
#[derive(Debug)]
struct End {
    unused: Option<Arc<SimEndpoint>>,
    handed_out: Weak<SimEndpoint>,
}

impl SimFabric {
    /// Creates a fabric of `processes` processes, each with `starter_bytes` bytes of starter
    /// memory, whose threads run freely. The seed decides the behaviour of the network.
    ///
    /// # Errors
    /// [`FabricError::Memory`] if the starter memory cannot be created.
    pub fn new(processes: u32, starter_bytes: usize, seed: u64, options: SimOptions) -> Result<Self, FabricError> {
        Self::with_turns(processes, starter_bytes, seed, options, false)
    }

    /// Creates a fabric like [`new`](Self::new), whose threads take turns. The seed also decides
    /// the order of the turns.
    ///
    /// Threads without a seat must not wait on such a network: they do not move its clock.
    ///
    /// The creator must take a [seat](Clock::seat) of [its clock](Self::clock) first. It then
    /// starts the threads of the processes, with seats of the clocks of their
    /// [endpoints](Self::endpoint). It [ends](Self::end) the simulation when all threads are done.
    ///
    /// # Errors
    /// [`FabricError::Memory`] if the starter memory cannot be created.
    pub fn in_turns(processes: u32, starter_bytes: usize, seed: u64, options: SimOptions) -> Result<Self, FabricError> {
        Self::with_turns(processes, starter_bytes, seed, options, true)
    }

    fn with_turns(
        processes: u32,
        starter_bytes: usize,
        seed: u64,
        options: SimOptions,
        takes_turns: bool,
    ) -> Result<Self, FabricError> {
        let network = Arc::new(SharedNetwork::new(processes, starter_bytes, seed, options, takes_turns)?);
        let ends = (0..processes)
            .map(|number| {
                let end = SimEndpoint::new(ProcessId::new(number), network.clone());
                End { handed_out: Arc::downgrade(&end), unused: Some(end) }
            })
            .collect();
        Ok(Self { network, ends: Mutex::new(ends) })
    }

    /// The clock of threads that belong to no process. Real time if threads run freely.
    pub fn clock(&self) -> Clock {
        Turn::new(&self.network, None).map_or_else(Clock::real, Clock::simulated)
    }

    /// Slows a process down: the time that its threads are charged for computing is multiplied by
    /// `times`. For threads that take turns.
    ///
    /// # Panics
    /// If there is no such process, or threads run freely.
    #[track_caller]
    pub fn slow_down(&self, process: ProcessId, times: u32) {
        assert!(process.number() < self.network.process_count, "the fabric has such a process");
        self.network.lock().turns().slow_down(process, times);
    }

    /// Lets a script decide what it decides, before any thread of a process has begun. For threads
    /// that take turns.
    pub fn follow(&self, script: Arc<SimScript>) {
        self.network.lock().script = Some(script);
    }

    /// Returns the process that the script has killed. Threads of no process are woken when it
    /// does.
    pub fn killed_by_script(&self) -> Option<ProcessId> {
        self.network.lock().script.as_ref().and_then(|script| script.killed())
    }

    /// Ends a simulation in turns. Threads of killed processes unwind only now, so that none of
    /// their destructors takes part in the simulation.
    pub fn end(&self) {
        if let Some(turn) = Turn::new(&self.network, None) {
            turn.end();
        }
    }

    /// A summary of what has happened so far.
    pub fn trace(&self) -> Trace {
        self.network.lock().trace
    }

    /// The endpoint of a process: the same one on every call. The process is gone once its users
    /// have dropped the endpoint and the regions that they attached through it.
    ///
    /// # Panics
    /// If there is no such process, or it is gone.
    #[track_caller]
    pub fn endpoint(&self, process: ProcessId) -> Arc<dyn Transport> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let end = ends.get_mut(process.index()).expect("the fabric has such a process");
        end.unused.take().or_else(|| end.handed_out.upgrade()).expect("the process's endpoint has not been dropped")
    }

    /// Kills a process, as a signal would. Connected peers get [`Disconnected`]. Its threads that
    /// take turns never get a turn again. Its threads that run freely cannot be stopped: they are
    /// disconnected from all processes, and get that event with their own number.
    ///
    /// # Panics
    /// If there is no such process.
    ///
    /// [`Disconnected`]: crate::Event::Disconnected
    #[track_caller]
    pub fn kill(&self, process: ProcessId) {
        assert!(process.number() < self.network.process_count, "the fabric has such a process");
        let mut network = self.network.lock();
        if network.turns.is_some() {
            network.turns().freeze(process);
        }
        network.kill(process);
    }

    /// The time of the network's clock, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.network.lock().now_ns()
    }
}

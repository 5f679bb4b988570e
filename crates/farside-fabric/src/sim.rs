//! Many processes simulated in one program, over a seeded network.
//!
//! A process is whatever threads use one [`endpoint`](SimFabric::endpoint). The network between them does what the
//! contract in [`transport`](crate::transport) lets it do, and chooses by the seed:
//!
//! - nothing is mapped: every access is a posted operation, which takes effect some steps later and is reported some
//!   steps after that;
//! - operations that are not completed take effect in any order, and those of more than eight bytes in pieces, a get
//!   too;
//! - messages between two processes keep their order, but arrive late, and later or earlier than an operation posted
//!   beside them;
//! - queues are short, and say so when they are full;
//! - a process that is [killed](SimFabric::kill), or whose end is dropped, may leave half a put behind, and of the
//!   messages it had under way only the first few arrive.
//!
//! # Time
//!
//! There is no thread and no real time in the network. Its clock counts nanoseconds, and how long things take follows from
//! [a model](LogGp) and from the delays that the seed adds.
//!
//! **In turns** ([`SimFabric::in_turns`]): the threads of the processes take [seats](crate::clock::Seat), exactly one of them
//! runs at a time, and the seed chooses the next when it waits or, now and then, when it calls the transport. Time passes when all of
//! them wait; computing takes none unless it is [charged](crate::clock::Clock::charge). So what happens follows from the seed
//! alone, and every run with it is the same ([`Trace`]). Three things are left to the program: its threads must wait for each other
//! through this crate only (a thread that blocks in the system keeps its turn), hold no lock of their own across a call that may
//! hand the turn on, and not let addresses or real time decide anything.
//!
//! **Freely** ([`SimFabric::new`]): whatever threads there are run as they like. A nanosecond passes with every call of
//! [`progress`](Transport::progress), and what is due by then happens, in order. A [`wait`](Transport::wait) of a process
//! that has something under way returns at once, so service threads drive the clock, and others get their turn
//! meanwhile. Who calls `progress` again and again without a wait has nothing else to do: when nobody else has either,
//! or they do not stir, or one thread drives all processes, the clock runs on to the next thing that concerns it. What happens
//! follows from the seed and from the order of the calls: one thread that drives all ends replays exactly.

mod endpoint;
mod model;
pub(crate) mod network;
mod parcel;
mod process;
mod random;
#[cfg(test)]
mod tests;
mod trace;
pub(crate) mod turns;

use std::sync::{Arc, Mutex, PoisonError, Weak};

pub use self::model::LogGp;
pub use self::random::Random;
pub use self::trace::Trace;

use self::endpoint::SimEndpoint;
use self::network::SharedNetwork;
use self::turns::Turn;
use crate::clock::Clock;
use crate::ids::ProcessId;
use crate::transport::{FabricError, Transport};

/// What the simulated network is like.
///
/// ```
/// use farside_fabric::sim::SimOptions;
///
/// let orderly = SimOptions { delay_max_ns: 0, ..SimOptions::default() };
/// assert!(orderly.operations_max > 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimOptions {
    /// How long things take at least.
    pub network: LogGp,
    /// The longest time that the seed adds. Short times are far more frequent than long ones. With 0 nothing overtakes and
    /// nothing is torn.
    pub delay_max_ns: u64,
    /// How many operations a process may have under way.
    pub operations_max: usize,
    /// How many operations a [queue](crate::transmit::Queue) takes. One that overruns breaks, as it does in hardware: by an operation
    /// without a signal where none may follow, or by completions that nobody polls for.
    pub queue_depth: usize,
    /// How many messages from one process to another may wait to be received.
    pub messages_max: usize,
    /// The largest message, in bytes.
    pub message_bytes_max: usize,
    /// Operations take effect only while the target makes progress.
    pub needs_target_progress: bool,
    /// A put has ended once it is posted, though it takes effect later: **a broken fabric**, by which a test of orders shows that it can fail.
    pub ends_puts_early: bool,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            network: LogGp::IDEAL,
            delay_max_ns: 1000,
            operations_max: 64,
            queue_depth: 64,
            messages_max: 64,
            message_bytes_max: 4096,
            needs_target_progress: false,
            ends_puts_early: false,
        }
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

/// Held by the fabric until it is first asked for; from then on its users keep it alive, or let it die.
#[derive(Debug)]
struct End {
    unused: Option<Arc<SimEndpoint>>,
    handed_out: Weak<SimEndpoint>,
}

impl SimFabric {
    /// A fabric of so many processes, each with so much starter memory, whose threads run freely. The seed decides what the
    /// network does.
    ///
    /// # Errors
    /// [`FabricError::Memory`] when there is no memory for the starters.
    pub fn new(processes: u32, starter_bytes: usize, seed: u64, options: SimOptions) -> Result<Self, FabricError> {
        Self::with_turns(processes, starter_bytes, seed, options, false)
    }

    /// The same for threads that take turns. The seed also decides whose turn it is.
    ///
    /// Threads without a seat must not wait on such a network: they do not move its clock.
    ///
    /// Whoever made it takes a [seat](Clock::seat) of [its clock](Self::clock) before anybody else, starts the threads of the
    /// processes with seats of the clocks of their [ends](Self::endpoint), and [ends](Self::end) the simulation when all is done.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
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

    /// The clock of those who belong to no process. Real where threads run freely.
    pub fn clock(&self) -> Clock {
        Turn::new(&self.network, None).map_or_else(Clock::real, Clock::simulated)
    }

    /// Makes a process slow: what its threads are charged for computing counts so many times. For threads that take turns.
    ///
    /// # Panics
    /// When there is no such process, or threads run freely.
    #[track_caller]
    pub fn slow_down(&self, process: ProcessId, times: u32) {
        assert!(process.number() < self.network.process_count, "the fabric has such a process");
        self.network.lock().turns().slow_down(process, times);
    }

    /// Ends a simulation in turns. Threads of processes that were killed unwind from where they are: only now, so that none of
    /// their destructors has any part in it.
    pub fn end(&self) {
        if let Some(turn) = Turn::new(&self.network, None) {
            turn.end();
        }
    }

    /// What has happened so far, in short.
    pub fn trace(&self) -> Trace {
        self.network.lock().trace
    }

    /// The end of a process: the same one every time. When its users have dropped it, and the regions that they attached
    /// through it, the process is gone.
    ///
    /// # Panics
    /// When there is no such process, or it is gone.
    #[track_caller]
    pub fn endpoint(&self, process: ProcessId) -> Arc<dyn Transport> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let end = ends.get_mut(process.index()).expect("the fabric has such a process");
        end.unused.take().or_else(|| end.handed_out.upgrade()).expect("the process's end has not been dropped")
    }

    /// Kills a process, as a signal would. Peers that were connected get [`Disconnected`]. Threads of it that take turns never
    /// get one again. Those that run freely, which nobody can stop, find themselves disconnected from everybody and get that
    /// event with their own number.
    ///
    /// # Panics
    /// When there is no such process.
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

    /// How many nanoseconds the network's clock has counted.
    pub fn now_ns(&self) -> u64 {
        self.network.lock().now_ns()
    }
}

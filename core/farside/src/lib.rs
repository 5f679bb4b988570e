//! Farside makes the memory and the functions of other processes reachable as if they were local.
//!
//! A program that runs as several processes sends functions from one to another over shared memory:
//!
//! ```no_run
//! use farside::prelude::*;
//!
//! fn main() -> farside::Result<()> {
//!     // Start it with `farside run -n 4 -t 2 PROGRAM`, with mpirun or srun, or plainly: then it
//!     // starts its own processes.
//!     farside::job().processes(2).run(|me: &Worker| {
//!         let peer = me.neighbor(1);
//!         // This closure runs on `peer`. It captures nothing: its arguments travel as a value.
//!         me.call(peer, (me.id(), 42_u64), |there, (from, x)| {
//!             println!("{} got {x} from {from}", there.id());
//!         })?;
//!         let sum = me.call_return(peer, (20_u64, 22_u64), |_, (a, b)| a + b)?.wait()?;
//!         assert_eq!(sum, 42);
//!         me.barrier()
//!     })
//! }
//! ```
//!
//! | to | see |
//! |---|---|
//! | start a job | [`job()`], [`Job`] |
//! | name workers, wait, synchronize | [`Worker`] |
//! | wait until all calls have run, run in phases | [`Worker::quiesce`], [`Worker::superstep`] |
//! | call functions | [`Worker::call`], [`To`], [`Pending`], [`Reply`], [`Synchronizer`], [`Aggregator`] |
//! | call with buffers, get results in registered memory | [`To`] has the table; [`Registered`], [`ResultPlace`] |
//! | call everyone | [`Worker::everyone`], [`Everyone`] |
//! | call any free thread of a process, with functions that may wait | [`Job::pool_threads`], [`Worker::pool_of`] |
//! | call functions of other programs of the job | [`Named`], [`Job::register`], [`Worker::call_named`](crate::NamedCalls::call_named) |
//! | call from threads that are not workers | [`Worker::scope`], [`Caller`] |
//! | send values of your own types | [`Wire`] |
//! | send a function as an argument, as libraries do | [`Function`] |
//! | reach state from called functions | [`Dist`], [`PerWorker`] |
//! | keep state of a library in each process | [`Worker::process_state`] |
//! | run a function of a library in a process whose workers compute | [`Caller::run_in_background`] |
//! | use registered memory of any process | [`memory`], [`Worker::allocate`], [`Worker::allocate_at`], [`Worker::allocate_array`](crate::MakeArrays::allocate_array), [`RemoteMemory`] |
//! | reach any memory by its address | [`global`], [`GlobalPtr`], [`GlobalSlice`] |
//! | signal that data has arrived, wait for that | [`Worker::put_signal`](crate::AwaitSignals::put_signal), [`Until`] |
//! | give ordinary memory an address | [`Worker::register`](crate::RegisterMemory::register), [`Worker::lend`](crate::RegisterMemory::lend) |
//! | spread arrays over all processes | [`GlobalArray`], [`Worker::symmetric`](crate::MakeArrays::symmetric), [`Worker::byte_space`](crate::MakeArrays::byte_space) |
//! | copy between any places, in a defined order, without waiting | [`Worker::copy`](crate::MoveMemory::copy), [`Order`], [`Handle`] |
//! | meet, combine values, exchange them; go on after a loss | [`Worker::barrier`], [`Worker::all_reduce`] and others; [`Team`] |
//! | find accesses without a defined order | [`Job::check_accesses`] |
//! | test | [`macro@test`], [`simulate()`], [`Simulation`] |
//!
//! # Signs of completion
//!
//! | to wait for | use |
//! |---|---|
//! | the value of one operation | [`Pending`], or [`Incoming`] for a started put, get or change of memory |
//! | any number of calls of this worker | [`Synchronizer`] |
//! | what several workers do, or what others watch | a word of memory with a [`Signal`], and its [`Until`] |
//!
//! Pipes, heaps in another worker's memory, locks, task pools, sections of memory and numbered
//! notifications are in the crate `farside-kit`.
//!
//! The [tour](mod@tour) shows all of it level by level, from a raw endpoint to aggregated closures.
//!
//! `docs/memory-model.md` states the guarantees about order and visibility.
//!
//! # Rules for functions that are called
//!
//! A called function runs on the thread of the called worker while that worker makes progress:
//! inside [`progress`](Worker::progress), inside every wait, and inside collectives. The exception
//! is a blocking access to memory that is not mapped: it runs no calls while it waits for its
//! answer. Functions run one at a time, and never inside another. They must not wait; a wait
//! returns [`Error::InHandler`]. Calls that they make are kept when there is no room. A function
//! that cannot answer yet keeps its [`Reply`].
//!
//! On the [pool](Worker::pool_of) of a process several functions run at a time, each on its own
//! thread, and may wait.

mod buffers;
pub mod check;
mod dist;
mod error;
mod extensions;
pub mod global;
mod invoke;
pub mod job;
#[doc(hidden)]
pub mod kit;
pub mod memory;
mod rooms;
mod runtime;
pub mod tour;
/// Values that may travel inside a job: the crate [`farside_wire`].
pub use farside_wire as wire;

// Derived code and attributes refer to this crate as its users do.
extern crate self as farside;

pub use buffers::{Everyone, Lent, LentToAll, ResultPlace, Written};
/// The trait of [values in global memory](GlobalPtr): [`Pod`](bytemuck::Pod), which they derive.
pub use bytemuck;
pub use check::AccessConflict;
pub use dist::{Dist, PerWorker};
pub use error::{
    CorruptRecord, Error, FullCause, LaunchError, NameRefusal, ProcessEnd, Refused, RendezvousError, Result, Source,
};
pub use farside_fabric::sim::{LogGp, SimOptions, SimScript, Trace};
pub use farside_fabric::transport::AtomicChange;
pub use farside_fabric::{FabricError, MachineId, ProcessId, RemoteKey, RemoteRegion, WorkerId};
pub use farside_launch::ring_options::RingOptions;
pub use farside_macros::test;
pub use global::{
    AccessBytes, AddressFault, AwaitSignals, Comparison, Distribution, GlobalAddress, GlobalArray, GlobalPtr,
    GlobalSlice, Handle, Incoming, LocalBytes, LocalBytesError, LocalVec, MakeArrays, MoveMemory, MovementError, Order,
    RegisterMemory, Signal, Symmetric, Until,
};
pub use invoke::call::{AGGREGATE_AGE, AGGREGATE_BYTES, Aggregation, Aggregator, Aggregators, To, WhenFull};
pub use invoke::caller::{Caller, CallerPending};
pub use invoke::function::Function;
pub use invoke::named::Named;
pub use invoke::notify::{On, Synchronizer};
pub use invoke::outbox::{FlushCause, SendCounters};
pub use invoke::outcome::Outcome;
pub use invoke::pending::{ByName, FromLike, Pending, Reading};
pub use invoke::remote::RemoteFn;
pub use invoke::reply::Reply;
pub use invoke::table::Background;
pub use job::{Job, Simulated, Simulation, job, simulate};
pub use memory::{Registered, RemoteMemory};
pub use runtime::activity::{
    Activity, CurrentCall, CurrentWait, Event, EventKind, FunctionId, Place, Taken, Whom, WorkerActivity,
};
pub use runtime::collective::{Finish, MoreCollectives, Team};
pub use runtime::deadline::{Deadline, DeadlinePause};
pub use runtime::observer::AccessKind;
pub use runtime::worker::{Batches, Counters, Losses, Machines, NamedCalls, Scope, Ways, Worker};
pub use wire::Wire;

/// The messages of this crate and of those below it, for tests of their decoders.
#[doc(hidden)]
pub fn message_kinds() -> Vec<wire::check::MessageKind> {
    let rooms = rooms::ROOMS.iter().map(runtime::room::RoomEntry::message_kind);
    let told = runtime::activity::told::message_kinds();
    let machine = [invoke::message::message_kinds(), runtime::collective::message_kinds(), told].concat();
    let below = [farside_fabric::message_kinds(), farside_launch::message_kinds()].concat();
    rooms.chain(machine).chain(below).collect()
}

/// The names that most programs need.
pub mod prelude {
    pub use crate::{
        Aggregation, Aggregator, Dist, On, Pending, PerWorker, ProcessId, Reply, Synchronizer, WhenFull, Wire, Worker,
        WorkerId,
    };
    // The less common methods of workers.
    pub use crate::{
        AccessBytes as _, AwaitSignals as _, Losses as _, Machines as _, MakeArrays as _, MoreCollectives as _,
        MoveMemory as _, NamedCalls as _, RegisterMemory as _, Ways as _,
    };
}

/// The names that this crate's macros expand to, and what `farside-inspect` tells of workers. Not
/// for programs.
#[doc(hidden)]
pub mod __private {
    pub use crate::invoke::remote::MacroToken;
    pub use crate::job::testing::{TestShape, run_test};
    pub use crate::runtime::activity::told::*;
}

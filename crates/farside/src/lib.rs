//! Farside makes the memory and the functions of other processes reachable as if they were on your own side.
//!
//! A program started as several processes ships functions from one to another over shared memory:
//!
//! ```no_run
//! use farside::prelude::*;
//!
//! fn main() -> farside::Result<()> {
//!     // Started by `farside run -n 4 -t 2 PROGRAM`, by mpirun or srun, or, started plainly, it starts its own processes.
//!     farside::job().processes(2).run(|me: &Worker| {
//!         let peer = me.neighbor(1);
//!         // Written here, runs there. It captures nothing; what it needs travels as a value.
//!         me.call(peer, (me.id(), 42_u64), |there, (from, x)| println!("{} got {x} from {from}", there.id()))?;
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
//! | know who is who, wait, meet the others | [`Worker`] |
//! | call functions | [`Worker::call`], [`To`], [`Pending`], [`Reply`], [`Synchronizer`], [`Aggregator`] |
//! | call with buffers, get results and counts in registered memory | [`To`] has the table; [`Registered`], [`ResultPlace`], [`Countdown`] |
//! | call everyone | [`Worker::everyone`], [`Everyone`] |
//! | call a process, whichever of its threads is free; call what may wait | [`Worker::consumers_of`], [`Worker::waiters_of`] |
//! | call functions of other programs of the job | [`Named`], [`Job::register`], [`Worker::call_named`] |
//! | call from threads that are no workers | [`Worker::scope`], [`Caller`] |
//! | send values of your own types | [`Wire`] |
//! | reach state from called functions | [`Dist`], [`PerWorker`] |
//! | use registered memory, of this process or any | [`memory`], [`Worker::allocate`], [`Worker::allocate_at`], [`RemoteMemory`] |
//! | allocate in the memory of another worker without asking it | [`heap`] |
//! | reach any memory by its address | [`global`], [`GlobalPtr`], [`GlobalSlice`], [`Section`] |
//! | say that data is there, wait for that | [`Worker::put_signal`], [`Until`], [`Notifications`] |
//! | give ordinary memory an address | [`Worker::register`], [`Worker::lend`] |
//! | have arrays over all processes | [`GlobalArray`], [`Worker::symmetric`], [`Worker::byte_space`] |
//! | copy from any place to any, in an order, without waiting | [`Worker::copy`], [`Order`], [`Handle`] |
//! | stream messages, values or bytes from one worker to another | [`pipe`], [`Worker::pipe`] |
//! | find accesses that nothing orders | [`Job::check_accesses`] |
//! | have several work on one thing: locks, combining, read-modify-write by name | [`sync`] |
//! | test | [`macro@test`], [`simulate`], [`Simulation`] |
//!
//! The [tour](mod@tour) goes through it level by level, from a raw endpoint to aggregated closures.
//!
//! What is guaranteed about order and visibility is in `docs/memory-model.md`.
//!
//! # Rules for functions that are called
//!
//! They run on the thread of the worker that was called, while it makes progress: inside [`progress`](Worker::progress), anything
//! that waits, and collectives. One runs at a time, and never inside another. They must not wait; a wait returns
//! [`Error::InHandler`]. What they send is queued when there is no room. One that cannot answer yet keeps its [`Reply`].
//!
//! On [consumer threads](Worker::consumers_of) several run at a time, each on its own thread; and on threads
//! [dedicated to that](Worker::waiters_of) they may wait.

mod buffers;
pub mod check;
mod dist;
mod error;
pub mod global;
pub mod heap;
mod invoke;
pub mod job;
pub mod memory;
pub mod pipe;
mod rooms;
mod runtime;
pub mod sync;
pub mod tour;
/// What may travel inside a job: the crate [`farside_wire`].
pub use farside_wire as wire;

// Derived code and attributes name this crate as its users do.
extern crate self as farside;

pub use buffers::{Countdown, Counting, Everyone, Lent, LentToAll, ResultPlace, Written};
/// What [values in global memory](GlobalPtr) are made of: [`Pod`](bytemuck::Pod), to be derived.
pub use bytemuck;
pub use check::AccessConflict;
pub use dist::{Dist, PerWorker};
pub use error::{CorruptRecord, Error, FullCause, NameRefusal, ProcessEnd, Refused, RendezvousError, Result, Source};
/// The layer below: transports, registered memory, queues and transmitters.
pub use farside_fabric as fabric;
pub use farside_fabric::sim::{LogGp, SimOptions, Trace};
pub use farside_fabric::transport::AtomicChange;
pub use farside_fabric::{MachineId, ProcessId, WorkerId};
pub use farside_launch::LaunchError;
pub use farside_launch::ring_options::RingOptions;
pub use farside_macros::test;
pub use global::{
    AddressFault, AllNotifications, Comparison, GlobalAddress, GlobalArray, GlobalPtr, GlobalSlice, Handle, Hyperslab,
    Incoming, MovementError, NotificationFault, Notifications, Order, Section, SectionFault, Signal, Until,
};
pub use invoke::call::{AGGREGATE_AGE, AGGREGATE_BYTES, Aggregation, Aggregator, To, WhenFull};
pub use invoke::caller::{Caller, CallerPending, CallerTo};
pub use invoke::named::Named;
pub use invoke::notify::{On, Synchronizer};
pub use invoke::outbox::{FlushCause, SendCounters};
pub use invoke::pending::{ByName, FromLike, Pending, Reading};
pub use invoke::remote::RemoteFn;
pub use invoke::reply::Reply;
pub use job::{Job, Simulated, Simulation, job, simulate};
pub use memory::{Registered, RemoteMemory};
pub use runtime::observer::AccessKind;
pub use runtime::worker::{Counters, Scope, Worker};
pub use wire::Wire;

/// What most programs need.
pub mod prelude {
    pub use crate::{
        Aggregation, Aggregator, Dist, On, Pending, PerWorker, ProcessId, Reply, Synchronizer, WhenFull, Wire, Worker,
        WorkerId,
    };
}

/// What macros of this crate expand to. Not for programs.
#[doc(hidden)]
pub mod __private {
    pub use crate::invoke::remote::MacroToken;
    pub use crate::job::testing::{TestShape, run_test};
}

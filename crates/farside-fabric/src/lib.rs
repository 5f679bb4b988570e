//! Moving bytes between the processes of a job.
//!
//! The seam is [`Transport`]: one value of it is one process's end of the fabric. Three kinds are here: [`shm`] for the
//! processes of one machine, [`ofi`] for those of several, over libfabric, and [`sim`] for many processes simulated in one
//! program; [`route`] is made of the first two. What they must have in common is written down in [`transport`] and checked by
//! the crate `farside-conformance`. [`emulated`] helps those that only carry messages, and [`tagged`] all of them with messages that are
//! expected.
//!
//! A transport that can map a peer's memory hands out the mapping once, and every put, get, atomic and ring write is then
//! a plain (racy) access with no call through the seam. One that cannot is given the operation whole.
//!
//! [`ring`] and [`bell`] are the protocols on mapped memory: a stream of records from one worker to another, and how
//! the receiver sleeps and is woken. They do no I/O and read no clock.
//!
//! [`memory`] hands out registered memory. [`queue`] is what a transport may offer for transfers from there, most of which
//! report no completion of their own; the crate `farside-transmit` makes it usable for programs.

pub mod bell;
pub mod clock;
pub mod emulated;
pub mod ids;
pub mod memory;
pub mod ofi;
mod operation;
pub mod queue;
pub mod region;
pub mod ring;
pub mod route;
pub mod shm;
pub mod sim;
mod sync;
pub mod tagged;
pub mod transport;
pub mod wait;

pub use ids::{MachineId, ProcessId, WorkerId};
pub use region::{LocalRegion, RemoteRegion, UserMemory, UserRegion};
pub use transport::{
    Capabilities, Carrier, Completion, Event, FabricError, NeedsTarget, Operation, Outcome, RemoteKey, Tag, Transport,
    Unposted, UserReach,
};

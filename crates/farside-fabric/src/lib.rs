//! Moves bytes between the processes of a job.
//!
//! The seam is [`Transport`]: a value of it is one process's end of the fabric. There are three kinds: [`shm`] for the
//! processes of one machine, [`ofi`] for several machines, over libfabric, and [`sim`] for many processes simulated in
//! one program. [`route`] combines the first two. [`transport`] states their common contract, which the crate
//! `farside-conformance` checks.
//!
//! A transport that can map a peer's memory hands out the mapping once. Every put, get, atomic and ring write is then a
//! plain (racy) access without a call through the seam. Other transports carry out whole operations.
//!
//! # Rooms
//!
//! From the bottom up; a room imports only rooms above it in this table.
//!
//! | room | contents |
//! |---|---|
//! | [`ids`], [`wait`], [`clock`] | the names of processes and workers, the ways to wait, real and virtual time |
//! | [`ring`], [`bell`] | the protocols on mapped memory: streams of records, and how a receiver sleeps and wakes |
//! | `operation` | keys, errors, operations, completions and the trait [`Carrier`]; [`transport`] exports them |
//! | [`region`] | views of registered memory, user memory and its revocation, the table of a process's regions |
//! | [`transport`] | the seam |
//! | [`memory`], [`queue`], [`tagged`] | allocators of registered memory, queues with few signals, matching of tagged messages |
//! | [`emulated`] | emulated RMA: one-sided operations carried by messages |
//! | [`shm`], [`ofi`], [`sim`] | the transports |
//! | [`route`] | the choice between them, peer by peer |

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

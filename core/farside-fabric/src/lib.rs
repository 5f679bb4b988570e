//! Data transfer between the processes of a job.
//!
//! The seam is [`Transport`]: one value of it is one process's endpoint of the fabric. This crate
//! has three transports: [`shm`] for the processes of one machine, [`ofi`] for those of several,
//! over libfabric, and [`sim`] for many processes simulated in one program. [`route`] combines the
//! first two. [`transport`] states their common contract, and the crate `farside-conformance`
//! checks it. [`emulated`] helps transports that only carry messages.
//!
//! A transport that can map a peer's memory gives out the mapping once. Every put, get, atomic and
//! ring write is then a plain (racy) access with no call through the seam. A transport that cannot
//! map it gets whole operations.
//!
//! [`ring`] and [`bell`] are the protocols on mapped memory: a stream of records from one worker to
//! another, and the sleep and wake-up of the receiver. They do no I/O and read no clock.
//!
//! [`memory`] allocates registered memory. [`queue`] is what a transport may offer for transfers
//! from that memory, most of which report no completion of their own. The crate `farside-transmit`
//! makes it usable for programs.
//!
//! # Modules
//!
//! From the bottom up; a module imports only modules above it in this table.
//!
//! | module | contents |
//! |---|---|
//! | [`ids`], [`wait`], [`clock`] | the names of processes and workers, the ways to wait, real and virtual time |
//! | [`threads`] | threads that run work |
//! | [`ring`], [`bell`] | the protocols on mapped memory: streams of records, and how a receiver sleeps and wakes |
//! | `operation` | keys, errors, operations, completions and the trait [`Carrier`]; [`transport`] exports them |
//! | [`region`] | views of registered memory, user memory and its revocation, the table of a process's regions |
//! | [`transport`] | the seam |
//! | [`memory`], [`queue`] | allocators of registered memory, queues with few signals |
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
pub mod threads;
pub mod transport;
pub mod wait;

pub use ids::{MachineId, ProcessId, WorkerId};
pub use region::{LocalRegion, RemoteRegion, UserMemory, UserRegion};
pub use transport::{
    Capabilities, Carrier, Completion, Event, FabricError, NeedsTarget, Operation, Outcome, RegionKind, RemoteKey,
    Transport, Unposted, UserReach,
};

/// The messages of this crate, for tests of their decoders.
#[doc(hidden)]
pub fn message_kinds() -> Vec<farside_wire::check::MessageKind> {
    [emulated::message_kinds(), shm::message_kinds(), ofi::message_kinds()].concat()
}

//! The errors of the fabric.

use super::RemoteKey;
use crate::ids::ProcessId;

/// Why the fabric could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The operation was given up by the program.
    #[error("the operation was cancelled; it may have taken effect")]
    Cancelled,
    /// The deadline passed.
    #[error(
        "deadline passed while {doing} ({process}); it may be overloaded or stopped: raise the deadline or look at it"
    )]
    Deadline {
        /// What was waited for.
        doing: &'static str,
        /// The peer concerned.
        process: ProcessId,
    },
    /// The peer is gone.
    #[error("{process} is gone")]
    Disconnected {
        /// Which.
        process: ProcessId,
    },
    /// Memory could not be had or mapped.
    #[error(transparent)]
    Memory(#[from] farside_sys::shm::ShmError),
    /// An allocator is at its limit.
    #[error(
        "{bytes} more bytes of registered memory are beyond the limit: {held} of {limit} bytes are held already; give some back, or \
         raise the limit"
    )]
    MemoryLimit {
        /// What was asked for.
        bytes: usize,
        /// What the allocator holds.
        held: usize,
        /// What it may hold.
        limit: usize,
    },
    /// A message is longer than the transport takes.
    #[error("a message of {bytes} bytes; at most {max} bytes travel as one")]
    MessageTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// An atomic access must be on a multiple of its size.
    #[error("an atomic access of {bytes} bytes at offset {offset}, which is no multiple of {bytes}")]
    Misaligned {
        /// Where.
        offset: u64,
        /// Its size.
        bytes: usize,
    },
    /// No such process.
    #[error("{process} does not exist: the job has processes 0 to {}", count - 1)]
    NoSuchProcess {
        /// Which was named.
        process: ProcessId,
        /// How many there are.
        count: u32,
    },
    /// An access beyond the end of the region.
    #[error("an access of {bytes} bytes at offset {offset} of a region of {region_bytes} bytes")]
    OutOfRange {
        /// Where.
        offset: u64,
        /// How long.
        bytes: usize,
        /// The region's size.
        region_bytes: u64,
    },
    /// The memory may only be read.
    #[error("{} has registered its region {} to be read only: get from it, or have it registered for writing", key.process, key.slot)]
    ReadOnly {
        /// The key.
        key: RemoteKey,
    },
    /// The peer has not opened its end yet, or is gone and nobody has said so.
    #[error("{process} does not listen: it has not begun yet, or is gone; try again, until it is known to be gone")]
    NotListening {
        /// Which.
        process: ProcessId,
    },
    /// Something else answers where the peer should.
    #[error("the connection with {process} was refused: {why}")]
    Refused {
        /// The peer.
        process: ProcessId,
        /// The reason.
        why: &'static str,
    },
    /// A process answered with something else than it was asked for.
    #[error(
        "{process} was asked for {wanted} bytes and answered with {bytes}: it has a bug, or is of another version; see that all processes are of one"
    )]
    OddAnswer {
        /// Who answered.
        process: ProcessId,
        /// How many bytes it was asked for.
        wanted: usize,
        /// How many came.
        bytes: usize,
    },
    /// libfabric failed.
    #[error("{doing} failed: {why} (error {code} of libfabric's provider {provider})")]
    Provider {
        /// What was done.
        doing: &'static str,
        /// Which provider.
        provider: String,
        /// Its reason.
        why: String,
        /// Its error number.
        code: i32,
    },
    /// Too much is under way.
    #[error("the queue to {process} is full ({max} under way): make progress, then try again")]
    QueueFull {
        /// The peer.
        process: ProcessId,
        /// The queue's size.
        max: usize,
    },
    /// A queue was given what it cannot hold.
    #[error(
        "the queue to {process} was overrun: it holds {max} {what}; signal at least one in so many, and poll for its end"
    )]
    QueueOverrun {
        /// The peer.
        process: ProcessId,
        /// Operations without a signal in a row, or completions that nobody has polled for.
        what: &'static str,
        /// How many the queue takes.
        max: usize,
    },
    /// An expected message was longer than what it was expected with. It is lost.
    #[error("an expected message of {bytes} bytes came where room for {room} was made: expect it with more")]
    RoomTooSmall {
        /// The message's length.
        bytes: usize,
        /// The room.
        room: usize,
    },
    /// The key names no region, or one that is gone.
    #[error("{} has no region {} of generation {} (it was deregistered, or never was)", key.process, key.slot, key.generation)]
    StaleKey {
        /// The key.
        key: RemoteKey,
    },
    /// The transport does not have an optional ability.
    #[error("{what} failed: the transport {transport} does not support it; use a transport that does")]
    Unsupported {
        /// The refused operation.
        what: &'static str,
        /// The name of the transport.
        transport: &'static str,
    },
    /// What the route needs is not on this machine.
    #[error("{what} cannot be used here: {why}; {remedy}")]
    Unavailable {
        /// What is missing.
        what: String,
        /// In which way.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The system refused.
    #[error("{doing} failed: {cause}")]
    System {
        /// What was done.
        doing: &'static str,
        /// The system's reason.
        cause: std::io::Error,
    },
}

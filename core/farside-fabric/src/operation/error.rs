//! The errors of the fabric.

use super::RemoteKey;
use crate::ids::ProcessId;

/// The reason why a request to the fabric failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The program cancelled the operation.
    #[error("the operation was cancelled; it may have taken effect")]
    Cancelled,
    /// The deadline passed.
    #[error(
        "deadline passed while {doing} ({process}): the process may be overloaded or stopped; look at the process, or raise \
         the deadline (of a job: `Job::deadline` or FARSIDE_TIMEOUT_S)"
    )]
    Deadline {
        /// The action that waited.
        doing: &'static str,
        /// The peer concerned.
        process: ProcessId,
    },
    /// The peer is gone.
    #[error("{process} is gone")]
    Disconnected {
        /// The peer.
        process: ProcessId,
    },
    /// Memory could not be created or mapped.
    #[error(transparent)]
    Memory(#[from] farside_sys::shm::ShmError),
    /// An allocator is at its limit.
    #[error(
        "cannot allocate {bytes} more bytes of registered memory: {held} of {limit} bytes are in use; give some back, or \
         raise the limit"
    )]
    MemoryLimit {
        /// Bytes requested.
        bytes: usize,
        /// Bytes that the allocator holds.
        held: usize,
        /// The limit of the allocator.
        limit: usize,
    },
    /// A message is longer than the transport supports.
    #[error("cannot send a message of {bytes} bytes: the transport sends at most {max} bytes in one")]
    MessageTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// An atomic access is not at a multiple of its size.
    #[error("misaligned atomic access of {bytes} bytes: offset {offset} is not a multiple of {bytes}")]
    Misaligned {
        /// The offset.
        offset: u64,
        /// Its size.
        bytes: usize,
    },
    /// There is no such process.
    #[error("{process} does not exist: the job has processes 0 to {}", count - 1)]
    NoSuchProcess {
        /// The process named.
        process: ProcessId,
        /// Number of processes of the job.
        count: u32,
    },
    /// An access reaches beyond the end of the region.
    #[error("out of range: an access of {bytes} bytes at offset {offset} of a region of {region_bytes} bytes")]
    OutOfRange {
        /// The offset.
        offset: u64,
        /// The length of the access.
        bytes: usize,
        /// The region's size.
        region_bytes: u64,
    },
    /// The memory is read-only.
    #[error("cannot write region {1} of {0}: it is registered as read-only; get from it, or have its owner register it for writing", key.process, key.slot)]
    ReadOnly {
        /// The key.
        key: RemoteKey,
    },
    /// The peer has not opened its endpoint yet, or is gone and has not been reported.
    #[error("cannot connect to {process}: it has not started yet, or is gone; try again until it is reported as gone")]
    NotListening {
        /// The peer.
        process: ProcessId,
    },
    /// Something other than the peer answered.
    #[error("the connection with {process} was refused: {why}")]
    Refused {
        /// The peer.
        process: ProcessId,
        /// The reason.
        why: &'static str,
    },
    /// A process answered with a wrong number of bytes.
    #[error(
        "{process} answered a request for {wanted} bytes with {bytes} bytes: it has a bug, or runs another version; run one version in all processes"
    )]
    OddAnswer {
        /// The process that answered.
        process: ProcessId,
        /// Bytes requested.
        wanted: usize,
        /// Bytes received.
        bytes: usize,
    },
    /// libfabric failed.
    #[error("{doing} failed: {why} (error {code} of libfabric's provider {provider})")]
    Provider {
        /// The action that failed.
        doing: &'static str,
        /// The provider.
        provider: String,
        /// Its reason.
        why: String,
        /// Its error number.
        code: i32,
    },
    /// Too many operations are in flight.
    #[error("the queue to {process} is full: {max} operations are in flight; make progress, then try again")]
    QueueFull {
        /// The peer.
        process: ProcessId,
        /// The queue's size.
        max: usize,
    },
    /// A queue was given more than it can hold.
    #[error(
        "the queue to {process} was overrun: it holds at most {max} {what}; signal more often, and poll for completions"
    )]
    QueueOverrun {
        /// The peer.
        process: ProcessId,
        /// Operations without a signal in a row, or completions that have not been polled for.
        what: &'static str,
        /// The limit of the queue.
        max: usize,
    },
    /// The key names no region, or a withdrawn one.
    #[error("{} has no region {} of generation {}: it was deregistered, or never existed", key.process, key.slot, key.generation)]
    StaleKey {
        /// The key.
        key: RemoteKey,
    },
    /// Something that the route needs is not on this machine.
    #[error("{what} cannot be used here: {why}; {remedy}")]
    Unavailable {
        /// The missing item.
        what: String,
        /// The reason.
        why: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// A system call failed.
    #[error("{doing} failed: {cause}")]
    System {
        /// The action that failed.
        doing: &'static str,
        /// The system's reason.
        cause: std::io::Error,
    },
}

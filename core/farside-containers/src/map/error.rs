//! The errors of maps.

use farside::{Error, ProcessId, WorkerId};

use crate::promise::{Implementation, Promise};

/// Why an operation on a map failed. Methods return it inside [`farside::Error`];
/// [`Error::room_error`] takes it out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The map was freed, or its handle is of another job or used on a thread of a pool.
    #[error(
        "this thread has no such map: it was freed, or the handle is of another job; use a handle on the workers of its job, until `free`"
    )]
    Gone,
    /// The map can have no such capacity.
    #[error("a map for {capacity} entries: {why}; ask for at least 1, and for no more than the memory holds")]
    Capacity {
        /// The requested number of entries.
        capacity: usize,
        /// The reason.
        why: Box<str>,
    },
    /// Maps do not have the implementation.
    #[error("maps have no implementation {implementation}: ask for one-sided or call")]
    Implementation {
        /// The requested implementation.
        implementation: Implementation,
    },
    /// The workers made a map with different settings.
    #[error("{worker} makes another map than worker 0: pass the same settings on every worker")]
    Unequal {
        /// A worker with other settings.
        worker: WorkerId,
    },
    /// The part of a worker has no slot for another key.
    #[error(
        "the part of {owner} has no free slot for the key among its {slots} slots: make the map with a larger capacity or \
         without `fixed`, or place keys by a hash that spreads them"
    )]
    Full {
        /// The owner of the key.
        owner: WorkerId,
        /// The number of slots of its part.
        slots: u64,
    },
    /// The part of a worker cannot grow, or cannot be replaced.
    #[error(
        "{owner} has no memory for a part of {slots} slots: give its process more memory, or spread the map over more \
         processes"
    )]
    Memory {
        /// The owner of the part.
        owner: WorkerId,
        /// The number of slots that the part should have.
        slots: u64,
    },
    /// Operations of batches were refused.
    #[error("{count} operations of batches were refused: mend the reason of the first, and do them again ({first})")]
    Batch {
        /// The number of operations that were not done.
        count: u64,
        /// The first refusal.
        first: String,
    },
    /// The operation is outside what was promised.
    #[error("{operation} is outside of the promise {promise}: promise `ALL`, or end the phase first")]
    Promise {
        /// The method.
        operation: &'static str,
        /// The promise.
        promise: Promise,
    },
    /// A key that another worker owns was used under the promise `LOCAL`.
    #[error("the key belongs to {owner}, and `LOCAL` allows only keys of the calling worker: use `owner_of`, or `ALL`")]
    NotLocal {
        /// The owner of the key.
        owner: WorkerId,
    },
    /// Other workers kept changing a slot.
    #[error("other workers changed the slot of the key at each of {tries} tries: spread the updates over more keys")]
    Contended {
        /// The number of tries.
        tries: u32,
    },
    /// Bytes of the map are no entry.
    #[error(
        "the memory of the map holds bytes that are no entry: look for what else writes there, with `--check accesses`"
    )]
    Damaged,
    /// Other workers took this worker's process for lost while it wrote an entry.
    #[error("others took this process for lost while it wrote the entry, and retired its slot: end this process")]
    Retired,
    /// A part grew while its entries were read one after the other.
    #[error("the part grew while its entries were read: begin again, and insert nothing meanwhile")]
    Grown,
    /// Another worker could not read its part, so nothing was removed.
    #[error("{worker} could not read its entries, so no worker has removed any: see its error")]
    Undrained {
        /// A worker that failed.
        worker: WorkerId,
    },
    /// Parts of the map were lost with their processes.
    #[error("the parts of {missing:?} are lost: use the sum of the others, {counted}, or restore a snapshot")]
    Partial {
        /// The lost processes.
        missing: Vec<ProcessId>,
        /// The number of entries of all other parts.
        counted: u64,
    },
}

impl From<MapError> for Error {
    fn from(error: MapError) -> Self {
        Self::Room(Box::new(error))
    }
}

//! The errors of registered memory.

use farside_fabric::{ProcessId, RemoteKey};

use super::address::SLOT_COUNT;
use super::{MemoryRefusal, RemoteMemory};
use crate::error::Error;

/// Why registered memory cannot be had or used.
///
/// It arrives as an [`Error`]; [`Error::room_error`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The owner never gave out memory under this handle.
    #[error(
        "{} never gave out {} bytes under this handle: it was made in another job, or overwritten",
        memory.process(), memory.bytes()
    )]
    Foreign {
        /// The handle.
        memory: RemoteMemory,
    },
    /// The memory of a region has no global addresses.
    #[error(
        "a region of {bytes} bytes of {process} has no global addresses: it needs {} of the process's {} slots in a row, and \
         these are not free; take other regions back first, or make fewer and larger ones",
        RemoteKey::starter(*process, *bytes).slot_count(), SLOT_COUNT - 1
    )]
    NoAddress {
        /// The owner of the memory.
        process: ProcessId,
        /// The size of the region.
        bytes: u64,
    },
    /// A process refuses to give memory.
    #[error("{process} cannot give {bytes} bytes of its memory: {why}")]
    Refused {
        /// The process that was asked.
        process: ProcessId,
        /// The size that was asked for.
        bytes: u64,
        /// The reason.
        why: MemoryRefusal,
    },
    /// The memory no longer belongs to the handle.
    #[error(
        "these {} bytes of {} were released before, or the process that asked for them is lost: keep no handle of released memory",
        memory.bytes(), memory.process()
    )]
    Released {
        /// The handle.
        memory: RemoteMemory,
    },
}

impl MemoryError {
    /// A region has no addresses.
    pub(crate) fn no_address(key: RemoteKey) -> Self {
        Self::NoAddress { process: key.process, bytes: key.bytes }
    }
}

impl From<MemoryError> for Error {
    fn from(error: MemoryError) -> Self {
        Self::Room(Box::new(error))
    }
}

//! The errors of global memory.

use super::movement::MovementError;
use super::objects::ObjectError;
use crate::error::Error;
use crate::memory::GlobalAddress;

/// Why an access to global memory, or an operation on it, was refused or failed.
///
/// It arrives as an [`Error`]; [`Error::room_error`] returns it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GlobalError {
    /// An address cannot be used.
    #[error("{address} cannot be used: {why}")]
    Address {
        /// The address.
        address: GlobalAddress,
        /// The fault of the address.
        why: AddressFault,
    },
    /// Operations on memory were refused, or have failed.
    #[error(transparent)]
    Movement(#[from] MovementError),
    /// A collective object could not be made or accessed.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

impl From<GlobalError> for Error {
    fn from(error: GlobalError) -> Self {
        Self::Room(Box::new(error))
    }
}

macro_rules! into_error {
    ($($part:ident)*) => {$(
        impl From<$part> for Error {
            fn from(error: $part) -> Self {
                GlobalError::from(error).into()
            }
        }
    )*};
}

into_error!(MovementError ObjectError);

/// A fault of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressFault {
    /// The address is null.
    #[error("it is null: a pointer was used before it was set, or at the end of a list")]
    Null,
    /// The address names a process that the job does not have.
    #[error("the job has only processes 0 to {}: the address comes from another job, or was overwritten", count - 1)]
    NoSuchProcess {
        /// The number of processes.
        count: u32,
    },
    /// Nothing is registered there, or not any more.
    #[error(
        "no memory is registered there: it was deregistered, or the address comes from another job or was overwritten"
    )]
    Stale,
    /// Its owner has registered the memory as read-only.
    #[error("its owner has registered it as read-only: get from it only, or register it for writing")]
    ReadOnly,
    /// The access reaches beyond the end of the region.
    #[error("an access of {bytes} bytes leaves the region, which has {region_bytes} bytes: access less")]
    OutOfRange {
        /// The size of the access.
        bytes: u64,
        /// The size of the region.
        region_bytes: u64,
    },
    /// A range of values ends before it begins.
    #[error(
        "the range of values ends at {end}, before its start at {start}: give a range that ends at or after its start"
    )]
    Backwards {
        /// The first index.
        start: usize,
        /// The index behind the last.
        end: usize,
    },
    /// A computation led out of the addresses of the process.
    #[error("no address lies {bytes} bytes away from it: all addresses of a process are within 4 TiB; move it less")]
    MovedOutside {
        /// The distance from the address.
        bytes: u64,
    },
    /// The signal lies in the data that it announces.
    #[error(
        "the signal lies inside the {bytes} bytes that it announces, which would overwrite it: use a word outside them"
    )]
    InsideOfData {
        /// The size of the data.
        bytes: u64,
    },
    /// The address is not a multiple of the alignment of the value or word.
    #[error("the access needs memory at a multiple of {align}")]
    Misaligned {
        /// The alignment.
        align: usize,
    },
}

//! The errors of global memory.

use farside_fabric::ProcessId;

use super::movement::MovementError;
use super::notifications::NotificationFault;
use super::objects::ObjectError;
use super::section::SectionFault;
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
        /// What is wrong with it.
        why: AddressFault,
    },
    /// Operations on memory were refused, or have failed.
    #[error(transparent)]
    Movement(#[from] MovementError),
    /// A numbered notification cannot be given or waited for.
    #[error("notification {number} of {process}: {why}")]
    Notification {
        /// The process whose notification it is.
        process: ProcessId,
        /// The number of the notification, or the first of several.
        number: u32,
        /// What is wrong.
        why: NotificationFault,
    },
    /// A collective object could not be made or accessed.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A section is impossible, or does not fit where it is used.
    #[error("a section of memory: {0}")]
    Section(#[from] SectionFault),
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

into_error!(MovementError ObjectError SectionFault);

/// What is wrong with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressFault {
    /// It is null.
    #[error("it is null: a pointer was used before it was set, or at the end of a list")]
    Null,
    /// It names a process that the job does not have.
    #[error("the job has processes 0 to {} only: it is of another job, or overwritten", count - 1)]
    NoSuchProcess {
        /// How many there are.
        count: u32,
    },
    /// Nothing is registered there any more, or ever was.
    #[error("nothing is registered there: it was deregistered, or the address is of another job, or overwritten")]
    Stale,
    /// Its owner has registered it to be read only.
    #[error("its owner has registered it to be read only: get from it, or have it registered for writing")]
    ReadOnly,
    /// The region ends before the access does.
    #[error("an access of {bytes} bytes there leaves the region, which has {region_bytes}")]
    OutOfRange {
        /// How long the access is.
        bytes: u64,
        /// The size of the region.
        region_bytes: u64,
    },
    /// A range of values ends before it begins.
    #[error("the range of values ends at {end}, before it begins at {start}: an empty one ends where it begins")]
    Backwards {
        /// The first index.
        start: usize,
        /// The index behind the last.
        end: usize,
    },
    /// An address was computed from it that no region has.
    #[error("{bytes} bytes from there is no address: a region begins at offset 0, and has 4 GiB at most")]
    MovedOutside {
        /// How far away it would be.
        bytes: u64,
    },
    /// A signal must not lie in the data that it announces.
    #[error(
        "the signal lies inside of the {bytes} bytes that it is to announce, and would be overwritten: give it a place of its own"
    )]
    InsideOfData {
        /// How long the data is.
        bytes: u64,
    },
    /// A value or a word must lie at a multiple of its alignment.
    #[error("the access needs memory at a multiple of {align}")]
    Misaligned {
        /// Of what it must be a multiple.
        align: usize,
    },
}

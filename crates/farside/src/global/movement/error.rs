//! Why operations were refused, or have failed.

use farside_fabric::{FabricError, ProcessId, WorkerId};

use super::handle::Handle;
use crate::Wire;
use crate::error::Error;
use crate::memory::address::GlobalAddress;

/// Why an operation was not started, or how it ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MovementError {
    /// It has failed. It may have taken effect in part.
    #[error("{handle} failed: {cause}")]
    Failed {
        /// Which.
        handle: Handle,
        /// Why.
        #[source]
        cause: Box<Error>,
    },
    /// It was not started, for one that it was ordered after has failed.
    #[error("{handle} was not started, since {earlier}, after which it was ordered, failed")]
    NotStarted {
        /// Which.
        handle: Handle,
        /// The one that failed, or was not started either.
        earlier: Handle,
    },
    /// Handles are for the worker that got them.
    #[error(
        "{handle} was named by {by}: only the worker that started an operation can wait for it, or order others after it"
    )]
    Foreign {
        /// What was named.
        handle: Handle,
        /// Who did.
        by: WorkerId,
    },
    /// The worker has started no such operation.
    #[error("there is no {handle}: it has started {started} so far; the handle is of another job, or overwritten")]
    NeverStarted {
        /// What was named.
        handle: Handle,
        /// How many there are.
        started: u64,
    },
    /// The places that a copy reads and writes have bytes in common.
    #[error(
        "{bytes} bytes at {source_address} and at {target} overlap: copy to memory in between, or move the bytes in parts"
    )]
    Overlap {
        /// Where to.
        target: GlobalAddress,
        /// Where from.
        source_address: GlobalAddress,
        /// How many.
        bytes: u64,
    },
    /// What it should have brought is not there.
    #[error("{handle} brings nothing: it has failed, as was told when it, or a later one, was completed")]
    Told {
        /// Which.
        handle: Handle,
    },
    /// More than fits into a command.
    #[error(
        "{bytes} bytes are put from a slice; at most {max} are copied by the call: hand over a buffer (`start_put_owned`)"
    )]
    TooLong {
        /// How many.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// What an atomic change brings is stored by the process that asks for it.
    #[error(
        "{address} is not of this process, which is where the old value of a word can go: give an address of its own"
    )]
    NotOwn {
        /// What was given.
        address: GlobalAddress,
    },
    /// What the fabric said.
    #[error("{what}")]
    Fabric {
        /// That.
        what: String,
    },
    /// Too many that have failed, of which the program has not heard.
    #[error("{max} operations have failed, or were not started after those: complete them before more are started")]
    TooMany {
        /// How many are kept.
        max: usize,
    },
    /// The process that was to carry it out had no room for it, all the time.
    #[error(
        "{process} carries out as much for others as it can ({max} commands): raise the deadline, or ask it for less at a time"
    )]
    Full {
        /// Which.
        process: ProcessId,
        /// How much that is.
        max: usize,
    },
}

/// How an operation failed, as processes tell each other.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(in super::super) enum Failure {
    /// Nothing is registered any more at the one end, or the other.
    Stale { is_target: bool },
    /// The memory may only be read.
    ReadOnly { is_target: bool },
    /// A word does not lie at a multiple of its size.
    Misaligned { is_target: bool, align: u64 },
    /// A process is gone.
    Lost { process: ProcessId },
    /// Nothing moved for the time that things may take.
    Deadline,
    /// One that it was ordered after failed.
    Earlier { number: u64 },
    /// Who was to carry it out has no room.
    Full { process: ProcessId },
    /// What the fabric said.
    Other { what: String },
}

/// The longest text of another failure that is sent.
const TEXT_BYTES_MAX: usize = 200;

impl Failure {
    /// Another failure, with at most [`TEXT_BYTES_MAX`] bytes of its text.
    fn other(error: impl ToString) -> Self {
        let mut what = error.to_string();
        what.truncate(what.floor_char_boundary(TEXT_BYTES_MAX));
        Self::Other { what }
    }

    /// What the fabric said, about an access to a region.
    pub(super) fn of(error: FabricError, is_target: bool) -> Self {
        match error {
            FabricError::StaleKey { .. } => Self::Stale { is_target },
            FabricError::ReadOnly { .. } => Self::ReadOnly { is_target },
            // Private memory may begin anywhere, and then the offset alone does not tell.
            FabricError::Misaligned { bytes, .. } => Self::Misaligned { is_target, align: bytes as u64 },
            FabricError::Disconnected { process } => Self::Lost { process },
            FabricError::Deadline { .. } => Self::Deadline,
            other => Self::other(other),
        }
    }

    /// The same, as the library's errors have it.
    pub(super) fn of_error(error: &Error, is_target: bool) -> Self {
        match error {
            Error::PeerLost { process, .. } => Self::Lost { process: *process },
            Error::Fabric(FabricError::StaleKey { .. }) => Self::Stale { is_target },
            Error::Deadline { .. } | Error::Fabric(FabricError::Deadline { .. }) => Self::Deadline,
            other => Self::other(other),
        }
    }
}

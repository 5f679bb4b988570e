//! Why operations were refused or have failed.

use farside_fabric::{FabricError, ProcessId, WorkerId};

use super::handle::Handle;
use crate::Wire;
use crate::error::Error;
use crate::memory::address::GlobalAddress;

/// Why an operation was not started, or how it ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MovementError {
    /// The operation has failed, and may have taken effect in part.
    #[error("{handle} failed: {cause}")]
    Failed {
        /// The operation.
        handle: Handle,
        /// The cause.
        #[source]
        cause: Box<Error>,
    },
    /// The operation was not started, since one that it was ordered after has failed.
    #[error("{handle} was not started: it was ordered after {earlier}, which failed")]
    NotStarted {
        /// The operation.
        handle: Handle,
        /// The operation that failed, or was not started either.
        earlier: Handle,
    },
    /// The handle belongs to another worker.
    #[error(
        "{handle} was named by {by}: only the worker that started an operation can wait for it, or order others after it"
    )]
    Foreign {
        /// The handle.
        handle: Handle,
        /// The worker that named it.
        by: WorkerId,
    },
    /// The worker has not started this operation.
    #[error(
        "{handle} does not exist: its worker has started {started} operations; the handle comes from another job, or was overwritten"
    )]
    NeverStarted {
        /// The handle.
        handle: Handle,
        /// The number of operations that it has started.
        started: u64,
    },
    /// The places that a copy reads and writes have bytes in common.
    #[error(
        "{bytes} bytes at {source_address} and at {target} overlap: copy through other memory, or copy in parts that do not overlap"
    )]
    Overlap {
        /// The address that is written.
        target: GlobalAddress,
        /// The address that is read.
        source_address: GlobalAddress,
        /// The number of bytes.
        bytes: u64,
    },
    /// The operation has no result.
    #[error("{handle} has no result: it failed, and the error was returned when it or a later operation was completed")]
    AlreadyReported {
        /// The operation.
        handle: Handle,
    },
    /// There are more bytes than fit into a command.
    #[error(
        "cannot put {bytes} bytes from a slice: the call copies at most {max}; hand over a buffer (`start_put_owned`)"
    )]
    TooLong {
        /// The number of bytes.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The result of an atomic change can only be stored in memory of the process that starts it.
    #[error(
        "the old value of a word cannot go to {address}: that is memory of another process; give an address of this one"
    )]
    NotOwn {
        /// The address that was given.
        address: GlobalAddress,
    },
    /// Another error of the fabric.
    #[error("{what}")]
    Fabric {
        /// The text of the error.
        what: String,
    },
    /// Too many operations have failed without the program learning of it.
    #[error("{max} operations have failed, or were not started because of those: complete them before you start more")]
    TooMany {
        /// The limit.
        max: usize,
    },
    /// The process that was to execute it had no room for it until the deadline.
    #[error(
        "{process} already carries out {max} commands for other processes, its limit: raise the deadline, or start fewer at a time"
    )]
    Full {
        /// The process.
        process: ProcessId,
        /// The number of commands that it executes at a time.
        max: usize,
    },
}

/// The failure of an operation, as processes report it to each other.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(in super::super) enum Failure {
    /// Nothing is registered any more at the target or the source.
    Stale { is_target: bool },
    /// The memory is read-only.
    ReadOnly { is_target: bool },
    /// A word is not aligned.
    Misaligned { is_target: bool, align: u64 },
    /// A process is lost.
    Lost { process: ProcessId },
    /// Nothing moved until the deadline.
    Deadline,
    /// An operation that it was ordered after failed.
    Earlier { number: u64 },
    /// The process that was to execute it has no room.
    Full { process: ProcessId },
    /// Another error of the fabric.
    Other { what: String },
}

/// The longest text of another failure that is sent.
const TEXT_BYTES_MAX: usize = 200;

impl Failure {
    /// Another failure, with at most [`TEXT_BYTES_MAX`] bytes of its text.
    fn other(error: impl ToString) -> Self {
        let mut what = error.to_string();
        let end = (0..=TEXT_BYTES_MAX.min(what.len())).rev().find(|end| what.is_char_boundary(*end));
        what.truncate(end.unwrap_or(0));
        Self::Other { what }
    }

    /// The failure that an error of the fabric about an access to a region means.
    pub(super) fn of(error: FabricError, is_target: bool) -> Self {
        match error {
            FabricError::StaleKey { .. } => Self::Stale { is_target },
            FabricError::ReadOnly { .. } => Self::ReadOnly { is_target },
            // Private memory may begin anywhere, so the offset alone does not tell the alignment.
            FabricError::Misaligned { bytes, .. } => Self::Misaligned { is_target, align: bytes as u64 },
            FabricError::Disconnected { process } => Self::Lost { process },
            FabricError::Deadline { .. } => Self::Deadline,
            other => Self::other(other),
        }
    }

    /// The failure that an error of this library means.
    pub(super) fn of_error(error: &Error, is_target: bool) -> Self {
        match error {
            Error::PeerLost { process, .. } => Self::Lost { process: *process },
            Error::Fabric(FabricError::StaleKey { .. }) => Self::Stale { is_target },
            Error::Deadline { .. } | Error::Fabric(FabricError::Deadline { .. }) => Self::Deadline,
            other => Self::other(other),
        }
    }
}

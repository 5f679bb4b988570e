//! What can go wrong when several work on one thing.

use farside_fabric::WorkerId;

use crate::error::{Error, room_error};

/// A result of this module.
pub(super) type Result<T, E = SyncError> = std::result::Result<T, E>;

/// Why something that several work on could not be had, or was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// An error of the job, such as [`Error::PeerLost`].
    #[error(transparent)]
    Job(#[from] Error),
    /// Somebody has the value at the moment.
    #[error(
        "the value is in use: use `post`, which leaves the operation to whoever has it, or `run` where waiting is allowed"
    )]
    Busy,
    /// Too much is waiting already.
    #[error("{max} are waiting already: wait for some of them, or hand in less at a time")]
    Full {
        /// How many may.
        max: usize,
    },
    /// Somebody else has the lock.
    #[error("the lock {name:?} is held by {owner}: wait for it with `lock`")]
    LockHeld {
        /// The lock.
        name: String,
        /// Who has it, or one of those who share it.
        owner: WorkerId,
    },
    /// The lock was taken away, since its holder kept it longer than the lease while others waited.
    #[error("the lock {name:?} was taken away after its lease: renew it in time, and begin again with a new one")]
    LockLost {
        /// The lock.
        name: String,
    },
    /// A handler would wait for the operations of others.
    #[error("a handler must not wait for the operations of others: use `post` or `start`, or `try_run`")]
    InHandler,
    /// There is no structure of this name.
    #[error("no structure {name:?} is registered (any more): register it first, and see that both spell it alike")]
    NoStructure {
        /// The name.
        name: String,
    },
    /// The structure does not have this operation, or one of other types.
    #[error("the structure has no operation {operation:?} with these types: register it with `operation`")]
    NoOperation {
        /// The operation.
        operation: &'static str,
    },
    /// The structure of this name is of another type.
    #[error("the structure {name:?} is a {registered}, not a {wanted}")]
    OtherType {
        /// The name.
        name: String,
        /// What it is.
        registered: String,
        /// What it was taken for.
        wanted: &'static str,
    },
    /// A token of another lock than the one that guards the value.
    #[error("the token is of another lock than the one that guards the value")]
    OtherLock,
    /// The value may be half changed.
    #[error(
        "an operation before this one panicked and may have left the value half changed: put it in order with `mend`"
    )]
    Poisoned,
    /// Only who shares a lock has asked, and wants to change what it guards.
    #[error("the token is of a shared lock, which lets nothing be changed: take the lock for yourself alone")]
    SharedToken,
    /// Somebody had the lock after this holder.
    #[error(
        "the token {offered} is older than {newest}, with which the value was used since: the lock was lost meanwhile"
    )]
    StaleToken {
        /// The token's number.
        offered: u64,
        /// The newest one's.
        newest: u64,
    },
    /// The name is taken.
    #[error("{owner} has registered a structure {name:?} already: choose another name")]
    NameTaken {
        /// The name.
        name: String,
        /// Whose it is.
        owner: WorkerId,
    },
}

room_error!(SyncError);

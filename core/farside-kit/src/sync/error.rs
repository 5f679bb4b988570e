//! The errors of shared work.

use farside::Error;
use farside_fabric::WorkerId;

use crate::room_error::room_error;

/// A result of this module.
pub(super) type Result<T, E = SyncError> = std::result::Result<T, E>;

/// Why a shared value, lock or structure was not available, or an operation did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// An error of the job, such as [`Error::PeerLost`].
    #[error(transparent)]
    Job(#[from] Error),
    /// Another thread has the value.
    #[error(
        "the value is in use: use `post`, which leaves the operation to the thread that uses it, or `run` where waiting is \
         allowed"
    )]
    Busy,
    /// Too many locks, waiters, structures or operations.
    #[error("the limit of {max} is reached: wait until some have ended, or use fewer at a time")]
    Full {
        /// The limit.
        max: usize,
    },
    /// Another worker holds the lock.
    #[error("the lock {name:?} is held by {owner}: wait for it with `lock`")]
    LockHeld {
        /// The name of the lock.
        name: String,
        /// The holder, or one of those that share the lock.
        owner: WorkerId,
    },
    /// The lock was revoked: its holder kept it longer than the lease while others waited.
    #[error("the lock {name:?} was revoked after its lease: renew it in time; take it again to continue")]
    LockLost {
        /// The name of the lock.
        name: String,
    },
    /// A handler must not wait for the operations of other threads.
    #[error("a handler must not wait for the operations of other threads: use `post`, `start` or `try_run`")]
    InHandler,
    /// No structure of this name and type exists.
    #[error("no structure {name:?} is registered: register it first, and check the spelling of both names")]
    NoStructure {
        /// The name of the structure.
        name: String,
    },
    /// The structure has no operation of this name and these types.
    #[error("the structure has no operation {operation:?} with these types: register it with `operation`")]
    NoOperation {
        /// The name of the operation.
        operation: &'static str,
    },
    /// The structure of this name has another type.
    #[error("the structure {name:?} is a {registered}, not a {wanted}: find it by its own type")]
    OtherType {
        /// The name of the structure.
        name: String,
        /// Its type.
        registered: String,
        /// The requested type.
        wanted: &'static str,
    },
    /// The token belongs to another lock than the one that guards the value.
    #[error("the token belongs to another lock: use the one that guards the value")]
    OtherLock,
    /// The value may be half changed.
    #[error(
        "the value is poisoned: an earlier operation panicked and may have left it half changed; restore it with `repair`"
    )]
    Poisoned,
    /// The holder of a shared lock tried to change the value.
    #[error("the token belongs to a shared lock, which allows no changes: take the lock alone")]
    SharedToken,
    /// Another worker has used the value with a later grant of the lock.
    #[error(
        "the token {offered} is stale: the value was used with {newest} since, so the lock was lost; take it again"
    )]
    StaleToken {
        /// The number of the token.
        offered: u64,
        /// The number of the newest token.
        newest: u64,
    },
    /// The name is already used.
    #[error("the name {name:?} is taken: {owner} has registered a structure of this name; use another name")]
    NameTaken {
        /// The name of the structure.
        name: String,
        /// The structure's owner.
        owner: WorkerId,
    },
}

room_error!(SyncError);

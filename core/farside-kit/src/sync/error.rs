//! The errors of shared work.

use farside::Error;
use farside_fabric::WorkerId;

use crate::room_error::room_error;

/// A result of this module.
pub(super) type Result<T, E = SyncError> = std::result::Result<T, E>;

/// Why a shared value or lock was not available, or an operation did not run.
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
    /// Too many locks, waiters or operations.
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
    #[error("a handler must not wait for the operations of other threads: use `post` or `try_run`")]
    InHandler,
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
}

room_error!(SyncError);

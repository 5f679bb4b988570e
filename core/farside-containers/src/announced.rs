//! Where accesses are checked, operations announce themselves. The checker of accesses then finds
//! those that break a promise of another worker.
//!
//! Each operation that a promise may exclude has a word, which stays 0. It is read at the end of
//! the operation. A worker that relies on a promise changes the words of the operations that the
//! promise excludes. An atomic change conflicts with a read that nothing orders before it, and not
//! with other atomic changes.

use farside::{AccessConflict, Error, GlobalPtr, Result, Worker};

use crate::promise::{Op, Promise};

/// One worker relies on a promise, and another one does what it excludes. Found where accesses are
/// [checked](farside::AccessConflict).
///
/// It arrives as [`Error::Room`]; [`Error::room_error`] returns it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a {op:?} breaks the promise {promise} of another worker: let a barrier part them, or promise less ({conflict})"
)]
pub struct BrokenPromise {
    /// The promise.
    pub promise: Promise,
    /// The operation that it does not permit.
    pub op: Op,
    /// Both places in the program.
    pub conflict: AccessConflict,
}

/// The words of two operations.
pub(crate) type Words = [(Op, GlobalPtr<u64>); 2];

/// Meets the operations that a promise excludes, and that nothing orders before this one. A local
/// promise excludes all operations of other workers, and a worker does not meet its own.
#[track_caller]
pub(crate) fn meet(me: &Worker, promise: Promise, words: Words) -> Result<()> {
    let is_excluded = |op| promise.is_local() || !promise.permits(op);
    for (op, word) in words.into_iter().filter(|(op, _)| is_excluded(*op)) {
        if let Err(error) = word.fetch_or(me, 0) {
            let conflict = error.room_error::<AccessConflict>().cloned();
            return Err(
                conflict.map_or(error, |conflict| Error::Room(Box::new(BrokenPromise { promise, op, conflict })))
            );
        }
    }
    Ok(())
}

/// Notes an operation. At its end, because atomic changes and signals may tell others of all
/// earlier accesses.
#[track_caller]
pub(crate) fn note(me: &Worker, words: Words, done: &[Op]) -> Result<()> {
    // Not in a closure, which would be the place of the access.
    for (_, word) in words.into_iter().filter(|(op, _)| done.contains(op)) {
        word.get(me)?;
    }
    Ok(())
}

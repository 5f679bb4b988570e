//! A value that refuses workers that have lost their lock.

use super::error::SyncError;
use super::lock::Token;

/// A value guarded by a lock. It refuses tokens older than one that it has seen.
///
/// A stopped process does not notice that it was stopped. Meanwhile it may have lost its lock, and
/// others may have used the value, when it continues with its access. No lock and no time limit
/// prevents that, but the value can: every grant of a lock has a greater number than the one
/// before, so the late access has a smaller one.
///
/// ```no_run
/// # use farside::prelude::*;
/// # use farside_kit::sync::{Fenced, LockManager, SyncError, Token};
/// # use std::cell::RefCell;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let locks = LockManager::new(me)?;
/// let lock = locks.named(me, "account");
/// let account = PerWorker::new(me, RefCell::new(Fenced::new(lock.id(), 100_u64)))?;
/// let guard = lock.lock()?;
/// let (teller, order) = (WorkerId::new(0), (account, guard.token()));
/// let paid = me.call_return(teller, order, |there, (account, token)| {
///     account.here(there).borrow_mut().change(token, |balance| *balance -= 10).is_ok()
/// })?;
/// assert!(paid.wait()?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Fenced<T> {
    lock: u64,
    newest: u64,
    value: T,
}

impl<T> Fenced<T> {
    /// Makes a value guarded by the lock with this [identity](super::Lock::id).
    pub fn new(lock: u64, value: T) -> Self {
        Self { lock, newest: 0, value }
    }

    /// Changes the value for a worker that holds the lock alone.
    ///
    /// # Errors
    /// [`SyncError::StaleToken`], [`SyncError::SharedToken`], [`SyncError::OtherLock`]. Then the
    /// value is unchanged.
    pub fn change<R>(&mut self, token: Token, change: impl FnOnce(&mut T) -> R) -> Result<R, SyncError> {
        if token.is_shared() {
            return Err(SyncError::SharedToken);
        }
        self.admit(token)?;
        Ok(change(&mut self.value))
    }

    /// Reads the value for a worker that holds the lock, alone or shared. Refuses all earlier
    /// holders from then on.
    ///
    /// # Errors
    /// [`SyncError::StaleToken`], [`SyncError::OtherLock`].
    pub fn read(&mut self, token: Token) -> Result<&T, SyncError> {
        self.admit(token)?;
        Ok(&self.value)
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value
    }

    fn admit(&mut self, token: Token) -> Result<(), SyncError> {
        if token.lock() != self.lock {
            return Err(SyncError::OtherLock);
        }
        if token.number() < self.newest {
            return Err(SyncError::StaleToken { offered: token.number(), newest: self.newest });
        }
        self.newest = token.number();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_token_is_refused_once_a_newer_one_was_seen() {
        let token = |number, is_shared| Token::new(7, number, is_shared);
        let mut value = Fenced::new(7, 0);
        assert!(value.change(token(3, false), |value| *value += 1).is_ok());
        assert!(value.change(token(3, false), |value| *value += 1).is_ok());
        assert!(matches!(value.read(token(5, true)), Ok(&2)));
        assert!(matches!(value.read(token(5, true)), Ok(&2)));
        let refused = value.change(token(4, false), |value| *value += 1);
        assert!(matches!(refused, Err(SyncError::StaleToken { offered: 4, newest: 5 })));
        assert!(matches!(value.read(token(4, false)), Err(SyncError::StaleToken { offered: 4, newest: 5 })));
        let refused = value.change(token(6, true), |value| *value += 1);
        assert!(matches!(refused, Err(SyncError::SharedToken)));
        let refused = value.change(Token::new(8, 9, false), |value| *value += 1);
        assert!(matches!(refused, Err(SyncError::OtherLock)));
        // The refused tokens have not moved the fence.
        assert!(value.change(token(5, false), |value| *value += 1).is_ok());
        assert_eq!(value.into_inner(), 3);
    }
}

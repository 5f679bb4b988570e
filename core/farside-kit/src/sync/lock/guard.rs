//! A held lock.

use std::fmt;

use farside::{Wire, Worker};
use farside_fabric::WorkerId;

use super::table::{LockRequest, Mode};
use super::{Lock, leave, renew};
use crate::sync::error::{Result, SyncError};

/// Proves that a lock was granted, and when, to the values that the lock guards
/// ([`Fenced`](crate::sync::Fenced)).
///
/// Tokens of one lock are ordered: a later grant has a greater number. Workers that share the lock
/// at the same time have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(word = "farside::Token")]
pub struct Token {
    lock: u64,
    number: u64,
    is_shared: bool,
}

impl Token {
    pub(crate) fn new(lock: u64, number: u64, is_shared: bool) -> Self {
        Self { lock, number, is_shared }
    }

    /// Returns the [identity](Lock::id) of the lock.
    pub fn lock(self) -> u64 {
        self.lock
    }

    /// Returns the number of the grant, which is greater than those of all earlier ones.
    pub fn number(self) -> u64 {
        self.number
    }

    /// Returns whether the lock is shared.
    pub fn is_shared(self) -> bool {
        self.is_shared
    }
}

/// A lock that this worker holds. Dropping it releases the lock.
///
/// The release is a call to the home. It does not wait: without room for it, this worker keeps the
/// call and makes it later ([`WhenFull::Spill`](farside::WhenFull::Spill)).
#[must_use = "dropping it releases the lock"]
pub struct LockGuard<'w> {
    lock: Lock<'w>,
    home: WorkerId,
    request: LockRequest,
    number: u64,
    is_over: bool,
}

impl<'w> LockGuard<'w> {
    pub(super) fn new(lock: Lock<'w>, home: WorkerId, request: LockRequest, number: u64) -> Self {
        Self { lock, home, request, number, is_over: false }
    }

    /// Returns the token of this grant.
    pub fn token(&self) -> Token {
        Token::new(self.lock.id(), self.number, self.lock.mode == Mode::Shared)
    }

    /// Releases the lock, and waits until the home knows. Handlers must not call it.
    ///
    /// # Errors
    /// [`SyncError::LockLost`] if it was revoked before;
    /// [`Error::PeerLost`](farside::Error::PeerLost) if the home is lost;
    /// [`Error::Deadline`](farside::Error::Deadline) if it does not answer in time;
    /// [`Error::DifferentBinaries`](farside::Error::DifferentBinaries) if it runs another binary;
    /// [`Error::InHandler`](farside::Error::InHandler) in a handler. The lock is then released as
    /// far as this worker can.
    pub fn release(mut self) -> Result<()> {
        self.ask_home(leave)?;
        self.is_over = true;
        Ok(())
    }

    /// Renews the lease, and checks that the lock is still held. Handlers must not call it.
    ///
    /// # Errors
    /// [`SyncError::LockLost`] if it was revoked before;
    /// [`Error::PeerLost`](farside::Error::PeerLost) if the home is lost;
    /// [`Error::Deadline`](farside::Error::Deadline) if it does not answer in time;
    /// [`Error::DifferentBinaries`](farside::Error::DifferentBinaries) if it runs another binary;
    /// [`Error::InHandler`](farside::Error::InHandler) in a handler. The lock is not released then.
    pub fn renew(&mut self) -> Result<()> {
        self.ask_home(renew)
    }

    /// Asks the home a question that it answers by whether the lock is, or was, held.
    fn ask_home(&mut self, question: fn(&Worker, super::Arguments) -> bool) -> Result<()> {
        let me = self.lock.worker;
        let is_held = me.call_return(self.home, self.lock.arguments(self.request), question)?.wait()?;
        if is_held {
            return Ok(());
        }
        self.is_over = true;
        Err(SyncError::LockLost { name: self.lock.name.clone() })
    }
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.lock.give_up(self.home, self.request);
        }
    }
}

impl fmt::Debug for LockGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard").field("name", &self.lock.name).field("token", &self.token()).finish_non_exhaustive()
    }
}

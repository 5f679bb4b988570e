//! A lock that is held.

use std::fmt;

use farside_fabric::WorkerId;

use super::table::{Mode, Wish};
use super::{Lock, leave, renew};
use crate::Wire;
use crate::runtime::worker::Worker;
use crate::sync::error::{Result, SyncError};

/// What says that a lock was granted, and when: to be shown to the values that the lock guards ([`Fenced`](crate::sync::Fenced)).
///
/// Tokens of one lock are ordered: who got it later has a greater number. Those who share it at the same time have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub struct Token {
    lock: u64,
    number: u64,
    is_shared: bool,
}

impl Token {
    pub(crate) fn new(lock: u64, number: u64, is_shared: bool) -> Self {
        Self { lock, number, is_shared }
    }

    /// The [identity](Lock::id) of its lock.
    pub fn lock(self) -> u64 {
        self.lock
    }

    /// Greater than those of all who had the lock before.
    pub fn number(self) -> u64 {
        self.number
    }

    /// Whether the lock is shared with others.
    pub fn is_shared(self) -> bool {
        self.is_shared
    }
}

/// A lock that this worker holds. Dropping it lets go.
///
/// Letting go is a call to the home that never waits while less is queued for it than [the job allows](crate::Job::queue_cap_bytes). If there is
/// no room for it until the deadline, or in a handler at once, it is made later, when this worker makes progress.
#[must_use = "dropping it lets go"]
pub struct LockGuard<'w> {
    lock: Lock<'w>,
    home: WorkerId,
    wish: Wish,
    number: u64,
    is_over: bool,
}

impl<'w> LockGuard<'w> {
    pub(super) fn new(lock: Lock<'w>, home: WorkerId, wish: Wish, number: u64) -> Self {
        Self { lock, home, wish, number, is_over: false }
    }

    /// The token of this grant.
    pub fn token(&self) -> Token {
        Token::new(self.lock.id(), self.number, self.lock.mode == Mode::Shared)
    }

    /// Lets go, and waits until the home has heard of it. Not in handlers.
    ///
    /// # Errors
    /// [`SyncError::LockLost`] when it was taken away before; [`PeerLost`](crate::Error::PeerLost) when the home is gone; those of a call and of
    /// waiting for its result. Then it is let go all the same, as far as this worker can.
    pub fn release(mut self) -> Result<()> {
        self.ask_home(leave)?;
        self.is_over = true;
        Ok(())
    }

    /// Begins the lease anew, and makes sure that the lock is still held. Not in handlers.
    ///
    /// # Errors
    /// As for [`release`](Self::release), but that it is not let go.
    pub fn renew(&mut self) -> Result<()> {
        self.ask_home(renew)
    }

    /// Asks the home something that it answers with whether the lock is, or was, held.
    fn ask_home(&mut self, question: fn(&Worker, super::Arguments) -> bool) -> Result<()> {
        let me = self.lock.worker;
        let is_held = me.call_return(self.home, self.lock.arguments(self.wish), question)?.wait()?;
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
            self.lock.give_up(self.home, self.wish);
        }
    }
}

impl fmt::Debug for LockGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard").field("name", &self.lock.name).field("token", &self.token()).finish_non_exhaustive()
    }
}

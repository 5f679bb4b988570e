//! [`Watched`]: a descriptor that tokio watches.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::{Context, Poll};

use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::io::{Interest, Ready};

/// A descriptor that tokio watches.
#[derive(Debug)]
pub struct Watched(AsyncFd<OwnedFd>);

impl Watched {
    /// Watches a copy of a descriptor for `interest`.
    ///
    /// # Errors
    /// The system's error.
    ///
    /// # Panics
    /// Outside of a runtime of tokio, or in one without I/O.
    pub fn new(descriptor: BorrowedFd<'_>, interest: Interest) -> io::Result<Self> {
        let descriptor = descriptor.try_clone_to_owned()?;
        // SAFETY: the `AsyncFd` owns the descriptor, which is open until it closes it, and which
        // nothing else knows. An `OwnedFd` always returns the same descriptor.
        Ok(Self(unsafe { AsyncFd::register_with_interest(descriptor, interest) }?))
    }

    /// Ready once the descriptor has become readable since the last time. Tells whether the peer
    /// has ended the connection.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        self.0.poll_read_ready(context).map_ok(seen)
    }

    /// Ready once the descriptor has become writable since the last time.
    pub fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        self.0.poll_write_ready(context).map_ok(seen)
    }
}

fn seen(mut guard: AsyncFdReadyGuard<'_, OwnedFd>) -> Ready {
    let ready = guard.ready();
    guard.clear_ready();
    ready
}

//! [`Watched`]: a descriptor that tokio watches.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor that tokio watches.
pub(crate) struct Watched(AsyncFd<OwnedFd>);

impl Watched {
    /// Watches a copy of a descriptor.
    ///
    /// # Errors
    /// The system's error.
    ///
    /// # Panics
    /// Outside of a runtime of tokio, or in one without I/O.
    pub(crate) fn new(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        let descriptor = descriptor.try_clone_to_owned()?;
        // SAFETY: the `AsyncFd` owns the descriptor, which is open until it closes it, and which
        // nothing else knows. An `OwnedFd` always returns the same descriptor.
        Ok(Self(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?))
    }

    /// Ready once the descriptor has become readable since the last time.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_ready(context).map(|ready| ready.map(|mut guard| guard.clear_ready()))
    }
}

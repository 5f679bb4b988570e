//! Pieces of memory that parts of the library use internally: those of this process, and mapped
//! ones of others.
//!
//! Their regions are registered as [internal](farside_fabric::RegionKind::Internal): no handle or
//! address of a program leads to them, not even one that was made from arbitrary bytes. A piece
//! that another process names must lie in such a region, too.

use std::sync::Arc;

use farside_fabric::ProcessId;
use farside_sys::shm::SharedMemory;

use crate::error::Result;
use crate::runtime::extent::Extent;
use crate::runtime::process::{Process, lock};

impl Process {
    /// Allocates a piece of this process's memory that starts on a cache line of its own. Its
    /// contents are left over from its last use.
    ///
    /// # Errors
    /// Any error of the transport while a region is registered.
    pub(crate) fn allocate_piece(&self, bytes: usize) -> Result<Extent> {
        lock(&self.calls().ring_pool).allocate_own(&**self.transport(), bytes)
    }

    /// Frees a piece that no process can write any more.
    pub(crate) fn free_piece(&self, piece: Extent) {
        lock(&self.calls().ring_pool).free_own(&[piece]);
    }

    /// Sends the memory of a piece to a peer, ahead of the message that names the piece, so that
    /// the peer finds it [mapped](Self::mapped_piece).
    pub(crate) fn offer(&self, to: ProcessId, piece: Extent) {
        if let Err(error) = self.transport().offer(to, piece.key) {
            // The peer does without, as where it cannot map this process's memory.
            tracing::debug!(%to, %error, "memory not sent");
        }
    }

    /// Returns the memory in which a piece lies, if it is mapped here: a peer's, if the peer has
    /// [offered](Self::offer) it. Does not wait.
    pub(crate) fn mapped_piece(&self, piece: Extent) -> Option<Arc<SharedMemory>> {
        piece.key.check(piece.offset, usize::try_from(piece.bytes).ok()?).ok()?;
        if piece.key.process == self.id() {
            return lock(&self.calls().ring_pool).memory(piece.key);
        }
        self.transport().attached(piece.key)?.mapped().cloned()
    }
}

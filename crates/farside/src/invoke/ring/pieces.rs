//! Pieces of this process's memory that parts of the library have for themselves, and pieces of others', as far as they are mapped.
//!
//! No handle and no address that a program can have leads to them.

use std::sync::Arc;

use farside_sys::shm::SharedMemory;

use crate::error::Result;
use crate::runtime::extent::Extent;
use crate::runtime::process::{Process, lock};

impl Process {
    /// A piece of this process's memory, on a line of its own. What it holds is left from before.
    ///
    /// # Errors
    /// What the transport said when a region was needed.
    pub(crate) fn allocate_piece(&self, bytes: usize) -> Result<Extent> {
        lock(&self.calls().pool).allocate_own(&**self.transport(), bytes)
    }

    /// Gives a piece back that nobody can write any more.
    pub(crate) fn free_piece(&self, piece: Extent) {
        lock(&self.calls().pool).free_own(&[piece]);
    }

    /// The memory that a piece lies in. `None` where it cannot be mapped here. Waits for the owner's service thread when this process has not
    /// used the region before.
    ///
    /// # Errors
    /// What the transport said, and [`Error::PeerLost`](crate::Error::PeerLost).
    pub(crate) fn map_piece(&self, piece: Extent) -> Result<Option<Arc<SharedMemory>>> {
        piece.key.check(piece.offset, usize::try_from(piece.bytes).unwrap_or(usize::MAX))?;
        if piece.key.process == self.id() {
            return Ok(lock(&self.calls().pool).memory(piece.key));
        }
        let deadline = self.clock().now() + self.settings().deadline;
        let region = self.transport().attach(piece.key, deadline).map_err(|error| self.explain(error))?;
        Ok(region.mapped().cloned())
    }
}

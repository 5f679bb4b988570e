//! Pieces of memory that parts of the library use internally: those of this process, and mapped
//! ones of others.
//!
//! Their regions are registered as [internal](farside_fabric::RegionKind::Internal): no handle or
//! address of a program leads to them, not even one that was made from arbitrary bytes. A piece that
//! another process names must lie in such a region, too.

use std::sync::Arc;

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

    /// Returns the memory in which a piece lies; `None` if this process cannot map it. Waits for
    /// the owner's service thread when this process has not used the region before.
    ///
    /// # Errors
    /// Any error of the transport, and [`Error::PeerLost`](crate::Error::PeerLost).
    pub(crate) fn map_piece(&self, piece: Extent) -> Result<Option<Arc<SharedMemory>>> {
        piece.key.check(piece.offset, usize::try_from(piece.bytes).unwrap_or(usize::MAX))?;
        if piece.key.process == self.id() {
            return Ok(lock(&self.calls().ring_pool).memory(piece.key));
        }
        let deadline = self.clock().now() + self.settings().deadline;
        let region = self.transport().attach(piece.key, deadline).map_err(|error| self.explain(error))?;
        Ok(region.mapped().cloned())
    }
}

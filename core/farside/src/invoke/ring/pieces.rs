//! Pieces of memory that parts of the library use internally: those of this process, and mapped
//! ones of others.
//!
//! Their regions are registered as [internal](farside_fabric::RegionKind::Internal): no handle or
//! address of a program leads to them, not even one that was made from arbitrary bytes. A piece
//! that another process names must lie in such a region, too.

use std::sync::Arc;

use farside_sys::shm::SharedMemory;

use crate::error::Result;
use crate::runtime::extent::Extent;
use crate::runtime::process::Process;

/// Allocates a piece of this process's memory that starts on a cache line of its own. Its contents
/// are left over from its last use.
///
/// # Errors
/// Any error of the transport while a region is registered.
pub fn allocate_piece(process: &Process, bytes: usize) -> Result<Extent> {
    process.calls.rings.lock().allocate_own(&**process.transport(), bytes)
}

/// Frees a piece that no process can write any more.
pub fn free_piece(process: &Process, piece: Extent) {
    process.calls.rings.lock().free_own(&[piece]);
}

/// Returns the memory in which a piece lies, if it is mapped here: a peer's, if the peer has
/// offered it. Does not wait.
pub fn mapped_piece(process: &Process, piece: Extent) -> Option<Arc<SharedMemory>> {
    piece.key.check(piece.offset, usize::try_from(piece.bytes).ok()?).ok()?;
    if piece.key.process == process.id() {
        return process.calls.rings.lock().memory(piece.key);
    }
    process.transport().attached(piece.key)?.mapped().cloned()
}

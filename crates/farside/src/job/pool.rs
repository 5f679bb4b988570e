//! Memory for rings that lead to this process.

use std::collections::HashMap;
use std::sync::Arc;

use farside_fabric::{RemoteKey, Transport};
use farside_sys::shm::SharedMemory;

use super::setup::Piece;
use crate::error::Result;

/// Regions are registered in this size, which holds the first chunks of some thirty rings; larger pieces get their own.
const SLAB_BYTES: usize = 256 << 10;
/// Pieces begin on cache lines, and their neighbours are not on the same pair of lines.
pub(crate) const ALIGN_BYTES: usize = 128;

/// Gives out pieces of registered memory, and keeps to a cap per receiving worker.
#[derive(Debug)]
pub(crate) struct RingPool {
    cap_bytes: usize,
    /// Bytes in use, by receiving worker of this process.
    used: Vec<usize>,
    /// The slab that pieces are cut from, and how much of it is cut.
    slab: Option<(RemoteKey, usize)>,
    /// All that was registered. A process has its own memory at hand, whatever its transport does for peers.
    regions: HashMap<RemoteKey, Arc<SharedMemory>>,
}

impl RingPool {
    pub(crate) fn new(cap_bytes: usize, receivers: usize) -> Self {
        Self { cap_bytes, used: vec![0; receivers], slab: None, regions: HashMap::new() }
    }

    /// A piece for the beginning of a ring to this receiver, whatever its cap: calls wait at their sender for it already, and
    /// without a ring they would for ever.
    ///
    /// # Errors
    /// What the transport said when a region was needed.
    pub(crate) fn allocate(&mut self, transport: &dyn Transport, receiver: usize, bytes: usize) -> Result<Piece> {
        let bytes = bytes.next_multiple_of(ALIGN_BYTES);
        let piece = self.cut(transport, bytes)?;
        self.used[receiver] += bytes;
        Ok(piece)
    }

    /// A piece for this process's own use, which counts for no receiver.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate).
    pub(crate) fn allocate_own(&mut self, transport: &dyn Transport, bytes: usize) -> Result<Piece> {
        self.cut(transport, bytes.next_multiple_of(ALIGN_BYTES))
    }

    /// A piece for the growth of a ring to this receiver, `None` when that would exceed its cap.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate).
    pub(crate) fn allocate_within_cap(
        &mut self,
        transport: &dyn Transport,
        receiver: usize,
        bytes: usize,
    ) -> Result<Option<Piece>> {
        let fits = self.used[receiver].checked_add(bytes).is_some_and(|sum| sum <= self.cap_bytes);
        fits.then(|| self.allocate(transport, receiver, bytes)).transpose()
    }

    fn cut(&mut self, transport: &dyn Transport, bytes: usize) -> Result<Piece> {
        if bytes > SLAB_BYTES / 2 {
            let key = self.register(transport, bytes)?;
            return Ok(Piece { key, offset: 0, bytes: bytes as u64 });
        }
        let (key, cut) = match self.slab {
            Some((key, cut)) if cut + bytes <= SLAB_BYTES => (key, cut),
            _ => (self.register(transport, SLAB_BYTES)?, 0),
        };
        self.slab = Some((key, cut + bytes));
        Ok(Piece { key, offset: cut as u64, bytes: bytes as u64 })
    }

    fn register(&mut self, transport: &dyn Transport, bytes: usize) -> Result<RemoteKey> {
        let region = transport.register(bytes)?;
        self.regions.insert(region.key(), region.memory().clone());
        Ok(region.key())
    }

    /// The memory of a piece that was given out here.
    pub(crate) fn memory(&self, key: RemoteKey) -> Option<Arc<SharedMemory>> {
        self.regions.get(&key).cloned()
    }

    /// Counts pieces no more whose sender is gone. They are not given out again: a process may be lost to the job and still
    /// about to write.
    pub(crate) fn retire(&mut self, receiver: usize, pieces: &[Piece]) {
        self.used[receiver] -= pieces.iter().map(|piece| piece.bytes as usize).sum::<usize>();
    }

    pub(crate) fn cap_bytes(&self) -> usize {
        self.cap_bytes
    }

    /// Bytes in use for all receivers.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used.iter().sum()
    }
}

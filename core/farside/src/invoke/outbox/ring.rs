//! A ring as its sender holds it: the memory to write into, and the receiver to wake.

use farside_fabric::ring::{Header, MappedChunk, MappedControl, Sender};
use farside_sys::prefetch::prefetch_to_write;

use crate::invoke::payload::Payload;
use crate::runtime::home::Announcer;

/// The distance ahead of the current record at which the ring's cache lines are prefetched. The
/// receiver read them one lap ago, so they are in its cache.
const WRITE_AHEAD_BYTES: usize = 512;

/// The sending side of an open ring.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(super) sender: Sender<MappedChunk, MappedControl>,
    announcer: Announcer,
}

impl Ring {
    pub(crate) fn new(sender: Sender<MappedChunk, MappedControl>, announcer: Announcer) -> Self {
        Self { sender, announcer }
    }

    /// Tells the receiver that a record has arrived.
    #[inline(always)]
    pub(super) fn announce(&self) {
        self.announcer.announce();
    }
}

/// Writes the payload of a record into a chunk.
///
/// # Safety
/// `record_bytes` bytes are reserved at `offset` of `chunk`, and that is the size of a record with
/// this payload.
#[inline(always)]
pub(super) unsafe fn write_payload<P: Payload>(chunk: &MappedChunk, offset: usize, record_bytes: usize, payload: P) {
    let mut at = chunk.address(offset + 8);
    if Header::is_long_for(record_bytes) {
        // SAFETY: a long record's first payload word is inside the reserved bytes, aligned to 8.
        unsafe { at.cast::<u64>().write(record_bytes as u64) };
        at = at.wrapping_add(8);
    }
    // SAFETY: by the contract the payload fits behind the header (and the length of a long record);
    // records are aligned to 8.
    unsafe { payload.write(at) };
    prefetch_to_write(chunk.ahead(offset + WRITE_AHEAD_BYTES));
}

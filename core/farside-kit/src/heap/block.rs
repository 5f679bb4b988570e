//! A block at the initiator, and its name for the peer.

use std::fmt;

use farside::kit::MemoryParts as _;
use farside::{Error, GlobalAddress, RemoteMemory, Wire, Worker};
use farside_launch::kill_point::KillPoint;

use super::error::{HeapError, Result};
use super::layout::{HEADER_BYTES, StampKind, UNIT_BYTES, place_of_bytes};
use super::owner::OwnedBlock;
use super::remote_heap::RemoteHeap;
use super::shadow::{Holder, Taken};

/// A block of a [`RemoteHeap`] at its initiator: a number of bytes at the peer, and as many in the
/// local view.
///
/// Dropping a block frees it without a message. After [`hand_over`](Self::hand_over) the peer frees
/// it. A block has one owner: it cannot be copied, used after it was handed over, or kept longer
/// than its heap.
///
/// ```compile_fail,E0599
/// # use farside_kit::heap::Block;
/// fn in_two_hands<'h>(block: Block<'h>) -> [Block<'h>; 2] {
///     [block.clone(), block]
/// }
/// ```
///
/// ```compile_fail,E0382
/// # use farside_kit::heap::Block;
/// fn used_after_it_was_handed_over(mut block: Block<'_>) {
///     let _name = block.hand_over();
///     let _late = block.put();
/// }
/// ```
///
/// ```compile_fail,E0505
/// # use farside_kit::heap::RemoteHeap;
/// fn beyond_the_heap(heap: RemoteHeap<'_>) -> farside::Result<()> {
///     let block = heap.alloc(10)?;
///     heap.close()?;
///     drop(block);
///     Ok(())
/// }
/// ```
#[must_use = "a block that is dropped is free again"]
pub struct Block<'h> {
    heap: &'h RemoteHeap<'h>,
    start: u32,
    serial: u64,
    bytes: u64,
    /// The kind of the header at the peer, once it was written.
    header: Option<StampKind>,
    /// A write to the block began and did not end.
    is_doubtful: bool,
}

impl<'h> Block<'h> {
    pub(super) fn new(heap: &'h RemoteHeap<'h>, taken: Taken, bytes: u64) -> Self {
        let Taken { start, serial } = taken;
        Self { heap, start, serial, bytes, header: None, is_doubtful: false }
    }

    /// Returns the block's size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the offset of the block's bytes in the heap.
    pub fn offset(&self) -> u64 {
        u64::from(self.start) * UNIT_BYTES + HEADER_BYTES
    }

    /// Returns the local view: memory of this worker, as long as the block. [`put`](Self::put)
    /// writes it to the peer. At first it holds old bytes.
    pub fn local(&self) -> &[u8] {
        let place = self.heap.local().place(self.start + 1, self.bytes as usize);
        // SAFETY: the place lies in the local side of the heap, which outlives the block and is
        // initialised in full. The shadow gives no byte to two blocks at a time, and nothing else
        // reads or writes this block's bytes; they are written through `&mut self` only.
        unsafe { std::slice::from_raw_parts(place.as_ptr(), self.bytes as usize) }
    }

    /// Returns the local view for writing.
    pub fn local_mut(&mut self) -> &mut [u8] {
        let place = self.heap.local().place(self.start + 1, self.bytes as usize);
        // SAFETY: the place lies in the local side of the heap, which outlives the block and is
        // initialised in full. The shadow gives no byte to two blocks at a time, and `&mut self` is
        // the only way to these bytes.
        unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), self.bytes as usize) }
    }

    /// Writes the local view to the peer.
    ///
    /// *Completion*: when it returns, the bytes are visible at the peer to every worker that
    /// learns the name afterwards.
    ///
    /// *Cost*: one put, of the bytes and the block's header.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if the peer is lost; [`Error::Fabric`] if its process does not answer in
    /// time, or the transport fails;
    /// [`MemoryError::Released`](farside::memory::MemoryError::Released) if the heap's memory was
    /// released; [`Error::InHandler`] in a handler, if the memory is not mapped. After an error of
    /// the fabric the bytes may still arrive, so the block's place is never used again.
    pub fn put(&mut self) -> Result<()> {
        if self.header.is_some() {
            return self.put_part(0, self.bytes);
        }
        let stamp = self.stamp(StampKind::Given);
        let header = self.heap.header(stamp, self.bytes).to_bytes();
        let bytes = self.bytes as usize + header.len();
        let place = self.heap.local().place(self.start, bytes);
        // SAFETY: the place holds the header and the bytes of this block in the local side of the
        // heap, which outlives the block and is initialised. The shadow gives no byte of either to
        // two blocks at a time, and `&mut self` is the only way to them.
        let all = unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), bytes) };
        all[..header.len()].copy_from_slice(&header);
        let at = self.heap.layout().header_at(self.start);
        self.across(|heap| heap.far().put(heap.me(), at, all))?;
        self.header = Some(StampKind::Given);
        self.heap.kill_point(KillPoint::HeapBlockPut);
        Ok(())
    }

    /// Writes part of the local view to the peer.
    ///
    /// # Errors
    /// [`HeapError::OutOfRange`] beyond the block. [`Error::PeerLost`] if the peer is lost;
    /// [`Error::Fabric`] if its process does not answer in time, or the transport fails;
    /// [`MemoryError::Released`](farside::memory::MemoryError::Released) if the heap's memory was
    /// released; [`Error::InHandler`] in a handler, if the memory is not mapped. After an error of
    /// the fabric the bytes may still arrive, so the block's place is never used again.
    #[track_caller]
    pub fn put_part(&mut self, offset: u64, bytes: u64) -> Result<()> {
        self.check_inside(offset, bytes)?;
        let at = self.heap.layout().bytes_at(self.start) + offset;
        let local = &self.local()[offset as usize..][..bytes as usize];
        let put = self.heap.far().put(self.heap.me(), at, local);
        self.note_doubt(put.map_err(HeapError::from))
    }

    /// Reads the bytes at the peer into the local view.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if the peer is lost; [`Error::Fabric`] if its process does not answer in
    /// time, or the transport fails;
    /// [`MemoryError::Released`](farside::memory::MemoryError::Released) if the heap's memory was
    /// released; [`Error::InHandler`] in a handler, if the memory is not mapped. The local view is
    /// then unspecified.
    #[track_caller]
    pub fn get(&mut self) -> Result<()> {
        self.get_part(0, self.bytes)
    }

    /// Reads part of the bytes at the peer into the local view.
    ///
    /// # Errors
    /// [`HeapError::OutOfRange`] beyond the block. [`Error::PeerLost`] if the peer is lost;
    /// [`Error::Fabric`] if its process does not answer in time, or the transport fails;
    /// [`MemoryError::Released`](farside::memory::MemoryError::Released) if the heap's memory was
    /// released; [`Error::InHandler`] in a handler, if the memory is not mapped. The local view is
    /// then unspecified.
    #[track_caller]
    pub fn get_part(&mut self, offset: u64, bytes: u64) -> Result<()> {
        self.check_inside(offset, bytes)?;
        let at = self.heap.layout().bytes_at(self.start) + offset;
        let heap = self.heap;
        heap.far().get(heap.me(), at, &mut self.local_mut()[offset as usize..][..bytes as usize])?;
        Ok(())
    }

    /// Returns a name of the block with which the peer may read and write it, but not free it. The
    /// name is valid until the block is dropped or handed over.
    ///
    /// *Cost*: a put of a few bytes, the first time.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if the peer is lost; [`Error::Fabric`] if its process does not answer in
    /// time, or the transport fails;
    /// [`MemoryError::Released`](farside::memory::MemoryError::Released) if the heap's memory was
    /// released; [`Error::InHandler`] in a handler, if the memory is not mapped. After an error of
    /// the fabric the bytes may still arrive, so the block's place is never used again.
    pub fn lend(&mut self) -> Result<RemoteBlock> {
        self.set_header(StampKind::Lent)?;
        Ok(self.name())
    }

    /// Hands the block over to the peer, which is to free it. Returns the name for the peer.
    ///
    /// *Cost*: nothing if the block was [put](Self::put); otherwise a put of a few bytes.
    ///
    /// # Errors
    /// With the block: [`HeapError::SetAside`] after a put that met its deadline.
    /// [`Error::PeerLost`] if the peer is lost; [`Error::Fabric`] if its process does not answer in
    /// time, or the transport fails;
    /// [`MemoryError::Released`](farside::memory::MemoryError::Released) if the heap's memory was
    /// released; [`Error::InHandler`] in a handler, if the memory is not mapped.
    pub fn hand_over(mut self) -> Result<RemoteBlock, NotHandedOver<'h>> {
        let (serial, offset) = (self.serial, u64::from(self.start) * UNIT_BYTES);
        // A late write would hit the next block at this place.
        let sound = if self.is_doubtful { Err(HeapError::SetAside { serial, offset }) } else { Ok(()) };
        if let Err(error) = sound.and_then(|()| self.set_header(StampKind::Given)) {
            return Err(NotHandedOver { block: self, error });
        }
        let name = self.name();
        self.heap.pass_to(self.start, Holder::Peer);
        std::mem::forget(self);
        Ok(name)
    }

    /// Frees the block, as dropping it does.
    pub fn free(self) {}

    fn name(&self) -> RemoteBlock {
        RemoteBlock { heap: *self.heap.far(), start: self.start, serial: self.serial, bytes: self.bytes }
    }

    fn stamp(&self, kind: StampKind) -> u64 {
        self.heap.layout().stamp(self.serial, self.start, kind)
    }

    fn set_header(&mut self, kind: StampKind) -> Result<()> {
        self.heap.check_peer()?;
        if self.header == Some(kind) {
            return Ok(());
        }
        let header = self.heap.header(self.stamp(kind), self.bytes).to_bytes();
        let at = self.heap.layout().header_at(self.start);
        self.across(|heap| heap.far().put(heap.me(), at, &header))?;
        self.header = Some(kind);
        self.heap.kill_point(KillPoint::HeapBlockPut);
        Ok(())
    }

    fn across(&mut self, write: impl FnOnce(&RemoteHeap<'h>) -> Result<(), Error>) -> Result<()> {
        let written = write(self.heap).map_err(HeapError::from);
        self.note_doubt(written)
    }

    fn note_doubt(&mut self, written: Result<()>) -> Result<()> {
        // Any other error means that the write did not begin.
        self.is_doubtful |= matches!(written, Err(HeapError::Job(Error::Deadline { .. } | Error::Fabric(_))));
        written
    }

    fn check_inside(&self, offset: u64, bytes: u64) -> Result<(), HeapError> {
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        is_inside.then_some(()).ok_or(HeapError::OutOfRange { offset, bytes, block_bytes: self.bytes })
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        if self.is_doubtful {
            return self.heap.pass_to(self.start, Holder::Nobody);
        }
        if self.header == Some(StampKind::Lent) && self.heap.is_mapped() {
            // So that the peer detects a name that outlives the block.
            let change = farside::AtomicChange::Swap(0);
            let _ = self.heap.far().atomic64(self.heap.me(), self.heap.layout().header_at(self.start), change);
        }
        self.heap.free(self.start);
    }
}

impl fmt::Debug for Block<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { serial, bytes, .. } = self;
        let offset = self.offset();
        f.debug_struct("Block")
            .field("serial", serial)
            .field("offset", &offset)
            .field("bytes", bytes)
            .finish_non_exhaustive()
    }
}

/// A block that could not be handed over, and the reason. Converting it into an error drops the
/// block.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotHandedOver<'h> {
    /// The block.
    pub block: Block<'h>,
    /// The reason.
    #[source]
    pub error: HeapError,
}

impl From<NotHandedOver<'_>> for HeapError {
    fn from(refused: NotHandedOver<'_>) -> Self {
        refused.error
    }
}

impl From<NotHandedOver<'_>> for Error {
    fn from(refused: NotHandedOver<'_>) -> Self {
        refused.error.into()
    }
}

/// The name of a block of a remote heap: a plain value of 80 bytes, which may travel to the peer by
/// any means.
///
/// The peer of the heap [opens](Self::open) it. Opening checks that the place holds this very
/// block, by a number that no other block of the heap ever has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
#[wire(word = "farside::RemoteBlock")]
pub struct RemoteBlock {
    /// R, the memory at the peer.
    pub(super) heap: RemoteMemory,
    pub(super) start: u32,
    pub(super) serial: u64,
    pub(super) bytes: u64,
}

impl RemoteBlock {
    /// Returns the block's size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the global address of the block's first byte, for access from any process. Such
    /// accesses do not check whether the place still holds this block; only opening the name does.
    ///
    /// # Errors
    /// [`MemoryError::NoAddress`](farside::memory::MemoryError::NoAddress) if the owner has too
    /// many regions; [`HeapError::Stale`] for a damaged name.
    pub fn address(&self) -> Result<GlobalAddress> {
        let Self { heap, start, serial, .. } = *self;
        let stale = HeapError::Stale { serial, offset: u64::from(start) * UNIT_BYTES };
        let inside = place_of_bytes(&heap, start).ok_or(stale)?;
        Ok(heap.address_in_region(inside)?)
    }

    /// Opens the block, to be read in this worker's own memory.
    ///
    /// *Cost*: a load of the block's header; for the first block of a heap also of the heap's
    /// control block. No message.
    ///
    /// # Errors
    /// [`HeapError::Freed`], [`HeapError::Stale`]; [`HeapError::OtherHeap`] in another process than
    /// the peer's, [`HeapError::OtherWorker`] on another worker than the peer;
    /// [`HeapError::Closed`]; [`HeapError::CorruptHeap`];
    /// [`MemoryError::Released`](farside::memory::MemoryError::Released) if the heap is gone;
    /// [`Error::PeerLost`] if its initiator is lost.
    pub fn open(self, me: &Worker) -> Result<OwnedBlock<'_>> {
        OwnedBlock::open(me, self)
    }
}

//! A block in the hands of the initiator, and its name for the peer.

use std::fmt;

use super::error::HeapError;
use super::layout::{HEADER_BYTES, StampKind, UNIT_BYTES, place_of_bytes};
use super::owner::OwnedBlock;
use super::remote_heap::RemoteHeap;
use super::shadow::{Holder, Taken};
use crate::Wire;
use crate::error::{Error, Result};
use crate::global::GlobalAddress;
use crate::memory::RemoteMemory;
use crate::runtime::worker::Worker;
use farside_launch::kill_point::KillPoint;

/// A block of a [`RemoteHeap`], in the hands of the worker that allocated it: so many bytes at the peer, and as many here.
///
/// Dropped, it is free again, and nobody is asked. [Handed over](Self::hand_over) it is the peer's to free. It is in one pair of hands: it cannot be
/// copied, not be used when it was handed over, and not outlive its heap.
///
/// ```compile_fail,E0599
/// # use farside::heap::Block;
/// fn in_two_hands<'h>(block: Block<'h>) -> [Block<'h>; 2] {
///     [block.clone(), block]
/// }
/// ```
///
/// ```compile_fail,E0382
/// # use farside::heap::Block;
/// fn used_after_it_was_handed_over(mut block: Block<'_>) {
///     let _name = block.hand_over();
///     let _late = block.put();
/// }
/// ```
///
/// ```compile_fail,E0505
/// # use farside::heap::RemoteHeap;
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
    /// What its header at the peer says.
    header: Option<StampKind>,
    /// A write to it was begun and never ended.
    is_doubtful: bool,
}

impl<'h> Block<'h> {
    pub(super) fn new(heap: &'h RemoteHeap<'h>, taken: Taken, bytes: u64) -> Self {
        let Taken { start, serial } = taken;
        Self { heap, start, serial, bytes, header: None, is_doubtful: false }
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where in the heap its bytes begin.
    pub fn offset(&self) -> u64 {
        u64::from(self.start) * UNIT_BYTES + HEADER_BYTES
    }

    /// The local view: memory of this worker, as long as the block, which is put across by [`put`](Self::put). At first it
    /// holds what is left from before.
    pub fn local(&self) -> &[u8] {
        let place = self.heap.local().place(self.start + 1, self.bytes as usize);
        // SAFETY: memory of the heap, which outlives the block, and all of it initialised. The shadow gives no byte to two blocks at a time,
        // and nothing else reads or writes it; this block's are written through `&mut self` only.
        unsafe { std::slice::from_raw_parts(place.as_ptr(), self.bytes as usize) }
    }

    /// The local view, to be filled.
    pub fn local_mut(&mut self) -> &mut [u8] {
        let place = self.heap.local().place(self.start + 1, self.bytes as usize);
        // SAFETY: as for `local`, and `&mut self` is the only way to these bytes.
        unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), self.bytes as usize) }
    }

    /// Puts the local view across.
    ///
    /// *Completion*: when it returns, the bytes are visible at the peer to whoever is told of them.
    ///
    /// *Cost*: one put, of the bytes and the block's header.
    ///
    /// # Errors
    /// Those of [`RemoteMemory::put`]. After [`Error::Deadline`] the bytes may still arrive: the block's place is not used again.
    pub fn put(&mut self) -> Result<()> {
        if self.header.is_some() {
            return self.put_part(0, self.bytes);
        }
        let stamp = self.stamp(StampKind::Given);
        let header = self.heap.header(stamp, self.bytes).to_bytes();
        let bytes = self.bytes as usize + header.len();
        let place = self.heap.local().place(self.start, bytes);
        // SAFETY: the header and the bytes of this block, as in `local_mut`.
        let all = unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), bytes) };
        all[..header.len()].copy_from_slice(&header);
        let at = self.heap.layout().header_at(self.start);
        self.across(|heap| heap.far().put(heap.me(), at, all))?;
        self.header = Some(StampKind::Given);
        self.heap.kill_point(KillPoint::HeapBlockPut);
        Ok(())
    }

    /// Puts part of the local view across.
    ///
    /// # Errors
    /// [`HeapError::OutOfRange`], and those of [`put`](Self::put).
    #[track_caller]
    pub fn put_part(&mut self, offset: u64, bytes: u64) -> Result<()> {
        self.check_inside(offset, bytes)?;
        let at = self.heap.layout().bytes_at(self.start) + offset;
        let local = &self.local()[offset as usize..][..bytes as usize];
        let put = self.heap.far().put(self.heap.me(), at, local);
        self.note_doubt(put)
    }

    /// Reads what is at the peer into the local view.
    ///
    /// # Errors
    /// Those of [`RemoteMemory::get`]. What is in the local view then is unspecified.
    #[track_caller]
    pub fn get(&mut self) -> Result<()> {
        self.get_part(0, self.bytes)
    }

    /// Reads part of what is at the peer into the local view.
    ///
    /// # Errors
    /// [`HeapError::OutOfRange`], and those of [`get`](Self::get).
    #[track_caller]
    pub fn get_part(&mut self, offset: u64, bytes: u64) -> Result<()> {
        self.check_inside(offset, bytes)?;
        let at = self.heap.layout().bytes_at(self.start) + offset;
        let heap = self.heap;
        heap.far().get(heap.me(), at, &mut self.local_mut()[offset as usize..][..bytes as usize])
    }

    /// A name of the block for the peer, which may read and write it, and not free it. It ends with the block.
    ///
    /// *Cost*: that of a put of a few bytes, the first time.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn lend(&mut self) -> Result<RemoteBlock> {
        self.set_header(StampKind::Lent)?;
        Ok(self.name())
    }

    /// Hands the block over to the peer, whose it is to free: its name, to be told there.
    ///
    /// *Cost*: nothing more when the block was [put](Self::put); otherwise that of a put of a few bytes.
    ///
    /// # Errors
    /// Those of [`put`](Self::put), with the block; [`HeapError::SetAside`] after a put that met its deadline.
    pub fn hand_over(mut self) -> Result<RemoteBlock, NotHandedOver<'h>> {
        let (serial, offset) = (self.serial, u64::from(self.start) * UNIT_BYTES);
        // Whoever has the place next would get what arrives late.
        let sound = if self.is_doubtful { Err(HeapError::SetAside { serial, offset }.into()) } else { Ok(()) };
        if let Err(error) = sound.and_then(|()| self.set_header(StampKind::Given)) {
            return Err(NotHandedOver { block: self, error });
        }
        let name = self.name();
        self.heap.pass_to(self.start, Holder::Peer);
        std::mem::forget(self);
        Ok(name)
    }

    /// Makes it free again, as dropping it does.
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

    fn across(&mut self, write: impl FnOnce(&RemoteHeap<'h>) -> Result<()>) -> Result<()> {
        let written = write(self.heap);
        self.note_doubt(written)
    }

    fn note_doubt(&mut self, written: Result<()>) -> Result<()> {
        // What was refused was not begun.
        self.is_doubtful |= matches!(written, Err(Error::Deadline { .. } | Error::Fabric(_)));
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
            // So that a name that was kept is noticed.
            let change = crate::AtomicChange::Swap(0);
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

/// A block that could not be handed over, and why. As an error of the library it lets the block go.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotHandedOver<'h> {
    /// The block.
    pub block: Block<'h>,
    /// Why not.
    #[source]
    pub error: Error,
}

impl From<NotHandedOver<'_>> for Error {
    fn from(refused: NotHandedOver<'_>) -> Self {
        refused.error
    }
}

/// The name of a block of a remote heap: a plain value of 80 bytes, to be told to the peer by whatever way.
///
/// [`open`](Self::open) is for the worker that the heap leads to. There it is checked: where the block is said to be there must be that very
/// block, by a number that no other block of the heap ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub struct RemoteBlock {
    /// R.
    pub(super) heap: RemoteMemory,
    pub(super) start: u32,
    pub(super) serial: u64,
    pub(super) bytes: u64,
}

impl RemoteBlock {
    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The global address of its first byte, for access by whoever has it. Such accesses do not look whether the block is still the one
    /// of this name: that is noticed only by the name.
    ///
    /// # Errors
    /// [`Error::NoAddress`], as for [`RemoteMemory::address`]; [`HeapError::Stale`] for a name that is damaged.
    pub fn address(&self) -> Result<GlobalAddress> {
        let Self { heap, start, serial, .. } = *self;
        let stale = HeapError::Stale { serial, offset: u64::from(start) * UNIT_BYTES };
        let inside = place_of_bytes(&heap, start).ok_or(stale)?;
        GlobalAddress::in_region(heap.key, inside).ok_or(Error::no_address(heap.key))
    }

    /// The block, to be read in this worker's own memory.
    ///
    /// *Cost*: a look at its header; for the first block of a heap also at what the heap begins with. No message.
    ///
    /// # Errors
    /// [`HeapError::Freed`], [`HeapError::Stale`]; [`HeapError::OtherHeap`] in a process that the heap does not lead to,
    /// [`HeapError::OtherWorker`] on another worker; [`HeapError::Closed`]; [`HeapError::CorruptHeap`];
    /// [`Error::MemoryReleased`] when the heap is gone; [`Error::PeerLost`] when its initiator is.
    pub fn open(self, me: &Worker) -> Result<OwnedBlock<'_>> {
        OwnedBlock::open(me, self)
    }
}

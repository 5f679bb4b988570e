//! The peer's end of a heap: it opens blocks in its own memory, frees them, and reports what it has
//! freed.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};

use farside::kit::{MemoryParts as _, Process, Room, Seed, WorkerParts as _};
use farside::memory::RemoteMemory;
use farside::wire::{self, Decoder};
use farside::{AtomicChange, Reply, Wire, Worker};
use farside_fabric::clock::lock;
use farside_fabric::transport::Operation;
use farside_fabric::{ProcessId, WorkerId};
use farside_launch::kill_point::KillPoint;

use super::block::RemoteBlock;
use super::error::{HeapError, Result};
use super::layout::{CONTROL_BYTES, Control, HEADER_BYTES, Header, Layout, StampKind, TAKEN_AT, UNIT_BYTES, units_of};
use super::remote_heap::WHEN_FULL;
use super::tags::{self, FreedTags, Tag};

/// The room of remote heaps. It has no state in a process and no messages of its own.
#[derive(Debug)]
pub(crate) struct Heaps;

impl Room for Heaps {
    const TAG: u8 = 4;

    type Message = ();

    type Local = OwnedHeaps;

    fn new(_: &Seed<'_>) -> Self {
        Self
    }

    fn local(&self, _: &Arc<Process>, _: usize) -> OwnedHeaps {
        OwnedHeaps::default()
    }
}

/// The heaps of other workers of which this worker has opened a block.
#[derive(Debug, Default)]
pub(crate) struct OwnedHeaps {
    by_memory: RefCell<HashMap<RemoteMemory, Rc<OwnedHeap>>>,
    /// The callback for losses is registered.
    listens: Cell<bool>,
}

/// A heap as its peer knows it.
struct OwnedHeap {
    far: RemoteMemory,
    control: Control,
    initiator_process: ProcessId,
    layout: Layout,
    freed: RefCell<FreedTags>,
    /// The number of the last list sent.
    sent: Cell<u64>,
    /// The number of the last list that the initiator is known to have applied.
    taken: Cell<u64>,
    landing: Arc<Landing>,
    /// The initiator waits for the next freed block.
    is_awaited: Cell<bool>,
    is_closed: Cell<bool>,
}

impl OwnedHeaps {
    fn find(&self, far: &RemoteMemory) -> Option<Rc<OwnedHeap>> {
        self.by_memory.borrow().get(far).cloned()
    }

    fn find_or_open(&self, me: &Worker, far: &RemoteMemory) -> Result<Rc<OwnedHeap>> {
        if let Some(heap) = self.find(far) {
            return Ok(heap);
        }
        let heap = Rc::new(OwnedHeap::open(me, far)?);
        if !self.listens.replace(true) {
            me.when_lost(|me, process| me.room::<Heaps>().lose(process));
        }
        self.by_memory.borrow_mut().insert(*far, heap.clone());
        Ok(heap)
    }

    /// Drops the heaps of a lost process. Their memory is already released.
    fn lose(&self, process: ProcessId) {
        self.by_memory.borrow_mut().retain(|_, heap| heap.initiator_process != process);
    }
}

/// Counts the lists of one heap that are in transit. At zero, this process no longer writes to the
/// initiator's memory.
#[derive(Debug, Default)]
struct Landing(Mutex<Underway>);

#[derive(Debug, Default)]
struct Underway {
    lists: u64,
    /// The reply to send when the last list has arrived. If none ever does, it is dropped, which
    /// answers with an error.
    waits: Option<Reply<()>>,
}

impl Landing {
    fn begin(&self) {
        lock(&self.0).lists += 1;
    }

    /// Notes that a list has arrived.
    fn end(&self) {
        let mut underway = lock(&self.0);
        underway.lists -= 1;
        let told = if underway.lists == 0 { underway.waits.take() } else { None };
        drop(underway);
        if let Some(told) = told {
            told.send(());
        }
    }

    /// Answers when no list is in transit.
    fn answer_at_the_end(&self, reply: Reply<()>) {
        let mut underway = lock(&self.0);
        if underway.lists > 0 {
            underway.waits = Some(reply);
            return;
        }
        drop(underway);
        reply.send(());
    }
}

/// Reads the control block at the beginning of a heap's memory.
fn control_of(me: &Worker, far: &RemoteMemory) -> Result<Control> {
    let mut control = [0; CONTROL_BYTES as usize];
    far.look(me, 0, &mut control)?;
    let control = wire::decode::<Control>(Decoder::new(&control).within(me), control.len());
    control.map_err(|_| HeapError::CorruptHeap)
}

/// Marks a heap whose memory is never released as closed, for workers that still have a name of one
/// of its blocks. A heap without units is closed.
fn close_for_good(me: &Worker, far: &RemoteMemory) -> Result<()> {
    let control = Control { units: 0, ..control_of(me, far)? };
    Ok(far.put(me, 0, &control.to_bytes())?)
}

impl OwnedHeap {
    /// Opens the heap from the control block in its memory.
    fn open(me: &Worker, far: &RemoteMemory) -> Result<Self> {
        let control = control_of(me, far)?;
        let layout = Layout::new(far, control.units);
        let (initiator_process, _) =
            me.process_handle().job.place_of(control.initiator).ok_or(HeapError::CorruptHeap)?;
        let is_sound = layout.fits(far) && control.shape.fits(control.tray.bytes());
        if control.tray.process() != initiator_process || !is_sound {
            return Err(HeapError::CorruptHeap);
        }
        if control.units == 0 {
            return Err(HeapError::Closed { initiator: control.initiator });
        }
        if control.owner != me.id() {
            return Err(HeapError::OtherWorker { owner: control.owner, here: me.id() });
        }
        Ok(Self {
            far: *far,
            control,
            initiator_process,
            layout,
            freed: RefCell::default(),
            sent: Cell::new(0),
            taken: Cell::new(0),
            landing: Arc::default(),
            is_awaited: Cell::new(false),
            is_closed: Cell::new(false),
        })
    }

    /// Returns an error if the initiator is lost or the heap is closed.
    fn check(&self, me: &Worker) -> Result<()> {
        if let Some(lost) = me.process_handle().losses.lost(self.initiator_process) {
            return Err(lost.into());
        }
        if self.is_closed.get() {
            return Err(HeapError::Closed { initiator: self.control.initiator });
        }
        Ok(())
    }

    fn header_of(&self, me: &Worker, start: u32) -> Result<Header> {
        let mut header = [0; HEADER_BYTES as usize];
        self.far.look(me, self.layout.header_at(start), &mut header)?;
        Ok(Header::from_bytes(header))
    }

    /// Notes that the initiator has applied this list and all before it.
    fn note_taken(&self, taken: u64) {
        // Older numbers may arrive late, and a number that was never sent is wrong.
        if taken <= self.sent.get() {
            self.taken.set(self.taken.get().max(taken));
        }
    }

    /// Like [`note_taken`](Self::note_taken), from the lower half of the number in a header.
    fn note_taken_of(&self, header: Header) {
        // The initiator is fewer than 2^32 lists behind, so the lower half is enough.
        let behind = (self.sent.get() as u32).wrapping_sub(header.taken);
        self.note_taken(self.sent.get().saturating_sub(behind.into()));
    }

    /// Adds a freed block to the tags, and reports them if it is time.
    ///
    /// # Errors
    /// [`HeapError::CorruptHeap`].
    fn collect(&self, me: &Worker, block: Tag) -> Result<(), HeapError> {
        let is_due = {
            let mut freed = self.freed.borrow_mut();
            // Blocks do not overlap, and the compare-and-swap of the header lets each be freed
            // once. So a failure means that a third party overwrote the memory.
            if !freed.add(block) {
                return Err(HeapError::CorruptHeap);
            }
            freed.blocks_since >= self.control.batch.into() || freed.units >= u64::from(self.control.units / 4)
        };
        if is_due || self.is_awaited.get() {
            self.tell(me);
        }
        Ok(())
    }

    /// Puts lists of freed blocks into the initiator's memory, as many as there is room for. Does
    /// not wait.
    fn tell(&self, me: &Worker) {
        let Control { tray, shape, .. } = self.control;
        // An initiator that has this memory mapped stores the number here; otherwise it is 0. The
        // word is in this process, so the load does not wait.
        if let Ok(taken) = self.far.atomic64(me, TAKEN_AT, AtomicChange::Load) {
            self.note_taken(taken);
        }
        while !self.freed.borrow().is_empty() && self.sent.get() - self.taken.get() < shape.slots.into() {
            let told = self.freed.borrow_mut().take(shape.slot_tags as usize);
            let sequence = self.sent.get() + 1;
            self.sent.set(sequence);
            self.is_awaited.set(false);
            let data = tags::encode(&self.layout, sequence, &told);
            let process = me.process_handle();
            process.kill_point(KillPoint::HeapTagsMade);
            // SYNC: pairs with the acquire fence in `RemoteHeap::take_list`: this worker's reads of
            // the blocks come before the list that reports them.
            fence(Ordering::Release);
            let landing = self.landing.clone();
            landing.begin();
            let put = Operation::Put { offset: shape.offset_of(sequence), data };
            process.accesses.end();
            tray.change_soon(process, put, move |process| {
                landing.end();
                process.kill_point(KillPoint::HeapTagsPut);
            });
        }
    }
}

impl fmt::Debug for OwnedHeap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedHeap").field("control", &self.control).finish_non_exhaustive()
    }
}

/// A block of a remote heap in the memory of this worker's process, made by [`RemoteBlock::open`].
///
/// The initiator may still write to the block, so it is never a slice: methods copy bytes in and
/// out.
///
/// Dropping it does nothing, and the name can be opened again. A handed-over block must be
/// [freed](Self::free) once.
#[must_use = "a block that was handed over is freed with `free`"]
#[derive(Debug)]
pub struct OwnedBlock<'w> {
    me: &'w Worker,
    heap: Rc<OwnedHeap>,
    name: RemoteBlock,
}

impl<'w> OwnedBlock<'w> {
    pub(super) fn open(me: &'w Worker, name: RemoteBlock) -> Result<Self> {
        if name.heap.process() != me.process() {
            return Err(HeapError::OtherHeap);
        }
        let heap = me.room::<Heaps>().find_or_open(me, &name.heap)?;
        let block = Self { me, heap, name };
        let header = block.check()?;
        block.heap.note_taken_of(header);
        me.process_handle().kill_point(KillPoint::HeapBlockOpened);
        Ok(block)
    }

    /// Returns the block's size.
    pub fn bytes(&self) -> u64 {
        self.name.bytes
    }

    /// Returns the block's name.
    pub fn name(&self) -> RemoteBlock {
        self.name
    }

    /// Returns the initiator of the block's heap.
    pub fn initiator(&self) -> WorkerId {
        self.heap.control.initiator
    }

    /// Fills `data` with the bytes from `offset` on.
    ///
    /// *Cost*: a copy, and a load of the block's header.
    ///
    /// # Errors
    /// [`HeapError::OutOfRange`] beyond the block. [`HeapError::Freed`] or [`HeapError::Stale`] for
    /// a name of no such block; [`HeapError::OtherHeap`] in another process than the peer's,
    /// [`HeapError::OtherWorker`] on another worker than the peer; [`HeapError::Closed`] or
    /// [`HeapError::CorruptHeap`] for such a heap;
    /// [`MemoryError::Released`](farside::memory::MemoryError::Released) if the heap is gone;
    /// [`Error::PeerLost`](farside::Error::PeerLost) if its initiator is lost. `data` is then
    /// unspecified.
    #[track_caller]
    pub fn read_at(&self, offset: u64, data: &mut [u8]) -> Result<()> {
        let at = self.inside(offset, data.len())?;
        self.check()?;
        Ok(self.heap.far.get(self.me, at, data)?)
    }

    /// Writes `data` at `offset`, for the initiator to [get](super::Block::get).
    ///
    /// # Errors
    /// [`HeapError::OutOfRange`] beyond the block. [`HeapError::Freed`] or [`HeapError::Stale`] for
    /// a name of no such block; [`HeapError::OtherHeap`] in another process than the peer's,
    /// [`HeapError::OtherWorker`] on another worker than the peer; [`HeapError::Closed`] or
    /// [`HeapError::CorruptHeap`] for such a heap;
    /// [`MemoryError::Released`](farside::memory::MemoryError::Released) if the heap is gone;
    /// [`Error::PeerLost`](farside::Error::PeerLost) if its initiator is lost.
    #[track_caller]
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let at = self.inside(offset, data.len())?;
        self.check()?;
        Ok(self.heap.far.put(self.me, at, data)?)
    }

    /// Returns a copy of the whole block.
    ///
    /// # Errors
    /// [`HeapError::Freed`] or [`HeapError::Stale`] for a name of no such block;
    /// [`HeapError::OtherHeap`] in another process than the peer's, [`HeapError::OtherWorker`] on
    /// another worker than the peer; [`HeapError::Closed`] or [`HeapError::CorruptHeap`] for such a
    /// heap; [`MemoryError::Released`](farside::memory::MemoryError::Released) if the heap is gone;
    /// [`Error::PeerLost`](farside::Error::PeerLost) if its initiator is lost.
    #[track_caller]
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut data = vec![0; self.name.bytes as usize];
        self.read_at(0, &mut data)?;
        Ok(data)
    }

    /// Frees the block. The heap's synchronisation decides when the initiator learns of it.
    ///
    /// *Cost*: an atomic change of a word of this process, and a tree operation; now and then a put
    /// of a list to the initiator. Does not wait; handlers may call it.
    ///
    /// # Errors
    /// [`HeapError::Freed`], also if the initiator has taken the block back; [`HeapError::Lent`];
    /// [`HeapError::Stale`] for a name of no such block; [`HeapError::Closed`] or
    /// [`HeapError::CorruptHeap`] for such a heap;
    /// [`MemoryError::Released`](farside::memory::MemoryError::Released) if the heap is gone;
    /// [`Error::PeerLost`](farside::Error::PeerLost) if its initiator is lost.
    pub fn free(self) -> Result<()> {
        let Self { me, heap, name } = &self;
        heap.check(me)?;
        let header = self.check()?;
        let [given, lent] = [StampKind::Given, StampKind::Lent].map(|kind| self.stamp(kind));
        if header.stamp == lent {
            let initiator = heap.control.initiator;
            return Err(HeapError::Lent { serial: name.serial, offset: self.offset(), initiator });
        }
        // The initiator may be taking the block back at this moment. The end whose compare-and-swap
        // succeeds owns the block.
        let change = AtomicChange::CompareSwap { expected: given, new: 0 };
        if heap.far.atomic64(me, heap.layout.header_at(name.start), change)? != given {
            return Err(HeapError::Freed { serial: name.serial, offset: self.offset() });
        }
        me.process_handle().kill_point(KillPoint::HeapBlockFreed);
        heap.collect(me, Tag { start: name.start, units: header.units + 1, marks: given })
    }

    fn offset(&self) -> u64 {
        u64::from(self.name.start) * UNIT_BYTES
    }

    fn stamp(&self, kind: StampKind) -> u64 {
        self.heap.layout.stamp(self.name.serial, self.name.start, kind)
    }

    /// Checks that the place still holds the block of this name.
    fn check(&self) -> Result<Header> {
        self.heap.check(self.me)?;
        let RemoteBlock { start, serial, bytes, .. } = self.name;
        let stale = HeapError::Stale { serial, offset: self.offset() };
        let end = u64::from(start).checked_add(1).and_then(|first| first.checked_add(units_of(bytes)));
        if end.is_none_or(|end| end > self.heap.layout.units.into()) {
            return Err(stale);
        }
        let header = self.heap.header_of(self.me, start)?;
        let is = |kind| header.stamp == self.stamp(kind);
        if header.stamp == 0 || is(StampKind::TakenBack) {
            return Err(HeapError::Freed { serial, offset: self.offset() });
        }
        let is_one = is(StampKind::Given) || is(StampKind::Lent);
        if is_one && u64::from(header.units) == units_of(bytes) { Ok(header) } else { Err(stale) }
    }

    fn inside(&self, offset: u64, bytes: usize) -> Result<u64, HeapError> {
        let (bytes, block_bytes) = (bytes as u64, self.name.bytes);
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= block_bytes);
        let at = self.heap.layout.bytes_at(self.name.start) + offset.min(block_bytes);
        is_inside.then_some(at).ok_or(HeapError::OutOfRange { offset, bytes, block_bytes })
    }
}

#[cfg(test)]
impl OwnedBlock<'_> {
    /// Makes a faulty peer claim that it has sent `lists` lists.
    pub(super) fn pretend_to_have_sent(&self, lists: u64) {
        self.heap.sent.set(lists);
    }

    /// Makes a faulty peer claim that it has freed more than it reports.
    pub(super) fn pretend_to_have_more(&self, units: u64) {
        self.heap.freed.borrow_mut().units = units;
    }
}

/// The question of an initiator whose heap is exhausted.
#[derive(Clone, Copy, Debug, Wire)]
pub(super) struct Question {
    pub(super) heap: RemoteMemory,
    /// The number of the last list applied.
    pub(super) taken: u64,
    /// If the peer has nothing to report: whether it is to report the next freed block at once.
    pub(super) keep_telling: bool,
}

/// The peer's answer.
#[derive(Clone, Copy, Debug, Default, Wire)]
pub(super) struct Collected {
    /// The number of the last list sent.
    pub(super) sent: u64,
    /// The bytes of freed blocks that are in no list.
    pub(super) left_bytes: u64,
}

/// Runs at the peer: reports all freed blocks.
pub(super) fn answer(there: &Worker, question: Question) -> Collected {
    // Opens the heap if this worker has opened no block of it, so that a waiting initiator also
    // learns of the first one.
    let Ok(heap) = there.room::<Heaps>().find_or_open(there, &question.heap) else { return Collected::default() };
    heap.note_taken(question.taken);
    heap.is_awaited.set(question.keep_telling);
    heap.tell(there);
    let left_bytes = heap.freed.borrow().units * UNIT_BYTES;
    Collected { sent: heap.sent.get(), left_bytes }
}

#[derive(Clone, Copy, Debug, Wire)]
struct Closing {
    heap: RemoteMemory,
    keeps_memory: bool,
}

/// Runs at the peer: releases the memory. Replies once this process no longer writes to the
/// initiator's memory.
fn end(there: &Worker, closing: Closing, reply: Reply<()>) {
    // The memory is in this process, so nothing here waits. It may be released already.
    let _ = match closing.keeps_memory {
        true => close_for_good(there, &closing.heap),
        false => there.release(closing.heap).map_err(HeapError::from),
    };
    let heap = there.room::<Heaps>().by_memory.borrow_mut().remove(&closing.heap);
    match heap {
        None => reply.send(()),
        Some(heap) => {
            heap.is_closed.set(true);
            heap.landing.answer_at_the_end(reply);
        }
    }
}

/// Closes a heap from the initiator's side. Does not wait: it continues when the peer has replied.
pub(super) fn close(me: &Worker, peer: WorkerId, heap: RemoteMemory, tray: RemoteMemory, keeps_memory: bool) {
    let to_peer = me.to(peer).when_full(WHEN_FULL);
    // If the peer cannot be asked or never replies, the tray stays allocated, because the peer may
    // still write to it.
    let Ok(asked) = to_peer.call_with_reply(Closing { heap, keeps_memory }, end) else { return };
    asked.then(move |me, quiet| {
        if quiet.is_ok() {
            let _ = me.release(tray);
        }
    });
}

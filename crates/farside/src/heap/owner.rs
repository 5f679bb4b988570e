//! The peer's end: it opens blocks in its own memory, frees them, and tells what it has freed.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};

use farside_fabric::transport::Operation;
use farside_fabric::{ProcessId, WorkerId};

use super::block::RemoteBlock;
use super::error::HeapError;
use super::layout::{CONTROL_BYTES, Control, HEADER_BYTES, Header, Layout, StampKind, TAKEN_AT, UNIT_BYTES, units_of};
use super::remote_heap::WHEN_FULL;
use super::tags::{self, FreedTags, Tag};
use crate::error::Result;
use crate::invoke::reply::Reply;
use crate::job::kill_point::KillPoint;
use crate::job::process::lock;
use crate::job::worker::Worker;
use crate::memory::RemoteMemory;
use crate::wire::{self, Decoder};
use crate::{AtomicChange, Wire};

/// The heaps of others that lead to a worker, and of which it has opened a block.
#[derive(Debug, Default)]
pub(crate) struct OwnedHeaps {
    by_memory: RefCell<HashMap<RemoteMemory, Rc<OwnedHeap>>>,
    /// It will hear of losses.
    listens: Cell<bool>,
}

/// One of them.
struct OwnedHeap {
    far: RemoteMemory,
    control: Control,
    initiator_process: ProcessId,
    layout: Layout,
    freed: RefCell<FreedTags>,
    /// The last list that was sent.
    sent: Cell<u64>,
    /// The last that the initiator has taken, as far as is known here.
    taken: Cell<u64>,
    landing: Arc<Landing>,
    /// The initiator waits for whatever is freed.
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
            me.when_lost(|me, process| me.owned_heaps().lose(process));
        }
        self.by_memory.borrow_mut().insert(*far, heap.clone());
        Ok(heap)
    }

    /// Forgets the heaps of a process that is gone: their memory is given back by now.
    fn lose(&self, process: ProcessId) {
        self.by_memory.borrow_mut().retain(|_, heap| heap.initiator_process != process);
    }
}

/// The lists of one heap that are under way. When none is, nothing is written to the initiator's memory any more.
#[derive(Debug, Default)]
struct Landing(Mutex<Underway>);

#[derive(Debug, Default)]
struct Underway {
    lists: u64,
    /// Who wants to know when the last has arrived. If it never does this is dropped, which is an answer, too.
    waits: Option<Reply<()>>,
}

impl Landing {
    fn begin(&self) {
        lock(&self.0).lists += 1;
    }

    /// One has arrived.
    fn end(&self) {
        let mut underway = lock(&self.0);
        underway.lists -= 1;
        let told = if underway.lists == 0 { underway.waits.take() } else { None };
        drop(underway);
        if let Some(told) = told {
            told.send(());
        }
    }

    /// Answers as soon as all have.
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

/// What the memory of a heap begins with.
fn control_of(me: &Worker, far: &RemoteMemory) -> Result<Control> {
    let mut control = [0; CONTROL_BYTES as usize];
    far.look(me, 0, &mut control)?;
    let control = wire::decode::<Control>(Decoder::new(&control).within(me), control.len());
    Ok(control.map_err(|_| HeapError::CorruptHeap)?)
}

/// Leaves word in memory that is kept for good, for whoever has a name of a block there: a heap without units is closed.
fn close_for_good(me: &Worker, far: &RemoteMemory) -> Result<()> {
    let control = Control { units: 0, ..control_of(me, far)? };
    far.put(me, 0, &control.to_bytes())
}

impl OwnedHeap {
    /// Finds out from the memory itself what heap it is.
    fn open(me: &Worker, far: &RemoteMemory) -> Result<Self> {
        let control = control_of(me, far)?;
        let layout = Layout::new(far, control.units);
        let (initiator_process, _) = me.process_handle().place_of(control.initiator).ok_or(HeapError::CorruptHeap)?;
        let is_sound = layout.fits(far) && control.shape.fits(control.tray.bytes());
        if control.tray.process() != initiator_process || !is_sound {
            return Err(HeapError::CorruptHeap.into());
        }
        if control.units == 0 {
            return Err(HeapError::Closed { initiator: control.initiator }.into());
        }
        if control.owner != me.id() {
            return Err(HeapError::OtherWorker { owner: control.owner, here: me.id() }.into());
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

    /// Whether there is still anything to be had of it.
    fn check(&self, me: &Worker) -> Result<()> {
        if let Some(lost) = me.process_handle().lost(self.initiator_process) {
            return Err(lost);
        }
        if self.is_closed.get() {
            return Err(HeapError::Closed { initiator: self.control.initiator }.into());
        }
        Ok(())
    }

    fn header_of(&self, me: &Worker, start: u32) -> Result<Header> {
        let mut header = [0; HEADER_BYTES as usize];
        self.far.look(me, self.layout.header_at(start), &mut header)?;
        Ok(Header::from_bytes(header))
    }

    /// The initiator has taken this list, and all before.
    fn note_taken(&self, taken: u64) {
        // Older news may come late; and nobody takes what was not sent.
        if taken <= self.sent.get() {
            self.taken.set(self.taken.get().max(taken));
        }
    }

    /// As [`note_taken`](Self::note_taken), of the lower half of the number.
    fn note_taken_of(&self, header: Header) {
        // At most half of them behind what was sent.
        let behind = (self.sent.get() as u32).wrapping_sub(header.taken);
        self.note_taken(self.sent.get().saturating_sub(behind.into()));
    }

    /// Notes a block that was freed, and tells of it if it is time.
    ///
    /// # Errors
    /// [`HeapError::CorruptHeap`].
    fn collect(&self, me: &Worker, block: Tag) -> Result<(), HeapError> {
        let is_due = {
            let mut freed = self.freed.borrow_mut();
            // Blocks do not overlap, and are freed once: who has changed the header has the block. Unless somebody else wrote that.
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

    /// Puts lists of what was freed into the initiator's memory, as many as there is room for. Waits for nothing.
    fn tell(&self, me: &Worker) {
        let Control { tray, shape, .. } = self.control;
        // What is stored here by one who has this memory mapped; otherwise 0. It is this process's own: nothing is waited for.
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
            // SYNC: pairs with the acquire fence in `RemoteHeap::take_list`: what was read of the blocks was read before they are told of.
            fence(Ordering::Release);
            let landing = self.landing.clone();
            landing.begin();
            let put = Operation::Put { offset: shape.offset_of(sequence), data };
            process.end_accesses();
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

/// A block of a remote heap in the memory of this worker's process, opened by its name ([`RemoteBlock::open`]).
///
/// Its initiator may still write to it. So there are no slices of it: bytes are copied in and out.
///
/// Dropped, it stays as it is, and can be opened again. One that was handed over is to be [freed](Self::free) once.
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
            return Err(HeapError::OtherHeap.into());
        }
        let heap = me.owned_heaps().find_or_open(me, &name.heap)?;
        let block = Self { me, heap, name };
        let header = block.check()?;
        block.heap.note_taken_of(header);
        me.process_handle().kill_point(KillPoint::HeapBlockOpened);
        Ok(block)
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.name.bytes
    }

    /// Its name.
    pub fn name(&self) -> RemoteBlock {
        self.name
    }

    /// Whose heap it is of.
    pub fn initiator(&self) -> WorkerId {
        self.heap.control.initiator
    }

    /// Reads from `offset` on, as much as `data` has room for.
    ///
    /// *Cost*: a copy, and a look at the block's header.
    ///
    /// # Errors
    /// [`HeapError::OutOfRange`], and those of [`RemoteBlock::open`]. What is in `data` then is unspecified.
    #[track_caller]
    pub fn read_at(&self, offset: u64, data: &mut [u8]) -> Result<()> {
        let at = self.inside(offset, data.len())?;
        self.check()?;
        self.heap.far.get(self.me, at, data)
    }

    /// Writes `data` from `offset` on, for the initiator to [get](super::Block::get).
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at).
    #[track_caller]
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let at = self.inside(offset, data.len())?;
        self.check()?;
        self.heap.far.put(self.me, at, data)
    }

    /// A copy of all of it.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at).
    #[track_caller]
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut data = vec![0; self.name.bytes as usize];
        self.read_at(0, &mut data)?;
        Ok(data)
    }

    /// Frees it: this worker has done with it. Its initiator hears of it as the heap's synchronisation says.
    ///
    /// *Cost*: an atomic change of a word of this process, and a place in a tree; now and then a put of a list to the initiator. Waits
    /// for nothing, and may be used in handlers.
    ///
    /// # Errors
    /// [`HeapError::Freed`], also when the initiator has taken it back; [`HeapError::Lent`]; and those of [`RemoteBlock::open`].
    pub fn free(self) -> Result<()> {
        let Self { me, heap, name } = &self;
        heap.check(me)?;
        let header = self.check()?;
        let [given, lent] = [StampKind::Given, StampKind::Lent].map(|kind| self.stamp(kind));
        if header.stamp == lent {
            let initiator = heap.control.initiator;
            return Err(HeapError::Lent { serial: name.serial, offset: self.offset(), initiator }.into());
        }
        // The initiator may take it back at this moment. Whoever changes the word has the block.
        let change = AtomicChange::CompareSwap { expected: given, new: 0 };
        if heap.far.atomic64(me, heap.layout.header_at(name.start), change)? != given {
            return Err(HeapError::Freed { serial: name.serial, offset: self.offset() }.into());
        }
        me.process_handle().kill_point(KillPoint::HeapBlockFreed);
        Ok(heap.collect(me, Tag { start: name.start, units: header.units + 1, marks: given })?)
    }

    fn offset(&self) -> u64 {
        u64::from(self.name.start) * UNIT_BYTES
    }

    fn stamp(&self, kind: StampKind) -> u64 {
        self.heap.layout.stamp(self.name.serial, self.name.start, kind)
    }

    /// Looks whether the block is still the one of the name.
    fn check(&self) -> Result<Header> {
        self.heap.check(self.me)?;
        let RemoteBlock { start, serial, bytes, .. } = self.name;
        let stale = HeapError::Stale { serial, offset: self.offset() };
        let end = u64::from(start).checked_add(1).and_then(|first| first.checked_add(units_of(bytes)));
        if end.is_none_or(|end| end > self.heap.layout.units.into()) {
            return Err(stale.into());
        }
        let header = self.heap.header_of(self.me, start)?;
        let is = |kind| header.stamp == self.stamp(kind);
        if header.stamp == 0 || is(StampKind::TakenBack) {
            return Err(HeapError::Freed { serial, offset: self.offset() }.into());
        }
        let is_one = is(StampKind::Given) || is(StampKind::Lent);
        if is_one && u64::from(header.units) == units_of(bytes) { Ok(header) } else { Err(stale.into()) }
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
    /// Has a peer that is faulty say that it has sent so many lists.
    pub(super) fn pretend_to_have_sent(&self, lists: u64) {
        self.heap.sent.set(lists);
    }

    /// Has it say that it has freed more than it tells of.
    pub(super) fn pretend_to_have_more(&self, units: u64) {
        self.heap.freed.borrow_mut().units = units;
    }
}

/// What an initiator asks when its heap is exhausted.
#[derive(Clone, Copy, Debug, Wire)]
pub(super) struct Question {
    pub(super) heap: RemoteMemory,
    /// The last list that it has taken.
    pub(super) taken: u64,
    /// If there is nothing to tell: to be told as soon as there is.
    pub(super) keep_telling: bool,
}

/// The answer.
#[derive(Clone, Copy, Debug, Default, Wire)]
pub(super) struct Collected {
    /// The last list that was sent.
    pub(super) sent: u64,
    /// Of blocks that are freed, and in no list.
    pub(super) left_bytes: u64,
}

/// Runs at the peer: tells all that was freed.
pub(super) fn answer(there: &Worker, question: Question) -> Collected {
    // It is opened for this if no block of it was before: whoever waits is told of the first one, too.
    let Ok(heap) = there.owned_heaps().find_or_open(there, &question.heap) else { return Collected::default() };
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

/// Runs at the peer: gives the memory back. It answers when nothing will be written to the initiator's memory any more.
fn end(there: &Worker, closing: Closing, reply: Reply<()>) {
    // What is this process's own waits for nothing. It may be given back already.
    let _ = match closing.keeps_memory {
        true => close_for_good(there, &closing.heap),
        false => there.release(closing.heap),
    };
    let heap = there.owned_heaps().by_memory.borrow_mut().remove(&closing.heap);
    match heap {
        None => reply.send(()),
        Some(heap) => {
            heap.is_closed.set(true);
            heap.landing.answer_at_the_end(reply);
        }
    }
}

/// Closes a heap, from the initiator's side. Waits for nothing: it goes on when the peer has answered.
pub(super) fn close(me: &Worker, peer: WorkerId, heap: RemoteMemory, tray: RemoteMemory, keeps_memory: bool) {
    let to_peer = me.to(peer).when_full(WHEN_FULL);
    // What cannot be asked, or is never answered, leaves the lists' memory out of use: somebody may still write to it.
    let Ok(asked) = to_peer.call_with_reply(Closing { heap, keeps_memory }, end) else { return };
    asked.then(move |me, quiet| {
        if quiet.is_ok() {
            let _ = me.release(tray);
        }
    });
}

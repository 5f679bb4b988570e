//! The initiator's end.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use farside_fabric::{ProcessId, WorkerId};

use super::block::{Block, RemoteBlock};
use super::error::HeapError;
use super::layout::{
    ALIGN_MAX, CONTROL_BYTES, Control, HEAP_BYTES_MAX, Header, Layout, StampKind, UNIT_BYTES, far_bytes, units_of,
};
use super::local::LocalMemory;
use super::options::{HeapOptions, Space};
use super::owner::{self, Collected, Question};
use super::report::HeapReport;
use super::shadow::{Holder, Shadow};
use super::tags;
use crate::error::Result;
use crate::invoke::call::WhenFull;
use crate::job::kill_point::KillPoint;
use crate::job::worker::Worker;
use crate::memory::RemoteMemory;
use crate::wire;
use crate::{AtomicChange, Error};

/// A heap in the memory of another worker's process, from which this worker allocates without asking there.
///
/// See the [module](super) for how it is used. It belongs to the worker that opened it: it cannot be sent to another thread or shared
/// with one, so nobody else ever allocates from this memory.
///
/// Dropped, it gives the memory back, whatever is in it: the peer is told so, and from then on gets
/// [`HeapError::Closed`] for blocks that it has not freed. [`close`](Self::close) waits for them first.
pub struct RemoteHeap<'w> {
    me: &'w Worker,
    peer: WorkerId,
    /// R.
    far: RemoteMemory,
    is_mapped: bool,
    /// Where the peer puts lists of what it has freed.
    tray: RemoteMemory,
    tray_tags: usize,
    layout: Layout,
    options: HeapOptions,
    /// L.
    local: LocalMemory,
    books: RefCell<Books>,
}

struct Books {
    /// S.
    shadow: Shadow,
    /// The last list that was taken.
    taken: u32,
    counts: Counts,
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) allocations: u64,
    pub(super) refusals: u64,
    pub(super) lists: u64,
    pub(super) tags: u64,
    pub(super) freed_by_peer: u64,
    pub(super) questions: u64,
}

impl<'w> RemoteHeap<'w> {
    /// A heap in the process of `peer`, whose blocks that worker opens and frees.
    ///
    /// *Cost*: a round trip to the service thread of the peer's process, which needs no attention of the peer, and two puts. This
    /// process has as much memory for the [local side](Block::local), of which only pages that are touched cost anything.
    ///
    /// # Errors
    /// [`HeapError::HeapBytes`], [`HeapError::NoLocalMemory`]; those of [`Worker::allocate_at`], and [`Error::UnknownWorker`].
    pub fn open(me: &'w Worker, peer: WorkerId, options: HeapOptions) -> Result<Self> {
        if peer.number() >= me.worker_count() {
            return Err(Error::UnknownWorker { worker: peer, count: me.worker_count() });
        }
        if options.bytes == 0 || options.bytes > HEAP_BYTES_MAX {
            return Err(HeapError::HeapBytes { bytes: options.bytes }.into());
        }
        let units = u32::try_from(units_of(options.bytes)).expect("as was just seen");
        let local = LocalMemory::new(units)?;
        let batch = options.batch();
        let tray_tags = batch.clamp(TRAY_TAGS_MIN, TRAY_TAGS_MAX);
        let tray_bytes = tags::HEAD_BYTES + tray_tags as usize * tags::TAG_BYTES;
        let tray = me.allocate_at(me.process(), tray_bytes as u64)?;
        tray.put(me, 0, &[0; tags::HEAD_BYTES])?;
        let far = me.allocate_at(peer, far_bytes(units)).inspect_err(|_| {
            // It is this process's, and nobody else knows of it.
            let _ = me.release(tray);
        })?;
        let layout = Layout::new(&far, units);
        let books = Books { shadow: Shadow::new(units, options.fit), taken: 0, counts: Counts::default() };
        let mut heap = Self {
            me,
            peer,
            far,
            is_mapped: false,
            tray,
            tray_tags: tray_tags as usize,
            layout,
            options,
            local,
            books: RefCell::new(books),
        };
        heap.kill_point(KillPoint::HeapMade);
        let control = Control { initiator: me.id(), owner: peer, units, batch, tray };
        let mut control = wire::encode(&control, Vec::with_capacity(CONTROL_BYTES as usize));
        control.resize(CONTROL_BYTES as usize, 0);
        far.put(me, 0, &control)?;
        heap.is_mapped = far.region(me)?.0.mapped().is_some();
        Ok(heap)
    }

    /// Room for a block: [`try_alloc`](Self::try_alloc), and if there is none, once more with all that the peer has freed by now. For
    /// that it asks the peer, and waits for what it says for at most the job's deadline.
    ///
    /// What the block holds, at the peer and here, is left from before.
    ///
    /// # Errors
    /// Those of [`try_alloc`](Self::try_alloc). When it has to ask: [`Error::Deadline`] when the peer makes no progress,
    /// [`Error::InHandler`], [`Error::DifferentBinaries`].
    pub fn alloc(&self, space: impl Into<Space>) -> Result<Block<'_>> {
        let space = space.into();
        loop {
            match self.try_alloc(space) {
                Err(Error::Heap(HeapError::Exhausted { peer_bytes, .. })) if peer_bytes > 0 => {}
                done => return done,
            }
            let before = self.books.borrow().taken;
            let left = self.synchronise()?;
            if left == 0 || self.books.borrow().taken == before {
                return self.try_alloc(space);
            }
        }
    }

    /// Room for a block, if there is any by what is known here: takes over the list of freed blocks that the peer has put here, if there is
    /// one, and asks nobody. May be used in handlers.
    ///
    /// *Cost*: a look at a word of this process, and one or two trees. No message.
    ///
    /// # Errors
    /// [`HeapError::Exhausted`], [`HeapError::LargerThanHeap`], [`HeapError::Alignment`]; [`HeapError::CorruptTags`], once for a list that
    /// is wrong; [`Error::PeerLost`].
    pub fn try_alloc(&self, space: impl Into<Space>) -> Result<Block<'_>> {
        let Space { bytes, align } = space.into();
        if !align.is_power_of_two() || align > ALIGN_MAX {
            return Err(HeapError::Alignment { align, max: ALIGN_MAX }.into());
        }
        self.check_peer()?;
        self.take_list()?;
        let heap_bytes = u64::from(self.layout.units) * UNIT_BYTES;
        let align_units = (align / UNIT_BYTES).max(1);
        // In an empty heap the first header is followed by unit 1.
        let first = align_units.max(1) - 1;
        let units = units_of(bytes).checked_add(1).filter(|units| first + units <= u64::from(self.layout.units));
        let units = units.and_then(|units| u32::try_from(units).ok());
        let units = units.ok_or(HeapError::LargerThanHeap { bytes, align, heap_bytes })?;
        let books = &mut *self.books.borrow_mut();
        match books.shadow.take(units, align_units) {
            Some(taken) => {
                books.counts.allocations += 1;
                Ok(Block::new(self, taken, bytes))
            }
            None => {
                books.counts.refusals += 1;
                let free_bytes = books.shadow.free_bytes();
                let largest_bytes = books.shadow.largest_free_bytes();
                let peer_bytes = books.shadow.amount_of(Holder::Peer).bytes;
                Err(HeapError::Exhausted { bytes, align, free_bytes, largest_bytes, peer_bytes }.into())
            }
        }
    }

    /// Room for a block, as soon as the peer has freed enough for it: waits for that, for at most `time`, and runs what others call here
    /// meanwhile.
    ///
    /// # Errors
    /// Those of [`alloc`](Self::alloc); [`HeapError::Exhausted`] also when the time is over, and at once when the peer has nothing
    /// that it could free.
    pub fn alloc_within(&self, space: impl Into<Space>, time: Duration) -> Result<Block<'_>> {
        let space = space.into();
        let end = self.me.now() + time.min(self.me.default_deadline());
        loop {
            match self.alloc(space) {
                Err(Error::Heap(HeapError::Exhausted { peer_bytes, .. })) if peer_bytes > 0 => {}
                done => return done,
            }
            let left = end.saturating_duration_since(self.me.now());
            if left.is_zero() {
                return self.try_alloc(space);
            }
            self.ask(true)?;
            match self.wait_for_list(left) {
                Err(Error::Deadline { .. }) => return self.try_alloc(space),
                waited => waited?,
            }
        }
    }

    /// Asks the peer for all that it has freed by now, and takes it over. Says how many blocks it has freed that did not fit into
    /// the list.
    ///
    /// *Cost*: a call there and back, and a transfer.
    ///
    /// # Errors
    /// [`Error::PeerLost`]; [`Error::Deadline`] when the peer makes no progress; [`Error::InHandler`]; [`Error::DifferentBinaries`];
    /// [`HeapError::CorruptTags`].
    pub fn synchronise(&self) -> Result<u64> {
        self.take_list()?;
        let Collected { sent, left } = self.ask(false)?;
        if sent != self.books.borrow().taken {
            self.wait_for_list(self.me.default_deadline())?;
        }
        Ok(left)
    }

    fn ask(&self, keep_telling: bool) -> Result<Collected> {
        self.check_peer()?;
        let taken = {
            let mut books = self.books.borrow_mut();
            books.counts.questions += 1;
            books.taken
        };
        let question = Question { heap: self.far, taken, keep_telling };
        let asked = self.me.call_return(self.peer, question, owner::answer).map_err(Error::from)?;
        self.kill_point(KillPoint::HeapAsked);
        asked.wait()
    }

    fn wait_for_list(&self, time: Duration) -> Result<()> {
        self.me.watch_until("waiting for a list of freed blocks", time, |_| match self.take_list() {
            Ok(false) => self.check_peer().err().map(Err),
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        })
    }

    /// Takes over the next list of what the peer has freed, if it is there. Says whether it was.
    fn take_list(&self) -> Result<bool> {
        let me = self.me;
        let mut head = [0; tags::HEAD_BYTES];
        self.tray.get(me, 0, &mut head)?;
        let next = self.books.borrow().taken.wrapping_add(1);
        let (sequence, count) = tags::read_head(&head);
        if sequence != next || count > self.tray_tags {
            return Ok(false);
        }
        let mut list = vec![0; tags::HEAD_BYTES + count * tags::TAG_BYTES];
        self.tray.get(me, 0, &mut list)?;
        let Some((sequence, tags)) = tags::decode(&self.layout, &list).filter(|(sequence, _)| *sequence == next) else {
            // It is still coming.
            return Ok(false);
        };
        // SYNC: pairs with the release fence in `OwnedHeap::tell`: what the peer has read of its blocks it has read before what is put
        // there from now on.
        fence(Ordering::Acquire);
        self.kill_point(KillPoint::HeapTagsTaken);
        let books = &mut *self.books.borrow_mut();
        books.taken = sequence;
        let mark = |serial, start| self.layout.stamp(serial, start, StampKind::Given);
        let freed = books.shadow.accept(&tags, mark);
        let freed = freed.map_err(|fault| HeapError::CorruptTags { peer: self.peer, sequence, fault })?;
        books.counts.lists += 1;
        books.counts.tags += tags.len() as u64;
        books.counts.freed_by_peer += freed.blocks;
        Ok(true)
    }

    /// Takes a block back that was handed over, if the peer has not freed it: for a name that could not be told. From then on the peer
    /// cannot open it any more.
    ///
    /// *Cost*: an atomic change of a word at the peer.
    ///
    /// # Errors
    /// [`HeapError::Freed`] when the peer was first, or the block was taken back before; [`HeapError::OtherHeap`]; [`HeapError::Lent`] when it was
    /// not handed over, but lent; those of [`RemoteMemory::atomic64`], after which it may be tried again.
    pub fn take_back(&self, block: RemoteBlock) -> Result<()> {
        let RemoteBlock { heap, start, serial, .. } = block;
        let held = self.books.borrow().shadow.find(start).copied().filter(|held| held.serial == serial);
        let offset = u64::from(start) * UNIT_BYTES;
        match held {
            _ if heap != self.far => return Err(HeapError::OtherHeap.into()),
            Some(held) if held.holder == Holder::Peer => {}
            Some(_) => return Err(HeapError::Lent { serial, offset, initiator: self.me.id() }.into()),
            None if self.books.borrow().shadow.has_given(serial) => {
                return Err(HeapError::Freed { serial, offset }.into());
            }
            None => return Err(HeapError::Stale { serial, offset }.into()),
        }
        let [given, taken_back] =
            [StampKind::Given, StampKind::TakenBack].map(|kind| self.layout.stamp(serial, start, kind));
        let change = AtomicChange::CompareSwap { expected: given, new: taken_back };
        let before = self.far.atomic64(self.me, self.layout.header_at(start), change)?;
        // It may have been taken back by an attempt of which nobody heard.
        if before != given && before != taken_back {
            return Err(HeapError::Freed { serial, offset }.into());
        }
        self.books.borrow_mut().shadow.free(start);
        Ok(())
    }

    /// Gives the memory back when the peer has freed all that was handed over. Waits for that for at most the job's deadline.
    ///
    /// # Errors
    /// [`HeapError::StillInUse`], [`Error::PeerLost`], and those of [`synchronise`](Self::synchronise); the heap is closed all the same.
    pub fn close(self) -> Result<()> {
        let end = self.me.now() + self.me.default_deadline();
        let in_use = || self.books.borrow().shadow.amount_of(Holder::Peer).blocks;
        while in_use() > 0 {
            self.synchronise()?;
            let left = end.saturating_duration_since(self.me.now());
            if in_use() > 0 && !left.is_zero() {
                self.ask(true)?;
                match self.wait_for_list(left) {
                    Err(Error::Deadline { .. }) => {}
                    waited => waited?,
                }
            }
            if left.is_zero() {
                return Err(HeapError::StillInUse { peer: self.peer, blocks: in_use() }.into());
            }
        }
        Ok(())
    }

    /// The worker in whose process the memory is.
    pub fn peer(&self) -> WorkerId {
        self.peer
    }

    /// What it was opened with.
    pub fn options(&self) -> HeapOptions {
        self.options
    }

    /// How the heap is used, by the books of the initiator: also when the peer is lost.
    pub fn report(&self) -> HeapReport {
        let books = self.books.borrow();
        HeapReport::new(&books.shadow, books.counts, u64::from(self.layout.units) * UNIT_BYTES)
    }

    pub(super) fn peer_process(&self) -> ProcessId {
        self.far.process()
    }

    pub(super) fn me(&self) -> &'w Worker {
        self.me
    }

    pub(super) fn far(&self) -> &RemoteMemory {
        &self.far
    }

    /// Whether the memory is mapped here.
    pub(super) fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn local(&self) -> &LocalMemory {
        &self.local
    }

    /// The header of a block of so many bytes, with the latest news for the peer.
    pub(super) fn header(&self, stamp: u64, bytes: u64) -> Header {
        let units = u32::try_from(units_of(bytes)).expect("it was found room for");
        Header { stamp, units, taken: self.books.borrow().taken }
    }

    pub(super) fn pass_to(&self, start: u32, holder: Holder) {
        self.books.borrow_mut().shadow.pass_to(start, holder);
    }

    pub(super) fn free(&self, start: u32) {
        self.books.borrow_mut().shadow.free(start);
    }

    pub(super) fn check_peer(&self) -> Result<()> {
        self.me.process_handle().lost(self.peer_process()).map_or(Ok(()), Err)
    }

    pub(super) fn kill_point(&self, point: KillPoint) {
        self.me.process_handle().kill_point(point);
    }
}

/// A list is never shorter than that, however few blocks are collected: there may be more by the time it may be sent.
const TRAY_TAGS_MIN: u32 = 16;
const TRAY_TAGS_MAX: u32 = 4096;

impl Drop for RemoteHeap<'_> {
    fn drop(&mut self) {
        self.kill_point(KillPoint::HeapClosing);
        // Where a write may still take effect the memory is not given to others.
        let keeps_memory = self.books.borrow().shadow.amount_of(Holder::Nobody).blocks > 0;
        owner::close(self.me, self.peer, self.far, self.tray, keeps_memory, CLOSE_TRIES);
    }
}

/// How often the peer is asked whether its last list has arrived.
const CLOSE_TRIES: u32 = 1000;

impl fmt::Debug for RemoteHeap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, options, .. } = self;
        f.debug_struct("RemoteHeap").field("peer", peer).field("options", options).finish_non_exhaustive()
    }
}

/// How calls about heaps are made: they never wait.
pub(super) const WHEN_FULL: WhenFull = WhenFull::Queue;

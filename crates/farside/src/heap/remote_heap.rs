//! The initiator's end.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use farside_fabric::{ProcessId, WorkerId};

use super::block::{Block, RemoteBlock};
use super::error::HeapError;
use super::layout::{
    ALIGN_MAX, Control, HEAP_BYTES_MAX, Header, Layout, StampKind, TAKEN_AT, TrayShape, UNIT_BYTES, far_bytes, units_of,
};
use super::local::LocalMemory;
use super::options::{HeapOptions, Space, Synchronisation};
use super::owner::{self, Collected, Question};
use super::report::HeapReport;
use super::shadow::{Holder, Shadow};
use super::tags;
use crate::error::Result;
use crate::invoke::call::WhenFull;
use crate::memory::RemoteMemory;
use crate::runtime::worker::Worker;
use crate::{AtomicChange, Error};
use farside_launch::kill_point::KillPoint;
use farside_launch::settings::FOREVER;

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
    shape: TrayShape,
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
    taken: u64,
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
        let (batch, shape) = match options.synchronisation_or_default() {
            Synchronisation::Deferred { batch } => (batch.max(1), TrayShape::deferred(batch)),
            Synchronisation::Immediate => (1, TrayShape::IMMEDIATE),
        };
        let tray = me.allocate_at(me.process(), shape.bytes())?;
        tray.put(me, 0, &vec![0; shape.bytes() as usize])?;
        let far = me.allocate_at(peer, far_bytes(units)).inspect_err(|_| {
            // It is this process's, and nobody else knows of it.
            let _ = me.release(tray);
        })?;
        let layout = Layout::new(&far, units);
        let books = Books { shadow: Shadow::new(units, options.fit), taken: 0, counts: Counts::default() };
        let mut heap =
            Self { me, peer, far, is_mapped: false, tray, shape, layout, options, local, books: RefCell::new(books) };
        heap.kill_point(KillPoint::HeapMade);
        let control = Control { initiator: me.id(), owner: peer, units, batch, tray, shape };
        far.put(me, 0, &control.to_bytes())?;
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
        let found = self.find_or_ask(space, self.me.now() + self.me.default_deadline());
        self.count(found)
    }

    /// Room for a block, if there is any by what is known here: takes over the lists of freed blocks that the peer has put here, if there are
    /// any, and asks nobody. May be used in handlers.
    ///
    /// *Cost*: a look at a word of this process, and one or two trees. No message.
    ///
    /// # Errors
    /// [`HeapError::Exhausted`], [`HeapError::LargerThanHeap`], [`HeapError::Alignment`]; [`HeapError::CorruptTags`], once for a list that
    /// is wrong; [`Error::PeerLost`].
    pub fn try_alloc(&self, space: impl Into<Space>) -> Result<Block<'_>> {
        let found = self.find(space.into());
        self.count(found)
    }

    /// Room for a block, as soon as the peer has freed enough for it: waits for that, for at most `time`, and runs what others call here
    /// meanwhile.
    ///
    /// *Cost*: as for [`alloc`](Self::alloc). Who sleeps here is not woken, and looks every 100 µs.
    ///
    /// # Errors
    /// Those of [`alloc`](Self::alloc); [`HeapError::Exhausted`] also when the time is over, and at once when the peer has nothing
    /// that it could free.
    pub fn alloc_within(&self, space: impl Into<Space>, time: Duration) -> Result<Block<'_>> {
        let (space, end) = (space.into(), self.me.now() + time.min(FOREVER));
        loop {
            let found = match self.find_or_ask(space, end) {
                Err(Error::Heap(HeapError::Exhausted { peer_bytes, .. })) if peer_bytes > 0 => {
                    self.wait_for_freed(end).map(|()| None)
                }
                found => found.map(Some),
            };
            match found {
                Ok(None) => {}
                Ok(Some(block)) => return self.count(Ok(block)),
                // What is known by now decides.
                Err(Error::Deadline { .. }) => return self.try_alloc(space),
                Err(error) => return Err(error),
            }
        }
    }

    fn find(&self, Space { bytes, align }: Space) -> Result<Block<'_>> {
        if !align.is_power_of_two() || align > ALIGN_MAX {
            return Err(HeapError::Alignment { align, max: ALIGN_MAX }.into());
        }
        self.check_peer()?;
        self.take_lists()?;
        let heap_units = u64::from(self.layout.units);
        let align_units = (align / UNIT_BYTES).max(1);
        // In an empty heap the first place for a header is before the first multiple of the alignment, but for unit 0.
        let units = units_of(bytes).checked_add(1).filter(|units| align_units - 1 + units <= heap_units);
        let units = units.and_then(|units| u32::try_from(units).ok());
        let units = units.ok_or(HeapError::LargerThanHeap { bytes, align, heap_bytes: heap_units * UNIT_BYTES })?;
        let books = &mut *self.books.borrow_mut();
        let taken = books.shadow.take(units, align_units).ok_or_else(|| HeapError::Exhausted {
            bytes,
            align,
            free_bytes: books.shadow.free_bytes(),
            largest_bytes: books.shadow.largest_free_bytes(),
            peer_bytes: books.shadow.amount_of(Holder::Peer).bytes,
        })?;
        Ok(Block::new(self, taken, bytes))
    }

    /// As `find`, and if there is no room, once more with all that the peer has freed.
    fn find_or_ask(&self, space: Space, end: Instant) -> Result<Block<'_>> {
        loop {
            match self.find(space) {
                Err(Error::Heap(HeapError::Exhausted { peer_bytes, .. })) if peer_bytes > 0 => {}
                done => return done,
            }
            let before = self.books.borrow().taken;
            let left = self.synchronise_by(end)?;
            if left == 0 || self.books.borrow().taken == before {
                return self.find(space);
            }
        }
    }

    fn count<'h>(&'h self, found: Result<Block<'h>>) -> Result<Block<'h>> {
        let counts = &mut self.books.borrow_mut().counts;
        match &found {
            Ok(_) => counts.allocations += 1,
            Err(Error::Heap(HeapError::Exhausted { .. })) => counts.refusals += 1,
            Err(_) => {}
        }
        found
    }

    /// Asks the peer for all that it has freed by now, and takes it over. Says how many bytes of it did not fit into the list: for these
    /// it has to be asked again.
    ///
    /// *Cost*: a call there and back, and a transfer.
    ///
    /// # Errors
    /// [`Error::PeerLost`]; [`Error::Deadline`] when the peer makes no progress; [`Error::InHandler`]; [`Error::DifferentBinaries`];
    /// [`HeapError::CorruptTags`].
    pub fn synchronise(&self) -> Result<u64> {
        self.synchronise_by(self.me.now() + self.me.default_deadline())
    }

    fn synchronise_by(&self, end: Instant) -> Result<u64> {
        self.take_lists()?;
        let Collected { sent, left_bytes } = self.ask(false, end)?;
        while sent > self.books.borrow().taken {
            self.wait_for_list(end)?;
        }
        Ok(left_bytes)
    }

    /// Waits until the peer has freed something more, or might have.
    fn wait_for_freed(&self, end: Instant) -> Result<()> {
        let before = self.books.borrow().taken;
        self.ask(true, end)?;
        if self.books.borrow().taken == before { self.wait_for_list(end) } else { Ok(()) }
    }

    /// How long it is until then.
    fn left_until(&self, end: Instant) -> Duration {
        end.saturating_duration_since(self.me.now())
    }

    fn ask(&self, keep_telling: bool, end: Instant) -> Result<Collected> {
        self.check_peer()?;
        let taken = {
            let mut books = self.books.borrow_mut();
            books.counts.questions += 1;
            books.taken
        };
        let question = Question { heap: self.far, taken, keep_telling };
        let mut asked = self.me.call_return(self.peer, question, owner::answer).map_err(Error::from)?;
        self.kill_point(KillPoint::HeapAsked);
        asked.wait_for(self.left_until(end))
    }

    fn wait_for_list(&self, end: Instant) -> Result<()> {
        self.me.watch_until("waiting for a list of freed blocks", self.left_until(end), |_| match self.take_lists() {
            Ok(false) => self.check_peer().err().map(Err),
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        })
    }

    /// Takes over what the peer has put here of what it has freed. Says whether there was anything.
    fn take_lists(&self) -> Result<bool> {
        let before = self.books.borrow().taken;
        let taken = loop {
            match self.take_list() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let after = self.books.borrow().taken;
        if after != before && self.is_mapped {
            // Elsewhere the next block or question says so.
            self.far.atomic64(self.me, TAKEN_AT, AtomicChange::Swap(after))?;
        }
        taken.map(|()| after != before)
    }

    /// Takes over the next list, if it is there.
    fn take_list(&self) -> Result<bool> {
        let next = self.books.borrow().taken + 1;
        let at = self.shape.offset_of(next);
        let mut head = [0; tags::HEAD_BYTES];
        self.tray.look(self.me, at, &mut head)?;
        let (sequence, count) = tags::read_head(&head);
        if sequence != next || count > self.shape.slot_tags as usize {
            return Ok(false);
        }
        let mut list = vec![0; TrayShape::list_bytes(count)];
        self.tray.look(self.me, at, &mut list)?;
        let Some((_, tags)) = tags::decode(&self.layout, &list).filter(|(sequence, _)| *sequence == next) else {
            // It is still coming.
            return Ok(false);
        };
        // SYNC: pairs with the release fence in `OwnedHeap::tell`: what the peer has read of its blocks it has read before what is put
        // there from now on.
        fence(Ordering::Acquire);
        self.kill_point(KillPoint::HeapTagsTaken);
        let books = &mut *self.books.borrow_mut();
        books.taken = next;
        let mark = |serial, start| self.layout.stamp(serial, start, StampKind::Given);
        let freed = books.shadow.accept(&tags, mark);
        let freed = freed.map_err(|fault| HeapError::CorruptTags { peer: self.peer, sequence: next, fault })?;
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
        self.wait_for_all_freed()
    }

    /// Waits until the peer has freed all that was handed over. Its questions become rarer the longer that takes; meanwhile it takes over what
    /// it is told.
    pub(super) fn wait_for_all_freed(&self) -> Result<()> {
        let end = self.me.now() + self.me.default_deadline();
        let in_use = || self.books.borrow().shadow.amount_of(Holder::Peer).blocks;
        let mut pause = FIRST_PAUSE;
        self.take_lists()?;
        while in_use() > 0 {
            let before = self.books.borrow().taken;
            let more = self.synchronise_by(end).and_then(|left_bytes| {
                // Who has more to tell, and tells nothing, is waited for, too.
                if in_use() == 0 || left_bytes > 0 && self.books.borrow().taken != before {
                    return Ok(());
                }
                self.wait_for_freed(end)?;
                let rested = self.rest(pause.min(self.left_until(end)), || in_use() == 0);
                pause = (pause * 2).min(LAST_PAUSE);
                rested
            });
            more.map_err(|error| match error {
                Error::Deadline { .. } => HeapError::StillInUse { peer: self.peer, blocks: in_use() }.into(),
                other => other,
            })?;
        }
        Ok(())
    }

    /// Takes over what it is told for so long, or until that is enough.
    fn rest(&self, time: Duration, is_enough: impl Fn() -> bool) -> Result<()> {
        let rested = self.me.watch_until("waiting for a peer to free blocks", time, |_| match self.take_lists() {
            Ok(_) if is_enough() => Some(Ok(())),
            Ok(_) => self.check_peer().err().map(Err),
            Err(error) => Some(Err(error)),
        });
        match rested {
            Err(Error::Deadline { .. }) => Ok(()),
            rested => rested,
        }
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

    #[cfg(test)]
    pub(super) fn tray(&self) -> &RemoteMemory {
        &self.tray
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
        Header { stamp, units, taken: self.books.borrow().taken as u32 }
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

impl Drop for RemoteHeap<'_> {
    fn drop(&mut self) {
        self.kill_point(KillPoint::HeapClosing);
        // Where a write may still take effect the memory is not given to others.
        let keeps_memory = self.books.borrow().shadow.amount_of(Holder::Nobody).blocks > 0;
        owner::close(self.me, self.peer, self.far, self.tray, keeps_memory);
    }
}

impl fmt::Debug for RemoteHeap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, options, .. } = self;
        f.debug_struct("RemoteHeap").field("peer", peer).field("options", options).finish_non_exhaustive()
    }
}

/// Who closes rests so long between its questions at first,
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// and twice as long each time, up to this.
const LAST_PAUSE: Duration = Duration::from_millis(10);

/// How calls about heaps are made: they never wait.
pub(super) const WHEN_FULL: WhenFull = WhenFull::Queue;

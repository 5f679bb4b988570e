//! The initiator's end of a heap.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use farside::kit::{MemoryParts as _, WorkerParts as _};
use farside::memory::RemoteMemory;
use farside::{AtomicChange, Error, WhenFull, Worker};
use farside_fabric::{ProcessId, WorkerId};
use farside_launch::kill_point::KillPoint;

use super::block::{Block, RemoteBlock};
use super::error::{HeapError, Result};
use super::layout::{
    ALIGN_MAX, Control, HEAP_BYTES_MAX, Header, Layout, StampKind, TAKEN_AT, TrayShape, UNIT_BYTES, far_bytes, units_of,
};
use super::local::LocalMemory;
use super::options::{HeapOptions, Space, Synchronisation};
use super::owner::{self, Collected, Question};
use super::report::HeapReport;
use super::shadow::{Holder, Shadow};
use super::tags;

/// A heap in the memory of another worker's process, from which this worker allocates without a
/// message.
///
/// The [module](super) documentation shows how to use it. A heap belongs to the worker that opened
/// it: it is neither `Send` nor `Sync`, so no other thread allocates from its memory.
///
/// Dropping the heap releases the memory, including all blocks. From then on the peer gets
/// [`HeapError::Closed`] for blocks that it has not freed. [`close`](Self::close) waits for those
/// first.
pub struct RemoteHeap<'w> {
    me: &'w Worker,
    peer: WorkerId,
    /// R, the memory at the peer.
    far: RemoteMemory,
    is_mapped: bool,
    /// The memory into which the peer puts its lists of freed blocks.
    tray: RemoteMemory,
    shape: TrayShape,
    layout: Layout,
    options: HeapOptions,
    /// L, the memory of the local views.
    local: LocalMemory,
    books: RefCell<Books>,
}

struct Books {
    /// S, the books about R.
    shadow: Shadow,
    /// The number of the last list applied.
    taken: u64,
    counts: Counts,
}

/// Event counts since the heap was opened.
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
    /// Opens a heap in the process of `peer`, whose blocks that worker opens and frees.
    ///
    /// *Cost*: two puts and a round trip to the service thread of the peer's process, which needs
    /// no progress of the peer. This process reserves as much memory for the [local
    /// side](Block::local), of which only touched pages cost anything.
    /// # Errors
    /// [`HeapError::HeapBytes`], [`HeapError::NoLocalMemory`];
    /// [`MemoryError::Refused`](farside::memory::MemoryError::Refused) with the reason;
    /// [`Error::UnknownWorker`]; [`Error::PeerLost`] if the peer is lost; [`Error::Deadline`] if
    /// its process does not answer in time; [`Error::InHandler`] in a handler.
    pub fn open(me: &'w Worker, peer: WorkerId, options: HeapOptions) -> Result<Self> {
        if peer.number() >= me.worker_count() {
            return Err(Error::UnknownWorker { worker: peer, count: me.worker_count() }.into());
        }
        if options.bytes == 0 || options.bytes > HEAP_BYTES_MAX {
            return Err(HeapError::HeapBytes { bytes: options.bytes });
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
            // The tray belongs to this process, and no other process knows it yet.
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

    /// Allocates a block: like [`try_alloc`](Self::try_alloc), but if there is no room, it asks the
    /// peer for all blocks freed so far and tries again. It waits for the answer for at most the
    /// job's deadline.
    ///
    /// The block holds old bytes, at the peer and here.
    ///
    /// # Errors
    /// [`HeapError::Exhausted`] if there is no room; [`HeapError::LargerThanHeap`];
    /// [`HeapError::Alignment`]; [`HeapError::CorruptTags`], once for each wrong list;
    /// [`Error::PeerLost`] if the peer is lost. If it has to ask: [`Error::Deadline`] if the peer
    /// makes no progress; [`Error::InHandler`] in a handler; [`Error::DifferentBinaries`].
    pub fn alloc(&self, space: impl Into<Space>) -> Result<Block<'_>> {
        let space = space.into();
        let found = self.find_or_ask(space, self.me.now() + self.me.default_deadline());
        self.count(found)
    }

    /// Allocates a block if this worker knows of room for it. First applies the lists of freed
    /// blocks that the peer has put here. Sends no message; handlers may call it.
    ///
    /// *Cost*: one load from memory of this process, and one or two tree operations.
    ///
    /// # Errors
    /// [`HeapError::Exhausted`], [`HeapError::LargerThanHeap`], [`HeapError::Alignment`];
    /// [`HeapError::CorruptTags`], once for each wrong list; [`Error::PeerLost`].
    pub fn try_alloc(&self, space: impl Into<Space>) -> Result<Block<'_>> {
        let found = self.find(space.into());
        self.count(found)
    }

    /// Allocates a block as soon as the peer has freed enough for it. Waits for at most `time`, and
    /// runs calls to this worker meanwhile.
    ///
    /// *Cost*: as for [`alloc`](Self::alloc). A worker asleep here is not woken by the peer; it
    /// looks every 100 µs.
    ///
    /// # Errors
    /// [`HeapError::Exhausted`] when the time is over, or at once if the peer has no blocks to
    /// free. [`HeapError::LargerThanHeap`], [`HeapError::Alignment`]; [`HeapError::CorruptTags`],
    /// once for each wrong list; [`Error::PeerLost`] if the peer is lost; [`Error::InHandler`] in a
    /// handler, if it has to wait; [`Error::DifferentBinaries`].
    #[track_caller]
    pub fn alloc_within(&self, space: impl Into<Space>, time: Duration) -> Result<Block<'_>> {
        let (space, mut deadline) = (space.into(), self.me.deadline_after(time));
        loop {
            let end = self.me.now() + deadline.left(self.me);
            let found = match self.find_or_ask(space, end) {
                Err(HeapError::Exhausted { peer_bytes, .. }) if peer_bytes > 0 => {
                    self.wait_for_freed(end).map(|()| None)
                }
                found => found.map(Some),
            };
            match found {
                Ok(None) => {}
                Ok(Some(block)) => return self.count(Ok(block)),
                // The lists that have arrived by now decide.
                Err(HeapError::Job(Error::Deadline { .. })) => return self.try_alloc(space),
                Err(error) => return Err(error),
            }
        }
    }

    fn find(&self, Space { bytes, align }: Space) -> Result<Block<'_>> {
        if !align.is_power_of_two() || align > ALIGN_MAX {
            return Err(HeapError::Alignment { align, max: ALIGN_MAX });
        }
        self.check_peer()?;
        self.take_lists()?;
        let heap_units = u64::from(self.layout.units);
        let align_units = (align / UNIT_BYTES).max(1);
        // The bytes of a block are aligned, and its header lies before them. So in an empty heap
        // the first header lies just before the first multiple of the alignment that is not 0.
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

    /// Like `find`; if there is no room, asks the peer for freed blocks and tries again.
    fn find_or_ask(&self, space: Space, end: Instant) -> Result<Block<'_>> {
        loop {
            match self.find(space) {
                Err(HeapError::Exhausted { peer_bytes, .. }) if peer_bytes > 0 => {}
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
            Err(HeapError::Exhausted { .. }) => counts.refusals += 1,
            Err(_) => {}
        }
        found
    }

    /// Asks the peer for all blocks freed so far, and applies its list. Returns the bytes of freed
    /// blocks that did not fit into the list; ask again for those.
    ///
    /// *Cost*: a call there and back, and a put from the peer.
    ///
    /// # Errors
    /// [`Error::PeerLost`]; [`Error::Deadline`] if the peer makes no progress;
    /// [`Error::InHandler`]; [`Error::DifferentBinaries`]; [`HeapError::CorruptTags`].
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

    /// Waits until the peer reports a freed block, or may have.
    #[track_caller]
    fn wait_for_freed(&self, end: Instant) -> Result<()> {
        let before = self.books.borrow().taken;
        self.ask(true, end)?;
        if self.books.borrow().taken == before { self.wait_for_list(end) } else { Ok(()) }
    }

    /// Returns the time left until `end`.
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
        Ok(asked.wait_for(self.left_until(end))?)
    }

    #[track_caller]
    fn wait_for_list(&self, end: Instant) -> Result<()> {
        self.me.watch_until("waiting for a list of freed blocks", self.left_until(end), |_| {
            match self.take_lists() {
                Ok(false) => self.check_peer().err().map(Err),
                Ok(true) => Some(Ok(Ok(()))),
                Err(error) => Some(Ok(Err(error))),
            }
        })?
    }

    /// Applies all lists that the peer has put here. Returns whether there were any.
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
            // If R is not mapped, the next block or question carries the number.
            self.far.atomic64(self.me, TAKEN_AT, AtomicChange::Swap(after))?;
        }
        taken.map(|()| after != before)
    }

    /// Applies the next list, if it has arrived.
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
            // The put of this list has not finished.
            return Ok(false);
        };
        // SYNC: pairs with the release fence in `OwnedHeap::tell`: the peer's reads of the freed
        // blocks come before any later put of this worker to their place.
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

    /// Takes a handed-over block back, unless the peer has freed it. For a name that could not be
    /// sent. Afterwards the peer can no longer open the block.
    ///
    /// *Cost*: one atomic change of a word at the peer.
    ///
    /// # Errors
    /// [`HeapError::Freed`] if the peer was first or the block was taken back before;
    /// [`HeapError::OtherHeap`]; [`HeapError::Lent`] if the block was lent, not handed over;
    /// [`HeapError::Stale`] for a damaged name. [`Error::PeerLost`] if the peer is lost;
    /// [`Error::Fabric`] if its process does not answer in time, or the transport fails;
    /// [`MemoryError::Released`](farside::memory::MemoryError::Released) if the heap's memory was
    /// released; [`Error::InHandler`] in a handler, if the memory is not mapped. After those the
    /// caller may try again.
    pub fn take_back(&self, block: RemoteBlock) -> Result<()> {
        let RemoteBlock { heap, start, serial, .. } = block;
        let held = self.books.borrow().shadow.find(start).copied().filter(|held| held.serial == serial);
        let offset = u64::from(start) * UNIT_BYTES;
        match held {
            _ if heap != self.far => return Err(HeapError::OtherHeap),
            Some(held) if held.holder == Holder::Peer => {}
            Some(_) => return Err(HeapError::Lent { serial, offset, initiator: self.me.id() }),
            None if self.books.borrow().shadow.has_given(serial) => {
                return Err(HeapError::Freed { serial, offset });
            }
            None => return Err(HeapError::Stale { serial, offset }),
        }
        let [given, taken_back] =
            [StampKind::Given, StampKind::TakenBack].map(|kind| self.layout.stamp(serial, start, kind));
        let change = AtomicChange::CompareSwap { expected: given, new: taken_back };
        let before = self.far.atomic64(self.me, self.layout.header_at(start), change)?;
        // An earlier attempt may have succeeded although its caller got an error.
        if before != given && before != taken_back {
            return Err(HeapError::Freed { serial, offset });
        }
        self.books.borrow_mut().shadow.free(start);
        Ok(())
    }

    /// Waits until the peer has freed all handed-over blocks, for at most the job's deadline, and
    /// releases the memory.
    ///
    /// # Errors
    /// [`HeapError::StillInUse`] if the peer has not freed all blocks in time; [`Error::PeerLost`]
    /// if it is lost; [`Error::InHandler`] in a handler; [`Error::DifferentBinaries`];
    /// [`HeapError::CorruptTags`]. The heap is closed in any case.
    pub fn close(self) -> Result<()> {
        self.wait_for_all_freed()
    }

    /// Waits until the peer has freed all handed-over blocks. Asks ever more rarely, and applies
    /// the peer's lists meanwhile.
    #[track_caller]
    pub(super) fn wait_for_all_freed(&self) -> Result<()> {
        let mut deadline = self.me.deadline_after(self.me.default_deadline());
        let in_use = || self.books.borrow().shadow.amount_of(Holder::Peer).blocks;
        let mut pause = FIRST_PAUSE;
        self.take_lists()?;
        while in_use() > 0 {
            let before = self.books.borrow().taken;
            let end = self.me.now() + deadline.left(self.me);
            let more = self.synchronise_by(end).and_then(|left_bytes| {
                // Ask again at once only if the answer says that there is more and a list did
                // arrive.
                if in_use() == 0 || left_bytes > 0 && self.books.borrow().taken != before {
                    return Ok(());
                }
                self.wait_for_freed(end)?;
                let rested = self.rest(pause.min(self.left_until(end)), || in_use() == 0);
                pause = (pause * 2).min(LAST_PAUSE);
                rested
            });
            more.map_err(|error| match error {
                HeapError::Job(Error::Deadline { .. }) => HeapError::StillInUse { peer: self.peer, blocks: in_use() },
                other => other,
            })?;
        }
        Ok(())
    }

    /// Applies arriving lists for `time`, or until `is_enough`.
    #[track_caller]
    fn rest(&self, time: Duration, is_enough: impl Fn() -> bool) -> Result<()> {
        let rested = self.me.watch_until("waiting for a peer to free blocks", time, |_| match self.take_lists() {
            Ok(_) if is_enough() => Some(Ok(Ok(()))),
            Ok(_) => self.check_peer().err().map(Err),
            Err(error) => Some(Ok(Err(error))),
        });
        match rested {
            Err(Error::Deadline { .. }) => Ok(()),
            rested => rested?,
        }
    }

    /// Returns the worker in whose process the memory is.
    pub fn peer(&self) -> WorkerId {
        self.peer
    }

    /// Returns the options that the heap was opened with.
    pub fn options(&self) -> HeapOptions {
        self.options
    }

    /// Returns usage figures from the initiator's books. Works after the loss of the peer, too.
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

    /// Returns whether the memory at the peer is mapped here.
    pub(super) fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn local(&self) -> &LocalMemory {
        &self.local
    }

    /// Returns the header of a block of `bytes`, which also carries the number of the last list
    /// applied.
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

    pub(super) fn check_peer(&self) -> Result<(), Error> {
        self.me.process_handle().losses.lost(self.peer_process()).map_or(Ok(()), Err)
    }

    pub(super) fn kill_point(&self, point: KillPoint) {
        self.me.process_handle().kill_point(point);
    }
}

impl Drop for RemoteHeap<'_> {
    fn drop(&mut self) {
        self.kill_point(KillPoint::HeapClosing);
        // A put that never ended may still take effect, so the memory must not be reused.
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

/// The first pause of `wait_for_all_freed` between two questions.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// The longest pause; pauses double up to this.
const LAST_PAUSE: Duration = Duration::from_millis(10);

/// The options of calls about heaps: they never wait.
pub(super) const WHEN_FULL: WhenFull = WhenFull::Queue;

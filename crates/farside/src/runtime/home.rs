//! What every process keeps for its peers to write to: its starter memory, and the layout of it.
//!
//! All processes of a job have the same shape, so each knows where things lie in another's memory. Nothing in it is
//! believed: every word is read as an atomic and checked.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use farside_fabric::bell::{self, Doorbell, Fencing, Watchers};
use farside_sys::racy;
use farside_sys::shm::SharedMemory;

pub(crate) use farside_launch::layout::{
    CALLER_SLOT_COUNT, CALLER_SPACE_BYTES, HomeLayout, LATCH_COUNT, REPLY_INLINE_BYTES, REPLY_SLOT_BYTES,
    REPLY_SLOT_COUNT, REPLY_SPACE_BYTES, SEGMENT_BYTES, SEGMENT_COUNT, Shape,
};

/// A process's starter memory, mapped here: its own or a peer's.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    layout: HomeLayout,
    memory: Arc<SharedMemory>,
}

impl Home {
    /// # Panics
    /// When the memory is smaller than the layout: the endpoint was opened with another size.
    pub(crate) fn new(layout: HomeLayout, memory: Arc<SharedMemory>) -> Self {
        assert!(layout.bytes() <= memory.bytes(), "the starter memory has the size of the layout");
        Self { layout, memory }
    }

    fn address(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.layout.bytes());
        self.memory.base().as_ptr().wrapping_add(offset)
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the layout's offsets are multiples of 8 below its size, which `new` found inside the mapping, which
        // lives as long as `self`.
        unsafe { racy::atomic_u64(self.address(offset)) }
    }

    #[inline]
    pub(crate) fn doorbell(&self, local: usize) -> &Doorbell {
        let bell = self.address(self.layout.thread(local)).cast::<Doorbell>();
        // SAFETY: a thread's block begins with its doorbell, at a multiple of 128 (the parts of a block are, and mappings
        // are page-aligned); it holds atomics only, for which all bytes are valid and others' writes are no race.
        unsafe { &*bell }
    }

    /// Who of the process sleeps until memory changes.
    #[inline]
    pub(crate) fn watchers(&self) -> &Watchers {
        let watchers = self.address(self.layout.watchers()).cast::<Watchers>();
        // SAFETY: behind the latches, at a multiple of 128 in a page-aligned mapping, which lives as long as `self`; it holds atomics only,
        // for which all bytes are valid and others' writes are no race.
        unsafe { &*watchers }
    }

    /// Counts a thread of this process among those, until the guard is dropped.
    pub(crate) fn watch(&self) -> Watching<'_> {
        self.watchers().enter();
        Watching(self.watchers())
    }

    /// Wakes all threads of the process that sleep, after something was published for one of them with a fence in between.
    #[cold]
    pub(crate) fn ring_all_after_fence(&self) {
        (0..self.layout.shape().callers()).for_each(|local| self.doorbell(local).ring_after_fence());
    }

    /// The word with the arrival bit of a source, and the bit.
    pub(crate) fn arrival(&self, local: usize, source: usize) -> (&AtomicU64, u64) {
        (self.arrival_word(local, source / 64), 1 << (source % 64))
    }

    #[inline]
    pub(crate) fn arrival_word(&self, local: usize, word: usize) -> &AtomicU64 {
        self.word(self.layout.arrival_word(local, word))
    }

    pub(crate) fn reply_state(&self, local: usize, slot: usize) -> &AtomicU64 {
        self.word(self.layout.reply_slot(local, slot))
    }

    pub(crate) fn latch(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < LATCH_COUNT);
        self.word(self.layout.latches() + index * 8)
    }

    /// The state of a slot for regions that have addresses, and the size of the region.
    #[inline]
    pub(crate) fn segment(&self, slot: u32) -> (&AtomicU64, &AtomicU64) {
        let entry = self.layout.segment(slot);
        (self.word(entry), self.word(entry + 8))
    }

    /// The address of a range of this memory, if it lies inside.
    pub(crate) fn range(&self, offset: usize, bytes: usize) -> Option<*mut u8> {
        let end = offset.checked_add(bytes)?;
        (end <= self.layout.bytes()).then(|| self.memory.base().as_ptr().wrapping_add(offset))
    }

    pub(crate) fn layout(&self) -> &HomeLayout {
        &self.layout
    }
}

/// While it is there, a thread sleeps or is about to, until memory changes.
#[derive(Debug)]
pub(crate) struct Watching<'a>(&'a Watchers);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// How a sender tells a receiver that there is something in the ring between them.
#[derive(Clone, Debug)]
pub(crate) struct Announcer {
    /// Keeps the memory mapped that the pointers lead to.
    _home: Home,
    word: *const AtomicU64,
    mask: u64,
    bell: *const Doorbell,
    fencing: Fencing,
}

// SAFETY: the pointers lead into a mapping of the whole process that `home` keeps alive, to atomics.
unsafe impl Send for Announcer {}

impl Announcer {
    /// `hears_fences` says whether this process is reached by a fence that the receiver executes for all.
    pub(crate) fn new(home: Home, local: usize, source: usize, hears_fences: bool) -> Self {
        let fencing = if hears_fences { home.doorbell(local).fencing() } else { Fencing::Mutual };
        let (word, mask) = home.arrival(local, source);
        let word: *const AtomicU64 = word;
        let bell: *const Doorbell = home.doorbell(local);
        Self { word, mask, bell, fencing, _home: home }
    }

    /// After a record was published: sees to it that the receiver will look.
    #[inline(always)]
    pub(crate) fn announce(&self) {
        // SAFETY: the pointer came from a reference into the mapping that `_home` keeps alive.
        bell::announce(unsafe { &*self.word }, self.mask, self.fencing);
        // SAFETY: as above.
        unsafe { &*self.bell }.ring_after_fence();
    }
}

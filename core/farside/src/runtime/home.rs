//! A process's starter memory, to which its peers write, and the objects in it.
//!
//! All processes of a job have the same shape, so each knows the layout of another's memory. The
//! memory is not trusted: every word is read as an atomic and checked.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use farside_fabric::bell::{self, Doorbell, Fencing, Watchers};
use farside_sys::racy;
use farside_sys::shm::SharedMemory;

use crate::invoke::reply::ReplyRoom;
pub(crate) use farside_launch::layout::{
    CALLER_SLOT_COUNT, CALLER_SPACE_BYTES, HomeLayout, LATCH_COUNT, REPLY_INLINE_BYTES, REPLY_SLOT_BYTES,
    REPLY_SLOT_COUNT, REPLY_SPACE_BYTES, SEGMENT_BYTES, SEGMENT_COUNT, Shape,
};

/// The unit in which reply space is given out.
pub(crate) const REPLY_UNIT_BYTES: usize = 1024;

/// The starter memory of this process or of a peer, mapped here.
#[derive(Clone, Debug)]
pub struct Home {
    layout: HomeLayout,
    memory: Arc<SharedMemory>,
}

impl Home {
    /// # Panics
    /// If the memory is smaller than the layout: the endpoint was opened with another size.
    pub(crate) fn new(layout: HomeLayout, memory: Arc<SharedMemory>) -> Self {
        assert!(layout.bytes() <= memory.bytes(), "the starter memory is smaller than the layout");
        Self { layout, memory }
    }

    fn address(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.layout.bytes());
        self.memory.base().as_ptr().wrapping_add(offset)
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the layout's offsets are multiples of 8 below its size. `new` found that size
        // inside the mapping, which lives as long as `self`.
        unsafe { racy::atomic_u64(self.address(offset)) }
    }

    /// Returns the doorbell of a thread.
    #[inline]
    pub fn doorbell(&self, local: usize) -> &Doorbell {
        let bell = self.address(self.layout.thread(local)).cast::<Doorbell>();
        // SAFETY: a thread's block begins with its doorbell, at a multiple of 128: the parts of a
        // block are at such multiples, and mappings are page-aligned. A doorbell holds atomics
        // only, so all bytes are valid for it and writes by others are no race.
        unsafe { &*bell }
    }

    /// Returns the count of this process's threads that sleep until memory changes.
    #[inline]
    pub(crate) fn watchers(&self) -> &Watchers {
        let watchers = self.address(self.layout.watchers()).cast::<Watchers>();
        // SAFETY: the watchers lie behind the latches, at a multiple of 128 in a page-aligned
        // mapping, which lives as long as `self`. They hold atomics only, so all bytes are valid
        // for them and writes by others are no race.
        unsafe { &*watchers }
    }

    /// Counts the calling thread among the watchers until the guard is dropped.
    pub(crate) fn watch(&self) -> Watching<'_> {
        self.watchers().enter();
        Watching(self.watchers())
    }

    /// Wakes all sleeping threads of the process. The caller has published something for one of
    /// them and executed a fence after that.
    #[cold]
    pub(crate) fn ring_all_after_fence(&self) {
        (0..self.layout.shape().callers()).for_each(|local| self.doorbell(local).ring_after_fence());
    }

    /// Returns the count of a thread's looks, which that thread alone writes.
    #[inline]
    pub(crate) fn looks(&self, local: usize) -> &AtomicU64 {
        self.word(self.layout.looks(local))
    }

    /// Returns the word with the arrival bit of a source, and the bit.
    pub(crate) fn arrival(&self, local: usize, source: usize) -> (&AtomicU64, u64) {
        (self.arrival_word(local, source / 64), 1 << (source % 64))
    }

    #[inline]
    pub(crate) fn arrival_word(&self, local: usize, word: usize) -> &AtomicU64 {
        self.word(self.layout.arrival_word(local, word))
    }

    /// Returns the place of a result of `bytes` bytes; `None` if there is no such room for it.
    #[inline]
    pub(crate) fn reply_place(&self, local: usize, slot: usize, room: ReplyRoom, bytes: usize) -> Option<*mut u8> {
        let (first, units) = (room.first_unit as usize * REPLY_UNIT_BYTES, room.units as usize * REPLY_UNIT_BYTES);
        if units == 0 {
            return (bytes <= REPLY_INLINE_BYTES).then(|| self.address(self.layout.reply_slot(local, slot) + 8));
        }
        let fits = bytes <= units && first + units <= self.layout.reply_space_bytes(local);
        fits.then(|| self.address(self.layout.reply_space(local) + first))
    }

    #[inline]
    pub(crate) fn reply_state(&self, local: usize, slot: usize) -> &AtomicU64 {
        self.word(self.layout.reply_slot(local, slot))
    }

    pub(crate) fn latch(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < LATCH_COUNT);
        self.word(self.layout.latches() + index * 8)
    }

    /// Returns the state of a slot for an addressable region, and the size of the region.
    #[inline]
    pub(crate) fn segment(&self, slot: u32) -> (&AtomicU64, &AtomicU64) {
        let entry = self.layout.segment(slot);
        (self.word(entry), self.word(entry + 8))
    }

    /// Returns the address of a range of this memory, or `None` if the range is not inside.
    #[cfg(test)]
    pub(crate) fn range(&self, offset: usize, bytes: usize) -> Option<*mut u8> {
        let end = offset.checked_add(bytes)?;
        (end <= self.layout.bytes()).then(|| self.memory.base().as_ptr().wrapping_add(offset))
    }

    /// Returns the layout of the memory.
    pub fn layout(&self) -> &HomeLayout {
        &self.layout
    }
}

/// Marks that a thread sleeps, or is about to, until memory changes.
#[derive(Debug)]
pub(crate) struct Watching<'a>(&'a Watchers);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Tells a receiver that there is something in the ring between it and a sender.
#[derive(Clone, Debug)]
pub(crate) struct Announcer {
    /// Keeps the memory mapped to which the pointers lead.
    _home: Home,
    word: *const AtomicU64,
    mask: u64,
    bell: *const Doorbell,
    fencing: Fencing,
}

// SAFETY: the pointers lead to atomics in a mapping that is valid in the whole process and that
// `_home` keeps alive.
unsafe impl Send for Announcer {}

impl Announcer {
    /// Makes the announcer of a source. `is_reached_by_fences` says whether a fence of the receiver
    /// also reaches this process.
    pub(crate) fn new(home: Home, local: usize, source: usize, is_reached_by_fences: bool) -> Self {
        let fencing = if is_reached_by_fences { home.doorbell(local).fencing() } else { Fencing::Mutual };
        let (word, mask) = home.arrival(local, source);
        let word: *const AtomicU64 = word;
        let bell: *const Doorbell = home.doorbell(local);
        Self { word, mask, bell, fencing, _home: home }
    }

    /// Makes the receiver look at the ring. Called after a record was published.
    #[inline(always)]
    pub(crate) fn announce(&self) {
        // SAFETY: the pointer came from a reference into the mapping that `_home` keeps alive.
        bell::announce(unsafe { &*self.word }, self.mask, self.fencing);
        // SAFETY: like `word`, this pointer came from a reference into the mapping that `_home`
        // keeps alive.
        unsafe { &*self.bell }.ring_after_fence();
    }
}

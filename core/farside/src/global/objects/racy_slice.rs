//! Values of this process that others may write.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64};

use bytemuck::Pod;
use farside_sys::racy;

use super::epoch::ReadEpoch;
use crate::runtime::observer::{AccessKind, Touch, Watched};

/// Values in memory of this process that others may read and write at any time, like a slice of
/// [`Cell`](std::cell::Cell)s. Values are copied in and out. No reference points there, except in a
/// [`ReadEpoch`].
///
/// A value of 1, 2, 4 or 8 bytes at a multiple of its size is read whole, unless the memory is
/// private and others put there ([`Worker::register`](crate::RegisterMemory::register)). Any other
/// value that others write meanwhile may be torn. Accesses are not ordered: use barriers, or words
/// that are changed atomically, here by a slice of [words](crate::global::Word), and anywhere by a
/// [`GlobalPtr`](crate::GlobalPtr).
///
/// A job that [checks its accesses](crate::Job::check_accesses) checks those of its workers by such
/// a slice, too. One that conflicts with another is a panic, with the message of an
/// [`AccessConflict`](crate::AccessConflict), and is not made.
///
/// *Cost*: a load or a store for each value, and a branch that is not taken unless accesses are
/// checked.
#[derive(Clone, Copy)]
pub struct RacySlice<'a, T> {
    start: *mut T,
    length: usize,
    /// Set only where accesses are observed.
    watched: Option<&'a Watched>,
    of: PhantomData<&'a [T]>,
}

impl<'a, T: Pod> RacySlice<'a, T> {
    /// # Safety
    /// `start` is a multiple of the type's alignment. `length` values lie there, in memory that
    /// stays mapped for `'a`. Only racy copies, atomics and other processes access that memory.
    pub(in crate::global) unsafe fn new(start: *mut T, length: usize, watched: Option<&'a Watched>) -> Self {
        debug_assert!(start.is_aligned());
        Self { start, length, watched, of: PhantomData }
    }

    pub(super) const fn empty() -> Self {
        Self { start: std::ptr::null_mut(), length: 0, watched: None, of: PhantomData }
    }

    /// Returns the number of values.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether there are no values.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the value at an index.
    ///
    /// # Panics
    /// If the index is outside of the slice.
    #[inline]
    #[track_caller]
    pub fn get(&self, index: usize) -> T {
        self.get_as(index, Touch::here(AccessKind::Read))
    }

    #[inline(always)]
    #[track_caller]
    fn get_as(&self, index: usize, touch: Touch) -> T {
        self.check(index, 1);
        self.observe(index, 1, touch);
        let mut value = T::zeroed();
        let source = self.at(index);
        // SAFETY: the index is inside the slice; `value` is writable, and any bytes are a value of
        // the type.
        unsafe { racy::copy_in(source, (&raw mut value).cast(), size_of::<T>()) };
        value
    }

    /// Writes the value at an index.
    ///
    /// # Panics
    /// If the index is outside of the slice.
    #[inline]
    #[track_caller]
    pub fn set(&self, index: usize, value: T) {
        self.check(index, 1);
        self.observe(index, 1, Touch::here(AccessKind::Write));
        // SAFETY: the index is inside the slice; `value` is readable.
        unsafe { racy::copy_out((&raw const value).cast(), self.at(index), size_of::<T>()) };
    }

    /// Reads values from an index on, until `values` is full.
    ///
    /// # Panics
    /// If the slice has too few values.
    #[track_caller]
    pub fn read(&self, index: usize, values: &mut [T]) {
        self.check(index, values.len());
        self.observe(index, values.len(), Touch::here(AccessKind::Read));
        // SAFETY: the range is inside the slice; `values` is writable, and any bytes are values of
        // the type.
        unsafe { racy::copy_in(self.at(index), values.as_mut_ptr().cast(), size_of_val(values)) };
    }

    /// Writes values from an index on.
    ///
    /// # Panics
    /// If the values do not fit.
    #[track_caller]
    pub fn write(&self, index: usize, values: &[T]) {
        self.check(index, values.len());
        self.observe(index, values.len(), Touch::here(AccessKind::Write));
        // SAFETY: the range is inside the slice; `values` is readable.
        unsafe { racy::copy_out(values.as_ptr().cast(), self.at(index), size_of_val(values)) };
    }

    /// Writes the same value at every index.
    #[track_caller]
    pub fn fill(&self, value: T) {
        self.observe(0, self.length, Touch::here(AccessKind::Write));
        let unobserved = Self { watched: None, ..*self };
        (0..self.length).for_each(|index| unobserved.set(index, value));
    }

    /// Returns the values in order. Each is read when the iterator reaches it.
    #[track_caller]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = T> + DoubleEndedIterator + use<'a, T> {
        let (slice, touch) = (*self, Touch::here(AccessKind::Read));
        (0..self.length).map(move |index| slice.get_as(index, touch))
    }

    /// Returns the part of the slice in a range of indices.
    ///
    /// # Panics
    /// If the range leaves the slice, or ends before it begins.
    #[track_caller]
    pub fn part(&self, range: Range<usize>) -> Self {
        let Range { start, end } = range;
        assert!(start <= end, "invalid range {start}..{end}: it ends before it begins");
        let length = end - start;
        self.check(start, length);
        Self { start: self.start.wrapping_add(start), length, ..*self }
    }

    /// Copies all values.
    #[track_caller]
    pub fn to_vec(&self) -> Vec<T> {
        let mut values = vec![T::zeroed(); self.length];
        self.read(0, &mut values);
        values
    }

    /// Returns the values as a slice, while none is written.
    #[track_caller]
    pub fn as_slice<'e>(&self, _: &'e ReadEpoch) -> &'e [T]
    where
        'a: 'e,
    {
        if self.length == 0 {
            return &[];
        }
        self.observe(0, self.length, Touch::here(AccessKind::Read));
        // SAFETY: the caller of `read_epoch` promised that the memory is not written while the
        // epoch lasts. The memory is mapped for `'a`, which outlives `'e`; it is aligned, and holds
        // `length` values.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }

    #[inline(always)]
    fn at(&self, index: usize) -> *mut u8 {
        let at = self.start.wrapping_add(index);
        // SAFETY: the first value is aligned, and a type's size is a multiple of its alignment, so
        // all values are aligned.
        unsafe { std::hint::assert_unchecked(at.is_aligned()) };
        at.cast()
    }

    /// Returns a value as a word of 64 bits.
    #[inline(always)]
    #[track_caller]
    pub(in crate::global) fn word64(&self, index: usize) -> &'a AtomicU64 {
        const { assert!(size_of::<T>() == size_of::<AtomicU64>() && align_of::<T>() == align_of::<AtomicU64>()) };
        self.check(index, 1);
        // SAFETY: the index is inside the slice, whose memory stays mapped for `'a`. The value has
        // the size and the alignment of the word, and `at` is aligned. Only racy copies, atomics
        // and other processes access that memory, as the caller of `new` promised.
        unsafe { racy::atomic_u64(self.at(index)) }
    }

    /// Returns a value as a word of 32 bits.
    #[inline(always)]
    #[track_caller]
    pub(in crate::global) fn word32(&self, index: usize) -> &'a AtomicU32 {
        const { assert!(size_of::<T>() == size_of::<AtomicU32>() && align_of::<T>() == align_of::<AtomicU32>()) };
        self.check(index, 1);
        // SAFETY: as for `word64`: an aligned word of the right size inside the slice, which stays
        // mapped for `'a` and is accessed by racy copies, atomics and other processes only.
        unsafe { racy::atomic_u32(self.at(index)) }
    }

    /// Reports an access to values inside the slice.
    #[inline(always)]
    pub(super) fn observe(&self, index: usize, count: usize, touch: Touch) {
        if let Some(watched) = self.watched {
            watched.report(self.at(index), count * size_of::<T>(), touch);
        }
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn check(&self, index: usize, count: usize) {
        let is_inside = index.checked_add(count).is_some_and(|end| end <= self.length);
        assert!(
            is_inside,
            "{count} values from index {index} on are outside of the slice: it has {} values",
            self.length
        );
    }
}

impl<T> fmt::Debug for RacySlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values at {:p}", self.length, self.start)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "the mistake that is looked for")]
    fn a_part_is_inside_and_goes_forward() {
        let mut values = [0_u64, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        // SAFETY: the values lie there, and only the slice accesses them from here on.
        let slice = unsafe { RacySlice::new(values.as_mut_ptr(), values.len(), None) };
        for range in [5..3, 10..0, 11..10, 3..11, usize::MAX..usize::MAX] {
            let part = catch_unwind(|| slice.part(range.clone()).len());
            assert!(part.is_err(), "{range:?} has {part:?} values");
        }
        assert_eq!((slice.part(5..5).len(), slice.part(10..10).len()), (0, 0));
        assert_eq!(slice.part(3..6).to_vec(), [3, 4, 5]);
    }
}

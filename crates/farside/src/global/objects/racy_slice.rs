//! Values of the own process that others may write.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::Pod;
use farside_sys::racy;

use super::epoch::ReadEpoch;

/// Values in memory of this process that others may read and write at any time: like a slice of [`Cell`](std::cell::Cell)s. Values go in and
/// out by copy, and no reference leads there, except in a [`ReadEpoch`].
///
/// A value of 1, 2, 4 or 8 bytes that lies at a multiple of its size is seen whole, unless the memory is private and others put there
/// ([`Worker::register`](crate::Worker::register)); any other that others write meanwhile may be torn. Nothing is ordered: use barriers, or
/// words that are changed [atomically](crate::GlobalPtr).
///
/// *Cost*: a load or a store each.
#[derive(Clone, Copy)]
pub struct RacySlice<'a, T> {
    start: *mut T,
    length: usize,
    of: PhantomData<&'a [T]>,
}

impl<'a, T: Pod> RacySlice<'a, T> {
    /// # Safety
    /// At `start`, a multiple of the type's alignment, lie `length` values in memory that is mapped for as long as `'a`, and touched by racy copies, by
    /// atomics or by other processes only.
    pub(in crate::global) unsafe fn new(start: *mut T, length: usize) -> Self {
        debug_assert!(start.is_aligned());
        Self { start, length, of: PhantomData }
    }

    pub(super) const fn empty() -> Self {
        Self { start: std::ptr::null_mut(), length: 0, of: PhantomData }
    }

    /// How many values there are.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The value at an index.
    ///
    /// # Panics
    /// When there are not so many, as slices do.
    #[inline]
    #[track_caller]
    pub fn get(&self, index: usize) -> T {
        self.check(index, 1);
        let mut value = T::zeroed();
        let source = self.at(index);
        // SAFETY: the index is inside; the value is writable, and any bytes are one.
        unsafe { racy::copy_in(source, (&raw mut value).cast(), size_of::<T>()) };
        value
    }

    /// Writes the value at an index.
    ///
    /// # Panics
    /// When there are not so many, as slices do.
    #[inline]
    #[track_caller]
    pub fn set(&self, index: usize, value: T) {
        self.check(index, 1);
        // SAFETY: the index is inside; the value is readable.
        unsafe { racy::copy_out((&raw const value).cast(), self.at(index), size_of::<T>()) };
    }

    /// Reads values from an index on, as many as there is room for.
    ///
    /// # Panics
    /// When there are not so many.
    #[track_caller]
    pub fn read(&self, index: usize, values: &mut [T]) {
        self.check(index, values.len());
        // SAFETY: the range is inside; `values` is writable, and any bytes are values.
        unsafe { racy::copy_in(self.at(index), values.as_mut_ptr().cast(), size_of_val(values)) };
    }

    /// Writes values from an index on.
    ///
    /// # Panics
    /// When there is not so much room.
    #[track_caller]
    pub fn write(&self, index: usize, values: &[T]) {
        self.check(index, values.len());
        // SAFETY: the range is inside; `values` is readable.
        unsafe { racy::copy_out(values.as_ptr().cast(), self.at(index), size_of_val(values)) };
    }

    /// Writes the same value everywhere.
    pub fn fill(&self, value: T) {
        (0..self.length).for_each(|index| self.set(index, value));
    }

    /// The values one after the other, each read when it is asked for.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = T> + DoubleEndedIterator + use<'a, T> {
        let slice = *self;
        (0..self.length).map(move |index| slice.get(index))
    }

    /// Some of them.
    ///
    /// # Panics
    /// When there are not so many, and when the range ends before it begins, as slices do.
    #[track_caller]
    pub fn part(&self, range: Range<usize>) -> Self {
        let Range { start, end } = range;
        assert!(start <= end, "the range begins at {start} and ends at {end}, before that");
        let length = end - start;
        self.check(start, length);
        Self { start: self.start.wrapping_add(start), length, of: PhantomData }
    }

    /// Copies them all.
    pub fn to_vec(&self) -> Vec<T> {
        let mut values = vec![T::zeroed(); self.length];
        self.read(0, &mut values);
        values
    }

    /// The values themselves, while nobody writes.
    pub fn as_slice<'e>(&self, _: &'e ReadEpoch) -> &'e [T]
    where
        'a: 'e,
    {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: who made the epoch promised that nobody writes while it lasts; the memory is mapped as long, aligned, and holds values.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }

    #[inline(always)]
    fn at(&self, index: usize) -> *mut u8 {
        let at = self.start.wrapping_add(index);
        // SAFETY: the first value is aligned, and so are those behind it.
        unsafe { std::hint::assert_unchecked(at.is_aligned()) };
        at.cast()
    }

    #[inline(always)]
    #[track_caller]
    fn check(&self, index: usize, count: usize) {
        let is_inside = index.checked_add(count).is_some_and(|end| end <= self.length);
        assert!(is_inside, "{count} values from index {index} on leave the slice, which has {}", self.length);
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
        // SAFETY: so many values lie there, and are touched by the slice only from here on.
        let slice = unsafe { RacySlice::new(values.as_mut_ptr(), values.len()) };
        for range in [5..3, 10..0, 11..10, 3..11, usize::MAX..usize::MAX] {
            let part = catch_unwind(|| slice.part(range.clone()).len());
            assert!(part.is_err(), "{range:?} has {part:?} values");
        }
        assert_eq!((slice.part(5..5).len(), slice.part(10..10).len()), (0, 0));
        assert_eq!(slice.part(3..6).to_vec(), [3, 4, 5]);
    }
}

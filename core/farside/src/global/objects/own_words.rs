//! Atomic changes of words by the process that has them.

use farside_fabric::transport::AtomicChange;

use super::racy_slice::RacySlice;
use crate::global::{Integer, Word};
use crate::runtime::observer::{AccessKind, Touch};

/// Atomic changes of words of this process, as [`GlobalPtr`](crate::GlobalPtr) makes them anywhere.
/// Each returns the earlier value.
///
/// They are atomic with respect to the changes of all workers of the job, on any fabric. All but
/// [`store`](Self::store) are sequentially consistent. Signed minimum and maximum and the
/// arithmetic of floats are made by compare-and-swap, which is repeated if another change came
/// between.
///
/// ```
/// # use farside::prelude::*;
/// # farside::simulate(3, 1, 1, |me| {
/// let counters = me.global_array::<u64>(3 * 10)?;
/// // Each worker counts in its own part and in that of its neighbor.
/// counters.local(me).fetch_add(7, 1);
/// counters.at(me.neighbor(1).index() * 10 + 7)?.fetch_add(me, 1)?;
/// me.barrier()?;
/// assert_eq!(counters.local(me).load(7), 2);
/// # counters.free(me)
/// # }).unwrap();
/// ```
///
/// *Cost*: an instruction; no address is looked up.
///
/// # Panics
/// If the index is outside of the slice, for all methods.
impl<W: Word> RacySlice<'_, W> {
    #[inline]
    #[track_caller]
    fn change_word(&self, index: usize, change: AtomicChange<W>) -> W {
        self.check(index, 1);
        self.observe(index, 1, Touch::here(AccessKind::of(&change)));
        W::change_own(self, index, change)
    }

    /// Makes a change of any kind.
    #[inline]
    #[track_caller]
    pub fn change(&self, index: usize, change: AtomicChange<W>) -> W
    where
        W: Integer,
    {
        self.change_word(index, change)
    }

    /// Reads a word.
    #[inline]
    #[track_caller]
    pub fn load(&self, index: usize) -> W {
        self.change_word(index, AtomicChange::Load)
    }

    /// Writes a word, with release ordering: a worker that loads `value` sees all that this one
    /// wrote before. A [`swap`](Self::swap) is ordered before later loads too.
    #[inline]
    #[track_caller]
    pub fn store(&self, index: usize, value: W) {
        self.check(index, 1);
        self.observe(index, 1, Touch::here(AccessKind::AtomicChange));
        W::store_own(self, index, value);
    }

    /// Writes a word and returns the earlier value.
    #[inline]
    #[track_caller]
    pub fn swap(&self, index: usize, value: W) -> W {
        self.change_word(index, AtomicChange::Swap(value))
    }

    /// Writes `new` if the word holds `expected`. It did so if the returned value is `expected`.
    /// Floats are compared by their bits.
    #[inline]
    #[track_caller]
    pub fn compare_swap(&self, index: usize, expected: W, new: W) -> W {
        self.change_word(index, AtomicChange::CompareSwap { expected, new })
    }

    /// Adds a value: integers wrap around.
    #[inline]
    #[track_caller]
    pub fn fetch_add(&self, index: usize, value: W) -> W {
        self.change_word(index, AtomicChange::Add(value))
    }

    /// Stores the bitwise and.
    #[inline]
    #[track_caller]
    pub fn fetch_and(&self, index: usize, value: W) -> W
    where
        W: Integer,
    {
        self.change_word(index, AtomicChange::And(value))
    }

    /// Stores the bitwise or.
    #[inline]
    #[track_caller]
    pub fn fetch_or(&self, index: usize, value: W) -> W
    where
        W: Integer,
    {
        self.change_word(index, AtomicChange::Or(value))
    }

    /// Stores the bitwise exclusive or.
    #[inline]
    #[track_caller]
    pub fn fetch_xor(&self, index: usize, value: W) -> W
    where
        W: Integer,
    {
        self.change_word(index, AtomicChange::Xor(value))
    }

    /// Stores the smaller value. A number is stored in preference to a NaN.
    #[inline]
    #[track_caller]
    pub fn fetch_min(&self, index: usize, value: W) -> W {
        self.change_word(index, AtomicChange::Min(value))
    }

    /// Stores the larger value, as for [`fetch_min`](Self::fetch_min).
    #[inline]
    #[track_caller]
    pub fn fetch_max(&self, index: usize, value: W) -> W {
        self.change_word(index, AtomicChange::Max(value))
    }
}

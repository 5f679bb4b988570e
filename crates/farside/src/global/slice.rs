//! Addresses of several values, one behind the other.

use std::fmt;
use std::ops::Range;

use bytemuck::Pod;

use super::pointer::GlobalPtr;
use crate::error::Result;
use crate::job::worker::Worker;

/// Several values of a type, one behind the other, anywhere in the job. They go in and out by copy.
///
/// ```no_run
/// # use farside::prelude::*;
/// # use farside::GlobalSlice;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let memory = me.allocate_at(me.neighbor(1), 8 * 100)?;
/// let numbers: GlobalSlice<u64> = memory.address()?.cast().slice(100);
/// numbers.put(me, 10, &[1, 2, 3])?;
/// let mut back = [0; 3];
/// numbers.get(me, 10, &mut back)?;
/// assert_eq!((back, numbers.at(11)?.get(me)?), ([1, 2, 3], 2));
/// # Ok(())
/// # }
/// ```
pub struct GlobalSlice<T> {
    start: GlobalPtr<T>,
    length: usize,
}

impl<T> GlobalSlice<T> {
    pub(crate) const fn new(start: GlobalPtr<T>, length: usize) -> Self {
        Self { start, length }
    }

    /// The address of the first.
    pub const fn start(&self) -> GlobalPtr<T> {
        self.start
    }

    /// How many values there are.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The address of one of them.
    ///
    /// # Errors
    /// [`Error::Address`](crate::Error::Address) when there are not so many.
    #[inline]
    pub fn at(&self, index: usize) -> Result<GlobalPtr<T>> {
        if index < self.length { self.start.add(index) } else { Err(self.outside(index, 1)) }
    }

    /// Some of them.
    ///
    /// # Errors
    /// [`Error::Address`](crate::Error::Address) when there are not so many, or the range ends before it begins.
    pub fn part(&self, range: Range<usize>) -> Result<Self> {
        // One that ends before it begins is longer than anything.
        let length = range.end.wrapping_sub(range.start);
        self.check(range.start, length)?;
        Ok(Self { start: self.start.add(range.start)?, length })
    }

    fn check(&self, index: usize, count: usize) -> Result<()> {
        match index.checked_add(count) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(self.outside(index, count)),
        }
    }

    #[cold]
    fn outside(&self, index: usize, count: usize) -> crate::Error {
        let bytes = |count: usize| (count as u64).saturating_mul(size_of::<T>() as u64);
        self.start.address().beyond(bytes(index).saturating_add(bytes(count)), bytes(self.length))
    }
}

impl<T: Pod> GlobalSlice<T> {
    /// Writes values from `index` on.
    ///
    /// *Completion*, cost: as [`GlobalPtr::put`], and a copy.
    ///
    /// # Errors
    /// Those of [`GlobalPtr::put`]; nothing was written when they do not all fit.
    #[track_caller]
    pub fn put(&self, me: &Worker, index: usize, values: &[T]) -> Result<()> {
        self.check(index, values.len())?;
        me.put_values(self.start.add(index)?.address(), values)
    }

    /// Reads values from `index` on, as many as there is room for.
    ///
    /// # Errors
    /// Those of [`GlobalPtr::put`]; what is in `values` then is unspecified.
    #[track_caller]
    pub fn get(&self, me: &Worker, index: usize, values: &mut [T]) -> Result<()> {
        self.check(index, values.len())?;
        me.get_values(self.start.add(index)?.address(), values)
    }

    /// Reads them all.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    #[track_caller]
    pub fn to_vec(&self, me: &Worker) -> Result<Vec<T>> {
        me.check_address(self.start.address(), size_of::<T>().saturating_mul(self.length))?;
        let mut values = vec![T::zeroed(); self.length];
        self.get(me, 0, &mut values)?;
        Ok(values)
    }
}

impl<T> Clone for GlobalSlice<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for GlobalSlice<T> {}

impl<T> PartialEq for GlobalSlice<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.start, self.length) == (other.start, other.length)
    }
}

impl<T> Eq for GlobalSlice<T> {}

impl<T> fmt::Debug for GlobalSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values at {:?}", self.length, self.start)
    }
}

//! [`DistIterator`]: the results of one iterator on each worker.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Sum;

use farside::{Result, Wire, Worker, WorkerId};

/// Combines the items of iterators, of which each worker has one over its own part.
///
/// The adaptors are those of [`Iterator`], such as `map` and `filter`: they are lazy, and run on
/// all workers in parallel. The methods here take the place of `sum`, `count` and so on, and give
/// the result over all workers. All workers call them, in the same order as other collectives. An
/// iterator has ended before its worker waits.
///
/// ```
/// use farside_containers::{DistIterator, DistVec};
///
/// # farside::simulate(3, 1, 1, |me| {
/// let numbers = DistVec::new(me)?;
/// numbers.with(me, |own| own.extend(me.share(0..100)));
/// assert_eq!(numbers.iter(me).all_count(me)?, 100);
/// let squares = numbers.iter(me).map(|x| x * x);
/// assert_eq!(squares.filter(|x| x % 2 == 0).all_sum::<usize>(me)?, 161_700);
/// assert_eq!(numbers.iter(me).all_top_k(me, 3)?, [99, 98, 97]);
/// # Ok(())
/// # }).unwrap();
/// ```
///
/// *Cost*: the iteration, and that of [`Worker::all_reduce`] or [`Worker::gather`] once.
///
/// # Errors
/// All methods return those of the collective that they use.
pub trait DistIterator: Iterator + Sized {
    /// Folds the items of each worker from `first`, and combines the results of all workers, in the
    /// same order everywhere.
    fn all_fold<A: Wire + Clone>(
        self,
        me: &Worker,
        first: A,
        fold: impl FnMut(A, Self::Item) -> A,
        combine: impl FnMut(A, A) -> A,
    ) -> Result<A> {
        me.all_reduce(self.fold(first, fold), combine)
    }

    /// Combines all items, or returns `None` if there is none.
    fn all_reduce(
        self,
        me: &Worker,
        mut combine: impl FnMut(Self::Item, Self::Item) -> Self::Item,
    ) -> Result<Option<Self::Item>>
    where
        Self::Item: Wire + Clone,
    {
        let own = self.reduce(&mut combine);
        me.all_reduce(own, |one, other| match (one, other) {
            (Some(one), Some(other)) => Some(combine(one, other)),
            (one, other) => one.or(other),
        })
    }

    /// Adds all items.
    fn all_sum<S: Sum<Self::Item> + Sum + Wire + Clone>(self, me: &Worker) -> Result<S> {
        me.all_reduce(self.sum::<S>(), |one, other| [one, other].into_iter().sum())
    }

    /// Counts all items.
    fn all_count(self, me: &Worker) -> Result<u64> {
        me.all_reduce(self.count() as u64, |one, other| one + other)
    }

    /// Collects all items at one worker, in the order of the workers. The others get `None`.
    fn all_collect(self, me: &Worker, root: WorkerId) -> Result<Option<Vec<Self::Item>>>
    where
        Self::Item: Wire,
    {
        let parts = me.gather(root, self.collect::<Vec<_>>())?;
        Ok(parts.map(|parts| parts.into_iter().flatten().collect()))
    }

    /// Returns the `k` greatest items, the greatest first. If workers give different `k`, the least
    /// of them counts.
    fn all_top_k(self, me: &Worker, k: usize) -> Result<Vec<Self::Item>>
    where
        Self::Item: Wire + Clone + Ord,
    {
        let merge = |one: (usize, Vec<_>), other: (usize, Vec<_>)| {
            let k = one.0.min(other.0);
            (k, top_k(one.1.into_iter().chain(other.1), k))
        };
        me.all_reduce((k, top_k(self, k)), merge).map(|(_, greatest)| greatest)
    }
}

impl<I: Iterator> DistIterator for I {}

fn top_k<T: Ord>(items: impl Iterator<Item = T>, k: usize) -> Vec<T> {
    let mut greatest = BinaryHeap::new();
    for item in items {
        if greatest.len() < k {
            greatest.push(Reverse(item));
        } else if let Some(mut least) = greatest.peek_mut()
            && least.0 < item
        {
            *least = Reverse(item);
        }
    }
    greatest.into_sorted_vec().into_iter().map(|Reverse(item)| item).collect()
}

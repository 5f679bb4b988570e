//! The ways that items take: straight to their owners, or over one worker between.
//!
//! With `P` workers, batches for each of them take room that grows with `P`, and each batch fills
//! slowly. So a large number of workers stands in a grid of about `√P` columns. An item first goes
//! along its row to the column of its owner, and then along that column. A worker then has batches
//! for one row and one column.

use farside::WorkerId;

/// The most workers that all send to each other directly. Above that, the time in which a batch
/// fills matters more than a second hop.
const DIRECT_WORKERS_MAX: u32 = 64;

/// The ways of one worker's items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    workers: u32,
    columns: u32,
    own_row: u32,
    own_column: u32,
}

/// The next hop of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    /// The number of the batch that the item joins.
    pub(crate) batch: usize,
    /// The worker that gets the batch.
    pub(crate) next: WorkerId,
}

impl Route {
    /// Returns the ways of the items of worker `own`.
    pub(crate) fn new(own: WorkerId, workers: u32) -> Self {
        let columns = if workers <= DIRECT_WORKERS_MAX { workers } else { workers.isqrt() };
        Self { workers, columns, own_row: own.number() / columns, own_column: own.number() % columns }
    }

    /// Returns ways of items that lead over no other worker, which may be lost.
    pub(crate) fn direct(workers: u32) -> Self {
        Self { workers, columns: workers, own_row: 0, own_column: 0 }
    }

    /// The number of batches that a worker has.
    pub(crate) fn batches(&self) -> usize {
        (self.columns + self.workers.div_ceil(self.columns)) as usize
    }

    /// The number of the first batch that goes along the worker's own column, in a grid. Such a
    /// batch goes to the owner of its items.
    pub(crate) fn columns(&self) -> usize {
        self.columns as usize
    }

    /// Returns whether every batch goes straight to the owner of its items.
    pub(crate) fn is_direct(&self) -> bool {
        self.columns == self.workers
    }

    /// Returns the next hop of an item for worker `to`.
    #[inline]
    pub(crate) fn hop(&self, to: WorkerId) -> Hop {
        if self.is_direct() {
            return Hop { batch: to.index(), next: to };
        }
        let (row, column) = (to.number() / self.columns, to.number() % self.columns);
        if column == self.own_column {
            return Hop { batch: (self.columns + row) as usize, next: to };
        }
        // The last row may be short. Its items go over the row above, which is not.
        let own = self.own_row * self.columns + column;
        let next = if own < self.workers { own } else { own - self.columns };
        Hop { batch: column as usize, next: WorkerId::new(next) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_arrives_within_two_hops() {
        for workers in [1, 2, 3, 64, 65, 66, 71, 72, 73, 80, 81, 82, 127, 1000, 1024] {
            for from in (0..workers).map(WorkerId::new) {
                let route = Route::new(from, workers);
                let mut owners_of_batches = vec![None; route.batches()];
                for to in (0..workers).map(WorkerId::new) {
                    let first = route.hop(to);
                    assert!(first.next.number() < workers);
                    // All items of a batch have one next hop.
                    assert_eq!(*owners_of_batches[first.batch].get_or_insert(first.next), first.next);
                    let last = if first.next == to { first } else { Route::new(first.next, workers).hop(to) };
                    assert_eq!(last.next, to, "{workers} workers, from {from} to {to}");
                }
                let direct = Route::direct(workers);
                assert!((0..workers).map(WorkerId::new).all(|to| direct.hop(to).next == to));
                assert!(route.is_direct() || route.batches() <= 2 * workers.isqrt() as usize + 3);
            }
        }
    }
}

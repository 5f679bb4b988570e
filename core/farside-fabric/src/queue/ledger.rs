//! The operations of a queue that are over, and the number that it still accepts. This module does
//! no I/O and has no lock.

use std::collections::VecDeque;

use super::QueueLimits;

/// The operations of a queue, from their posting until a later signalled one is over.
///
/// `T` is the data of an operation, kept while the operation is in the ledger.
///
/// ```
/// use farside_fabric::queue::{Ledger, QueueLimits, Refusal};
///
/// let limits = QueueLimits { depth: 4, unsignalled_max: 2, completions_max: 2, bytes_max: 8 };
/// let mut ledger = Ledger::new(limits);
/// let first = ledger.push(None, false, "first");
/// let second = ledger.push(None, false, "second");
/// assert_eq!(ledger.admit(false), Err(Refusal::Overrun));
/// assert_eq!(ledger.admit(true), Ok(()));
/// let third = ledger.push(Some(30), false, "third");
///
/// // The third waits for the others.
/// assert_eq!(ledger.end(third), None);
/// assert_eq!(ledger.end(first), None);
/// assert_eq!(ledger.end(second), Some(30));
/// assert_eq!(ledger.under_way(), 0);
/// ```
#[derive(Debug)]
pub struct Ledger<T> {
    limits: QueueLimits,
    operations: VecDeque<Posted<T>>,
    /// The index of the first operation in the ledger.
    first: u64,
    /// Number of operations, from the first one on, that are over.
    over: usize,
    /// Number of operations posted since the last signalled one.
    unsignalled: usize,
    /// Number of signalled operations in the ledger.
    signalled: usize,
}

#[derive(Debug)]
struct Posted<T> {
    /// The number to report when it is over.
    signal: Option<u64>,
    /// True if the end of a later operation reports the end of this one.
    rides: bool,
    is_over: bool,
    content: T,
}

/// The reason why an operation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no room until some operations are over.
    Full,
    /// Too many operations in a row have no signal.
    Overrun,
}

impl<T> Ledger<T> {
    /// Creates an empty ledger.
    pub fn new(limits: QueueLimits) -> Self {
        let operations = VecDeque::with_capacity(limits.depth);
        Self { limits, operations, first: 0, over: 0, unsignalled: 0, signalled: 0 }
    }

    /// Checks whether one more operation is accepted.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn admit(&self, signalled: bool) -> Result<(), Refusal> {
        if !signalled && self.unsignalled >= self.limits.unsignalled_max {
            Err(Refusal::Overrun)
        } else if self.operations.len() >= self.limits.depth
            || (signalled && self.signalled >= self.limits.completions_max)
        {
            Err(Refusal::Full)
        } else {
            Ok(())
        }
    }

    /// Records a posted operation, and returns its index. The end of one that `rides` is not
    /// reported. It comes before that of any later one that [ends with all
    /// before](Self::end_with_all_before).
    pub fn push(&mut self, signal: Option<u64>, rides: bool, content: T) -> u64 {
        match signal {
            Some(_) => {
                self.unsignalled = 0;
                self.signalled += 1;
            }
            None => self.unsignalled += 1,
        }
        self.operations.push_back(Posted { signal, rides, is_over: false, content });
        self.next() - 1
    }

    /// The index of the next operation.
    pub fn next(&self) -> u64 {
        self.first + self.operations.len() as u64
    }

    /// The data of the operation with this index.
    pub fn get(&self, index: u64) -> Option<&T> {
        let at = index.checked_sub(self.first)?;
        self.operations.get(at as usize).map(|operation| &operation.content)
    }

    /// The index of the operation in a place, if each operation is in the place of its index modulo
    /// the depth.
    pub fn index_at(&self, place: usize) -> Option<u64> {
        let depth = self.limits.depth as u64;
        let index = self.first + (place as u64 + depth - self.first % depth) % depth;
        (place < self.limits.depth && index < self.next()).then_some(index)
    }

    /// The first operation that is not over.
    pub fn oldest(&self) -> Option<(u64, &T)> {
        let operation = self.operations.get(self.over)?;
        Some((self.first + self.over as u64, &operation.content))
    }

    /// All operations in order: whether they are signalled, and their data.
    pub fn iter(&self) -> impl Iterator<Item = (bool, &T)> {
        self.operations.iter().map(|operation| (operation.signal.is_some(), &operation.content))
    }

    /// The data of the operations that are not over.
    pub fn open(&self) -> impl Iterator<Item = &T> {
        let open = self.operations.iter().skip(self.over).filter(|operation| !operation.is_over);
        open.map(|operation| &operation.content)
    }

    /// Number of operations that are not over.
    pub fn under_way(&self) -> usize {
        self.open().count()
    }

    /// Returns whether riding operations are not over, so that only a later one reports their end.
    pub fn has_riders(&self) -> bool {
        self.operations.iter().skip(self.over).any(|operation| operation.rides && !operation.is_over)
    }

    /// Records that the operation with this index is over. If all operations before some signalled
    /// one are over, returns the number of the last such one.
    pub fn end(&mut self, index: u64) -> Option<u64> {
        let operation = index.checked_sub(self.first).and_then(|at| self.operations.get_mut(at as usize))?;
        operation.is_over = true;
        self.advance()
    }

    /// Records the same for an operation whose end reports that of the riding ones before it.
    pub fn end_with_all_before(&mut self, index: u64) -> Option<u64> {
        let count = index.saturating_sub(self.first) as usize;
        for operation in self.operations.iter_mut().take(count).skip(self.over) {
            operation.is_over |= operation.rides;
        }
        self.end(index)
    }

    fn advance(&mut self) -> Option<u64> {
        let mut told = None;
        while self.operations.get(self.over).is_some_and(|operation| operation.is_over) {
            self.over += 1;
            if let Some(number) = self.operations[self.over - 1].signal {
                // Two threads may post in another order than their numbers.
                told = told.max(Some(number));
                self.signalled -= 1;
                self.first += self.over as u64;
                self.operations.drain(..self.over);
                self.over = 0;
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Post {
            signalled: bool,
            rides: bool,
        },
        /// One of the operations that report their end.
        End(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            any::<(bool, bool)>().prop_map(|(signalled, rides)| Step::Post { signalled, rides }),
            (0..8_usize).prop_map(Step::End),
        ]
    }

    proptest! {
        /// Compares the ledger with a list of all operations ever posted.
        #[test]
        fn a_signal_is_reported_after_all_before_it(steps in prop::collection::vec(step(), 0..200)) {
            let limits = QueueLimits { depth: 6, unsignalled_max: 3, completions_max: 2, bytes_max: 8 };
            let mut ledger = Ledger::new(limits);
            // Signalled, rides, over.
            let mut all: Vec<(bool, bool, bool)> = Vec::new();
            let mut freed = 0;
            for step in steps {
                match step {
                    Step::Post { signalled, rides } => {
                        // A signalled operation reports its end.
                        let rides = rides && !signalled;
                        let run = all.iter().rev().take_while(|(signalled, ..)| !signalled).count();
                        let signals = all[freed..].iter().filter(|(signalled, ..)| *signalled).count();
                        let expected = if !signalled && run >= limits.unsignalled_max {
                            Err(Refusal::Overrun)
                        } else if all.len() - freed >= limits.depth || (signalled && signals >= limits.completions_max) {
                            Err(Refusal::Full)
                        } else {
                            Ok(())
                        };
                        prop_assert_eq!(ledger.admit(signalled), expected);
                        if expected.is_ok() {
                            let index = ledger.push(signalled.then_some(all.len() as u64), rides, ());
                            prop_assert_eq!(index, all.len() as u64);
                            prop_assert_eq!(ledger.index_at(index as usize % limits.depth), Some(index));
                            all.push((signalled, rides, false));
                        }
                    }
                    Step::End(which) => {
                        let open: Vec<usize> = (0..all.len()).filter(|at| !all[*at].1 && !all[*at].2).collect();
                        let Some(at) = open.get(which).copied() else { continue };
                        all[at].2 = true;
                        let told = if all[at].0 {
                            all[..at].iter_mut().for_each(|(_, rides, over)| *over |= *rides);
                            ledger.end_with_all_before(at as u64)
                        } else {
                            ledger.end(at as u64)
                        };
                        let prefix = all.iter().take_while(|(.., over)| *over).count();
                        let last = (0..prefix).rev().find(|at| all[*at].0);
                        let news = last.filter(|last| *last >= freed);
                        prop_assert_eq!(told, news.map(|last| last as u64));
                        freed = news.map_or(freed, |last| last + 1);
                        prop_assert_eq!(ledger.under_way(), all[freed..].iter().filter(|(.., over)| !over).count());
                        prop_assert_eq!(ledger.oldest().map(|(at, ())| at as usize), (prefix < all.len()).then_some(prefix));
                    }
                }
            }
        }
    }
}

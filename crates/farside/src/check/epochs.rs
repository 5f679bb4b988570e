//! Which accesses of this process's threads are open.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_fabric::clock::lock;

use crate::Wire;

/// How long an access is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub(crate) enum Lifetime {
    /// Until its thread leaves this epoch.
    Epoch(u64),
    /// Until this operation has completed and its thread has left the epoch it was in then.
    Operation(u64),
    /// Until the memory is allocated again.
    Released,
}

/// The state of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(crate) enum AccessState {
    /// Its thread may have told another thread of it.
    Ended,
    /// No other thread knows of it.
    Open,
    /// It belongs to an operation that has not completed.
    InUse,
}

/// The epochs of a process's threads, and the operations under way.
#[derive(Debug)]
pub(super) struct Epochs {
    /// Written by their own threads, and by threads that are no workers on behalf of all; read by
    /// the service thread for other processes.
    threads: Box<[AtomicU64]>,
    operations: Mutex<Operations>,
}

#[derive(Debug, Default)]
struct Operations {
    next: u64,
    /// `None` for each operation under way; thread and epoch for each completed one whose thread
    /// may still be in that epoch.
    begun: HashMap<u64, Option<(usize, u64)>>,
    /// The number of entries at which those that have ended are removed.
    sweep_at: usize,
}

/// Entries that are kept without a sweep.
const SWEEP_MIN: usize = 64;

impl Epochs {
    pub(super) fn new(threads: usize) -> Self {
        let threads = (0..threads).map(|_| AtomicU64::new(0)).collect();
        Self { threads, operations: Mutex::default() }
    }

    /// Ends the accesses of one thread, or of all if `local` is `None`.
    pub(super) fn end(&self, local: Option<usize>) {
        match local {
            Some(local) => self.leave(local),
            None => (0..self.threads.len()).for_each(|local| self.leave(local)),
        }
    }

    fn leave(&self, local: usize) {
        // SYNC: relaxed. The caller publishes with a release after this. A thread that acquires
        // that and asks for the epoch does so by messages.
        self.threads[local].fetch_add(1, Ordering::Relaxed);
    }

    /// The current epoch of a thread.
    pub(super) fn of(&self, local: usize) -> u64 {
        self.threads[local].load(Ordering::Relaxed)
    }

    /// The state of an access of a thread.
    pub(super) fn state_of(&self, local: usize, lifetime: Lifetime) -> AccessState {
        let epoch = match lifetime {
            Lifetime::Epoch(epoch) => epoch,
            Lifetime::Operation(operation) => match lock(&self.operations).begun.get(&operation) {
                Some(None) => return AccessState::InUse,
                Some(Some((_, epoch))) => *epoch,
                None => return AccessState::Ended,
            },
            // No thread can end a release.
            Lifetime::Released => return AccessState::Open,
        };
        let is_in_it = self.threads.get(local).is_some_and(|now| now.load(Ordering::Relaxed) == epoch);
        if is_in_it { AccessState::Open } else { AccessState::Ended }
    }

    pub(super) fn begin_operation(&self) -> u64 {
        let mut operations = lock(&self.operations);
        let operation = operations.next;
        operations.next += 1;
        operations.begun.insert(operation, None);
        operation
    }

    /// Notes that an operation of a thread has completed. Returns the epoch that its accesses
    /// belong to from now on.
    pub(super) fn complete(&self, local: usize, operation: u64) -> u64 {
        let mut operations = lock(&self.operations);
        if operations.begun.len() >= operations.sweep_at {
            operations.begun.retain(|_, completed| completed.is_none_or(|(local, epoch)| self.of(local) == epoch));
            operations.sweep_at = (2 * operations.begun.len()).max(SWEEP_MIN);
        }
        let epoch = self.of(local);
        operations.begun.insert(operation, Some((local, epoch)));
        epoch
    }

    /// Notes that the accesses of an operation have ended.
    pub(super) fn end_operation(&self, operation: u64) {
        lock(&self.operations).begun.remove(&operation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_leaves_its_epoch_or_all_do() {
        let epochs = Epochs::new(3);
        epochs.end(Some(1));
        assert_eq!([epochs.of(0), epochs.of(1), epochs.of(2)], [0, 1, 0]);
        epochs.end(None);
        assert_eq!([epochs.of(0), epochs.of(1), epochs.of(2)], [1, 2, 1]);
    }

    #[test]
    fn an_operation_is_in_use_and_then_open_and_then_ended() {
        let epochs = Epochs::new(1);
        let operation = epochs.begin_operation();
        let lifetime = Lifetime::Operation(operation);
        epochs.end(None);
        assert_eq!(epochs.state_of(0, lifetime), AccessState::InUse);
        assert_eq!(epochs.complete(0, operation), 1);
        assert_eq!(epochs.state_of(0, lifetime), AccessState::Open);
        epochs.end(None);
        assert_eq!(epochs.state_of(0, lifetime), AccessState::Ended);
        for _ in 0..10 * SWEEP_MIN {
            let another = epochs.begin_operation();
            epochs.complete(0, another);
            epochs.end(None);
        }
        assert!(lock(&epochs.operations).begun.len() <= SWEEP_MIN, "ended operations are not kept");
    }

    #[test]
    fn an_operation_that_was_not_made_has_ended() {
        let epochs = Epochs::new(1);
        let operation = epochs.begin_operation();
        epochs.end_operation(operation);
        assert_eq!(epochs.state_of(0, Lifetime::Operation(operation)), AccessState::Ended);
    }

    #[test]
    fn accesses_of_unknown_epochs_threads_and_operations_have_ended() {
        let epochs = Epochs::new(1);
        assert_eq!(epochs.state_of(0, Lifetime::Epoch(0)), AccessState::Open);
        assert_eq!(epochs.state_of(0, Lifetime::Epoch(1)), AccessState::Ended);
        assert_eq!(epochs.state_of(7, Lifetime::Epoch(0)), AccessState::Ended);
        assert_eq!(epochs.state_of(0, Lifetime::Operation(9)), AccessState::Ended);
    }
}

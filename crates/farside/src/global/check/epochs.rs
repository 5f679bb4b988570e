//! Which accesses of this process's threads are open.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use farside_fabric::clock::lock;

/// Until when an access is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    /// Until its thread leaves this epoch.
    Epoch(u64),
    /// Until this operation has completed, and its thread has left the epoch that it was in then.
    Operation(u64),
    /// Until the memory is given out anew.
    Released,
}

/// How it stands with an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its thread may have told somebody of it.
    Ended,
    /// Nobody knows of it.
    Open,
    /// It is an operation's that has not completed.
    InUse,
}

/// The epochs of a process's threads, and the operations that go on.
#[derive(Debug)]
pub(super) struct Epochs {
    /// Counted up by their threads, or, for all that it may have been told, by a thread that is no worker; read by the service thread for others.
    threads: Box<[AtomicU64]>,
    operations: Mutex<Operations>,
}

#[derive(Debug, Default)]
struct Operations {
    next: u64,
    /// Those that go on, and with their epochs those that have completed and whose threads have told nobody since.
    begun: HashMap<u64, Option<(usize, u64)>>,
    /// With so many of them those that have ended are looked for.
    sweep_at: usize,
}

/// Operations that are kept without looking which have ended.
const SWEEP_MIN: usize = 64;

thread_local! {
    /// The process and the number of this thread, if it is a worker's of a job that is checked.
    static HERE: RefCell<Option<(Arc<Epochs>, usize)>> = const { RefCell::new(None) };
}

/// This thread is a worker's.
#[derive(Debug)]
pub(crate) struct Seated(());

impl Drop for Seated {
    fn drop(&mut self) {
        HERE.set(None);
    }
}

impl Epochs {
    pub(super) fn new(threads: usize) -> Self {
        let threads = (0..threads).map(|_| AtomicU64::new(0)).collect();
        Self { threads, operations: Mutex::default() }
    }

    pub(super) fn seat(this: &Arc<Self>, local: usize) -> Seated {
        HERE.set(Some((this.clone(), local)));
        Seated(())
    }

    /// Ends the accesses of this thread, if it is a worker's of a job that is checked.
    pub(super) fn end_here() {
        HERE.with_borrow(|here| {
            if let Some((epochs, local)) = here {
                epochs.leave(*local);
            }
        });
    }

    /// Ends the accesses of this thread, or of all if it is none of the process's workers.
    pub(super) fn end(this: &Arc<Self>) {
        let local = HERE.with_borrow(|here| match here {
            Some((epochs, local)) if Arc::ptr_eq(epochs, this) => Some(*local),
            _ => None,
        });
        match local {
            Some(local) => this.leave(local),
            None => (0..this.threads.len()).for_each(|local| this.leave(local)),
        }
    }

    fn leave(&self, local: usize) {
        // SYNC: relaxed. What is published next is released over it; who acquires that and asks for the epoch does so by messages.
        self.threads[local].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn of(&self, local: usize) -> u64 {
        self.threads[local].load(Ordering::Relaxed)
    }

    /// How it stands with an access of a thread.
    pub(super) fn standing(&self, local: usize, life: Life) -> Standing {
        let epoch = match life {
            Life::Epoch(epoch) => epoch,
            Life::Operation(operation) => match lock(&self.operations).begun.get(&operation) {
                Some(None) => return Standing::InUse,
                Some(Some((_, epoch))) => *epoch,
                None => return Standing::Ended,
            },
            // No thread can end that.
            Life::Released => return Standing::Open,
        };
        let is_in_it = self.threads.get(local).is_some_and(|now| now.load(Ordering::Relaxed) == epoch);
        if is_in_it { Standing::Open } else { Standing::Ended }
    }

    pub(super) fn begin_operation(&self) -> u64 {
        let mut operations = lock(&self.operations);
        let operation = operations.next;
        operations.next += 1;
        operations.begun.insert(operation, None);
        operation
    }

    /// An operation of a thread has completed. Its accesses are those of the epoch that is returned.
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

    /// What an operation did has ended, for all that anybody may know.
    pub(super) fn end_operation(&self, operation: u64) {
        lock(&self.operations).begun.remove(&operation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_ends_its_own_accesses_and_a_stranger_everybodys() {
        let epochs = Arc::new(Epochs::new(3));
        let other = Arc::new(Epochs::new(3));
        let seated = Epochs::seat(&epochs, 1);
        Epochs::end(&epochs);
        assert_eq!([epochs.of(0), epochs.of(1), epochs.of(2)], [0, 1, 0]);
        Epochs::end(&other);
        assert_eq!([other.of(0), other.of(1), other.of(2)], [1, 1, 1], "it is no worker of that process");
        drop(seated);
        Epochs::end(&epochs);
        assert_eq!([epochs.of(0), epochs.of(1), epochs.of(2)], [1, 2, 1]);
    }

    #[test]
    fn an_operation_is_in_use_and_then_open_and_then_ended() {
        let epochs = Arc::new(Epochs::new(1));
        let operation = epochs.begin_operation();
        let life = Life::Operation(operation);
        Epochs::end(&epochs);
        assert_eq!(epochs.standing(0, life), Standing::InUse);
        assert_eq!(epochs.complete(0, operation), 1);
        assert_eq!(epochs.standing(0, life), Standing::Open);
        Epochs::end(&epochs);
        assert_eq!(epochs.standing(0, life), Standing::Ended);
        for _ in 0..10 * SWEEP_MIN {
            let another = epochs.begin_operation();
            epochs.complete(0, another);
            Epochs::end(&epochs);
        }
        assert!(lock(&epochs.operations).begun.len() <= SWEEP_MIN, "those that have ended are not kept");
    }

    #[test]
    fn an_operation_that_was_let_go_has_ended() {
        let epochs = Epochs::new(1);
        let operation = epochs.begin_operation();
        epochs.end_operation(operation);
        assert_eq!(epochs.standing(0, Life::Operation(operation)), Standing::Ended);
    }

    #[test]
    fn what_no_thread_did_has_ended() {
        let epochs = Epochs::new(1);
        assert_eq!(epochs.standing(0, Life::Epoch(0)), Standing::Open);
        assert_eq!(epochs.standing(0, Life::Epoch(1)), Standing::Ended);
        assert_eq!(epochs.standing(7, Life::Epoch(0)), Standing::Ended);
        assert_eq!(epochs.standing(0, Life::Operation(9)), Standing::Ended);
    }
}

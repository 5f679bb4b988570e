//! Which accesses of this process's threads are open.

use std::collections::HashMap;
use std::sync::Mutex;

use farside_fabric::WorkerId;
use farside_fabric::clock::lock;

use crate::Wire;
use crate::runtime::observer::Known;

/// The time for which an access is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Wire)]
pub(crate) enum Lifetime {
    /// Until the checker must assume that any other thread knows of this epoch of its thread.
    Epoch(u64),
    /// Until this operation has completed. The access then belongs to the epoch in which its thread
    /// was at that time.
    Operation(u64),
    /// Until the memory is allocated again.
    Released,
}

/// The state of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(crate) enum AccessState {
    /// Any other thread may know of it.
    Ended,
    /// No other thread knows of it.
    Open,
    /// The access belongs to this epoch of its thread, which has published it only by calls.
    /// Workers that know of it have it in their [`Known`], unless a thread has published it since.
    Told { epoch: u64 },
    /// The access belongs to an operation that has not completed.
    InUse,
}

/// A worker's report on itself to the owner of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Wire)]
pub(crate) struct Standing {
    /// Any other thread may know of the worker's accesses in epochs below this one.
    pub(super) ended: u64,
    /// The accesses that are ordered before those that the worker makes now.
    pub(super) known: Known,
}

/// The epochs of a process's threads, and the operations under way.
#[derive(Debug)]
pub(super) struct Epochs {
    /// Changed by their own threads, and by threads that are no workers on behalf of all; read by
    /// the service thread for other processes.
    threads: Box<[Mutex<Thread>]>,
    operations: Mutex<Operations>,
}

/// The state of one thread: its component of a vector clock, and what it knows of others.
#[derive(Debug, Default)]
struct Thread {
    worker: u32,
    epoch: u64,
    standing: Standing,
    /// Epochs that this thread has published and that others may know without an entry in their
    /// [`Known`].
    published: Known,
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
    pub(super) fn new(workers: impl Iterator<Item = WorkerId>) -> Self {
        let thread = |worker: WorkerId| Mutex::new(Thread { worker: worker.number(), ..Thread::default() });
        Self { threads: workers.map(thread).collect(), operations: Mutex::default() }
    }

    /// Ends the accesses of one thread, or of all threads if `local` is `None`, because it is about
    /// to send a message that does not carry what it knows. The message can reach only the worker
    /// `to`, or any worker if `to` is `None`. Also publishes what the thread knows, except for what
    /// `to` has done itself.
    pub(super) fn end(&self, local: Option<usize>, to: Option<WorkerId>) {
        let threads = local.map_or(0..self.threads.len(), |local| local..local + 1);
        for thread in &self.threads[threads] {
            let mut thread = lock(thread);
            let Thread { epoch, standing, published, .. } = &mut *thread;
            *epoch += 1;
            standing.ended = *epoch;
            let news = standing.known.0.iter().filter(|(worker, _)| to.is_none_or(|to| to.number() != *worker));
            news.for_each(|(worker, end)| published.add(*worker, *end));
        }
    }

    /// Begins a new epoch of a thread. Returns what the thread knows, and its accesses so far.
    pub(super) fn tell(&self, local: usize) -> Known {
        let mut thread = lock(&self.threads[local]);
        thread.epoch += 1;
        let mut told = thread.standing.known.clone();
        told.add(thread.worker, thread.epoch);
        told
    }

    /// Adds to what a thread knows.
    pub(super) fn hear(&self, local: usize, news: impl Iterator<Item = (u32, u64)>) {
        let mut thread = lock(&self.threads[local]);
        news.for_each(|(worker, end)| thread.standing.known.add(worker, end));
    }

    /// Ends the accesses that a thread made in its past epochs up to this one.
    pub(super) fn all_know(&self, local: usize, epoch: u64) {
        let mut thread = lock(&self.threads[local]);
        thread.standing.ended = thread.standing.ended.max(thread.epoch.min(epoch + 1));
    }

    /// The current epoch of a thread.
    pub(super) fn of(&self, local: usize) -> u64 {
        lock(&self.threads[local]).epoch
    }

    pub(super) fn standing(&self, local: usize) -> Standing {
        lock(&self.threads[local]).standing.clone()
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
        let Some(thread) = self.threads.get(local) else { return AccessState::Ended };
        let thread = lock(thread);
        match () {
            () if epoch < thread.standing.ended || epoch > thread.epoch => AccessState::Ended,
            () if epoch == thread.epoch => AccessState::Open,
            () => AccessState::Told { epoch },
        }
    }

    /// Returns whether a thread of this process may have made an access known to others without a
    /// call.
    pub(super) fn is_published(&self, worker: u32, epoch: u64) -> bool {
        self.threads.iter().any(|thread| lock(thread).published.has(worker, epoch))
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

    /// Threads that are the first workers.
    fn threads(count: u32) -> Epochs {
        Epochs::new((0..count).map(WorkerId::new))
    }

    #[test]
    fn one_thread_leaves_its_epoch_or_all_do() {
        let epochs = threads(3);
        epochs.end(Some(1), None);
        assert_eq!([epochs.of(0), epochs.of(1), epochs.of(2)], [0, 1, 0]);
        epochs.end(None, None);
        assert_eq!([epochs.of(0), epochs.of(1), epochs.of(2)], [1, 2, 1]);
    }

    /// Worker 0 calls worker 1, which calls worker 2 and later answers worker 0.
    #[test]
    fn what_is_known_travels_with_calls_and_is_published_by_all_else() {
        let epochs = threads(3);
        let call = |from, to| {
            let told = epochs.tell(from);
            epochs.hear(to, told.0.into_iter());
        };
        let knows = |local: usize, worker, epoch| epochs.standing(local).known.has(worker, epoch);
        call(0, 1);
        assert_eq!(epochs.state_of(0, Lifetime::Epoch(0)), AccessState::Told { epoch: 0 });
        assert_eq!(epochs.state_of(0, Lifetime::Epoch(1)), AccessState::Open);
        assert!(knows(1, 0, 0) && !knows(1, 0, 1) && !knows(2, 0, 0));
        epochs.end(Some(1), Some(WorkerId::new(0)));
        assert!(!epochs.is_published(0, 0), "it is known to its own worker anyway");
        call(1, 2);
        assert!(knows(2, 0, 0) && knows(2, 1, 1) && !knows(2, 1, 2));
        epochs.end(Some(2), Some(WorkerId::new(0)));
        assert!(epochs.is_published(1, 1) && !epochs.is_published(1, 2) && !epochs.is_published(0, 0));
        epochs.end(Some(1), None);
        assert!(epochs.is_published(0, 0) && !epochs.is_published(0, 1));
        epochs.all_know(0, 5);
        assert_eq!(epochs.state_of(0, Lifetime::Epoch(0)), AccessState::Ended);
        assert_eq!(epochs.state_of(0, Lifetime::Epoch(1)), AccessState::Open, "it is in that epoch");
    }

    #[test]
    fn an_operation_is_in_use_and_then_open_and_then_ended() {
        let epochs = threads(1);
        let operation = epochs.begin_operation();
        let lifetime = Lifetime::Operation(operation);
        epochs.end(None, None);
        assert_eq!(epochs.state_of(0, lifetime), AccessState::InUse);
        assert_eq!(epochs.complete(0, operation), 1);
        assert_eq!(epochs.state_of(0, lifetime), AccessState::Open);
        epochs.end(None, None);
        assert_eq!(epochs.state_of(0, lifetime), AccessState::Ended);
        for _ in 0..10 * SWEEP_MIN {
            let another = epochs.begin_operation();
            epochs.complete(0, another);
            epochs.end(None, None);
        }
        assert!(lock(&epochs.operations).begun.len() <= SWEEP_MIN, "ended operations are not kept");
    }

    #[test]
    fn an_operation_that_was_not_made_has_ended() {
        let epochs = threads(1);
        let operation = epochs.begin_operation();
        epochs.end_operation(operation);
        assert_eq!(epochs.state_of(0, Lifetime::Operation(operation)), AccessState::Ended);
    }

    #[test]
    fn accesses_of_unknown_epochs_threads_and_operations_have_ended() {
        let epochs = threads(1);
        assert_eq!(epochs.state_of(0, Lifetime::Epoch(0)), AccessState::Open);
        assert_eq!(epochs.state_of(0, Lifetime::Epoch(1)), AccessState::Ended);
        assert_eq!(epochs.state_of(7, Lifetime::Epoch(0)), AccessState::Ended);
        assert_eq!(epochs.state_of(0, Lifetime::Operation(9)), AccessState::Ended);
    }
}

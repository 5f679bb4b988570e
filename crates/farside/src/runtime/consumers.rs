//! Calls on a process, which whichever of its threads is free runs: pools of consumers (Seriema §3.1, "helper threads").
//!
//! A pool has a name among those that can be called, and one thread, its *receiver*, that rings and lanes lead to like to a worker. That
//! runs nothing. It copies each record into the pool's queue, and a consumer takes it from there and runs it as a worker would. So
//! every form of call can be made on a pool.
//!
//! The threads of a process are, one behind the other: its workers, its user service threads, and for each pool that is not empty
//! the receiver and the consumers.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use std::time::Duration;

use farside_fabric::ring::Header;

use crate::error::{Result, Source};
use crate::invoke::inbox::run_handed_over;
use crate::runtime::process::{Process, lock};
use crate::runtime::worker::Worker;
use farside_launch::settings::{Settings, threads_of_pool};

/// How long a receiver that has no room sleeps at most before it looks whether the job is over.
const NAP: Duration = Duration::from_millis(100);

/// What a pool runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolKind {
    /// Functions that do not wait.
    Consumers,
    /// Functions that may.
    Waiters,
}

impl PoolKind {
    pub(crate) const ALL: [Self; 2] = [Self::Consumers, Self::Waiters];

    fn consumers(self, settings: &Settings) -> u32 {
        match self {
            Self::Consumers => settings.consumer_threads,
            Self::Waiters => settings.waiting_threads,
        }
    }

    /// Which thread of a process receives the calls on this pool; `None` if it has no consumers.
    pub(crate) fn receiver(self, settings: &Settings) -> Option<usize> {
        let before: u64 =
            Self::ALL.into_iter().take(self as usize).map(|kind| threads_of_pool(kind.consumers(settings))).sum();
        let first = u64::from(settings.threads) + u64::from(settings.service_threads) + before;
        (self.consumers(settings) > 0).then_some(first as usize)
    }

    /// The threads that run them.
    fn members(self, settings: &Settings) -> Range<usize> {
        let consumers = self.consumers(settings) as usize;
        self.receiver(settings).map_or(0..0, |receiver| receiver + 1..receiver + 1 + consumers)
    }
}

/// What a thread of a process does with the calls that arrive at it, and besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It runs them.
    Own,
    /// It hands them over.
    Receiver(PoolKind),
    /// It runs those that were handed over.
    Member(PoolKind),
}

impl Role {
    pub(crate) fn of(local: usize, settings: &Settings) -> Self {
        let find = |kind: PoolKind| match local {
            _ if kind.receiver(settings) == Some(local) => Some(Self::Receiver(kind)),
            _ if kind.members(settings).contains(&local) => Some(Self::Member(kind)),
            _ => None,
        };
        PoolKind::ALL.into_iter().find_map(find).unwrap_or(Self::Own)
    }
}

/// A record that was copied out of the ring or stream that it came by.
#[derive(Debug)]
pub(crate) struct HandedOver {
    pub(crate) source: Source,
    pub(crate) header: Header,
    /// In words, so that what lies in it is aligned as in a ring.
    words: Box<[u64]>,
}

impl HandedOver {
    /// # Safety
    /// The bytes from `payload` to `end` are those of a whole record, which nobody writes; `payload` is aligned to 8.
    pub(crate) unsafe fn copy(source: Source, header: Header, payload: *const u8, end: *const u8) -> Self {
        let words = (end.addr() - payload.addr()) / 8;
        // SAFETY: records are whole words, and begin at whole words; the rest is passed on.
        let words = unsafe { std::slice::from_raw_parts(payload.cast::<u64>(), words) };
        Self { source, header, words: words.into() }
    }

    pub(crate) fn payload(&self) -> Range<*const u8> {
        let range = self.words.as_ptr_range();
        range.start.cast()..range.end.cast()
    }

    /// What it takes in the queue, also when it carries nothing.
    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.words)
    }
}

/// A pool of consumers, with the queue that they share.
#[derive(Debug)]
pub(crate) struct Pool {
    kind: PoolKind,
    members: Range<usize>,
    cap_bytes: usize,
    queue: Mutex<VecDeque<HandedOver>>,
    /// The queue's bytes. Changed under its lock.
    queued_bytes: AtomicUsize,
    /// Records queued or being run. Written by the receiver, and by consumers when they are done.
    unfinished: AtomicUsize,
    /// Counted up when there is room again. The receiver sleeps on it.
    room: AtomicU32,
}

impl Pool {
    pub(crate) fn new(kind: PoolKind, settings: &Settings) -> Self {
        Self {
            kind,
            members: kind.members(settings),
            cap_bytes: settings.queue_cap_bytes,
            queue: Mutex::default(),
            queued_bytes: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
            room: AtomicU32::new(0),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        // SYNC: pairs with the release in `finish`: what the last record sent is known to who finds the pool idle.
        self.unfinished.load(Ordering::Acquire) == 0
    }

    /// Queues a record for the consumers. While there is no room the receiver waits, and what comes after it stays in its ring,
    /// until its sender finds no more room there.
    pub(crate) fn hand_over(&self, receiver: &Worker, record: HandedOver) {
        let process = receiver.process_handle();
        loop {
            let seen = self.room.load(Ordering::Acquire);
            let queued = self.queued_bytes.load(Ordering::Relaxed);
            // One that is longer than the cap goes alone. When the job is over nobody makes room.
            if queued == 0 || queued + record.bytes() <= self.cap_bytes || process.check_ended().is_err() {
                break;
            }
            process.clock().sleep(&self.room, seen, NAP);
        }
        self.unfinished.fetch_add(1, Ordering::Relaxed);
        let mut queue = lock(&self.queue);
        self.queued_bytes.fetch_add(record.bytes(), Ordering::Relaxed);
        queue.push_back(record);
        drop(queue);
        self.wake_one(process, None);
    }

    /// Wakes a consumer that sleeps, if one does.
    fn wake_one(&self, process: &Process, but: Option<usize>) {
        // SYNC: pairs with the fence in `Doorbell::prepare`: a consumer that is not seen to sleep here sees what is queued.
        fence(Ordering::SeqCst);
        let bell = |local| process.home().doorbell(local);
        let asleep = self.members.clone().find(|local| Some(*local) != but && bell(*local).is_asleep());
        if let Some(local) = asleep {
            bell(local).ring_after_fence();
        }
    }

    fn take(&self, process: &Process, local: usize) -> Option<HandedOver> {
        let mut queue = lock(&self.queue);
        let record = queue.pop_front()?;
        self.queued_bytes.fetch_sub(record.bytes(), Ordering::Relaxed);
        let more = !queue.is_empty();
        drop(queue);
        self.room.fetch_add(1, Ordering::Release);
        process.clock().wake(&self.room);
        if more {
            // Who was woken for it may have been the one that was woken for this.
            self.wake_one(process, Some(local));
        }
        Some(record)
    }

    fn finish(&self, process: &Process) {
        // SYNC: release, for the acquire in `is_idle`.
        let threads = process.shape().callable_per_process();
        if self.unfinished.fetch_sub(1, Ordering::Release) == 1 && process.callers().all_rest(threads) {
            // The job may come to rest now.
            process.call_attention_of_all();
        }
    }
}

/// Counts a record as done also when its function panicked.
struct Unfinished<'a>(&'a Pool, &'a Process);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.finish(self.1);
    }
}

impl Worker {
    /// Runs what is queued for the pool that this thread belongs to.
    ///
    /// # Errors
    /// Those of [`progress`](Self::progress).
    pub(crate) fn run_handed_over(&self, kind: PoolKind) -> Result<()> {
        let process = self.process_handle();
        let pool = process.pool(kind);
        while let Some(record) = pool.take(process, self.thread_index()) {
            let _unfinished = Unfinished(pool, process);
            run_handed_over(self, &record, pool.kind == PoolKind::Waiters)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use farside_fabric::ProcessId;

    use super::*;
    use farside_launch::settings::Choices;

    #[test]
    fn a_record_without_arguments_takes_room_in_the_queue() {
        let nothing = std::ptr::NonNull::<u64>::dangling().as_ptr().cast_const().cast();
        // SAFETY: there are no bytes.
        let record =
            unsafe { HandedOver::copy(Source::Process(ProcessId::new(0)), Header::new(1, 0, 8), nothing, nothing) };
        assert!(record.bytes() > 0, "or such calls would be queued without end");
    }

    #[test]
    fn every_thread_has_one_role() {
        for (service_threads, consumers, waiters) in [(0, 0, 0), (2, 0, 0), (0, 3, 0), (1, 0, 2), (1, 2, 3)] {
            let choices = Choices {
                threads: Some(2),
                service_threads: Some(service_threads),
                consumer_threads: Some(consumers),
                waiting_threads: Some(waiters),
                ..Choices::default()
            };
            let settings = choices.resolve(&|_| None).unwrap();
            let threads = 2 + settings.threads_without_body() as usize;
            let count = |role| (0..threads).filter(|local| Role::of(*local, &settings) == role).count();
            assert_eq!(count(Role::Own), 2 + service_threads as usize);
            for (kind, members) in PoolKind::ALL.into_iter().zip([consumers, waiters]) {
                assert_eq!(count(Role::Member(kind)), members as usize);
                assert_eq!(count(Role::Receiver(kind)), usize::from(members > 0));
                let receiver = kind.receiver(&settings);
                assert!(receiver.is_none_or(|local| Role::of(local, &settings) == Role::Receiver(kind)));
            }
            assert_eq!(Role::of(threads, &settings), Role::Own);
        }
    }
}

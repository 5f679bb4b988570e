//! The pool of threads of a process, of which any free one runs a call on the process (Seriema
//! §3.1, "helper threads").
//!
//! A pool has one callable thread, its *receiver*. The rings of workers and processes lead to the
//! receiver as they lead to a worker. The receiver runs no calls: it copies each record into the
//! pool's queue. A *member* takes the record from the queue and runs it with the same trampoline.
//! So a pool accepts every form of call. Members run no handlers, so the functions may wait.
//!
//! The threads of a process are numbered in this order: its workers, the receiver, the members.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;

use farside_fabric::ProcessId;
use farside_fabric::ring::Header;

use crate::error::{Result, Source};
use crate::invoke::inbox::run_handed_over;
use crate::runtime::process::{Process, lock};
use crate::runtime::worker::Worker;
use farside_launch::settings::Settings;

/// The longest sleep of a receiver that waits for room in the queue, before it checks whether the
/// job has ended.
const NAP: Duration = Duration::from_millis(100);

/// The role of a thread of a process in running calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The thread runs the calls that arrive at it.
    Own,
    /// The thread hands its calls over to the pool.
    Receiver,
    /// The thread runs the calls that were handed over to the pool.
    Member,
}

impl Role {
    pub(crate) fn of(local: usize, settings: &Settings) -> Self {
        let pool = settings.threads as usize..(u64::from(settings.threads) + settings.threads_without_body()) as usize;
        match local {
            _ if !pool.contains(&local) => Self::Own,
            _ if local == pool.start => Self::Receiver,
            _ => Self::Member,
        }
    }
}

/// A record that was copied out of its ring or stream.
#[derive(Debug)]
pub(crate) struct HandedOver {
    pub(crate) source: Source,
    pub(crate) header: Header,
    /// The payload. Words keep it aligned as in a ring.
    words: Box<[u64]>,
}

impl HandedOver {
    /// # Safety
    /// The bytes from `payload` to `end` are those of a whole record, and nothing writes to them
    /// during the call. `payload` is aligned to 8.
    pub(crate) unsafe fn copy(source: Source, header: Header, payload: *const u8, end: *const u8) -> Self {
        let words = (end.addr() - payload.addr()) / 8;
        // SAFETY: a record starts at a word and is a whole number of words long, so the pointer is
        // aligned and the length covers it. The caller guarantees that the bytes are valid and not
        // written.
        let words = unsafe { std::slice::from_raw_parts(payload.cast::<u64>(), words) };
        Self { source, header, words: words.into() }
    }

    pub(crate) fn payload(&self) -> Range<*const u8> {
        let range = self.words.as_ptr_range();
        range.start.cast()..range.end.cast()
    }

    /// Returns the bytes that the record takes in the queue. They are more than 0 even without a
    /// payload.
    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.words)
    }
}

/// The queue that the members of a process's pool share.
#[derive(Debug)]
pub(crate) struct Pool {
    members: Range<usize>,
    cap_bytes: usize,
    queue: Mutex<VecDeque<HandedOver>>,
    /// The number of bytes in the queue. Changed only under the queue's lock.
    queued_bytes: AtomicUsize,
    /// The number of records handed over so far. Written by the receiver.
    handed_over: AtomicU64,
    /// The same, by the process that sent them.
    handed_over_by: Box<[AtomicU64]>,
    /// The number of those that have run. Written by members, when they find no more records.
    finished: AtomicU64,
    of_members: Box<[OfMember]>,
    /// A counter of records taken. The receiver sleeps on it while the queue is full.
    room: AtomicU32,
}

/// Counts that a member publishes before it reports records as run, and after continuations have
/// run.
#[derive(Debug)]
struct OfMember {
    /// The number of calls that it has sent, by receiver. Quiescence counts these.
    sent: Box<[AtomicU64]>,
    /// The number of calls after which it will go on. While it goes on after the last one, that
    /// still counts.
    continuations: AtomicUsize,
}

impl Pool {
    pub(crate) fn new(settings: &Settings) -> Self {
        let receiver = settings.threads as usize;
        let counters = |count: u32| (0..count).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>();
        let receivers = settings.shape().callable();
        let of_member = || OfMember { sent: counters(receivers), continuations: AtomicUsize::new(0) };
        Self {
            members: receiver + 1..receiver + 1 + settings.pool_threads as usize,
            cap_bytes: settings.queue_cap_bytes,
            queue: Mutex::default(),
            queued_bytes: AtomicUsize::new(0),
            handed_over: AtomicU64::new(0),
            handed_over_by: counters(settings.processes),
            finished: AtomicU64::new(0),
            of_members: (0..settings.pool_threads).map(|_| of_member()).collect(),
            room: AtomicU32::new(0),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.look_while_idle(|| ()).is_some()
    }

    /// Returns the number of calls that the members have sent to some processes, and the number
    /// that was handed over to them from these. Returns `None` unless all calls that were handed
    /// over have run, and so have their continuations.
    pub(crate) fn idle_counts(&self, process: &Process, is_counted: impl Fn(ProcessId) -> bool) -> Option<(u64, u64)> {
        self.look_while_idle(|| {
            let is_to_counted = |to: usize| process.job.owner_of(to as u32).is_some_and(&is_counted);
            let by_receiver = self.of_members.iter().flat_map(|member| member.sent.iter().enumerate());
            // SYNC: acquire, pairs with the releases in `publish` and `hand_over`: a count of a
            // later record brings the count of its handover with it.
            let load = |count: &AtomicU64| count.load(Ordering::Acquire);
            let sent =
                by_receiver.map(|(to, sent)| (to, load(sent))).filter(|(to, sent)| *sent > 0 && is_to_counted(*to));
            let by_sender = self.handed_over_by.iter().enumerate();
            let executed = by_sender.filter(|(from, _)| is_counted(ProcessId::new(*from as u32)));
            (sent.map(|(_, sent)| sent).sum(), executed.map(|(_, count)| load(count)).sum())
        })
    }

    /// Returns what `look` has seen, unless a record was running or continued meanwhile.
    fn look_while_idle<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        // SYNC: acquire, pairs with the releases in `publish`: a thread that finds the pool idle
        // sees what the last record and the last continuation sent.
        let finished = self.finished.load(Ordering::Acquire);
        // A member without continuations sends nothing unless it runs a record.
        if self.of_members.iter().any(|member| member.continuations.load(Ordering::Acquire) > 0) {
            return None;
        }
        let seen = look();
        // Read last: if the two are equal, no record was running when `look` was called.
        (self.handed_over.load(Ordering::Acquire) == finished).then_some(seen)
    }

    /// Queues a record for the members. While the queue is full, the receiver waits here. Later
    /// records then stay in their rings until those are full as well.
    pub(crate) fn hand_over(&self, receiver: &Worker, record: HandedOver) {
        let process = receiver.process_handle();
        loop {
            let seen = self.room.load(Ordering::Acquire);
            let queued = self.queued_bytes.load(Ordering::Relaxed);
            // A record longer than the cap enters only an empty queue. After the end of the job
            // members take no more records, so the receiver stops waiting.
            if queued == 0 || queued + record.bytes() <= self.cap_bytes || process.orders.check_ended().is_err() {
                break;
            }
            process.clock().sleep(&self.room, seen, NAP);
        }
        self.handed_over.fetch_add(1, Ordering::Relaxed);
        if let Some((from, _)) = process.job.process_of_source(record.source) {
            // SYNC: release, pairs with the acquire in `idle_counts`: after the total count.
            self.handed_over_by[from.index()].fetch_add(1, Ordering::Release);
        }
        let mut queue = lock(&self.queue);
        self.queued_bytes.fetch_add(record.bytes(), Ordering::Relaxed);
        queue.push_back(record);
        drop(queue);
        self.wake_one(process, None);
    }

    /// Wakes one sleeping member other than `but`, if there is one.
    fn wake_one(&self, process: &Process, but: Option<usize>) {
        // SYNC: pairs with the fence in `Doorbell::prepare`: a member that does not appear asleep
        // here sees the queued record.
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
            // The same member may have been woken for this record and for the next one.
            self.wake_one(process, Some(local));
        }
        Some(record)
    }

    /// Publishes what a member has done: it has run `records` more records, and perhaps
    /// continuations.
    pub(crate) fn publish(&self, member: &Worker, records: u64) {
        let process = member.process_handle();
        let threads = process.shape().callable_per_process();
        // A thread that finds the pool idle knows of what the calls did.
        process.accesses.end();
        let own = &self.of_members[member.thread_index() - self.members.start];
        // SYNC: release, for the acquires in `idle_counts`: `sent` before `continuations`, and both
        // before the records count as finished.
        for (to, sent) in member.counted_calls_by_receiver() {
            own.sent[to].store(sent, Ordering::Release);
        }
        let continuations = member.continuation_count();
        own.continuations.store(continuations, Ordering::Release);
        // SYNC: also acquire: the last member to finish sees the handover of the others' records.
        let finished = self.finished.fetch_add(records, Ordering::AcqRel) + records;
        let is_done = continuations == 0 && finished == self.handed_over.load(Ordering::Relaxed);
        if is_done && process.calls.callers.all_rest(threads) {
            // This may have been the last thing that kept the job from ending.
            process.mailboxes.call_attention_of_all();
        }
    }
}

/// Counts records as done when dropped, so that a panic of a function counts as well.
struct Ran<'a> {
    pool: &'a Pool,
    member: &'a Worker,
    records: u64,
}

impl Drop for Ran<'_> {
    fn drop(&mut self) {
        if self.records > 0 {
            self.pool.publish(self.member, self.records);
        }
    }
}

impl Worker {
    /// Runs the calls that are queued for the process's pool.
    ///
    /// # Errors
    /// [`Error::CorruptRing`](crate::Error::CorruptRing) if a record cannot be run;
    /// [`Error::HandlerPanicked`](crate::Error::HandlerPanicked);
    /// [`Error::HandlerFailed`](crate::Error::HandlerFailed);
    /// [`Error::NamedCallRefused`](crate::Error::NamedCallRefused).
    pub(crate) fn run_handed_over(&self) -> Result<()> {
        let process = self.process_handle();
        let pool = &process.calls.pool;
        let mut ran = Ran { pool, member: self, records: 0 };
        while let Some(record) = pool.take(process, self.thread_index()) {
            ran.records += 1;
            run_handed_over(self, &record)?;
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
        // SAFETY: the range is empty, and a dangling pointer is valid for zero bytes.
        let record =
            unsafe { HandedOver::copy(Source::Process(ProcessId::new(0)), Header::new(1, 0, 8), nothing, nothing) };
        assert!(record.bytes() > 0, "otherwise the cap would not bound the number of such calls");
    }

    #[test]
    fn every_thread_has_one_role() {
        for members in [0, 1, 3] {
            let choices = Choices { threads: Some(2), pool_threads: Some(members), ..Choices::default() };
            let settings = choices.resolve(&|_| None).unwrap();
            let threads = 2 + settings.threads_without_body() as usize;
            let roles: Vec<_> = (0..threads).map(|local| Role::of(local, &settings)).collect();
            assert_eq!(roles[..2], [Role::Own; 2]);
            let mut expected = vec![Role::Receiver; usize::from(members > 0)];
            expected.extend(vec![Role::Member; members as usize]);
            assert_eq!(roles[2..], expected);
            let pool = Pool::new(&settings);
            assert!(pool.members.clone().all(|local| roles[local] == Role::Member));
            assert_eq!(pool.members.len(), members as usize);
            assert_eq!(Role::of(threads, &settings), Role::Own);
        }
    }
}

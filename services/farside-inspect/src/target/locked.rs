//! [`LockedMemory`]: memory as it is now, and the lock that keeps half an update from being seen.
//!
//! The [word](LockWord) says whether the memory is locked. A reader whose copy was no half update
//! is done; otherwise it copies again. The door copies a few bytes. A long run is copied by the
//! reader itself, from this process's memory, and the door says afterwards whether it was whole.
//!
//! | who | locks by | waits for |
//! |---|---|---|
//! | the program | the word | a reader's lock, until its lease is over |
//! | a reader that writes | the word, for the copy | the program; a reader's lock |
//! | a reader that locks | the word, with a lease | the same |
//!
//! A program that has to wait claims the next lock, so it waits for one reader at most. The end of
//! a lock wakes the program and the readers that wait. No call marks the end of a lease's time: the
//! program looks at that itself, and a thread does so if readers wait.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use farside::LocalBytes;
use farside_rpc::bulk::{Bulk, Read, Source};

use super::lease::Lease;
use super::slots::room;
use super::word::LockWord;
use crate::protocol::Refused;
use crate::spans::Block;
use crate::sync::lock;

/// The longest time that a reader locks memory.
pub(super) const LEASE_MAX: Duration = Duration::from_secs(10);
/// The longest time until the program, or a thread for readers, looks again whether the lease of a
/// reader's lock is over.
const LOOK_AFTER: Duration = Duration::from_millis(100);
/// The number of readers that may wait for one lock.
const WAITERS_MAX: usize = 1024;

/// The number of times that a reader copies before it waits for the end of an update.
const TRIES: u32 = 20;

/// Memory of one worker that is shown as it is now.
#[derive(Debug)]
pub(super) struct LockedMemory {
    bytes: LocalBytes,
    /// Its flags are set under the mutex, after what they announce.
    word: LockWord,
    outside: Mutex<Outside>,
}

#[derive(Debug, Default)]
struct Outside {
    /// The lock of a reader.
    lease: Option<Lease>,
    waiters: Vec<Waker>,
    /// Wake the workers of the program that wait for their turns.
    claims: Vec<Waker>,
    /// True if a thread waits for the end of a lease.
    is_timed: bool,
    is_closed: bool,
}

impl LockedMemory {
    /// Memory that is free. The number is that of its [word](LockWord::new).
    pub(super) fn new(bytes: LocalBytes, number: u64) -> Self {
        Self { bytes, word: LockWord::new(number), outside: Mutex::default() }
    }

    /// Locks the memory for the program if it is free.
    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        self.word.try_lock()
    }

    /// Ends the caller's lock.
    #[inline]
    pub(super) fn unlock(&self) {
        if self.word.unlock() {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let mut outside = lock(&self.outside);
        self.word.set_awaited(false);
        let waiters = std::mem::take(&mut outside.waiters);
        let claims = outside.claims.clone();
        drop(outside);
        claims.into_iter().chain(waiters).for_each(Waker::wake);
    }

    /// Claims the next lock for the program, which `waker` wakes when a lock has ended. It is the
    /// waker of this claim alone.
    pub(super) fn claim(&self, waker: Waker) -> Claim<'_> {
        let mut outside = lock(&self.outside);
        outside.claims.push(waker.clone());
        self.word.claim();
        Claim { memory: self, waker }
    }

    /// Returns whether these are the bytes of the memory.
    pub(super) fn has(&self, bytes: &LocalBytes) -> bool {
        self.bytes.address() == bytes.address() && self.bytes.bytes() == bytes.bytes()
    }

    /// Refuses all readers, now and later.
    pub(super) fn close(&self) {
        lock(&self.outside).is_closed = true;
        self.wake();
    }

    /// Takes the lock of a reader away whose lease is over.
    fn end_lease(&self) {
        self.release_if(Lease::is_over);
    }

    /// Has a thread look at the lock of a reader when its lease ends, unless one does.
    fn time_lease(self: &Arc<Self>, outside: &mut Outside) {
        if outside.is_timed || outside.lease.is_none() {
            return;
        }
        let memory = Arc::downgrade(self);
        let until_over = move || {
            while let Some(left) = memory.upgrade().and_then(|memory| memory.next_end()) {
                // The lock of the next reader may end before this one would have.
                thread::sleep(left.min(LOOK_AFTER));
                memory.upgrade().iter().for_each(|memory| memory.end_lease());
            }
        };
        // Without a thread, the readers wait until the program next locks the memory.
        outside.is_timed = thread::Builder::new().name("farside-lease".into()).spawn(until_over).is_ok();
    }

    /// The time left to the lease that readers wait for. `None` if there is none, so that the
    /// thread ends.
    fn next_end(&self) -> Option<Duration> {
        let mut outside = lock(&self.outside);
        let left = outside.lease.as_ref().map(Lease::left).filter(|_| !outside.waiters.is_empty());
        outside.is_timed = left.is_some();
        left
    }

    /// Waits until `attempt` succeeds, which it may when the memory is free.
    async fn when_free<T>(self: &Arc<Self>, mut attempt: impl FnMut() -> Option<T> + Send) -> Result<T, Refused> {
        poll_fn(|context| {
            self.end_lease();
            if let Some(done) = attempt() {
                return Poll::Ready(Ok(done));
            }
            let mut outside = lock(&self.outside);
            if outside.is_closed {
                return Poll::Ready(Err(Refused::Over));
            }
            if outside.waiters.len() >= WAITERS_MAX {
                return Poll::Ready(Err(Refused::Busy));
            }
            outside.waiters.retain(|waker| !waker.will_wake(context.waker()));
            outside.waiters.push(context.waker().clone());
            self.word.set_awaited(true);
            self.time_lease(&mut outside);
            drop(outside);
            // The holder may have let go before it could see that a reader waits.
            attempt().map_or(Poll::Pending, |done| Poll::Ready(Ok(done)))
        })
        .await
    }

    /// Reads elements, of which none is in the middle of a locked update.
    pub(super) async fn read(self: &Arc<Self>, block: Block<'_>) -> Result<Vec<u8>, Refused> {
        let mut copy = room(block.bytes())?;
        let mut failure = None;
        let mut attempt = || {
            let before = self.word.version()?;
            let mut at = 0;
            block.runs(|offset, bytes| {
                failure = self.bytes.read(offset as u64, &mut copy[at..at + bytes]).err();
                at += bytes;
            });
            (self.word.is_unchanged(before) || failure.is_some()).then_some(())
        };
        // While the program updates the memory again and again, a few more tries are quicker than a
        // wait for the end of its next update.
        if !(0..TRIES).any(|_| attempt().is_some()) {
            self.when_free(&mut attempt).await?;
        }
        failure.map_or(Ok(copy), |error| Err(Refused::Failed { cause: error.to_string() }))
    }

    /// Lets a reader copy a run of bytes itself. Returns the version that it copies then, if the
    /// memory [is](Self::is_unchanged) the same afterwards.
    pub(super) async fn show(self: &Arc<Self>, offset: usize, bytes: usize) -> Result<(u64, Bulk<Read>), Refused> {
        let version = match self.word.version() {
            Some(version) => version,
            None => self.when_free(|| self.word.version()).await?,
        };
        let run = Run { memory: self.clone(), offset: offset as u64, bytes: bytes as u64 };
        Ok((version, Bulk::of_source(Arc::new(run))))
    }

    /// Returns whether the memory is there and was not locked since it had this version.
    pub(super) fn is_unchanged(&self, version: u64) -> bool {
        self.word.is_unchanged(version) && self.bytes.address().is_some()
    }

    /// Writes elements as one update, under the reader's own lock or between two locks. Returns the
    /// result of `after`, which is called while the memory is still locked.
    pub(super) async fn write<T>(
        self: &Arc<Self>,
        own: Option<u64>,
        block: Block<'_>,
        from: &[u8],
        after: impl FnOnce() -> T,
    ) -> Result<T, Refused> {
        let write = || {
            let (mut at, mut written) = (0, Ok(()));
            block.runs(|offset, bytes| {
                if written.is_ok() {
                    written = self.bytes.write(offset as u64, &from[at..at + bytes]);
                }
                at += bytes;
            });
            let after = after();
            written.map(|()| after).map_err(|error| Refused::Failed { cause: error.to_string() })
        };
        if let Some(own) = own {
            // Whoever ends the lock takes the mutex first, so the lock is in force until the end.
            let outside = lock(&self.outside);
            let is_held = outside.lease.as_ref().is_some_and(|lease| lease.number() == own && !lease.is_over());
            return if is_held { write() } else { Err(Refused::Over) };
        }
        self.when_free(|| self.word.try_lock_outside().then_some(())).await?;
        let done = write();
        self.unlock();
        done
    }

    /// Locks the memory for a reader.
    pub(super) async fn lock_outside(self: &Arc<Self>, lease: impl Fn() -> Lease + Send + Sync) -> Result<(), Refused> {
        let attempt = || {
            // A reader that begins to wait sees the lock of another with its lease.
            let mut outside = lock(&self.outside);
            self.word.try_lock_outside().then(|| outside.lease = Some(lease()))
        };
        self.when_free(attempt).await
    }

    /// The number of the reader's lock.
    pub(super) fn held(&self) -> Option<u64> {
        lock(&self.outside).lease.as_ref().filter(|lease| !lease.is_over()).map(Lease::number)
    }

    /// Ends the reader's lock if it fits.
    pub(super) fn release_if(&self, fits: impl FnOnce(&Lease) -> bool) {
        let released = lock(&self.outside).lease.take_if(|lease| fits(lease));
        if released.is_some() {
            self.unlock();
        }
    }
}

/// The program's claim to the next lock. Dropping it ends the claim.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    memory: &'a LockedMemory,
    waker: Waker,
}

impl Claim<'_> {
    /// Locks the memory if it is free, or if the lease of the reader that has locked it is over.
    pub(super) fn try_lock(&self) -> bool {
        let over = lock(&self.memory.outside).lease.take_if(|lease| lease.is_over());
        if over.is_some() {
            // Another worker of the program with a claim looks at the memory soon.
            let _ = self.memory.word.unlock();
        }
        self.memory.try_lock()
    }

    /// The time after which the program tries again, unless it is woken before.
    pub(super) fn patience(&self) -> Duration {
        lock(&self.memory.outside).lease.as_ref().map_or(LOOK_AFTER, |lease| lease.left().min(LOOK_AFTER))
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let Self { memory, waker } = self;
        let mut outside = lock(&memory.outside);
        outside.claims.retain(|other| !other.will_wake(waker));
        let is_last = outside.claims.is_empty();
        let is_awaited = is_last && memory.word.end_claim();
        drop(outside);
        // The end of a lock wakes the readers that wait.
        if is_awaited && memory.word.version().is_some() {
            memory.wake();
        }
    }
}

/// A run of bytes that a reader copies itself.
struct Run {
    memory: Arc<LockedMemory>,
    offset: u64,
    bytes: u64,
}

impl Source for Run {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        self.memory.bytes.read(self.offset + offset, into).is_ok()
    }

    fn address(&self) -> Option<usize> {
        self.memory.bytes.address().map(|base| base + self.offset as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::task::{Context, Wake};
    use std::thread::Thread;

    use farside::LocalVec;
    use farside_testbed::{limit, wait_until};

    use super::super::lease::Readers;
    use super::*;
    use crate::spans::Span;

    /// All bytes of the memory.
    const ALL: Block<'_> = Block { shape: &[8], spans: &[Span { start: 0, step: 1, count: 8 }], element_bytes: 1 };

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    /// Set when the program was woken.
    #[derive(Default)]
    struct Program(AtomicBool);

    impl Wake for Program {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// Runs a future to its end. Only its waker wakes the thread.
    fn run<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return done;
            }
            thread::park();
        }
    }

    /// Does something on a thread of its own, within the limit.
    fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, ended) = mpsc::channel();
        thread::spawn(move || done.send(work()));
        ended.recv_timeout(limit()).expect("it ends in time")
    }

    fn memory(vector: &LocalVec<u8>) -> Arc<LockedMemory> {
        Arc::new(LockedMemory::new(vector.local_bytes(), 0))
    }

    #[test]
    fn the_end_of_a_lease_wakes_readers() {
        let (vector, readers) = (LocalVec::new(vec![0_u8; 8]), Arc::new(Readers::default()));
        let memory = memory(&vector);
        for most in [300, 20, 0] {
            let most = Duration::from_millis(most);
            let is_there = readers.attend((0, 0), || {});
            run(memory.lock_outside(|| readers.lease(1, (0, 0), Some(most)))).unwrap();
            let waiting = memory.clone();
            let copy = in_time(move || run(waiting.read(ALL)));
            assert_eq!(copy, Ok(vec![0; 8]));
            assert_eq!(memory.held(), None);
            drop(is_there);
        }
        // A shorter lease follows one that was released, while a reader waits.
        let is_there = readers.attend((0, 0), || {});
        run(memory.lock_outside(|| readers.lease(2, (0, 0), Some(limit() * 2)))).unwrap();
        let (waiting, (done, ended)) = (memory.clone(), mpsc::channel());
        thread::spawn(move || done.send(run(waiting.read(ALL))));
        wait_until("a thread waits for the end of the lease", || lock(&memory.outside).is_timed);
        let next = readers.lease(3, (0, 0), Some(Duration::from_millis(20)));
        lock(&memory.outside).lease = Some(next);
        assert_eq!(ended.recv_timeout(limit()).expect("it ends in time"), Ok(vec![0; 8]));
        drop(is_there);
        // The lease of a reader that has gone meanwhile is over at once.
        run(memory.lock_outside(|| readers.lease(2, (0, 0), Some(limit() * 2)))).unwrap();
        let waiting = memory.clone();
        in_time(move || run(waiting.write(None, ALL, &[1; 8], || ()))).unwrap();
        assert!(memory.try_lock());
    }

    /// A lock that ends while its reader writes is there until all is written.
    #[test]
    fn a_write_under_a_lock_is_made_before_the_lock_ends() {
        let (vector, readers) = (LocalVec::new(vec![0_u8; 8]), Arc::new(Readers::default()));
        let memory = memory(&vector);
        let _is_there = readers.attend((0, 0), || {});
        run(memory.lock_outside(|| readers.lease(1, (0, 0), Some(limit())))).unwrap();
        let (other, has_ended) = (memory.clone(), Arc::<AtomicBool>::default());
        let flag = has_ended.clone();
        let is_writing = || {
            let (begins, begun) = mpsc::channel();
            let ending = thread::spawn(move || {
                begins.send(()).unwrap();
                other.release_if(|lease| lease.number() == 1);
                flag.store(true, Ordering::SeqCst);
            });
            begun.recv().unwrap();
            // It has many chances to end the lock too early.
            (0..1000).for_each(|_| thread::yield_now());
            assert!(!has_ended.load(Ordering::SeqCst) && !memory.try_lock());
            ending
        };
        let ending = run(memory.write(Some(1), ALL, &[1; 8], is_writing)).unwrap();
        ending.join().unwrap();
        assert!(memory.try_lock());
        assert_eq!(run(memory.write(Some(1), ALL, &[2; 8], || ())), Err(Refused::Over));
    }

    #[test]
    fn the_program_comes_before_readers_that_lock_later() {
        let (vector, readers) = (LocalVec::new(vec![0_u8; 8]), Arc::new(Readers::default()));
        let memory = memory(&vector);
        let _is_there = readers.attend((0, 0), || {});
        let lease = |number| readers.lease(number, (0, 0), Some(limit()));
        run(memory.lock_outside(|| lease(1))).unwrap();
        let program = Arc::<Program>::default();
        let claim = memory.claim(program.clone().into());
        assert!(!claim.try_lock() && claim.patience() <= LOOK_AFTER);
        let mut later = std::pin::pin!(memory.lock_outside(|| lease(2)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(later.as_mut().poll(&mut context).is_pending());
        memory.release_if(|lease| lease.number() == 1);
        assert!(program.0.load(Ordering::SeqCst));
        assert!(later.as_mut().poll(&mut context).is_pending(), "it is the program's turn");
        assert!(claim.try_lock());
        drop(claim);
        assert!(later.as_mut().poll(&mut context).is_pending());
        memory.unlock();
        assert!(later.as_mut().poll(&mut context).is_ready());
        assert_eq!(memory.held(), Some(2));
    }

    #[test]
    fn readers_lock_behind_all_workers_that_wait() {
        let (vector, readers) = (LocalVec::new(vec![0_u8; 8]), Arc::new(Readers::default()));
        let memory = memory(&vector);
        let _is_there = readers.attend((0, 0), || {});
        let workers = [(); 2].map(|()| Arc::<Program>::default());
        assert!(memory.try_lock());
        let [one, other] = workers.each_ref().map(|worker| memory.claim(worker.clone().into()));
        let mut later = std::pin::pin!(memory.lock_outside(|| readers.lease(1, (0, 0), Some(limit()))));
        let mut context = Context::from_waker(Waker::noop());
        memory.unlock();
        assert!(workers.iter().all(|worker| worker.0.swap(false, Ordering::SeqCst)));
        assert!(one.try_lock());
        drop(one);
        memory.unlock();
        assert!(later.as_mut().poll(&mut context).is_pending(), "it is the other worker's turn");
        let are_woken = workers.each_ref().map(|worker| worker.0.load(Ordering::SeqCst));
        assert_eq!(are_woken, [false, true]);
        assert!(other.try_lock());
        drop(other);
        memory.unlock();
        assert!(later.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn a_program_that_gives_up_lets_readers_go_on() {
        let (vector, readers) = (LocalVec::new(vec![0_u8; 8]), Arc::new(Readers::default()));
        let memory = memory(&vector);
        let claim = memory.claim(Waker::noop().clone());
        let (waiting, other) = (memory.clone(), readers.clone());
        let (done, ended) = mpsc::channel();
        thread::spawn(move || {
            let _is_there = other.attend((0, 0), || {});
            done.send(run(waiting.lock_outside(|| other.lease(1, (0, 0), Some(limit())))))
        });
        wait_until("the reader waits", || !lock(&memory.outside).waiters.is_empty());
        drop(claim);
        ended.recv_timeout(limit()).expect("it is woken").unwrap();
    }
}

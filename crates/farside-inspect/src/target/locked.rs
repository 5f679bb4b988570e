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

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use farside::LocalBytes;
use farside_rpc::bulk::{Bulk, Read, Source};

use super::lease::Lease;
use super::slots::room;
use super::word::LockWord;
use crate::protocol::Refused;
use crate::sync::lock;

/// The longest time that a reader locks memory.
pub(super) const LEASE_MAX: Duration = Duration::from_secs(10);
/// The number of readers that may wait for one lock.
const WAITERS_MAX: usize = 1024;

/// The number of times that a reader copies before it waits for the end of an update.
const TRIES: u32 = 20;

/// Memory of one worker that is shown as it is now.
#[derive(Debug)]
pub(super) struct LockedMemory {
    bytes: LocalBytes,
    word: LockWord,
    /// Whether readers wait. Set by them under the mutex, before they look at the word again.
    is_awaited: AtomicBool,
    outside: Mutex<Outside>,
}

#[derive(Debug, Default)]
struct Outside {
    /// The lock of a reader.
    lease: Option<Lease>,
    waiters: Vec<Waker>,
    is_closed: bool,
}

impl LockedMemory {
    /// Memory that is free. The number is that of its [word](LockWord::new).
    pub(super) fn new(bytes: LocalBytes, number: u64) -> Self {
        let word = LockWord::new(number);
        Self { bytes, word, is_awaited: AtomicBool::new(false), outside: Mutex::default() }
    }

    /// Locks the memory if it is free.
    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        self.word.try_lock()
    }

    /// Ends the caller's lock.
    #[inline]
    pub(super) fn unlock(&self) {
        self.word.unlock();
        if self.is_awaited.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let mut outside = lock(&self.outside);
        self.is_awaited.store(false, Ordering::SeqCst);
        let waiters = std::mem::take(&mut outside.waiters);
        drop(outside);
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Refuses all readers, now and later.
    pub(super) fn close(&self) {
        lock(&self.outside).is_closed = true;
        self.wake();
    }

    /// Takes the lock of a reader away whose lease is over. Returns whether there was one.
    pub(super) fn end_lease(&self) -> bool {
        let over = lock(&self.outside).lease.take_if(|lease| lease.is_over());
        if over.is_some() {
            self.unlock();
        }
        over.is_some()
    }

    /// Waits until `attempt` succeeds, which it may when the memory is free.
    async fn when_free<T>(&self, mut attempt: impl FnMut() -> Option<T> + Send) -> Result<T, Refused> {
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
            self.is_awaited.store(true, Ordering::SeqCst);
            drop(outside);
            // The holder may have let go before it could see that a reader waits.
            attempt().map_or(Poll::Pending, |done| Poll::Ready(Ok(done)))
        })
        .await
    }

    /// Reads runs of bytes, of which none is in the middle of a locked update.
    pub(super) async fn read(&self, runs: &[(usize, usize)]) -> Result<Vec<u8>, Refused> {
        let mut copy = room(runs.iter().map(|(_, bytes)| bytes).sum())?;
        let mut failure = None;
        let mut attempt = || {
            let before = self.word.version()?;
            let mut rest = copy.as_mut_slice();
            for (offset, bytes) in runs {
                let (run, behind) = rest.split_at_mut(*bytes);
                failure = self.bytes.read(*offset as u64, run).err();
                rest = behind;
            }
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

    /// Whether the memory is there and was not locked since it had this version.
    pub(super) fn is_unchanged(&self, version: u64) -> bool {
        self.word.is_unchanged(version) && self.bytes.address().is_some()
    }

    /// Writes runs of bytes as one update. Returns the result of `after`, which is called while the
    /// memory is still locked.
    pub(super) async fn write<T>(
        &self,
        own: Option<u64>,
        runs: &[(usize, usize)],
        from: &[u8],
        after: impl FnOnce() -> T,
    ) -> Result<T, Refused> {
        let is_own = own.is_some_and(|own| self.is_held_by(own));
        if own.is_some() && !is_own {
            return Err(Refused::Over);
        }
        if !is_own {
            self.when_free(|| self.try_lock().then_some(())).await?;
        }
        let mut rest = from;
        let mut written = Ok(());
        for (offset, bytes) in runs {
            let (run, behind) = rest.split_at(*bytes);
            written = written.and(self.bytes.write(*offset as u64, run));
            rest = behind;
        }
        let after = after();
        if !is_own {
            self.unlock();
        }
        written.map(|()| after).map_err(|error| Refused::Failed { cause: error.to_string() })
    }

    /// Locks the memory for a reader.
    pub(super) async fn lock_outside(&self, lease: impl Fn() -> Lease + Send + Sync) -> Result<(), Refused> {
        let attempt = || self.try_lock().then(|| lock(&self.outside).lease = Some(lease()));
        self.when_free(attempt).await
    }

    /// Whether a reader's lock with this number is in force.
    pub(super) fn is_held_by(&self, number: u64) -> bool {
        lock(&self.outside).lease.as_ref().is_some_and(|lease| lease.number() == number && !lease.is_over())
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

//! The leases of readers, which end when the readers are gone.
//!
//! A reader that holds something has a call of [`Door::attend`](crate::protocol::Door::attend) open
//! meanwhile. It sends this call before it takes anything, and gets nothing before the call has
//! arrived. When the reader is killed, its connection ends and this call with it, and so does all
//! that it holds. When it is stopped, the call ends by its deadline.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::sync::lock;

/// A reader: its connection, and the number that it gave to its calls of `attend`.
pub(super) type ReaderId = (u64, u64);

/// The readers that are there.
#[derive(Debug, Default)]
pub(super) struct Readers(Mutex<BTreeMap<ReaderId, Arc<Reader>>>);

/// A reader that attends, or is about to.
#[derive(Debug, Default)]
struct Reader {
    /// The number of calls of `attend` that it has open.
    open: AtomicU32,
    /// Its calls that wait for the first one.
    waiting: Mutex<Vec<Waker>>,
}

impl Readers {
    fn of(&self, id: ReaderId) -> Arc<Reader> {
        let mut all = lock(&self.0);
        // Those that hold nothing and are gone.
        all.retain(|_, reader| Arc::strong_count(reader) > 1);
        all.entry(id).or_default().clone()
    }

    /// Returns a lease of a reader's. It lasts until `most` at the latest, and is over at once if
    /// the reader does not attend.
    pub(super) fn lease(&self, number: u64, id: ReaderId, most: Option<Duration>) -> Lease {
        let ends = most.map(|most| Instant::now() + most);
        Lease { number, id, reader: self.of(id), ends }
    }

    /// Waits until a reader attends.
    pub(super) async fn arrival(&self, id: ReaderId) {
        let reader = self.of(id);
        poll_fn(|context| {
            let mut waiting = lock(&reader.waiting);
            if reader.open.load(Ordering::SeqCst) > 0 {
                return Poll::Ready(());
            }
            waiting.retain(|waker| !waker.will_wake(context.waker()));
            waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Notes that a reader is there, until the result is dropped. `gone` is called when it is there
    /// no longer.
    pub(super) fn attend<G: Fn()>(&self, id: ReaderId, gone: G) -> Attending<G> {
        let reader = self.of(id);
        reader.open.fetch_add(1, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *lock(&reader.waiting));
        waiting.into_iter().for_each(Waker::wake);
        Attending { reader, gone, waker: None }
    }
}

/// A reader that is there. As a future, it never ends: its call does.
#[derive(Debug)]
pub(super) struct Attending<G: Fn()> {
    reader: Arc<Reader>,
    gone: G,
    /// A server drops a call that nothing can wake.
    waker: Option<Waker>,
}

impl<G: Fn() + Unpin> Future for Attending<G> {
    type Output = Infallible;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Infallible> {
        self.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<G: Fn()> Drop for Attending<G> {
    fn drop(&mut self) {
        if self.reader.open.fetch_sub(1, Ordering::SeqCst) == 1 {
            (self.gone)();
        }
    }
}

/// The lease of a reader in a process: of its workers, or of memory.
#[derive(Debug)]
pub(super) struct Lease {
    number: u64,
    id: ReaderId,
    reader: Arc<Reader>,
    /// When it ends in any case.
    ends: Option<Instant>,
}

impl Lease {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn reader(&self) -> ReaderId {
        self.id
    }

    /// The time until it ends, if the reader stays.
    pub(super) fn left(&self) -> Duration {
        match self.ends {
            _ if self.is_over() => Duration::ZERO,
            Some(ends) => ends.saturating_duration_since(Instant::now()),
            None => Duration::MAX,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        let is_there = self.reader.open.load(Ordering::SeqCst) > 0;
        !is_there || self.ends.is_some_and(|ends| Instant::now() >= ends)
    }
}

//! [`Patience`]: how long a thread waits, and what ends its wait early.
//!
//! A thread that handles a call gives up when the caller does. So it knows the end of its call, and
//! the [`Cancellation`] of it, wherever in the program it waits.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock::lock;
use crate::path::LinkEnd;

/// How long a thread waits.
#[derive(Clone, Debug)]
pub struct Patience {
    /// When it gives up.
    pub deadline: Instant,
    /// Set when what it waits for is no longer wanted.
    pub cancelled: Option<Arc<Cancellation>>,
}

impl Patience {
    /// Waits until `deadline`. In a handler, the wait also ends when its call is cancelled.
    #[inline]
    pub fn until(deadline: Instant) -> Self {
        Self { deadline, cancelled: cancellation() }
    }

    /// Returns whether what is waited for is no longer wanted.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.as_ref().is_some_and(|cancelled| cancelled.is_set())
    }

    /// Returns whether it was cancelled, or the deadline has passed.
    pub(crate) fn is_over(&self) -> bool {
        self.is_cancelled() || Instant::now() >= self.deadline
    }
}

/// Why a wait ended without success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The deadline passed.
    Deadline,
    /// It was cancelled.
    Cancelled,
    /// The link has ended.
    Link(LinkEnd),
}

/// A thing that threads wait for until their calls are cancelled, among others.
pub(crate) trait WaitedOn: Send + Sync + fmt::Debug {
    /// Wakes the threads, so that they look at their flags.
    fn wake_all(&self);
}

/// The cancelled state of a call, and the places where its handler waits.
#[derive(Debug, Default)]
pub struct Cancellation {
    is_set: AtomicBool,
    /// Where threads wait until it is set.
    waits: Mutex<Vec<Arc<dyn WaitedOn>>>,
}

impl Cancellation {
    /// Returns whether the call was cancelled.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Sets it, and wakes the threads that wait.
    pub fn set(&self) {
        self.is_set.store(true, Ordering::Relaxed);
        // A thread enters what it waits on under the lock before it looks at the flag. Either it is
        // found here, or it sees the flag.
        let waits = lock(&self.waits).clone();
        waits.into_iter().for_each(|on| on.wake_all());
    }

    /// Notes that this thread waits on something, as long as the returned value lives.
    pub(crate) fn enter(&self, on: Arc<dyn WaitedOn>) -> Entered<'_> {
        let address = address_of(&on);
        lock(&self.waits).push(on);
        Entered { cancellation: self, address }
    }
}

fn address_of(on: &Arc<dyn WaitedOn>) -> usize {
    Arc::as_ptr(on).addr()
}

/// A thread that waits, as long as it does.
pub(crate) struct Entered<'a> {
    cancellation: &'a Cancellation,
    /// The address of what it waits on.
    address: usize,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut waits = lock(&self.cancellation.waits);
        if let Some(place) = waits.iter().position(|on| address_of(on) == self.address) {
            waits.swap_remove(place);
        }
    }
}

/// When the call that a thread handles ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// At this moment.
    At(Instant),
    /// After this time, counted from when it is asked for. An inline call has just begun.
    After(Duration),
}

thread_local! {
    /// That of the call that this thread handles.
    static END: Cell<Option<End>> = const { Cell::new(None) };
    /// The cancelled state of that call.
    static CANCELLATION: RefCell<Option<Arc<Cancellation>>> = const { RefCell::new(None) };
}

/// The deadline of the call that this thread handles.
#[inline]
pub fn deadline() -> Option<Instant> {
    END.get().map(|end| match end {
        End::At(deadline) => deadline,
        End::After(time) => {
            let deadline = Instant::now() + time;
            END.set(Some(End::At(deadline)));
            deadline
        }
    })
}

/// Returns whether the call that this thread handles was cancelled. `None` if it handles none, or
/// an inline one.
#[inline]
fn cancellation() -> Option<Arc<Cancellation>> {
    // A thread that ends handles no call.
    END.get().and_then(|_| CANCELLATION.try_with(|known| known.borrow().clone()).ok()?)
}

/// Returns whether this thread is in a handler.
#[inline]
pub fn is_handling() -> bool {
    END.get().is_some()
}

/// Runs a handler. Calls that it makes on this thread end with its own, or when that is cancelled.
#[inline]
pub fn handle<T>(end: End, cancelled: Option<Arc<Cancellation>>, handler: impl FnOnce() -> T) -> T {
    struct Restore(Option<End>, Option<Arc<Cancellation>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            END.set(self.0);
            let _ = CANCELLATION.try_with(|known| known.replace(self.1.take()));
        }
    }
    let cancellation = CANCELLATION.try_with(|known| known.replace(cancelled));
    let _restore = Restore(END.replace(Some(end)), cancellation.ok().flatten());
    handler()
}

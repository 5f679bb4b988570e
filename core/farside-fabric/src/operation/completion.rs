//! The end of an operation, and the wait of a thread for it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Carrier, FabricError, Outcome};
use crate::ids::ProcessId;

/// The end of a posted operation, now or later.
///
/// Dropping it does not recall the operation; its buffers stay with the transport until it has
/// ended.
#[derive(Clone, Debug)]
pub struct Completion(Arc<CompletionState>);

#[derive(Debug)]
struct CompletionState {
    end: Mutex<End>,
    ended: Condvar,
    /// Number of threads that sleep until the end. Changed and read with `end` locked; it avoids a
    /// system call when no thread sleeps.
    sleepers: AtomicU32,
}

#[derive(Debug)]
enum End {
    /// The operation has not ended.
    Open,
    Come(Result<Outcome, FabricError>),
    /// The operation has ended, and the result was taken.
    Taken,
}

/// Number of looks of a waiting thread before it offers its processor to others in between. They
/// take about a hundred microseconds, in which most operations on a fast network end.
const LOOKS_BEFORE_YIELDS: u32 = 100;
/// Time for which a thread looks before it sleeps: about that of a megabyte on a network in
/// software. There, passing the transport to another thread and back would cost more than the
/// looks.
const LOOKING_MAX: Duration = Duration::from_millis(1);

/// The looks of one wait, all of them in vain.
#[derive(Debug, Default)]
struct Looks {
    count: u32,
    since: Option<Instant>,
}

impl Looks {
    /// Counts one more look. Returns whether to look again, after a [pause](Self::pause), instead
    /// of sleeping now.
    fn one_more(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        self.count = self.count.saturating_add(1);
        self.count < LOOKS_BEFORE_YIELDS || now.saturating_duration_since(since) < LOOKING_MAX
    }

    fn pause(&self) {
        if self.count >= LOOKS_BEFORE_YIELDS {
            std::thread::yield_now();
        }
    }
}

impl Completion {
    /// Creates the completion of an operation that has not ended. The transport keeps a clone and
    /// [ends](Self::end) it.
    pub fn pending() -> Self {
        Self(Arc::new(CompletionState {
            end: Mutex::new(End::Open),
            ended: Condvar::new(),
            sleepers: AtomicU32::new(0),
        }))
    }

    /// Ends the operation, if it has not ended before. For transports.
    pub fn end(&self, result: Result<Outcome, FabricError>) {
        self.end_with(|| result);
    }

    /// Ends the operation like [`end`](Self::end), with a result that is computed only if the
    /// operation has not ended before. Returns whether it was.
    pub fn end_with(&self, result: impl FnOnce() -> Result<Outcome, FabricError>) -> bool {
        let mut end = self.lock();
        let is_open = matches!(*end, End::Open);
        if is_open {
            *end = End::Come(result());
            if self.0.sleepers.load(Ordering::Relaxed) > 0 {
                self.0.ended.notify_all();
            }
        }
        is_open
    }

    /// Cancels the operation: unless it has ended, it ends now, with [`FabricError::Cancelled`].
    ///
    /// An operation in flight cannot be recalled, and may take effect all the same. Its buffer
    /// stays with the transport until then. The transport does not begin an operation that it has
    /// not begun, where it can tell.
    pub fn cancel(&self) {
        self.end(Err(FabricError::Cancelled));
    }

    /// Returns whether the operation has ended.
    pub fn has_ended(&self) -> bool {
        !matches!(*self.lock(), End::Open)
    }

    /// Takes the result, if the operation has ended and the result was not taken before.
    ///
    /// # Errors
    /// The error of the operation.
    pub fn try_take(&self) -> Option<Result<Outcome, FabricError>> {
        self.lock().take()
    }

    /// Waits for the end, makes progress on `transport` meanwhile, and takes the result.
    ///
    /// # Errors
    /// The error of the operation, or [`FabricError::Deadline`].
    pub fn wait(self, transport: &dyn Carrier, peer: ProcessId, deadline: Instant) -> Result<Outcome, FabricError> {
        self.watch(transport, deadline);
        let late = FabricError::Deadline { doing: "waiting for an operation", process: peer };
        self.try_take().unwrap_or(Err(late))
    }

    /// Makes progress on `transport` until the operation has ended or the time is `until`. Does not
    /// take the result.
    pub fn watch(&self, transport: &dyn Carrier, until: Instant) {
        let clock = transport.clock();
        let mut looks = Looks::default();
        loop {
            transport.progress();
            let end = self.lock();
            let now = clock.now();
            if !matches!(*end, End::Open) || now >= until {
                return;
            }
            if clock.is_simulated() {
                drop(end);
                clock.sleep_until_event(until - now);
                continue;
            }
            if looks.one_more(now) {
                drop(end);
                looks.pause();
                continue;
            }
            transport.stop_polling();
            // Another thread may be making progress, so this one looks again soon.
            self.sleep(end, (until - now).min(Duration::from_millis(1)));
        }
    }

    /// Sleeps until the operation has ended, or for `time`.
    fn sleep(&self, end: MutexGuard<'_, End>, time: Duration) {
        self.0.sleepers.fetch_add(1, Ordering::Relaxed);
        let woken = self.0.ended.wait_timeout(end, time);
        self.0.sleepers.fetch_sub(1, Ordering::Relaxed);
        drop(woken);
    }

    fn lock(&self) -> MutexGuard<'_, End> {
        // The lock guards a plain value that no panic can leave inconsistent.
        self.0.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl End {
    fn take(&mut self) -> Option<Result<Outcome, FabricError>> {
        match std::mem::replace(self, End::Taken) {
            End::Come(result) => Some(result),
            other => {
                *self = other;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_ends_after_a_while() {
        let (mut looks, start) = (Looks::default(), farside_testbed::now());
        assert!((1..LOOKS_BEFORE_YIELDS).all(|_| looks.one_more(start + LOOKING_MAX)), "quick looks count by number");
        assert!(looks.one_more(start + LOOKING_MAX), "and for a while after that");
        assert!(!looks.one_more(start + 2 * LOOKING_MAX));
        assert!(!looks.one_more(start + 3 * LOOKING_MAX));
    }

    #[test]
    fn an_operation_ends_once() {
        let completion = Completion::pending();
        assert!(!completion.has_ended() && completion.try_take().is_none());
        completion.end(Ok(Outcome::Previous(1)));
        completion.end(Ok(Outcome::Previous(2)));
        completion.cancel();
        assert!(completion.has_ended());
        assert!(matches!(completion.try_take(), Some(Ok(Outcome::Previous(1)))));
        completion.end(Ok(Outcome::Previous(3)));
        assert!(completion.has_ended() && completion.try_take().is_none());
    }

    #[test]
    fn a_cancelled_operation_stays_cancelled() {
        let completion = Completion::pending();
        completion.cancel();
        completion.end(Ok(Outcome::Previous(1)));
        assert!(matches!(completion.try_take(), Some(Err(FabricError::Cancelled))));
    }
}

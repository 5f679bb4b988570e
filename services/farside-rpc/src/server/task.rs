//! [`Task`]: a call whose handler is `async`, or whose arguments are long.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use super::session::{Incoming, Session, guard};
use crate::answer::Refused;
use crate::service::{Later, Outcome};
use farside_connect::link::Link;
use farside_connect::lock;

/// A call that waits without a thread: for what its `async` handler waits for, or for its long
/// arguments. What it waits for keeps the task, by its waker.
pub(super) struct Task {
    session: Arc<Session>,
    link: Arc<Link>,
    incoming: Incoming,
    /// `None` once it has ended.
    future: Mutex<Option<Later>>,
    state: AtomicU8,
}

/// The states of a task.
const WAITS: u8 = 0;
const IS_QUEUED: u8 = 1;
const RUNS: u8 = 2;
/// It runs, and was woken meanwhile. It is queued again when it waits.
const RUNS_AGAIN: u8 = 3;

impl Task {
    /// Runs a handler until it waits.
    pub(super) fn start(session: Arc<Session>, link: Arc<Link>, incoming: Incoming, future: Later) {
        // A shutdown waits for the call.
        session.shared.queue.count_one();
        let (future, state) = (Mutex::new(Some(future)), AtomicU8::new(IS_QUEUED));
        let task = Arc::new(Self { session, link, incoming, future, state });
        task.session.set_task(task.incoming.head, &task);
        let Session { shared, .. } = &*task.session;
        let waiting = Arc::downgrade(&task);
        shared.deadlines.add(task.session.key(&task.incoming), &shared.waker, move || {
            waiting.upgrade().into_iter().for_each(Wake::wake);
        });
        task.poll();
    }

    fn poll(self: &Arc<Self>) {
        // SYNC: pairs with the release in `wake`: the poll sees what was done before.
        self.state.swap(RUNS, Ordering::AcqRel);
        let mut future = lock(&self.future);
        let Some(running) = &mut *future else { return };
        let call = &self.incoming.call;
        let waker = Waker::from(self.clone());
        let polled = match call.expiry(Instant::now()) {
            // The call may have run in part.
            Some(Refused::Expired) if self.session.has_started(self.incoming.head) => Err(Refused::Late),
            Some(why) => Err(why),
            None => guard(call, || running.as_mut().poll(&mut Context::from_waker(&waker))),
        };
        let outcome = match polled {
            Ok(Poll::Pending) => {
                drop(future);
                let waits = self.state.compare_exchange(RUNS, WAITS, Ordering::AcqRel, Ordering::Acquire);
                if waits.is_err() {
                    self.state.store(IS_QUEUED, Ordering::Release);
                    self.clone().queue();
                }
                return;
            }
            Ok(Poll::Ready(outcome)) => outcome,
            Err(why) => Err(why),
        };
        let ended = future.take();
        drop(future);
        // What the handler holds is dropped before the caller goes on.
        let outcome = match guard(call, || drop(ended)) {
            Ok(()) => outcome,
            Err(why) => {
                let _ = guard(call, || drop(outcome));
                Err(why)
            }
        };
        self.end(outcome);
    }

    fn queue(self: Arc<Self>) {
        let Session { shared, number, .. } = &*self.session.clone();
        // A server that has ended runs nothing.
        let _ = shared.queue.add(*number, Box::new(move || self.poll()));
        if shared.options.pool == 0 {
            shared.waker.wake();
        }
    }

    fn end(&self, outcome: Result<Outcome, Refused>) {
        self.session.shared.deadlines.remove(self.session.key(&self.incoming));
        // All users of the link learn of its end.
        let _ = self.session.end_call(&self.link, &self.incoming, outcome);
        self.session.shared.queue.end_one();
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let woken = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| match state {
            WAITS => Some(IS_QUEUED),
            RUNS => Some(RUNS_AGAIN),
            _ => None,
        });
        if woken == Ok(WAITS) {
            self.queue();
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // Nothing can wake the handler any more.
        let future = lock(&self.future).take();
        if future.is_some() {
            let dropped = guard(&self.incoming.call, || drop(future));
            self.end(dropped.and(Err(Refused::Cancelled)));
        }
    }
}

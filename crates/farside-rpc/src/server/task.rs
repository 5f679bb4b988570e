//! [`Task`]: a call whose handler is `async`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use super::session::{Incoming, Session, guard};
use crate::answer::Refused;
use crate::link::{Link, lock};
use crate::service::{Later, Outcome};

/// A call whose handler is `async`. What the handler waits for keeps the task, by its waker.
pub(super) struct Task {
    session: Arc<Session>,
    link: Arc<Link>,
    incoming: Incoming,
    /// `None` once it has ended.
    future: Mutex<Option<Later>>,
    is_queued: AtomicBool,
}

impl Task {
    /// Runs a handler until it waits.
    pub(super) fn start(session: Arc<Session>, link: Arc<Link>, incoming: Incoming, future: Later) {
        // A shutdown waits for the call.
        session.shared.queue.hold();
        let (future, is_queued) = (Mutex::new(Some(future)), AtomicBool::new(false));
        let task = Arc::new(Self { session, link, incoming, future, is_queued });
        task.session.set_task(task.incoming.head, &task);
        task.poll();
    }

    fn poll(self: &Arc<Self>) {
        // A wake-up from now on asks for another poll.
        self.is_queued.store(false, Ordering::Release);
        let mut future = lock(&self.future);
        let Some(running) = &mut *future else { return };
        let call = &self.incoming.call;
        let waker = Waker::from(self.clone());
        let polled = match call.expiry() {
            Some(why) => Err(why),
            None => guard(call, || running.as_mut().poll(&mut Context::from_waker(&waker))),
        };
        let outcome = match polled {
            Ok(Poll::Pending) => return,
            Ok(Poll::Ready(outcome)) => Ok(outcome),
            Err(why) => Err(why),
        };
        let ended = future.take();
        drop(future);
        // What the handler holds is dropped before the caller goes on.
        let outcome = guard(call, || drop(ended)).and(outcome);
        self.end(outcome);
    }

    fn end(&self, outcome: Result<Outcome, Refused>) {
        // The link's end is told to all who use it.
        let _ = self.session.end_call(&self.link, &self.incoming, outcome);
        self.session.shared.queue.release();
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if self.is_queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let Session { shared, number, .. } = &*self.session.clone();
        shared.queue.add(*number, Box::new(move || self.poll()));
        if !shared.has_pool {
            shared.waker.wake();
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // Nothing can wake the handler any more.
        if lock(&self.future).take().is_some() {
            self.end(Err(Refused::Cancelled));
        }
    }
}

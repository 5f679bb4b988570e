//! The waits of a worker: it serves other workers, and sleeps when there is nothing to do.

use std::cell::Cell;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use farside_fabric::WorkerId;
use farside_fabric::wait::{Backoff, StreamWatch};

use super::Worker;
use crate::error::{Error, Result, Source};
use crate::invoke::inbox::{Handling, handler_error, run_arrivals, tell_credit};
use crate::invoke::pending::{Continuation, Next};
use crate::invoke::reply_slots::{ReplyOutcome, SlotHandle};
use crate::runtime::activity::Whom;
use crate::runtime::activity::recorder::{Wait, Waiting};
use crate::runtime::deadline::Deadline;
use crate::runtime::service::poll;

/// The longest sleep of a worker. Every sender rings a sleeping receiver; this bounds the cost of a
/// lost ring.
const NAP_MAX: Duration = Duration::from_secs(1);
/// The longest sleep of a worker that watches memory, for which only signals ring.
const WATCH_NAP: Duration = Duration::from_micros(100);
/// The number of busy steps between two reads of the clock.
const STEPS_PER_CLOCK: u32 = 256;

/// Marks that a worker watches memory, until this guard is dropped.
struct Watches<'a> {
    flag: &'a Cell<bool>,
    /// The flag's earlier value: waits can nest.
    before: bool,
}

impl<'a> Watches<'a> {
    fn begin(flag: &'a Cell<bool>) -> Self {
        Self { flag, before: flag.replace(true) }
    }
}

impl Drop for Watches<'_> {
    fn drop(&mut self) {
        self.flag.set(self.before);
    }
}

impl Worker {
    /// Runs calls that have arrived here, publishes batches that are old enough, and sends what was
    /// queued. Returns whether there was anything to do. Does not wait.
    ///
    /// # Errors
    /// [`Error::InHandler`]; [`Error::HandlerPanicked`]; [`Error::HandlerFailed`];
    /// [`Error::CorruptRing`]; [`Error::JobEnded`].
    pub fn progress(&self) -> Result<bool> {
        self.not_in_handler("progress")?;
        let moved = self.step()? || self.send_batches()?;
        if !moved && self.process.clock().is_simulated() {
            self.process.clock().pause();
        }
        Ok(moved)
    }

    /// Returns the time: the system's, or in a [simulation](crate::Simulation) that of the
    /// simulated network.
    pub fn now(&self) -> Instant {
        self.process.clock().now()
    }

    /// Advances this worker's time in a [simulation](crate::Simulation) by `time`, as if it
    /// computed for that long without serving. Does nothing otherwise, since a real computation
    /// takes its own time.
    pub fn charge(&self, time: Duration) {
        self.process.clock().charge(time);
    }

    /// Makes progress until `condition` holds, for at most the job's deadline. Sleeps when there is
    /// nothing to do.
    ///
    /// The condition should depend on what calls do: the worker checks it after each step in which
    /// calls ran.
    ///
    /// # Errors
    /// [`Error::Deadline`] if the condition does not hold in time; [`Error::InHandler`] in a
    /// handler; [`Error::JobEnded`]; [`Error::HandlerPanicked`], [`Error::HandlerFailed`],
    /// [`Error::NamedCallRefused`] or [`Error::CorruptRing`] for a call that ran here meanwhile.
    #[track_caller]
    pub fn wait_while_serving(&self, mut condition: impl FnMut() -> bool) -> Result<()> {
        self.wait_until("serving", self.default_deadline(), |_| condition().then_some(Ok(())))
    }

    /// Like [`wait_while_serving`](Self::wait_while_serving), for a condition that needs every
    /// process of the job, and for at most `time`.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if any process is lost; [`Error::Deadline`] if the condition does not
    /// hold in time; [`Error::InHandler`] in a handler; [`Error::JobEnded`];
    /// [`Error::HandlerPanicked`], [`Error::HandlerFailed`], [`Error::NamedCallRefused`] or
    /// [`Error::CorruptRing`] for a call that ran here meanwhile.
    #[track_caller]
    pub fn wait_together(&self, time: Duration, mut condition: impl FnMut() -> bool) -> Result<()> {
        self.wait_until("serving together with all processes", time, |worker| {
            if condition() {
                return Some(Ok(()));
            }
            worker.any_lost().map(Err)
        })
    }

    /// Leaves the network to the service thread until this worker waits or makes progress again.
    /// Call it before a long computation, so that pending transfers go on meanwhile.
    ///
    /// A waiting worker polls the network itself, because it then finds sooner what it waits for.
    /// The service thread stands back during that time. Without this call, it would notice only
    /// after a millisecond that the worker has stopped polling.
    ///
    /// *Cost*: over a network one system call, and a switch to the service thread and back if that
    /// has no CPU of its own. Nothing if all processes share a machine.
    pub fn hand_over(&self) {
        if self.process.links.polls {
            self.process.transport().stop_polling();
        }
    }

    /// Drives a future to its end and makes progress meanwhile, for at most the job's deadline.
    ///
    /// # Errors
    /// [`Error::Deadline`] if the future does not end in time; [`Error::InHandler`] in a handler;
    /// [`Error::JobEnded`]; [`Error::HandlerPanicked`], [`Error::HandlerFailed`],
    /// [`Error::NamedCallRefused`] or [`Error::CorruptRing`] for a call that ran here meanwhile.
    #[track_caller]
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> Result<T> {
        let mut future = std::pin::pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        self.wait_until("driving a future", self.default_deadline(), |_| match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => Some(Ok(output)),
            Poll::Pending => None,
        })
    }

    /// Waits until the ring to a worker has room for a record.
    #[track_caller]
    pub(crate) fn wait_for_room(&self, to: WorkerId, record_bytes: usize, deadline: &mut Deadline) -> Result<()> {
        self.not_in_handler("a call with `WhenFull::Retry`")?;
        let wait_for_credit = |begin| {
            if let Some(outbox) = self.outbox(to) {
                outbox.wait_for_credit(begin);
            }
        };
        wait_for_credit(true);
        let left = deadline.left(self);
        let wait = Wait::here("waiting for room in a ring").on(Whom::Worker(to));
        let result = self.wait_at(wait, left, |worker| {
            let mut outbox = worker.outbox(to)?;
            outbox.may_send(&worker.process, record_bytes).map(|may| may.then_some(())).transpose()
        });
        wait_for_credit(false);
        result.map_err(|error| error.late(to))
    }

    /// Waits until the shared ring to a worker has room for a record.
    #[track_caller]
    pub(crate) fn wait_for_shared_ring(
        &self,
        to: WorkerId,
        record_bytes: usize,
        deadline: &mut Deadline,
    ) -> Result<()> {
        self.not_in_handler("a send-based call with `WhenFull::Retry`")?;
        let left = deadline.left(self);
        let wait = Wait::here("waiting for room in a shared ring").on(Whom::Worker(to));
        let waited = self.wait_at(wait, left, |worker| {
            let may_send = worker.process.calls.shared_rings.may_send(&worker.process, to, record_bytes);
            may_send.map(|may| may.then_some(())).transpose()
        });
        waited.map_err(|error| error.late(to))
    }

    /// Like [`wait_until`](Self::wait_until), for a condition on memory that other processes
    /// change. A signal wakes this thread at once; it finds other changes within a [`WATCH_NAP`].
    #[track_caller]
    pub(crate) fn watch_until<T>(
        &self,
        doing: &'static str,
        time: Duration,
        look: impl FnMut(&Self) -> Option<Result<T>>,
    ) -> Result<T> {
        self.watch_at(Wait::here(doing), time, look)
    }

    /// Like [`watch_until`](Self::watch_until), for a wait that says more.
    pub(crate) fn watch_at<T>(
        &self,
        wait: Wait,
        time: Duration,
        look: impl FnMut(&Self) -> Option<Result<T>>,
    ) -> Result<T> {
        let _watches = Watches::begin(&self.watches);
        self.wait_at(wait, time, look)
    }

    /// Makes progress until `look` finds something. Sleeps when there is nothing to do.
    #[track_caller]
    #[inline]
    pub(crate) fn wait_until<T>(
        &self,
        doing: &'static str,
        time: Duration,
        look: impl FnMut(&Self) -> Option<Result<T>>,
    ) -> Result<T> {
        self.wait_at(Wait::here(doing), time, look)
    }

    /// Like [`wait_until`](Self::wait_until), for a wait that says more.
    #[inline]
    pub(crate) fn wait_at<T>(
        &self,
        wait: Wait,
        time: Duration,
        mut look: impl FnMut(&Self) -> Option<Result<T>>,
    ) -> Result<T> {
        let mut found = None;
        self.wait_untyped(wait, time, &mut |worker| {
            // Most looks find nothing, and then nothing is stored.
            let Some(result) = look(worker) else { return false };
            found = Some(result);
            true
        })?;
        found.expect("the wait ended well, because something was found")
    }

    /// Waits until `look` returns true. Compiled once for all waits.
    #[inline(never)]
    fn wait_untyped(&self, wait: Wait, time: Duration, look: &mut dyn FnMut(&Self) -> bool) -> Result<()> {
        self.wait_by(wait, time, look)
    }

    #[inline(always)]
    fn wait_by(&self, wait: Wait, time: Duration, mut look: impl FnMut(&Self) -> bool) -> Result<()> {
        self.not_in_handler(wait.doing)?;
        let mut waiting = Waiting::begin(self, wait);
        let mut backoff = Backoff::new(self.process.waits.policy);
        let mut stream = StreamWatch::new(self.process.waits.policy);
        let mut deadline = None::<Deadline>;
        let mut steps = 0_u32;
        loop {
            if look(self) {
                return Ok(());
            }
            let executed = self.executed.get();
            let moved = self.step()?
                || self.send_batches()?
                || (!self.unfinished.borrow().is_empty() && self.send_unfinished(true)?);
            steps = steps.wrapping_add(1);
            if moved {
                backoff.reset();
                stream.found(self.executed.get() - executed);
                if !steps.is_multiple_of(STEPS_PER_CLOCK) {
                    continue;
                }
            } else {
                stream.found_nothing();
                if backoff.pause_after_long_look() {
                    continue;
                }
            }
            waiting.note();
            let now = self.process.clock().now();
            let deadline = deadline.get_or_insert_with(|| Deadline::after(time, now, &self.process));
            let left = deadline.left_at(now, &self.process);
            if left.is_zero() {
                return Err(Error::deadline(wait.doing, time));
            }
            if moved {
                // A worker that is never idle sends them from time to time.
                self.send_batches()?;
                continue;
            }
            tell_credit(self);
            // The watch is counted before the fence in `prepare`, and `look` reads the watched
            // memory after it.
            let _watching = self.watches.get().then(|| self.home.watch());
            let token =
                self.home.doorbell(self.local).prepare(self.process.waits.fencing(), || self.inbox().leave_all());
            self.inbox().look_back();
            let nothing_new = !self.has_notices()
                && !self.inbox.borrow().has_arrivals()
                && !self.staged_may_move()
                && !self.continuation_is_due();
            match look(self) {
                // A call that ran during this look may have waited itself. That cleared the asleep
                // flag, so no sender would ring any more.
                false if nothing_new && !self.keeps_batches() && self.home.doorbell(self.local).is_asleep() => {
                    self.hand_over();
                    let nap = if self.watches.get() { WATCH_NAP } else { NAP_MAX };
                    let time = left.min(nap);
                    let sleep = |word: &_, seen| self.process.clock().sleep(word, seen, time);
                    self.note_sleep(true);
                    self.home.doorbell(self.local).sleep_on(token, sleep);
                    self.note_sleep(false);
                }
                found => {
                    self.home.doorbell(self.local).cancel(token);
                    if found {
                        return Ok(());
                    }
                }
            }
            backoff.reset();
        }
    }

    /// Does one round of all the work that a worker does for others.
    #[inline]
    pub(crate) fn step(&self) -> Result<bool> {
        self.count_look();
        let polled = self.process.links.polls && self.poll_if_due();
        if self.has_notices() {
            self.take_notices()?;
        }
        let mut moved = polled | (run_arrivals(self)? > 0);
        if !self.unfinished.borrow().is_empty() {
            moved |= self.send_unfinished(false)?;
        }
        if self.process.calls.shared_rings.are_queued() {
            moved |= self.process.calls.shared_rings.send_staged(&self.process)?;
        }
        if !self.continuations.borrow().is_empty() || !self.after_message_replies.borrow().is_empty() {
            moved |= self.run_continuations()?;
        }
        if !self.wakers.borrow().is_empty() {
            self.wake_futures();
        }
        if !self.put_off.borrow().is_empty() {
            moved |= self.do_what_was_put_off();
        }
        if self.process.rooms.are_busy() {
            moved |= self.process.rooms.serve(&self.process, true).moved;
        }
        Ok(moved)
    }

    /// Retries what was not done before.
    #[cold]
    fn do_what_was_put_off(&self) -> bool {
        let tries = self.put_off.take();
        let before = tries.len();
        let left: Vec<_> =
            tries.into_iter().filter_map(|mut put_off| (!put_off.try_again(self)).then_some(put_off)).collect();
        let moved = left.len() < before;
        self.put_off.borrow_mut().extend(left);
        moved
    }

    /// Makes the transport's progress if it is due. Returns whether anything arrived.
    ///
    /// Each poll is a system call, and what this worker waits for may arrive over mapped memory. So
    /// polls become rarer while nothing arrives.
    fn poll_if_due(&self) -> bool {
        let (mut pace, now) = (self.poll_pace.get(), Instant::now());
        if !pace.is_due(now) {
            return false;
        }
        let found = poll(&self.process);
        pace.looked(now, found);
        self.poll_pace.set(pace);
        found
    }

    /// Publishes batches that are due, or all batches if the worker is idle, and sends what is
    /// staged.
    fn send_unfinished(&self, idle: bool) -> Result<bool> {
        let mut moved = false;
        let mut next = 0;
        loop {
            let Some(to) = self.unfinished.borrow().get(next).copied() else { return Ok(moved) };
            let Some(mut outbox) = self.outbox(to) else { return Ok(moved) };
            moved |= outbox.send_due(&self.process, idle)?;
            if outbox.is_finished() {
                self.unfinished.borrow_mut().remove(next);
            } else {
                next += 1;
            }
        }
    }

    /// Returns whether credit has arrived for what is staged.
    fn staged_may_move(&self) -> bool {
        let unfinished = self.unfinished.borrow();
        unfinished.iter().any(|to| self.outbox(*to).is_some_and(|outbox| outbox.staged_may_move()))
            || (self.process.calls.shared_rings.are_queued() && self.process.calls.shared_rings.may_move())
    }

    /// Runs the continuations whose results have arrived, or can no longer arrive.
    fn run_continuations(&self) -> Result<bool> {
        let any = self.run_due_continuations();
        // After those that ran, whether or not one of them panicked.
        if self.is_pool_member() && !matches!(any, Ok(false)) {
            self.process.calls.pool.publish(self, 0);
        }
        any
    }

    fn run_due_continuations(&self) -> Result<bool> {
        let mut due: Vec<Continuation> =
            self.continuations.borrow_mut().extract_if(.., |next| self.has_ended(next.slot)).collect();
        if !self.after_message_replies.borrow().is_empty() {
            self.take_after_message_replies(&mut due);
        }
        let any = !due.is_empty();
        let mut due = due.into_iter();
        while let Some(continuation) = due.next() {
            let handling = Handling::begin(self.in_handler_flag());
            let run = std::panic::AssertUnwindSafe(|| (continuation.run)(self));
            let outcome = std::panic::catch_unwind(run);
            drop(handling);
            if let Err(panic) = outcome {
                // The other continuations run next time. A result may be a lock, which its
                // continuation must release.
                due.for_each(|continuation| self.add_continuation(continuation));
                return Err(handler_error(Source::Worker(self.id), &*panic));
            }
        }
        Ok(any)
    }

    /// Returns whether a continuation may run now.
    fn continuation_is_due(&self) -> bool {
        self.continuations.borrow().iter().any(|next| self.has_ended(next.slot))
            || (!self.after_message_replies.borrow().is_empty() && self.replies.borrow().message_replies().has_news())
    }

    /// Waits until the result of a call has arrived, or can no longer arrive.
    pub(crate) fn wait_for_result(&self, wait: Wait, slot: SlotHandle, time: Duration) -> Result<()> {
        self.wait_by(wait, time, |worker| worker.has_ended(slot))
    }

    /// Returns whether the result of a call has arrived, or can no longer arrive.
    #[inline]
    fn has_ended(&self, slot: SlotHandle) -> bool {
        let replies = self.replies.borrow();
        if self.lost.borrow().is_empty() {
            return replies.has_answer(slot);
        }
        match replies.outcome(slot) {
            ReplyOutcome::Waits(on, holder) => self.holder_lost(on, holder).is_some(),
            ReplyOutcome::InSlot(..) | ReplyOutcome::MessageReply => true,
        }
    }

    /// Adds the continuations of calls without slots whose results have arrived, or can no longer
    /// arrive. Looks only at message replies of which there is news; at all of them after a loss.
    #[cold]
    fn take_after_message_replies(&self, due: &mut Vec<Continuation>) {
        let mut after = self.after_message_replies.borrow_mut();
        let mut news = self.replies.borrow().message_replies().take_news();
        let losses = self.lost.borrow().len();
        if self.losses_seen.replace(losses) != losses {
            news = after.keys().copied().collect();
        }
        for slot in news.into_iter().filter(|slot| self.has_ended(*slot)) {
            let run = match after.remove(&slot) {
                Some(Next::Run(run)) => run,
                Some(Next::Wake(waker)) => Box::new(move |_: &Worker| waker.wake()),
                None => continue,
            };
            due.push(Continuation { slot, run });
        }
    }

    fn wake_futures(&self) {
        let due: Vec<_> = self.wakers.borrow_mut().extract_if(.., |(slot, _)| self.has_ended(*slot)).collect();
        due.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// No watch stays counted, however a wait for memory ends.
    #[test]
    fn no_watcher_is_left() {
        let body = |me: &Worker| -> Result<()> {
            let second = Duration::from_secs(1);
            let panics = || {
                me.watch_until::<()>(
                    "watching",
                    second,
                    |me| if me.watches.get() { panic!("as planned") } else { None },
                )
            };
            assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
            assert!(!me.watches.get());
            let late = me.watch_until::<()>("watching", Duration::from_millis(1), |_| None);
            assert!(matches!(late, Err(Error::Deadline { .. })) && !me.watches.get());
            me.watch_until("watching", second, |me| {
                me.watch_until("watching inside", second, |_| Some(Ok(()))).unwrap();
                assert!(me.watches.get());
                Some(Ok(()))
            })?;
            assert!(!me.watches.get() && !me.home.watchers().are_there_after_change());
            Ok(())
        };
        crate::simulate(1, 1, 1, body).unwrap();
    }
}

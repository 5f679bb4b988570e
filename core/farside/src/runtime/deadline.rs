//! [`Deadline`]: the end of a wait, which a [`DeadlinePause`] postpones.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farside_fabric::clock::{Clock, lock};
use farside_launch::settings::FOREVER;

use crate::invoke::caller::Caller;
use crate::runtime::process::Process;
use crate::runtime::worker::Worker;

/// The least time from now to a deadline during a pause.
const AHEAD: Duration = Duration::from_millis(1);

/// The pauses of a process's deadlines.
pub(crate) struct DeadlinePauses {
    clock: Clock,
    /// True if there has ever been a pause. Written by the first one; read by waits when they begin
    /// and where they compare the time.
    was_used: AtomicBool,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    count: usize,
    /// The time since which deadlines are paused, while they are.
    since: Option<Instant>,
    /// The total time of earlier pauses.
    total: Duration,
}

impl DeadlinePauses {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, was_used: AtomicBool::new(false), held: Mutex::default() }
    }

    pub(crate) fn begin(self: &Arc<Self>) -> DeadlinePause {
        let mut held = lock(&self.held);
        held.count += 1;
        held.since.get_or_insert_with(|| self.clock.now());
        drop(held);
        self.was_used.store(true, Ordering::Relaxed);
        DeadlinePause(self.clone())
    }

    /// Returns for how long deadlines have been paused so far, and whether they are now.
    #[inline]
    fn so_far(&self, now: Instant) -> (Duration, bool) {
        if self.was_used.load(Ordering::Relaxed) { self.add_up(now) } else { (Duration::ZERO, false) }
    }

    #[cold]
    fn add_up(&self, now: Instant) -> (Duration, bool) {
        let held = lock(&self.held);
        let current = held.since.map(|since| now.saturating_duration_since(since));
        (held.total + current.unwrap_or_default(), current.is_some())
    }
}

impl fmt::Debug for DeadlinePauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadlinePauses").field("held", &self.held).finish_non_exhaustive()
    }
}

/// Keeps the deadlines of a process from passing, until it is dropped:
/// [`Worker::pause_deadlines`].
#[derive(Debug)]
#[must_use = "dropping it ends the pause"]
pub struct DeadlinePause(Arc<DeadlinePauses>);

impl Drop for DeadlinePause {
    fn drop(&mut self) {
        let mut held = lock(&self.0.held);
        held.count -= 1;
        if held.count == 0
            && let Some(since) = held.since.take()
        {
            held.total += self.0.clock.now().saturating_duration_since(since);
        }
    }
}

/// The end of a wait: [`Worker::deadline_after`]. The time of [pauses](Worker::pause_deadlines)
/// does not count.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Instant,
    /// The time of pauses that `at` takes into account.
    held: Duration,
}

impl Deadline {
    #[inline]
    pub(crate) fn after(time: Duration, now: Instant, process: &Process) -> Self {
        Self { at: now + time.min(FOREVER), held: process.waits.pauses.so_far(now).0 }
    }

    /// Returns the time at which it passes, as far as is known now. It is later than `now` during
    /// a pause.
    #[inline]
    pub(crate) fn at(&mut self, now: Instant, process: &Process) -> Instant {
        let (held, is_held) = process.waits.pauses.so_far(now);
        self.at += held.saturating_sub(self.held);
        self.held = self.held.max(held);
        if is_held { self.at.max(now + AHEAD) } else { self.at }
    }

    #[inline]
    pub(crate) fn left_at(&mut self, now: Instant, process: &Process) -> Duration {
        self.at(now, process).saturating_duration_since(now)
    }

    /// Returns the time that is left: 0 if the deadline has passed.
    pub fn left(&mut self, me: &Worker) -> Duration {
        self.left_at(me.now(), me.process_handle())
    }

    /// Returns whether the deadline has passed.
    pub fn has_passed(&mut self, me: &Worker) -> bool {
        self.left(me).is_zero()
    }
}

impl Caller {
    /// Keeps the deadlines of this process from passing: [`Worker::pause_deadlines`].
    pub fn pause_deadlines(&self) -> DeadlinePause {
        self.process_handle().waits.pauses.begin()
    }
}

impl Worker {
    /// Keeps the deadlines of this process from passing, until the returned value is dropped. Any
    /// number of pauses may exist at once.
    ///
    /// During a pause, no wait ends by its deadline. Afterwards waits go on with the time that
    /// they had left. This is for a job that is stopped on purpose, such as by a person who looks
    /// at it. A job that stands still needs a pause in each process, because all of them wait.
    ///
    /// | covered | not covered |
    /// |---|---|
    /// | every wait in which a worker serves others: for results, room, collectives, words, locks, pipes, tasks | a `Ticket`, which waits for threads of its process |
    /// | waits of a [`Caller`](crate::Caller), and every [`Deadline`] | waits for a service thread, which never stops: connecting, and moving bytes that are not mapped |
    /// | | the start and the end of a job; leases of locks; ages of batches |
    ///
    /// ```no_run
    /// # fn example(me: &farside::Worker) -> farside::Result<()> {
    /// let pause = me.pause_deadlines();
    /// std::io::stdin().read_line(&mut String::new()).unwrap();
    /// drop(pause);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// *Cost*: a lock. Waits of a process in which there has never been a pause pay one load where
    /// they look at the clock; later a lock.
    pub fn pause_deadlines(&self) -> DeadlinePause {
        self.process_handle().waits.pauses.begin()
    }

    /// Returns a deadline for a wait of several steps. The time of [pauses](Self::pause_deadlines)
    /// does not count.
    pub fn deadline_after(&self, time: Duration) -> Deadline {
        self.process_handle().deadline_after(time)
    }
}

//! Calls from threads of a process that are not workers (Seriema §4.3: "no-setup").
//!
//! They send on the process's shared rings, and share one space for answers, which follows those of
//! the workers. Such a thread runs no calls of others: while it waits, it sleeps.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use farside_fabric::wait::Backoff;
use farside_fabric::{ProcessId, WorkerId};

use super::call::{Sends, To, WhenFull};
use super::named::{Head, NAMED, NamedCall};
use super::notify::{Counted, Notify, Synchronizer, count_down};
use super::outbox::Dispatch;
use super::outcome::Outcome;
use super::payload::{AnyPayload, Payload};
use super::pending::{FromLike, Reading, take, with_debtor};
use super::reply::{Holder, ReplyAddress};
use super::reply_slots::{ReplySlots, SlotHandle};
use super::table::Remote;
use crate::error::{Error, Refused, Result};
use crate::runtime::process::{Process, lock};
use crate::runtime::worker::Worker;
use crate::wire::Wire;

/// The longest sleep of a waiting thread. A doorbell wakes it earlier when something arrives.
const NAP_MAX: Duration = Duration::from_secs(1);

/// The state that the non-worker threads of a process share.
#[derive(Debug)]
pub(crate) struct Callers {
    slots: Mutex<ReplySlots>,
    going: Mutex<Going>,
}

#[derive(Debug, Default)]
struct Going {
    /// Calls that are being made or whose results are awaited.
    calls: usize,
    /// The callable threads of this process whose bodies have returned.
    resting: u32,
    /// True if the process has come to rest, so that no more calls are allowed.
    closed: bool,
}

impl Callers {
    pub(crate) fn new(slots: ReplySlots) -> Self {
        Self { slots: Mutex::new(slots), going: Mutex::default() }
    }

    pub(crate) fn slots(&self) -> MutexGuard<'_, ReplySlots> {
        lock(&self.slots)
    }

    /// Notes that the body of one of `threads` threads has returned. Returns whether it was the
    /// last.
    pub(crate) fn one_more_rests(&self, threads: u32) -> bool {
        let mut going = lock(&self.going);
        going.resting += 1;
        going.resting == threads
    }

    /// Returns whether the bodies of all `threads` threads have returned.
    pub(crate) fn all_rest(&self, threads: u32) -> bool {
        lock(&self.going).resting == threads
    }

    /// Returns whether no call is under way here. Once the bodies of all `threads` threads have
    /// returned, no call starts after that.
    pub(crate) fn may_rest(&self, threads: u32) -> bool {
        let mut going = lock(&self.going);
        going.closed |= going.resting == threads && going.calls == 0;
        going.calls == 0
    }
}

/// The handle with which a thread that is not a worker calls functions. Any thread of its process
/// can copy, keep and use it for as long as the job runs. [`Worker::caller`] and [`Worker::scope`]
/// return one.
///
/// A calling thread needs no setup. Its calls go through the rings that all threads of the process
/// share, in the order in which they were made. A call that finds no room waits
/// ([`WhenFull::Retry`]), unless the program chooses otherwise.
///
/// ```no_run
/// # use farside::prelude::*;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let (caller, peer) = (me.caller(), me.neighbor(1));
/// std::thread::spawn(move || -> farside::Result<()> {
///     let sum = caller.call_return(peer, (20_u64, 22_u64), |_, (a, b)| a + b)?.wait()?;
///     assert_eq!(sum, 42);
///     Ok(())
/// });
/// # Ok(())
/// # }
/// ```
///
/// A job comes to rest only when no call of a `Caller` is under way. Once that is so and the bodies
/// of all workers of its process have returned, further calls return [`Error::JobEnded`].
///
/// Workers should use their own methods: a worker that waits through a `Caller` runs no calls
/// meanwhile.
#[derive(Clone, Debug)]
pub struct Caller {
    process: Arc<Process>,
}

impl Caller {
    pub(crate) fn new(process: Arc<Process>) -> Self {
        process.home().doorbell(process.shape().callers()).share();
        Self { process }
    }

    pub(crate) fn process_handle(&self) -> &Arc<Process> {
        &self.process
    }

    /// The process of this caller.
    pub fn process(&self) -> ProcessId {
        self.process.id()
    }

    /// The workers of the job.
    pub fn workers(&self) -> impl ExactSizeIterator<Item = WorkerId> + use<> {
        (0..self.process.shape().workers()).map(WorkerId::new)
    }

    /// The current time, as [`Worker::now`] returns it.
    pub fn now(&self) -> Instant {
        self.process.clock().now()
    }

    /// Returns the path to a worker, with options.
    pub fn to(&self, worker: WorkerId) -> To<'_, Self> {
        To::new(self, &self.process.calls.table, worker, None)
    }

    /// Runs a function on a worker, as [`Worker::call`] does.
    ///
    /// # Errors
    /// [`Error::Full`], or [`Error::Deadline`] after a wait, if the receiver has no room;
    /// [`Error::TooLarge`]; [`Error::UnknownWorker`]; [`Error::PeerLost`] if the receiver is lost;
    /// [`Error::DifferentBinaries`] or [`Error::ForeignFunction`] if it cannot find the function;
    /// [`Error::JobEnded`].
    pub fn call<A: Wire, R: Outcome>(
        &self,
        to: WorkerId,
        arguments: A,
        function: fn(&Worker, A) -> R,
    ) -> Result<(), Refused<A>> {
        self.to(to).call(arguments, function)
    }

    /// Runs a function on a worker and returns its result, as [`Worker::call_return`] does.
    ///
    /// # Errors
    /// [`Error::Full`], or [`Error::Deadline`] after a wait, if the receiver has no room;
    /// [`Error::TooLarge`]; [`Error::UnknownWorker`]; [`Error::PeerLost`] if the receiver is lost;
    /// [`Error::DifferentBinaries`] or [`Error::ForeignFunction`] if it cannot find the function;
    /// [`Error::JobEnded`].
    pub fn call_return<A: Wire, R: Wire>(
        &self,
        to: WorkerId,
        arguments: A,
        function: fn(&Worker, A) -> R,
    ) -> Result<CallerPending<R>, Refused<A>> {
        self.to(to).call_return(arguments, function)
    }

    /// Returns a counter of calls to be sent or executed, for which this thread can wait.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if this process already uses 1024 of them.
    pub fn synchronizer(&self, calls: u32) -> Result<Synchronizer<'_>> {
        Synchronizer::new(Waiter::Caller(self), calls)
    }

    /// Counts a new call, so that the job does not come to rest before it ends.
    fn begin(&self) -> Result<Underway> {
        self.process.orders.check_ended()?;
        let mut going = lock(&self.process.calls.callers.going);
        if going.closed {
            return Err(Error::JobEnded { why: "the workers of this process have returned".to_owned() });
        }
        going.calls += 1;
        Ok(Underway(self.clone()))
    }

    /// Sleeps until `look` finds something.
    fn wait_until<T>(
        &self,
        doing: &'static str,
        time: Duration,
        mut look: impl FnMut() -> Option<Result<T>>,
    ) -> Result<T> {
        let mut found = None;
        self.wait_untyped(doing, time, &mut || {
            found = look();
            found.is_some()
        })?;
        found.expect("the wait ended well, because something was found")
    }

    fn wait_untyped(&self, doing: &'static str, time: Duration, look: &mut dyn FnMut() -> bool) -> Result<()> {
        let process = &self.process;
        let bell = process.home().doorbell(process.shape().callers());
        let mut backoff = Backoff::new(process.waits.policy);
        let mut deadline = process.deadline_after(time);
        loop {
            let token = bell.listen();
            if look() {
                return Ok(());
            }
            process.orders.check_ended()?;
            if backoff.pause() {
                continue;
            }
            let left = deadline.left_at(self.now(), process);
            if left.is_zero() {
                return Err(Error::deadline(doing, time));
            }
            let nap = left.min(NAP_MAX);
            bell.sleep_among_others(token, |word, seen| process.clock().sleep(word, seen, nap));
        }
    }
}

/// A call that is being made, or whose result is awaited.
#[derive(Debug)]
struct Underway(Caller);

impl Drop for Underway {
    fn drop(&mut self) {
        let process = &self.0.process;
        let mut going = lock(&process.calls.callers.going);
        going.calls -= 1;
        let rests = going.calls == 0 && going.resting == process.shape().callable_per_process();
        drop(going);
        if rests {
            process.mailboxes.call_attention_of_all();
        }
    }
}

/// The owner of a [`Synchronizer`]: a worker, which makes progress while it waits, or a thread that
/// is not a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiter<'w> {
    Worker(&'w Worker),
    Caller(&'w Caller),
}

impl Waiter<'_> {
    pub(crate) fn process(&self) -> &Arc<Process> {
        match self {
            Self::Worker(worker) => worker.process_handle(),
            Self::Caller(caller) => &caller.process,
        }
    }

    /// The number of the latch's owner.
    pub(crate) fn number(&self) -> u32 {
        match self {
            Self::Worker(worker) => worker.id().number(),
            Self::Caller(caller) => caller.process.shape().callers_of(caller.process()).number(),
        }
    }

    pub(crate) fn lost(&self, process: ProcessId) -> Option<Error> {
        match self {
            Self::Worker(worker) => worker.lost(process),
            Self::Caller(caller) => caller.process.losses.lost(process),
        }
    }

    #[track_caller]
    pub(crate) fn wait_until<T>(
        &self,
        doing: &'static str,
        time: Duration,
        mut look: impl FnMut() -> Option<Result<T>>,
    ) -> Result<T> {
        match self {
            Self::Worker(worker) => worker.wait_until(doing, time, |_| look()),
            Self::Caller(caller) => caller.wait_until(doing, time, look),
        }
    }
}

impl<'w> Sends<'w> for Caller {
    type Pending<R: 'w, H: 'w> = CallerPending<R, H>;

    fn process_handle(&self) -> &Arc<Process> {
        &self.process
    }

    fn submit<T: Remote, P: Payload, N: Counted>(
        to: &To<'_, Self, N>,
        operand: Result<u32>,
        payload: P,
    ) -> Result<(), (Error, P)> {
        let how = operand.and_then(|operand| {
            let entry = to.from.process.calls.table.entries().number_of::<T>()?;
            Ok(Dispatch { entry, operand, batch_bytes: 0 })
        });
        match how {
            Ok(how) => {
                let mut payload = Some(payload);
                let sent = to.untyped().send(how, &mut payload);
                sent.map_err(|error| (error, payload.expect("a refused payload was not written")))
            }
            Err(error) => Err((error, payload)),
        }
    }

    fn submit_named<A: Wire>(to: &To<'_, Self>, head: Head, arguments: &A) -> Result<()> {
        let mut record = Vec::new();
        let call = NamedCall::encode(&head, arguments, &mut record);
        to.send(Dispatch { entry: NAMED, operand: 0, batch_bytes: 0 }, &mut Some(call))
    }

    fn reserve<R: Wire, H: Reading<R>, N>(
        to: &To<'w, Self, N>,
        bytes: usize,
        how: H,
    ) -> Result<(CallerPending<R, H>, ReplyAddress)> {
        let underway = to.from.begin()?;
        let (slot, address) = to.from.process.calls.callers.slots().reserve(bytes, to.to);
        Ok((CallerPending { underway, slot: Some(slot), how, result: std::marker::PhantomData }, address))
    }
}

impl To<'_, Caller> {
    fn send(&self, how: Dispatch, payload: &mut dyn AnyPayload) -> Result<()> {
        let caller = self.from;
        let process = &caller.process;
        let _underway = caller.begin()?;
        let mut deadline = process.deadline_after(process.settings().deadline);
        let wait = |record_bytes| {
            let left = deadline.left_at(caller.now(), process);
            let waited = caller.wait_until("waiting for room in a shared ring", left, || {
                process
                    .calls
                    .shared_rings
                    .may_send(process, self.to, record_bytes)
                    .map(|may| may.then_some(()))
                    .transpose()
            });
            waited.map_err(|error| error.late(self.to))
        };
        let when_full = self.when_full.unwrap_or(WhenFull::Retry);
        process.calls.shared_rings.send_or_wait(process, self.to, how, payload, when_full, wait)?;
        if let Notify::Sent(latch) = self.notify {
            count_down(process, latch);
        }
        Ok(())
    }
}

/// The result of a call made with a [`Caller`], on its way. Dropping it lets the call go on and
/// discards its result.
#[derive(Debug)]
#[must_use = "dropping it discards the result"]
pub struct CallerPending<R, H = FromLike> {
    underway: Underway,
    /// `None` once the result was taken.
    slot: Option<SlotHandle>,
    how: H,
    result: std::marker::PhantomData<fn() -> R>,
}

impl<R: Wire, H: Reading<R>> CallerPending<R, H> {
    /// Returns the result if it has arrived.
    ///
    /// # Errors
    /// Inside the `Some`: [`Error::RemotePanic`] if the function panicked; [`Error::ReplyDropped`]
    /// if its reply was dropped; [`Error::PeerLost`] if the process that must answer is lost;
    /// [`Error::NamedRefused`] or [`Error::Wire`] for a named function.
    ///
    /// # Panics
    /// When the result was taken before.
    pub fn poll(&mut self) -> Option<Result<R>> {
        let slot = self.slot.expect("the result was already taken");
        let outcome = look_for(&self.underway.0.process, slot, self.how)?;
        self.slot = None;
        Some(outcome)
    }

    /// Waits for the result, for the job's [deadline](crate::Job::deadline) at most.
    ///
    /// # Errors
    /// [`Error::RemotePanic`] if the function panicked; [`Error::ReplyDropped`] if its reply was
    /// dropped; [`Error::PeerLost`] if the process that must answer is lost;
    /// [`Error::NamedRefused`] or [`Error::Wire`] for a named function; [`Error::Deadline`] if no
    /// result arrives in time; [`Error::JobEnded`].
    pub fn wait(mut self) -> Result<R> {
        self.wait_for(self.underway.0.process.settings().deadline)
    }

    /// Waits for at most this long. After [`Error::Deadline`] the caller may wait again.
    ///
    /// # Errors
    /// [`Error::RemotePanic`] if the function panicked; [`Error::ReplyDropped`] if its reply was
    /// dropped; [`Error::PeerLost`] if the process that must answer is lost;
    /// [`Error::NamedRefused`] or [`Error::Wire`] for a named function; [`Error::Deadline`] if no
    /// result arrives in time; [`Error::JobEnded`].
    ///
    /// # Panics
    /// When the result was taken before.
    pub fn wait_for(&mut self, time: Duration) -> Result<R> {
        let slot = self.slot.expect("the result was already taken");
        let (caller, how) = (&self.underway.0, self.how);
        let look = || look_for(&caller.process, slot, how).map(Ok);
        // An error of the wait itself says nothing of the result, which may still come.
        let result = caller.wait_until("waiting for the result of a call", time, look);
        let result = result.map_err(|error| with_debtor(&caller.process.calls.callers.slots(), slot, error))?;
        self.slot = None;
        result
    }
}

fn look_for<R: Wire, H: Reading<R>>(process: &Arc<Process>, slot: SlotHandle, how: H) -> Option<Result<R>> {
    let lost = |on, holder| match holder {
        Holder::Called => process.job.place_of(on).and_then(|(of, _)| process.losses.lost(of)),
        Holder::Process(of) => process.losses.lost(of),
        Holder::OnTheWay { losses } => process.losses.given_up().nth(losses as usize).map(|of| process.losses.gone(of)),
    };
    take(process, &mut process.calls.callers.slots(), slot, how, lost)
}

impl<R, H> Drop for CallerPending<R, H> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.underway.0.process.calls.callers.slots().give_up(slot);
        }
    }
}

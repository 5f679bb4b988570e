//! Calls of functions on other workers.

mod aggregator;
mod ahead;
mod by_name;

use std::cell::RefCell;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use farside_fabric::WorkerId;

pub use self::aggregator::{Aggregation, Aggregator, Aggregators};
use super::named::{Head, NAMED, NamedCall};
use super::notify::{Counted, LatchAddress, Notify, On, Synchronizer, count_down};
use super::outbox::{Dispatch, Keeping, Outbox, Sent};
use super::outcome::Outcome;
use super::payload::{AnyPayload, Arguments, Payload, WithBuffer};
use super::pending::{FromLike, Pending, Reading};
use super::remote::{ByPointer, ByType, Call, CallBuffer, CallNotified, CallReturn, CallWithReply, Callee, RemoteFn};
use super::reply::{Reply, ReplyAddress};
use super::reply_slots::ReplySlots;
use super::table::{Entries, FunctionTable, Remote};
use crate::error::{Error, Refused, Result};
use crate::runtime::activity::FunctionId;
use crate::runtime::process::Process;
use crate::runtime::worker::Worker;
use crate::wire::Wire;
use farside_launch::kill_point::KillPoint;

/// The size at which an [`Aggregator`] publishes its batch by default: Seriema's 4 KiB.
pub const AGGREGATE_BYTES: usize = 4096;
/// The age at which an [`Aggregator`] publishes its batch at the next progress, by default.
pub const AGGREGATE_AGE: Duration = Duration::from_micros(500);

/// The action when there is no room for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Return the arguments with [`Error::Full`].
    Fail,
    /// Wait for room, for the job's deadline at most, and meanwhile run calls that arrive here. Not
    /// in handlers.
    Retry,
    /// Keep the call here, in order, and send it when there is room. Fails when the queue is full
    /// ([`Job::queue_cap_bytes`](crate::Job::queue_cap_bytes)).
    Queue,
    /// Keep the call here, in order and without a limit, and send it when there is room. This is
    /// the default in handlers, which can neither wait nor make their call later.
    Spill,
}

impl WhenFull {
    /// Returns the permitted ways to keep a record that finds no room.
    pub(crate) fn keeping(self) -> Keeping {
        Keeping {
            may_stage: matches!(self, Self::Queue | Self::Spill),
            cap_bytes: (self == Self::Spill).then_some(usize::MAX),
            hold: None,
        }
    }
}

/// The sending side of calls: a [`Worker`], or a [`Caller`](crate::Caller) on a thread that is not
/// a worker. [`To`] has the forms of calls, which are the same for both.
///
/// Programs cannot name this trait: its methods pair an answer's place with the way to read it, and
/// trust their caller to pair them rightly.
pub trait Sends<'w>: Sized + 'w {
    /// The result of a call, on its way.
    type Pending<R: 'w, H: 'w>;

    #[doc(hidden)]
    fn process_handle(&self) -> &Arc<Process>;

    /// Sends a record.
    #[doc(hidden)]
    #[track_caller]
    fn submit<T: Remote, P: Payload, N: Counted>(
        to: &To<'_, Self, N>,
        operand: Result<u32>,
        payload: P,
    ) -> Result<(), (Error, P)>;

    /// Encodes and sends a call by name.
    #[doc(hidden)]
    #[track_caller]
    fn submit_named<A: Wire>(to: &To<'_, Self>, head: Head, arguments: &A) -> Result<()>;

    /// Reserves a place for an answer, with room for `bytes` bytes if there is some. Dropping the
    /// pending result gives it back.
    #[doc(hidden)]
    fn reserve<R: Wire, H: Reading<R>, N>(
        to: &To<'w, Self, N>,
        bytes: usize,
        how: H,
    ) -> Result<(Self::Pending<R, H>, ReplyAddress)>;
}

/// The path to one worker, with options for its calls. Made by [`Worker::to`] and
/// [`Caller::to`](crate::Caller::to); it is `Copy`, and costs nothing to make.
///
/// By default a call that finds no room waits ([`WhenFull::Retry`]), and in a handler is kept
/// ([`WhenFull::Spill`]).
///
/// # The forms of calls
///
/// All forms go through the worker's own ring, or, with [`send_based`](Self::send_based), through
/// the shared ring of its process. They call a worker, or the [pool](Worker::pool_of) of a process.
/// All forms but the marked one keep their order among the calls of the same path.
///
/// | form | what travels | the buffer is copied by | reuse of the buffer | `On::Sent` | `On::Executed` |
/// |---|---|---|---|---|---|
/// | [`call`](Self::call) | the arguments | | at once | published | has run |
/// | [`call_buffer`](Self::call_buffer) | arguments and buffer side by side, in one record | caller | at once | published | has run |
/// | [`call_buffer_put`](Self::call_buffer_put) | the buffer into a place there; then the call with the place | caller | at return | published, buffer in place | has run |
/// | [`call_buffer_get`](Self::call_buffer_get) | the call; its receiver reads the buffer and runs it | receiver | when the [`Lent`](crate::Lent) says so | **buffer was read** | has run |
/// | [`call_buffer_get_unordered`](Self::call_buffer_get_unordered), *in no order* | the same, read by a helper thread there | helper | when the [`Lent`](crate::Lent) says so | **buffer was read** | has run |
/// | [`call_return`](Self::call_return), [`call_with_reply`](Self::call_with_reply) | the call; the result into a slot of the caller's, or in messages | | at once | published | not counted: the [`Pending`] tells |
/// | [`call_into`](Self::call_into) | the call; the result into registered memory of any process | | at once | published | result is in place |
/// | [`call_named`](Self::call_named), [`call_named_return`](Self::call_named_return) | encoded arguments | | at once | published | has run |
///
/// With [`signalling`](Self::signalling) instead of [`notify`](Self::notify), calls give a signal
/// in a word of memory, which any process can watch. A [`Caller`](crate::Caller) has the forms
/// without registered memory. [`Worker::everyone`] has the same forms for all workers. Calls by
/// name have arguments and results only. A buffer travels with them as a `Vec<u8>`, because a
/// function of another binary could not check registered memory when it reads it.
///
/// A buffer in a record may be as long as half of the receiver's ring cap
/// ([`Job::ring_cap_bytes`](crate::Job::ring_cap_bytes)); the ring then grows by a chunk of that
/// size. A buffer in registered memory may be as long as that memory.
///
/// ```no_run
/// # use farside::prelude::*;
/// # use farside::{ResultPlace, Written};
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let (peer, bytes) = (me.neighbor(1), [7; 4096]);
/// let executed = me.synchronizer(3)?;
/// let to = me.to(peer).notify(&executed, On::Executed);
/// // Side by side.
/// to.call_buffer((), &bytes, |_, (), bytes| assert_eq!(bytes.len(), 4096))?;
/// // Written first.
/// let there = me.allocate_at(peer, 4096)?;
/// to.call_buffer_put((), &bytes, (there, 0), |there, ((), written): ((), Written)| {
///     assert_eq!(written.to_vec(there).unwrap().len(), 4096);
/// })?;
/// // Read by the receiver.
/// let buffer = me.allocate(4096)?;
/// buffer.write_at(0, &bytes)?;
/// let lent = to.call_buffer_get((), buffer, |_, (), bytes| assert_eq!(bytes.len(), 4096));
/// let buffer = lent.map_err(farside::Error::from)?.wait()?;
/// executed.wait()?;
/// // A result in memory that the caller names.
/// let place = ResultPlace::<u64>::new(me, me.allocate_at(me.process(), 16)?, 0, 16)?;
/// me.to(peer).call_into(6_u64, |_, x| x * 7, place)?;
/// assert_eq!(place.wait(me)?, 42);
/// # drop(buffer);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct To<'w, S = Worker, N = LatchAddress> {
    pub(crate) from: &'w S,
    entries: Entries,
    pub(crate) to: WorkerId,
    /// `None` when there is no such worker, and for a sender that is not a worker.
    outbox: Option<&'w RefCell<Outbox>>,
    pub(super) when_full: Option<WhenFull>,
    pub(crate) notify: Notify<N>,
    /// True if calls go through the shared ring of the process: [`send_based`](Self::send_based).
    is_shared: bool,
    /// True if calls take the slow path: on a shared ring, counted when sent, or held.
    special: bool,
    batch_bytes: usize,
    /// The maximum age of a batch. This field and the next have 32 bits, because each call copies
    /// them.
    age_us: u32,
    /// The most bytes kept in overflow mode; `NO_LIMIT` in other modes.
    limit_bytes: u32,
    /// True if batches are published in time even while this worker makes no progress.
    held: bool,
}

impl<S, N: Copy> Clone for To<'_, S, N> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<S, N: Copy> Copy for To<'_, S, N> {}

/// The limit outside overflow mode.
const NO_LIMIT: u32 = u32::MAX;

impl<'w> To<'w> {
    #[inline]
    pub(crate) fn of_worker(worker: &'w Worker, to: WorkerId) -> Self {
        Self::new(worker, worker.table(), to, worker.outbox_cell(to))
    }

    /// Sends through the ring that all threads of this process share, instead of this
    /// worker's own ring. This needs no setup per worker, and calls of different threads keep the
    /// order in which they were made. It is slower (Seriema §4.3).
    pub fn send_based(mut self) -> Self {
        self.is_shared = true;
        self.special = true;
        self
    }
}

impl<'w, S: Sends<'w>> To<'w, S> {
    #[inline]
    pub(super) fn new(from: &'w S, table: &FunctionTable, to: WorkerId, outbox: Option<&'w RefCell<Outbox>>) -> Self {
        Self {
            from,
            entries: table.entries(),
            to,
            outbox,
            when_full: None,
            notify: Notify::Nothing,
            is_shared: false,
            special: false,
            batch_bytes: 0,
            age_us: AGGREGATE_AGE.as_micros() as u32,
            limit_bytes: NO_LIMIT,
            held: false,
        }
    }

    /// Counts `synchronizer` down when each call was sent, or executed.
    pub fn notify(mut self, synchronizer: &'w Synchronizer<'w>, on: On) -> Self {
        if let Some((process, _)) = self.from.process_handle().job.place_of(self.to) {
            synchronizer.asks(process);
        }
        self.notify = match on {
            On::Sent => {
                self.special = true;
                Notify::Sent(synchronizer.address())
            }
            // The call itself says what its receiver counts down.
            On::Executed => Notify::Executed(synchronizer.address()),
        };
        self
    }

    /// Changes `counted` after each call was executed, instead of an earlier latch.
    pub(crate) fn count_executed<N>(self, counted: N) -> To<'w, S, N> {
        self.with_notify(Notify::Executed(counted))
    }
}

impl<'w, S: Sends<'w>, N: Counted> To<'w, S, N> {
    /// Chooses what to do when there is no room. The service thread or a worker of this process
    /// sends [queued](WhenFull::Queue) calls when there is room.
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = Some(when_full);
        self
    }

    #[inline(always)]
    pub(crate) fn operand_of(&self, function: usize) -> Result<u32> {
        self.from.process_handle().calls.table.offset_of(function)
    }

    /// Runs `function(there, arguments)` on the other worker when that worker makes progress.
    ///
    /// The function captures nothing, which the compiler ensures: everything it needs travels as
    /// `arguments`. If it returns an `Err`, that [is reported there](Outcome) as a panic is. Calls
    /// from one worker to another run in the order in which they were made.
    ///
    /// *Completion*: the arguments were copied when this returns; [`notify`](Self::notify) tells
    /// when the call was executed. *Cost*: a copy into the receiver's memory, and a fence where
    /// workers share CPUs. No system call, unless the receiver sleeps. The first call to a worker
    /// opens a ring (about 100 µs, in the background).
    ///
    /// # Errors
    /// [`Error::Full`], or [`Error::Deadline`] after a wait, if the receiver has no room;
    /// [`Error::TooLarge`]; [`Error::UnknownWorker`]; [`Error::PeerLost`] if the receiver is lost;
    /// [`Error::DifferentBinaries`] or [`Error::ForeignFunction`] if it cannot find the function;
    /// [`Error::InHandler`] if a handler would have to wait.
    #[inline(always)]
    #[track_caller]
    pub fn call<A: Wire, R: Outcome>(self, arguments: A, function: fn(&Worker, A) -> R) -> Result<(), Refused<A>> {
        let operand = self.operand_of(function as usize);
        self.submit_call::<ByPointer, fn(&Worker, A) -> R, A, R>(operand, arguments)
    }

    /// Calls as [`call`](Self::call) does, with a closure named by [`remote!`](crate::remote).
    ///
    /// # Errors
    /// [`Error::Full`], or [`Error::Deadline`] after a wait, if the receiver has no room;
    /// [`Error::TooLarge`]; [`Error::UnknownWorker`]; [`Error::PeerLost`] if the receiver is lost;
    /// [`Error::DifferentBinaries`] or [`Error::ForeignFunction`] if it cannot find the function;
    /// [`Error::InHandler`] if a handler would have to wait.
    #[inline(always)]
    #[track_caller]
    pub fn call_remote<A: Wire, R: Outcome, F>(self, arguments: A, _: RemoteFn<F>) -> Result<(), Refused<A>>
    where
        F: Fn(&Worker, A) -> R + Copy + 'static,
    {
        self.submit_call::<ByType, F, A, R>(Ok(0), arguments)
    }

    #[inline(always)]
    #[track_caller]
    fn submit_call<K: Callee<F>, F: Fn(&Worker, A) -> R, A: Wire, R: Outcome>(
        &self,
        operand: Result<u32>,
        arguments: A,
    ) -> Result<(), Refused<A>> {
        if let Notify::Executed(counted) = self.notify {
            return self.submit_notified::<K, F, A, R>(operand, counted, Box::new(arguments));
        }
        match S::submit::<Call<K, F, A, R>, _, _>(self, operand, Arguments(arguments)) {
            Ok(()) => Ok(()),
            Err((error, Arguments(arguments))) => Err(Refused { error, arguments }),
        }
    }

    #[expect(clippy::boxed_local, reason = "see `submit_slowly`")]
    #[inline(never)]
    #[track_caller]
    fn submit_notified<K: Callee<F>, F: Fn(&Worker, A) -> R, A: Wire, R: Outcome>(
        self,
        operand: Result<u32>,
        counted: N,
        arguments: Box<A>,
    ) -> Result<(), Refused<A>> {
        match S::submit::<CallNotified<K, F, A, R, N>, _, _>(&self, operand, Arguments((counted, *arguments))) {
            Ok(()) => Ok(()),
            Err((error, Arguments((_, arguments)))) => Err(Refused { error, arguments }),
        }
    }

    /// Runs `function(there, arguments, buffer)` on the other worker, with a copy of `buffer` that
    /// travels in the same record. The function borrows the bytes from the ring itself, aligned to
    /// 8.
    ///
    /// *Completion*: `buffer` may be reused when this returns. *Cost*: one copy at the caller, none
    /// at the receiver.
    ///
    /// # Errors
    /// [`Error::Full`], or [`Error::Deadline`] after a wait, if the receiver has no room;
    /// [`Error::TooLarge`]; [`Error::UnknownWorker`]; [`Error::PeerLost`] if the receiver is lost;
    /// [`Error::DifferentBinaries`] or [`Error::ForeignFunction`] if it cannot find the function;
    /// [`Error::InHandler`] if a handler would have to wait.
    #[track_caller]
    pub fn call_buffer<A: Wire, R: Outcome>(
        self,
        arguments: A,
        buffer: &[u8],
        function: fn(&Worker, A, &[u8]) -> R,
    ) -> Result<(), Refused<A>> {
        let operand = self.operand_of(function as usize);
        let payload = WithBuffer { arguments: (self.notify.executed(), arguments), buffer };
        S::submit::<CallBuffer<ByPointer, fn(&Worker, A, &[u8]) -> R, A, R, N>, _, _>(&self, operand, payload)
            .map_err(|(error, WithBuffer { arguments: (_, arguments), .. })| Refused { error, arguments })
    }
}

impl<'w, S: Sends<'w>> To<'w, S> {
    /// Calls as [`call`](Self::call) does, and returns the function's result.
    ///
    /// An answer is never refused. There is no limit to the size of a result, and none to the
    /// number of calls that wait for theirs.
    ///
    /// *Completion*: when the [`Pending`] says so. *Cost*: one more store by the receiver, into
    /// this worker's memory. A worker has room for 256 such results, of which 240 KiB may be longer
    /// than 56 bytes; the other threads of a process share a quarter of that. Room for 4 KiB is
    /// reserved if the type does not fix the size of the result. A result without room costs a
    /// message for each 4 KiB (`message_bytes_max` of `farside info`), and arrives without this
    /// worker's attention. Until it is taken it is kept at this process. The receiver waits in the
    /// call while more than 1 MiB of results for this process are unsent.
    ///
    /// # Errors
    /// [`Error::Full`], or [`Error::Deadline`] after a wait, if the receiver has no room;
    /// [`Error::TooLarge`]; [`Error::UnknownWorker`]; [`Error::PeerLost`] if the receiver is lost;
    /// [`Error::DifferentBinaries`] or [`Error::ForeignFunction`] if it cannot find the function;
    /// [`Error::InHandler`] if a handler would have to wait.
    #[track_caller]
    pub fn call_return<A: Wire, R: Wire>(
        self,
        arguments: A,
        function: fn(&Worker, A) -> R,
    ) -> Result<S::Pending<R, FromLike>, Refused<A>> {
        let operand = self.operand_of(function as usize);
        self.submit_return::<CallReturn<ByPointer, fn(&Worker, A) -> R, A, R>, A, R>(operand, arguments)
    }

    /// Calls as [`call_return`](Self::call_return) does, with a closure named by
    /// [`remote!`](crate::remote).
    ///
    /// # Errors
    /// [`Error::Full`], or [`Error::Deadline`] after a wait, if the receiver has no room;
    /// [`Error::TooLarge`]; [`Error::UnknownWorker`]; [`Error::PeerLost`] if the receiver is lost;
    /// [`Error::DifferentBinaries`] or [`Error::ForeignFunction`] if it cannot find the function;
    /// [`Error::InHandler`] if a handler would have to wait.
    #[track_caller]
    pub fn call_return_remote<A: Wire, R: Wire, F>(
        self,
        arguments: A,
        _: RemoteFn<F>,
    ) -> Result<S::Pending<R, FromLike>, Refused<A>>
    where
        F: Fn(&Worker, A) -> R + Copy + 'static,
    {
        self.submit_return::<CallReturn<ByType, F, A, R>, A, R>(Ok(0), arguments)
    }

    /// Calls as [`call_return`](Self::call_return) does, but the function gets the duty to answer
    /// as a [`Reply`], which it may keep for later or hand on.
    ///
    /// # Errors
    /// [`Error::Full`], or [`Error::Deadline`] after a wait, if the receiver has no room;
    /// [`Error::TooLarge`]; [`Error::UnknownWorker`]; [`Error::PeerLost`] if the receiver is lost;
    /// [`Error::DifferentBinaries`] or [`Error::ForeignFunction`] if it cannot find the function;
    /// [`Error::InHandler`] if a handler would have to wait.
    #[track_caller]
    pub fn call_with_reply<A: Wire, R: Wire>(
        self,
        arguments: A,
        function: fn(&Worker, A, Reply<R>),
    ) -> Result<S::Pending<R, FromLike>, Refused<A>> {
        let operand = self.operand_of(function as usize);
        self.submit_return::<CallWithReply<ByPointer, fn(&Worker, A, Reply<R>), A, R>, A, R>(operand, arguments)
    }

    #[track_caller]
    fn submit_return<T: Remote, A: Wire, R: Wire>(
        &self,
        operand: Result<u32>,
        arguments: A,
    ) -> Result<S::Pending<R, FromLike>, Refused<A>> {
        let (pending, address) = match S::reserve(self, ReplySlots::room_for::<R>(), FromLike) {
            Ok(reserved) => reserved,
            Err(error) => return Err(Refused { error, arguments }),
        };
        match S::submit::<T, _, _>(self, operand, Arguments((address, arguments))) {
            Ok(()) => Ok(pending),
            Err((error, Arguments((_, arguments)))) => Err(Refused { error, arguments }),
        }
    }
}

impl<'w> Sends<'w> for Worker {
    type Pending<R: 'w, H: 'w> = Pending<'w, R, H>;

    #[inline(always)]
    fn process_handle(&self) -> &Arc<Process> {
        Worker::process_handle(self)
    }

    #[inline(always)]
    #[track_caller]
    fn submit<T: Remote, P: Payload, N: Counted>(
        to: &To<'_, Self, N>,
        operand: Result<u32>,
        payload: P,
    ) -> Result<(), (Error, P)> {
        let operand = match operand {
            Ok(operand) => operand,
            Err(error) => return Err((error, payload)),
        };
        let entry = match to.entries.number_of::<T>() {
            Ok(entry) => entry,
            Err(error) => return Err((error, payload)),
        };
        let Some(cell) = to.outbox else { return Err((to.from.unknown(to.to), payload)) };
        if to.from.recorder().is_on() {
            let function = FunctionId { entry, offset: operand };
            to.from.note_call(to.to, function, !to.is_shared, Location::caller());
        }
        if to.special {
            return unboxed(to.submit_slowly(entry, operand, Box::new(payload)));
        }
        let mut outbox = cell.borrow_mut();
        let sent = match to.batch_bytes {
            0 => outbox.try_send(entry, operand, payload),
            batch_bytes => outbox.try_batch(entry, operand, batch_bytes, payload),
        };
        match sent {
            Ok(Sent::Now | Sent::Batched | Sent::Staged) => Ok(()),
            Ok(Sent::BatchBegun) => {
                outbox.batch_begun(to.from.now() + to.age());
                to.from.list_unfinished(to.to);
                to.from.process_handle().hot_kill_point(KillPoint::BatchBegun);
                Ok(())
            }
            Err(payload) => {
                drop(outbox);
                unboxed(to.submit_slowly(entry, operand, Box::new(payload)))
            }
        }
    }

    #[track_caller]
    fn submit_named<A: Wire>(to: &To<'_, Self>, head: Head, arguments: &A) -> Result<()> {
        let mut record = to.from.take_buffer();
        let outcome = to.submit_encoded(NamedCall::encode(&head, arguments, &mut record));
        record.clear();
        to.from.give_buffer(record);
        outcome
    }

    fn reserve<R: Wire, H: Reading<R>, N>(
        to: &To<'w, Self, N>,
        bytes: usize,
        how: H,
    ) -> Result<(Pending<'w, R, H>, ReplyAddress)> {
        let (slot, address) = to.from.replies().reserve(bytes, to.to);
        Ok((Pending::new(to.from, slot, how), address))
    }
}

impl To<'_> {
    #[track_caller]
    fn submit_encoded(&self, call: NamedCall<'_>) -> Result<()> {
        let Some(cell) = self.outbox else { return Err(self.from.unknown(self.to)) };
        let how = Dispatch { entry: NAMED, operand: 0, batch_bytes: 0 };
        if self.from.recorder().is_on() {
            self.from.note_call(self.to, FunctionId { entry: NAMED, offset: 0 }, !self.is_shared, Location::caller());
        }
        let mut call = Some(call);
        if !self.is_shared {
            let mut outbox = cell.borrow_mut();
            if outbox.send(how, &mut call as &mut dyn AnyPayload).is_ok() {
                self.note_sent(&mut outbox);
                return Ok(());
            }
        }
        self.submit_untyped(how, &mut call)
    }
}

impl<'w, S, N> To<'w, S, N> {
    /// Returns the path without what the receiver counts down, which is a part of the payload.
    pub(super) fn untyped(self) -> To<'w, S> {
        let notify = match self.notify {
            Notify::Sent(latch) => Notify::Sent(latch),
            Notify::Nothing | Notify::Executed(_) => Notify::Nothing,
        };
        self.with_notify(notify)
    }

    #[inline(always)]
    fn with_notify<M>(self, notify: Notify<M>) -> To<'w, S, M> {
        let Self {
            from,
            entries,
            to,
            outbox,
            when_full,
            is_shared,
            special,
            batch_bytes,
            age_us,
            limit_bytes,
            held,
            ..
        } = self;
        To { from, entries, to, outbox, when_full, notify, is_shared, special, batch_bytes, age_us, limit_bytes, held }
    }
}

impl<N: Counted> To<'_, Worker, N> {
    /// Submits a call that cannot be written into the ring at once, or that goes through a shared
    /// ring, or that counts a latch down when it is sent.
    ///
    /// The payload comes boxed. If its address were taken, the compiler would build it on the stack
    /// and copy it from there on the fast path, too. `self` comes by value for the same reason, so
    /// that the copy is made here and not before.
    #[expect(clippy::boxed_local, reason = "see above")]
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn submit_slowly<P: Payload>(self, entry: u16, operand: u32, payload: Box<P>) -> Result<(), Box<(Error, P)>> {
        let mut payload = *payload;
        let how = Dispatch { entry, operand, batch_bytes: self.batch_bytes };
        if self.is_shared {
            let process = self.from.process_handle();
            payload = match process.calls.shared_rings.try_send(process, self.to, how, payload) {
                Ok(()) => {
                    self.note_sent_on_shared_ring();
                    return Ok(());
                }
                Err(payload) => payload,
            };
        }
        let mut payload = Some(payload);
        let sent = self.untyped().submit_untyped(how, &mut payload);
        sent.map_err(|error| Box::new((error, payload.expect("a refused payload was not written"))))
    }
}

/// Unboxes what was refused, apart from the fast path.
#[cold]
fn unboxed<P>(sent: Result<(), Box<(Error, P)>>) -> Result<(), (Error, P)> {
    sent.map_err(|refused| *refused)
}

impl<N: Copy> To<'_, Worker, N> {
    fn age(&self) -> Duration {
        Duration::from_micros(self.age_us.into())
    }

    fn note_sent_on_shared_ring(&self) {
        if let Notify::Sent(latch) = self.notify {
            count_down(self.from.process_handle(), latch);
        }
    }
}

impl To<'_> {
    /// Submits a call of any type, and notes a refusal.
    #[track_caller]
    fn submit_untyped(&self, how: Dispatch, payload: &mut dyn AnyPayload) -> Result<()> {
        if self.is_shared {
            return self.submit_on_shared_ring(how, payload);
        }
        self.submit_when_there_is_room(how, payload).inspect_err(|_| self.from.note_refused(self.to))
    }

    /// Submits a call through the worker's own ring, and waits for room if need be.
    #[track_caller]
    fn submit_when_there_is_room(&self, mut how: Dispatch, payload: &mut dyn AnyPayload) -> Result<()> {
        let worker = self.from;
        let process = worker.process_handle();
        let record_bytes = farside_fabric::ring::record_bytes(payload.bytes());
        let max = process.settings().ring_cap_bytes / 2;
        if record_bytes > max {
            return Err(Error::long_call(record_bytes, max));
        }
        let when_full = self.when_full_now();
        let overflow_bytes = (self.limit_bytes != NO_LIMIT).then_some(self.limit_bytes as usize);
        let mut keeping = Keeping { hold: self.held.then(|| self.age()), ..when_full.keeping() };
        if overflow_bytes.is_some() {
            (keeping.may_stage, keeping.cap_bytes) = (true, overflow_bytes);
        }
        let mut deadline = None;
        let Some(cell) = self.outbox else { return Err(worker.unknown(self.to)) };
        process.job.check_callable(cell.borrow().to_process(), how.entry)?;
        if process.accesses.is_observed() {
            // No call may join a batch without passing the checker.
            how.batch_bytes = 0;
        }
        loop {
            let (ahead, ahead_bytes) = ahead::of(worker, self.to, max);
            let mut outbox = cell.borrow_mut();
            let gone_ahead = ahead.map_or(Ok(()), |ahead| ahead.send(worker, &mut outbox, keeping));
            let sent = gone_ahead.and_then(|()| outbox.send_slowly(process, how, keeping, payload));
            if let Ok(Sent::BatchBegun) = sent {
                outbox.batch_begun(worker.now() + self.age());
            }
            // Also after an error: what went ahead may wait.
            if !outbox.is_finished() {
                worker.list_unfinished(self.to);
            }
            match sent {
                Ok(_) => {
                    self.note_sent(&mut outbox);
                    return Ok(());
                }
                Err(Error::Full { .. }) if when_full == WhenFull::Retry => drop(outbox),
                Err(error) => {
                    drop(outbox);
                    return Err(worker.with_its_root(error));
                }
            }
            let deadline = deadline.get_or_insert_with(|| worker.deadline_after(worker.default_deadline()));
            worker.wait_for_room(self.to, record_bytes.max(ahead_bytes), deadline)?;
        }
    }

    fn when_full_now(&self) -> WhenFull {
        self.when_full.unwrap_or(if self.from.is_in_handler() { WhenFull::Spill } else { WhenFull::Retry })
    }

    fn note_sent(&self, outbox: &mut Outbox) {
        if let Notify::Sent(latch) = self.notify {
            outbox.count_when_sent(self.from.process_handle(), latch);
        }
    }

    /// Submits a call through the process's shared ring, which other threads may hold for a moment.
    #[track_caller]
    fn submit_on_shared_ring(&self, mut how: Dispatch, payload: &mut dyn AnyPayload) -> Result<()> {
        how.batch_bytes = 0;
        let worker = self.from;
        let process = worker.process_handle();
        let mut deadline = None;
        process.calls.shared_rings.send_or_wait(
            process,
            self.to,
            how,
            payload,
            self.when_full_now(),
            |record_bytes| {
                let deadline = deadline.get_or_insert_with(|| worker.deadline_after(worker.default_deadline()));
                worker.wait_for_shared_ring(self.to, record_bytes, deadline)
            },
        )?;
        self.note_sent_on_shared_ring();
        Ok(())
    }
}

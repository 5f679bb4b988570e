//! [`Remote`]: a value that lives at one worker and is reached by calls from anywhere.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::marker::PhantomData;

use farside::{Error, Function, Pending, PerWorker, Result, Wire, Worker, WorkerId};

/// Why an operation on a [`Remote`] failed, although its owner was reached.
///
/// It arrives as [`Error::Room`]; [`Error::room_error`] returns it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Wire)]
#[non_exhaustive]
pub enum RemoteError {
    /// The value does not exist.
    #[error(
        "{owner} does not have the value: it was freed, or its handle is of another job; keep no handle of a freed value"
    )]
    Gone {
        /// The worker at which the value was.
        owner: WorkerId,
    },
    /// The value has another type.
    #[error("the value at {owner} has another type than its handle: decode a handle as the type that was encoded")]
    OtherType {
        /// The worker that has the value.
        owner: WorkerId,
    },
    /// A worker that is not the owner wanted the value itself.
    #[error("the value is at {owner}, not at {here}: use `with`, which calls the owner")]
    Elsewhere {
        /// The worker that has the value.
        owner: WorkerId,
        /// The worker that wanted it.
        here: WorkerId,
    },
    /// There was no memory for more items.
    #[error("{owner} cannot reserve room for {additional} more items: {why}; reserve less")]
    NotReserved {
        /// The worker that has the collection.
        owner: WorkerId,
        /// The number of items.
        additional: usize,
        /// The reason.
        why: String,
    },
    /// Items could not be moved. They are where they were.
    #[error("no items were moved to {to}: {why}; they are where they were")]
    NotMoved {
        /// The worker that was to get them.
        to: WorkerId,
        /// The reason.
        why: String,
    },
    /// Items were sent, and their receiver failed before it had confirmed them.
    #[error("{count} items were on their way to {to}, and are lost if it had not taken them: {why}")]
    LostOnTheWay {
        /// The worker that was to get them.
        to: WorkerId,
        /// The number of items.
        count: usize,
        /// The reason.
        why: String,
    },
}

impl From<RemoteError> for Error {
    fn from(error: RemoteError) -> Self {
        Self::Room(Box::new(error))
    }
}

/// The answer of an owner.
pub(crate) type Outcome<R> = Result<R, RemoteError>;

/// The values that live at the workers of a job, to be reached by [`Remote`] handles.
///
/// A job makes it once, and all types of values share it. Making a value is then a matter of one
/// worker, not a collective. A table that was made when first used would have to be found without
/// a handle, by a search of each call.
#[derive(Clone, Copy, Debug, Wire)]
pub struct Remotes {
    table: PerWorker<RefCell<Table>>,
}

/// The values of one worker.
#[derive(Debug)]
struct Table {
    /// Each value with its serial number.
    slots: Vec<Option<(u64, Box<dyn Any>)>>,
    free: Vec<u32>,
    /// Begins at a random number, so that handles of other jobs are refused like those of freed
    /// values.
    next_serial: u64,
}

impl Remotes {
    /// Makes the tables. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// A process is lost, the job's deadline has passed, or the workers call different collectives
    /// ([`PerWorker::new`]).
    pub fn new(me: &Worker) -> Result<Self> {
        let next_serial = RandomState::new().build_hasher().finish();
        let table = Table { slots: Vec::new(), free: Vec::new(), next_serial };
        Ok(Self { table: PerWorker::new(me, RefCell::new(table))? })
    }

    /// Drops all values at all workers, and frees their memory. Handles of these values are then
    /// [`RemoteError::Gone`]. All workers call this, in the same order as other collectives, after
    /// the last call that uses a value.
    ///
    /// # Errors
    /// A process is lost, the job's deadline has passed, or the workers call different collectives
    /// ([`Worker::quiesce`]). The values of this worker are dropped nevertheless.
    ///
    /// # Panics
    /// Those of [`PerWorker::with`].
    #[track_caller]
    pub fn free(self, me: &Worker) -> Result<()> {
        let quiesced = me.quiesce();
        let values = self.table.with(me, |table| {
            table.free = Vec::new();
            std::mem::take(&mut table.slots)
        });
        // Not inside `with`, which a value could call.
        drop(values);
        quiesced
    }

    /// Makes an empty value at the worker `at`. Not a collective.
    ///
    /// [`keep`](Self::keep), in a call, makes a value from arguments.
    pub fn create<C: Default + 'static>(self, me: &Worker, at: WorkerId) -> Answer<'_, Remote<C>> {
        let made = me.call_return(at, self, |there, remotes| Ok(remotes.keep(there, C::default())));
        Answer::new(me, made.map_err(Into::into))
    }

    /// Keeps a value at this worker, for all workers that have the handle.
    ///
    /// It is dropped by [`free`](Remote::free), and when the job ends. It stays when the process
    /// that made it is lost.
    ///
    /// # Panics
    /// Those of [`PerWorker::with`].
    #[track_caller]
    pub fn keep<C: 'static>(self, me: &Worker, value: C) -> Remote<C> {
        self.table.with(me, |table| {
            let slot = table.free.pop().unwrap_or_else(|| {
                table.slots.push(None);
                u32::try_from(table.slots.len() - 1).expect("memory ends before the numbers of slots do")
            });
            let serial = table.next_serial;
            table.next_serial = serial.wrapping_add(1);
            table.slots[slot as usize] = Some((serial, Box::new(value)));
            Remote { table: self.table, owner: me.id(), slot, serial, of: PhantomData }
        })
    }
}

/// A handle to a value that lives at one worker and is reached by calls from anywhere: a `Vec<T>`,
/// a `BTreeMap<K, V>`, or any other type that is `'static`.
///
/// The handle is `Copy` and travels. Functions run at the owner one at a time, each as one step.
/// Collections of std have [methods with their names](crate::collections), which do the same at the
/// owner. Where those of std panic, the caller gets [`Error::RemotePanic`].
///
/// ```
/// use farside::WorkerId;
/// use farside_containers::{Remote, Remotes};
///
/// # farside::simulate(3, 1, 1, |me| {
/// let remotes = Remotes::new(me)?;
/// let log = if me.is_first() {
///     // At another worker, which takes no part in this.
///     let log: Remote<Vec<String>> = remotes.create(me, me.neighbor(1)).wait()?;
///     me.broadcast(WorkerId::FIRST, Some(log))?
/// } else {
///     me.broadcast(WorkerId::FIRST, None)?
/// };
/// log.push(me, format!("{} was here", me.id())).wait()?;
/// // Any function that captures nothing may run at the owner.
/// let long = log.with(me, 3, |lines, least| lines.iter().any(|line| line.len() > least));
/// assert!(long.wait()?);
/// me.barrier()?;
/// assert_eq!(log.len(me).wait()?, 3);
/// # me.barrier()
/// # }).unwrap();
/// ```
///
/// A handle of a freed value, or of another job, is [`RemoteError::Gone`]. When the owner's process
/// is lost, callers get [`Error::PeerLost`]. When the process of another worker is lost, values
/// stay.
///
/// *Cost*: that of [`To::call_return`](farside::To::call_return). A handle has 24 bytes.
///
/// This is the data library of ACP, with calls in place of locks and one-sided copies.
#[derive(Wire)]
#[wire(unbounded)]
pub struct Remote<C: 'static> {
    serial: u64,
    table: PerWorker<RefCell<Table>>,
    owner: WorkerId,
    slot: u32,
    of: PhantomData<fn() -> C>,
}

impl<C: 'static> Remote<C> {
    /// Returns the worker at which the value is.
    pub fn owner(self) -> WorkerId {
        self.owner
    }

    /// Runs `function(value, arguments)` at the owner, and returns its result as an [`Answer`].
    ///
    /// The function captures nothing. Calls from one worker run in the order in which they were
    /// made. If it panics, the caller gets [`Error::RemotePanic`], and the value is as the function
    /// left it.
    pub fn with<A: Wire, R: Wire>(self, me: &Worker, arguments: A, function: fn(&mut C, A) -> R) -> Answer<'_, R> {
        let sent = Function::new(me, function).and_then(|function| {
            let run = |there: &Worker, (this, function, arguments): (Self, Function<C, A, R>, A)| {
                this.at_owner(there, |value| function.run(there, value, arguments))
            };
            Ok(me.call_return(self.owner, (self, function, arguments), run)?)
        });
        Answer::new(me, sent)
    }

    /// Runs `function(value, arguments)` at the owner, without a result.
    ///
    /// If it panics, the owner gets the error from whatever makes progress there, as with
    /// [`To::call`](farside::To::call). The owner drops the call if the value was freed or has
    /// another type, because the mistake is the caller's. To learn of it, use [`with`](Self::with).
    ///
    /// # Errors
    /// The call cannot be sent ([`To::call`](farside::To::call)), or the function is of another
    /// binary ([`Error::ForeignFunction`]).
    pub fn send<A: Wire>(self, me: &Worker, arguments: A, function: fn(&mut C, A)) -> Result<()> {
        let function = Function::new(me, function)?;
        let run = |there: &Worker, (this, function, arguments): (Self, Function<C, A, ()>, A)| {
            let ran = this.at_owner(there, |value| function.run(there, value, arguments));
            if let Err(error) = ran {
                tracing::debug!(%error, "remote: a call without a result was dropped");
            }
        };
        Ok(me.call(self.owner, (self, function, arguments), run)?)
    }

    /// Runs `work` with the value, at its owner. Costs no call.
    ///
    /// # Errors
    /// [`RemoteError::Elsewhere`], [`RemoteError::Gone`] and [`RemoteError::OtherType`].
    ///
    /// # Panics
    /// If `work` reaches a value of this worker itself, this one or another. Whatever waits inside
    /// it returns [`Error::Borrowed`].
    #[track_caller]
    pub fn here<R>(self, me: &Worker, work: impl FnOnce(&mut C) -> R) -> Result<R> {
        Ok(self.at_owner(me, work)?)
    }

    /// Drops the value. Its handles are then [`RemoteError::Gone`].
    pub fn free(self, me: &Worker) -> Answer<'_, ()> {
        let freed = me.call_return(self.owner, self, |there, this| {
            this.at_owner(there, |_| ())?;
            let value = this.table.with(there, |table| {
                table.free.push(this.slot);
                table.slots[this.slot as usize].take()
            });
            // Not inside `with`, which the value could call.
            drop(value);
            Ok(())
        });
        Answer::new(me, freed.map_err(Into::into))
    }

    /// Runs `work` with the value, if this handle is one of it.
    #[track_caller]
    pub(crate) fn at_owner<R>(self, me: &Worker, work: impl FnOnce(&mut C) -> R) -> Outcome<R> {
        let owner = self.owner;
        if owner != me.id() {
            return Err(RemoteError::Elsewhere { owner, here: me.id() });
        }
        self.table.find(me).ok_or(RemoteError::Gone { owner })?;
        self.table.with(me, |table| match table.slots.get_mut(self.slot as usize) {
            Some(Some((serial, value))) if *serial == self.serial => {
                value.downcast_mut().map(work).ok_or(RemoteError::OtherType { owner })
            }
            _ => Err(RemoteError::Gone { owner }),
        })
    }
}

/// The answer of the owner of a [`Remote`], on its way. An error of sending is kept in it, so that
/// `wait()?` shows all errors.
#[derive(Debug)]
#[must_use = "dropping it discards the result and the error"]
pub struct Answer<'w, R> {
    me: &'w Worker,
    sent: Result<Pending<'w, Outcome<R>>>,
}

impl<'w, R: Wire> Answer<'w, R> {
    pub(crate) fn new(me: &'w Worker, sent: Result<Pending<'w, Outcome<R>>>) -> Self {
        Self { me, sent }
    }

    /// Waits for the result, and meanwhile runs calls that arrive here.
    ///
    /// # Errors
    /// A [`RemoteError`]; those of [`To::call_return`](farside::To::call_return) and
    /// [`Pending::wait`].
    pub fn wait(self) -> Result<R> {
        Ok(self.sent?.wait()??)
    }

    /// Runs `next` on this worker when the result has arrived, as a handler. So a handler can
    /// continue without waiting. If the call was not sent, `next` runs before this returns.
    pub fn then(self, next: impl FnOnce(&Worker, Result<R>) + 'static) {
        match self.sent {
            Ok(pending) => pending.then(|me, told| next(me, told.and_then(|told| Ok(told?)))),
            Err(error) => next(self.me, Err(error)),
        }
    }

    /// Returns the result of the call itself, to be looked for or awaited.
    ///
    /// # Errors
    /// The call cannot be sent, or its answer does not come
    /// ([`To::call_return`](farside::To::call_return)).
    pub fn into_pending(self) -> Result<Pending<'w, Result<R, RemoteError>>> {
        self.sent
    }
}

impl<C: 'static> Clone for Remote<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C: 'static> Copy for Remote<C> {}

impl<C: 'static> fmt::Debug for Remote<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("owner", &self.owner).field("slot", &self.slot).finish_non_exhaustive()
    }
}

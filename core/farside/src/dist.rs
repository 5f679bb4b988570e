//! State that remotely called functions can reach.
//!
//! A remotely called function captures nothing, so it must find its state at the receiver. These
//! handles serve that purpose: plain numbers that stand for the value at the place where they are
//! used.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::runtime::collective::Kind;
use crate::runtime::slots::{Local, Numbers, VALUES_MAX};
use crate::runtime::worker::Worker;
use crate::wire::{self, Decoder, Encoder, Schema, Wire, WireError};

/// A handle to one value per process, shared by the process's workers. It resolves to the value of
/// the process in which it is used.
///
/// ```no_run
/// # use farside::prelude::*;
/// # use std::sync::atomic::{AtomicU64, Ordering};
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let hits = Dist::new(me, || AtomicU64::new(0))?;
/// for worker in me.workers() {
///     me.call(worker, hits, |there, hits| hits.here(there).fetch_add(1, Ordering::Relaxed))?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// The values live until [`free`](Self::free) or the end of the job. [`here`](Self::here) returns a
/// reference that may live as long, so it keeps its value until the job ends. Values that come and
/// go are used by [`hold`](Self::hold).
#[derive(Debug)]
pub struct Dist<T> {
    /// The name of the values among those of the job.
    name: u32,
    value: PhantomData<fn() -> T>,
}

/// A handle to one value per worker, which no other thread touches. It resolves to the value of the
/// worker on which it is used.
///
/// Since functions run on a worker one at a time, a value with `Cell`s or a `RefCell` needs no
/// lock. But called functions run inside everything that waits, and inside
/// [`progress`](Worker::progress). So hold no borrow of a `RefCell` there: a function that borrows
/// the same value would panic. [`with`](Self::with) borrows for a closure, and makes such a wait an
/// error that names the borrow.
///
/// The values live until [`free`](Self::free) or the end of the job. [`here`](Self::here) and
/// [`find`](Self::find) return references that may live as long, so they keep their value until the
/// job ends. Values that come and go are used by [`hold`](Self::hold) and `with`.
///
/// ```no_run
/// # use std::cell::Cell;
/// # use farside::prelude::*;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// for round in 0..1_000_000 {
///     let count = PerWorker::new(me, Cell::new(0_u64))?;
///     me.call(me.neighbor(round), count, |there, count| {
///         let count = count.hold(there).expect("not freed");
///         count.set(count.get() + 1);
///     })?;
///     count.free(me)?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PerWorker<T> {
    /// The name of the values among those of the job.
    name: u32,
    value: PhantomData<fn() -> T>,
}

impl<T: Send + Sync + 'static> Dist<T> {
    /// Makes the values: the first worker of each process to arrive makes that process's value. All
    /// workers of the job call this, in the same order as other collectives. When it returns, all
    /// values exist.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`]. [`Error::TooLarge`] if there are 4,194,304 already.
    pub fn new(me: &Worker, init: impl FnOnce() -> T) -> Result<Self> {
        me.not_in_handler("making distributed state")?;
        let shared = &me.process_handle().shared;
        let name = shared.name(take_number(&me.shared_numbers)?);
        shared.set_once(name, || Arc::new(init()));
        me.meet::<T>(Kind::Dist)?;
        Ok(Self { name, value: PhantomData })
    }

    /// Returns the value of this process. It then stays until the job ends, also after
    /// [`free`](Self::free).
    ///
    /// # Panics
    /// If the handle comes from another job, or its values were freed. Simulations with one seed
    /// count as one job.
    #[track_caller]
    pub fn here(self, me: &Worker) -> &T {
        let value = me.process_handle().shared.keep(self.name);
        value
            .and_then(|value| value.downcast_ref())
            .expect("a handle is used in the job it was made in, until it is freed")
    }

    /// Returns the value of this process, or `None` where [`here`](Self::here) panics. It lives
    /// until the last holder drops it, or [`free`](Self::free) if that is later.
    pub fn hold(self, me: &Worker) -> Option<Arc<T>> {
        me.process_handle().shared.get(self.name)?.downcast().ok()
    }

    /// Waits until all calls have run, as [`Worker::quiesce`] does, and drops the values, which
    /// then have no name. All workers call this, in the same order as other collectives.
    ///
    /// A value that is [held](Self::hold) is dropped later. One that [`here`](Self::here) has
    /// returned stays until the job ends.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective; [`Error::Deadline`] if one does not come in time,
    /// or calls do not end; [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`]. The value of this process then stays until the job ends.
    ///
    /// # Panics
    /// Those of [`here`](Self::here).
    #[track_caller]
    pub fn free(self, me: &Worker) -> Result<()> {
        self.hold(me).expect("a handle is freed once, in the job it was made in");
        let shared = &me.process_handle().shared;
        // If quiescence failed, others of this process may not be here yet, and use the value.
        free(me, &me.shared_numbers, shared.number(self.name), |has_quiesced| has_quiesced && shared.remove(self.name))
    }
}

impl<T: 'static> PerWorker<T> {
    /// Makes the values: each worker makes its own. All workers of the job call this, in the same
    /// order as other collectives. When it returns, all values exist.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`]. [`Error::TooLarge`] if there are 4,194,304 already.
    pub fn new(me: &Worker, value: T) -> Result<Self> {
        me.not_in_handler("making per-worker state")?;
        let name = me.locals().name(take_number(&me.local_numbers)?);
        me.locals().set_once(name, || Local::new(value));
        me.meet::<T>(Kind::PerWorker)?;
        Ok(Self { name, value: PhantomData })
    }

    /// Returns the value of this worker. It then stays until the job ends, also after
    /// [`free`](Self::free).
    ///
    /// # Panics
    /// If the handle comes from another job, if its values were freed, or on a thread of a pool,
    /// which has no values. Simulations with one seed count as one job.
    #[track_caller]
    #[inline]
    pub fn here(self, me: &Worker) -> &T {
        self.find(me).expect(USE)
    }

    /// Returns the value of this worker, or `None` where [`here`](Self::here) panics. For handles
    /// that may have been kept longer than their job.
    #[inline]
    pub fn find(self, me: &Worker) -> Option<&T> {
        me.locals().keep(self.name).and_then(Local::downcast_ref)
    }

    /// Returns the value of this worker, or `None` where [`here`](Self::here) panics. It lives
    /// until the last holder drops it, or [`free`](Self::free) if that is later.
    #[inline]
    pub fn hold(self, me: &Worker) -> Option<Rc<T>> {
        me.locals().get(self.name)?.downcast()
    }

    /// Returns whether this worker has a value: whether [`here`](Self::here) would not panic.
    #[inline]
    pub fn is_here(self, me: &Worker) -> bool {
        me.locals().look(self.name, |local| local.downcast_ref::<T>().is_some()) == Some(true)
    }

    /// Waits until all calls have run, as [`Worker::quiesce`] does, and drops the values, which
    /// then have no name. All workers call this, in the same order as other collectives.
    ///
    /// A value that is [held](Self::hold) is dropped later. One that [`here`](Self::here) or
    /// [`find`](Self::find) has returned stays until the job ends.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective; [`Error::Deadline`] if one does not come in time,
    /// or calls do not end; [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`]. The value of this worker is dropped nevertheless.
    ///
    /// # Panics
    /// Those of [`here`](Self::here).
    #[track_caller]
    pub fn free(self, me: &Worker) -> Result<()> {
        self.hold(me).expect("a handle is freed once, in the job it was made in, on a worker");
        let locals = me.locals();
        free(me, &me.local_numbers, locals.number(self.name), |_| locals.remove(self.name))
    }
}

/// The rule for users of a handle.
const USE: &str = "a handle is used in the job it was made in, on a worker, until it is freed";

fn take_number(numbers: &Numbers) -> Result<u32> {
    let remedy = "free those that are not used any more";
    numbers.take().ok_or(Error::TooLarge { what: "the number of values", bytes: VALUES_MAX, max: VALUES_MAX, remedy })
}

/// Frees the values of a handle. `remove` removes this worker's or its process's, and returns
/// whether their slot may have another one.
///
/// All workers must agree on the slots that come back, because each of them gives the next names.
/// Each takes part in the agreement, also one whose quiescence failed.
fn free(me: &Worker, numbers: &Numbers, number: u32, remove: impl FnOnce(bool) -> bool) -> Result<()> {
    me.not_in_handler("freeing state")?;
    let quiesced = me.quiesce();
    let is_empty = remove(quiesced.is_ok()) && quiesced.is_ok();
    let agreed = me.all_reduce(is_empty, |one, other| one && other);
    quiesced?;
    if agreed? {
        numbers.give_back(number);
    }
    Ok(())
}

impl<T: 'static> PerWorker<RefCell<T>> {
    /// Runs `work` with the value of this worker, which is borrowed for that time.
    ///
    /// Calls are possible meanwhile. Whatever would wait, also a call that finds no room, returns
    /// [`Error::Borrowed`] with the place of this call.
    ///
    /// ```no_run
    /// # use std::cell::RefCell;
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let tasks = PerWorker::new(me, RefCell::new(Vec::<u64>::new()))?;
    /// let peer = me.neighbor(1);
    /// let loot = me.call_return(peer, tasks, |there, tasks| tasks.with(there, Vec::pop))?.wait()?;
    /// // Waited first, borrowed then.
    /// tasks.with(me, |own| own.extend(loot));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the value is borrowed already, as `borrow_mut` does, and as [`here`](Self::here) does.
    #[track_caller]
    pub fn with<R>(self, me: &Worker, work: impl FnOnce(&mut T) -> R) -> R {
        let value = self.hold(me).expect(USE);
        let since = me.borrowed().get();
        let Ok(mut value) = value.try_borrow_mut() else {
            match since {
                Some(since) => panic!("the value is borrowed already: since {since}, by `with`"),
                None => panic!("the value is borrowed already: a `borrow` is held over a wait or over this call"),
            }
        };
        let _borrow = Borrow { flag: me.borrowed(), before: me.borrowed().replace(Some(Location::caller())) };
        work(&mut value)
    }
}

/// Marks a worker as one that must not wait, until this guard is dropped.
struct Borrow<'a> {
    flag: &'a Cell<Option<&'static Location<'static>>>,
    /// The outer borrow, of another value.
    before: Option<&'static Location<'static>>,
}

impl Drop for Borrow<'_> {
    fn drop(&mut self) {
        self.flag.set(self.before);
    }
}

impl<T: 'static> Dist<T> {
    /// Returns whether there is a value of this type here.
    fn is_here(self, me: &Worker) -> bool {
        me.process_handle().shared.look(self.name, |value| value.is::<T>()) == Some(true)
    }
}

impl<T: 'static> PerWorker<T> {
    /// Returns the number that identifies these values in the job.
    pub(crate) fn name(self) -> u32 {
        self.name
    }
}

macro_rules! handle {
    ($name:ident) => {
        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $name<T> {}

        // SAFETY: the handle is a number that means the same in every process of the job, and is
        // copied whole.
        unsafe impl<T: 'static> Wire for $name<T> {
            wire::plain_whole!();

            // The value itself does not travel, and may have another type in another binary.
            fn describe(schema: &mut Schema) {
                schema.word(stringify!($name));
                u32::describe(schema);
            }

            fn encode(&self, out: &mut Encoder) {
                self.name.encode(out);
            }

            fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
                let handle = Self { name: u32::decode(input)?, value: PhantomData };
                let here = input.context::<Worker>().ok_or_else(WireError::outside_a_job::<Self>)?;
                handle.is_here(here).then_some(handle).ok_or_else(|| WireError::invalid::<Self>(handle.name))
            }
        }
    };
}

handle!(Dist);
handle!(PerWorker);

//! State that functions called from elsewhere can reach.
//!
//! A function that is called remotely captures nothing, so what it works on must be found at the receiver. These are handles for
//! that: plain numbers that mean "the one of this kind that is here", wherever they are used.

use std::marker::PhantomData;

use crate::error::{Error, Result};
use crate::runtime::worker::{LOCALS_MAX, Worker};
use crate::wire::{self, Decoder, Encoder, Schema, Wire, WireError};

/// One value per process, shared by its workers: a handle that resolves to the value of the process it is used in.
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
#[derive(Debug)]
pub struct Dist<T> {
    index: u32,
    value: PhantomData<fn() -> T>,
}

/// One value per worker, which no other thread touches: a handle that resolves to the value of the worker it is used on.
///
/// Since functions run on a worker one at a time, a value with `Cell`s or a `RefCell` needs no lock.
#[derive(Debug)]
pub struct PerWorker<T> {
    index: u32,
    value: PhantomData<fn() -> T>,
}

impl<T: Send + Sync + 'static> Dist<T> {
    /// Makes the values, one in each process, by whichever worker comes first there. All workers of the job call this, in the
    /// same order as other collectives; when it returns all values exist.
    ///
    /// # Errors
    /// Those of [`Worker::barrier`]; [`Error::TooLarge`] when there are too many.
    pub fn new(me: &Worker, init: impl FnOnce() -> T) -> Result<Self> {
        me.not_in_handler("making distributed state")?;
        let index = me.next_dist.replace(me.next_dist.get() + 1);
        me.process_handle().make_shared(index as usize, || Box::new(init()))?;
        me.barrier()?;
        Ok(Self { index, value: PhantomData })
    }

    /// The value of this process.
    ///
    /// # Panics
    /// When the handle comes from another job.
    #[track_caller]
    pub fn here(self, me: &Worker) -> &T {
        let value = me.process_handle().shared(self.index as usize).and_then(|value| value.downcast_ref());
        value.expect("a handle is used in the job it was made in")
    }
}

impl<T: 'static> PerWorker<T> {
    /// Makes the values, one by each worker. All workers of the job call this, in the same order as other collectives; when it
    /// returns all values exist.
    ///
    /// # Errors
    /// Those of [`Worker::barrier`]; [`Error::TooLarge`] when there are too many.
    pub fn new(me: &Worker, value: T) -> Result<Self> {
        me.not_in_handler("making per-worker state")?;
        let index = me.next_local.replace(me.next_local.get() + 1);
        let too_many = Error::TooLarge { what: "a table of per-worker values", bytes: LOCALS_MAX + 1, max: LOCALS_MAX };
        let cell = me.locals().get(index as usize).ok_or(too_many)?;
        cell.get_or_init(|| Box::new(value));
        me.barrier()?;
        Ok(Self { index, value: PhantomData })
    }

    /// The value of this worker.
    ///
    /// # Panics
    /// When the handle comes from another job, or this is a user service thread, which has none.
    #[track_caller]
    #[inline]
    pub fn here(self, me: &Worker) -> &T {
        let value = me.locals().get(self.index as usize).and_then(|cell| cell.get()?.downcast_ref());
        value.expect("a handle is used in the job it was made in, on a worker")
    }
}

impl<T: 'static> Dist<T> {
    fn is_on(self, worker: &Worker) -> bool {
        worker.process_handle().shared(self.index as usize).is_some_and(|value| value.is::<T>())
    }
}

impl<T: 'static> PerWorker<T> {
    /// The number of these values, by which no others of the job are known.
    pub(crate) fn index(self) -> u32 {
        self.index
    }

    fn is_on(self, worker: &Worker) -> bool {
        worker.locals().get(self.index as usize).and_then(|cell| cell.get()).is_some_and(|value| value.is::<T>())
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

        // SAFETY: a number that means the same in every process of the job; copied whole.
        unsafe impl<T: 'static> Wire for $name<T> {
            wire::plain_whole!();

            // What is behind the handle does not travel, and may be of another type in another binary.
            fn describe(schema: &mut Schema) {
                schema.word(stringify!($name));
                u32::describe(schema);
            }

            fn encode(&self, out: &mut Encoder) {
                self.index.encode(out);
            }

            fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
                let handle = Self { index: u32::decode(input)?, value: PhantomData };
                let here = input.context::<Worker>().ok_or_else(WireError::outside_a_job::<Self>)?;
                if handle.is_on(here) { Ok(handle) } else { Err(WireError::invalid::<Self>(handle.index)) }
            }
        }
    };
}

handle!(Dist);
handle!(PerWorker);

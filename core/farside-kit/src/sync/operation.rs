//! Requests that are functions to be called with the value.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

use super::error::SyncError;
use super::requests::Request;

/// The value, and whether a panic may have left it half changed.
#[derive(Debug)]
pub(crate) struct Guarded<T> {
    pub(crate) value: T,
    pub(crate) is_poisoned: bool,
}

/// The outcome of an operation.
pub(crate) enum Outcome<R> {
    Returned(R),
    Panicked(Box<dyn Any + Send>),
    /// The operation did not run, because an earlier one panicked.
    Poisoned,
}

impl<R> Outcome<R> {
    /// Drops an outcome that no thread waits for. The payload of a panic may itself panic when it
    /// is dropped; then the rest of it leaks. The calling thread holds the value and must not
    /// unwind, or all waiting threads would wait forever.
    pub(crate) fn discard(self) {
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(self))) {
            std::mem::forget(again);
        }
    }

    /// Returns the result to the thread that submitted the operation.
    ///
    /// # Panics
    /// With the operation's panic.
    pub(crate) fn into_result(self) -> Result<R, SyncError> {
        match self {
            Self::Returned(result) => Ok(result),
            Self::Panicked(panic) => resume_unwind(panic),
            Self::Poisoned => Err(SyncError::Poisoned),
        }
    }
}

/// The action of an operation if the value is poisoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// The operation does not run.
    Refuse,
    /// The operation runs, and so do later ones.
    Mend,
}

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value, is_poisoned: false }
    }

    pub(crate) fn run<R>(&mut self, after: After, operation: impl FnOnce(&mut T) -> R) -> Outcome<R> {
        let Self { value, is_poisoned } = self;
        let refuses = *is_poisoned && after == After::Refuse;
        // A refused operation is dropped inside, since the drop may panic as well.
        let ran = catch_unwind(AssertUnwindSafe(|| (!refuses).then(|| operation(value))));
        match ran {
            Ok(Some(result)) => {
                *is_poisoned = false;
                Outcome::Returned(result)
            }
            Ok(None) => Outcome::Poisoned,
            Err(panic) => {
                *is_poisoned = true;
                Outcome::Panicked(panic)
            }
        }
    }
}

/// An operation of a waiting thread, on that thread's stack.
#[repr(C)]
pub(crate) struct Asked<T, F, R> {
    request: Request<Guarded<T>>,
    after: After,
    /// Cells that belong to the owner of the request: the waiting thread, before it leaves the
    /// request and after the request has ended; in between the thread that runs it.
    operation: Cell<Option<F>>,
    outcome: Cell<Option<Outcome<R>>>,
}

impl<T, F: FnOnce(&mut T) -> R + Send, R: Send> Asked<T, F, R> {
    pub(crate) fn new(after: After, operation: F) -> Self {
        // SAFETY: `run_asked` takes the request for the first field of an `Asked`, which it is. Any
        // thread may call it, since the operation and its result can be sent.
        let request = unsafe { Request::new(true, Self::run_asked) };
        Self { request, after, operation: Cell::new(Some(operation)), outcome: Cell::new(None) }
    }

    /// Returns the request, as a pointer to the whole.
    pub(crate) fn as_request(&self) -> NonNull<Request<Guarded<T>>> {
        NonNull::from(self).cast()
    }

    pub(crate) fn request(&self) -> &Request<Guarded<T>> {
        &self.request
    }

    unsafe fn run_asked(request: NonNull<Request<Guarded<T>>>, guarded: &mut Guarded<T>) {
        // SAFETY: the request is the first field of an `Asked` (`repr(C)`), and the pointer was
        // made from one to the whole. The request was not settled, so its thread still waits, and
        // touches neither of the cells.
        let asked = unsafe { request.cast::<Self>().as_ref() };
        asked.run(guarded);
    }

    /// Runs the operation. Only the owner of the request calls this.
    pub(crate) fn run(&self, guarded: &mut Guarded<T>) {
        if let Some(operation) = self.operation.take() {
            self.outcome.set(Some(guarded.run(self.after, operation)));
        }
    }

    /// Returns the outcome.
    ///
    /// # Panics
    /// If the operation did not run.
    pub(crate) fn into_outcome(self) -> Outcome<R> {
        self.outcome.into_inner().expect("it was run")
    }
}

/// An operation that no thread waits for.
#[repr(C)]
pub(crate) struct Posted<T, F> {
    request: Request<Guarded<T>>,
    operation: F,
}

impl<T, F: FnOnce(&mut T) + Send + 'static> Posted<T, F> {
    /// Returns the operation as a request that frees itself when it is run. If it never runs, its
    /// memory leaks.
    pub(crate) fn boxed(operation: F) -> NonNull<Request<Guarded<T>>> {
        // SAFETY: `run_posted` takes the request for the first field of a `Posted` in a box of its
        // own, which it is. Any thread may call it, since the operation can be sent, and at any
        // time, since it borrows nothing.
        let request = unsafe { Request::new(false, Self::run_posted) };
        NonNull::from(Box::leak(Box::new(Self { request, operation }))).cast()
    }

    unsafe fn run_posted(request: NonNull<Request<Guarded<T>>>, guarded: &mut Guarded<T>) {
        // SAFETY: the request is the first field of a `Posted` (`repr(C)`) that `boxed` has leaked,
        // and it runs once.
        let posted = unsafe { Box::from_raw(request.cast::<Self>().as_ptr()) };
        let Self { operation, .. } = *posted;
        // No thread waits: the drops of its captures and the poison report a panic.
        guarded.run(After::Refuse, operation).discard();
    }
}

/// The largest number of posted operations at a time.
pub(crate) const POSTED_MAX: u32 = 1024;

impl<R> fmt::Debug for Outcome<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Returned(_) => "Returned",
            Self::Panicked(_) => "Panicked",
            Self::Poisoned => "Poisoned",
        })
    }
}

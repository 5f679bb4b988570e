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

/// What an operation ended with.
pub(crate) enum Outcome<R> {
    Returned(R),
    Panicked(Box<dyn Any + Send>),
    /// It was not run, since one before it had panicked.
    Poisoned,
}

impl<R> Outcome<R> {
    /// For nobody. What a panic carried may panic itself when it is dropped; then the rest of it is never dropped, since whoever is here holds
    /// the value and must not unwind, or all who wait would wait for ever.
    pub(crate) fn discard(self) {
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(self))) {
            std::mem::forget(again);
        }
    }

    /// For the one who asked.
    ///
    /// # Panics
    /// With what the operation panicked with.
    pub(crate) fn into_result(self) -> Result<R, SyncError> {
        match self {
            Self::Returned(result) => Ok(result),
            Self::Panicked(panic) => resume_unwind(panic),
            Self::Poisoned => Err(SyncError::Poisoned),
        }
    }
}

/// What an operation does about a panic before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// It is not run.
    Refuse,
    /// It is run, and what comes after it again.
    Mend,
}

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value, is_poisoned: false }
    }

    pub(crate) fn run<R>(&mut self, after: After, operation: impl FnOnce(&mut T) -> R) -> Outcome<R> {
        let Self { value, is_poisoned } = self;
        let refuses = *is_poisoned && after == After::Refuse;
        // What is refused is dropped in there, too: that may panic as well.
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

/// An operation of a thread that waits for it. It lies on that thread's stack.
#[repr(C)]
pub(crate) struct Asked<T, F, R> {
    request: Request<Guarded<T>>,
    after: After,
    /// These belong to whoever has the request: the thread that waits, until it has put it into the word and once it has ended, and
    /// the one who runs it in between.
    operation: Cell<Option<F>>,
    outcome: Cell<Option<Outcome<R>>>,
}

impl<T, F: FnOnce(&mut T) -> R + Send, R: Send> Asked<T, F, R> {
    pub(crate) fn new(after: After, operation: F) -> Self {
        // SAFETY: `run_asked` takes the request for the first part of one of these, which it is. It may be called on any thread, since the
        // operation and its result may be sent.
        let request = unsafe { Request::new(true, Self::run_asked) };
        Self { request, after, operation: Cell::new(Some(operation)), outcome: Cell::new(None) }
    }

    /// Its request, from which the whole can be reached.
    pub(crate) fn as_request(&self) -> NonNull<Request<Guarded<T>>> {
        NonNull::from(self).cast()
    }

    pub(crate) fn request(&self) -> &Request<Guarded<T>> {
        &self.request
    }

    unsafe fn run_asked(request: NonNull<Request<Guarded<T>>>, guarded: &mut Guarded<T>) {
        // SAFETY: the request is the first part of an `Asked` (`repr(C)`), and was made from a pointer to the whole. It was not settled, and
        // so its thread still waits, and touches neither of the cells.
        let asked = unsafe { request.cast::<Self>().as_ref() };
        asked.run(guarded);
    }

    /// Runs it, which whoever has the request may do.
    pub(crate) fn run(&self, guarded: &mut Guarded<T>) {
        if let Some(operation) = self.operation.take() {
            self.outcome.set(Some(guarded.run(self.after, operation)));
        }
    }

    /// What it ended with.
    ///
    /// # Panics
    /// When it was not run.
    pub(crate) fn into_outcome(self) -> Outcome<R> {
        self.outcome.into_inner().expect("it was run")
    }
}

/// An operation that nobody waits for.
#[repr(C)]
pub(crate) struct Posted<T, F> {
    request: Request<Guarded<T>>,
    operation: F,
}

impl<T, F: FnOnce(&mut T) + Send + 'static> Posted<T, F> {
    /// The operation as a request that is gone when it was run. It must be run, or its memory is never given back.
    pub(crate) fn boxed(operation: F) -> NonNull<Request<Guarded<T>>> {
        // SAFETY: `run_posted` takes the request for the first part of one of these in a box of its own, which it is. It may be called on any
        // thread, since the operation may be sent, and at any time, since it borrows nothing.
        let request = unsafe { Request::new(false, Self::run_posted) };
        NonNull::from(Box::leak(Box::new(Self { request, operation }))).cast()
    }

    unsafe fn run_posted(request: NonNull<Request<Guarded<T>>>, guarded: &mut Guarded<T>) {
        // SAFETY: the request is the first part of a `Posted` (`repr(C)`) that `boxed` has leaked, and is run once.
        let posted = unsafe { Box::from_raw(request.cast::<Self>().as_ptr()) };
        let Self { operation, .. } = *posted;
        // Nobody asked: that it panicked is told by what it carried, and by the poison.
        guarded.run(After::Refuse, operation).discard();
    }
}

/// Operations for which nobody waits, at most, at one time.
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

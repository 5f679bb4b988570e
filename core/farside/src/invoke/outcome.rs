//! [`Outcome`]: what becomes of the result of a function whose caller gets none.

use std::fmt::Display;
use std::panic::resume_unwind;

#[cfg(doc)]
use crate::error::Error;

/// The result of a function whose caller gets none, such as one called by
/// [`To::call`](crate::To::call).
///
/// An `Err` is reported as a panic is: the worker that ran the function gets
/// [`Error::HandlerFailed`] from whatever makes progress. Anything else is dropped.
///
/// ```no_run
/// # use farside::prelude::*;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let next = me.neighbor(1);
/// // If the second call cannot be sent, the job fails with the reason.
/// me.call(next, 7_u64, |there, x| there.call(there.neighbor(1), x, |_, x| println!("{x}")))?;
/// # Ok(())
/// # }
/// ```
///
/// *Cost*: a branch for a `Result`, and nothing for other types.
#[diagnostic::on_unimplemented(
    message = "a call without a result would drop the `{Self}` that its function returns",
    note = "end the function with `;`, or use `call_return` to get its result"
)]
pub trait Outcome: Sized {
    /// Returns the message of the failure, if this is one.
    #[inline(always)]
    fn failure(self) -> Option<String> {
        None
    }
}

impl<T, E: Display> Outcome for Result<T, E> {
    #[inline(always)]
    fn failure(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

impl<T> Outcome for Option<T> {}
impl<T> Outcome for Vec<T> {}

macro_rules! dropped {
    ($($type:ty),+) => { $(impl Outcome for $type {})+ };
}

dropped!((), bool, char, String, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64);
dropped!(<fn() -> ! as Returns>::Type);

/// Names the type `!`, which a function that always panics returns.
pub(crate) trait Returns {
    type Type;
}

impl<T> Returns for fn() -> T {
    type Type = T;
}

/// The payload with which a function that failed unwinds: from there on it fares as a panic does.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

/// Drops the result of a function whose caller gets none. Unwinds with [`Failure`] if it failed.
#[inline(always)]
pub(crate) fn settle(outcome: impl Outcome) {
    if let Some(message) = outcome.failure() {
        fail(message);
    }
}

#[cold]
fn fail(message: String) -> ! {
    resume_unwind(Box::new(Failure(message)))
}

//! Calls that count down a word in registered memory.

use super::countdown::Countdown;
use super::lent::Lent;
use super::result_place::ResultPlace;
use crate::error::{Refused, Result};
use crate::invoke::call::To;
use crate::invoke::payload::Arguments;
use crate::invoke::payload::WithBuffer;
use crate::invoke::remote::{ByPointer, CallBuffer, CallNotified};
use crate::memory::Registered;
use crate::runtime::observer::{AccessKind, Touch};
use crate::runtime::worker::Worker;
use crate::wire::Wire;

/// The way to one worker on which each executed call counts a [`Countdown`] down. Made by
/// [`To::counting`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Counting<'w> {
    to: To<'w>,
    countdown: Countdown,
}

impl<'w> To<'w> {
    /// Counts a word of registered memory down, one-sidedly, when each call was executed.
    pub fn counting(self, countdown: Countdown) -> Counting<'w> {
        Counting { to: self, countdown }
    }
}

impl<'w> Counting<'w> {
    /// Calls as [`To::call`] does.
    ///
    /// # Errors
    /// Those of [`To::call`].
    pub fn call<A: Wire, R>(self, arguments: A, function: fn(&Worker, A) -> R) -> Result<(), Refused<A>> {
        let operand = self.to.worker.table().offset_of(function as usize);
        let payload = Arguments((self.countdown, arguments));
        match self.to.submit::<CallNotified<ByPointer, fn(&Worker, A) -> R, A, R, Countdown>, _>(operand, payload) {
            Ok(()) => Ok(()),
            Err((error, Arguments((_, arguments)))) => Err(Refused { error, arguments }),
        }
    }

    /// Calls as [`To::call_buffer`] does.
    ///
    /// # Errors
    /// Those of [`To::call_buffer`].
    pub fn call_buffer<A: Wire, R>(
        self,
        arguments: A,
        buffer: &[u8],
        function: fn(&Worker, A, &[u8]) -> R,
    ) -> Result<(), Refused<A>> {
        let operand = self.to.worker.table().offset_of(function as usize);
        let payload = WithBuffer { arguments: (self.countdown, arguments), buffer };
        self.to
            .submit::<CallBuffer<ByPointer, fn(&Worker, A, &[u8]) -> R, A, R, Countdown>, _>(operand, payload)
            .map_err(|(error, WithBuffer { arguments: (_, arguments), .. })| Refused { error, arguments })
    }

    /// Calls as [`To::call_buffer_get`] does.
    ///
    /// # Errors
    /// Those of [`To::call_buffer_get`].
    #[track_caller]
    pub fn call_buffer_get<A: Wire + 'static, R: 'static>(
        self,
        arguments: A,
        buffer: Registered,
        function: fn(&Worker, A, &[u8]) -> R,
    ) -> Result<Lent<'w>, Refused<Box<(A, Registered)>>> {
        self.to.lend(arguments, buffer, function, false, self.countdown, Touch::here(AccessKind::Read))
    }

    /// Calls as [`To::call_into`] does.
    ///
    /// # Errors
    /// Those of [`To::call_into`].
    pub fn call_into<A: Wire, R: Wire + 'static>(
        self,
        arguments: A,
        function: fn(&Worker, A) -> R,
        place: ResultPlace<R>,
    ) -> Result<(), Refused<A>> {
        self.to.submit_into(arguments, function, place, self.countdown)
    }
}

//! Aggregation: calls that share what each alone would cost.

use std::time::Duration;

use super::{AGGREGATE_BYTES, NO_LIMIT, To, WhenFull};
use crate::Worker;
use crate::error::{Refused, Result};
use crate::invoke::outbox::FlushCause;
use crate::invoke::remote::{ByPointer, ByType, RemoteFn};
use crate::wire::Wire;

/// When an [`Aggregator`] batches (Seriema §4.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregation {
    /// Always, and publishes when so many bytes are batched: the most calls a second. (A batch never exceeds the ring's chunk.)
    Traditional {
        /// The size.
        bytes: usize,
    },
    /// Only when the ring refuses: as long as it takes them, calls are published one by one, and none is later for being aggregated. What
    /// it does not take is kept here in order, and sent in one flush when there is room.
    Overflow {
        /// So much is kept at most, and no more than 4 GiB; then calls fail with [`Error::Full`](crate::Error::Full), or do what
        /// [`when_full`](Aggregator::when_full) says.
        limit_bytes: usize,
    },
}

/// Calls of one worker to another that are published in batches.
///
/// A batch is published when it has its size, when its chunk is full, when the program asks for it ([`flush`](Self::flush),
/// [`Worker::flush`]), when the worker waits and has nothing else to do, when it makes progress and the batch has its
/// [`age`](Self::age), and when the aggregator is dropped. A worker that computes and makes no progress publishes nothing; where that must
/// not keep calls back, there is [`flush_within`](Self::flush_within).
///
/// On shared memory a batch is written where it belongs, record by record; only its publication is put off. So there is no
/// copy, and no fence for each call. Calls made past the aggregator keep their place: they publish the batch with them.
///
/// ```no_run
/// # use farside::prelude::*;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let aggregator = me.aggregate(me.neighbor(1));
/// for x in 0..1000_u64 {
///     aggregator.call(x, |there, x| println!("{}: {x}", there.id()))?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Aggregator<'w> {
    to: To<'w>,
}

impl<'w> Aggregator<'w> {
    #[inline]
    pub(crate) fn new(mut to: To<'w>) -> Self {
        to.batch_bytes = AGGREGATE_BYTES;
        Self { to }
    }

    /// When to batch. By default [`Traditional`](Aggregation::Traditional), with [`AGGREGATE_BYTES`].
    #[must_use]
    #[inline]
    pub fn mode(mut self, mode: Aggregation) -> Self {
        match mode {
            Aggregation::Traditional { bytes } => {
                self.to.batch_bytes = bytes.max(1);
                self.to.limit_bytes = NO_LIMIT;
            }
            Aggregation::Overflow { limit_bytes } => {
                self.to.batch_bytes = 0;
                self.to.limit_bytes = u32::try_from(limit_bytes).unwrap_or(NO_LIMIT).min(NO_LIMIT - 1);
                self.to.when_full = self.to.when_full.or(Some(WhenFull::Fail));
            }
        }
        self
    }

    /// Publishes when so many bytes are batched: [`Aggregation::Traditional`].
    #[must_use]
    #[inline]
    pub fn batch_bytes(self, bytes: usize) -> Self {
        self.mode(Aggregation::Traditional { bytes })
    }

    /// Batches only what the ring does not take, and so much of that: [`Aggregation::Overflow`].
    #[must_use]
    #[inline]
    pub fn overflow(self, limit_bytes: usize) -> Self {
        self.mode(Aggregation::Overflow { limit_bytes })
    }

    /// Publishes a batch that is so old (an hour at most) at the worker's next progress; after 500 µs if not said. Costs nothing, and promises nothing
    /// while the worker makes no progress.
    #[must_use]
    pub fn age(mut self, age: Duration) -> Self {
        self.to.age_us = microseconds(age);
        self
    }

    /// Publishes a batch that is so old whatever the worker does: then the service thread does it. (It is a thread like others, and may
    /// come a little late.)
    ///
    /// *Cost*: two threads may publish such a batch, so it is kept behind a lock, and copied when it is published: some 50 ns a call
    /// instead of some 3. That is why it is not so by default; no other thread could see how far this one is with a batch in the ring,
    /// unless each call said so.
    #[must_use]
    pub fn flush_within(mut self, age: Duration) -> Self {
        self.to.age_us = microseconds(age);
        self.to.held = true;
        self.to.special = true;
        self
    }

    /// What to do when there is no room.
    #[must_use]
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.to.when_full = Some(when_full);
        self
    }

    /// As [`To::call`], batched.
    ///
    /// # Errors
    /// As for [`To::call`].
    #[inline]
    pub fn call<A: Wire, R>(&self, arguments: A, function: fn(&Worker, A) -> R) -> Result<(), Refused<A>> {
        let operand = self.to.worker.table().offset_of(function as usize);
        self.to.submit_call::<ByPointer, fn(&Worker, A) -> R, A, R>(operand, arguments)
    }

    /// As [`To::call_remote`], batched.
    ///
    /// # Errors
    /// As for [`To::call`].
    #[inline]
    pub fn call_remote<A: Wire, R, F>(&self, arguments: A, _: RemoteFn<F>) -> Result<(), Refused<A>>
    where
        F: Fn(&Worker, A) -> R + Copy + 'static,
    {
        self.to.submit_call::<ByType, F, A, R>(Ok(0), arguments)
    }

    /// As [`To::call_buffer`], batched.
    ///
    /// # Errors
    /// As for [`To::call`].
    pub fn call_buffer<A: Wire, R>(
        &self,
        arguments: A,
        buffer: &[u8],
        function: fn(&Worker, A, &[u8]) -> R,
    ) -> Result<(), Refused<A>> {
        self.to.call_buffer(arguments, buffer, function)
    }

    /// Publishes what is batched.
    pub fn flush(&self) {
        self.to.worker.flush_to(self.to.to, FlushCause::Asked);
    }
}

/// In whole ones, of which 32 bits hold more than an hour.
fn microseconds(age: Duration) -> u32 {
    u32::try_from(age.as_micros()).unwrap_or(u32::MAX)
}

impl Drop for Aggregator<'_> {
    fn drop(&mut self) {
        self.to.worker.flush_to(self.to.to, FlushCause::Dropped);
    }
}

//! Aggregation: calls that share the cost of publishing.

use std::ops::Index;
use std::time::Duration;

use farside_fabric::WorkerId;

use super::{AGGREGATE_BYTES, NO_LIMIT, To, WhenFull};
use crate::Worker;
use crate::error::{Refused, Result};
use crate::invoke::outbox::FlushCause;
use crate::invoke::outcome::Outcome;
use crate::invoke::remote::{ByPointer, ByType, RemoteFn};
use crate::wire::Wire;

/// The policy by which an [`Aggregator`] batches (Seriema §4.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregation {
    /// Always batch, and publish at this size. This gives the most calls a second. A batch never
    /// exceeds 16 KiB, nor the ring's chunk.
    Traditional {
        /// The size of a batch.
        bytes: usize,
    },
    /// Batch only when the ring is full. While it has room, calls are published one by one, so
    /// aggregation delays none. Calls beyond that are kept here in order, and sent in one flush
    /// when there is room.
    Overflow {
        /// The most bytes kept, up to 4 GiB. Calls beyond that fail with
        /// [`Error::Full`](crate::Error::Full), or do what [`when_full`](Aggregator::when_full)
        /// says.
        limit_bytes: usize,
    },
}

/// Calls of one worker to another that are published in batches.
///
/// A batch is published in each of these cases:
/// - it has its size, or its memory or the ring's chunk is full;
/// - the program calls [`flush`](Self::flush) or [`Worker::flush`];
/// - the worker waits and has nothing else to do;
/// - the worker makes progress and the batch has its [`age`](Self::age);
/// - the aggregator is dropped.
///
/// A worker that computes and makes no progress publishes nothing. If that must not delay calls,
/// use [`flush_within`](Self::flush_within).
///
/// A batch is collected in memory of this process. It goes to the receiver in one copy, with one
/// fence: many lines of the receiver's memory move at a time. Calls made past the aggregator keep
/// their order: they publish the batch first. *Memory*: twice the size of a batch, at most 16 KiB,
/// for each destination, from the first batch on.
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

    /// Sets when to batch. The default is [`Traditional`](Aggregation::Traditional) with
    /// [`AGGREGATE_BYTES`].
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

    /// Publishes a batch when it has `bytes` bytes: [`Aggregation::Traditional`].
    #[must_use]
    #[inline]
    pub fn batch_bytes(self, bytes: usize) -> Self {
        self.mode(Aggregation::Traditional { bytes })
    }

    /// Batches only calls that the ring has no room for, up to `limit_bytes`:
    /// [`Aggregation::Overflow`].
    #[must_use]
    #[inline]
    pub fn overflow(self, limit_bytes: usize) -> Self {
        self.mode(Aggregation::Overflow { limit_bytes })
    }

    /// Publishes a batch of this age at the worker's next progress; the default is 500 µs, the
    /// maximum an hour. This costs nothing, and promises nothing while the worker makes no
    /// progress.
    #[must_use]
    pub fn age(mut self, age: Duration) -> Self {
        self.to.age_us = microseconds(age);
        self
    }

    /// Publishes a batch of this age even if the worker makes no progress: the service thread does
    /// it. That is a thread like others, and may be a little late.
    ///
    /// *Cost*: two threads may publish such a batch, so it is kept behind a lock. A call takes some
    /// 50 ns instead of some 3. So this is not the default.
    /// Without the lock no other thread could see the extent of an open batch, unless each call
    /// announced it.
    #[must_use]
    pub fn flush_within(mut self, age: Duration) -> Self {
        self.to.age_us = microseconds(age);
        self.to.held = true;
        self.to.special = true;
        self
    }

    /// Chooses what to do when there is no room.
    #[must_use]
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.to.when_full = Some(when_full);
        self
    }

    /// Calls as [`To::call`] does, batched.
    ///
    /// # Errors
    /// [`Error::Full`](crate::Error::Full), or [`Error::Deadline`](crate::Error::Deadline) after a
    /// wait, if the receiver has no room; [`Error::TooLarge`](crate::Error::TooLarge);
    /// [`Error::UnknownWorker`](crate::Error::UnknownWorker);
    /// [`Error::PeerLost`](crate::Error::PeerLost) if the receiver is lost;
    /// [`Error::DifferentBinaries`](crate::Error::DifferentBinaries) or
    /// [`Error::ForeignFunction`](crate::Error::ForeignFunction) if it cannot find the function;
    /// [`Error::InHandler`](crate::Error::InHandler) if a handler would have to wait.
    #[inline]
    #[track_caller]
    pub fn call<A: Wire, R: Outcome>(&self, arguments: A, function: fn(&Worker, A) -> R) -> Result<(), Refused<A>> {
        let operand = self.to.operand_of(function as usize);
        self.to.submit_call::<ByPointer, fn(&Worker, A) -> R, A, R>(operand, arguments)
    }

    /// Calls as [`To::call_remote`] does, batched.
    ///
    /// # Errors
    /// [`Error::Full`](crate::Error::Full), or [`Error::Deadline`](crate::Error::Deadline) after a
    /// wait, if the receiver has no room; [`Error::TooLarge`](crate::Error::TooLarge);
    /// [`Error::UnknownWorker`](crate::Error::UnknownWorker);
    /// [`Error::PeerLost`](crate::Error::PeerLost) if the receiver is lost;
    /// [`Error::DifferentBinaries`](crate::Error::DifferentBinaries) or
    /// [`Error::ForeignFunction`](crate::Error::ForeignFunction) if it cannot find the function;
    /// [`Error::InHandler`](crate::Error::InHandler) if a handler would have to wait.
    #[inline]
    #[track_caller]
    pub fn call_remote<A: Wire, R: Outcome, F>(&self, arguments: A, _: RemoteFn<F>) -> Result<(), Refused<A>>
    where
        F: Fn(&Worker, A) -> R + Copy + 'static,
    {
        self.to.submit_call::<ByType, F, A, R>(Ok(0), arguments)
    }

    /// Calls as [`To::call_buffer`] does, batched.
    ///
    /// # Errors
    /// [`Error::Full`](crate::Error::Full), or [`Error::Deadline`](crate::Error::Deadline) after a
    /// wait, if the receiver has no room; [`Error::TooLarge`](crate::Error::TooLarge);
    /// [`Error::UnknownWorker`](crate::Error::UnknownWorker);
    /// [`Error::PeerLost`](crate::Error::PeerLost) if the receiver is lost;
    /// [`Error::DifferentBinaries`](crate::Error::DifferentBinaries) or
    /// [`Error::ForeignFunction`](crate::Error::ForeignFunction) if it cannot find the function;
    /// [`Error::InHandler`](crate::Error::InHandler) if a handler would have to wait.
    #[track_caller]
    pub fn call_buffer<A: Wire, R: Outcome>(
        &self,
        arguments: A,
        buffer: &[u8],
        function: fn(&Worker, A, &[u8]) -> R,
    ) -> Result<(), Refused<A>> {
        self.to.call_buffer(arguments, buffer, function)
    }

    /// Publishes the open batch.
    pub fn flush(&self) {
        self.to.from.flush_to(self.to.to, FlushCause::Asked);
    }
}

/// The aggregators of one worker for all workers, by their numbers: [`Worker::aggregate_all`].
#[derive(Debug)]
pub struct Aggregators<'w>(Box<[Aggregator<'w>]>);

impl<'w> Aggregators<'w> {
    pub(crate) fn new(all: Box<[Aggregator<'w>]>) -> Self {
        Self(all)
    }
}

/// # Panics
/// If there is no such worker.
impl<'w> Index<WorkerId> for Aggregators<'w> {
    type Output = Aggregator<'w>;

    fn index(&self, worker: WorkerId) -> &Aggregator<'w> {
        &self.0[worker.index()]
    }
}

/// Converts to whole microseconds; 32 bits hold more than an hour.
fn microseconds(age: Duration) -> u32 {
    u32::try_from(age.as_micros()).unwrap_or(u32::MAX)
}

impl Drop for Aggregator<'_> {
    fn drop(&mut self) {
        self.to.from.flush_to(self.to.to, FlushCause::Dropped);
    }
}

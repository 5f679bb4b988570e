//! The ends of a queue for one worker.

use std::collections::vec_deque::Drain;
use std::fmt;
use std::time::{Duration, Instant};

use farside::bytemuck::checked::try_pod_read_unaligned;
use farside::{Comparison, Error, ProcessId, Result, Wire, Worker};

use super::ring::Ring;
use super::{Implementation, Item, Part, Promise, Queue, QueueError};

/// The time after which a wait looks again by itself: for losses.
const SLICE: Duration = Duration::from_millis(10);
/// The same while a push is under way, whose end no watched word shows.
const SHORT_SLICE: Duration = Duration::from_micros(50);

/// Pushes items into a [`Queue`] and pops them, on one worker.
///
/// # Errors
/// All methods: [`QueueError::Freed`]; [`Error::PeerLost`] if the process of the queue is lost;
/// those of [`GlobalPtr::put`](farside::GlobalPtr::put), or of
/// [`call_return`](Worker::call_return) with [`Implementation::Call`]. In called functions, only
/// queues in mapped memory can be used.
pub struct Ends<'w, T: 'static> {
    pub(super) me: &'w Worker,
    pub(super) queue: Queue<T>,
    pub(super) implementation: Implementation,
    pub(super) part: &'w Part<T>,
}

impl<T: Item> Ends<'_, T> {
    /// Adds an item at the end of the queue. Gives it back if the queue is full.
    ///
    /// *Completion*: when it returns, the item can be popped as soon as those before it can.
    ///
    /// # Errors
    /// See [above](Self#errors).
    #[inline]
    pub fn push(&self, item: T) -> Result<Result<(), T>> {
        self.push_with(Promise::All, item)
    }

    /// Takes the item at the front. Returns `None` if the queue is empty, or if the push of its
    /// first item has not ended.
    ///
    /// # Errors
    /// [`QueueError::NoValue`]; see [above](Self#errors).
    #[inline]
    pub fn pop(&self) -> Result<Option<T>> {
        self.pop_with(Promise::All)
    }

    /// As [`push`](Self::push), under a promise of all workers of the job.
    ///
    /// # Errors
    /// [`QueueError::NotLocal`]; see [above](Self#errors).
    #[inline]
    pub fn push_with(&self, promise: Promise, item: T) -> Result<Result<(), T>> {
        let ring = self.ring()?;
        let pushed = match (self.implementation, promise) {
            (Implementation::Call, _) => self.push_by_call([item])? == 1,
            (_, Promise::Local) => self.push_locally(&ring, &item)?,
            _ => self.push_some(&ring, promise, std::slice::from_ref(&item))? == 1,
        };
        Ok(if pushed { Ok(()) } else { Err(item) })
    }

    /// As [`pop`](Self::pop), under a promise of all workers of the job.
    ///
    /// # Errors
    /// Those of [`pop`](Self::pop); [`QueueError::NotLocal`].
    #[inline]
    pub fn pop_with(&self, promise: Promise) -> Result<Option<T>> {
        let ring = self.ring()?;
        match (self.implementation, promise) {
            (Implementation::Call, _) => self.pop_by_call(),
            (_, Promise::Local) => self.pop_locally(&ring),
            (_, Promise::PopOnly) => self.pop_settled(&ring),
            (Implementation::OneSidedPublished, _) => self.pop_published(&ring),
            _ => self.pop_one(&ring),
        }
    }

    /// Adds items at the end of the queue, as many as there is room for, and returns their number.
    /// Items of other workers may come between.
    ///
    /// *Cost*: that of one push for each batch, and a copy of the items. A batch has up to 64
    /// items, but not more than the worker's share of the capacity.
    ///
    /// # Errors
    /// See [above](Self#errors).
    pub fn push_all(&self, items: &[T]) -> Result<u64> {
        let ring = self.ring()?;
        if self.implementation == Implementation::Call {
            return self.push_by_call(items.to_vec());
        }
        let mut pushed = 0;
        while pushed < items.len() {
            match self.push_some(&ring, Promise::All, &items[pushed..])? {
                0 => break,
                more => pushed += more as usize,
            }
        }
        Ok(pushed as u64)
    }

    /// Takes up to `most` items from the front.
    ///
    /// *Cost*: that of one pop for each [batch](Self::push_all) of items, and copies.
    /// [`Implementation::OneSidedPublished`] pops one by one.
    ///
    /// # Errors
    /// Those of [`pop`](Self::pop). Items that were taken before are dropped.
    pub fn pop_many(&self, most: usize) -> Result<Vec<T>> {
        let ring = self.ring()?;
        if self.implementation == Implementation::Call {
            return self.pop_many_by_call(most);
        }
        let mut items = Vec::new();
        while items.len() < most {
            let before = items.len();
            match self.implementation {
                Implementation::OneSidedPublished => items.extend(self.pop_published(&ring)?),
                _ => self.pop_some(&ring, (most - before) as u64, &mut items)?,
            }
            if items.len() == before {
                break;
            }
        }
        Ok(items)
    }

    /// Waits up to `time` for room and pushes. Gives the item back if there was none. Runs calls of
    /// other workers meanwhile.
    ///
    /// # Errors
    /// Those of [`push`](Self::push); [`Error::InHandler`].
    pub fn push_within(&self, time: Duration, item: T) -> Result<Result<(), T>> {
        let pushed = self.retry(time, |ends| ends.push(item).map(Result::ok))?;
        Ok(pushed.ok_or(item))
    }

    /// Waits up to `time` for an item and pops it. Runs calls of other workers meanwhile.
    ///
    /// # Errors
    /// Those of [`pop`](Self::pop); [`Error::InHandler`].
    pub fn pop_within(&self, time: Duration) -> Result<Option<T>> {
        self.retry(time, Self::pop)
    }

    /// Returns the number of items, with those whose push has not ended. It may have changed when
    /// this returns.
    ///
    /// # Errors
    /// See [above](Self#errors).
    pub fn len(&self) -> Result<u64> {
        let ring = self.ring()?;
        let head = ring.head().load(self.me)?;
        Ok(ring.tail().load(self.me)?.saturating_sub(head))
    }

    /// Returns whether the queue is empty.
    ///
    /// # Errors
    /// See [above](Self#errors).
    pub fn is_empty(&self) -> Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Returns the number of items that always find room.
    pub fn capacity(&self) -> u64 {
        self.part.ring.get().capacity
    }

    /// Returns the process that has the queue.
    pub fn host(&self) -> ProcessId {
        self.part.host.0
    }

    /// Takes the items that are there now, and drops them.
    ///
    /// # Errors
    /// Those of [`pop_many`](Self::pop_many).
    pub fn clear(&self) -> Result<()> {
        let len = self.len()?;
        self.pop_many(len as usize).map(drop)
    }

    #[inline]
    pub(super) fn ring(&self) -> Result<Ring> {
        let ring = self.part.ring.get();
        if ring.capacity == 0 { Err(QueueError::Freed.into()) } else { Ok(ring) }
    }

    /// Returns whether this worker answers the calls of the queue.
    pub(super) fn is_host(&self) -> bool {
        self.part.host.1 == self.me.id()
    }

    /// Tries until it succeeds or the time has passed.
    fn retry<R>(&self, time: Duration, mut attempt: impl FnMut(&Self) -> Result<Option<R>>) -> Result<Option<R>> {
        let end: Instant = self.me.now() + time;
        loop {
            let ring = self.ring()?;
            let (head, tail) = (ring.head().load(self.me)?, ring.tail().load(self.me)?);
            if let Some(done) = attempt(self)? {
                return Ok(Some(done));
            }
            let left = end.saturating_duration_since(self.me.now());
            if left.is_zero() {
                return Ok(None);
            }
            let slice = if tail > head { SHORT_SLICE } else { SLICE };
            let changes = [ring.head().until(Comparison::Ne, head), ring.tail().until(Comparison::Ne, tail)];
            match self.me.wait_any_for(&changes, slice.min(left)) {
                Ok(_) | Err(Error::Deadline { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads an item from the bytes that another worker has written.
    pub(super) fn value(&self, ticket: u64, bytes: &[u8]) -> Result<T> {
        try_pod_read_unaligned(bytes).map_err(|_| QueueError::NoValue { ticket }.into())
    }

    fn push_by_call<I: Wire + IntoIterator<Item = T>>(&self, items: I) -> Result<u64> {
        if self.is_host() {
            return self.take_in(items);
        }
        let take_in = |there: &Worker, (queue, items): (Queue<T>, I)| queue.on(there).take_in(items).ok();
        let pushed = self.me.call_return(self.part.host.1, (self.queue, items), take_in)?.wait()?;
        pushed.ok_or(QueueError::Freed.into())
    }

    fn pop_by_call(&self) -> Result<Option<T>> {
        if self.is_host() {
            return self.give_out(1, |mut items| items.next());
        }
        let give_out = |there: &Worker, queue: Queue<T>| queue.on(there).give_out(1, |mut items| items.next()).ok();
        let popped = self.me.call_return(self.part.host.1, self.queue, give_out)?.wait()?;
        popped.ok_or(QueueError::Freed.into())
    }

    fn pop_many_by_call(&self, most: usize) -> Result<Vec<T>> {
        if self.is_host() {
            return self.give_out(most, |items| items.collect());
        }
        let give_out = |there: &Worker, (queue, most): (Queue<T>, usize)| {
            queue.on(there).give_out(most, |items| items.collect::<Vec<_>>()).ok()
        };
        let popped = self.me.call_return(self.part.host.1, (self.queue, most), give_out)?.wait()?;
        popped.ok_or(QueueError::Freed.into())
    }

    /// Adds items at the worker that has them. The words of the queue count along, for `len` and
    /// for waits.
    fn take_in(&self, items: impl IntoIterator<Item = T>) -> Result<u64> {
        let (ring, mut queue) = (self.ring()?, self.part.items.borrow_mut());
        let before = queue.len();
        queue.extend(items.into_iter().take((ring.capacity as usize).saturating_sub(before)));
        let count = (queue.len() - before) as u64;
        ring.tail().fetch_add(self.me, count)?;
        Ok(count)
    }

    /// Takes items at the worker that has them.
    fn give_out<R>(&self, most: usize, take: impl FnOnce(Drain<'_, T>) -> R) -> Result<R> {
        let (ring, mut queue) = (self.ring()?, self.part.items.borrow_mut());
        let count = most.min(queue.len());
        ring.head().fetch_add(self.me, count as u64)?;
        Ok(take(queue.drain(..count)))
    }
}

impl<T: 'static> fmt::Debug for Ends<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ends").field("implementation", &self.implementation).finish_non_exhaustive()
    }
}

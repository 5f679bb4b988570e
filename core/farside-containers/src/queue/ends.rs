//! The ends of a queue for one worker.

use std::collections::vec_deque::Drain;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use farside::bytemuck::checked::try_pod_read_unaligned;
use farside::{AwaitSignals, Comparison, Error, ProcessId, Result, Wire, Worker};

use super::one_sided::mask;
use super::ring::Ring;
use super::{Item, Part, Queue, QueueError, Usage};
use crate::announced;
use crate::cost::Plan;
use crate::promise::{Implementation, Op, Promise};

/// The time after which a wait looks again by itself: for losses.
const SLICE: Duration = Duration::from_millis(10);
/// The same time for a pop while a push is under way, whose end no watched word shows.
const SHORT_SLICE: Duration = Duration::from_micros(50);

/// Pushes items into a [`Queue`] and pops them, on one worker.
///
/// # Errors
/// All methods: [`QueueError::Gone`]; [`Error::PeerLost`] if the process of the queue is lost;
/// those of [`GlobalPtr::put`](farside::GlobalPtr::put), or of
/// [`call_return`](Worker::call_return) with [`Implementation::Call`]. In called functions, only
/// queues in mapped memory can be used, and with `Call` only those whose items this worker has.
///
/// After an error of a push, its items may or may not be in the queue, and never block it for
/// long (see [`Queue`]). After a deadline has passed, the operation may yet take effect: a
/// push with `Call` then adds its items later, and what a pop takes is gone.
pub struct Ends<'w, T: 'static> {
    pub(super) me: &'w Worker,
    pub(super) queue: Queue<T>,
    pub(super) part: Rc<Part<T>>,
}

impl<T: Item> Ends<'_, T> {
    /// Adds an item at the end of the queue. Gives it back if the queue is full.
    ///
    /// *Completion*: when it returns, the item can be popped as soon as those before it can.
    ///
    /// # Errors
    /// See [above](Self#errors).
    #[inline]
    #[track_caller]
    pub fn push(&self, item: T) -> Result<Result<(), T>> {
        self.push_with(Promise::ALL, item)
    }

    /// Takes the item at the front. Returns `None` if the queue is empty, or if the push of its
    /// first item has not ended.
    ///
    /// # Errors
    /// [`QueueError::NoValue`]; see [above](Self#errors).
    #[inline]
    #[track_caller]
    pub fn pop(&self) -> Result<Option<T>> {
        self.pop_with(Promise::ALL)
    }

    /// As [`push`](Self::push), under a promise of all workers of the job. In a
    /// [phase](super::Phase), that of the phase counts.
    ///
    /// # Errors
    /// [`QueueError::NotPermitted`]; [`QueueError::NotLocal`]; see [above](Self#errors).
    #[inline]
    #[track_caller]
    pub fn push_with(&self, promise: Promise, item: T) -> Result<Result<(), T>> {
        let (ring, usage) = (self.ring()?, self.usage(promise, Op::Push)?);
        self.announce(&ring, usage)?;
        let pushed = match (self.implementation(), usage) {
            (Implementation::Call, _) => self.push_by_call([item])? == 1,
            (_, Usage::Local) => self.push_locally(&ring, &item)?,
            _ => self.push_some(&ring, std::slice::from_ref(&item))? == 1,
        };
        self.note(&ring, Op::Push)?;
        Ok(if pushed { Ok(()) } else { Err(item) })
    }

    /// As [`pop`](Self::pop), under a promise of all workers of the job. In a
    /// [phase](super::Phase), that of the phase counts.
    ///
    /// # Errors
    /// [`QueueError::NoValue`]; [`QueueError::NotPermitted`]; [`QueueError::NotLocal`]; see
    /// [above](Self#errors).
    #[inline]
    #[track_caller]
    pub fn pop_with(&self, promise: Promise) -> Result<Option<T>> {
        let (ring, usage) = (self.ring()?, self.usage(promise, Op::Pop)?);
        self.announce(&ring, usage)?;
        let popped = match (self.implementation(), usage) {
            (Implementation::Call, _) => self.pop_by_call(),
            (_, Usage::Local) => self.pop_locally(&ring),
            (_, Usage::PopOnly) => self.pop_settled(&ring),
            _ => self.pop_one(&ring),
        }?;
        self.note(&ring, Op::Pop)?;
        Ok(popped)
    }

    /// Adds items at the end of the queue, as many as there is room for, and returns their number.
    /// Items of other workers may come between.
    ///
    /// *Cost*: that of one push for each batch, and a copy of the items. A batch has up to 64
    /// items, but not more than the worker's share of the capacity.
    ///
    /// # Errors
    /// See [above](Self#errors).
    #[track_caller]
    pub fn push_all(&self, items: &[T]) -> Result<u64> {
        self.push_all_with(Promise::ALL, items)
    }

    /// As [`push_all`](Self::push_all), under a promise.
    ///
    /// *Cost*: that of a push for each item with [`Promise::LOCAL`].
    ///
    /// # Errors
    /// [`QueueError::NotPermitted`]; [`QueueError::NotLocal`]; see [above](Self#errors).
    #[track_caller]
    pub fn push_all_with(&self, promise: Promise, items: &[T]) -> Result<u64> {
        let (ring, usage) = (self.ring()?, self.usage(promise, Op::Push)?);
        self.announce(&ring, usage)?;
        let mut pushed = 0;
        if self.implementation() == Implementation::Call {
            pushed = self.push_by_call(items.to_vec())? as usize;
        }
        while pushed < items.len() && self.implementation() != Implementation::Call {
            let more = match usage {
                Usage::Local => self.push_locally(&ring, &items[pushed])?.into(),
                _ => self.push_some(&ring, &items[pushed..])?,
            };
            if more == 0 {
                break;
            }
            pushed += more as usize;
        }
        self.note(&ring, Op::Push)?;
        Ok(pushed as u64)
    }

    /// Takes up to `most` items from the front.
    ///
    /// *Cost*: that of one pop for each [batch](Self::push_all) of items, and copies.
    ///
    /// # Errors
    /// [`QueueError::NoValue`]; see [above](Self#errors). Items that were taken before are dropped.
    #[track_caller]
    pub fn pop_many(&self, most: usize) -> Result<Vec<T>> {
        self.pop_many_with(Promise::ALL, most)
    }

    /// As [`pop_many`](Self::pop_many), under a promise.
    ///
    /// *Cost*: that of a pop for each item with [`Promise::POP_ONLY`] and [`Promise::LOCAL`].
    ///
    /// # Errors
    /// [`QueueError::NoValue`]; [`QueueError::NotPermitted`]; [`QueueError::NotLocal`]; see
    /// [above](Self#errors). Items that were taken before are dropped.
    #[track_caller]
    pub fn pop_many_with(&self, promise: Promise, most: usize) -> Result<Vec<T>> {
        let (ring, usage) = (self.ring()?, self.usage(promise, Op::Pop)?);
        self.announce(&ring, usage)?;
        let mut items = Vec::new();
        if self.implementation() == Implementation::Call {
            items = self.pop_many_by_call(most)?;
        }
        while items.len() < most && self.implementation() != Implementation::Call {
            let before = items.len();
            match usage {
                Usage::All => self.pop_some(&ring, (most - before) as u64, &mut items)?,
                _ => items.extend(self.pop_with(promise)?),
            }
            if items.len() == before {
                break;
            }
        }
        self.note(&ring, Op::Pop)?;
        Ok(items)
    }

    /// Waits up to `time` for room and pushes. Gives the item back if there was none. Runs calls of
    /// other workers meanwhile.
    ///
    /// # Errors
    /// [`Error::InHandler`]; see [above](Self#errors).
    pub fn push_within(&self, time: Duration, item: T) -> Result<Result<(), T>> {
        let pushed = self.retry(time, SLICE, |ends| ends.push(item).map(Result::ok))?;
        Ok(pushed.ok_or(item))
    }

    /// Waits up to `time` for an item and pops it. Runs calls of other workers meanwhile.
    ///
    /// # Errors
    /// [`QueueError::NoValue`]; [`Error::InHandler`]; see [above](Self#errors).
    pub fn pop_within(&self, time: Duration) -> Result<Option<T>> {
        self.retry(time, SHORT_SLICE, Self::pop)
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

    /// Returns how the queue works.
    #[inline]
    pub fn implementation(&self) -> Implementation {
        self.part.implementation.get()
    }

    /// Predicts what an operation costs by each implementation, and says which is the cheapest and
    /// why. The prediction is for operations of all processes. At a single queue, all workers
    /// operate at the same time; at a set, each alone. With [`Implementation::Auto`], the owner
    /// looks at its calls as often as the next worker did when the queue was made or [chose
    /// again](Queue::choose_again); otherwise it waits for them.
    /// [`CostModel::plan`](crate::CostModel::plan) predicts other circumstances.
    ///
    /// A queue that was made with neither [`Implementation::Auto`] nor a [cost
    /// model](Queue::with_cost_model) follows [`CostModel::CORI`](crate::CostModel::CORI), and the
    /// reason says so.
    ///
    /// # Panics
    /// If the operation is not one of queues, or the promise does not permit it.
    #[track_caller]
    pub fn plan(&self, op: Op, promise: Promise) -> Plan {
        assert!(matches!(op, Op::Push | Op::Pop), "queues have no {op:?}: plan a push or a pop");
        self.part.planner.get().plan(op, promise)
    }

    /// Returns the number of slots that are never used again, after losses and failed pushes. As
    /// many fewer items may find room. [`Queue::resize`] makes new ones.
    ///
    /// # Errors
    /// See [above](Self#errors).
    pub fn retired_slots(&self) -> Result<u64> {
        self.look_for_retired(&self.ring()?)?;
        Ok(self.retired_count())
    }

    /// Returns the process that has the queue.
    pub fn host(&self) -> ProcessId {
        self.part.host.0
    }

    /// Takes the items that are in the queue now, and drops them.
    ///
    /// # Errors
    /// [`QueueError::NoValue`]; see [above](Self#errors).
    #[track_caller]
    pub fn clear(&self) -> Result<()> {
        let len = self.len()?;
        self.pop_many(len as usize).map(drop)
    }

    #[inline]
    pub(super) fn ring(&self) -> Result<Ring> {
        let ring = self.part.ring.get();
        if ring.capacity == 0 { Err(QueueError::Gone.into()) } else { Ok(ring) }
    }

    /// Returns whether this worker answers the calls of the queue.
    pub(super) fn is_host(&self) -> bool {
        self.part.host.1 == self.me.id()
    }

    /// Returns how the queue is used, by the promise of the present phase, or by that of a call.
    #[inline]
    fn usage(&self, promise: Promise, op: Op) -> Result<Usage> {
        let usage = match self.part.phase.get() {
            Usage::All => Usage::of(promise, op)?,
            phase => Usage::of(phase.promise(), op)?,
        };
        let host = self.part.host.0;
        if usage == Usage::Local && self.me.process() != host {
            return Err(QueueError::NotLocal { host }.into());
        }
        Ok(usage)
    }

    /// Where accesses are checked, meets the operations that the promise excludes.
    #[inline]
    #[track_caller]
    fn announce(&self, ring: &Ring, usage: Usage) -> Result<()> {
        if self.part.are_announced { announced::meet(self.me, usage.promise(), ring.announced()) } else { Ok(()) }
    }

    /// Notes an operation where accesses are checked.
    #[inline]
    #[track_caller]
    fn note(&self, ring: &Ring, op: Op) -> Result<()> {
        if self.part.are_announced { announced::note(self.me, ring.announced(), &[op]) } else { Ok(()) }
    }

    /// Tries until it succeeds or the time has passed. Looks at least once in a `slice` while there
    /// are items or pushes under way.
    fn retry<R>(
        &self,
        time: Duration,
        slice: Duration,
        mut attempt: impl FnMut(&Self) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let mut end = self.me.deadline_after(time);
        loop {
            let ring = self.ring()?;
            let (head, tail) = (ring.head().load(self.me)?, ring.tail().load(self.me)?);
            if let Some(done) = attempt(self)? {
                return Ok(Some(done));
            }
            let left = end.left(self.me);
            if left.is_zero() {
                return Ok(None);
            }
            let slice = if tail > head { slice } else { SLICE };
            let changes = [ring.head().until(Comparison::Ne, head), ring.tail().until(Comparison::Ne, tail)];
            match self.me.wait_any_for(&changes, slice.min(left)) {
                Ok(_) | Err(Error::Deadline { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads an item from the bytes that another worker has written.
    pub(super) fn value(&self, ticket: u64, bytes: &mut [u8]) -> Result<T> {
        if self.implementation() == Implementation::Checksum {
            mask(bytes, ticket);
        }
        try_pod_read_unaligned(bytes).map_err(|_| QueueError::NoValue { ticket }.into())
    }

    /// Returns the items without taking them, while no other worker uses the queue. For the worker
    /// that answers its calls.
    pub(super) fn contents(&self) -> Result<Vec<T>> {
        let ring = self.ring()?;
        if self.implementation() == Implementation::Call {
            return Ok(self.part.items.borrow().iter().copied().collect());
        }
        let tickets = ring.head().load(self.me)?..ring.tail().load(self.me)?;
        tickets.filter_map(|ticket| self.settled(&ring, ticket).transpose()).collect()
    }

    /// Fills the queue, which has got an empty ring, with what [`contents`](Self::contents)
    /// returned.
    pub(super) fn refill(&self, items: Vec<T>) -> Result<()> {
        let ring = self.ring()?;
        self.part.items.borrow_mut().clear();
        if self.implementation() == Implementation::Call {
            return self.take_in(items).map(drop);
        }
        items.iter().try_for_each(|item| self.push_locally(&ring, item).map(drop))
    }

    /// Refuses what a called function cannot wait for. Without this, the call would run and its
    /// result would be lost.
    pub(super) fn may_wait(&self) -> Result<()> {
        let what = "a push or pop of a queue that works by calls";
        self.me.wait_while_serving(|| true).map_err(|error| match error {
            Error::InHandler { .. } => Error::InHandler { what },
            Error::Borrowed { since, .. } => Error::Borrowed { what, since },
            error => error,
        })
    }

    fn push_by_call<I: Wire + IntoIterator<Item = T>>(&self, items: I) -> Result<u64> {
        if self.is_host() {
            return self.take_in(items);
        }
        self.may_wait()?;
        let take_in = |there: &Worker, (queue, items): (Queue<T>, I)| queue.on(there).take_in(items).ok();
        let pushed = self.me.call_return(self.part.host.1, (self.queue, items), take_in)?.wait()?;
        pushed.ok_or(QueueError::Gone.into())
    }

    fn pop_by_call(&self) -> Result<Option<T>> {
        if self.is_host() {
            return self.give_out(1, |mut items| items.next());
        }
        self.may_wait()?;
        let give_out = |there: &Worker, queue: Queue<T>| queue.on(there).give_out(1, |mut items| items.next()).ok();
        let popped = self.me.call_return(self.part.host.1, self.queue, give_out)?.wait()?;
        popped.ok_or(QueueError::Gone.into())
    }

    fn pop_many_by_call(&self, most: usize) -> Result<Vec<T>> {
        if self.is_host() {
            return self.give_out(most, |items| items.collect());
        }
        self.may_wait()?;
        let give_out = |there: &Worker, (queue, most): (Queue<T>, usize)| {
            queue.on(there).give_out(most, |items| items.collect::<Vec<_>>()).ok()
        };
        let popped = self.me.call_return(self.part.host.1, (self.queue, most), give_out)?.wait()?;
        popped.ok_or(QueueError::Gone.into())
    }

    /// Adds items at the worker that has them. The words of the queue count along, for `len` and
    /// for waits.
    fn take_in(&self, items: impl IntoIterator<Item = T>) -> Result<u64> {
        let (ring, mut queue) = (self.ring()?, self.part.items.borrow_mut());
        if self.implementation() != Implementation::Call {
            // The caller gave this call up before the queue chose another way to work.
            return Ok(0);
        }
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
        f.debug_struct("Ends").field("implementation", &self.part.implementation.get()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call that was given up may come after its queue has changed from calls to memory.
    #[test]
    fn a_late_call_adds_no_item() {
        farside::simulate(1, 1, 1, |me| {
            let queue = Queue::<u64>::with_implementation(me, me.process(), 10, Implementation::Call)?;
            let ends = queue.on(me);
            assert_eq!((ends.take_in([1])?, ends.len()?), (1, 1));
            ends.part.implementation.set(Implementation::OneSided);
            assert_eq!((ends.take_in([2])?, ends.len()?), (0, 1));
            queue.free(me)
        })
        .unwrap();
    }
}

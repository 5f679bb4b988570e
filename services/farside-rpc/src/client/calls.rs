//! [`Calls`]: the calls of one connection.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use super::driver::Driver;
use super::incoming::Arrived;
use crate::answer::{BY_BULK, DONE, MORE, STREAMED};
use farside_connect::frame::{Head, Kind};
use farside_connect::table::Table;
use farside_connect::{LinkEnd, lock};

/// The most memory for an answer that is kept for the next one, and how often.
const SPARE_BYTES_MAX: usize = 4096;
const SPARE_MAX: usize = 64;

thread_local! {
    /// Memory of the last answer that this thread has read. The next one passes it on, under a lock
    /// that it takes anyway.
    static LAST: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Keeps the memory of an answer that was read, for another answer.
#[inline]
pub(super) fn recycle(mut body: Vec<u8>) {
    if body.capacity() <= SPARE_BYTES_MAX {
        body.clear();
        LAST.set(body);
    }
}

/// The calls of one connection.
#[derive(Debug, Default)]
pub(super) struct Calls {
    waiting: Mutex<Waiting>,
    /// The number of threads that wait until they may make a call.
    pub(super) wanted: AtomicUsize,
    pub(super) driver: Driver,
    /// The number of one-way calls that have failed. That of the client.
    pub(super) failed: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The calls whose callers have no answer yet.
    slots: Table<Slot>,
    /// The number of those for which the server has more to send.
    under_way: usize,
    /// Memory for further answers.
    spare: Vec<Vec<u8>>,
}

/// A call whose caller has no answer yet.
#[derive(Debug)]
pub(super) struct Slot {
    is_one_way: bool,
    /// True if the server has more to send.
    pub(super) is_under_way: bool,
    /// The answer, with its status.
    pub(super) answer: Option<(u8, Vec<u8>)>,
    /// The items of a stream that have arrived, once the answer has begun one.
    stream: Option<Box<Arrived>>,
    /// The task that waits for the answer, or for items.
    task: Option<Waker>,
    /// The memory that the server may access until a one-way call ends, once the call was left.
    left: Option<Vec<u64>>,
}

/// The news of a frame.
pub(super) enum Heard {
    /// A thread that looks by itself.
    Looks,
    /// A task, which must be woken.
    Task(Waker),
    /// The call was given up.
    GivenUp,
    /// A one-way call, which has this memory exposed.
    Left(Vec<u64>),
}

impl Slot {
    fn heard(&mut self) -> Heard {
        self.task.take().map_or(Heard::Looks, Heard::Task)
    }
}

impl Waiting {
    fn remove(&mut self, number: u64) -> Option<Slot> {
        let slot = self.slots.remove(number)?;
        self.under_way -= usize::from(slot.is_under_way);
        Some(slot)
    }
}

impl Calls {
    /// The calls of a connection of a client that has this count of failures. Its [`Driver`] may
    /// have no thread.
    pub(super) fn counting(failed: Arc<AtomicU64>, has_thread: bool) -> Arc<Self> {
        let driver = if has_thread { Driver::default() } else { Driver::of_others() };
        Arc::new(Self { failed, driver, ..Self::default() })
    }

    /// Adds a call, if fewer than `most` are under way. Returns its number.
    #[inline]
    pub(super) fn add(&self, is_one_way: bool, most: usize) -> Option<u64> {
        let mut waiting = lock(&self.waiting);
        if waiting.under_way >= most {
            return None;
        }
        waiting.under_way += 1;
        let slot = Slot { is_one_way, is_under_way: true, answer: None, stream: None, task: None, left: None };
        Some(waiting.slots.insert(slot))
    }

    /// Removes a call.
    pub(super) fn remove(&self, number: u64) -> Option<Slot> {
        lock(&self.waiting).remove(number)
    }

    /// Takes the answer of a call, if it is there. With it, a call without a stream has ended.
    #[inline]
    pub(super) fn take_answer(&self, number: u64) -> Option<(u8, Vec<u8>)> {
        let mut waiting = lock(&self.waiting);
        let slot = waiting.slots.get(number)?;
        let answer = slot.answer.take()?;
        let ended = if slot.stream.is_none() { waiting.remove(number) } else { None };
        let last = LAST.take();
        if last.capacity() > 0 && waiting.spare.len() < SPARE_MAX {
            waiting.spare.push(last);
        }
        // To drop a task runs code of the program.
        drop(waiting);
        drop(ended);
        Some(answer)
    }

    /// The status of an answer that is there.
    pub(super) fn status(&self, number: u64) -> Option<u8> {
        lock(&self.waiting).slots.get(number)?.answer.as_ref().map(|(status, _)| *status)
    }

    /// Passes what of a stream has arrived to `use_it`.
    pub(super) fn with_arrived<T>(&self, number: u64, use_it: impl FnOnce(&mut Arrived) -> T) -> Option<T> {
        lock(&self.waiting).slots.get(number)?.stream.as_deref_mut().map(use_it)
    }

    /// Leaves a one-way call to itself, with the memory that it has exposed. Returns false if it
    /// has ended.
    pub(super) fn leave(&self, number: u64, exposed: &mut Vec<u64>) -> bool {
        let mut waiting = lock(&self.waiting);
        let Some(slot) = waiting.slots.get(number) else { return false };
        slot.left = Some(std::mem::take(exposed));
        true
    }

    /// Makes `task` the one to wake. Returns false if the answer is there.
    pub(super) fn set_task(&self, number: u64, task: &Waker) -> bool {
        self.set_task_unless(number, task, |slot| slot.answer.is_some())
    }

    /// The same for the next items of a stream.
    pub(super) fn set_task_of_stream(&self, number: u64, task: &Waker) -> bool {
        self.set_task_unless(number, task, |slot| slot.stream.as_ref().is_some_and(|arrived| !arrived.is_empty()))
    }

    fn set_task_unless(&self, number: u64, task: &Waker, is_there: impl FnOnce(&Slot) -> bool) -> bool {
        let mut waiting = lock(&self.waiting);
        let Some(slot) = waiting.slots.get(number).filter(|slot| !is_there(slot)) else { return false };
        if !slot.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            let known = slot.task.replace(task.clone());
            // To drop a task runs code of the program.
            drop(waiting);
            drop(known);
        }
        true
    }

    /// Takes the task that waits for a call.
    pub(super) fn take_task(&self, number: u64) -> Option<Waker> {
        lock(&self.waiting).slots.get(number)?.task.take()
    }

    /// Returns whether no call is under way.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.waiting).under_way == 0
    }

    /// Returns whether a one-way call has no answer.
    pub(super) fn has_one_way(&self) -> bool {
        !lock(&self.waiting).slots.numbers(|slot| slot.left.is_some()).is_empty()
    }

    /// The one-way calls without an answer.
    pub(super) fn one_way(&self) -> Vec<u64> {
        lock(&self.waiting).slots.numbers(|slot| slot.is_one_way)
    }

    /// Keeps the numbers of calls that are still there.
    pub(super) fn retain(&self, numbers: &mut Vec<u64>) {
        let mut waiting = lock(&self.waiting);
        numbers.retain(|number| waiting.slots.get(*number).is_some());
    }

    /// Gives up the one-way calls of a connection that has ended.
    pub(super) fn lose_one_way(&self) {
        let mut waiting = lock(&self.waiting);
        for number in waiting.slots.numbers(|slot| slot.left.is_some()) {
            waiting.remove(number);
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes an `Answer` or an `Item` frame in.
    #[inline]
    pub(super) fn hear(&self, head: Head, body: &[u8]) -> Result<Heard, LinkEnd> {
        let mut waiting = lock(&self.waiting);
        let Waiting { slots, under_way, spare } = &mut *waiting;
        let slot = slots.get(head.id).filter(|slot| slot.is_under_way);
        if head.kind == Kind::Item {
            // There may be items of a stream that was given up.
            let Some(slot) = slot else { return Ok(Heard::Looks) };
            let stream = slot.stream.as_mut().ok_or_else(|| LinkEnd::protocol("items before an answer"))?;
            stream.add(head, body)?;
            slot.is_under_way = head.status == MORE;
            *under_way -= usize::from(!slot.is_under_way);
            return Ok(slot.heard());
        }
        let Some(slot) = slot.filter(|slot| slot.stream.is_none()) else { return Ok(Heard::GivenUp) };
        if slot.is_one_way {
            let exposed = slot.left.take().unwrap_or_default();
            if head.status & !BY_BULK != DONE {
                // A thread in `flush` that no longer finds the call finds its failure.
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
            waiting.remove(head.id);
            return Ok(Heard::Left(exposed));
        }
        let mut bytes = spare.pop().unwrap_or_default();
        bytes.extend_from_slice(body);
        slot.answer = Some((head.status, bytes));
        match head.status & STREAMED {
            0 => {
                slot.is_under_way = false;
                *under_way -= 1;
            }
            _ => slot.stream = Some(Box::default()),
        }
        Ok(slot.heard())
    }
}

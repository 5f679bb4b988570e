//! [`Slots`]: the values of a job, by name.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The number of slots that exist from the beginning.
const FIRST: usize = 256;
/// The bits of a number that tell the slot. The others tell which of the slot's values it is.
const INDEX_BITS: u32 = 22;
/// The number of slots that there can be.
const SLOTS_MAX: u32 = 1 << INDEX_BITS;
/// The number of values that a slot has, one after the other. After that it stays empty, so that no
/// old name ever names a later value.
const VALUES_OF_A_SLOT: u32 = 1 << (u32::BITS - INDEX_BITS);
/// The number of further blocks.
const BLOCKS: usize = (INDEX_BITS - FIRST.ilog2()) as usize;

type Block<V, G> = Box<[Slot<V, G>]>;

/// Values by number. A reader of a value that stays needs no lock.
///
/// The name of a value is its number, changed by a key that differs from job to job. So the name of
/// a value of another job almost always names none.
///
/// The first block is there from the beginning. Each further one has as many slots as all before
/// it, and is made when one of its slots is set.
#[derive(Debug)]
pub(crate) struct Slots<V, G> {
    first: Block<V, G>,
    key: u32,
    later: [OnceLock<Block<V, G>>; BLOCKS],
}

/// Values of a process, for all of its threads.
pub(crate) type Shared<V> = Slots<V, Mutex<Option<V>>>;
/// Values of one worker.
pub(crate) type Locals = Slots<Local, RefCell<Option<Local>>>;

/// The place of one value at a time.
#[derive(Debug)]
struct Slot<V, G> {
    /// The number of values that were removed. Whoever holds `value` changes it; all read it. The
    /// release by [`Slots::remove`] pairs with the acquires of readers.
    removed: AtomicU32,
    /// The present value, if a reference to it was given out that may live as long as the job. Such
    /// a slot has no further value.
    kept: OnceLock<V>,
    value: G,
}

/// The guard of the value of a slot: a lock, or a `RefCell` where only one thread comes.
pub(crate) trait Guard<V>: Default {
    fn with<R>(&self, work: impl FnOnce(&mut Option<V>) -> R) -> R;
}

impl<V> Guard<V> for Mutex<Option<V>> {
    fn with<R>(&self, work: impl FnOnce(&mut Option<V>) -> R) -> R {
        work(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<V> Guard<V> for RefCell<Option<V>> {
    #[inline]
    fn with<R>(&self, work: impl FnOnce(&mut Option<V>) -> R) -> R {
        work(&mut self.borrow_mut())
    }
}

/// A value of any type. Its type is known without a call, unlike that of `Rc<dyn Any>`.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    type_id: TypeId,
    value: Rc<dyn Any>,
}

impl Local {
    pub(crate) fn new<T: 'static>(value: T) -> Self {
        Self { type_id: TypeId::of::<T>(), value: Rc::new(value) }
    }

    /// Returns the value if it has this type.
    #[inline]
    pub(crate) fn downcast_ref<T: 'static>(&self) -> Option<&T> {
        let value: *const dyn Any = &*self.value;
        // SAFETY: the value has the type `T`, and the reference ends before `self`.
        (self.type_id == TypeId::of::<T>()).then(|| unsafe { &*value.cast::<T>() })
    }

    /// Returns the value if it has this type.
    pub(crate) fn downcast<T: 'static>(self) -> Option<Rc<T>> {
        self.value.downcast().ok()
    }
}

impl<V: Clone, G: Guard<V>> Slots<V, G> {
    /// Makes slots with the key of a job.
    pub(crate) fn new(job_id: u64) -> Self {
        // The last steps of splitmix64: job ids may be small numbers.
        let mixed = (job_id ^ job_id >> 31).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let key = (mixed ^ mixed >> 29) as u32;
        Self { first: block(FIRST), key, later: [const { OnceLock::new() }; BLOCKS] }
    }

    /// Returns the name of the value with this number.
    pub(crate) fn name(&self, number: u32) -> u32 {
        number ^ self.key
    }

    /// Returns the number of the value with this name.
    pub(crate) fn number(&self, name: u32) -> u32 {
        name ^ self.key
    }

    /// Returns the value with this name, and keeps it until the slots are dropped.
    #[inline]
    pub(crate) fn keep(&self, name: u32) -> Option<&V> {
        let (slot, nth) = self.find(name)?;
        match slot.kept.get() {
            Some(value) => (slot.removed.load(Ordering::Acquire) == nth).then_some(value),
            None => slot.keep(nth),
        }
    }

    /// Returns the value with this name, without keeping it.
    #[inline]
    pub(crate) fn get(&self, name: u32) -> Option<V> {
        self.look(name, V::clone)
    }

    /// Looks at the value with this name, without keeping it.
    #[inline]
    pub(crate) fn look<R>(&self, name: u32, look: impl FnOnce(&V) -> R) -> Option<R> {
        let (slot, nth) = self.find(name)?;
        slot.at(nth, |value| value.as_ref().map(look)).flatten()
    }

    /// Sets the value with this name, unless it is set.
    pub(crate) fn set_once(&self, name: u32, make: impl FnOnce() -> V) {
        let (index, nth) = parts(self.number(name));
        let slot = self.first.get(index).unwrap_or_else(|| {
            let (number, offset) = place(index);
            &self.later[number].get_or_init(|| block(FIRST << number))[offset]
        });
        slot.at(nth, |value| {
            value.get_or_insert_with(make);
        });
    }

    /// Removes the value with this name, if it is there. Returns whether its slot may have another
    /// one: whether the value was not kept.
    pub(crate) fn remove(&self, name: u32) -> bool {
        let Some((slot, nth)) = self.find(name) else { return false };
        let removed = slot.at(nth, |value| {
            slot.removed.store(nth + 1, Ordering::Release);
            value.take()
        });
        // Not under the guard: the value may use others.
        drop(removed);
        slot.kept.get().is_none()
    }

    /// Returns the slot of a name, and which of its values that is.
    #[inline]
    fn find(&self, name: u32) -> Option<(&Slot<V, G>, u32)> {
        let (index, nth) = parts(self.number(name));
        let slot = match self.first.get(index) {
            Some(slot) => slot,
            None => self.find_later(index)?,
        };
        Some((slot, nth))
    }

    fn find_later(&self, index: usize) -> Option<&Slot<V, G>> {
        let (block, offset) = place(index);
        self.later.get(block)?.get().map(|block| &block[offset])
    }
}

impl<V: Clone, G: Guard<V>> Slot<V, G> {
    /// Runs `work` with the slot if it is that of the value with this number.
    #[inline]
    fn at<R>(&self, nth: u32, work: impl FnOnce(&mut Option<V>) -> R) -> Option<R> {
        self.value.with(|value| (self.removed.load(Ordering::Acquire) == nth).then(|| work(value)))
    }

    /// Keeps the value from now on. Under the guard, so that none is kept that was removed.
    #[cold]
    #[inline(never)]
    fn keep(&self, nth: u32) -> Option<&V> {
        self.at(nth, |value| value.clone().map(|value| self.kept.get_or_init(|| value)))?
    }
}

/// The numbers of the values of one kind. All workers of a job take them and give them back in the
/// same order, and so have the same.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// The number of slots that have had a value.
    used: Cell<u32>,
    /// The numbers of the next values of slots that are empty.
    free: RefCell<VecDeque<u32>>,
}

impl Numbers {
    /// Returns a number for a value, unless all slots are full.
    pub(crate) fn take(&self) -> Option<u32> {
        let again = self.free.borrow_mut().pop_front();
        again.or_else(|| {
            let number = self.used.get();
            self.used.set(number + u32::from(number < SLOTS_MAX));
            (number < SLOTS_MAX).then_some(number)
        })
    }

    /// The number of slots that have had a value.
    pub(crate) fn used(&self) -> u32 {
        self.used.get()
    }

    /// Gives out the numbers of slots behind the first `used` from now on. Workers that do not know
    /// the same agree again by this.
    pub(crate) fn begin_at(&self, used: u32) {
        self.used.set(used);
        self.free.borrow_mut().clear();
    }

    /// Takes back the number of a value that is removed everywhere.
    pub(crate) fn give_back(&self, number: u32) {
        if number >> INDEX_BITS < VALUES_OF_A_SLOT - 1 {
            self.free.borrow_mut().push_back(number + SLOTS_MAX);
        }
    }
}

/// The number of values of one kind that there can be at a time.
pub(crate) const VALUES_MAX: usize = SLOTS_MAX as usize;

fn block<V, G: Default>(slots: usize) -> Block<V, G> {
    let slot = || Slot { removed: AtomicU32::new(0), kept: OnceLock::new(), value: G::default() };
    (0..slots).map(|_| slot()).collect()
}

/// Returns the slot of a number, and which of its values that is.
#[inline]
fn parts(number: u32) -> (usize, u32) {
    ((number % SLOTS_MAX) as usize, number / SLOTS_MAX)
}

/// Returns the later block of a slot, and its offset in it. Block `b` begins at `FIRST << b`.
fn place(index: usize) -> (usize, usize) {
    let block = (index / FIRST).ilog2() as usize;
    (block, index - (FIRST << block))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn each_number_has_a_slot_of_its_own() {
        let slots = Shared::new(1);
        for number in (0..5000).rev() {
            let name = slots.name(number);
            assert_eq!(slots.get(name), None);
            slots.set_once(name, || number);
            slots.set_once(name, || unreachable!("it is set"));
        }
        for number in 0..5000 {
            let name = slots.name(number);
            assert_eq!((slots.get(name), slots.keep(name)), (Some(number), Some(&number)));
        }
        for unknown in [5000, SLOTS_MAX - 1, SLOTS_MAX, u32::MAX] {
            assert_eq!(slots.keep(slots.name(unknown)), None);
        }
    }

    #[test]
    fn names_of_other_jobs_name_nothing() {
        for job_id in 0..100 {
            let (slots, other) = (Shared::new(job_id), Shared::<u32>::new(job_id + 1));
            for number in 0..300 {
                slots.set_once(slots.name(number), || number);
                assert_eq!(slots.get(other.name(number)), None, "job {job_id}");
            }
        }
    }

    /// A slot has one value after the other, and an old name never names a later one. The value of
    /// a reference that was given out stays.
    #[test]
    fn slots_come_back_and_names_do_not() {
        let (slots, numbers) = (Shared::new(7), Numbers::default());
        let mut names = Vec::new();
        for round in 0..3 * VALUES_OF_A_SLOT {
            let number = numbers.take().unwrap();
            let (name, value) = (slots.name(number), Arc::new(round));
            slots.set_once(name, || value.clone());
            assert_eq!(slots.get(name).as_deref(), Some(&round));
            assert!(slots.remove(name) && slots.get(name).is_none());
            assert_eq!(Arc::strong_count(&value), 1, "the value was dropped");
            numbers.give_back(number);
            names.push(name);
        }
        assert_eq!(numbers.used.get(), 3, "a slot for each {VALUES_OF_A_SLOT} values");
        let all = names.len();
        assert!(names.iter().all(|name| slots.get(*name).is_none() && slots.keep(*name).is_none()));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);

        let name = slots.name(numbers.take().unwrap());
        slots.set_once(name, || Arc::new(8));
        let kept = slots.keep(name).unwrap();
        assert!(!slots.remove(name), "it is kept");
        assert_eq!((**kept, slots.keep(name), slots.get(name)), (8, None, None));
    }

    #[test]
    fn a_local_value_has_one_type() {
        let local = Local::new(7_u32);
        assert_eq!((local.downcast_ref::<u32>(), local.downcast_ref::<i32>()), (Some(&7), None));
        assert_eq!((local.clone().downcast::<i32>(), local.downcast()), (None, Some(Rc::new(7_u32))));
    }
}

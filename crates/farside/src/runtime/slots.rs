//! [`Slots`]: the values of a job, by name.

use std::any::{Any, TypeId};
use std::sync::OnceLock;

/// The number of slots that exist from the beginning.
const FIRST: usize = 256;
/// The number of further blocks. The last ones are larger than any memory.
const BLOCKS: usize = 40;

type Block<V> = Box<[OnceLock<V>]>;

/// Values by number, each set once. A value stays where it is, so a reader needs no lock.
///
/// The name of a value is its number, changed by a key that differs from job to job. So the name of
/// a value of another job almost always names none.
///
/// The first block is there from the beginning. Each further one has as many slots as all before
/// it, and is made when one of its slots is set.
#[derive(Debug)]
pub(crate) struct Slots<V> {
    first: Block<V>,
    key: u32,
    later: [OnceLock<Block<V>>; BLOCKS],
}

/// A value of any type. Its type is told without a call, as that of `Box<dyn Any>` is not.
#[derive(Debug)]
pub(crate) struct Local {
    type_id: TypeId,
    value: Box<dyn Any>,
}

impl Local {
    pub(crate) fn new<T: 'static>(value: T) -> Self {
        Self { type_id: TypeId::of::<T>(), value: Box::new(value) }
    }

    /// Returns the value if it has this type.
    #[inline]
    pub(crate) fn downcast_ref<T: 'static>(&self) -> Option<&T> {
        let value: *const dyn Any = &*self.value;
        // SAFETY: the value has the type `T`, and the reference ends before `self`.
        (self.type_id == TypeId::of::<T>()).then(|| unsafe { &*value.cast::<T>() })
    }
}

impl<V> Slots<V> {
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

    /// Returns the value with this name, if it was set.
    #[inline]
    pub(crate) fn get(&self, name: u32) -> Option<&V> {
        let number = (name ^ self.key) as usize;
        match self.first.get(number) {
            Some(slot) => slot.get(),
            None => self.get_later(number),
        }
    }

    fn get_later(&self, number: usize) -> Option<&V> {
        let (block, offset) = place(number);
        self.later.get(block)?.get()?[offset].get()
    }

    /// Sets the value with this name, unless it is set.
    pub(crate) fn set_once(&self, name: u32, make: impl FnOnce() -> V) {
        let number = (name ^ self.key) as usize;
        let slot = self.first.get(number).unwrap_or_else(|| {
            let (number, offset) = place(number);
            &self.later[number].get_or_init(|| block(FIRST << number))[offset]
        });
        slot.get_or_init(make);
    }
}

fn block<V>(slots: usize) -> Block<V> {
    (0..slots).map(|_| OnceLock::new()).collect()
}

/// Returns the later block of a slot, and its offset in it. Block `b` begins at `FIRST << b`.
fn place(number: usize) -> (usize, usize) {
    let block = (number / FIRST).ilog2() as usize;
    (block, number - (FIRST << block))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_a_slot_of_its_own() {
        let slots = Slots::new(1);
        for number in (0..5000).rev() {
            let name = slots.name(number);
            assert_eq!(slots.get(name), None);
            slots.set_once(name, || number);
            slots.set_once(name, || unreachable!("it is set"));
        }
        for number in 0..5000 {
            assert_eq!(slots.get(slots.name(number)), Some(&number));
        }
        assert_eq!(slots.get(slots.name(5000)), None);
        assert_eq!(slots.get(slots.name(u32::MAX)), None);
    }

    #[test]
    fn names_of_other_jobs_name_nothing() {
        for job_id in 0..100 {
            let (slots, other) = (Slots::new(job_id), Slots::<u32>::new(job_id + 1));
            for number in 0..300 {
                slots.set_once(slots.name(number), || number);
                assert_eq!(slots.get(other.name(number)), None, "job {job_id}");
            }
        }
    }

    #[test]
    fn a_local_value_has_one_type() {
        let local = Local::new(7_u32);
        assert_eq!((local.downcast_ref::<u32>(), local.downcast_ref::<i32>()), (Some(&7), None));
    }
}

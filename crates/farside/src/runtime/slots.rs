//! [`Slots`]: values by number.

use std::sync::OnceLock;

/// The number of slots that exist from the beginning.
const FIRST: usize = 256;
/// The number of further blocks. The last ones are larger than any memory.
const BLOCKS: usize = 40;

type Block<V> = Box<[OnceLock<V>]>;

/// Values by number, each set once. A value stays where it is, so a reader needs no lock.
///
/// The first block is there from the beginning. Each further one has as many slots as all before
/// it, and is made when one of its slots is set.
#[derive(Debug)]
pub(crate) struct Slots<V> {
    first: Block<V>,
    later: [OnceLock<Block<V>>; BLOCKS],
}

impl<V> Slots<V> {
    pub(crate) fn new() -> Self {
        Self { first: block(FIRST), later: [const { OnceLock::new() }; BLOCKS] }
    }

    /// Returns the value with this number, if it was set.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<&V> {
        match self.first.get(number) {
            Some(slot) => slot.get(),
            None => self.get_later(number),
        }
    }

    fn get_later(&self, number: usize) -> Option<&V> {
        let (block, offset) = place(number);
        self.later.get(block)?.get()?[offset].get()
    }

    /// Sets the value with this number, unless it is set.
    ///
    /// # Panics
    /// If the number is larger than any count of values in memory.
    pub(crate) fn set_once(&self, number: usize, make: impl FnOnce() -> V) {
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
        let slots = Slots::new();
        for number in (0..5000).rev() {
            assert_eq!(slots.get(number), None);
            slots.set_once(number, || number);
            slots.set_once(number, || unreachable!("it is set"));
        }
        for number in 0..5000 {
            assert_eq!(slots.get(number), Some(&number));
        }
        assert_eq!(slots.get(5000), None);
        assert_eq!(slots.get(usize::MAX), None);
    }
}

//! [`Table`]: values under numbers that a peer may repeat, invent or use too late.

/// Values under numbers. A number is an index and a generation, so that the number of a removed
/// value does not find its successor.
#[derive(Debug)]
pub struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Table<T> {
    /// Adds a value and returns its number, which is never 0.
    pub fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            u32::try_from(self.slots.len() - 1).expect("memory holds fewer values")
        });
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1).max(1);
        slot.value = Some(value);
        u64::from(slot.generation) << 32 | u64::from(index)
    }

    /// The value with this number.
    pub fn get(&mut self, number: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut(index(number))?;
        slot.value.as_mut().filter(|_| u64::from(slot.generation) == number >> 32)
    }

    /// Removes the value with this number.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        self.get(number)?;
        self.free.push(number as u32);
        self.slots[index(number)].value.take()
    }

    /// The numbers of the values for which `is_meant` returns true.
    pub fn numbers(&self, is_meant: impl Fn(&T) -> bool) -> Vec<u64> {
        let occupied = (0..).zip(&self.slots).filter(|(_, slot)| slot.value.as_ref().is_some_and(&is_meant));
        occupied.map(|(index, slot)| u64::from(slot.generation) << 32 | index).collect()
    }

    /// All values.
    pub(crate) fn values(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }

    /// Removes all values.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let occupied = (0..).zip(&mut self.slots).filter_map(|(index, slot)| Some((index, slot.value.take()?)));
        let (indices, values): (Vec<u32>, _) = occupied.unzip();
        self.free.extend(indices);
        values
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// The index in a number.
pub(crate) fn index(number: u64) -> usize {
    number as u32 as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_finds_its_value_until_that_is_removed() {
        let mut table = Table::default();
        let first = table.insert('a');
        let second = table.insert('b');
        assert_eq!(table.len(), 2);
        assert_eq!(table.get(first), Some(&mut 'a'));
        assert_eq!(table.remove(first), Some('a'));
        let third = table.insert('c');
        assert_eq!(index(third), index(first));
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(third), Some(&mut 'c'));
        assert_eq!(table.numbers(|_| true), [third, second]);
        assert_eq!(table.numbers(|value| *value == 'b'), [second]);
        assert_eq!(table.drain(), ['c', 'b']);
        assert_eq!(table.get(second), None);
        assert_eq!(table.get(u64::MAX), None);
        assert_eq!(table.len(), 0);
    }
}

//! Random updates of a table by the rules of HPCC's *RandomAccess*. A stream of pseudo-random
//! numbers goes over all words of a table: each number is xored into the word that its low bits
//! name. There are four updates for each word. A process looks at most 1024 updates ahead.

use std::cell::Cell;
use std::rc::Rc;

use farside::Distribution;
use farside::prelude::*;
use farside_containers::Items;

use super::common::Clock;

/// The most updates that a process has generated and not yet made.
const AHEAD_MAX: u32 = 1024;

/// The stream: multiplication by x of polynomials over GF(2), modulo x⁶⁴ + x² + x + 1.
fn following(x: u64) -> u64 {
    (x << 1) ^ if x >> 63 == 1 { 7 } else { 0 }
}

/// The number of the stream at a place: that power of x.
fn number_at(place: u64) -> u64 {
    let product =
        |a: u64, b: u64| (0..64).rev().fold(0, |sum, bit| following(sum) ^ if b >> bit & 1 == 1 { a } else { 0 });
    (0..64).rev().fold(1, |power, bit| {
        let square = product(power, power);
        if place >> bit & 1 == 1 { following(square) } else { square }
    })
}

/// The numbers of the stream behind a place.
fn stream(place: u64, count: u64) -> impl Iterator<Item = u64> {
    let mut x = number_at(place);
    (0..count).map(move |_| {
        x = following(x);
        x
    })
}

/// The table: a power of two words, which go round robin over a power of two workers.
#[derive(Clone, Copy)]
struct Table {
    words: u64,
    updates: u64,
    workers: u64,
    own: u64,
}

impl Table {
    fn new(me: &Worker, [words, updates_per_word]: [u32; 2]) -> Self {
        let workers = u64::from(me.worker_count());
        assert!(workers.is_power_of_two(), "the low bits of a number name the owner");
        let words = workers << words.ilog2();
        Self { words, updates: words * u64::from(updates_per_word), workers, own: me.id().number().into() }
    }

    /// The updates that this worker makes.
    fn own_updates(self) -> impl Iterator<Item = u64> {
        let count = self.updates / self.workers;
        stream(self.own * count, count)
    }

    /// The index of the word that is updated.
    fn index(self, update: u64) -> u64 {
        update & (self.words - 1)
    }

    /// The owner of that word.
    fn owner(self, update: u64) -> u64 {
        update & (self.workers - 1)
    }

    /// The place of that word at its owner.
    fn place(self, update: u64) -> usize {
        (self.index(update) >> self.workers.trailing_zeros()) as usize
    }

    /// This worker's part of the table at first: every word is its index.
    fn part(self) -> impl Iterator<Item = u64> {
        (self.own..self.words).step_by(self.workers as usize)
    }

    /// Makes the updates of all workers again, which undoes them, and compares this worker's part
    /// with what it was at first. The rules allow errors in 1 % of the words; here is none.
    fn check(self, mut part: Vec<u64>) {
        for update in stream(0, self.updates).filter(|update| self.owner(*update) == self.own) {
            part[self.place(update)] ^= update;
        }
        assert!(part.into_iter().eq(self.part()), "no update was lost");
    }
}

/// One word at a time, with atomics.
pub(crate) fn agp(me: &Worker, numbers: [u32; 2], clock: &Clock<'_>) -> farside::Result<()> {
    let table = Table::new(me, numbers);
    let words = me.global_array_as::<u64>(table.words as usize, Distribution::CYCLIC)?;
    let clear = || words.local(me).write(0, &Vec::from_iter(table.part()));
    let work = |_| {
        for update in table.own_updates() {
            words.at(table.index(update) as usize)?.fetch_xor(me, update)?;
        }
        me.barrier()?;
        Ok(table.updates / table.workers)
    };
    let check = |_| {
        table.check(words.local(me).to_vec());
        clear();
        Ok(())
    };
    clear();
    clock.time(me, work, check)?;
    words.free(me)
}

/// With an exchange. All updates of a window have been made before the next one begins, so those
/// that travel count as stored by their sender.
pub(crate) fn exchange(me: &Worker, numbers: [u32; 2], clock: &Clock<'_>) -> farside::Result<()> {
    let table = Table::new(me, numbers);
    let words: Rc<Vec<Cell<u64>>> = Rc::new(table.part().map(Cell::new).collect());
    let part = words.clone();
    let update_own = move |update| {
        let word = &part[table.place(update)];
        word.set(word.get() ^ update);
    };
    let own = update_own.clone();
    let updating = clock.exchange(me, move |_, updates: Items<'_, u64>| updates.for_each(&own))?;
    let work = |_| {
        let (sender, mut updates) = (updating.on(me), table.own_updates());
        let windows = (table.updates / table.workers).div_ceil(window(me));
        for _ in 0..windows {
            for update in updates.by_ref().take(window(me) as usize) {
                match table.owner(update) {
                    owner if owner == table.own => update_own(update),
                    owner => sender.push(WorkerId::new(owner as u32), update)?,
                }
            }
            me.quiesce()?;
        }
        Ok(table.updates / table.workers)
    };
    let check = |_| {
        table.check(words.iter().map(Cell::get).collect());
        words.iter().zip(table.part()).for_each(|(word, first)| word.set(first));
        Ok(())
    };
    clock.time(me, work, check)
}

/// The updates of a worker that may be stored at a time.
fn window(me: &Worker) -> u64 {
    u64::from(AHEAD_MAX / me.threads_per_process()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic = "no update was lost"]
    fn a_lost_update_is_found() {
        let table = Table { words: 64, updates: 256, workers: 1, own: 0 };
        let updated = |made: u64| {
            let mut part: Vec<u64> = table.part().collect();
            stream(0, made).for_each(|update| part[table.place(update)] ^= update);
            part
        };
        table.check(updated(table.updates));
        table.check(updated(table.updates - 1));
    }

    #[test]
    fn the_stream_can_be_entered_anywhere() {
        // The powers of x, of which the 64th is x² + x + 1.
        assert!(stream(0, 3).eq([2, 4, 8]));
        assert_eq!(stream(0, 64).last(), Some(7));
        let numbers: Vec<_> = stream(0, 1000).collect();
        for place in [1, 63, 64, 65, 500, 998] {
            assert!(stream(place, 1000 - place).eq(numbers[place as usize..].iter().copied()));
        }
    }
}

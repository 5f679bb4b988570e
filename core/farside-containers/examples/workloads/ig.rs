//! Index gather (bale's *ig*): every worker reads random words of a table that is spread over all
//! workers. Once one word at a time, and once with a query.

use std::cell::RefCell;
use std::rc::Rc;

use farside::prelude::*;
use farside_containers::Query;

use super::common::{Clock, Random, owned, place};

/// The words of the table that this worker reads.
fn indices(me: &Worker, seed: u32, [reads, words]: [u32; 2]) -> Vec<u32> {
    let mut random = Random::new(seed, me.id().number());
    (0..reads).map(|_| random.below(words * me.worker_count())).collect()
}

/// The value of a word of the table.
fn value(index: u32) -> u64 {
    3 * u64::from(index) + 1
}

/// Checks what was read, and clears it for the next round.
fn check(indices: &[u32], target: &mut [u64]) -> farside::Result<()> {
    assert!(indices.iter().zip(&*target).all(|(index, read)| *read == value(*index)), "every word is the right one");
    target.fill(0);
    Ok(())
}

/// One word at a time.
pub(crate) fn agp(me: &Worker, numbers: [u32; 2], clock: &Clock<'_>) -> farside::Result<()> {
    let table = me.global_array::<u64>(numbers[1] as usize * me.worker_count() as usize)?;
    for (place, index) in table.local_indices(me).enumerate() {
        table.local(me).set(place, value(index as u32));
    }
    let indices = indices(me, clock.settings.seed, numbers);
    let target = RefCell::new(vec![0; indices.len()]);
    let work = |_| {
        for (read, index) in target.borrow_mut().iter_mut().zip(&indices) {
            *read = table.get(me, *index as usize)?;
        }
        me.barrier()?;
        Ok(indices.len() as u64)
    };
    clock.time(me, work, |_| check(&indices, &mut target.borrow_mut()))?;
    table.free(me)
}

/// With a query: each worker reads its own part, for all workers.
pub(crate) fn exchange(me: &Worker, numbers: [u32; 2], clock: &Clock<'_>) -> farside::Result<()> {
    let part: Vec<u64> = owned(me, numbers[1] * me.worker_count()).map(value).collect();
    let indices = indices(me, clock.settings.seed, numbers);
    let target = Rc::new(RefCell::new(vec![0; indices.len()]));
    let taken = target.clone();
    let query = Query::new(
        me,
        move |_, word: u32| part[word as usize],
        move |_, read, value: u64| taken.borrow_mut()[read as usize] = value,
    )?;
    // Made before the clock starts, as bale does.
    let places: Vec<_> = indices.iter().map(|index| place(me, *index)).collect();
    let work = |_| {
        let asker = query.on(me);
        for (read, (owner, word)) in (0..).zip(&places) {
            asker.ask(*owner, read, *word)?;
        }
        me.quiesce()?;
        Ok(places.len() as u64)
    };
    clock.time(me, work, |_| check(&indices, &mut target.borrow_mut()))
}

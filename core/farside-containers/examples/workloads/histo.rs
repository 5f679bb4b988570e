//! A distributed histogram (bale's *histo*): every worker adds 1 to random words of a table that is
//! spread over all workers. Once one word at a time, with atomics, and once with an exchange.

use std::cell::RefCell;
use std::rc::Rc;

use farside::prelude::*;
use farside_containers::Items;

use super::common::{Clock, Random, owned, place};

/// The words of the table that a worker adds to.
fn indices(me: &Worker, seed: u32, worker: u32, [updates, words]: [u32; 2]) -> impl Iterator<Item = u32> + use<> {
    let all_words = words * me.worker_count();
    let mut random = Random::new(seed, worker);
    (0..updates).map(move |_| random.below(all_words))
}

/// Counts again how often each word of this worker is hit in a round.
fn recount(me: &Worker, seed: u32, numbers: [u32; 2]) -> Vec<u64> {
    let mut counts = vec![0; numbers[1] as usize];
    for index in (0..me.worker_count()).flat_map(|worker| indices(me, seed, worker, numbers)) {
        let (owner, word) = place(me, index);
        counts[word as usize] += u64::from(owner == me.id());
    }
    counts
}

/// One word at a time.
pub(crate) fn agp(me: &Worker, numbers: [u32; 2], clock: &Clock<'_>) -> farside::Result<()> {
    let table = me.global_array::<u64>(numbers[1] as usize * me.worker_count() as usize)?;
    let seed = clock.settings.seed;
    let indices = Vec::from_iter(indices(me, seed, me.id().number(), numbers));
    let expected = recount(me, seed, numbers);
    let work = |_| {
        for index in &indices {
            table.at(*index as usize)?.fetch_add(me, 1)?;
        }
        me.barrier()?;
        Ok(indices.len() as u64)
    };
    let check = |round| {
        for (index, count) in owned(me, table.len() as u32).zip(&expected) {
            assert_eq!(table.get(me, index as usize)?, u64::from(round + 1) * count, "word {index}");
        }
        Ok(())
    };
    clock.time(me, work, check)?;
    table.free(me)
}

/// With an exchange: each worker adds to its own part, for all workers.
pub(crate) fn exchange(me: &Worker, numbers: [u32; 2], clock: &Clock<'_>) -> farside::Result<()> {
    let own = Rc::new(RefCell::new(vec![0_u64; numbers[1] as usize]));
    let part = own.clone();
    let counting = clock.exchange(me, move |_, words: Items<'_, u32>| {
        let mut part = part.borrow_mut();
        words.for_each(|word| part[word as usize] += 1);
    })?;
    // Made before the clock starts, as bale does.
    let seed = clock.settings.seed;
    let places: Vec<_> = indices(me, seed, me.id().number(), numbers).map(|index| place(me, index)).collect();
    let expected = recount(me, seed, numbers);
    let work = |_| {
        let sender = counting.on(me);
        for (owner, word) in &places {
            sender.push(*owner, *word)?;
        }
        me.quiesce()?;
        Ok(places.len() as u64)
    };
    let check = |round| {
        let is_right = own.borrow().iter().zip(&expected).all(|(found, count)| *found == u64::from(round + 1) * count);
        assert!(is_right, "every word was counted");
        Ok(())
    };
    clock.time(me, work, check)
}

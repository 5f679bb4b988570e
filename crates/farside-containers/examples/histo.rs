//! A distributed histogram (bale's *histo*): every worker adds 1 to random words of a table that is
//! spread over all workers. Once one word at a time, with atomics, and once with an exchange.
//!
//! ```sh
//! cargo run --release -p farside-containers --example histo -- UPDATES WORDS
//! ```
//!
//! Both numbers count for each worker; the defaults are 5,000,000 and 10,000.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::{Random, arguments, timed};
use farside::prelude::*;
use farside_containers::{Exchange, Items};

fn main() -> farside::Result<()> {
    let [updates, words] = arguments([5_000_000, 10_000]);
    farside::job().processes(2).run(|me| {
        let workers = me.worker_count();
        let all_words = u64::from(words) * u64::from(workers);
        let mut random = Random::of(me);
        let indices: Vec<u64> = (0..updates).map(|_| random.below(all_words)).collect();
        let check_sum = |round: u32, own_sum: u64| {
            let sum = me.all_reduce(own_sum, |a, b| a + b)?;
            assert_eq!(sum, u64::from(round * workers) * u64::from(updates));
            Ok(())
        };

        // One word at a time.
        let table = me.global_array::<u64>(all_words as usize)?;
        let agp = || {
            for index in &indices {
                table.at(*index as usize)?.fetch_add(me, 1)?;
            }
            me.barrier()
        };
        timed(me, "agp", updates, agp, |round| check_sum(round, table.local(me).iter().sum()))?;

        // With an exchange: each worker adds to its own part, for all workers.
        let own = Rc::new(RefCell::new(vec![0_u64; words as usize]));
        let part = own.clone();
        let counting = Exchange::new(me, move |_, words: Items<'_, u32>| {
            let mut part = part.borrow_mut();
            words.for_each(|word| part[word as usize] += 1);
        })?;
        // Who owns an index, and where it is there, made before the clock starts, as bale does.
        let places: Vec<(u32, u32)> = indices
            .iter()
            .map(|index| ((index % u64::from(workers)) as u32, (index / u64::from(workers)) as u32))
            .collect();
        let exchange = || {
            let sender = counting.on(me);
            for (owner, word) in &places {
                sender.push(WorkerId::new(*owner), *word)?;
            }
            me.quiesce()
        };
        timed(me, "exchange", updates, exchange, |round| check_sum(round, own.borrow().iter().sum()))?;

        // Both forms have counted the same.
        for (word, count) in own.borrow().iter().enumerate() {
            let index = word * workers as usize + me.id().index();
            assert_eq!(table.get(me, index)?, *count, "word {index}");
        }
        table.free(me)
    })
}

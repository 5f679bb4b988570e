//! Index gather (bale's *ig*): every worker reads random words of a table that is spread over all
//! workers. Once one word at a time, and once with a query.
//!
//! ```sh
//! cargo run --release -p farside-containers --example ig -- READS WORDS
//! ```
//!
//! Both numbers count for each worker; the defaults are 5,000,000 and 10,000.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::{Random, arguments, timed};
use farside::prelude::*;
use farside_containers::Query;

/// The value of a word of the table.
fn value(index: u64) -> u64 {
    3 * index + 1
}

fn main() -> farside::Result<()> {
    let [reads, words] = arguments([5_000_000, 10_000]);
    farside::job().processes(2).run(|me| {
        let workers = u64::from(me.worker_count());
        let all_words = u64::from(words) * workers;
        let mut random = Random::of(me);
        let indices: Vec<u64> = (0..reads).map(|_| random.below(all_words)).collect();
        let target = Rc::new(RefCell::new(vec![0_u64; indices.len()]));
        let check = |_| {
            let is_right = indices.iter().zip(&*target.borrow()).all(|(index, read)| *read == value(*index));
            assert!(is_right, "every word is the right one");
            target.borrow_mut().fill(0);
            Ok(())
        };

        // One word at a time.
        let table = me.global_array::<u64>(all_words as usize)?;
        for (place, index) in table.local_indices(me).enumerate() {
            table.local(me).set(place, value(index as u64));
        }
        let agp = || {
            for (read, index) in target.borrow_mut().iter_mut().zip(&indices) {
                *read = table.get(me, *index as usize)?;
            }
            me.barrier()
        };
        timed(me, "agp", reads, agp, check)?;
        table.free(me)?;

        // With a query: each worker reads its own part, for all workers.
        let own = u64::from(me.id().number());
        let part: Vec<u64> = (0..u64::from(words)).map(|word| value(word * workers + own)).collect();
        let taken = target.clone();
        let query = Query::new(
            me,
            move |_, word: u32| part[word as usize],
            move |_, place, read: u64| taken.borrow_mut()[place as usize] = read,
        )?;
        // Who owns an index, and where it is there, made before the clock starts, as bale does.
        let places: Vec<(u32, u32)> =
            indices.iter().map(|index| ((index % workers) as u32, (index / workers) as u32)).collect();
        let exchange = || {
            let asker = query.on(me);
            for (tag, (owner, word)) in (0..).zip(&places) {
                asker.ask(WorkerId::new(*owner), tag, *word)?;
            }
            me.quiesce()
        };
        timed(me, "exchange", reads, exchange, check)
    })
}

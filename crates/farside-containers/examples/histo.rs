//! A distributed histogram (bale's *histo*): every worker adds 1 to random words of a table that is
//! spread over all workers, one word at a time and with an exchange.
//!
//! ```sh
//! cargo run --release -p farside-containers --example histo -- 5000000 10000
//! ```

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use farside::prelude::*;
use farside_containers::Exchange;

/// One step of a generator of random numbers (splitmix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut x = *state;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn main() -> farside::Result<()> {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<u32>().expect("the arguments are numbers"));
    let updates = arguments.next().unwrap_or(5_000_000);
    let words = arguments.next().unwrap_or(10_000);
    farside::job().processes(2).run(|me| {
        let workers = me.worker_count();
        let mut seed = u64::from(me.id().number());
        // The owner of each word and its place there, made before the clock starts.
        let at: Vec<(u32, u32)> = (0..updates)
            .map(|_| random(&mut seed) % (u64::from(words) * u64::from(workers)))
            .map(|word| ((word % u64::from(workers)) as u32, (word / u64::from(workers)) as u32))
            .collect();

        let part = Rc::new(RefCell::new(vec![0_u64; words as usize]));
        let counts = part.clone();
        let counting = Exchange::new(me, move |_, words: std::vec::Drain<'_, u32>| {
            let mut counts = counts.borrow_mut();
            words.for_each(|word| counts[word as usize] += 1);
        })?;
        for round in 1..=3 {
            me.barrier()?;
            let begun = Instant::now();
            let sender = counting.on(me);
            for (owner, word) in &at {
                sender.push(WorkerId::new(*owner), *word)?;
            }
            me.quiesce()?;
            let exchange = me.all_reduce(begun.elapsed().as_secs_f64(), |a, b| a + b)? / f64::from(workers);
            let counted = me.all_reduce(part.borrow().iter().sum(), |a: u64, b| a + b)?;
            assert_eq!(counted, round * u64::from(updates) * u64::from(workers));
            if me.id() == WorkerId::new(0) {
                println!("exchange: {:.1} million updates a second and worker", f64::from(updates) / exchange / 1e6);
            }
        }
        me.barrier()
    })
}

//! Records what a real program allocates: a search for Hex by four workers of a simulated job. It writes the trace that `farside bench
//! heap-policy` replays:
//!
//! `cargo run --release -p farside-mcts --example record_allocations > crates/farside-bench/src/benches/heap_policy/recorded.txt`
//!
//! A line `+N` is an allocation of N bytes, a line `-K` the end of that which was made K allocations before the latest. Those that live on
//! have no end. Of what the program allocates, all sizes are recorded that a heap of blocks is for: up to 64 KiB.
//!
//! All the search's processes are in this one, and one thread runs at a time. So the order is one order, and the same each time, but for what the
//! standard library does with its threads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use farside::Worker;
use farside_mcts::games::hex::Hex;
use farside_mcts::{Budget, Game, OnJob, Params, Search};

const EVENTS_MAX: usize = 8_000;
const BYTES_MAX: usize = 64 << 10;
/// Before the recording begins, so that it is of the search and not of its beginning.
const ROLLOUTS_BEFORE: u64 = 2_000;
const ROLLOUTS: u64 = 100_000;

/// An address, and how many bytes were allocated there, or 0 for the end.
struct Event(AtomicU64, AtomicU64);

static EVENTS: [Event; EVENTS_MAX] = [const { Event(AtomicU64::new(0), AtomicU64::new(0)) }; EVENTS_MAX];
static COUNT: AtomicUsize = AtomicUsize::new(0);
static RECORDS: AtomicBool = AtomicBool::new(false);

struct Recorder;

fn note(address: *mut u8, bytes: usize) {
    if RECORDS.load(Ordering::Relaxed)
        && let Some(event) = EVENTS.get(COUNT.fetch_add(1, Ordering::Relaxed))
    {
        event.0.store(address.addr() as u64, Ordering::Relaxed);
        event.1.store(bytes as u64, Ordering::Relaxed);
    }
}

// SAFETY: the system's allocator does it, and all that is added changes nothing of it and allocates nothing.
unsafe impl GlobalAlloc for Recorder {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on.
        let address = unsafe { System.alloc(layout) };
        if !address.is_null() && layout.size() <= BYTES_MAX {
            note(address, layout.size());
        }
        address
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // Before the place can be another's.
        if layout.size() <= BYTES_MAX {
            note(address, 0);
        }
        // SAFETY: passed on.
        unsafe { System.dealloc(address, layout) };
    }
}

#[global_allocator]
static RECORDER: Recorder = Recorder;

fn main() -> farside::Result<()> {
    farside::simulate(2, 2, 1, |me: &Worker| {
        let hex = || Hex::new(11).expect("a size that boards may have");
        for rollouts in [ROLLOUTS_BEFORE, ROLLOUTS] {
            me.barrier()?;
            RECORDS.store(rollouts == ROLLOUTS, Ordering::Relaxed);
            let mut search = Search::new(hex()).params(Params { seed: 1, ..Params::default() }).on(OnJob::new(me)?);
            search.run(&hex().initial(), Budget::Rollouts(rollouts))?;
        }
        Ok(())
    })?;
    RECORDS.store(false, Ordering::Relaxed);
    // By address, which allocation it is.
    let mut live = HashMap::new();
    let mut allocations = 0;
    for Event(address, bytes) in &EVENTS[..COUNT.load(Ordering::Relaxed).min(EVENTS_MAX)] {
        match (address.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed)) {
            (address, 0) => {
                if let Some(number) = live.remove(&address) {
                    println!("-{}", allocations - number);
                }
            }
            (address, bytes) => {
                allocations += 1;
                live.insert(address, allocations);
                println!("+{bytes}");
            }
        }
    }
    Ok(())
}

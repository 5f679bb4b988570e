//! Records the allocations of a real program, a search of Hex by four workers of a simulated job,
//! and writes the trace that `farside bench heap-policy` replays:
//!
//! ```sh
//! cargo run --release -p farside-mcts --example record_allocations \
//!     > apps/farside-bench/src/benches/heap_policy/recorded.txt
//! ```
//!
//! A line `+N` is an allocation of N bytes. A line `-K` frees the allocation K before the latest.
//! The trace contains allocations of up to 64 KiB, the sizes of a heap of blocks.
//!
//! The simulation runs all processes of the search in this one, and one thread at a time. So the
//! order is the same each time, except for allocations of the standard library for its threads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use farside::Worker;
use farside_mcts::games::hex::Hex;
use farside_mcts::{Budget, Game, OnJob, Params, Search};

const EVENTS_MAX: usize = 8_000;
const BYTES_MAX: usize = 64 << 10;
/// Number of rollouts before the recording, so that it does not contain the start of the search.
const ROLLOUTS_BEFORE: u64 = 2_000;
const ROLLOUTS: u64 = 100_000;

/// An address, and the number of bytes allocated there, or 0 if it was freed.
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

// SAFETY: every call forwards its arguments to the system's allocator and returns its result.
// `note` does not allocate, so it does not call this allocator again.
unsafe impl GlobalAlloc for Recorder {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller fulfils the same contract, `GlobalAlloc::alloc`, for this layout.
        let address = unsafe { System.alloc(layout) };
        if !address.is_null() && layout.size() <= BYTES_MAX {
            note(address, layout.size());
        }
        address
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // Another thread can get this address as soon as it is free, so note this first.
        if layout.size() <= BYTES_MAX {
            note(address, 0);
        }
        // SAFETY: the caller passes a block of this allocator with its layout, and `alloc` got that
        // block from `System` with the same layout.
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
            let mut search = Search::new(hex())
                .params(Params { exploration: 0.5, seed: 1, ..Params::default() })
                .on(OnJob::new(me)?);
            search.run(&hex().initial(), Budget::Rollouts(rollouts))?;
        }
        Ok(())
    })?;
    RECORDS.store(false, Ordering::Relaxed);
    // The number of the live allocation at each address.
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

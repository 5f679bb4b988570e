//! Remote heaps: the time of their policies, and their use of memory. The traces are allocations of
//! a program, recorded and random (`/random`).
//!
//! Metrics: `ns`, an allocation and its release, both by the user of the heap; `fragmentation`, the
//! share of the free memory outside the largest piece; `smallest_heap_over_live`, the smallest heap
//! in which all blocks find room. `peer_deferred_ns` and `peer_immediate_ns`: the peer receives
//! each block and frees it, and reports that later or at once, each with the share of allocations
//! that were `refused`. One of the two is the policy's default. `synchronise_64_ns`: a request for
//! 64 blocks that the peer has freed.

mod trace;

use std::hint::black_box;
use std::time::Instant;

use farside::{Error, Worker};
use farside_fabric::memory::FreeSpace;
use farside_kit::heap::{Block, Fit, HeapError, HeapOptions, RemoteBlock, RemoteHeap, Synchronisation};

use self::trace::{Event, Trace, block_bytes};
use crate::kit::*;

pub(crate) const ABOUT: &str =
    "remote heaps: latency and fragmentation by policy, on a recorded and a random trace (rmalloc, slides 17 to 22)";

/// Allocations of a random trace by default.
const ALLOCATIONS: u64 = 40_000;
/// The seed of the random trace.
const SEED: u64 = 1;
/// Size of the heap beyond the largest sum of live blocks, in percent.
const SPARE_PERCENT: u64 = 25;
/// Blocks that one timed synchronisation reports.
const TOGETHER: usize = 64;
/// Number of blocks that the peer reports together, its default.
const DEFERRED: Synchronisation = Synchronisation::Deferred { batch: 64 };
/// Synchronisations of one run.
const SYNCHRONISATIONS: u64 = 2_000;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for fit in Fit::ALL {
        let name = format!("{}-fit", fit.name());
        cases.push(Case::job(name.clone(), 2, move |me, options| replay(me, options, fit, &Trace::recorded()?)));
        let random = move |me: &Worker, options: Options| {
            let trace = Trace::random(SEED, options.operations_or(ALLOCATIONS) as usize);
            replay(me, options, fit, &trace)
        };
        cases.push(Case::job(format!("{name}/random"), 2, random));
    }
    cases
}

/// Replays a trace on a heap of worker 0 at worker 1.
fn replay(me: &Worker, options: Options, fit: Fit, trace: &Trace) -> Measured {
    let peak = trace.peak_bytes();
    let bytes = peak + peak * SPARE_PERCENT / 100;
    let heap_options = HeapOptions::new(bytes).fit(fit);
    // The first run sets up the rings and touches the memory.
    let taken = warmed(options, |_| on_first(me, || measure(me, options, heap_options, trace)))?;
    let mut metrics = taken.rows([
        column("ns", "ns", 0).against("malloc and free", 1),
        column("fragmentation", "1", 2),
        column("peer_deferred_ns", "ns", 3).against(CALLS, 5),
        column("deferred_refused", "1", 4),
        column("peer_immediate_ns", "ns", 6).against(CALLS, 8),
        column("immediate_refused", "1", 7),
        column("synchronise_64_ns", "ns", 9).against("call_return", 10),
    ]);
    if me.is_first() {
        let smallest = smallest_heap(trace, fit) as f64 / peak as f64;
        metrics.push(Metric::new("smallest_heap_over_live", "1", vec![smallest]));
    }
    Ok(metrics)
}

/// The limit of blocks that the peer receives.
const CALLS: &str = "the same calls without a heap";

/// Measures everything once, in the order of the columns.
fn measure(me: &Worker, options: Options, heap_options: HeapOptions, trace: &Trace) -> Result<Vec<f64>, BenchError> {
    let heap = RemoteHeap::open(me, me.neighbor(1), heap_options)?;
    let (malloc_ns, pair_ns) = (malloc(trace), own(&heap, trace)?);
    let fragmentation = fragmentation(&heap, trace)?;
    heap.close()?;
    let mut found = vec![pair_ns, malloc_ns, fragmentation];
    for synchronisation in [DEFERRED, Synchronisation::Immediate] {
        let heap = RemoteHeap::open(me, me.neighbor(1), heap_options.synchronisation(synchronisation))?;
        let call_ns = calls(me, &heap, trace)?;
        let (peer_ns, refused) = through_peer(me, &heap, trace)?;
        heap.close()?;
        found.extend([peer_ns, refused, call_ns]);
    }
    let (synchronise_ns, call_return_ns) = synchronise(me, heap_options, options.operations_or(SYNCHRONISATIONS))?;
    found.extend([synchronise_ns, call_return_ns]);
    Ok(found)
}

/// Returns nanoseconds for each allocation of the trace since an instant.
fn per_allocation(begun: Instant, trace: &Trace) -> f64 {
    begun.elapsed().as_nanos() as f64 / trace.allocations as f64
}

/// Replays the trace with the system's allocator.
fn malloc(trace: &Trace) -> f64 {
    let mut live: Vec<Option<Vec<u8>>> = Vec::with_capacity(trace.allocations);
    let begun = Instant::now();
    for event in &trace.events {
        match *event {
            Event::Allocate { bytes } => live.push(Some(Vec::with_capacity(black_box(bytes as usize)))),
            Event::Free { number } => drop(live[number].take()),
        }
    }
    per_allocation(begun, trace)
}

/// Replays the trace on the heap. The allocating process frees every block.
fn own(heap: &RemoteHeap<'_>, trace: &Trace) -> Result<f64, BenchError> {
    let mut live: Vec<Option<Block<'_>>> = Vec::with_capacity(trace.allocations);
    let begun = Instant::now();
    for event in &trace.events {
        match *event {
            Event::Allocate { bytes } => live.push(allocate(heap.try_alloc(black_box(bytes)))?),
            Event::Free { number } => drop(live[number].take()),
        }
    }
    Ok(per_allocation(begun, trace))
}

/// The blocks; `None` where the heap had no room.
fn allocate<'h>(allocated: Result<Block<'h>, HeapError>) -> Result<Option<Block<'h>>, BenchError> {
    match allocated {
        Ok(block) => Ok(Some(block)),
        Err(HeapError::Exhausted { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the share of the free memory outside the largest piece, on average over the second half
/// of the trace.
fn fragmentation(heap: &RemoteHeap<'_>, trace: &Trace) -> Result<f64, BenchError> {
    const EVERY: usize = 64;
    let mut live: Vec<Option<Block<'_>>> = Vec::with_capacity(trace.allocations);
    let mut samples = Vec::new();
    for (at, event) in trace.events.iter().enumerate() {
        match *event {
            Event::Allocate { bytes } => live.push(allocate(heap.try_alloc(bytes))?),
            Event::Free { number } => drop(live[number].take()),
        }
        if at > trace.events.len() / 2 && at % EVERY == 0 {
            samples.push(heap.report().external_fragmentation());
        }
    }
    Ok(samples.iter().sum::<f64>() / samples.len().max(1) as f64)
}

/// Replays the trace. The peer receives each block and frees it when the trace says so. Also
/// returns the number of refused allocations.
fn through_peer(me: &Worker, heap: &RemoteHeap<'_>, trace: &Trace) -> Result<(f64, f64), BenchError> {
    let free = |there: &Worker, name: RemoteBlock| {
        // The initiator's accounts reveal a block that was not freed.
        let _ = name.open(there).and_then(|block| block.free());
    };
    let mut live: Vec<Option<RemoteBlock>> = Vec::with_capacity(trace.allocations);
    let mut refused = 0;
    let begun = Instant::now();
    for event in &trace.events {
        match *event {
            Event::Allocate { bytes } => {
                let block = allocate(heap.alloc(bytes))?;
                refused += u64::from(block.is_none());
                live.push(block.map(|block| block.hand_over()).transpose().map_err(Error::from)?);
            }
            Event::Free { number } => {
                if let Some(name) = live[number].take() {
                    me.call(heap.peer(), name, free).map_err(Error::from)?;
                }
            }
        }
    }
    let ns = per_allocation(begun, trace);
    for name in live.into_iter().flatten() {
        me.call(heap.peer(), name, free).map_err(Error::from)?;
    }
    // The answer follows all earlier calls.
    while heap.synchronise()? > 0 {}
    Ok((ns, refused as f64 / trace.allocations as f64))
}

/// Makes as many calls with names as the trace has frees. The calls do nothing.
fn calls(me: &Worker, heap: &RemoteHeap<'_>, trace: &Trace) -> Result<f64, BenchError> {
    let name = heap.alloc(0)?.hand_over().map_err(Error::from)?;
    let begun = Instant::now();
    for event in &trace.events {
        if let Event::Free { .. } = event {
            me.call(heap.peer(), name, |_, name| _ = black_box(name)).map_err(Error::from)?;
        }
    }
    let ns = per_allocation(begun, trace);
    heap.take_back(name)?;
    Ok(ns)
}

/// Measures a request for the blocks that the peer has freed, and their return to the heap. Every
/// second block is freed, so that no two are neighbours. A round trip of a call is measured in
/// turns with it.
fn synchronise(me: &Worker, options: HeapOptions, count: u64) -> Result<(f64, f64), BenchError> {
    let deferred = Synchronisation::Deferred { batch: u32::MAX };
    let heap = RemoteHeap::open(me, me.neighbor(1), options.bytes(1 << 20).synchronisation(deferred))?;
    let (mut ask_ns, mut call_ns) = (0, 0);
    for _ in 0..count.div_ceil(TOGETHER as u64) {
        let mut kept = Vec::new();
        let mut names = Vec::new();
        for _ in 0..TOGETHER {
            names.push(heap.alloc(64)?.hand_over().map_err(Error::from)?);
            kept.push(heap.alloc(64)?);
        }
        let free = |there: &Worker, names: Vec<RemoteBlock>| {
            names.into_iter().all(|name| name.open(there).and_then(|block| block.free()).is_ok())
        };
        me.call_return(heap.peer(), names, free).map_err(Error::from)?.wait()?;
        let begun = Instant::now();
        me.call_return(heap.peer(), (), |_, ()| ()).map_err(Error::from)?.wait()?;
        call_ns += begun.elapsed().as_nanos();
        let begun = Instant::now();
        heap.synchronise()?;
        ask_ns += begun.elapsed().as_nanos();
    }
    heap.close()?;
    let rounds = count.div_ceil(TOGETHER as u64) as f64;
    Ok((ask_ns as f64 / rounds, call_ns as f64 / rounds))
}

/// Returns the smallest heap, to a percent, in which the policy finds room for the whole trace.
fn smallest_heap(trace: &Trace, fit: Fit) -> u64 {
    let peak = trace.peak_bytes();
    let (mut too_small, mut enough) = (peak - 1, 2 * peak);
    while !finds_room(trace, fit, enough) {
        (too_small, enough) = (enough, 2 * enough);
    }
    while enough - too_small > peak / 100 {
        let middle = too_small + (enough - too_small) / 2;
        if finds_room(trace, fit, middle) {
            enough = middle;
        } else {
            too_small = middle;
        }
    }
    enough
}

fn finds_room(trace: &Trace, fit: Fit, bytes: u64) -> bool {
    let mut space = FreeSpace::default();
    space.release(0, bytes);
    let mut live = Vec::with_capacity(trace.allocations);
    trace.events.iter().all(|event| match *event {
        Event::Allocate { bytes } => {
            let bytes = block_bytes(bytes);
            let start = space.take(bytes, fit);
            live.push((start.unwrap_or(0), bytes));
            start.is_some()
        }
        Event::Free { number } => {
            let (start, bytes) = live[number];
            space.release(start, bytes);
            true
        }
    })
}

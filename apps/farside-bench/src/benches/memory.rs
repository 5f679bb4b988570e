//! Registered memory: the cost of a buffer by policy, the effect of policies on a mixture of sizes,
//! and memory of another process.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use farside::{Worker, WorkerId};
use farside_fabric::memory::{
    Allocator, AllocatorOptions, Fit, Growth, HeapOptions, NodeMemory, NodeOptions, Registered,
};
use farside_fabric::shm::{ShmConfig, ShmEndpoint};
use farside_fabric::{FabricError, ProcessId};
use farside_sys::process::random_bytes;

use super::size_name;
use crate::kit::*;

pub(crate) const ABOUT: &str = "registered buffers, by size and policy; memory of another process";

/// Sizes of buffers. Up to 64 KiB an allocator keeps buffers at hand; 1 MiB always comes from the
/// heap.
const SIZES: [usize; 5] = [64, 1 << 10, 4 << 10, 64 << 10, 1 << 20];
/// Pairs of one run by default.
const PAIRS: u64 = 2_000_000;
/// Bytes allocated at a time when only allocation is timed: less than the allocator keeps at hand.
const OUT_BYTES: usize = 512 << 10;
/// Number of live buffers in the mixture.
const LIVE: usize = 2000;
const MIXED_BYTES_MAX: u64 = 16 << 10;
const CHUNK_BYTES: usize = 256 << 10;
/// Round trips of one run.
const TRIPS: u64 = 20_000;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for bytes in SIZES {
        for fit in Fit::ALL {
            let name = format!("allocate/{}/{}", size_name(bytes), fit.name());
            cases.push(Case::here(name, move |options| allocate(options, bytes, fit)));
        }
    }
    for fit in Fit::ALL {
        cases.push(Case::here(format!("mixture/{}", fit.name()), move |options| mixture(options, fit)));
    }
    cases.push(Case::job("remote/allocate-release/4KiB", 2, borrow));
    for bytes in [8, 64, 4 << 10] {
        let name = format!("remote/put/{}", size_name(bytes));
        cases.push(Case::job(name, 2, move |me, options| put(me, options, bytes)));
    }
    cases
}

/// The memory of a single process.
fn node() -> Result<Arc<NodeMemory>, BenchError> {
    node_as(NodeOptions::default())
}

fn node_as(options: NodeOptions) -> Result<Arc<NodeMemory>, BenchError> {
    let random = |cause| FabricError::System { doing: "getting random bytes", cause };
    let end = ShmEndpoint::open(ShmConfig {
        process: ProcessId::new(0),
        process_count: 1,
        job_id: u64::from_ne_bytes(random_bytes().map_err(random)?),
        secret: random_bytes().map_err(random)?,
        starter_bytes: 4096,
        user_by_system_call: true,
    })?;
    Ok(Arc::new(NodeMemory::new(end.shared(), options)))
}

/// Converts a duration into nanoseconds for each of `count` operations.
fn time_each(count: u64, work: impl FnOnce() -> Result<(), BenchError>) -> Result<f64, BenchError> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_nanos() as f64 / count as f64)
}

/// Measures buffers of one size, compared with the system's allocator for memory that is not
/// registered.
fn allocate(options: Options, bytes: usize, fit: Fit) -> Measured {
    let heap = HeapOptions { fit, ..HeapOptions::default() };
    let allocator = Allocator::new(node()?, AllocatorOptions { heap, ..AllocatorOptions::default() });
    let count = options.operations_or(PAIRS);
    let together = (OUT_BYTES / bytes).max(1);
    let rounds = count.div_ceil(together as u64);
    let mut out: Vec<Registered> = Vec::with_capacity(together);
    // The first run touches the memory.
    let taken = warmed(options, |_| {
        let pair_ns = time_each(count, || {
            for _ in 0..count {
                drop(black_box(allocator.allocate(black_box(bytes))?));
            }
            Ok(())
        })?;
        let system_ns = time_each(count, || {
            for _ in 0..count {
                drop(black_box(Vec::<u8>::with_capacity(black_box(bytes))));
            }
            Ok(())
        })?;
        let mut alone_ns = 0.0;
        for _ in 0..rounds {
            alone_ns += time_each(together as u64 * rounds, || {
                for _ in 0..together {
                    out.push(allocator.allocate(black_box(bytes))?);
                }
                Ok(())
            })?;
            out.clear();
        }
        Ok([alone_ns, pair_ns, system_ns])
    })?;
    Ok(taken
        .rows([column("allocate_ns", "ns", 0), column("allocate_release_ns", "ns", 1).against("malloc and free", 2)]))
}

/// Measures buffers of mixed sizes, of which each step replaces a random one. Nothing is kept at
/// hand, so that the policy places each buffer.
fn mixture(options: Options, fit: Fit) -> Measured {
    let count = options.operations_or(PAIRS / 20);
    let taken = cold(options, |_| {
        // The memory grows in small steps, so that its size shows how much the policy scatters.
        let heap = HeapOptions { fit, growth: Growth::Linear, chunk_bytes: CHUNK_BYTES, ..HeapOptions::default() };
        let node = NodeOptions { chunk_bytes: CHUNK_BYTES, ..NodeOptions::default() };
        let allocator = Allocator::new(node_as(node)?, AllocatorOptions { heap, cache_bytes: 0 });
        let mut random = Xorshift(1);
        let mut next = || 1 + random.next() % MIXED_BYTES_MAX;
        let mut live: Vec<Registered> = Vec::with_capacity(LIVE);
        for _ in 0..LIVE {
            live.push(allocator.allocate(next() as usize)?);
        }
        let replace_ns = time_each(count, || {
            for _ in 0..count {
                let place = next() as usize % LIVE;
                live[place] = allocator.allocate(next() as usize)?;
            }
            Ok(())
        })?;
        let report = allocator.report();
        Ok([replace_ns, report.held_bytes as f64 / report.used_bytes as f64])
    })?;
    Ok(taken.rows([column("replace_ns", "ns", 0), column("held_over_used", "1", 1)]))
}

/// Measures an allocation in the other process, and its release.
fn borrow(me: &Worker, options: Options) -> Measured {
    let trips = options.operations_or(TRIPS);
    measure(me, options, |of| {
        let pair = || me.allocate_at(of, 4096).and_then(|memory| me.release(memory));
        Ok(time_latency(trips, pair)?.median_ns)
    })
}

/// Measures puts into memory of the other process.
fn put(me: &Worker, options: Options, bytes: usize) -> Measured {
    let puts = options.operations_or(PAIRS);
    let data = vec![7; bytes];
    measure(me, options, |of| {
        let memory = me.allocate_at(of, bytes as u64)?;
        let ns = time_each(puts, || Ok((0..puts).try_for_each(|_| memory.put(me, 0, black_box(&data)))?))?;
        me.release(memory)?;
        Ok(ns)
    })
}

/// Measures an operation of worker 0 on memory of worker 1's process. Worker 1 waits and does not
/// help.
fn measure(me: &Worker, options: Options, work: impl Fn(WorkerId) -> Result<f64, BenchError>) -> Measured {
    let taken = warmed(options, |_| Ok([on_first(me, || work(me.neighbor(1)))?]))?;
    Ok(taken.rows([column("ns", "ns", 0)]))
}

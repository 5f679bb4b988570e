//! Memory of one process that the workers of others use. The bodies run as processes, over the
//! fabric that `FARSIDE_FABRIC` names, and in the simulator.

use farside::memory::MemoryError;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farside::memory::{AllocateOptions, MemoryRefusal, PageKind, Place};
use farside::prelude::*;
use farside::{AtomicChange, Error, LaunchError, LogGp, RemoteMemory, Result, SimOptions, Simulation};
use farside_fabric::FabricError;
use farside_sys::shm::ShmError;
use farside_sys::topology::NumaNodeId;

use crate::support::{room, spread};

/// Sizes around those of units, pages and chunks.
const SIZES: [u64; 9] = [1, 63, 64, 65, 4096, 4097, (2 << 20) - 64, 2 << 20, (2 << 20) + 1];

fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (seed.wrapping_mul(0x9e37) + at.wrapping_mul(31)) as u8).collect()
}

/// Every worker has memory of every process, all of it in use at the same time. No two parts
/// overlap.
fn memory_is_its_holders(me: &Worker) -> Result<()> {
    let mut held: Vec<(RemoteMemory, Vec<u8>)> = Vec::new();
    for process in (0..me.process_count()).map(ProcessId::new) {
        for bytes in SIZES {
            let memory = me.allocate_at(process, bytes)?;
            assert_eq!((memory.process(), memory.bytes()), (process, bytes));
            let seed = bytes + u64::from(me.id().number()) * 1000 + u64::from(process.number());
            held.push((memory, pattern(seed, bytes)));
        }
    }
    held.iter().try_for_each(|(memory, data)| memory.put(me, 0, data))?;
    me.barrier()?;
    for (memory, data) in &held {
        let mut got = vec![0; data.len()];
        memory.get(me, 0, &mut got)?;
        assert!(got == *data, "{memory:?} is not what was put there");
    }
    me.barrier()?;
    held.into_iter().try_for_each(|(memory, _)| me.release(memory))?;
    me.barrier()?;
    assert_eq!(me.counters().remote_memory_bytes_here, 0);
    me.barrier()
}

/// A program gets the pages and the node that it chose, or an error.
fn pages_and_nodes_are_chosen(me: &Worker) -> Result<()> {
    for pages in [PageKind::Base, PageKind::Transparent, PageKind::Huge, PageKind::Gigantic] {
        let options = AllocateOptions { pages: Some(pages), ..AllocateOptions::default() };
        match me.allocate_with(5000, options) {
            Ok(buffer) => {
                buffer.write_at(4990, &[7; 10])?;
                let mut got = [0];
                me.get_bytes(me.address_of(&buffer)?.checked_add(4995).unwrap(), &mut got)?;
                assert_eq!(got, [7]);
                let again = me.allocate_with(5000, options)?;
                assert_eq!(again.key(), buffer.key(), "one superchunk has room for both");
            }
            Err(Error::Fabric(FabricError::Memory(ShmError::NoPages { kind, .. }))) => {
                assert!(kind == pages && pages >= PageKind::Huge);
            }
            Err(error) => panic!("{error}"),
        }
    }
    let on = |node| AllocateOptions { node: Some(NumaNodeId(node)), ..AllocateOptions::default() };
    me.allocate_with(100, on(0))?.fill(1);
    assert!(me.memory_report().iter().any(|memory| memory.node == Some(NumaNodeId(0)) && memory.used_bytes > 0));
    let nowhere = me.allocate_with(100, on(4000));
    let refused = MemoryRefusal::NoSuchNode { node: 4000 };
    assert!(
        matches!(room(&nowhere), Some(MemoryError::Refused { why, bytes: 100, .. }) if *why == refused),
        "{nowhere:?}"
    );
    me.barrier()
}

/// Memory on chosen pages is taken in superchunks of up to 1 GiB, and other memory in smaller ones.
#[test]
fn chosen_pages_come_in_large_superchunks() {
    farside::simulate(1, 1, 1, |me| {
        let largest = |me: &Worker| {
            me.memory_report().iter().flat_map(|memory| &memory.superchunks).map(|superchunk| superchunk.bytes).max()
        };
        let _others = (0..500).map(|_| me.allocate(1 << 20)).collect::<Result<Vec<_>>>()?;
        assert_eq!(largest(me), Some(64 << 20), "as much as an allocator takes at a time");
        let options = AllocateOptions { pages: Some(PageKind::Base), ..AllocateOptions::default() };
        let _chosen = (0..500).map(|_| me.allocate_with(1 << 20, options)).collect::<Result<Vec<_>>>()?;
        assert!(largest(me) >= Some(128 << 20), "{:?}", largest(me));
        Ok(())
    })
    .unwrap();
}

/// An array at the last worker, of which each worker writes a part.
fn arrays_of_one_worker_are_reached_by_all(me: &Worker) -> Result<()> {
    const PART: usize = 300;
    let (root, last) = (WorkerId::FIRST, WorkerId::new(me.worker_count() - 1));
    let length = PART * me.worker_count() as usize;
    let made = if me.id() == root { Some(me.allocate_array::<f64>(last, length)?) } else { None };
    let (memory, values) = me.broadcast(root, made)?;
    assert_eq!((memory.process(), memory.bytes(), values.len()), (me.process_of(last), 8 * length as u64, length));
    values.put(me, PART * me.id().index(), &[f64::from(me.id().number()); PART])?;
    me.barrier()?;
    let expected: Vec<f64> = me.workers().flat_map(|worker| [f64::from(worker.number()); PART]).collect();
    assert_eq!(values.to_vec(me)?, expected);
    let beyond = values.at(length).map(drop);
    assert!(beyond.is_err(), "{beyond:?}");
    me.barrier()?;
    if me.id() == root {
        me.release(memory)?;
    }
    let too_long = me.allocate_array::<[u64; 4]>(last, usize::MAX / 2).map(drop);
    assert!(matches!(room(&too_long), Some(MemoryError::Refused { .. })), "{too_long:?}");
    me.barrier()
}

/// A handle travels, and any worker that has it uses it. Bits that are not a handle are refused.
fn handles_travel(me: &Worker) -> Result<()> {
    let root = WorkerId::new(0);
    let owner = me.process_of(WorkerId::new(me.worker_count() - 1));
    let memory = match me.id() == root {
        true => {
            let memory = me.allocate_at(owner, 64)?;
            memory.put(me, 0, &[0; 64])?;
            me.broadcast(root, Some(memory))?
        }
        false => me.broadcast(root, None)?,
    };
    let rounds = 50;
    for _ in 0..rounds {
        memory.atomic64(me, 8, AtomicChange::Add(1))?;
        memory.atomic32(me, 4, AtomicChange::Max(me.id().number()))?;
    }
    me.barrier()?;
    assert_eq!(memory.atomic64(me, 8, AtomicChange::Load)?, rounds * u64::from(me.worker_count()));
    assert_eq!(memory.atomic32(me, 4, AtomicChange::Load)?, me.worker_count() - 1);
    let outside = |result: Result<()>| {
        let is_outside = matches!(result, Err(Error::Fabric(FabricError::OutOfRange { region_bytes: 64, .. })));
        assert!(is_outside, "{result:?}");
    };
    outside(memory.put(me, 64, &[1]));
    outside(memory.put(me, 60, &[1; 5]));
    outside(memory.put(me, u64::MAX, &[1]));
    outside(memory.get(me, 1, &mut [0; 64]));
    outside(memory.atomic64(me, 60, AtomicChange::Load).map(drop));
    let misaligned = memory.atomic64(me, 4, AtomicChange::Add(1));
    assert!(matches!(misaligned, Err(Error::Fabric(FabricError::Misaligned { .. }))), "{misaligned:?}");
    me.barrier()?;
    // Any worker may release it, once.
    let last = WorkerId::new(me.worker_count() - 1);
    if me.id() == last {
        memory.check(me)?;
        me.release(memory)?;
    }
    me.barrier()?;
    let again = me.release(memory);
    assert!(matches!(room(&again), Some(MemoryError::Released { .. })), "{again:?}");
    let checked = memory.check(me);
    assert!(matches!(room(&checked), Some(MemoryError::Released { .. })), "{checked:?}");
    if me.id() == last || me.process() == owner {
        let used = memory.put(me, 0, &[1]);
        assert!(matches!(room(&used), Some(MemoryError::Released { .. })), "{used:?}");
    }
    me.barrier()
}

/// The same place has another handle the next time.
fn an_old_handle_is_not_the_next_one(me: &Worker) -> Result<()> {
    let owner = me.process_of(me.neighbor(me.threads_per_process()));
    let mut old: Vec<RemoteMemory> = Vec::new();
    for _ in 0..20 {
        let memory = me.allocate_at(owner, 256)?;
        memory.put(me, 0, &[7; 256])?;
        for stale in &old {
            assert_ne!(*stale, memory);
            let again = me.release(*stale);
            assert!(matches!(room(&again), Some(MemoryError::Released { .. })), "{again:?}");
            let used = stale.put(me, 0, &[1]);
            assert!(matches!(room(&used), Some(MemoryError::Released { .. })), "{used:?}");
        }
        memory.check(me)?;
        let mut got = [0; 256];
        memory.get(me, 0, &mut got)?;
        assert_eq!(got, [7; 256]);
        me.release(memory)?;
        old.push(memory);
    }
    me.barrier()
}

/// Impossible requests are refused.
fn refusals_are_typed(me: &Worker) -> Result<()> {
    let owner = me.process_of(me.neighbor(me.threads_per_process()));
    let refusal = |result: Result<RemoteMemory>| match room(&result) {
        Some(MemoryError::Refused { process, why, .. }) if *process == owner => *why,
        _ => panic!("{result:?}"),
    };
    assert!(matches!(refusal(me.allocate_at(owner, u64::MAX)), MemoryRefusal::Limit { .. }));
    assert!(
        matches!(refusal(me.allocate_at(owner, 257 << 20)), MemoryRefusal::Limit { limit, .. } if limit == 256 << 20)
    );
    let nowhere = Place::OnNode(owner, NumaNodeId(12345));
    assert_eq!(refusal(me.allocate_at(nowhere, 64)), MemoryRefusal::NoSuchNode { node: 12345 });
    let unknown = me.allocate_at(ProcessId::new(99), 64);
    assert!(matches!(unknown, Err(Error::UnknownProcess { count, .. }) if count == me.process_count()), "{unknown:?}");
    let unknown = me.allocate_at(WorkerId::new(99), 64);
    assert!(matches!(unknown, Err(Error::UnknownWorker { .. })), "{unknown:?}");
    // The same holds for memory of its own process, except for the limit.
    let own = Place::OnNode(me.process(), NumaNodeId(12345));
    assert!(matches!(
        room(&me.allocate_at(own, 64)),
        Some(MemoryError::Refused { why: MemoryRefusal::NoSuchNode { .. }, .. })
    ));
    me.barrier()?;
    // A handler must not wait for memory.
    let in_handler = me.call_return(me.neighbor(me.threads_per_process()), me.process(), |there, asker| {
        matches!(there.allocate_at(asker, 64), Err(Error::InHandler { .. }))
    });
    assert!(in_handler?.wait()?);
    me.barrier()
}

/// Allocates on the first node of every process, and near every worker.
fn memory_is_placed(me: &Worker) -> Result<()> {
    for worker in me.workers() {
        let near = me.allocate_at(worker, 1000)?;
        assert_eq!(near.process(), me.process_of(worker));
        near.put(me, 999, &[1])?;
        let on_node = me.allocate_at(Place::OnNode(me.process_of(worker), NumaNodeId(0)), 1000)?;
        on_node.put(me, 999, &[2])?;
        let mut got = [0];
        near.get(me, 999, &mut got)?;
        assert_eq!(got, [1]);
        me.release(near)?;
        me.release(on_node)?;
    }
    me.barrier()
}

/// Buffers of this process, which go to other threads and come back.
fn buffers_are_registered(me: &Worker) -> Result<()> {
    let buffers: Vec<_> = (0..100_usize).map(|number| me.allocate(number * 100)).collect::<Result<_>>()?;
    for (mark, buffer) in (0..).zip(&buffers) {
        assert_eq!(buffer.key().process, me.process());
        buffer.fill(mark);
    }
    // The workers of a process share one report.
    me.barrier()?;
    let report = me.memory_report();
    let used: usize = report.iter().map(|node| node.used_bytes).sum();
    assert!(used >= 2 << 20 && report.iter().all(|node| node.used_bytes <= node.registered_bytes), "{report:?}");
    for (mark, buffer) in (0..).zip(&buffers) {
        assert!(buffer.to_vec().iter().all(|byte| *byte == mark));
    }
    std::thread::spawn(move || drop(buffers)).join().expect("a drop does not fail");
    let again = me.allocate(9000)?;
    assert_eq!(me.memory_report(), report, "{again:?}");
    me.barrier()
}

everywhere! {
    as_processes(processes = 2, threads = 2),
    simulated(processes = 3, threads = 2, seeds = 1);
    memory_is_its_holders
    handles_travel
    an_old_handle_is_not_the_next_one
    refusals_are_typed
    memory_is_placed
    buffers_are_registered
    pages_and_nodes_are_chosen
    arrays_of_one_worker_are_reached_by_all
}

#[test]
fn a_handle_of_another_job_is_foreign() {
    let kept = Mutex::new(None);
    farside::simulate(2, 1, 1, |me| {
        if me.id().number() == 0 {
            *kept.lock().unwrap() = Some(me.allocate_at(ProcessId::new(1), 64)?);
        }
        me.barrier()
    })
    .unwrap();
    let kept = kept.into_inner().unwrap().unwrap();
    farside::simulate(2, 1, 1, |me| {
        let released = me.release(kept);
        assert!(matches!(room(&released), Some(MemoryError::Foreign { .. })), "{released:?}");
        me.barrier()
    })
    .unwrap();
}

#[test]
fn others_have_no_more_than_the_limit() {
    let simulation = Simulation::new(3, 1, 1).remote_memory_limit(10_000);
    let simulated = simulation.run(|me| {
        let owner = ProcessId::new(2);
        if me.process() == owner {
            // The limit applies to other processes only.
            let own = me.allocate_at(owner, 20_000)?;
            me.barrier()?;
            me.barrier()?;
            assert_eq!(me.counters().remote_memory_bytes_here, 10_000);
            me.release(own)?;
            assert_eq!(me.counters().remote_memory_bytes_here, 10_000);
            return me.barrier();
        }
        let memory = me.allocate_at(owner, 5_000)?;
        me.barrier()?;
        let more = me.allocate_at(owner, 1);
        let is_limit = |more: &Result<_>| {
            let limit = MemoryRefusal::Limit { held: 10_000, limit: 10_000 };
            matches!(room(more), Some(MemoryError::Refused { bytes: 1, why, .. }) if *why == limit)
        };
        assert!(is_limit(&more), "{more:?}");
        me.barrier()?;
        me.barrier()?;
        me.release(memory)?;
        let memory = me.allocate_at(owner, 1)?;
        me.release(memory)
    });
    simulated.unwrap().verdict.unwrap();
}

#[test]
fn memory_of_a_lost_process_is_lost_and_what_it_held_comes_back() {
    for seed in spread(8) {
        let simulation = Simulation::new(3, 1, seed).kill(ProcessId::new(2), Duration::from_millis(1));
        // The verdict is the first failure, so survivors count themselves here.
        let well = AtomicU32::new(0);
        let simulated = simulation.run(|me| {
            let neighbor = me.process_of(me.neighbor(me.threads_per_process()));
            // Each asks the next: process 2 has memory of process 0, and process 1 of process 2.
            let memory = me.allocate_at(neighbor, 1000)?;
            memory.put(me, 0, &[1; 1000])?;
            me.barrier()?;
            assert_eq!(me.counters().remote_memory_bytes_here, 1000);
            let told = me.wait_together(Duration::from_secs(10), || false);
            assert!(matches!(told, Err(Error::PeerLost { .. })), "{told:?}");
            if me.id().number() == 0 {
                assert_eq!(me.counters().remote_memory_bytes_here, 0, "its holder is gone");
                me.release(memory)?;
            } else {
                for result in [memory.put(me, 0, &[2]), me.release(memory), me.allocate_at(neighbor, 1).map(drop)] {
                    assert!(
                        matches!(result, Err(Error::PeerLost { process, .. }) if process == neighbor),
                        "{result:?}"
                    );
                }
            }
            well.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(
            matches!(simulated.unwrap().verdict, Err(Error::Launch(LaunchError::ProcessFailed { process, .. })) if process.number() == 2)
        );
        assert_eq!(well.into_inner(), 2);
    }
}

#[test]
fn a_late_grant_is_given_back() {
    // The answer takes longer than the requester waits.
    let network = LogGp { latency_ns: 3_000_000, overhead_ns: 0, gap_ns: 0, gap_per_byte_ps: 0, ..LogGp::IDEAL };
    let options = SimOptions { network, delay_max_ns: 0, ..SimOptions::default() };
    let simulation = Simulation::new(2, 1, 1).options(options).deadline(Duration::from_millis(5));
    let simulated = simulation.run(|me| {
        if me.id().number() == 0 {
            let memory = me.allocate_at(ProcessId::new(1), 1000);
            assert!(matches!(memory, Err(Error::Deadline { .. })), "{memory:?}");
        }
        let end = me.now() + Duration::from_millis(30);
        while me.now() < end {
            me.progress()?;
        }
        assert_eq!(me.counters().remote_memory_bytes_here, 0);
        Ok(())
    });
    simulated.unwrap().verdict.unwrap();
}

//! Objects of all workers: symmetric memory, arrays and byte spaces. The bodies run as processes,
//! over the fabric that `FARSIDE_FABRIC` names, and in the simulator.

use farside::global::GlobalError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farside::global::{Distribution, ObjectError};
use farside::prelude::*;
use farside::{Error, GlobalArray, Result, Simulation};

use crate::support::{room, spread};

fn why<T: std::fmt::Debug>(result: Result<T>) -> ObjectError {
    match room(&result) {
        Some(GlobalError::Object(why)) => *why,
        _ => panic!("{result:?} is not about an object"),
    }
}

fn processes(me: &Worker) -> impl Iterator<Item = ProcessId> + use<> {
    (0..me.process_count()).map(ProcessId::new)
}

/// Every worker writes to every process, at addresses that it computes.
fn symmetric_memory_is_where_it_is_computed(me: &Worker) -> Result<()> {
    let inbox = me.symmetric::<u64>(me.worker_count() as usize + 1)?;
    let last = me.worker_count() as usize;
    assert!(inbox.here().iter().all(|value| value == 0));
    me.barrier()?;
    let own = me.id().index();
    for process in processes(me) {
        let there = inbox.at(process)?;
        assert_eq!((there.start().process(), there.len()), (Some(process), last + 1));
        there.at(own)?.put(me, u64::from(process.number()) * 100 + own as u64 + 1)?;
        there.at(last)?.fetch_add(me, 1)?;
    }
    me.barrier()?;
    for (worker, value) in inbox.here().part(0..last).iter().enumerate() {
        assert_eq!(value, u64::from(me.process().number()) * 100 + worker as u64 + 1);
    }
    assert_eq!(inbox.here().get(last), u64::from(me.worker_count()));
    let count = me.process_count();
    let unknown = inbox.at(ProcessId::new(count));
    assert!(matches!(unknown, Err(Error::UnknownProcess { count: known, .. }) if known == count), "{unknown:?}");
    inbox.free(me)
}

/// An array of more than 4 GiB in each process. Few of its pages are used, and only these take
/// memory in a simulation.
#[test]
fn arrays_may_have_more_than_four_gib_a_process() {
    const LENGTH: usize = (12 << 30) / 8;
    const SLOT: usize = (512 << 20) / 8;
    const STEP: usize = SLOT / 8 + 1;
    farside::simulate(2, 2, 1, |me| {
        let array = me.global_array::<u64>(LENGTH)?;
        let (own, count) = (me.id().index(), me.worker_count() as usize);
        let places = |worker: usize| (worker * 1000..LENGTH).step_by(STEP);
        for index in places(own) {
            assert_eq!(array.get(me, index)?, 0);
            array.put(me, index, index as u64)?;
        }
        me.barrier()?;
        for index in places((own + 1) % count) {
            assert_eq!(array.get(me, index)?, index as u64);
        }
        let (local, first) = (array.local(me), own * (LENGTH / count));
        assert_eq!((local.len(), array.local_indices(me).next()), (LENGTH / count, Some(first)));
        for at in (0..local.len()).step_by(STEP / 2) {
            let index = first + at;
            let is_written = (0..count).any(|worker| places(worker).any(|place| place == index));
            assert_eq!(local.get(at), if is_written { index as u64 } else { 0 });
        }
        me.barrier()?;
        // Pieces that cross a boundary of slots, in this worker's part and in another one.
        for worker in [own, (own + 1) % count] {
            let begin = worker * (LENGTH / count) + SLOT * (own + 1) - 500;
            array.put_range(me, begin, &[own as u64 + 1; 1000])?;
            let mut back = [0; 1000];
            array.get_range(me, begin, &mut back)?;
            assert_eq!(back, [own as u64 + 1; 1000]);
        }
        let last = array.at(LENGTH - 1)?;
        last.fetch_add(me, 1)?;
        me.barrier()?;
        assert_eq!(last.get(me)?, count as u64);
        array.free(me)
    })
    .unwrap();
}

/// Empty symmetric memory has slices and addresses, too.
fn symmetric_memory_of_no_values_is_empty(me: &Worker) -> Result<()> {
    let none = me.symmetric::<u64>(0)?;
    for process in processes(me) {
        let there = none.at(process)?;
        assert_eq!((there.start().process(), there.to_vec(me)?), (Some(process), Vec::new()));
        there.part(0..0)?.put(me, 0, &[])?;
        assert!(there.at(0).is_err() && there.put(me, 0, &[1]).is_err());
    }
    assert!(none.is_empty() && none.here().to_vec().is_empty() && none.here().iter().next().is_none());
    none.free(me)
}

/// Processes with different allocations have the object at different addresses, and all of them
/// know these.
fn memories_may_differ(me: &Worker) -> Result<()> {
    // Each process allocates more than the one before.
    let held = me.allocate_at(me.process(), 1000 * u64::from(me.id().number() + 1))?;
    let objects = [me.symmetric::<u32>(100)?, me.symmetric::<u32>(1)?];
    for (number, object) in objects.iter().enumerate() {
        object.here().fill(me.process().number() + number as u32);
        me.barrier()?;
        for process in processes(me) {
            let expected = vec![process.number() + number as u32; object.len()];
            assert_eq!(object.at(process)?.to_vec(me)?, expected);
        }
        me.barrier()?;
    }
    objects.into_iter().try_for_each(|object| object.free(me))?;
    me.release(held)
}

const DISTRIBUTIONS: [Distribution; 6] = [
    Distribution::BLOCK,
    Distribution::CYCLIC,
    Distribution::block_cyclic(3),
    Distribution::BLOCK.over_processes(),
    Distribution::CYCLIC.over_processes(),
    Distribution::block_cyclic(4).over_processes(),
];

/// Every index names one value, whichever worker uses it: by index, in a range, or in the part
/// around it.
fn arrays_hold_what_was_put(me: &Worker) -> Result<()> {
    let own = me.id().index();
    let count = me.worker_count() as usize;
    for distribution in DISTRIBUTIONS {
        for length in [0, 1, 2, 7, 100, 129] {
            let array: GlobalArray<u64> = me.global_array_as(length, distribution)?;
            assert_eq!((array.len(), array.is_empty()), (length, length == 0));
            for index in (own..length).step_by(count) {
                assert_eq!(array.get(me, index)?, 0);
                array.put(me, index, index as u64 + 5)?;
            }
            me.barrier()?;
            let all = array.to_vec(me)?;
            assert!(all.iter().enumerate().all(|(index, value)| *value == index as u64 + 5), "{all:?}");
            check_local(me, &array)?;
            me.barrier()?;
            if own == 0 && length > 2 {
                let values: Vec<u64> = (0..length as u64 - 2).map(|index| index * 1000).collect();
                array.put_range(me, 1, &values)?;
                let mut back = vec![0; values.len()];
                array.get_range(me, 1, &mut back)?;
                assert_eq!(back, values);
                assert_eq!((array.get(me, 0)?, array.get(me, length - 1)?), (5, length as u64 + 4));
            }
            me.barrier()?;
            if length > 0 {
                array.at(length / 2)?.fetch_max(me, 1 << 40)?;
                array.at(length / 2)?.fetch_add(me, 1)?;
            }
            me.barrier()?;
            if length > 0 {
                assert_eq!(array.get(me, length / 2)?, (1 << 40) + count as u64);
            }
            me.barrier()?;
            array.fill(me, 9)?;
            assert_eq!(array.to_vec(me)?, vec![9; length]);
            array.free(me)?;
        }
    }
    Ok(())
}

/// The parts of all workers together are the array, with each value once.
fn check_local(me: &Worker, array: &GlobalArray<u64>) -> Result<()> {
    let local = array.local(me);
    let indices: Vec<usize> = array.local_indices(me).collect();
    assert_eq!(indices.len(), local.len());
    for (index, value) in indices.iter().zip(local.iter()) {
        assert_eq!(value, *index as u64 + 5);
        assert_eq!(array.process_of(*index)?, me.process());
        let owner = array.worker_of(me, *index)?;
        assert_eq!(me.process_of(owner), me.process());
        assert!(array.distribution() == array.distribution().over_processes() || owner == me.id());
    }
    // SAFETY: no worker writes to the array between the barriers around this call; see the caller.
    let sum: u64 = unsafe { me.read_epoch(|epoch| local.as_slice(epoch).iter().sum()) }?;
    let is_shared = array.distribution() == array.distribution().over_processes();
    let counts = if is_shared && me.thread_index() > 0 { (0, 0) } else { (sum, local.len()) };
    let (sum, length) = me.all_reduce(counts, |a, b| (a.0 + b.0, a.1 + b.1))?;
    let expected = (0..array.len() as u64).map(|index| index + 5).sum::<u64>();
    assert_eq!((sum, length), (expected, array.len()));
    Ok(())
}

/// Accesses outside of an array, and impossible arrays, are refused.
fn bad_indices_are_refused(me: &Worker) -> Result<()> {
    let array: GlobalArray<u32> = me.global_array_as(10, Distribution::CYCLIC)?;
    let outside = |index, count| ObjectError::Outside { index, count, length: 10 };
    assert_eq!(why(array.get(me, 10)), outside(10, 1));
    assert_eq!(why(array.put(me, usize::MAX, 1)), outside(usize::MAX, 1));
    assert_eq!(why(array.process_of(10)), outside(10, 1));
    assert_eq!(why(array.put_range(me, 8, &[1; 3])), outside(8, 3));
    assert_eq!(why(array.get_range(me, usize::MAX, &mut [0; 2])), outside(usize::MAX, 2));
    array.put_range(me, 10, &[])?;
    me.barrier()?;
    assert_eq!(array.to_vec(me)?, [0; 10]);
    array.free(me)?;
    let too_long = ObjectError::TooLong { length: u64::MAX, value_bytes: 8 };
    assert_eq!(why(me.global_array::<u64>(usize::MAX)), too_long);
    assert!(matches!(why(me.symmetric::<u64>(1 << 40)), ObjectError::TooLong { .. }));
    // Memory of objects that are too long is never taken.
    let registered = || me.memory_report().iter().map(|node| node.registered_bytes).sum::<usize>();
    let before = registered();
    let process_bytes = 256 << 30;
    let length = process_bytes / 8 * me.process_count() as usize;
    for length in [length - 256 * me.process_count() as usize, length] {
        assert!(matches!(why(me.global_array::<u64>(length)), ObjectError::TooLong { .. }));
    }
    assert!(matches!(why(me.symmetric::<u8>(process_bytes - 4095)), ObjectError::TooLong { .. }));
    assert_eq!(registered(), before);
    Ok(())
}

/// Requests that differ fail on all workers, and the job goes on.
fn unequal_wishes_are_refused(me: &Worker) -> Result<()> {
    let length = 10 + usize::from(me.id().number() == 1);
    let (a, b) = match why(me.global_array::<u64>(length)) {
        ObjectError::Unequal { a, b } => (a, b),
        other => panic!("{other:?}"),
    };
    assert_ne!(a == WorkerId::new(1), b == WorkerId::new(1));
    let narrow = me.id().number() == 0;
    let result = if narrow { me.symmetric::<u32>(8).map(drop) } else { me.symmetric::<u64>(8).map(drop) };
    assert!(matches!(why(result), ObjectError::Unequal { .. }));
    let first = ProcessId::new(if narrow { 1000 } else { 0 });
    assert!(matches!(why(me.byte_space(first, 1, 8)), ObjectError::Unequal { .. }));
    me.barrier()
}

/// Handlers access arrays.
fn functions_use_arrays(me: &Worker) -> Result<()> {
    let arrays = PerWorker::new(me, me.global_array::<u64>(me.worker_count() as usize * 2)?)?;
    let array = arrays.here(me);
    for index in 0..array.len() {
        let owner = array.worker_of(me, index)?;
        let added = me.call_return(owner, (arrays, index), |there, (arrays, index)| {
            // Memory of its own process needs no waiting.
            arrays.here(there).at(index).and_then(|at| at.fetch_add(there, 1)).is_ok()
        })?;
        assert!(added.wait()?);
    }
    me.barrier()?;
    assert!(array.local(me).iter().all(|value| value == u64::from(me.worker_count())));
    me.barrier()
}

/// Reads and writes across slices, at the end of the space, and outside.
fn byte_spaces_are_read_as_files(me: &Worker) -> Result<()> {
    let slices = me.process_count() - 1;
    let first = ProcessId::new(1);
    let space = me.byte_space(first, slices, 7)?;
    assert_eq!(space.bytes(), u64::from(slices) * 7);
    assert!(space.processes().eq(processes(me).skip(1)));
    if me.id().number() == 0 {
        let bytes: Vec<u8> = (1..=space.bytes() as u8).collect();
        space.write_all_at(me, 0, &bytes)?;
    }
    me.barrier()?;
    for offset in 0..space.bytes() + 2 {
        for length in [0, 1, 6, 8, 50] {
            let mut data = vec![0xff; length];
            let read = space.read_at(me, offset, &mut data)?;
            assert_eq!(read as u64, (length as u64).min(space.bytes().saturating_sub(offset)));
            assert!(data[..read].iter().enumerate().all(|(at, byte)| u64::from(*byte) == offset + at as u64 + 1));
            assert!(data[read..].iter().all(|byte| *byte == 0xff));
        }
    }
    assert_eq!(space.address(7)?.process(), (slices > 1).then(|| ProcessId::new(2)));
    let space_bytes = space.bytes();
    let outside = |offset, bytes| ObjectError::OutsideSpace { offset, bytes, space_bytes };
    assert_eq!(why(space.read_exact_at(me, space_bytes - 1, &mut [0; 2])), outside(space_bytes - 1, 2));
    assert_eq!(why(space.write_all_at(me, u64::MAX, &[1])), outside(u64::MAX, 1));
    assert_eq!(why(space.address(space_bytes)), outside(space_bytes, 1));
    me.barrier()?;
    if me.id().number() == 0 {
        assert_eq!(space.write_at(me, space_bytes - 2, &[70; 5])?, 2);
        let mut end = [0; 3];
        space.read_exact_at(me, space_bytes - 3, &mut end)?;
        assert_eq!(end, [space_bytes as u8 - 2, 70, 70]);
    }
    space.free(me)?;
    let processes = me.process_count();
    let too_many = ObjectError::TooManySlices { first: 1, slices: processes, processes };
    assert_eq!(why(me.byte_space(first, processes, 7)), too_many);
    assert!(matches!(why(me.byte_space(first, u32::MAX, 7)), ObjectError::TooManySlices { .. }));
    assert!(matches!(why(me.byte_space(first, 1, u64::MAX)), ObjectError::TooLong { .. }));
    let empty = me.byte_space(first, 0, 7)?;
    assert_eq!((empty.bytes(), empty.read_at(me, 0, &mut [0; 4])?), (0, 0));
    empty.free(me)
}

/// Freed memory is used again, and is zero again.
fn freed_memory_is_used_again(me: &Worker) -> Result<()> {
    let used = |me: &Worker| me.memory_report().iter().map(|node| node.used_bytes).sum::<usize>();
    let mut held = 0;
    for round in 0..50 {
        let array = me.global_array::<u64>(1 << 16)?;
        assert!(array.local(me).iter().all(|value| value == 0));
        me.barrier()?;
        array.fill(me, round + 1)?;
        array.free(me)?;
        me.barrier()?;
        match round {
            0 => held = used(me),
            _ => assert_eq!(used(me), held),
        }
        me.barrier()?;
    }
    Ok(())
}

everywhere! {
    as_processes(processes = 3, threads = 2),
    simulated(processes = 3, threads = 2, seeds = 1);
    symmetric_memory_is_where_it_is_computed
    symmetric_memory_of_no_values_is_empty
    memories_may_differ
    arrays_hold_what_was_put
    bad_indices_are_refused
    unequal_wishes_are_refused
    functions_use_arrays
    byte_spaces_are_read_as_files
    freed_memory_is_used_again
}

/// A worker that makes, uses or frees an object learns of a lost process in any step. Only memory
/// of the operation under way remains allocated.
#[test]
fn a_loss_ends_collectives() {
    for seed in spread(10) {
        let when = Duration::from_micros(50 + 37 * seed);
        let simulation = Simulation::new(3, 2, seed).kill(ProcessId::new(1), when);
        let well = AtomicU32::new(0);
        let simulated = simulation.run(|me| {
            let error = loop {
                match make_use_and_free(me) {
                    Ok(()) => {}
                    Err(error) => break error,
                }
            };
            if me.process().number() == 1 {
                return Err(error);
            }
            assert!(matches!(error, Error::PeerLost { process, .. } if process.number() == 1), "{error}");
            let report = |me: &Worker| me.memory_report();
            let before = report(me);
            for _ in 0..100 {
                let refused = me.symmetric::<u8>(1 << 20);
                assert!(matches!(refused, Err(Error::PeerLost { .. })), "{refused:?}");
            }
            assert_eq!(report(me), before, "what fails takes nothing");
            well.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err());
        assert_eq!(well.into_inner(), 4, "seed {seed}");
    }
}

fn make_use_and_free(me: &Worker) -> Result<()> {
    let array = me.global_array::<u64>(1 << 12)?;
    let symmetric = me.symmetric::<u64>(10)?;
    array.at(me.id().index() * 100)?.fetch_add(me, 1)?;
    array.fill(me, 3)?;
    symmetric.free(me)?;
    array.free(me)
}

//! Operations that do not wait. The bodies run as processes, over the fabric that `FARSIDE_FABRIC`
//! names, and in the simulator.

use farside::global::GlobalError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farside::prelude::*;
use farside::{
    AddressFault, AtomicChange, Comparison, Error, GlobalAddress, GlobalPtr, Handle, LaunchError, LogGp, MovementError,
    Order, Result, Signal, SimOptions, Simulation,
};
use farside_testbed::scaled;

use crate::support::{room, spread};

const SECOND: Duration = Duration::from_secs(1);
/// Each worker's part of every process's starter memory.
const PART_BYTES: u32 = 512;

/// Returns the address of a byte of this worker's part of a process's starter memory.
fn at(me: &Worker, process: u32, offset: u32) -> GlobalAddress {
    GlobalAddress::starter(ProcessId::new(process % me.process_count()), me.id().number() * PART_BYTES + offset)
}

fn pattern(seed: u32, bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (seed.wrapping_mul(31).wrapping_add(at * 7)) as u8).collect()
}

fn read(me: &Worker, address: GlobalAddress, bytes: usize) -> Result<Vec<u8>> {
    let mut data = vec![0; bytes];
    me.get_bytes(address, &mut data)?;
    Ok(data)
}

/// Copies between every combination of source and target process.
fn copies_go_from_anywhere_to_anywhere(me: &Worker) -> Result<()> {
    let own = me.process().number();
    for (round, (from, to)) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))).enumerate() {
        let (source, target) = (at(me, own + from, 0), at(me, own + to, 200));
        let bytes = pattern(round as u32 + me.id().number(), 111);
        me.put_bytes(source, &bytes)?;
        let copied = me.copy(target, source, 111, Order::None)?;
        me.complete(copied)?;
        assert!(me.inquire(copied)?);
        assert_eq!(read(me, target, 111)?, bytes, "from {from} to {to}");
    }
    me.barrier()
}

/// Large copies of odd sizes.
fn large_copies_arrive_whole(me: &Worker) -> Result<()> {
    let own = me.process().number();
    let process = |distance| ProcessId::new((own + distance) % me.process_count());
    for bytes in [131_072, 131_073, 700_001] {
        let memories = [0, 1, 2].map(|distance| me.allocate_at(process(distance), bytes));
        let memories: Vec<_> = memories.into_iter().collect::<Result<_>>()?;
        let content = pattern(bytes as u32 + own, bytes as usize);
        let addresses: Vec<_> = memories.iter().map(|memory| memory.address()).collect::<Result<_>>()?;
        me.put_bytes(addresses[1], &content)?;
        // From one peer to another, from there to this process, and back to the first.
        me.copy(addresses[2], addresses[1], bytes, Order::None)?;
        me.copy(addresses[0], addresses[2], bytes, Order::All)?;
        me.start_put_owned(addresses[1], vec![0; bytes as usize], Order::All)?.take(me)?;
        let back = me.copy(addresses[1], addresses[0], bytes, Order::All)?;
        me.complete(back)?;
        assert!(read(me, addresses[1], bytes as usize)? == content, "{bytes} bytes");
        memories.into_iter().try_for_each(|memory| me.release(memory))?;
    }
    me.barrier()
}

/// Buffers come back, and the previous values of words are returned or stored.
fn buffers_and_words_come_back(me: &Worker) -> Result<()> {
    let own = me.process().number();
    let there = at(me, own + 1, 0);
    let put = me.start_put_owned(there, pattern(own, 300), Order::None)?;
    assert_eq!(put.handle().worker(), me.id());
    assert_eq!(put.take(me)?, pattern(own, 300));
    let got = me.start_get(there.checked_add(100).unwrap(), vec![0; 200], Order::None)?.take(me)?;
    assert_eq!(got, pattern(own, 300)[100..]);
    let word: GlobalPtr<u64> = at(me, own + 2, 8).cast();
    let narrow: GlobalPtr<u32> = at(me, own + 2, 16).cast();
    word.put(me, 5)?;
    narrow.put(me, 6)?;
    let first = me.start_change(word, AtomicChange::Add(10), Order::None)?;
    let second =
        me.start_change(word, AtomicChange::CompareSwap { expected: 15, new: 1 }, Order::After(first.handle()))?;
    let third = me.start_change(narrow, AtomicChange::Max(9), Order::None)?;
    assert_eq!((second.take(me)?, first.take(me)?, third.take(me)?), (15, 5, 6));
    // ACP's form stores the previous value in memory of this process.
    let old: GlobalPtr<u64> = at(me, own, 32).cast();
    let stored = me.change_into(old, word, AtomicChange::Swap(77), Order::All)?;
    me.complete(stored)?;
    assert_eq!((old.get(me)?, word.get(me)?, narrow.get(me)?), (1, 77, 9));
    // A dropped operation still takes effect.
    drop(me.start_change(word, AtomicChange::Add(1), Order::None)?);
    me.flush_all()?;
    assert_eq!(word.get(me)?, 78);
    me.barrier()
}

/// A chain of copies through all processes, under each of the orders. Each step reads what the
/// previous one wrote.
fn orders_are_kept(me: &Worker) -> Result<()> {
    let own = me.process().number();
    for (round, kind) in (0..24).enumerate() {
        let step = |number: u32| at(me, own + number, 64 * (number % 7));
        let content = pattern(round as u32 * 9 + own, 40);
        me.put_bytes(step(0), &content)?;
        let mut last = me.copy(step(1), step(0), 40, Order::None)?;
        for number in 1..7 {
            let order = match (kind + number) % 3 {
                0 => Order::After(last),
                1 => Order::All,
                _ => Order::Continuing,
            };
            last = me.copy(step(number + 1), step(number), 40, order)?;
        }
        me.complete(last)?;
        assert_eq!(read(me, step(7), 40)?, content, "round {round}");
    }
    me.barrier()
}

/// Fences order operations on one process. Flushes wait for them.
fn fences_order_and_flushes_complete(me: &Worker) -> Result<()> {
    let own = me.process().number();
    let peer = ProcessId::new((own + 1) % me.process_count());
    for round in 0..20_u64 {
        let (data, flag) = (at(me, own + 1, 0), at(me, own + 1, 64));
        let mut last = None;
        for value in 0..5 {
            last = Some(me.start_put(data, &(round * 100 + value).to_le_bytes(), Order::None)?);
            match value % 2 {
                0 => me.fence_peer(peer),
                _ => me.fence_all(),
            }
        }
        me.copy(flag, data, 8, Order::None)?;
        me.flush_peer(peer)?;
        assert!(me.inquire(last.unwrap())?);
        let last = round * 100 + 4;
        assert_eq!((data.cast::<u64>().get(me)?, flag.cast::<u64>().get(me)?), (last, last));
    }
    me.barrier()
}

fn handles_are_waited_for(me: &Worker) -> Result<()> {
    let own = me.process().number();
    let put = |number: u32| me.start_put(at(me, own + number, 8 * number), &[1; 8], Order::None);
    let handles: Vec<Handle> = (0..10).map(put).collect::<Result<_>>()?;
    assert!(handles.is_sorted() && handles[9].number() == handles[0].number() + 9);
    assert!(me.complete_any(&handles, SECOND)? < 10);
    assert!(!me.complete_some(&handles[5..], SECOND)?.is_empty());
    me.complete_all(&handles, SECOND)?;
    assert_eq!(me.complete_some(&handles, SECOND)?.len(), 10);
    assert!(me.complete_some(&[], SECOND)?.is_empty());
    assert!(matches!(me.complete_any(&[], SECOND), Err(Error::Deadline { .. })));
    let copied = me.copy(at(me, own + 2, 100), at(me, own + 1, 0), 50, Order::All)?;
    me.block_on(me.completion(copied))??;
    while !me.inquire(copied)? {
        me.progress()?;
    }
    me.barrier()
}

/// Registered memory as source and target: between two peers, to and from this process, and while
/// its owner deregisters it.
fn registered_memory_is_an_end_like_any_other(me: &Worker) -> Result<()> {
    let segment = me.register((0..40_000_u64).map(|at| at + u64::from(me.id().number())).collect())?;
    let root = WorkerId::new(0);
    let starts = me.broadcast(root, me.gather(root, segment.slice().start())?)?;
    let place = |distance: u32, index: usize| starts[me.neighbor(distance).index()].add(index).map(GlobalPtr::address);
    let own = me.id().index();
    // Each worker writes a part of its own in the memory of every process.
    let part = 20_000 + own * 2_500;
    let (one, two) = (me.threads_per_process(), 2 * me.threads_per_process());
    let copied = me.copy(place(two, part)?, place(one, 0)?, 8 * 2_000, Order::None)?;
    let back = me.copy(place(0, part)?, place(two, part)?, 8 * 2_000, Order::After(copied))?;
    me.start_put(place(one, part + 2_001)?, &[7; 8], Order::Continuing)?;
    let word = place(two, part + 2_010)?.cast::<u64>();
    let old = place(0, part + 2_020)?.cast::<u64>();
    me.change_into(old, word, AtomicChange::Add(1), Order::All)?;
    me.complete(back)?;
    me.flush_all()?;
    let from = u64::from(me.neighbor(one).number());
    assert_eq!((segment.local().get(part), segment.local().get(part + 1_999)), (from, from + 1_999));
    let held = (part + 2_010) as u64 + u64::from(me.neighbor(two).number());
    assert_eq!((segment.local().get(part + 2_020), word.get(me)?), (held, held + 1));
    me.barrier()?;
    // Deregistered while others copy from it and to it. Their copies complete or fail for that
    // reason.
    let source = place(one, 0)?;
    for _ in 0..20 {
        let copied = me.copy(place(two, part)?, source, 8 * 2_000, Order::None);
        if matches!(room(&copied), Some(GlobalError::Address { why: AddressFault::Stale, .. })) {
            break;
        }
        copied?;
    }
    let values = segment.deregister(me)?;
    assert_eq!(values.len(), 40_000);
    loop {
        match me.flush_all() {
            Ok(()) => break,
            Err(error) => {
                let Some(GlobalError::Movement(MovementError::Failed { cause, .. })) = error.room_error() else {
                    return Err(error);
                };
                let is_stale =
                    matches!(cause.room_error(), Some(GlobalError::Address { why: AddressFault::Stale, .. }));
                assert!(is_stale, "{cause}");
            }
        }
    }
    me.barrier()?;
    let copied = me.copy(place(two, part)?, source, 8, Order::None).and_then(|copied| me.complete(copied));
    assert!(copied.is_err());
    let readable = me.register_read_only(vec![1_u64; 8])?;
    let starts = me.broadcast(root, me.gather(root, readable.slice().start())?)?;
    let put = me.start_put(starts[me.neighbor(one).index()].address(), &[0; 8], Order::None)?;
    let told = me.complete(put);
    let Some(GlobalError::Movement(MovementError::Failed { cause, .. })) = room(&told) else { panic!("{told:?}") };
    let is_read_only = matches!(cause.room_error(), Some(GlobalError::Address { why: AddressFault::ReadOnly, .. }));
    assert!(is_read_only, "{cause}");
    me.barrier()
}

/// Returns whether too many operations have failed without a report to the program.
fn is_too_many(error: &Error) -> bool {
    matches!(error.room_error(), Some(GlobalError::Movement(MovementError::TooMany { .. })))
}

fn why<T: std::fmt::Debug>(result: Result<T>) -> AddressFault {
    match room(&result) {
        Some(GlobalError::Address { why, .. }) => *why,
        _ => panic!("{result:?} is not about an address"),
    }
}

fn invalid_addresses_are_refused(me: &Worker) -> Result<()> {
    let own = me.process().number();
    let good = at(me, own + 1, 0);
    let null = GlobalAddress::NULL;
    assert_eq!(why(me.copy(null, good, 8, Order::None)), AddressFault::Null);
    assert_eq!(why(me.copy(good, null, 8, Order::None)), AddressFault::Null);
    let count = me.process_count();
    let unknown = GlobalAddress::starter(ProcessId::new(count), 0);
    assert_eq!(why(me.copy(good, unknown, 8, Order::None)), AddressFault::NoSuchProcess { count });
    let stale = GlobalAddress::from_bits(good.to_bits() + (1 << 42));
    assert_eq!(why(me.start_put(stale, &[1], Order::None)), AddressFault::Stale);
    let long = me.copy(at(me, own, 0), good, 1 << 40, Order::None);
    assert!(matches!(why(long), AddressFault::OutOfRange { bytes, .. } if bytes == 1 << 40));
    let misaligned = at(me, own, 4).cast::<u64>();
    assert_eq!(
        why(me.start_change(misaligned, AtomicChange::Load, Order::None).map(drop)),
        AddressFault::Misaligned { align: 8 }
    );
    let is_movement = |result: Result<Handle>, is_it: &dyn Fn(&MovementError) -> bool| {
        assert!(matches!(room(&result), Some(GlobalError::Movement(error)) if is_it(error)), "{result:?}");
    };
    for (distance, bytes) in [(0, 1), (5, 6), (7, 100)] {
        let near = good.checked_add(distance).unwrap();
        for (target, source) in [(good, near), (near, good)] {
            is_movement(me.copy(target, source, bytes, Order::None), &|error| {
                matches!(error, MovementError::Overlap { .. })
            });
        }
    }
    me.complete(me.copy(good.checked_add(7).unwrap(), good, 7, Order::None)?)?;
    me.complete(me.copy(good, good, 0, Order::None)?)?;
    is_movement(me.start_put(good, &[0; 65], Order::None), &|error| {
        matches!(error, MovementError::TooLong { bytes: 65, max: 64 })
    });
    let word: GlobalPtr<u64> = at(me, own + 1, 64).cast();
    is_movement(me.change_into(word, word, AtomicChange::Load, Order::None), &|error| {
        matches!(error, MovementError::NotOwn { .. })
    });
    // Handles of other workers.
    let mine = me.start_put(good, &[1], Order::None)?;
    let root = WorkerId::new(0);
    let gathered = me.gather(root, (mine.worker(), mine.number()))?;
    assert_eq!(gathered.map(|all| all.len()), (me.id() == root).then_some(me.worker_count() as usize));
    let refused = me.start_get(null, vec![1; 9], Order::None).unwrap_err();
    assert_eq!((refused.arguments.len(), why::<()>(Err(refused.error))), (9, AddressFault::Null));
    me.flush_all()?;
    me.barrier()
}

type Body = fn(&Worker) -> Result<()>;

const BODIES: [Body; 8] = [
    copies_go_from_anywhere_to_anywhere,
    large_copies_arrive_whole,
    buffers_and_words_come_back,
    orders_are_kept,
    fences_order_and_flushes_complete,
    handles_are_waited_for,
    invalid_addresses_are_refused,
    registered_memory_is_an_end_like_any_other,
];

#[farside::test(processes = 3, threads = 2)]
fn everything_by_processes(me: &Worker) -> Result<()> {
    BODIES.into_iter().try_for_each(|body| body(me))
}

#[test]
fn everything_in_the_simulator() {
    for seed in spread(6) {
        farside::simulate(3, 1 + seed as u32 % 2, seed, |me| BODIES.into_iter().try_for_each(|body| body(me))).unwrap();
    }
}

/// Operations under way at the end of the body complete before the job ends.
#[test]
fn operations_under_way_at_the_end_are_awaited() {
    for seed in 0..scaled(10) {
        let seen = AtomicU32::new(0);
        farside::simulate(3, 1, seed, |me| {
            let own = me.process().number();
            let word: GlobalPtr<u64> = GlobalAddress::starter(ProcessId::new(0), 4000).cast();
            me.put_bytes(at(me, own + 1, 0), &[7; 64])?;
            me.copy(at(me, own + 2, 100), at(me, own + 1, 0), 64, Order::None)?;
            drop(me.start_change(word, AtomicChange::Add(1), Order::All)?);
            if me.id().number() == 0 {
                me.wait_while_serving(|| word.load(me).is_ok_and(|count| count == 3))?;
                seen.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(seen.into_inner(), 1);
    }
}

/// Returns the time of twelve copies from one peer to another, each after the previous one.
fn chain_of_copies(at_the_target: bool) -> Duration {
    let network = LogGp { latency_ns: 10_000, overhead_ns: 0, gap_ns: 0, gap_per_byte_ps: 0, ..LogGp::IDEAL };
    let options = SimOptions { network, delay_max_ns: 0, ..SimOptions::default() };
    let simulation = Simulation::new(3, 1, 1).options(options);
    let took = AtomicU32::new(0);
    let simulated = simulation.run(|me| {
        if me.id().number() == 0 {
            let place = |process, offset| GlobalAddress::starter(ProcessId::new(process), offset);
            place(1, 0).cast::<u64>().put(me, 42)?;
            // The executor knows both regions afterwards.
            me.complete(me.copy(place(2, 0), place(1, 0), 8, Order::None)?)?;
            let begun = me.now();
            let mut last = me.copy(place(2, 8), place(1, 0), 8, Order::None)?;
            for number in 2..12 {
                if !at_the_target {
                    me.complete(last)?;
                }
                last = me.copy(place(2, 8 * number), place(1, 0), 8, Order::After(last))?;
            }
            // An operation that any process can carry out goes to the same executor.
            if !at_the_target {
                me.complete(last)?;
            }
            last = me.start_put(place(2, 104), &[1; 8], Order::After(last))?;
            me.complete(last)?;
            let nanoseconds = (me.now() - begun).as_nanos();
            took.store(u32::try_from(nanoseconds).unwrap(), Ordering::Relaxed);
            assert_eq!(place(2, 88).cast::<u64>().get(me)?, 42);
        }
        me.barrier()
    });
    simulated.unwrap().verdict.unwrap();
    Duration::from_nanos(took.into_inner().into())
}

/// An operation that follows one of another process is held at that process. A round trip is two
/// latencies. Each of twelve operations takes one to the executor and back here, and the executor
/// itself needs one for each.
#[test]
fn commands_to_one_executor_are_held_there() {
    let latency = Duration::from_micros(10);
    let (waited, held) = (chain_of_copies(false), chain_of_copies(true));
    assert!(waited >= latency * (11 * 4 + 2), "{waited:?}");
    assert!(held < latency * (12 * 2 + 2) + latency, "{held:?} where waiting took {waited:?}");
}

/// Many workers issue more commands than a process takes, with little room for messages.
#[test]
fn an_overloaded_process_refuses_and_is_asked_again() {
    for seed in spread(3) {
        let options = SimOptions { messages_max: 16, operations_max: 8, ..SimOptions::default() };
        let simulation = Simulation::new(5, 1, seed).options(options);
        let simulated = simulation.run(|me| {
            let own = me.id().number();
            let place = |process: u32, offset: u32| GlobalAddress::starter(ProcessId::new(process), offset);
            let source = place(0, 8 * own);
            source.cast::<u64>().put(me, u64::from(own))?;
            me.barrier()?;
            if own > 0 {
                let next = own % 4 + 1;
                let mut last = None;
                // Four workers request 250 each of a process that takes 256.
                for round in 0..250_u32 {
                    let order = if round % 3 == 0 { Order::None } else { Order::Continuing };
                    let target = place(next, 64 + 64 * own + 8 * (round % 8));
                    last = Some(me.copy(target, source, 8, order)?);
                }
                me.complete(last.unwrap())?;
                for at in 0..8 {
                    assert_eq!(place(next, 64 + 64 * own + 8 * at).cast::<u64>().get(me)?, u64::from(own));
                }
            }
            me.barrier()
        });
        simulated.unwrap().verdict.unwrap();
    }
}

/// A process dies while it executes operations and is read and written. Operations that needed it
/// fail, and so do those ordered after them. The rest completes.
#[test]
fn operations_with_a_lost_process_fail_and_others_do_not() {
    let doomed = ProcessId::new(2);
    let (mut failed_in_all, seeds) = (0, spread(30));
    for seed in seeds.clone() {
        let options = SimOptions { delay_max_ns: 20_000, ..SimOptions::default() };
        let simulation =
            Simulation::new(4, 1, seed).options(options).kill(doomed, Duration::from_micros(200 + 37 * seed));
        let (well, failed) = (AtomicU32::new(0), AtomicU32::new(0));
        let simulated = simulation.run(|me| {
            let own = me.id().number();
            let place = |process: u32, offset: u32| GlobalAddress::starter(ProcessId::new(process), 512 * own + offset);
            let mut round = 0;
            let mut started: Vec<(Handle, bool)> = Vec::new();
            let mut told = std::collections::BTreeMap::new();
            while me.lost_processes().is_empty() {
                round += 1;
                let (from, to) = (round % 4, (round / 4) % 4);
                let order = match round % 5 {
                    0 => Order::All,
                    1 | 2 => Order::Continuing,
                    _ => Order::None,
                };
                let result = match round % 3 {
                    0 => me.copy(place(to, 256), place(from, 0), 200, order),
                    1 => me.start_put(place(to, 0), &[1; 64], order),
                    _ => me
                        .start_change(place(to, 8).cast::<u64>(), AtomicChange::Add(1), order)
                        .map(|word| word.handle()),
                };
                let needed = to == 2 || (round % 3 == 0 && from == 2);
                // An operation that follows one of the doomed process may execute there, too.
                let moves = round % 3 != 0 && order != Order::None;
                match result {
                    Ok(handle) => started.push((handle, needed || moves)),
                    Err(Error::PeerLost { process, .. }) if needed && process == doomed => {}
                    Err(error) if is_too_many(&error) => {}
                    other => panic!("{other:?}"),
                }
                if round % 40 == 0 && own != 2 {
                    complete_all(me, doomed, &mut told)?;
                }
                me.progress()?;
            }
            complete_all(me, doomed, &mut told)?;
            // Operations complete that neither needed the lost process nor followed one that did.
            for (handle, why) in &told {
                let needed = started.iter().any(|(started, needed)| started == handle && *needed);
                assert!(needed || *why == "not started", "{handle} failed: {why}");
            }
            // Operations among the survivors succeed.
            let (there, back) = (place((own + 1) % 2, 0), place(own, 8));
            let put = me.start_put(there, &7_u64.to_le_bytes(), Order::All)?;
            me.complete(me.copy(back, there, 8, Order::After(put))?)?;
            assert_eq!(back.cast::<u64>().get(me)?, 7);
            assert!(matches!(me.copy(place(2, 0), there, 8, Order::None), Err(Error::PeerLost { .. })));
            failed.fetch_add(told.len() as u32, Ordering::Relaxed);
            well.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let verdict = simulated.unwrap().verdict;
        assert!(
            matches!(verdict, Err(Error::Launch(LaunchError::ProcessFailed { process, .. })) if process == doomed),
            "{verdict:?}"
        );
        assert_eq!(well.into_inner(), 3, "seed {seed}");
        failed_in_all += failed.into_inner();
    }
    assert!(
        failed_in_all as usize > seeds.count(),
        "{failed_in_all} operations were under way with a process that died"
    );
}

/// Completes all operations, and notes each failure with its cause.
fn complete_all(
    me: &Worker,
    doomed: ProcessId,
    told: &mut std::collections::BTreeMap<Handle, &'static str>,
) -> Result<()> {
    loop {
        let (handle, why) = match me.flush_all() {
            Ok(()) => return Ok(()),
            Err(error) => match error.room_error() {
                Some(GlobalError::Movement(MovementError::NotStarted { handle, earlier })) => {
                    assert!(earlier < handle);
                    (*handle, "not started")
                }
                Some(GlobalError::Movement(MovementError::Failed { handle, cause })) => {
                    assert!(
                        matches!(**cause, Error::PeerLost { process, .. } if process == doomed),
                        "{handle}: {cause}"
                    );
                    (*handle, "lost")
                }
                _ => return Err(error),
            },
        };
        assert!(told.insert(handle, why).is_none(), "{handle} is told twice");
    }
}

/// A failure that the program does not look at fails the worker at the end of its body.
#[test]
fn unreported_failures_are_returned_at_the_end() {
    let mut told = 0;
    for seed in 0..scaled(3) {
        let simulation = Simulation::new(3, 1, seed).kill(ProcessId::new(2), Duration::from_micros(300));
        let failed = AtomicU32::new(0);
        let simulated = simulation.run(|me| {
            let place = |process, offset| GlobalAddress::starter(ProcessId::new(process), offset);
            while me.id().number() != 1 && me.lost_processes().is_empty() {
                match me.copy(place(2, 8), place(1, 0), 8, Order::None) {
                    Ok(_) => {}
                    Err(Error::PeerLost { .. }) => break,
                    Err(error) if is_too_many(&error) => break,
                    Err(other) => return Err(other),
                }
                me.progress()?;
            }
            if me.id().number() == 0 {
                failed.fetch_add(u32::from(me.flush_all().is_err()), Ordering::Relaxed);
            }
            Ok(())
        });
        let Err(Error::Launch(LaunchError::ProcessFailed { process, .. })) = simulated.unwrap().verdict else {
            panic!("a process was lost")
        };
        assert!(process.number() == 2 || process.number() == 0);
        told += failed.into_inner();
    }
    assert!(told > 0, "nothing was under way to the process that died");
}

/// A handle is valid for the worker that got it, and in its job only.
#[test]
fn handles_of_others_are_refused() {
    let kept = std::sync::Mutex::new(None);
    let run = |body: BodyOfTwo<'_>| Simulation::new(2, 1, 3).run(body).unwrap().verdict.unwrap();
    run(&|me| {
        let put = |_| me.start_put(at(me, 1, 0), &[1; 8], Order::None);
        let handles: Vec<Handle> = (0..5).map(put).collect::<Result<_>>()?;
        if me.id().number() == 0 {
            *kept.lock().unwrap() = Some(handles[4]);
        }
        me.flush_all()
    });
    run(&|me| {
        let handle = kept.lock().unwrap().expect("it was kept");
        let results = [
            me.complete(handle),
            me.inquire(handle).map(drop),
            me.complete_any(&[handle], SECOND).map(drop),
            me.complete_all(&[handle], SECOND),
            me.block_on(me.completion(handle))?,
            me.start_put(at(me, 1, 0), &[1], Order::After(handle)).map(drop),
            me.copy(at(me, 1, 0), at(me, 0, 0), 8, Order::After(handle)).map(drop),
        ];
        for result in results {
            match room(&result) {
                Some(GlobalError::Movement(MovementError::Foreign { by, .. })) => assert_eq!(by.number(), 1),
                Some(GlobalError::Movement(MovementError::NeverStarted { started: 0, .. })) => {
                    assert_eq!(me.id().number(), 0);
                }
                _ => panic!("{result:?}"),
            }
        }
        Ok(())
    });
}

type BodyOfTwo<'b> = &'b (dyn Fn(&Worker) -> Result<()> + Send + Sync);

/// A wait that ends at its deadline leaves the operation under way.
#[test]
fn an_operation_past_its_deadline_continues() {
    let network = LogGp { latency_ns: 1_000_000, overhead_ns: 0, gap_ns: 0, gap_per_byte_ps: 0, ..LogGp::IDEAL };
    let options = SimOptions { network, delay_max_ns: 0, ..SimOptions::default() };
    let simulated = Simulation::new(3, 1, 1).options(options).run(|me| {
        if me.id().number() == 0 {
            let place = |process, offset| GlobalAddress::starter(ProcessId::new(process), offset);
            place(1, 0).cast::<u64>().put(me, 5)?;
            let copied = me.copy(place(2, 0), place(1, 0), 8, Order::None)?;
            let short = Duration::from_micros(100);
            assert!(matches!(me.complete_within(copied, short), Err(Error::Deadline { .. })));
            assert!(matches!(me.complete_any(&[copied], short), Err(Error::Deadline { .. })));
            assert!(!me.inquire(copied)?);
            me.complete(copied)?;
            assert_eq!(place(2, 0).cast::<u64>().get(me)?, 5);
        }
        me.barrier()
    });
    simulated.unwrap().verdict.unwrap();
}

/// A copy that waits only for the pieces of others does not time out. A dozen large copies together
/// take several deadlines.
#[test]
fn copies_wait_for_their_turn() {
    let (bytes, deadline) = (4_u32 << 20, Duration::from_millis(3));
    let options = SimOptions { network: LogGp::FDR, delay_max_ns: 0, ..SimOptions::default() };
    let simulation = Simulation::new(2, 1, 1).options(options).starter_bytes(bytes + 64).deadline(deadline);
    let simulated = simulation.run(|me| {
        let over = |of: u32| GlobalAddress::starter(ProcessId::new(of), bytes).cast::<u64>();
        if me.process().number() == 1 {
            return over(1).until(Comparison::Ne, 0).wait_for(me, SECOND).map(drop);
        }
        let [own, there] = [0, 1].map(|process| GlobalAddress::starter(ProcessId::new(process), 0));
        let before = me.now();
        for _ in 0..12 {
            me.copy(there, own, bytes.into(), Order::None)?;
        }
        let last = me.copy(there, own, 8, Order::None)?;
        me.complete_within(last, SECOND)?;
        assert!(me.now() - before > 2 * deadline, "{:?} is no test of this", me.now() - before);
        over(1).signal(me, Signal::Set(1))
    });
    simulated.unwrap().verdict.unwrap();
}

/// An operation that continues the previous one continues the latest at its admission. A handler
/// may start another while it waits for room.
#[test]
fn waiting_for_room_continues_started_operations() {
    const LARGE: u32 = 2 << 20;
    for seed in 0..scaled(4) {
        let options = SimOptions { network: LogGp::FDR, delay_max_ns: 0, ..SimOptions::default() };
        let simulation = Simulation::new(2, 1, seed).options(options).starter_bytes(LARGE + 4096);
        simulation.run(continue_what_a_handler_started).unwrap().verdict.unwrap();
    }

    fn continue_what_a_handler_started(me: &Worker) -> Result<()> {
        let root = WorkerId::new(0);
        let there = |offset| GlobalAddress::starter(ProcessId::new(1), offset);
        let armed = GlobalAddress::starter(ProcessId::new(0), 8).cast::<u64>();
        let fixed = me.register_read_only(vec![1_u64; 8])?;
        let starts = me.broadcast(root, me.gather(root, fixed.slice().start())?)?;
        if me.process().number() == 1 {
            // The first call is slower than later ones.
            me.call_return(root, (), |_, ()| ())?.wait()?;
            while armed.get(me)? != 1 {
                me.charge(Duration::from_micros(1));
            }
            me.call(root, armed, |me, armed| {
                // Two failed operations are completed, which makes room for two.
                for _ in 0..2 {
                    let mut told = std::pin::pin!(me.completion(FAILED.get().unwrap()));
                    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
                    let std::task::Poll::Ready(told) = told.as_mut().poll(context) else { panic!("it has ended") };
                    assert!(matches!(room(&told), Some(GlobalError::Movement(_))), "{told:?}");
                }
                let large = GlobalAddress::starter(ProcessId::new(1), 4096);
                let put = me.start_put_owned(large, vec![1; LARGE as usize], Order::None).unwrap();
                armed.put(me, put.handle().number()).unwrap();
            })?;
            me.barrier()?;
            return fixed.deregister(me).map(drop);
        }
        let failed = me.start_put(starts[1].address(), &[0; 8], Order::None)?;
        me.complete_any(&[failed], SECOND)?;
        let mut last = failed;
        for _ in 1..255 {
            last = me.start_put(there(0), &[0; 8], Order::After(failed))?;
        }
        FAILED.set(Some(last));
        armed.put(me, 1)?;
        // The call arrives before the large put occupies the network.
        me.charge(Duration::from_micros(100));
        drop(me.start_put_owned(there(4096), vec![3; LARGE as usize / 2], Order::None).map_err(|it| it.error)?);
        // The last bytes that the handler puts.
        let end = there(4096 + LARGE - 8);
        let put = me.start_put_owned(end, vec![2; 8], Order::Continuing).map_err(|refused| refused.error)?;
        assert_eq!(put.handle().number(), armed.get(me)? + 1, "the handler came between");
        put.take(me)?;
        while me.flush_all().is_err() {}
        assert_eq!(read(me, end, 8)?, [2; 8]);
        me.barrier()?;
        fixed.deregister(me).map(drop)
    }

    thread_local! {
        /// The latest failed operation, for the handler, which runs on the same thread.
        static FAILED: std::cell::Cell<Option<Handle>> = const { std::cell::Cell::new(None) };
    }
}

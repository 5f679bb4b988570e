//! Operations that do not wait. The bodies run as processes, over whatever `FARSIDE_FABRIC` says, and in the simulator.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farside::prelude::*;
use farside::{
    AddressFault, AtomicChange, Error, GlobalAddress, GlobalPtr, Handle, MovementError, Order, Result,
};

const SECOND: Duration = Duration::from_secs(1);
/// Each worker's part of every process's starter memory.
const PART_BYTES: u32 = 512;

/// A byte of this worker's part of a process's starter memory.
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

/// Every combination of where the bytes are and where they go to.
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

/// Large copies, of sizes that are no multiple of anything.
fn large_copies_arrive_whole(me: &Worker) -> Result<()> {
    let own = me.process().number();
    let process = |distance| ProcessId::new((own + distance) % me.process_count());
    for bytes in [131_072, 131_073, 700_001] {
        let memories = [0, 1, 2].map(|distance| me.allocate_at(process(distance), bytes));
        let memories: Vec<_> = memories.into_iter().collect::<Result<_>>()?;
        let content = pattern(bytes as u32 + own, bytes as usize);
        let addresses: Vec<_> = memories.iter().map(|memory| memory.address()).collect::<Result<_>>()?;
        me.put_bytes(addresses[1], &content)?;
        // From one peer to another, from there here, and from here to the first.
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

/// What is handed over comes back; what words held is told, or stored.
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
    let second = me.start_change(word, AtomicChange::CompareSwap { expected: 15, new: 1 }, Order::After(first.handle()))?;
    let third = me.start_change(narrow, AtomicChange::Max(9), Order::None)?;
    assert_eq!((second.take(me)?, first.take(me)?, third.take(me)?), (15, 5, 6));
    // ACP's form: what it held is found in memory of this process.
    let old: GlobalPtr<u64> = at(me, own, 32).cast();
    let stored = me.change_into(old, word, AtomicChange::Swap(77), Order::All)?;
    me.complete(stored)?;
    assert_eq!((old.get(me)?, word.get(me)?, narrow.get(me)?), (1, 77, 9));
    // Dropped, it happens all the same.
    drop(me.start_change(word, AtomicChange::Add(1), Order::None)?);
    me.flush_all()?;
    assert_eq!(word.get(me)?, 78);
    me.barrier()
}

/// A chain of copies through all processes under each of the orders: each step reads what the one before wrote.
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

/// Fences order what reaches the same process; flushes wait for it.
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
    assert!(me.wait_any(&handles, SECOND)? < 10);
    assert!(!me.wait_some(&handles[5..], SECOND)?.is_empty());
    me.wait_all(&handles, SECOND)?;
    assert_eq!(me.wait_some(&handles, SECOND)?.len(), 10);
    assert!(me.wait_some(&[], SECOND)?.is_empty());
    assert!(matches!(me.wait_any(&[], SECOND), Err(Error::Deadline { .. })));
    let copied = me.copy(at(me, own + 2, 100), at(me, own + 1, 0), 50, Order::All)?;
    me.block_on(me.completion(copied))??;
    while !me.inquire(copied)? {
        me.progress()?;
    }
    me.barrier()
}

fn why<T: std::fmt::Debug>(result: Result<T>) -> AddressFault {
    match result {
        Err(Error::Address { why, .. }) => why,
        other => panic!("{other:?} is not about an address"),
    }
}

fn what_is_wrong_is_refused(me: &Worker) -> Result<()> {
    let own = me.process().number();
    let good = at(me, own + 1, 0);
    let null = GlobalAddress::NULL;
    assert_eq!(why(me.copy(null, good, 8, Order::None)), AddressFault::Null);
    assert_eq!(why(me.copy(good, null, 8, Order::None)), AddressFault::Null);
    let count = me.process_count();
    let nobody = GlobalAddress::starter(ProcessId::new(count), 0);
    assert_eq!(why(me.copy(good, nobody, 8, Order::None)), AddressFault::NoSuchProcess { count });
    let stale = GlobalAddress::from_bits(good.to_bits() + (1 << 32));
    assert_eq!(why(me.start_put(stale, &[1], Order::None)), AddressFault::Stale);
    let long = me.copy(at(me, own, 0), good, 1 << 40, Order::None);
    assert!(matches!(why(long), AddressFault::OutOfRange { bytes, .. } if bytes == 1 << 40));
    let misaligned = at(me, own, 4).cast::<u64>();
    assert_eq!(why(me.start_change(misaligned, AtomicChange::Load, Order::None).map(drop)), AddressFault::Misaligned { align: 8 });
    let movement = |result: Result<Handle>| match result {
        Err(Error::Movement(error)) => error,
        other => panic!("{other:?} is not about movement"),
    };
    for (distance, bytes) in [(0, 1), (5, 6), (7, 100)] {
        let near = good.checked_add(distance).unwrap();
        for (target, source) in [(good, near), (near, good)] {
            assert!(matches!(movement(me.copy(target, source, bytes, Order::None)), MovementError::Overlap { .. }));
        }
    }
    me.complete(me.copy(good.checked_add(7).unwrap(), good, 7, Order::None)?)?;
    me.complete(me.copy(good, good, 0, Order::None)?)?;
    let too_long = movement(me.start_put(good, &[0; 65], Order::None));
    assert!(matches!(too_long, MovementError::TooLong { bytes: 65, max: 64 }));
    let word: GlobalPtr<u64> = at(me, own + 1, 64).cast();
    assert!(matches!(movement(me.change_into(word, word, AtomicChange::Load, Order::None)), MovementError::NotOwn { .. }));
    // Handles of others, and of operations that there never were.
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

const BODIES: [Body; 7] = [
    copies_go_from_anywhere_to_anywhere,
    large_copies_arrive_whole,
    buffers_and_words_come_back,
    orders_are_kept,
    fences_order_and_flushes_complete,
    handles_are_waited_for,
    what_is_wrong_is_refused,
];

#[farside::test(processes = 3, threads = 2)]
fn everything_by_processes(me: &Worker) -> Result<()> {
    BODIES.into_iter().try_for_each(|body| body(me))
}

#[test]
fn everything_in_the_simulator() {
    for seed in 0..6 {
        farside::simulate(3, 1 + seed as u32 % 2, seed, |me| BODIES.into_iter().try_for_each(|body| body(me))).unwrap();
    }
}

/// What is under way when the body ends is over before the job is.
#[test]
fn what_is_under_way_at_the_end_is_waited_for() {
    for seed in 0..10 {
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

//! The global address space. The bodies run as processes, over the fabric that `FARSIDE_FABRIC`
//! names, and in the simulator.

use farside::global::GlobalError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farside::bytemuck::{Pod, Zeroable};
use farside::prelude::*;
use farside::{AddressFault, Error, GlobalAddress, GlobalPtr, GlobalSlice, Order, Result, Simulation, field};
use farside_kit::prelude::*;
use farside_kit::section::{Section, SectionError, SectionFault};
use farside_testbed::scaled;
use proptest::prelude::*;

use crate::support::room;

const STARTER_BYTES: u32 = 4096;

/// A counter at an address that all workers know.
fn counter() -> GlobalPtr<u64> {
    GlobalAddress::starter(ProcessId::new(0), 0).cast()
}

/// Every worker writes into every process's starter memory and reads what the others wrote.
fn starters_are_known(me: &Worker) -> Result<()> {
    let own = me.id().number();
    let place = |process: u32, worker: u32| -> GlobalPtr<u64> {
        GlobalAddress::starter(ProcessId::new(process), 64 + worker * 8).cast()
    };
    for process in 0..me.process_count() {
        place(process, own).put(me, u64::from(own * 1000 + process))?;
    }
    me.barrier()?;
    for process in 0..me.process_count() {
        for worker in 0..me.worker_count() {
            assert_eq!(place(process, worker).get(me)?, u64::from(worker * 1000 + process));
        }
    }
    me.barrier()
}

/// The additions of many workers are all there.
fn words_are_changed_atomically(me: &Worker) -> Result<()> {
    let rounds = 200;
    let narrow: GlobalPtr<u32> = GlobalAddress::starter(ProcessId::new(0), 8).cast();
    for _ in 0..rounds {
        counter().fetch_add(me, 1)?;
        narrow.fetch_xor(me, 1 << me.id().number())?;
    }
    me.barrier()?;
    assert_eq!(counter().load(me)?, rounds * u64::from(me.worker_count()));
    assert_eq!(narrow.load(me)?, 0);
    me.barrier()?;
    if me.id().number() == 0 {
        let word = counter();
        assert_eq!(word.swap(me, 0b1100)?, rounds * u64::from(me.worker_count()));
        assert_eq!((word.fetch_and(me, 0b0110)?, word.fetch_or(me, 1)?, word.load(me)?), (0b1100, 0b0100, 0b0101));
        assert_eq!((word.fetch_min(me, 3)?, word.fetch_max(me, 9)?, word.load(me)?), (5, 3, 9));
        assert_eq!((word.compare_swap(me, 8, 1)?, word.compare_swap(me, 9, 1)?, word.load(me)?), (9, 9, 1));
        word.store(me, 0)?;
    }
    me.barrier()
}

/// Values and slices in memory of another process, which has sent their address.
fn addresses_travel(me: &Worker) -> Result<()> {
    let next = me.neighbor(1);
    let memory = me.allocate_at(next, 8 * 1000)?;
    let numbers: GlobalSlice<u64> = memory.address()?.cast().slice(1000);
    let values: Vec<u64> = (0..1000).map(|at| at * 7 + u64::from(me.id().number())).collect();
    numbers.put(me, 0, &values)?;
    // A function there reads the put value by the address.
    let sum = me.call_return(next, numbers, |there, slice| {
        let own = slice.start().process() == Some(there.process());
        (own, slice.to_vec(there).map_or(0, |values| values.iter().sum::<u64>()))
    });
    let expected = values.iter().sum();
    // A handler reads its own memory, and other memory only where it is mapped.
    assert_eq!(sum?.wait()?, (true, expected));
    let mut part = [0; 3];
    numbers.part(10..20)?.get(me, 7, &mut part)?;
    assert_eq!(part, [values[17], values[18], values[19]]);
    assert_eq!(numbers.at(999)?.get(me)?, values[999]);
    me.release(memory)?;
    me.barrier()
}

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "farside::bytemuck")]
#[repr(C)]
struct Node {
    next: GlobalPtr<Node>,
    value: u64,
}

/// A list across all processes, to which all push at the same time.
fn a_list_goes_through_all_processes(me: &Worker) -> Result<()> {
    let head: GlobalPtr<u64> = GlobalAddress::starter(ProcessId::new(0), 1024).cast();
    let pushes = 10;
    let mut mine = Vec::new();
    for round in 0..pushes {
        let memory = me.allocate_at(me.process(), size_of::<Node>() as u64)?;
        let node: GlobalPtr<Node> = memory.address()?.cast();
        mine.push(memory);
        let value = u64::from(me.id().number() * pushes + round);
        let mut first = head.load(me)?;
        loop {
            node.put(me, Node { next: GlobalAddress::from_bits(first).cast(), value })?;
            match head.compare_swap(me, first, node.address().to_bits())? {
                found if found == first => break,
                found => first = found,
            }
        }
    }
    me.barrier()?;
    let mut seen = vec![false; (me.worker_count() * pushes) as usize];
    let mut at: GlobalPtr<Node> = GlobalAddress::from_bits(head.load(me)?).cast();
    while !at.is_null() {
        let node = at.get(me)?;
        assert_eq!(field!(at, Node, value)?.get(me)?, node.value);
        assert!(!std::mem::replace(&mut seen[node.value as usize], true), "{} is there twice", node.value);
        at = node.next;
    }
    assert!(seen.iter().all(|seen| *seen), "some are missing");
    me.barrier()?;
    mine.into_iter().try_for_each(|memory| me.release(memory))?;
    head.store(me, 0)?;
    me.barrier()
}

fn why<T: std::fmt::Debug>(result: Result<T>) -> AddressFault {
    match room(&result) {
        Some(GlobalError::Address { why, .. }) => *why,
        _ => panic!("{result:?} is not about an address"),
    }
}

/// Accesses by invalid addresses are refused, and nothing is written.
fn bad_addresses_are_refused(me: &Worker) -> Result<()> {
    let peer = me.process_of(me.neighbor(me.threads_per_process()));
    let starter = GlobalAddress::starter(peer, 0);
    assert_eq!(why(GlobalPtr::<u64>::NULL.put(me, 1)), AddressFault::Null);
    assert_eq!(why(me.put_bytes(GlobalAddress::NULL, b"nothing")), AddressFault::Null);
    assert_eq!(why(GlobalPtr::<u64>::NULL.add(1)), AddressFault::Null);
    // Memory that does not exist, and bits that are not an address although they are not zero.
    assert_eq!(why(me.put_bytes(GlobalAddress::NULL, &[])), AddressFault::Null);
    assert_eq!(why(me.get_bytes(GlobalAddress::from_bits(8), &mut [])), AddressFault::Null);
    assert_eq!(why(GlobalAddress::from_bits(8).cast::<u64>().put(me, 1)), AddressFault::Null);
    let count = me.process_count();
    let unknown = GlobalAddress::starter(ProcessId::new(count), 0);
    assert_eq!(why(unknown.cast::<u64>().get(me)), AddressFault::NoSuchProcess { count });
    let misaligned = starter.checked_add(4).unwrap();
    assert_eq!(why(misaligned.cast::<u64>().put(me, 1)), AddressFault::Misaligned { align: 8 });
    assert_eq!(why(misaligned.cast::<u64>().fetch_add(me, 1)), AddressFault::Misaligned { align: 8 });
    let end = starter.checked_add(u64::from(STARTER_BYTES) - 8).unwrap();
    end.cast::<u64>().put(me, 0)?;
    let outside = |bytes| AddressFault::OutOfRange { bytes, region_bytes: u64::from(STARTER_BYTES) };
    assert_eq!(why(me.put_bytes(end, &[1; 9])), outside(9));
    assert_eq!(why(me.get_bytes(end, &mut [1; 9])), outside(9));
    assert_eq!(why(end.cast::<u64>().add(1)?.load(me)), outside(8));
    assert_eq!(why(starter.cast::<u8>().slice(usize::MAX).to_vec(me)), outside(usize::MAX as u64));
    assert!(starter.cast::<u8>().slice(usize::MAX).part(usize::MAX..usize::MAX).is_err());
    // Sizes at which the end of the range overflows.
    let own = GlobalAddress::starter(me.process(), 8);
    starter.checked_add(8).unwrap().cast::<u64>().put(me, 0)?;
    for (target, source) in [(own, end), (end, own)] {
        let copied = me.copy(target, source, u64::MAX, Order::None);
        assert_eq!(why(copied), outside(u64::MAX));
    }
    let huge = end.cast::<u64>().slice(usize::MAX);
    let far_apart = |places: usize| Section::indexed([(0, 1), (usize::MAX / places, 1)]).unwrap();
    let two = Section::contiguous(2);
    assert_eq!(why(huge.put_section(me, &far_apart(9), &[1, 2], &two)), outside((usize::MAX / 9 + 1) as u64 * 8));
    let too_large = huge.get_section(me, &far_apart(8), &mut [0; 2], &two);
    assert!(matches!(room(&too_large), Some(SectionError(SectionFault::TooLarge))), "{too_large:?}");
    let bytes = end.cast::<u8>().slice(usize::MAX);
    let last = Section::indexed([(usize::MAX - 1, 1)])?;
    assert_eq!(why(bytes.put_section(me, &last, &[1], &Section::contiguous(1))), outside(u64::MAX));
    // A slot without a region, and a slot of another generation.
    for far in [1000 << 29, 1 << 42] {
        let address = GlobalAddress::from_bits(starter.to_bits() + far);
        assert_eq!(why(me.get_bytes(address, &mut [0])), AddressFault::Stale);
    }
    let slice: GlobalSlice<u64> = starter.cast().slice(10);
    assert!(slice.put(me, 8, &[0; 3]).is_err() && slice.at(10).is_err() && slice.part(5..11).is_err());
    let (start, end) = (5, 3);
    assert_eq!(why(slice.part(start..end)), AddressFault::Backwards { start, end });
    assert_eq!((slice.part(5..5)?.len(), slice.part(10..10)?.len()), (0, 0));
    assert!(me.is_mapped(GlobalAddress::starter(me.process(), 0))?);
    me.barrier()
}

/// Rings and doorbells lie in registered memory too, and have no addresses.
fn internals_have_no_addresses(me: &Worker) -> Result<()> {
    me.call(me.neighbor(1), (), |_, ()| ())?;
    me.barrier()?;
    for slot in 1..1024_u64 {
        for generation in 0..16_u64 {
            let bits = GlobalAddress::starter(me.process(), 0).to_bits() | generation << 42 | slot << 29;
            assert_eq!(why(me.put_bytes(GlobalAddress::from_bits(bits), &[0xff; 64])), AddressFault::Stale);
        }
    }
    me.barrier()
}

/// Others access a buffer of this process as long as it exists.
fn buffers_have_addresses(me: &Worker) -> Result<()> {
    let buffer = me.allocate(100)?;
    buffer.fill(0);
    let root = WorkerId::new(0);
    let gathered = me.gather(root, me.address_of(&buffer)?)?;
    let addresses = me.broadcast(root, gathered)?;
    let target = addresses[me.neighbor(1).index()];
    me.put_bytes(target, &me.id().number().to_le_bytes())?;
    me.barrier()?;
    let mut got = [0; 4];
    buffer.read_at(0, &mut got)?;
    assert_eq!(me.neighbor(me.worker_count() - 1).number(), u32::from_le_bytes(got));
    me.barrier()
}

/// A value with fields that have fields themselves.
#[derive(Clone, Copy, Pod, Zeroable)]
#[bytemuck(crate = "farside::bytemuck")]
#[repr(C)]
struct Record {
    head: u64,
    pair: Pair,
    node: Node,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[bytemuck(crate = "farside::bytemuck")]
#[repr(C)]
struct Pair {
    first: u32,
    second: u32,
}

#[test]
fn fields_lie_where_they_lie_in_the_value() -> Result<()> {
    let record: GlobalPtr<Record> = GlobalAddress::starter(ProcessId::new(1), 64).cast();
    let second: GlobalPtr<u32> = field!(record, Record, pair.second)?;
    let next: GlobalPtr<GlobalPtr<Node>> = field!(record.add(2)?, Record, node.next)?;
    assert_eq!((second.address().offset(), next.address().offset()), (64 + 12, 64 + 2 * 32 + 16));
    assert_eq!(why(field!(GlobalPtr::<Record>::NULL, Record, pair)), AddressFault::Null);
    let end = GlobalAddress::starter(ProcessId::new(1), 0).checked_add((1 << 42) - 8);
    let last: GlobalPtr<Record> = end.expect("a process has 4 TiB of addresses").cast();
    assert_eq!(why(field!(last, Record, pair)), AddressFault::MovedOutside { bytes: 8 });
    Ok(())
}

proptest::proptest! {
    /// Offsets forth and back cancel out, as with native pointers.
    #[test]
    fn addresses_are_computed_with(offset in 0..1_u64 << 42, count in 0..1_usize << 38, by in 1..24_usize) {
        let start = |process| GlobalAddress::starter(ProcessId::new(process), 0);
        let first: GlobalPtr<[u8; 24]> = start(3).checked_add(offset).unwrap().cast();
        let end = offset + 24 * count as u64;
        match first.add(count) {
            Ok(further) => {
                assert_eq!(further.address().offset(), end);
                assert_eq!((further.process(), further.sub(count).ok()), (first.process(), Some(first)));
                assert_eq!(further.offset_from(first), Some(count));
                assert_eq!(first.offset_from(further), (count == 0).then_some(0));
                assert!(first <= further && (first == further) == (count == 0));
                if let Ok(between) = further.cast::<u8>().add(by) {
                    assert_eq!(between.cast().offset_from(first), None, "no whole number of values");
                }
                let elsewhere = start(2).checked_add(further.address().offset()).unwrap().cast();
                assert_eq!((elsewhere.offset_from(first), first.offset_from(elsewhere)), (None, None));
            }
            Err(error) => {
                assert!(end >= 1 << 42, "{error}");
                assert_eq!(why::<()>(Err(error)), AddressFault::MovedOutside { bytes: 24 * count as u64 });
            }
        }
    }
}

type Body = fn(&Worker) -> Result<()>;

const BODIES: [Body; 6] = [
    starters_are_known,
    words_are_changed_atomically,
    addresses_travel,
    a_list_goes_through_all_processes,
    bad_addresses_are_refused,
    buffers_have_addresses,
];

#[farside::test(processes = 3, threads = 2)]
fn everything_by_processes(me: &Worker) -> Result<()> {
    internals_have_no_addresses(me)?;
    BODIES.into_iter().try_for_each(|body| body(me))
}

#[test]
fn everything_in_the_simulator() {
    for seed in 0..scaled(4) {
        farside::simulate(3, 1, seed, |me| {
            internals_have_no_addresses(me)?;
            BODIES.into_iter().try_for_each(|body| body(me))
        })
        .unwrap();
    }
}

#[test]
fn the_starter_is_as_large_as_was_asked_for() {
    let simulation = Simulation::new(2, 1, 1).starter_bytes(100_000);
    let simulated = simulation.run(|me| {
        let peer = me.process_of(me.neighbor(1));
        me.put_bytes(GlobalAddress::starter(peer, 99_999), &[1])?;
        let outside = me.put_bytes(GlobalAddress::starter(peer, 100_000), &[1]);
        assert_eq!(why(outside), AddressFault::OutOfRange { bytes: 1, region_bytes: 100_000 });
        me.barrier()
    });
    simulated.unwrap().verdict.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Slices of arbitrary bits, as a peer may send them. Accesses outside of memory are refused,
    /// and all others work.
    #[test]
    fn any_slice_is_checked_before_it_is_used(slices in prop::collection::vec(any_slice(), 20), seed: u64) {
        let simulation = Simulation::new(2, 1, seed).starter_bytes(STARTER_BYTES);
        let simulated = simulation.run(|me| {
            let sent = me.broadcast(WorkerId::new(0), (me.id().number() == 0).then(|| slices.clone()))?;
            assert_eq!(sent, slices);
            sent.into_iter().try_for_each(|slice| use_slice(me, slice))?;
            me.barrier()
        });
        simulated.unwrap().verdict.unwrap();
    }
}

/// Slices in memory, near memory, or anywhere.
fn any_slice() -> impl Strategy<Value = GlobalSlice<u64>> {
    let starter = |(process, word): (u32, u32)| GlobalAddress::starter(ProcessId::new(process), word * 8).to_bits();
    let place = (0..3_u32, 0..=STARTER_BYTES / 8).prop_map(starter);
    let bits = prop_oneof![
        4 => place.clone(),
        1 => (place, 0..64).prop_map(|(bits, flipped)| bits ^ (1_u64 << flipped)),
        1 => any::<u64>(),
    ];
    let length = prop_oneof![4 => 0..=STARTER_BYTES as usize / 8, 1 => any::<usize>()];
    (bits, length).prop_map(|(bits, length)| GlobalAddress::from_bits(bits).cast().slice(length))
}

/// A slice of words is readable, and its first and last words are writable, exactly if all of it
/// lies in memory.
fn use_slice(me: &Worker, slice: GlobalSlice<u64>) -> Result<()> {
    let start = slice.start().address();
    let (offset, length) = (start.offset(), slice.len() as u64);
    let in_starter = start.process().is_some_and(|process| {
        process.number() < me.process_count() && GlobalAddress::starter(process, 0).checked_add(offset) == Some(start)
    });
    let is_inside = length
        .checked_mul(8)
        .and_then(|bytes| bytes.checked_add(offset))
        .is_some_and(|end| end <= u64::from(STARTER_BYTES));
    let is_good = in_starter && is_inside && offset.is_multiple_of(8);
    let read = slice.to_vec(me);
    assert!(matches!(&read, Ok(values) if is_good && values.len() == slice.len()) || !is_good, "{slice:?}: {read:?}");
    assert!(is_good || matches!(room(&read), Some(GlobalError::Address { .. })), "{slice:?}: {read:?}");
    for index in [0, slice.len().wrapping_sub(1)] {
        let written = slice.at(index).and_then(|at| at.put(me, 1));
        assert!(!is_good || slice.is_empty() == written.is_err(), "{slice:?}, {index}: {written:?}");
        assert!(
            (written.is_ok() || matches!(room(&written), Some(GlobalError::Address { .. }))),
            "{slice:?}, {index}: {written:?}"
        );
    }
    let part = slice.part(slice.len() / 2..slice.len()).and_then(|half| half.put(me, 0, &[1; 4]));
    assert!((part.is_ok() || matches!(room(&part), Some(GlobalError::Address { .. }))), "{slice:?}: {part:?}");
    Ok(())
}

#[test]
fn memory_of_a_lost_process_is_an_error() {
    for seed in 0..scaled(4) {
        let simulation = Simulation::new(3, 1, seed).kill(ProcessId::new(2), Duration::from_millis(1));
        let well = AtomicU32::new(0);
        let simulated = simulation.run(|me| {
            let there = GlobalAddress::starter(ProcessId::new(2), 0).cast::<u64>();
            there.fetch_add(me, 1)?;
            let told = me.wait_together(Duration::from_secs(10), || false);
            assert!(matches!(told, Err(Error::PeerLost { .. })), "{told:?}");
            let results = [there.put(me, 1), there.get(me).map(drop), there.fetch_add(me, 1).map(drop)];
            for result in results {
                assert!(matches!(result, Err(Error::PeerLost { process, .. }) if process.number() == 2), "{result:?}");
            }
            well.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err());
        assert_eq!(well.into_inner(), 2);
    }
}

//! Ordinary memory under global addresses. The bodies run as processes, over the fabric that
//! `FARSIDE_FABRIC` names, and in the simulator.

use farside::global::GlobalError;
use farside::memory::MemoryError;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farside::global::{Rights, Segment};
use farside::prelude::*;
use farside::{AddressFault, Error, GlobalAddress, GlobalPtr, GlobalSlice, Result, Simulation};
use farside_sys::process::private_memory_bytes;
use farside_testbed::wait_until;

use crate::support::{room, spread};

fn why<T: std::fmt::Debug>(result: Result<T>) -> AddressFault {
    match room(&result) {
        Some(GlobalError::Address { why, .. }) => *why,
        _ => panic!("{result:?} is not about an address"),
    }
}

/// Brings every worker's address to all workers.
fn exchange<T: 'static>(me: &Worker, own: GlobalPtr<T>) -> Result<Vec<GlobalPtr<T>>> {
    let root = WorkerId::new(0);
    let gathered = me.gather(root, own)?;
    me.broadcast(root, gathered)
}

/// All workers read and write a registered vector. It comes back with what they wrote, and its
/// address is stale for all.
fn vectors_are_lodged_and_come_back(me: &Worker) -> Result<()> {
    let own = me.id().index();
    let count = me.worker_count() as usize;
    let mut values = Vec::with_capacity(10_000);
    values.extend((0..5000).map(|index| index as u64));
    let place = values.as_ptr().addr();
    let segment = me.register(values)?;
    let starts = exchange(me, segment.slice().start())?;
    for (worker, start) in starts.iter().enumerate() {
        let there = start.slice(5000);
        assert_eq!(there.at(3)?.get(me)?, 3);
        // A word, a piece, and all but a few of the values.
        there.at(10 + own)?.put(me, (worker * 100 + own) as u64)?;
        there.put(me, 100 + own * 40, &[own as u64; 40])?;
        start.fetch_add(me, 1)?;
        let mut back = vec![0; 3000];
        there.get(me, 2000, &mut back)?;
        assert!(back.iter().zip(2000..).all(|(value, index)| *value == index));
    }
    me.barrier()?;
    let local = segment.local();
    assert_eq!((local.get(0), local.len()), (count as u64, 5000));
    local.set(1, 77);
    me.barrier()?;
    assert!(starts.iter().all(|start| start.add(1).and_then(|at| at.get(me)).is_ok_and(|value| value == 77)));
    me.barrier()?;
    let values = segment.deregister(me)?;
    assert_eq!((values.as_ptr().addr(), values.len(), values.capacity()), (place, 5000, 10_000));
    for worker in 0..count {
        assert_eq!(values[10 + worker], (own * 100 + worker) as u64);
        assert_eq!(values[100 + worker * 40..140 + worker * 40], [worker as u64; 40]);
    }
    me.barrier()?;
    for start in starts {
        assert_eq!(why(start.get(me)), AddressFault::Stale);
        assert_eq!(why(start.put(me, 9)), AddressFault::Stale);
        assert_eq!(why(start.fetch_add(me, 1)), AddressFault::Stale);
    }
    assert_eq!(values[0], count as u64);
    me.barrier()
}

/// Others can read a vector that is registered as read-only, and no worker can write it.
fn read_only_memory_is_not_written(me: &Worker) -> Result<()> {
    let segment = me.register_read_only(vec![u64::from(me.id().number()); 100])?;
    for (worker, start) in exchange(me, segment.slice().start())?.into_iter().enumerate() {
        assert_eq!(start.slice(100).to_vec(me)?, vec![worker as u64; 100]);
        assert_eq!(why(start.put(me, 1)), AddressFault::ReadOnly);
        assert_eq!(why(start.slice(100).put(me, 50, &[1; 50])), AddressFault::ReadOnly);
        assert_eq!(why(start.fetch_add(me, 1)), AddressFault::ReadOnly);
    }
    me.barrier()?;
    assert_eq!(segment[..], [u64::from(me.id().number()); 100]);
    assert_eq!(segment.deregister(me)?.len(), 100);
    me.barrier()
}

/// Others write a variable on the stack while it is lent. Its owner uses it again afterwards.
fn stacks_are_lent(me: &Worker) -> Result<()> {
    let own = u64::from(me.id().number());
    let mut array = [own; 16];
    let lent = me.lend(&mut array, |lent| -> Result<GlobalPtr<u64>> {
        let starts = exchange(me, lent.slice().start())?;
        let next = starts[me.neighbor(1).index()];
        assert_eq!(next.add(5)?.get(me)?, u64::from(me.neighbor(1).number()));
        next.add(7)?.put(me, 1000 + own)?;
        next.add(8)?.fetch_or(me, 1 << 20)?;
        me.barrier()?;
        lent.local().set(9, 5);
        Ok(next)
    })??;
    let before = u64::from(me.neighbor(me.worker_count() - 1).number());
    assert_eq!(array[5..10], [own, own, 1000 + before, own | 1 << 20, 5]);
    me.barrier()?;
    assert_eq!(why(lent.get(me)), AddressFault::Stale);
    let shared = [own as u32; 4];
    let seen = me.lend_read_only(&shared, |slice| -> Result<u32> {
        let starts = exchange(me, slice.start())?;
        let next: GlobalSlice<u32> = starts[me.neighbor(1).index()].slice(4);
        assert_eq!(why(next.put(me, 0, &[1])), AddressFault::ReadOnly);
        let sum = next.to_vec(me)?.iter().sum::<u32>() + shared[0];
        me.barrier()?;
        Ok(sum)
    })??;
    assert_eq!(seen, me.neighbor(1).number() * 4 + shared[0]);
    me.barrier()
}

/// A panic in the closure of a loan ends the loan, too.
fn a_panic_ends_a_loan(me: &Worker) -> Result<()> {
    let mut array = [1_u64; 4];
    let mut address = GlobalAddress::NULL;
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let lent = me.lend(&mut array, |lent| {
            address = lent.slice().start().address();
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        lent.is_ok()
    }));
    assert!(panicked.is_err() && array == [1; 4]);
    assert_eq!(why(address.cast::<u64>().get(me)), AddressFault::Stale);
    me.barrier()
}

/// Memory of any kind at any alignment.
fn anything_is_registered_raw(me: &Worker) -> Result<()> {
    let mut block = vec![0_u64; 64].into_boxed_slice();
    let base = NonNull::from(&mut *block).cast::<u8>();
    // SAFETY: the address is inside of the block.
    let inside = unsafe { base.add(4) };
    // SAFETY: no code accesses the block before it is deregistered.
    let mut odd = unsafe { me.register_raw(inside, 400, Rights::Write) }?;
    assert_eq!(odd.bytes(), 400);
    for start in exchange(me, odd.address().cast::<u32>())? {
        start.fetch_add(me, 1)?;
        assert_eq!(why(start.cast::<u64>().fetch_add(me, 1)), AddressFault::Misaligned { align: 8 });
        let outside = AddressFault::OutOfRange { bytes: 9, region_bytes: 400 };
        assert_eq!(why(me.put_bytes(start.add(98)?.address(), &[1; 9])), outside);
    }
    me.barrier()?;
    odd.deregister(me)?;
    odd.deregister(me)?;
    assert_eq!((block[0], block[1]), (u64::from(me.worker_count()) << 32, 0));
    // SAFETY: no thread writes the block while it is registered.
    let again = unsafe { me.register_raw(base, 512, Rights::Read) }?;
    assert_eq!(why(again.address().cast::<u64>().put(me, 1)), AddressFault::ReadOnly);
    assert_eq!(again.address().cast::<u32>().add(1)?.get(me)?, me.worker_count());
    let address = again.address();
    drop(again);
    assert_eq!(why(me.get_bytes(address, &mut [0])), AddressFault::Stale);
    me.barrier()
}

/// Addresses become pointers of this process, and pointers become addresses.
fn addresses_are_translated(me: &Worker) -> Result<()> {
    let segment = me.register(vec![5_u8; 100])?;
    let buffer = me.allocate(64)?;
    buffer.write_at(10, &[42])?;
    let starter = GlobalAddress::starter(me.process(), 0);
    let inside = segment.slice().at(30)?.address();
    let in_buffer = me.address_of(&buffer)?.checked_add(10).unwrap();
    for address in [starter, starter.checked_add(100).unwrap(), inside, in_buffer] {
        let pointer = me.local_address(address).expect("it is here");
        assert_eq!(me.address_at(pointer), Some(address));
        assert!(me.is_mapped(address)?);
    }
    let pointer = me.local_address(in_buffer).unwrap();
    // SAFETY: the buffer is alive, and no thread writes it.
    assert_eq!(unsafe { pointer.read() }, 42);
    let peer = me.process_of(me.neighbor(me.threads_per_process()));
    for nowhere in [
        GlobalAddress::NULL,
        GlobalAddress::starter(peer, 0),
        segment.slice().start().address().checked_add(100).unwrap(),
        GlobalAddress::from_bits(starter.to_bits() | 1000 << 29),
    ] {
        assert_eq!(me.local_address(nowhere), None);
    }
    assert_eq!(me.address_at(std::ptr::from_ref(&pointer).cast()), None);
    drop(segment);
    assert_eq!(me.local_address(inside), None);
    me.barrier()
}

/// Memory that is deregistered while others write to it is not written any more once it has come
/// back.
fn memory_comes_back_from_under_writers(me: &Worker) -> Result<()> {
    // Where a put is a system call, such a long one takes a while, so some are under way at any
    // moment.
    let starter = GlobalAddress::starter(me.process_of(me.neighbor(me.threads_per_process())), 0);
    let length = if me.is_mapped(starter)? { 1 << 17 } else { 64 };
    for round in 0..10 {
        let first = || WorkerId::new(0);
        if me.id() != first() {
            write_until_it_is_stale(me, me.broadcast(first(), None)?, length)?;
        } else if round % 2 == 0 {
            let segment = me.register(vec![0_u64; length])?;
            me.broadcast(first(), Some(segment.slice().start()))?;
            while segment.local().get(0) < 10 {
                me.progress()?;
            }
            let values = segment.deregister(me)?;
            stays_as_it_is(me, &values)?;
        } else {
            let mut values = vec![0_u64; length];
            me.lend(&mut values, |lent| -> Result<()> {
                me.broadcast(first(), Some(lent.slice().start()))?;
                while lent.local().get(0) < 10 {
                    me.progress()?;
                }
                Ok(())
            })??;
            stays_as_it_is(me, &values)?;
        }
        me.barrier()?;
    }
    Ok(())
}

fn write_until_it_is_stale(me: &Worker, start: GlobalPtr<u64>, length: usize) -> Result<()> {
    let values = start.add(1)?.slice(length - 1);
    let end = (1_u64..).find_map(|written| {
        let put = values.put(me, 0, &vec![written; length - 1]);
        put.and_then(|()| start.fetch_add(me, 1)).and_then(|_| me.progress()).err()
    });
    assert_eq!(why::<()>(end.map_or(Ok(()), Err)), AddressFault::Stale);
    Ok(())
}

fn stays_as_it_is(me: &Worker, values: &[u64]) -> Result<()> {
    let copy = values.to_vec();
    me.call_return(me.neighbor(1), (), |_, ()| ())?.wait()?;
    assert!(values == copy, "another process writes to returned memory");
    Ok(())
}

/// Copies without waiting, between any two of the vectors.
fn copies_reach_user_memory(me: &Worker) -> Result<()> {
    let own = me.id().index();
    let segment = me.register(vec![own as u64 + 1; 600])?;
    let starts = exchange(me, segment.slice().start())?;
    if own == 0 {
        let last = starts.len() - 1;
        // From this process to another, back, between two others, and within this process.
        for (to, from, at) in [(last, 0, 100), (0, last, 200), (last, last - 1, 300), (0, 0, 400)] {
            let (target, source) = (starts[to].add(at)?, starts[from]);
            let copied = me.copy(target.address(), source.address(), 80, farside::global::Order::None)?;
            me.complete(copied)?;
            assert_eq!(target.slice(11).to_vec(me)?, [vec![from as u64 + 1; 10], vec![to as u64 + 1]].concat());
        }
    }
    me.barrier()?;
    segment.deregister(me)?;
    me.barrier()
}

/// Handlers put and get where that needs no waiting: not over a network.
fn functions_reach_user_memory(me: &Worker) -> Result<()> {
    let segment = me.register(vec![0_u64; 4])?;
    let own = me.call_return(me.id(), segment.slice().start(), |there, start| {
        start.put(there, 1).and_then(|()| start.fetch_add(there, 1)).is_ok()
    })?;
    assert!(own.wait()?, "one's own memory is always reached");
    let next = me.neighbor(me.threads_per_process());
    let reached = me.call_return(next, segment.slice().at(1)?, |there, at| {
        let is_refused = |result: Result<()>| matches!(result, Err(Error::InHandler { .. }));
        (at.put(there, 7).is_ok(), is_refused(at.put(there, 7)), is_refused(at.fetch_add(there, 1).map(drop)))
    })?;
    let (is_put, put_is_refused, change_is_refused) = reached.wait()?;
    assert!(change_is_refused && is_put != put_is_refused);
    // A put succeeds by a system call, if the system allows those.
    let starter = GlobalAddress::starter(me.process_of(next), 0);
    assert!(put_is_refused || me.is_mapped(starter)?);
    assert_eq!(segment.local().get(1), if is_put { 7 } else { 0 });
    assert_eq!(segment.deregister(me)?[0], 2);
    me.barrier()
}

/// Addresses of dropped registrations are stale, and their slots are used again many times.
fn slots_are_used_again(me: &Worker) -> Result<()> {
    let mut before = GlobalAddress::NULL;
    for round in 0..1500_u64 {
        let segment = me.register(vec![round])?;
        assert_eq!(segment.slice().at(0)?.get(me)?, round);
        if !before.is_null() {
            assert_eq!(why(before.cast::<u64>().get(me)), AddressFault::Stale);
        }
        before = segment.slice().start().address();
        if round % 2 == 0 {
            assert_eq!(segment.deregister(me)?, [round]);
        }
    }
    me.barrier()
}

everywhere! {
    as_processes(processes = 3, threads = 2),
    simulated(processes = 3, threads = 1, seeds = 1);
    vectors_are_lodged_and_come_back
    read_only_memory_is_not_written
    stacks_are_lent
    a_panic_ends_a_loan
    anything_is_registered_raw
    addresses_are_translated
    memory_comes_back_from_under_writers
    functions_reach_user_memory
    copies_reach_user_memory
    slots_are_used_again
    vectors_may_have_more_than_four_gib
    a_process_may_have_thousands_of_regions
}

/// A process that has no addresses left refuses registrations, and nothing else fails.
#[test]
fn a_process_has_a_limited_number_of_regions() {
    farside::simulate(2, 1, 1, |me| {
        let mut segments: Vec<Segment<u64>> = Vec::new();
        if me.id().number() == 1 {
            let refused = loop {
                match me.register(vec![1_u64]) {
                    Ok(segment) => segments.push(segment),
                    Err(error) => break error,
                }
            };
            assert!(matches!(refused.room_error(), Some(MemoryError::NoAddress { .. })), "{refused}");
            assert!((8000..8192).contains(&segments.len()), "{}", segments.len());
            assert!(matches!(me.register::<u64>(Vec::new()), Err(Error::Fabric(_))));
        }
        me.barrier()?;
        // All workers learn that one process has no addresses left. The memory of the others is
        // released.
        let used = |me: &Worker| me.memory_report().iter().map(|node| node.used_bytes).sum::<usize>();
        let mut held = None;
        for _ in 0..10 {
            let refused = me.symmetric::<u8>(40 << 20);
            let of_one =
                matches!(room(&refused), Some(MemoryError::NoAddress { process, .. }) if process.number() == 1);
            assert!(of_one, "{refused:?}");
            // The first attempt takes more memory from the machine. Later ones use what it
            // released.
            assert_eq!(used(me), *held.get_or_insert_with(|| used(me)));
        }
        segments.drain(..).try_for_each(|segment| segment.deregister(me).map(drop))?;
        me.register(vec![1_u8])?.deregister(me)?;
        me.barrier()
    })
    .unwrap();
}

/// Ordinary memory of more than 4 GiB has addresses on both sides of every boundary of its slots.
/// Zeros that were never written take no pages.
fn vectors_may_have_more_than_four_gib(me: &Worker) -> Result<()> {
    const SLOT: usize = (512 << 20) / 8;
    const LENGTH: usize = 12 * SLOT + 100;
    let own = me.id().index();
    let first = WorkerId::new(0);
    let segment = (me.id() == first).then(|| me.register(vec![0_u64; LENGTH])).transpose()?;
    let start = me.broadcast(first, segment.as_ref().map(|segment| segment.slice().start()))?;
    let all = start.slice(LENGTH);
    // Each worker has words of its own at each boundary. Those of the first one lie on both sides.
    let places = || (0..=LENGTH).step_by(SLOT).map(|boundary| boundary.saturating_sub(2) + 4 * own);
    for place in places() {
        assert_eq!(all.part(place..place + 4)?.to_vec(me)?, [0; 4]);
        all.put(me, place, &[own as u64 + 1; 3])?;
        all.at(place + 3)?.fetch_add(me, 100)?;
    }
    me.barrier()?;
    let number = own as u64 + 1;
    for place in places() {
        assert_eq!(all.part(place..place + 4)?.to_vec(me)?, [number, number, number, 100], "{place}");
    }
    me.barrier()?;
    if own == 1 {
        all.put(me, SLOT - 1000, &[9; 6000])?;
    }
    me.barrier()?;
    assert_eq!(all.part(SLOT - 2000..SLOT + 5500)?.to_vec(me)?[1000..7000], [9; 6000]);
    let end = start.add(LENGTH)?;
    assert_eq!(why(end.get(me)), AddressFault::OutOfRange { bytes: 8, region_bytes: 8 * LENGTH as u64 });
    assert_eq!((end.offset_from(start), end.sub(LENGTH)?), (Some(LENGTH), start));
    me.barrier()?;
    if let Some(segment) = segment {
        let values = segment.deregister(me)?;
        assert_eq!((values.len(), values[SLOT - 1001], values[SLOT]), (LENGTH, 0, 9));
    }
    me.barrier()?;
    for slot in 0..=LENGTH / SLOT {
        assert_eq!(why(start.add(slot * SLOT)?.get(me)), AddressFault::Stale);
    }
    me.barrier()
}

/// All workers reach thousands of regions of one process.
fn a_process_may_have_thousands_of_regions(me: &Worker) -> Result<()> {
    const COUNT: u64 = 5000;
    let (first, own) = (WorkerId::new(0), u64::from(me.id().number()));
    let indices = if me.id() == first { 0..COUNT } else { 0..0 };
    let segments = indices.map(|index| me.register(vec![index; 8])).collect::<Result<Vec<_>>>()?;
    let starts: Vec<GlobalPtr<u64>> = segments.iter().map(|segment| segment.slice().start()).collect();
    let starts = me.broadcast(first, (me.id() == first).then_some(starts))?;
    let writer = |index: u64| index % u64::from(me.worker_count());
    for (index, start) in (0..).zip(&starts).filter(|(index, _)| writer(*index) == own) {
        assert_eq!(start.get(me)?, index);
        start.add(7)?.put(me, own + 1)?;
    }
    me.barrier()?;
    for (index, segment) in (0..).zip(&segments) {
        assert_eq!(segment.local().to_vec()[6..], [index, writer(index) + 1]);
    }
    assert_eq!(starts.len() as u64, COUNT);
    drop(segments);
    if me.id() == first {
        assert!(starts.iter().all(|start| why(start.get(me)) == AddressFault::Stale));
    }
    me.barrier()
}

/// The memory of a dropped registration is released once its holder has let go, even if nothing is
/// registered after it.
#[farside::test(processes = 2, threads = 1)]
fn dropped_registrations_end_by_themselves(me: &Worker) -> Result<()> {
    const BYTES: usize = 64 << 20;
    let is_owner = me.id().number() == 0;
    let segment = is_owner.then(|| me.register(vec![1_u8; BYTES])).transpose()?;
    let start = me.broadcast(WorkerId::new(0), segment.as_ref().map(|segment| segment.slice().start()))?;
    assert_eq!(start.get(me)?, 1);
    me.barrier()?;
    if is_owner {
        let held = private_memory_bytes().expect("the system tells");
        drop(segment);
        let is_gone = || private_memory_bytes().is_some_and(|now| now + BYTES as u64 / 2 < held);
        me.wait_while_serving(is_gone)?;
    }
    me.barrier()
}

/// A stopped process holds memory up. The owner gets an error, and gets the memory when the other
/// continues.
#[farside::test(processes = 2, threads = 1)]
fn memory_held_by_a_stopped_process_returns_later(me: &Worker) -> Result<()> {
    let segment = me.register(vec![7_u64; 1000])?;
    let first = me.broadcast(WorkerId::new(0), Some(segment.slice().start()))?;
    assert_eq!(first.get(me)?, 7);
    let pids = me.gather(WorkerId::new(0), std::process::id())?;
    if let Some(pids) = pids {
        let other = Stopped::new(pids[1]);
        let held = segment.deregister_within(me, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(held.error, Error::Deadline { .. }), "{held}");
        assert_eq!(held.segment.local().get(999), 7);
        assert_eq!(why(first.get(me)), AddressFault::Stale);
        let again = held.segment.deregister_within(me, Duration::ZERO).unwrap_err();
        drop(other);
        assert_eq!(again.segment.deregister(me)?, [7; 1000]);
    } else {
        segment.deregister(me)?;
    }
    me.barrier()
}

/// A process that is stopped as long as this exists.
struct Stopped(u32);

impl Stopped {
    fn new(pid: u32) -> Self {
        let stopped = Self(pid);
        stopped.signal("-STOP");
        // The thread that takes the signal stops the others when it has a CPU.
        wait_until("the process stops", || stopped.all_threads_stand_still());
        stopped
    }

    fn all_threads_stand_still(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0)).expect("it lives");
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
        })
    }

    fn signal(&self, name: &str) {
        let sent = std::process::Command::new("kill").args([name, &self.0.to_string()]).status();
        assert!(sent.expect("kill can be started").success());
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.signal("-CONT");
    }
}

/// A lost process holds no memory.
#[test]
fn memory_comes_back_when_its_holder_is_lost() {
    for seed in spread(4) {
        let simulation = Simulation::new(3, 1, seed).kill(ProcessId::new(2), Duration::from_millis(1));
        let well = AtomicU32::new(0);
        let simulated = simulation.run(|me| {
            let segment = me.register(vec![0_u64; 1000])?;
            let starts = exchange(me, segment.slice().start())?;
            while me.id().number() == 2 {
                starts.iter().try_for_each(|start| start.slice(1000).put(me, 0, &[1; 1000]))?;
            }
            let told = me.wait_together(Duration::from_secs(10), || false);
            assert!(matches!(told, Err(Error::PeerLost { .. })), "{told:?}");
            let values = segment.deregister(me)?;
            assert!(values[0] <= 1 && values.len() == 1000);
            let mut array = [3_u64];
            me.lend(&mut array, |lent| assert_eq!(lent.local().get(0), 3))?;
            well.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err());
        assert_eq!(well.into_inner(), 2);
    }
}

/// A worker that got an error for a lost process finds it among the lost, even without progress
/// since.
#[test]
fn a_reported_loss_is_listed() {
    for seed in spread(4) {
        let simulation = Simulation::new(2, 1, seed).kill(ProcessId::new(1), Duration::from_millis(1));
        let well = AtomicU32::new(0);
        let simulated = simulation.run(|me| {
            let segment = me.register(vec![0_u64; 1000])?;
            let starts = exchange(me, segment.slice().start())?;
            let other = starts[1 - me.id().index()].slice(1000);
            let told = loop {
                if let Err(error) = other.put(me, 0, &[1; 1000]) {
                    break error;
                }
            };
            assert!(matches!(told, Error::PeerLost { .. }), "{told:?}");
            assert_eq!(me.lost_processes(), [ProcessId::new(1)]);
            well.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err());
        assert_eq!(well.into_inner(), 1);
    }
}

/// A process may be lost while others use the memory that it lent.
#[test]
fn a_lender_may_be_lost() {
    for seed in spread(4) {
        let simulation = Simulation::new(3, 1, seed).kill(ProcessId::new(2), Duration::from_millis(1));
        let well = AtomicU32::new(0);
        let simulated = simulation.run(|me| {
            let mut array = [1_u64; 100];
            let lost = me.lend(&mut array, |lent| -> Result<()> {
                let starts = exchange(me, lent.slice().start())?;
                loop {
                    starts.iter().try_for_each(|start| start.slice(100).put(me, 0, &[7; 100]))?;
                    me.progress()?;
                }
            })?;
            // Another process may have learnt of the loss first and ended its loan.
            let is_stale = matches!(room(&lost), Some(GlobalError::Address { why: AddressFault::Stale, .. }));
            assert!(is_stale || matches!(lost, Err(Error::PeerLost { .. })), "{lost:?}");
            assert!(array[0] == 7 || array[0] == 1);
            well.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err());
        assert_eq!(well.into_inner(), 2);
    }
}

//! Heaps in the memory of other workers. The bodies run as processes, over the fabric that
//! `FARSIDE_FABRIC` names, and in the simulator.

use farside::memory::MemoryError;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::spread;
use farside::prelude::*;
use farside::{Error, Result, Simulation};
use farside_kit::heap::{Fit, HeapError, HeapOptions, HeapReport, RemoteBlock, RemoteHeap, Space, Synchronisation};
use farside_testbed::limit;

/// Returns whether an error says that memory was released.
fn is_released(error: &Error) -> bool {
    matches!(error.room_error(), Some(MemoryError::Released { .. }))
}

/// Checks that every byte is free or belongs to a block.
fn all_is_accounted_for(report: HeapReport) {
    let HeapReport { bytes, free_bytes, own_bytes, peer_bytes, set_aside_bytes, .. } = report;
    assert_eq!(free_bytes + own_bytes + peer_bytes + set_aside_bytes, bytes, "{report:?}");
    assert!(report.largest_free_bytes <= free_bytes && (free_bytes == 0) == (report.free_pieces == 0), "{report:?}");
}

macro_rules! is_refused {
    ($result:expr, $error:pat) => {{
        let result = $result;
        assert!(matches!(result, Err($error)), "{result:?}");
    }};
}

fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (seed.wrapping_mul(0x9e37) + at.wrapping_mul(31)) as u8).collect()
}

/// Blocks of all sizes go to the next worker, are read there, and come back.
fn blocks_go_across_and_come_back(me: &Worker) -> Result<()> {
    for fit in Fit::ALL {
        let heap = RemoteHeap::open(me, me.neighbor(1), HeapOptions::new(64 << 10).fit(fit))?;
        for round in 0..200_u64 {
            let bytes = [0, 1, 15, 16, 17, 63, 1000, 8000][round as usize % 8];
            let mut block = heap.alloc(bytes)?;
            assert_eq!(block.bytes(), bytes);
            let data = pattern(round, bytes);
            block.local_mut().copy_from_slice(&data);
            block.put()?;
            let name = block.hand_over()?;
            me.call(me.neighbor(1), (name, data), |there, (name, data): (RemoteBlock, Vec<u8>)| {
                let block = name.open(there).unwrap();
                assert!(block.to_vec().unwrap() == data, "what was put is what is read");
                block.free().unwrap();
                // The initiator may have used the place again by now.
                let again = name.open(there);
                let is_gone = matches!(again, Err(HeapError::Freed { .. } | HeapError::Stale { .. }));
                assert!(is_gone, "{again:?}");
            })?;
        }
        let report = heap.report();
        assert_eq!(report.allocations, 200);
        assert_eq!(report.used_bytes(), report.peer_bytes);
        heap.close()?;
        me.barrier()?;
    }
    me.barrier()?;
    me.wait_while_serving(|| me.counters().remote_memory_bytes_here == 0)?;
    me.barrier()
}

/// All freed memory becomes one piece again.
fn everything_freed_is_one_piece(me: &Worker) -> Result<()> {
    let options = HeapOptions::new(16 << 10).synchronisation(Synchronisation::Deferred { batch: 7 });
    let heap = RemoteHeap::open(me, me.neighbor(1), options)?;
    for round in 0..20_u64 {
        let mut given = Vec::new();
        // Every third block comes back at once and leaves a hole.
        for number in 0_u64.. {
            match heap.alloc(1 + number * 7 + round) {
                Ok(block) if number % 3 == 2 => block.free(),
                Ok(block) => given.push(block.hand_over()?),
                Err(HeapError::Exhausted { .. }) => break,
                Err(error) => return Err(error.into()),
            }
        }
        assert!(given.len() > 10);
        assert_eq!(heap.report().peer_blocks, given.len() as u64);
        let freed = me.call_return(me.neighbor(1), given, |there, given: Vec<RemoteBlock>| {
            given.into_iter().try_for_each(|name| name.open(there)?.free()).is_ok()
        });
        assert!(freed?.wait()?);
        while heap.synchronise()? > 0 {}
        let report = heap.report();
        assert_eq!((report.free_bytes, report.largest_free_bytes, report.free_pieces), (16 << 10, 16 << 10, 1));
        assert_eq!(report.used_bytes(), 0);
    }
    heap.close()?;
    me.barrier()
}

fn blocks_are_aligned(me: &Worker) -> Result<()> {
    let heap = RemoteHeap::open(me, me.neighbor(1), HeapOptions::new(64 << 10))?;
    let mut kept = Vec::new();
    for align in [1, 2, 16, 64, 512, 4096, 64, 4096] {
        let block = heap.alloc(Space::of(100).aligned(align))?;
        assert!(block.local().as_ptr().addr().is_multiple_of(align as usize));
        kept.push(block);
    }
    for align in [0, 3, 8192] {
        let refused = heap.alloc(Space::of(1).aligned(align));
        assert!(matches!(refused, Err(HeapError::Alignment { .. })), "{refused:?}");
    }
    me.barrier()
}

/// Impossible requests are refused and change nothing.
fn mistakes_are_refused(me: &Worker) -> Result<()> {
    let peer = me.neighbor(me.threads_per_process());
    for bytes in [0, u64::MAX] {
        is_refused!(RemoteHeap::open(me, peer, HeapOptions::new(bytes)).map(drop), HeapError::HeapBytes { .. });
    }
    let unknown = RemoteHeap::open(me, WorkerId::new(99), HeapOptions::new(1));
    assert!(matches!(unknown, Err(HeapError::Job(Error::UnknownWorker { .. }))), "{unknown:?}");
    let too_much = RemoteHeap::open(me, peer, HeapOptions::new(1 << 33)).map(drop);
    assert!(
        matches!(&too_much, Err(HeapError::NoLocalMemory { .. }))
            || matches!(&too_much, Err(HeapError::Job(error)) if matches!(error.room_error(), Some(MemoryError::Refused { .. }))),
        "{too_much:?}"
    );

    let heap = RemoteHeap::open(me, peer, HeapOptions::new(1000))?;
    let other = RemoteHeap::open(me, peer, HeapOptions::new(1000))?;
    assert_eq!(heap.report().bytes, 1008, "whole units");
    is_refused!(heap.alloc(1000_u64), HeapError::LargerThanHeap { bytes: 1000, heap_bytes: 1008, .. });
    is_refused!(heap.alloc(u64::MAX), HeapError::LargerThanHeap { .. });
    is_refused!(heap.alloc(Space::of(16).aligned(1024)), HeapError::LargerThanHeap { align: 1024, .. });
    let mut all = heap.alloc(992_u64)?;
    is_refused!(
        heap.alloc(0_u64),
        HeapError::Exhausted { bytes: 0, free_bytes: 0, largest_bytes: 0, peer_bytes: 0, .. }
    );
    is_refused!(all.put_part(992, 1), HeapError::OutOfRange { offset: 992, bytes: 1, block_bytes: 992 });
    is_refused!(all.put_part(u64::MAX, 2), HeapError::OutOfRange { .. });
    is_refused!(all.get_part(1, 992), HeapError::OutOfRange { .. });
    drop(all);
    let name = heap.alloc(100_u64)?.hand_over()?;
    is_refused!(other.take_back(name), HeapError::OtherHeap);
    // Only its peer can open it.
    is_refused!(name.open(me).map(drop), HeapError::OtherHeap);
    let beside = me.process_of(peer).number() * me.threads_per_process();
    for local in 0..me.threads_per_process() {
        let worker = WorkerId::new(beside + local);
        let refused = me.call_return(worker, (name, peer), |there, (name, owner)| match name.open(there) {
            Err(HeapError::OtherWorker { owner: named, here }) => named == owner && here == there.id(),
            Ok(block) => {
                assert!(matches!(block.read_at(99, &mut [0; 2]), Err(HeapError::OutOfRange { .. })));
                assert!(matches!(block.write_at(u64::MAX, &[0; 2]), Err(HeapError::OutOfRange { .. })));
                there.id() == owner
            }
            Err(error) => panic!("{error}"),
        });
        assert!(refused?.wait()?);
    }
    heap.take_back(name)?;
    is_refused!(heap.take_back(name), HeapError::Freed { .. });
    let gone = me.call_return(peer, name, |there, name| matches!(name.open(there), Err(HeapError::Freed { .. })));
    assert!(gone?.wait()?, "what was taken back cannot be opened");
    let report = heap.report();
    assert_eq!((report.free_bytes, report.free_pieces, report.peer_blocks), (1008, 1, 0));
    all_is_accounted_for(report);
    heap.close()?;
    // Blocks that ended with their heap.
    let gone = me.call_return(
        peer,
        name,
        |there, name| matches!(name.open(there), Err(HeapError::Job(error)) if is_released(&error)),
    );
    assert!(gone?.wait()?);
    me.barrier()
}

/// A place is used again. Names of earlier blocks there are refused.
fn stale_names_are_noticed(me: &Worker) -> Result<()> {
    let peer = me.neighbor(1);
    let heap = RemoteHeap::open(me, peer, HeapOptions::new(4096).fit(Fit::First))?;
    let mut old: Vec<RemoteBlock> = Vec::new();
    for round in 0..20 {
        let mut block = heap.alloc(100 + round * 7 % 31)?;
        block.local_mut().fill(0xff);
        block.put()?;
        let name = block.hand_over()?;
        let stale = me.call_return(peer, (name, old.clone()), |there, (name, old): (RemoteBlock, Vec<RemoteBlock>)| {
            let stale = |name: RemoteBlock| matches!(name.open(there), Err(HeapError::Stale { .. }));
            let all = old.into_iter().all(stale);
            let first = name.open(there).unwrap();
            let second = name.open(there).unwrap();
            first.free().unwrap();
            assert!(matches!(second.read_at(0, &mut [0]), Err(HeapError::Freed { .. })));
            assert!(matches!(second.free(), Err(HeapError::Freed { .. })), "freed once");
            all
        });
        assert!(stale?.wait()?, "names of blocks that were at the same place");
        is_refused!(heap.take_back(name), HeapError::Freed { .. });
        while heap.synchronise()? > 0 {}
        is_refused!(heap.take_back(name), HeapError::Freed { .. });
        assert_eq!(heap.report().used_bytes(), 0);
        old.push(name);
    }
    heap.close()?;
    me.barrier()
}

/// A lent block is read and written by the peer and stays the initiator's.
fn blocks_are_lent(me: &Worker) -> Result<()> {
    let peer = me.neighbor(1);
    let heap = RemoteHeap::open(me, peer, HeapOptions::new(4096).fit(Fit::First))?;
    for round in 0..10_u8 {
        let mut block = heap.alloc(64_u64)?;
        block.local_mut().fill(round);
        block.put()?;
        let name = block.lend()?;
        // The peer also accesses it by its address.
        let last = name.address()?.checked_add(63).expect("it lies in a region").cast::<u8>();
        assert_eq!((last.get(me)?, last.process()), (round, Some(me.process_of(peer))));
        let answered = me.call_return(peer, (name, round), |there, (name, round)| {
            let block = name.open(there).unwrap();
            assert_eq!(block.to_vec().unwrap(), [round; 64]);
            block.write_at(1, &[round + 100; 3]).unwrap();
            assert_eq!(block.initiator(), there.neighbor(there.worker_count() - 1));
            matches!(block.free(), Err(HeapError::Lent { .. }))
        });
        assert!(answered?.wait()?, "only its initiator frees it");
        is_refused!(heap.take_back(name), HeapError::Lent { .. });
        block.local_mut().fill(0);
        block.get_part(0, 5)?;
        assert_eq!(block.local()[..6], [round, round + 100, round + 100, round + 100, round, 0]);
        block.get()?;
        assert_eq!(block.local()[63], round);
        block.local_mut()[7] = 77;
        block.put_part(7, 1)?;
        if round % 2 == 0 {
            block.free();
            assert_eq!(heap.report().used_bytes(), 0);
            continue;
        }
        // The block is handed over after all.
        let given = block.hand_over()?;
        assert_eq!(given, name);
        let freed = me.call_return(peer, given, |there, name| {
            let block = name.open(there).unwrap();
            assert_eq!(block.to_vec().unwrap()[7], 77);
            block.free().is_ok()
        });
        assert!(freed?.wait()?);
        while heap.synchronise()? > 0 {}
    }
    heap.close()?;
    me.barrier()
}

/// An initiator without room waits until the peer has freed a block.
fn room_is_waited_for(me: &Worker) -> Result<()> {
    let kept = PerWorker::new(me, RefCell::new(Vec::<RemoteBlock>::new()))?;
    let peer = me.neighbor(1);
    for synchronisation in [Synchronisation::Deferred { batch: 1000 }, Synchronisation::Immediate] {
        let heap = RemoteHeap::open(me, peer, HeapOptions::new(16 * 65).synchronisation(synchronisation))?;
        for _ in 0..3 {
            while let Ok(block) = heap.try_alloc(192_u64) {
                me.call(peer, (kept, block.hand_over()?), |there, (kept, name)| {
                    kept.here(there).borrow_mut().push(name)
                })?;
            }
            assert_eq!(heap.report().peer_blocks, 5);
            is_refused!(heap.alloc(192_u64), HeapError::Exhausted { bytes: 192, free_bytes: 0, .. });
            is_refused!(heap.alloc_within(192_u64, Duration::from_millis(2)), HeapError::Exhausted { .. });
            // The call goes now, and the initiator learns of the freed block while it waits.
            me.call(peer, kept, |there, kept| {
                let oldest = kept.here(there).borrow_mut().remove(0);
                oldest.open(there).unwrap().free().unwrap();
            })?;
            let block = heap.alloc_within(192_u64, Duration::MAX)?;
            drop(block);
            me.call(peer, kept, |there, kept| {
                kept.here(there).take().into_iter().for_each(|name| name.open(there).unwrap().free().unwrap());
            })?;
            // All of it. A deferred peer does not report its freed blocks by itself.
            let all = heap.alloc_within(16 * 64_u64, limit())?;
            assert_eq!(heap.report().peer_blocks, 0);
            drop(all);
        }
        heap.close()?;
    }
    me.barrier()
}

/// A heap that is closed while the peer has blocks reports so, and the peer learns of it.
fn closing_waits_for_the_peer(me: &Worker) -> Result<()> {
    let peer = me.neighbor(1);
    let heap = RemoteHeap::open(me, peer, HeapOptions::new(4096))?;
    let kept = heap.alloc(10_u64)?.hand_over()?;
    me.call_return(peer, kept, |there, name| drop(name.open(there).unwrap()))?.wait()?;
    drop(heap);
    let closed = me.call_return(peer, kept, |there, name| match name.open(there) {
        Err(HeapError::Job(error)) => is_released(&error),
        opened => matches!(opened, Err(HeapError::Closed { .. })),
    });
    assert!(closed?.wait()?);
    me.barrier()?;
    assert_eq!(me.counters().remote_memory_bytes_here, 0);
    me.barrier()
}

/// A worker's random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// The blocks that a peer keeps, with the seeds of their content.
type Kept = PerWorker<RefCell<Vec<(RemoteBlock, u64)>>>;

/// Reads a block, whose memory must be its own, and frees it.
fn check_and_free(there: &Worker, (name, seed): (RemoteBlock, u64)) {
    let block = name.open(there).unwrap();
    assert!(
        block.to_vec().unwrap() == pattern(seed, name.bytes()),
        "block {seed} of {:?} is its own",
        block.initiator()
    );
    block.free().unwrap();
}

/// One worker's random use of a heap, and a record of it.
struct Traffic<'h> {
    heap: &'h RemoteHeap<'h>,
    own: Vec<(farside_kit::heap::Block<'h>, u64)>,
    handed: Vec<RemoteBlock>,
}

impl Traffic<'_> {
    fn step(&mut self, me: &Worker, kept: Kept, random: &mut Random) -> Result<()> {
        let peer = self.heap.peer();
        match random.below(10) {
            0..=3 => {
                let space = Space::of(random.below(400)).aligned(1 << random.below(9));
                match if random.below(2) == 0 { self.heap.try_alloc(space) } else { self.heap.alloc(space) } {
                    Ok(mut block) => {
                        let seed = random.below(1 << 40);
                        let data = pattern(seed, block.bytes());
                        block.local_mut().copy_from_slice(&data);
                        block.put()?;
                        self.own.push((block, seed));
                    }
                    Err(HeapError::Exhausted { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            4..=6 if !self.own.is_empty() => {
                let (mut block, seed) = self.own.swap_remove(random.below(self.own.len() as u64) as usize);
                assert!(block.local() == pattern(seed, block.bytes()), "the local view belongs to this block alone");
                block.local_mut().fill(0);
                block.get()?;
                assert!(block.local() == pattern(seed, block.bytes()), "nor is the memory at the peer");
                let name = block.hand_over()?;
                self.handed.push(name);
                let at_once = random.below(3) == 0;
                me.call(peer, (kept, name, seed, at_once), |there, (kept, name, seed, at_once)| {
                    if at_once {
                        return check_and_free(there, (name, seed));
                    }
                    kept.here(there).borrow_mut().push((name, seed));
                })?;
            }
            7 if !self.own.is_empty() => drop(self.own.swap_remove(random.below(self.own.len() as u64) as usize)),
            8 => me.call(peer, (kept, random.below(100)), |there, (kept, which)| {
                // A block of any heap.
                let chosen = {
                    let mut kept = kept.here(there).borrow_mut();
                    let count = kept.len() as u64;
                    (count > 0).then(|| kept.swap_remove((which % count.max(1)) as usize))
                };
                if let Some(chosen) = chosen {
                    check_and_free(there, chosen);
                }
            })?,
            9 if !self.handed.is_empty() && random.below(4) == 0 => {
                let name = self.handed.swap_remove(random.below(self.handed.len() as u64) as usize);
                // Has the peer drop the block, unless the peer has freed it already.
                let taken = me.call_return(peer, (kept, name), |there, (kept, name)| {
                    let mut kept = kept.here(there).borrow_mut();
                    kept.iter().position(|(other, _)| *other == name).map(|at| kept.swap_remove(at)).is_some()
                });
                let is_kept = taken?.wait()?;
                match self.heap.take_back(name) {
                    Ok(()) => assert!(is_kept),
                    Err(HeapError::Freed { .. }) => assert!(!is_kept),
                    Err(error) => return Err(error.into()),
                }
            }
            _ => drop(me.progress()?),
        }
        all_is_accounted_for(self.heap.report());
        assert_eq!(self.heap.report().own_blocks, self.own.len() as u64);
        Ok(())
    }
}

/// Each worker has two heaps. Both sides allocate, hand over, free and take back blocks at random.
fn random_histories(me: &Worker) -> Result<()> {
    let kept: Kept = PerWorker::new(me, RefCell::default())?;
    let mut random = Random(u64::from(me.id().number()) * 77 + 12345);
    for fit in Fit::ALL {
        let batch = [1, 3, 50][random.below(3) as usize];
        let deferred = HeapOptions::new(4096).fit(fit).synchronisation(Synchronisation::Deferred { batch });
        let immediate = deferred.synchronisation(Synchronisation::Immediate);
        let heaps = [
            RemoteHeap::open(me, me.neighbor(1), deferred)?,
            RemoteHeap::open(me, me.neighbor(me.threads_per_process()), immediate)?,
        ];
        let mut traffic = heaps.each_ref().map(|heap| Traffic { heap, own: Vec::new(), handed: Vec::new() });
        for _ in 0..250 {
            let which = random.below(2) as usize;
            traffic[which].step(me, kept, &mut random)?;
        }
        drop(traffic);
        me.barrier()?;
        kept.here(me).take().into_iter().for_each(|chosen| check_and_free(me, chosen));
        me.barrier()?;
        for heap in heaps {
            while heap.synchronise()? > 0 {}
            let report = heap.report();
            assert_eq!((report.free_bytes, report.free_pieces), (4096, 1), "all is one piece again: {report:?}");
            assert_eq!(report.external_fragmentation(), 0.0);
            assert!(report.freed_by_peer >= report.tags && report.tags >= report.synchronisations);
            heap.close()?;
        }
        me.barrier()?;
    }
    me.barrier()
}

everywhere! {
    as_processes(processes = 2, threads = 2),
    simulated(processes = 3, threads = 2, seeds = 2);
    blocks_go_across_and_come_back
    everything_freed_is_one_piece
    blocks_are_aligned
    mistakes_are_refused
    stale_names_are_noticed
    blocks_are_lent
    room_is_waited_for
    closing_waits_for_the_peer
    random_histories
}

/// The peer dies at some moment. Its initiators get errors, and their accounts are right.
#[test]
fn a_lost_peer_is_an_error_and_everything_is_accounted_for() {
    for seed in spread(40) {
        let dies_after = Duration::from_micros(50 + seed * 97);
        let simulation = Simulation::new(3, 1, seed).kill(ProcessId::new(2), dies_after);
        let well = AtomicU32::new(0);
        let simulated = simulation.run(|me| {
            let doomed = ProcessId::new(2);
            let lost = |error: &Error| matches!(error, Error::PeerLost { process, .. } if *process == doomed);
            let mut random = Random(seed * 31 + u64::from(me.id().number()) + 1);
            // No collective, which would find the loss before.
            let handed = RefCell::new(0);
            let mut run = || -> Result<()> {
                let heap = RemoteHeap::open(me, WorkerId::new(2), HeapOptions::new(2048))?;
                let mut go_on = || -> Result<()> {
                    loop {
                        let mut block = match heap.alloc(random.below(300)) {
                            Err(HeapError::Exhausted { .. }) => continue,
                            block => block?,
                        };
                        block.local_mut().fill(7);
                        block.put()?;
                        let name = block.hand_over()?;
                        *handed.borrow_mut() += 1;
                        me.call(heap.peer(), name, |there, name| name.open(there).unwrap().free().unwrap())?;
                    }
                };
                let error = go_on().expect_err("it dies");
                assert!(lost(&error), "{error}");
                let report = heap.report();
                all_is_accounted_for(report);
                assert_eq!(report.own_blocks, 0);
                assert_eq!(report.peer_blocks + report.freed_by_peer, *handed.borrow(), "none is forgotten");
                for refused in
                    [heap.alloc(1_u64).map(drop), heap.try_alloc(1_u64).map(drop), heap.synchronise().map(drop)]
                {
                    assert!(lost(&refused.expect_err("it is dead").into()));
                }
                // A last list of freed blocks may still have come.
                Ok(heap.close()?)
            };
            if me.process() == doomed {
                return me.wait_while_serving(|| false);
            }
            match run() {
                Ok(()) => {}
                Err(error) => assert!(lost(&error), "{error}"),
            }
            well.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err());
        assert_eq!(well.into_inner(), 2, "seed {seed}");
    }
}

/// The initiator dies at some moment. Its memory is released, and its peers get errors for the
/// blocks that they kept.
#[test]
fn a_lost_initiator_is_an_error_and_its_memory_comes_back() {
    for seed in spread(40) {
        let dies_after = Duration::from_micros(50 + seed * 97);
        let simulation = Simulation::new(3, 1, seed).kill(ProcessId::new(0), dies_after);
        let well = AtomicU32::new(0);
        let names = std::sync::Mutex::new(Vec::<RemoteBlock>::new());
        let simulated = simulation.run(|me| {
            if me.process().number() == 0 {
                let heap = RemoteHeap::open(me, WorkerId::new(1), HeapOptions::new(1 << 16))?;
                for number in 0_u64.. {
                    let block = heap.alloc_within(100 + number % 50, Duration::from_secs(1))?;
                    let name = block.hand_over()?;
                    names.lock().unwrap().push(name);
                    me.call(heap.peer(), (name, number % 3), |there, (name, rest)| {
                        let block = name.open(there).unwrap();
                        if rest > 0 {
                            block.free().unwrap();
                        }
                    })?;
                }
            }
            me.wait_while_serving(|| me.lost_processes() == [ProcessId::new(0)])?;
            assert_eq!(me.counters().remote_memory_bytes_here, 0, "all of it is given back");
            if me.process().number() == 1 {
                for name in names.lock().unwrap().iter() {
                    let opened = name.open(me);
                    let is_loss = |error: &Error| matches!(error, Error::PeerLost { .. }) || is_released(error);
                    let is_told = matches!(&opened, Err(HeapError::Job(error)) if is_loss(error));
                    assert!(is_told, "{opened:?}");
                }
            }
            well.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err());
        assert_eq!(well.into_inner(), 2, "seed {seed}");
    }
}

//! Tests of a faulty peer: the initiator notices what it writes, and does not believe it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farside::kit::MemoryParts as _;
use farside::{Error, Result, Worker, WorkerId};

use super::layout::tests::memory;
use super::layout::{CONTROL_BYTES, StampKind};
use super::shadow::Holder;
use super::tags::{self, Tag};
use super::*;
use crate::pipe::PipeError;
use crate::prelude::*;

/// Opens a heap of worker 0 at worker 1, with 20 handed-over blocks and others.
fn with_heap(work: impl Fn(&RemoteHeap<'_>, &[RemoteBlock]) -> Result<()> + Send + Sync) {
    for seed in 0..3 {
        let body = |me: &Worker| {
            if me.id() == WorkerId::new(0) {
                let options = HeapOptions::new(4096).synchronisation(Synchronisation::Deferred { batch: 1000 });
                let heap = RemoteHeap::open(me, WorkerId::new(1), options)?;
                let kept = heap.alloc(100)?;
                let names: Vec<_> = (0..20).map(|_| Ok(heap.alloc(40)?.hand_over()?)).collect::<Result<_>>()?;
                work(&heap, &names)?;
                drop(kept);
            }
            me.barrier()
        };
        farside::simulate(2, 1, seed, body).unwrap();
    }
}

fn tag(heap: &RemoteHeap<'_>, name: &RemoteBlock) -> Tag {
    let marks = heap.layout().stamp(name.serial, name.start, StampKind::Given);
    Tag { start: name.start, units: 4, marks }
}

#[test]
fn a_wrong_list_is_refused_and_the_next_right_one_is_taken() {
    with_heap(|heap, names| {
        let (me, before) = (heap.me(), heap.report());
        let [first, second] = [0, 1].map(|at| tag(heap, &names[at]));
        let outside = Tag { start: 250, units: 8, marks: 1 };
        let not_given = Tag { start: 0, units: 8, marks: 1 };
        let half = Tag { units: 2, ..first };
        let stale = Tag { marks: first.marks ^ 1, ..first };
        let wrong = [
            (vec![first, outside], TagFault::OutOfRange),
            (vec![second, first], TagFault::Order),
            (vec![first, first], TagFault::Order),
            (vec![Tag { units: 0, ..first }], TagFault::Order),
            (vec![not_given], TagFault::NotHandedOver),
            (vec![half], TagFault::NoBlock),
            (vec![second, stale.moved(100)], TagFault::NoBlock),
            (vec![stale], TagFault::OtherBlocks),
            (vec![Tag { units: u32::MAX, ..first }], TagFault::OutOfRange),
        ];
        let mut sequence = 0;
        for (list, fault) in wrong {
            sequence += 1;
            heap.tray().put(me, 0, &tags::encode(heap.layout(), sequence, &list))?;
            let refused = heap.try_alloc(1);
            let expected = HeapError::CorruptTags { peer: WorkerId::new(1), sequence, fault };
            assert!(matches!(&refused, Err(error) if error.to_string() == expected.to_string()), "{refused:?}");
            let after = heap.report();
            assert_eq!((after.free_bytes, after.peer_blocks), (before.free_bytes, 20), "nothing of it is taken over");
            // The initiator reports it once.
            drop(heap.try_alloc(1)?);
        }
        let both = Tag { units: 8, marks: first.marks.wrapping_add(second.marks), ..first };
        heap.tray().put(me, 0, &tags::encode(heap.layout(), sequence + 1, &[both]))?;
        drop(heap.try_alloc(1)?);
        assert_eq!(heap.report().peer_blocks, 18);
        // The same list again has no effect.
        drop(heap.try_alloc(1)?);
        assert_eq!((heap.report().peer_blocks, heap.report().synchronisations), (18, 1));
        Ok(())
    });
}

impl Tag {
    fn moved(self, by: u32) -> Self {
        Self { start: self.start + by, ..self }
    }
}

#[test]
fn a_message_in_pieces_is_taken_once_complete() {
    with_heap(|heap, names| {
        let me = heap.me();
        let list: Vec<Tag> = names.iter().step_by(2).map(|name| tag(heap, name)).collect();
        let whole = tags::encode(heap.layout(), 1, &list);
        // From the end to the beginning, so that the number arrives before the checksum.
        for from in (0..whole.len()).step_by(8).rev() {
            assert_eq!(heap.report().peer_blocks, 20);
            heap.tray().put(me, from as u64, &whole[from..from + 8])?;
            drop(heap.try_alloc(1)?);
        }
        assert_eq!(heap.report().peer_blocks, 10);
        Ok(())
    });
}

#[test]
fn noise_is_not_a_list() {
    with_heap(|heap, _| {
        let mut noise = 1_u64;
        for _ in 0..200 {
            let bytes: Vec<u8> = (0..heap.tray().bytes())
                .map(|_| {
                    noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (noise >> 33) as u8
                })
                .collect();
            heap.tray().put(heap.me(), 0, &bytes)?;
            // Also with the next number.
            heap.tray().put(heap.me(), 8, &((1_u64 << 16) | (noise % 70)).to_ne_bytes())?;
            drop(heap.try_alloc(1)?);
        }
        assert_eq!(heap.report().peer_blocks, 20);
        Ok(())
    });
}

#[test]
fn a_heap_without_its_header_is_refused() {
    with_heap(|heap, names| {
        let me = heap.me();
        heap.far().put(me, 0, &[0xff; CONTROL_BYTES as usize])?;
        let opened = me
            .call_return(heap.peer(), names[0], |there, name| matches!(name.open(there), Err(HeapError::CorruptHeap)));
        assert!(opened?.wait()?);
        Ok(())
    });
}

#[test]
fn a_damaged_name_is_refused() {
    with_heap(|heap, names| {
        let me = heap.me();
        let name = names[3];
        let damaged = vec![
            RemoteBlock { start: name.start + 1, ..name },
            RemoteBlock { start: u32::MAX, ..name },
            RemoteBlock { serial: name.serial + 1, ..name },
            RemoteBlock { serial: u64::MAX, ..name },
            RemoteBlock { bytes: 10_000, ..name },
            RemoteBlock { bytes: u64::MAX, ..name },
            RemoteBlock { bytes: 10, ..name },
        ];
        for name in &damaged[..4] {
            let refused = heap.take_back(*name);
            assert!(matches!(refused, Err(HeapError::Stale { .. } | HeapError::Freed { .. })), "{refused:?}");
        }
        let refused = me.call_return(heap.peer(), damaged, |there, names: Vec<RemoteBlock>| {
            // A place without a block may hold zeros.
            let is_refused = |name: &RemoteBlock| {
                let opened = name.open(there);
                matches!(opened, Err(HeapError::Stale { .. } | HeapError::Freed { .. }))
            };
            names.iter().all(is_refused)
        });
        assert!(refused?.wait()?);
        Ok(())
    });
}

/// A peer claims to have sent a list that never arrives.
#[test]
fn a_list_that_does_not_come_is_waited_for_no_longer_than_the_deadline() {
    let is_done = AtomicBool::new(false);
    let body = |me: &Worker| {
        if me.id() == WorkerId::new(1) {
            // A deadline in virtual time costs nothing.
            return me.wait_together(20 * me.default_deadline(), || is_done.load(Ordering::Relaxed));
        }
        let heap = RemoteHeap::open(me, WorkerId::new(1), HeapOptions::new(256))?;
        let name = heap.alloc(200)?.hand_over()?;
        let told = |there: &Worker, name: RemoteBlock| {
            name.open(there).expect("it was handed over").pretend_to_have_sent(5);
        };
        me.call_return(heap.peer(), name, told)?.wait()?;
        let before = me.now();
        let refused = heap.alloc_within(200, Duration::from_millis(1));
        assert!(matches!(refused, Err(HeapError::Exhausted { .. })), "{refused:?}");
        assert!(me.now() - before < Duration::from_millis(500));
        let refused = heap.alloc(200);
        assert!(matches!(refused, Err(HeapError::Job(Error::Deadline { .. }))), "{refused:?}");
        is_done.store(true, Ordering::Relaxed);
        me.call_return(heap.peer(), (), |_, ()| ())?.wait()
    };
    farside::simulate(2, 1, 1, body).unwrap();
}

/// Blocks overlap, as no correct initiator makes them.
#[test]
fn a_block_inside_of_another_is_an_error_when_it_is_freed() {
    with_heap(|heap, names| {
        let me = heap.me();
        let outer = names[5];
        let inner = RemoteBlock { start: outer.start + 1, serial: 999, bytes: 16, ..outer };
        let stamp = heap.layout().stamp(inner.serial, inner.start, StampKind::Given);
        heap.far().put(me, heap.layout().header_at(inner.start), &heap.header(stamp, inner.bytes).to_bytes())?;
        let freed = me.call_return(heap.peer(), (outer, inner), |there, (outer, inner): (RemoteBlock, RemoteBlock)| {
            outer.open(there).and_then(OwnedBlock::free).expect("it was handed over");
            let refused = inner.open(there).and_then(OwnedBlock::free);
            matches!(refused, Err(HeapError::CorruptHeap))
        });
        assert!(freed?.wait()?);
        assert_eq!(heap.synchronise()?, 0);
        assert_eq!(heap.report().peer_blocks, 19);
        Ok(())
    });
}

/// A peer always has more to report, and never reports it.
#[test]
fn a_heap_whose_peer_never_tells_all_is_closed_all_the_same() {
    let is_done = AtomicBool::new(false);
    let body = |me: &Worker| {
        if me.id() == WorkerId::new(1) {
            return me.wait_together(20 * me.default_deadline(), || is_done.load(Ordering::Relaxed));
        }
        let heap = RemoteHeap::open(me, WorkerId::new(1), HeapOptions::new(256))?;
        let name = heap.alloc(100)?.hand_over()?;
        let claim =
            |there: &Worker, name: RemoteBlock| name.open(there).expect("it was handed over").pretend_to_have_more(1);
        me.call_return(heap.peer(), name, claim)?.wait()?;
        let before = me.now();
        let closed = heap.close();
        assert!(matches!(closed, Err(HeapError::StillInUse { blocks: 1, .. })), "{closed:?}");
        assert!(me.now() - before < me.default_deadline() * 2);
        is_done.store(true, Ordering::Relaxed);
        me.call_return(WorkerId::new(1), (), |_, ()| ())?.wait()
    };
    farside::simulate(2, 1, 1, body).unwrap();
}

/// An initiator that waits for room, or closes, also learns of the first block that the peer opens.
#[test]
fn blocks_opened_late_are_reported() {
    let body = |me: &Worker| {
        if me.id() == WorkerId::new(1) {
            let mut names = me.pipe(WorkerId::new(0)).receiver::<RemoteBlock>()?;
            let mut kept = (0..7).map(|_| names.recv()).collect::<Result<Vec<_>, _>>()?;
            // By now the initiator waits, and has asked.
            let none = names.recv_for(Duration::from_millis(10));
            assert!(matches!(none, Err(PipeError::Job(Error::Deadline { .. }))), "{none:?}");
            kept.remove(0).open(me)?.free()?;
            kept.push(names.recv()?);
            kept.into_iter().try_for_each(|name| name.open(me)?.free())?;
            // The initiator has asked about the other heap while closing it.
            let name = names.recv()?;
            let none = names.recv_for(Duration::from_millis(10));
            assert!(matches!(none, Err(PipeError::Job(Error::Deadline { .. }))), "{none:?}");
            name.open(me)?.free()?;
            return me.barrier();
        }
        let mut names = me.pipe(WorkerId::new(1)).sender::<RemoteBlock>()?;
        let mut give = |block: Block<'_>| -> Result<()> { Ok(names.send(block.hand_over()?)?) };
        let heap = RemoteHeap::open(me, WorkerId::new(1), HeapOptions::new(7 * 48))?;
        (0..7).try_for_each(|_| give(heap.alloc(32)?))?;
        give(heap.alloc_within(32, Duration::from_secs(1))?)?;
        heap.close()?;
        let heap = RemoteHeap::open(me, WorkerId::new(1), HeapOptions::new(7 * 48))?;
        give(heap.alloc(32)?)?;
        heap.close()?;
        me.barrier()
    };
    for seed in 0..3 {
        farside::simulate(2, 1, seed, body).unwrap();
    }
}

#[test]
fn a_damaged_name_has_no_address_or_another() {
    with_heap(|heap, names| {
        for offset in [u64::MAX, u64::MAX - 256, u64::MAX - 5000] {
            let (heap, id) = (names[0].heap, names[0].heap.serial());
            let heap = memory(heap.region_key(), offset, heap.bytes(), id as u32, (id >> 32) as u32);
            let damaged = RemoteBlock { heap, ..names[0] };
            assert!(damaged.address().is_err());
        }
        assert_ne!(heap.far().address()?, names[0].address()?);
        Ok(())
    });
}

/// Memory that is kept because a put may still arrive is no heap any more for a worker that has a
/// name of one of its blocks.
#[test]
fn a_heap_that_is_closed_is_not_opened_again_by_a_name() {
    let body = |me: &Worker| {
        if me.id() == WorkerId::new(0) {
            let peer = WorkerId::new(1);
            let heap = RemoteHeap::open(me, peer, HeapOptions::new(4096))?;
            let [kept, doubtful] = [heap.alloc(40)?.hand_over()?, heap.alloc(40)?.hand_over()?];
            // As after a put that met its deadline.
            heap.pass_to(doubtful.start, Holder::Nobody);
            let is_there = |there: &Worker, name: RemoteBlock| name.open(there).is_ok();
            assert!(me.call_return(peer, kept, is_there)?.wait()?);
            drop(heap);
            let is_closed = |there: &Worker, name: RemoteBlock| {
                let opened = name.open(there);
                let initiator = WorkerId::new(0);
                matches!(opened, Err(HeapError::Closed { initiator: by }) if by == initiator)
            };
            assert!(me.call_return(peer, kept, is_closed)?.wait()?);
            me.wait_while_serving(|| me.counters().remote_memory_bytes_here == 0)?;
        }
        me.barrier()?;
        let is_kept = me.counters().remote_memory_bytes_here > 0;
        assert_eq!(is_kept, me.id() == WorkerId::new(1));
        me.barrier()
    };
    for seed in 0..3 {
        farside::simulate(2, 1, seed, body).unwrap();
    }
}

/// An initiator that closes while the peer frees block by block does not ask for each of them.
#[test]
fn questions_become_rarer() {
    const BLOCKS: usize = 100;
    let body = |me: &Worker| {
        if me.id() == WorkerId::new(1) {
            let mut names = me.pipe(WorkerId::new(0)).width(BLOCKS).receiver::<RemoteBlock>()?;
            let names = (0..BLOCKS).map(|_| names.recv()).collect::<Result<Vec<_>, _>>()?;
            for name in names {
                let end = me.now() + Duration::from_millis(1);
                me.wait_together(Duration::from_millis(1), || me.now() >= end).or_else(|error| match error {
                    Error::Deadline { .. } => Ok(()),
                    error => Err(error),
                })?;
                name.open(me)?.free()?;
            }
            return me.barrier();
        }
        let mut names = me.pipe(WorkerId::new(1)).width(BLOCKS).sender::<RemoteBlock>()?;
        let options = HeapOptions::new(1 << 16).synchronisation(Synchronisation::Deferred { batch: 1000 });
        let heap = RemoteHeap::open(me, WorkerId::new(1), options)?;
        for _ in 0..BLOCKS {
            names.send(heap.alloc(32)?.hand_over()?).map_err(|refused| refused.error)?;
        }
        heap.wait_for_all_freed()?;
        let report = heap.report();
        assert_eq!(report.freed_by_peer, BLOCKS as u64);
        assert!(report.questions < BLOCKS as u64 / 2, "{report:?}");
        me.barrier()
    };
    for seed in 0..3 {
        farside::simulate(2, 1, seed, body).unwrap();
    }
}

//! Heaps in the memory of other workers. The bodies run as processes, over whatever `FARSIDE_FABRIC` says, and in the simulator.

use farside::heap::{Fit, HeapError, HeapOptions, RemoteBlock, RemoteHeap, Space, Synchronisation};
use farside::prelude::*;
use farside::{Error, Result};

fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (seed.wrapping_mul(0x9e37) + at.wrapping_mul(31)) as u8).collect()
}

/// What every worker does with the next one: blocks of all sizes go across, are read there, and come back.
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
                let again = name.open(there);
                assert!(matches!(again, Err(Error::Heap(HeapError::Freed { .. }))), "{again:?}");
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

/// All that was freed is one piece again.
fn everything_freed_is_one_piece(me: &Worker) -> Result<()> {
    let options = HeapOptions::new(16 << 10).synchronisation(Synchronisation::Deferred { batch: 7 });
    let heap = RemoteHeap::open(me, me.neighbor(1), options)?;
    for round in 0..20_u64 {
        let mut given = Vec::new();
        // Each third comes back at once, and leaves a hole.
        for number in 0_u64.. {
            match heap.alloc(1 + number * 7 + round) {
                Ok(block) if number % 3 == 2 => block.free(),
                Ok(block) => given.push(block.hand_over()?),
                Err(Error::Heap(HeapError::Exhausted { .. })) => break,
                Err(error) => return Err(error),
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
        assert!(matches!(refused, Err(Error::Heap(HeapError::Alignment { .. }))), "{refused:?}");
    }
    me.barrier()
}

macro_rules! everywhere {
    ($($body:ident)*) => {
        mod as_processes {
            use super::*;
            $(
                #[farside::test(processes = 2, threads = 2)]
                fn $body(me: &Worker) -> Result<()> {
                    super::$body(me)
                }
            )*
        }

        mod simulated {
            $(
                #[test]
                fn $body() {
                    for seed in 0..4 {
                        farside::simulate(3, 2, seed, super::$body).unwrap();
                    }
                }
            )*
        }
    };
}

everywhere! {
    blocks_go_across_and_come_back
    everything_freed_is_one_piece
    blocks_are_aligned
}

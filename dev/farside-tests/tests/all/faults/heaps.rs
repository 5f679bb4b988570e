//! Every worker has a remote heap at every other, for [`sweep`](super::sweep).

use farside::memory::MemoryError;
use std::cell::RefCell;

use farside::prelude::*;
use farside::{Error, Result};
use farside_kit::heap::{Block, HeapError, HeapOptions, RemoteBlock, RemoteHeap, Synchronisation};
use farside_testbed::limit;

use super::sweep::{VICTIM, is_victim_lost, report_end, report_work};

const PROGRAM: &str = "faults::heaps::program";
const HEAP_BYTES: u64 = 4096;
const ROUNDS_BEFORE: u64 = 12;
const ROUNDS_AFTER: u64 = 6;

thread_local! {
    /// Blocks that this worker was given and has not freed, each with its content.
    static KEPT: RefCell<Vec<(RemoteBlock, u8)>> = RefCell::default();
}

/// Takes a block. Frees one at once if `at_once` is set.
fn take_in(there: &Worker, (name, content, at_once): (RemoteBlock, u8, bool)) {
    KEPT.with_borrow_mut(|kept| kept.push((name, content)));
    if at_once {
        free_some(there, 1);
    }
}

/// Frees the latest blocks. A block of a lost initiator is an error.
fn free_some(there: &Worker, count: usize) {
    for (name, content) in KEPT.with_borrow_mut(|kept| kept.split_off(kept.len().saturating_sub(count))) {
        let read = || -> Result<()> {
            let block = name.open(there)?;
            let bytes = block.to_vec()?;
            block.free()?;
            assert!(bytes.iter().all(|byte| *byte == content), "the memory is the block's alone");
            Ok(())
        };
        match read() {
            Err(Error::PeerLost { process, .. }) => assert_eq!(process.number(), VICTIM),
            // The service thread has already released the memory.
            Err(error) if matches!(error.room_error(), Some(MemoryError::Released { .. })) => {}
            other => other.unwrap(),
        }
    }
}

/// This worker's heap at another.
struct Traffic<'w> {
    me: &'w Worker,
    heap: RemoteHeap<'w>,
    handed: u64,
    taken_back: u64,
}

impl Traffic<'_> {
    fn round(&mut self, round: u64) -> Result<()> {
        let content = round as u8;
        for number in 0..8 {
            let mut block: Block<'_> = match self.heap.alloc(number * 40) {
                // The peer keeps its blocks until a call frees them.
                Err(HeapError::Exhausted { .. }) => break,
                block => block?,
            };
            block.local_mut().fill(content);
            block.put()?;
            let name = block.lend()?;
            let bytes = self.me.call_return(self.heap.peer(), name, |there, name| {
                name.open(there).map(|block| block.bytes()).unwrap_or(u64::MAX)
            });
            let bytes = bytes?.wait()?;
            assert!(bytes == number * 40 || bytes == u64::MAX);
            if number == 5 {
                continue;
            }
            let name = block.hand_over().map_err(|refused| refused.error)?;
            self.handed += 1;
            if number == 6 {
                self.heap.take_back(name)?;
                self.taken_back += 1;
                continue;
            }
            self.me.call(self.heap.peer(), (name, content, number % 3 > 0), take_in)?;
        }
        if round % 3 == 2 {
            self.me.call_return(self.heap.peer(), (), |there, ()| free_some(there, 20))?.wait()?;
        }
        if round % 2 == 1 {
            while self.heap.synchronise()? > 0 {}
        }
        Ok(())
    }

    /// Checks that every byte is free or belongs to a block.
    fn check(&self) {
        let report = self.heap.report();
        let held = report.own_bytes + report.peer_bytes + report.set_aside_bytes;
        assert_eq!(report.free_bytes + held, report.bytes, "{report:?}");
        assert_eq!(report.peer_blocks + report.freed_by_peer + self.taken_back, self.handed, "{report:?}");
        assert_eq!((report.own_blocks, report.set_aside_blocks), (0, 0), "{report:?}");
    }
}

/// Goes on with all heaps whose peers live.
fn go_on(traffic: &mut Vec<Traffic<'_>>, rounds: u64) -> Result<()> {
    for round in 0..rounds {
        let mut gone = None;
        for (at, one) in traffic.iter_mut().enumerate() {
            match one.round(round) {
                Err(Error::PeerLost { process, .. })
                    if process.number() == VICTIM && one.me.process_of(one.heap.peer()) == process =>
                {
                    gone = Some(at);
                }
                other => other?,
            }
            one.check();
        }
        if let Some(gone) = gone {
            let Traffic { heap, .. } = traffic.swap_remove(gone);
            let refused = heap.alloc(1);
            assert!(matches!(refused, Err(HeapError::Job(Error::PeerLost { .. }))), "{refused:?}");
        }
    }
    Ok(())
}

fn body(me: &Worker) -> Result<()> {
    // Opens and closes heaps many times, at every stage of the other processes.
    for round in 0..3 {
        let mut traffic = Vec::new();
        for distance in 1..me.worker_count() {
            let options = HeapOptions::new(HEAP_BYTES);
            let options = match (me.id().number() + distance) % 2 {
                0 => options.synchronisation(Synchronisation::Deferred { batch: 4 }),
                _ => options.synchronisation(Synchronisation::Immediate),
            };
            match RemoteHeap::open(me, me.neighbor(distance), options) {
                Ok(heap) => traffic.push(Traffic { me, heap, handed: 0, taken_back: 0 }),
                Err(HeapError::Job(Error::PeerLost { process, .. })) if process.number() == VICTIM => {}
                Err(error) => return Err(error.into()),
            }
        }
        go_on(&mut traffic, ROUNDS_BEFORE)?;
        if round == 2 {
            report_work();
            while is_victim_lost() && me.lost_processes().is_empty() {
                go_on(&mut traffic, ROUNDS_AFTER)?;
            }
            go_on(&mut traffic, ROUNDS_AFTER)?;
        }
        for Traffic { heap, .. } in traffic {
            match me.call_return(heap.peer(), (), |there, ()| free_some(there, usize::MAX)).map_err(Error::from) {
                Ok(freed) => match freed.wait() {
                    Ok(()) => {}
                    Err(Error::PeerLost { process, .. }) if process.number() == VICTIM => continue,
                    Err(error) => return Err(error),
                },
                Err(Error::PeerLost { process, .. }) if process.number() == VICTIM => continue,
                Err(error) => return Err(error),
            }
            match heap.close() {
                Err(HeapError::Job(Error::PeerLost { process, .. })) if process.number() == VICTIM => {}
                other => other?,
            }
        }
    }
    free_some(me, usize::MAX);
    me.wait_while_serving(|| me.counters().remote_memory_bytes_here == 0)?;
    report_end(PROGRAM, me);
    Ok(())
}

#[test]
#[ignore = "a program for the tests below"]
fn program() {
    let job = farside::job().processes(4).threads_per_process(1).finalize_deadline(limit());
    if let Err(error) = job.run(body) {
        eprintln!("verdict: {error}");
        std::process::exit(1);
    }
}

//! Accesses to released memory.

use farside::memory::MemoryError;
use farside::prelude::*;
use farside::{AccessConflict, AccessKind, GlobalPtr, Order, RemoteMemory, Result};

use super::support::{Blind, Body, by_processes, report, simulated};

use crate::support::room;

const ROOT: WorkerId = WorkerId::new(0);
const BYTES: u64 = 512;

/// Returns memory of the last process that worker 0 has allocated.
fn shared(me: &Worker) -> Result<RemoteMemory> {
    let owner = ProcessId::new(me.process_count() - 1);
    let memory = (me.id() == ROOT).then(|| me.allocate_at(owner, BYTES)).transpose()?;
    me.broadcast(ROOT, memory)
}

/// Returns a word of the memory, by its address.
fn word(memory: &RemoteMemory, index: u32) -> Result<GlobalPtr<u64>> {
    Ok(memory.address()?.checked_add((index * 8).into()).expect("it is inside").cast())
}

#[track_caller]
fn is_told<T: std::fmt::Debug>(result: Result<T>, kind: AccessKind, line: u32) -> AccessConflict {
    let conflict = report(result);
    let AccessConflict { here, there, in_use, .. } = &conflict;
    assert_eq!((there.worker, there.kind, there.site.line()), (ROOT, AccessKind::Release, line), "{conflict}");
    assert!(there.site.file().ends_with("released.rs"));
    assert_eq!((here.kind, *in_use), (kind, false));
    assert!(conflict.to_string().contains("no worker may access"), "{conflict}");
    conflict
}

/// Every access by the address names the worker that released the memory. An access by the handle
/// fails as it does without the checker.
fn is_released(me: &Worker) -> Result<()> {
    let memory = shared(me)?;
    let at = word(&memory, 3)?;
    if me.id() == ROOT {
        at.put(me, 1)?;
    }
    me.barrier()?;
    let line = line!() + 2;
    if me.id() == ROOT {
        me.release(memory)?;
    }
    me.barrier()?;
    is_told(at.get(me), AccessKind::Read, line);
    is_told(at.put(me, 1), AccessKind::Write, line);
    is_told(at.load(me), AccessKind::AtomicLoad, line);
    is_told(at.fetch_add(me, 1), AccessKind::AtomicChange, line);
    let started = me.start_put_owned(at.address(), vec![1; 100], Order::None);
    is_told(started.map_err(|refused| refused.error).map(drop), AccessKind::Write, line);
    let conflict = is_told(me.get_bytes(memory.address()?, &mut [0; 100]), AccessKind::Read, line);
    assert_eq!((conflict.address, conflict.bytes), (memory.address()?, 100));
    if me.id() == ROOT {
        let stale = memory.get(me, 0, &mut [0; 8]);
        assert!(matches!(room(&stale), Some(MemoryError::Released { .. })), "{stale:?}");
        let again = me.release(memory);
        assert!(matches!(room(&again), Some(MemoryError::Released { .. })), "{again:?}");
    }
    me.barrier()
}

/// Memory that is allocated again can be used like any other.
fn is_allocated_again(me: &Worker) -> Result<()> {
    let owner = ProcessId::new(me.process_count() - 1);
    if me.id() == ROOT {
        let first = me.allocate_at(owner, BYTES)?;
        let place = first.address()?;
        me.release(first)?;
        let mut all = Vec::new();
        loop {
            let memory = me.allocate_at(owner, BYTES)?;
            all.push(memory);
            if memory.address()? == place {
                break;
            }
            assert!(all.len() < 1000, "the place is never used again");
        }
        for memory in all {
            word(&memory, 0)?.put(me, 5)?;
            me.put_bytes(memory.address()?, &[1; BYTES as usize])?;
            me.release(memory)?;
        }
    }
    me.barrier()
}

/// A worker must not release memory that another has accessed, if nothing orders the two.
fn is_in_use(me: &Worker) -> Result<()> {
    let memory = shared(me)?;
    let blind = Blind::new(me)?;
    let at = word(&memory, 7)?;
    match me.id().number() {
        1 => {
            at.put(me, 4)?;
            blind.reach(me, 1)?;
            blind.wait_for(me, 2)?;
            assert_eq!(at.get(me)?, 4, "it is still there");
        }
        0 => {
            blind.wait_for(me, 1)?;
            let conflict = report(me.release(memory));
            assert_eq!((conflict.here.kind, conflict.there.kind), (AccessKind::Release, AccessKind::Write));
            assert_eq!((conflict.there.worker, conflict.bytes), (WorkerId::new(1), 8));
            assert!(conflict.to_string().contains("barrier"), "{conflict}");
            blind.reach(me, 2)?;
        }
        _ => {}
    }
    me.barrier()?;
    if me.id() == ROOT {
        me.release(memory)?;
    }
    me.barrier()
}

/// The same for an object of all workers.
fn is_an_array_no_more(me: &Worker) -> Result<()> {
    let array = me.global_array::<u64>(100)?;
    let first = array.at(0)?;
    array.put(me, 30 * me.id().index(), 1)?;
    let line = line!() + 1;
    array.free(me)?;
    me.barrier()?;
    is_told(first.get(me), AccessKind::Read, line);
    is_told(first.put(me, 1), AccessKind::Write, line);
    me.barrier()
}

fn all(me: &Worker) -> Result<()> {
    let bodies: [Body; 4] = [is_released, is_allocated_again, is_in_use, is_an_array_no_more];
    bodies.into_iter().try_for_each(|body| body(me))
}

#[test]
fn is_found_by_processes() {
    by_processes("accesses::released::is_found_by_processes", "shm", 3, 1, all);
}

mod deep {
    use super::*;

    #[test]
    fn is_found_over_libfabric() {
        by_processes("accesses::released::deep::is_found_over_libfabric", "ofi:tcp", 3, 1, all);
    }
}

#[test]
fn is_found_in_the_simulator() {
    simulated(2, 3, all);
}

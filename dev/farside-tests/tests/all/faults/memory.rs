//! Memory of one process that another uses, when one of the two is killed.

use farside::memory::MemoryError;
use std::cell::Cell;

use farside::memory::MemoryRefusal;
use farside::prelude::*;
use farside::{Error, ProcessEnd, RemoteMemory};

use crate::support::{failure, is_over_missing_libfabric, room, take_notes, verdict, write_note};

const LIMIT: u64 = 1 << 20;

thread_local! {
    /// The memory of this process that the doomed process has allocated.
    static TAKEN: Cell<Option<RemoteMemory>> = const { Cell::new(None) };
}

#[test]
fn memory_held_by_a_killed_process_is_reclaimed() {
    const NAME: &str = "faults::memory::memory_held_by_a_killed_process_is_reclaimed";
    let job = farside::job().processes(3).remote_memory_limit(LIMIT);
    let verdict = verdict(NAME, job, |me| {
        let (doomed, other) = (ProcessId::new(1), me.neighbor(if me.id().number() == 0 { 2 } else { 1 }));
        if me.process() == doomed {
            for owner in [0, 2].map(WorkerId::new) {
                let memory = me.allocate_at(owner, LIMIT)?;
                memory.put(me, 0, &[9; 100])?;
                me.call_return(owner, memory, |_, memory| TAKEN.set(Some(memory)))?.wait()?;
            }
            farside_sys::process::kill_self();
        }
        me.wait_while_serving(|| TAKEN.get().is_some())?;
        let taken = TAKEN.get().expect("it was waited for");
        let mut got = [0; 100];
        taken.get(me, 0, &mut got)?;
        assert_eq!((taken.process(), got), (me.process(), [9; 100]));
        me.wait_while_serving(|| me.lost_processes() == [doomed])?;
        for result in [taken.get(me, 0, &mut got), me.release(taken)] {
            assert!(matches!(room(&result), Some(MemoryError::Released { .. })), "{result:?}");
        }
        // All of it is free again. The owner may learn of the loss late, and refuses until then.
        let again = loop {
            let result = me.allocate_at(other, LIMIT);
            match room(&result) {
                Some(MemoryError::Refused { why: MemoryRefusal::Limit { held: LIMIT, limit: LIMIT }, .. }) => {
                    me.progress()?;
                }
                _ => break result?,
            }
        };
        again.put(me, 0, &[1; 100])?;
        me.release(again)?;
        me.wait_while_serving(|| me.counters().remote_memory_bytes_here == 0)?;
        for result in [me.allocate_at(doomed, 1).map(drop), me.allocate_at(WorkerId::new(1), 1).map(drop)] {
            assert!(matches!(result, Err(Error::PeerLost { process, .. }) if process == doomed), "{result:?}");
        }
        write_note(NAME, me.process().number(), "well");
        Ok(())
    });
    assert_eq!(failure(verdict), (1, ProcessEnd::Killed(9)));
    let well = || Some("well".to_owned());
    assert_eq!(take_notes(std::process::id(), NAME, 3), [well(), None, well()]);
}

#[test]
fn memory_owned_by_a_killed_process_is_lost() {
    const NAME: &str = "faults::memory::memory_owned_by_a_killed_process_is_lost";
    let job = farside::job().processes(2);
    let verdict = verdict(NAME, job, |me| {
        let doomed = ProcessId::new(1);
        let memory = (me.process() != doomed).then(|| me.allocate_at(doomed, 1000)).transpose()?;
        me.barrier()?;
        let Some(memory) = memory else { farside_sys::process::kill_self() };
        me.wait_while_serving(|| me.lost_processes() == [doomed])?;
        // The memory of the dead process may still be mapped here. No process reads what is put
        // there.
        let mut got = [0; 1000];
        for result in [
            memory.put(me, 0, &[1]),
            memory.get(me, 0, &mut got),
            memory.atomic64(me, 0, farside::AtomicChange::Add(1)).map(drop),
            memory.check(me),
            me.release(memory),
        ] {
            assert!(matches!(result, Err(Error::PeerLost { process, .. }) if process == doomed), "{result:?}");
        }
        write_note(NAME, me.process().number(), "told");
        Ok(())
    });
    assert_eq!(failure(verdict), (1, ProcessEnd::Killed(9)));
    assert_eq!(take_notes(std::process::id(), NAME, 2), [Some("told".to_owned()), None]);
}

/// A registered vector comes back although a process that writes to it is killed. Over libfabric,
/// which may still deliver its writes, a copy comes back instead.
fn vector_comes_back(test: &str, fabric: &str, is_copied: bool) {
    if is_over_missing_libfabric(fabric) {
        return;
    }
    let job = farside::job().processes(2).force_fabric(fabric.parse().unwrap());
    let verdict = verdict(test, job, |me| {
        let doomed = ProcessId::new(1);
        let values = vec![7_u64; 10_000];
        let before = values.as_ptr();
        let segment = me.register(values)?;
        let slice = me.broadcast(WorkerId::new(0), Some(segment.slice().start()))?.slice(10_000);
        if me.process() == doomed {
            slice.put(me, 0, &[8; 5000])?;
            me.barrier()?;
            farside_sys::process::kill_self();
        }
        me.barrier()?;
        me.wait_while_serving(|| me.lost_processes() == [doomed])?;
        let values = segment.deregister(me)?;
        assert_eq!((&values[..5000], &values[5000..]), (&[8; 5000][..], &[7; 5000][..]));
        assert_eq!(values.as_ptr() != before, is_copied);
        // A vector that the dead process never used comes back itself.
        let own = me.register(values)?;
        assert_eq!(own.deregister(me)?.len(), 10_000);
        write_note(test, me.process().number(), "well");
        Ok(())
    });
    assert_eq!(failure(verdict), (1, ProcessEnd::Killed(9)));
    assert_eq!(take_notes(std::process::id(), test, 2), [Some("well".to_owned()), None]);
}

#[test]
fn a_vector_comes_back_from_under_a_killed_process() {
    vector_comes_back("faults::memory::a_vector_comes_back_from_under_a_killed_process", "shm", false);
}

#[test]
fn a_vector_comes_back_over_libfabric() {
    vector_comes_back("faults::memory::a_vector_comes_back_over_libfabric", "ofi:tcp", true);
}

//! Accesses without an order.

use farside::prelude::*;
use farside::{AccessConflict, AccessKind, AtomicChange, GlobalPtr, Result};

use super::support::{Blind, by_processes, report, simulated, word};

/// An access to a word, and its line.
#[derive(Clone, Copy)]
struct Deed {
    line: u32,
    kind: AccessKind,
    run: fn(&Worker, GlobalPtr<u64>) -> Result<()>,
}

macro_rules! deed {
    ($kind:ident, $run:expr) => {
        Deed { line: line!(), kind: AccessKind::$kind, run: $run }
    };
}

fn deeds() -> [Deed; 9] {
    [
        deed!(Write, |me, at| at.put(me, 1)),
        deed!(Read, |me, at| at.get(me).map(drop)),
        deed!(AtomicLoad, |me, at| at.load(me).map(drop)),
        deed!(AtomicChange, |me, at| at.fetch_add(me, 1).map(drop)),
        deed!(AtomicChange, |me, at| at.store(me, 7)),
        deed!(Write, |me, at| at.slice(2).put(me, 0, &[1, 2])),
        deed!(Read, |me, at| at.slice(2).to_vec(me).map(drop)),
        deed!(Write, |me, at| me.put_bytes(at.address(), &[1; 3])),
        deed!(AtomicChange, |me, at| at.cast::<u32>().change(me, AtomicChange::Xor(9)).map(drop)),
    ]
}

/// Returns whether the second of two unordered accesses to one word is reported.
fn is_race(first: AccessKind, second: AccessKind) -> bool {
    use AccessKind::{AtomicChange, Read, Write};
    match (first, second) {
        // An access that sees the atomic change is ordered after it.
        (AtomicChange, _) => false,
        (Write, _) | (_, Write) => true,
        (Read, AtomicChange) => true,
        _ => false,
    }
}

fn check(conflict: &AccessConflict, first: Deed, second: Deed, at: GlobalPtr<u64>) {
    let AccessConflict { here, there, address, in_use, .. } = conflict;
    assert_eq!((there.worker, there.kind, there.site.line()), (WorkerId::new(0), first.kind, first.line));
    assert_eq!((here.worker, here.kind, here.site.line()), (WorkerId::new(1), second.kind, second.line));
    assert_eq!((*address, *in_use), (at.address(), false));
    let text = conflict.to_string();
    for site in [&here.site, &there.site] {
        assert!(site.file().ends_with("races.rs") && text.contains(&site.to_string()), "{text}");
    }
    assert!(text.contains("worker 0") && text.contains("worker 1") && text.contains("barrier"), "{text}");
}

/// Worker 0 accesses a word of its own memory, of worker 1 or of a third one. Then worker 1
/// accesses the same word.
fn every_pair(me: &Worker) -> Result<()> {
    let blind = Blind::new(me)?;
    let mut step = 0;
    for (number, first) in (0..).zip(deeds()) {
        for (other, second) in (0..).zip(deeds()) {
            let at = word((number + other) % me.process_count(), 2 * number);
            match me.id().number() {
                0 => {
                    (first.run)(me, at)?;
                    blind.reach(me, step + 1)?;
                    blind.wait_for(me, step + 2)?;
                }
                1 => {
                    blind.wait_for(me, step + 1)?;
                    let outcome = (second.run)(me, at);
                    blind.reach(me, step + 2)?;
                    match is_race(first.kind, second.kind) {
                        true => check(&report(outcome), first, second, at),
                        false => outcome?,
                    }
                }
                _ => {}
            }
            step += 2;
            me.barrier()?;
        }
    }
    Ok(())
}

/// A refused access does not happen, and the first worker may go on.
fn refused_operations_have_no_effect(me: &Worker) -> Result<()> {
    let blind = Blind::new(me)?;
    let at = word(me.process_count() - 1, 0);
    match me.id().number() {
        0 => {
            at.put(me, 5)?;
            blind.reach(me, 1)?;
            blind.wait_for(me, 2)?;
            assert_eq!(at.get(me)?, 5);
            at.put(me, 6)?;
        }
        1 => {
            blind.wait_for(me, 1)?;
            report(at.put(me, 9));
            report(at.get(me));
            report(at.swap(me, 9));
            blind.reach(me, 2)?;
        }
        _ => {}
    }
    me.barrier()?;
    assert_eq!(at.get(me)?, 6);
    me.barrier()
}

/// A look may overlap with any access: its caller verifies what it has read.
fn looks_are_not_reported(me: &Worker) -> Result<()> {
    let blind = Blind::new(me)?;
    let at = word(me.process_count() - 1, 3);
    match me.id().number() {
        0 => {
            at.put(me, 5)?;
            blind.reach(me, 1)?;
            blind.wait_for(me, 2)?;
            at.put(me, 6)?;
        }
        1 => {
            blind.wait_for(me, 1)?;
            report(at.get(me));
            assert_eq!(at.look(me)?, 5);
            let mut values = [0; 2];
            at.slice(2).look(me, 0, &mut values)?;
            assert_eq!(values[0], 5);
            blind.reach(me, 2)?;
        }
        _ => {}
    }
    me.barrier()
}

/// Handles and addresses can name the same bytes. Ranges that only touch do not conflict, and
/// ranges that overlap do.
fn overlaps_are_found_to_the_byte(me: &Worker) -> Result<()> {
    let root = WorkerId::new(0);
    let memory = (me.id() == root).then(|| me.allocate_at(me.neighbor(2), 4096)).transpose()?;
    let memory = me.broadcast(root, memory)?;
    let blind = Blind::new(me)?;
    match me.id().number() {
        0 => {
            memory.put(me, 1000, &[1; 500])?;
            blind.reach(me, 1)?;
            blind.wait_for(me, 2)?;
        }
        1 => {
            blind.wait_for(me, 1)?;
            memory.put(me, 0, &[2; 1000])?;
            memory.put(me, 1500, &[2; 1000])?;
            for (offset, bytes, overlap) in [(999, 2, 1), (1499, 1000, 1), (1200, 8, 8), (0, 4096, 500)] {
                let conflict = report(memory.get(me, offset, &mut vec![0; bytes]));
                assert_eq!(conflict.bytes, overlap);
                assert_eq!(conflict.address, memory.address()?.checked_add(offset.max(1000)).unwrap());
            }
            let start = memory.address()?;
            assert_eq!(report(me.get_bytes(start.checked_add(1400).unwrap(), &mut [0; 200])).bytes, 100);
            report(memory.atomic64(me, 1008, AtomicChange::Add(1)));
            report(memory.atomic32(me, 1008, AtomicChange::Load));
            blind.reach(me, 2)?;
        }
        _ => {}
    }
    me.barrier()?;
    if me.id() == root {
        me.release(memory)?;
    }
    me.barrier()
}

const BODIES: [super::support::Body; 4] =
    [every_pair, refused_operations_have_no_effect, looks_are_not_reported, overlaps_are_found_to_the_byte];

fn all(me: &Worker) -> Result<()> {
    BODIES.into_iter().try_for_each(|body| body(me))
}

#[test]
fn are_found_by_processes() {
    by_processes("accesses::races::are_found_by_processes", "shm", 3, 1, all);
}

mod deep {
    use super::*;

    #[test]
    fn are_found_over_libfabric() {
        by_processes("accesses::races::deep::are_found_over_libfabric", "ofi:tcp", 3, 1, all);
    }
}

#[test]
fn are_found_among_threads_of_a_process() {
    by_processes("accesses::races::are_found_among_threads_of_a_process", "shm", 2, 2, all);
}

#[test]
fn are_found_in_the_simulator() {
    simulated(2, 3, all);
}

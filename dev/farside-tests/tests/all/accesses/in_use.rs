//! Buffers in the hands of an operation.

use farside::Result;
use farside::prelude::*;

use super::support::{Blind, Body, by_processes, report, serve, simulated};

/// Worker 0 lends a buffer to worker 1, which does not read it yet. Until worker 1 has read it, no
/// worker may write it, under any name.
fn a_lent_buffer(me: &Worker) -> Result<()> {
    let root = WorkerId::new(0);
    let buffer = (me.id() == root).then(|| me.allocate(256)).transpose()?;
    let address = buffer.as_ref().map(|buffer| me.address_of(buffer)).transpose()?;
    let address = me.broadcast(root, address)?;
    let words = address.cast::<u64>().slice(32);
    if me.id() == root {
        words.put(me, 0, &[1; 32])?;
    }
    let blind = Blind::new(me)?;
    match me.id().number() {
        0 => {
            let to = me.to(WorkerId::new(1));
            let (line, lent) = (
                line!() + 1,
                to.call_buffer_get((), buffer.expect("it is the root's"), |_, (), bytes| assert_eq!(bytes[8], 1)),
            );
            let lent = lent.map_err(farside::Error::from)?;
            blind.reach(me, 1)?;
            let own = report(words.put(me, 31, &[2]));
            assert!(own.in_use && own.there.worker == root && own.here.worker == root);
            assert_eq!((own.there.site.line(), own.bytes), (line, 8));
            assert!(own.to_string().contains("has not completed"), "{own}");
            // Reading is allowed.
            words.at(3)?.get(me)?;
            blind.wait_for(me, 2)?;
            let buffer = lent.wait()?;
            words.put(me, 0, &[3; 32])?;
            // The checker knows nothing that orders this write before other accesses.
            blind.reach(me, 3)?;
            blind.wait_for(me, 4)?;
            drop(buffer);
        }
        1 => {
            blind.wait_for(me, 1)?;
            let conflict = report(words.at(0)?.fetch_add(me, 1));
            assert!(conflict.in_use && conflict.there.worker == root);
            blind.reach(me, 2)?;
            // Serving runs the call, which reads the buffer.
            while !blind.is_at(me, 3) {
                serve(me)?;
            }
            let conflict = report(words.at(0)?.put(me, 1));
            assert!(!conflict.in_use && conflict.there.worker == root, "{conflict}");
            blind.reach(me, 4)?;
        }
        _ => {}
    }
    me.barrier()
}

/// A buffer that all workers read.
fn a_buffer_lent_to_all(me: &Worker) -> Result<()> {
    let root = WorkerId::new(0);
    if me.id() == root {
        let buffer = me.allocate(64)?;
        buffer.fill(1);
        let word = me.address_of(&buffer)?.cast::<u64>();
        let lent = me.everyone().call_buffer_get((), buffer, |_, (), bytes| assert_eq!(bytes.len(), 64));
        let lent = lent.map_err(farside::Error::from)?;
        assert!(report(word.put(me, 1)).in_use);
        let buffer = lent.wait()?;
        word.put(me, 1)?;
        drop(buffer);
    }
    me.barrier()
}

/// A worker that has read a buffer knows so. Once the buffer has been given back, the reading
/// conflicts with nothing.
fn a_buffer_that_was_read(me: &Worker) -> Result<()> {
    let root = WorkerId::new(0);
    let buffer = (me.id() == root).then(|| me.allocate(64)).transpose()?;
    let address = buffer.as_ref().map(|buffer| me.address_of(buffer)).transpose()?;
    let word = me.broadcast(root, address)?.cast::<u64>();
    let blind = Blind::new(me)?;
    match me.id().number() {
        0 => {
            let to = me.to(WorkerId::new(1));
            let lent = to.call_buffer_get((), buffer.expect("it is the root's"), |_, (), bytes| {
                assert_eq!(bytes.len(), 64);
            });
            let buffer = lent.map_err(farside::Error::from)?.wait()?;
            blind.reach(me, 1)?;
            blind.wait_for(me, 2)?;
            drop(buffer);
        }
        1 => {
            while !blind.is_at(me, 1) {
                serve(me)?;
            }
            word.put(me, 1)?;
            blind.reach(me, 2)?;
        }
        _ => {}
    }
    me.barrier()
}

const BODIES: [Body; 3] = [a_lent_buffer, a_buffer_lent_to_all, a_buffer_that_was_read];

fn all(me: &Worker) -> Result<()> {
    BODIES.into_iter().try_for_each(|body| body(me))
}

#[test]
fn are_protected_by_processes() {
    by_processes("accesses::in_use::are_protected_by_processes", "shm", 3, 1, all);
}

#[test]
fn are_protected_over_libfabric() {
    by_processes("accesses::in_use::are_protected_over_libfabric", "ofi:tcp", 3, 1, all);
}

#[test]
fn are_protected_in_the_simulator() {
    simulated(2, 3, all);
}

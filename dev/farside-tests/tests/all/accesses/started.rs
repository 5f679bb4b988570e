//! Started operations, and the memory that they use until they complete.

use farside::prelude::*;
use farside::{AccessConflict, GlobalAddress, Handle, LogGp, Order, Result, SimOptions, Simulation};
use farside_testbed::{limit, scaled};

use super::support::{Blind, by_processes, report};

/// Enough bytes that an operation is still under way when others look.
const BYTES: usize = 16 << 20;

const STARTER: WorkerId = WorkerId::new(0);
const OTHER: WorkerId = WorkerId::new(1);

/// The memory of others that an operation of worker 0 reads and writes. As much memory follows each
/// of the two places.
#[derive(Clone, Copy)]
struct Used {
    /// Memory of two other workers.
    others: [GlobalAddress; 2],
    read: Option<GlobalAddress>,
    written: Option<GlobalAddress>,
}

/// Starts an operation behind one that another process carries out. So it does not complete at
/// once, and neither end learns of it.
fn start(me: &Worker, used: Used) -> Result<Handle> {
    let [from, to] = used.others.map(|other| other.checked_add(BYTES as u64).expect("there is as much behind"));
    let order = Order::After(me.copy(to, from, BYTES as u64, Order::None)?);
    match used {
        Used { read: Some(source), written: Some(target), .. } => me.copy(target, source, BYTES as u64, order),
        Used { read: Some(source), .. } => Ok(me.start_get(source, vec![0; BYTES], order)?.handle()),
        Used { written: Some(target), .. } => Ok(me.start_put_owned(target, vec![1; BYTES], order)?.handle()),
        _ => unreachable!("it reads or writes"),
    }
}

/// Returns the conflicts of accesses to the first and last bytes that the operation uses.
fn conflicts(me: &Worker, used: Used) -> Result<Vec<AccessConflict>> {
    let mut found = Vec::new();
    for place in [0, BYTES as u32 - 8] {
        if let Some(source) = used.read {
            let word = source.checked_add(place.into()).expect("inside").cast::<u64>();
            word.get(me)?;
            found.extend([report(word.put(me, 1)), report(word.fetch_add(me, 1))]);
        }
        if let Some(target) = used.written {
            let word = target.checked_add(place.into()).expect("inside").cast::<u64>();
            found.extend([report(word.put(me, 1)), report(word.get(me)), report(word.load(me))]);
        }
    }
    Ok(found)
}

/// Worker 0 starts an operation and announces it without waiting for it. Accesses to its memory
/// conflict until worker 0 has waited for it and announced that.
fn are_under_way(me: &Worker, used: Used) -> Result<()> {
    let blind = Blind::new(me)?;
    let end = me.now() + limit();
    for round in 0.. {
        assert!(me.now() < end, "nothing was under way, {round} times");
        let step = 8 * round;
        let mut seen = false;
        if me.id() == STARTER {
            let handle = start(me, used)?;
            me.end_accesses();
            let is_open = !me.inquire(handle)?;
            blind.reach(me, step + if is_open { 2 } else { 1 })?;
            blind.wait_for(me, step + 3)?;
            let address = used.read.or(used.written).expect("it reads or writes").cast::<u64>();
            let own = address.put(me, 7);
            if !me.inquire(handle)? {
                let own = report(own);
                assert!(own.in_use && own.there.worker == STARTER && own.here.worker == STARTER, "{own}");
            }
            me.complete(handle)?;
            // The access is allowed now.
            address.put(me, 7)?;
        } else if me.id() == OTHER {
            blind.wait_for(me, step + 1)?;
            if blind.is_at(me, step + 2) {
                for conflict in conflicts(me, used)? {
                    let site = &conflict.there.site;
                    assert!(conflict.there.worker == STARTER && site.file().ends_with("started.rs"), "{conflict}");
                    seen |= conflict.in_use;
                }
            }
            blind.reach(me, step + 3)?;
        }
        if me.broadcast(OTHER, (me.id() == OTHER).then_some(seen))? {
            break;
        }
    }
    Ok(())
}

fn all(me: &Worker) -> Result<()> {
    // No process maps this memory, so no operation completes at once.
    let segment = me.register(vec![0_u8; 2 * BYTES])?;
    let starts = me.broadcast(STARTER, me.gather(STARTER, segment.slice().start().address())?)?;
    let others = [starts[1], starts[2]];
    let [second, third] = others;
    are_under_way(me, Used { others, read: Some(third), written: None })?;
    are_under_way(me, Used { others, read: None, written: Some(third) })?;
    are_under_way(me, Used { others, read: Some(second), written: Some(third) })?;
    me.barrier()?;
    segment.deregister(me)?;
    me.barrier()
}

#[test]
fn are_protected_by_processes() {
    by_processes("accesses::started::are_protected_by_processes", "shm", 3, 1, all);
}

mod deep {
    use super::*;

    #[test]
    fn are_protected_over_libfabric() {
        by_processes("accesses::started::deep::are_protected_over_libfabric", "ofi:tcp", 3, 1, all);
    }
}

#[test]
fn are_protected_in_the_simulator() {
    for seed in 0..scaled(4) {
        // A network on which these bytes take a while.
        let options = SimOptions { network: LogGp::FDR, ..SimOptions::default() };
        let simulation = Simulation::new(3, 1, seed).options(options).check_accesses(true);
        if let Err(error) = simulation.run(all).unwrap().verdict {
            panic!("seed {seed}: {error}");
        }
    }
}

//! Workers that use the same keys at the same time.

use std::collections::HashMap as Oracle;

use farside::{Result, Simulation, Worker};
use farside_containers::Implementation;
use farside_containers::map::{HashMap, Inserted};
use farside_testbed::scaled;

use super::{IMPLEMENTATIONS, Random, assert_whole, times, value};
use crate::everywhere;

/// Every count reaches the counter, whoever inserts it first.
fn counters_add_up(me: &Worker) -> Result<()> {
    for implementation in IMPLEMENTATIONS {
        let map = HashMap::<u32, u64>::builder().capacity(2).implementation(implementation).build(me)?;
        let m = map.on(me);
        let rounds = times(me, 8);
        for round in 0..5 * rounds as u32 {
            m.upsert(round % 5, 1, |count, by| *count += by)?;
            m.modify(&(round % 5), 2_u64, |count, by| *count += by)?.expect("it was just inserted");
        }
        me.barrier()?;
        for key in 0..5 {
            assert_eq!(m.get(&key)?, Some(3 * rounds * u64::from(me.worker_count())));
        }
        assert_eq!(m.len()?, 5);
        me.barrier()?;
        map.free(me)?;
    }
    Ok(())
}
everywhere!(counters, super::counters_add_up);

/// Of all workers that insert one key, one finds it new. None finds it new again.
fn one_worker_is_first(me: &Worker) -> Result<()> {
    for implementation in IMPLEMENTATIONS {
        let map = HashMap::<u64, u64>::builder().capacity(1).implementation(implementation).build(me)?;
        let m = map.on(me);
        let (mut first, keys) = (0, times(me, 60));
        for key in 0..keys {
            first += u64::from(m.insert(key, 1)? == Inserted::New);
            first += u64::from(m.try_insert(key + 1000, 1)?.is_ok());
        }
        let all_first = me.all_reduce(first, |a, b| a + b)?;
        assert_eq!((all_first, m.len()?), (2 * keys, 2 * keys), "{implementation:?}");
        me.barrier()?;
        // Each key is taken by one worker.
        let mut taken = 0;
        for key in 0..keys {
            taken += u64::from(m.remove(&key)?.is_some());
        }
        assert_eq!(me.all_reduce(taken, |a, b| a + b)?, keys);
        map.free(me)?;
    }
    Ok(())
}
everywhere!(first, super::one_worker_is_first);

/// A key that all write behaves like one variable: a value that was read is whole, and no worker
/// sees one writer's values in another order.
pub(super) fn keys_are_variables(me: &Worker, implementation: Implementation) -> Result<()> {
    let map = HashMap::<u64, [u64; 3]>::builder().capacity(4).implementation(implementation).build(me)?;
    let m = map.on(me);
    let mut random = Random::new(me, 7);
    let mut seen = Oracle::<(u64, u64), u64>::new();
    for number in 1..times(me, 120) {
        let key = random.below(3);
        match random.below(6) {
            0 | 1 => drop(m.insert(key, value(me.id().number(), number))?),
            2 => {
                let new = value(me.id().number(), number);
                m.modify(&key, new, |value, new| *value = new)?;
            }
            3 if number % 4 == 0 => m.remove(&key)?.into_iter().for_each(assert_whole),
            _ => {
                if let Some(found) = m.get(&key)? {
                    assert_whole(found);
                    let earlier = seen.entry((key, found[0])).or_default();
                    assert!(*earlier <= found[1], "{found:?} after number {earlier} of the same writer");
                    *earlier = found[1];
                }
            }
        }
    }
    me.barrier()?;
    map.free(me)
}

fn all_keys_are_variables(me: &Worker) -> Result<()> {
    IMPLEMENTATIONS.into_iter().try_for_each(|implementation| keys_are_variables(me, implementation))
}
everywhere!(variables, super::all_keys_are_variables);

mod deep {
    use super::*;

    /// All that by eight processes that share memory, on fewer CPUs.
    #[test]
    fn eight_processes_share_keys() {
        let all = |me: &Worker| {
            counters_add_up(me)?;
            one_worker_is_first(me)?;
            all_keys_are_variables(me)
        };
        crate::by_eight_over("shm", all, concat!(module_path!(), "::eight_processes_share_keys"));
    }
}

/// Runs over shared memory, whatever the transport of the other tests.
#[farside::test(processes = 3, threads = 1, timeout_s = 600)]
fn variables_of_three_processes(me: &Worker) -> Result<()> {
    all_keys_are_variables(me)
}

/// The checker of accesses finds nothing to report.
#[test]
fn the_checker_is_silent() {
    for (seed, implementation) in (1..).zip(IMPLEMENTATIONS) {
        let simulation = Simulation::new(3, 1, seed).check_accesses(true);
        let simulated = simulation.run(move |me| {
            keys_are_variables(me, implementation)?;
            let map = HashMap::<u64, u64>::builder().capacity(1).implementation(implementation).build(me)?;
            let m = map.on(me);
            let own = u64::from(me.id().number()) * 50;
            for key in own..own + 50 {
                m.insert(key, key)?;
            }
            let phase = m.finding()?;
            for key in 0..150 {
                assert_eq!(phase.get(&key)?, Some(key));
            }
            phase.end()?;
            m.retain(|key, _| key % 2 == 0)?;
            m.drain()?;
            assert_eq!(m.local()?.count(), 0);
            me.barrier()
        });
        simulated.unwrap().verdict.unwrap_or_else(|error| panic!("{implementation:?}: {error}"));
    }
}

/// As above, by processes that share memory.
#[test]
fn the_checker_is_silent_over_shared_memory() {
    let name = "map::concurrent::the_checker_is_silent_over_shared_memory";
    let job = farside::job().processes(2).check_accesses(true).force_fabric("shm".parse().expect("a transport"));
    let job = job.entry([name, "--exact", "--nocapture", "--test-threads=1"]).quiet_stdout();
    let verdict = job.time_limit(farside_testbed::limit()).run(all_keys_are_variables);
    if std::env::var_os("FARSIDE_LAUNCHER").is_some() {
        std::process::exit(verdict.is_err().into());
    }
    verdict.unwrap();
}

/// A long entry that others replace all the time is never read while it is half-written.
#[farside::test(processes = 2, threads = 2, timeout_s = 600)]
fn long_entries_are_whole(me: &Worker) -> Result<()> {
    let map = HashMap::<u64, [u64; 256]>::new(me, 1024)?;
    let m = map.on(me);
    m.insert(1, [0; 256])?;
    me.barrier()?;
    for number in 0..scaled(2000) {
        if me.thread_index() == 0 {
            m.insert(1, [number; 256])?;
        } else if let Some(found) = m.get(&1)? {
            assert!(found.iter().all(|word| *word == found[0]), "half of {} was read", found[0]);
        }
    }
    me.barrier()?;
    map.free(me)
}

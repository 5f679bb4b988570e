//! Batches, and what concerns a whole map: growth, iteration, `clear`.

use farside::{Result, Worker, simulate};
use farside_containers::DistIterator;
use farside_containers::map::{HashMap, Inserted, MapError};

use super::faults::map_error;
use super::{IMPLEMENTATIONS, assert_whole, times, value};
use crate::everywhere;

/// Inserts in batches, and asks for many keys at a time.
fn batches_bring_all(me: &Worker) -> Result<()> {
    let keys_each = times(me, 300);
    for implementation in IMPLEMENTATIONS {
        let map = HashMap::<u64, u64>::builder().capacity(1).implementation(implementation).build(me)?;
        let m = map.on(me);
        let own = u64::from(me.id().number());
        let batch = m.batch()?;
        batch.extend((0..keys_each).map(|key| (key + own * keys_each, 3 * key)))?;
        batch.finish()?;
        let all = keys_each * u64::from(me.worker_count());
        assert_eq!(m.len()?, all);
        let keys: Vec<_> = (0..keys_each + 10).map(|key| (key * 7919 + own) % (all + 50)).collect();
        let values = m.get_many(&keys)?;
        for (key, value) in keys.iter().zip(values) {
            assert_eq!(value, (*key < all).then_some(key % keys_each * 3), "key {key}");
        }
        me.barrier()?;
        map.free(me)?;
    }
    Ok(())
}
everywhere!(batches, super::batches_bring_all, crate::simulated_in_a_grid);

/// Keys may be longer than the numbers of their bytes that one byte can hold.
#[test]
fn keys_may_be_long() {
    for implementation in IMPLEMENTATIONS {
        simulate(3, 1, 1, |me| {
            let map = HashMap::<[u64; 32], u64>::builder().capacity(1).implementation(implementation).build(me)?;
            let (m, own) = (map.on(me), u64::from(me.id().number()));
            (0..20).try_for_each(|number| m.insert([own, number].repeat(16).try_into().unwrap(), number).map(drop))?;
            me.barrier()?;
            for (of, number) in (0..3).flat_map(|of| (0..20).map(move |number| (of, number))) {
                assert_eq!(m.get(&[of, number].repeat(16).try_into().unwrap())?, Some(number));
            }
            me.barrier()?;
            map.free(me)
        })
        .unwrap_or_else(|error| panic!("{implementation}: {error}"));
    }
}

/// Changes in batches add up, also those of one key by all workers while its part grows. A function
/// that panics changes nothing, and all workers get an error.
fn batches_change_all(me: &Worker) -> Result<()> {
    let keys = times(me, 100);
    for implementation in IMPLEMENTATIONS {
        let map = HashMap::<u64, u64>::builder().capacity(1).implementation(implementation).build(me)?;
        let m = map.on(me);
        let phase = m.inserting()?;
        let batch = phase.batch()?;
        for key in (0..keys).chain(0..keys / 2) {
            batch.upsert(key, key, |sum, by| *sum += by)?;
        }
        drop(batch);
        phase.end()?;
        let workers = u64::from(me.worker_count());
        for key in 0..keys {
            let each = if key < keys / 2 { 2 } else { 1 };
            assert_eq!(m.get(&key)?, Some(each * workers * key), "key {key}");
        }
        assert_eq!(m.len()?, keys);
        me.barrier()?;
        let batch = m.batch()?;
        batch.upsert(1, 0, |_, _| panic!("as planned"))?;
        batch.upsert(2, 1, |value, by| *value = by)?;
        let finished = batch.finish();
        let told = |count: u64, first: &str| count == workers && first.contains("as planned");
        assert!(
            matches!(map_error(&finished), MapError::Batch { count, first } if told(*count, first)),
            "{finished:?}"
        );
        assert_eq!((m.get(&1)?, m.get(&2)?), (Some(2 * workers), Some(1)));
        map.free(me)?;
    }
    Ok(())
}
everywhere!(changes, super::batches_change_all);

/// Each worker iterates over its own part, and one worker over all.
fn iterators_meet_all(me: &Worker) -> Result<()> {
    for implementation in IMPLEMENTATIONS {
        let map = HashMap::<u64, u64>::builder().implementation(implementation).build(me)?;
        let m = map.on(me);
        me.share(0..200).try_for_each(|key| m.insert(key as u64, 3 * key as u64).map(drop))?;
        me.barrier()?;
        assert_eq!(m.iter()?.all_count(me)?, 200);
        assert_eq!(m.iter()?.filter(|(key, _)| key % 2 == 0).map(|(_, value)| value).all_sum::<u64>(me)?, 29_700);
        let mut all = Vec::new();
        assert_eq!(m.for_all(|key, value| all.push((key, value)))?, 200);
        all.sort_unstable();
        assert!(all.into_iter().eq((0..200).map(|key| (key, 3 * key))));
        me.barrier()?;
        map.free(me)?;
    }
    Ok(())
}
everywhere!(iterators, super::iterators_meet_all);

/// A map that begins with one slot grows while all workers insert, replace and read.
fn grows_while_used(me: &Worker) -> Result<()> {
    let keys_each = times(me, 120);
    for implementation in IMPLEMENTATIONS {
        let map = HashMap::<u64, [u64; 3]>::builder().capacity(1).implementation(implementation).build(me)?;
        let m = map.on(me);
        let (own, workers) = (u64::from(me.id().number()), u64::from(me.worker_count()));
        for key in 0..keys_each {
            assert_eq!(m.insert(key * workers + own, value(0, key))?, Inserted::New);
            // What this worker has inserted stays, and what others insert is whole.
            assert_eq!(m.get(&(key / 2 * workers + own))?, Some(value(0, key / 2)));
            if let Some(found) = m.get(&(key * workers + (own + 1) % workers))? {
                assert_whole(found);
            }
        }
        me.barrier()?;
        for key in 0..keys_each * workers {
            assert_eq!(m.get(&key)?, Some(value(0, key / workers)), "key {key}");
        }
        assert_eq!(m.len()?, keys_each * workers);
        me.barrier()?;
        map.free(me)?;
    }
    Ok(())
}
everywhere!(growth, super::grows_while_used);

/// Keys that come and go do not fill a map that may be moved.
fn removed_keys_make_room(me: &Worker) -> Result<()> {
    let keys_each = times(me, 300).max(30);
    let map = HashMap::<u64, u64>::new(me, 64)?;
    let m = map.on(me);
    let own = u64::from(me.id().number()) << 32;
    for key in 0..keys_each {
        m.insert(own + key, key)?;
        if key >= 4 {
            assert_eq!(m.remove(&(own + key - 4))?, Some(key - 4));
        }
    }
    me.barrier()?;
    assert_eq!(m.len()?, 4 * u64::from(me.worker_count()));
    me.barrier()
}
everywhere!(churn, super::removed_keys_make_room);

mod deep {
    use super::*;

    /// All that by eight processes that share memory, on fewer CPUs.
    #[test]
    fn eight_processes_share_maps() {
        let all = |me: &Worker| {
            batches_bring_all(me)?;
            batches_change_all(me)?;
            grows_while_used(me)?;
            removed_keys_make_room(me)
        };
        crate::by_eight_over("shm", all, concat!(module_path!(), "::eight_processes_share_maps"));
    }
}

/// Iterates over the own part and over those of others, keeps some entries, and takes all.
fn all_entries_are_met(me: &Worker) -> Result<()> {
    let keys_each = times(me, 100);
    for implementation in IMPLEMENTATIONS {
        let map = HashMap::<u64, u64>::builder().capacity(2).implementation(implementation).build(me)?;
        let m = map.on(me);
        let all = keys_each * u64::from(me.worker_count());
        let batch = m.batch()?;
        batch.extend((0..keys_each).map(|key| (key + u64::from(me.id().number()) * keys_each, 1)))?;
        batch.finish()?;

        let mut keys = Vec::new();
        for worker in me.workers() {
            for entry in m.stream(worker)? {
                let (key, one) = entry?;
                assert_eq!((m.owner_of(&key), one), (worker, 1));
                keys.push(key);
            }
        }
        keys.sort_unstable();
        assert_eq!(keys, (0..all).collect::<Vec<_>>());
        me.barrier()?;

        m.retain(|key, value| {
            *value = *key;
            key % 3 == 0
        })?;
        assert_eq!((m.get(&6)?, m.get(&7)?), (Some(6), None));
        assert_eq!(m.len()?, all.div_ceil(3));
        let own = m.drain()?;
        assert!(own.iter().all(|(key, value)| key == value && m.owner_of(key) == me.id()));
        let drained = me.all_reduce(own.len() as u64, |a, b| a + b)?;
        assert_eq!(drained, all.div_ceil(3));
        assert!(m.is_empty()?);
        assert_eq!(m.get(&6)?, None);
        me.barrier()?;

        m.insert(u64::from(me.id().number()), 1)?;
        m.clear()?;
        assert_eq!(m.len()?, 0);
        me.barrier()?;
        map.free(me)?;
    }
    Ok(())
}
everywhere!(entries, super::all_entries_are_met);

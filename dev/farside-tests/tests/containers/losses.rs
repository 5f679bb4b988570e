//! Containers go on among the survivors of a loss, also with their collective operations.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

use farside::{
    Distribution, Error, GlobalArray, Losses, MakeArrays, PerWorker, ProcessEnd, ProcessId, RegisterMemory, Result,
    Simulation, Worker, WorkerId, simulate,
};
use farside_containers::keep::{self, KeepError, npy};
use farside_containers::map::{HashMap, MapError, WireMap};
use farside_containers::queue::Queue;
use farside_containers::{
    ArrayBatch, ContainerError, CountingSet, DistIterator, DistVec, Exchange, Implementation, Query, sort_array,
};
use farside_testbed::scaled;

use super::keep::Folder;

const KEYS: u64 = 300;

/// Runs a body on three processes, one of which is killed in the middle. The others go on among
/// themselves then. `before` is repeated until the loss.
fn lose<S>(
    seed: u64,
    make: impl Fn(&Worker) -> Result<S> + Sync,
    before: impl Fn(&Worker, &S) -> Result<()> + Sync,
    after: impl Fn(&Worker, S) -> Result<()> + Sync,
) {
    // The first worker, which often does what one does for all, and the second.
    let victim = ProcessId::new(seed as u32 % 2);
    let came = Mutex::new(0);
    let kill_after = Duration::from_micros(1500 + 170 * seed);
    let simulated = Simulation::new(3, 1, seed).kill(victim, kill_after).run(|me| {
        let made = make(me)?;
        let lost = loop {
            if let Err(error) = before(me, &made) {
                break error;
            }
        };
        assert!(matches!(lost, Error::PeerLost { process, .. } if process == victim), "{lost}");
        me.go_on()?;
        me.quiesce()?;
        after(me, made)?;
        *came.lock().unwrap() += 1;
        me.barrier()
    });
    let verdict = simulated.unwrap().verdict.unwrap_err();
    let killed = matches!(&verdict, Error::Launch(farside::LaunchError::ProcessFailed { process, how: ProcessEnd::Killed(9) })
        if *process == victim);
    assert!(killed, "seed {seed}: {verdict}");
    assert_eq!(came.into_inner().unwrap(), 2, "seed {seed}");
}

/// Ends a batch after a loss, saves what is left, and restores it on the two survivors and in a job
/// of two processes.
#[test]
fn a_map_ends_a_batch_and_is_saved_and_restored() {
    for (seed, by) in [Implementation::OneSided, Implementation::Call].into_iter().enumerate().take(scaled(2) as usize)
    {
        let folder = Folder::new(&format!("losses-{seed}"));
        let path = folder.file("left");
        let left = Mutex::new(BTreeMap::new());
        let make = |me: &Worker| HashMap::<u64, u64>::builder().implementation(by).build(me);
        let before = |me: &Worker, map: &HashMap<u64, u64>| {
            let m = map.on(me);
            let batch = m.batch()?;
            me.share(0..KEYS as usize).try_for_each(|key| batch.insert(key as u64, 7 * key as u64))?;
            batch.finish()
        };
        let after = |me: &Worker, map: HashMap<u64, u64>| {
            let m = map.on(me);
            let is_left = |key: &u64| !me.is_lost(me.process_of(m.owner_of(key)));
            // What was under way is refused on both, if its owner is lost.
            let ended = m.batch()?.finish();
            let ended = me.all_reduce(vec![ended.err().map(|error| error.to_string())], |mut one, mut other| {
                one.append(&mut other);
                one
            })?;
            assert_eq!(ended[0], ended[1]);
            let batch = m.batch()?;
            let own = (0..KEYS)
                .filter(|key| key % 3 == u64::from(me.id().number()) || me.is_lost(ProcessId::new((key % 3) as u32)));
            own.filter(is_left).try_for_each(|key| batch.insert(key, 7 * key))?;
            batch.finish()?;
            // All hear of entries whose owner is lost, and how many these are.
            let batch = m.batch()?;
            let lost = (0..KEYS).filter(|key| !is_left(key)).count() as u64;
            assert!(lost > 0);
            if me.id().number() == 2 {
                (0..KEYS).filter(|key| !is_left(key)).try_for_each(|key| batch.insert(key, 0))?;
            }
            let refused = batch.finish().unwrap_err();
            let Some(MapError::Batch { count, first }) = refused.room_error() else { panic!("{refused}") };
            assert!(*count == lost && first.contains("process"), "{count} of {lost}: {first}");

            // Phases.
            let phase = m.inserting()?;
            (KEYS..KEYS + 20).filter(is_left).try_for_each(|key| phase.insert(key, 7 * key).map(drop))?;
            phase.end()?;
            let phase = m.finding()?;
            assert!((0..KEYS + 20).filter(is_left).all(|key| phase.get(&key).unwrap() == Some(7 * key)));
            phase.end()?;
            m.retain(|key, _| *key < KEYS)?;
            let own: Vec<_> = m.iter()?.collect();
            assert!(own.iter().all(|(key, value)| m.owner_of(key) == me.id() && *value == 7 * key), "{own:?}");
            let entries = m.iter()?.all_count(me)?;
            assert_eq!(entries, KEYS - lost);
            let len = m.len().unwrap_err();
            assert!(
                matches!(len.room_error(), Some(MapError::Partial { counted, .. }) if *counted == entries),
                "{len}"
            );

            assert_eq!(m.snapshot(&path)?, entries);
            // A map of the two has a part for every key.
            let again = make(me)?;
            let a = again.on(me);
            assert_eq!(a.restore(&path)?, entries);
            assert_eq!(a.len()?, entries);
            me.barrier()?;
            assert!((0..KEYS).filter(is_left).all(|key| a.get(&key).unwrap() == Some(7 * key)));
            for key in (0..KEYS).filter(|key| !is_left(key)) {
                a.insert(key, 1)?;
            }
            me.barrier()?;
            assert_eq!(a.len()?, KEYS);
            assert_eq!(a.get_many(&[0, 1, 2])?.into_iter().flatten().count(), 3);
            a.clear()?;
            assert!(a.is_empty()?);
            if me.id().number() == 2 {
                *left.lock().unwrap() = (0..KEYS).filter(is_left).map(|key| (key, 7 * key)).collect();
            }
            m.clear()?;
            again.free(me)?;
            map.free(me)
        };
        lose(seed as u64, make, before, after);

        let left = left.into_inner().unwrap();
        let restored = Mutex::new(BTreeMap::new());
        simulate(2, 1, 1, |me| {
            let taken = keep::restore(me, &path, |(key, value): (u64, u64)| {
                restored.lock().unwrap().insert(key, value);
                Ok(())
            })?;
            assert!(taken > 0, "each of the two parts is restored by one worker");
            Ok(())
        })
        .unwrap();
        assert_eq!(restored.into_inner().unwrap(), left);
    }
}

/// A map that is emptied again and again after a loss takes other memory once.
#[test]
fn emptied_maps_keep_their_memory_after_a_loss() {
    let make = |me: &Worker| HashMap::<u64, u64>::builder().capacity(1 << 18).build(me);
    let before = |me: &Worker, map: &HashMap<u64, u64>| {
        map.on(me).insert(u64::from(me.id().number()), 1)?;
        me.barrier()
    };
    let after = |me: &Worker, map: HashMap<u64, u64>| {
        let mut held = Vec::new();
        for _ in 0..4 {
            map.on(me).clear()?;
            held.push(me.memory_report().iter().map(|node| node.registered_bytes).sum::<usize>());
            me.barrier()?;
        }
        assert!(held[1..].iter().all(|bytes| *bytes == held[0]), "{held:?}");
        map.free(me)
    };
    for seed in 0..2 {
        lose(seed, make, before, after);
    }
}

/// Changes for others than the lost process are made. What needs all values is refused.
#[test]
fn changes_of_arrays_go_on() {
    const LEN: usize = 6000;
    let make = |me: &Worker| {
        let array = Rc::new(me.global_array_as::<u64>(LEN, Distribution::CYCLIC)?);
        let batch = ArrayBatch::new(me, array.clone(), |old, by: u64| old + by)?;
        Ok((array, batch))
    };
    let before = |me: &Worker, (_, batch): &(Rc<GlobalArray<u64>>, ArrayBatch<u64, u64>)| {
        batch.apply(me, (0..LEN / 10).map(|index| (index, 1)))?;
        me.quiesce()
    };
    let after = |me: &Worker, (array, batch): (Rc<GlobalArray<u64>>, ArrayBatch<u64, u64>)| {
        array.local_indices(me).try_for_each(|index| array.put(me, index, 0))?;
        me.barrier()?;
        let lost = batch.apply(me, (0..LEN).map(|index| (index, 1))).unwrap_err();
        assert!(matches!(lost, Error::PeerLost { .. }), "{lost}");
        me.quiesce()?;
        for index in array.local_indices(me) {
            assert_eq!(array.get(me, index)?, 2, "both workers changed value {index}");
        }
        let refused = sort_array(me, &array).unwrap_err();
        assert!(matches!(refused.room_error(), Some(ContainerError::Failed { .. })), "{refused}");
        Ok(())
    };
    for seed in 0..2 {
        lose(seed, make, before, after);
    }
}

#[test]
fn maps_of_strings_go_on() {
    for seed in 0..2 {
        let before = |me: &Worker, map: &WireMap<String, u64>| {
            let m = map.on(me);
            let batch = m.batch()?;
            (0..20).try_for_each(|key: u64| batch.upsert(key.to_string(), 1, |count, by| *count += by))?;
            batch.finish()
        };
        let after = |me: &Worker, map: WireMap<String, u64>| {
            let m = map.on(me);
            let is_left = |key: &String| !me.is_lost(me.process_of(m.owner_of(key)));
            let _ = m.batch()?.finish();
            m.clear()?;
            let batch = m.batch()?;
            let keys: Vec<_> = (0..20).map(|key: u64| key.to_string()).filter(is_left).collect();
            keys.iter().try_for_each(|key| batch.upsert(key.clone(), 1, |count, by| *count += by))?;
            batch.finish()?;
            assert!(keys.iter().all(|key| m.get(key).unwrap() == Some(2)));
            let again = WireMap::<String, u64>::new(me)?;
            let a = again.on(me);
            (0..20).try_for_each(|key: u64| a.insert(key.to_string(), key).map(drop))?;
            me.barrier()?;
            assert_eq!(a.len()?, 20);
            me.barrier()?;
            again.free(me)?;
            map.free(me)
        };
        lose(seed, WireMap::new, before, after);
    }
}

/// A queue in a process that is left: phases, and what was pushed.
#[test]
fn queues_go_on() {
    for (seed, by) in [Implementation::OneSided, Implementation::Checksum, Implementation::Call].into_iter().enumerate()
    {
        let make = |me: &Worker| Queue::<u64>::with_implementation(me, ProcessId::new(2), 400, by);
        let before = |me: &Worker, queue: &Queue<u64>| {
            let phase = queue.on(me).pushing()?;
            let _ = phase.push(1)?;
            phase.end()?;
            let phase = queue.on(me).popping()?;
            let _ = phase.pop()?;
            phase.end()
        };
        let after = |me: &Worker, queue: Queue<u64>| {
            let ends = queue.on(me);
            while me.id().number() == 2 && !ends.is_empty()? {
                ends.pop()?;
                me.progress()?;
            }
            me.barrier()?;
            let phase = ends.pushing()?;
            for _ in 0..30 {
                phase.push(5)?.expect("there is room");
            }
            phase.end()?;
            let phase = ends.popping()?;
            let mut got = 0_u64;
            while let Some(item) = phase.pop()? {
                assert_eq!(item, 5);
                got += 1;
            }
            phase.end()?;
            assert_eq!(me.all_reduce(got, |one, other| one + other)?, 60);
            // New memory on all processes cannot be had, and that of the queue stays.
            assert!(matches!(queue.resize(me, 500), Err(Error::PeerLost { .. })));
            drop(ends);
            assert!(matches!(queue.free(me), Err(Error::PeerLost { .. })));
            Ok(())
        };
        lose(seed as u64, make, before, after);
    }
}

#[test]
fn exchanges_queries_vectors_and_sets_go_on() {
    type Made = (Exchange<u64>, PerWorker<std::cell::Cell<u64>>, Query<u64, u64>, DistVec<u64>, CountingSet<u64>);
    for seed in 0..2 {
        let make = |me: &Worker| -> Result<Made> {
            let sum = PerWorker::new(me, std::cell::Cell::new(0))?;
            let exchange = Exchange::new(me, move |me, items| {
                if let Some(sum) = sum.hold(me) {
                    sum.set(sum.get() + items.sum::<u64>());
                }
            })?;
            let query = Query::new(
                me,
                |me, x| x + u64::from(me.id().number()),
                move |me, tag, answer| {
                    if let Some(sum) = sum.hold(me) {
                        sum.set(sum.get() + answer + u64::from(tag));
                    }
                },
            )?;
            Ok((exchange, sum, query, DistVec::new(me)?, CountingSet::new(me)?))
        };
        let push = |me: &Worker, (exchange, _, query, vector, set): &Made, to: &[WorkerId]| -> Result<()> {
            let (sender, asker) = (exchange.on(me), query.on(me));
            for round in 0..40 {
                for to in to {
                    sender.push(*to, 1)?;
                    asker.ask(*to, 1, round)?;
                }
                vector.push_to(me, me.id(), 1000 - round)?;
                set.insert(me, round % 5)?;
            }
            Ok(())
        };
        let before = |me: &Worker, made: &Made| {
            push(me, made, &me.workers().collect::<Vec<_>>())?;
            me.quiesce()?;
            made.4.settle(me)
        };
        let after = |me: &Worker, made: Made| {
            let (exchange, sum, query, vector, _) = made;
            sum.hold(me).unwrap().set(0);
            me.barrier()?;
            let all = me.remaining_workers();
            push(me, &made, &all)?;
            me.quiesce()?;
            // 40 items from each, and 40 answers from each: round + number + 1.
            let answers: u64 = all.iter().map(|of| 40 * (u64::from(of.number()) + 1) + 780).sum();
            assert_eq!(sum.hold(me).unwrap().get(), 40 * all.len() as u64 + answers);
            vector.sort(me)?;
            vector.rebalance(me)?;
            let length = vector.len(me)?;
            let own = vector.iter(me).count() as u64;
            assert!(own.abs_diff(length - own) <= 1, "{own} of {length}");
            assert!(vector.gather(me, all[1])?.is_none_or(|all| all.is_sorted()));
            // The set that was made before has keys whose owner is lost. One of all that are left
            // counts right.
            let set = CountingSet::new(me)?;
            (0..40).try_for_each(|key: u64| set.insert(me, key % 5))?;
            set.settle(me)?;
            assert_eq!(set.top_k(me, 9)?, (0..5).rev().map(|key| (16, key)).collect::<Vec<_>>());
            // Keys of the lost owner are dropped, and asking for one says so.
            made.4.settle(me)?;
            let counts = (0..5).map(|key| made.4.count(me, key)?.wait());
            assert!(counts.into_iter().all(|count| matches!(count, Ok(16..) | Err(Error::PeerLost { .. }))));
            set.free(me)?;
            vector.free(me)?;
            query.free(me)?;
            exchange.free(me)?;
            sum.free(me)
        };
        lose(seed, make, before, after);
    }
}

/// An array whose part is lost is not written as if it was whole.
#[test]
fn an_array_with_a_lost_part_is_not_saved() {
    let folder = Folder::new("losses-array");
    let path = folder.file("array");
    let after = |me: &Worker, array: farside::GlobalArray<u64>| {
        let saved = npy::save(me, &path, &array, &[30]).unwrap_err();
        let is_lost = |error: &KeepError| matches!(error, KeepError::Lost { .. } | KeepError::Elsewhere { .. });
        assert!(saved.room_error().is_some_and(is_lost), "{saved}");
        assert!(!path.exists());
        Ok(())
    };
    lose(0, |me| me.global_array::<u64>(30), |me, _| me.barrier(), after);
}

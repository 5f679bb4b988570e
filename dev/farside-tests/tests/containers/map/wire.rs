//! Maps of strings and vectors, which live at their owners.

use std::collections::HashMap as Oracle;
use std::sync::atomic::{AtomicU64, Ordering};

use farside::wire::{Encoder, Reader, WireError};
use farside::{Error, Result, Simulation, Wire, Worker, simulate};
use farside_containers::map::{HashMap, Inserted, MapError, WireMap};
use farside_containers::{DistIterator, Implementation};

use super::faults::map_error;
use super::{Random, times};
use crate::everywhere;

/// Each worker has keys of its own, and compares with an oracle.
fn is_like_a_map(me: &Worker) -> Result<()> {
    let map = WireMap::<String, Vec<u64>>::new(me)?;
    let m = map.on(me);
    let mut random = Random::new(me, 3);
    let keys: Vec<_> = (0..12).map(|key| format!("{} of {}", "k".repeat(key), me.id())).collect();
    let mut oracle = Oracle::<String, Vec<u64>>::new();
    for number in 0..times(me, 200) {
        let key = keys[random.below(12) as usize].clone();
        let new = vec![number; random.below(5) as usize];
        match random.below(7) {
            0 => {
                let expected =
                    if oracle.insert(key.clone(), new.clone()).is_some() { Inserted::Replaced } else { Inserted::New };
                assert_eq!(m.insert(key, new)?, expected);
            }
            1 => assert_eq!(m.remove(&key)?, oracle.remove(&key)),
            2 => {
                assert_eq!(m.try_insert(key.clone(), new.clone())?.err(), oracle.get(&key).cloned());
                oracle.entry(key).or_insert(new);
            }
            3 => assert_eq!(m.get_or_insert(key.clone(), new.clone())?, *oracle.entry(key).or_insert(new)),
            4 => {
                let changed = m.modify(&key, new.clone(), std::mem::replace)?;
                assert_eq!(changed, oracle.get_mut(&key).map(|value| std::mem::replace(value, new)));
            }
            5 => {
                m.upsert(key.clone(), new.clone(), |value, mut new| value.append(&mut new))?;
                oracle.entry(key).and_modify(|value| value.extend(&new)).or_insert(new);
            }
            _ => {
                assert_eq!(m.get(&key)?, oracle.get(&key).cloned());
                assert_eq!(m.contains_key(&key)?, oracle.contains_key(&key));
            }
        }
    }
    let all: Vec<_> = keys.iter().map(|key| oracle.get(key).cloned()).collect();
    assert_eq!(m.get_many(&keys)?, all);
    let total = me.all_reduce(oracle.len() as u64, |a, b| a + b)?;
    assert_eq!(m.len()?, total);
    for entry in m.local()? {
        let (key, value) = entry?;
        assert_eq!(m.owner_of(&key), me.id());
        assert!(!key.ends_with(&me.id().to_string()) || oracle[&key] == value);
    }
    me.barrier()?;

    m.retain(|key, value| {
        value.push(7);
        key.starts_with('k')
    })?;
    oracle.retain(|key, _| key.starts_with('k'));
    for (key, value) in &oracle {
        assert_eq!(m.get(key)?, Some([&value[..], &[7]].concat()));
    }
    let kept = me.all_reduce(oracle.len(), |a, b| a + b)?;
    let own = m.drain()?;
    assert_eq!(me.all_reduce(own.len(), |a, b| a + b)?, kept);
    assert!(m.is_empty()?);
    me.barrier()?;
    m.insert(keys[0].clone(), vec![])?;
    m.clear()?;
    assert_eq!(m.len()?, 0);
    map.free(me)?;
    assert!(matches!(map_error(&m.get(&keys[0])), MapError::Gone));
    assert!(matches!(map_error(&m.len()), MapError::Gone));
    assert!(matches!(map_error(&map.free(me)), MapError::Gone));
    me.barrier()
}
everywhere!(like_a_map, super::is_like_a_map);

/// All workers change the same keys. A function that panics leaves the value as it has made it.
fn changes_add_up(me: &Worker) -> Result<()> {
    let map = WireMap::<String, Vec<u32>>::new(me)?;
    let m = map.on(me);
    for round in 0..4 {
        m.upsert(format!("key {}", round % 2), vec![me.id().number()], |all, mut new| all.append(&mut new))?;
    }
    let own = format!("own {}", me.id());
    m.insert(own.clone(), vec![1, 2])?;
    let changed = m.modify(&own, (), |all, ()| -> () {
        all.pop();
        panic!("one is left");
    });
    assert!(matches!(&changed, Err(Error::RemotePanic { message, .. }) if message == "one is left"), "{changed:?}");
    assert_eq!(m.get(&own)?, Some(vec![1]));
    me.barrier()?;
    let mut expected: Vec<_> = (0..me.worker_count()).flat_map(|worker| [worker; 2]).collect();
    expected.sort_unstable();
    for key in ["key 0", "key 1"] {
        let mut found = m.get(&key.into())?.expect("it was inserted");
        found.sort_unstable();
        assert_eq!(found, expected);
    }
    me.barrier()
}
everywhere!(changes, super::changes_add_up);

/// Insertions and changes in batches come to all owners. If a function panics, all workers learn of
/// it.
fn batches_bring_all(me: &Worker) -> Result<()> {
    let map = WireMap::<String, Vec<u32>>::new(me)?;
    let m = map.on(me);
    let own = me.id().number();
    let keys: Vec<_> = (0..times(me, 60)).map(|key| format!("key {key}")).collect();
    let batch = m.batch()?;
    batch.extend((0..10).map(|key| (format!("{key} of {own}"), vec![key])))?;
    for key in &keys {
        batch.upsert(key.clone(), vec![own], |all, mut new| all.append(&mut new))?;
    }
    batch.finish()?;
    for found in m.get_many(&keys)? {
        let mut found = found.expect("it was inserted");
        found.sort_unstable();
        assert!(found.into_iter().eq(0..me.worker_count()));
    }
    let mine: Vec<_> = (0..10).map(|key| format!("{key} of {own}")).collect();
    assert!(m.get_many(&mine)?.into_iter().eq((0..10).map(|key| Some(vec![key]))));
    assert_eq!(m.iter()?.all_count(me)?, keys.len() as u64 + 10 * u64::from(me.worker_count()));
    me.barrier()?;
    let batch = m.batch()?;
    batch.upsert(keys[0].clone(), vec![], |all, _| {
        all.push(7);
        panic!("as planned")
    })?;
    batch.upsert(keys[1].clone(), vec![own], |all, new| *all = new)?;
    let finished = batch.finish();
    let told = |count: u64, first: &str| count == u64::from(me.worker_count()) && first.contains("as planned");
    assert!(matches!(map_error(&finished), MapError::Batch { count, first } if told(*count, first)), "{finished:?}");
    let lengths = m.get_many(&keys[..2])?.into_iter().map(|found| found.map(|found| found.len()));
    assert!(lengths.eq([Some(2 * me.worker_count() as usize), Some(1)]));
    map.free(me)
}
everywhere!(batches, super::batches_bring_all);

/// The builder's settings hold, all workers must pass the same, and phases have their operations.
fn builds_and_has_phases(me: &Worker) -> Result<()> {
    let at_the_first = WireMap::<String, u64>::builder().capacity(100).placement(|_| 0).build(me)?;
    let m = at_the_first.on(me);
    let phase = m.inserting()?;
    phase.insert(format!("of {}", me.id()), 1)?;
    phase.upsert("all".into(), 1, |count, by| *count += by)?;
    phase.batch()?.upsert("batched".into(), 1, |count, by| *count += by)?;
    phase.end()?;
    let all = u64::from(me.worker_count());
    let phase = m.finding()?;
    assert_eq!(phase.get_many(&["batched".into(), "all".into(), "none".into()])?, [Some(all), Some(all), None]);
    assert!(phase.contains_key(&format!("of {}", me.id()))?);
    assert_eq!(phase.get(&"none".into())?, None);
    phase.end()?;
    assert!(me.is_first() || m.local()?.count() == 0);
    at_the_first.free(me)?;
    let unequal = WireMap::<String, u64>::builder().capacity(10 + me.id().index()).build(me);
    if me.worker_count() > 1 {
        assert!(matches!(map_error(&unequal), MapError::Unequal { .. }), "{unequal:?}");
    }
    let endless = WireMap::<String, u64>::builder().capacity(usize::MAX).build(me);
    assert!(matches!(map_error(&endless), MapError::Capacity { .. }), "{endless:?}");
    me.barrier()
}
everywhere!(builder, super::builds_and_has_phases);

/// Values are changed where they are: an append costs no copy of what is there.
#[test]
fn changes_copy_no_value() {
    static COPIES: AtomicU64 = AtomicU64::new(0);

    #[derive(Wire)]
    struct Growing(Vec<u64>);

    impl Clone for Growing {
        fn clone(&self) -> Self {
            COPIES.fetch_add(1, Ordering::Relaxed);
            Self(self.0.clone())
        }
    }

    fn append(all: &mut Growing, mut new: Growing) {
        all.0.append(&mut new.0);
    }

    simulate(2, 1, 1, |me| {
        let map = WireMap::<String, Growing>::new(me)?;
        let m = map.on(me);
        let batch = m.batch()?;
        for number in 0..100 {
            m.upsert("key".into(), Growing(vec![number]), append)?;
            m.modify(&"key".into(), Growing(vec![number]), append)?;
            batch.upsert("key".into(), Growing(vec![number]), append)?;
        }
        batch.finish()?;
        assert_eq!(COPIES.load(Ordering::Relaxed), 0);
        me.barrier()?;
        assert_eq!(m.get(&"key".into())?.map(|all| all.0.len()), Some(600));
        me.barrier()
    })
    .unwrap();
}

/// The owner of a key is found once for an operation.
#[test]
fn operations_encode_their_key_once() {
    static ENCODED: AtomicU64 = AtomicU64::new(0);

    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Key(u64);

    // SAFETY: (1) a number; (2, 4) both pass it on; (3) it has no destructor; (6) it is 8 bytes.
    unsafe impl Wire for Key {
        const PLAIN: bool = false;

        fn wire_bytes(&self) -> usize {
            self.0.wire_bytes()
        }

        unsafe fn write(self, out: *mut u8) {
            // SAFETY: `out` has room for the number.
            unsafe { self.0.write(out) };
        }

        unsafe fn read(input: &mut Reader<'_>) -> std::result::Result<Self, WireError> {
            // SAFETY: any bytes are a number.
            unsafe { u64::read(input) }.map(Self)
        }

        fn encode(&self, out: &mut Encoder) {
            ENCODED.fetch_add(1, Ordering::Relaxed);
            self.0.encode(out);
        }
    }

    simulate(1, 1, 1, |me| {
        let m = WireMap::<Key, u64>::new(me)?.on(me);
        let took = |operation: &dyn Fn() -> Result<()>| {
            let before = ENCODED.load(Ordering::Relaxed);
            operation().map(|()| ENCODED.load(Ordering::Relaxed) - before)
        };
        assert_eq!(took(&|| m.insert(Key(1), 1).map(drop))?, 1);
        assert_eq!(took(&|| m.upsert(Key(1), 1, |all, new| *all += new))?, 1);
        assert_eq!(took(&|| m.get(&Key(1)).map(|found| assert_eq!(found, Some(2))))?, 1);
        assert_eq!(took(&|| m.get_many(&[Key(1), Key(2)]).map(|found| assert_eq!(found, [Some(2), None])))?, 2);
        let batch = m.batch()?;
        assert_eq!(took(&|| batch.upsert(Key(1), 1, |all, new| *all += new))?, 1);
        batch.finish()
    })
    .unwrap();
}

/// By calls, the owners of many keys are asked in batches, also where memory is mapped.
#[test]
fn many_keys_take_few_calls() {
    const KEYS: u64 = 4000;
    static CALLS: AtomicU64 = AtomicU64::new(0);
    static IS_DONE: AtomicU64 = AtomicU64::new(0);
    simulate(1, 2, 1, |me| {
        let by_calls = HashMap::<u64, u64>::builder().implementation(Implementation::Call).build(me)?.on(me);
        let of_words = WireMap::<u64, u64>::new(me)?.on(me);
        me.share(0..KEYS as usize).map(|key| key as u64).try_for_each(|key| {
            by_calls.insert(key, 2 * key)?;
            of_words.insert(key, 2 * key).map(drop)
        })?;
        me.barrier()?;
        let keys: Vec<_> = (0..KEYS).collect();
        if me.is_first() {
            let expected: Vec<_> = keys.iter().map(|key| Some(2 * key)).collect();
            assert_eq!(by_calls.get_many(&keys)?, expected);
            assert_eq!(of_words.get_many(&keys)?, expected);
            IS_DONE.store(1, Ordering::Release);
        } else {
            while IS_DONE.load(Ordering::Acquire) == 0 {
                CALLS.fetch_add(u64::from(me.progress()?), Ordering::Relaxed);
            }
            let calls = CALLS.load(Ordering::Relaxed);
            assert!(calls < KEYS / 10, "{calls} calls for {KEYS} keys");
        }
        me.barrier()
    })
    .unwrap();
}

/// Keys of plain types belong to the same workers in both maps.
#[test]
fn the_placement_is_that_of_plain_keys() {
    farside::simulate(5, 1, 1, |me| {
        let (plain, wire) = (HashMap::<u64, u64>::new(me, 10)?, WireMap::<u64, u64>::new(me)?);
        for key in 0..100 {
            assert_eq!(plain.on(me).owner_of(&key), wire.on(me).owner_of(&key));
        }
        me.barrier()
    })
    .unwrap();
}

/// A stream of a part sees every entry that stays once, in many blocks, while others change.
#[test]
fn streams_see_all_that_stays() {
    farside::simulate(3, 1, 4, |me| {
        let map = WireMap::<String, Vec<u64>>::new(me)?;
        let m = map.on(me);
        // Some 100 KiB in each part, and values longer than a block.
        let value = |key: u64| vec![key; if key.is_multiple_of(100) { 3000 } else { 40 }];
        let keys = me.share(0..900);
        keys.clone().try_for_each(|key| m.insert(key.to_string(), value(key as u64)).map(drop))?;
        me.barrier()?;
        let mut seen = Oracle::new();
        for of in me.workers() {
            for (number, entry) in m.stream(of)?.enumerate() {
                let (key, value) = entry?;
                assert_eq!(m.owner_of(&key), of);
                assert_eq!(seen.insert(key, value), None);
                if number % 10 == 0 {
                    m.insert(format!("{number} of {}", me.id()), Vec::new())?;
                    m.remove(&format!("{} of {}", number / 2, me.id()))?;
                }
            }
        }
        assert!((0..900).all(|key| seen.get(&key.to_string()) == Some(&value(key))));
        me.barrier()?;
        let mut counted = 0;
        assert_eq!(m.for_all(|_, _| counted += 1)?, m.len()?);
        assert_eq!(counted, m.len()?);
        let nowhere = m.stream(farside::WorkerId::new(3)).err();
        assert!(matches!(nowhere, Some(Error::UnknownWorker { .. })));
        me.barrier()?;
        map.free(me)?;
        assert!(matches!(m.stream(me.id()).err().unwrap().room_error(), Some(MapError::Gone)));
        Ok(())
    })
    .unwrap();
}

/// Keys of a lost process are refused; others go on; `len` names it.
#[test]
fn a_lost_owner_is_named() {
    let dying = farside::ProcessId::new(2);
    let ended = std::sync::Mutex::new(0);
    let simulated = Simulation::new(4, 1, 1).kill(dying, std::time::Duration::from_millis(3)).run(|me| {
        let map = WireMap::<String, String>::new(me)?;
        let m = map.on(me);
        if me.process() == dying {
            return me.wait_while_serving(|| false);
        }
        me.wait_while_serving(|| !me.lost_processes().is_empty())?;
        for key in (0..20).map(|key| format!("{key} of {}", me.id())) {
            let is_lost = me.process_of(m.owner_of(&key)) == dying;
            match m.insert(key.clone(), key.clone()) {
                Err(Error::PeerLost { process, .. }) => assert!(is_lost && process == dying),
                inserted => assert!(inserted? == Inserted::New && !is_lost),
            }
        }
        for len in [m.len(), m.for_all(|key, value| assert_eq!(key, value))] {
            assert!(matches!(map_error(&len), MapError::Partial { missing, .. } if *missing == [dying]), "{len:?}");
        }
        *ended.lock().unwrap() += 1;
        me.wait_while_serving(|| *ended.lock().unwrap() == 3)
    });
    assert!(simulated.unwrap().verdict.is_err(), "the loss is the verdict");
    assert_eq!(*ended.lock().unwrap(), 3);
}

/// A value that no call can hold is refused with the remedy, and changes nothing. One that is
/// almost as long is an entry like others.
#[test]
fn a_value_that_is_too_large_is_refused() {
    farside::simulate(2, 1, 1, |me| {
        let map = WireMap::<String, String>::new(me)?;
        let m = map.on(me);
        for key in (0..8).map(|key| format!("{key} of {}", me.id())) {
            m.insert(key.clone(), "small".into())?;
            let too_large = "x".repeat(5 << 20);
            let append = |value: &mut String, more: String| value.push_str(&more);
            let outcomes = [
                m.insert(key.clone(), too_large.clone()).map(drop),
                m.try_insert(format!("new {key}"), too_large.clone()).map(drop),
                m.get_or_insert(format!("new {key}"), too_large.clone()).map(drop),
                m.modify(&key, too_large.clone(), append).map(drop),
                m.upsert(key.clone(), too_large.clone(), append),
            ];
            for outcome in outcomes {
                let is_named = |remedy: &str| remedy.contains("ring_cap_bytes");
                assert!(matches!(&outcome, Err(Error::TooLarge { remedy, .. }) if is_named(remedy)), "{outcome:?}");
            }
            assert!(!m.contains_key(&format!("new {key}"))?);
            assert_eq!(m.get(&key)?.as_deref(), Some("small"));
            let large = "y".repeat(3 << 20);
            m.insert(key.clone(), large.clone())?;
            assert!(m.get(&key)? == Some(large));
        }
        me.barrier()
    })
    .unwrap();
}

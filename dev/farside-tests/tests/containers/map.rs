//! Maps: like one `std::collections::HashMap`, whoever uses them, and wherever an entry lies.

mod choice;
mod concurrent;
mod faults;
mod kills;
mod mended;
mod snapshots;
mod whole;
mod wire;

use std::collections::HashMap as Oracle;

use farside::{Result, Worker, simulate};
use farside_containers::map::{HashMap, Inserted, Map};
use farside_containers::{Implementation, Promise};

use crate::everywhere;

const IMPLEMENTATIONS: [Implementation; 2] = [Implementation::OneSided, Implementation::Call];

/// A value that tells whether it is whole.
type Value = [u64; 3];

fn value(writer: u32, number: u64) -> Value {
    let writer = u64::from(writer);
    [writer, number, (writer << 40 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15)]
}

#[track_caller]
fn assert_whole([writer, number, proof]: Value) {
    assert_eq!(value(writer as u32, number)[2], proof, "half of {writer}, {number}");
}

/// Returns how often a worker does something, so that many do not take much longer than few.
fn times(me: &Worker, most: u64) -> u64 {
    (most * 4).div_ceil(u64::from(me.worker_count()).max(4))
}

/// Random numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(me: &Worker, seed: u64) -> Self {
        Self((u64::from(me.id().number()) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// Makes random operations with the keys that `key` makes of numbers, and compares with an oracle.
fn compare(me: &Worker, m: &Map<'_, u64, Value>, keys: &[u64], operations: u64, seed: u64) -> Result<()> {
    let mut oracle = Oracle::<u64, Value>::new();
    let mut random = Random::new(me, seed);
    for number in 0..operations {
        let key = keys[random.below(keys.len() as u64) as usize];
        let new = value(me.id().number(), number);
        match random.below(8) {
            0 | 1 => {
                let expected = if oracle.insert(key, new).is_some() { Inserted::Replaced } else { Inserted::New };
                assert_eq!(m.insert(key, new)?, expected);
            }
            2 => assert_eq!(m.remove(&key)?, oracle.remove(&key)),
            3 => {
                let expected = oracle.get(&key).copied();
                assert_eq!(m.try_insert(key, new)?.err(), expected);
                oracle.entry(key).or_insert(new);
            }
            4 => assert_eq!(m.get_or_insert(key, new)?, *oracle.entry(key).or_insert(new)),
            5 => {
                let changed = m.modify(&key, new, std::mem::replace)?;
                assert_eq!(changed, oracle.get_mut(&key).map(|value| std::mem::replace(value, new)));
            }
            6 => {
                m.upsert(key, new, |value, new| value[0] = new[1])?;
                oracle.entry(key).and_modify(|value| value[0] = new[1]).or_insert(new);
            }
            _ => {
                assert_eq!(m.get(&key)?, oracle.get(&key).copied());
                assert_eq!(m.contains_key(&key)?, oracle.contains_key(&key));
            }
        }
    }
    for key in keys {
        assert_eq!(m.get(key)?, oracle.get(key).copied());
    }
    let total = me.all_reduce(oracle.len() as u64, |a, b| a + b)?;
    assert_eq!(m.len()?, total);
    me.barrier()
}

/// Each worker has keys of its own, which share slots with those of others.
fn is_like_a_map(me: &Worker) -> Result<()> {
    for implementation in IMPLEMENTATIONS {
        for (capacity, keys, is_fixed) in [(1, 40, false), (1600, 12, true)] {
            let builder = HashMap::<u64, Value>::builder().capacity(capacity).implementation(implementation);
            let map = if is_fixed { builder.fixed() } else { builder }.build(me)?;
            let own = u64::from(me.id().number());
            let keys: Vec<_> = (0..keys).map(|key| key * u64::from(me.worker_count()) + own).collect();
            compare(me, &map.on(me), &keys, times(me, 120), capacity as u64)?;
            map.free(me)?;
        }
    }
    Ok(())
}
everywhere!(like_a_map, super::is_like_a_map);

/// Many keys begin at few slots.
#[test]
fn colliding_keys_are_told_apart() {
    for (workers, seed) in [(1, 1), (3, 2), (4, 3), (5, 4)] {
        let run = |me: &Worker| {
            for implementation in IMPLEMENTATIONS {
                let few = |key: &[u8]| u64::from(key[0] % 3) << 62 | 1;
                let builder = HashMap::<u64, Value>::builder().capacity(600).placement(few);
                let map = builder.implementation(implementation).build(me)?;
                let keys: Vec<_> = (0..20).map(|key| key * 256 + u64::from(me.id().number())).collect();
                compare(me, &map.on(me), &keys, 100, seed)?;
                map.free(me)?;
            }
            Ok(())
        };
        simulate(workers, 1, seed, run).unwrap_or_else(|error| panic!("{workers} workers: {error}"));
    }
}

/// Under the promise `LOCAL` each worker uses the keys that it owns.
fn own_keys(me: &Worker) -> Result<()> {
    for implementation in IMPLEMENTATIONS {
        let map = HashMap::<u64, Value>::builder().capacity(1).implementation(implementation).build(me)?;
        let m = map.on(me).promising(Promise::LOCAL);
        let keys: Vec<_> = (0..2000).filter(|key| m.owner_of(key) == me.id()).take(20).collect();
        compare(me, &m, &keys, times(me, 100), 5)?;
    }
    Ok(())
}
everywhere!(local, super::own_keys);

/// Entries that were inserted in one phase are found in the next one.
fn phases_follow_each_other(me: &Worker) -> Result<()> {
    for implementation in IMPLEMENTATIONS {
        let map = HashMap::<u64, u32>::builder().capacity(8).implementation(implementation).build(me)?;
        let m = map.on(me);
        let (workers, keys) = (u64::from(me.worker_count()), times(me, 20));
        for round in 1..3 {
            let phase = m.inserting()?;
            for key in 0..keys {
                phase.insert(key * workers + u64::from(me.id().number()), round * key as u32)?;
            }
            phase.upsert(u64::MAX, 1, |count, by| *count += by)?;
            phase.end()?;
            let phase = m.finding()?;
            for key in 0..keys * workers {
                assert_eq!(phase.get(&key)?, Some(round * (key / workers) as u32));
            }
            assert_eq!(phase.get(&u64::MAX)?, Some(round * me.worker_count()));
            assert!(!phase.contains_key(&(keys * workers))?);
            phase.end()?;
        }
        map.free(me)?;
    }
    Ok(())
}
everywhere!(phases, super::phases_follow_each_other);

/// Types of other sizes, and types that not all bytes are values of.
fn small_and_large(me: &Worker) -> Result<()> {
    let flags = HashMap::<[u8; 3], bool>::new(me, 10)?;
    let long = HashMap::<char, [u32; 64]>::new(me, 10)?;
    let nothing = HashMap::<u8, ()>::new(me, 10)?;
    if me.is_first() {
        flags.on(me).insert([1, 2, 3], true)?;
        long.on(me).insert('ä', [7; 64])?;
        nothing.on(me).insert(9, ())?;
    }
    me.barrier()?;
    assert_eq!((flags.on(me).get(&[1, 2, 3])?, flags.on(me).get(&[3, 2, 1])?), (Some(true), None));
    assert_eq!((long.on(me).get(&'ä')?, long.on(me).get(&'a')?), (Some([7; 64]), None));
    assert_eq!((nothing.on(me).get(&9)?, nothing.on(me).get(&8)?), (Some(()), None));
    me.barrier()
}
everywhere!(sizes, super::small_and_large);

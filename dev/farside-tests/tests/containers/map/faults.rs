//! Bad input, full maps, panics and losses.

use std::sync::Mutex;
use std::time::Duration;

use farside::{Error, ProcessId, Result, Simulation, Worker, simulate};
use farside_containers::map::{HashMap, Map, MapError};
use farside_containers::{BrokenPromise, Implementation, Op, Promise};
use farside_testbed::scaled;

use super::{IMPLEMENTATIONS, assert_whole, times, value};
use crate::everywhere;

/// Returns the error of a map, or fails.
#[track_caller]
pub(super) fn map_error<T: std::fmt::Debug>(result: &Result<T>) -> &MapError {
    match result {
        Err(error) => error.room_error().unwrap_or_else(|| panic!("{error} is no error of a map")),
        Ok(value) => panic!("{value:?} is no error"),
    }
}

/// A fixed map says that it is full, and keeps what it has.
fn says_that_it_is_full(me: &Worker) -> Result<()> {
    for implementation in IMPLEMENTATIONS {
        let map = HashMap::<u64, u64>::builder().capacity(9).fixed().implementation(implementation).build(me)?;
        let m = map.on(me);
        let own = u64::from(me.id().number()) << 32;
        let keys_each = times(me, 200);
        let (mut kept, mut refused) = (Vec::new(), 0);
        for key in own..own + keys_each {
            match m.insert(key, key) {
                Ok(_) => kept.push(key),
                refusal => {
                    assert!(matches!(map_error(&refusal), MapError::Full { owner, .. } if *owner == m.owner_of(&key)));
                    refused += 1;
                }
            }
        }
        assert!(me.all_reduce(refused, |a, b| a + b)? > 0);
        for key in own..own + keys_each {
            assert_eq!(m.get(&key)?, kept.contains(&key).then_some(key));
        }
        // What is there can still be replaced and removed.
        if let Some(key) = kept.first() {
            m.insert(*key, 1)?;
            assert_eq!(m.remove(key)?, Some(1));
            m.insert(*key, 2)?;
        }
        me.barrier()?;
        assert_eq!(m.len()?, me.all_reduce(kept.len() as u64, |a, b| a + b)?);
        let batch = m.batch()?;
        batch.extend((own + 1000..own + 1000 + keys_each).map(|key| (key, key)))?;
        let finished = batch.finish();
        assert!(matches!(map_error(&finished), MapError::Batch { count, .. } if *count > 0), "{finished:?}");
        // The end of a phase says so, too.
        let phase = m.inserting()?;
        phase.batch()?.extend((own + 2000..own + 2000 + keys_each).map(|key| (key, key)))?;
        let ended = phase.end();
        assert!(matches!(map_error(&ended), MapError::Batch { count, .. } if *count > 0), "{ended:?}");
        map.free(me)?;
    }
    Ok(())
}
everywhere!(full, super::says_that_it_is_full);

/// Keys that all begin at one slot fill it up to the bound of probes, also if the map may grow.
#[test]
fn keys_with_one_hash_are_refused_in_the_end() {
    let run = |me: &Worker| {
        let map = HashMap::<u64, u64>::builder().placement(|_| 77).build(me)?;
        let m = map.on(me);
        let mut inserted = 0;
        let refusal = loop {
            match m.insert(inserted, 1) {
                Ok(_) => inserted += 1,
                refusal => break refusal,
            }
        };
        assert!(matches!(map_error(&refusal), MapError::Full { .. }), "{refusal:?}");
        assert!(inserted >= 100, "{inserted}");
        assert_eq!(m.get(&(inserted - 1))?, Some(1));
        map.free(me)
    };
    simulate(1, 1, 1, run).unwrap();
}

/// Settings that make no map are refused on every worker, and so is the use of a freed map.
fn bad_input_is_refused(me: &Worker) -> Result<()> {
    for capacity in [0, usize::MAX, usize::MAX / 2, 1 << 60] {
        let made = HashMap::<u64, u64>::new(me, capacity);
        assert!(matches!(map_error(&made), MapError::Capacity { .. }), "{made:?}");
    }
    let unequal = HashMap::<u64, u64>::new(me, 10 + me.id().index());
    if me.worker_count() > 1 {
        assert!(matches!(map_error(&unequal), MapError::Unequal { worker } if worker.number() == 1), "{unequal:?}");
    }

    let placed: fn(&[u8]) -> u64 = if me.is_first() { |_| 77 } else { |_| 78 };
    let unequal = HashMap::<u64, u64>::builder().placement(placed).build(me);
    if me.worker_count() > 1 {
        assert!(matches!(map_error(&unequal), MapError::Unequal { worker } if worker.number() == 1), "{unequal:?}");
    }

    let map = HashMap::<u64, u64>::new(me, 10)?;
    let m = map.on(me);
    let finding = m.promising(Promise::FIND_ONLY);
    assert!(matches!(map_error(&finding.insert(1, 1)), MapError::Promise { operation: "insert", .. }));
    let inserting = m.promising(Promise::INSERT_ONLY);
    assert!(matches!(map_error(&inserting.get(&1)), MapError::Promise { operation: "get", .. }));
    for promise in [Promise::PUSH_ONLY, Promise::POP_ONLY] {
        let queue = m.promising(promise);
        assert!(
            matches!(map_error(&queue.insert(1, 1)), MapError::Promise { promise: named, .. } if *named == promise)
        );
        assert!(matches!(map_error(&queue.get(&1)), MapError::Promise { .. }));
        assert!(matches!(map_error(&queue.batch()), MapError::Promise { .. }));
    }
    let checksum = HashMap::<u64, u64>::builder().implementation(Implementation::Checksum).build(me);
    assert!(matches!(map_error(&checksum), MapError::Implementation { .. }), "{checksum:?}");
    if let Some(foreign) = (0..1000).find(|key| m.owner_of(key) != me.id()) {
        let local = m.promising(Promise::LOCAL).insert(foreign, 1);
        assert!(matches!(map_error(&local), MapError::NotLocal { .. }));
    }
    me.barrier()?;
    map.free(me)?;
    let m = map.on(me);
    assert!(matches!(map_error(&m.insert(1, 1)), MapError::Gone));
    assert!(matches!(map_error(&m.get(&1)), MapError::Gone));
    assert!(matches!(map_error(&m.modify(&1, (), |_, ()| ())), MapError::Gone));
    assert!(matches!(map_error(&m.len()), MapError::Gone));
    assert!(matches!(map_error(&m.batch()), MapError::Gone));
    assert!(matches!(map_error(&map.free(me)), MapError::Gone));
    me.barrier()
}
everywhere!(bad_input, super::bad_input_is_refused);

/// A function that panics leaves the entry as it was. Its caller gets an error, and others go on.
fn a_panic_changes_nothing(me: &Worker) -> Result<()> {
    for implementation in IMPLEMENTATIONS {
        let map = HashMap::<u64, u64>::builder().implementation(implementation).build(me)?;
        let m = map.on(me);
        let key = u64::from(me.id().number());
        m.insert(key, 5)?;
        let changed = m.modify(&key, (), |value, ()| -> () {
            *value = 6;
            panic!("no number at all");
        });
        assert!(matches!(&changed, Err(Error::RemotePanic { message, .. }) if message.contains("at all")));
        assert_eq!(m.get(&key)?, Some(5));
        m.insert(key, 7)?;
        assert_eq!(m.get(&key)?, Some(7));
        me.barrier()?;
        map.free(me)?;
    }
    Ok(())
}
everywhere!(panics, super::a_panic_changes_nothing);

/// The work of survivors while a process is killed that writes the same keys. Only keys of the lost
/// process are lost.
fn survive(me: &Worker, dying: ProcessId, implementation: Implementation) -> Result<()> {
    let map = HashMap::<u64, [u64; 3]>::builder().capacity(200).implementation(implementation).build(me)?;
    let m = map.on(me);
    let mut number = 0;
    loop {
        number += 1;
        for key in 0..10 {
            let is_lost_with = |outcome: Result<()>| match outcome {
                Err(Error::PeerLost { process, .. }) if process == dying => {
                    assert_eq!(me.process_of(m.owner_of(&key)), dying, "{key} belongs to a survivor");
                    Ok(())
                }
                outcome => outcome,
            };
            is_lost_with(m.insert(key, value(me.id().number(), number)).map(drop))?;
            is_lost_with(m.get(&key).map(|found| found.into_iter().for_each(assert_whole)))?;
            is_lost_with(m.upsert(key, value(0, number), |value, new| *value = new))?;
        }
        if me.is_lost(dying) {
            break;
        }
        if number >= 20 {
            me.wait_while_serving(|| me.is_lost(dying))?;
        }
    }
    // Keys of survivors can still be written, also next to slots that are retired.
    let own = 1000 * u64::from(me.id().number() + 1);
    for key in (own..own + 50).filter(|key| me.process_of(m.owner_of(key)) != dying) {
        m.insert(key, value(9, key))?;
        assert_eq!(m.get(&key)?.map(|value| value[0]), Some(9));
    }
    let len = m.len();
    let MapError::Partial { missing, counted } = map_error(&len) else { panic!("{len:?}") };
    assert!(*missing == [dying] && *counted > 0, "{len:?}");
    let mut met = 0;
    let met_all = m.for_all(|_, value| {
        assert_whole(value);
        met += 1;
    });
    let MapError::Partial { missing, counted } = map_error(&met_all) else { panic!("{met_all:?}") };
    assert!(*missing == [dying] && *counted == met, "{met_all:?}");
    Ok(())
}

#[test]
fn a_lost_writer_blocks_no_one() {
    let dying = ProcessId::new(2);
    for implementation in IMPLEMENTATIONS {
        for time in 0..scaled(2) {
            let ends = Mutex::new(Vec::new());
            let kill_at = Duration::from_micros(1200 + 35 * time);
            let simulated = Simulation::new(4, 1, time).kill(dying, kill_at).run(|me| {
                let end = survive(me, dying, implementation);
                if me.process() != dying {
                    ends.lock().unwrap().push(end);
                }
                Ok(())
            });
            assert!(simulated.unwrap().verdict.is_err(), "the loss is the verdict");
            let ends = ends.into_inner().unwrap();
            assert_eq!(ends.len(), 3);
            for end in ends {
                end.unwrap_or_else(|error| panic!("{implementation:?}, killed after {kill_at:?}: {error}"));
            }
        }
    }
}

/// The operation of one worker on a key. Its number varies.
type Use = fn(&Map<'_, u64, u64>, u64, u64) -> Result<()>;

/// One worker relies on a promise, and another one does at the same time what it excludes. Where
/// accesses are checked, one of them gets an error that names both places.
#[test]
fn a_broken_promise_names_both_places() {
    let insert: Use = |m, key, number| m.insert(key, number).map(drop);
    let remove: Use = |m, key, _| m.remove(&key).map(drop);
    let get: Use = |m, key, _| m.get(&key).map(drop);
    let get_many: Use = |m, key, _| m.get_many(&[key]).map(drop);
    let stream: Use = |m, key, _| m.stream(m.owner_of(&key)).map(drop);
    let len: Use = |m, _, _| m.len().map(drop);
    let cases = [
        (Promise::FIND_ONLY, get, insert, Op::Insert),
        (Promise::FIND_ONLY, get, remove, Op::Insert),
        (Promise::FIND_ONLY, get_many, insert, Op::Insert),
        (Promise::INSERT_ONLY, insert, get, Op::Find),
        (Promise::INSERT_ONLY, insert, get_many, Op::Find),
        (Promise::INSERT_ONLY, insert, stream, Op::Find),
        (Promise::INSERT_ONLY, insert, len, Op::Find),
        (Promise::LOCAL, get, insert, Op::Insert),
        (Promise::LOCAL, insert, get, Op::Find),
    ];
    for (case, (promise, relying, breaking, op)) in cases.into_iter().enumerate() {
        let mut told = 0;
        for seed in 0..6 {
            let implementation = IMPLEMENTATIONS[seed as usize % IMPLEMENTATIONS.len()];
            let found = Mutex::new(None);
            let simulated = Simulation::new(3, 1, seed).check_accesses(true).run(|me| {
                let map = HashMap::<u64, u64>::builder().implementation(implementation).build(me)?;
                let m = map.on(me);
                let key = (0..).find(|key| m.owner_of(key).number() == 2).expect("each worker has keys");
                m.insert(key, 1)?;
                me.barrier()?;
                let promising = m.promising(promise);
                for number in 0..20 {
                    let outcome = match me.id().number() {
                        1 => breaking(&m, key, number),
                        2 => relying(&promising, key, number),
                        _ => Ok(()),
                    };
                    if let Err(error) = outcome {
                        *found.lock().unwrap() = error.room_error::<BrokenPromise>().cloned();
                        break;
                    }
                    me.charge(Duration::from_micros(1));
                    me.progress()?;
                }
                Ok(())
            });
            simulated.unwrap().verdict.unwrap_or_else(|error| panic!("case {case}, seed {seed}: {error}"));
            if let Some(broken) = found.into_inner().unwrap() {
                assert_eq!((broken.promise, broken.op), (promise, op), "case {case}");
                let text = broken.to_string();
                assert_eq!(text.matches(file!()).count(), 2, "case {case}: {text}");
                told += 1;
            }
        }
        assert!(told > 2, "case {case}: {told} of 6 runs");
    }
}

/// Operations of workers on their own parts under a local promise break none, nor do those of
/// others before and after it.
#[test]
fn a_kept_local_promise_is_not_reported() {
    for seed in 0..6 {
        let implementation = IMPLEMENTATIONS[seed as usize % IMPLEMENTATIONS.len()];
        let simulated = Simulation::new(3, 1, seed).check_accesses(true).run(|me| {
            let map = HashMap::<u64, u64>::builder().implementation(implementation).build(me)?;
            let m = map.on(me);
            for key in 0..20 {
                m.insert(key, 1)?;
            }
            me.barrier()?;
            let local = m.promising(Promise::LOCAL);
            for key in (0..20).filter(|key| m.owner_of(key) == me.id()) {
                local.insert(key, 2)?;
                local.upsert(key, 1, |value, by| *value += by)?;
                assert_eq!(local.get(&key)?, Some(3));
            }
            me.barrier()?;
            assert_eq!(m.get_many(&(0..20).collect::<Vec<_>>())?, [Some(3); 20]);
            assert_eq!(m.len()?, 20);
            me.barrier()
        });
        simulated.unwrap().verdict.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

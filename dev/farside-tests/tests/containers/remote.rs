//! Values at one worker do what those of std do, wherever the caller is, and say so when they are
//! gone.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside::wire::{self, Decoder};
use farside::{Error, PerWorker, ProcessId, Result, Simulation, Wire, Worker, WorkerId};
use farside_containers::collections::{Collection, Multiset};
use farside_containers::{Remote, RemoteError, Remotes};

use crate::everywhere;

/// Numbers that look random, other ones at each worker.
struct Random(u64);

impl Random {
    fn of(me: &Worker) -> Self {
        Self(u64::from(me.id().number()) + 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Makes a value at the next worker.
fn at_next<C: Default + 'static>(me: &Worker, remotes: Remotes) -> Result<Remote<C>> {
    let made = remotes.create(me, me.neighbor(1)).wait()?;
    assert_eq!(made.owner(), me.neighbor(1));
    Ok(made)
}

/// Compares all items with those of an oracle, read in blocks of several sizes.
fn compare<C: Collection>(me: &Worker, remote: Remote<C>, oracle: impl IntoIterator<Item = C::Item>) -> Result<()>
where
    C::Item: PartialEq + Debug,
{
    let oracle: Vec<C::Item> = oracle.into_iter().collect();
    for block in [1, 7, oracle.len().max(1), 1000] {
        assert_eq!(remote.iter(me, block).collect::<Result<Vec<_>>>()?, oracle, "blocks of {block}");
    }
    Ok(())
}

/// A key whose hash is that of some others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Wire)]
struct Clashing(u64);

impl std::hash::Hash for Clashing {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.0 / 3).hash(state);
    }
}

/// A cursor of a hash map sees every entry that stays once, also where hashes are equal and while
/// the table grows and shrinks.
#[test]
fn a_cursor_of_a_hash_map_sees_all_that_stays() {
    farside::simulate(2, 1, 5, |me| {
        let remotes = Remotes::new(me)?;
        let map = at_next::<HashMap<Clashing, u64>>(me, remotes)?;
        map.extend(me, (0..300).map(|key| (Clashing(key), key)).collect()).wait()?;
        for block in [1, 2, 7, 150, 1000] {
            let mut seen = BTreeMap::new();
            for (number, entry) in (0_u64..).zip(map.iter(me, block)) {
                let (key, value) = entry?;
                assert_eq!((seen.insert(key, value), value), (None, key.0), "blocks of {block}");
                let number = number % 300;
                // Keys below 100 stay. The others go and come.
                map.remove(me, Clashing(100 + number % 200)).wait()?;
                map.insert(me, Clashing(300 + number), 300 + number).wait()?;
            }
            assert!((0..100).all(|key| seen.contains_key(&Clashing(key))), "blocks of {block}");
            map.with(me, (), |map, ()| map.retain(|key, _| key.0 < 300)).wait()?;
            map.extend(me, (100..300).map(|key| (Clashing(key), key)).collect()).wait()?;
        }
        // Ranges follow the same order, and move to a sorted map.
        let sorted = at_next::<BTreeMap<Clashing, u64>>(me, remotes)?;
        while sorted.append_range(me, map, 0..70).wait()? > 0 {}
        assert!(map.is_empty(me).wait()?);
        compare(me, sorted, (0..300).map(|key| (Clashing(key), key)))?;
        me.barrier()
    })
    .unwrap();
}

fn sequences_do_what_those_of_std_do(me: &Worker) -> Result<()> {
    let remotes = Remotes::new(me)?;
    let mut random = Random::of(me);
    let (vector, deque) = (at_next::<Vec<u64>>(me, remotes)?, at_next::<VecDeque<u64>>(me, remotes)?);
    let (mut vec, mut deq) = (Vec::new(), VecDeque::new());
    for step in 0..150 {
        let (value, place) = (random.below(20), random.below(1 + vec.len() as u64) as usize);
        match random.below(9) {
            0 | 1 => (vector.push(me, value).wait()?, vec.push(value)).0,
            2 => (vector.insert(me, place, value).wait()?, vec.insert(place, value)).0,
            3 => assert_eq!(vector.pop(me).wait()?, vec.pop()),
            4 => assert_eq!(vector.get(me, place).wait()?, vec.get(place).copied()),
            5 if place < vec.len() => {
                assert_eq!(vector.set(me, place, value).wait()?, std::mem::replace(&mut vec[place], value));
            }
            6 if place < vec.len() => assert_eq!(vector.swap_remove(me, place).wait()?, vec.swap_remove(place)),
            7 => (vector.extend(me, vec![value; 3]).wait()?, vec.extend([value; 3])).0,
            _ => assert_eq!(vector.contains(me, value).wait()?, vec.contains(&value)),
        }
        match random.below(6) {
            0 | 1 => (deque.push_back(me, step).wait()?, deq.push_back(step)).0,
            2 => (deque.push_front(me, value).wait()?, deq.push_front(value)).0,
            3 => assert_eq!(deque.pop_front(me).wait()?, deq.pop_front()),
            4 => assert_eq!(deque.pop_back(me).wait()?, deq.pop_back()),
            _ => assert_eq!(deque.remove(me, place).wait()?, deq.remove(place)),
        }
        assert_eq!((vector.len(me).wait()?, deque.len(me).wait()?), (vec.len(), deq.len()));
    }
    compare(me, vector, vec.clone())?;
    compare(me, deque, deq.clone())?;
    deque.sort(me).wait()?;
    deque.dedup(me).wait()?;
    compare(me, deque, deq.into_iter().collect::<BTreeSet<_>>())?;
    vector.sort(me).wait()?;
    vec.sort_unstable();
    assert_eq!(vector.drain(me, 1, 3).wait()?, vec.drain(1..3).collect::<Vec<_>>());
    compare(me, vector, vec)?;
    vector.free(me).wait()?;
    deque.free(me).wait()?;
    me.barrier()
}
everywhere!(sequences, super::sequences_do_what_those_of_std_do);

fn sorted_collections_do_what_those_of_std_do(me: &Worker) -> Result<()> {
    let remotes = Remotes::new(me)?;
    let mut random = Random::of(me);
    let (map, hashed) = (at_next::<BTreeMap<u64, String>>(me, remotes)?, at_next::<HashMap<u64, u64>>(me, remotes)?);
    let (set, multiset) = (at_next::<BTreeSet<u64>>(me, remotes)?, at_next::<Multiset<u64>>(me, remotes)?);
    let (mut map_of_std, mut hashed_of_std) = (BTreeMap::new(), HashMap::new());
    let (mut set_of_std, mut counts) = (BTreeSet::new(), BTreeMap::<u64, u64>::new());
    for step in 0..150_u64 {
        let key = random.below(30);
        match random.below(4) {
            0 | 1 => {
                let text = step.to_string();
                assert_eq!(map.insert(me, key, text.clone()).wait()?, map_of_std.insert(key, text));
                assert_eq!(hashed.insert(me, key, step).wait()?, hashed_of_std.insert(key, step));
                assert_eq!(set.insert(me, key).wait()?, set_of_std.insert(key));
                let count = counts.entry(key).or_default();
                *count += 1;
                assert_eq!(multiset.insert(me, key).wait()?, *count);
            }
            2 => {
                assert_eq!(map.remove(me, key).wait()?, map_of_std.remove(&key));
                assert_eq!(hashed.get(me, key).wait()?, hashed_of_std.get(&key).copied());
                assert_eq!(set.remove(me, key).wait()?, set_of_std.remove(&key));
                let count = counts.get(&key).copied().unwrap_or_default();
                assert_eq!(multiset.count(me, key).wait()?, count);
                assert_eq!(multiset.remove(me, key).wait()?, count > 0);
                counts.entry(key).and_modify(|count| *count -= 1);
                counts.retain(|_, count| *count > 0);
            }
            _ => {
                assert_eq!(map.contains_key(me, key).wait()?, map_of_std.contains_key(&key));
                assert_eq!(map.pop_first(me).wait()?, map_of_std.pop_first());
                assert_eq!(set.pop_last(me).wait()?, set_of_std.pop_last());
                assert_eq!(multiset.remove_all(me, key).wait()?, counts.remove(&key).unwrap_or_default());
            }
        }
    }
    assert_eq!(hashed.len(me).wait()?, hashed_of_std.len());
    assert_eq!(multiset.len(me).wait()?, counts.values().sum::<u64>());
    compare(me, map, map_of_std)?;
    compare(me, set, set_of_std)?;
    compare(me, multiset, counts)?;
    multiset.extend(me, vec![(1000, 0), (1001, u64::MAX), (1001, 1)]).wait()?;
    assert_eq!(multiset.count(me, 1001).wait()?, u64::MAX);
    assert_eq!(multiset.with(me, 1000, |set, item| set.insert_many(item, 0)).wait()?, 0);
    assert!(!multiset.remove(me, 1000).wait()?);
    assert!(multiset.with(me, (), |set, ()| set.block(None, 1000).0.iter().all(|(_, count)| *count > 0)).wait()?);
    me.barrier()
}
everywhere!(sorted, super::sorted_collections_do_what_those_of_std_do);

/// Items move between values of any two workers, and between kinds.
pub(crate) fn items_move_between_workers(me: &Worker) -> Result<()> {
    let remotes = Remotes::new(me)?;
    for distance in 0..3 {
        let here: Remote<VecDeque<u64>> = remotes.keep(me, (0..10).collect());
        let there: Remote<Vec<u64>> = remotes.create(me, me.neighbor(distance)).wait()?;
        there.extend(me, (100..110).collect()).wait()?;
        assert_eq!(here.splice(me, 2, there, 3..6).wait()?, 3);
        compare(me, here, [0, 1, 103, 104, 105, 2, 3, 4, 5, 6, 7, 8, 9])?;
        compare(me, there, [100, 101, 102, 106, 107, 108, 109])?;
        assert_eq!(here.splice(me, usize::MAX, there, 5..50).wait()?, 2);
        assert_eq!(here.splice(me, 0, there, 50..60).wait()?, 0);
        let set: Remote<BTreeSet<u64>> = remotes.create(me, me.neighbor(2 * distance)).wait()?;
        assert_eq!(set.append(me, here).wait()?, 15);
        assert_eq!(set.append(me, there).wait()?, 5);
        compare(me, set, (0..10).chain(100..110))?;
        assert!(here.is_empty(me).wait()? && there.is_empty(me).wait()?);
        // Onto itself: what is at the front goes to the end.
        there.append(me, set).wait()?;
        assert_eq!(there.splice(me, usize::MAX, there, 0..9).wait()?, 9);
        assert_eq!(there.first(me).wait()?, Some(9));
        // In several ranges.
        let other: Remote<BTreeSet<u64>> = remotes.create(me, me.neighbor(1)).wait()?;
        set.extend(me, (0..10).collect()).wait()?;
        for moved in [4, 4, 2, 0] {
            assert_eq!(other.append_range(me, set, 0..4).wait()?, moved);
        }
        compare(me, other, 0..10)?;
    }
    me.barrier()
}
everywhere!(moves, super::items_move_between_workers);

/// Items that cannot be moved stay where they are.
fn a_refused_move_changes_nothing(me: &Worker) -> Result<()> {
    let remotes = Remotes::new(me)?;
    let source: Remote<Vec<u64>> = remotes.create(me, me.neighbor(1)).wait()?;
    let target: Remote<Vec<u64>> = remotes.create(me, me.neighbor(2)).wait()?;
    source.extend(me, (0..100).collect()).wait()?;
    target.free(me).wait()?;
    let refused = target.splice(me, 0, source, 10..20).wait();
    assert_eq!(reason(refused), RemoteError::Gone { owner: target.owner() });
    compare(me, source, 0..100)?;
    // Beyond the size of a call.
    let target: Remote<Vec<u64>> = remotes.create(me, me.neighbor(2)).wait()?;
    source.with(me, 8 << 20, |items, len| items.resize(len, 7)).wait()?;
    let refused = target.append(me, source).wait();
    assert!(matches!(reason(refused), RemoteError::NotMoved { to, .. } if to == target.owner()));
    assert_eq!(source.len(me).wait()?, 8 << 20);
    assert_eq!(source.get(me, 99).wait()?, Some(99));
    me.barrier()
}

/// Values that a map gets while items are on their way stay when these come back.
#[test]
fn a_refused_move_keeps_newer_values() {
    let met = AtomicU64::new(0);
    for seed in 0..20 {
        farside::simulate(3, 1, seed, |me| {
            let remotes = Remotes::new(me)?;
            let source: Remote<BTreeMap<u64, u64>> = remotes.create(me, me.neighbor(1)).wait()?;
            let target: Remote<BTreeMap<u64, u64>> = remotes.create(me, me.neighbor(2)).wait()?;
            source.extend(me, (0..10).map(|key| (key, 1)).collect()).wait()?;
            target.free(me).wait()?;
            // The second call mostly runs right behind the first, before the items are back.
            let (moved, inserted) = (target.append(me, source), source.insert(me, 3, 2));
            assert_eq!(reason(moved.wait()), RemoteError::Gone { owner: target.owner() });
            match inserted.wait()? {
                None => drop(met.fetch_add(1, Ordering::Relaxed)),
                before => assert_eq!(before, Some(1)),
            }
            compare(me, source, (0..10).map(|key| (key, if key == 3 { 2 } else { 1 })))?;
            me.barrier()
        })
        .unwrap();
    }
    assert!(met.into_inner() > 0, "no insertion met items on their way");
}

#[farside::test(processes = 3, threads = 1, timeout_s = 600)]
fn refused_moves(me: &Worker) -> Result<()> {
    a_refused_move_changes_nothing(me)
}

/// Returns why the owner refused.
fn reason<T: Debug>(refused: Result<T>) -> RemoteError {
    let error = refused.expect_err("the owner refuses");
    error.room_error::<RemoteError>().unwrap_or_else(|| panic!("{error}")).clone()
}

/// A handle travels to workers that neither made the value nor own it, whose handlers use it.
fn handles_are_used_in_handlers(me: &Worker) -> Result<()> {
    let remotes = Remotes::new(me)?;
    let answered = PerWorker::new(me, Cell::new(0_u64))?;
    let sums: Remote<Vec<u64>> = at_next(me, remotes)?;
    for third in me.workers() {
        me.call(third, (sums, answered), |there, (sums, answered)| {
            sums.send(there, there.id().number(), |sums, x| sums.push(x.into()))?;
            sums.len(there).then(move |there, len| {
                assert!(len.expect("the value is there") >= 1);
                answered.here(there).set(answered.here(there).get() + 1);
            });
            Ok::<_, Error>(())
        })?;
    }
    me.quiesce()?;
    let mut found = sums.drain(me, 0, me.worker_count() as usize).wait()?;
    found.sort_unstable();
    assert_eq!(found, (0..u64::from(me.worker_count())).collect::<Vec<_>>());
    assert_eq!(answered.here(me).get(), u64::from(me.worker_count()));
    me.barrier()
}
everywhere!(handlers, super::handles_are_used_in_handlers);

/// Handles of freed values, of another type and of another worker are refused, each for its reason.
fn wrong_handles_are_refused(me: &Worker) -> Result<()> {
    let remotes = Remotes::new(me)?;
    let old: Remote<Vec<u64>> = at_next(me, remotes)?;
    let gone = RemoteError::Gone { owner: old.owner() };
    old.free(me).wait()?;
    // Another value takes the slot.
    let new: Remote<Vec<u64>> = at_next(me, remotes)?;
    new.push(me, 1).wait()?;
    assert_eq!(reason(old.push(me, 2).wait()), gone);
    assert_eq!(reason(old.with(me, (), |items, ()| items.len()).wait()), gone);
    assert_eq!(reason(old.free(me).wait()), gone);
    assert_eq!(reason(old.iter(me, 3).collect::<Result<Vec<_>>>()), gone);
    compare(me, new, [1])?;
    let strings = decoded::<Remote<Vec<String>>>(me, &wire::encode(&new, Vec::new()));
    assert_eq!(reason(strings.pop(me).wait()), RemoteError::OtherType { owner: new.owner() });
    assert_eq!(reason(strings.free(me).wait()), RemoteError::OtherType { owner: new.owner() });
    compare(me, new, [1])?;
    // A call without a result is dropped.
    old.send(me, 2, |items, x: u64| items.push(x))?;
    strings.send(me, (), |items, ()| items.clear())?;
    me.quiesce()?;
    compare(me, new, [1])?;
    let reserved = reason(new.reserve(me, usize::MAX).wait());
    assert!(matches!(reserved, RemoteError::NotReserved { owner, .. } if owner == new.owner()), "{reserved}");
    new.reserve(me, 10).wait()?;
    let nowhere = remotes.create::<Vec<u64>>(me, WorkerId::new(me.worker_count())).wait();
    assert!(matches!(nowhere, Err(Error::UnknownWorker { .. })), "{nowhere:?}");
    match new.owner() == me.id() {
        true => assert_eq!(new.here(me, std::mem::take)?, [1]),
        false => {
            let elsewhere = RemoteError::Elsewhere { owner: new.owner(), here: me.id() };
            assert_eq!(reason(new.here(me, |_| ())), elsewhere);
        }
    }
    me.barrier()
}
everywhere!(wrong_handles, super::wrong_handles_are_refused);

/// Reads a handle from bytes, as any program may.
fn decoded<H: Wire>(me: &Worker, bytes: &[u8]) -> H {
    wire::decode(Decoder::new(bytes).within(me), 0).expect("a handle")
}

/// A handle that outlives its job is refused in the next one, whether that has tables or not.
#[test]
fn a_handle_of_another_job_is_refused() {
    let kept = Mutex::new(None);
    farside::simulate(1, 1, 1, |me| {
        *kept.lock().unwrap() = Some(Remotes::new(me)?.keep(me, vec![1_u8]));
        Ok(())
    })
    .unwrap();
    let kept = kept.into_inner().unwrap().expect("a handle");
    farside::simulate(2, 1, 1, |me| {
        let gone = RemoteError::Gone { owner: WorkerId::FIRST };
        assert_eq!(reason(kept.len(me).wait()), gone);
        me.barrier()?;
        Remotes::new(me)?.keep(me, vec![2_u8]);
        me.barrier()?;
        assert_eq!(reason(kept.len(me).wait()), gone);
        me.barrier()
    })
    .unwrap();
}

/// A number that refuses to be compared with 7.
#[derive(Clone, Debug, Eq, PartialOrd, Ord, Wire)]
struct Touchy(u64);

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        assert!(other.0 != 7, "no 7 here");
        self.0 == other.0
    }
}

/// A panic reaches the caller as an error, and the value goes on.
fn a_panic_is_told(me: &Worker) -> Result<()> {
    let remotes = Remotes::new(me)?;
    let items: Remote<Vec<u64>> = at_next(me, remotes)?;
    let panicked = items.with(me, 7_u64, |items, x| {
        items.push(x);
        assert!(x < 7, "no {x} here");
    });
    let told = panicked.wait();
    let is_told =
        matches!(&told, Err(Error::RemotePanic { on, message }) if *on == items.owner() && message == "no 7 here");
    assert!(is_told, "{told:?}");
    assert!(matches!(items.remove(me, 1).wait(), Err(Error::RemotePanic { .. })));
    compare(me, items, [7])?;
    let touchy: Remote<VecDeque<Touchy>> = at_next(me, remotes)?;
    touchy.extend(me, [1, 1, 7, 7].map(Touchy).into()).wait()?;
    assert!(matches!(touchy.dedup(me).wait(), Err(Error::RemotePanic { .. })));
    assert_eq!(touchy.len(me).wait()?, 4);
    me.barrier()
}
everywhere!(panics, super::a_panic_is_told);

/// A value is dropped when it is freed, once, and may then use others.
#[test]
fn a_freed_value_is_dropped() {
    struct Noisy(Rc<RefCell<Vec<u32>>>, u32);
    impl Drop for Noisy {
        fn drop(&mut self) {
            self.0.borrow_mut().push(self.1);
        }
    }
    farside::simulate(1, 1, 1, |me| {
        let remotes = Remotes::new(me)?;
        let dropped = Rc::new(RefCell::new(Vec::new()));
        let values: Vec<_> = (0..3).map(|number| remotes.keep(me, Noisy(dropped.clone(), number))).collect();
        values[1].free(me).wait()?;
        assert_eq!(*dropped.borrow(), [1]);
        values[0].free(me).wait()?;
        assert_eq!(*dropped.borrow(), [1, 0]);
        assert_eq!(values[2].here(me, |value| value.1)?, 2);
        remotes.free(me)?;
        assert_eq!(*dropped.borrow(), [1, 0, 2]);
        let gone = values[2].here(me, |_| ()).unwrap_err();
        assert_eq!(gone.room_error(), Some(&RemoteError::Gone { owner: me.id() }));
        let after = remotes.keep(me, 7_u32);
        assert_eq!(after.here(me, |value| *value)?, 7);
        me.barrier()
    })
    .unwrap();
}

/// The loss of an owner is named to its callers; values of others stay, also those that the lost
/// one made, and what was to be moved there stays.
#[test]
fn a_lost_owner_is_named() {
    let dying = ProcessId::new(2);
    for (processes, seed) in [(3, 1), (4, 2), (5, 3)] {
        let ends = Mutex::new(Vec::new());
        let simulated = Simulation::new(processes, 1, seed).kill(dying, Duration::from_millis(3)).run(|me| {
            let remotes = Remotes::new(me)?;
            let own: Remote<Vec<u64>> = remotes.keep(me, vec![1, 2, 3]);
            let lost: Remote<Vec<u64>> = remotes.create(me, WorkerId::new(2)).wait()?;
            // Made by the worker that is lost.
            let made = (me.process() == dying).then(|| remotes.create(me, WorkerId::FIRST).wait()).transpose()?;
            let made: Remote<Vec<u64>> = me.broadcast(WorkerId::new(2), made)?;
            if me.process() == dying {
                return me.wait_while_serving(|| false);
            }
            me.wait_while_serving(|| !me.lost_processes().is_empty())?;
            let names =
                |outcome: Result<usize>| matches!(outcome, Err(Error::PeerLost { process, .. }) if process == dying);
            let is_named = names(lost.len(me).wait());
            let moved = reason(lost.append(me, own).wait());
            made.push(me, 1).wait()?;
            ends.lock().unwrap().push((is_named, moved, own.here(me, |items| items.clone())?));
            me.wait_while_serving(|| ends.lock().unwrap().len() == processes as usize - 1)
        });
        assert!(simulated.unwrap().verdict.is_err(), "the loss is the verdict");
        let ends = ends.into_inner().unwrap();
        assert_eq!(ends.len(), processes as usize - 1);
        for (is_named, moved, own) in ends {
            assert!(is_named);
            assert!(matches!(moved, RemoteError::NotMoved { to, .. } if to == WorkerId::new(2)), "{moved:?}");
            assert_eq!(own, [1, 2, 3]);
        }
    }
}

/// Whenever the new owner is lost, each item is still at its old owner, was moved, or is named as
/// lost.
#[test]
fn every_item_is_accounted_for() {
    const ITEMS: usize = 100_000;
    let dying = ProcessId::new(1);
    let (mut met, mut named) = (0, 0);
    for seed in 1..8 {
        let ends = Mutex::new(Vec::new());
        let after = Duration::from_micros(1000 + 130 * seed);
        let simulated = Simulation::new(2, 1, seed).kill(dying, after).run(|me| {
            let remotes = Remotes::new(me)?;
            let source: Remote<VecDeque<usize>> = remotes.keep(me, (0..ITEMS).collect());
            if me.process() == dying {
                return me.wait_while_serving(|| false);
            }
            let target: Remote<Vec<usize>> = remotes.create(me, WorkerId::new(1)).wait()?;
            let mut moved = 0;
            let end = loop {
                match target.splice(me, usize::MAX, source, 0..10).wait() {
                    Ok(count) => moved += count,
                    Err(error) => break error.room_error::<RemoteError>().cloned(),
                }
            };
            let left: Vec<usize> = source.here(me, |items| items.iter().copied().collect())?;
            ends.lock().unwrap().push((moved, end, left));
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err(), "the loss is the verdict");
        // A process that is lost before it has a value ends the other one early.
        for (moved, end, left) in ends.into_inner().unwrap() {
            let lost = match end {
                Some(RemoteError::LostOnTheWay { count, .. }) => count,
                Some(RemoteError::NotMoved { .. }) => 0,
                other => panic!("seed {seed}: {other:?}"),
            };
            assert!(left.iter().copied().eq(moved + lost..ITEMS), "seed {seed}: {moved} moved, {lost} lost");
            met += u32::from(moved > 0);
            named += lost;
        }
    }
    assert!(met > 0, "some items were moved before the loss");
    assert!(named > 0, "some items were on their way");
}

//! Containers of which each worker has a part: the parts together are what one of std would be.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

use farside::{Batches, Error, ProcessId, Result, Simulation, Wire, Worker, WorkerId};
use farside_containers::{ContainerError, CountingSet, DistIterator, DistVec};
use farside_testbed::scaled;

use crate::everywhere;

/// The items of one worker: parts of unlike length, some empty, with many equal items.
fn items_of(worker: u64) -> Vec<u64> {
    (0..(worker * 37) % 150).map(|x| (x * x * 7919 + worker * 104_729) % 61).collect()
}

fn items_of_all(me: &Worker) -> Vec<u64> {
    (0..u64::from(me.worker_count())).flat_map(items_of).collect()
}

/// Compares the whole with an oracle, at the last worker.
fn compare<T: farside::Wire + Clone + PartialEq + Debug>(me: &Worker, items: DistVec<T>, oracle: &[T]) -> Result<()> {
    let last = WorkerId::new(me.worker_count() - 1);
    let gathered = items.gather(me, last)?;
    assert_eq!(gathered.as_deref(), (me.id() == last).then_some(oracle));
    Ok(())
}

pub(crate) fn vectors_are_balanced_and_sorted(me: &Worker) -> Result<()> {
    let own = items_of(me.id().number().into());
    let numbers = DistVec::new(me)?;
    numbers.with(me, |part| part.extend(own.iter().copied()));
    let mut oracle = items_of_all(me);
    assert_eq!(numbers.len(me)?, oracle.len() as u64);
    compare(me, numbers, &oracle)?;
    for (of, block) in me.workers().zip([1, 7, 50, 1000]) {
        let streamed = numbers.stream(me, of, block).collect::<Result<Vec<_>>>()?;
        assert_eq!(streamed, items_of(of.number().into()), "blocks of {block}");
    }
    me.barrier()?;
    for _ in 0..2 {
        numbers.rebalance(me)?;
        let length = numbers.with(me, |part| part.len());
        let even = oracle.len() / me.worker_count() as usize;
        assert!((even..=even + 1).contains(&length), "{length} of {even}");
        compare(me, numbers, &oracle)?;
        numbers.sort(me)?;
        oracle.sort_unstable();
        compare(me, numbers, &oracle)?;
        let ends = (numbers.iter(me).min(), numbers.iter(me).max());
        let ends = me.gather(WorkerId::FIRST, ends)?.unwrap_or_default();
        let ends: Vec<u64> = ends.into_iter().filter_map(|(least, most)| Some([least?, most?])).flatten().collect();
        assert!(ends.is_sorted(), "{ends:?}");
    }
    // Items of any type, and more than one call holds.
    let texts = DistVec::new(me)?;
    texts.with(me, |part| part.extend(own.iter().map(|x| "x".repeat(100 * *x as usize))));
    texts.rebalance(me)?;
    texts.sort(me)?;
    let oracle: Vec<String> = oracle.iter().map(|x| "x".repeat(100 * *x as usize)).collect();
    compare(me, texts, &oracle)?;
    // Pushed to others.
    texts.with(me, Vec::clear);
    me.barrier()?;
    // Calls are possible while a part is in use.
    texts.with(me, |_| texts.push_to(me, me.neighbor(1), me.id().to_string()))?;
    me.quiesce()?;
    assert_eq!(texts.with(me, |part| part.clone()).len(), 1);
    assert_eq!(texts.len(me)?, u64::from(me.worker_count()));
    assert!(!texts.is_empty(me)?);
    me.barrier()?;
    texts.free(me)?;
    let freed = |used: Result<()>| assert_eq!(used.unwrap_err().room_error(), Some(&ContainerError::Gone));
    freed(texts.len(me).map(drop));
    freed(texts.push_to(me, me.id(), String::new()));
    freed(texts.gather(me, WorkerId::FIRST).map(drop));
    freed(texts.sort(me));
    freed(texts.rebalance(me));
    freed(texts.free(me));
    let used = [
        |texts: DistVec<String>, me: &Worker| texts.with(me, |part| part.len()),
        |texts: DistVec<String>, me: &Worker| texts.iter(me).count(),
    ];
    for used in used {
        let panicked = catch_unwind(AssertUnwindSafe(|| used(texts, me))).unwrap_err();
        assert!(panicked.downcast_ref::<String>().is_some_and(|text| text.contains("was freed")));
    }
    me.barrier()
}
everywhere!(vectors, super::vectors_are_balanced_and_sorted);

fn iterators_give_what_one_would(me: &Worker) -> Result<()> {
    let numbers = DistVec::new(me)?;
    numbers.with(me, |part| *part = items_of(me.id().number().into()));
    let oracle = items_of_all(me);
    assert_eq!(numbers.iter(me).all_count(me)?, oracle.len() as u64);
    assert_eq!(numbers.iter(me).map(|x| x + 1).all_sum::<u64>(me)?, oracle.iter().map(|x| x + 1).sum::<u64>());
    let odd = |x: &u64| x % 2 == 1;
    assert_eq!(numbers.iter(me).filter(odd).all_reduce(me, u64::max)?, oracle.iter().copied().filter(odd).max());
    assert_eq!(numbers.iter(me).filter(|x| *x > 1000).all_reduce(me, u64::max)?, None);
    let longest = |length: usize, x: u64| length.max(x.to_string().len());
    let folded = numbers.iter(me).all_fold(me, 0, longest, usize::max)?;
    assert_eq!(folded, oracle.iter().copied().fold(0, longest));
    let collected = numbers.iter(me).filter(odd).all_collect(me, WorkerId::FIRST)?;
    let expected = || oracle.iter().copied().filter(odd).collect::<Vec<_>>();
    assert_eq!(collected, me.is_first().then(expected));
    let mut sorted = oracle;
    sorted.sort_unstable_by(|one, other| other.cmp(one));
    for k in [0, 1, 5, 10_000] {
        assert_eq!(numbers.iter(me).all_top_k(me, k)?, sorted[..k.min(sorted.len())]);
        // The least number counts.
        let own_k = k + me.id().index();
        assert_eq!(numbers.iter(me).all_top_k(me, own_k)?, sorted[..k.min(sorted.len())]);
    }
    me.barrier()
}
everywhere!(iterators, super::iterators_give_what_one_would);

pub(crate) fn keys_are_counted(me: &Worker) -> Result<()> {
    let words = CountingSet::new(me)?;
    let mut oracle = HashMap::<u32, u64>::new();
    // More keys than a cache has, and some that are frequent.
    for x in 0..6000_u32 {
        for key in [x, x % 10] {
            words.insert(me, key)?;
            *oracle.entry(key).or_default() += u64::from(me.worker_count());
        }
    }
    words.settle(me)?;
    assert_eq!(words.iter(me).all_count(me)?, oracle.len() as u64);
    assert_eq!(words.iter(me).map(|(_, count)| count).all_sum::<u64>(me)?, oracle.values().sum::<u64>());
    for key in [0, 9, 10, 5999, 6000] {
        assert_eq!(words.count(me, key)?.wait()?, oracle.get(&key).copied().unwrap_or_default());
    }
    let mut frequent: Vec<_> = oracle.into_iter().map(|(key, count)| (count, key)).collect();
    frequent.sort_unstable_by(|one, other| other.cmp(one));
    assert_eq!(words.top_k(me, 12)?, frequent[..12]);
    // Keys that a called function inserts while the others settle.
    for to in me.workers() {
        me.call(to, words, |there, words| {
            there.call(there.neighbor(1), words, |there, words| words.insert(there, 7000))
        })?;
    }
    words.settle(me)?;
    assert_eq!(words.count(me, 7000)?.wait()?, u64::from(me.worker_count()).pow(2));
    me.barrier()?;
    words.free(me)
}
everywhere!(counts, super::keys_are_counted);

/// Items that are pushed while others still move theirs stay.
#[test]
fn items_pushed_meanwhile_stay() {
    for (processes, seed) in [(2, 1), (3, 2), (3, 3), (5, 4), (5, 5)] {
        farside::simulate(processes, 1, seed, |me| {
            let numbers = DistVec::new(me)?;
            numbers.with(me, |part| part.extend(items_of(me.id().number().into())));
            let mut oracle = items_of_all(me);
            for round in 0..20 {
                if round % 2 == 0 {
                    numbers.rebalance(me)?
                } else {
                    numbers.sort(me)?
                }
                numbers.push_to(me, me.neighbor(1), round)?;
                oracle.extend(me.workers().map(|_| round));
            }
            numbers.sort(me)?;
            oracle.sort_unstable();
            compare(me, numbers, &oracle)
        })
        .unwrap();
    }
}

/// Checks that the last worker returned its own error, and the others one that names it.
fn check_that_last_failed(me: &Worker, outcome: Result<()>) {
    let last = WorkerId::new(me.worker_count() - 1);
    let error = outcome.expect_err("the last worker cannot send");
    match error.room_error() {
        None => assert!(me.id() == last && matches!(error, Error::TooLarge { .. }), "{error}"),
        Some(ContainerError::Failed { at, .. }) => assert!(me.id() != last && *at == last, "{error}"),
        Some(_) => panic!("{error}"),
    }
}

/// If one worker cannot send, all workers fail, and can go on with what they have.
#[test]
fn a_worker_that_cannot_send_fails_all() {
    for (processes, seed) in [(2, 1), (3, 2), (5, 3)] {
        farside::simulate(processes, 1, seed, |me| {
            let last = WorkerId::new(me.worker_count() - 1);
            let too_long = || "x".repeat(5 << 20);
            // The last worker has most, and an item first that it cannot send.
            let texts = DistVec::new(me)?;
            let own = if me.id() == last { 300 } else { 10 };
            texts.with(me, |part| {
                part.extend((me.id() == last).then(too_long));
                part.extend((0..own).map(|x| format!("{x} of {}", me.id())));
            });
            let count = texts.len(me)?;
            check_that_last_failed(me, texts.rebalance(me));
            assert_eq!(texts.len(me)?, count);
            check_that_last_failed(me, texts.gather(me, WorkerId::FIRST).map(drop));
            texts.with(me, |part| part.retain(|text| text.len() < 100));
            texts.rebalance(me)?;
            texts.sort(me)?;
            let mut oracle: Vec<_> = me.workers().flat_map(|of| (0..10).map(move |x| format!("{x} of {of}"))).collect();
            oracle.extend((10..300).map(|x| format!("{x} of {last}")));
            oracle.sort_unstable();
            compare(me, texts, &oracle)?;

            let words = CountingSet::new(me)?;
            if me.id() == last {
                words.insert(me, too_long())?;
            }
            (0..100).try_for_each(|x| words.insert(me, x.to_string()))?;
            check_that_last_failed(me, words.settle(me));
            words.settle(me)?;
            assert_eq!(words.iter(me).all_count(me)?, 100);
            for x in 0..100 {
                assert_eq!(words.count(me, x.to_string())?.wait()?, u64::from(me.worker_count()), "{x}");
            }
            me.barrier()
        })
        .unwrap();
    }
}

/// When a process is lost while items move, each survivor keeps items, and no item is at two.
#[test]
fn a_loss_amid_a_sort_doubles_nothing() {
    const SURVIVORS: usize = 3;
    let dying = ProcessId::new(1);
    let mut met = 0;
    for seed in 1..=scaled(2) {
        let ends = Mutex::new(Vec::new());
        let after = Duration::from_micros(1300 + 37 * seed);
        let simulated = Simulation::new(SURVIVORS as u32 + 1, 1, seed).kill(dying, after).run(|me| {
            let numbers = DistVec::new(me)?;
            numbers.with(me, |part| part.extend((0..100).map(|x| (0, 100 * me.id().number() + x))));
            let outcome = (0..u32::MAX).try_for_each(|round| {
                // Keys by which most items move.
                let key = |item: u32| (item + 1).wrapping_mul(2 * round + 1).wrapping_mul(2_654_435_761);
                numbers.with(me, |part| part.iter_mut().for_each(|item| item.0 = key(item.1)));
                numbers.sort(me)
            });
            ends.lock().unwrap().push((outcome, numbers.with(me, std::mem::take)));
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err(), "the loss is the verdict");
        let ends = ends.into_inner().unwrap();
        met += ends.len();
        let mut all = Vec::new();
        for (outcome, items) in ends {
            assert!(matches!(outcome, Err(Error::PeerLost { process, .. }) if process == dying), "{outcome:?}");
            assert!(!items.is_empty(), "seed {seed}");
            all.extend(items.into_iter().map(|(_, item)| item));
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "seed {seed}: an item is at two workers");
    }
    assert!(met > SURVIVORS, "the loss is amid a sort");
}

/// Lets a wait of one worker fail: that in which `is_empty` is asked for the last time.
struct Failing {
    asks_left: Cell<u32>,
}

impl Batches for Failing {
    fn is_empty(&self) -> bool {
        let left = self.asks_left.get();
        self.asks_left.set(left.saturating_sub(1));
        left != 1
    }

    fn send(&self, _: &Worker) -> Result<()> {
        Err(Error::program("as planned"))
    }
}

/// Whenever a wait of one worker fails, each item stays at one worker, also if it comes late.
#[test]
fn a_wait_that_fails_loses_no_item() {
    const WORKERS: u32 = 3;
    let (mut failed, mut late) = (0, 0);
    for asks in 1..60 {
        let (kept, outcomes) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let simulation = Simulation::new(WORKERS, 1, asks.into()).deadline(Duration::from_millis(5));
        let simulated = simulation.run(|me| {
            let numbers = DistVec::new(me)?;
            let own = me.id().number();
            // Most items move, in several calls.
            numbers.with(me, |part| part.extend((0..40_u32).map(|x| [WORKERS * x + WORKERS - own; 700])));
            me.barrier()?;
            let failing: Rc<dyn Batches> = Rc::new(Failing { asks_left: Cell::new(if own == 1 { asks } else { 0 }) });
            me.look_after(&failing);
            let outcome = numbers.sort(me);
            let before = numbers.with(me, |part| part.len());
            let end = me.now() + Duration::from_millis(20);
            while me.now() < end {
                me.charge(Duration::from_millis(1));
                // Others may fail here, too.
                let _ = me.progress();
            }
            outcomes.lock().unwrap().push((outcome.is_ok(), numbers.with(me, |part| part.len()) - before));
            kept.lock().unwrap().extend(numbers.with(me, std::mem::take).into_iter().map(|item| item[0]));
            Ok(())
        });
        simulated.unwrap().verdict.unwrap();
        let (mut kept, outcomes) = (kept.into_inner().unwrap(), outcomes.into_inner().unwrap());
        kept.sort_unstable();
        assert!(kept.iter().copied().eq(1..=40 * WORKERS), "{asks}: {} items, {outcomes:?}", kept.len());
        failed += outcomes.iter().filter(|(is_ok, _)| !is_ok).count();
        late += outcomes.iter().map(|(_, late)| late).sum::<usize>();
    }
    assert!(failed > 0 && late > 0, "{failed} sorts failed, and {late} items came late");
}

/// An item that is too long for a call is no sample, so the others are sorted around it.
#[test]
fn one_long_item_stays_where_it_belongs() {
    for (workers, seed) in [(1, 1), (3, 2), (5, 3)] {
        farside::simulate(workers, 1, seed, |me| {
            let texts = DistVec::new(me)?;
            let own = me.id().number();
            // The last worker has it, and nothing else that could be a sample.
            let is_last = own + 1 == workers;
            texts.with(me, |part| match is_last {
                true => part.push("~".repeat(17 << 20)),
                false => part.extend((0..20).map(|x| format!("{:03}", x * workers + own))),
            });
            texts.sort(me)?;
            let lengths = me.all_gather(texts.with(me, |part| part.len() as u32))?;
            assert_eq!(lengths.iter().sum::<u32>(), 20 * (workers - 1) + 1);
            assert!(lengths.iter().all(|length| (1..=31).contains(length)), "{lengths:?}");
            assert_eq!(texts.with(me, |part| part.last().is_some_and(|text| text.len() > 3)), is_last);
            assert!(texts.with(me, |part| part.is_sorted()));
            me.barrier()
        })
        .unwrap();
    }
}

thread_local! {
    /// The number of comparisons on this thread until one panics.
    static COMPARISONS: Cell<u32> = const { Cell::new(0) };
}

#[derive(Clone, Debug, PartialEq, Eq, Wire)]
struct Touchy(u32);

impl PartialOrd for Touchy {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Touchy {
    fn cmp(&self, other: &Self) -> Ordering {
        COMPARISONS.set(COMPARISONS.get().wrapping_sub(1));
        assert_ne!(COMPARISONS.get(), 0, "as planned");
        self.0.cmp(&other.0)
    }
}

/// A panic in any comparison, or in the function of `with`, loses no item.
#[test]
fn a_panic_in_a_comparison_loses_no_item() {
    farside::simulate(1, 1, 1, |me| {
        let numbers = DistVec::new(me)?;
        let items = || (0..10).map(|x| Touchy(x * 7 % 10));
        let mut panics = 0;
        loop {
            numbers.with(me, |part| *part = items().collect());
            panics += 1;
            COMPARISONS.set(panics);
            let sorted = catch_unwind(AssertUnwindSafe(|| numbers.sort(me)));
            COMPARISONS.set(0);
            let mut kept: Vec<_> = numbers.with(me, |part| part.iter().map(|item| item.0).collect());
            kept.sort_unstable();
            assert!(kept.into_iter().eq(0..10), "after comparison {panics}");
            if let Ok(sorted) = sorted {
                break sorted?;
            }
        }
        assert!(panics > 20);
        let panicked = catch_unwind(AssertUnwindSafe(|| numbers.with(me, |_| panic!("as planned"))));
        assert!(panicked.is_err());
        assert_eq!(numbers.with(me, |part| part.len()), 10);
        me.barrier()
    })
    .unwrap();
}

/// After a loss each collective names it, and nothing hangs.
#[test]
fn a_loss_is_named() {
    let dying = ProcessId::new(1);
    for (processes, seed) in [(2, 1), (2, 2), (3, 3), (3, 4), (5, 5), (5, 6), (5, 7), (5, 8)] {
        let ends = Mutex::new(Vec::new());
        let simulated = Simulation::new(processes, 1, seed).kill(dying, Duration::from_millis(3)).run(|me| {
            let (numbers, words) = (DistVec::new(me)?, CountingSet::new(me)?);
            numbers.with(me, |part| part.extend(0..100_u32));
            (0..100_u32).try_for_each(|key| words.insert(me, key))?;
            if me.process() == dying {
                return me.wait_while_serving(|| false);
            }
            me.wait_while_serving(|| !me.lost_processes().is_empty())?;
            let outcome = match seed % 4 {
                0 => numbers.rebalance(me),
                1 => numbers.sort(me),
                2 => words.settle(me),
                _ => numbers.gather(me, WorkerId::FIRST).map(drop),
            };
            ends.lock().unwrap().push(outcome);
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err(), "the loss is the verdict");
        let ends = ends.into_inner().unwrap();
        assert_eq!(ends.len(), processes as usize - 1);
        for outcome in ends {
            assert!(matches!(outcome, Err(Error::PeerLost { process, .. }) if process == dying), "{outcome:?}");
        }
    }
}

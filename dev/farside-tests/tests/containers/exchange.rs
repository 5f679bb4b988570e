//! Exchanges: every item is handled once, at its owner, whatever happens on the way.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside::{Error, MakeArrays, PerWorker, ProcessId, Result, Simulation, Worker, WorkerId};
use farside_containers::{ContainerError, CountingSet, Exchange, Items, Query};
use farside_testbed::scaled;

use crate::everywhere;

/// The worker that owns an item.
fn owner(me: &Worker, x: u64) -> WorkerId {
    WorkerId::new((x % u64::from(me.worker_count())) as u32)
}

/// Items of all workers arrive once each, in batches of many sizes.
pub(crate) fn every_item_arrives_once(me: &Worker) -> Result<()> {
    const ITEMS: u64 = 150;
    for batch_bytes in [0, 1, 100, 1 << 20, usize::MAX] {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let part = seen.clone();
        let exchange = Exchange::with_batches_of(me, batch_bytes, move |_, items: Items<'_, (u32, u64)>| {
            part.borrow_mut().extend(items);
        })?;
        let sender = exchange.on(me);
        for x in 0..ITEMS {
            sender.push(owner(me, x), (me.id().number(), x))?;
        }
        me.quiesce()?;
        let mut seen = seen.take();
        seen.sort_unstable();
        let own = (0..ITEMS).filter(|x| owner(me, *x) == me.id());
        let all: Vec<_> = me.workers().flat_map(|from| own.clone().map(move |x| (from.number(), x))).collect();
        assert_eq!(seen, all, "batches of {batch_bytes} bytes");
        me.barrier()?;
    }
    Ok(())
}
everywhere!(every_item, super::every_item_arrives_once, crate::simulated_in_a_grid);

/// Exchanges may be made again and again. Each keeps its memory only until it is freed.
fn exchanges_come_and_go(me: &Worker) -> Result<()> {
    for round in 0..8 {
        let seen = Rc::new(Cell::new(0_u64));
        let part = seen.clone();
        let exchange = Exchange::new(me, move |_, items: Items<'_, u64>| part.set(part.get() + items.sum::<u64>()))?;
        for to in me.workers() {
            exchange.on(me).push(to, round)?;
        }
        exchange.free(me)?;
        assert_eq!(seen.get(), round * u64::from(me.worker_count()));
        assert_eq!(Rc::strong_count(&seen), 1, "the function is dropped");
    }
    me.barrier()
}
everywhere!(come_and_go, super::exchanges_come_and_go, crate::simulated_in_a_grid);

#[test]
fn a_freed_exchange_is_refused() {
    farside::simulate(2, 1, 1, |me| {
        let exchange = Exchange::new(me, |_, items: Items<'_, u64>| items.for_each(drop))?;
        exchange.free(me)?;
        let freed = |used: farside::Result<()>| {
            assert_eq!(used.unwrap_err().room_error(), Some(&ContainerError::Gone));
        };
        freed(exchange.on(me).push(me.id(), 1));
        freed(exchange.on(me).flush());
        freed(exchange.free(me));
        let query = Query::new(me, |_, word: u32| word, |_, _, _: u32| ())?;
        query.free(me)?;
        freed(query.on(me).ask(me.id(), 0, 1));
        freed(query.on(me).flush());
        freed(query.free(me));
        let words = CountingSet::new(me)?;
        words.insert(me, 1_u32)?;
        words.free(me)?;
        freed(words.insert(me, 1));
        freed(words.settle(me));
        freed(words.count(me, 1).map(drop));
        freed(words.top_k(me, 1).map(drop));
        freed(words.free(me));
        assert!(catch_unwind(AssertUnwindSafe(|| words.iter(me).count())).is_err());
        me.barrier()
    })
    .unwrap();
}

/// Items of any size and with parts elsewhere in memory travel like others.
fn items_may_be_strings(me: &Worker) -> Result<()> {
    let sum = Rc::new(Cell::new(0));
    let part = sum.clone();
    let exchange = Exchange::new(me, move |_, items: Items<'_, String>| {
        items.for_each(|item| part.set(part.get() + item.len() as u64));
    })?;
    let sender = exchange.on(me);
    let lengths = [0, 1, 7, 9_000, 3, 100_000, 5];
    for length in lengths {
        for distance in 0..4 {
            sender.push(me.neighbor(distance), "x".repeat(length))?;
        }
    }
    me.quiesce()?;
    assert_eq!(sum.get(), 4 * lengths.iter().sum::<usize>() as u64);
    me.barrier()
}
everywhere!(strings, super::items_may_be_strings, crate::simulated_in_a_grid);

/// The function of an exchange may push: each item makes two smaller ones, elsewhere.
fn items_make_items(me: &Worker) -> Result<()> {
    const DEPTH: u32 = 9;
    let count = Rc::new(Cell::new(0_u64));
    let handle = Rc::new(Cell::new(None::<Exchange<(u64, u32)>>));
    let (part, own) = (count.clone(), handle.clone());
    let exchange = Exchange::new(me, move |there, items: Items<'_, (u64, u32)>| {
        let sender = own.get().expect("set before the first item").on(there);
        for (place, depth) in items {
            part.set(part.get() + 1);
            for branch in [1, 2].into_iter().filter(|_| depth > 0) {
                let place = 3 * place + branch;
                sender.push(owner(there, place), (place, depth - 1)).unwrap();
            }
        }
    })?;
    handle.set(Some(exchange));
    me.barrier()?;
    if me.id() == WorkerId::new(0) {
        exchange.on(me).push(owner(me, 5), (5, DEPTH))?;
    }
    me.quiesce()?;
    assert_eq!(me.all_reduce(count.get(), |a, b| a + b)?, (1 << (DEPTH + 1)) - 1);
    me.barrier()
}
everywhere!(trees, super::items_make_items, crate::simulated_in_a_grid);

/// One item goes out although its batch is not full and nothing is flushed: a worker that waits
/// sends it, also one between.
fn one_item_does_not_wait_for_others(me: &Worker) -> Result<()> {
    let (first, last) = (WorkerId::new(0), WorkerId::new(me.worker_count() - 1));
    let got = Rc::new(Cell::new(0));
    let part = got.clone();
    let exchange = Exchange::new(me, move |_, items: Items<'_, u64>| items.for_each(|x| part.set(part.get() + x)))?;
    if me.id() == last {
        exchange.on(me).push(first, 7)?;
    }
    if me.id() == first {
        me.wait_while_serving(|| got.get() == 7)?;
        exchange.on(me).push(last, 8)?;
    }
    if me.id() == last {
        let expected = if first == last { 15 } else { 8 };
        me.wait_while_serving(|| got.get() == expected)?;
    }
    me.barrier()
}
everywhere!(one_item, super::one_item_does_not_wait_for_others, crate::simulated_in_a_grid);

/// Items that were pushed and not waited for are handled before the job ends, and so are those
/// that they make.
#[test]
fn the_end_of_the_job_waits_for_items() {
    for workers in [2, 5, 70] {
        let seen = Arc::new(AtomicU64::new(0));
        farside::simulate(workers, 1, 7, |me| {
            let (seen, handle) = (seen.clone(), Rc::new(Cell::new(None::<Exchange<u64>>)));
            let own = handle.clone();
            let exchange = Exchange::new(me, move |there, items: Items<'_, u64>| {
                seen.fetch_add(items.len() as u64, Ordering::Relaxed);
                for x in items.filter(|x| *x > 0) {
                    own.get().expect("set before the first item").on(there).push(owner(there, 3 * x), x - 1).unwrap();
                }
            })?;
            handle.set(Some(exchange));
            me.barrier()?;
            me.workers().try_for_each(|to| exchange.on(me).push(to, 4))
        })
        .unwrap();
        assert_eq!(seen.load(Ordering::Relaxed), 5 * u64::from(workers) * u64::from(workers));
    }
}

/// Items without a size are counted like others.
fn items_may_be_empty(me: &Worker) -> Result<()> {
    let count = Rc::new(Cell::new(0_u64));
    let part = count.clone();
    let exchange = Exchange::new(me, move |_, items: Items<'_, ()>| part.set(part.get() + items.len() as u64))?;
    for x in 0..20_000 {
        exchange.on(me).push(owner(me, x), ())?;
    }
    me.quiesce()?;
    assert_eq!(me.all_reduce(count.get(), |a, b| a + b)?, 20_000 * u64::from(me.worker_count()));
    me.barrier()
}
everywhere!(empty, super::items_may_be_empty, crate::simulated_in_a_grid);

/// A worker that makes progress and never waits sends its batches, too.
fn progress_is_enough(me: &Worker) -> Result<()> {
    let got = Rc::new(Cell::new(0_u32));
    let part = got.clone();
    let exchange = Exchange::new(me, move |_, items: Items<'_, u8>| part.set(part.get() + items.len() as u32))?;
    me.workers().try_for_each(|to| exchange.on(me).push(to, 1))?;
    // Processes have a time limit. A simulation ends after this virtual time.
    let begun = me.now();
    while got.get() < me.worker_count() {
        me.progress()?;
        assert!(me.now() - begun < Duration::from_secs(600), "{} items have arrived", got.get());
    }
    me.barrier()
}
everywhere!(progress, super::progress_is_enough, crate::simulated_in_a_grid);

/// An item that no record can hold is refused once. What is pushed later arrives.
fn an_item_without_end_is_refused(me: &Worker) -> Result<()> {
    let bytes = Rc::new(Cell::new(0));
    let part = bytes.clone();
    let exchange = Exchange::new(me, move |_, items: Items<'_, String>| {
        items.for_each(|item| part.set(part.get() + item.len()));
    })?;
    let (sender, next) = (exchange.on(me), me.neighbor(1));
    sender.push(next, "before".to_owned())?;
    let refused = sender.push(next, "x".repeat(64 << 20));
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    sender.push(next, "after".to_owned())?;
    me.quiesce()?;
    assert_eq!(bytes.get(), "beforeafter".len());
    me.barrier()
}

#[farside::test(processes = 2, threads = 1, timeout_s = 600)]
fn too_long_items(me: &Worker) -> Result<()> {
    an_item_without_end_is_refused(me)
}

/// A flood into a worker that does not serve yet arrives whole.
fn a_flood_waits_for_its_receiver(me: &Worker) -> Result<()> {
    const ITEMS: u64 = 200_000;
    /// The items of each sender that need no receiver.
    const AHEAD: u64 = 500;
    let pushed = me.global_array::<u64>(me.worker_count() as usize)?;
    me.barrier()?;
    let sum = Rc::new(Cell::new(0_u64));
    let part = sum.clone();
    let exchange = Exchange::new(me, move |_, items: Items<'_, [u64; 4]>| {
        items.for_each(|item| part.set(part.get() + item[3]));
    })?;
    let last = WorkerId::new(me.worker_count() - 1);
    if me.id() == last {
        for of in 0..me.worker_count() as usize - 1 {
            while pushed.get(me, of)? < AHEAD {
                std::thread::yield_now();
            }
        }
    } else {
        let sender = exchange.on(me);
        for x in 0..ITEMS {
            sender.push(last, [0, 0, 0, x % 2])?;
            if x <= AHEAD {
                pushed.put(me, me.id().index(), x)?;
            }
        }
    }
    me.quiesce()?;
    let expected = if me.id() == last { u64::from(me.worker_count() - 1) * ITEMS / 2 } else { 0 };
    assert_eq!(sum.get(), expected);
    me.barrier()
}

#[farside::test(processes = 3, threads = 1, timeout_s = 600)]
fn floods_wait(me: &Worker) -> Result<()> {
    a_flood_waits_for_its_receiver(me)
}

/// A send that waits for room returns errors of calls that run meanwhile. Its batch is sent later.
#[test]
fn errors_of_others_drop_no_batch() {
    const ITEMS: u64 = 60_000;
    const FAILURES: u32 = 100;
    for seed in 1..4 {
        farside::simulate(2, 1, seed, |me| {
            let failures = PerWorker::new(me, Cell::new(0_u32))?;
            let fail = move |there: &Worker, to: WorkerId| {
                there.call(to, failures, |me, failures| {
                    failures.here(me).set(failures.here(me).get() + 1);
                    Err::<(), _>("of no concern")
                })
            };
            let sum = Rc::new(Cell::new(0_u64));
            let (part, made) = (sum.clone(), Cell::new(0));
            let exchange = Exchange::new(me, move |there, items: Items<'_, [u64; 4]>| {
                items.for_each(|item| part.set(part.get() + item[3]));
                there.charge(Duration::from_micros(20));
                if made.get() < FAILURES {
                    made.set(made.get() + 1);
                    fail(there, WorkerId::FIRST).unwrap();
                }
            })?;
            if !me.is_first() {
                return me.wait_while_serving(|| sum.get() == ITEMS);
            }
            let concerns = |outcome: Result<()>| match outcome {
                Err(Error::HandlerFailed { .. }) => Ok(()),
                other => other,
            };
            let sender = exchange.on(me);
            (0..ITEMS).try_for_each(|_| concerns(sender.push(me.neighbor(1), [0, 0, 0, 1])))?;
            while failures.here(me).get() < FAILURES {
                concerns(me.wait_while_serving(|| failures.here(me).get() == FAILURES))?;
            }
            Ok(())
        })
        .unwrap();
    }
}

/// After a loss, items for the lost process are dropped, and `quiesce` names it. Those for others
/// arrive.
#[test]
fn a_loss_is_named_and_nothing_hangs() {
    let dying = ProcessId::new(3);
    for (processes, seed) in [(4, 1), (4, 2), (5, 3), (70, 4)] {
        let ends = Mutex::new(Vec::new());
        let simulated = Simulation::new(processes, 1, seed).kill(dying, Duration::from_millis(3)).run(|me| {
            let sum = Rc::new(Cell::new(0_u64));
            let part = sum.clone();
            let exchange =
                Exchange::new(me, move |_, items: Items<'_, u64>| part.set(part.get() + items.sum::<u64>()))?;
            if me.process() == dying {
                return me.wait_while_serving(|| false);
            }
            me.wait_while_serving(|| !me.lost_processes().is_empty())?;
            let sender = exchange.on(me);
            let mut others = Vec::new();
            for x in 0..10_000 {
                match sender.push(owner(me, x), 1) {
                    Ok(()) => {}
                    Err(Error::PeerLost { process, .. }) if process == dying => {}
                    other => others.push(other),
                }
            }
            let quiesced = me.quiesce();
            // Processes that have not failed still get items of each other.
            let all = 10_000 / u64::from(processes) * u64::from(processes - 1);
            let arrived = me.wait_while_serving(|| processes > 64 || sum.get() >= all);
            ends.lock().unwrap().push((others, quiesced, arrived));
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err(), "the loss is the verdict");
        let ends = ends.into_inner().unwrap();
        assert_eq!(ends.len(), processes as usize - 1);
        for (others, quiesced, arrived) in ends {
            assert!(others.is_empty(), "{others:?}");
            assert!(matches!(quiesced, Err(Error::PeerLost { process, .. }) if process == dying), "{quiesced:?}");
            arrived.unwrap();
        }
    }
}

/// A worker that does not exist is named, in small jobs and in a grid.
#[test]
fn an_unknown_worker_is_an_error() {
    for workers in [1, 2, 70] {
        farside::simulate(workers, 1, 1, |me| {
            let exchange = Exchange::new(me, |_, items: Items<'_, u64>| drop(items))?;
            for unknown in [workers, workers + 1, u32::MAX] {
                let outcome = exchange.on(me).push(WorkerId::new(unknown), 1);
                assert!(matches!(outcome, Err(Error::UnknownWorker { worker, .. }) if worker.number() == unknown));
            }
            me.quiesce()
        })
        .unwrap();
    }
}

/// All items arrive among many workers.
#[test]
fn many_workers() {
    const ITEMS: u32 = 30;
    farside::simulate(100, 1, 1, |me| {
        let sum = Rc::new(Cell::new(0_u64));
        let part = sum.clone();
        let exchange = Exchange::new(me, move |_, items: Items<'_, u64>| part.set(part.get() + items.sum::<u64>()))?;
        let sender = exchange.on(me);
        for item in 1..=ITEMS {
            sender.push(me.neighbor(item * me.worker_count() / ITEMS), 1)?;
        }
        me.quiesce()?;
        assert_eq!(sum.get(), u64::from(ITEMS));
        me.barrier()
    })
    .unwrap();
}

/// A function that fails ends the job, whether or not its items pass another worker.
#[test]
fn a_function_that_panics_ends_the_job() {
    for workers in [3, 70] {
        let ended = farside::simulate(workers, 1, 1, |me| {
            let exchange = Exchange::new(me, |_, _: Items<'_, u64>| panic!("as planned"))?;
            if me.id().number() == workers - 1 {
                exchange.on(me).push(WorkerId::new(1), 7)?;
            }
            me.quiesce()
        });
        let error = ended.unwrap_err().to_string();
        assert!(error.contains("as planned"), "{workers} workers: {error}");
    }
}

/// Items for a worker that computes wait at their senders, also if they go over a worker between,
/// which serves: it keeps few of them.
#[test]
fn a_worker_between_keeps_few_items() {
    const BATCH_BYTES: usize = 512;
    const ITEMS: u64 = 1200;
    for workers in [70, 90].into_iter().take(scaled(1) as usize) {
        let (pushed, handled) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
        farside::simulate(workers, 1, 1, |me| {
            let last = WorkerId::new(workers - 1);
            let count = handled.clone();
            let exchange = Exchange::with_batches_of(me, BATCH_BYTES, move |_, items: Items<'_, u64>| {
                count.fetch_add(items.len() as u64, Ordering::Relaxed);
            })?;
            if me.id() == last {
                me.charge(Duration::from_millis(50));
                let kept = pushed.load(Ordering::Relaxed) - handled.load(Ordering::Relaxed);
                // Each sender has a batch, and two that are not answered. About √P workers between
                // have passed on two for each of √P rows.
                let batches = u64::from(3 * workers + 3 * (workers + workers.isqrt()));
                let most = batches * BATCH_BYTES as u64 / size_of::<u64>() as u64;
                assert!(kept <= most, "{kept} items are on their way, more than {most}");
                assert!(kept > most / 10, "{kept} items are on their way: the senders did not come far");
            } else {
                let sender = exchange.on(me);
                for x in 0..ITEMS {
                    sender.push(last, x)?;
                    pushed.fetch_add(1, Ordering::Relaxed);
                }
            }
            me.quiesce()?;
            assert_eq!(handled.load(Ordering::Relaxed), ITEMS * u64::from(workers - 1));
            exchange.free(me)
        })
        .unwrap();
    }
}

/// At 1024 workers, each with items for all, the whole simulated job has less than 4 MiB a worker:
/// batches, rings, and all else. The memory is that of the whole process, so this test must not run
/// next to others of this program.
fn a_thousand_workers_have_bounded_buffers() {
    const WORKERS: u32 = 1024;
    const ITEMS: u32 = 16_384;
    const BYTES_MAX: u64 = 4 << 20;
    let sum = Arc::new(AtomicU64::new(0));
    farside::simulate(WORKERS, 1, 1, |me| {
        let part = sum.clone();
        let exchange = Exchange::new(me, move |_, items: Items<'_, u64>| {
            part.fetch_add(items.sum::<u64>(), Ordering::Relaxed);
        })?;
        let sender = exchange.on(me);
        for item in 0..ITEMS {
            sender.push(me.neighbor(item), u64::from(item))?;
        }
        drop(sender);
        exchange.free(me)
    })
    .unwrap();
    assert_eq!(sum.load(Ordering::Relaxed), u64::from(WORKERS) * (0..u64::from(ITEMS)).sum::<u64>());
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line with the peak");
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    let bytes = peak * 1024 / u64::from(WORKERS);
    eprintln!("{} KiB a worker", bytes / 1024);
    assert!(bytes <= BYTES_MAX, "{bytes} bytes a worker");
}

mod deep {
    mod thousands {
        #[test]
        fn workers_have_bounded_buffers() {
            super::super::a_thousand_workers_have_bounded_buffers();
        }
    }
}

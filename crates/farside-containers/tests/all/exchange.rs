//! Exchanges: every item is handled once, at its owner, whatever happens on the way.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use std::vec::Drain;

use farside::{Error, ProcessId, Result, Worker, WorkerId};
use farside_containers::Exchange;

use crate::{everywhere, simulation};

/// The worker that owns an item.
fn owner(me: &Worker, x: u64) -> WorkerId {
    WorkerId::new((x % u64::from(me.worker_count())) as u32)
}

/// Items of all workers arrive once each, in batches of many sizes.
fn every_item_arrives_once(me: &Worker) -> Result<()> {
    const ITEMS: u64 = 500;
    for batch_bytes in [0, 1, 100, 1 << 20] {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let part = seen.clone();
        let exchange = Exchange::with_batches_of(me, batch_bytes, move |_, items: Drain<'_, (u32, u64)>| {
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
everywhere!(every_item, super::every_item_arrives_once);

/// Items of any size and with parts elsewhere in memory travel like others.
fn items_may_be_strings(me: &Worker) -> Result<()> {
    let sum = Rc::new(Cell::new(0));
    let part = sum.clone();
    let exchange = Exchange::new(me, move |_, items: Drain<'_, String>| {
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
everywhere!(strings, super::items_may_be_strings);

/// The function of an exchange may push: each item makes two smaller ones, elsewhere.
fn items_make_items(me: &Worker) -> Result<()> {
    const DEPTH: u32 = 9;
    let count = Rc::new(Cell::new(0_u64));
    let handle = Rc::new(Cell::new(None::<Exchange<(u64, u32)>>));
    let (part, own) = (count.clone(), handle.clone());
    let exchange = Exchange::new(me, move |there, items: Drain<'_, (u64, u32)>| {
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
everywhere!(trees, super::items_make_items);

/// One item goes out although its batch is not full and nothing is flushed: a worker that waits
/// sends it, also one between.
fn one_item_does_not_wait_for_others(me: &Worker) -> Result<()> {
    let (first, last) = (WorkerId::new(0), WorkerId::new(me.worker_count() - 1));
    let got = Rc::new(Cell::new(0));
    let part = got.clone();
    let exchange = Exchange::new(me, move |_, items: Drain<'_, u64>| items.for_each(|x| part.set(part.get() + x)))?;
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
everywhere!(one_item, super::one_item_does_not_wait_for_others);

/// Items that were pushed and not waited for are handled before the job ends.
fn the_end_of_the_job_waits_for_items(me: &Worker) -> Result<()> {
    thread_local!(static SEEN: Cell<u64> = const { Cell::new(0) });
    let exchange = Exchange::new(me, |there, items: Drain<'_, u64>| {
        SEEN.set(SEEN.get() + items.count() as u64);
        let all = 10 * u64::from(there.worker_count());
        assert!(SEEN.get() <= all);
        if SEEN.get() == all {
            // What comes last may make more.
            there.call(there.neighbor(1), (), |_, ()| ()).unwrap();
        }
    })?;
    for x in 0..10 {
        me.workers().try_for_each(|to| exchange.on(me).push(to, x))?;
    }
    Ok(())
}
everywhere!(end, super::the_end_of_the_job_waits_for_items);

/// A flood into a worker that does not serve stays bounded and arrives whole.
fn a_flood_waits_for_its_receiver(me: &Worker) -> Result<()> {
    const ITEMS: u64 = 200_000;
    let sum = Rc::new(Cell::new(0_u64));
    let part = sum.clone();
    let exchange = Exchange::new(me, move |_, items: Drain<'_, [u64; 4]>| {
        items.for_each(|item| part.set(part.get() + item[3]));
    })?;
    let last = WorkerId::new(me.worker_count() - 1);
    if me.id() == last {
        std::thread::sleep(Duration::from_millis(200));
    } else {
        let sender = exchange.on(me);
        (0..ITEMS).try_for_each(|x| sender.push(last, [0, 0, 0, x % 2]))?;
    }
    me.quiesce()?;
    let expected = if me.id() == last { u64::from(me.worker_count() - 1) * ITEMS / 2 } else { 0 };
    assert_eq!(sum.get(), expected);
    me.barrier()
}

#[farside::test(processes = 3, threads = 1)]
fn floods_wait(me: &Worker) -> Result<()> {
    a_flood_waits_for_its_receiver(me)
}

/// After a loss, items for the lost process are dropped, and `quiesce` names it.
#[test]
fn a_loss_is_named_and_nothing_hangs() {
    let dying = ProcessId::new(3);
    for (processes, seed) in [(4, 1), (4, 2), (5, 3), (70, 4)] {
        let simulated = simulation(processes, seed).kill(dying, Duration::from_millis(3)).run(|me| {
            let exchange = Exchange::new(me, |_, items: Drain<'_, u64>| drop(items))?;
            if me.process() == dying {
                return me.wait_while_serving(|| false);
            }
            me.wait_while_serving(|| !me.lost_processes().is_empty())?;
            let sender = exchange.on(me);
            for x in 0..10_000 {
                match sender.push(owner(me, x), x) {
                    Ok(()) => {}
                    Err(Error::PeerLost { process, .. }) => assert_eq!(process, dying),
                    Err(error) => return Err(error),
                }
            }
            let outcome = me.quiesce();
            assert!(matches!(outcome, Err(Error::PeerLost { process, .. }) if process == dying), "{outcome:?}");
            Ok(())
        });
        let survivors = simulated.unwrap().verdict;
        assert!(survivors.is_err(), "the loss is the verdict");
    }
}

/// A worker that does not exist is named, in small jobs and in a grid.
#[test]
fn an_unknown_worker_is_an_error() {
    for workers in [1, 2, 70] {
        farside::simulate(workers, 1, 1, |me| {
            let exchange = Exchange::new(me, |_, items: Drain<'_, u64>| drop(items))?;
            for unknown in [workers, workers + 1, u32::MAX] {
                let outcome = exchange.on(me).push(WorkerId::new(unknown), 1);
                assert!(matches!(outcome, Err(Error::UnknownWorker { worker, .. }) if worker.number() == unknown));
            }
            me.quiesce()
        })
        .unwrap();
    }
}

/// Many workers have few batches, and all items arrive.
#[test]
fn many_workers() {
    const ITEMS: u32 = 30;
    farside::simulate(200, 1, 1, |me| {
        let sum = Rc::new(Cell::new(0_u64));
        let part = sum.clone();
        let exchange = Exchange::new(me, move |_, items: Drain<'_, u64>| part.set(part.get() + items.sum::<u64>()))?;
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

//! Queues whose pushes are slow, fail or time out.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use farside::{AccessConflict, Error, LogGp, PerWorker, ProcessId, Result, SimOptions, Simulation, Worker, WorkerId};
use farside_containers::BrokenPromise;
use farside_containers::queue::{Ends, Queue, QueueError};
use farside_containers::{Implementation, Op, Promise};
use farside_testbed::{limit, scaled};

use super::{Entry, entry};

const MICROSECOND: Duration = Duration::from_micros(1);
const HOST: ProcessId = ProcessId::new(0);

/// Pops items until `is_done` says so and the queue is empty, and counts how often each came. Works
/// for `pause` after each look.
fn pop_until(
    me: &Worker,
    ends: &Ends<'_, Entry>,
    pause: Duration,
    is_done: impl Fn(u64) -> bool,
) -> Result<BTreeMap<Entry, u64>> {
    let (mut popped, end) = (BTreeMap::new(), me.now() + limit());
    while !is_done(popped.values().sum()) || !ends.is_empty()? {
        if let Some(item) = ends.pop()? {
            *popped.entry(item).or_default() += 1;
        }
        me.charge(pause);
        me.progress()?;
        assert!(me.now() < end, "stuck with {:?} after {popped:?}", ends.len());
    }
    Ok(popped)
}

/// The slots hold the same words lap after lap, until another item comes into the slot of an item
/// that was just popped. No piece of the popped item arrives late and spoils the other one.
#[test]
fn late_pieces_of_equal_items_spoil_no_other() {
    const EACH: usize = 100;
    let [usual, other] = [[u64::MAX; 3], [1_u64; 3]];
    for seed in 0..4 {
        let options = SimOptions { delay_max_ns: 1 << 20, ..SimOptions::default() };
        let simulated = Simulation::new(2, 1, seed).options(options).run(|me| {
            // With four slots, the fifth item is in the slot of the first.
            let queue = Queue::with_implementation(me, HOST, 1, Implementation::Checksum)?;
            let ends = queue.on(me);
            let push = |item| -> Result<()> {
                while ends.push(item)?.is_err() {
                    me.progress()?;
                }
                Ok(())
            };
            me.barrier()?;
            if !me.is_first() {
                (0..EACH).try_for_each(|_| push(usual))?;
            } else {
                let end = me.now() + limit();
                let (mut pushed, mut popped) = (EACH, 0);
                while popped < pushed {
                    assert!(me.now() < end, "stuck with {:?} after {popped} of {pushed}", ends.len());
                    me.charge(MICROSECOND);
                    me.progress()?;
                    if ends.pop()?.is_none() {
                        continue;
                    }
                    popped += 1;
                    if pushed == 5 * EACH {
                        continue;
                    }
                    for item in [usual, usual, usual, other] {
                        // The other worker may be quicker.
                        while ends.push(item)?.is_err() {
                            popped += usize::from(ends.pop()?.is_some());
                            me.progress()?;
                        }
                        popped += usize::from(item == usual && ends.pop()?.is_some());
                    }
                    pushed += 4;
                    me.charge(2000 * MICROSECOND);
                }
            }
            me.barrier()?;
            queue.free(me)
        });
        simulated.unwrap().verdict.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// The requests of some pushes for a place take longer than the deadline. These pushes fail and do
/// not know whether they have a place. Pops pass such places, and what others push comes once.
#[test]
fn a_push_that_times_out_blocks_no_other() {
    for implementation in [Implementation::OneSided, Implementation::Checksum] {
        for (seed, items) in [(1, 1), (2, 3)] {
            let network = LogGp { word_ns: 4_000_000, ..LogGp::IDEAL };
            let options = SimOptions { network, ..SimOptions::default() };
            let (pushed, failed) = (Mutex::new(Vec::new()), Mutex::new(0));
            let deadline = Duration::from_millis(10);
            let simulated = Simulation::new(7, 1, seed).options(options).deadline(deadline).run(|me| {
                let queue = Queue::with_implementation(me, HOST, 50 * items, implementation)?;
                let done = PerWorker::new(me, Cell::new(0_u32))?;
                let (ends, own) = (queue.on(me), me.id().number());
                me.barrier()?;
                if me.is_first() {
                    let popped = pop_until(me, &ends, 500 * MICROSECOND, |_| done.here(me).get() == 6)?;
                    let expected: BTreeMap<_, _> = pushed.lock().unwrap().iter().map(|item| (*item, 1)).collect();
                    assert_eq!(popped, expected, "{implementation:?}");
                    let (retired, failed) = (ends.retired_slots()?, *failed.lock().unwrap() * items);
                    assert!(0 < retired && retired <= failed, "{retired} slots after {failed} items");
                    let end = |worker| me.call(worker, done, |there, done| done.here(there).set(7));
                    return Ok(me.workers().try_for_each(end)?);
                }
                let start = me.now();
                // In the second round all push at the same time, else one after the other.
                for (round, stagger) in [60, 0, 60, 60].into_iter().enumerate() {
                    let turn = start + Duration::from_millis(400 * round as u64 + stagger * u64::from(own));
                    while me.now() < turn {
                        me.charge(Duration::from_millis(1));
                        me.progress()?;
                    }
                    let batch: Vec<_> = (0..items).map(|number| entry(own, round as u64 * items + number)).collect();
                    match ends.push_all(&batch) {
                        Ok(count) => pushed.lock().unwrap().extend_from_slice(&batch[..count as usize]),
                        Err(Error::Fabric(_) | Error::Deadline { .. }) if round == 1 => *failed.lock().unwrap() += 1,
                        Err(error) => return Err(error),
                    }
                }
                me.call(WorkerId::FIRST, done, |there, done| done.here(there).set(done.here(there).get() + 1))?;
                let end = me.now() + limit();
                while done.here(me).get() != 7 && me.now() < end {
                    me.charge(Duration::from_millis(1));
                    me.progress()?;
                }
                Ok(())
            });
            simulated.unwrap().verdict.unwrap_or_else(|error| panic!("{implementation:?}: {error}"));
        }
    }
}

/// Pushes an item, and lets the wait for its arrival fail. Seldom there is no wait.
fn fail_a_push(me: &Worker, ends: &Ends<'_, Entry>, item: Entry) -> Result<()> {
    loop {
        me.call(me.id(), (), |_, ()| Err::<(), _>("as planned"))?;
        let pushed = match ends.push(item) {
            Err(Error::HandlerFailed { .. }) => return Ok(()),
            other => other,
        };
        assert!(matches!(me.wait_while_serving(|| false), Err(Error::HandlerFailed { .. })));
        if pushed?.is_ok() {
            return Ok(());
        }
    }
}

/// A push fails while its item is on its way. The item comes late, is popped, and a pusher has the
/// next ticket of the slot when the push that failed retires it. What that pusher brings is popped.
#[test]
fn a_slot_retired_late_loses_no_item() {
    for seed in 0..scaled(15) {
        let options = SimOptions { delay_max_ns: 1 << 17, ..SimOptions::default() };
        let simulated = Simulation::new(3, 1, seed).options(options).run(|me| {
            let queue = Queue::with_implementation(me, HOST, 1, Implementation::OneSided)?;
            let done = PerWorker::new(me, Cell::new(0_u32))?;
            let (ends, own) = (queue.on(me), me.id().number());
            if me.is_first() {
                let popped = pop_until(me, &ends, MICROSECOND, |_| done.here(me).get() == 2)?;
                assert!(popped.values().all(|count| *count == 1), "{popped:?}");
                let of_second = popped.keys().filter(|item| item[0] == 2).map(|item| item[1]);
                assert!(of_second.eq(0..30), "{popped:?}");
            } else {
                for number in 0..30 {
                    if own == 1 && number == 10 {
                        fail_a_push(me, &ends, entry(own, number))?;
                        break;
                    }
                    while ends.push(entry(own, number))?.is_err() {
                        me.progress()?;
                    }
                }
                me.call(WorkerId::FIRST, done, |there, done| done.here(there).set(done.here(there).get() + 1))?;
            }
            me.barrier()?;
            queue.free(me)
        });
        simulated.unwrap().verdict.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// Pushes that fail use slots up. When none is left, a push says so, and a resize makes new ones.
#[test]
fn a_queue_without_slots_says_so() {
    farside::simulate(2, 1, 3, |me| {
        let queue = Queue::with_implementation(me, HOST, 4, Implementation::OneSided)?;
        let ends = queue.on(me);
        if !me.is_first() {
            let end = me.now() + limit();
            let slots = loop {
                if let Err(error) = fail_a_push(me, &ends, entry(1, 0)) {
                    break error.room_error::<QueueError>().copied();
                }
                ends.pop_many(9)?;
                assert!(me.now() < end, "{:?} slots are retired", ends.retired_slots());
            };
            assert_eq!(slots, Some(QueueError::WornOut { slots: ends.retired_slots()? }));
        }
        me.barrier()?;
        queue.resize(me, 4)?;
        assert_eq!(ends.retired_slots()?, 0);
        me.barrier()?;
        assert_eq!(ends.push(entry(me.id().number(), 1))?, Ok(()));
        me.barrier()?;
        assert_eq!(ends.len()?, 2);
        me.barrier()?;
        queue.free(me)
    })
    .unwrap();
}

/// The operation of one worker on a queue. Its number varies.
type Use = fn(&Ends<'_, u64>, u64) -> Result<()>;

/// One worker relies on a promise, and another one does at the same time what it excludes. Where
/// accesses are checked, one of them gets an error that names both places.
#[test]
fn a_broken_promise_names_both_places() {
    let push: Use = |ends, number| ends.push(number).map(drop);
    let pop: Use = |ends, _| ends.pop().map(drop);
    let pop_only: Use = |ends, _| ends.pop_with(Promise::POP_ONLY).map(drop);
    let push_only: Use = |ends, number| ends.push_with(Promise::PUSH_ONLY, number).map(drop);
    let local: Use = |ends, number| match number % 2 {
        0 => ends.push_with(Promise::LOCAL, number).map(drop),
        _ => ends.pop_with(Promise::LOCAL).map(drop),
    };
    let cases = [
        (Promise::POP_ONLY, pop_only, push, Op::Push),
        (Promise::PUSH_ONLY, push_only, pop, Op::Pop),
        (Promise::LOCAL, local, push, Op::Push),
        (Promise::LOCAL, local, pop, Op::Pop),
    ];
    for (case, (promise, relying, breaking, op)) in cases.into_iter().enumerate() {
        let mut told = 0;
        for seed in 0..8 {
            let implementation = super::ALL[seed as usize % super::ALL.len()];
            let found = Mutex::new(None);
            let simulated = Simulation::new(3, 1, seed).check_accesses(true).run(|me| {
                let queue = Queue::<u64>::with_implementation(me, HOST, 100, implementation)?;
                let ends = queue.on(me);
                me.barrier()?;
                for number in 0..20 {
                    let outcome = match me.id().number() {
                        0 => relying(&ends, number),
                        1 => breaking(&ends, number),
                        _ => Ok(()),
                    };
                    if let Err(error) = outcome {
                        let broken = error.room_error::<BrokenPromise>();
                        // One-sided, local pushes and pops are plain accesses, which conflict, too.
                        assert!(broken.is_some() || error.room_error::<AccessConflict>().is_some(), "{error}");
                        *found.lock().unwrap() = broken.cloned();
                        break;
                    }
                    me.charge(MICROSECOND);
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
        let least = if promise.is_local() { 2 } else { 4 };
        assert!(told >= least, "case {case}: {told} of 8 runs");
    }
}

//! Numbered notifications. The bodies run as processes, over the fabric that `FARSIDE_FABRIC`
//! names, and in the simulator.

use farside::global::GlobalError;
use farside::memory::MemoryError;
use std::time::Duration;

use farside::global::ObjectError;
use farside::prelude::*;
use farside::{Comparison, Error, GlobalAddress, GlobalPtr, GlobalSlice, Result, Signal, Simulation, Symmetric};
use farside_kit::notifications::Notifications;
use farside_testbed::limit;

use crate::support::{room, spread};

/// Returns the place of a worker's data in a process.
fn place(process: ProcessId, number: u32) -> GlobalPtr<u64> {
    GlobalAddress::starter(process, 64 + number * 8).cast()
}

/// Returns the words of this process.
fn own(me: &Worker, words: &Symmetric<u64>) -> GlobalSlice<u64> {
    words.at(me.process()).expect("every process has some")
}

fn notify(me: &Worker, words: GlobalSlice<u64>, number: usize, value: u64) -> Result<()> {
    words.at(number)?.signal(me, Signal::Set(value))
}

fn take(me: &Worker, words: GlobalSlice<u64>, number: usize) -> Result<u64> {
    words.at(number)?.swap(me, 0)
}

/// Each worker notifies each process under its own number. Each process takes every notification
/// once, in any order, with its data.
fn many_notify_each(me: &Worker) -> Result<()> {
    let count = me.worker_count() as usize;
    let notifications = me.symmetric(count)?;
    let own = own(me, &notifications);
    for round in 1..=10_u64 {
        for process in (0..me.process_count()).map(ProcessId::new) {
            let (number, data) = (me.id().number(), round * 100 + u64::from(me.id().number()));
            let word = notifications.at(process)?.at(number as usize)?;
            place(process, number).put_signal(me, data, word, Signal::Set(round))?;
        }
        if me.thread_index() == 0 {
            let mut seen = vec![false; count];
            let mut left = count;
            while left > 0 {
                let taken = match round % 3 {
                    0 => vec![own.take_any(me)?],
                    1 => own.take_some(me)?,
                    _ => (0..count).zip(own.take_all(me)?).collect(),
                };
                for (number, value) in taken {
                    assert!(!std::mem::replace(&mut seen[number], true), "{number} came twice in {round}");
                    assert_eq!(value, round);
                    assert_eq!(place(me.process(), number as u32).get(me)?, round * 100 + number as u64);
                    left -= 1;
                }
            }
            assert_eq!(own.test(me)?, None);
        }
        me.barrier()?;
    }
    notifications.free(me)
}

/// A later notification under a number replaces an earlier one. Taking it leaves none.
fn a_notification_is_overwritten_until_it_is_taken(me: &Worker) -> Result<()> {
    let notifications = me.symmetric(4 * me.worker_count() as usize)?;
    let peer = me.neighbor(me.threads_per_process());
    let (there, number) = (notifications.at(me.process_of(peer))?, 4 * me.id().index() + 1);
    for value in [7, 8, 9] {
        notify(me, there, number, value)?;
    }
    me.barrier()?;
    if me.thread_index() == 0 {
        // These come from the worker of this number in the previous process.
        let from = me.neighbor(me.worker_count() - me.threads_per_process()).index();
        let own = own(me, &notifications).part(4 * from..4 * from + 4)?;
        assert_eq!(own.test(me)?, Some(1));
        assert_eq!(own.wait_some(me)?, 1);
        assert_eq!(own.at(1)?.until(Comparison::Ne, 0).wait(me)?, 9);
        assert_eq!((take(me, own, 1)?, take(me, own, 1)?), (9, 0));
        let late = own.wait_some_for(me, Duration::from_millis(1));
        assert!(matches!(late, Err(Error::Deadline { .. })), "{late:?}");
        let late = own.take_all_for(me, Duration::from_millis(1));
        assert!(matches!(late, Err(Error::Deadline { .. })), "{late:?}");
    }
    notifications.free(me)
}

/// The workers of a process take the notifications of others, each once.
fn several_take(me: &Worker) -> Result<()> {
    let notifications = me.symmetric(64)?;
    let own = own(me, &notifications);
    let peer = me.process_of(me.neighbor(me.threads_per_process()));
    let mut taken = 0_u64;
    let threads = u64::from(me.threads_per_process());
    let each = 64 / threads;
    for number in 0..each {
        let number = number * threads + me.thread_index() as u64;
        notify(me, notifications.at(peer)?, number as usize, number + 1)?;
    }
    for _ in 0..each {
        let (number, value) = own.take_any(me)?;
        assert_eq!(value, number as u64 + 1);
        taken += value;
    }
    let sum = me.all_reduce(taken, |a, b| a + b)?;
    assert_eq!(sum, u64::from(me.process_count()) * (1..=each * threads).sum::<u64>());
    notifications.free(me)
}

/// A notification that is given while the previous one is taken is not lost: it remains or is taken
/// instead.
fn the_last_is_never_lost(me: &Worker) -> Result<()> {
    let (giver, taker) = (ProcessId::new(0), ProcessId::new(1));
    // A round takes a hundred times as long where a notification is a message.
    let other = if me.process() == giver { taker } else { giver };
    let rounds = if me.is_mapped(GlobalAddress::starter(other, 0))? { 200 } else { 10 };
    let [stream, awake, last] = [0, 1, 2];
    let notifications = me.symmetric(3)?;
    let own = own(me, &notifications);
    let only = |number| own.part(number..number + 1);
    if me.thread_index() == 0 && me.process() == giver {
        let there = notifications.at(taker)?;
        let mut value = 0;
        for round in 0..rounds {
            // Until the other process certainly takes them, and then some more.
            let mut more = 20 + round % 7;
            while more > 0 {
                value += 1;
                notify(me, there, stream, value)?;
                if only(awake)?.test(me)?.is_some() {
                    more -= 1;
                } else {
                    me.progress()?;
                }
            }
            take(me, own, awake)?;
            notify(me, there, last, value)?;
            assert_eq!(only(last)?.take_any(me)?, (0, value));
        }
    } else if me.thread_index() == 0 && me.process() == taker {
        let there = notifications.at(giver)?;
        let patience = limit();
        for round in 0..rounds {
            let take_next = || match round % 3 {
                0 => only(stream)?.take_any_for(me, patience).map(|(_, value)| value),
                1 => only(stream)?.take_some_for(me, patience).map(|some| some[0].1),
                _ => only(stream)?.take_all_for(me, patience).map(|all| all[0]),
            };
            let mut taken = take_next()?;
            notify(me, there, awake, 1)?;
            let all = loop {
                match take(me, own, last)? {
                    0 if only(stream)?.test(me)?.is_some() => taken = take_next()?,
                    0 => _ = me.progress()?,
                    all => break all,
                }
            };
            while taken != all {
                taken = take_next()?;
            }
            notify(me, there, last, all)?;
        }
    }
    notifications.free(me)
}

/// One worker takes all of several notifications at once, while another takes the last of them and
/// gives it again. A worker that does not get all leaves all.
fn all_are_taken_or_none(me: &Worker) -> Result<()> {
    const COUNT: usize = 8;
    let notifications = me.symmetric(COUNT + 2)?;
    let own = own(me, &notifications);
    let (first, over) = (own.part(0..COUNT)?, own.part(COUNT..COUNT + 2)?);
    let values: Vec<u64> = (1..=COUNT as u64).collect();
    let give_all = || (0..COUNT).zip(&values).try_for_each(|(number, value)| notify(me, own, number, *value));
    // The worker that is done first says so.
    let is_over = || over.test(me).map(|over| over.is_some());
    match me.thread_index() {
        0 => {
            give_all()?;
            let mut rounds = 0;
            while rounds < 10 || rounds < 20_000 && !is_over()? {
                rounds += 1;
                assert_eq!(first.take_all(me)?, values, "round {rounds}");
                give_all()?;
            }
            notify(me, over, 0, 1)?;
        }
        1 => {
            let mut times = 0;
            while times < 3000 && !is_over()? {
                let taken = take(me, own, COUNT - 1)?;
                assert!(taken == 0 || taken == COUNT as u64);
                if taken != 0 {
                    times += 1;
                    notify(me, own, COUNT - 1, taken)?;
                }
                if times % 64 == 0 || taken == 0 {
                    me.progress()?;
                }
            }
            notify(me, over, 1, 1)?;
        }
        _ => {}
    }
    me.barrier()?;
    // All notifications of the last round are there.
    if me.thread_index() == 0 {
        assert_eq!(first.take_all(me)?, values);
    }
    notifications.free(me)
}

fn what_cannot_be_is_refused(me: &Worker) -> Result<()> {
    let notifications = me.symmetric::<u64>(3)?;
    let nowhere = GlobalPtr::<u64>::NULL.slice(8);
    let refused =
        [nowhere.wait_some(me), nowhere.test(me).map(|_| 0), own(me, &notifications).part(2..2)?.wait_some(me)];
    for refused in refused {
        assert!(matches!(room(&refused), Some(GlobalError::Address { .. })), "{refused:?}");
    }
    notifications.free(me)
}

/// Words of another process can be waited for and taken as well.
fn words_of_another_are_taken(me: &Worker) -> Result<()> {
    let notifications = me.symmetric(me.worker_count() as usize)?;
    let number = me.id().index();
    let there = notifications.at(me.process_of(me.neighbor(me.threads_per_process())))?;
    notify(me, there, number, 7)?;
    assert_eq!(there.part(number..number + 1)?.take_all(me)?, [7]);
    assert_eq!(take(me, there, number)?, 0);
    notifications.free(me)
}

/// Memory that is used again holds no notifications of its earlier use.
fn at_first_there_are_none(me: &Worker) -> Result<()> {
    for count in [0, 1, 63, 64, 65, 1000] {
        for _ in 0..2 {
            let notifications = me.symmetric(count)?;
            let own = own(me, &notifications);
            assert!(count == 0 || own.test(me)?.is_none(), "{own:?}");
            me.barrier()?;
            (0..count).try_for_each(|number| notify(me, own, number, u64::MAX))?;
            notifications.free(me)?;
        }
    }
    Ok(())
}

/// Requests that differ, and requests without enough memory, fail on all workers.
fn impossible_wishes_are_refused(me: &Worker) -> Result<()> {
    let unequal = me.symmetric::<u64>(10 + usize::from(me.id().number() == 1));
    assert!(matches!(room(&unequal), Some(GlobalError::Object(ObjectError::Unequal { .. }))), "{unequal:?}");
    me.barrier()
}

type Body = fn(&Worker) -> Result<()>;

const BODIES: [Body; 9] = [
    many_notify_each,
    a_notification_is_overwritten_until_it_is_taken,
    several_take,
    the_last_is_never_lost,
    all_are_taken_or_none,
    what_cannot_be_is_refused,
    words_of_another_are_taken,
    at_first_there_are_none,
    impossible_wishes_are_refused,
];

#[farside::test(processes = 3, threads = 2)]
fn everything_by_processes(me: &Worker) -> Result<()> {
    BODIES.into_iter().try_for_each(|body| body(me))
}

#[test]
fn everything_in_the_simulator() {
    for (seed, threads) in [(0, 1), (1, 1), (2, 2), (3, 2), (4, 2)] {
        let simulation = Simulation::new(3, threads, seed);
        let simulated = simulation.run(|me| BODIES.into_iter().try_for_each(|body| body(me)));
        simulated.unwrap().verdict.unwrap();
    }
}

/// If one process has no memory for them, all processes learn so at once. None waits until the
/// deadline.
#[test]
fn a_resource_missing_in_one_process_is_refused_to_all() {
    // More than a process has at first.
    let count = 1 << 20;
    farside::simulate(3, 2, 1, |me| {
        let mut segments = Vec::new();
        if me.id() == WorkerId::new(3) {
            // Takes every address that this process has.
            let refused = loop {
                match me.register(vec![1_u64]) {
                    Ok(segment) => segments.push(segment),
                    Err(error) => break error,
                }
            };
            assert!(matches!(refused.room_error(), Some(MemoryError::NoAddress { .. })), "{refused}");
        }
        me.barrier()?;
        let used = |me: &Worker| me.memory_report().iter().map(|node| node.used_bytes).sum::<usize>();
        let mut held = None;
        for _ in 0..3 {
            let before = me.now();
            let refused = me.symmetric::<u64>(count);
            let is_told =
                matches!(room(&refused), Some(MemoryError::NoAddress { process, .. }) if *process == ProcessId::new(1));
            assert!(is_told, "{refused:?}");
            assert!(me.now() - before < Duration::from_secs(1));
            // The worker that allocates for its process has released the memory.
            if me.thread_index() == 0 {
                assert_eq!(used(me), *held.get_or_insert_with(|| used(me)));
            }
        }
        segments.drain(..).try_for_each(|segment| segment.deregister(me).map(drop))?;
        me.barrier()
    })
    .unwrap();
}

/// A wait for a notification of a named process ends with an error when that process dies.
#[test]
fn a_lost_sender_is_an_error() {
    let dying = ProcessId::new(1);
    for seed in spread(4) {
        let simulation = Simulation::new(2, 1, seed).kill(dying, Duration::from_millis(5));
        let simulated = simulation.run(|me| {
            let notifications = me.symmetric(1)?;
            if me.process() == dying {
                return me.wait_while_serving(|| false);
            }
            let (own, before) = (own(me, &notifications), me.now());
            let told = own.at(0)?.until(Comparison::Ne, 0).signalled_by(dying).wait(me);
            assert!(matches!(told, Err(Error::PeerLost { process, .. }) if process == dying), "{told:?}");
            assert!(me.now() - before < Duration::from_secs(1));
            let told = notify(me, notifications.at(dying)?, 0, 1);
            assert!(matches!(told, Err(Error::PeerLost { .. })), "{told:?}");
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err());
    }
}

//! Numbered notifications. The bodies run as processes, over the fabric that `FARSIDE_FABRIC`
//! names, and in the simulator.

use farside::global::GlobalError;
use farside::memory::MemoryError;
use std::time::Duration;

use farside::global::ObjectError;
use farside::prelude::*;
use farside::{Error, GlobalAddress, GlobalPtr, Result, Simulation};
use farside_kit::notifications::{AllNotifications, NotificationError, NotificationFault, Notifications};
use farside_testbed::limit;

use crate::support::{room, spread};

/// Returns the place of a worker's data in a process.
fn place(process: ProcessId, number: u32) -> GlobalPtr<u64> {
    GlobalAddress::starter(process, 64 + number * 8).cast()
}

/// Each worker notifies each process under its own number. Each process takes every notification
/// once, in any order, with its data.
fn many_notify_each(me: &Worker) -> Result<()> {
    let count = me.worker_count();
    let notifications = AllNotifications::new(me, count)?;
    let own = notifications.own(me);
    assert_eq!((own.count(), own.process()), (count, Some(me.process())));
    for round in 1..=10_u64 {
        for process in (0..me.process_count()).map(ProcessId::new) {
            let (number, data) = (me.id().number(), round * 100 + u64::from(me.id().number()));
            let there = notifications.of(process)?;
            there.put_notify(me, place(process, number).address(), &data.to_le_bytes(), number, round)?;
        }
        if me.thread_index() == 0 {
            let mut seen = vec![false; count as usize];
            let mut left = count;
            while left > 0 {
                let taken = match round % 3 {
                    0 => vec![own.take_any(me, 0..count)?],
                    1 => own.take_some(me, 0..count)?,
                    _ => (0..count).zip(own.take_all(me, 0..count)?).collect(),
                };
                for (number, value) in taken {
                    assert!(!std::mem::replace(&mut seen[number as usize], true), "{number} came twice in {round}");
                    assert_eq!(value, round);
                    assert_eq!(place(me.process(), number).get(me)?, round * 100 + u64::from(number));
                    left -= 1;
                }
            }
            assert_eq!(own.test(me, 0..count)?, None);
        }
        me.barrier()?;
    }
    notifications.release(me)
}

/// A later notification under a number replaces an earlier one. Taking it leaves none.
fn a_notification_is_overwritten_until_it_is_taken(me: &Worker) -> Result<()> {
    let notifications = AllNotifications::new(me, 4 * me.worker_count())?;
    let peer = me.neighbor(me.threads_per_process());
    let (there, number) = (notifications.of(me.process_of(peer))?, 4 * me.id().number() + 1);
    for value in [7, 8, 9] {
        there.notify(me, number, value)?;
    }
    me.barrier()?;
    if me.thread_index() == 0 {
        // These come from the worker of this number in the previous process.
        let from = me.neighbor(me.worker_count() - me.threads_per_process()).number();
        let (own, numbers) = (notifications.own(me), 4 * from..4 * from + 4);
        assert_eq!(own.test(me, numbers.clone())?, Some(numbers.start + 1));
        assert_eq!(own.wait_some(me, numbers.clone())?, numbers.start + 1);
        assert_eq!(own.until(numbers.start + 1)?.wait(me)?, 9);
        assert_eq!((own.take(me, numbers.start + 1)?, own.take(me, numbers.start + 1)?), (9, 0));
        let late = own.wait_some_for(me, numbers.clone(), Duration::from_millis(1));
        assert!(matches!(late, Err(Error::Deadline { .. })), "{late:?}");
        let late = own.take_all_for(me, numbers, Duration::from_millis(1));
        assert!(matches!(late, Err(Error::Deadline { .. })), "{late:?}");
    }
    notifications.release(me)
}

/// The workers of a process take the notifications of others, each once.
fn several_take(me: &Worker) -> Result<()> {
    let notifications = AllNotifications::new(me, 64)?;
    let peer = me.process_of(me.neighbor(me.threads_per_process()));
    let mut taken = 0_u64;
    let threads = u64::from(me.threads_per_process());
    let each = 64 / threads;
    for number in 0..each as u32 {
        let number = number * threads as u32 + me.thread_index() as u32;
        notifications.of(peer)?.notify(me, number, u64::from(number) + 1)?;
    }
    for _ in 0..each {
        let (number, value) = notifications.own(me).take_any(me, 0..64)?;
        assert_eq!(value, u64::from(number) + 1);
        taken += value;
    }
    let sum = me.all_reduce(taken, |a, b| a + b)?;
    assert_eq!(sum, u64::from(me.process_count()) * (1..=each * threads).sum::<u64>());
    notifications.release(me)
}

/// A notification that is given while the previous one is taken is not lost: it remains or is taken
/// instead.
fn the_last_is_never_lost(me: &Worker) -> Result<()> {
    let (giver, taker) = (ProcessId::new(0), ProcessId::new(1));
    // A round takes a hundred times as long where a notification is a message.
    let other = if me.process() == giver { taker } else { giver };
    let rounds = if me.is_mapped(GlobalAddress::starter(other, 0))? { 200 } else { 10 };
    let [stream, awake, last] = [0, 1, 2];
    let notifications = AllNotifications::new(me, 3)?;
    let own = notifications.own(me);
    if me.thread_index() == 0 && me.process() == giver {
        let there = notifications.of(taker)?;
        let mut value = 0;
        for round in 0..rounds {
            // Until the other process certainly takes them, and then some more.
            let mut more = 20 + round % 7;
            while more > 0 {
                value += 1;
                there.notify(me, stream, value)?;
                if own.test(me, awake..awake + 1)?.is_some() {
                    more -= 1;
                } else {
                    me.progress()?;
                }
            }
            own.take(me, awake)?;
            there.notify(me, last, value)?;
            assert_eq!(own.take_any(me, last..last + 1)?, (last, value));
        }
    } else if me.thread_index() == 0 && me.process() == taker {
        let there = notifications.of(giver)?;
        let patience = limit();
        for round in 0..rounds {
            let take = || match round % 3 {
                0 => own.take_any_for(me, stream..stream + 1, patience).map(|(_, value)| value),
                1 => own.take_some_for(me, stream..stream + 1, patience).map(|some| some[0].1),
                _ => own.take_all_for(me, stream..stream + 1, patience).map(|all| all[0]),
            };
            let mut taken = take()?;
            there.notify(me, awake, 1)?;
            let all = loop {
                match own.take(me, last)? {
                    0 if own.test(me, stream..stream + 1)?.is_some() => taken = take()?,
                    0 => _ = me.progress()?,
                    all => break all,
                }
            };
            while taken != all {
                taken = take()?;
            }
            there.notify(me, last, all)?;
        }
    }
    notifications.release(me)
}

/// One worker takes all of several notifications at once, while another takes the last of them and
/// gives it again. A worker that does not get all leaves all.
fn all_are_taken_or_none(me: &Worker) -> Result<()> {
    const COUNT: u32 = 8;
    let notifications = AllNotifications::new(me, COUNT + 2)?;
    let own = notifications.own(me);
    let values: Vec<u64> = (1..=COUNT.into()).collect();
    let give_all = || (0..COUNT).zip(&values).try_for_each(|(number, value)| own.notify(me, number, *value));
    // The worker that is done first says so.
    let is_over = || own.test(me, COUNT..COUNT + 2).map(|over| over.is_some());
    match me.thread_index() {
        0 => {
            give_all()?;
            let mut rounds = 0;
            while rounds < 10 || rounds < 20_000 && !is_over()? {
                rounds += 1;
                assert_eq!(own.take_all(me, 0..COUNT)?, values, "round {rounds}");
                give_all()?;
            }
            own.notify(me, COUNT, 1)?;
        }
        1 => {
            let mut times = 0;
            while times < 3000 && !is_over()? {
                let taken = own.take(me, COUNT - 1)?;
                assert!(taken == 0 || taken == u64::from(COUNT));
                if taken != 0 {
                    times += 1;
                    own.notify(me, COUNT - 1, taken)?;
                }
                if times % 64 == 0 || taken == 0 {
                    me.progress()?;
                }
            }
            own.notify(me, COUNT + 1, 1)?;
        }
        _ => {}
    }
    me.barrier()?;
    // All notifications of the last round are there.
    if me.thread_index() == 0 {
        assert_eq!(own.take_all(me, 0..COUNT)?, values);
    }
    notifications.release(me)
}

fn why<T: std::fmt::Debug>(result: Result<T>) -> NotificationFault {
    match room(&result) {
        Some(NotificationError { why, .. }) => *why,
        _ => panic!("{result:?} is not about a notification"),
    }
}

fn what_cannot_be_is_refused(me: &Worker) -> Result<()> {
    let notifications = AllNotifications::new(me, 3)?;
    let (own, peer) = (notifications.own(me), me.process_of(me.neighbor(me.threads_per_process())));
    let there = notifications.of(peer)?;
    assert_eq!(why(there.notify(me, 3, 1)), NotificationFault::NoSuchNumber { count: 3 });
    assert_eq!(why(there.put_notify(me, place(peer, 0).address(), &[1; 8], 0, 0)), NotificationFault::Zero);
    assert_eq!(why(there.wait_some(me, 0..1)), NotificationFault::OfAnother);
    assert_eq!(why(own.wait_some(me, 1..4)), NotificationFault::NoSuchNumber { count: 3 });
    assert_eq!(why(own.take_all(me, 2..2)), NotificationFault::NoNumbers);
    assert_eq!(why(own.until(3)), NotificationFault::NoSuchNumber { count: 3 });
    assert!(notifications.of(ProcessId::new(me.process_count())).is_err());
    let nowhere = Notifications::in_words(GlobalPtr::NULL.slice(8))?;
    assert!(matches!(room(&nowhere.notify(me, 1, 1)), Some(GlobalError::Address { .. })));
    assert!(matches!(room(&nowhere.wait_some(me, 0..1)), Some(GlobalError::Address { .. })));
    for words in [1 << 32, usize::MAX] {
        let refused = Notifications::in_words(GlobalPtr::NULL.slice(words)).map(drop);
        let of_words = |bytes| bytes == words.saturating_mul(8);
        assert!(
            matches!(refused, Err(Error::TooLarge { bytes, max, .. }) if of_words(bytes) && max == 8 * u32::MAX as usize),
            "{refused:?}"
        );
    }
    notifications.release(me)
}

/// Memory that is used again holds no notifications of its earlier use.
fn at_first_there_are_none(me: &Worker) -> Result<()> {
    for count in [0, 1, 63, 64, 65, 1000] {
        for _ in 0..2 {
            let notifications = AllNotifications::new(me, count)?;
            let own = notifications.own(me);
            assert_eq!((own.count(), own.process()), (count, Some(me.process())));
            assert!(count == 0 || own.test(me, 0..count)?.is_none(), "{own:?}");
            assert_eq!(why(own.take(me, count)), NotificationFault::NoSuchNumber { count });
            me.barrier()?;
            (0..count).try_for_each(|number| own.notify(me, number, u64::MAX))?;
            notifications.release(me)?;
        }
    }
    Ok(())
}

/// Requests that differ, and requests without enough memory, fail on all workers.
fn impossible_wishes_are_refused(me: &Worker) -> Result<()> {
    let unequal = AllNotifications::new(me, 10 + u32::from(me.id().number() == 1));
    assert!(matches!(room(&unequal), Some(GlobalError::Object(ObjectError::Unequal { .. }))), "{unequal:?}");
    me.barrier()
}

type Body = fn(&Worker) -> Result<()>;

const BODIES: [Body; 8] = [
    many_notify_each,
    a_notification_is_overwritten_until_it_is_taken,
    several_take,
    the_last_is_never_lost,
    all_are_taken_or_none,
    what_cannot_be_is_refused,
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
            let refused = AllNotifications::new(me, count);
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
            let notifications = AllNotifications::new(me, 1)?;
            if me.process() == dying {
                return me.wait_while_serving(|| false);
            }
            let (own, before) = (notifications.own(me), me.now());
            let told = own.until(0)?.signalled_by(dying).wait(me);
            assert!(matches!(told, Err(Error::PeerLost { process, .. }) if process == dying), "{told:?}");
            assert!(me.now() - before < Duration::from_secs(1));
            let told = notifications.of(dying)?.notify(me, 0, 1);
            assert!(matches!(told, Err(Error::PeerLost { .. })), "{told:?}");
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err());
    }
}

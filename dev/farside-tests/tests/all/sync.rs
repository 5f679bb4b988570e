//! Locks, structures and executors among the workers of a job, as real processes and simulated
//! ones.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farside::prelude::*;
use farside::{Error, LaunchError, ProcessEnd, Result, Simulation, simulate};
use farside_kit::sync::{Combining, Fenced, LockGuard, LockManager, SyncError, Token};
use farside_testbed::{limit, scaled};

/// Returns the synchronization error of a result.
#[track_caller]
fn sync_error<T: std::fmt::Debug>(result: Result<T, SyncError>) -> SyncError {
    match result {
        Err(error) => error,
        other => panic!("{other:?}"),
    }
}

/// All workers add to one number by reading it and writing it in another call. Without the lock
/// additions would be lost.
fn one_at_a_time(me: &Worker) -> Result<()> {
    const ROUNDS: u64 = 20;
    let locks = LockManager::new(me)?;
    let number = PerWorker::new(me, Cell::new(0_u64))?;
    let owner = WorkerId::new(0);
    for round in 0..ROUNDS {
        let lock = locks.named(me, "number");
        let guard = if round % 4 == 0 { lock.lock_for(limit())? } else { lock.lock()? };
        let old = me.call_return(owner, number, |there, number| number.here(there).get())?.wait()?;
        me.call_return(owner, (number, old + 1), |there, (number, new)| number.here(there).set(new))?.wait()?;
        // The last lock has certainly been released when this returns.
        if round % 2 == 1 {
            guard.release()?;
        }
    }
    me.barrier()?;
    if me.id() == owner {
        assert_eq!(number.here(me).get(), ROUNDS * u64::from(me.worker_count()));
    }
    let lock = locks.named(me, "number");
    assert_eq!(lock.owner()?, None);
    // Other locks of the same name have tokens of their own, which must not be mistaken.
    let others = LockManager::new(me)?.named(me, "number");
    let elsewhere = lock.clone().at(ProcessId::new(lock.home().number() ^ 1));
    assert!(lock.id() != others.id() && lock.id() != elsewhere.id());
    me.barrier()
}

/// Waiting workers get the lock in the order of their requests, each with a greater number.
fn in_order(me: &Worker) -> Result<()> {
    type Got = PerWorker<RefCell<Vec<(WorkerId, Token)>>>;
    fn note(there: &Worker, (got, who, token): (Got, WorkerId, Token)) {
        got.here(there).borrow_mut().push((who, token));
    }
    let locks = LockManager::new(me)?;
    let got: Got = PerWorker::new(me, RefCell::default())?;
    if me.id().number() == 0 {
        let guard = locks.named(me, "queue").lock()?;
        let mut order: Vec<_> = me.workers().skip(1).collect();
        order.rotate_left(1);
        order.extend(order.clone().into_iter().rev());
        for who in &order {
            // The worker requests the lock and then makes sure that the request has reached the
            // home.
            let asked = me.call_with_reply(*who, (locks, got), |there, (locks, got), reply: Reply<()>| {
                let lock = locks.named(there, "queue");
                let granted = move |me: &Worker, guard: Result<LockGuard<'_>, SyncError>| {
                    let guard = guard.expect("the home lives");
                    me.call(WorkerId::new(0), (got, me.id(), guard.token()), note).expect("there is room");
                };
                lock.lock_then(granted).expect("the home lives");
                // The home is one of the workers of its process. The request has run there once all
                // of them have answered.
                let threads = there.threads_per_process();
                let first = lock.home().number() * threads;
                let left = Rc::new((Cell::new(threads), Cell::new(Some(reply))));
                for home in (first..first + threads).map(WorkerId::new) {
                    let left = left.clone();
                    let pending = there.call_return(home, (), |_, ()| ()).expect("there is room");
                    pending.then(move |_, result| {
                        result.expect("the home lives");
                        left.0.set(left.0.get() - 1);
                        if left.0.get() == 0 {
                            left.1.take().expect("it is answered once").send(());
                        }
                    });
                }
            })?;
            asked.wait()?;
        }
        let mine = guard.token();
        drop(guard);
        me.wait_while_serving(|| got.here(me).borrow().len() == order.len())?;
        let got = got.here(me).borrow();
        assert!(got.iter().map(|(who, _)| *who).eq(order));
        let numbers: Vec<_> =
            [mine].into_iter().chain(got.iter().map(|(_, token)| *token)).map(Token::number).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    }
    me.barrier()
}

/// Readers share, a writer waits for them, and a later reader waits for the writer.
fn shared_and_alone(me: &Worker) -> Result<()> {
    let locks = LockManager::new(me)?;
    let lock = locks.named(me, "book").at(ProcessId::new(me.process_count() - 1));
    let readers = lock.clone().shared();
    let guard = readers.lock()?;
    me.barrier()?;
    let token = guard.token();
    let first = me.broadcast(WorkerId::new(0), (me.id().number() == 0).then_some(token))?;
    assert_eq!(token, first, "those who share have the same token");
    assert!(token.is_shared());
    me.barrier()?;
    let held = sync_error(lock.try_lock());
    assert!(matches!(&held, SyncError::LockHeld { name, .. } if name == "book"), "{held}");
    me.barrier()?;
    if me.id().number() == 0 {
        // A writer in the queue keeps new readers out.
        let deadline = lock.lock_for(Duration::from_millis(200));
        assert!(
            matches!(deadline, Err(SyncError::Job(Error::Deadline { doing: "waiting for a lock", .. }))),
            "{deadline:?}"
        );
        drop(readers.try_lock()?);
    }
    me.barrier()?;
    drop(guard);
    me.barrier()?;
    let alone = lock.lock()?;
    assert!(alone.token().number() > token.number());
    assert_eq!(lock.owner()?, Some(me.id()));
    alone.release()?;
    me.barrier()
}

/// A worker that has given up is not granted the lock, even if the grant was on its way.
fn giving_up(me: &Worker) -> Result<()> {
    let locks = LockManager::new(me)?;
    let lock = locks.named(me, "contended");
    for round in 0..30_u64 {
        match lock.lock_for(Duration::from_micros(20 * (round % 8))) {
            Ok(guard) => drop(guard),
            Err(error) => assert!(matches!(error, SyncError::Job(Error::Deadline { .. })), "{error}"),
        }
    }
    me.barrier()?;
    lock.lock()?.release()?;
    me.barrier()?;
    assert_eq!(lock.owner()?, None);
    me.barrier()
}

/// A holder that does nothing for longer than the lease loses the lock, and the guarded value
/// refuses it.
fn a_lease_ends(me: &Worker) -> Result<()> {
    const LEASE: Duration = Duration::from_millis(50);
    type Value = PerWorker<RefCell<Fenced<Vec<u32>>>>;
    fn append(there: &Worker, (value, token, x): (Value, Token, u32)) -> bool {
        let mut value = value.here(there).borrow_mut();
        match value.change(token, |value| value.push(x)) {
            Ok(()) => true,
            Err(error) => {
                assert!(matches!(error, SyncError::StaleToken { .. }), "{error}");
                false
            }
        }
    }
    let locks = LockManager::with_lease(me, LEASE)?;
    let lock = locks.named(me, "value").at(ProcessId::new(0));
    let value: Value = PerWorker::new(me, RefCell::new(Fenced::new(lock.id(), Vec::new())))?;
    let owner = WorkerId::new(0);
    let append = |token, x| me.call_return(owner, (value, token, x), append)?.wait();
    let (late, next) = (me.id().number() == 1, me.id().number() == 2);
    let mut kept = None;
    if late {
        let mut guard = lock.lock()?;
        guard.renew()?;
        assert!(append(guard.token(), 1)?);
        kept = Some(guard);
    }
    me.barrier()?;
    if next {
        let guard = lock.lock()?;
        assert!(append(guard.token(), 2)?);
    }
    me.barrier()?;
    if let Some(mut guard) = kept {
        assert!(!append(guard.token(), 3)?);
        assert!(matches!(sync_error(guard.renew()), SyncError::LockLost { .. }));
        drop(guard);
        let again = lock.lock()?;
        assert!(append(again.token(), 4)?);
    }
    me.barrier()?;
    if me.id() == owner {
        let guard = lock.lock()?;
        let mut value = value.here(me).borrow_mut();
        assert_eq!(value.read(guard.token())?, &vec![1, 2, 4]);
    }
    me.barrier()
}

fn locks_in_handlers(me: &Worker) -> Result<()> {
    let locks = LockManager::new(me)?;
    let refused = me.call_return(me.neighbor(1), locks, |there, locks| {
        let lock = locks.named(there, "handler");
        [lock.lock().map(drop), lock.try_lock().map(drop), lock.owner().map(drop)]
            .map(|result| matches!(result, Err(SyncError::Job(Error::InHandler { .. }))))
    })?;
    assert_eq!(refused.wait()?, [true; 3]);
    let nowhere = locks.named(me, "x").at(ProcessId::new(99)).lock();
    assert!(matches!(nowhere, Err(SyncError::Job(Error::UnknownProcess { .. }))));
    me.barrier()
}

/// A guard is dropped in a handler without room for a call to the home. The lock is released later.
fn release_without_room(me: &Worker) -> Result<()> {
    let locks = LockManager::new(me)?;
    let is_over = PerWorker::new(me, Cell::new(false))?;
    let lock = locks.named(me, "crowded").at(ProcessId::new(0));
    if me.process().number() == 1 && me.id().number() == me.threads_per_process() {
        let (first, threads) = (lock.home().number(), me.threads_per_process());
        lock.lock_then(move |me, guard| {
            let guard = guard.expect("the home lives");
            // Fills the queues to the home, whichever worker that is.
            for home in (first..first + threads).map(WorkerId::new) {
                let call = || me.to(home).when_full(WhenFull::Queue).call((), |_, ()| ());
                let refused = std::iter::repeat_with(call).take(1 << 20).find_map(std::result::Result::err);
                assert!(refused.is_some_and(|refused| matches!(refused.error, Error::Full { .. })));
            }
            drop(guard);
            is_over.here(me).set(true);
        })?;
        me.wait_while_serving(|| is_over.here(me).get())?;
        // This would wait for ever if the lock were not released.
        drop(lock.lock_for(limit())?);
    }
    me.barrier()
}

/// The calls of all workers end in one value of each process, which that process's workers share.
fn combining_in_handlers(me: &Worker) -> Result<()> {
    const CALLS: u64 = 200;
    let sums = Dist::new(me, || Combining::new(0_u64))?;
    for number in 0..CALLS {
        for to in me.workers() {
            let sum = me.call_with_reply(to, (sums, number), |there, (sums, by), reply: Reply<u64>| {
                let _ = sums.here(there).post(move |sum| {
                    *sum += by;
                    reply.send(*sum);
                });
            })?;
            assert!(sum.wait()? >= number);
        }
    }
    me.barrier()?;
    let callers = u64::from(me.worker_count() * me.threads_per_process());
    assert_eq!(sums.here(me).run(|sum| *sum)?, callers * (0..CALLS).sum::<u64>());
    me.barrier()?;
    // A handler must not wait for others, even if there are none at the moment.
    let refused = me.call_return(me.neighbor(1), sums, |there, sums| {
        let sums = sums.here(there);
        [sums.run(|_| ()), sums.repair(|_| ())].iter().all(|ran| matches!(ran, Err(SyncError::InHandler)))
    })?;
    assert!(refused.wait()?);
    me.barrier()?;
    // A panic drops the reply, which tells the caller.
    let broken = me.call_with_reply(me.neighbor(1), sums, |there, sums, reply: Reply<u64>| {
        let _ = sums.here(there).post(move |_| {
            let _reply = reply;
            panic!("broken");
        });
    })?;
    let broken = broken.wait();
    assert!(matches!(broken, Err(Error::RemotePanic { .. } | Error::ReplyDropped { .. })), "{broken:?}");
    me.barrier()
}

/// Worker 0 waits inside of its operation, and the other worker of its process waits for that. No
/// thread sleeps while it has its turn in the simulation.
#[test]
fn simulated_an_operation_may_wait_while_others_want_the_value() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let simulated = simulate(1, 2, 7, |me| {
            let value = Dist::new(me, || Combining::new(0_u64))?;
            let value = value.here(me);
            if me.id().number() == 0 {
                let ran = value.try_run(|value| {
                    me.charge(Duration::from_millis(1));
                    *value += 1;
                });
                assert!(matches!(ran, Ok(Ok(()))));
            } else {
                me.charge(Duration::from_micros(100));
                assert_eq!(value.run(|value| *value)?, 1, "the other one had it first");
            }
            me.barrier()
        });
        done.send(simulated.is_ok()).unwrap();
    });
    assert_eq!(is_done.recv_timeout(limit()), Ok(true));
}

/// Workers enter a section one at a time. One of their processes dies at some moment, in the
/// section or on the way. The others go on.
#[test]
fn simulated_a_process_may_die_with_a_lock_or_waiting() {
    const ROUNDS: u32 = 30;
    let mut died_inside = 0;
    for seed in 0..scaled(40) {
        let doomed = ProcessId::new(3);
        let inside = AtomicU32::new(u32::MAX);
        let ends = AtomicU32::new(0);
        let died_at = AtomicU32::new(u32::MAX);
        let simulation = Simulation::new(4, 1, seed).kill(doomed, Duration::from_micros(50 + seed * 25));
        let simulated = simulation.run(|me| {
            let locks = LockManager::new(me)?;
            let lock = locks.named(me, "section").at(ProcessId::new(0));
            let own = me.id().number();
            for round in 0..ROUNDS {
                let guard = if round % 3 == 0 { lock.lock_for(Duration::from_secs(5))? } else { lock.lock()? };
                let before = inside.swap(own, Ordering::Relaxed);
                assert!(before == u32::MAX || before == doomed.number(), "{before} is in there with {own}");
                if before != u32::MAX {
                    died_at.store(round, Ordering::Relaxed);
                }
                me.charge(Duration::from_micros(3));
                assert_eq!(inside.swap(u32::MAX, Ordering::Relaxed), own);
                drop(guard);
            }
            ends.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let verdict = simulated.unwrap().verdict;
        let is_as_expected = match &verdict {
            Ok(()) => ends.load(Ordering::Relaxed) == 4,
            Err(Error::Launch(LaunchError::ProcessFailed { process, how: ProcessEnd::Killed(9) })) => {
                *process == doomed && ends.load(Ordering::Relaxed) >= 3
            }
            Err(_) => false,
        };
        assert!(is_as_expected, "seed {seed}: {verdict:?}, {} came to their ends", ends.load(Ordering::Relaxed));
        died_inside += u32::from(died_at.load(Ordering::Relaxed) != u32::MAX);
    }
    assert!(died_inside > 0, "it dies with the lock now and then");
}

/// Makes two tests of each body: as processes, over the fabric that `FARSIDE_FABRIC` names, and in
/// the simulator.
macro_rules! in_both {
    ($($name:ident: $processes:literal x $threads:literal, $real:ident, $simulated:ident;)*) => {$(
        #[farside::test(processes = $processes, threads = $threads)]
        fn $real(me: &Worker) -> Result<()> {
            $name(me)
        }

        #[test]
        fn $simulated() {
            for seed in 0..scaled(4) {
                simulate($processes, $threads, seed, $name).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            }
        }
    )*};
}

in_both! {
    one_at_a_time: 3 x 2, a_lock_lets_one_at_a_time, simulated_a_lock_lets_one_at_a_time;
    in_order: 4 x 2, a_lock_is_granted_in_order, simulated_a_lock_is_granted_in_order;
    shared_and_alone: 3 x 1, readers_share_a_lock, simulated_readers_share_a_lock;
    giving_up: 3 x 2, who_gives_up_leaves_the_queue, simulated_who_gives_up_leaves_the_queue;
    locks_in_handlers: 2 x 1, handlers_do_not_wait_for_locks, simulated_handlers_do_not_wait_for_locks;
    combining_in_handlers: 2 x 2, handlers_share_a_value, simulated_handlers_share_a_value;
}

/// As processes, the lease must not end before its holder has renewed it.
mod timing {
    use super::*;

    #[farside::test(processes = 3, threads = 1)]
    fn a_late_holder_is_fenced_off(me: &Worker) -> Result<()> {
        a_lease_ends(me)
    }
}

#[test]
fn simulated_a_late_holder_is_fenced_off() {
    for seed in 0..scaled(4) {
        simulate(3, 1, seed, a_lease_ends).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn simulated_a_lock_is_released_when_there_is_room_again() {
    for seed in 0..scaled(4) {
        simulate(2, 1, seed, release_without_room).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

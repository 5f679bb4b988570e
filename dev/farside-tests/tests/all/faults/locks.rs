//! Locks whose holders, waiters or homes die or are stopped for a while.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use farside::prelude::*;
use farside::{Error, GlobalAddress, GlobalPtr, ProcessEnd, Result};
use farside_kit::sync::{Fenced, LockGuard, LockManager, SyncError, Token};
use farside_testbed::limit;

use super::sweep::{VICTIM, is_victim_lost, report_end, report_work, signal};
use crate::support::{failure, take_notes, verdict, write_note};

const HOME: WorkerId = WorkerId::new(0);

/// The number that another worker has sent to this one by a call.
type Report = PerWorker<Cell<u32>>;

fn tell(me: &Worker, to: WorkerId, told: Report) -> Result<()> {
    Ok(me.call(to, told, |there, told| told.here(there).set(told.here(there).get() + 1))?)
}

/// Waits until a worker that has sent a number before serves calls again, so that it has come to
/// its next wait.
fn see_it_wait(me: &Worker, worker: WorkerId) -> Result<()> {
    me.call_return(worker, (), |_, ()| ())?.wait()
}

fn told() -> Option<String> {
    Some("told".to_owned())
}

/// Worker 1 holds the lock and dies. Worker 2 waits for the lock and gets it, and worker 3 after
/// that.
#[test]
fn a_holder_that_dies_leaves_its_lock_to_the_next() {
    let test = "faults::locks::a_holder_that_dies_leaves_its_lock_to_the_next";
    let verdict = verdict(test, farside::job().processes(4), |me| {
        let locks = LockManager::new(me)?;
        let told: Report = PerWorker::new(me, Cell::new(0))?;
        let lock = locks.named(me, "lock").at(me.process_of(HOME));
        let before = Cell::new(0);
        match me.id().number() {
            0 => me.wait_while_serving(|| told.here(me).get() == 2)?,
            1 => {
                let guard = lock.lock()?;
                for to in [2, 3] {
                    me.call(WorkerId::new(to), (told, guard.token()), |there, (told, token)| {
                        told.here(there).set(token.number() as u32);
                    })?;
                }
                me.wait_while_serving(|| told.here(me).get() == 2)?;
                [2, 3].into_iter().try_for_each(|waiter| see_it_wait(me, WorkerId::new(waiter)))?;
                farside_sys::process::kill_self();
            }
            _ => {
                me.wait_while_serving(|| told.here(me).get() > 0)?;
                before.set(told.here(me).get());
                tell(me, WorkerId::new(1), told)?;
                let guard = lock.lock()?;
                assert!(guard.token().number() > u64::from(before.get()));
                guard.release()?;
                tell(me, HOME, told)?;
            }
        }
        write_note(test, me.id().number(), "told");
        Ok(())
    });
    assert_eq!(failure(verdict), (1, ProcessEnd::Killed(9)));
    assert_eq!(take_notes(std::process::id(), test, 4), [told(), None, told(), told()]);
}

/// Worker 1 dies in the queue, before another waiter. The other waiter gets the lock.
#[test]
fn a_waiter_that_dies_leaves_the_queue() {
    let test = "faults::locks::a_waiter_that_dies_leaves_the_queue";
    let verdict = verdict(test, farside::job().processes(3), |me| {
        let locks = LockManager::new(me)?;
        let told: Report = PerWorker::new(me, Cell::new(0))?;
        let lock = locks.named(me, "lock").at(me.process_of(HOME));
        if me.id() == HOME {
            let guard = lock.lock()?;
            // The doomed worker is first in the queue.
            let asked = me.call_return(WorkerId::new(1), locks, |there, locks| {
                let lock = locks.named(there, "lock").at(there.process_of(HOME));
                let never = |_: &Worker, _: Result<LockGuard<'_>, SyncError>| unreachable!("it is dead by then");
                lock.lock_then(never).expect("the home lives");
            })?;
            asked.wait()?;
            tell(me, WorkerId::new(2), told)?;
            me.wait_while_serving(|| told.here(me).get() == 1)?;
            see_it_wait(me, WorkerId::new(2))?;
            tell(me, WorkerId::new(1), told)?;
            me.wait_while_serving(|| me.lost_processes() == [ProcessId::new(1)])?;
            guard.release()?;
            me.wait_while_serving(|| told.here(me).get() == 2)?;
        } else if me.id().number() == 1 {
            me.wait_while_serving(|| told.here(me).get() == 1)?;
            farside_sys::process::kill_self();
        } else {
            me.wait_while_serving(|| told.here(me).get() == 1)?;
            tell(me, HOME, told)?;
            lock.lock()?.release()?;
            tell(me, HOME, told)?;
        }
        write_note(test, me.id().number(), "told");
        Ok(())
    });
    assert_eq!(failure(verdict), (1, ProcessEnd::Killed(9)));
    assert_eq!(take_notes(std::process::id(), test, 3), [told(), None, told()]);
}

/// The home dies. Waiting and holding workers get errors, and its locks are gone. Other homes go
/// on.
#[test]
fn a_home_that_dies_takes_its_locks_along() {
    let test = "faults::locks::a_home_that_dies_takes_its_locks_along";
    let verdict = verdict(test, farside::job().processes(3), |me| {
        let locks = LockManager::new(me)?;
        let told: Report = PerWorker::new(me, Cell::new(0))?;
        let home = ProcessId::new(1);
        let lock = locks.named(me, "lock").at(home);
        let is_told = |result: Result<(), SyncError>| {
            assert!(
                matches!(&result, Err(SyncError::Job(Error::PeerLost { process, .. })) if *process == home),
                "{result:?}"
            );
        };
        match me.id().number() {
            1 => {
                me.wait_while_serving(|| told.here(me).get() == 1)?;
                see_it_wait(me, WorkerId::new(2))?;
                farside_sys::process::kill_self();
            }
            0 => {
                let mut guard = lock.lock()?;
                tell(me, WorkerId::new(2), told)?;
                me.wait_while_serving(|| me.lost_processes() == [home])?;
                is_told(guard.renew());
                is_told(guard.release());
            }
            _ => {
                me.wait_while_serving(|| told.here(me).get() == 1)?;
                tell(me, WorkerId::new(1), told)?;
                is_told(lock.lock().map(drop));
            }
        }
        is_told(lock.lock().map(drop));
        is_told(lock.try_lock().map(drop));
        locks.named(me, "lock").at(me.process_of(HOME)).lock()?.release()?;
        write_note(test, me.id().number(), "told");
        if me.id() == HOME {
            me.wait_while_serving(|| told.here(me).get() == 1)?;
        } else {
            tell(me, HOME, told)?;
        }
        Ok(())
    });
    assert_eq!(failure(verdict), (1, ProcessEnd::Killed(9)));
    assert_eq!(take_notes(std::process::id(), test, 3), [told(), None, told()]);
}

/// Worker 1 holds the lock and is stopped for longer than its lease. Worker 2 gets the lock and
/// uses the value. When worker 1 continues, it takes itself for the holder, but the value refuses
/// it.
#[test]
fn a_holder_that_was_stopped_is_fenced_off() {
    type Value = PerWorker<RefCell<Fenced<Vec<u32>>>>;
    /// Returns the numbers of both tokens if the value refuses the change.
    fn append(there: &Worker, (value, token, x): (Value, Token, u32)) -> Option<(u64, u64)> {
        match value.here(there).borrow_mut().change(token, |value| value.push(x)) {
            Ok(()) => None,
            Err(SyncError::StaleToken { offered, newest }) => Some((offered, newest)),
            Err(other) => panic!("{other}"),
        }
    }
    thread_local! {
        static STOPPED: Cell<u32> = const { Cell::new(0) };
    }
    let test = "faults::locks::a_holder_that_was_stopped_is_fenced_off";
    let verdict = verdict(test, farside::job().processes(3), |me| {
        let locks = LockManager::with_lease(me, Duration::from_millis(200))?;
        let told: Report = PerWorker::new(me, Cell::new(0))?;
        let lock = locks.named(me, "value").at(me.process_of(HOME));
        let value: Value = PerWorker::new(me, RefCell::new(Fenced::new(lock.id(), Vec::new())))?;
        let (stopped, other) = (WorkerId::new(1), WorkerId::new(2));
        let append = |token, x| me.call_return(HOME, (value, token, x), append)?.wait();
        if me.id() == stopped {
            let mut guard = lock.lock()?;
            assert_eq!(append(guard.token(), 1)?, None);
            me.call(other, std::process::id(), |_, pid| STOPPED.set(pid))?;
            // Worker 1 goes on with its next step as if it had not been stopped.
            me.wait_while_serving(|| told.here(me).get() == 1)?;
            let refused = append(guard.token(), 3)?;
            assert_eq!(refused, Some((guard.token().number(), guard.token().number() + 1)));
            let renewed = guard.renew();
            assert!(matches!(renewed, Err(SyncError::LockLost { .. })), "{renewed:?}");
        } else if me.id() == other {
            me.wait_while_serving(|| STOPPED.get() != 0)?;
            signal(STOPPED.get(), "STOP");
            let guard = lock.lock()?;
            assert_eq!(append(guard.token(), 2)?, None);
            tell(me, stopped, told)?;
            signal(STOPPED.get(), "CONT");
        }
        me.barrier()?;
        if me.id() == HOME {
            let guard = lock.lock()?;
            assert_eq!(value.here(me).borrow_mut().read(guard.token())?, &vec![1, 2]);
        }
        me.barrier()
    });
    verdict.unwrap();
}

const PROGRAM: &str = "faults::locks::program";

/// Takes the lock of each home again and again. Goes on until process 1 is lost, if that is to be,
/// and some times more.
fn body(me: &Worker) -> Result<()> {
    let locks = LockManager::new(me)?;
    let own = u64::from(me.id().number()) + 1;
    let hold = |home| -> Result<()> {
        let guard = locks.named(me, "lock").at(home).lock()?;
        // A word of the home names the holder.
        let holder: GlobalPtr<u64> = GlobalAddress::starter(home, 0).cast();
        let before = holder.swap(me, own)?;
        assert!(before == 0 || before == u64::from(VICTIM) + 1, "worker {before} - 1 holds it, too");
        me.progress()?;
        assert_eq!(holder.swap(me, 0)?, own, "the lock has one holder");
        Ok(guard.release()?)
    };
    let (mut rounds, mut after) = (0, 0);
    while after < 20 {
        after += u32::from(!is_victim_lost() || !me.lost_processes().is_empty());
        for home in (0..me.process_count()).map(ProcessId::new) {
            match hold(home) {
                Err(Error::PeerLost { process, .. }) if process == home && home.number() == VICTIM => {}
                held => held?,
            }
        }
        rounds += 1;
        if rounds == 1 {
            report_work();
        }
    }
    report_end(PROGRAM, me);
    Ok(())
}

#[test]
#[ignore = "a program for other tests"]
fn program() {
    let job = farside::job().processes(4).finalize_deadline(limit());
    if let Err(error) = job.run(body) {
        eprintln!("verdict: {error}");
        std::process::exit(1);
    }
}

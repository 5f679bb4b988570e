//! Tests of combining with real threads. `tests/models/combining.rs` checks their
//! protocol.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::{fs, thread};

use farside_testbed::wait_until;

use super::operation::POSTED_MAX;
use super::{Combining, SyncError};

const THREADS: u64 = 8;
const ROUNDS: u64 = 5_000;

/// The operations of the tests.
trait Executor: Sync {
    fn add(&self, by: u64) -> Result<u64, SyncError>;
    fn post_add(&self, by: u64) -> Result<(), SyncError>;
    fn panic(&self);
    fn post_panic(&self, with: Box<dyn FnOnce() + Send>);
    fn mended(&self) -> u64;
}

impl Executor for Combining<u64> {
    fn add(&self, by: u64) -> Result<u64, SyncError> {
        self.run(|value| std::mem::replace(value, *value + by))
    }

    fn post_add(&self, by: u64) -> Result<(), SyncError> {
        Ok(self.post(move |value| *value += by)?)
    }

    fn panic(&self) {
        let _: Result<(), _> = self.run(|_| panic!("no more"));
    }

    fn post_panic(&self, with: Box<dyn FnOnce() + Send>) {
        self.post(move |_| with()).map_err(SyncError::from).unwrap();
    }

    fn mended(&self) -> u64 {
        self.repair(|value| *value).unwrap()
    }
}

fn each(test: impl Fn(&dyn Executor)) {
    test(&Combining::new(0));
}

#[test]
fn every_operation_runs_once_and_by_itself() {
    each(|executor| {
        let seen = thread::scope(|scope| {
            let add = || (0..ROUNDS).map(|_| executor.add(1).unwrap()).collect::<Vec<_>>();
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(add)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        // The operations of one thread run in the order of submission.
        assert!(seen.iter().all(|own| own.is_sorted()));
        let mut all = seen.concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..THREADS * ROUNDS));
    });
}

#[test]
fn posted_operations_run_and_excess_is_given_back() {
    each(|executor| {
        let taken = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for round in 0..ROUNDS {
                        match executor.post_add(1) {
                            Ok(()) => _ = taken.fetch_add(1, Ordering::Relaxed),
                            Err(error) => assert!(matches!(error, SyncError::Full { .. }), "{error}"),
                        }
                        if round % 64 == 0 {
                            executor.add(0).unwrap();
                        }
                    }
                });
            }
        });
        assert_eq!(executor.add(0).unwrap(), taken.load(Ordering::Relaxed));
    });
}

#[test]
fn a_panic_reaches_the_caller_and_poisons_the_value() {
    each(|executor| {
        executor.add(5).unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| executor.panic())).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"no more"));
        assert!(matches!(executor.add(1), Err(SyncError::Poisoned)));
        executor.post_add(1).unwrap();
        assert_eq!(executor.mended(), 5);
        assert_eq!(executor.add(1).map_err(|error| error.to_string()), Ok(5));
    });
}

/// The same if another thread runs the operation.
#[test]
fn a_panic_in_another_thread_reaches_the_caller() {
    let value = Combining::new(0_u64);
    let (begun, has_begun) = mpsc::channel();
    let (asks, asked) = mpsc::channel::<PathBuf>();
    thread::scope(|scope| {
        let value = &value;
        let holder = scope.spawn(move || {
            value.run(move |value| {
                begun.send(()).unwrap();
                // The other thread sleeps when it waits for this one.
                let stat = Path::new("/proc").join(asked.recv().unwrap()).join("stat");
                let is_asleep = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'));
                wait_until("the other thread waits", || fs::read_to_string(&stat).is_ok_and(is_asleep));
                *value += 1;
            })
        });
        has_begun.recv().unwrap();
        let asker = scope.spawn(move || {
            asks.send(fs::read_link("/proc/thread-self").unwrap()).unwrap();
            value.run::<()>(|_| panic!("no more"))
        });
        assert_eq!(asker.join().unwrap_err().downcast_ref(), Some(&"no more"));
        assert_eq!(holder.join().unwrap().map_err(|error| error.to_string()), Ok(()));
    });
    assert!(matches!(value.into_inner(), Err(SyncError::Poisoned)));
}

#[test]
fn a_value_in_use_refuses_without_waiting() {
    let value = Arc::new(Combining::new(0_u64));
    let (entered, leave) = (Barrier::new(2), Barrier::new(2));
    let last = thread::scope(|scope| {
        scope.spawn(|| {
            value.run(|_| {
                entered.wait();
                leave.wait();
            })
        });
        entered.wait();
        let refused = value.try_run(|value| *value += 1).unwrap_err();
        assert!(matches!(refused.error, SyncError::Busy));
        for _ in 0..POSTED_MAX {
            value.post(|value| *value += 1).map_err(SyncError::from).unwrap();
        }
        let refused = value.post(|value| *value += 1).unwrap_err();
        assert!(matches!(refused.error, SyncError::Full { .. }));
        leave.wait();
        // The operation that was given back is intact.
        loop {
            match value.try_run(|value| *value) {
                Ok(Ok(seen)) if seen == u64::from(POSTED_MAX) => break refused.arguments,
                _ => thread::yield_now(),
            }
        }
    });
    value.run(last).unwrap();
    assert_eq!(value.run(|value| *value).map_err(|error| error.to_string()), Ok(u64::from(POSTED_MAX) + 1));
}

#[test]
fn an_operation_that_would_wait_for_itself_panics() {
    let combining = Combining::new(0_u64);
    let inside = |run: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        assert!(panic.downcast_ref::<&str>().is_some_and(|text| text.contains("has itself")));
    };
    inside(&|| _ = combining.run(|_| combining.run(|_| ()).is_ok()));
}

/// The payload of a panic may itself panic when it is dropped, in the thread that holds the value.
#[test]
fn a_panic_payload_may_panic_when_dropped() {
    struct Again;
    impl Drop for Again {
        fn drop(&mut self) {
            panic!("again");
        }
    }
    each(|executor| {
        executor.post_panic(Box::new(|| panic_any(Again)));
        assert!(matches!(executor.add(1), Err(SyncError::Poisoned)));
        assert_eq!(executor.mended(), 0);
    });
    // The same if another thread than the one that posted it runs it.
    let value = Combining::new(0_u64);
    let ran = value.run(|_| value.post(|_| panic_any(Again)).is_ok());
    assert_eq!(ran.map_err(|error| error.to_string()), Ok(true));
    assert_eq!(value.repair(|value| *value).map_err(|error| error.to_string()), Ok(0));
}

//! The protocol of combining under a model checker, which tries every order of the
//! threads and every value that a load can return.
//!
//! The file of the protocol is compiled once more here, with the checker's atomics, threads and
//! cells. Models are tiny, so that they end.

/// The types that the protocol uses here.
mod atomics {
    pub(crate) use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
    pub(crate) use loom::thread::{Thread, current, park};

    /// A value whose accesses the checker sees.
    #[derive(Debug)]
    pub(crate) struct ValueCell<T>(loom::cell::UnsafeCell<T>);

    impl<T> ValueCell<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::cell::UnsafeCell::new(value))
        }

        pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
            self.0.with_mut(access)
        }
    }
}

#[path = "../../src/sync/requests.rs"]
mod requests;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use farside_fabric::wait::WaitPolicy;
use loom::cell::UnsafeCell;
use loom::thread;

use atomics::ValueCell;
use requests::{Ended, List, Request, Requests, run};

/// Threads of a model do not spin: the checker tries all orders anyway.
const POLICY: WaitPolicy = WaitPolicy::SIMULATED;

/// Adds to a number and returns its previous value.
#[repr(C)]
struct Add {
    request: Request<u64>,
    by: u64,
    before: UnsafeCell<Option<u64>>,
}

impl Add {
    fn new(by: u64) -> Self {
        // SAFETY: `add` casts the request to the `Add` that it is part of, and the maker of the
        // `Add` waits for it.
        let request = unsafe { Request::new(true, add) };
        Self { request, by, before: UnsafeCell::new(None) }
    }

    fn run_here(&self, value: &ValueCell<u64>) {
        value.with_mut(|value| {
            // SAFETY: this thread holds the value.
            let value = unsafe { &mut *value };
            // SAFETY: this is the request of an `Add`.
            unsafe { add(NonNull::from(&self.request), value) };
        });
    }
}

unsafe fn add(request: NonNull<Request<u64>>, value: &mut u64) {
    // SAFETY: the request is the first field of an `Add`, which is `repr(C)`.
    let add = unsafe { request.cast::<Add>().as_ref() };
    // SAFETY: no other thread accesses `before` until the request is settled.
    add.before.with_mut(|before| unsafe { *before = Some(*value) });
    *value += add.by;
}

/// Adds to a number and is freed.
#[repr(C)]
struct Posted {
    request: Request<u64>,
    ran: Arc<AtomicU32>,
}

unsafe fn posted(request: NonNull<Request<u64>>, value: &mut u64) {
    // SAFETY: the request is the first field of a boxed `Posted`, which is `repr(C)` and given up
    // here.
    let posted = unsafe { Box::from_raw(request.cast::<Posted>().as_ptr()) };
    posted.ran.fetch_add(1, Relaxed);
    *value += 1;
}

struct Model {
    requests: Requests<u64>,
    value: ValueCell<u64>,
}

impl Model {
    fn new() -> loom::sync::Arc<Self> {
        loom::sync::Arc::new(Self { requests: Requests::free(), value: ValueCell::new(0) })
    }

    /// Does the steps of `Combining::run`.
    fn add(&self, by: u64, limit: u32, mark: usize) -> u64 {
        let add = Add::new(by);
        let mut rest = List::empty();
        let mut is_done = false;
        if !self.requests.try_hold(mark) {
            assert!(!self.requests.is_held_by(mark));
            // SAFETY: the request stays here until it has run, or this thread holds the value.
            let is_left = unsafe { self.requests.leave_or_hold(NonNull::from(&add.request), mark) };
            if is_left {
                match self.requests.wait(&add.request, POLICY, mark) {
                    Ended::Done => is_done = true,
                    Ended::Chosen(list) => rest = list,
                }
            }
        }
        if !is_done {
            add.run_here(&self.value);
            // SAFETY: this thread holds the value.
            unsafe { self.requests.serve(&self.value, rest, limit, mark) };
        }
        // SAFETY: the request has run, so no other thread accesses `before`.
        add.before.with(|before| unsafe { (*before).expect("it was run") })
    }

    /// Does the steps of `Combining::post`.
    fn post(&self, ran: &Arc<AtomicU32>, mark: usize) {
        // SAFETY: `posted` casts the request to the boxed `Posted` that it is part of, and frees
        // it.
        let request = unsafe { Request::new(false, posted) };
        let boxed = NonNull::from(Box::leak(Box::new(Posted { request, ran: ran.clone() })));
        // SAFETY: the box is alive until its request has run.
        if unsafe { !self.requests.leave_or_hold(boxed.cast(), mark) } {
            // SAFETY: this thread holds the value, and the request is new.
            unsafe { run(boxed.cast(), &self.value) };
            // SAFETY: this thread holds the value.
            unsafe { self.requests.serve(&self.value, List::empty(), 8, mark) };
        }
    }
}

fn check(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

/// Every operation runs once and alone, and its result reaches its thread.
#[test]
fn two_threads_add_twice() {
    check(Some(3), || {
        let model = Model::new();
        let other = model.clone();
        let thread = thread::spawn(move || [other.add(1, 8, 1), other.add(1, 8, 1)]);
        let own = [model.add(1, 8, 2), model.add(1, 8, 2)];
        let mut seen = [own, thread.join().unwrap()].concat();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3]);
    });
}

/// The same when a thread runs no operations of others and passes the duty on at once.
#[test]
fn three_threads_choose_each_other() {
    for limit in [0, 1] {
        check(Some(2), move || {
            let model = Model::new();
            let threads = [1, 2].map(|mark| {
                let model = model.clone();
                thread::spawn(move || model.add(1, limit, mark))
            });
            let own = model.add(1, limit, 3);
            let mut seen: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).chain([own]).collect();
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2]);
            assert!(!model.requests.is_held());
        });
    }
}

/// Posted operations, which no thread waits for, have run once all threads have left.
#[test]
fn posts_are_not_left_behind() {
    check(Some(2), || {
        let model = Model::new();
        let ran = Arc::new(AtomicU32::new(0));
        let threads = [1, 2].map(|mark| {
            let (model, ran) = (model.clone(), ran.clone());
            thread::spawn(move || model.post(&ran, mark))
        });
        model.add(1, 8, 3);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(ran.load(Relaxed), 2);
        assert!(!model.requests.is_held());
    });
}

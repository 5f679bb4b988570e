//! Who may touch a value, and what others want done with it, in one word.
//!
//! The word is *free* (nobody serves the value), *held* (somebody does, and nobody else wants anything), or the address of the request that
//! came last, whose `next` leads to the one before. Whoever finds it free holds it and works on the value; whoever does not puts a request
//! there and waits, or goes on its way. The holder runs the requests in the order in which they came, and may free the word only when it is
//! just held: so no request is left behind, without any fence.
//!
//! This is the combining of Fatourou and Kallimanis (CC-Synch, PPoPP 2012) with the queue of requests turned round: they put theirs behind
//! each other by a swap, so that each needs a place of its own that outlives it; here a request is put before the others by a
//! compare-and-swap and may lie on the stack of the thread that waits for it, and the holder turns the list round when it takes it. The
//! bound on how many requests one thread runs for others, and the passing on of the rest, are theirs.
//!
//! What a request is made of is up to `operation`: here it is a function to be called with it.

use std::ptr::{self, NonNull};

use farside_fabric::wait::{Backoff, WaitPolicy};

use super::atomics::{AtomicPtr, AtomicU32, AtomicUsize, Mutex, Ordering, Thread, ValueCell, current, park};

/// The word.
#[derive(Debug)]
pub(crate) struct Requests<T> {
    /// Written by all. Whoever brings it from free to held, or is chosen, may touch the value, until it frees the word or chooses another.
    last: AtomicPtr<Request<T>>,
    /// The mark of the thread that holds, and 0 when it does not any more. Only that thread can find its own mark.
    holder: AtomicUsize,
}

/// Something that a thread wants done.
#[derive(Debug)]
pub(crate) struct Request<T> {
    /// The request before this one; when the holder has turned the list round, the one after it. Written by whoever has the request.
    next: AtomicPtr<Request<T>>,
    /// What has become of it, for the one who waits.
    state: AtomicU32,
    /// The one who waits, once it has fallen asleep.
    thread: Mutex<Option<Thread>>,
    /// Whether somebody waits. Otherwise the request is gone when it was run.
    waits: bool,
    run: unsafe fn(NonNull<Request<T>>, &mut T),
}

/// Neither run nor chosen.
const WAITING: u32 = 0;
/// The same, and its thread is about to sleep.
const PARKED: u32 = 1;
/// It was run. From now on it belongs to its thread again.
const DONE: u32 = 2;
/// It was not run, but its thread holds now, and `next` are those that are to be run after it.
const CHOSEN: u32 = 3;

/// What a request was waited for.
#[derive(Debug)]
pub(crate) enum Ended<T> {
    /// It was run.
    Done,
    /// This thread holds now, and is to run it, and these after it.
    Chosen(List<T>),
}

/// Requests that the holder has taken, in the order in which they came.
#[derive(Debug)]
pub(crate) struct List<T> {
    first: *mut Request<T>,
}

impl<T> Request<T> {
    /// # Safety
    /// `run` may be called with a pointer to this request, once, by any thread, before the request is gone, or, if nobody `waits`, to have it
    /// gone.
    pub(crate) unsafe fn new(waits: bool, run: unsafe fn(NonNull<Request<T>>, &mut T)) -> Self {
        let next = AtomicPtr::new(ptr::null_mut());
        Self { next, state: AtomicU32::new(WAITING), thread: Mutex::new(None), waits, run }
    }

    fn wait(&self, policy: WaitPolicy) -> Ended<T> {
        let mut backoff = Backoff::new(policy);
        while backoff.pause() {
            if let Some(ended) = self.ended() {
                return ended;
            }
        }
        *self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(current());
        // SYNC: release, for the loads in `settle`: who finds it parked finds its thread. If it has ended, `ended` says how.
        let _ = self.state.compare_exchange(WAITING, PARKED, Ordering::Release, Ordering::Relaxed);
        loop {
            if let Some(ended) = self.ended() {
                return ended;
            }
            park();
        }
    }

    fn ended(&self) -> Option<Ended<T>> {
        // SYNC: acquire, for the release in `settle`: the result, or the value and the list, come with it.
        match self.state.load(Ordering::Acquire) {
            DONE => Some(Ended::Done),
            CHOSEN => Some(Ended::Chosen(List { first: self.next.load(Ordering::Relaxed) })),
            _ => None,
        }
    }
}

impl<T> Requests<T> {
    /// Nobody holds.
    pub(crate) fn free() -> Self {
        Self { last: AtomicPtr::new(free()), holder: AtomicUsize::new(0) }
    }

    /// Holds, if nobody does.
    #[inline]
    pub(crate) fn try_hold(&self, mark: usize) -> bool {
        // SYNC: acquire, for the release in `try_free`: what was done to the value comes with it.
        let holds = self.last.compare_exchange(free(), held(), Ordering::Acquire, Ordering::Relaxed).is_ok();
        if holds {
            self.holder.store(mark, Ordering::Relaxed);
        }
        holds
    }

    /// Whether the thread of this mark holds.
    pub(crate) fn is_held_by(&self, mark: usize) -> bool {
        self.holder.load(Ordering::Relaxed) == mark
    }

    /// Whether anybody holds, or did a moment ago.
    pub(crate) fn is_held(&self) -> bool {
        self.last.load(Ordering::Relaxed) != free()
    }

    /// Leaves a request to the holder, or, if there is none, holds. Says whether it was left.
    ///
    /// # Safety
    /// The request is a new one. It stays until it was run, or its `wait` has ended.
    pub(crate) unsafe fn leave_or_hold(&self, request: NonNull<Request<T>>, mark: usize) -> bool {
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            if last == free() {
                if self.try_hold(mark) {
                    return false;
                }
                last = self.last.load(Ordering::Relaxed);
                continue;
            }
            // SAFETY: the caller says that it is there.
            let next = unsafe { &(*request.as_ptr()).next };
            next.store(last, Ordering::Relaxed);
            // SYNC: release, for the acquire in `take`: the request comes with its address. Those that are put before it later
            // continue the sequence, so that one acquire brings all.
            let left = self.last.compare_exchange_weak(last, request.as_ptr(), Ordering::Release, Ordering::Relaxed);
            match left {
                Ok(_) => return true,
                Err(now) => last = now,
            }
        }
    }

    /// Waits until a request was run that was [left](Self::leave_or_hold), or this thread is to run it, and holds.
    ///
    /// The wait ends when those that came before have run: it is as long as theirs are.
    pub(crate) fn wait(&self, request: &Request<T>, policy: WaitPolicy, mark: usize) -> Ended<T> {
        let ended = request.wait(policy);
        if matches!(ended, Ended::Chosen(_)) {
            self.holder.store(mark, Ordering::Relaxed);
        }
        ended
    }

    /// Takes the requests that have come, in the order in which they came. Only the holder may.
    pub(crate) fn take(&self) -> List<T> {
        if self.last.load(Ordering::Relaxed) == held() {
            return List::empty();
        }
        let mut newest = self.last.swap(held(), Ordering::Acquire);
        let mut list = List::empty();
        while newest != held() {
            // SAFETY: what was put into the word stays until it was run; only the holder takes it out.
            let next = unsafe { &(*newest).next };
            let before = next.load(Ordering::Relaxed);
            next.store(list.first, Ordering::Relaxed);
            list.first = newest;
            newest = before;
        }
        list
    }

    /// Holds no more, unless requests have come.
    pub(crate) fn try_free(&self, mark: usize) -> bool {
        // Before the word is free: whoever holds next writes its own.
        self.holder.store(0, Ordering::Relaxed);
        let is_free = self.last.compare_exchange(held(), free(), Ordering::Release, Ordering::Relaxed).is_ok();
        if !is_free {
            self.holder.store(mark, Ordering::Relaxed);
        }
        is_free
    }

    /// Runs `list`, and then what has come meanwhile, until there is nothing more and nobody holds, or `limit` requests of threads that wait
    /// were run: then the next of those holds and goes on. Says how many requests were run for which nobody waits.
    ///
    /// # Safety
    /// This thread holds, and nothing else reaches the value. After this it does not hold any more.
    pub(crate) unsafe fn serve(&self, value: &ValueCell<T>, mut list: List<T>, limit: u32, mark: usize) -> u32 {
        let (mut waited_for, mut others) = (0, 0);
        loop {
            while let Some(request) = list.pop() {
                // SAFETY: it was not run yet.
                let waits = unsafe { (*request.as_ptr()).waits };
                if waits && waited_for == limit {
                    // SAFETY: as above.
                    let next = unsafe { &(*request.as_ptr()).next };
                    next.store(list.first, Ordering::Relaxed);
                    self.holder.store(0, Ordering::Relaxed);
                    // SAFETY: as above; its thread waits.
                    unsafe { settle(request, CHOSEN) };
                    return others;
                }
                *(if waits { &mut waited_for } else { &mut others }) += 1;
                // SAFETY: it was not run yet, and this thread may touch the value.
                unsafe { run(request, value) };
            }
            if self.try_free(mark) {
                return others;
            }
            list = self.take();
        }
    }
}

impl<T> List<T> {
    pub(crate) fn empty() -> Self {
        Self { first: ptr::null_mut() }
    }

    /// Takes the oldest out.
    pub(crate) fn pop(&mut self) -> Option<NonNull<Request<T>>> {
        let first = NonNull::new(self.first)?;
        // SAFETY: a request in a list was not run yet, and so is there.
        let next = unsafe { &(*first.as_ptr()).next };
        self.first = next.load(Ordering::Relaxed);
        Some(first)
    }
}

/// Runs a request, and lets its thread go on if it waits. Says whether it waited.
///
/// # Safety
/// The request was taken from the word, and not run yet. Nothing else reaches the value meanwhile.
pub(crate) unsafe fn run<T>(request: NonNull<Request<T>>, value: &ValueCell<T>) -> bool {
    // SAFETY: it was not run yet, and so is there.
    let waits = unsafe { (*request.as_ptr()).waits };
    // SAFETY: as above.
    let function = unsafe { (*request.as_ptr()).run };
    value.with_mut(|value| {
        // SAFETY: the caller says that nothing else reaches the value.
        let value = unsafe { &mut *value };
        // SAFETY: it is this request's own function, and called once.
        unsafe { function(request, value) };
    });
    if waits {
        // SAFETY: one that is waited for is there until it is settled.
        unsafe { settle(request, DONE) };
    }
    waits
}

/// Tells the thread that waits what has become of its request, which is gone then.
///
/// # Safety
/// The thread waits, and was not told anything yet.
unsafe fn settle<T>(request: NonNull<Request<T>>, to: u32) {
    // Borrowed by themselves: a borrow of the whole request would outlive it.
    // SAFETY: it is there until its state is changed here.
    let state = unsafe { &(*request.as_ptr()).state };
    // SYNC: acquire, for the release in `wait`.
    let mut seen = state.load(Ordering::Acquire);
    loop {
        let sleeper = (seen == PARKED).then(|| {
            // SAFETY: as above.
            let thread = unsafe { &(*request.as_ptr()).thread };
            thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
        });
        // SYNC: release, for the acquire in `ended`.
        match state.compare_exchange(seen, to, Ordering::Release, Ordering::Acquire) {
            Ok(_) => {
                if let Some(Some(sleeper)) = sleeper {
                    sleeper.unpark();
                }
                return;
            }
            Err(now) => seen = now,
        }
    }
}

/// The word when nobody holds.
fn free<T>() -> *mut Request<T> {
    ptr::null_mut()
}

/// The word when somebody holds and there are no requests. No request lies there.
fn held<T>() -> *mut Request<T> {
    ptr::without_provenance_mut(1)
}

//! One word that decides which thread may touch a value, and holds the requests of the others.
//!
//! The word is *free* (no thread serves the value), *held* (one does, and there are no requests),
//! or the address of the newest request, whose `next` leads to the one before. A thread that finds
//! the word free holds it and works on the value. Any other thread puts a request there and waits
//! or continues. The holder runs the requests in the order in which they came, and may free the
//! word only when it is just *held*. So no request is left behind, without any fence.
//!
//! This is the combining of Fatourou and Kallimanis (CC-Synch, PPoPP 2012) with the queue of
//! requests reversed. Theirs are appended by a swap, so each needs a place of its own that outlives
//! it. Here a compare-and-swap puts a request before the others, so it may lie on the stack of the
//! waiting thread, and the holder reverses the list when it takes it. The limit on how many
//! requests one thread runs for others, and passing on the rest, are theirs.
//!
//! `operation` decides what a request is: a function to be called with the value.

use std::ptr::{self, NonNull};

use farside_fabric::wait::{Backoff, WaitPolicy};

use super::atomics::{AtomicPtr, AtomicU32, AtomicUsize, Mutex, Ordering, Thread, ValueCell, current, park};

/// The word of one value.
#[derive(Debug)]
pub(crate) struct Requests<T> {
    /// Written by all threads. The thread that changes it from free to held, or that is chosen, may
    /// touch the value until it frees the word or chooses another.
    last: AtomicPtr<Request<T>>,
    /// The mark of the holding thread, or 0. A thread finds its own mark here only while it holds.
    holder: AtomicUsize,
}

/// A request of a thread.
#[derive(Debug)]
pub(crate) struct Request<T> {
    /// The request before this one; after the holder has reversed the list, the one after it.
    /// Written by the owner of the request.
    next: AtomicPtr<Request<T>>,
    /// The state of the request, for the waiting thread.
    state: AtomicU32,
    /// The waiting thread, once it sleeps.
    thread: Mutex<Option<Thread>>,
    /// True if a thread waits. If not, the request is gone once it was run.
    waits: bool,
    run: unsafe fn(NonNull<Request<T>>, &mut T),
}

/// Neither run nor chosen.
const WAITING: u32 = 0;
/// Neither run nor chosen, and its thread is about to sleep.
const PARKED: u32 = 1;
/// Run. From now on the request belongs to its thread again.
const DONE: u32 = 2;
/// Not run, but its thread holds now; `next` leads to the requests to run after it.
const CHOSEN: u32 = 3;

/// The result of waiting for a request.
#[derive(Debug)]
pub(crate) enum Ended<T> {
    /// The request was run.
    Done,
    /// This thread holds now, and is to run its request and then these.
    Chosen(List<T>),
}

/// Requests that the holder has taken, oldest first.
#[derive(Debug)]
pub(crate) struct List<T> {
    first: *mut Request<T>,
}

impl<T> Request<T> {
    /// # Safety
    /// Any thread may call `run` once with a pointer to this request, before the request is gone.
    /// If no thread `waits`, that call frees the request.
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
        // SYNC: release, for the loads in `settle`: a thread that reads `PARKED` finds this thread.
        // If the request has ended, `ended` notices.
        let _ = self.state.compare_exchange(WAITING, PARKED, Ordering::Release, Ordering::Relaxed);
        loop {
            if let Some(ended) = self.ended() {
                return ended;
            }
            park();
        }
    }

    fn ended(&self) -> Option<Ended<T>> {
        // SYNC: acquire, for the release in `settle`: the result, or the value and the list, are
        // visible.
        match self.state.load(Ordering::Acquire) {
            DONE => Some(Ended::Done),
            CHOSEN => Some(Ended::Chosen(List { first: self.next.load(Ordering::Relaxed) })),
            _ => None,
        }
    }
}

impl<T> Requests<T> {
    /// Makes a free word.
    pub(crate) fn free() -> Self {
        Self { last: AtomicPtr::new(free()), holder: AtomicUsize::new(0) }
    }

    /// Takes hold if the word is free. Returns whether it did.
    #[inline]
    pub(crate) fn try_hold(&self, mark: usize) -> bool {
        // SYNC: acquire, for the release in `try_free`: all earlier changes of the value are
        // visible.
        let holds = self.last.compare_exchange(free(), held(), Ordering::Acquire, Ordering::Relaxed).is_ok();
        if holds {
            self.holder.store(mark, Ordering::Relaxed);
        }
        holds
    }

    /// Returns whether the thread with this mark holds.
    pub(crate) fn is_held_by(&self, mark: usize) -> bool {
        self.holder.load(Ordering::Relaxed) == mark
    }

    /// Returns whether a thread holds, or did a moment ago.
    pub(crate) fn is_held(&self) -> bool {
        self.last.load(Ordering::Relaxed) != free()
    }

    /// Leaves a request to the holder, or takes hold if there is none. Returns whether the request
    /// was left.
    ///
    /// # Safety
    /// The request is new. It stays until it was run, or its `wait` has ended.
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
            // SAFETY: by this function's contract the request exists.
            let next = unsafe { &(*request.as_ptr()).next };
            next.store(last, Ordering::Relaxed);
            // SYNC: release, for the acquire in `take`: the request is visible with its address.
            // Requests put before it later continue the release sequence, so one acquire makes all
            // of them visible.
            let left = self.last.compare_exchange_weak(last, request.as_ptr(), Ordering::Release, Ordering::Relaxed);
            match left {
                Ok(_) => return true,
                Err(now) => last = now,
            }
        }
    }

    /// Waits until a [left](Self::leave_or_hold) request was run, or until this thread holds and is
    /// to run it.
    ///
    /// The wait lasts as long as the requests that came before.
    pub(crate) fn wait(&self, request: &Request<T>, policy: WaitPolicy, mark: usize) -> Ended<T> {
        let ended = request.wait(policy);
        if matches!(ended, Ended::Chosen(_)) {
            self.holder.store(mark, Ordering::Relaxed);
        }
        ended
    }

    /// Takes the requests that have come, oldest first. Only the holder calls this.
    pub(crate) fn take(&self) -> List<T> {
        if self.last.load(Ordering::Relaxed) == held() {
            return List::empty();
        }
        let mut newest = self.last.swap(held(), Ordering::Acquire);
        let mut list = List::empty();
        while newest != held() {
            // SAFETY: a request in the word exists until it was run, and only the holder takes it
            // out.
            let next = unsafe { &(*newest).next };
            let before = next.load(Ordering::Relaxed);
            next.store(list.first, Ordering::Relaxed);
            list.first = newest;
            newest = before;
        }
        list
    }

    /// Frees the word, unless requests have come. Returns whether it did.
    pub(crate) fn try_free(&self, mark: usize) -> bool {
        // Before the word is free, since the next holder writes its own mark.
        self.holder.store(0, Ordering::Relaxed);
        let is_free = self.last.compare_exchange(held(), free(), Ordering::Release, Ordering::Relaxed).is_ok();
        if !is_free {
            self.holder.store(mark, Ordering::Relaxed);
        }
        is_free
    }

    /// Runs `list`, and then the requests that came meanwhile, until there are none and the word is
    /// free. After `limit` requests of waiting threads, the next such thread is chosen instead: it
    /// holds and continues. Returns the number of requests run for which no thread waits.
    ///
    /// # Safety
    /// This thread holds, and nothing else reaches the value. Afterwards this thread no longer
    /// holds.
    pub(crate) unsafe fn serve(&self, value: &ValueCell<T>, mut list: List<T>, limit: u32, mark: usize) -> u32 {
        let (mut waited_for, mut others) = (0, 0);
        loop {
            while let Some(request) = list.pop() {
                // SAFETY: the request was popped from a list and not run, so it exists.
                let waits = unsafe { (*request.as_ptr()).waits };
                if waits && waited_for == limit {
                    // SAFETY: the request was not run, so it exists.
                    let next = unsafe { &(*request.as_ptr()).next };
                    next.store(list.first, Ordering::Relaxed);
                    self.holder.store(0, Ordering::Relaxed);
                    // SAFETY: the request was not run, so it exists; its thread waits and was not
                    // notified.
                    unsafe { settle(request, CHOSEN) };
                    return others;
                }
                *(if waits { &mut waited_for } else { &mut others }) += 1;
                // SAFETY: the request was not run, and by this function's contract nothing else
                // reaches the value.
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

    /// Removes and returns the oldest request.
    pub(crate) fn pop(&mut self) -> Option<NonNull<Request<T>>> {
        let first = NonNull::new(self.first)?;
        // SAFETY: a request in a list was not run, so it exists.
        let next = unsafe { &(*first.as_ptr()).next };
        self.first = next.load(Ordering::Relaxed);
        Some(first)
    }
}

/// Runs a request, and lets its thread continue if it waits. Returns whether it waited.
///
/// # Safety
/// The request was taken from the word and not run. Nothing else reaches the value meanwhile.
pub(crate) unsafe fn run<T>(request: NonNull<Request<T>>, value: &ValueCell<T>) -> bool {
    // SAFETY: the request was not run, so it exists.
    let waits = unsafe { (*request.as_ptr()).waits };
    // SAFETY: the request was not run, so it exists.
    let function = unsafe { (*request.as_ptr()).run };
    value.with_mut(|value| {
        // SAFETY: by this function's contract nothing else reaches the value.
        let value = unsafe { &mut *value };
        // SAFETY: it is this request's own function, called for the first and only time.
        unsafe { function(request, value) };
    });
    if waits {
        // SAFETY: a request with a waiting thread exists until it is settled.
        unsafe { settle(request, DONE) };
    }
    waits
}

/// Tells the waiting thread what has become of its request, which is gone afterwards.
///
/// # Safety
/// The thread waits, and was not notified.
unsafe fn settle<T>(request: NonNull<Request<T>>, to: u32) {
    // Each field is borrowed by itself, since a borrow of the whole request would outlive it.
    // SAFETY: the request exists until its state is changed here.
    let state = unsafe { &(*request.as_ptr()).state };
    // SYNC: acquire, for the release in `wait`.
    let mut seen = state.load(Ordering::Acquire);
    loop {
        let sleeper = (seen == PARKED).then(|| {
            // SAFETY: the request exists until its state is changed below.
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

/// The word while no thread holds.
fn free<T>() -> *mut Request<T> {
    ptr::null_mut()
}

/// The word while a thread holds and there are no requests. No request has this address.
fn held<T>() -> *mut Request<T> {
    ptr::without_provenance_mut(1)
}

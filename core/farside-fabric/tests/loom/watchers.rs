//! Sleeping until a word changes: no watcher sleeps for ever after a change. The mutants omit each
//! step of `bell.rs` in turn.

use std::sync::Arc;

use farside_fabric::bell::{Doorbell, Fencing, Watchers};
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;

use crate::futex::Futex;
use crate::{check, check_finds};

/// The way in which a word is signalled, and in which a watcher sleeps until then.
trait Protocol: Send + Sync + 'static {
    type Token;

    /// The word was stored, or changed by a read-modify-write.
    fn signalled(&self, by_change: bool);

    /// The watcher is about to sleep.
    fn prepare(&self) -> Self::Token;

    /// The watcher sleeps, or does not after all. Then it is awake.
    fn sleep(&self, token: Self::Token, for_real: bool);
}

/// The implementation of the crate.
struct Real {
    watchers: Watchers,
    bell: Doorbell,
    futex: Futex,
}

impl Real {
    fn new(fencing: Fencing) -> Self {
        let real = Self { watchers: Watchers::default(), bell: Doorbell::default(), futex: Futex::new() };
        real.watchers.set_fencing(fencing);
        real.bell.set_fencing(fencing);
        real
    }
}

impl Protocol for Real {
    type Token = farside_fabric::bell::SleepToken;

    fn signalled(&self, by_change: bool) {
        let are_there = match by_change {
            true => self.watchers.are_there_after_change(),
            false => self.watchers.are_there(self.watchers.fencing()),
        };
        if are_there {
            self.bell.ring_with(|_| self.futex.wake());
        }
    }

    fn prepare(&self) -> Self::Token {
        self.watchers.enter();
        self.bell.prepare(self.bell.fencing(), || ())
    }

    fn sleep(&self, token: Self::Token, for_real: bool) {
        match for_real {
            true => self.bell.sleep_on(token, |word, seen| self.futex.wait(word, seen)),
            false => self.bell.cancel(token),
        }
        self.watchers.leave();
    }
}

/// The missing step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mutation {
    Nothing,
    FenceOfSignaller,
    FenceInPrepare,
    CountBeforeFence,
}

struct Steps {
    mutation: Mutation,
    count: AtomicU32,
    asleep: AtomicU32,
    rings: AtomicU32,
    futex: Futex,
}

impl Steps {
    fn new(mutation: Mutation) -> Self {
        let (count, asleep, rings) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        Self { mutation, count, asleep, rings, futex: Futex::new() }
    }
}

impl Protocol for Steps {
    type Token = u32;

    fn signalled(&self, _: bool) {
        if self.mutation != Mutation::FenceOfSignaller {
            fence(Ordering::SeqCst);
        }
        if self.count.load(Ordering::Relaxed) != 0 && self.asleep.load(Ordering::Relaxed) != 0 {
            self.rings.fetch_add(1, Ordering::Relaxed);
            self.futex.wake();
        }
    }

    fn prepare(&self) -> u32 {
        let late = self.mutation == Mutation::CountBeforeFence;
        if !late {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        self.asleep.store(1, Ordering::Relaxed);
        if self.mutation != Mutation::FenceInPrepare {
            fence(Ordering::SeqCst);
        }
        if late {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        self.rings.load(Ordering::Acquire)
    }

    fn sleep(&self, token: u32, for_real: bool) {
        if for_real {
            self.futex.wait(&self.rings, token);
        }
        self.asleep.store(0, Ordering::Relaxed);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One thread signals twice, and the other sleeps until both signals have arrived.
fn two_signals<P: Protocol>(protocol: P, by_change: bool) {
    let shared = Arc::new((protocol, AtomicU64::new(0)));
    let signalling = thread::spawn({
        let shared = shared.clone();
        move || {
            for count in 1..=2 {
                match by_change {
                    true => drop(shared.1.fetch_add(1, Ordering::SeqCst)),
                    false => shared.1.store(count, Ordering::Release),
                }
                shared.0.signalled(by_change);
            }
        }
    });
    let (protocol, word) = &*shared;
    while word.load(Ordering::Acquire) < 2 {
        let token = protocol.prepare();
        protocol.sleep(token, word.load(Ordering::Acquire) < 2);
    }
    signalling.join().unwrap();
}

#[test]
fn a_sleeping_watcher_is_woken_by_every_signal() {
    for by_change in [false, true] {
        for fencing in [Fencing::Mutual, Fencing::ByReceiver] {
            check(Some(4), move || two_signals(Real::new(fencing), by_change));
        }
        check(Some(4), move || two_signals(Steps::new(Mutation::Nothing), by_change));
    }
}

macro_rules! mutants {
    ($($test:ident: $mutation:ident);* $(;)?) => {$(
        #[test]
        fn $test() {
            check_finds("deadlock", stringify!($mutation), || two_signals(Steps::new(Mutation::$mutation), false));
        }
    )*};
}

mutants! {
    a_signal_is_lost_without_the_fence_of_who_signals: FenceOfSignaller;
    a_signal_is_lost_without_the_fence_in_prepare: FenceInPrepare;
    a_signal_is_lost_when_watchers_count_themselves_too_late: CountBeforeFence;
}

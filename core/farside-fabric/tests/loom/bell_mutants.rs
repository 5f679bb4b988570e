//! The steps of `bell.rs`, each in turn omitted or weakened: the checker finds the consequence.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;

use crate::bell::{Leaves, Protocol, receive_sleeping};
use crate::futex::Futex;
use crate::{check, check_finds};

/// The missing step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mutation {
    Nothing,
    FenceInAnnounce,
    FenceInSetBit,
    FenceInClearBit,
    FenceInPrepare,
    AcquireInPrepare,
    CountOfRings,
}

struct Steps {
    mutation: Mutation,
    bits: AtomicU64,
    rings: AtomicU32,
    asleep: AtomicU32,
    futex: Futex,
}

impl Steps {
    fn new(mutation: Mutation) -> Self {
        let (rings, asleep) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { mutation, bits: AtomicU64::new(0), rings, asleep, futex: Futex::new() }
    }

    fn fence_unless(&self, left_out: Mutation) {
        if self.mutation != left_out {
            fence(Ordering::SeqCst);
        }
    }
}

impl Protocol for Steps {
    type Token = u32;

    fn announce(&self, mask: u64) {
        self.fence_unless(Mutation::FenceInAnnounce);
        if self.bits.load(Ordering::Relaxed) & mask == 0 {
            self.bits.fetch_or(mask, Ordering::Relaxed);
            self.fence_unless(Mutation::FenceInSetBit);
        }
        if self.asleep.load(Ordering::Relaxed) != 0 {
            if self.mutation != Mutation::CountOfRings {
                self.rings.fetch_add(1, Ordering::Relaxed);
            }
            self.futex.wake();
        }
    }

    fn bits(&self) -> u64 {
        self.bits.load(Ordering::Relaxed)
    }

    fn clear(&self, mask: u64) {
        self.bits.fetch_and(!mask, Ordering::Relaxed);
        self.fence_unless(Mutation::FenceInClearBit);
    }

    fn prepare(&self, watched: u64) -> u32 {
        self.asleep.store(1, Ordering::Relaxed);
        self.bits.fetch_and(!watched, Ordering::Relaxed);
        self.fence_unless(Mutation::FenceInPrepare);
        let is_whole = self.mutation != Mutation::AcquireInPrepare;
        self.rings.load(if is_whole { Ordering::Acquire } else { Ordering::Relaxed })
    }

    fn cancel(&self, _: u32) {
        self.asleep.store(0, Ordering::Relaxed);
    }

    fn sleep(&self, token: u32) {
        self.futex.wait(&self.rings, token);
        self.asleep.store(0, Ordering::Relaxed);
    }
}

/// One sender publishes two records, and the receiver sleeps until they have arrived. A ring is a
/// count of records here.
fn two_records(mutation: Mutation, leaves: Leaves) {
    let protocol = Arc::new(Steps::new(mutation));
    let published = Arc::new(AtomicU64::new(0));
    let sending = thread::spawn({
        let (protocol, published) = (protocol.clone(), published.clone());
        move || {
            for count in 1..=2 {
                published.store(count, Ordering::Release);
                protocol.announce(1);
            }
        }
    });
    let mut taken = 0;
    receive_sleeping(&*protocol, leaves, 2, |_| {
        let new = published.load(Ordering::Acquire) - taken;
        taken += new;
        new as usize
    });
    sending.join().unwrap();
}

#[test]
fn the_whole_protocol_loses_nothing() {
    for leaves in [Leaves::Awake, Leaves::Asleep] {
        check(Some(4), move || two_records(Mutation::Nothing, leaves));
    }
}

macro_rules! mutants {
    ($($test:ident: $mutation:ident, $leaves:ident);* $(;)?) => {$(
        #[test]
        fn $test() {
            check_finds("deadlock", stringify!($mutation), || two_records(Mutation::$mutation, Leaves::$leaves));
        }
    )*};
}

mutants! {
    a_record_is_lost_without_the_fence_in_announce: FenceInAnnounce, Awake;
    a_record_is_lost_without_the_fence_in_announce_to_one_who_leaves_asleep: FenceInAnnounce, Asleep;
    a_record_is_lost_without_the_fence_after_setting_a_bit: FenceInSetBit, Awake;
    a_record_is_lost_without_the_fence_after_clearing_a_bit: FenceInClearBit, Awake;
    a_record_is_lost_without_the_fence_in_prepare: FenceInPrepare, Awake;
    a_record_is_lost_without_the_fence_in_prepare_of_one_who_leaves_asleep: FenceInPrepare, Asleep;
    a_record_is_lost_when_preparing_acquires_nothing: AcquireInPrepare, Awake;
    a_record_is_lost_when_rings_are_not_counted: CountOfRings, Awake;
}

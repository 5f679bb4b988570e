//! The orderings of the ring, each in turn weakened: the checker finds the consequence.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;

use crate::memory::Payload;
use crate::{check, check_finds};

const ROTATE: u64 = u64::MAX;

/// The missing ordering.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mutation {
    Nothing,
    ReleaseInPublish,
    ReleaseInEnter,
    ReleaseInFinishChunk,
    AcquireInNext,
    AcquireInRotate,
    AcquireOfCredit,
    ZeroAhead,
    FenceInBeginWaiting,
    FenceInCreditedSenderWaits,
}

impl Mutation {
    fn order(self, left_out: Self, order: Ordering) -> Ordering {
        if self == left_out { Ordering::Relaxed } else { order }
    }

    fn fence(self, left_out: Self) {
        if self != left_out {
            fence(Ordering::SeqCst);
        }
    }
}

/// A chunk for one record: its header, its payload, and the next header.
#[derive(Default)]
struct Chunk {
    header: AtomicU64,
    payload: Payload,
    behind: AtomicU64,
}

/// A ring of two chunks.
#[derive(Default)]
struct Ring {
    chunks: [Chunk; 2],
    consumed: AtomicU64,
}

impl Ring {
    /// Sends record `number`, counted from 1, in the chunk filling of the same number.
    fn send(&self, number: u64, mutation: Mutation) {
        let chunk = &self.chunks[number as usize % 2];
        if number > 1 {
            let credit = mutation.order(Mutation::AcquireOfCredit, Ordering::Acquire);
            while self.consumed.load(credit) + 2 < number {
                thread::yield_now();
            }
            chunk.header.store(0, Ordering::Relaxed);
            let rotate = mutation.order(Mutation::ReleaseInEnter, Ordering::Release);
            self.chunks[(number as usize - 1) % 2].behind.store(ROTATE, rotate);
        }
        chunk.payload.write(number);
        if mutation != Mutation::ZeroAhead {
            chunk.behind.store(0, Ordering::Relaxed);
        }
        chunk.header.store(number, mutation.order(Mutation::ReleaseInPublish, Ordering::Release));
    }

    fn receive(&self, number: u64, mutation: Mutation) {
        let chunk = &self.chunks[number as usize % 2];
        if number > 1 {
            let rotate = mutation.order(Mutation::AcquireInRotate, Ordering::Acquire);
            while self.chunks[(number as usize - 1) % 2].behind.load(rotate) != ROTATE {
                thread::yield_now();
            }
            let finish = mutation.order(Mutation::ReleaseInFinishChunk, Ordering::Release);
            self.consumed.store(number - 1, finish);
        }
        let next = mutation.order(Mutation::AcquireInNext, Ordering::Acquire);
        let header = loop {
            match chunk.header.load(next) {
                0 => thread::yield_now(),
                header => break header,
            }
        };
        assert_eq!((header, chunk.payload.read()), (number, number));
    }
}

/// Uses each chunk twice.
fn four_records(mutation: Mutation) {
    let ring = Arc::new(Ring::default());
    let sending = thread::spawn({
        let ring = ring.clone();
        move || (1..=4).for_each(|number| ring.send(number, mutation))
    });
    (1..=4).for_each(|number| ring.receive(number, mutation));
    sending.join().unwrap();
}

/// Sends two records and withholds the first header.
fn batch(mutation: Mutation) {
    let records = Arc::new([Chunk::default(), Chunk::default()]);
    let sending = thread::spawn({
        let records = records.clone();
        move || {
            records.iter().for_each(|record| record.payload.write(1));
            records[1].header.store(1, Ordering::Relaxed);
            records[0].header.store(1, mutation.order(Mutation::ReleaseInPublish, Ordering::Release));
        }
    });
    let next = mutation.order(Mutation::AcquireInNext, Ordering::Acquire);
    if records[0].header.load(next) != 0 {
        assert_eq!(records[1].header.load(next), 1, "all of a batch is visible at once");
        records.iter().for_each(|record| assert_eq!(record.payload.read(), 1));
    }
    sending.join().unwrap();
}

/// A sender that waits for credit, without a doorbell: it looks once more, and then sleeps until it
/// is woken.
fn one_credit(mutation: Mutation) {
    struct Shared {
        consumed: AtomicU64,
        sender_waits: AtomicU64,
        woken: Mutex<bool>,
        condition: Condvar,
    }
    let shared = Arc::new(Shared {
        consumed: AtomicU64::new(0),
        sender_waits: AtomicU64::new(0),
        woken: Mutex::new(false),
        condition: Condvar::new(),
    });
    let sending = thread::spawn({
        let shared = shared.clone();
        move || {
            shared.sender_waits.store(1, Ordering::Relaxed);
            mutation.fence(Mutation::FenceInBeginWaiting);
            if shared.consumed.load(Ordering::Acquire) == 0 {
                let mut woken = shared.woken.lock().unwrap();
                while !*woken {
                    woken = shared.condition.wait(woken).unwrap();
                }
            }
        }
    });
    shared.consumed.store(1, Ordering::Release);
    mutation.fence(Mutation::FenceInCreditedSenderWaits);
    if shared.sender_waits.load(Ordering::Relaxed) != 0 {
        *shared.woken.lock().unwrap() = true;
        shared.condition.notify_all();
    }
    sending.join().unwrap();
}

#[test]
fn the_whole_protocol_harms_nothing() {
    check(Some(3), || four_records(Mutation::Nothing));
    check(None, || batch(Mutation::Nothing));
    check(None, || one_credit(Mutation::Nothing));
}

const RACE: &str = "Causality violation";
const LOST_WAKE_UP: &str = "deadlock";
const OLD_RECORD: &str = "left == right";

macro_rules! mutants {
    ($($test:ident: $mutation:ident in $($model:ident finds $expected:ident),*);* $(;)?) => {$(
        #[test]
        fn $test() {
            $(check_finds($expected, stringify!($mutation), || $model(Mutation::$mutation));)*
        }
    )*};
}

mutants! {
    a_payload_is_torn_without_the_release_of_its_header:
        ReleaseInPublish in four_records finds RACE, batch finds OLD_RECORD;
    a_payload_is_torn_without_the_acquire_of_its_header:
        AcquireInNext in four_records finds RACE, batch finds OLD_RECORD;
    an_old_header_is_read_without_the_release_of_a_rotation: ReleaseInEnter in four_records finds RACE;
    an_old_header_is_read_without_the_acquire_of_a_rotation: AcquireInRotate in four_records finds RACE;
    an_old_header_is_read_without_the_zero_ahead: ZeroAhead in four_records finds OLD_RECORD;
    a_record_is_overwritten_without_the_release_of_credit: ReleaseInFinishChunk in four_records finds RACE;
    a_record_is_overwritten_without_the_acquire_of_credit: AcquireOfCredit in four_records finds RACE;
    a_wake_up_is_lost_without_the_fence_of_the_sender: FenceInBeginWaiting in one_credit finds LOST_WAKE_UP;
    a_wake_up_is_lost_without_the_fence_of_the_receiver: FenceInCreditedSenderWaits in one_credit finds LOST_WAKE_UP;
}

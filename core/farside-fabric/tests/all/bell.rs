//! The doorbell with real sleep and real threads. `loom.rs` checks the order of the steps; these
//! tests check the futex.
//!
//! All sleeps have a timeout of an hour. The watchdog finds a thread that is not woken.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use farside_fabric::bell::{Doorbell, Fencing, SleepToken, announce, clear_bits, leave};
use farside_fabric::ring::{
    Header, MappedChunk, MappedControl, Next, Receiver, RingControl, RingMemory, Sender, record_bytes,
};
use farside_sys::shm::SharedMemory;

const HOUR: Duration = Duration::from_secs(3600);

/// Runs a test that could sleep for ever.
#[track_caller]
fn watched(test: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let running = thread::spawn(move || {
        test();
        done.send(()).expect("the watchdog waits");
    });
    match finished.recv_timeout(farside_testbed::limit()) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a thread sleeps for ever"),
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => running.join().expect("the test itself succeeds"),
    }
}

/// Sleeps until the condition holds.
fn sleep_until(bell: &Doorbell, condition: impl Fn() -> bool) {
    while !condition() {
        let token = prepare(bell);
        if condition() {
            bell.cancel(token);
        } else {
            bell.sleep(token, HOUR);
        }
    }
}

fn prepare(bell: &Doorbell) -> SleepToken {
    bell.prepare(bell.fencing(), || {})
}

/// Returns whether a ring would wake the owner now. (The call counts as a ring.)
fn rings(bell: &Doorbell) -> bool {
    let mut rang = false;
    bell.ring_with(|_| rang = true);
    rang
}

#[test]
fn a_sleeper_is_woken() {
    watched(|| {
        let (bell, published) = (Arc::new(Doorbell::default()), Arc::new(AtomicBool::new(false)));
        let sleeper = thread::spawn({
            let (bell, published) = (bell.clone(), published.clone());
            move || sleep_until(&bell, || published.load(Ordering::Acquire))
        });
        published.store(true, Ordering::Release);
        bell.ring_if_asleep();
        sleeper.join().unwrap();
    });
}

#[test]
fn a_ring_between_preparing_and_sleeping_is_not_lost() {
    watched(|| {
        let bell = Doorbell::default();
        let token = prepare(&bell);
        bell.ring_if_asleep();
        bell.sleep(token, HOUR);
        assert!(!rings(&bell));
        // The same holds for several rings, and for a further sleep.
        let token = prepare(&bell);
        (0..3).for_each(|_| bell.ring_if_asleep());
        bell.sleep(token, HOUR);
    });
}

#[test]
fn the_word_has_changed_for_the_futex_after_a_ring() {
    let bell = Doorbell::default();
    for ring in [false, true, false] {
        let token = prepare(&bell);
        if ring {
            assert!(rings(&bell));
        }
        bell.sleep_on(token, |word, seen| assert_eq!(word.load(Ordering::Relaxed) != seen, ring));
    }
}

#[test]
fn an_awake_receiver_is_not_rung() {
    let bell = Doorbell::default();
    assert!(!rings(&bell), "at first");
    let token = prepare(&bell);
    assert!(rings(&bell), "about to sleep");
    bell.cancel(token);
    assert!(!rings(&bell), "not asleep after all");
    let token = prepare(&bell);
    bell.sleep_on(token, |_, _| assert!(rings(&bell), "asleep"));
    assert!(!rings(&bell), "awake again");
}

#[test]
fn a_sleep_ends_with_its_time() {
    watched(|| {
        let bell = Doorbell::default();
        for timeout in [Duration::ZERO, Duration::from_micros(1), Duration::from_millis(1)] {
            let token = prepare(&bell);
            bell.sleep(token, timeout);
            assert!(!rings(&bell));
        }
    });
}

#[test]
fn an_arrival_bit_is_set_once_and_cleared_alone() {
    let bits = AtomicU64::new(0);
    announce(&bits, 1 << 63, Fencing::Mutual);
    announce(&bits, 1, Fencing::ByReceiver);
    announce(&bits, 1, Fencing::ByReceiver);
    assert_eq!(bits.load(Ordering::Relaxed), 1 << 63 | 1);
    leave(&bits, 1);
    assert_eq!(bits.load(Ordering::Relaxed), 1 << 63);
    clear_bits(&bits, 2);
    assert_eq!(bits.load(Ordering::Relaxed), 1 << 63);
}

/// Two senders fill small rings and sleep for credit; their receiver sleeps for records.
#[derive(Default)]
struct Workers {
    receiver: Doorbell,
    bits: AtomicU64,
    senders: [Doorbell; 2],
}

const RECORDS: u64 = 20_000;
const CHUNK_BYTES: usize = 128;

fn mapped_ring() -> (Sender<MappedChunk, MappedControl>, Receiver<MappedChunk, MappedControl>) {
    let memory = Arc::new(SharedMemory::create("bell", 4096).expect("the machine has a page"));
    let control = MappedControl::new(memory.clone(), 0).expect("the block lies in the mapping");
    let chunk_at = |index| size_of::<RingControl>() + index * CHUNK_BYTES;
    let chunk = |index| MappedChunk::new(memory.clone(), chunk_at(index), CHUNK_BYTES);
    let chunks: Vec<_> = (0..2).map(|index| chunk(index).expect("the chunk lies in the mapping")).collect();
    (Sender::new(control.clone(), chunks.clone()), Receiver::new(control, chunks))
}

fn send(workers: &Workers, number: usize, mut sender: Sender<MappedChunk, MappedControl>) {
    let bytes = record_bytes(8);
    for sequence in 0..RECORDS {
        let offset = loop {
            if let Ok(offset) = sender.reserve(bytes) {
                break offset;
            }
            sender.begin_waiting();
            sleep_until(&workers.senders[number], || sender.has_room(bytes));
            sender.end_waiting();
        };
        sender.chunk().word(offset + 8).store(sequence, Ordering::Relaxed);
        sender.publish(Header::new(0, 0, bytes), bytes);
        announce(&workers.bits, 1 << number, workers.receiver.fencing());
        workers.receiver.ring_after_fence();
    }
}

/// Takes all records out of a ring. Returns their number.
fn drain(workers: &Workers, number: usize, receiver: &mut Receiver<MappedChunk, MappedControl>, next: &mut u64) -> u64 {
    let before = *next;
    while let Next::Record { payload, end, .. } = receiver.peek().expect("the sender writes valid records") {
        assert_eq!(receiver.chunk().word(payload).load(Ordering::Relaxed), *next);
        receiver.consume(end);
        *next += 1;
    }
    if receiver.credited_sender_waits() {
        workers.senders[number].ring_if_asleep();
    }
    *next - before
}

#[test]
fn no_worker_is_left_asleep() {
    watched(|| run_workers(Fencing::Mutual));
}

#[test]
fn no_worker_is_left_asleep_whose_senders_do_not_fence() {
    assert!(farside_sys::fence::register(), "this machine has `membarrier`");
    watched(|| run_workers(Fencing::ByReceiver));
}

fn run_workers(fencing: Fencing) {
    let workers = Arc::new(Workers::default());
    workers.receiver.set_fencing(fencing);
    let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..2).map(|_| mapped_ring()).unzip();
    let sending = senders.into_iter().enumerate().map(|(number, sender)| {
        let workers = workers.clone();
        thread::spawn(move || send(&workers, number, sender))
    });
    let sending: Vec<_> = sending.collect();
    let mut next = [0; 2];
    while next != [RECORDS; 2] {
        let arrived = workers.bits.load(Ordering::Relaxed);
        let mut came = 0;
        for number in (0..2).filter(|number| arrived & 1 << number != 0) {
            came += drain(&workers, number, &mut receivers[number], &mut next[number]);
            if fencing == Fencing::Mutual {
                leave(&workers.bits, 1 << number);
                came += drain(&workers, number, &mut receivers[number], &mut next[number]);
            }
        }
        if came > 0 || next == [RECORDS; 2] {
            continue;
        }
        let token = workers.receiver.prepare(fencing, || clear_bits(&workers.bits, arrived));
        let is_empty = |receiver: &Receiver<_, _>| receiver.is_empty();
        if workers.bits.load(Ordering::Relaxed) == 0 && receivers.iter().all(is_empty) {
            workers.receiver.sleep(token, HOUR);
        } else {
            workers.receiver.cancel(token);
            workers.bits.fetch_or(arrived, Ordering::Relaxed);
        }
    }
    sending.into_iter().for_each(|thread| thread.join().unwrap());
}

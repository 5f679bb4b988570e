//! The protocol of pipes under a model checker, which tries every order of the threads and every
//! value that a load can return.
//!
//! The file of the protocol is compiled once more here, with the checker's atomics. The content of
//! the slots is in cells of the checker: it finds concurrent accesses of both ends, and reads of
//! values that need not be visible. Models are tiny, so that they end. The *mutants* are steps of
//! the protocol with one fault each, which the checker must find.

/// The types that the protocol uses here.
mod words {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
}

#[allow(dead_code, reason = "a model needs less of it than a pipe")]
#[path = "../../src/pipe/protocol.rs"]
mod protocol;

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use protocol::{Flag, Kind, Reading, Words, Writing, deliver};
use words::{AtomicU64, Ordering};

struct Memory {
    flags: Vec<AtomicU64>,
    taken: AtomicU64,
    slots: Vec<UnsafeCell<u64>>,
}

impl Memory {
    fn new(width: usize) -> Arc<Self> {
        Arc::new(Self {
            flags: (0..width).map(|_| AtomicU64::new(0)).collect(),
            taken: AtomicU64::new(0),
            slots: (0..width).map(|_| UnsafeCell::new(0)).collect(),
        })
    }

    fn write(&self, slot: usize, value: u64) {
        // SAFETY: the checker finds an access of another thread at the same time; that is what this
        // tests.
        self.slots[slot].with_mut(|place| unsafe { *place = value });
    }

    fn read(&self, slot: usize) -> u64 {
        // SAFETY: as for `write`.
        self.slots[slot].with(|place| unsafe { *place })
    }
}

impl Words for Memory {
    fn flag(&self, slot: usize) -> &AtomicU64 {
        &self.flags[slot]
    }

    fn taken(&self) -> &AtomicU64 {
        &self.taken
    }
}

const MESSAGE: Flag = Flag { kind: Kind::Slot, bytes: 8 };

/// Returns the value of a message.
fn value(number: u64) -> u64 {
    100 + number
}

/// Writes `count` messages by `publish`, which gets the slot and the value.
fn write(memory: &Memory, count: u64, mut publish: impl FnMut(&Memory, &mut Writing, u64)) {
    let mut writing = Writing::new(memory.flags.len());
    for number in 0..count {
        while writing.free() == 0 {
            writing.look(memory).expect("the count is right");
            if writing.free() == 0 {
                thread::yield_now();
            }
        }
        publish(memory, &mut writing, value(number));
    }
}

fn publish(memory: &Memory, writing: &mut Writing, value: u64) {
    memory.write(writing.slot(), value);
    writing.publish(memory, MESSAGE);
}

/// Reads `count` messages, each by `take`.
fn read(memory: &Memory, count: u64, mut take: impl FnMut(&Memory, &mut Reading) -> u64) {
    let mut reading = Reading::new(memory.flags.len());
    for number in 0..count {
        while reading.look(memory).expect("the flags are right").is_none() {
            thread::yield_now();
        }
        assert_eq!(take(memory, &mut reading), value(number));
    }
    assert_eq!(reading.look(memory), Ok(None), "no more came than was written");
}

fn take(memory: &Memory, reading: &mut Reading) -> u64 {
    let value = memory.read(reading.slot());
    reading.release(memory);
    value
}

/// Returns a model of a writer and a reader of a pipe of this width.
fn model(
    width: usize,
    count: u64,
    publish: fn(&Memory, &mut Writing, u64),
    take: fn(&Memory, &mut Reading) -> u64,
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let memory = Memory::new(width);
        let writers = memory.clone();
        let writer = thread::spawn(move || write(&writers, count, publish));
        read(&memory, count, take);
        writer.join().expect("the writer ends");
    }
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn finds_an_error(model: impl Fn() + Send + Sync + 'static) -> bool {
    catch_unwind(AssertUnwindSafe(|| check(model))).is_err()
}

#[test]
fn messages_arrive_whole_once_and_in_order() {
    check(model(1, 3, publish, take));
    check(model(2, 4, publish, take));
    check(model(3, 4, publish, take));
}

#[test]
fn messages_delivered_by_the_service_thread_arrive() {
    // The service thread of the reader's process sets the flags. It learns from the count alone
    // that a slot is free.
    check(|| {
        let memory = Memory::new(1);
        let delivers = memory.clone();
        let service = thread::spawn(move || {
            for number in 0..2 {
                while !deliver(&*delivers, 1, number, MESSAGE, |slot| delivers.write(slot, value(number))) {
                    thread::yield_now();
                }
                // A message that comes twice is refused.
                let again = deliver(&*delivers, 1, number, MESSAGE, |slot| delivers.write(slot, 0));
                assert!(!again);
            }
        });
        read(&memory, 2, take);
        service.join().expect("the service thread ends");
    });
}

#[test]
fn mutants_are_found() {
    // The flag before the message.
    assert!(finds_an_error(model(
        2,
        2,
        |memory, writing, value| {
            let slot = writing.slot();
            writing.publish(memory, MESSAGE);
            memory.write(slot, value);
        },
        take
    )));
    // The count before the last read of the message.
    assert!(finds_an_error(model(1, 2, publish, |memory, reading| {
        let slot = reading.slot();
        reading.release(memory);
        memory.read(slot)
    })));
    // A flag that publishes nothing.
    assert!(finds_an_error(model(
        2,
        1,
        |memory, writing, value| {
            memory.write(writing.slot(), value);
            memory.flag(writing.slot()).store(MESSAGE.word(writing.sent()), Ordering::Relaxed);
            writing.pass();
        },
        take
    )));
    // A writer that goes on without room.
    assert!(finds_an_error(model(
        1,
        2,
        |memory, writing, value| {
            publish(memory, writing, value);
            writing.credit(writing.sent()).expect("no more than was sent");
        },
        take
    )));
}

/// Corrupt words of a faulty peer are detected.
#[test]
fn corrupt_words_are_told() {
    use protocol::Corrupt;
    check(|| {
        let memory = Memory::new(2);
        let mut writing = Writing::new(2);
        memory.taken.store(1, Ordering::Relaxed);
        assert_eq!(writing.look(&*memory), Err(Corrupt::Taken));
        memory.taken.store(0, Ordering::Relaxed);
        publish(&memory, &mut writing, 7);
        let mut reading = Reading::new(2);
        assert_eq!(reading.look(&*memory), Ok(Some(MESSAGE)));
        reading.release(&*memory);
        assert_eq!(writing.look(&*memory), Ok(()));
        memory.taken.store(0, Ordering::Relaxed);
        assert_eq!(writing.look(&*memory), Err(Corrupt::Taken), "it does not go back");
        for (word, corrupt) in [(2 | 3 << 32, Corrupt::Kind), (3, Corrupt::Stamp), (u64::MAX, Corrupt::Stamp)] {
            memory.flags[1].store(word, Ordering::Relaxed);
            assert_eq!(reading.look(&*memory), Err(corrupt));
        }
    });
}

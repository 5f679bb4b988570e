//! A ring's memory under the model checker: headers are the checker's atomics, payloads are its
//! cells, which report races.

use std::mem::MaybeUninit;
use std::sync::Arc;

use farside_fabric::ring::{
    Header, Next, Receiver, RingControl, RingControlMemory, RingMemory, Sender, as_record_words,
};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// The size of a record with one word of payload.
pub(crate) const RECORD_BYTES: usize = 16;

/// The size of a chunk for `records` records of one payload word.
pub(crate) const fn chunk_bytes(records: usize) -> usize {
    records * RECORD_BYTES + 8
}

#[derive(Clone, Debug)]
pub(crate) struct Chunk(Arc<Words>);

#[derive(Debug)]
struct Words {
    headers: Vec<AtomicU64>,
    payload: Vec<Payload>,
}

/// One word of payload.
#[derive(Debug, Default)]
pub(crate) struct Payload(UnsafeCell<u64>);

// SAFETY: the model checker fails the test if two threads access the cell without an order, and
// runs one thread at a time.
unsafe impl Sync for Payload {}

impl Payload {
    pub(crate) fn write(&self, value: u64) {
        // SAFETY: nothing else accesses the cell now, or the checker would have failed the test.
        self.0.with_mut(|word| unsafe { *word = value });
    }

    pub(crate) fn read(&self) -> u64 {
        // SAFETY: nothing writes the cell now, or the checker would have failed the test.
        self.0.with(|word| unsafe { *word })
    }
}

impl Chunk {
    pub(crate) fn new(records: usize) -> Self {
        let words = chunk_bytes(records) / 8;
        let headers = (0..words).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Words { headers, payload: (0..words).map(|_| Payload::default()).collect() }))
    }
}

impl RingMemory for Chunk {
    fn bytes(&self) -> usize {
        self.0.headers.len() * 8
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        &self.0.headers[offset / 8]
    }

    fn put(&self, offset: usize, words: &[MaybeUninit<u64>]) {
        // Each word may be a header or payload.
        for (place, word) in (offset / 8..).zip(words) {
            // SAFETY: the records of these tests have no padding.
            let word = unsafe { word.assume_init() };
            self.0.headers[place].store(word, Ordering::Relaxed);
            self.0.payload[place].write(word);
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Control(Arc<RingControl>);

impl RingControlMemory for Control {
    fn control(&self) -> &RingControl {
        &self.0
    }
}

pub(crate) type ModelSender = Sender<Chunk, Control>;
pub(crate) type ModelReceiver = Receiver<Chunk, Control>;

/// Creates both ends of a ring, whose chunks hold this many records each.
pub(crate) fn ring(chunks: &[usize]) -> (ModelSender, ModelReceiver) {
    let control = Control(Arc::new(RingControl::default()));
    let chunks: Vec<_> = chunks.iter().map(|records| Chunk::new(*records)).collect();
    (Sender::new(control.clone(), chunks.clone()), Receiver::new(control, chunks))
}

/// Writes a record of one payload word where [`Sender::reserve`] found room, and returns its
/// header.
pub(crate) fn fill(sender: &ModelSender, offset: usize, value: u64) -> Header {
    sender.chunk().0.payload[offset / 8 + 1].write(value);
    Header::new(0, value as u32, RECORD_BYTES)
}

/// A record of one payload word.
pub(crate) fn record(value: u64) -> [u64; RECORD_BYTES / 8] {
    [Header::new(0, value as u32, RECORD_BYTES).word(), value]
}

/// Publishes whole records together.
pub(crate) fn publish(sender: &mut ModelSender, records: &[u64]) {
    sender.publish_records(Header::from_word(records[0]), as_record_words(&records[1..]));
}

/// Publishes a record if there is room.
pub(crate) fn try_send(sender: &mut ModelSender, value: u64) -> bool {
    let Ok(offset) = sender.reserve(RECORD_BYTES) else { return false };
    let header = fill(sender, offset, value);
    sender.publish(header, RECORD_BYTES);
    true
}

/// Publishes a record as soon as there is room.
pub(crate) fn send(sender: &mut ModelSender, value: u64) {
    while !try_send(sender, value) {
        thread::yield_now();
    }
}

/// Takes the next record out, if there is one.
pub(crate) fn try_receive(receiver: &mut ModelReceiver) -> Option<u64> {
    match receiver.peek().expect("the sender writes valid records") {
        Next::Empty => None,
        Next::Record { header, payload, end } => {
            let value = receiver.chunk().0.payload[payload / 8].read();
            assert_eq!(u64::from(header.operand()), value, "the payload comes with its header");
            receiver.consume(end);
            Some(value)
        }
    }
}

/// Takes the next record out as soon as it arrives.
pub(crate) fn receive(receiver: &mut ModelReceiver) -> u64 {
    loop {
        match try_receive(receiver) {
            Some(value) => return value,
            None => thread::yield_now(),
        }
    }
}

//! A ring and its oracle, driven side by side in one thread.

use std::sync::atomic::Ordering;

use farside_fabric::ring::{Header, Next, Receiver, RingControlMemory, RingMemory, RunEnd, Sender, as_record_words};

use crate::ring_model::memory::{Guarded, Ledger, Source, payload_word, poison};
use crate::ring_model::oracle::{Chunk, Item, Oracle};

/// An operation on a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    /// Reserves, fills and publishes a record of this length.
    Publish { record_bytes: usize },
    /// Reserves a record of this length, and publishes up to `count` of them together: those for
    /// which the chunk has room.
    PublishMany { record_bytes: usize, count: usize },
    /// Takes this many records out.
    Receive { count: usize },
    /// Takes this many records out in one call.
    Run { count: usize },
    /// Tells the receiver of a chunk of this size.
    Grant { chunk_bytes: usize },
    /// Tells the sender of the oldest chunk that it does not know yet.
    Deliver,
    /// Begins or ends the sender's wait for credit.
    Wait { begin: bool },
}

/// Both ends of a ring, and their oracle.
pub(crate) struct Harness<S: Source> {
    source: S,
    control: S::Control,
    sender: Sender<Guarded<S::Chunk>, S::Control>,
    receiver: Receiver<S::Chunk, S::Control>,
    oracle: Oracle,
    ledger: Ledger,
    /// All chunks, by number.
    chunks: Vec<Guarded<S::Chunk>>,
    /// Granted chunks that the sender does not know yet.
    undelivered: std::collections::VecDeque<usize>,
    sender_waits: bool,
    needed_chunk_bytes: Option<usize>,
}

impl<S: Source> Harness<S> {
    pub(crate) fn new(mut source: S, chunk_bytes: &[usize]) -> Self {
        let (control, ledger) = (source.control(), Ledger::default());
        let chunks: Vec<_> = chunk_bytes.iter().map(|bytes| new_chunk(&mut source, &ledger, *bytes)).collect();
        let received = chunks.iter().map(|guarded| guarded.chunk.clone()).collect();
        Self {
            sender: Sender::new(control.clone(), chunks.clone()),
            receiver: Receiver::new(control.clone(), received),
            oracle: Oracle::new(chunks.iter().map(as_oracle_sees)),
            undelivered: std::collections::VecDeque::new(),
            sender_waits: false,
            needed_chunk_bytes: None,
            source,
            control,
            ledger,
            chunks,
        }
    }

    /// Applies an operation, and compares its result and every query without side effects with the
    /// oracle. Returns whether there was room, for operations that need some.
    pub(crate) fn apply(&mut self, operation: Operation) -> bool {
        let mut done = true;
        match operation {
            Operation::Publish { record_bytes } => {
                done = self.reserve(record_bytes).is_some_and(|offset| {
                    let record = self.record(record_bytes, self.oracle.sequence());
                    self.sender.chunk().put(offset + 8, as_record_words(&record[1..]));
                    self.sender.publish(Header::from_word(record[0]), record_bytes);
                    self.oracle.publish(record_bytes);
                    true
                });
            }
            Operation::PublishMany { record_bytes, count } => {
                done = self.reserve(record_bytes).is_some();
                if done {
                    let first = self.oracle.sequence();
                    let count = count.min(self.sender.room() / record_bytes).max(1);
                    let sequences = first..first + count as u64;
                    let records: Vec<_> = sequences.flat_map(|sequence| self.record(record_bytes, sequence)).collect();
                    let first = Header::from_word(records[0]);
                    self.sender.publish_records(first, as_record_words(&records[1..]));
                    (0..count).for_each(|_| self.oracle.publish(record_bytes));
                }
            }
            Operation::Receive { count } => {
                (0..count).for_each(|_| self.receive());
            }
            Operation::Run { count } => self.run(count),
            Operation::Grant { chunk_bytes } => {
                let guarded = new_chunk(&mut self.source, &self.ledger, chunk_bytes);
                self.receiver.grant(guarded.chunk.clone());
                self.undelivered.push_back(guarded.number);
                self.chunks.push(guarded);
            }
            Operation::Deliver => {
                if let Some(number) = self.undelivered.pop_front() {
                    self.sender.grant(self.chunks[number].clone());
                    self.oracle.grant(as_oracle_sees(&self.chunks[number]));
                }
            }
            Operation::Wait { begin } => {
                let tell = if begin { Sender::begin_waiting } else { Sender::end_waiting };
                tell(&self.sender);
                self.sender_waits = begin;
            }
        }
        self.note_published();
        self.compare();
        done
    }

    /// Returns whether the sender considers an attempt worthwhile.
    pub(crate) fn may_try(&self, operation: Operation) -> bool {
        match operation {
            Operation::Publish { record_bytes } | Operation::PublishMany { record_bytes, .. } => {
                self.sender.has_room(record_bytes)
            }
            _ => true,
        }
    }

    /// The longest record that needs no further chunk. `None` for a ring that cannot leave its only
    /// chunk.
    pub(crate) fn longest_record(&self) -> Option<usize> {
        self.oracle.longest_record()
    }

    /// The size of the chunk that the last refused record needs, however much is consumed.
    pub(crate) fn needed_chunk_bytes(&self) -> Option<usize> {
        self.needed_chunk_bytes
    }

    /// Takes every record out.
    pub(crate) fn drain(&mut self) {
        while !self.oracle.is_empty() {
            self.apply(Operation::Receive { count: 1 });
        }
        self.apply(Operation::Receive { count: 1 });
        assert!(self.receiver.is_empty());
    }

    /// A record with this number.
    fn record(&self, record_bytes: usize, sequence: u64) -> Vec<u64> {
        let entry = (sequence % Header::ENTRY_COUNT_MAX as u64) as u16;
        let header = Header::new(entry, sequence as u32, record_bytes);
        let payload = (0..record_bytes / 8 - 1).map(|index| payload_word(sequence, index));
        let mut words: Vec<_> = std::iter::once(header.word()).chain(payload).collect();
        if Header::is_long_for(record_bytes) {
            words[1] = record_bytes as u64;
        }
        words
    }

    /// Reserves room for a record.
    fn reserve(&mut self, record_bytes: usize) -> Option<usize> {
        let has_room = self.sender.has_room(record_bytes);
        assert_eq!(has_room, self.oracle.has_room(record_bytes), "room for {record_bytes} bytes");
        let at_once = self.sender.try_reserve(record_bytes);
        let (reserved, expected) = (self.sender.reserve(record_bytes), self.oracle.reserve(record_bytes));
        assert_eq!(reserved, expected, "a place for {record_bytes} bytes");
        let offset = match reserved {
            Ok(offset) => offset,
            Err(no_room) => {
                self.needed_chunk_bytes = no_room.needs_chunk_bytes;
                return None;
            }
        };
        assert!(has_room, "`has_room` predicted the room");
        assert!(at_once.is_none_or(|at_once| at_once == offset));
        // A second reservation gets the same place.
        assert_eq!(self.sender.try_reserve(record_bytes), Some(offset));
        Some(offset)
    }

    fn receive(&mut self) {
        assert_eq!(self.receiver.is_empty(), self.oracle.is_empty());
        let (expected, finished) = self.oracle.next();
        let found = self.receiver.peek().expect("the sender writes valid records");
        self.note_finished(&finished);
        match (found, expected) {
            (Next::Empty, None) => {}
            (
                Next::Record { header, payload, end },
                Some(Item::Record { sequence, chunk, offset, end: expected_end }),
            ) => {
                assert!(std::ptr::eq(self.receiver.chunk().word(0), self.chunks[chunk].chunk.word(0)), "its chunk");
                assert_header(header, sequence);
                assert_eq!(end, expected_end);
                let is_long = Header::is_long_for(end - offset);
                assert_eq!(header.short_bytes().is_none(), is_long);
                assert_eq!(payload, offset + if is_long { 16 } else { 8 });
                for word in (payload..end).step_by(8) {
                    let found = self.receiver.chunk().word(word).load(Ordering::Relaxed);
                    assert_eq!(found, payload_word(sequence, (word - offset) / 8 - 1), "word {word} of {sequence}");
                }
                assert_eq!(self.receiver.peek(), Ok(found), "a record stays until it is consumed");
                self.receiver.consume(end);
                self.oracle.consume();
            }
            (found, expected) => panic!("found {found:?} instead of {expected:?}"),
        }
    }

    fn run(&mut self, count: usize) {
        let (taken, ended) = S::run(&mut self.receiver, count);
        let mut finished = Vec::new();
        for record in &taken {
            let (expected, finished_before) = self.oracle.next();
            finished.extend(finished_before);
            let Some(Item::Record { sequence, offset, end, .. }) = expected else {
                panic!("{record:?} is one too many")
            };
            assert_header(record.header, sequence);
            let is_long = Header::is_long_for(end - offset);
            let words = usize::from(is_long)..(end - offset) / 8 - 1;
            assert!(record.payload.iter().copied().eq(words.map(|index| payload_word(sequence, index))), "{sequence}");
            self.oracle.consume();
        }
        if ended == RunEnd::Enough {
            assert_eq!(taken.len(), count);
        } else {
            let (left, finished_last) = self.oracle.next();
            assert_eq!((ended, left), (RunEnd::Empty, None));
            finished.extend(finished_last);
        }
        self.note_finished(&finished);
    }

    /// Records that these chunks were credited.
    fn note_finished(&mut self, finished: &[usize]) {
        for number in finished {
            // A receiver that still read the chunk would find the poison.
            self.ledger.credit(*number);
            poison(&self.chunks[*number], 0);
        }
        assert_eq!(self.receiver.credited_sender_waits(), self.sender_waits && !finished.is_empty());
        assert!(!self.receiver.credited_sender_waits(), "credit is reported once");
    }

    /// Records that the published items belong to the receiver from now on.
    fn note_published(&mut self) {
        for item in self.oracle.take_published() {
            match item {
                Item::Record { chunk, offset, end, .. } => self.ledger.publish(chunk, offset, end),
                Item::Rotation { chunk, offset } => self.ledger.publish(chunk, offset, offset + 8),
            }
        }
    }

    fn compare(&self) {
        assert_eq!(self.control.control().consumed.load(Ordering::Relaxed), self.oracle.consumed);
        assert_eq!(self.sender.room(), self.oracle.room());
        assert_eq!(self.sender.chunk_count(), self.oracle.chunk_count());
        assert_eq!(self.sender.chunk_bytes(), self.oracle.chunk_bytes());
    }
}

fn new_chunk<S: Source>(source: &mut S, ledger: &Ledger, bytes: usize) -> Guarded<S::Chunk> {
    let chunk = source.chunk(bytes);
    poison(&chunk, 0);
    chunk.word(0).store(0, Ordering::Relaxed);
    Guarded { chunk, number: ledger.add(bytes), ledger: ledger.clone() }
}

#[track_caller]
fn assert_header(header: Header, sequence: u64) {
    assert_eq!(header.operand(), sequence as u32);
    assert_eq!(u64::from(header.entry()), sequence % Header::ENTRY_COUNT_MAX as u64);
}

fn as_oracle_sees<M: RingMemory>(guarded: &Guarded<M>) -> Chunk {
    Chunk { number: guarded.number, bytes: guarded.bytes() }
}

//! Two threads and mapped memory.

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use farside_fabric::ring::{
    Header, MappedChunk, MappedControl, Next, Receiver, RingMemory, RunEnd, Sender, as_record_words,
};
use farside_sys::racy;

use crate::ring_model::memory::{Mapped, Source, payload_word};

const RECORDS_PER_TURN: usize = 100;
const PAYLOAD_WORDS_MAX: u64 = 31;
const FIRST_CHUNK_BYTES: [usize; 2] = [512, 256];
const GRANTED_CHUNK_BYTES: [usize; 5] = [264, 4096, 520, 2048, 8192];

/// Waits for the other thread, which may have panicked.
#[derive(Default)]
struct Patience(Option<Instant>);

impl Patience {
    fn pause(&mut self) {
        let give_up = *self.0.get_or_insert_with(farside_testbed::deadline);
        assert!(!farside_testbed::is_past(give_up), "the other side is stuck");
        thread::yield_now();
    }
}

/// The length of a record, derived from its number.
fn payload_words(sequence: u64) -> usize {
    let draw = payload_word(sequence, 0);
    // Most records are short.
    (if draw & 7 == 0 { draw >> 8 & PAYLOAD_WORDS_MAX } else { draw >> 8 & 3 }) as usize
}

fn send(sender: &mut Sender<MappedChunk, MappedControl>, records: u64, grants: &mpsc::Receiver<MappedChunk>) {
    let mut sequence = 0;
    while sequence < records {
        let bytes = 8 + payload_words(sequence) * 8;
        let mut patience = Patience::default();
        let offset = loop {
            match sender.reserve(bytes) {
                Ok(offset) => break offset,
                Err(no_room) => {
                    assert_eq!(no_room.needs_chunk_bytes, None);
                    grants.try_iter().for_each(|chunk| sender.grant(chunk));
                    patience.pause();
                }
            }
        };
        if sequence.is_multiple_of(3) {
            let record = record(sequence);
            sender.chunk().put(offset + 8, as_record_words(&record[1..]));
            sender.publish(Header::from_word(record[0]), bytes);
            sequence += 1;
            continue;
        }
        let mut batch = Vec::new();
        for _ in 0..=payload_word(sequence, 1) % 40 {
            let record = record(sequence);
            if size_of_val(&*batch) + size_of_val(&*record) > sender.room() || sequence == records {
                break;
            }
            batch.extend(record);
            sequence += 1;
        }
        sender.publish_records(Header::from_word(batch[0]), as_record_words(&batch[1..]));
    }
}

fn record(sequence: u64) -> Vec<u64> {
    let words = payload_words(sequence);
    let header = Header::new((sequence >> 32) as u16, sequence as u32, 8 + words * 8);
    std::iter::once(header.word()).chain((0..words).map(|index| payload_word(sequence, index))).collect()
}

fn receive(
    receiver: &mut Receiver<MappedChunk, MappedControl>,
    records: u64,
    mut to_grant: Vec<MappedChunk>,
    grants: &mpsc::Sender<MappedChunk>,
) {
    let grant_every = records / (to_grant.len() as u64 + 1);
    let (mut sequence, mut granted) = (0, 0);
    let mut patience = Patience::default();
    while sequence < records {
        let before = sequence;
        let run = |header: Header, payload: *const u8, end: *const u8| {
            check_record(sequence, header, payload, end);
            sequence += 1;
            end
        };
        // SAFETY: the closure returns the end that it was given, or null.
        let ended = unsafe { receiver.run(RECORDS_PER_TURN, run) };
        match ended.expect("the sender writes valid records") {
            RunEnd::Empty if sequence == before => patience.pause(),
            RunEnd::Empty | RunEnd::Enough => patience = Patience::default(),
            RunEnd::Refused { header } => panic!("no record is refused, but {header:?} was"),
        }
        if sequence / grant_every > granted
            && let Some(chunk) = to_grant.pop()
        {
            granted += 1;
            receiver.grant(chunk.clone());
            grants.send(chunk).expect("the test holds the other end");
        }
    }
    assert_eq!(receiver.peek(), Ok(Next::Empty));
    assert_eq!(sequence, records);
}

fn check_record(sequence: u64, header: Header, payload: *const u8, end: *const u8) {
    assert_eq!(header.operand(), sequence as u32);
    assert_eq!(end.addr() - payload.addr(), payload_words(sequence) * 8);
    for index in 0..payload_words(sequence) {
        // SAFETY: the receiver checked that the record lies in its chunk, which stays mapped as
        // long as the receiver lives.
        let found = unsafe { racy::load(payload.cast::<u64>().wrapping_add(index)) };
        assert_eq!(found, payload_word(sequence, index), "word {index} of {sequence}");
    }
}

#[test]
fn many_records_pass_between_two_threads_while_the_ring_grows() {
    let records = farside_testbed::scaled(200_000);
    let mut memory = Mapped::new(64 << 10);
    let control = memory.control();
    let first: Vec<_> = FIRST_CHUNK_BYTES.map(|bytes| memory.chunk(bytes)).into();
    let to_grant: Vec<_> = GRANTED_CHUNK_BYTES.map(|bytes| memory.chunk(bytes)).into();
    let mut sender = Sender::new(control.clone(), first.clone());
    let mut receiver = Receiver::new(control, first);
    let (grants, granted) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || receive(&mut receiver, records, to_grant, &grants));
        send(&mut sender, records, &granted);
    });
    granted.try_iter().for_each(|chunk| sender.grant(chunk));
    assert_eq!(sender.chunk_count(), FIRST_CHUNK_BYTES.len() + GRANTED_CHUNK_BYTES.len());
}

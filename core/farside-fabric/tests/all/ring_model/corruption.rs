//! The reaction of a receiver to memory that no correct sender wrote, and of a sender to credit
//! that no receiver gave.

use std::sync::atomic::Ordering;

use farside_fabric::ring::{
    Corrupt, Header, MappedChunk, MappedControl, Next, Receiver, RingControlMemory, RingMemory, RunEnd, Sender,
    as_record_words,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::ring_model::memory::{Heap, HeapChunk, HeapControl, Mapped, Source};

const ROTATE: u64 = 0xffff << 32 | 1 << 48;
const ROTATE_AND_SPLICE: u64 = ROTATE | 1;
const LOOKS: usize = 64;
/// The entry of records that are refused.
const REFUSED: u16 = 3;

type HeapReceiver = Receiver<HeapChunk, HeapControl>;

/// Headers, valid and invalid, and words that are not headers.
fn garbage() -> impl Strategy<Value = u64> {
    let header =
        |units: std::ops::Range<u64>| (0..9_u64, units).prop_map(|(entry, units)| 1 | entry << 32 | units << 48);
    prop_oneof![
        4 => any::<u64>(),
        4 => header(0..12),
        1 => header(0xfff0..0x10000),
        2 => Just(ROTATE),
        1 => Just(ROTATE_AND_SPLICE),
        2 => 0..200_u64,
        1 => (0..40_u64).prop_map(|below| u64::MAX - below),
    ]
}

/// Looks at the ring, and consumes a record if there is one. Panics if the record reaches outside
/// its chunk.
fn look(receiver: &mut HeapReceiver) {
    match receiver.peek() {
        Ok(Next::Record { header, payload, end }) => {
            let bytes = receiver.chunk().bytes();
            assert!(payload <= end && end <= bytes - 8, "payload {payload}, end {end}, chunk of {bytes}");
            assert!(payload.is_multiple_of(8) && end.is_multiple_of(8));
            assert_ne!(header.word(), 0);
            receiver.consume(end);
        }
        Ok(Next::Empty) => {}
        Err(corrupt) => {
            assert!(!corrupt.to_string().is_empty());
            assert!(receiver.peek().is_err(), "{corrupt} once is corrupt for ever");
        }
    }
}

/// Looks at the ring like [`look`], but takes several records at once.
fn look_at_some(receiver: &mut Receiver<MappedChunk, MappedControl>, all: &[MappedChunk]) {
    let mut ran = 0;
    let run = |header: Header, payload: *const u8, end: *const u8| {
        let bounds =
            all.iter().map(|chunk| (chunk.address(0).cast_const(), chunk.address(chunk.bytes() - 8).cast_const()));
        let is_inside = |(from, to)| from < payload && payload <= end && end <= to;
        assert!(bounds.into_iter().any(is_inside), "payload {payload:p}, end {end:p}");
        assert!(payload.addr().is_multiple_of(8) && end.addr().is_multiple_of(8));
        ran += 1;
        if header.entry() == REFUSED { std::ptr::null() } else { end }
    };
    // SAFETY: the closure returns the end that it was given, or null.
    let ended = unsafe { receiver.run(LOOKS, run) };
    match ended {
        Ok(RunEnd::Enough) => assert_eq!(ran, LOOKS),
        Ok(RunEnd::Refused { header }) => assert_eq!(header.entry(), REFUSED),
        Ok(RunEnd::Empty) => assert!(receiver.is_empty()),
        Err(corrupt) => {
            assert!(receiver.peek().is_err(), "{corrupt} once is corrupt for ever");
        }
    }
}

/// A write of a word to a chunk.
type Write = (Index, Index, u64);

fn writes() -> impl Strategy<Value = Vec<Write>> {
    vec((any::<Index>(), any::<Index>(), garbage()), LOOKS..4 * LOOKS)
}

/// Writes half of the garbage first, and the rest while the receiver looks.
fn look_at_garbage<S: Source>(
    mut source: S,
    [circle_words, granted_words]: [Vec<usize>; 2],
    writes: &[Write],
    mut look: impl FnMut(&mut Receiver<S::Chunk, S::Control>, &[S::Chunk]),
) {
    let mut chunks = |words: Vec<usize>| -> Vec<_> { words.iter().map(|words| source.chunk(words * 8)).collect() };
    let (circle, granted) = (chunks(circle_words), chunks(granted_words));
    let all = [circle.clone(), granted.clone()].concat();
    let mut receiver = Receiver::new(source.control(), circle);
    granted.into_iter().for_each(|chunk| receiver.grant(chunk));
    let (before, between) = writes.split_at(writes.len() / 2);
    let write = |(chunk, word, garbage): &Write| {
        let chunk = chunk.get(&all);
        chunk.word(word.index(chunk.bytes() / 8) * 8).store(*garbage, Ordering::Relaxed);
    };
    before.iter().for_each(write);
    for next in between {
        look(&mut receiver, &all);
        write(next);
    }
    (0..LOOKS).for_each(|_| look(&mut receiver, &all));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn garbage_is_corrupt_or_a_record_inside_its_chunk(
        circle_words in vec(8..40_usize, 1..=6),
        granted_words in vec(8..40_usize, 0..=2),
        writes in writes(),
    ) {
        let words = [circle_words, granted_words];
        look_at_garbage(Heap, words.clone(), &writes, |receiver, _| look(receiver));
        look_at_garbage(Mapped::new(4096), words, &writes, look_at_some);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    /// Wrong credit may make the sender overwrite unread records, but only in its own chunks.
    #[test]
    fn a_sender_stays_in_its_chunks_with_any_credit(
        chunk_words in vec(8..40_usize, 1..=6),
        steps in vec((prop_oneof![any::<u64>(), 0..20_u64, Just(u64::MAX)], 1..40_usize, any::<bool>()), 1..200),
    ) {
        let chunks: Vec<HeapChunk> = chunk_words.iter().map(|words| HeapChunk::new(words * 8)).collect();
        let control = HeapControl::default();
        let mut sender = Sender::new(control.clone(), chunks);
        for (credit, words, together) in steps {
            control.control().consumed.store(credit, Ordering::Relaxed);
            let bytes = words * 8;
            let Ok(offset) = sender.reserve(bytes) else { continue };
            prop_assert!(offset.is_multiple_of(8) && offset + bytes <= sender.chunk().bytes() - 8);
            let header = Header::new(1, 0, bytes);
            if together {
                let mut records = vec![0; sender.room() / bytes * words];
                records.chunks_exact_mut(words).for_each(|record| record[0] = header.word());
                sender.publish_records(header, as_record_words(&records[1..]));
            } else {
                sender.publish(header, bytes);
            }
        }
    }
}

fn receiver_of(chunks: &[&[u64]]) -> HeapReceiver {
    let chunks = chunks.iter().map(|words| {
        let chunk = HeapChunk::new(64);
        words.iter().enumerate().for_each(|(index, word)| chunk.word(index * 8).store(*word, Ordering::Relaxed));
        chunk
    });
    Receiver::new(HeapControl::default(), chunks.collect())
}

#[test]
fn a_splice_needs_a_granted_chunk() {
    let mut receiver = receiver_of(&[&[ROTATE_AND_SPLICE], &[ROTATE_AND_SPLICE]]);
    assert_eq!(receiver.peek(), Err(Corrupt::Rotation));
    assert_eq!(receiver.peek(), Err(Corrupt::Rotation));
    // The splice still fails if the grant comes late.
    receiver.grant(HeapChunk::new(64));
    assert_eq!(receiver.peek(), Ok(Next::Empty));
    assert_eq!(receiver.peek(), Ok(Next::Empty));
}

#[test]
fn a_circle_of_rotations_ends() {
    for chunks in 1..=6 {
        let mut receiver = receiver_of(&vec![&[ROTATE][..]; chunks]);
        assert_eq!(receiver.peek(), Err(Corrupt::Circle { chunks }));
        assert_eq!(receiver.peek(), Err(Corrupt::Circle { chunks }));
    }
}

/// One chunk leads to a granted one in each round.
#[test]
fn granted_chunks_are_looked_at_before_a_circle_is_corrupt() {
    let mut receiver = receiver_of(&[&[ROTATE], &[ROTATE], &[ROTATE_AND_SPLICE]]);
    for word in [ROTATE, ROTATE, Header::new(1, 0, 16).word()] {
        let chunk = HeapChunk::new(64);
        chunk.word(0).store(word, Ordering::Relaxed);
        receiver.grant(chunk);
    }
    assert!(matches!(receiver.peek(), Ok(Next::Record { .. })));
}

#[test]
fn a_record_reaches_at_most_to_the_last_word() {
    // A chunk of 8 words: the last one is for the next header.
    for units in 0..=9 {
        let header = Header::from_word(7 | units << 48);
        let mut receiver = receiver_of(&[&[header.word()]]);
        let expected = match units as usize * 8 {
            end @ 8..=56 => Ok(Next::Record { header, payload: 8, end }),
            bytes => Err(Corrupt::Length { offset: 0, bytes: bytes as u64, chunk_bytes: 64 }),
        };
        assert_eq!(receiver.peek(), expected);
        assert_eq!(receiver.peek(), expected);
    }
}

#[test]
fn a_long_record_reaches_at_most_to_the_last_word() {
    let header = Header::from_word(7 | 0xffff << 48);
    for bytes in (0..80).chain([1 << 30, 1 << 63, u64::MAX, u64::MAX - 7, u64::MAX - 63]) {
        let mut receiver = receiver_of(&[&[header.word(), bytes]]);
        let expected = match bytes as usize {
            end @ (16 | 24 | 32 | 40 | 48 | 56) => Ok(Next::Record { header, payload: 16, end }),
            _ => Err(Corrupt::Length { offset: 0, bytes, chunk_bytes: 64 }),
        };
        assert_eq!(receiver.peek(), expected);
    }
    // A record without room for the length itself.
    let short = Header::from_word(7 | 6 << 48);
    let mut receiver = receiver_of(&[&[short.word(), 0, 0, 0, 0, 0, header.word(), 16]]);
    assert!(matches!(receiver.peek(), Ok(Next::Record { end: 48, .. })));
    receiver.consume(48);
    assert_eq!(receiver.peek(), Err(Corrupt::Length { offset: 48, bytes: 0, chunk_bytes: 64 }));
}

//! What a receiver makes of memory that no sender of ours has written.

use std::sync::atomic::Ordering;

use farside_fabric::ring::{Corrupt, Header, Next, Receiver, RingMemory};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::memory::{HeapChunk, HeapControl};

const ROTATE: u64 = 0xffff << 32 | 1 << 48;
const ROTATE_AND_SPLICE: u64 = ROTATE | 1;
const LOOKS: usize = 64;

type HeapReceiver = Receiver<HeapChunk, HeapControl>;

/// Headers, good and bad, and words that are none.
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

/// Looks at the ring, and goes on if it holds a record. Panics when that reaches outside its chunk.
fn look(receiver: &mut HeapReceiver) {
    match receiver.next() {
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
            assert_eq!(std::mem::discriminant(&corrupt), std::mem::discriminant(&receiver.next().unwrap_err()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn garbage_is_corrupt_or_a_record_inside_its_chunk(
        chunk_words in vec(8..40_usize, 1..=6),
        granted_words in vec(8..40_usize, 0..=2),
        writes in vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), garbage()), LOOKS..4 * LOOKS),
    ) {
        let chunk = |words: &usize| HeapChunk::new(words * 8);
        let (circle, granted): (Vec<_>, Vec<_>) =
            (chunk_words.iter().map(chunk).collect(), granted_words.iter().map(chunk).collect());
        let all: Vec<_> = circle.iter().chain(&granted).cloned().collect();
        let mut receiver = Receiver::new(HeapControl::default(), circle);
        granted.into_iter().for_each(|chunk| receiver.grant(chunk));
        // Half of it is there at first; the rest is written while the receiver looks.
        let (before, between) = writes.split_at(writes.len() / 2);
        let write = |(chunk, word, garbage): &(prop::sample::Index, prop::sample::Index, u64)| {
            let chunk = chunk.get(&all);
            chunk.word(word.index(chunk.bytes() / 8) * 8).store(*garbage, Ordering::Relaxed);
        };
        before.iter().for_each(write);
        for next in between {
            look(&mut receiver);
            write(next);
        }
        (0..LOOKS).for_each(|_| look(&mut receiver));
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
    assert_eq!(receiver.next(), Err(Corrupt::Rotation));
    assert_eq!(receiver.next(), Err(Corrupt::Rotation));
    // It is found again when the grant comes late.
    receiver.grant(HeapChunk::new(64));
    assert_eq!(receiver.next(), Ok(Next::Empty));
    assert_eq!(receiver.next(), Ok(Next::Empty));
}

#[test]
fn a_circle_of_rotations_ends() {
    for chunks in 1..=6 {
        let mut receiver = receiver_of(&vec![&[ROTATE][..]; chunks]);
        assert_eq!(receiver.next(), Err(Corrupt::Circle { chunks }));
        assert_eq!(receiver.next(), Err(Corrupt::Circle { chunks }));
    }
}

#[test]
fn a_record_reaches_at_most_to_the_last_word() {
    // A chunk of 8 words: the last is for the header behind.
    for units in 0..=9 {
        let header = Header::from_word(7 | units << 48);
        let mut receiver = receiver_of(&[&[header.word()]]);
        let expected = match units as usize * 8 {
            end @ 8..=56 => Ok(Next::Record { header, payload: 8, end }),
            bytes => Err(Corrupt::Length { offset: 0, bytes: bytes as u64, chunk_bytes: 64 }),
        };
        assert_eq!(receiver.next(), expected);
        assert_eq!(receiver.next(), expected);
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
        assert_eq!(receiver.next(), expected);
    }
    // Where there is no room for the length itself.
    let short = Header::from_word(7 | 6 << 48);
    let mut receiver = receiver_of(&[&[short.word(), 0, 0, 0, 0, 0, header.word(), 16]]);
    assert!(matches!(receiver.next(), Ok(Next::Record { end: 48, .. })));
    receiver.consume(48);
    assert_eq!(receiver.next(), Err(Corrupt::Length { offset: 48, bytes: 0, chunk_bytes: 64 }));
}

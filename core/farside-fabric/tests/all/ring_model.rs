//! The ring against an oracle: every record comes out once, in order and intact, and neither side
//! writes outside its own memory.

mod corruption;
mod harness;
mod memory;
mod oracle;
mod stress;

use farside_fabric::ring::{CHUNK_BYTES_MIN, Header, record_bytes};
use proptest::collection::vec;
use proptest::prelude::*;

use harness::{Harness, Operation};
use memory::{Heap, Mapped, Source};

const CHUNK_BYTES_MAX: usize = 8 << 10;
const OPERATIONS_MAX: usize = 400;
/// The control block, the first chunks, and a granted chunk for each operation.
const MAPPED_BYTES: usize = 64 + (6 + OPERATIONS_MAX) * CHUNK_BYTES_MAX;

/// Powers of two and their neighbours, the smallest most often; and any size in between.
fn chunk_bytes() -> impl Strategy<Value = usize> {
    let near_power =
        (6_u32..=13, -1_isize..=1).prop_map(|(power, words)| (1_usize << power).wrapping_add_signed(words * 8));
    prop_oneof![
        2 => Just(CHUNK_BYTES_MIN),
        3 => near_power.prop_map(|bytes| bytes.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)),
        1 => (CHUNK_BYTES_MIN / 8..=CHUNK_BYTES_MAX / 8).prop_map(|words| words * 8),
    ]
}

/// Records from the shortest to some that fit in no chunk.
fn any_record_bytes() -> impl Strategy<Value = usize> {
    let payload = prop_oneof![
        4 => 0..64_usize,
        2 => 0..512_usize,
        1 => 0..CHUNK_BYTES_MAX + 64,
    ];
    let just_in_a_chunk =
        (chunk_bytes(), -2_isize..=2).prop_map(|(chunk, words)| chunk.wrapping_add_signed(words * 8 - 8));
    prop_oneof![4 => payload.prop_map(record_bytes), 1 => just_in_a_chunk]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => any_record_bytes().prop_map(|record_bytes| Operation::Publish { record_bytes }),
        8 => (any_record_bytes(), 1..20_usize)
            .prop_map(|(record_bytes, count)| Operation::PublishMany { record_bytes, count }),
        3 => (0..12_usize).prop_map(|count| Operation::Receive { count }),
        3 => (0..12_usize).prop_map(|count| Operation::Run { count }),
        1 => chunk_bytes().prop_map(|chunk_bytes| Operation::Grant { chunk_bytes }),
        2 => Just(Operation::Deliver),
        1 => any::<bool>().prop_map(|begin| Operation::Wait { begin }),
    ]
}

fn drive<S: Source>(source: S, chunks: &[usize], operations: &[Operation]) {
    let mut harness = Harness::new(source, chunks);
    for operation in operations {
        harness.apply(*operation);
    }
    harness.drain();
    // After any operations, a record that fits into a chunk gets through, twice.
    for record_bytes in std::iter::repeat_n(harness.longest_record(), 2).flatten() {
        with_patience(&mut harness, Operation::Publish { record_bytes });
    }
    harness.drain();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn a_ring_on_the_heap_does_what_the_oracle_does(
        chunks in vec(chunk_bytes(), 1..=6),
        operations in vec(operation(), 1..OPERATIONS_MAX),
    ) {
        drive(Heap, &chunks, &operations);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn a_mapped_ring_does_what_the_oracle_does(
        chunks in vec(chunk_bytes(), 1..=6),
        operations in vec(operation(), 1..OPERATIONS_MAX),
    ) {
        drive(Mapped::new(MAPPED_BYTES), &chunks, &operations);
    }
}

/// Applies an operation that needs room, and takes records out until there is some. Panics if that
/// never helps.
fn with_patience<S: Source>(harness: &mut Harness<S>, operation: Operation) {
    for _ in 0..8 {
        if harness.may_try(operation) && harness.apply(operation) {
            return;
        }
        harness.apply(Operation::Receive { count: 100 });
    }
    panic!("{operation:?} waits for ever");
}

#[test]
fn long_records_carry_their_length_in_front() {
    // The longest payload whose length fits into the header.
    let longest_short = (usize::from(u16::MAX) - 2) * 8;
    let near = [-9, -8, -1, 0, 1, 8, 9].map(|more| longest_short.wrapping_add_signed(more));
    let mut harness = Harness::new(Heap, &[1 << 20, (2 << 20) + 8, 1 << 20]);
    for payload_bytes in near.into_iter().chain([1 << 20, (2 << 20) - 24, 0]) {
        let record_bytes = record_bytes(payload_bytes);
        assert_eq!(Header::is_long_for(record_bytes), payload_bytes > longest_short);
        with_patience(&mut harness, Operation::PublishMany { record_bytes, count: 2 });
        with_patience(&mut harness, Operation::PublishMany { record_bytes: 8, count: 3 });
        with_patience(&mut harness, Operation::Publish { record_bytes });
    }
    harness.drain();
}

#[test]
fn the_only_chunk_that_is_long_enough_can_be_used_again() {
    for chunks in [&[64, 256][..], &[256, 64], &[64, 64, 256], &[64, 256, 64, 128]] {
        let mut harness = Harness::new(Heap, chunks);
        (0..20).for_each(|_| with_patience(&mut harness, Operation::Publish { record_bytes: 200 }));
        harness.drain();
    }
}

#[test]
fn a_ring_of_one_chunk_asks_for_another() {
    let mut harness = Harness::new(Heap, &[64]);
    assert!(harness.apply(Operation::Publish { record_bytes: 56 }));
    // The only chunk cannot be left, so it is never finished.
    assert!(!harness.apply(Operation::Publish { record_bytes: 8 }));
    assert_eq!(harness.needed_chunk_bytes(), Some(CHUNK_BYTES_MIN));
    harness.apply(Operation::Grant { chunk_bytes: CHUNK_BYTES_MIN });
    harness.apply(Operation::Deliver);
    (0..20).for_each(|_| with_patience(&mut harness, Operation::Publish { record_bytes: 56 }));
    harness.drain();
}

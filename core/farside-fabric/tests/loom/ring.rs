//! Records, batches, rotation, credit and splicing, between a sender and a receiver that both poll.

use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use crate::check;
use crate::memory::{Chunk, ModelReceiver, RECORD_BYTES, fill, publish, receive, record, ring, send};

/// Takes the records 1 to `count` out.
fn receive_all(receiver: &mut ModelReceiver, count: u64) {
    for expected in 1..=count {
        assert_eq!(receive(receiver), expected);
    }
}

#[test]
fn a_payload_is_visible_with_its_header() {
    check(None, || {
        let (mut sender, mut receiver) = ring(&[2]);
        let sending = thread::spawn(move || (1..=2).for_each(|value| send(&mut sender, value)));
        receive_all(&mut receiver, 2);
        sending.join().unwrap();
    });
}

#[test]
fn a_batch_is_visible_with_its_first_header() {
    check(None, || {
        let (mut sender, mut receiver) = ring(&[3]);
        let sending = thread::spawn(move || {
            sender.reserve(RECORD_BYTES).unwrap();
            publish(&mut sender, &[record(1), record(2)].concat());
            send(&mut sender, 3);
        });
        receive_all(&mut receiver, 3);
        sending.join().unwrap();
    });
}

#[test]
fn a_batch_is_visible_behind_a_rotation() {
    check(Some(3), || {
        let (mut sender, mut receiver) = ring(&[1, 2]);
        let sending = thread::spawn(move || {
            send(&mut sender, 1);
            sender.reserve(RECORD_BYTES).unwrap();
            publish(&mut sender, &[record(2), record(3)].concat());
        });
        receive_all(&mut receiver, 3);
        sending.join().unwrap();
    });
}

#[test]
fn a_chunk_is_written_again_only_when_the_receiver_has_finished_it() {
    check(Some(3), || {
        let (mut sender, mut receiver) = ring(&[1, 1]);
        let sending = thread::spawn(move || (1..=4).for_each(|value| send(&mut sender, value)));
        receive_all(&mut receiver, 4);
        sending.join().unwrap();
    });
}

#[test]
fn chunks_that_are_too_short_are_passed_by_both() {
    const TWO_WORDS: usize = RECORD_BYTES + 8;
    check(Some(3), || {
        let (mut sender, mut receiver) = ring(&[1, 2]);
        let sending = thread::spawn(move || {
            for value in 1..=2 {
                let offset = loop {
                    match sender.reserve(TWO_WORDS) {
                        Ok(offset) => break offset,
                        Err(_) => thread::yield_now(),
                    }
                };
                fill(&sender, offset, value);
                sender.publish(farside_fabric::ring::Header::new(0, value as u32, TWO_WORDS), TWO_WORDS);
            }
        });
        receive_all(&mut receiver, 2);
        sending.join().unwrap();
    });
}

#[test]
fn a_granted_chunk_is_spliced_in_where_the_sender_stands() {
    check(Some(3), || {
        let (mut sender, mut receiver) = ring(&[1, 1]);
        let chunk = Chunk::new(1);
        let is_granted = Arc::new(AtomicBool::new(false));
        let sending = thread::spawn({
            let (chunk, is_granted) = (chunk.clone(), is_granted.clone());
            move || {
                send(&mut sender, 1);
                if is_granted.load(Ordering::Acquire) {
                    sender.grant(chunk);
                }
                (2..=4).for_each(|value| send(&mut sender, value));
            }
        });
        // The receiver learns of the chunk first.
        receiver.grant(chunk);
        is_granted.store(true, Ordering::Release);
        receive_all(&mut receiver, 4);
        sending.join().unwrap();
    });
}

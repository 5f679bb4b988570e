//! Messages: whole, once, in order, and never lost silently.

use super::Fabric;
use super::harness::{Process, Service, Trial, assert_same, pattern};
use farside_fabric::ids::ProcessId;
use farside_fabric::transport::{Event, FabricError};

/// Returns message number `index` from one process to another, with a pattern of its own.
fn message(from: ProcessId, to: ProcessId, index: usize, bytes: usize) -> Vec<u8> {
    let pair = u64::from(from.number()) << 16 | u64::from(to.number());
    pattern(pair << 32 | index as u64, bytes)
}

/// Returns sizes from 0 to `max`, among them those around the powers of two. No two neighbours are
/// equal.
fn sizes(max: usize) -> Vec<usize> {
    let around = (3..usize::BITS).map_while(|power| 1_usize.checked_shl(power)).take_while(|size| *size < max);
    let around = around.flat_map(|size| [size - 1, size, size + 1]).filter(|size| *size < max);
    [0, 1, 2, 3].into_iter().chain(around).chain([max - 1, max]).collect()
}

/// Each process sends messages of all sizes to all processes at once, including itself. All arrive
/// whole, once and in order.
pub fn messages_between_all_pairs_keep_their_order(fabric: &dyn Fabric) {
    const MESSAGES: usize = 200;
    Trial::new("messages_between_all_pairs_keep_their_order", 4).run(fabric, |process| {
        let sizes = sizes(process.end().capabilities().message_bytes_max);
        let wanted = |from, to, index: usize| message(from, to, index, sizes[index % sizes.len()]);
        let count = process.end().process_count() as usize;
        let (mut sent, mut received) = (vec![0; count], vec![0; count]);
        process.until("all messages", || {
            for to in process.everyone().filter(|to| sent[to.index()] < MESSAGES).collect::<Vec<_>>() {
                match process.end().send(to, &wanted(process.id(), to, sent[to.index()])) {
                    Ok(()) => sent[to.index()] += 1,
                    Err(FabricError::QueueFull { .. }) => {}
                    Err(error) => panic!("sending failed: {error}"),
                }
            }
            while let Some(event) = process.end().receive() {
                let Event::Message { from, message } = event else {
                    panic!("no process has left, but this arrived: {event:?}")
                };
                let index = received[from.index()];
                assert_same(&message, &wanted(from, process.id(), index), "the next message of a peer");
                received[from.index()] += 1;
            }
            let done = |counts: &[usize]| counts.iter().all(|count| *count == MESSAGES);
            (done(&sent) && done(&received)).then_some(())
        });
        process.meet();
        process.end().progress();
        assert_eq!(process.end().receive(), None, "everything has been received already");
    });
}

/// The longest message arrives. One byte more is a typed error and sends nothing.
pub fn a_message_beyond_the_maximum_is_an_error(fabric: &dyn Fabric) {
    Trial::new("a_message_beyond_the_maximum_is_an_error", 2).run(fabric, |process| {
        let (sender, receiver) = (ProcessId::new(0), ProcessId::new(1));
        let peer = if process.id() == sender { receiver } else { sender };
        let max_bytes = process.end().message_bytes_max(peer);
        assert!(max_bytes >= process.end().capabilities().message_bytes_max);
        let largest = message(sender, receiver, 0, max_bytes);
        if process.id() == sender {
            for bytes in [max_bytes + 1, 2 * max_bytes + 1] {
                let refused = process.end().send(receiver, &pattern(1, bytes));
                let is_too_long = |error: &FabricError| {
                    matches!(error, FabricError::MessageTooLong { bytes: told, max } if (*told, *max) == (bytes, max_bytes))
                };
                assert!(refused.as_ref().is_err_and(is_too_long), "{bytes} bytes: {refused:?}");
            }
            process.meet();
            process.send(receiver, &largest);
            process.send(receiver, b"next");
        } else {
            process.meet();
            process.expect_message(sender, &largest);
            process.expect_message(sender, b"next");
        }
    });
}

/// A message to a process that does not exist in the job is a typed error.
pub fn a_message_to_an_unknown_process_is_an_error(fabric: &dyn Fabric) {
    Trial::new("a_message_to_an_unknown_process_is_an_error", 2).run(fabric, |process| {
        for number in [2, u32::MAX] {
            let refused = process.end().send(ProcessId::new(number), b"unknown");
            assert!(matches!(refused, Err(FabricError::NoSuchProcess { count: 2, .. })), "{refused:?}");
        }
    });
}

/// A sender whose peer receives nothing may find the queue full. All messages that the queue took
/// arrive.
pub fn a_full_queue_of_messages_loses_nothing(fabric: &dyn Fabric) {
    const ABSORBED_MAX: usize = 3000;
    const MORE: usize = 200;
    Trial::new("a_full_queue_of_messages_loses_nothing", 2).run(fabric, |process| {
        let (sender, receiver) = (ProcessId::new(0), ProcessId::new(1));
        let bytes_max = process.end().capabilities().message_bytes_max.min(100);
        let wanted = |index: usize| message(sender, receiver, index, 1 + index % bytes_max);
        if process.id() == sender {
            let taken = send_until_full(process, receiver, ABSORBED_MAX, wanted);
            process.gather(&[taken as u64]);
            process.meet();
            (taken..taken + MORE).for_each(|index| process.send(receiver, &wanted(index)));
        } else {
            let taken = process.gather(&[])[0] as usize;
            assert!(taken > 0, "an empty queue takes a message");
            (0..taken).for_each(|index| process.expect_message(sender, &wanted(index)));
            process.meet();
            (taken..taken + MORE).for_each(|index| process.expect_message(sender, &wanted(index)));
        }
        process.meet();
        assert_eq!(process.end().receive(), None, "everything has been received already");
    });
}

fn send_until_full(process: &Process, to: ProcessId, max: usize, wanted: impl Fn(usize) -> Vec<u8>) -> usize {
    for index in 0..max {
        match process.end().send(to, &wanted(index)) {
            Ok(()) => process.end().progress(),
            Err(FabricError::QueueFull { process: full, .. }) => {
                assert_eq!(full, to, "the queue that is full is the receiver's");
                return index;
            }
            Err(error) => panic!("sending failed: {error}"),
        }
    }
    max
}

/// A process's messages to itself arrive like all others, without help from other threads.
pub fn a_process_sends_itself_messages(fabric: &dyn Fabric) {
    Trial::new("a_process_sends_itself_messages", 1).service(Service::Nobody).run(fabric, |process| {
        let this = process.id();
        let sizes = sizes(process.end().capabilities().message_bytes_max);
        let wanted = |index: usize| message(this, this, index, sizes[index]);
        let mut received = 0;
        for index in 0..sizes.len() {
            while let Err(error) = process.end().send(this, &wanted(index)) {
                assert!(matches!(error, FabricError::QueueFull { .. }), "sending to myself failed: {error}");
                process.expect_message(this, &wanted(received));
                received += 1;
            }
        }
        (received..sizes.len()).for_each(|index| process.expect_message(this, &wanted(index)));
        assert_eq!(process.end().receive(), None, "everything has been received already");
    });
}

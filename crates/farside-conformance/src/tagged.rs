//! Tagged messages: each completes the first receive of its sender and tag, none is lost, and the
//! number of early messages is bounded.
//!
//! A transport without tagged messages passes these checks by refusing both calls as
//! [`FabricError::Unsupported`], which the defaults of the trait do.

use std::thread;
use std::time::{Duration, Instant};

use super::Fabric;
use super::harness::{Process, Service, Trial, assert_same, expect, pattern};
use farside_fabric::ids::ProcessId;
use farside_fabric::transport::{Completion, Event, FabricError, Outcome, Tag};

const SENDER: ProcessId = ProcessId::new(0);
const RECEIVER: ProcessId = ProcessId::new(1);
const TAG: Tag = Tag(0xfa5_1de);

/// More early messages than any transport keeps.
const ABSORBED_MAX: usize = 10_000;

#[track_caller]
fn post(process: &Process, from: ProcessId, tag: Tag, room: usize) -> Completion {
    expect(process.end().receive_tagged(from, tag, room), "posting a receive")
}

/// Sends a tagged message, and makes progress while there is no room.
#[track_caller]
pub(super) fn send(process: &Process, to: ProcessId, tag: Tag, message: &[u8]) {
    process.until("room for a tagged message", || match process.end().send_tagged(to, tag, message) {
        Err(FabricError::QueueFull { process: full, .. }) => {
            assert_eq!(full, to, "the queue that is full is the receiver's");
            None
        }
        sent => {
            expect(sent, "sending a tagged message");
            Some(())
        }
    });
}

#[track_caller]
fn assert_got(process: &Process, completion: Completion, from: ProcessId, wanted: &[u8]) {
    match process.finish(completion, from) {
        Outcome::Got(message) => assert_same(&message, wanted, "a tagged message"),
        other => panic!("a tagged message brought {other:?}"),
    }
}

#[track_caller]
fn assert_no_event(process: &Process, why: &str) {
    process.end().progress();
    assert_eq!(process.end().receive(), None, "{why}");
}

fn message(from: ProcessId, to: ProcessId, index: usize, bytes: usize) -> Vec<u8> {
    pattern(u64::from(from.number()) << 48 | u64::from(to.number()) << 32 | index as u64, bytes)
}

/// Each process posts receives of all sizes from all processes, including itself, and then all
/// send. Each message arrives with its bytes, and none arrives as an event.
pub fn tagged_messages_of_every_size_arrive(fabric: &dyn Fabric) {
    Trial::tagged("tagged_messages_of_every_size_arrive", 3).run(fabric, |process| {
        let max = process.end().capabilities().tagged_bytes_max;
        let sizes: Vec<usize> =
            [0, 1, 2].into_iter().chain((2..).map(|power| 1 << power).take_while(|size| *size < max)).collect();
        let sizes: Vec<usize> = sizes.into_iter().filter(|size| *size < max).chain([max - 1, max]).collect();
        let tag = |index: usize| Tag(index as u64);
        let mut expected = Vec::new();
        for (index, bytes) in sizes.iter().enumerate() {
            for from in process.everyone() {
                // Exactly enough room, or too much: the completion has the length of the message.
                let room = bytes + 100 * (index % 2);
                expected.push((post(process, from, tag(index), room), from, index, *bytes));
            }
        }
        process.meet();
        for (index, bytes) in sizes.iter().enumerate() {
            for to in process.everyone() {
                send(process, to, tag(index), &message(process.id(), to, index, *bytes));
            }
        }
        for (completion, from, index, bytes) in expected {
            assert_got(process, completion, from, &message(from, process.id(), index, bytes));
        }
        process.meet();
        assert_no_event(process, "a tagged message is not an event");
    });
}

/// A message completes the receive with its sender and its whole tag, whatever was posted or sent
/// first.
pub fn a_message_goes_to_its_own_sender_and_tag(fabric: &dyn Fabric) {
    // The tags differ in one bit each, high or low.
    const TAGS: [Tag; 4] = [Tag(1), Tag(0), Tag(1 | 1 << 32), Tag(1 | 1 << 63)];
    Trial::tagged("a_message_goes_to_its_own_sender_and_tag", 3).run(fabric, |process| {
        let receiver = ProcessId::new(0);
        let wanted = |from: ProcessId, tag: Tag| {
            [&from.number().to_le_bytes()[..3], &tag.0.to_be_bytes()[..1], &tag.0.to_le_bytes()[..5]].concat()
        };
        if process.id() != receiver {
            process.meet();
            TAGS.iter().for_each(|tag| send(process, receiver, *tag, &wanted(process.id(), *tag)));
            return;
        }
        let mut expected = Vec::new();
        for tag in TAGS.into_iter().rev() {
            for from in [2, 1].map(ProcessId::new) {
                expected.push((post(process, from, tag, 9), from, tag));
            }
        }
        process.meet();
        for (completion, from, tag) in expected {
            assert_got(process, completion, from, &wanted(from, tag));
        }
    });
}

/// Among equal messages and receives, the first message completes the first receive, whether it is
/// early or late.
pub fn messages_of_one_tag_are_matched_in_order(fabric: &dyn Fabric) {
    const MESSAGES: usize = 200;
    Trial::tagged("messages_of_one_tag_are_matched_in_order", 2).run(fabric, |process| {
        let wanted = |index: usize| message(SENDER, RECEIVER, index, 8);
        if process.id() == SENDER {
            process.meet();
            (0..MESSAGES).for_each(|index| send(process, RECEIVER, TAG, &wanted(index)));
            return;
        }
        let expect_some = |count: usize| (0..count).map(|_| post(process, SENDER, TAG, 8)).collect::<Vec<_>>();
        let mut expected = expect_some(MESSAGES / 4);
        process.meet();
        let mut index = 0;
        while index < MESSAGES {
            for completion in expected {
                assert_got(process, completion, SENDER, &wanted(index));
                index += 1;
            }
            // Gives some messages time to arrive early.
            thread::sleep(Duration::from_millis(2));
            expected = expect_some(7.min(MESSAGES - index));
        }
    });
}

/// A message that arrives before its receive is kept, and is not an event.
pub fn an_early_message_waits_for_its_receive(fabric: &dyn Fabric) {
    Trial::tagged("an_early_message_waits_for_its_receive", 2).run(fabric, |process| {
        if process.id() == SENDER {
            send(process, RECEIVER, TAG, b"early");
            process.send(RECEIVER, b"sent");
            process.meet();
            return;
        }
        assert_eq!(process.next_message(), (SENDER, b"sent".to_vec()), "a tagged message is not an event");
        let enough = Instant::now() + Duration::from_millis(20);
        while Instant::now() < enough {
            assert_no_event(process, "a tagged message is not an event");
        }
        // A receive with another tag does not get it.
        let other = post(process, SENDER, Tag(TAG.0 + 1), 100);
        assert_got(process, post(process, SENDER, TAG, 100), SENDER, b"early");
        assert!(!other.has_ended());
        process.meet();
    });
}

/// A sender of too many early messages is refused, and loses none. Plain messages arrive meanwhile.
pub fn too_many_early_messages_are_refused_without_loss(fabric: &dyn Fabric) {
    const MORE: usize = 200;
    Trial::tagged("too_many_early_messages_are_refused_without_loss", 2).run(fabric, |process| {
        let bytes_max = process.end().capabilities().tagged_bytes_max.min(100);
        let wanted = |index: usize| message(SENDER, RECEIVER, index, 1 + index % bytes_max);
        if process.id() == SENDER {
            let mut taken = 0;
            loop {
                assert!(taken < ABSORBED_MAX, "early messages are refused at some time");
                match process.end().send_tagged(RECEIVER, TAG, &wanted(taken)) {
                    Ok(()) => process.end().progress(),
                    Err(FabricError::QueueFull { process: full, .. }) => {
                        assert_eq!(full, RECEIVER, "the queue that is full is the receiver's");
                        break;
                    }
                    Err(error) => panic!("sending failed: {error}"),
                }
                taken += 1;
            }
            process.send(RECEIVER, b"through");
            process.gather(&[taken as u64]);
            (taken..taken + MORE).for_each(|index| send(process, RECEIVER, TAG, &wanted(index)));
        } else {
            process.expect_message(SENDER, b"through");
            let taken = process.gather(&[])[0] as usize;
            assert!(taken > 0, "the first message is taken");
            for index in 0..taken + MORE {
                assert_got(process, post(process, SENDER, TAG, 100), SENDER, &wanted(index));
            }
        }
    });
}

/// A message longer than its room is a typed error at the receiver, early or late. The next message
/// completes the next receive.
pub fn a_message_longer_than_its_receive_is_an_error(fabric: &dyn Fabric) {
    Trial::tagged("a_message_longer_than_its_receive_is_an_error", 2).run(fabric, |process| {
        let bytes = process.end().capabilities().tagged_bytes_max.min(100);
        let wanted = |index: usize| message(SENDER, RECEIVER, index, bytes);
        if process.id() == SENDER {
            process.meet();
            (0..2).for_each(|index| send(process, RECEIVER, TAG, &wanted(index)));
            process.meet();
            (2..4).for_each(|index| send(process, RECEIVER, TAG, &wanted(index)));
            send(process, RECEIVER, TAG, b"");
            return;
        }
        let assert_too_small = |completion: Completion, room: usize| {
            let ended = completion.wait(process.end(), SENDER, process.deadline());
            let is_told = |error: &FabricError| {
                matches!(error, FabricError::RoomTooSmall { bytes: told, room: made } if (*told, *made) == (bytes, room))
            };
            assert!(ended.as_ref().is_err_and(is_told), "{bytes} bytes where {room} have room: {ended:?}");
        };
        let expected = [bytes - 1, bytes].map(|room| post(process, SENDER, TAG, room));
        process.meet();
        let [small, large] = expected;
        assert_too_small(small, bytes - 1);
        assert_got(process, large, SENDER, &wanted(1));
        process.meet();
        thread::sleep(Duration::from_millis(5));
        assert_too_small(post(process, SENDER, TAG, 0), 0);
        assert_got(process, post(process, SENDER, TAG, bytes), SENDER, &wanted(3));
        assert_got(process, post(process, SENDER, TAG, 0), SENDER, b"");
    });
}

/// The longest tagged message arrives. One byte more is a typed error and sends nothing.
pub fn a_tagged_message_beyond_the_maximum_is_an_error(fabric: &dyn Fabric) {
    Trial::tagged("a_tagged_message_beyond_the_maximum_is_an_error", 2).run(fabric, |process| {
        let max_bytes = process.end().capabilities().tagged_bytes_max;
        let largest = message(SENDER, RECEIVER, 0, max_bytes);
        if process.id() == SENDER {
            let refused = process.end().send_tagged(RECEIVER, TAG, &pattern(1, max_bytes + 1));
            let is_too_long = |error: &FabricError| {
                matches!(error, FabricError::MessageTooLong { bytes, max } if (*bytes, *max) == (max_bytes + 1, max_bytes))
            };
            assert!(refused.as_ref().is_err_and(is_too_long), "{refused:?}");
            process.meet();
            send(process, RECEIVER, TAG, &largest);
        } else {
            // The receive is posted after the refusal; otherwise chance would decide which process
            // notices a refused message that was sent.
            process.meet();
            assert_got(process, post(process, SENDER, TAG, 2 * max_bytes), SENDER, &largest);
        }
    });
}

/// A cancelled receive takes no message: the message goes to the next receive, or waits for one.
pub fn a_cancelled_receive_takes_no_message(fabric: &dyn Fabric) {
    Trial::tagged("a_cancelled_receive_takes_no_message", 2).run(fabric, |process| {
        if process.id() == SENDER {
            process.meet();
            send(process, RECEIVER, TAG, b"first");
            send(process, RECEIVER, TAG, b"second");
            process.meet();
            return;
        }
        let [cancelled, next] = [0, 1].map(|_| post(process, SENDER, TAG, 100));
        let also_cancelled = post(process, SENDER, TAG, 100);
        for completion in [cancelled, also_cancelled] {
            completion.cancel();
            let ended = completion.try_take();
            assert!(matches!(ended, Some(Err(FabricError::Cancelled))), "{ended:?}");
        }
        process.meet();
        assert_got(process, next, SENDER, b"first");
        assert_got(process, post(process, SENDER, TAG, 100), SENDER, b"second");
        process.meet();
    });
}

/// A process with the maximum number of receives is refused another one, until it cancels one.
pub fn too_many_receives_are_refused(fabric: &dyn Fabric) {
    const TRIED_MAX: usize = 1 << 16;
    Trial::tagged("too_many_receives_are_refused", 2).run(fabric, |process| {
        let max = process.end().capabilities().tagged_receives_max;
        if process.id() == SENDER || max > TRIED_MAX {
            process.meet();
            return;
        }
        let expected: Vec<_> = (0..max).map(|index| post(process, SENDER, Tag(index as u64), 100)).collect();
        let refused = process.end().receive_tagged(SENDER, TAG, 100);
        let is_full = |error: &FabricError| {
            matches!(error, FabricError::QueueFull { process: SENDER, max: told } if *told == max)
        };
        assert!(refused.as_ref().is_err_and(is_full), "one more than {max} expectations: {refused:?}");
        expected[max / 2].cancel();
        post(process, SENDER, TAG, 100);
        process.meet();
    });
}

/// Receiving from a process that does not exist in the job, or sending to it, is a typed error.
pub fn a_tagged_message_of_an_unknown_process_is_an_error(fabric: &dyn Fabric) {
    Trial::tagged("a_tagged_message_of_an_unknown_process_is_an_error", 2).run(fabric, |process| {
        for unknown in [2, u32::MAX].map(ProcessId::new) {
            let refused = process.end().receive_tagged(unknown, TAG, 100);
            assert!(matches!(refused, Err(FabricError::NoSuchProcess { count: 2, .. })), "{refused:?}");
            let refused = process.end().send_tagged(unknown, TAG, b"unknown");
            assert!(matches!(refused, Err(FabricError::NoSuchProcess { count: 2, .. })), "{refused:?}");
        }
    });
}

/// Tagged messages to the process itself arrive without help from other threads. Too many without a
/// receive are refused.
pub fn a_process_receives_its_own_tagged_messages(fabric: &dyn Fabric) {
    Trial::tagged("a_process_receives_its_own_tagged_messages", 1).service(Service::Nobody).run(fabric, |process| {
        let this = process.id();
        let wanted = |index: usize| message(this, this, index, 8);
        let mut taken = 0;
        while let Ok(()) = process.end().send_tagged(this, TAG, &wanted(taken)) {
            taken += 1;
            assert!(taken < ABSORBED_MAX, "early messages are refused at some time");
        }
        assert!(taken > 0, "sending to myself failed");
        (0..taken).for_each(|index| assert_got(process, post(process, this, TAG, 8), this, &wanted(index)));
        for index in 0..2 * taken {
            let expected = post(process, this, TAG, 8);
            send(process, this, TAG, &wanted(index));
            assert_got(process, expected, this, &wanted(index));
        }
        assert_no_event(process, "a tagged message is not an event");
    });
}

/// Receives from a process that leaves end with the news of its end. Later calls fail in the same
/// way.
pub fn receives_from_a_process_that_leaves_end(fabric: &dyn Fabric) {
    Trial::tagged("receives_from_a_process_that_leaves_end", 2).run_with_leavers(fabric, |process| {
        let leaver = RECEIVER;
        process.others().for_each(|peer| process.send(peer, b"hello"));
        process.others().for_each(|peer| process.expect_message(peer, b"hello"));
        if process.id() == leaver {
            process.meet();
            let seat = process.leave();
            seat.meet();
            return;
        }
        let expected: Vec<_> = (0..10).map(|index| post(&process, leaver, Tag(index), 100)).collect();
        process.meet();
        expected.into_iter().for_each(|completion| assert_disconnected(&process, completion, leaver));
        assert_eq!(process.next_event("the news of an end"), Event::Disconnected { process: leaver });
        assert_unreachable(&process, leaver);
        process.meet();
    });
}

/// Receives from a silent peer end when this process is told that the peer is dead.
pub fn forgetting_a_peer_ends_receives_from_it(fabric: &dyn Fabric) {
    let trial = Trial::tagged("forgetting_a_peer_ends_receives_from_it", 2);
    trial.service(Service::Nobody).run_with_leavers(fabric, |process| {
        let silent = RECEIVER;
        process.others().for_each(|peer| process.send(peer, b"hello"));
        process.others().for_each(|peer| process.expect_message(peer, b"hello"));
        process.meet();
        if process.id() != silent {
            let expected = post(&process, silent, TAG, 100);
            process.end().forget(silent);
            assert_disconnected(&process, expected, silent);
            assert_unreachable(&process, silent);
        }
        process.meet_inattentively();
    });
}

#[track_caller]
fn assert_disconnected(process: &Process, completion: Completion, peer: ProcessId) {
    let ended = completion.wait(process.end(), peer, process.deadline());
    let is_news = matches!(ended, Err(FabricError::Disconnected { process: gone }) if gone == peer);
    assert!(is_news, "a receive from a lost process: {ended:?}");
}

#[track_caller]
fn assert_unreachable(process: &Process, gone: ProcessId) {
    let refused = process.end().receive_tagged(gone, TAG, 100);
    assert!(matches!(refused, Err(FabricError::Disconnected { .. })), "a new receive from a lost process: {refused:?}");
    let refused = process.end().send_tagged(gone, TAG, b"there?");
    assert!(matches!(refused, Err(FabricError::Disconnected { .. })), "sending to a lost process: {refused:?}");
}

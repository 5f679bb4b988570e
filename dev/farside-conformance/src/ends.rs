//! Processes that end, or are declared dead: an error, not a silence.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::Fabric;
use super::harness::{Process, Service, Trial, expect};
use farside_fabric::ids::ProcessId;
use farside_fabric::transport::{AtomicChange, Completion, Event, FabricError, Operation};

const LEAVER: ProcessId = ProcessId::new(1);

/// A process that leaves is reported once to each connected process. The others continue, and
/// messages to it are errors from then on.
pub fn a_process_that_leaves_is_reported_once(fabric: &dyn Fabric) {
    Trial::new("a_process_that_leaves_is_reported_once", 3).run_with_leavers(fabric, |process| {
        let unused = expect(process.end().register(4096), "registering").key();
        let unused = process.share_key(unused)[LEAVER.index()];
        for peer in process.others() {
            process.attach_starter(peer);
            process.send(peer, b"hello");
        }
        process.others().for_each(|_| assert_eq!(process.next_message().1, b"hello"));
        process.meet();
        if process.id() == LEAVER {
            let seat = process.leave();
            seat.meet();
            seat.meet();
            return;
        }
        assert_eq!(process.next_event("the news of an end"), Event::Disconnected { process: LEAVER });
        // From here on only messages arrive.
        process.meet();
        let refused = process.end().send(LEAVER, b"there?");
        assert!(is_disconnected(&refused, LEAVER), "sending to one that left: {refused:?}");
        expect_unreachable(&process, unused);
        let peer = process.others().find(|peer| *peer != LEAVER).expect("two are left");
        for round in 0..50_u64 {
            process.send(peer, &round.to_le_bytes());
            process.expect_message(peer, &round.to_le_bytes());
        }
        process.meet();
    });
}

fn is_disconnected<T>(result: &Result<T, FabricError>, from: ProcessId) -> bool {
    matches!(result, Err(FabricError::Disconnected { process }) if *process == from)
}

/// Asserts that attaching fails. The error depends on what the transport can know.
#[track_caller]
fn expect_unreachable(process: &Process, key: farside_fabric::RemoteKey) {
    let refused = process.end().attach(key, farside_testbed::soon());
    let is_deadline = matches!(refused, Err(FabricError::Deadline { .. }));
    assert!(is_deadline || is_disconnected(&refused, key.process), "attaching to one that left: {refused:?}");
}

/// Attaching a key of a process that left before there was a connection fails, at the deadline at
/// the latest.
pub fn attaching_to_a_process_that_left_is_an_error(fabric: &dyn Fabric) {
    Trial::new("attaching_to_a_process_that_left_is_an_error", 2).run_with_leavers(fabric, |process| {
        let key = expect(process.end().register(4096), "registering").key();
        let key = process.share_key(key)[LEAVER.index()];
        if process.id() == LEAVER {
            let seat = process.leave();
            seat.meet();
            seat.meet();
            return;
        }
        process.meet();
        expect_unreachable(&process, key);
        expect_unreachable(&process, farside_fabric::RemoteKey::starter(LEAVER, process.starter_bytes()));
        process.meet();
    });
}

/// Of the messages that a process sent before it left, the first few arrive in order, followed by
/// the news of its end.
pub fn messages_of_a_process_that_leaves_have_no_gaps(fabric: &dyn Fabric) {
    const MESSAGES: u32 = 300;
    Trial::new("messages_of_a_process_that_leaves_have_no_gaps", 2).run_with_leavers(fabric, |process| {
        let receiver = ProcessId::new(0);
        if process.id() == LEAVER {
            process.send(receiver, b"hello");
            process.expect_message(receiver, b"hello");
            for index in 0..MESSAGES {
                match process.end().send(receiver, &index.to_le_bytes()) {
                    Ok(()) => {}
                    Err(FabricError::QueueFull { .. }) => break,
                    Err(error) => panic!("sending failed: {error}"),
                }
            }
            process.leave().meet();
            return;
        }
        process.expect_message(LEAVER, b"hello");
        process.send(LEAVER, b"hello");
        let mut index: u32 = 0;
        while let Event::Message { from, message } = process.next_event("the last words, or the news of an end") {
            assert_eq!((from, &message[..]), (LEAVER, &index.to_le_bytes()[..]), "a message out of order");
            index += 1;
        }
        for _ in 0..100 {
            process.end().progress();
            assert_eq!(process.end().receive(), None, "a process that is reported gone is silent");
        }
        process.meet();
    });
}

/// Operations on a process that leaves while they are in flight end, successfully or with the news.
/// So do those posted later.
pub fn operations_on_a_process_that_leaves_end(fabric: &dyn Fabric) {
    Trial::new("operations_on_a_process_that_leaves_end", 2).run_with_leavers(fabric, |process| {
        if process.id() == LEAVER {
            process.meet();
            process.leave().meet();
            return;
        }
        let key = process.attach_starter(LEAVER).key();
        let mut posted = post_some(&process, key);
        process.meet();
        posted.extend(post_some(&process, key));
        posted.into_iter().for_each(|completion| expect_end(&process, completion));
        process.meet();
        post_some(&process, key).into_iter().for_each(|completion| expect_end(&process, completion));
    });
}

/// Posts operations until the queue is full, at most thirty.
fn post_some(process: &Process, key: farside_fabric::RemoteKey) -> Vec<Completion> {
    let operations = (0..30_u64).map(|index| match index % 3 {
        0 => Operation::Put { offset: 8 * index, data: vec![1; 500] },
        1 => Operation::get(8 * index, 500),
        _ => Operation::Atomic64 { offset: 8 * index, change: AtomicChange::Add(1) },
    });
    let mut posted = Vec::new();
    for operation in operations {
        match process.end().post(key, operation).map_err(FabricError::from) {
            Ok(completion) => posted.push(completion),
            Err(FabricError::QueueFull { .. }) => break,
            Err(FabricError::Disconnected { process }) if process == LEAVER => {}
            Err(error) => panic!("posting failed: {error}"),
        }
    }
    posted
}

#[track_caller]
fn expect_end(process: &Process, completion: Completion) {
    let ended = completion.wait(process.end(), LEAVER, process.deadline());
    assert!(ended.is_ok() || is_disconnected(&ended, LEAVER), "an operation on a process that left: {ended:?}");
}

/// A process that learns of the death of a silent peer no longer waits for it, neither in
/// operations in flight nor in new ones.
pub fn forgetting_a_peer_ends_waits(fabric: &dyn Fabric) {
    Trial::new("forgetting_a_peer_ends_waits", 2).service(Service::Nobody).run_with_leavers(fabric, |process| {
        let keys: Vec<_> = (0..2)
            .map(|_| process.share_key(expect(process.end().register(4096), "registering").key())[LEAVER.index()])
            .collect();
        if process.id() == LEAVER {
            process.meet();
            // This process lives, and does nothing.
            process.meet_inattentively();
            return;
        }
        let starter = process.attach_starter(LEAVER).key();
        process.meet();
        let posted = post_some(&process, starter);
        let (end, deadline) = (process.end(), process.deadline());
        let has_begun = AtomicBool::new(false);
        thread::scope(|scope| {
            let attaching = scope.spawn(|| {
                has_begun.store(true, Ordering::SeqCst);
                end.attach(keys[0], deadline)
            });
            process.until("the other thread", || has_begun.load(Ordering::SeqCst).then_some(()));
            for _ in 0..100 {
                end.progress();
                thread::yield_now();
            }
            end.forget(LEAVER);
            let attached = attaching.join().expect("attaching does not panic");
            assert!(attached.is_ok() || is_disconnected(&attached, LEAVER), "attaching meanwhile: {attached:?}");
        });
        posted.into_iter().for_each(|completion| expect_end(&process, completion));
        let refused = end.attach(keys[1], process.deadline());
        assert!(is_disconnected(&refused, LEAVER), "attaching afterwards: {refused:?}");
        let refused = end.send(LEAVER, b"unknown");
        assert!(is_disconnected(&refused, LEAVER), "sending afterwards: {refused:?}");
        process.meet_inattentively();
    });
}

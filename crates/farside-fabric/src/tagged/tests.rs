use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const HERE: ProcessId = ProcessId::new(0);
const THERE: ProcessId = ProcessId::new(1);
const LIMITS: Limits = Limits { message_bytes_max: 32, early_messages_max: 8 };

fn pair() -> [Matcher; 2] {
    [HERE, THERE].map(|process| Matcher::new(process, LIMITS))
}

/// Carries one message, and the credits that it causes.
fn carry(pair: &mut [Matcher; 2], tag: Tag, message: &[u8]) -> Result<(), FabricError> {
    let [here, there] = pair;
    here.send(THERE, tag, message, |frame| {
        there.take(HERE, &frame).expect("sent frames are valid");
        Ok(())
    })?;
    carry_credits(pair);
    Ok(())
}

fn carry_credits([here, there]: &mut [Matcher; 2]) {
    there.credits(|to, frame| {
        assert_eq!(to, HERE);
        here.take(THERE, &frame).expect("sent frames are valid");
        true
    });
}

fn got(completion: &Completion) -> Vec<u8> {
    match completion.try_take() {
        Some(Ok(Outcome::Got(message))) => message,
        other => panic!("no message, but {other:?}"),
    }
}

#[test]
fn a_message_that_was_refused_was_not_sent() {
    let mut pair = pair();
    for _ in 0..100 {
        let refused = pair[0].send(THERE, Tag(1), &[7; 32], |_| Err(FabricError::Cancelled));
        assert!(matches!(refused, Err(FabricError::Cancelled)));
    }
    carry(&mut pair, Tag(1), b"one").unwrap();
    assert_eq!(got(&pair[1].receive_tagged(HERE, Tag(1), 3).unwrap()), b"one");
}

#[test]
fn both_counts_bound_what_comes_early() {
    let full =
        |result: Result<(), FabricError>| matches!(result, Err(FabricError::QueueFull { process: THERE, max: 8 }));
    for (bytes, count) in [(0, 8), (16, 8), (17, 7), (32, 4)] {
        let mut pair = pair();
        (0..count).for_each(|_| carry(&mut pair, Tag(1), &vec![7; bytes]).unwrap());
        assert!(full(carry(&mut pair, Tag(2), &vec![7; bytes])), "{count} of {bytes} bytes");
        // A sender that ignores the window is detected.
        let frame = Frame::Message(Tag(2)).encode(&vec![7; bytes]);
        let window = Malformed::TooMany { messages: 8, bytes: 128 };
        assert_eq!(pair[1].take(HERE, &frame), Err(window), "{count} of {bytes} bytes");
        (0..count).for_each(|_| assert_eq!(got(&pair[1].receive_tagged(HERE, Tag(1), 32).unwrap()), vec![7; bytes]));
        carry_credits(&mut pair);
        carry(&mut pair, Tag(2), &vec![7; bytes]).unwrap();
    }
}

#[test]
fn credit_is_sent_by_quarters_and_again_after_a_full_queue() {
    let mut pair = pair();
    let _expected: Vec<_> = (0..8).map(|_| pair[1].receive_tagged(HERE, Tag(1), 32).unwrap()).collect();
    let told = |there: &mut Matcher| {
        let mut told = Vec::new();
        there.credits(|_, frame| {
            told.push(frame);
            false
        });
        told
    };
    let credit = |messages, bytes| vec![Frame::Credit(Volume { messages, bytes }).encode(&[])];
    let [here, there] = &mut pair;
    let mut send = |there: &mut Matcher| {
        here.send(THERE, Tag(1), b"x", |frame| {
            there.take(HERE, &frame).expect("sent frames are valid");
            Ok(())
        })
        .unwrap();
    };
    send(there);
    assert!(told(there).is_empty());
    send(there);
    assert_eq!(told(there), credit(2, 2));
    send(there);
    assert_eq!(told(there), credit(3, 3), "the report is up to date");
    there.credits(|_, _| true);
    assert!(told(there).is_empty());
}

#[test]
fn frames_that_no_matcher_sends_are_malformed() {
    let mut pair = pair();
    carry(&mut pair, Tag(1), b"one").unwrap();
    let credit = |messages, bytes| Frame::Credit(Volume { messages, bytes }).encode(&[]);
    for (messages, bytes) in [(2, 3), (1, 4), (u64::MAX, u64::MAX)] {
        assert_eq!(pair[0].take(THERE, &credit(messages, bytes)), Err(Malformed::Unsent));
    }
    assert_eq!(pair[0].take(THERE, &credit(1, 3)), Ok(()));
    assert_eq!(pair[0].take(THERE, &credit(0, 3)), Err(Malformed::Unsent), "credit never shrinks");
    let long = Frame::Message(Tag(1)).encode(&[0; 33]);
    assert_eq!(pair[1].take(HERE, &long), Err(Malformed::TooLong { bytes: 33, max: 32 }));
    assert_eq!(pair[1].take(HERE, b"noise"), Err(Malformed::Undecodable));
}

#[test]
fn cancelled_operations_make_room() {
    let mut matcher = Matcher::new(HERE, LIMITS);
    let expected: Vec<_> = (0..TAGGED_RECEIVES_MAX)
        .map(|index| matcher.receive_tagged(THERE, Tag(index as u64 % 7), 1).unwrap())
        .collect();
    let refused = matcher.receive_tagged(THERE, Tag(1), 1);
    assert!(matches!(refused, Err(FabricError::QueueFull { process: THERE, max: TAGGED_RECEIVES_MAX })), "{refused:?}");
    expected[5..8].iter().for_each(Completion::cancel);
    (0..3).for_each(|_| drop(matcher.receive_tagged(THERE, Tag(100), 1).unwrap()));
    assert!(matcher.receive_tagged(THERE, Tag(100), 1).is_err());
}

#[test]
fn losing_a_peer_ends_what_concerns_it_alone() {
    let third = ProcessId::new(2);
    let mut matcher = Matcher::new(HERE, LIMITS);
    let [lost, kept] = [THERE, third].map(|from| matcher.receive_tagged(from, Tag(1), 32).unwrap());
    for from in [THERE, third] {
        matcher.take(from, &Frame::Message(Tag(2)).encode(b"early")).unwrap();
    }
    matcher.lose(THERE);
    assert!(matches!(lost.try_take(), Some(Err(FabricError::Disconnected { process: THERE }))));
    assert!(!kept.has_ended());
    assert_eq!(got(&matcher.receive_tagged(third, Tag(2), 32).unwrap()), b"early");
    assert_eq!(matcher.expectation_count, 1);
    matcher.end(HERE);
    assert!(matches!(kept.try_take(), Some(Err(FabricError::Disconnected { process: HERE }))));
}

/// Steps of a program and the network.
#[derive(Clone, Debug)]
enum Step {
    Expect {
        tag: u64,
        room: usize,
    },
    Send {
        tag: u64,
        bytes: usize,
    },
    /// The n-th receive so far.
    Cancel(usize),
    /// The next frame arrives.
    Arrive,
    Credit,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3_u64, 0..40_usize).prop_map(|(tag, room)| Step::Expect { tag, room }),
        4 => (0..3_u64, 0..=32_usize).prop_map(|(tag, bytes)| Step::Send { tag, bytes }),
        1 => any::<usize>().prop_map(Step::Cancel),
        4 => Just(Step::Arrive),
        1 => Just(Step::Credit),
    ]
}

/// The rules, without frames and windows: for each tag, arrived messages and open receives.
#[derive(Default)]
struct Oracle {
    come: BTreeMap<u64, VecDeque<Vec<u8>>>,
    open: BTreeMap<u64, VecDeque<usize>>,
    ended: BTreeMap<usize, Vec<u8>>,
}

impl Oracle {
    fn settle(&mut self, tag: u64) {
        let (come, open) = (self.come.entry(tag).or_default(), self.open.entry(tag).or_default());
        while !come.is_empty() && !open.is_empty() {
            self.ended.extend(open.pop_front().zip(come.pop_front()));
        }
    }
}

proptest! {
    #[test]
    fn matching_follows_the_rules(steps in prop::collection::vec(step(), 1..200)) {
        let [mut here, mut there] = pair();
        let mut under_way = VecDeque::new();
        let mut posted: Vec<(u64, usize, Completion)> = Vec::new();
        let mut oracle = Oracle::default();
        let (mut serial, mut sent, mut known) = (0_u8, 0, 0);
        for step in steps {
            match step {
                Step::Expect { tag, room } => {
                    posted.push((tag, room, there.receive_tagged(HERE, Tag(tag), room).unwrap()));
                    oracle.open.entry(tag).or_default().push_back(posted.len() - 1);
                    oracle.settle(tag);
                }
                Step::Send { tag, bytes } => {
                    serial = serial.wrapping_add(1);
                    let message = vec![serial; bytes];
                    let result = here.send(THERE, Tag(tag), &message, |frame| {
                        under_way.push_back((tag, message.clone(), frame));
                        Ok(())
                    });
                    match result {
                        Ok(()) => sent += 1,
                        // A sender with nothing in flight is never refused.
                        Err(FabricError::QueueFull { .. }) => prop_assert!(sent > known),
                        Err(other) => prop_assert!(false, "{other}"),
                    }
                }
                Step::Cancel(which) if !posted.is_empty() => {
                    let index = which % posted.len();
                    let (tag, _, completion) = &posted[index];
                    completion.cancel();
                    oracle.open.entry(*tag).or_default().retain(|open| *open != index);
                }
                Step::Arrive => {
                    if let Some((tag, message, frame)) = under_way.pop_front() {
                        there.take(HERE, &frame).unwrap();
                        oracle.come.entry(tag).or_default().push_back(message);
                        oracle.settle(tag);
                    }
                }
                _ => there.credits(|_, frame| {
                    here.take(THERE, &frame).unwrap();
                    true
                }),
            }
            known = here.peers.get(&THERE).map_or(0, |peer| peer.acknowledged.messages);
            let early: usize = oracle.come.values().map(VecDeque::len).sum();
            prop_assert!(early <= LIMITS.early_messages_max);
            prop_assert_eq!(there.early.values().map(VecDeque::len).sum::<usize>(), early);
        }
        for (index, (_, room, completion)) in posted.iter().enumerate() {
            match (oracle.ended.get(&index), completion.try_take()) {
                (Some(message), Some(Ok(Outcome::Got(got)))) => {
                    prop_assert!(message.len() <= *room);
                    prop_assert_eq!(&got, message);
                }
                (Some(message), Some(Err(FabricError::RoomTooSmall { bytes, room: made }))) => {
                    prop_assert!(bytes > made);
                    prop_assert_eq!((bytes, made), (message.len(), *room));
                }
                (None, Some(Err(FabricError::Cancelled)) | None) => {}
                (oracle, other) => prop_assert!(false, "expectation {}: {:?} and not {:?}", index, other, oracle),
            }
        }
        // Once everything has been matched and reported, there is room for the longest message.
        while let Some((_, _, frame)) = under_way.pop_front() {
            there.take(HERE, &frame).unwrap();
        }
        for tag in (0..3).map(Tag) {
            (0..LIMITS.early_messages_max).for_each(|_| drop(there.receive_tagged(HERE, tag, 32).unwrap()));
        }
        there.credits(|_, frame| {
            here.take(THERE, &frame).unwrap();
            true
        });
        here.send(THERE, Tag(0), &[0; 32], |_| Ok(())).unwrap();
    }

    /// Arbitrary frames of a peer cause no panic, and another peer is served.
    #[test]
    fn noise_does_no_harm(frames in prop::collection::vec((0..4_u8, 0..3_u8, prop::collection::vec(0..3_u8, 0..20)), 1..50)) {
        let [mut here, mut there] = pair();
        let noisy = ProcessId::new(2);
        for (kind, tag, rest) in frames {
            let frame = [&[kind, tag][..], &rest].concat();
            let _ = there.take(noisy, &frame);
            drop(there.receive_tagged(noisy, Tag(tag.into()), rest.len()));
            let _ = there.send(noisy, Tag(tag.into()), &rest, |_| Ok(()));
            there.credits(|to, _| to != HERE);
        }
        let expected = there.receive_tagged(HERE, Tag(1), 3).unwrap();
        here.send(THERE, Tag(1), b"one", |frame| {
            there.take(HERE, &frame).unwrap();
            Ok(())
        }).unwrap();
        prop_assert_eq!(got(&expected), b"one");
    }
}

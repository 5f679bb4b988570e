use farside_sys::shm::SharedMemory;
use proptest::prelude::*;

use super::*;
use crate::sim::Random;
use crate::transport::{AtomicChange, RegionKind, RegionName};

const LIMITS: Limits = Limits { message_bytes_max: 64, operations_max: 4, messages_max: 3 };
const STARTER_BYTES: usize = 10_000;
const ASKER: ProcessId = ProcessId::new(0);
const OWNER: ProcessId = ProcessId::new(1);

fn registration(bytes: usize, access: Option<NativeAccess>) -> Registration {
    Registration { memory: Arc::new(SharedMemory::create("test", bytes).unwrap()), bytes, access }
}

fn engines(count: u32, limits: Limits) -> Vec<Engine> {
    let engine = |number: u32| {
        let access = Some(NativeAccess { key: number.into(), base: u64::MAX });
        Engine::new(ProcessId::new(number), count, registration(STARTER_BYTES, access), limits)
    };
    (0..count).map(engine).collect()
}

fn starter_key(of: ProcessId) -> RemoteKey {
    RemoteKey::starter(of, STARTER_BYTES as u64)
}

/// Takes the packets that one engine sends to another.
fn outgoing(engine: &mut Engine, to: ProcessId) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    engine.flush(|peer, packet| {
        if peer != to {
            return Err(packet);
        }
        packets.push(packet);
        Ok(())
    });
    packets
}

/// Carries packets back and forth until there are none. Returns the messages: receiver, sender and
/// contents.
fn settle(engines: &mut [Engine]) -> Vec<(ProcessId, ProcessId, Vec<u8>)> {
    let mut messages = Vec::new();
    loop {
        let mut packets = Vec::new();
        for engine in engines.iter_mut() {
            let from = engine.process;
            engine.flush(|to, packet| {
                packets.push((from, to, packet));
                Ok(())
            });
        }
        if packets.is_empty() {
            return messages;
        }
        for (from, to, packet) in packets {
            assert!(packet.len() <= LIMITS.message_bytes_max);
            let message = engines[to.index()].take(from, &packet).unwrap();
            messages.extend(message.map(|message| (to, from, message.to_vec())));
        }
    }
}

fn result(completion: &Completion) -> Result<Outcome, FabricError> {
    completion.try_take().expect("the operation has ended")
}

fn attach(engines: &mut [Engine], key: RemoteKey) -> Result<Outcome, FabricError> {
    let completion = engines[ASKER.index()].attach(key)?;
    settle(engines);
    result(&completion)
}

fn run(engines: &mut [Engine], key: RemoteKey, operation: Operation) -> Result<Outcome, FabricError> {
    let completion = engines[ASKER.index()].post(key, operation)?;
    settle(engines);
    result(&completion)
}

fn pattern(bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    Random::new(bytes as u64).fill(&mut data);
    data
}

fn add(offset: u64) -> Operation {
    Operation::Atomic64 { offset, change: AtomicChange::Add(1) }
}

#[test]
fn large_accesses_are_cut_and_put_together() {
    let mut engines = engines(2, LIMITS);
    let key = starter_key(OWNER);
    attach(&mut engines, key).unwrap();
    for bytes in [0, 1, 8, 38, 39, 40, 55, 56, 500, 9_000] {
        let data = pattern(bytes);
        let put = Operation::Put { offset: 3, data: data.clone() };
        assert_eq!(run(&mut engines, key, put).unwrap(), Outcome::Put(data.clone()));
        assert_eq!(run(&mut engines, key, Operation::get(3, bytes)).unwrap(), Outcome::Got(data));
    }
}

#[test]
fn pieces_on_the_way_are_few() {
    let mut engines = engines(2, LIMITS);
    let key = starter_key(OWNER);
    attach(&mut engines, key).unwrap();
    let put = engines[0].post(key, Operation::Put { offset: 0, data: pattern(9_000) }).unwrap();
    for _ in 0..10 {
        let packets = outgoing(&mut engines[0], OWNER);
        assert_eq!(packets.len(), PIECES_UNDER_WAY_MAX);
        for packet in packets {
            engines[1].take(ASKER, &packet).unwrap();
        }
        assert!(outgoing(&mut engines[0], OWNER).is_empty(), "no more requests before an answer");
        for packet in outgoing(&mut engines[1], ASKER) {
            engines[0].take(OWNER, &packet).unwrap();
        }
        assert!(!put.has_ended());
    }
    settle(&mut engines);
    assert_eq!(result(&put).unwrap(), Outcome::Put(pattern(9_000)));
}

#[test]
fn answers_in_any_order_will_do() {
    let mut engines = engines(2, LIMITS);
    let key = starter_key(OWNER);
    attach(&mut engines, key).unwrap();
    run(&mut engines, key, Operation::Put { offset: 0, data: pattern(9_000) }).unwrap();
    let get = engines[0].post(key, Operation::get(0, 9_000)).unwrap();
    for _ in 0..30 {
        for packet in outgoing(&mut engines[0], OWNER).into_iter().rev() {
            engines[1].take(ASKER, &packet).unwrap();
        }
        for packet in outgoing(&mut engines[1], ASKER) {
            engines[0].take(OWNER, &packet).unwrap();
        }
    }
    assert_eq!(result(&get).unwrap(), Outcome::Got(pattern(9_000)));
}

#[test]
fn atomics_bring_what_the_word_held() {
    let mut engines = engines(2, LIMITS);
    let key = starter_key(OWNER);
    attach(&mut engines, key).unwrap();
    assert_eq!(run(&mut engines, key, add(8)).unwrap(), Outcome::Previous(0));
    let swap = AtomicChange::CompareSwap { expected: 1, new: u64::MAX };
    let swap = Operation::Atomic64 { offset: 8, change: swap };
    assert_eq!(run(&mut engines, key, swap).unwrap(), Outcome::Previous(1));
    let narrow = Operation::Atomic32 { offset: 12, change: AtomicChange::And(7) };
    assert_eq!(run(&mut engines, key, narrow).unwrap(), Outcome::Previous(u32::MAX.into()));
    assert_eq!(run(&mut engines, key, add(8)).unwrap(), Outcome::Previous(0x7_ffff_ffff));
}

#[test]
fn attaching_tells_the_native_access() {
    let mut engines = engines(2, LIMITS);
    let access = NativeAccess { key: 77, base: 0x1000 };
    let region = engines[1].register(registration(100, Some(access)), RegionKind::Shared);
    assert!(!engines[0].is_attached(region.key()));
    attach(&mut engines, region.key()).unwrap();
    assert_eq!(engines[0].native(region.key()), Some(access));
    engines[1].attach(region.key()).unwrap();
    assert_eq!(engines[1].native(region.key()), Some(access));
    let emulated = engines[1].register(registration(100, None), RegionKind::Shared).key();
    attach(&mut engines, emulated).unwrap();
    assert!(engines[0].is_attached(emulated) && engines[0].native(emulated).is_none());
    attach(&mut engines, starter_key(OWNER)).unwrap();
    assert_eq!(engines[0].native(starter_key(OWNER)), Some(NativeAccess { key: 1, base: u64::MAX }));
}

#[test]
fn keys_that_name_nothing_are_stale() {
    let mut engines = engines(2, LIMITS);
    let key = engines[1].register(registration(100, None), RegionKind::Shared).key();
    let wrong = [
        RemoteKey { bytes: 101, ..key },
        RemoteKey { generation: 1, ..key },
        RemoteKey { slot: 2, ..key },
        RemoteKey { reserved: 1, ..key },
        RemoteKey { process: ASKER, ..key },
    ];
    for key in wrong {
        assert!(matches!(attach(&mut engines, key), Err(FabricError::StaleKey { .. })), "{key:?}");
        let posted = run(&mut engines, key, Operation::get(0, 1));
        assert!(matches!(posted, Err(FabricError::StaleKey { .. })), "{key:?}: {posted:?}");
    }
    let stranger = RemoteKey { process: ProcessId::new(2), ..key };
    assert!(matches!(attach(&mut engines, stranger), Err(FabricError::NoSuchProcess { count: 2, .. })));
}

fn is_stale(result: &Result<Outcome, FabricError>) -> bool {
    matches!(result, Err(FabricError::StaleKey { .. }))
}

#[test]
fn a_region_is_gone_when_its_holders_have_released_it() {
    let mut engines = engines(3, LIMITS);
    let key = engines[1].register(registration(100, None), RegionKind::Shared).key();
    attach(&mut engines, key).unwrap();
    let other = engines[2].attach(key).unwrap();
    settle(&mut engines);
    result(&other).unwrap();
    let over = engines[1].deregister(key).unwrap();
    assert!(is_stale(&engines[1].deregister(key).map(|_| Outcome::Previous(0))));
    assert!(engines[1].is_held(key) && !over.has_ended());
    // The owner executes nothing for it any more, also for holders that do not know yet.
    let put = engines[0].post(key, Operation::Put { offset: 0, data: vec![9; 9] }).unwrap();
    let revocations: Vec<_> = [ASKER, ProcessId::new(2)].map(|to| outgoing(&mut engines[1], to)).into();
    for request in outgoing(&mut engines[0], OWNER) {
        engines[1].take(ASKER, &request).unwrap();
    }
    for refused in outgoing(&mut engines[1], ASKER) {
        engines[0].take(OWNER, &refused).unwrap();
    }
    assert!(is_stale(&result(&put)));
    assert!(engines[0].is_attached(key), "the holder does not know yet");
    let name = RegionName::from(key);
    assert_eq!(revocations, [vec![Packet::Revoke(name).encode(&[])], vec![Packet::Revoke(name).encode(&[])]]);
    engines[0].take(OWNER, &revocations[0][0]).unwrap();
    assert!(!engines[0].is_attached(key));
    settle(&mut engines);
    assert!(!over.has_ended(), "one holder has not released it");
    assert!(is_stale(&attach(&mut engines, key)));
    engines[1].lose(ProcessId::new(2));
    assert!(over.has_ended() && !engines[1].is_held(key));
    result(&over).unwrap();
}

#[test]
fn a_region_withdrawn_while_requested_is_released() {
    let mut engines = engines(2, LIMITS);
    let key = engines[1].register(registration(100, None), RegionKind::Shared).key();
    // Requested with a wrong size: the owner believes that it is held, the requester does not.
    assert!(is_stale(&attach(&mut engines, RemoteKey { bytes: 99, ..key })));
    assert!(engines[1].is_held(key));
    let asked = engines[0].attach(key).unwrap();
    for request in outgoing(&mut engines[0], OWNER) {
        engines[1].take(ASKER, &request).unwrap();
    }
    let over = engines[1].deregister(key).unwrap();
    settle(&mut engines);
    result(&asked).unwrap();
    result(&over).unwrap();
    assert!(!engines[0].is_attached(key), "the withdrawal came after the answer");
}

#[test]
fn native_accesses_are_waited_for() {
    let mut engines = engines(2, LIMITS);
    let access = Some(NativeAccess { key: 5, base: 6 });
    let keys = [0, 1].map(|_| engines[1].register(registration(100, access), RegionKind::Shared).key());
    keys.iter().for_each(|key| drop(attach(&mut engines, *key).unwrap()));
    let over = keys.map(|key| engines[1].deregister(key).unwrap());
    settle(&mut engines);
    assert_eq!(
        [engines[0].next_revoked(), engines[0].next_revoked(), engines[0].next_revoked()],
        [Some(keys[0]), Some(keys[1]), None]
    );
    assert!(keys.iter().all(|key| !engines[0].is_attached(*key)));
    assert!(keys.iter().all(|key| is_stale(&run(&mut engines, *key, add(0)))));
    engines[0].confirm_release(keys[0]);
    settle(&mut engines);
    assert_eq!(engines[1].left().collect::<Vec<_>>(), [keys[0].into()]);
    assert!(!over[0].has_ended(), "the transport must finish it");
    engines[1].finish(keys[0].into(), true);
    result(&over[0]).unwrap();
    // A lost holder's native access may still be in flight.
    engines[1].lose(ASKER);
    assert_eq!(engines[1].left().count(), 0);
    assert_eq!(engines[1].natively_held_by(ASKER).collect::<Vec<_>>(), [keys[1].into()]);
    engines[1].confirm_loss(ASKER);
    assert_eq!(engines[1].left().collect::<Vec<_>>(), [keys[1].into()]);
    engines[1].finish(keys[1].into(), true);
    result(&over[1]).unwrap();
}

#[test]
fn user_memory_is_reached_and_comes_back() {
    let mut engines = engines(2, LIMITS);
    let region = engines[1].register_user(Arc::new(UserMemory::owned(pattern(500))), None).unwrap();
    let read_only = engines[1].register_user(Arc::new(UserMemory::owned(vec![3; 9]).read_only()), None).unwrap();
    for key in [region.key(), read_only.key()] {
        attach(&mut engines, key).unwrap();
    }
    let get = Operation::get(0, 500);
    assert_eq!(run(&mut engines, region.key(), get).unwrap(), Outcome::Got(pattern(500)));
    let put = Operation::Put { offset: 7, data: vec![1; 400] };
    run(&mut engines, region.key(), put.clone()).unwrap();
    let refused = run(&mut engines, read_only.key(), Operation::Put { offset: 0, data: vec![1] });
    assert!(matches!(refused, Err(FabricError::ReadOnly { .. })), "{refused:?}");
    // The owner does not rely on the requester's check.
    let ask = Ask::Put { offset: 0 };
    let request = Packet::Request { id: RequestId(1), region: read_only.key().into(), ask };
    engines[1].take(ASKER, &request.encode(&[1])).unwrap();
    let refused = Packet::Answer { id: RequestId(1), answer: Answer::Refused(Refusal::ReadOnly) };
    assert_eq!(outgoing(&mut engines[1], ASKER), [refused.encode(&[])]);

    assert!(region.memory().take_back().is_none());
    let over = engines[1].deregister(region.key()).unwrap();
    assert!(region.memory().take_back().is_none());
    settle(&mut engines);
    result(&over).unwrap();
    assert_eq!(region.memory().take_back().unwrap()[7..407], [1; 400]);
}

#[test]
fn accesses_out_of_range_are_refused_on_both_sides() {
    let mut engines = engines(2, LIMITS);
    let key = starter_key(OWNER);
    attach(&mut engines, key).unwrap();
    let refused = run(&mut engines, key, Operation::Put { offset: 9_999, data: vec![1; 2] });
    assert!(matches!(refused, Err(FabricError::OutOfRange { offset: 9_999, bytes: 2, .. })), "{refused:?}");
    assert!(matches!(run(&mut engines, key, add(4)), Err(FabricError::Misaligned { offset: 4, bytes: 8 })));

    // The owner does not rely on the requester's check.
    let region = RegionName { slot: 0, generation: 0 };
    let change = AtomicChange::Swap(1);
    let asks = [
        (Ask::Put { offset: u64::MAX }, Refusal::OutOfRange),
        (Ask::Get { offset: 9_999, bytes: 2 }, Refusal::OutOfRange),
        (Ask::Atomic64 { offset: 10_000, change }, Refusal::OutOfRange),
        (Ask::Atomic64 { offset: 9, change }, Refusal::Misaligned),
        (Ask::Atomic32 { offset: 2, change: AtomicChange::Load }, Refusal::Misaligned),
    ];
    for (ask, refusal) in asks {
        let id = RequestId(1);
        let data: &[u8] = if matches!(ask, Ask::Put { .. }) { &[1] } else { &[] };
        engines[1].take(ASKER, &Packet::Request { id, region, ask }.encode(data)).unwrap();
        let refused = Packet::Answer { id, answer: Answer::Refused(refusal) }.encode(&[]);
        assert_eq!(outgoing(&mut engines[1], ASKER), [refused]);
    }
    // Nor does it rely on an attachment by the requester.
    let region = engines[1].register(registration(100, None), RegionKind::Shared).key();
    let region = RegionName { slot: region.slot, generation: region.generation };
    let request = Packet::Request { id: RequestId(1), region, ask: Ask::Get { offset: 0, bytes: 1 } };
    engines[1].take(ASKER, &request.encode(&[])).unwrap();
    let refused = Packet::Answer { id: RequestId(1), answer: Answer::Refused(Refusal::StaleKey) };
    assert_eq!(outgoing(&mut engines[1], ASKER), [refused.encode(&[])]);
}

#[test]
fn a_refusal_ends_an_operation_with_its_own_words() {
    let mut engines = engines(2, LIMITS);
    let key = starter_key(OWNER);
    attach(&mut engines, key).unwrap();
    for (refusal, words) in [
        (Refusal::StaleKey, "has no region"),
        (Refusal::OutOfRange, "an access of 9000 bytes at offset 8 of a region of 10000"),
        (Refusal::Misaligned, "not a multiple"),
    ] {
        let put = engines[0].post(key, Operation::Put { offset: 8, data: pattern(9_000) }).unwrap();
        let requests = outgoing(&mut engines[0], OWNER);
        assert_eq!(requests.len(), PIECES_UNDER_WAY_MAX);
        for request in requests {
            let Some((Packet::Request { id, .. }, _)) = Packet::decode(&request) else { panic!("not a request") };
            assert!(!put.has_ended());
            let answer = Packet::Answer { id, answer: Answer::Refused(refusal) };
            engines[0].take(OWNER, &answer.encode(&[])).unwrap();
        }
        assert!(outgoing(&mut engines[0], OWNER).is_empty(), "no more is requested");
        assert!(result(&put).unwrap_err().to_string().contains(words));
    }
}

#[test]
fn full_queues_refuse_and_recover() {
    let mut engines = engines(2, LIMITS);
    let key = starter_key(OWNER);
    attach(&mut engines, key).unwrap();
    let posted: Vec<_> = (0..4).map(|_| engines[0].post(key, add(0)).unwrap()).collect();
    let is_full = |error: FabricError| matches!(error, FabricError::QueueFull { process: OWNER, max: 4 });
    let refused = engines[0].post(key, add(0)).expect_err("there is no room");
    assert!(refused.operation == add(0) && is_full(refused.error));
    let other = RemoteKey { slot: 1, ..key };
    assert!(engines[0].attach(other).is_err_and(is_full));
    (0..3).for_each(|number| engines[0].send(OWNER, &[number]).unwrap());
    assert!(matches!(engines[0].send(OWNER, b"x"), Err(FabricError::QueueFull { process: OWNER, max: 3 })));
    let longest = LIMITS.user_bytes_max();
    let refused = engines[0].send(OWNER, &vec![0; longest + 1]);
    assert!(matches!(refused, Err(FabricError::MessageTooLong { max, .. }) if max == longest));
    assert_eq!(engines[0].waiting_for_room().collect::<Vec<_>>(), [OWNER]);
    let wanted: Vec<_> = (0..3).map(|number| (OWNER, ASKER, vec![number])).collect();
    assert_eq!(settle(&mut engines), wanted);
    let previous: Vec<_> = posted.iter().map(|completion| result(completion).unwrap()).collect();
    assert_eq!(previous, (0..4).map(Outcome::Previous).collect::<Vec<_>>());
    assert_eq!(engines[0].waiting_for_room().count(), 0);
    engines[0].send(OWNER, &vec![0; longest]).unwrap();
    run(&mut engines, key, add(0)).unwrap();
}

#[test]
fn a_packet_given_back_stays_the_first() {
    let mut engines = engines(3, LIMITS);
    let third = ProcessId::new(2);
    (0..3).for_each(|number| engines[0].send(OWNER, &[number]).unwrap());
    engines[0].send(third, b"third").unwrap();
    let mut room = 1;
    let mut sent = Vec::new();
    engines[0].flush(|to, packet| {
        if to == OWNER && room == 0 {
            return Err(packet);
        }
        room -= i32::from(to == OWNER);
        sent.push(to);
        Ok(())
    });
    assert_eq!(sent, [OWNER, third]);
    engines[0].send(OWNER, &[3]).unwrap();
    let messages = outgoing(&mut engines[0], OWNER);
    assert_eq!(messages, [1, 2, 3].map(|number| Packet::User.encode(&[number])));
}

#[test]
fn losing_a_peer_ends_what_concerns_it_alone() {
    let mut engines = engines(3, LIMITS);
    let (gone, stays) = (OWNER, ProcessId::new(2));
    for key in [starter_key(gone), starter_key(stays)] {
        attach(&mut engines, key).unwrap();
    }
    let put = engines[0].post(starter_key(gone), Operation::Put { offset: 0, data: pattern(500) }).unwrap();
    let unknown = engines[0].attach(RemoteKey { slot: 5, ..starter_key(gone) }).unwrap();
    let other = engines[0].post(starter_key(stays), add(0)).unwrap();
    engines[0].send(gone, b"hello").unwrap();
    let late = Packet::User.encode(b"late");

    assert!(engines[0].lose(gone));
    assert!(!engines[0].lose(gone), "it is already known");
    assert!(!engines[0].lose(ASKER) && !engines[0].lose(ProcessId::new(3)));
    let is_gone = |result: Result<Outcome, FabricError>| matches!(result, Err(FabricError::Disconnected { process }) if process == gone);
    assert!(is_gone(result(&put)) && is_gone(result(&unknown)));
    assert_eq!(engines[0].waiting_for_room().collect::<Vec<_>>(), [stays]);
    assert_eq!(engines[0].take(gone, &late), Ok(None), "packets of a lost peer are ignored");
    assert!(!engines[0].is_attached(starter_key(gone)));
    assert!(is_gone(run(&mut engines, starter_key(gone), add(0))));
    assert!(is_gone(attach(&mut engines, starter_key(gone))));
    assert!(matches!(engines[0].send(gone, b""), Err(FabricError::Disconnected { .. })));
    assert_eq!(result(&other).unwrap(), Outcome::Previous(0));
    for _ in 0..10 {
        run(&mut engines, starter_key(stays), add(0)).unwrap();
    }
}

#[test]
fn own_memory_is_worked_on_at_once() {
    let mut engines = engines(1, LIMITS);
    let key = starter_key(ASKER);
    assert!(matches!(run(&mut engines, key, add(0)), Err(FabricError::StaleKey { .. })));
    assert!(engines[0].attach(key).unwrap().has_ended());
    let data = pattern(9_000);
    let put = engines[0].post(key, Operation::Put { offset: 1, data: data.clone() }).unwrap();
    assert_eq!(result(&put).unwrap(), Outcome::Put(data));
    engines[0].send(ASKER, b"note").unwrap();
    assert_eq!(settle(&mut engines), [(ASKER, ASKER, b"note".to_vec())]);
}

#[test]
fn answers_that_were_not_asked_for_are_malformed() {
    let mut engines = engines(3, LIMITS);
    let key = starter_key(OWNER);
    attach(&mut engines, key).unwrap();
    let get = engines[0].post(key, Operation::get(0, 20)).unwrap();
    let request = outgoing(&mut engines[0], OWNER).remove(0);
    let Some((Packet::Request { id, .. }, _)) = Packet::decode(&request) else { panic!("not a request") };
    let answer = |id, answer| Packet::Answer { id, answer }.encode(&[]);
    let got = |bytes| Packet::Answer { id, answer: Answer::Got }.encode(&vec![0; bytes]);
    let good = got(20);
    assert_eq!(engines[0].take(ProcessId::new(2), &good), Err(Malformed::Unasked), "another's");
    assert_eq!(engines[0].take(OWNER, &answer(RequestId(99), Answer::Done)), Err(Malformed::Unasked));
    let attached = Answer::Attached { bytes: 20, access: None, is_writable: true };
    let others = [Answer::Done, Answer::Previous(1), attached].map(|other| answer(id, other));
    for other in others.into_iter().chain([got(19), got(21)]) {
        assert_eq!(engines[0].take(OWNER, &other), Err(Malformed::OtherAnswer));
    }
    assert!(!get.has_ended());
    assert_eq!(engines[0].take(OWNER, &good), Ok(None));
    assert!(get.has_ended());
    assert_eq!(engines[0].take(OWNER, &good), Err(Malformed::Unasked), "already answered");

    let narrow = Operation::Atomic32 { offset: 0, change: AtomicChange::Load };
    engines[0].post(key, narrow).unwrap();
    let request = outgoing(&mut engines[0], OWNER).remove(0);
    let Some((Packet::Request { id, .. }, _)) = Packet::decode(&request) else { panic!("not a request") };
    let too_wide = answer(id, Answer::Previous(1 << 32));
    assert_eq!(engines[0].take(OWNER, &too_wide), Err(Malformed::OtherAnswer));
}

#[test]
fn requests_beyond_the_limits_are_malformed() {
    let mut engines = engines(2, LIMITS);
    attach(&mut engines, starter_key(OWNER)).unwrap();
    let region = RegionName { slot: 0, generation: 0 };
    let request = |bytes| Packet::Request { id: RequestId(1), region, ask: Ask::Get { offset: 0, bytes } }.encode(&[]);
    let max = (LIMITS.message_bytes_max - packet::GOT_HEADER_BYTES) as u32;
    assert_eq!(engines[1].take(ASKER, &request(max)), Ok(None));
    for bytes in [max + 1, u32::MAX] {
        let request = request(bytes);
        let refused = engines[1].take(ASKER, &request);
        assert_eq!(refused, Err(Malformed::TooMuch { bytes: bytes as usize, max: max as usize }));
    }
    let max = LIMITS.operations_max * PIECES_UNDER_WAY_MAX;
    (1..max).for_each(|_| assert_eq!(engines[1].take(ASKER, &request(1)), Ok(None)));
    assert_eq!(engines[1].take(ASKER, &request(1)), Err(Malformed::TooMany { max }));
    assert_eq!(outgoing(&mut engines[1], ASKER).len(), max);
    assert_eq!(engines[1].take(ASKER, &request(1)), Ok(None));
    for noise in [&[][..], &[0], &[15, 0, 0, 0], &request(1)[..20]] {
        assert_eq!(engines[1].take(ASKER, noise), Err(Malformed::Undecodable));
    }
    assert_eq!(engines[1].take(ProcessId::new(2), &[]), Ok(None), "from a process that does not exist");
}

proptest! {
    /// Arbitrary packets of a peer cause no panic, and the operations of another peer continue.
    #[test]
    fn noise_does_no_harm(packets in prop::collection::vec((0..7_u8, any::<[u8; 32]>(), 0..40_usize), 1..40)) {
        let mut engines = engines(3, LIMITS);
        let key = starter_key(OWNER);
        attach(&mut engines, key).unwrap();
        let noisy = ProcessId::new(2);
        for (kind, noise, bytes) in packets {
            // The ids, slots and generations in use are small.
            let mut packet = vec![kind];
            packet.extend(noise.iter().map(|byte| if byte % 4 == 0 { *byte } else { 0 }));
            packet.truncate(1 + bytes);
            let _ = engines[1].take(noisy, &packet);
            let _ = engines[0].take(noisy, &packet);
        }
        engines.iter_mut().for_each(|engine| drop(outgoing(engine, noisy)));
        let put = Operation::Put { offset: 9_900, data: pattern(100) };
        prop_assert_eq!(run(&mut engines, key, put).unwrap(), Outcome::Put(pattern(100)));
    }
}

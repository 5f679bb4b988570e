use super::*;

#[test]
fn headers_are_as_long_as_they_say() {
    let (id, region) = (RequestId(1), RegionName { slot: 1, generation: 2 });
    assert_eq!(Packet::User.encode(b"").len(), USER_HEADER_BYTES);
    let request = |ask| Packet::Request { id, region, ask }.encode(b"").len();
    assert_eq!(request(Ask::Put { offset: 3 }), PUT_HEADER_BYTES);
    assert_eq!(Packet::Answer { id, answer: Answer::Got }.encode(b"").len(), GOT_HEADER_BYTES);
    let change = AtomicChange::CompareSwap { expected: 1, new: 2 };
    assert_eq!(request(Ask::Atomic64 { offset: 8, change }), DATALESS_BYTES_MAX);
}

#[test]
fn only_some_packets_have_data() {
    let name = RegionName { slot: 1, generation: 2 };
    let longer = |packet: Packet| [packet.encode(b""), b"data".to_vec()].concat();
    assert_eq!(Packet::decode(&longer(Packet::User)), Some((Packet::User, &b"data"[..])));
    let put = Packet::Request { id: RequestId(1), region: name, ask: Ask::Put { offset: 3 } };
    assert_eq!(Packet::decode(&longer(put)), Some((put, &b"data"[..])));
    let done = Packet::Answer { id: RequestId(1), answer: Answer::Done };
    for dataless in [Packet::Revoke(name), Packet::Released(name), done] {
        assert_eq!(Packet::decode(&longer(dataless)), None);
        assert_eq!(Packet::decode(&dataless.encode(b"")), Some((dataless, &[][..])));
    }
}

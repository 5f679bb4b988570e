use proptest::prelude::*;

use super::*;

fn change<T: Copy + std::fmt::Debug + Arbitrary + 'static>() -> impl Strategy<Value = AtomicChange<T>> {
    (0..9, any::<T>(), any::<T>()).prop_map(|(which, one, other)| match which {
        0 => AtomicChange::Load,
        1 => AtomicChange::Swap(one),
        2 => AtomicChange::CompareSwap { expected: one, new: other },
        3 => AtomicChange::Add(one),
        4 => AtomicChange::And(one),
        5 => AtomicChange::Or(one),
        6 => AtomicChange::Xor(one),
        7 => AtomicChange::Min(one),
        _ => AtomicChange::Max(one),
    })
}

fn asks(
    data: &[u8],
    offset: u64,
    bytes: u32,
    narrow: AtomicChange<u32>,
    wide: AtomicChange<u64>,
) -> impl Iterator<Item = Ask<'_>> {
    [
        Ask::Attach,
        Ask::Put { offset, data },
        Ask::Get { offset, bytes },
        Ask::Atomic32 { offset, change: narrow },
        Ask::Atomic64 { offset, change: wide },
    ]
    .into_iter()
}

fn answers(data: &[u8], bytes: u64, key: u64, base: u64) -> impl Iterator<Item = Answer<'_>> {
    let refusals =
        [Refusal::StaleKey, Refusal::OutOfRange, Refusal::Misaligned, Refusal::ReadOnly].map(Answer::Refused);
    let native = Answer::Attached { bytes, access: Some(NativeAccess { key, base }), is_writable: false };
    let emulated = Answer::Attached { bytes, access: None, is_writable: true };
    [native, emulated, Answer::Done, Answer::Got(data), Answer::Previous(bytes)].into_iter().chain(refusals)
}

proptest! {
    #[test]
    fn encoding_round_trips(
        data: Vec<u8>, id: u64, slot: u32, generation: u32, numbers: [u64; 3], bytes: u32,
        narrow in change::<u32>(), wide in change::<u64>(),
    ) {
        let (id, region) = (RequestId(id), RegionName { slot, generation });
        let [offset, key, base] = numbers;
        let requests = asks(&data, offset, bytes, narrow, wide).map(|ask| Packet::Request { id, region, ask });
        let answers = answers(&data, offset, key, base).map(|answer| Packet::Answer { id, answer });
        for packet in requests.chain(answers).chain([Packet::User(&data), Packet::Tagged(&data), Packet::Revoke(region), Packet::Released(region)]) {
            let encoded = packet.encode();
            prop_assert!(encoded.len() <= DATALESS_BYTES_MAX + data.len());
            prop_assert_eq!(Packet::decode(&encoded), Some(packet));
        }
    }

    #[test]
    fn any_bytes_are_a_packet_or_refused(bytes: Vec<u8>, kind in 0..16_u8, cut in 0..64_usize) {
        fuzz_decode(&bytes);
        let mut bytes = bytes;
        bytes.insert(0, kind);
        fuzz_decode(&bytes);
        bytes.truncate(cut);
        fuzz_decode(&bytes);
    }

    #[test]
    fn truncated_or_extended_messages_are_refused(id: u64, wide in change::<u64>(), cut in 0..64_usize) {
        let region = RegionName { slot: 1, generation: 2 };
        let mut encoded = Packet::Request { id: RequestId(id), region, ask: Ask::Atomic64 { offset: 3, change: wide } }.encode();
        prop_assert_eq!(Packet::decode(&encoded[..cut % encoded.len()]), None);
        encoded.push(0);
        prop_assert_eq!(Packet::decode(&encoded), None);
    }
}

#[test]
fn headers_are_as_long_as_they_say() {
    let (id, region) = (RequestId(1), RegionName { slot: 1, generation: 2 });
    assert_eq!(Packet::User(b"").encode().len(), USER_HEADER_BYTES);
    let put = Packet::Request { id, region, ask: Ask::Put { offset: 3, data: b"" } };
    assert_eq!(put.encode().len(), PUT_HEADER_BYTES);
    assert_eq!(Packet::Answer { id, answer: Answer::Got(b"") }.encode().len(), GOT_HEADER_BYTES);
    let change = AtomicChange::CompareSwap { expected: 1, new: 2 };
    let longest = Packet::Request { id, region, ask: Ask::Atomic64 { offset: 8, change } };
    assert_eq!(longest.encode().len(), DATALESS_BYTES_MAX);
}

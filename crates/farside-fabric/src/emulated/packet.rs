//! What travels between engines, and its decoder.

use crate::operation::{AtomicChange, RegionName};

const USER: u8 = 1;
const ATTACH: u8 = 2;
const PUT: u8 = 3;
const GET: u8 = 4;
const ATOMIC_32: u8 = 5;
const ATOMIC_64: u8 = 6;
const ATTACHED: u8 = 7;
const DONE: u8 = 8;
const GOT: u8 = 9;
const PREVIOUS: u8 = 10;
const REFUSED: u8 = 11;
const TAGGED: u8 = 12;
const REVOKE: u8 = 13;
const RELEASED: u8 = 14;

/// What a message of the user, or a frame of an expected one, costs on top of its own bytes: the kind.
pub const USER_HEADER_BYTES: usize = 1;

/// What a put costs on top of its data: kind, request, slot and generation, offset.
pub(super) const PUT_HEADER_BYTES: usize = 1 + 8 + 8 + 8;

/// What the answer to a get costs on top of its data: kind, request.
pub(super) const GOT_HEADER_BYTES: usize = 1 + 8;

/// The longest packet that carries no data is a 64-bit compare-swap: as a put without data, with a byte for the change and
/// two words.
pub(super) const DATALESS_BYTES_MAX: usize = PUT_HEADER_BYTES + 1 + 2 * 8;

/// One message between two engines. All numbers travel little-endian, without gaps, after one byte that tells the kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A message of the layer above, which the engine hands through.
    User(&'a [u8]),
    /// A frame of a message that its receiver expects, or of the credit for it ([`expected`](crate::tagged)).
    Tagged(&'a [u8]),
    /// The owner takes a region back, of the process that gets this: it is to let go of it.
    Revoke(RegionName),
    /// The process that sends this has let go of a region: nothing of its is under way there.
    Released(RegionName),
    /// Asks the owner of a region for something.
    Request {
        /// What the answer will be known by.
        id: RequestId,
        /// Which region.
        region: RegionName,
        /// What to do with it.
        ask: Ask<'a>,
    },
    /// Tells what came of a request.
    Answer {
        /// Of which.
        id: RequestId,
        /// What came of it.
        answer: Answer<'a>,
    },
}

/// Tells the requests of one engine apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(super) u64);

/// What is asked of the owner of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask<'a> {
    /// To let the asker reach it from now on.
    Attach,
    /// To write.
    Put {
        /// Where.
        offset: u64,
        /// What.
        data: &'a [u8],
    },
    /// To read.
    Get {
        /// Where.
        offset: u64,
        /// How much.
        bytes: u32,
    },
    /// To change a 32-bit word.
    Atomic32 {
        /// Where.
        offset: u64,
        /// How.
        change: AtomicChange<u32>,
    },
    /// To change a 64-bit word.
    Atomic64 {
        /// Where.
        offset: u64,
        /// How.
        change: AtomicChange<u64>,
    },
}

/// What the owner of a region answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The region can be reached.
    Attached {
        /// Its size.
        bytes: u64,
        /// How else than by messages, if there is a way.
        access: Option<NativeAccess>,
        /// Whether it may be written.
        is_writable: bool,
    },
    /// The put is visible.
    Done,
    /// The bytes read.
    Got(&'a [u8]),
    /// What the word held, widened.
    Previous(u64),
    /// Nothing was done.
    Refused(Refusal),
}

/// What a peer needs to know of a region to reach it in the transport's own way. The transport that registered the
/// region chose it; to engines it means nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NativeAccess {
    /// What the transport's hardware or library calls the memory.
    pub key: u64,
    /// Where it begins there.
    pub base: u64,
}

/// Why an owner did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has no such region, or the asker has not attached it.
    StaleKey,
    /// The access does not lie in the region.
    OutOfRange,
    /// An atomic must be on a multiple of its size.
    Misaligned,
    /// It may only be read.
    ReadOnly,
}

impl Packet<'_> {
    /// The bytes that travel.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::User(message) => [&[USER], *message].concat(),
            Self::Tagged(frame) => [&[TAGGED], *frame].concat(),
            Self::Revoke(name) => name.encode(REVOKE),
            Self::Released(name) => name.encode(RELEASED),
            Self::Request { id, region, ask } => ask.encode(*id, *region),
            Self::Answer { id, answer } => answer.encode(*id),
        }
    }
}

impl<'a> Packet<'a> {
    /// `None` when the bytes are no packet.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (&kind, mut rest) = bytes.split_first()?;
        let rest = &mut rest;
        let packet = match kind {
            USER => Packet::User(take_all(rest)),
            TAGGED => Packet::Tagged(take_all(rest)),
            REVOKE => Packet::Revoke(RegionName::decode(rest)?),
            RELEASED => Packet::Released(RegionName::decode(rest)?),
            ATTACH..=ATOMIC_64 => {
                let id = RequestId(take_u64(rest)?);
                let region = RegionName::decode(rest)?;
                Packet::Request { id, region, ask: Ask::decode(kind, rest)? }
            }
            ATTACHED..=REFUSED => {
                Packet::Answer { id: RequestId(take_u64(rest)?), answer: Answer::decode(kind, rest)? }
            }
            _ => return None,
        };
        rest.is_empty().then_some(packet)
    }
}

impl RegionName {
    fn encode(self, kind: u8) -> Vec<u8> {
        [&[kind][..], &self.slot.to_le_bytes(), &self.generation.to_le_bytes()].concat()
    }

    fn decode(rest: &mut &[u8]) -> Option<Self> {
        Some(Self { slot: take_u32(rest)?, generation: take_u32(rest)? })
    }
}

impl<'a> Ask<'a> {
    fn encode(&self, id: RequestId, region: RegionName) -> Vec<u8> {
        let (kind, offset, data) = match self {
            Self::Attach => (ATTACH, None, &[][..]),
            Self::Put { offset, data } => (PUT, Some(offset), *data),
            Self::Get { offset, .. } => (GET, Some(offset), &[][..]),
            Self::Atomic32 { offset, .. } => (ATOMIC_32, Some(offset), &[][..]),
            Self::Atomic64 { offset, .. } => (ATOMIC_64, Some(offset), &[][..]),
        };
        let mut out = Vec::with_capacity(DATALESS_BYTES_MAX + data.len());
        out.push(kind);
        out.extend(id.0.to_le_bytes());
        out.extend(region.slot.to_le_bytes());
        out.extend(region.generation.to_le_bytes());
        out.extend(offset.into_iter().flat_map(|offset| offset.to_le_bytes()));
        match self {
            Self::Attach => {}
            Self::Put { data, .. } => out.extend(*data),
            Self::Get { bytes, .. } => out.extend(bytes.to_le_bytes()),
            Self::Atomic32 { change, .. } => encode_change(*change, &mut out, u32::to_le_bytes),
            Self::Atomic64 { change, .. } => encode_change(*change, &mut out, u64::to_le_bytes),
        }
        out
    }

    fn decode(kind: u8, rest: &mut &'a [u8]) -> Option<Self> {
        if kind == ATTACH {
            return Some(Self::Attach);
        }
        let offset = take_u64(rest)?;
        match kind {
            PUT => Some(Self::Put { offset, data: take_all(rest) }),
            GET => Some(Self::Get { offset, bytes: take_u32(rest)? }),
            ATOMIC_32 => Some(Self::Atomic32 { offset, change: decode_change(rest, take_u32)? }),
            ATOMIC_64 => Some(Self::Atomic64 { offset, change: decode_change(rest, take_u64)? }),
            _ => None,
        }
    }
}

impl<'a> Answer<'a> {
    fn encode(&self, id: RequestId) -> Vec<u8> {
        let (kind, data) = match self {
            Self::Attached { .. } => (ATTACHED, &[][..]),
            Self::Done => (DONE, &[][..]),
            Self::Got(data) => (GOT, *data),
            Self::Previous(_) => (PREVIOUS, &[][..]),
            Self::Refused(_) => (REFUSED, &[][..]),
        };
        let mut out = Vec::with_capacity(DATALESS_BYTES_MAX + data.len());
        out.push(kind);
        out.extend(id.0.to_le_bytes());
        match self {
            Self::Attached { bytes, access, is_writable } => {
                out.push(u8::from(access.is_some()) | u8::from(*is_writable) << 1);
                let NativeAccess { key, base } = access.unwrap_or_default();
                [*bytes, key, base].iter().for_each(|word| out.extend(word.to_le_bytes()));
            }
            Self::Done => {}
            Self::Got(data) => out.extend(*data),
            Self::Previous(previous) => out.extend(previous.to_le_bytes()),
            Self::Refused(refusal) => out.push(refusal.code()),
        }
        out
    }

    fn decode(kind: u8, rest: &mut &'a [u8]) -> Option<Self> {
        match kind {
            ATTACHED => {
                let flags = take_u8(rest).filter(|flags| *flags < 4)?;
                let bytes = take_u64(rest)?;
                let access = NativeAccess { key: take_u64(rest)?, base: take_u64(rest)? };
                let is_native = flags & 1 != 0;
                // One that is none has no numbers.
                let is_sound = is_native || access == NativeAccess::default();
                is_sound.then_some(Self::Attached {
                    bytes,
                    access: is_native.then_some(access),
                    is_writable: flags & 2 != 0,
                })
            }
            DONE => Some(Self::Done),
            GOT => Some(Self::Got(take_all(rest))),
            PREVIOUS => Some(Self::Previous(take_u64(rest)?)),
            REFUSED => Some(Self::Refused(Refusal::from_code(take_u8(rest)?)?)),
            _ => None,
        }
    }
}

impl Refusal {
    fn code(self) -> u8 {
        match self {
            Self::StaleKey => 1,
            Self::OutOfRange => 2,
            Self::Misaligned => 3,
            Self::ReadOnly => 4,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::StaleKey, Self::OutOfRange, Self::Misaligned, Self::ReadOnly]
            .into_iter()
            .find(|refusal| refusal.code() == code)
    }
}

fn encode_change<T: Copy, const N: usize>(change: AtomicChange<T>, out: &mut Vec<u8>, word: fn(T) -> [u8; N]) {
    let (code, words) = match change {
        AtomicChange::Load => (0, [None, None]),
        AtomicChange::Swap(value) => (1, [Some(value), None]),
        AtomicChange::CompareSwap { expected, new } => (2, [Some(expected), Some(new)]),
        AtomicChange::Add(value) => (3, [Some(value), None]),
        AtomicChange::And(value) => (4, [Some(value), None]),
        AtomicChange::Or(value) => (5, [Some(value), None]),
        AtomicChange::Xor(value) => (6, [Some(value), None]),
        AtomicChange::Min(value) => (7, [Some(value), None]),
        AtomicChange::Max(value) => (8, [Some(value), None]),
    };
    out.push(code);
    words.into_iter().flatten().for_each(|value| out.extend(word(value)));
}

fn decode_change<T>(rest: &mut &[u8], word: fn(&mut &[u8]) -> Option<T>) -> Option<AtomicChange<T>> {
    Some(match take_u8(rest)? {
        0 => AtomicChange::Load,
        1 => AtomicChange::Swap(word(rest)?),
        2 => AtomicChange::CompareSwap { expected: word(rest)?, new: word(rest)? },
        3 => AtomicChange::Add(word(rest)?),
        4 => AtomicChange::And(word(rest)?),
        5 => AtomicChange::Or(word(rest)?),
        6 => AtomicChange::Xor(word(rest)?),
        7 => AtomicChange::Min(word(rest)?),
        8 => AtomicChange::Max(word(rest)?),
        _ => return None,
    })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

fn take_u8(rest: &mut &[u8]) -> Option<u8> {
    take(rest).map(|[byte]| byte)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    take(rest).map(u32::from_le_bytes)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_le_bytes)
}

fn take_all<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    std::mem::take(rest)
}

/// Decodes arbitrary bytes as a packet from a peer: for fuzzing. Says whether they were one, and that one encodes to the
/// bytes it came from.
///
/// # Panics
/// When a decoded packet encodes to other bytes.
pub fn fuzz_decode(bytes: &[u8]) -> bool {
    let Some(packet) = Packet::decode(bytes) else { return false };
    assert_eq!(packet.encode(), bytes, "a packet has one spelling");
    true
}

#[cfg(test)]
mod tests;

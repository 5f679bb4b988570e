//! Packets between engines, and their decoder.

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

/// Bytes that a packet adds to a message of the layer above, or to a frame of a tagged message: the
/// kind.
pub const USER_HEADER_BYTES: usize = 1;

/// Bytes that a packet adds to the data of a put: kind, request, slot and generation, offset.
pub(super) const PUT_HEADER_BYTES: usize = 1 + 8 + 8 + 8;

/// Bytes that a packet adds to the data of an answer to a get: kind, request.
pub(super) const GOT_HEADER_BYTES: usize = 1 + 8;

/// Maximum length of a packet without data. The longest one is a 64-bit compare-swap: the header of
/// a put, one byte for the change, and two words.
pub(super) const DATALESS_BYTES_MAX: usize = PUT_HEADER_BYTES + 1 + 2 * 8;

/// A message between two engines: one byte for the kind, then all numbers little-endian and without
/// gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A message of the layer above, which the engine passes on.
    User(&'a [u8]),
    /// A frame of tagged messages: a message or a credit (see [`tagged`](crate::tagged)).
    Tagged(&'a [u8]),
    /// The sender withdraws a region of its own; the receiver must release it.
    Revoke(RegionName),
    /// The sender has released a region: none of its accesses to it is in flight.
    Released(RegionName),
    /// A request to the owner of a region.
    Request {
        /// The identifier that the answer repeats.
        id: RequestId,
        /// The region.
        region: RegionName,
        /// The requested action.
        ask: Ask<'a>,
    },
    /// The answer to a request.
    Answer {
        /// The identifier of the request.
        id: RequestId,
        /// The result.
        answer: Answer<'a>,
    },
}

/// Distinguishes the requests of one engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(super) u64);

/// An action that a process requests from the owner of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask<'a> {
    /// Allows the requesting process to access the region from now on.
    Attach,
    /// Writes bytes.
    Put {
        /// Offset from the start of the region.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// Reads bytes.
    Get {
        /// Offset from the start of the region.
        offset: u64,
        /// Number of bytes.
        bytes: u32,
    },
    /// Changes a 32-bit word.
    Atomic32 {
        /// Offset from the start of the region.
        offset: u64,
        /// The change.
        change: AtomicChange<u32>,
    },
    /// Changes a 64-bit word.
    Atomic64 {
        /// Offset from the start of the region.
        offset: u64,
        /// The change.
        change: AtomicChange<u64>,
    },
}

/// The answer of the owner of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The requesting process can access the region.
    Attached {
        /// The size of the region, in bytes.
        bytes: u64,
        /// The native access to the region; `None` if peers access it only by messages.
        access: Option<NativeAccess>,
        /// Whether peers may write the region.
        is_writable: bool,
    },
    /// The put is visible.
    Done,
    /// The bytes read.
    Got(&'a [u8]),
    /// The previous value of the word, widened to 64 bits.
    Previous(u64),
    /// The owner did nothing.
    Refused(Refusal),
}

/// The data that a peer needs to access a region in the transport's own way. The transport that
/// registered the region chooses it; it means nothing to engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NativeAccess {
    /// The key of the memory in the transport's hardware or library.
    pub key: u64,
    /// The address or offset at which the region starts there.
    pub base: u64,
}

/// The reason for which an owner did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The owner has no such region, or the requesting process has not attached it.
    StaleKey,
    /// The access is not inside the region.
    OutOfRange,
    /// The offset of an atomic is not a multiple of its size.
    Misaligned,
    /// The region is read-only.
    ReadOnly,
}

impl Packet<'_> {
    /// Encodes the packet.
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
    /// Decodes a packet. Returns `None` if the bytes are not one.
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
                // An absent access is encoded as zeros.
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

/// Decodes arbitrary bytes as a packet from a peer, for fuzzing. Returns whether they are a packet,
/// and checks that the packet encodes to the same bytes.
///
/// # Panics
/// If a decoded packet encodes to other bytes.
pub fn fuzz_decode(bytes: &[u8]) -> bool {
    let Some(packet) = Packet::decode(bytes) else { return false };
    assert_eq!(packet.encode(), bytes, "a packet has one spelling");
    true
}

#[cfg(test)]
mod tests;

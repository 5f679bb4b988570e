//! Packets between engines, and their decoder.
//!
//! A packet is the enum [`Packet`] as [`farside_wire`] encodes it. The data of another layer follow
//! behind it: bytes that nothing encodes.

use farside_wire::check::MessageKind;
use farside_wire::{Decoder, Wire};

use crate::operation::{AtomicChange, RegionName};

/// Encoded length of an enum's variant.
const VARIANT_BYTES: usize = 4;

/// Bytes that a packet adds to a message of the layer above.
pub const USER_HEADER_BYTES: usize = VARIANT_BYTES;

/// Bytes that a packet adds to the data of a put: variant, request, region, variant, offset.
pub(super) const PUT_HEADER_BYTES: usize = VARIANT_BYTES + 8 + 8 + VARIANT_BYTES + 8;

/// Bytes that a packet adds to the data of an answer to a get: variant, request, variant.
pub(super) const GOT_HEADER_BYTES: usize = VARIANT_BYTES + 8 + VARIANT_BYTES;

/// Maximum length of a packet without its data. The longest one is a 64-bit compare-swap: the
/// header of a put, the variant of the change, and two words.
pub(super) const DATALESS_BYTES_MAX: usize = PUT_HEADER_BYTES + VARIANT_BYTES + 2 * 8;

/// A message between two engines, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub enum Packet {
    /// The data are a message of the layer above, which the engine passes on.
    User,
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
        ask: Ask,
    },
    /// The answer to a request.
    Answer {
        /// The identifier of the request.
        id: RequestId,
        /// The result.
        answer: Answer,
    },
}

/// Distinguishes the requests of one engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Wire)]
#[wire(crate = "farside_wire")]
pub struct RequestId(pub(super) u64);

/// An action that a process requests from the owner of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub enum Ask {
    /// Allows the requesting process to access the region from now on.
    Attach,
    /// Writes the data of the packet.
    Put {
        /// Offset from the start of the region.
        offset: u64,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub enum Answer {
    /// The requesting process can access the region.
    Attached {
        /// The size of the region, in bytes.
        bytes: u64,
        /// The native access to the region; `None` if peers access it only by messages.
        access: Option<NativeAccess>,
        /// True if peers may write the region.
        is_writable: bool,
    },
    /// The put is visible.
    Done,
    /// The data of the packet are the bytes read.
    Got,
    /// The previous value of the word, widened to 64 bits.
    Previous(u64),
    /// The owner did nothing.
    Refused(Refusal),
}

/// The data that a peer needs to access a region in the transport's own way. The transport that
/// registered the region chooses it; it means nothing to engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct NativeAccess {
    /// The key of the memory in the transport's hardware or library.
    pub key: u64,
    /// The address or offset at which the region starts there.
    pub base: u64,
}

/// The reason for which an owner did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
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

impl Packet {
    /// Encodes the packet and its data.
    ///
    /// # Panics
    /// If a packet without data is given some (debug builds).
    pub fn encode(&self, data: &[u8]) -> Vec<u8> {
        debug_assert!(self.has_data() || data.is_empty(), "{self:?} has no data");
        let mut bytes = farside_wire::encode(self, Vec::with_capacity(DATALESS_BYTES_MAX + data.len()));
        bytes.extend_from_slice(data);
        bytes
    }

    /// Decodes a packet, and returns it with its data. Returns `None` if the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut input = Decoder::new(bytes);
        let packet = <Self as Wire>::decode(&mut input).ok()?;
        let data = input.rest();
        (packet.has_data() || data.is_empty()).then_some((packet, data))
    }

    /// Returns whether data may follow.
    fn has_data(&self) -> bool {
        match self {
            Self::User => true,
            Self::Revoke(_) | Self::Released(_) => false,
            Self::Request { ask, .. } => matches!(ask, Ask::Put { .. }),
            Self::Answer { answer, .. } => matches!(answer, Answer::Got),
        }
    }
}

/// The packet with its data and without, for tests of its decoder.
pub(crate) fn message_kinds() -> Vec<MessageKind> {
    let packet = MessageKind::of::<Packet>();
    let recode = |bytes: &[u8]| Packet::decode(bytes).map(|(packet, data)| packet.encode(data));
    vec![packet, packet.with_payload(recode)]
}

#[cfg(test)]
mod tests;

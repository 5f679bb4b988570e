//! The format of a message over libfabric.
//!
//! ```text
//! token     8 B   known only to the processes of the job
//! sender    4 B   its number
//! kind      4 B
//! payload
//! ```
//!
//! The header is encoded by hand, since every message has one. The [`Card`] derives [`Wire`].
//!
//! Any program that can reach the endpoint's address can send to it. A message without the job's
//! token is ignored.

use farside_wire::check::MessageKind;
use farside_wire::{Decoder, Wire};

use super::provider::SHM;
use crate::ids::ProcessId;

/// Number of bytes before the payload, which thus stays aligned.
pub(super) const HEADER_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A message of the layer above.
    User,
    /// A request to the owner of memory, or its answer.
    Packet,
    /// The sender is about to close its endpoint.
    Farewell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) token: u64,
    pub(super) from: ProcessId,
    pub(super) kind: Kind,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let kind: u32 = match self.kind {
            Kind::User => 1,
            Kind::Packet => 2,
            Kind::Farewell => 3,
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&self.token.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.from.number().to_le_bytes());
        bytes[12..].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    /// Decodes the header and the payload behind it; `None` if these bytes are not a message.
    pub(super) fn decode(message: &[u8]) -> Option<(Self, &[u8])> {
        let (token, rest) = message.split_first_chunk()?;
        let (from, rest) = rest.split_first_chunk()?;
        let (kind, payload) = rest.split_first_chunk()?;
        let kind = match u32::from_le_bytes(*kind) {
            1 => Kind::User,
            2 => Kind::Packet,
            3 => Kind::Farewell,
            _ => return None,
        };
        let from = ProcessId::new(u32::from_le_bytes(*from));
        Some((Self { token: u64::from_le_bytes(*token), from, kind }, payload))
    }
}

/// The data by which other processes can reach an endpoint: its provider, and its address there.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub(super) struct Card {
    /// The system's number of the process. It distinguishes endpoints of one process from those of
    /// others on the same machine.
    pub(super) system_id: u32,
    pub(super) provider: String,
    pub(super) address: Vec<u8>,
}

impl Card {
    /// Creates the card of an endpoint of this process.
    pub(super) fn new(provider: &str, address: Vec<u8>) -> Self {
        Self { system_id: std::process::id(), provider: provider.to_owned(), address }
    }

    /// The reason why this endpoint cannot reach the one with the `other` card, if there is one.
    pub(super) fn refusal(&self, other: &Self) -> Option<&'static str> {
        if other.provider != self.provider || other.address.len() != self.address.len() {
            return Some(
                "it uses another provider or kind of address: choose one for all with --fabric (libfabric 1 and 2 have \
                 \"auto:tcp;ofi_rxm\" in common)",
            );
        }
        // The provider follows pointers into endpoints of its own process, even after they are
        // closed.
        (self.provider == SHM && other.system_id == self.system_id)
            .then_some("libfabric's provider shm is for endpoints in different processes: choose tcp")
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        farside_wire::encode(self, Vec::new())
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let card: Self = farside_wire::decode(Decoder::new(bytes), 0).ok()?;
        (!card.address.is_empty()).then_some(card)
    }
}

/// The header, for tests of its decoder.
pub(super) fn header_kind() -> MessageKind {
    MessageKind::by_hand("ofi::message::Header", |bytes| {
        let (header, payload) = Header::decode(bytes)?;
        Some([&header.encode()[..], payload].concat())
    })
}

/// The card, for tests of its decoder.
pub(super) fn card_kind() -> MessageKind {
    MessageKind::of::<Card>().through(&[], |bytes| Card::decode(bytes).map(|card| card.encode()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shm_does_not_reach_ends_of_its_own_process() {
        let own = |provider| Card::new(provider, vec![1, 2]);
        let of_another_process = |provider| Card { system_id: own(provider).system_id ^ 1, ..own(provider) };
        assert!(own(SHM).refusal(&own(SHM)).is_some_and(|why| why.contains("different processes")));
        assert_eq!(own(SHM).refusal(&of_another_process(SHM)), None);
        assert_eq!(own("tcp").refusal(&own("tcp")), None);
        assert!(own("tcp").refusal(&of_another_process(SHM)).is_some());
        assert!(own("tcp").refusal(&Card::new("tcp", vec![1])).is_some());
    }

    proptest! {
        #[test]
        fn headers_come_out_as_they_went_in(token: u64, from: u32, kind in 0..3_usize, payload: Vec<u8>) {
            let kind = [Kind::User, Kind::Packet, Kind::Farewell][kind];
            let header = Header { token, from: ProcessId::new(from), kind };
            let message = [&header.encode()[..], &payload].concat();
            prop_assert_eq!(Header::decode(&message), Some((header, &payload[..])));
        }
    }
}

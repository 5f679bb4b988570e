//! The service messages about memory that processes have of each other.

use super::{MemoryRefusal, RemoteMemory};
use crate::Wire;

/// Where an asker wants memory in the process that it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(crate) enum Locality {
    /// Anywhere.
    Anywhere,
    /// On the NUMA node of this number.
    Node(u32),
    /// On the NUMA node that this thread of the process is bound to.
    Thread(u32),
}

/// A message between the service threads of two processes.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(crate) enum MemoryMessage {
    /// To an owner: allocate this much for the sender.
    Allocate { request: u32, bytes: u64, near: Locality },
    /// The answer: the memory.
    Allocated { request: u32, memory: RemoteMemory },
    /// To an owner: take this memory back. The note is for the owner's observer of accesses.
    Release { request: u32, memory: RemoteMemory, note: Vec<u8> },
    /// The answer: the memory is released.
    Released { request: u32 },
    /// The answer to either: the owner refuses.
    Refused { request: u32, why: MemoryRefusal },
}

#[cfg(test)]
mod tests {
    use farside_fabric::{ProcessId, RemoteKey};
    use proptest::prelude::*;

    use super::*;
    use crate::wire::{self, Decoder};

    fn memory() -> impl Strategy<Value = RemoteMemory> {
        any::<([u32; 5], [u64; 3])>().prop_map(|([process, slot, region, id, generation], [size, offset, bytes])| {
            let process = ProcessId::new(process);
            let key = RemoteKey { process, slot, generation: region, reserved: 0, bytes: size };
            RemoteMemory { key, offset, bytes, id, generation }
        })
    }

    fn message() -> impl Strategy<Value = MemoryMessage> {
        let near = prop_oneof![
            Just(Locality::Anywhere),
            any::<u32>().prop_map(Locality::Node),
            any::<u32>().prop_map(Locality::Thread),
        ];
        let why = prop_oneof![
            any::<(u64, u64)>().prop_map(|(held, limit)| MemoryRefusal::Limit { held, limit }),
            any::<u32>().prop_map(|node| MemoryRefusal::NoSuchNode { node }),
            Just(MemoryRefusal::NoMemory),
            Just(MemoryRefusal::Released),
            Just(MemoryRefusal::Foreign),
        ];
        let note = prop::collection::vec(any::<u8>(), 0..100);
        (0..5, any::<u32>(), any::<u64>(), near, memory(), note, why).prop_map(
            |(kind, request, bytes, near, memory, note, why)| match kind {
                0 => MemoryMessage::Allocate { request, bytes, near },
                1 => MemoryMessage::Allocated { request, memory },
                2 => MemoryMessage::Release { request, memory, note },
                3 => MemoryMessage::Released { request },
                _ => MemoryMessage::Refused { request, why },
            },
        )
    }

    fn encoded(message: &MemoryMessage) -> Vec<u8> {
        wire::encode(message, Vec::new())
    }

    fn decoded(bytes: &[u8]) -> Option<MemoryMessage> {
        wire::decode(Decoder::new(bytes), 0).ok()
    }

    proptest! {
        #[test]
        fn messages_round_trip(message in message()) {
            prop_assert_eq!(decoded(&encoded(&message)), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_refused(kind in 0..8_u8, request: [u8; 4], mut words: Vec<[u8; 8]>, small: bool) {
            if small {
                words.iter_mut().for_each(|word| word[1..].fill(0));
            }
            let bytes: Vec<u8> = [kind, 0, 0, 0].into_iter().chain(request).chain(words.into_iter().flatten()).collect();
            if let Some(message) = decoded(&bytes) {
                prop_assert_eq!(encoded(&message), bytes);
            }
        }

        #[test]
        fn truncated_messages_are_refused(message in message(), cut in 1..40_usize) {
            let bytes = encoded(&message);
            let short = decoded(&bytes[..bytes.len().saturating_sub(cut)]);
            prop_assert_ne!(short, Some(message));
        }
    }
}

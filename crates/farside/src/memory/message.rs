//! What service threads say to each other about memory.

use farside_fabric::{ProcessId, RemoteKey};

use super::{MemoryRefusal, RemoteMemory};
use crate::global::Record;

/// Where an asker wants memory in the process that it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nearness {
    /// Anywhere.
    Anywhere,
    /// On the NUMA node of this number.
    Node(u32),
    /// On the NUMA node that this thread of the process is bound to.
    Thread(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemoryMessage {
    /// To an owner: give me so much.
    Allocate { request: u32, bytes: u64, near: Nearness },
    /// To who asked: here it is.
    Allocated { request: u32, memory: RemoteMemory },
    /// To an owner: take this back. In a job that is checked with who releases it.
    Release { request: u32, memory: RemoteMemory, by: Option<Box<Record>> },
    /// To who gave it back: done.
    Released { request: u32 },
    /// To who asked for either: no.
    Refused { request: u32, why: MemoryRefusal },
}

impl MemoryMessage {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut words = |kind: u8, request: u32, words: &[u64]| {
            out.push(kind);
            out.extend(request.to_le_bytes());
            out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        };
        match self {
            Self::Allocate { request, bytes, near } => {
                let (kind, number) = match *near {
                    Nearness::Anywhere => (0, 0),
                    Nearness::Node(number) => (1, number),
                    Nearness::Thread(number) => (2, number),
                };
                words(1, *request, &[*bytes, kind, number.into()]);
            }
            Self::Allocated { request, memory } => words(2, *request, &to_words(memory)),
            Self::Release { request, memory, by } => {
                words(3, *request, &to_words(memory));
                if let Some(by) = by {
                    by.encode(out);
                }
            }
            Self::Released { request } => words(4, *request, &[]),
            Self::Refused { request, why } => {
                let why = match *why {
                    MemoryRefusal::Limit { held, limit } => [0, held, limit],
                    MemoryRefusal::NoMemory => [1, 0, 0],
                    MemoryRefusal::NoSuchNode { node } => [2, node.into(), 0],
                    MemoryRefusal::Released => [3, 0, 0],
                    MemoryRefusal::Foreign => [4, 0, 0],
                };
                words(5, *request, &why);
            }
        }
    }

    /// `None` when the bytes are no message.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, bytes) = bytes.split_first()?;
        let (request, bytes) = bytes.split_first_chunk()?;
        let request = u32::from_le_bytes(*request);
        if *kind == 3 {
            let (memory, by) = bytes.split_first_chunk::<MEMORY_BYTES>()?;
            let by = if by.is_empty() { None } else { Some(Box::new(Record::decode(by)?)) };
            return Some(Self::Release { request, memory: from_words(&words_of(memory)?)?, by });
        }
        Some(match (kind, &*words_of(bytes)?) {
            (1, [bytes, kind, number]) => {
                let number = u32::try_from(*number).ok()?;
                let near = match (kind, number) {
                    (0, 0) => Nearness::Anywhere,
                    (1, _) => Nearness::Node(number),
                    (2, _) => Nearness::Thread(number),
                    _ => return None,
                };
                Self::Allocate { request, bytes: *bytes, near }
            }
            (2, words) => Self::Allocated { request, memory: from_words(words)? },
            (4, []) => Self::Released { request },
            (5, [why, a, b]) => {
                let why = match (why, a, b) {
                    (0, held, limit) => MemoryRefusal::Limit { held: *held, limit: *limit },
                    (1, 0, 0) => MemoryRefusal::NoMemory,
                    (2, node, 0) => MemoryRefusal::NoSuchNode { node: u32::try_from(*node).ok()? },
                    (3, 0, 0) => MemoryRefusal::Released,
                    (4, 0, 0) => MemoryRefusal::Foreign,
                    _ => return None,
                };
                Self::Refused { request, why }
            }
            _ => return None,
        })
    }
}

/// `None` when they are not whole words.
fn words_of(bytes: &[u8]) -> Option<Vec<u64>> {
    let (words, rest) = bytes.as_chunks();
    rest.is_empty().then(|| words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

fn join(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn split(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// As it travels.
const MEMORY_BYTES: usize = 48;

fn to_words(memory: &RemoteMemory) -> [u64; MEMORY_BYTES / 8] {
    let RemoteMemory { key, offset, bytes, id, generation } = *memory;
    let owner = join(key.process.number(), key.slot);
    [owner, key.generation.into(), key.bytes, offset, bytes, join(id, generation)]
}

fn from_words(words: &[u64]) -> Option<RemoteMemory> {
    let [owner, region_generation, region_bytes, offset, bytes, name] = *words.first_chunk()?;
    let ((process, slot), (id, generation)) = (split(owner), split(name));
    let key_generation = u32::try_from(region_generation).ok()?;
    let key = RemoteKey {
        process: ProcessId::new(process),
        slot,
        generation: key_generation,
        reserved: 0,
        bytes: region_bytes,
    };
    (words.len() == 6).then_some(RemoteMemory { key, offset, bytes, id, generation })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::global::any_record;

    fn memory() -> impl Strategy<Value = RemoteMemory> {
        any::<([u32; 5], [u64; 3])>().prop_map(|([process, slot, region, id, generation], [size, offset, bytes])| {
            let process = ProcessId::new(process);
            let key = RemoteKey { process, slot, generation: region, reserved: 0, bytes: size };
            RemoteMemory { key, offset, bytes, id, generation }
        })
    }

    fn message() -> impl Strategy<Value = MemoryMessage> {
        let near = prop_oneof![
            Just(Nearness::Anywhere),
            any::<u32>().prop_map(Nearness::Node),
            any::<u32>().prop_map(Nearness::Thread),
        ];
        let why = prop_oneof![
            any::<(u64, u64)>().prop_map(|(held, limit)| MemoryRefusal::Limit { held, limit }),
            any::<u32>().prop_map(|node| MemoryRefusal::NoSuchNode { node }),
            Just(MemoryRefusal::NoMemory),
            Just(MemoryRefusal::Released),
            Just(MemoryRefusal::Foreign),
        ];
        let by = prop::option::of(any_record().prop_map(Box::new));
        (0..5, any::<u32>(), any::<u64>(), near, memory(), by, why).prop_map(
            |(kind, request, bytes, near, memory, by, why)| match kind {
                0 => MemoryMessage::Allocate { request, bytes, near },
                1 => MemoryMessage::Allocated { request, memory },
                2 => MemoryMessage::Release { request, memory, by },
                3 => MemoryMessage::Released { request },
                _ => MemoryMessage::Refused { request, why },
            },
        )
    }

    fn encoded(message: &MemoryMessage) -> Vec<u8> {
        let mut out = Vec::new();
        message.encode(&mut out);
        out
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(message in message()) {
            prop_assert_eq!(MemoryMessage::decode(&encoded(&message)), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_refused(kind in 0..8_u8, request: [u8; 4], mut words: Vec<[u8; 8]>, small: bool) {
            if small {
                words.iter_mut().for_each(|word| word[1..].fill(0));
            }
            let bytes: Vec<u8> = [kind].into_iter().chain(request).chain(words.into_iter().flatten()).collect();
            if let Some(message) = MemoryMessage::decode(&bytes) {
                prop_assert_eq!(encoded(&message), bytes);
            }
        }

        #[test]
        fn what_is_cut_off_is_refused(message in message(), cut in 1..40_usize) {
            let bytes = encoded(&message);
            let short = MemoryMessage::decode(&bytes[..bytes.len().saturating_sub(cut)]);
            prop_assert_ne!(short, Some(message));
        }
    }
}

//! The messages between endpoints, and their decoder.

use crate::ids::ProcessId;

/// The bytes that a user's message needs on top of its own.
pub(super) const USER_HEADER_BYTES: usize = 1;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const FETCH: u8 = 3;
const FETCHED: u8 = 4;
const USER: u8 = 5;
const EXPECTED: u8 = 6;
const PACKET: u8 = 7;

/// Changes with every change of the messages.
const VERSION: u32 = 3;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    /// The first message of the connecting side; carries its starter memory.
    Hello(Greeting),
    /// The answer to `Hello`, with the other side's starter memory.
    Welcome(Greeting),
    /// Requests a region.
    Fetch { slot: u32, generation: u32 },
    /// The answer to `Fetch`: carries the region, or tells that there is none.
    Fetched(Fetched),
    /// A message of the layer above.
    User(&'a [u8]),
    /// A frame of a tagged message.
    Expected(&'a [u8]),
    /// A packet from one [`Engine`](crate::emulated::Engine) to another.
    Packet(&'a [u8]),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) secret: [u8; 16],
    pub(super) process: ProcessId,
    pub(super) starter_bytes: u64,
    /// A peer that can read these bytes by a system call can access private memory in the same way.
    pub(super) probe: Probe,
}

/// Random bytes in a process's memory, and their address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) address: u64,
    pub(super) bytes: [u8; 16],
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fetched {
    pub(super) slot: u32,
    pub(super) generation: u32,
    pub(super) found: Found,
}

/// The result of a request for a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// Memory of this many bytes, whose descriptor accompanies the message.
    Shared(u64),
    /// Private memory, which must be requested from the engine.
    Private,
}

impl Message<'_> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        match self {
            Message::Hello(greeting) => greeting.encode(HELLO, &mut out),
            Message::Welcome(greeting) => greeting.encode(WELCOME, &mut out),
            Message::Fetch { slot, generation } => {
                out.push(FETCH);
                out.extend(slot.to_le_bytes());
                out.extend(generation.to_le_bytes());
            }
            Message::Fetched(fetched) => {
                out.push(FETCHED);
                out.extend(fetched.slot.to_le_bytes());
                out.extend(fetched.generation.to_le_bytes());
                let (kind, bytes) = match fetched.found {
                    Found::Nothing => (0, 0),
                    Found::Shared(bytes) => (1, bytes),
                    Found::Private => (2, 0),
                };
                out.push(kind);
                out.extend(bytes.to_le_bytes());
            }
            Message::User(bytes) => {
                out.push(USER);
                out.extend(*bytes);
            }
            Message::Expected(frame) => {
                out.push(EXPECTED);
                out.extend(*frame);
            }
            Message::Packet(packet) => {
                out.push(PACKET);
                out.extend(*packet);
            }
        }
        out
    }
}

impl<'a> Message<'a> {
    /// Decodes a message; `None` if the bytes are not one.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (&kind, mut rest) = bytes.split_first()?;
        let rest = &mut rest;
        let message = match kind {
            HELLO => Message::Hello(Greeting::decode(rest)?),
            WELCOME => Message::Welcome(Greeting::decode(rest)?),
            FETCH => {
                Message::Fetch { slot: u32::from_le_bytes(take(rest)?), generation: u32::from_le_bytes(take(rest)?) }
            }
            FETCHED => {
                let slot = u32::from_le_bytes(take(rest)?);
                let generation = u32::from_le_bytes(take(rest)?);
                let [kind] = take(rest)?;
                let found = match (kind, u64::from_le_bytes(take(rest)?)) {
                    (0, 0) => Found::Nothing,
                    (1, bytes) => Found::Shared(bytes),
                    (2, 0) => Found::Private,
                    _ => return None,
                };
                Message::Fetched(Fetched { slot, generation, found })
            }
            USER => return Some(Message::User(rest)),
            EXPECTED => return Some(Message::Expected(rest)),
            PACKET => return Some(Message::Packet(rest)),
            _ => return None,
        };
        rest.is_empty().then_some(message)
    }
}

impl Greeting {
    fn encode(&self, kind: u8, out: &mut Vec<u8>) {
        out.push(kind);
        out.extend(VERSION.to_le_bytes());
        out.extend(self.secret);
        out.extend(self.process.number().to_le_bytes());
        out.extend(self.starter_bytes.to_le_bytes());
        out.extend(self.probe.address.to_le_bytes());
        out.extend(self.probe.bytes);
    }

    fn decode(rest: &mut &[u8]) -> Option<Self> {
        if u32::from_le_bytes(take(rest)?) != VERSION {
            return None;
        }
        Some(Self {
            secret: take(rest)?,
            process: ProcessId::new(u32::from_le_bytes(take(rest)?)),
            starter_bytes: u64::from_le_bytes(take(rest)?),
            probe: Probe { address: u64::from_le_bytes(take(rest)?), bytes: take(rest)? },
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

/// Decodes arbitrary bytes as a message from a peer, for fuzzing. Returns whether they are a
/// message, and checks that the message encodes to the same bytes.
///
/// # Panics
/// If a decoded message encodes to other bytes.
pub fn fuzz_decode(bytes: &[u8]) -> bool {
    let Some(message) = Message::decode(bytes) else { return false };
    assert_eq!(message.encode(), bytes, "a message has exactly one encoding");
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn greeting() -> impl Strategy<Value = Greeting> {
        let probe = (any::<u64>(), any::<[u8; 16]>()).prop_map(|(address, bytes)| Probe { address, bytes });
        (any::<[u8; 16]>(), any::<u32>(), any::<u64>(), probe).prop_map(|(secret, process, starter_bytes, probe)| {
            Greeting { secret, process: ProcessId::new(process), starter_bytes, probe }
        })
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(greeting in greeting(), slot: u32, generation: u32, bytes: u64, user: Vec<u8>) {
            let fetched = |found| Message::Fetched(Fetched { slot, generation, found });
            let messages = [
                Message::Hello(greeting.clone()),
                Message::Welcome(greeting),
                Message::Fetch { slot, generation },
                fetched(Found::Nothing),
                fetched(Found::Shared(bytes)),
                fetched(Found::Private),
                Message::User(&user),
                Message::Expected(&user),
                Message::Packet(&user),
            ];
            for message in messages {
                let encoded = message.encode();
                prop_assert_eq!(Message::decode(&encoded), Some(message));
            }
        }

        #[test]
        fn any_bytes_are_a_message_or_refused(bytes: Vec<u8>, kind in 0..9_u8) {
            fuzz_decode(&bytes);
            let mut bytes = bytes;
            bytes.insert(0, kind);
            fuzz_decode(&bytes);
        }

        #[test]
        fn what_is_cut_short_is_refused(greeting in greeting(), cut in 0..57_usize) {
            let encoded = Message::Hello(greeting).encode();
            prop_assert_eq!(encoded.len(), 57);
            prop_assert_eq!(Message::decode(&encoded[..cut]), None);
        }
    }
}

//! The messages between endpoints, and their decoder.
//!
//! A message is one byte that names its kind, and a body. The bodies of control messages derive
//! [`Wire`]. Those of the frequent kinds are the borrowed bytes of another layer, and are copied.

use farside_wire::check::MessageKind;
use farside_wire::{Decoder, Wire};

use crate::ids::ProcessId;
use crate::transport::{RegionName, RemoteKey};

/// The bytes that a user's message needs on top of its own.
pub(super) const USER_HEADER_BYTES: usize = 1;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const FETCH: u8 = 3;
const FETCHED: u8 = 4;
const USER: u8 = 5;
const PACKET: u8 = 6;

/// Changes with every change of the messages.
const VERSION: u32 = 7;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    /// The first message of the connecting side; carries its starter memory.
    Hello(Greeting),
    /// The answer to `Hello`, with the other side's starter memory.
    Welcome(Greeting),
    /// Requests a region.
    Fetch { slot: u32, generation: u32 },
    /// The answer to `Fetch`: carries the region, or tells that there is none. A region may also
    /// come unasked, ahead of a message that names it.
    Fetched(Fetched),
    /// A message of the layer above.
    User(&'a [u8]),
    /// A packet from one [`Engine`](crate::emulated::Engine) to another.
    Packet(&'a [u8]),
}

#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub(super) struct Greeting {
    pub(super) secret: [u8; 16],
    pub(super) process: ProcessId,
    pub(super) starter_bytes: u64,
    /// A peer that can read these bytes by a system call can access private memory in the same way.
    pub(super) probe: Probe,
}

/// Random bytes in a process's memory, and their address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub(super) struct Probe {
    pub(super) address: u64,
    pub(super) bytes: [u8; 16],
}

#[derive(Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub(super) struct Fetched {
    pub(super) slot: u32,
    pub(super) generation: u32,
    pub(super) found: Found,
}

impl Fetched {
    /// Announces shared memory.
    pub(super) fn shared(key: RemoteKey) -> Self {
        Self { slot: key.slot, generation: key.generation, found: Found::Shared(key.bytes) }
    }
}

/// The result of a request for a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub(super) enum Found {
    Nothing,
    /// Memory of this many bytes, whose descriptor accompanies the message.
    Shared(u64),
    /// Private memory, which must be requested from the engine.
    Private,
}

impl Message<'_> {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Message::Hello(greeting) => with_kind(HELLO, &(VERSION, greeting.clone())),
            Message::Welcome(greeting) => with_kind(WELCOME, &(VERSION, greeting.clone())),
            Message::Fetch { slot, generation } => {
                with_kind(FETCH, &RegionName { slot: *slot, generation: *generation })
            }
            Message::Fetched(fetched) => with_kind(FETCHED, fetched),
            Message::User(bytes) => [&[USER], *bytes].concat(),
            Message::Packet(packet) => [&[PACKET], *packet].concat(),
        }
    }
}

impl<'a> Message<'a> {
    /// Decodes a message; `None` if the bytes are not one.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        match kind {
            HELLO => greeting(rest).map(Message::Hello),
            WELCOME => greeting(rest).map(Message::Welcome),
            FETCH => {
                let RegionName { slot, generation } = body(rest)?;
                Some(Message::Fetch { slot, generation })
            }
            FETCHED => body(rest).map(Message::Fetched),
            USER => Some(Message::User(rest)),
            PACKET => Some(Message::Packet(rest)),
            _ => None,
        }
    }
}

fn with_kind<T: Wire>(kind: u8, body: &T) -> Vec<u8> {
    farside_wire::encode(body, vec![kind])
}

/// Decodes a body that takes all of `bytes`.
fn body<T: Wire>(bytes: &[u8]) -> Option<T> {
    farside_wire::decode(Decoder::new(bytes), 0).ok()
}

/// Decodes a greeting of this version.
fn greeting(bytes: &[u8]) -> Option<Greeting> {
    let (version, greeting): (u32, Greeting) = body(bytes)?;
    (version == VERSION).then_some(greeting)
}

/// The messages of this transport, for tests of their decoders.
pub(crate) fn message_kinds() -> Vec<MessageKind> {
    vec![
        MessageKind::by_hand("shm::message::Message", |bytes| Message::decode(bytes).map(|message| message.encode())),
        MessageKind::of::<(u32, Greeting)>(),
        MessageKind::of::<RegionName>(),
        MessageKind::of::<Fetched>(),
    ]
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
        fn encoding_round_trips(greeting in greeting(), slot: u32, generation: u32, bytes: u64, user: Vec<u8>) {
            let fetched = |found| Message::Fetched(Fetched { slot, generation, found });
            let messages = [
                Message::Hello(greeting.clone()),
                Message::Welcome(greeting),
                Message::Fetch { slot, generation },
                fetched(Found::Nothing),
                fetched(Found::Shared(bytes)),
                fetched(Found::Private),
                Message::User(&user),
                Message::Packet(&user),
            ];
            for message in messages {
                let encoded = message.encode();
                prop_assert_eq!(Message::decode(&encoded), Some(message));
            }
        }
    }
}

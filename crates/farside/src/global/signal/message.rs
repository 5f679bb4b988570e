//! The service messages about signals.

use super::Signal;
use crate::Wire;
use crate::memory::address::GlobalAddress;

/// A message between the service threads of two processes.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(crate) enum SignalMessage {
    /// To the owner of a signal: write the data, which goes to the owner's memory, too, and then
    /// change the word.
    Raise { request: u32, signal: GlobalAddress, what: Signal, to: GlobalAddress, data: Vec<u8> },
    /// The answer: done, or why not.
    Raised { request: u32, refused: Option<Refused> },
}

/// Why an owner refuses a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(crate) struct Refused {
    /// The address of the signal, or of the data.
    pub(super) address: GlobalAddress,
    pub(super) why: Refusal,
}

/// What is wrong with the memory at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) enum Refusal {
    Stale,
    ReadOnly,
    Misaligned,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::invoke::message::CallMessage;
    use crate::wire::{self, Decoder};

    fn message() -> impl Strategy<Value = SignalMessage> {
        (0..4, any::<u32>(), any::<[u64; 3]>(), any::<Vec<u8>>()).prop_map(|(kind, request, [a, b, value], data)| {
            let (signal, to) = (GlobalAddress::from_bits(a), GlobalAddress::from_bits(b));
            let why = [Refusal::Stale, Refusal::ReadOnly, Refusal::Misaligned][(value % 3) as usize];
            match kind {
                0 => SignalMessage::Raised { request, refused: None },
                3 => SignalMessage::Raised { request, refused: Some(Refused { address: signal, why }) },
                1 => SignalMessage::Raise { request, signal, what: Signal::Set(value), to, data },
                _ => SignalMessage::Raise { request, signal, what: Signal::Add(value), to, data },
            }
        })
    }

    fn encoded(message: &SignalMessage) -> Vec<u8> {
        wire::encode(message, Vec::new())
    }

    fn decoded(bytes: &[u8]) -> Option<SignalMessage> {
        wire::decode(Decoder::new(bytes), 0).ok()
    }

    proptest! {
        #[test]
        fn messages_round_trip(message in message()) {
            let bytes = encoded(&message);
            if let SignalMessage::Raise { data, .. } = &message {
                prop_assert!(bytes.len() < CallMessage::OVERHEAD_BYTES + data.len());
            }
            prop_assert_eq!(decoded(&bytes), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_refused(kind in 0..6_u8, mut bytes: Vec<u8>, small: bool) {
            if small {
                bytes.iter_mut().skip(5).for_each(|byte| *byte = 0);
                bytes.resize(20, 2);
            }
            bytes.splice(0..0, [kind, 0, 0, 0]);
            if let Some(message) = decoded(&bytes) {
                prop_assert_eq!(encoded(&message), bytes);
            }
        }
    }
}

//! What service threads say to each other about signals.

use super::super::address::GlobalAddress;
use super::Signal;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SignalMessage {
    /// To the owner of the signal: write the data, which goes to its memory, too, and then change the word.
    Raise { request: u32, signal: GlobalAddress, what: Signal, to: GlobalAddress, data: Vec<u8> },
    /// To who asked: done, or not.
    Raised { request: u32, refused: Option<Refused> },
}

/// Why an owner does not give a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// That of the signal, or of the data.
    pub(super) address: GlobalAddress,
    pub(super) why: Refusal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Refusal {
    Stale = 1,
    ReadOnly = 2,
    Misaligned = 3,
}

impl SignalMessage {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut begin = |kind: u8, request: u32, words: &[u64]| {
            out.push(kind);
            out.extend(request.to_le_bytes());
            out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        };
        match self {
            Self::Raise { request, signal, what, to, data } => {
                let (kind, value) = match *what {
                    Signal::Set(value) => (1, value),
                    Signal::Add(value) => (2, value),
                };
                begin(kind, *request, &[signal.to_bits(), value, to.to_bits()]);
                out.extend(data);
            }
            Self::Raised { request, refused: None } => begin(3, *request, &[0]),
            Self::Raised { request, refused: Some(refused) } => {
                begin(4, *request, &[refused.address.to_bits(), refused.why as u64]);
            }
        }
    }

    /// `None` when the bytes are no message.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, bytes) = bytes.split_first()?;
        let (request, bytes) = bytes.split_first_chunk()?;
        let request = u32::from_le_bytes(*request);
        let (first, rest) = word(bytes)?;
        let address = GlobalAddress::from_bits(first);
        if *kind == 3 {
            return (rest.is_empty() && first == 0).then_some(Self::Raised { request, refused: None });
        }
        let (value, rest) = word(rest)?;
        let what = match kind {
            1 => Signal::Set(value),
            2 => Signal::Add(value),
            4 if rest.is_empty() => {
                let why = [Refusal::Stale, Refusal::ReadOnly, Refusal::Misaligned].into_iter();
                let why = why.into_iter().find(|why| *why as u64 == value)?;
                return Some(Self::Raised { request, refused: Some(Refused { address, why }) });
            }
            _ => return None,
        };
        let (to, data) = word(rest)?;
        let to = GlobalAddress::from_bits(to);
        Some(Self::Raise { request, signal: address, what, to, data: data.to_vec() })
    }
}

fn word(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*word), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::invoke::ring::message::SetupMessage;

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
        let mut out = Vec::new();
        message.encode(&mut out);
        out
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(message in message()) {
            let bytes = encoded(&message);
            if let SignalMessage::Raise { data, .. } = &message {
                prop_assert!(bytes.len() < SetupMessage::OVERHEAD_BYTES + data.len());
            }
            prop_assert_eq!(SignalMessage::decode(&bytes), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_refused(kind in 0..6_u8, mut bytes: Vec<u8>, small: bool) {
            if small {
                bytes.iter_mut().skip(5).for_each(|byte| *byte = 0);
                bytes.resize(20, 2);
            }
            bytes.insert(0, kind);
            if let Some(message) = SignalMessage::decode(&bytes) {
                prop_assert_eq!(encoded(&message), bytes);
            }
        }
    }
}

//! Frames between matchers, and their decoder.

use std::ops::{Add, Sub};

use crate::transport::Tag;

const MESSAGE: u8 = 1;
const CREDIT: u8 = 2;

/// Bytes that a frame adds to a tagged message: kind, tag.
pub const HEADER_BYTES: usize = 1 + 8;

/// Length of a credit: kind, messages, bytes.
pub(crate) const CREDIT_BYTES: usize = 1 + 8 + 8;

/// A number of messages and the sum of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

impl Volume {
    /// Returns the volume of one message.
    pub(super) fn of(message: &[u8]) -> Self {
        Self { messages: 1, bytes: message.len() as u64 }
    }

    /// Returns whether neither number exceeds that of the other volume.
    pub(super) fn fits(self, that: Self) -> bool {
        self.messages <= that.messages && self.bytes <= that.bytes
    }

    /// Returns whether at least one number reaches 1/`part` of that of the other volume.
    pub(super) fn is_part(self, part: u64, that: Self) -> bool {
        self.messages * part >= that.messages || self.bytes.saturating_mul(part) >= that.bytes
    }
}

impl Add for Volume {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { messages: self.messages + other.messages, bytes: self.bytes + other.bytes }
    }
}

impl Sub for Volume {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { messages: self.messages - other.messages, bytes: self.bytes - other.bytes }
    }
}

/// A message between two matchers: one byte for the kind, then all numbers little-endian and
/// without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Message {
        tag: Tag,
        message: &'a [u8],
    },
    /// The total volume of the messages that the receiver of this frame sent and its sender has
    /// matched, so far.
    Credit {
        matched: Volume,
    },
}

impl<'a> Frame<'a> {
    pub(super) fn encode(self) -> Vec<u8> {
        match self {
            Self::Message { tag, message } => [&[MESSAGE][..], &tag.0.to_le_bytes(), message].concat(),
            Self::Credit { matched: Volume { messages, bytes } } => {
                [&[CREDIT][..], &messages.to_le_bytes(), &bytes.to_le_bytes()].concat()
            }
        }
    }

    /// Decodes a frame. Returns `None` if the bytes are not one.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        let (first, rest) = rest.split_first_chunk()?;
        let first = u64::from_le_bytes(*first);
        match kind {
            MESSAGE => Some(Self::Message { tag: Tag(first), message: rest }),
            CREDIT => {
                let bytes = u64::from_le_bytes(rest.try_into().ok()?);
                Some(Self::Credit { matched: Volume { messages: first, bytes } })
            }
            _ => None,
        }
    }
}

/// Decodes arbitrary bytes as a frame from a peer, for fuzzing. Returns whether they are a frame,
/// and checks that the frame encodes to the same bytes.
///
/// # Panics
/// If a decoded frame encodes to other bytes.
pub fn fuzz_decode(bytes: &[u8]) -> bool {
    let Some(frame) = Frame::decode(bytes) else { return false };
    assert_eq!(frame.encode(), bytes, "a frame has one spelling");
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn encoding_round_trips(tag: u64, message: Vec<u8>, messages: u64, bytes: u64) {
            let one = Frame::Message { tag: Tag(tag), message: &message };
            let credit = Frame::Credit { matched: Volume { messages, bytes } };
            for (frame, length) in [(one, HEADER_BYTES + message.len()), (credit, CREDIT_BYTES)] {
                let encoded = frame.encode();
                prop_assert_eq!(encoded.len(), length);
                prop_assert_eq!(Frame::decode(&encoded), Some(frame));
            }
        }

        #[test]
        fn any_bytes_are_a_frame_or_refused(bytes: Vec<u8>, kind in 0..4_u8, cut in 0..20_usize) {
            fuzz_decode(&bytes);
            let mut bytes = bytes;
            bytes.insert(0, kind);
            fuzz_decode(&bytes);
            bytes.truncate(cut);
            fuzz_decode(&bytes);
        }

        #[test]
        fn truncated_or_extended_messages_are_refused(messages: u64, bytes: u64, cut in 0..CREDIT_BYTES) {
            let mut credit = Frame::Credit { matched: Volume { messages, bytes } }.encode();
            prop_assert_eq!(Frame::decode(&credit[..cut]), None);
            credit.push(0);
            prop_assert_eq!(Frame::decode(&credit), None);
        }
    }
}

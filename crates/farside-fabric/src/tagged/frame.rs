//! What travels between matchers, and its decoder.

use std::ops::{Add, Sub};

use crate::transport::Tag;

const MESSAGE: u8 = 1;
const CREDIT: u8 = 2;

/// What an expected message costs on top of its own bytes: kind, tag.
pub const HEADER_BYTES: usize = 1 + 8;

/// The length of a credit: kind, messages, bytes.
pub(crate) const CREDIT_BYTES: usize = 1 + 8 + 8;

/// A run of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

impl Volume {
    /// That of one message.
    pub(super) fn of(message: &[u8]) -> Self {
        Self { messages: 1, bytes: message.len() as u64 }
    }

    /// Whether it is no more than that, in both respects.
    pub(super) fn fits(self, that: Self) -> bool {
        self.messages <= that.messages && self.bytes <= that.bytes
    }

    /// Whether it is at least the `part`th part of that, in one respect.
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

/// One frame. All numbers travel little-endian, without gaps, after one byte that tells the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Message {
        tag: Tag,
        message: &'a [u8],
    },
    /// So much of what its receiver has sent was matched at its sender, from the beginning on.
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

    /// `None` when the bytes are no frame.
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

/// Decodes arbitrary bytes as a frame from a peer: for fuzzing. Says whether they were one, and that one encodes to the
/// bytes it came from.
///
/// # Panics
/// When a decoded frame encodes to other bytes.
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
        fn what_is_encoded_is_decoded(tag: u64, message: Vec<u8>, messages: u64, bytes: u64) {
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
        fn what_is_cut_short_or_too_long_is_refused(messages: u64, bytes: u64, cut in 0..CREDIT_BYTES) {
            let mut credit = Frame::Credit { matched: Volume { messages, bytes } }.encode();
            prop_assert_eq!(Frame::decode(&credit[..cut]), None);
            credit.push(0);
            prop_assert_eq!(Frame::decode(&credit), None);
        }
    }
}

//! Frames between matchers, and their decoder.
//!
//! A frame is the enum [`Frame`] as [`farside_wire`] encodes it. A tagged message follows behind it
//! as it is.

use std::ops::{Add, Sub};

use farside_wire::check::MessageKind;
use farside_wire::{Decoder, Wire};

use crate::transport::Tag;

/// Encoded length of an enum's variant.
const VARIANT_BYTES: usize = 4;

/// Bytes that a frame adds to a tagged message: variant, tag.
pub const HEADER_BYTES: usize = VARIANT_BYTES + 8;

/// Length of a credit: variant, messages, bytes.
pub(crate) const CREDIT_BYTES: usize = VARIANT_BYTES + 8 + 8;

/// A number of messages and the sum of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
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

/// A message between two matchers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub(super) enum Frame {
    /// A tagged message, which follows.
    Message(Tag),
    /// The total volume of the messages that the receiver of this frame sent and its sender has
    /// matched, so far.
    Credit(Volume),
}

impl Frame {
    /// Encodes the frame, and the message behind it.
    pub(super) fn encode(&self, message: &[u8]) -> Vec<u8> {
        debug_assert!(matches!(self, Self::Message(_)) || message.is_empty(), "a credit has no message");
        let mut bytes = farside_wire::encode(self, Vec::with_capacity(CREDIT_BYTES + message.len()));
        bytes.extend_from_slice(message);
        bytes
    }

    /// Decodes a frame, and returns it with its message. Returns `None` if the bytes are not one.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut input = Decoder::new(bytes);
        let frame = <Self as Wire>::decode(&mut input).ok()?;
        let message = input.rest();
        (matches!(frame, Self::Message(_)) || message.is_empty()).then_some((frame, message))
    }
}

/// The frame with its message and without, for tests of its decoder.
pub(crate) fn message_kinds() -> Vec<MessageKind> {
    let frame = MessageKind::of::<Frame>();
    let recode = |bytes: &[u8]| Frame::decode(bytes).map(|(frame, message)| frame.encode(message));
    vec![frame, frame.with_payload(recode)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_as_long_as_they_say() {
        assert_eq!(Frame::Message(Tag(7)).encode(b"four").len(), HEADER_BYTES + 4);
        let credit = Frame::Credit(Volume { messages: 1, bytes: 2 }).encode(b"");
        assert_eq!(credit.len(), CREDIT_BYTES);
        assert_eq!(Frame::decode(&[credit, vec![0]].concat()), None);
    }
}

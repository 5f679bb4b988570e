//! The service messages of calls: they open and close rings, and replace stores where memory is not
//! mapped.
//!
//! Every service message begins with one byte. A [room's message](crate::runtime::room) has its tag
//! there, a [`CallMessage`] has [`CALL`], and a [`Frame`] has [`FRAME`]. A frame is encoded by
//! hand, because it carries the records of calls, and its reader borrows them.

use farside_wire::Decoder;

use crate::Wire;
use crate::invoke::notify::LatchAddress;
use crate::invoke::reply::{AnswerPiece, ReplyAddress};
use crate::runtime::extent::Extent;

/// The first byte of a [`CallMessage`].
pub(crate) const CALL: u8 = 0;
/// The first byte of a [`Frame`].
pub(crate) const FRAME: u8 = 1;

/// One ring of the job: from a source (a worker, or a process with its lane) to a callable thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub(crate) struct RingName {
    /// The number of the source's arrival bit.
    pub(crate) source: u32,
    /// The receiver.
    pub(crate) to: u32,
}

/// A service message of calls.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(crate) enum CallMessage {
    /// To the receiver's process: make this ring with `chunks` chunks.
    Open { ring: RingName, chunks: u8, chunk_bytes: u64 },
    /// To the receiver's process: add `chunks` chunks to this ring.
    Grow { ring: RingName, chunks: u8, chunk_bytes: u64 },
    /// To the sender's process: the answer to [`Open`](Self::Open).
    Opened { ring: RingName, control: Extent, chunks: Vec<Extent> },
    /// To the sender's process: the answer to [`Grow`](Self::Grow).
    Grown { ring: RingName, chunks: Vec<Extent> },
    /// To the sender's process: there is no memory for the ring.
    Refused { ring: RingName, cap_bytes: u64 },
    /// To the receiver's process: the sender can write no more into this ring.
    Close { ring: RingName },
    /// To the sender's process: the receiver has run all records of the ring, and its memory is the
    /// receiver's again.
    Closed { ring: RingName },
    /// To the sender's process: close this ring if it is idle, because others need the memory.
    Reclaim { ring: RingName },
    /// To the sender's process: the receiver has consumed `consumed` bytes of the ring's frames in
    /// total.
    FrameCredit { ring: RingName, consumed: u64 },
    /// A part of a result, for a process whose memory is not mapped at the sender.
    Reply { slot: ReplyAddress, piece: AnswerPiece },
    /// A latch to count down, for a process whose memory is not mapped at the sender.
    CountDown { latch: LatchAddress },
}

impl CallMessage {
    /// The most bytes of a [`Reply`](Self::Reply) or a [`Frame`] besides the bytes that it carries.
    pub(crate) const OVERHEAD_BYTES: usize = 64;

    /// Returns the encoded message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        farside_wire::encode(self, vec![CALL])
    }

    /// Decodes a message from `fields`, which follow the first byte. Returns `None` if they are
    /// malformed.
    pub(crate) fn decode(fields: &[u8]) -> Option<Self> {
        farside_wire::decode(Decoder::new(fields), 0).ok()
    }
}

/// A piece of the record stream to a receiver whose memory is not mapped at the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) ring: RingName,
    /// The position of the first byte in the stream.
    pub(crate) position: u64,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Returns the encoded frame of these words.
    pub(crate) fn encode(ring: RingName, position: u64, words: &[u64]) -> Vec<u8> {
        let mut out = Vec::with_capacity(CallMessage::OVERHEAD_BYTES + size_of_val(words));
        out.push(FRAME);
        out.extend(ring.source.to_le_bytes());
        out.extend(ring.to.to_le_bytes());
        out.extend(position.to_le_bytes());
        out.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        out
    }

    /// Decodes a frame from `fields`, which follow the first byte. Returns `None` if they are too
    /// short.
    pub(crate) fn decode(fields: &'a [u8]) -> Option<Self> {
        let (source, fields) = fields.split_first_chunk()?;
        let (to, fields) = fields.split_first_chunk()?;
        let (position, bytes) = fields.split_first_chunk()?;
        let ring = RingName { source: u32::from_le_bytes(*source), to: u32::from_le_bytes(*to) };
        Some(Self { ring, position: u64::from_le_bytes(*position), bytes })
    }
}

#[cfg(test)]
mod tests {
    use farside_fabric::{ProcessId, RemoteKey};
    use proptest::prelude::*;

    use super::*;

    fn extent() -> impl Strategy<Value = Extent> {
        (any::<u32>(), any::<u32>(), any::<u32>(), any::<[u64; 3]>()).prop_map(
            |(process, slot, generation, [size, offset, bytes])| {
                let process = ProcessId::new(process);
                Extent { key: RemoteKey { process, slot, generation, reserved: 0, bytes: size }, offset, bytes }
            },
        )
    }

    fn message() -> impl Strategy<Value = CallMessage> {
        let ring = (any::<u32>(), any::<u32>()).prop_map(|(source, to)| RingName { source, to });
        let chunks = proptest::collection::vec(extent(), 0..20);
        (0..11, ring, extent(), chunks, any::<(u8, u64, [u32; 6])>(), any::<Vec<u8>>()).prop_map(
            |(kind, ring, control, chunks, (count, number, [a, b, c, d, e, f]), bytes)| match kind {
                0 => CallMessage::Open { ring, chunks: count, chunk_bytes: number },
                1 => CallMessage::Grow { ring, chunks: count, chunk_bytes: number },
                2 => CallMessage::Opened { ring, control, chunks },
                3 => CallMessage::Grown { ring, chunks },
                4 => CallMessage::Refused { ring, cap_bytes: number },
                5 => CallMessage::Close { ring },
                6 => CallMessage::Closed { ring },
                7 => CallMessage::Reclaim { ring },
                8 => CallMessage::CountDown { latch: LatchAddress { worker: a, index: b, generation: c } },
                9 => CallMessage::Reply {
                    slot: ReplyAddress { worker: a, slot: b, generation: c, capacity: d, place: number },
                    piece: AnswerPiece { status: count, total: e, offset: f, bytes },
                },
                _ => CallMessage::FrameCredit { ring, consumed: number },
            },
        )
    }

    proptest! {
        #[test]
        fn encoding_round_trips(message in message()) {
            let bytes = message.encode();
            prop_assert_eq!(bytes[0], CALL);
            if let CallMessage::Reply { piece, .. } = &message {
                prop_assert!(bytes.len() <= CallMessage::OVERHEAD_BYTES + piece.bytes.len());
            }
            prop_assert_eq!(CallMessage::decode(&bytes[1..]), Some(message));
        }

        #[test]
        fn a_frame_is_decoded(source: u32, to: u32, position: u64, words: Vec<u64>) {
            let ring = RingName { source, to };
            let encoded = Frame::encode(ring, position, &words);
            prop_assert!(encoded.len() <= CallMessage::OVERHEAD_BYTES + size_of_val(&*words));
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            prop_assert_eq!((encoded[0], Frame::decode(&encoded[1..])), (FRAME, Some(Frame { ring, position, bytes: &bytes })));
        }

        #[test]
        fn any_bytes_are_a_message_or_refused(kind in 0..12_u32, bytes: Vec<u8>) {
            let fields = [&kind.to_le_bytes()[..], &bytes].concat();
            if let Some(message) = CallMessage::decode(&fields) {
                prop_assert_eq!(CallMessage::decode(&message.encode()[1..]), Some(message));
            }
            let _ = Frame::decode(&bytes);
        }
    }
}

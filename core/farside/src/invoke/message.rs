//! The service messages of calls: they open and close rings, and replace stores where memory is not
//! mapped.
//!
//! Every service message begins with one byte. A [room's message](crate::runtime::room) has its tag
//! there, a [`CallMessage`] has [`CALL`], and a [`Frame`] has [`FRAME`]. The records of
//! a frame follow its place as they are.

use farside_wire::Decoder;
use farside_wire::check::MessageKind;

use crate::Wire;
use crate::invoke::named::Head;
use crate::invoke::notify::LatchAddress;
use crate::invoke::reply::{AnswerPiece, Mark, ReplyName};
use crate::runtime::extent::Extent;

/// The first byte of a [`CallMessage`].
pub(crate) const CALL: u8 = 0;
/// The first byte of a [`Frame`].
pub(crate) const FRAME: u8 = 1;

/// One ring of the job: from a source (a worker, or a process with its shared ring) to a callable
/// thread.
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
    /// To the sender's process: there is no memory for the ring, because the receiver has reached
    /// its cap. `None`: its process has no memory or descriptors left.
    Refused { ring: RingName, cap_bytes: Option<u64> },
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
    /// To the caller's process: a part of a result that is not stored in its memory.
    Reply { reply: ReplyName, piece: AnswerPiece },
    /// To the caller's process: the duty to answer was sent to another process, or received. The
    /// marks of one reply have the numbers 1, 2, and so on.
    ReplyMoved { reply: ReplyName, number: u32, mark: Mark },
    /// A latch to count down, for a process whose memory is not mapped at the sender.
    CountDown { latch: LatchAddress },
}

impl CallMessage {
    /// The most bytes of a [`Reply`](Self::Reply) or a [`Frame`] besides the bytes that it carries.
    pub(crate) const OVERHEAD_BYTES: usize = 64;

    /// Returns the encoded message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        farside_wire::encode(self, begin(CALL))
    }

    /// Decodes a message from `fields`, which follow the first byte. Returns `None` if they are
    /// malformed.
    pub(crate) fn decode(fields: &[u8]) -> Option<Self> {
        farside_wire::decode(Decoder::new(fields), 0).ok()
    }
}

/// Returns the first byte of a message, with room for short fields.
fn begin(kind: u8) -> Vec<u8> {
    let mut message = Vec::with_capacity(CallMessage::OVERHEAD_BYTES);
    message.push(kind);
    message
}

/// The place of a frame: the stream, and the position of the frame's first byte in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub(crate) struct FramePlace {
    pub(crate) ring: RingName,
    pub(crate) position: u64,
    /// The number of bytes that the sender sends ahead of what the receiver has run.
    pub(crate) window: u64,
}

impl FramePlace {
    /// Returns the beginning of a frame's message. The frame's bytes follow.
    pub(crate) fn encode(&self) -> Vec<u8> {
        farside_wire::encode(self, begin(FRAME))
    }
}

/// A piece of the record stream from a sender that cannot map this process's memory, as it arrived.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) place: FramePlace,
    message: Vec<u8>,
    /// The place of the frame's bytes in the message.
    start: usize,
}

impl Frame {
    /// Takes a message of which the first byte is [`FRAME`]. Returns `None` if it is too short.
    pub(crate) fn new(message: Vec<u8>) -> Option<Self> {
        let mut input = Decoder::new(message.get(1..)?);
        let place = Wire::decode(&mut input).ok()?;
        let start = message.len() - input.rest().len();
        Some(Self { place, message, start })
    }

    /// The frame's bytes of the stream.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.message[self.start..]
    }
}

/// The messages of calls, for tests of their decoders.
pub(crate) fn message_kinds() -> Vec<MessageKind> {
    let recode_frame = |fields: &[u8]| {
        let frame = Frame::new([&[FRAME], fields].concat())?;
        Some([&frame.place.encode()[1..], frame.bytes()].concat())
    };
    vec![
        MessageKind::of::<CallMessage>(),
        MessageKind::of::<FramePlace>().with_payload(recode_frame),
        MessageKind::of::<Head>(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_carries_bytes_adds_few() {
        let reply = ReplyName { worker: 1, slot: 2, generation: 3 };
        let piece = AnswerPiece { status: 6, total: 7, offset: 8, bytes: vec![9; 100] };
        assert!(CallMessage::Reply { reply, piece }.encode().len() <= CallMessage::OVERHEAD_BYTES + 100);
        let place = FramePlace { ring: RingName { source: 1, to: 2 }, position: 3, window: 4 };
        assert!(place.encode().len() <= CallMessage::OVERHEAD_BYTES);
        let frame = Frame::new([place.encode(), vec![0xff; 80]].concat()).unwrap();
        assert_eq!((frame.place, frame.bytes()), (place, &[0xff; 80][..]));
    }
}

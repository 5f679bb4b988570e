//! What service threads say to each other: how rings come to be, and whatever cannot be done by a store into mapped memory.

use farside_fabric::{ProcessId, RemoteKey};

use crate::invoke::notify::LatchAddress;
use crate::invoke::reply::{AnswerPiece, ReplyAddress};
use crate::pipe::message::PipeMessage;
use farside_launch::ring_options::CHUNKS_PER_REQUEST_MAX;

/// A piece of a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) key: RemoteKey,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// One ring of the job: from a source (a worker, or a process with its lane) to a callable thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RingName {
    /// The number of the source's arrival bit.
    pub(crate) source: u32,
    /// The receiver.
    pub(crate) to: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SetupMessage {
    /// To the receiver's process: make this ring with so many chunks, or so many more for it.
    Open {
        ring: RingName,
        chunks: u8,
        chunk_bytes: u64,
    },
    Grow {
        ring: RingName,
        chunks: u8,
        chunk_bytes: u64,
    },
    /// To the sender's process: here it is.
    Opened {
        ring: RingName,
        control: Piece,
        chunks: Vec<Piece>,
    },
    Grown {
        ring: RingName,
        chunks: Vec<Piece>,
    },
    /// There is no memory for it.
    Refused {
        ring: RingName,
        cap_bytes: u64,
    },
    /// To the receiver's process: nothing more comes through this ring, and nobody here can write into it. The answer: all that came was
    /// run, and the memory is the receiver's again.
    Close {
        ring: RingName,
    },
    Closed {
        ring: RingName,
    },
    /// To the sender's process: if this ring is idle, close it, for others need the memory.
    Reclaim {
        ring: RingName,
    },
    /// Bytes of the record stream of a ring whose receiver's memory is not mapped at the sender, and the answer: so many
    /// bytes of it were consumed in all.
    Frame {
        ring: RingName,
        position: u64,
        bytes: Vec<u8>,
    },
    FrameCredit {
        ring: RingName,
        consumed: u64,
    },
    /// A result, or a latch to be counted down, for a process whose memory is not mapped at the sender.
    Reply {
        slot: ReplyAddress,
        piece: AnswerPiece,
    },
    CountDown {
        latch: LatchAddress,
    },
    /// About a pipe between two workers.
    Pipe(PipeMessage),
}

impl SetupMessage {
    /// Bytes of a [`Frame`](Self::Frame) or [`Reply`](Self::Reply) besides the ones that it carries, at most.
    pub(crate) const OVERHEAD_BYTES: usize = 64;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder(Vec::with_capacity(128));
        match self {
            Self::Open { ring, chunks, chunk_bytes } => out.byte(1).ring(ring).byte(*chunks).u64(*chunk_bytes),
            Self::Grow { ring, chunks, chunk_bytes } => out.byte(2).ring(ring).byte(*chunks).u64(*chunk_bytes),
            Self::Opened { ring, control, chunks } => out.byte(3).ring(ring).piece(control).pieces(chunks),
            Self::Grown { ring, chunks } => out.byte(4).ring(ring).pieces(chunks),
            Self::Close { ring } => out.byte(10).ring(ring),
            Self::Closed { ring } => out.byte(11).ring(ring),
            Self::Reclaim { ring } => out.byte(12).ring(ring),
            Self::Refused { ring, cap_bytes } => out.byte(5).ring(ring).u64(*cap_bytes),
            Self::Frame { ring, position, bytes } => out.byte(6).ring(ring).u64(*position).rest(bytes),
            Self::FrameCredit { ring, consumed } => out.byte(7).ring(ring).u64(*consumed),
            Self::Reply { slot, piece } => {
                out.byte(8).u32(slot.worker).u32(slot.slot).u32(slot.generation).u32(slot.capacity).u64(slot.place);
                out.byte(piece.status).u32(piece.total).u32(piece.offset).rest(&piece.bytes)
            }
            Self::CountDown { latch } => out.byte(9).u32(latch.worker).u32(latch.index).u32(latch.generation),
            Self::Pipe(message) => {
                message.encode(&mut out.byte(30).0);
                &mut out
            }
        };
        out.0
    }

    /// A [`Frame`](Self::Frame) of these words.
    pub(crate) fn encode_frame(ring: RingName, position: u64, words: &[u64]) -> Vec<u8> {
        let mut out = Encoder(Vec::with_capacity(Self::OVERHEAD_BYTES + size_of_val(words)));
        out.byte(6).ring(&ring).u64(position);
        out.0.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        out.0
    }

    /// `None` when the bytes are no message.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut input = Decoder(bytes);
        let message = match input.byte()? {
            1 => Self::Open { ring: input.ring()?, chunks: input.byte()?, chunk_bytes: input.u64()? },
            2 => Self::Grow { ring: input.ring()?, chunks: input.byte()?, chunk_bytes: input.u64()? },
            3 => Self::Opened { ring: input.ring()?, control: input.piece()?, chunks: input.pieces()? },
            4 => Self::Grown { ring: input.ring()?, chunks: input.pieces()? },
            10 => Self::Close { ring: input.ring()? },
            11 => Self::Closed { ring: input.ring()? },
            12 => Self::Reclaim { ring: input.ring()? },
            5 => Self::Refused { ring: input.ring()?, cap_bytes: input.u64()? },
            6 => Self::Frame { ring: input.ring()?, position: input.u64()?, bytes: input.rest() },
            7 => Self::FrameCredit { ring: input.ring()?, consumed: input.u64()? },
            8 => {
                let (worker, slot, generation) = (input.u32()?, input.u32()?, input.u32()?);
                let (capacity, place) = (input.u32()?, input.u64()?);
                let slot = ReplyAddress { worker, slot, generation, capacity, place };
                let (status, total, offset) = (input.byte()?, input.u32()?, input.u32()?);
                Self::Reply { slot, piece: AnswerPiece { status, total, offset, bytes: input.rest() } }
            }
            9 => {
                let latch = LatchAddress { worker: input.u32()?, index: input.u32()?, generation: input.u32()? };
                Self::CountDown { latch }
            }
            30 => Self::Pipe(PipeMessage::decode(&input.rest())?),
            _ => return None,
        };
        input.0.is_empty().then_some(message)
    }
}

struct Encoder(Vec<u8>);

impl Encoder {
    fn byte(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn ring(&mut self, ring: &RingName) -> &mut Self {
        self.u32(ring.source).u32(ring.to)
    }

    fn piece(&mut self, piece: &Piece) -> &mut Self {
        let RemoteKey { process, slot, generation, reserved: _, bytes } = piece.key;
        self.u32(process.number()).u32(slot).u32(generation).u64(bytes).u64(piece.offset).u64(piece.bytes)
    }

    fn pieces(&mut self, pieces: &[Piece]) -> &mut Self {
        debug_assert!((1..=CHUNKS_PER_REQUEST_MAX).contains(&pieces.len()));
        self.byte(pieces.len() as u8);
        pieces.iter().fold(self, Self::piece)
    }

    fn rest(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend(bytes);
        self
    }
}

struct Decoder<'a>(&'a [u8]);

impl Decoder<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, left) = self.0.split_first_chunk()?;
        self.0 = left;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn ring(&mut self) -> Option<RingName> {
        Some(RingName { source: self.u32()?, to: self.u32()? })
    }

    fn piece(&mut self) -> Option<Piece> {
        let process = ProcessId::new(self.u32()?);
        let (slot, generation, bytes) = (self.u32()?, self.u32()?, self.u64()?);
        let key = RemoteKey { process, slot, generation, reserved: 0, bytes };
        Some(Piece { key, offset: self.u64()?, bytes: self.u64()? })
    }

    fn pieces(&mut self) -> Option<Vec<Piece>> {
        let count = self.byte()? as usize;
        let is_possible = (1..=CHUNKS_PER_REQUEST_MAX).contains(&count);
        is_possible.then(|| (0..count).map(|_| self.piece()).collect())?
    }

    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn piece() -> impl Strategy<Value = Piece> {
        (any::<u32>(), any::<u32>(), any::<u32>(), any::<[u64; 3]>()).prop_map(
            |(process, slot, generation, [size, offset, bytes])| {
                let process = ProcessId::new(process);
                Piece { key: RemoteKey { process, slot, generation, reserved: 0, bytes: size }, offset, bytes }
            },
        )
    }

    fn message() -> impl Strategy<Value = SetupMessage> {
        let ring = (any::<u32>(), any::<u32>()).prop_map(|(source, to)| RingName { source, to });
        let chunks = proptest::collection::vec(piece(), 1..=CHUNKS_PER_REQUEST_MAX);
        (0..10, ring, piece(), chunks, any::<(u8, u64)>(), any::<Vec<u8>>()).prop_map(
            |(kind, ring, control, chunks, (count, number), bytes)| match kind {
                0 => SetupMessage::Open { ring, chunks: count, chunk_bytes: number },
                1 => SetupMessage::Grow { ring, chunks: count, chunk_bytes: number },
                2 => SetupMessage::Opened { ring, control, chunks },
                3 => SetupMessage::Grown { ring, chunks },
                4 => SetupMessage::Refused { ring, cap_bytes: number },
                5 => SetupMessage::Frame { ring, position: number, bytes },
                6 => SetupMessage::Close { ring },
                7 => SetupMessage::Closed { ring },
                8 => SetupMessage::Reclaim { ring },
                _ => SetupMessage::FrameCredit { ring, consumed: number },
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(message in message()) {
            prop_assert_eq!(SetupMessage::decode(&message.encode()), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_refused(kind in 0..34_u8, mut bytes: Vec<u8>) {
            bytes.insert(0, kind);
            if let Some(message) = SetupMessage::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}

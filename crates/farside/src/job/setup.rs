//! What service threads say to each other: how rings come to be, and whatever cannot be done by a store into mapped memory.

use farside_fabric::{ProcessId, RemoteKey};

use crate::invoke::notify::LatchAddress;
use crate::invoke::reply::{AnswerPiece, ReplyAddress};
use crate::memory::message::MemoryMessage;

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
    /// To the receiver's process: make this ring, or one more chunk for it.
    Open {
        ring: RingName,
    },
    Grow {
        ring: RingName,
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
        chunk: Piece,
    },
    /// There is no memory for it.
    Refused {
        ring: RingName,
        cap_bytes: u64,
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
    /// About memory that one process has of another.
    Memory(MemoryMessage),
}

/// Chunks that one message may bring.
const CHUNKS_MAX: usize = 16;

impl SetupMessage {
    /// Bytes of a [`Frame`](Self::Frame) or [`Reply`](Self::Reply) besides the ones that it carries, at most.
    pub(crate) const OVERHEAD_BYTES: usize = 64;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder(Vec::with_capacity(128));
        match self {
            Self::Open { ring } => out.byte(1).ring(ring),
            Self::Grow { ring, chunk_bytes } => out.byte(2).ring(ring).u64(*chunk_bytes),
            Self::Opened { ring, control, chunks } => {
                debug_assert!(chunks.len() <= CHUNKS_MAX);
                out.byte(3).ring(ring).piece(control).byte(chunks.len() as u8);
                for chunk in chunks {
                    out.piece(chunk);
                }
                &mut out
            }
            Self::Grown { ring, chunk } => out.byte(4).ring(ring).piece(chunk),
            Self::Refused { ring, cap_bytes } => out.byte(5).ring(ring).u64(*cap_bytes),
            Self::Frame { ring, position, bytes } => out.byte(6).ring(ring).u64(*position).rest(bytes),
            Self::FrameCredit { ring, consumed } => out.byte(7).ring(ring).u64(*consumed),
            Self::Reply { slot, piece } => {
                out.byte(8).u32(slot.worker).u32(slot.slot).u32(slot.generation).u32(slot.capacity).u64(slot.place);
                out.byte(piece.status).u32(piece.total).u32(piece.offset).rest(&piece.bytes)
            }
            Self::CountDown { latch } => out.byte(9).u32(latch.worker).u32(latch.index).u32(latch.generation),
            Self::Memory(message) => {
                message.encode(&mut out.byte(20).0);
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
            1 => Self::Open { ring: input.ring()? },
            2 => Self::Grow { ring: input.ring()?, chunk_bytes: input.u64()? },
            3 => {
                let (ring, control, count) = (input.ring()?, input.piece()?, input.byte()? as usize);
                if count == 0 || count > CHUNKS_MAX {
                    return None;
                }
                let chunks = (0..count).map(|_| input.piece()).collect::<Option<_>>()?;
                Self::Opened { ring, control, chunks }
            }
            4 => Self::Grown { ring: input.ring()?, chunk: input.piece()? },
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
            20 => Self::Memory(MemoryMessage::decode(&input.rest())?),
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
        (0..7, ring, piece(), proptest::collection::vec(piece(), 1..=CHUNKS_MAX), any::<u64>(), any::<Vec<u8>>())
            .prop_map(|(kind, ring, control, chunks, number, bytes)| match kind {
                0 => SetupMessage::Open { ring },
                1 => SetupMessage::Grow { ring, chunk_bytes: number },
                2 => SetupMessage::Opened { ring, control, chunks },
                3 => SetupMessage::Grown { ring, chunk: control },
                4 => SetupMessage::Refused { ring, cap_bytes: number },
                5 => SetupMessage::Frame { ring, position: number, bytes },
                _ => SetupMessage::FrameCredit { ring, consumed: number },
            })
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(message in message()) {
            prop_assert_eq!(SetupMessage::decode(&message.encode()), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_refused(kind in 0..12_u8, mut bytes: Vec<u8>) {
            bytes.insert(0, kind);
            if let Some(message) = SetupMessage::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}

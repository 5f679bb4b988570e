//! What service threads say to each other about pipes.

use farside_fabric::{ProcessId, RemoteKey, WorkerId};

use super::error::PipeName;
use super::protocol::Kind;
use super::shape::PipeShape;
use crate::invoke::ring::message::Piece;

/// A message about one pipe. A writer's process numbers the pipes that it opens, so that one that was closed and the next of the same
/// name are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PipeMessage {
    pub(crate) name: PipeName,
    pub(crate) session: u32,
    pub(crate) body: PipeBody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PipeBody {
    /// To the reader's process: make this pipe.
    Open { shape: PipeShape },
    /// To the writer's: here it is.
    Opened { piece: Piece },
    /// There is no memory for it: others have so much, of so much that they may.
    NoMemory { held: u64, limit: u64 },
    /// The reader has opened it with another shape.
    Mismatch { shape: PipeShape },
    /// To the reader's process, where its memory is not mapped at the writer's: a message, or that one was put into the data of its slot.
    Data { number: u64, kind: Kind, bytes: u32, inside: Vec<u8> },
    /// To the writer's process, where its doorbell is not mapped at the reader's: so many were taken.
    Took { taken: u64 },
    /// To the reader's process: nothing comes behind so many messages, and nobody here can write into the pipe any more.
    WriterClosed { sent: u64 },
    /// To the writer's process: nobody reads any more, and so many were taken.
    ReaderClosed { taken: u64 },
}

/// Bytes of a [`PipeBody::Data`] besides those that it carries, with the byte that says what it is about.
pub(crate) const DATA_OVERHEAD_BYTES: usize = 64;

impl PipeMessage {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let Self { name, session, body } = self;
        let (tag, words, rest): (u8, &[u64], &[u8]) = match body {
            PipeBody::Open { shape } => (1, &shape_words(*shape), &[]),
            PipeBody::Opened { piece } => (2, &piece_words(piece), &[]),
            PipeBody::NoMemory { held, limit } => (3, &[*held, *limit], &[]),
            PipeBody::Mismatch { shape } => (4, &shape_words(*shape), &[]),
            PipeBody::Data { number, kind, bytes, inside } => {
                (5, &[*number, u64::from(*bytes) | (*kind as u64) << 32], inside)
            }
            PipeBody::Took { taken } => (6, &[*taken], &[]),
            PipeBody::WriterClosed { sent } => (7, &[*sent], &[]),
            PipeBody::ReaderClosed { taken } => (8, &[*taken], &[]),
        };
        out.push(tag);
        [name.writer.number(), name.reader.number(), name.number, *session]
            .iter()
            .for_each(|number| out.extend(number.to_le_bytes()));
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
        out.extend(rest);
    }

    /// `None` when the bytes are no message.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, bytes) = bytes.split_first()?;
        let (numbers, bytes) = bytes.split_first_chunk::<16>()?;
        let [writer, reader, number, session] =
            std::array::from_fn(|place| u32::from_le_bytes(std::array::from_fn(|byte| numbers[place * 4 + byte])));
        let name = PipeName { writer: WorkerId::new(writer), reader: WorkerId::new(reader), number };
        let body = match tag {
            5 => {
                let ([number, rest], inside) = words(bytes)?;
                let kind = Kind::ALL.get((rest >> 32) as usize).copied()?;
                PipeBody::Data { number, kind, bytes: rest as u32, inside: inside.to_vec() }
            }
            _ => short(*tag, bytes)?,
        };
        Some(Self { name, session, body })
    }
}

/// A body that is nothing but words.
fn short(tag: u8, bytes: &[u8]) -> Option<PipeBody> {
    fn all<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
        words(bytes).filter(|(_, rest)| rest.is_empty()).map(|(words, _)| words)
    }
    Some(match tag {
        1 => PipeBody::Open { shape: shape(all(bytes)?)? },
        2 => PipeBody::Opened { piece: piece(all(bytes)?)? },
        3 => all(bytes).map(|[held, limit]| PipeBody::NoMemory { held, limit })?,
        4 => PipeBody::Mismatch { shape: shape(all(bytes)?)? },
        6 => all(bytes).map(|[taken]| PipeBody::Took { taken })?,
        7 => all(bytes).map(|[sent]| PipeBody::WriterClosed { sent })?,
        8 => all(bytes).map(|[taken]| PipeBody::ReaderClosed { taken })?,
        _ => return None,
    })
}

fn words<const N: usize>(mut bytes: &[u8]) -> Option<([u64; N], &[u8])> {
    let mut words = [0; N];
    for word in &mut words {
        let (first, rest) = bytes.split_first_chunk()?;
        *word = u64::from_le_bytes(*first);
        bytes = rest;
    }
    Some((words, bytes))
}

fn shape_words(shape: PipeShape) -> [u64; 3] {
    [shape.width as u64, shape.message_bytes as u64, shape.content]
}

/// A shape that a pipe can have.
fn shape([width, message_bytes, content]: [u64; 3]) -> Option<PipeShape> {
    let (width, message_bytes) = (usize::try_from(width).ok()?, usize::try_from(message_bytes).ok()?);
    PipeShape { width, message_bytes, content }.check().ok()
}

pub(super) fn piece_words(piece: &Piece) -> [u64; 5] {
    let RemoteKey { process, slot, generation, reserved: _, bytes } = piece.key;
    [process.number().into(), u64::from(slot) | u64::from(generation) << 32, bytes, piece.offset, piece.bytes]
}

pub(super) fn piece([process, name, region_bytes, offset, bytes]: [u64; 5]) -> Option<Piece> {
    let process = ProcessId::new(u32::try_from(process).ok()?);
    let (slot, generation) = (name as u32, (name >> 32) as u32);
    let key = RemoteKey { process, slot, generation, reserved: 0, bytes: region_bytes };
    Some(Piece { key, offset, bytes })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn body() -> impl Strategy<Value = PipeBody> {
        let shape = (1..=100_usize, 0..=5000_usize, any::<u64>());
        let shape = shape.prop_map(|(width, message_bytes, content)| PipeShape { width, message_bytes, content });
        let piece = any::<([u32; 3], [u64; 3])>().prop_map(|([process, slot, generation], [size, offset, bytes])| {
            let process = ProcessId::new(process);
            Piece { key: RemoteKey { process, slot, generation, reserved: 0, bytes: size }, offset, bytes }
        });
        let kind = proptest::sample::select(Kind::ALL.to_vec());
        prop_oneof![
            shape.clone().prop_map(|shape| PipeBody::Open { shape }),
            shape.prop_map(|shape| PipeBody::Mismatch { shape }),
            piece.prop_map(|piece| PipeBody::Opened { piece }),
            any::<(u64, u64)>().prop_map(|(held, limit)| PipeBody::NoMemory { held, limit }),
            (any::<(u64, u32)>(), kind, any::<Vec<u8>>()).prop_map(|((number, bytes), kind, inside)| PipeBody::Data {
                number,
                kind,
                bytes,
                inside
            }),
            any::<u64>().prop_map(|taken| PipeBody::Took { taken }),
            any::<u64>().prop_map(|sent| PipeBody::WriterClosed { sent }),
            any::<u64>().prop_map(|taken| PipeBody::ReaderClosed { taken }),
        ]
    }

    fn message() -> impl Strategy<Value = PipeMessage> {
        (any::<[u32; 4]>(), body()).prop_map(|([writer, reader, number, session], body)| {
            let name = PipeName { writer: WorkerId::new(writer), reader: WorkerId::new(reader), number };
            PipeMessage { name, session, body }
        })
    }

    fn encoded(message: &PipeMessage) -> Vec<u8> {
        let mut out = Vec::new();
        message.encode(&mut out);
        out
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(message in message()) {
            let bytes = encoded(&message);
            if let PipeBody::Data { inside, .. } = &message.body {
                prop_assert!(bytes.len() < inside.len() + DATA_OVERHEAD_BYTES);
            }
            prop_assert_eq!(PipeMessage::decode(&bytes), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_refused(kind in 0..10_u8, name: [u8; 16], mut words: Vec<[u8; 8]>, small: bool) {
            if small {
                words.iter_mut().for_each(|word| word[1..].fill(0));
            }
            let bytes: Vec<u8> = [kind].into_iter().chain(name).chain(words.into_iter().flatten()).collect();
            if let Some(message) = PipeMessage::decode(&bytes) {
                prop_assert_eq!(encoded(&message), bytes);
            }
        }

        #[test]
        fn what_is_cut_off_is_another_message_or_none(message in message(), cut in 1..60_usize) {
            let bytes = encoded(&message);
            let short = PipeMessage::decode(&bytes[..bytes.len().saturating_sub(cut)]);
            prop_assert_ne!(short, Some(message));
        }
    }
}

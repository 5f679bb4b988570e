//! The messages that processes exchange about pipes.

use super::error::PipeName;
use super::shape::PipeShape;
use crate::Wire;
use crate::runtime::extent::Extent;

/// A message about one pipe. The writer's process numbers the pipes that it opens (`session`), to
/// tell a closed pipe from the next one of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(crate) struct PipeMessage {
    pub(crate) name: PipeName,
    pub(crate) session: u32,
    pub(crate) body: PipeBody,
}

#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(crate) enum PipeBody {
    /// To the reader's process: make this pipe.
    Open { shape: PipeShape },
    /// To the writer's process: this is the pipe's memory.
    Opened { piece: Extent },
    /// To the writer's process: there is no memory, because other processes hold `held` bytes of at
    /// most `limit`. Both are 0 if the system has none left.
    NoMemory { held: u64, limit: u64 },
    /// To the writer's process: the reader has opened the pipe with another shape.
    Mismatch { shape: PipeShape },
    /// To the reader's process, if its memory is not mapped at the writer: a message, or the notice
    /// that one was put into the data of its slot. `kind` is an index into
    /// [`Kind::ALL`](super::protocol::Kind::ALL).
    Data { number: u64, kind: u8, bytes: u32, inside: Vec<u8> },
    /// To the writer's process, if its doorbell is not mapped at the reader: the number of messages
    /// taken.
    Took { taken: u64 },
    /// To the reader's process: there are no messages after this number, and the writer's process
    /// no longer writes into the pipe.
    WriterClosed { sent: u64 },
    /// To the writer's process: the reader has closed after taking this number of messages.
    ReaderClosed { taken: u64 },
}

/// The largest number of bytes of an encoded [`PipeBody::Data`] besides those of the message.
pub(crate) const DATA_OVERHEAD_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use farside_fabric::{ProcessId, RemoteKey, WorkerId};
    use proptest::prelude::*;

    use super::*;
    use crate::pipe::Pipes;
    use crate::runtime::room;
    use crate::wire::{Decoder, decode};

    fn body() -> impl Strategy<Value = PipeBody> {
        let shape = (1..=100_usize, 0..=5000_usize, any::<u64>());
        let shape = shape.prop_map(|(width, message_bytes, content)| PipeShape { width, message_bytes, content });
        let piece = any::<([u32; 3], [u64; 3])>().prop_map(|([process, slot, generation], [size, offset, bytes])| {
            let process = ProcessId::new(process);
            Extent { key: RemoteKey { process, slot, generation, reserved: 0, bytes: size }, offset, bytes }
        });
        prop_oneof![
            shape.clone().prop_map(|shape| PipeBody::Open { shape }),
            shape.prop_map(|shape| PipeBody::Mismatch { shape }),
            piece.prop_map(|piece| PipeBody::Opened { piece }),
            any::<(u64, u64)>().prop_map(|(held, limit)| PipeBody::NoMemory { held, limit }),
            (any::<(u64, u32)>(), any::<u8>(), any::<Vec<u8>>())
                .prop_map(|((number, bytes), kind, inside)| PipeBody::Data { number, kind, bytes, inside }),
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
        room::encode::<Pipes>(message)
    }

    /// Decodes a message, which follows the room's tag.
    fn decoded(bytes: &[u8]) -> Option<PipeMessage> {
        decode(Decoder::new(bytes.get(1..)?), 0).ok()
    }

    proptest! {
        #[test]
        fn encoding_round_trips(message in message()) {
            let bytes = encoded(&message);
            if let PipeBody::Data { inside, .. } = &message.body {
                prop_assert!(bytes.len() <= inside.len() + DATA_OVERHEAD_BYTES);
            }
            prop_assert_eq!(decoded(&bytes), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_refused(kind in 0..10_u8, name: [u8; 16], mut words: Vec<[u8; 8]>, small: bool) {
            if small {
                words.iter_mut().for_each(|word| word[1..].fill(0));
            }
            let bytes: Vec<u8> = [0].into_iter().chain(name).chain([kind]).chain(words.into_iter().flatten()).collect();
            if let Some(message) = decoded(&bytes) {
                prop_assert_eq!(&encoded(&message)[1..], &bytes[1..]);
            }
        }

        #[test]
        fn a_truncated_message_is_another_message_or_none(message in message(), cut in 1..60_usize) {
            let bytes = encoded(&message);
            let short = decoded(&bytes[..bytes.len().saturating_sub(cut)]);
            prop_assert_ne!(short, Some(message));
        }
    }
}

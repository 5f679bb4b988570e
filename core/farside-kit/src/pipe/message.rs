//! The messages that processes exchange about pipes.

use farside::Wire;
use farside::kit::Extent;

use super::error::PipeName;
use super::shape::Terms;

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
    Open { terms: Terms },
    /// To the writer's process: this is the pipe's memory.
    Opened { piece: Extent },
    /// To the writer's process: there is no memory, because other processes hold `held` bytes of at
    /// most `limit`. Both are 0 if the system has none left.
    NoMemory { held: u64, limit: u64 },
    /// To the writer's process: the reader has opened the pipe with other terms.
    Mismatch { terms: Terms },
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
    use farside_fabric::WorkerId;

    use super::*;

    #[test]
    fn what_carries_bytes_adds_few() {
        let name = PipeName { writer: WorkerId::new(1), reader: WorkerId::new(2), number: 3 };
        let body = PipeBody::Data { number: 4, kind: 5, bytes: 100, inside: vec![6; 100] };
        let message = PipeMessage { name, session: 7, body };
        assert!(farside::wire::encode(&message, vec![0]).len() <= 100 + DATA_OVERHEAD_BYTES);
    }
}

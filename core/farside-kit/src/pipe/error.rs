//! The errors of pipes.

use std::fmt;

use farside::memory::MemoryRefusal;
use farside::{Error, Wire};
use farside_fabric::{ProcessId, WorkerId};

use super::protocol::FLAG_BYTES_MAX;
use super::shape::{PipeShape, WIDTH_MAX};
use crate::room_error::room_error;

/// A result of this module.
pub(super) type Result<T, E = PipeError> = std::result::Result<T, E>;

/// Why an operation on a pipe failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipeError {
    /// An error of the job, such as [`Error::PeerLost`].
    #[error(transparent)]
    Job(#[from] Error),
    /// The pipe itself refused the operation or is broken.
    #[error("{pipe}: {cause}")]
    Pipe {
        /// The pipe.
        pipe: PipeName,
        /// The reason.
        cause: PipeCause,
    },
}

room_error!(PipeError);

/// The name of a pipe: its two workers, and a number that distinguishes the pipes between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub struct PipeName {
    /// The worker that writes.
    pub writer: WorkerId,
    /// The worker that reads.
    pub reader: WorkerId,
    /// The number among the pipes in this direction.
    pub number: u32,
}

impl fmt::Display for PipeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pipe {} from {} to {}", self.number, self.writer, self.reader)
    }
}

/// A fault of a pipe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PipeCause {
    /// The other end is closed. A reader gets this once it has read everything.
    #[error("its other end is closed")]
    Closed,
    /// All slots hold messages that the reader has not taken, or the pipe is not connected yet.
    #[error("its {width} slots are full, or it is not connected yet: wait (`write`), or open it with more width")]
    Full {
        /// The number of messages that the pipe holds.
        width: usize,
    },
    /// The requested width is not supported.
    #[error("a width of {width} is not supported: use 1 to {WIDTH_MAX} messages")]
    Width {
        /// The requested width.
        width: usize,
    },
    /// The requested messages are too long.
    #[error(
        "messages of {bytes} bytes are not supported: use at most {FLAG_BYTES_MAX}, and send longer data in pieces"
    )]
    MessageBytes {
        /// The requested length.
        bytes: usize,
    },
    /// The two ends were opened with different shapes.
    #[error(
        "its ends differ: {} messages of {} bytes here, {} of {} there{}; open both with the same width, message size and \
         type of values",
        here.width, here.message_bytes, there.width, there.message_bytes,
        if here.content == there.content { String::new() } else { format!(", {here_values} here, {there_values} there") }
    )]
    Mismatch {
        /// The shape of this end.
        here: PipeShape,
        /// The shape of the other end.
        there: PipeShape,
        /// The type of the values of this end, or `bytes`. A long name is cut.
        here_values: String,
        /// The type of the values of the other end, or `bytes`.
        there_values: String,
    },
    /// This end is already open.
    #[error("this end of it is already open: drop it first, or use another number")]
    Taken,
    /// The reader's process has no pipes.
    #[error(
        "{process} runs a program without pipes, so none of its workers can open the other end: open pipes of \
         `farside_kit` there, too"
    )]
    Absent {
        /// The reader's process.
        process: ProcessId,
    },
    /// A worker's pipe to itself would be the same pipe in both directions.
    #[error("a worker has no duplex pipe with itself: open a writer and a reader")]
    WithItself,
    /// A process has no memory for the pipe or its message.
    #[error("no memory for it: {0}")]
    Memory(MemoryRefusal),
    /// The reader is gone before it took all messages, or messages did not reach a reader whose
    /// memory is not mapped.
    #[error("{messages} of the messages written are not known to be taken, and never will be: {why}")]
    Undelivered {
        /// The number of messages not known to be taken.
        messages: u64,
        /// The reason.
        why: String,
    },
    /// The other end has a bug, or its memory was overwritten.
    #[error("it is corrupt ({why}): its other end has a bug or overwrote memory")]
    Corrupt {
        /// The finding.
        why: &'static str,
    },
}

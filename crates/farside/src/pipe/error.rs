//! What is wrong with a pipe.

use std::fmt;

use farside_fabric::WorkerId;

use super::protocol::FLAG_BYTES_MAX;
use super::shape::{PipeShape, WIDTH_MAX};
use crate::error::{Error, room_error};
use crate::memory::MemoryRefusal;

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

/// Which pipe of the job: one end's worker, the other's, and a number that tells those between the two apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PipeName {
    /// Who writes.
    pub writer: WorkerId,
    /// Who reads.
    pub reader: WorkerId,
    /// Which of the pipes from one to the other.
    pub number: u32,
}

impl fmt::Display for PipeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pipe {} from {} to {}", self.number, self.writer, self.reader)
    }
}

/// Why a pipe did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PipeCause {
    /// The other end is closed, and, for a reader, everything is read.
    #[error("its other end is closed")]
    Closed,
    /// All slots hold messages that the reader has not taken, or the pipe is not connected yet.
    #[error("its {width} slots are full, or it is not connected yet: wait (`write`), or give it more width")]
    Full {
        /// How many messages it holds.
        width: usize,
    },
    /// A width that no pipe has.
    #[error("a width of {width}: give it 1 to {WIDTH_MAX} messages under way")]
    Width {
        /// What was asked for.
        width: usize,
    },
    /// Messages that are too long.
    #[error("messages of {bytes} bytes, and {FLAG_BYTES_MAX} are the most: send it in pieces")]
    MessageBytes {
        /// What was asked for.
        bytes: usize,
    },
    /// The two ends were opened with different shapes.
    #[error(
        "its ends differ: {} messages of {} bytes here, {} of {} there{}; open both with the same width, message size and type of values",
        here.width, here.message_bytes, there.width, there.message_bytes,
        if here.content == there.content { "" } else { ", and of another type" }
    )]
    Mismatch {
        /// What was asked for here.
        here: PipeShape,
        /// What the other end has.
        there: PipeShape,
    },
    /// This end exists already.
    #[error("this end of it is open already: drop it first, or take another number")]
    Taken,
    /// A duplex pipe of a worker with itself would have the same pipe for both ways.
    #[error("a worker has no duplex pipe with itself: open a writer and a reader")]
    WithItself,
    /// The reader's process has no memory for it.
    #[error("the reader's process gives no memory for it: {0}")]
    Memory(MemoryRefusal),
    /// Messages were written that nobody takes any more, or that did not get to a reader whose memory is not mapped.
    #[error("{messages} of the messages written are not known to be taken, and will not be: {why}")]
    Undelivered {
        /// How many were written and are not known to be taken.
        messages: u64,
        /// The reason.
        why: String,
    },
    /// The memory of the pipe cannot be reached from the writer's process.
    #[error("its memory at the reader cannot be reached: {why}")]
    Unreachable {
        /// The reason.
        why: String,
    },
    /// The other end, or whoever wrote into its memory, is at fault.
    #[error("it is corrupt ({why}): its other end has a bug or overwrote memory")]
    Corrupt {
        /// What was found.
        why: &'static str,
    },
}

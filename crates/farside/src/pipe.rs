//! Pipes: streams of messages from one worker to another, with nothing to synchronise by hand.
//!
//! ```no_run
//! # use farside::prelude::*;
//! # fn example(me: &Worker) -> farside::Result<()> {
//! let (writer, reader) = (WorkerId::new(0), WorkerId::new(1));
//! if me.id() == writer {
//!     let mut pipe = me.pipe(reader).width(8).writer()?;
//!     pipe.write(b"copied")?;
//!     let mut loan = pipe.loan(7)?;
//!     loan.copy_from_slice(b"written");
//!     loan.commit()?;
//! } else if me.id() == reader {
//!     let mut pipe = me.pipe(writer).width(8).reader()?;
//!     assert_eq!(*pipe.recv()?, *b"copied");
//!     let message = pipe.recv()?;
//!     assert_eq!(*message, *b"written");
//!     message.release();
//! }
//! # Ok(())
//! # }
//! ```

mod ends;
mod error;
mod meeting;
pub(crate) mod message;
mod protocol;
mod reader;
mod shape;
mod words;
mod writer;

use farside_fabric::WorkerId;

pub use self::error::{PipeCause, PipeName};
pub(crate) use self::meeting::Pipes;
use self::protocol::Corrupt;
pub use self::reader::{PipeReader, Received};
pub use self::shape::{INLINE_BYTES_MAX, PipeShape, WIDTH_MAX};
pub use self::writer::{Loan, PipeWriter};
use crate::error::{Error, Result};
use crate::job::worker::Worker;

impl From<Corrupt> for PipeCause {
    fn from(corrupt: Corrupt) -> Self {
        let why = match corrupt {
            Corrupt::Kind => "a message of a kind that there is not",
            Corrupt::Stamp => "a flag that no writer sets",
            Corrupt::Taken => "a count of messages that were not sent",
        };
        PipeCause::Corrupt { why }
    }
}

impl Worker {
    /// A pipe between this worker and another, to be opened as one of its ends. See [`pipe`](self).
    pub fn pipe(&self, peer: WorkerId) -> Pipe<'_> {
        Pipe { me: self, peer, number: 0, shape: PipeShape::default() }
    }
}

/// A pipe that is to be opened. The other worker opens the other end, sooner or later, with the same number and shape.
#[derive(Clone, Copy, Debug)]
#[must_use = "a pipe is opened as a writer or a reader"]
pub struct Pipe<'w> {
    me: &'w Worker,
    peer: WorkerId,
    number: u32,
    shape: PipeShape,
}

impl<'w> Pipe<'w> {
    /// Which of the pipes between the two, in each direction. 0 unless told otherwise.
    pub fn number(mut self, number: u32) -> Self {
        self.number = number;
        self
    }

    /// How many messages may be under way at a time.
    pub fn width(mut self, width: usize) -> Self {
        self.shape.width = width;
        self
    }

    /// The longest message. Up to [`INLINE_BYTES_MAX`] all of them travel in one cache line.
    pub fn message_bytes(mut self, bytes: usize) -> Self {
        self.shape.message_bytes = bytes;
        self
    }

    /// Opens the end that writes, from this worker to the other. Waits for nobody: the pipe is connected when it is first used.
    ///
    /// # Errors
    /// [`Error::Pipe`] with `Width`, `MessageBytes` or `Taken`; [`Error::UnknownWorker`].
    pub fn writer(self) -> Result<PipeWriter<'w>> {
        let name = PipeName { writer: self.me.id(), reader: self.peer, number: self.number };
        PipeWriter::open(self.me, name, self.checked(name)?)
    }

    /// Opens the end that reads what the other worker writes. Waits for nobody.
    ///
    /// *Cost*: the memory of the pipe, which stays until both ends are dropped: 128 B, and for each message of its width 64 B, and, if messages are longer
    /// than [`INLINE_BYTES_MAX`], their length.
    ///
    /// # Errors
    /// [`Error::Pipe`] with `Width`, `MessageBytes`, `Taken` or `Mismatch`; [`Error::UnknownWorker`]; [`Error::Fabric`] with `Memory` when the machine
    /// has none left.
    pub fn reader(self) -> Result<PipeReader<'w>> {
        let name = PipeName { writer: self.peer, reader: self.me.id(), number: self.number };
        PipeReader::open(self.me, name, self.checked(name)?)
    }

    fn checked(&self, pipe: PipeName) -> Result<PipeShape> {
        self.shape.check().map_err(|cause| Error::Pipe { pipe, cause })
    }
}

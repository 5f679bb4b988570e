//! Pipes: streams of messages from one worker to another, with nothing to synchronise by hand.
//!
//! ```no_run
//! # use farside::prelude::*;
//! # fn example(me: &Worker) -> farside::Result<()> {
//! let (writer, reader) = (WorkerId::new(0), WorkerId::new(1));
//! if me.id() == writer {
//!     let mut pipe = me.pipe(reader).width(8).writer()?;
//!     pipe.write(b"copied")?;
//!     // In use by the writer, until it is committed; where memory is mapped this is the reader's memory itself.
//!     let mut loan = pipe.loan(7)?;
//!     loan.copy_from_slice(b"written");
//!     loan.commit()?;
//! } else if me.id() == reader {
//!     let mut pipe = me.pipe(writer).width(8).reader()?;
//!     assert_eq!(*pipe.recv()?, *b"copied");
//!     // In use by the reader, until it is released; it lies where it was written.
//!     let message = pipe.recv()?;
//!     assert_eq!(*message, *b"written");
//!     message.release();
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A pipe is named by its two workers and a [number](Pipe::number). Each opens its end, in any order; nobody waits for that. The pipe is connected at
//! the writer's first use, which needs nobody's attention but that of the reader's service thread.
//!
//! | the writer has | the reader has | |
//! |---|---|---|
//! | [`PipeWriter::write`] | [`PipeReader::recv`], [`PipeReader::read`] | messages that are copied once |
//! | [`PipeWriter::loan`], [`Loan::commit`] | the same | messages that are written where they are read |
//! | [`PipeWriter::offer`], [`PipeWriter::take_back`] | the same | messages that the reader fetches from the writer's memory |
//! | [`Duplex`] | [`Duplex`] | both directions |
//! | [`Sender`] | [`Receiver`] | values |
//! | [`ByteWriter`] | [`ByteReader`] | bytes, as `std::io` has them |
//!
//! What waits does so for the job's deadline or, with `_for`, for another time, and serves calls meanwhile; with `try_` it does not wait,
//! and with `_async` it can be awaited. A pipe that has no room says [`PipeCause::Full`], one whose other end is dropped [`PipeCause::Closed`], after
//! everything was read; and [`Error::PeerLost`] comes after everything that the lost process had written. Wrong directions do not compile.
//!
//! An end that is dropped tells the other, and nobody whether that was heard. [`PipeWriter::close`] says so, and whether what was written was taken, lies at the
//! reader ([`Delivery`]), or is lost (`Undelivered`); [`ByteWriter::close`] flushes, too, and all other ends have theirs.
//!
//! # When to write and when to offer
//!
//! A message that is written has been copied when `write` returns, and is copied no more: so writing is best for what caches hold, which is a MiB or two, and a loan
//! better. An offer costs the writer nothing but a flag, whatever its length, and the reader one copy, at a time that it chooses: it is there sooner when a message
//! is larger than the caches. Over a network that is not mapped it costs a round trip when it is read. Up to [`INLINE_BYTES_MAX`] bytes a message travels in the line of its
//! flag, which saves the reader a line. The bench `pipe-latency` measures where each begins to be worth it (`switch-over`).
//!
//! # What a faulty peer can do
//!
//! Lengths, kinds and places that the other end says are checked before they are used. But where memory is mapped a writer with a bug can change a message while it is
//! read in place, and tear it: so what its *bytes* say is checked by who needs that. [`PipeReader::read`] and the ends of streams and channels look at a copy only.
//!
//! rmalloc and rpipe, slides 23 to 36, with libfabric where those have a layer on MPI-3. The data path and the proof are in the room's README. What
//! is guaranteed is in `docs/memory-model.md`.

mod channel;
mod duplex;
mod ends;
mod error;
mod meeting;
pub(crate) mod message;
mod offer;
mod protocol;
mod reader;
mod shape;
mod stream;
#[cfg(test)]
mod tests;
mod waking;
mod words;
mod writer;

use farside_fabric::WorkerId;

pub use self::channel::{Receiver, Sender};
pub use self::duplex::Duplex;
use self::error::Result;
pub use self::error::{PipeCause, PipeError, PipeName};
pub(crate) use self::meeting::Pipes;
use self::protocol::Corrupt;
pub use self::reader::{PipeReader, Received};
pub use self::shape::{INLINE_BYTES_MAX, PipeShape, WIDTH_MAX};
pub use self::stream::{ByteReader, ByteWriter};
pub use self::writer::{Delivery, Loan, PipeWriter};
use crate::Wire;
use crate::error::Error;
use crate::runtime::worker::Worker;

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
    /// [`PipeError::Pipe`] with `Width`, `MessageBytes` or `Taken`; [`Error::UnknownWorker`].
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
    /// [`PipeError::Pipe`] with `Width`, `MessageBytes`, `Taken` or `Mismatch`; [`Error::UnknownWorker`]; [`Error::Fabric`] with `Memory` when the machine
    /// has none left.
    pub fn reader(self) -> Result<PipeReader<'w>> {
        let name = PipeName { writer: self.peer, reader: self.me.id(), number: self.number };
        PipeReader::open(self.me, name, self.checked(name)?)
    }

    /// Opens both directions: a writer and a reader.
    ///
    /// # Errors
    /// Those of both, and [`PipeError::Pipe`] with `WithItself`.
    pub fn duplex(self) -> Result<Duplex<'w>> {
        if self.peer == self.me.id() {
            let pipe = PipeName { writer: self.peer, reader: self.peer, number: self.number };
            return Err(PipeError::Pipe { pipe, cause: PipeCause::WithItself });
        }
        Ok(Duplex { writer: self.writer()?, reader: self.reader()? })
    }

    /// Opens the end that sends values. They take as many bytes as their arguments do in calls, at most the pipe's
    /// [`message_bytes`](Self::message_bytes).
    ///
    /// # Errors
    /// Those of [`writer`](Self::writer); [`Error::DifferentBinaries`].
    pub fn sender<T: Wire>(self) -> Result<Sender<'w, T>> {
        self.of::<T>()?.writer().map(Sender::new)
    }

    /// Opens the end that receives values.
    ///
    /// # Errors
    /// Those of [`reader`](Self::reader); [`Error::DifferentBinaries`].
    pub fn receiver<T: Wire>(self) -> Result<Receiver<'w, T>> {
        self.of::<T>()?.reader().map(Receiver::new)
    }

    /// With values of a type as messages.
    fn of<T: Wire>(mut self) -> Result<Self> {
        let process = self.me.process_handle();
        let (peer, _) = process.place_of(self.peer).ok_or_else(|| self.me.unknown(self.peer))?;
        if !process.is_alike(peer) {
            return Err(Error::DifferentBinaries { a: process.id(), b: peer }.into());
        }
        self.shape.content = channel::content_of::<T>();
        Ok(self)
    }

    /// Opens the end of a stream of bytes that is written.
    ///
    /// # Errors
    /// Those of [`writer`](Self::writer).
    pub fn byte_writer(self) -> Result<ByteWriter<'w>> {
        self.writer().map(ByteWriter::new)
    }

    /// Opens the end of a stream of bytes that is read.
    ///
    /// # Errors
    /// Those of [`reader`](Self::reader).
    pub fn byte_reader(self) -> Result<ByteReader<'w>> {
        self.reader().map(ByteReader::new)
    }

    fn checked(&self, pipe: PipeName) -> Result<PipeShape> {
        self.shape.check().map_err(|cause| PipeError::Pipe { pipe, cause })
    }
}

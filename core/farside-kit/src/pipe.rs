//! Pipes: streams of messages from one worker to another, without synchronisation by hand.
//!
//! ```no_run
//! # use farside::prelude::*;
//! # use farside_kit::prelude::*;
//! # fn example(me: &Worker) -> farside::Result<()> {
//! let (writer, reader) = (WorkerId::new(0), WorkerId::new(1));
//! if me.id() == writer {
//!     let mut pipe = me.pipe(reader).width(8).writer()?;
//!     pipe.write(b"copied")?;
//!     // The writer's until it is committed; where memory is mapped, the reader's memory itself.
//!     let mut loan = pipe.loan(7)?;
//!     loan.copy_from_slice(b"written");
//!     loan.commit()?;
//! } else if me.id() == reader {
//!     let mut pipe = me.pipe(writer).width(8).reader()?;
//!     assert_eq!(*pipe.recv()?, *b"copied");
//!     // The reader's message until it is released; it lies where it was written.
//!     let message = pipe.recv()?;
//!     assert_eq!(*message, *b"written");
//!     message.release();
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The two workers and a [number](Pipe::number) name a pipe. Each worker opens its end, in any
//! order and without waiting. The writer's first use connects the pipe, which takes progress of the
//! reader's service thread only.
//!
//! | at the writer | at the reader | |
//! |---|---|---|
//! | [`PipeWriter::write`] | [`PipeReader::recv`], [`PipeReader::read`] | messages that are copied once |
//! | [`PipeWriter::loan`], [`Loan::commit`] | the same | messages that are written where they are read |
//! | [`PipeWriter::offer`], [`PipeWriter::take_back`] | the same | messages that the reader fetches from the writer's memory |
//! | [`Duplex`] | [`Duplex`] | both directions |
//! | [`Sender`] | [`Receiver`] | values |
//! | [`ByteWriter`] | [`ByteReader`] | bytes, with the traits of `std::io` |
//!
//! A method that waits does so for the job's deadline, or, with `_for`, for a given time, and
//! serves calls meanwhile. A method with `try_` does not wait, and one with `_async` can be
//! awaited. A pipe without room returns [`PipeCause::Full`]. A pipe whose other end is dropped
//! returns [`PipeCause::Closed`] once everything was read. [`Error::PeerLost`] comes after
//! everything that the lost process had written. Using an end in the wrong direction does not
//! compile.
//!
//! Dropping an end tells the other end, but not whether that succeeded. [`PipeWriter::close`]
//! returns that, and whether the messages were taken, lie at the reader ([`Delivery`]), or are lost
//! (`Undelivered`). [`ByteWriter::close`] also flushes. All other ends have a `close`, too.
//!
//! # When to write and when to offer
//!
//! A written message has been copied when `write` returns, and is not copied again. So writing
//! suits messages that fit into caches, which is a MiB or two, and a loan suits them even better.
//! An offer costs the writer only a flag, whatever its length, and the reader one copy when it
//! wants the message. So messages larger than the caches arrive sooner by offer. Over a network
//! without mapped memory, reading an offer costs a round trip. A message of up to
//! [`INLINE_BYTES_MAX`] bytes shares the cache line of its flag, which saves the reader a line. The
//! bench `pipe-latency` measures where each begins to pay (`switch-over`).
//!
//! # What a faulty peer can do
//!
//! Each end checks the lengths, kinds and places that the other end says before it uses them. But
//! where memory is mapped, a writer with a bug can change a message while it is read in place. A
//! program that relies on the *bytes* of a message must check a copy. [`PipeReader::read`] and the
//! ends of streams and channels read copies only.
//!
//! The design is that of rmalloc and rpipe, slides 23 to 36, with libfabric in place of their layer
//! on MPI-3. The README of this module walks through the data path and proves it.
//! `docs/memory-model.md` has the guarantees.

mod channel;
mod duplex;
mod ends;
mod error;
#[cfg(test)]
mod hostile;
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

use farside::kit::{Sealed, WorkerParts as _};
use farside::wire::check::MessageKind;
use farside::{Error, Wire, Worker};
use farside_fabric::WorkerId;

use self::error::Result;
use self::protocol::Corrupt;
use self::shape::Terms;

pub use self::channel::{Receiver, Sender};
pub use self::duplex::Duplex;
pub use self::error::{PipeCause, PipeError, PipeName};
pub use self::reader::{PipeReader, Received};
pub use self::shape::{INLINE_BYTES_MAX, PipeShape, WIDTH_MAX};
pub use self::stream::{ByteReader, ByteWriter};
pub use self::writer::{Delivery, Loan, PipeWriter};

/// The message of this module, for tests of its decoder.
pub(crate) fn message_kinds() -> [MessageKind; 1] {
    [MessageKind::of::<message::PipeMessage>()]
}

impl From<Corrupt> for PipeCause {
    fn from(corrupt: Corrupt) -> Self {
        let why = match corrupt {
            Corrupt::Kind => "a message of an unknown kind",
            Corrupt::Stamp => "a flag that no writer sets",
            Corrupt::Taken => "a wrong count of messages taken",
        };
        PipeCause::Corrupt { why }
    }
}

/// The method of a worker that opens pipes. The prelude brings it in.
pub trait OpenPipes: Sealed {
    /// Returns a pipe between this worker and `peer`, to be opened at one of its ends. See the
    /// module [`pipe`](self).
    fn pipe(&self, peer: WorkerId) -> Pipe<'_>;
}

impl OpenPipes for Worker {
    fn pipe(&self, peer: WorkerId) -> Pipe<'_> {
        Pipe { me: self, peer, number: 0, shape: PipeShape::default(), type_name: "" }
    }
}

/// A pipe to be opened. The other worker opens the other end, at any time, with the same number and
/// shape.
#[derive(Clone, Copy, Debug)]
#[must_use = "a pipe is opened as a writer or a reader"]
pub struct Pipe<'w> {
    me: &'w Worker,
    peer: WorkerId,
    number: u32,
    shape: PipeShape,
    /// The name of the type of the values, for errors; empty for bytes.
    type_name: &'static str,
}

impl<'w> Pipe<'w> {
    /// Sets the number among the pipes in this direction; 0 by default.
    pub fn number(mut self, number: u32) -> Self {
        self.number = number;
        self
    }

    /// Sets the number of messages that may be in transit.
    pub fn width(mut self, width: usize) -> Self {
        self.shape.width = width;
        self
    }

    /// Sets the length of the longest message. If it is at most [`INLINE_BYTES_MAX`], every message
    /// takes one cache line.
    pub fn message_bytes(mut self, bytes: usize) -> Self {
        self.shape.message_bytes = bytes;
        self
    }

    /// Opens the writing end, from this worker to the other. Does not wait: the first use connects
    /// the pipe.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Width`, `MessageBytes` or `Taken`; [`Error::UnknownWorker`].
    pub fn writer(self) -> Result<PipeWriter<'w>> {
        let name = PipeName { writer: self.me.id(), reader: self.peer, number: self.number };
        PipeWriter::open(self.me, name, self.checked(name)?)
    }

    /// Opens the reading end, from the other worker to this one. Does not wait.
    ///
    /// *Cost*: the memory of the pipe until both ends are dropped: 128 B, 64 B for each message of
    /// its width, and, if messages are longer than [`INLINE_BYTES_MAX`], their length each.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Width`, `MessageBytes`, `Taken` or `Mismatch`;
    /// [`Error::UnknownWorker`]; [`Error::Fabric`] with `Memory` if the machine has none left.
    pub fn reader(self) -> Result<PipeReader<'w>> {
        let name = PipeName { writer: self.peer, reader: self.me.id(), number: self.number };
        PipeReader::open(self.me, name, self.checked(name)?)
    }

    /// Opens both directions: a writer and a reader.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `WithItself`, `Width`, `MessageBytes`, `Taken` or `Mismatch`;
    /// [`Error::UnknownWorker`]; [`Error::Fabric`] with `Memory` if the machine has none left.
    pub fn duplex(self) -> Result<Duplex<'w>> {
        if self.peer == self.me.id() {
            let pipe = PipeName { writer: self.peer, reader: self.peer, number: self.number };
            return Err(PipeError::Pipe { pipe, cause: PipeCause::WithItself });
        }
        Ok(Duplex { writer: self.writer()?, reader: self.reader()? })
    }

    /// Opens the sending end of a channel of values. A value takes as many bytes as it does as the
    /// argument of a call, at most the pipe's [`message_bytes`](Self::message_bytes).
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Width`, `MessageBytes` or `Taken`; [`Error::UnknownWorker`];
    /// [`Error::DifferentBinaries`].
    pub fn sender<T: Wire>(self) -> Result<Sender<'w, T>> {
        self.of::<T>()?.writer().map(Sender::new)
    }

    /// Opens the receiving end of a channel of values.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Width`, `MessageBytes`, `Taken` or `Mismatch`;
    /// [`Error::UnknownWorker`]; [`Error::Fabric`] with `Memory` if the machine has none left;
    /// [`Error::DifferentBinaries`].
    pub fn receiver<T: Wire>(self) -> Result<Receiver<'w, T>> {
        self.of::<T>()?.reader().map(Receiver::new)
    }

    /// Checks that values of `T` can travel, and sets them as the content of the messages.
    fn of<T: Wire>(mut self) -> Result<Self> {
        let process = self.me.process_handle();
        let (peer, _) = process.job.place_of(self.peer).ok_or_else(|| self.me.unknown(self.peer))?;
        if !process.job.is_alike(peer) {
            return Err(Error::DifferentBinaries { a: process.id(), b: peer }.into());
        }
        (self.shape.content, self.type_name) = (farside::wire::type_hash::<T>(), std::any::type_name::<T>());
        Ok(self)
    }

    /// Opens the writing end of a stream of bytes.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Width`, `MessageBytes` or `Taken`; [`Error::UnknownWorker`].
    pub fn byte_writer(self) -> Result<ByteWriter<'w>> {
        self.writer().map(ByteWriter::new)
    }

    /// Opens the reading end of a stream of bytes.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Width`, `MessageBytes`, `Taken` or `Mismatch`;
    /// [`Error::UnknownWorker`]; [`Error::Fabric`] with `Memory` if the machine has none left.
    pub fn byte_reader(self) -> Result<ByteReader<'w>> {
        self.reader().map(ByteReader::new)
    }

    fn checked(&self, pipe: PipeName) -> Result<Terms> {
        Terms::new(self.shape, self.type_name).map_err(|cause| PipeError::Pipe { pipe, cause })
    }
}

//! Pipes in both directions.

use super::error::Result;
use super::reader::PipeReader;
use super::writer::{Delivery, PipeWriter};

/// A pair of pipes, one in each direction, with the same number and shape.
///
/// Made by [`Pipe::duplex`](super::Pipe::duplex), at both workers.
///
/// ```no_run
/// # use farside::prelude::*;
/// # use farside_kit::prelude::*;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let mut pipe = me.pipe(me.neighbor(1)).duplex()?;
/// pipe.writer.write(b"to you")?;
/// assert_eq!(*pipe.reader.recv()?, *b"to you");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Duplex<'w> {
    /// The pipe to the other worker.
    pub writer: PipeWriter<'w>,
    /// The pipe from the other worker.
    pub reader: PipeReader<'w>,
}

impl Duplex<'_> {
    /// Closes both ends, and returns what has become of the messages written here:
    /// [`PipeWriter::close`], then [`PipeReader::close`].
    ///
    /// # Errors
    /// The writer's first: [`PipeError::Pipe`](crate::pipe::PipeError::Pipe) with `Undelivered` if
    /// messages will never be taken, or with `Corrupt`;
    /// [`Error::Deadline`](farside::Error::Deadline) or
    /// [`Error::InHandler`](farside::Error::InHandler) if puts are still in progress. Then the
    /// reader's: [`Error::PeerLost`](farside::Error::PeerLost), or the failure of the transport, if
    /// the other writer could not be notified. Both are closed in any case.
    pub fn close(self) -> Result<Delivery> {
        let (delivery, told) = (self.writer.close(), self.reader.close());
        let delivery = delivery?;
        told.map(|()| delivery)
    }
}

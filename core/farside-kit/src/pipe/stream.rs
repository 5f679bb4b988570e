//! Pipes as streams of bytes.
//!
//! Besides the traits of `std::io`, the ends have the four functions of asynchronous streams, with
//! the names and signatures that `futures-io` and `tokio` share. They do not implement those
//! traits, which exclude each other; an adapter takes one line for each function.

use std::io;
use std::task::{Context, Poll};

use farside::Error;

use super::error::{PipeCause, PipeError, Result};
use super::reader::PipeReader;
use super::writer::PipeWriter;

/// The writing end of a stream of bytes. It gathers bytes into messages, and sends a message when
/// it is as long as the pipe's longest, when the stream is flushed, and when it is dropped. A drop
/// waits for room as a flush does, except in a panic, and ignores errors.
///
/// Made by [`Pipe::byte_writer`](super::Pipe::byte_writer).
///
/// ```no_run
/// # use std::io::Write;
/// # use farside::prelude::*;
/// # use farside_kit::prelude::*;
/// # fn example(me: &Worker) -> std::io::Result<()> {
/// let mut out = me.pipe(me.neighbor(1)).byte_writer()?;
/// writeln!(out, "hello from {}", me.id())?;
/// out.flush()
/// # }
/// ```
#[derive(Debug)]
pub struct ByteWriter<'w> {
    writer: PipeWriter<'w>,
    gathered: Vec<u8>,
}

/// The reading end of a stream of bytes. The stream ends when the writer has closed.
///
/// Made by [`Pipe::byte_reader`](super::Pipe::byte_reader).
#[derive(Debug)]
pub struct ByteReader<'w> {
    pub(super) reader: PipeReader<'w>,
    /// The number of bytes of the next message already read.
    read: usize,
}

impl<'w> ByteWriter<'w> {
    pub(super) fn new(writer: PipeWriter<'w>) -> Self {
        Self { writer, gathered: Vec::new() }
    }

    /// Returns the pipe below.
    pub fn pipe(&self) -> &PipeWriter<'w> {
        &self.writer
    }

    /// Sends the gathered bytes, waits for room if necessary, and ends the stream.
    ///
    /// ```no_run
    /// use std::io::Write;
    /// # use farside::prelude::*;
    /// # use farside_kit::prelude::*;
    /// # fn example(me: &Worker) -> std::io::Result<()> {
    /// let mut out = me.pipe(me.neighbor(1)).byte_writer()?;
    /// write!(out, "all of it, or an error")?;
    /// out.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// The failure to send the gathered bytes. `BrokenPipe` if bytes were written and will never be
    /// read. The stream ends in any case.
    pub fn close(mut self) -> io::Result<()> {
        let flushed = io::Write::flush(&mut self);
        // Bytes that could not be sent now are not sent by the drop either.
        self.gathered.clear();
        flushed?;
        // A byte stream does not distinguish `Taken` from `Delivered`.
        self.writer.settle().map(drop).map_err(io::Error::from)
    }

    /// Takes as much of `data` as there is room for.
    pub fn poll_write(&mut self, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_whole() {
            std::task::ready!(self.poll_flush(context))?;
        }
        Poll::Ready(Ok(self.gather(data)))
    }

    /// Sends the gathered bytes.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.gathered.is_empty() {
            std::task::ready!(self.writer.poll_ready(context))?;
            self.send()?;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the gathered bytes. The stream ends when it is dropped.
    pub fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }

    fn is_whole(&self) -> bool {
        self.gathered.len() == self.writer.shape().message_bytes
    }

    fn gather(&mut self, data: &[u8]) -> usize {
        let room = self.writer.shape().message_bytes - self.gathered.len();
        let taken = room.min(data.len());
        self.gathered.extend(&data[..taken]);
        taken
    }

    /// Sends the gathered bytes, for which there is room.
    fn send(&mut self) -> Result<()> {
        self.writer.try_write(&self.gathered)?;
        self.gathered.clear();
        Ok(())
    }
}

impl io::Write for ByteWriter<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.is_whole() {
            self.flush()?;
        }
        Ok(self.gather(data))
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.gathered.is_empty() {
            self.writer.write(&self.gathered)?;
            self.gathered.clear();
        }
        Ok(())
    }
}

impl Drop for ByteWriter<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // Callers of `flush` or `close` learn of errors; a drop ignores them.
            let _ = io::Write::flush(self);
        }
    }
}

impl<'w> ByteReader<'w> {
    pub(super) fn new(reader: PipeReader<'w>) -> Self {
        Self { reader, read: 0 }
    }

    /// Returns the pipe below.
    pub fn pipe(&self) -> &PipeReader<'w> {
        &self.reader
    }

    /// Closes this end, as dropping it does: see [`PipeReader::close`].
    ///
    /// # Errors
    /// [`Error::PeerLost`], or the failure of the transport, if a writer that has not closed could
    /// not be notified. The stream ends in any case.
    pub fn close(self) -> io::Result<()> {
        Ok(self.reader.close()?)
    }

    /// Reads the bytes that have arrived, as many as fit into `data`. Returns 0 when the writer has
    /// closed.
    pub fn poll_read(&mut self, context: &mut Context<'_>, data: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            match std::task::ready!(self.reader.poll_ready(context)) {
                Ok(()) => {}
                Err(error) => return Poll::Ready(at_the_end(error)),
            }
            if let Some(taken) = self.take(data)? {
                return Poll::Ready(Ok(taken));
            }
        }
    }

    /// Takes the rest of the message that has arrived. Returns `None` if it was empty.
    fn take(&mut self, data: &mut [u8]) -> io::Result<Option<usize>> {
        let read = self.read;
        let Some(message) = self.reader.try_recv()? else { return Ok(None) };
        let Some(taken) = message.copy_to(read, data) else {
            // The message was read in part before, and has changed since.
            let cause = PipeCause::Corrupt { why: "a message that has become shorter" };
            let pipe = message.pipe();
            message.keep();
            return Err(PipeError::Pipe { pipe, cause }.into());
        };
        let is_empty = message.bytes() == 0;
        if read + taken == message.bytes() {
            message.release();
            self.read = 0;
        } else {
            message.keep();
            self.read += taken;
        }
        Ok((!is_empty).then_some(taken))
    }
}

impl io::Read for ByteReader<'_> {
    fn read(&mut self, data: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Err(error) = self.reader.wait_ready() {
                return at_the_end(error);
            }
            if let Some(taken) = self.take(data)? {
                return Ok(taken);
            }
        }
    }
}

/// Ends the stream if the writer has closed; anything else is an error.
fn at_the_end(error: PipeError) -> io::Result<usize> {
    match error {
        PipeError::Pipe { cause: PipeCause::Closed, .. } => Ok(0),
        error => Err(error.into()),
    }
}

impl From<PipeError> for io::Error {
    /// The error itself is the source; for [`PipeError::Job`] it is the error of the job.
    fn from(error: PipeError) -> Self {
        let PipeError::Pipe { cause, .. } = &error else { return Error::from(error).into() };
        let kind = match cause {
            PipeCause::Closed | PipeCause::Undelivered { .. } => io::ErrorKind::BrokenPipe,
            PipeCause::Full { .. } => io::ErrorKind::WouldBlock,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

//! Pipes of values.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::time::Duration;

use farside::wire::{from_bytes_in, write_to};
use farside::{Refused, Wire};

use super::error::{PipeCause, PipeError, Result};
use super::reader::{PipeReader, Received};
use super::writer::{Delivery, PipeWriter};

/// The sending end of a channel of values.
///
/// Made by [`Pipe::sender`](super::Pipe::sender). Values travel like the arguments of calls, among
/// processes of one binary. A value that is sent and never received is not dropped.
pub struct Sender<'w, T> {
    pub(super) writer: PipeWriter<'w>,
    values: PhantomData<fn(T)>,
}

/// The receiving end of a channel of values.
///
/// Made by [`Pipe::receiver`](super::Pipe::receiver).
pub struct Receiver<'w, T> {
    reader: PipeReader<'w>,
    /// A copy of the message that a value is decoded from.
    bytes: Vec<u8>,
    values: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Sender<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&self.writer).finish()
    }
}

impl<T> fmt::Debug for Receiver<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&self.reader).finish()
    }
}

impl<'w, T: Wire> Sender<'w, T> {
    pub(super) fn new(writer: PipeWriter<'w>) -> Self {
        Self { writer, values: PhantomData }
    }

    /// Sends a value. Waits for room if necessary, for at most the job's deadline.
    ///
    /// *Cost*: that of [`PipeWriter::loan`]: the value is written where it is read.
    ///
    /// # Errors
    /// With the value: [`PipeError::Pipe`] with `Closed` if the reader has closed, `Undelivered` if
    /// a message did not reach it, or `Mismatch`, `Memory` or `Corrupt`;
    /// [`Error::TooLarge`](farside::Error::TooLarge) for too long a message;
    /// [`Error::PeerLost`](farside::Error::PeerLost) if the reader is lost;
    /// [`Error::Deadline`](farside::Error::Deadline) if there is no room in time;
    /// [`Error::InHandler`](farside::Error::InHandler) if a handler would have to wait.
    #[track_caller]
    pub fn send(&mut self, value: T) -> Result<(), Refused<T, PipeError>> {
        let time = self.writer.default_time();
        self.send_for(value, time)
    }

    /// Like [`send`](Self::send), but waits for at most `time`.
    ///
    /// # Errors
    /// With the value: [`PipeError::Pipe`] with `Closed` if the reader has closed, `Undelivered` if
    /// a message did not reach it, or `Mismatch`, `Memory` or `Corrupt`;
    /// [`Error::TooLarge`](farside::Error::TooLarge) for too long a message;
    /// [`Error::PeerLost`](farside::Error::PeerLost) if the reader is lost;
    /// [`Error::Deadline`](farside::Error::Deadline) if there is no room in time;
    /// [`Error::InHandler`](farside::Error::InHandler) if a handler would have to wait.
    pub fn send_for(&mut self, value: T, time: Duration) -> Result<(), Refused<T, PipeError>> {
        match self.writer.wait_ready(time) {
            Ok(()) => self.try_send(value),
            Err(error) => Err(Refused { error, arguments: value }),
        }
    }

    /// Like [`send`](Self::send), to be awaited. A future dropped before its end has sent nothing,
    /// and drops the value.
    ///
    /// # Errors
    /// With the value: [`PipeError::Pipe`] with `Closed` if the reader has closed, `Undelivered` if
    /// a message did not reach it, or `Mismatch`, `Memory` or `Corrupt`;
    /// [`Error::TooLarge`](farside::Error::TooLarge) for too long a message;
    /// [`Error::PeerLost`](farside::Error::PeerLost) if the reader is lost.
    pub async fn send_async(&mut self, value: T) -> Result<(), Refused<T, PipeError>> {
        match poll_fn(|context| self.writer.poll_ready(context)).await {
            Ok(()) => self.try_send(value),
            Err(error) => Err(Refused { error, arguments: value }),
        }
    }

    /// Like [`send`](Self::send), but does not wait.
    ///
    /// # Errors
    /// With the value, even if the transport refuses it last: [`PipeError::Pipe`] with `Full` if
    /// there is no room, also while the pipe is not connected: the first use starts connecting.
    /// [`PipeError::Pipe`] with `Closed` if the reader has closed, `Undelivered` if a message did
    /// not reach it, or `Mismatch`, `Memory` or `Corrupt`;
    /// [`Error::TooLarge`](farside::Error::TooLarge) for too long a message;
    /// [`Error::PeerLost`](farside::Error::PeerLost) if the reader is lost.
    pub fn try_send(&mut self, value: T) -> Result<(), Refused<T, PipeError>> {
        let bytes = value.wire_bytes();
        let mut loan = match self.writer.try_loan(bytes) {
            Ok(loan) => loan,
            Err(error) => return Err(Refused { error, arguments: value }),
        };
        write_to(value, &mut loan);
        loan.commit().map_err(|error| Refused { error, arguments: self.take_back() })
    }

    /// Reads the refused value back from the bytes that it was written to.
    fn take_back(&self) -> T {
        let (bytes, process) = self.writer.unsent();
        // SAFETY: `write_to` has just written these bytes, as a value of this type. They were not
        // sent, and are read once.
        let value = unsafe { from_bytes_in(bytes, process) };
        value.expect("a value can be read from what it wrote")
    }

    /// Closes this end, as dropping it does, and returns what has become of the values: see
    /// [`PipeWriter::close`].
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # use farside_kit::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let mut numbers = me.pipe(me.neighbor(1)).sender::<u64>()?;
    /// numbers.send(42)?;
    /// let delivery = numbers.close()?;
    /// # let _ = delivery;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Undelivered` and the number of messages that were not taken and
    /// never will be: the reader has closed, is lost, or could not be reached. [`PipeError::Pipe`]
    /// with `Corrupt`. [`Error::Deadline`](farside::Error::Deadline) or
    /// [`Error::InHandler`](farside::Error::InHandler) if puts are still in progress. This end is
    /// closed in any case.
    pub fn close(self) -> Result<Delivery> {
        self.writer.close()
    }

    /// Returns the pipe that carries the values.
    pub fn pipe(&self) -> &PipeWriter<'w> {
        &self.writer
    }
}

impl<'w, T: Wire> Receiver<'w, T> {
    pub(super) fn new(reader: PipeReader<'w>) -> Self {
        Self { reader, bytes: Vec::new(), values: PhantomData }
    }

    /// Returns the next value. Waits for it if necessary, for at most the job's deadline.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` once the writer has closed and everything was read, or
    /// `Mismatch`, `Memory` or `Corrupt`; [`Error::PeerLost`](farside::Error::PeerLost) once the
    /// writer is lost and everything was read; [`Error::Wire`](farside::Error::Wire) for bytes that
    /// are no such value; [`Error::Deadline`](farside::Error::Deadline) if no message arrives in
    /// time; [`Error::InHandler`](farside::Error::InHandler) if a handler would have to wait.
    #[track_caller]
    pub fn recv(&mut self) -> Result<T> {
        value_in(self.reader.recv()?, &mut self.bytes)
    }

    /// Like [`recv`](Self::recv), but waits for at most `time`.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` once the writer has closed and everything was read, or
    /// `Mismatch`, `Memory` or `Corrupt`; [`Error::PeerLost`](farside::Error::PeerLost) once the
    /// writer is lost and everything was read; [`Error::Wire`](farside::Error::Wire) for bytes that
    /// are no such value; [`Error::Deadline`](farside::Error::Deadline) if no message arrives in
    /// time; [`Error::InHandler`](farside::Error::InHandler) if a handler would have to wait.
    pub fn recv_for(&mut self, time: Duration) -> Result<T> {
        value_in(self.reader.recv_for(time)?, &mut self.bytes)
    }

    /// Like [`recv`](Self::recv), but does not wait: returns `None` if no value has arrived.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` once the writer has closed and everything was read, or
    /// `Mismatch`, `Memory` or `Corrupt`; [`Error::PeerLost`](farside::Error::PeerLost) once the
    /// writer is lost and everything was read; [`Error::Wire`](farside::Error::Wire) for bytes that
    /// are no such value.
    pub fn try_recv(&mut self) -> Result<Option<T>> {
        self.reader.try_recv()?.map(|message| value_in(message, &mut self.bytes)).transpose()
    }

    /// Like [`recv`](Self::recv), to be awaited.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` once the writer has closed and everything was read, or
    /// `Mismatch`, `Memory` or `Corrupt`; [`Error::PeerLost`](farside::Error::PeerLost) once the
    /// writer is lost and everything was read; [`Error::Wire`](farside::Error::Wire) for bytes that
    /// are no such value.
    pub async fn recv_async(&mut self) -> Result<T> {
        value_in(self.reader.recv_async().await?, &mut self.bytes)
    }

    /// Returns the values as they come, until the writer has closed. Waits for each as
    /// [`recv`](Self::recv) does. Ends after the first error.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # use farside_kit::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let mut numbers = me.pipe(me.neighbor(1)).receiver::<u64>()?;
    /// let mut sum = 0;
    /// for number in numbers.iter() {
    ///     sum += number?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Each value can be an error of [`recv`](Self::recv), except `Closed`.
    pub fn iter(&mut self) -> impl Iterator<Item = Result<T>> {
        let mut has_failed = false;
        std::iter::from_fn(move || {
            if has_failed {
                return None;
            }
            match self.recv() {
                Err(PipeError::Pipe { cause: PipeCause::Closed, .. }) => None,
                received => {
                    has_failed = received.is_err();
                    Some(received)
                }
            }
        })
    }

    /// Closes this end, as dropping it does: see [`PipeReader::close`].
    ///
    /// # Errors
    /// [`Error::PeerLost`](farside::Error::PeerLost), or the failure of the transport, if a writer
    /// that has not closed could not be notified. This end is closed in any case.
    pub fn close(self) -> Result<()> {
        self.reader.close()
    }

    /// Returns the pipe that carries the values.
    pub fn pipe(&self) -> &PipeReader<'w> {
        &self.reader
    }
}

/// Decodes the value of a message from a copy in `bytes`, because bytes that are read twice must
/// not change in between.
fn value_in<T: Wire>(message: Received<'_, '_>, bytes: &mut Vec<u8>) -> Result<T> {
    bytes.resize(message.bytes(), 0);
    message.copy_to(0, bytes);
    // SAFETY: the message was written by the sender of a channel whose values are of the type `T`:
    // the ends have compared its `type_hash` and run the same binary, or they would not have been
    // opened. The message is read once, because dropping it releases it.
    let value = unsafe { from_bytes_in(bytes, message.process()) };
    value.map_err(|_| PipeError::Pipe {
        pipe: message.pipe(),
        cause: PipeCause::Corrupt { why: "a message that is no value of its type" },
    })
}

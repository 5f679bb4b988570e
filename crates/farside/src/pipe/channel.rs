//! Pipes of values.

use std::any::TypeId;
use std::fmt;
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::time::Duration;

use super::error::{PipeCause, PipeError, Result};
use super::reader::{PipeReader, Received};
use super::writer::{Delivery, PipeWriter};
use crate::Wire;
use crate::error::Refused;
use crate::wire::{from_bytes_in, write_to};

/// Tells a type from others, in processes of one binary. Never 0.
pub(super) fn content_of<T: Wire>() -> u64 {
    let mut hasher = DefaultHasher::new();
    TypeId::of::<T>().hash(&mut hasher);
    hasher.finish() | 1
}

/// The end of a channel that sends values to one worker.
///
/// Made by [`Pipe::sender`](super::Pipe::sender). The values travel as arguments of calls do, among processes of one binary. One that was sent
/// and is never received is not dropped.
pub struct Sender<'w, T> {
    pub(super) writer: PipeWriter<'w>,
    values: PhantomData<fn(T)>,
}

/// The end of a channel that receives values from one worker.
///
/// Made by [`Pipe::receiver`](super::Pipe::receiver).
pub struct Receiver<'w, T> {
    reader: PipeReader<'w>,
    /// The message that a value is made of.
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

    /// Sends a value, and waits for room if need be, at most for the job's deadline.
    ///
    /// *Cost*: as [`PipeWriter::loan`]: the value is written where it is read.
    ///
    /// # Errors
    /// Those of [`PipeWriter::write`], with the value.
    pub fn send(&mut self, value: T) -> Result<(), Refused<T, PipeError>> {
        let time = self.writer.default_time();
        self.send_for(value, time)
    }

    /// As [`send`](Self::send), and waits for at most `time`.
    ///
    /// # Errors
    /// See there.
    pub fn send_for(&mut self, value: T, time: Duration) -> Result<(), Refused<T, PipeError>> {
        match self.writer.wait_ready(time) {
            Ok(()) => self.try_send(value),
            Err(error) => Err(Refused { error, arguments: value }),
        }
    }

    /// As [`send`](Self::send), to be awaited. Dropped before its end, it has sent nothing, and the value is dropped with it.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), but for waiting.
    pub async fn send_async(&mut self, value: T) -> Result<(), Refused<T, PipeError>> {
        match poll_fn(|context| self.writer.poll_ready(context)).await {
            Ok(()) => self.try_send(value),
            Err(error) => Err(Refused { error, arguments: value }),
        }
    }

    /// As [`send`](Self::send), without waiting.
    ///
    /// # Errors
    /// Those of [`PipeWriter::try_write`], with the value, also if the transport refuses it in the end.
    pub fn try_send(&mut self, value: T) -> Result<(), Refused<T, PipeError>> {
        let bytes = value.wire_bytes();
        let mut loan = match self.writer.try_loan(bytes) {
            Ok(loan) => loan,
            Err(error) => return Err(Refused { error, arguments: value }),
        };
        write_to(value, &mut loan);
        loan.commit().map_err(|error| Refused { error, arguments: self.take_back() })
    }

    /// The value that was written and refused.
    fn take_back(&self) -> T {
        let (bytes, process) = self.writer.unsent();
        // SAFETY: `write_to` has just written these bytes, as a value of this type. They were sent to nobody, and are read once.
        let value = unsafe { from_bytes_in(bytes, process) };
        value.expect("a value can be read from what it wrote")
    }

    /// Closes this end, as dropping it does, and says what has become of the values: [`PipeWriter::close`].
    ///
    /// ```no_run
    /// # use farside::prelude::*;
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
    /// See there.
    pub fn close(self) -> Result<Delivery> {
        self.writer.close()
    }

    /// The pipe that the values go through.
    pub fn pipe(&self) -> &PipeWriter<'w> {
        &self.writer
    }
}

impl<'w, T: Wire> Receiver<'w, T> {
    pub(super) fn new(reader: PipeReader<'w>) -> Self {
        Self { reader, bytes: Vec::new(), values: PhantomData }
    }

    /// The next value. Waits for it if need be, at most for the job's deadline.
    ///
    /// # Errors
    /// Those of [`PipeReader::recv`].
    pub fn recv(&mut self) -> Result<T> {
        value_in(self.reader.recv()?, &mut self.bytes)
    }

    /// As [`recv`](Self::recv), and waits for at most `time`.
    ///
    /// # Errors
    /// See there.
    pub fn recv_for(&mut self, time: Duration) -> Result<T> {
        value_in(self.reader.recv_for(time)?, &mut self.bytes)
    }

    /// As [`recv`](Self::recv), without waiting: `None` when nothing has come.
    ///
    /// # Errors
    /// Those of [`PipeReader::try_recv`].
    pub fn try_recv(&mut self) -> Result<Option<T>> {
        self.reader.try_recv()?.map(|message| value_in(message, &mut self.bytes)).transpose()
    }

    /// As [`recv`](Self::recv), to be awaited.
    ///
    /// # Errors
    /// Those of [`PipeReader::try_recv`].
    pub async fn recv_async(&mut self) -> Result<T> {
        value_in(self.reader.recv_async().await?, &mut self.bytes)
    }

    /// Closes this end, as dropping it does: [`PipeReader::close`].
    ///
    /// # Errors
    /// See there.
    pub fn close(self) -> Result<()> {
        self.reader.close()
    }

    /// The pipe that the values come through.
    pub fn pipe(&self) -> &PipeReader<'w> {
        &self.reader
    }
}

/// The value that a message is, of which `bytes` holds a copy meanwhile: what is looked at twice must not change.
fn value_in<T: Wire>(message: Received<'_, '_>, bytes: &mut Vec<u8>) -> Result<T> {
    bytes.resize(message.bytes(), 0);
    message.copy_to(0, bytes);
    // SAFETY: the message was written by the sender of a channel whose values are of the type `T`: both ends have told each other `content_of` it,
    // and run the same binary, or they would not have been opened. It is read once, for then it is released.
    let value = unsafe { from_bytes_in(bytes, message.process()) };
    value.map_err(|_| PipeError::Pipe {
        pipe: message.pipe(),
        cause: PipeCause::Corrupt { why: "a message that is no value of its type" },
    })
}

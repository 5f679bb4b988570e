//! The end of a pipe that reads.

use std::ops::Deref;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use farside_fabric::ProcessId;

use super::ends::{Bell, Inlet};
use super::error::{PipeCause, PipeName};
use super::protocol::{Flag, Kind, Reading};
use super::shape::{INLINE_BYTES_MAX, PipeShape};
use crate::error::{Error, Result};
use crate::job::worker::Worker;

/// The end of a pipe that reads. Dropped, it tells the writer.
///
/// Made by [`Pipe::reader`](super::Pipe::reader).
#[derive(Debug)]
pub struct PipeReader<'w> {
    me: &'w Worker,
    name: PipeName,
    peer: ProcessId,
    inlet: Arc<Inlet>,
    reading: Reading,
    /// How the writer learns what was taken, from when there is something to tell.
    teller: Option<Teller>,
}

#[derive(Debug)]
enum Teller {
    /// It sees the count, and is rung.
    Bell(Bell),
    /// Its process is sent a message.
    Message,
}

impl<'w> PipeReader<'w> {
    pub(super) fn open(me: &'w Worker, name: PipeName, shape: PipeShape) -> Result<Self> {
        let process = me.process_handle();
        let (peer, _) = process.place_of(name.writer).ok_or_else(|| me.unknown(name.writer))?;
        let inlet = process.open_inlet(name, shape)?;
        Ok(Self { me, name, peer, inlet, reading: Reading::new(shape.width), teller: None })
    }

    /// Which pipe it is.
    pub fn name(&self) -> PipeName {
        self.name
    }

    /// How many messages of what size it holds.
    pub fn shape(&self) -> PipeShape {
        self.inlet.slots.shape()
    }

    /// How many messages were read.
    pub fn read_count(&self) -> u64 {
        self.reading.read()
    }

    /// The next message. Waits for it if need be, at most for the job's deadline.
    ///
    /// *Cost*: nothing is copied: the message is read where it lies, in memory of this process. Its slot is the writer's again when the
    /// [`Received`] is released or dropped.
    ///
    /// # Errors
    /// [`Error::Pipe`] with `Closed` when the writer is and everything was read, or with what else is wrong with the pipe; [`Error::PeerLost`] when
    /// the writer is lost and everything was read that it had written; [`Error::Deadline`]; [`Error::InHandler`] when it has to wait and must not.
    pub fn recv(&mut self) -> Result<Received<'_, 'w>> {
        self.recv_for(self.me.default_deadline())
    }

    /// As [`recv`](Self::recv), and waits for at most `time`.
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn recv_for(&mut self, time: Duration) -> Result<Received<'_, 'w>> {
        let flag = match self.next()? {
            Some(flag) => flag,
            None => self.wait(time)?,
        };
        Ok(Received { reader: self, flag })
    }

    /// As [`recv`](Self::recv), without waiting: `None` when nothing has come.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv), but for waiting.
    #[inline]
    pub fn try_recv(&mut self) -> Result<Option<Received<'_, 'w>>> {
        let flag = self.next()?;
        Ok(flag.map(|flag| Received { reader: self, flag }))
    }

    /// Whether there is a message to be read.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv), but for waiting.
    pub fn ready(&mut self) -> Result<bool> {
        Ok(self.next()?.is_some())
    }

    /// Reads the next message into `data`, as much of it as has room, and says how long it is. Waits for it if need be, at most for the job's
    /// deadline.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub fn read(&mut self, data: &mut [u8]) -> Result<usize> {
        let message = self.recv()?;
        let fits = message.len().min(data.len());
        data[..fits].copy_from_slice(&message[..fits]);
        Ok(message.len())
    }

    /// The flag of the next message, checked.
    #[inline]
    fn next(&self) -> Result<Option<Flag>> {
        match self.reading.look(&self.inlet.slots) {
            Ok(Some(flag)) if self.is_possible(flag) => Ok(Some(flag)),
            Ok(Some(_)) => Err(self.error(PipeCause::Corrupt { why: "a message of an impossible length" })),
            Ok(None) => self.nothing(),
            Err(corrupt) => Err(self.error(corrupt.into())),
        }
    }

    fn is_possible(&self, flag: Flag) -> bool {
        let fits = flag.bytes <= self.inlet.slots.shape().message_bytes;
        match flag.kind {
            Kind::Inline => fits && flag.bytes <= INLINE_BYTES_MAX,
            Kind::Slot => fits && flag.bytes > INLINE_BYTES_MAX,
            Kind::Offered => false,
        }
    }

    /// There is no message: is one to be expected?
    #[cold]
    fn nothing(&self) -> Result<Option<Flag>> {
        let lost = self.me.process_handle().lost(self.peer);
        let sent_in_all = self.inlet.sent_in_all();
        if lost.is_none() && sent_in_all.is_none() {
            return match self.inlet.mismatch() {
                None => Ok(None),
                Some(there) => Err(self.error(PipeCause::Mismatch { here: self.shape(), there })),
            };
        }
        // What was written before is seen now, if it was not before.
        match self.reading.look(&self.inlet.slots) {
            Ok(Some(_)) => return self.next(),
            Err(corrupt) => return Err(self.error(corrupt.into())),
            Ok(None) => {}
        }
        match (sent_in_all, lost) {
            (Some(sent), _) if sent == self.reading.read() => Err(self.error(PipeCause::Closed)),
            (_, Some(lost)) => Err(lost),
            // The last messages are under way by themselves.
            (Some(sent), None) if sent > self.reading.read() => Ok(None),
            _ => Err(self.error(PipeCause::Corrupt { why: "fewer messages than came" })),
        }
    }

    #[cold]
    fn wait(&mut self, time: Duration) -> Result<Flag> {
        self.me.wait_until("waiting for a message of a pipe", time, |_| self.next().transpose())
    }

    /// Gives the slot of the next message back.
    #[inline]
    fn release(&mut self) {
        self.reading.release(&self.inlet.slots);
        match &self.teller {
            Some(Teller::Bell(bell)) => bell.ring(),
            _ => self.tell_writer(),
        }
    }

    #[cold]
    fn tell_writer(&mut self) {
        let process = self.me.process_handle();
        if self.teller.is_none() {
            let bell = if self.inlet.by_message() { None } else { Bell::of(process, self.name.writer).ok().flatten() };
            self.teller = Some(bell.map_or(Teller::Message, Teller::Bell));
        }
        match (&self.teller, self.inlet.session()) {
            (Some(Teller::Bell(bell)), _) => bell.ring(),
            (_, Some(session)) => process.tell_taken(self.name, session, self.reading.read()),
            (_, None) => {}
        }
    }

    fn error(&self, cause: PipeCause) -> Error {
        Error::Pipe { pipe: self.name, cause }
    }
}

impl Drop for PipeReader<'_> {
    fn drop(&mut self) {
        self.me.process_handle().close_inlet(self.name, self.reading.read());
    }
}

/// A message that has come, which is the reader's alone until it is [released](Self::release) or dropped.
///
/// It derefs to its bytes.
#[derive(Debug)]
pub struct Received<'a, 'w> {
    reader: &'a mut PipeReader<'w>,
    flag: Flag,
}

impl Received<'_, '_> {
    /// Gives the slot back to the writer. Dropping does the same.
    pub fn release(self) {}
}

impl Deref for Received<'_, '_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let place = self.reader.inlet.slots.place(self.reader.reading.slot(), self.flag.bytes);
        // SAFETY: the place is mapped as long as the inlet lives, and `is_possible` has found that it has room for so many bytes. The flag was
        // seen, so by the protocol (`protocol`) the writer has written the slot before and touches it no more until it is released, which
        // takes `self`. No other process is given this memory; it has no handle.
        unsafe { slice::from_raw_parts(place, self.flag.bytes) }
    }
}

impl Drop for Received<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        self.reader.release();
    }
}

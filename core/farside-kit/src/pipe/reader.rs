//! The reading end of a pipe.

use std::future::poll_fn;
use std::hint;
use std::ops::Deref;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use farside::kit::{Process, Wait, WorkerParts as _};
use farside::{Whom, Worker};
use farside_fabric::ProcessId;
use farside_fabric::wait::WaitPolicy;
use farside_launch::kill_point::KillPoint;
use farside_sys::racy;

use super::ends::{Bell, Inlet};
use super::error::{PipeCause, PipeError, PipeName, Result};
use super::meeting::Meeting;
use super::offer::{Fetched, Place, Source};
use super::protocol::{Flag, Kind, Reading};
use super::shape::{PipeShape, Terms};
use super::waking::Waiting;

/// The number of times that a reader looks at the flag alone before it waits as all workers do and
/// serves calls between its looks. Serving takes longer than a cache line's transfer. The looks
/// together take less than 2 µs.
const QUICK_LOOKS: u32 = 50;

/// The time for which releasing a message, perhaps in a drop, waits for the connection to the
/// writer's process.
const CONNECT_TIME: Duration = Duration::from_millis(10);

/// The reading end of a pipe. Dropping it tells the writer.
///
/// Made by [`Pipe::reader`](super::Pipe::reader).
#[derive(Debug)]
pub struct PipeReader<'w> {
    me: &'w Worker,
    name: PipeName,
    peer: ProcessId,
    pub(super) inlet: Arc<Inlet>,
    reading: Reading,
    /// The way in which the writer learns what was taken, once there is something to report.
    teller: Option<Teller>,
    /// The number of messages read at which to try again to connect to the writer's process.
    connects_at: u64,
    /// The next message, if it was offered and fetched.
    pub(super) fetched: Fetched,
    waiting: Waiting,
    is_closed: bool,
}

#[derive(Debug)]
enum Teller {
    /// The writer sees the count, and its doorbell is rung.
    Bell(Bell),
    /// The writer's process gets a message.
    Message,
}

impl<'w> PipeReader<'w> {
    pub(super) fn open(me: &'w Worker, name: PipeName, terms: Terms) -> Result<Self> {
        let process = me.process_handle();
        let (peer, _) = process.job.place_of(name.writer).ok_or_else(|| me.unknown(name.writer))?;
        let width = terms.shape.width;
        let inlet = Meeting(process).open_inlet(name, terms)?;
        Ok(Self {
            me,
            name,
            peer,
            inlet,
            reading: Reading::new(width),
            teller: None,
            connects_at: 0,
            fetched: Fetched::default(),
            waiting: Waiting::default(),
            is_closed: false,
        })
    }

    /// Returns the pipe's name.
    pub fn name(&self) -> PipeName {
        self.name
    }

    /// Returns the number and size of the messages that the pipe holds.
    pub fn shape(&self) -> PipeShape {
        self.inlet.slots.shape()
    }

    /// Returns the number of messages read.
    pub fn read_count(&self) -> u64 {
        self.reading.read()
    }

    /// Returns the next message. Waits for it if necessary, for at most the job's deadline.
    ///
    /// *Cost*: no copy: the message is read where it lies, in memory of this process. Releasing or
    /// dropping the [`Received`] gives its slot back to the writer.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` once the writer has closed and everything was read, or
    /// `Mismatch`, `Memory` or `Corrupt`; [`Error::PeerLost`](farside::Error::PeerLost) once the
    /// writer is lost and everything was read; [`Error::Deadline`](farside::Error::Deadline) if no
    /// message arrives in time; [`Error::InHandler`](farside::Error::InHandler) if a handler would
    /// have to wait.
    #[track_caller]
    pub fn recv(&mut self) -> Result<Received<'_, 'w>> {
        self.recv_for(self.me.default_deadline())
    }

    /// Like [`recv`](Self::recv), but waits for at most `time`.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` once the writer has closed and everything was read, or
    /// `Mismatch`, `Memory` or `Corrupt`; [`Error::PeerLost`](farside::Error::PeerLost) once the
    /// writer is lost and everything was read; [`Error::Deadline`](farside::Error::Deadline) if no
    /// message arrives in time; [`Error::InHandler`](farside::Error::InHandler) if a handler would
    /// have to wait.
    #[inline]
    #[track_caller]
    pub fn recv_for(&mut self, time: Duration) -> Result<Received<'_, 'w>> {
        let flag = match self.next()? {
            Some(flag) => flag,
            None => self.wait(time)?,
        };
        self.received(flag)
    }

    /// Like [`recv`](Self::recv), to be awaited. A future dropped before its end has taken nothing.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` once the writer has closed and everything was read, or
    /// `Mismatch`, `Memory` or `Corrupt`; [`Error::PeerLost`](farside::Error::PeerLost) once the
    /// writer is lost and everything was read.
    pub async fn recv_async(&mut self) -> Result<Received<'_, 'w>> {
        poll_fn(|context| self.poll_ready(context)).await?;
        self.recv()
    }

    /// Returns whether there is a message to read. If not, it wakes the task once there may be one.
    /// The worker must make [progress](Worker::progress) meanwhile, as [`Worker::block_on`] does.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` once the writer has closed and everything was read, or
    /// `Mismatch`, `Memory` or `Corrupt`; [`Error::PeerLost`](farside::Error::PeerLost) once the
    /// writer is lost and everything was read.
    pub fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.ready()? {
            self.waiting.end();
            return Poll::Ready(Ok(()));
        }
        let (inlet, reading, peer) = (self.inlet.clone(), self.reading.clone(), self.peer);
        self.waiting.wake_when(self.me, context.waker(), move |me| {
            !matches!(reading.look(&inlet.slots), Ok(None))
                || inlet.sent_in_all().is_some()
                || inlet.mismatch().is_some()
                || me.process_handle().losses.is_lost(peer)
        });
        Poll::Pending
    }

    /// Like [`recv`](Self::recv), but does not wait: returns `None` if no message has arrived. A
    /// message offered from memory that is not mapped here is still fetched, which takes a round
    /// trip.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` once the writer has closed and everything was read, or
    /// `Mismatch`, `Memory` or `Corrupt`; [`Error::PeerLost`](farside::Error::PeerLost) once the
    /// writer is lost and everything was read.
    #[inline]
    pub fn try_recv(&mut self) -> Result<Option<Received<'_, 'w>>> {
        match self.next()? {
            Some(flag) => self.received(flag).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the message of this flag, fetched if it was offered.
    #[inline]
    fn received(&mut self, flag: Flag) -> Result<Received<'_, 'w>> {
        if flag.kind == Kind::Offered {
            self.fetch(flag)?;
        }
        Ok(Received { reader: self, flag, is_kept: false })
    }

    /// Returns the memory of the next message, which was offered.
    fn offered(&self, flag: Flag) -> Result<Source> {
        let corrupt = || self.error(PipeCause::Corrupt { why: "an offer of memory that is not its writer's" });
        let place = Place::read(&self.inlet.slots, self.reading.slot(), self.peer, flag.bytes).ok_or_else(corrupt)?;
        Source::attach(self.me, place)?.ok_or_else(corrupt)
    }

    /// Fetches the next message, which was offered. Attaches its memory first, so that a false
    /// length allocates nothing.
    #[cold]
    fn fetch(&mut self, flag: Flag) -> Result<()> {
        let source = self.offered(flag)?;
        self.fetched.fetch(self.me, self.name, &source, flag.bytes)
    }

    /// Returns whether there is a message to read.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` once the writer has closed and everything was read, or
    /// `Mismatch`, `Memory` or `Corrupt`; [`Error::PeerLost`](farside::Error::PeerLost) once the
    /// writer is lost and everything was read.
    pub fn ready(&mut self) -> Result<bool> {
        Ok(self.next()?.is_some())
    }

    /// Reads as much of the next message as fits into `data`, and returns the message's length.
    /// Waits for the message if necessary, for at most the job's deadline.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` once the writer has closed and everything was read, or
    /// `Mismatch`, `Memory` or `Corrupt`; [`Error::PeerLost`](farside::Error::PeerLost) once the
    /// writer is lost and everything was read; [`Error::Deadline`](farside::Error::Deadline) if no
    /// message arrives in time; [`Error::InHandler`](farside::Error::InHandler) if a handler would
    /// have to wait.
    pub fn read(&mut self, data: &mut [u8]) -> Result<usize> {
        let flag = match self.next()? {
            Some(flag) => flag,
            None => self.wait(self.me.default_deadline())?,
        };
        let fits = flag.bytes.min(data.len());
        if flag.kind == Kind::Offered {
            self.offered(flag)?.read(self.me, &mut data[..fits])?;
            self.release();
        } else {
            self.received(flag)?.copy_to(0, data);
        }
        Ok(flag.bytes)
    }

    /// Waits until there is a message.
    #[track_caller]
    pub(super) fn wait_ready(&mut self) -> Result<()> {
        if self.next()?.is_none() {
            self.wait(self.me.default_deadline())?;
        }
        Ok(())
    }

    /// Returns the checked flag of the next message, if it has arrived.
    #[inline]
    fn next(&self) -> Result<Option<Flag>> {
        match self.reading.look(&self.inlet.slots) {
            Ok(Some(flag)) => self.possible(flag).map(Some),
            Ok(None) => self.nothing(),
            Err(corrupt) => Err(self.error(corrupt.into())),
        }
    }

    /// Returns the flag if a message of this pipe can have it.
    #[inline]
    fn possible(&self, flag: Flag) -> Result<Flag> {
        match self.shape().can_have(flag) {
            true => Ok(flag),
            false => Err(self.error(PipeCause::Corrupt { why: "a message of an impossible length" })),
        }
    }

    /// Decides what it means that no message has arrived.
    #[cold]
    fn nothing(&self) -> Result<Option<Flag>> {
        let lost = self.me.process_handle().losses.lost(self.peer);
        let sent_in_all = self.inlet.sent_in_all();
        if lost.is_none() && sent_in_all.is_none() {
            return match self.inlet.mismatch() {
                None => Ok(None),
                Some(there) => Err(self.error(self.inlet.terms.mismatch(there))),
            };
        }
        // Looks again: messages written before the loss or the close are visible now.
        match self.reading.look(&self.inlet.slots) {
            Ok(Some(flag)) => return self.possible(flag).map(Some),
            Err(corrupt) => return Err(self.error(corrupt.into())),
            Ok(None) => {}
        }
        match (sent_in_all, lost) {
            (Some(sent), _) if sent == self.reading.read() => Err(self.error(PipeCause::Closed)),
            (_, Some(lost)) => Err(lost.into()),
            // The last messages are in transit and need nothing from the writer.
            (Some(sent), None) if sent > self.reading.read() => Ok(None),
            _ => Err(self.error(PipeCause::Corrupt { why: "fewer messages than came" })),
        }
    }

    #[cold]
    #[track_caller]
    fn wait(&mut self, time: Duration) -> Result<Flag> {
        self.fetched.note_wait();
        // If workers share CPUs, each look would take time from others.
        if self.me.process_handle().waits.policy == WaitPolicy::DEDICATED && !self.me.is_in_handler() {
            for _ in 0..QUICK_LOOKS {
                if let Ok(Some(_)) = self.reading.look(&self.inlet.slots) {
                    return self.next()?.ok_or_else(|| self.error(PipeCause::Corrupt { why: "a flag that is gone" }));
                }
                hint::spin_loop();
            }
        }
        let wait = Wait::here(
            "waiting for a message of a pipe (the other worker must have its writer of this number open, and write)",
        );
        let me = self.me;
        me.wait_at(wait.on(Whom::Worker(self.name.writer)), time, |_| self.next().transpose().map(Ok))?
    }

    /// Gives the slot of the next message back to the writer.
    #[inline]
    fn release(&mut self) {
        self.me.process_handle().hot_kill_point(KillPoint::PipeRead);
        self.me.end_accesses();
        self.reading.release(&self.inlet.slots);
        match &self.teller {
            Some(Teller::Bell(bell)) => bell.ring(),
            _ => self.tell_writer(),
        }
    }

    #[cold]
    fn tell_writer(&mut self) {
        let process = self.me.process_handle();
        if self.teller.is_none() && self.inlet.by_message() {
            self.teller = Some(Teller::Message);
        }
        if self.teller.is_none() && self.reading.read() >= self.connects_at {
            match Bell::of_within(process, self.name.writer, CONNECT_TIME) {
                Ok(bell) => self.teller = Some(bell.map_or(Teller::Message, Teller::Bell)),
                // The writer's service thread has not answered in time. A message does the same,
                // more slowly. The next attempts become ever rarer.
                Err(_) => self.connects_at = self.reading.read().saturating_mul(2),
            }
        }
        match (&self.teller, self.inlet.session()) {
            (Some(Teller::Bell(bell)), _) => bell.ring(),
            (_, Some(session)) => Meeting(process).tell_taken(self.name, session, self.reading.read()),
            (_, None) => {}
        }
    }

    fn error(&self, cause: PipeCause) -> PipeError {
        PipeError::Pipe { pipe: self.name, cause }
    }
}

impl PipeReader<'_> {
    /// Closes this end, as dropping it does. From then on the writer gets `Closed` for its writes.
    /// Unread messages are lost.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # use farside_kit::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let mut pipe = me.pipe(me.neighbor(1)).reader()?;
    /// let first = pipe.recv()?.to_vec();
    /// // Enough is known.
    /// Ok(pipe.close()?)
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::PeerLost`](farside::Error::PeerLost), or the failure of the transport, if a writer
    /// that has not closed could not be notified. This end is closed in any case.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_closed, true) {
            return Ok(());
        }
        Ok(Meeting(self.me.process_handle()).close_inlet(self.name, self.reading.read())?)
    }
}

impl Drop for PipeReader<'_> {
    fn drop(&mut self) {
        // Callers of `close` learn whether the writer was notified; a drop ignores it.
        let _ = self.end();
    }
}

/// A message that has arrived. It belongs to the reader until it is [released](Self::release) or
/// dropped.
///
/// It dereferences to its bytes. The reader has at most one, and none whose slot the writer may
/// have again:
///
/// ```compile_fail,E0382
/// # use farside_kit::pipe::Received;
/// fn read_after_it_was_released(message: Received<'_, '_>) -> u8 {
///     message.release();
///     message[0]
/// }
/// ```
///
/// ```compile_fail,E0499
/// # use farside_kit::pipe::PipeReader;
/// fn two_at_a_time(reader: &mut PipeReader<'_>) -> farside::Result<bool> {
///     let (one, another) = (reader.recv()?, reader.recv()?);
///     Ok(*one == *another)
/// }
/// ```
#[derive(Debug)]
pub struct Received<'a, 'w> {
    reader: &'a mut PipeReader<'w>,
    flag: Flag,
    /// The message stays in its slot, to be read again.
    is_kept: bool,
}

impl Received<'_, '_> {
    /// Returns the name of the message's pipe.
    pub fn pipe(&self) -> PipeName {
        self.reader.name
    }

    /// Returns the process of the reader.
    pub(super) fn process(&self) -> &Arc<Process> {
        self.reader.me.process_handle()
    }

    /// Returns the message's length.
    pub(super) fn bytes(&self) -> usize {
        self.flag.bytes
    }

    /// Copies the message's bytes from `from` on into `data`, and returns how many fit. Returns
    /// `None` if the message is shorter than `from`.
    ///
    /// Makes no reference to the slot: if a faulty writer changes it meanwhile, the copy is torn,
    /// and nothing worse happens.
    #[inline]
    pub(super) fn copy_to(&self, from: usize, data: &mut [u8]) -> Option<usize> {
        let bytes = self.flag.bytes.checked_sub(from)?.min(data.len());
        if self.flag.kind == Kind::Offered {
            data[..bytes].copy_from_slice(&self.reader.fetched.message()[from..from + bytes]);
            return Some(bytes);
        }
        let place = self.reader.inlet.slots.place(self.reader.reading.slot(), self.flag.bytes);
        // SAFETY: the place is mapped as long as the inlet lives, and `PipeShape::can_have` found
        // that it has room for the message; these are some of the message's bytes. `data` has room
        // for them, and nothing else accesses it.
        unsafe { racy::copy_in(place.wrapping_add(from), data.as_mut_ptr(), bytes) };
        Some(bytes)
    }

    /// Leaves the message in its slot, to be received again.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }

    /// Gives the slot back to the writer, as dropping does.
    pub fn release(self) {}
}

impl Deref for Received<'_, '_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        if self.flag.kind == Kind::Offered {
            return self.reader.fetched.message();
        }
        let place = self.reader.inlet.slots.place(self.reader.reading.slot(), self.flag.bytes);
        // SAFETY: the place is mapped as long as the inlet lives, and `PipeShape::can_have` found
        // that it has room for `bytes`. The flag was seen, so by the protocol (`protocol`) the
        // writer wrote the slot before, and does not touch it again until it is released, which
        // consumes `self`. No other process can reach this memory, since no handle leads to it.
        unsafe { slice::from_raw_parts(place, self.flag.bytes) }
    }
}

impl Drop for Received<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_kept {
            self.reader.release();
        }
    }
}

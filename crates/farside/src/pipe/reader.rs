//! The end of a pipe that reads.

use std::future::poll_fn;
use std::hint;
use std::ops::Deref;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use farside_fabric::ProcessId;
use farside_fabric::wait::WaitPolicy;
use farside_sys::racy;

use super::ends::{Bell, Inlet};
use super::error::{PipeCause, PipeError, PipeName, Result};
use super::offer::{Fetched, Place, Source};
use super::protocol::{Flag, Kind, Reading};
use super::shape::PipeShape;
use super::waking::Waiting;
use crate::runtime::process::Process;
use crate::runtime::worker::Worker;
use farside_launch::kill_point::KillPoint;

/// Looks at the flag alone, before a reader waits as everything does and serves calls between its looks, which takes longer than the way of a
/// cache line: together less than 2 us.
const QUICK_LOOKS: u32 = 50;

/// For so long a message that is released, which may be in a drop, waits for the writer's process to be connected.
const CONNECT_TIME: Duration = Duration::from_millis(10);

/// The end of a pipe that reads. Dropped, it tells the writer.
///
/// Made by [`Pipe::reader`](super::Pipe::reader).
#[derive(Debug)]
pub struct PipeReader<'w> {
    me: &'w Worker,
    name: PipeName,
    peer: ProcessId,
    pub(super) inlet: Arc<Inlet>,
    reading: Reading,
    /// How the writer learns what was taken, from when there is something to tell.
    teller: Option<Teller>,
    /// Where it must connect to the writer's process for that, it tries when so many messages were read.
    connects_at: u64,
    /// The next message, if it was fetched from where it was offered.
    pub(super) fetched: Fetched,
    waiting: Waiting,
    is_closed: bool,
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
        Ok(Self {
            me,
            name,
            peer,
            inlet,
            reading: Reading::new(shape.width),
            teller: None,
            connects_at: 0,
            fetched: Fetched::default(),
            waiting: Waiting::default(),
            is_closed: false,
        })
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
    /// [`PipeError::Pipe`] with `Closed` when the writer is and everything was read, or with what else is wrong with the pipe; [`Error::PeerLost`] when
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
        self.received(flag)
    }

    /// As [`recv`](Self::recv), to be awaited. Dropped before its end, it has taken nothing.
    ///
    /// # Errors
    /// Those of [`try_recv`](Self::try_recv).
    pub async fn recv_async(&mut self) -> Result<Received<'_, 'w>> {
        poll_fn(|context| self.poll_ready(context)).await?;
        self.recv()
    }

    /// Whether there is a message to be read; if not, the task is woken when that may be. Its worker must make
    /// [progress](Worker::progress) meanwhile, as [`Worker::block_on`] does.
    ///
    /// # Errors
    /// Those of [`ready`](Self::ready).
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
                || me.process_handle().is_lost(peer)
        });
        Poll::Pending
    }

    /// As [`recv`](Self::recv), without waiting: `None` when nothing has come. A message that was offered by one whose memory is not mapped here is
    /// fetched all the same, which takes a round trip.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv), but for waiting.
    #[inline]
    pub fn try_recv(&mut self) -> Result<Option<Received<'_, 'w>>> {
        match self.next()? {
            Some(flag) => self.received(flag).map(Some),
            None => Ok(None),
        }
    }

    /// The message of this flag, fetched if need be.
    #[inline]
    fn received(&mut self, flag: Flag) -> Result<Received<'_, 'w>> {
        if flag.kind == Kind::Offered {
            self.fetch(flag)?;
        }
        Ok(Received { reader: self, flag, is_kept: false })
    }

    /// Where the next message is, which was offered.
    fn offered(&self, flag: Flag) -> Result<Source> {
        let corrupt = || self.error(PipeCause::Corrupt { why: "an offer of memory that is not its writer's" });
        let place = Place::read(&self.inlet.slots, self.reading.slot(), self.peer, flag.bytes).ok_or_else(corrupt)?;
        Source::attach(self.me, place)?.ok_or_else(corrupt)
    }

    /// Fetches the next message, which was offered. Only what is there is given room to.
    #[cold]
    fn fetch(&mut self, flag: Flag) -> Result<()> {
        let source = self.offered(flag)?;
        self.fetched.fetch(self.me, self.name, &source, flag.bytes)
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
    pub(super) fn wait_ready(&mut self) -> Result<()> {
        if self.next()?.is_none() {
            self.wait(self.me.default_deadline())?;
        }
        Ok(())
    }

    /// The flag of the next message, checked.
    #[inline]
    fn next(&self) -> Result<Option<Flag>> {
        match self.reading.look(&self.inlet.slots) {
            Ok(Some(flag)) => self.possible(flag).map(Some),
            Ok(None) => self.nothing(),
            Err(corrupt) => Err(self.error(corrupt.into())),
        }
    }

    /// What a flag says, if it can be.
    #[inline]
    fn possible(&self, flag: Flag) -> Result<Flag> {
        match self.shape().can_have(flag) {
            true => Ok(flag),
            false => Err(self.error(PipeCause::Corrupt { why: "a message of an impossible length" })),
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
            Ok(Some(flag)) => return self.possible(flag).map(Some),
            Err(corrupt) => return Err(self.error(corrupt.into())),
            Ok(None) => {}
        }
        match (sent_in_all, lost) {
            (Some(sent), _) if sent == self.reading.read() => Err(self.error(PipeCause::Closed)),
            (_, Some(lost)) => Err(lost.into()),
            // The last messages are under way by themselves.
            (Some(sent), None) if sent > self.reading.read() => Ok(None),
            _ => Err(self.error(PipeCause::Corrupt { why: "fewer messages than came" })),
        }
    }

    #[cold]
    fn wait(&mut self, time: Duration) -> Result<Flag> {
        self.fetched.note_wait();
        // Without a CPU for everybody each look is time taken from others.
        if self.me.process_handle().wait_policy() == WaitPolicy::DEDICATED && !self.me.is_in_handler() {
            for _ in 0..QUICK_LOOKS {
                if let Ok(Some(_)) = self.reading.look(&self.inlet.slots) {
                    return self.next()?.ok_or_else(|| self.error(PipeCause::Corrupt { why: "a flag that is gone" }));
                }
                hint::spin_loop();
            }
        }
        self.me.wait_until(
            "waiting for a message of a pipe (the other worker must have its writer of this number open, and write)",
            time,
            |_| self.next().transpose().map(Ok),
        )?
    }

    /// Gives the slot of the next message back.
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
                // Its service thread has not answered in time. A message does the same, if slower; this is tried again ever more rarely.
                Err(_) => self.connects_at = self.reading.read().saturating_mul(2),
            }
        }
        match (&self.teller, self.inlet.session()) {
            (Some(Teller::Bell(bell)), _) => bell.ring(),
            (_, Some(session)) => process.tell_taken(self.name, session, self.reading.read()),
            (_, None) => {}
        }
    }

    fn error(&self, cause: PipeCause) -> PipeError {
        PipeError::Pipe { pipe: self.name, cause }
    }
}

impl PipeReader<'_> {
    /// Closes this end, as dropping it does: the writer gets `Closed` for what it writes from then on. What was not read is lost.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let mut pipe = me.pipe(me.neighbor(1)).reader()?;
    /// let first = pipe.recv()?.to_vec();
    /// // Enough is known.
    /// Ok(pipe.close()?)
    /// # }
    /// ```
    ///
    /// # Errors
    /// Why a writer that had not closed could not be told: [`Error::PeerLost`], or what the transport said. This end is closed all the same.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_closed, true) {
            return Ok(());
        }
        Ok(self.me.process_handle().close_inlet(self.name, self.reading.read())?)
    }
}

impl Drop for PipeReader<'_> {
    fn drop(&mut self) {
        // Who must know whether the writer hears of it closes.
        let _ = self.end();
    }
}

/// A message that has come, which is the reader's alone until it is [released](Self::release) or dropped.
///
/// It derefs to its bytes. The reader has one at a time, and none that the writer may have again:
///
/// ```compile_fail,E0382
/// # use farside::pipe::Received;
/// fn read_after_it_was_released(message: Received<'_, '_>) -> u8 {
///     message.release();
///     message[0]
/// }
/// ```
///
/// ```compile_fail,E0499
/// # use farside::pipe::PipeReader;
/// fn two_at_a_time(reader: &mut PipeReader<'_>) -> farside::Result<bool> {
///     let (one, another) = (reader.recv()?, reader.recv()?);
///     Ok(*one == *another)
/// }
/// ```
#[derive(Debug)]
pub struct Received<'a, 'w> {
    reader: &'a mut PipeReader<'w>,
    flag: Flag,
    /// It will be read again.
    is_kept: bool,
}

impl Received<'_, '_> {
    /// Which pipe it came through.
    pub fn pipe(&self) -> PipeName {
        self.reader.name
    }

    /// The process that reads it.
    pub(super) fn process(&self) -> &Arc<Process> {
        self.reader.me.process_handle()
    }

    /// How long it is.
    pub(super) fn bytes(&self) -> usize {
        self.flag.bytes
    }

    /// Copies from so many bytes on, as much as `data` has room for, and says how much that is. `None` when the message is shorter.
    ///
    /// No reference points at its slot meanwhile: what a faulty writer changes there is torn, and nothing worse.
    #[inline]
    pub(super) fn copy_to(&self, from: usize, data: &mut [u8]) -> Option<usize> {
        let bytes = self.flag.bytes.checked_sub(from)?.min(data.len());
        if self.flag.kind == Kind::Offered {
            data[..bytes].copy_from_slice(&self.reader.fetched.message()[from..from + bytes]);
            return Some(bytes);
        }
        let place = self.reader.inlet.slots.place(self.reader.reading.slot(), self.flag.bytes);
        // SAFETY: the place is mapped as long as the inlet lives, and `PipeShape::can_have` has found that it has room for the message, of which these are
        // some bytes. `data` is as long as that, and nobody else's.
        unsafe { racy::copy_in(place.wrapping_add(from), data.as_mut_ptr(), bytes) };
        Some(bytes)
    }

    /// Leaves it where it is, to be received once more.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }

    /// Gives the slot back to the writer. Dropping does the same.
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
        // SAFETY: the place is mapped as long as the inlet lives, and `PipeShape::can_have` has found that it has room for so many bytes. The flag was
        // seen, so by the protocol (`protocol`) the writer has written the slot before and touches it no more until it is released, which
        // takes `self`. No other process is given this memory; it has no handle.
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

//! The writing end of a pipe.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use farside::kit::{Extent, Process, Wait, WorkerParts as _, start_transfer};
use farside::{Error, Whom, Worker};
use farside_fabric::ProcessId;
use farside_fabric::transport::{Operation, Outcome};
use farside_launch::kill_point::KillPoint;
use farside_sys::racy;

use super::ends::{Link, Outlet};
use super::error::{PipeCause, PipeError, PipeName, Result};
use super::meeting::Meeting;
use super::message::{DATA_OVERHEAD_BYTES, PipeBody};
use super::offer::Offer;
use super::protocol::{Corrupt, Flag, Kind, Words, Writing};
use super::shape::{INLINE_BYTES_MAX, PipeShape, Terms};
use super::waking::Waiting;

/// The writing end of a pipe. Dropping it tells the reader, which still reads everything that was
/// written, even if that is nothing.
///
/// Made by [`Pipe::writer`](super::Pipe::writer). A writer cannot read:
///
/// ```compile_fail,E0599
/// # use farside_kit::pipe::PipeWriter;
/// fn the_wrong_way(writer: &mut PipeWriter<'_>) {
///     let _message = writer.recv();
/// }
/// ```
#[derive(Debug)]
pub struct PipeWriter<'w> {
    me: &'w Worker,
    peer: ProcessId,
    outlet: Arc<Outlet>,
    /// The reader's process was asked for the pipe.
    asked: bool,
    /// The link to the pipe's memory, once the reader's process has answered.
    link: Option<Link>,
    writing: Writing,
    /// The bytes of a loan, if the pipe's memory is not mapped.
    staging: Vec<u8>,
    /// The longest message sent in one message of the transport; longer ones are put. Only for
    /// memory that is not mapped.
    pub(super) frame_bytes_max: usize,
    /// The buffers offered to the reader and not taken back.
    pub(super) offers: VecDeque<Offer>,
    waiting: Waiting,
}

impl<'w> PipeWriter<'w> {
    pub(super) fn open(me: &'w Worker, name: PipeName, terms: Terms) -> Result<Self> {
        let process = me.process_handle();
        let (peer, _) = process.job.place_of(name.reader).ok_or_else(|| me.unknown(name.reader))?;
        let outlet = Meeting(process).open_outlet(name, terms)?;
        let longest = process.transport().capabilities().message_bytes_max;
        let width = outlet.terms.shape.width;
        Ok(Self {
            me,
            peer,
            outlet,
            asked: false,
            link: None,
            writing: Writing::new(width),
            staging: Vec::new(),
            frame_bytes_max: longest.saturating_sub(DATA_OVERHEAD_BYTES),
            offers: VecDeque::new(),
            waiting: Waiting::default(),
        })
    }

    /// Returns the pipe's name.
    pub fn name(&self) -> PipeName {
        self.outlet.name
    }

    /// Returns the number and size of the messages that the pipe holds.
    pub fn shape(&self) -> PipeShape {
        self.outlet.terms.shape
    }

    /// Returns the number of messages written.
    pub fn written(&self) -> u64 {
        self.writing.sent()
    }

    /// Returns the number of messages that the reader has taken. Those messages were read.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Corrupt`.
    pub fn taken(&mut self) -> Result<u64> {
        self.look()?;
        Ok(self.writing.taken())
    }

    /// Writes a message. Waits for room if necessary, for at most the job's deadline.
    ///
    /// *Completion*: the caller may reuse `data` at once. The reader gets the whole message, after
    /// all earlier ones.
    ///
    /// *Cost*: where the reader's memory is mapped, one copy and a store that publishes it. A
    /// message of up to [`INLINE_BYTES_MAX`](super::INLINE_BYTES_MAX) bytes shares that store's
    /// cache line. If the reader sleeps, its doorbell is rung. Elsewhere a message of the
    /// transport, or, for a longer one, a put and a message. The first use asks the reader's
    /// service thread, which takes a round trip.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` if the reader has closed, `Undelivered` if a message did
    /// not reach it, or `Mismatch`, `Memory` or `Corrupt`; [`Error::TooLarge`] for too long a
    /// message; [`Error::PeerLost`] if the reader is lost; [`Error::Deadline`] if there is no room
    /// in time; [`Error::InHandler`] if a handler would have to wait.
    #[track_caller]
    pub fn write(&mut self, data: &[u8]) -> Result<()> {
        self.write_for(data, self.me.default_deadline())
    }

    /// Like [`write`](Self::write), but waits for at most `time`.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` if the reader has closed, `Undelivered` if a message did
    /// not reach it, or `Mismatch`, `Memory` or `Corrupt`; [`Error::TooLarge`] for too long a
    /// message; [`Error::PeerLost`] if the reader is lost; [`Error::Deadline`] if there is no room
    /// in time; [`Error::InHandler`] if a handler would have to wait.
    #[inline]
    #[track_caller]
    pub fn write_for(&mut self, data: &[u8], time: Duration) -> Result<()> {
        self.check_length(data.len())?;
        self.wait_ready(time)?;
        self.send(data)
    }

    /// Like [`write`](Self::write), but does not wait.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Full` if there is no room, also while the pipe is not connected:
    /// the first use starts connecting. [`PipeError::Pipe`] with `Closed` if the reader has closed,
    /// `Undelivered` if a message did not reach it, or `Mismatch`, `Memory` or `Corrupt`;
    /// [`Error::TooLarge`] for too long a message; [`Error::PeerLost`] if the reader is lost.
    #[inline]
    pub fn try_write(&mut self, data: &[u8]) -> Result<()> {
        self.check_length(data.len())?;
        self.check_ready()?;
        self.send(data)
    }

    /// Like [`write`](Self::write), to be awaited. A future dropped before its end has sent
    /// nothing.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` if the reader has closed, `Undelivered` if a message did
    /// not reach it, or `Mismatch`, `Memory` or `Corrupt`; [`Error::TooLarge`] for too long a
    /// message; [`Error::PeerLost`] if the reader is lost.
    pub async fn write_async(&mut self, data: &[u8]) -> Result<()> {
        self.check_length(data.len())?;
        poll_fn(|context| self.poll_ready(context)).await?;
        self.send(data)
    }

    /// Returns whether there is room for a message now. If not, it wakes the task once there may be
    /// room. The worker must make [progress](Worker::progress) meanwhile, as [`Worker::block_on`]
    /// does.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` if the reader has closed, `Undelivered` if a message did
    /// not reach it, or `Mismatch`, `Memory` or `Corrupt`; [`Error::PeerLost`] if the reader is
    /// lost.
    pub fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.ready()? {
            self.waiting.end();
            return Poll::Ready(Ok(()));
        }
        let (outlet, link, peer, taken) = (self.outlet.clone(), self.link.clone(), self.peer, self.writing.taken());
        self.waiting.wake_when(self.me, context.waker(), move |me| {
            let is_over = outlet.reader_is_closed() || me.process_handle().losses.is_lost(peer);
            is_over
                || match &link {
                    None => outlet.answer().is_some(),
                    Some(Link::Mapped { slots, .. }) => slots.taken().load(Ordering::Relaxed) != taken,
                    Some(Link::Posted { .. }) => {
                        outlet.taken.load(Ordering::Relaxed) != taken || outlet.failure().is_some()
                    }
                }
        });
        Poll::Pending
    }

    /// Returns the place of the next message, of `bytes` bytes, to be written and then
    /// [committed](Loan::commit). Waits for room if necessary, for at most the job's deadline.
    ///
    /// *Cost*: where the reader's memory is mapped, the place is that memory itself, and nothing is
    /// copied.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` if the reader has closed, `Undelivered` if a message did
    /// not reach it, or `Mismatch`, `Memory` or `Corrupt`; [`Error::TooLarge`] for too long a
    /// message; [`Error::PeerLost`] if the reader is lost; [`Error::Deadline`] if there is no room
    /// in time; [`Error::InHandler`] if a handler would have to wait.
    #[track_caller]
    pub fn loan(&mut self, bytes: usize) -> Result<Loan<'_, 'w>> {
        self.loan_for(bytes, self.me.default_deadline())
    }

    /// Like [`loan`](Self::loan), but waits for at most `time`.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` if the reader has closed, `Undelivered` if a message did
    /// not reach it, or `Mismatch`, `Memory` or `Corrupt`; [`Error::TooLarge`] for too long a
    /// message; [`Error::PeerLost`] if the reader is lost; [`Error::Deadline`] if there is no room
    /// in time; [`Error::InHandler`] if a handler would have to wait.
    #[track_caller]
    pub fn loan_for(&mut self, bytes: usize, time: Duration) -> Result<Loan<'_, 'w>> {
        self.check_length(bytes)?;
        self.wait_ready(time)?;
        Ok(Loan::new(self, bytes))
    }

    /// Like [`loan`](Self::loan), to be awaited.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` if the reader has closed, `Undelivered` if a message did
    /// not reach it, or `Mismatch`, `Memory` or `Corrupt`; [`Error::TooLarge`] for too long a
    /// message; [`Error::PeerLost`] if the reader is lost.
    pub async fn loan_async(&mut self, bytes: usize) -> Result<Loan<'_, 'w>> {
        self.check_length(bytes)?;
        poll_fn(|context| self.poll_ready(context)).await?;
        Ok(Loan::new(self, bytes))
    }

    /// Like [`loan`](Self::loan), but does not wait.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Full` if there is no room, also while the pipe is not connected:
    /// the first use starts connecting. [`PipeError::Pipe`] with `Closed` if the reader has closed,
    /// `Undelivered` if a message did not reach it, or `Mismatch`, `Memory` or `Corrupt`;
    /// [`Error::TooLarge`] for too long a message; [`Error::PeerLost`] if the reader is lost.
    pub fn try_loan(&mut self, bytes: usize) -> Result<Loan<'_, 'w>> {
        self.check_length(bytes)?;
        self.check_ready()?;
        Ok(Loan::new(self, bytes))
    }

    #[inline]
    pub(super) fn check_ready(&mut self) -> Result<()> {
        match self.ready()? {
            true => Ok(()),
            false => Err(self.error(PipeCause::Full { width: self.outlet.terms.shape.width })),
        }
    }

    /// Returns whether there is room for a message now. Connects the pipe if it is not connected.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Closed` if the reader has closed, `Undelivered` if a message did
    /// not reach it, or `Mismatch`, `Memory` or `Corrupt`; [`Error::PeerLost`] if the reader is
    /// lost.
    #[inline]
    pub fn ready(&mut self) -> Result<bool> {
        if self.link.is_some() && self.writing.free() > 0 && !self.outlet.reader_is_closed() {
            return match self.me.process_handle().losses.lost(self.peer) {
                None => Ok(true),
                Some(lost) => Err(lost.into()),
            };
        }
        self.look_for_room()
    }

    #[cold]
    fn look_for_room(&mut self) -> Result<bool> {
        if let Some(lost) = self.me.process_handle().losses.lost(self.peer) {
            return Err(lost.into());
        }
        if self.outlet.reader_is_closed() {
            return Err(self.error(PipeCause::Closed));
        }
        if self.link.is_none() && !self.connect()? {
            return Ok(false);
        }
        self.look()?;
        Ok(self.writing.free() > 0)
    }

    /// Asks for the pipe, and returns whether it is connected.
    fn connect(&mut self) -> Result<bool> {
        if !self.asked {
            Meeting(self.me.process_handle()).ask_for_pipe(&self.outlet)?;
            self.asked = true;
        }
        match self.outlet.answer() {
            None => Ok(false),
            Some(Ok(link)) => {
                self.link = Some(link.clone());
                Ok(true)
            }
            Some(Err(cause)) => Err(self.error(cause.clone())),
        }
    }

    /// Updates the number of messages that the reader has taken.
    fn look(&mut self) -> Result<()> {
        let looked = match &self.link {
            None => Ok(()),
            Some(Link::Mapped { slots, .. }) => self.writing.look(slots),
            Some(Link::Posted { .. }) => {
                let credited = self.writing.credit(self.outlet.taken.load(Ordering::Acquire));
                if let Some(why) = self.outlet.failure() {
                    return Err(self.undelivered(why));
                }
                credited
            }
        };
        looked.map_err(|corrupt| self.corrupt(corrupt))
    }

    /// Returns the bytes of a refused loan, and the process that wrote them. Only a loan in memory
    /// that is not mapped can be refused.
    pub(super) fn unsent(&self) -> (&[u8], &Arc<Process>) {
        (&self.staging, self.me.process_handle())
    }

    pub(super) fn default_time(&self) -> Duration {
        self.me.default_deadline()
    }

    /// Waits until there is room for a message.
    #[track_caller]
    pub(super) fn wait_ready(&mut self, time: Duration) -> Result<()> {
        if self.ready()? { Ok(()) } else { self.wait_for_room(time) }
    }

    /// Makes progress until `look` returns a value.
    #[track_caller]
    pub(super) fn wait_until<T>(
        &mut self,
        doing: &'static str,
        time: Duration,
        mut look: impl FnMut(&mut Self) -> Result<Option<T>>,
    ) -> Result<T> {
        let me = self.me;
        let wait = Wait::here(doing).on(Whom::Process(self.peer));
        me.wait_at(wait, time, |_| look(self).transpose().map(Ok))?
    }

    /// Returns whether the reader is gone.
    pub(super) fn is_read_no_more(&self) -> bool {
        self.outlet.reader_is_closed() || self.me.process_handle().losses.is_lost(self.peer)
    }

    #[cold]
    #[track_caller]
    fn wait_for_room(&mut self, time: Duration) -> Result<()> {
        self.wait_until(
            "waiting for room in a pipe (the other worker must have its reader of this number open, and read)",
            time,
            |writer| writer.ready().map(|room| room.then_some(())),
        )
    }

    #[inline]
    fn check_length(&self, bytes: usize) -> Result<()> {
        let max = self.outlet.terms.shape.message_bytes;
        match bytes <= max {
            true => Ok(()),
            false => {
                Err(Error::TooLarge { what: "a message of a pipe", bytes, max, remedy: "raise `Pipe::message_bytes`" }
                    .into())
            }
        }
    }

    /// Sends a message into the free slot.
    #[inline]
    fn send(&mut self, data: &[u8]) -> Result<()> {
        if let Some(Link::Mapped { slots, .. }) = &self.link {
            let place = slots.place(self.writing.slot(), data.len());
            // SAFETY: `data` is readable, and no other thread writes to it. `check_length` found it
            // no longer than the pipe's messages, for which there is room at `place` as long as
            // `slots` lives.
            unsafe { racy::copy_out(data.as_ptr(), place, data.len()) };
            self.publish(flag_of(data.len()));
            return Ok(());
        }
        self.send_far(flag_of(data.len()), data)
    }

    /// Sends bytes behind a flag, into the free slot.
    pub(super) fn send_inline(&mut self, flag: Flag, inside: &[u8]) -> Result<()> {
        let Some(Link::Mapped { slots, .. }) = &self.link else { return self.send_far(flag, inside) };
        assert!(inside.len() <= INLINE_BYTES_MAX, "what goes inline fits there");
        // SAFETY: `inside` is readable, and no other thread writes to it; there are
        // `INLINE_BYTES_MAX` bytes behind a flag, as long as `slots` lives.
        unsafe { racy::copy_out(inside.as_ptr(), slots.inline(self.writing.slot()), inside.len()) };
        self.publish(flag);
        Ok(())
    }

    /// Publishes the message in the free slot to the reader.
    #[inline]
    fn publish(&mut self, flag: Flag) {
        let Some(Link::Mapped { slots, bell }) = &self.link else { return };
        self.me.process_handle().hot_kill_point(KillPoint::PipeFilled);
        if self.me.is_noticing() {
            self.notice(flag);
        }
        self.writing.publish(slots, flag);
        bell.ring();
    }

    /// Tells an observer or a trace of a message that is about to be sent.
    #[cold]
    fn notice(&self, flag: Flag) {
        self.me.end_accesses();
        self.me.note_message(self.outlet.name.reader, flag.bytes);
    }

    /// Sends a message to memory that is not mapped.
    #[cold]
    fn send_far(&mut self, flag: Flag, data: &[u8]) -> Result<()> {
        let Some(Link::Posted { piece }) = self.link else { return Ok(()) };
        self.notice(flag);
        let process = self.me.process_handle();
        if data.len() > self.frame_bytes_max && flag.kind == Kind::Slot {
            self.put(process, piece, flag, data.to_vec());
        } else {
            Meeting(process).tell_reader(&self.outlet, body(self.writing.sent(), flag, data.to_vec()))?;
        }
        self.writing.pass();
        Ok(())
    }

    /// Starts to put a long message into its slot, and sends its flag once the put has completed.
    fn put(&self, process: &Arc<Process>, piece: Extent, flag: Flag, data: Vec<u8>) {
        let (outlet, number) = (self.outlet.clone(), self.writing.sent());
        let offset = outlet.terms.shape.data_of(self.writing.slot()) as u64;
        outlet.begin_transfer();
        let then = move |process: &Arc<Process>, outcome: farside::Result<Outcome>| {
            let told = outcome.and_then(|_| Meeting(process).tell_reader(&outlet, body(number, flag, Vec::new())));
            if let Some(sent) = outlet.end_transfer(told.err().map(|error| error.to_string())) {
                Meeting(process).tell_writers_end(&outlet, sent);
            }
            // The writer may be waiting for the end of this put, or for room that will never come.
            Meeting(process).wake(outlet.name.writer);
        };
        start_transfer(process, piece, Operation::Put { offset, data }, Box::new(then));
    }

    pub(super) fn error(&self, cause: PipeCause) -> PipeError {
        PipeError::Pipe { pipe: self.outlet.name, cause }
    }

    /// Returns the error that the remaining messages will never be taken.
    fn undelivered(&self, why: String) -> PipeError {
        let messages = self.writing.sent() - self.writing.taken();
        self.error(PipeCause::Undelivered { messages, why })
    }

    #[cold]
    fn corrupt(&self, corrupt: Corrupt) -> PipeError {
        self.error(corrupt.into())
    }
}

/// The fate of a pipe's messages when its writer closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it says whether all was taken"]
pub enum Delivery {
    /// The reader has taken every message.
    Taken,
    /// All messages will arrive. Only the end of the reader, or the loss of one of the two
    /// processes, can keep them from being read.
    Delivered {
        /// The number of messages that the reader is not known to have taken.
        left: u64,
    },
}

impl PipeWriter<'_> {
    /// Closes this end, as dropping it does, and returns what has become of the messages. It waits
    /// for puts in progress, for at most the job's deadline, but not for the reader. To know that
    /// everything was taken, look at [`taken`](Self::taken) first.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # use farside_kit::prelude::*;
    /// use farside_kit::pipe::Delivery;
    ///
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let mut pipe = me.pipe(me.neighbor(1)).writer()?;
    /// pipe.write(b"the last word")?;
    /// match pipe.close()? {
    ///     Delivery::Taken => println!("heard"),
    ///     Delivery::Delivered { left } => println!("{left} messages lie at the reader"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// *Cost*: where the reader's memory is mapped, a load from it and the message that a drop
    /// sends, too.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Undelivered` and the number of messages that were not taken and
    /// never will be: the reader has closed, is lost, or could not be reached. [`PipeError::Pipe`]
    /// with `Corrupt`. [`Error::Deadline`] or [`Error::InHandler`] if puts are still in progress.
    /// This end is closed in any case.
    pub fn close(mut self) -> Result<Delivery> {
        self.settle()
    }

    /// Returns the result of [`close`](Self::close).
    pub(super) fn settle(&mut self) -> Result<Delivery> {
        let time = self.default_time();
        if self.outlet.is_transferring() {
            self.wait_until("waiting for messages of a pipe to be put", time, |writer| {
                Ok((!writer.outlet.is_transferring() || writer.is_read_no_more()).then_some(()))
            })?;
        }
        // Looked at before the count, so that the count is final if the reader is gone.
        let gone = match self.me.process_handle().losses.lost(self.peer) {
            Some(lost) => Some(lost.to_string()),
            None => self.outlet.reader_is_closed().then(|| "its reader has closed".to_owned()),
        };
        self.look()?;
        match (self.writing.sent() - self.writing.taken(), gone) {
            (0, _) => Ok(Delivery::Taken),
            (_, Some(why)) => Err(self.undelivered(why)),
            (left, None) => Ok(Delivery::Delivered { left }),
        }
    }
}

impl Drop for PipeWriter<'_> {
    fn drop(&mut self) {
        let lent = self.keep_offers();
        // An end that was never used also tells its reader, which may be waiting. If the reader is
        // gone, this is unnecessary.
        self.asked = self.asked || Meeting(self.me.process_handle()).ask_for_pipe(&self.outlet).is_ok();
        self.link = None;
        Meeting(self.me.process_handle()).close_outlet(&self.outlet, self.asked, self.writing.sent(), lent);
    }
}

pub(super) fn flag_of(bytes: usize) -> Flag {
    Flag { kind: if bytes <= INLINE_BYTES_MAX { Kind::Inline } else { Kind::Slot }, bytes }
}

fn body(number: u64, flag: Flag, inside: Vec<u8>) -> PipeBody {
    PipeBody::Data { number, kind: flag.kind as u8, bytes: flag.bytes as u32, inside }
}

/// The place of the next message of a pipe. It belongs to the writer until it is
/// [committed](Self::commit). Dropping it without that sends nothing.
///
/// It dereferences to its bytes, which hold old data at first. The writer has at most one, and none
/// that the reader may have:
///
/// ```compile_fail,E0382
/// # use farside_kit::pipe::Loan;
/// fn written_after_it_was_committed(mut loan: Loan<'_, '_>) {
///     let _sent = loan.commit();
///     loan[0] = 1;
/// }
/// ```
///
/// ```compile_fail,E0499
/// # use farside_kit::pipe::PipeWriter;
/// fn two_at_a_time(writer: &mut PipeWriter<'_>) -> farside::Result<()> {
///     let (one, another) = (writer.loan(8)?, writer.loan(8)?);
///     one.commit()?;
///     Ok(another.commit()?)
/// }
/// ```
#[derive(Debug)]
#[must_use = "a loan that is not committed sends nothing"]
pub struct Loan<'a, 'w> {
    writer: &'a mut PipeWriter<'w>,
    bytes: usize,
}

impl<'a, 'w> Loan<'a, 'w> {
    /// In the free slot.
    fn new(writer: &'a mut PipeWriter<'w>, bytes: usize) -> Self {
        if let Some(Link::Posted { .. }) = writer.link {
            writer.staging.resize(bytes, 0);
        }
        Self { writer, bytes }
    }

    /// Gives the message to the reader, as [`PipeWriter::write`] does after its copy.
    ///
    /// # Errors
    /// Where the reader's memory is not mapped: [`Error::PeerLost`], or an error of the transport.
    /// Then nothing is sent.
    pub fn commit(self) -> Result<()> {
        if let Some(Link::Mapped { .. }) = self.writer.link {
            self.writer.publish(flag_of(self.bytes));
            return Ok(());
        }
        let staging = std::mem::take(&mut self.writer.staging);
        let sent = self.writer.send_far(flag_of(staging.len()), &staging);
        self.writer.staging = staging;
        sent
    }
}

impl Deref for Loan<'_, '_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.writer.link {
            Some(Link::Mapped { slots, .. }) => {
                let place = slots.place(self.writer.writing.slot(), self.bytes);
                // SAFETY: the place is mapped as long as `slots` lives, has room for `bytes`
                // (checked before the loan was made), and is initialised. The slot is free, so by
                // the protocol (`protocol`) its reader has finished with it, and does not touch it
                // before its flag is set, for which the loan must be committed. No other process
                // can reach this memory, since no handle leads to it. `self` is borrowed as long as
                // the slice lives, and nothing else in this process writes to the slot.
                unsafe { slice::from_raw_parts(place, self.bytes) }
            }
            _ => &self.writer.staging,
        }
    }
}

impl DerefMut for Loan<'_, '_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &self.writer.link {
            Some(Link::Mapped { slots, .. }) => {
                let place = slots.place(self.writer.writing.slot(), self.bytes);
                // SAFETY: the place is mapped as long as `slots` lives, has room for `bytes`
                // (checked before the loan was made), and is initialised. The slot is free, so by
                // the protocol (`protocol`) its reader has finished with it, and does not touch it
                // before its flag is set, for which the loan must be committed. No other process
                // can reach this memory, since no handle leads to it. `self` is borrowed
                // exclusively as long as the slice lives, and nothing else in this process reaches
                // the slot.
                unsafe { slice::from_raw_parts_mut(place, self.bytes) }
            }
            _ => &mut self.writer.staging,
        }
    }
}

//! The end of a pipe that writes.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use farside_fabric::ProcessId;
use farside_fabric::transport::{Operation, Outcome};
use farside_sys::racy;

use super::ends::{Outlet, Way};
use super::error::{PipeCause, PipeError, PipeName, Result};
use super::message::{DATA_OVERHEAD_BYTES, PipeBody};
use super::offer::Offer;
use super::protocol::{Corrupt, Flag, Kind, Words, Writing};
use super::shape::{INLINE_BYTES_MAX, PipeShape};
use super::waking::Waiting;
use crate::error::{self, Error};
use crate::invoke::ring::message::Piece;
use crate::memory::Extent;
use crate::runtime::process::Process;
use crate::runtime::worker::Worker;
use farside_launch::kill_point::KillPoint;

/// The end of a pipe that writes. Dropped, it tells the reader, who still reads all that was written, be it nothing at all.
///
/// Made by [`Pipe::writer`](super::Pipe::writer). It does not read:
///
/// ```compile_fail,E0599
/// # use farside::pipe::PipeWriter;
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
    /// Its answer, from when it is used.
    way: Option<Way>,
    writing: Writing,
    /// Where a loan lies if the pipe's memory is not mapped.
    staging: Vec<u8>,
    /// Longer messages are put, where the pipe's memory is not mapped.
    pub(super) frame_bytes_max: usize,
    /// Buffers that the reader reads, or has read.
    pub(super) offers: VecDeque<Offer>,
    waiting: Waiting,
}

impl<'w> PipeWriter<'w> {
    pub(super) fn open(me: &'w Worker, name: PipeName, shape: PipeShape) -> Result<Self> {
        let process = me.process_handle();
        let (peer, _) = process.place_of(name.reader).ok_or_else(|| me.unknown(name.reader))?;
        let outlet = process.open_outlet(name, shape)?;
        let longest = process.transport().capabilities().message_bytes_max;
        Ok(Self {
            me,
            peer,
            outlet,
            asked: false,
            way: None,
            writing: Writing::new(shape.width),
            staging: Vec::new(),
            frame_bytes_max: longest.saturating_sub(DATA_OVERHEAD_BYTES),
            offers: VecDeque::new(),
            waiting: Waiting::default(),
        })
    }

    /// Which pipe it is.
    pub fn name(&self) -> PipeName {
        self.outlet.name
    }

    /// How many messages of what size it holds.
    pub fn shape(&self) -> PipeShape {
        self.outlet.shape
    }

    /// How many messages were written.
    pub fn written(&self) -> u64 {
        self.writing.sent()
    }

    /// How many of them the reader has taken: a program may count on it that they were read.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Corrupt`.
    pub fn taken(&mut self) -> Result<u64> {
        self.look()?;
        Ok(self.writing.taken())
    }

    /// Writes a message, and waits for room if need be, at most for the job's deadline.
    ///
    /// *Completion*: `data` may be used again at once. The reader gets the message whole, behind those that were written before.
    ///
    /// *Cost*: where the reader's memory is mapped, one copy, and a store that publishes it; a message of up to
    /// [`INLINE_BYTES_MAX`](super::INLINE_BYTES_MAX) bytes is in the same cache line as that store. The reader is rung if it sleeps. Elsewhere a message of
    /// the transport, or, if it is longer than one of those, a put and a message. The first use asks the reader's service thread, a round trip.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with what is wrong with the pipe; [`Error::TooLarge`]; [`Error::PeerLost`] when the reader is; [`Error::Deadline`];
    /// [`Error::InHandler`] when it has to wait and must not.
    pub fn write(&mut self, data: &[u8]) -> Result<()> {
        self.write_for(data, self.me.default_deadline())
    }

    /// As [`write`](Self::write), and waits for at most `time`.
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn write_for(&mut self, data: &[u8], time: Duration) -> Result<()> {
        self.check_length(data.len())?;
        self.wait_ready(time)?;
        self.send(data)
    }

    /// As [`write`](Self::write), without waiting.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Full`, also while the pipe is not connected yet: the first use begins that.
    #[inline]
    pub fn try_write(&mut self, data: &[u8]) -> Result<()> {
        self.check_length(data.len())?;
        self.check_ready()?;
        self.send(data)
    }

    /// As [`write`](Self::write), to be awaited. Dropped before its end, it has sent nothing.
    ///
    /// # Errors
    /// Those of [`write`](Self::write), but for waiting.
    pub async fn write_async(&mut self, data: &[u8]) -> Result<()> {
        self.check_length(data.len())?;
        poll_fn(|context| self.poll_ready(context)).await?;
        self.send(data)
    }

    /// Whether a message would find room now; if not, the task is woken when that may be. Its worker must make
    /// [progress](Worker::progress) meanwhile, as [`Worker::block_on`] does.
    ///
    /// # Errors
    /// Those of [`ready`](Self::ready).
    pub fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.ready()? {
            self.waiting.end();
            return Poll::Ready(Ok(()));
        }
        let (outlet, way, peer, taken) = (self.outlet.clone(), self.way.clone(), self.peer, self.writing.taken());
        self.waiting.wake_when(self.me, context.waker(), move |me| {
            let is_over = outlet.reader_is_closed() || me.process_handle().is_lost(peer);
            is_over
                || match &way {
                    None => outlet.answer().is_some(),
                    Some(Way::Mapped { slots, .. }) => slots.taken().load(Ordering::Relaxed) != taken,
                    Some(Way::Posted { .. }) => {
                        outlet.taken.load(Ordering::Relaxed) != taken || outlet.failure().is_some()
                    }
                }
        });
        Poll::Pending
    }

    /// A place for the next message, of so many bytes, to be written there and then [committed](Loan::commit). Waits for room if need be,
    /// at most for the job's deadline.
    ///
    /// *Cost*: where the reader's memory is mapped the place is that memory itself, and nothing is copied.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn loan(&mut self, bytes: usize) -> Result<Loan<'_, 'w>> {
        self.loan_for(bytes, self.me.default_deadline())
    }

    /// As [`loan`](Self::loan), and waits for at most `time`.
    ///
    /// # Errors
    /// See there.
    pub fn loan_for(&mut self, bytes: usize, time: Duration) -> Result<Loan<'_, 'w>> {
        self.check_length(bytes)?;
        self.wait_ready(time)?;
        Ok(Loan::new(self, bytes))
    }

    /// As [`loan`](Self::loan), to be awaited.
    ///
    /// # Errors
    /// Those of [`loan`](Self::loan), but for waiting.
    pub async fn loan_async(&mut self, bytes: usize) -> Result<Loan<'_, 'w>> {
        self.check_length(bytes)?;
        poll_fn(|context| self.poll_ready(context)).await?;
        Ok(Loan::new(self, bytes))
    }

    /// As [`loan`](Self::loan), without waiting.
    ///
    /// # Errors
    /// Those of [`try_write`](Self::try_write).
    pub fn try_loan(&mut self, bytes: usize) -> Result<Loan<'_, 'w>> {
        self.check_length(bytes)?;
        self.check_ready()?;
        Ok(Loan::new(self, bytes))
    }

    #[inline]
    pub(super) fn check_ready(&mut self) -> Result<()> {
        match self.ready()? {
            true => Ok(()),
            false => Err(self.error(PipeCause::Full { width: self.outlet.shape.width })),
        }
    }

    /// Whether a message would find room now. Connects the pipe if it is not.
    ///
    /// # Errors
    /// Those of [`write`](Self::write), but for waiting.
    #[inline]
    pub fn ready(&mut self) -> Result<bool> {
        if self.way.is_some() && self.writing.free() > 0 && !self.outlet.reader_is_closed() {
            return match self.me.process_handle().lost(self.peer) {
                None => Ok(true),
                Some(lost) => Err(lost.into()),
            };
        }
        self.look_for_room()
    }

    #[cold]
    fn look_for_room(&mut self) -> Result<bool> {
        if let Some(lost) = self.me.process_handle().lost(self.peer) {
            return Err(lost.into());
        }
        if self.outlet.reader_is_closed() {
            return Err(self.error(PipeCause::Closed));
        }
        if self.way.is_none() && !self.connect()? {
            return Ok(false);
        }
        self.look()?;
        Ok(self.writing.free() > 0)
    }

    /// Asks for the pipe, and says whether it is there.
    fn connect(&mut self) -> Result<bool> {
        if !self.asked {
            self.me.process_handle().ask_for_pipe(&self.outlet)?;
            self.asked = true;
        }
        match self.outlet.answer() {
            None => Ok(false),
            Some(Ok(way)) => {
                self.way = Some(way.clone());
                Ok(true)
            }
            Some(Err(cause)) => Err(self.error(cause.clone())),
        }
    }

    /// Finds out how far the reader is.
    fn look(&mut self) -> Result<()> {
        let looked = match &self.way {
            None => Ok(()),
            Some(Way::Mapped { slots, .. }) => self.writing.look(slots),
            Some(Way::Posted { .. }) => {
                let credited = self.writing.credit(self.outlet.taken.load(Ordering::Acquire));
                if let Some(why) = self.outlet.failure() {
                    return Err(self.undelivered(why));
                }
                credited
            }
        };
        looked.map_err(|corrupt| self.corrupt(corrupt))
    }

    /// What a loan held that was refused when it was committed, which no memory that is mapped does; and the process that it was written in.
    pub(super) fn unsent(&self) -> (&[u8], &Arc<Process>) {
        (&self.staging, self.me.process_handle())
    }

    pub(super) fn default_time(&self) -> Duration {
        self.me.default_deadline()
    }

    /// Waits until a message would find room.
    pub(super) fn wait_ready(&mut self, time: Duration) -> Result<()> {
        if self.ready()? { Ok(()) } else { self.wait_for_room(time) }
    }

    /// Makes progress until `look` finds something.
    pub(super) fn wait_until<T>(
        &mut self,
        doing: &'static str,
        time: Duration,
        mut look: impl FnMut(&mut Self) -> Result<Option<T>>,
    ) -> Result<T> {
        let me = self.me;
        me.wait_until(doing, time, |_| look(self).transpose().map(Ok))?
    }

    /// Whether nobody reads any more.
    pub(super) fn is_read_no_more(&self) -> bool {
        self.outlet.reader_is_closed() || self.me.process_handle().is_lost(self.peer)
    }

    #[cold]
    fn wait_for_room(&mut self, time: Duration) -> Result<()> {
        self.wait_until(
            "waiting for room in a pipe (the other worker must have its reader of this number open, and read)",
            time,
            |writer| writer.ready().map(|room| room.then_some(())),
        )
    }

    #[inline]
    fn check_length(&self, bytes: usize) -> Result<()> {
        let max = self.outlet.shape.message_bytes;
        if bytes <= max { Ok(()) } else { Err(Error::TooLarge { what: "a message of a pipe", bytes, max }.into()) }
    }

    /// Sends a message into the slot that is free.
    #[inline]
    fn send(&mut self, data: &[u8]) -> Result<()> {
        if let Some(Way::Mapped { slots, .. }) = &self.way {
            let place = slots.place(self.writing.slot(), data.len());
            // SAFETY: `data` is readable and nobody else's, and `check_length` has found it no longer than the pipe's messages, for which there is room at `place` as
            // long as `slots` lives.
            unsafe { racy::copy_out(data.as_ptr(), place, data.len()) };
            self.publish(flag_of(data.len()));
            return Ok(());
        }
        self.send_far(flag_of(data.len()), data)
    }

    /// Sends what goes behind a flag, into the slot that is free.
    pub(super) fn send_inline(&mut self, flag: Flag, inside: &[u8]) -> Result<()> {
        let Some(Way::Mapped { slots, .. }) = &self.way else { return self.send_far(flag, inside) };
        assert!(inside.len() <= INLINE_BYTES_MAX, "what goes inline fits there");
        // SAFETY: `inside` is readable and nobody else's; there are `INLINE_BYTES_MAX` bytes behind a flag, as long as `slots` lives.
        unsafe { racy::copy_out(inside.as_ptr(), slots.inline(self.writing.slot()), inside.len()) };
        self.publish(flag);
        Ok(())
    }

    /// Gives the message that lies in its slot to the reader.
    #[inline]
    fn publish(&mut self, flag: Flag) {
        let Some(Way::Mapped { slots, bell }) = &self.way else { return };
        self.me.process_handle().hot_kill_point(KillPoint::PipeFilled);
        self.me.end_accesses();
        self.writing.publish(slots, flag);
        bell.ring();
    }

    /// Sends a message to memory that is not mapped.
    #[cold]
    fn send_far(&mut self, flag: Flag, data: &[u8]) -> Result<()> {
        let Some(Way::Posted { piece }) = self.way else { return Ok(()) };
        self.me.end_accesses();
        let process = self.me.process_handle();
        if data.len() > self.frame_bytes_max && flag.kind == Kind::Slot {
            self.put(process, piece, flag, data.to_vec());
        } else {
            process.tell_reader(&self.outlet, body(self.writing.sent(), flag, data.to_vec()))?;
        }
        self.writing.pass();
        Ok(())
    }

    /// Has a long message put into its slot, and its flag sent when it is there.
    fn put(&self, process: &Arc<Process>, piece: Piece, flag: Flag, data: Vec<u8>) {
        let (outlet, number) = (self.outlet.clone(), self.writing.sent());
        let offset = outlet.shape.data_of(self.writing.slot()) as u64;
        outlet.begin_transfer();
        let then = move |process: &Arc<Process>, outcome: error::Result<Outcome>| {
            let told = outcome.and_then(|_| process.tell_reader(&outlet, body(number, flag, Vec::new())));
            if let Some(sent) = outlet.end_transfer(told.err().map(|error| error.to_string())) {
                process.tell_writers_end(&outlet, sent);
            }
            // It may be waiting for this, or for room that there will never be.
            process.wake(outlet.name.writer);
        };
        process.start_transfer(Extent::of_piece(&piece), Operation::Put { offset, data }, Box::new(then));
    }

    pub(super) fn error(&self, cause: PipeCause) -> PipeError {
        PipeError::Pipe { pipe: self.outlet.name, cause }
    }

    /// That what is not known to be taken never will be.
    fn undelivered(&self, why: String) -> PipeError {
        let messages = self.writing.sent() - self.writing.taken();
        self.error(PipeCause::Undelivered { messages, why })
    }

    #[cold]
    fn corrupt(&self, corrupt: Corrupt) -> PipeError {
        self.error(corrupt.into())
    }
}

/// What has become of all that was written, when its writer closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it says whether all was taken"]
pub enum Delivery {
    /// The reader has taken every message.
    Taken,
    /// All of it is on its way by itself, and nothing but the reader's end, or the loss of one of the two processes, keeps it from being read.
    Delivered {
        /// How many messages the reader is not known to have taken.
        left: u64,
    },
}

impl PipeWriter<'_> {
    /// Closes this end, as dropping it does, and says what has become of what was written. It waits for puts that are under way, at most for the
    /// job's deadline, and not for the reader: who must know that all was taken looks at [`taken`](Self::taken) before.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// use farside::pipe::Delivery;
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
    /// *Cost*: where the reader's memory is mapped, a look at a word of it and the message that drop sends, too.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Undelivered`, which says how many messages nobody has taken or will take: the reader has closed, is lost, or could not be
    /// reached. [`Error::Deadline`] and [`Error::InHandler`] when puts are under way still. This end is closed all the same.
    pub fn close(mut self) -> Result<Delivery> {
        self.settle()
    }

    /// What [`close`](Self::close) says.
    pub(super) fn settle(&mut self) -> Result<Delivery> {
        let time = self.default_time();
        if self.outlet.is_transferring() {
            self.wait_until("waiting for messages of a pipe to be put", time, |writer| {
                Ok((!writer.outlet.is_transferring() || writer.is_read_no_more()).then_some(()))
            })?;
        }
        // Looked at before the count, which is the last word then.
        let gone = match self.me.process_handle().lost(self.peer) {
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
        // Also an end that was never used has an end, for which its reader may be waiting. Who is gone need not know.
        self.asked = self.asked || self.me.process_handle().ask_for_pipe(&self.outlet).is_ok();
        self.way = None;
        self.me.process_handle().close_outlet(&self.outlet, self.asked, self.writing.sent(), lent);
    }
}

pub(super) fn flag_of(bytes: usize) -> Flag {
    Flag { kind: if bytes <= INLINE_BYTES_MAX { Kind::Inline } else { Kind::Slot }, bytes }
}

fn body(number: u64, flag: Flag, inside: Vec<u8>) -> PipeBody {
    PipeBody::Data { number, kind: flag.kind, bytes: flag.bytes as u32, inside }
}

/// A place for the next message of a pipe, which is the writer's alone until it is [committed](Self::commit). Dropped without that, it is
/// as if it had not been asked for.
///
/// It derefs to its bytes, which are left from before. The writer has one at a time, and none that the reader may have:
///
/// ```compile_fail,E0382
/// # use farside::pipe::Loan;
/// fn written_after_it_was_committed(mut loan: Loan<'_, '_>) {
///     let _sent = loan.commit();
///     loan[0] = 1;
/// }
/// ```
///
/// ```compile_fail,E0499
/// # use farside::pipe::PipeWriter;
/// fn two_at_a_time(writer: &mut PipeWriter<'_>) -> farside::Result<()> {
///     let (one, another) = (writer.loan(8)?, writer.loan(8)?);
///     one.commit()?;
///     another.commit()
/// }
/// ```
#[derive(Debug)]
#[must_use = "a loan that is not committed sends nothing"]
pub struct Loan<'a, 'w> {
    writer: &'a mut PipeWriter<'w>,
    bytes: usize,
}

impl<'a, 'w> Loan<'a, 'w> {
    /// In the slot that is free.
    fn new(writer: &'a mut PipeWriter<'w>, bytes: usize) -> Self {
        if let Some(Way::Posted { .. }) = writer.way {
            writer.staging.resize(bytes, 0);
        }
        Self { writer, bytes }
    }

    /// Gives the message to the reader: what [`PipeWriter::write`] does when it has copied.
    ///
    /// # Errors
    /// [`Error::PeerLost`], or what else the transport said, where the reader's memory is not mapped. Then nothing is sent.
    pub fn commit(self) -> Result<()> {
        if let Some(Way::Mapped { .. }) = self.writer.way {
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
        match &self.writer.way {
            Some(Way::Mapped { slots, .. }) => {
                let place = slots.place(self.writer.writing.slot(), self.bytes);
                // SAFETY: as for `deref_mut`.
                unsafe { slice::from_raw_parts(place, self.bytes) }
            }
            _ => &self.writer.staging,
        }
    }
}

impl DerefMut for Loan<'_, '_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &self.writer.way {
            Some(Way::Mapped { slots, .. }) => {
                let place = slots.place(self.writer.writing.slot(), self.bytes);
                // SAFETY: the place is mapped as long as `slots` lives, has room for so many bytes (their count was checked before the loan was made), and
                // holds some bytes or other. The slot is free, so by the protocol (`protocol`) its reader has read it for the last time, and
                // touches it no more before its flag is set, for which the loan must be committed. No other process is given this memory; it has no
                // handle. `self` is borrowed as long as the slice lives, and nobody else here reaches the slot.
                unsafe { slice::from_raw_parts_mut(place, self.bytes) }
            }
            _ => &mut self.writer.staging,
        }
    }
}

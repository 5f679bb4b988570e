//! [`Incoming`]: a stream of results, as its caller receives it.

use std::collections::VecDeque;
use std::task::{Poll, Waker};

use farside_wire::{Decoder, Wire};

use super::pending::{Sent, lost};
use crate::answer::{self, DONE, MORE, Refused};
use crate::bulk::Received;
use crate::error::{CallError, Never, RESULT, Stage};
use crate::frame::{Head, Kind};
use crate::link::Patience;
use crate::path::LinkEnd;
use crate::stream::WINDOW;

/// The frames of a stream that have arrived and were not consumed.
#[derive(Debug)]
pub(super) struct Arrived {
    frames: VecDeque<Frame>,
    /// The number of frames that the server may still send.
    credit: u64,
}

#[derive(Debug)]
struct Frame {
    status: u8,
    count: u64,
    body: Vec<u8>,
}

impl Default for Arrived {
    fn default() -> Self {
        Self { frames: VecDeque::new(), credit: WINDOW }
    }
}

impl Arrived {
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Takes a frame of items in. The one that ends the stream needs no credit.
    pub(super) fn add(&mut self, head: Head, body: &[u8]) -> Result<(), LinkEnd> {
        if head.status == MORE {
            if head.value == 0 {
                return Err(LinkEnd::protocol("a frame without items"));
            }
            self.credit = self.credit.checked_sub(1).ok_or_else(|| LinkEnd::protocol("items without credit"))?;
        }
        self.frames.push_back(Frame { status: head.status, count: head.value, body: body.to_vec() });
        Ok(())
    }
}

/// Reads the answer of a call.
#[inline]
pub(super) fn read<T: Wire, E: Wire>(status: u8, body: &[u8], beside: Option<Received>) -> Result<T, CallError<E>> {
    match beside {
        None => answer::read(status, Decoder::new(body)),
        Some(received) => answer::read(status, Decoder::new(body).within(&received)),
    }
}

/// A stream of results. Dropping it cancels its call.
pub(crate) struct Incoming {
    sent: Sent,
    patience: Patience,
    /// The frame whose items are given out. Its count is that of the items left.
    frame: Frame,
    /// Where its next item begins.
    at: usize,
    /// The number of frames since the last credit.
    consumed: u64,
}

impl Incoming {
    /// The stream that the answer of a call begins.
    pub(super) fn new(sent: Sent, patience: Patience) -> Self {
        let frame = Frame { status: MORE, count: 0, body: Vec::new() };
        Self { sent, patience, frame, at: 0, consumed: 0 }
    }

    /// The next item, or `None` at the end of the stream.
    pub(crate) fn next<T: Wire>(&mut self) -> Result<Option<T>, CallError<Never>> {
        if !self.has_next()? {
            return Ok(None);
        }
        let mut input = Decoder::new(&self.frame.body[self.at..]);
        let item = T::decode(&mut input).map_err(|error| CallError::undecodable(RESULT, &error))?;
        self.at = self.frame.body.len() - input.remaining();
        self.frame.count -= 1;
        Ok(Some(item))
    }

    /// Several encoded items at once, and their number. `None` at the end of the stream.
    pub(super) fn next_encoded(&mut self) -> Result<Option<(u64, Vec<u8>)>, CallError<Never>> {
        if !self.has_next()? {
            return Ok(None);
        }
        let items = self.frame.body.split_off(self.at);
        self.frame.body.clear();
        self.at = 0;
        Ok(Some((std::mem::take(&mut self.frame.count), items)))
    }

    /// Waits for an item. Returns whether there is one.
    fn has_next(&mut self) -> Result<bool, CallError<Never>> {
        while self.frame.count == 0 {
            match self.frame.body.len() - self.at {
                0 if self.frame.status == DONE => return Ok(false),
                0 => self.receive()?,
                left => {
                    let cause = format!("{left} bytes are left over after the items of a frame");
                    return Err(CallError::Undecodable { what: RESULT, cause });
                }
            }
        }
        Ok(true)
    }

    /// Ready when [`next`](Self::next) need not wait for long.
    pub(crate) fn poll_arrived(&mut self, task: &Waker) -> Poll<()> {
        let has_items = self.frame.count > 0 || self.at < self.frame.body.len() || self.frame.status != MORE;
        let is_ready = has_items || self.sent.connection.link.is_forked();
        if is_ready || !self.sent.connection.calls.set_task_of_stream(self.sent.number, task) {
            return Poll::Ready(());
        }
        self.sent.have_task_woken(self.patience.deadline)
    }

    /// Waits for the next frame of items.
    fn receive(&mut self) -> Result<(), CallError<Never>> {
        let Sent { connection, number, .. } = &self.sent;
        let take = || connection.calls.with_arrived(*number, |arrived| arrived.frames.pop_front()).flatten();
        let frame = connection.link.wait(&self.patience, take).map_err(lost)?;
        if frame.status != MORE && frame.status != DONE {
            let refused: Result<Refused, _> = farside_wire::decode(Decoder::new(&frame.body), 0);
            return Err(match refused.map_err(|error| CallError::undecodable(RESULT, &error))? {
                // Its first items ran.
                Refused::Expired => CallError::Deadline { stage: Stage::Waiting },
                refused => refused.into(),
            });
        }
        self.consumed += 1;
        if frame.status == MORE && self.consumed >= WINDOW / 2 {
            connection.calls.with_arrived(*number, |arrived| arrived.credit += self.consumed);
            // The next wait reports a failure.
            let _ = connection.link.send(Head::new(Kind::Credit, *number).with_value(self.consumed), &[]);
            self.consumed = 0;
        }
        (self.frame, self.at) = (frame, 0);
        Ok(())
    }
}

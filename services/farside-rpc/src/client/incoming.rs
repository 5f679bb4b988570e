//! The answers of calls, and the streams that they begin.

use std::collections::VecDeque;
use std::task::{Poll, Waker};

use farside_connect::LinkEnd;
use farside_connect::attachments::Received;
use farside_connect::frame::{Head, Kind};
use farside_connect::patience::Patience;
use farside_wire::{Decoder, Wire};

use super::pending::{Sent, lost};
use crate::answer::{self, DONE, MORE, Refused};
use crate::error::{CallError, Never, RESULT, Stage};
use crate::stream::{Incoming, ItemFrame, ItemFrames, WINDOW};

/// The frames of a stream that have arrived and were not consumed.
#[derive(Debug)]
pub(super) struct Arrived {
    frames: VecDeque<ItemFrame>,
    /// The number of frames that the server may still send.
    credit: u64,
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
        self.frames.push_back(ItemFrame { status: head.status, count: head.value, body: body.to_vec() });
        Ok(())
    }
}

/// Reads the answer of a call.
#[inline]
pub(super) fn read<T: Wire, E: Wire>(status: u8, body: &[u8], attached: Option<Received>) -> Result<T, CallError<E>> {
    match attached {
        None => answer::read(status, Decoder::new(body)),
        Some(received) => answer::read(status, Decoder::new(body).within(&received)),
    }
}

/// The frames of the stream that a call has begun. Dropping it cancels the call.
pub(super) struct StreamOfCall {
    sent: Sent,
    patience: Patience,
    /// The number of frames since the last credit.
    consumed: u64,
}

impl StreamOfCall {
    /// The stream that the answer of a call begins.
    pub(super) fn begin(sent: Sent, patience: Patience) -> Incoming {
        Incoming::new(Box::new(Self { sent, patience, consumed: 0 }))
    }
}

impl ItemFrames for StreamOfCall {
    fn next_frame(&mut self) -> Result<ItemFrame, CallError<Never>> {
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
        Ok(frame)
    }

    fn poll_arrived(&mut self, task: &Waker) -> Poll<()> {
        let is_forked = self.sent.connection.link.is_forked();
        if is_forked || !self.sent.connection.calls.set_task_of_stream(self.sent.number, task) {
            return Poll::Ready(());
        }
        self.sent.have_task_woken(self.patience.deadline)
    }
}

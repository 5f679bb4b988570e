//! The state of calls in each process, and the handling of their service messages.

use std::sync::{Arc, Mutex, MutexGuard};

use farside_fabric::{ProcessId, WorkerId};
use farside_launch::kill_point::KillPoint;

use crate::invoke::caller::Callers;
use crate::invoke::frames::WaitingFrames;
use crate::invoke::message::{CALL, CallMessage, FRAME, Frame, RingName};
use crate::invoke::message_replies::{MessageReplies, take_mark, take_piece};
use crate::invoke::named::Names;
use crate::invoke::notify::{Latches, count_down};
use crate::invoke::reply_slots::ReplySlots;
use crate::invoke::ring::backlog::Backlog;
use crate::invoke::ring::pool::RingPool;
use crate::invoke::ring::rings::{OwnRings, Ways};
use crate::invoke::ring::shared::SharedRings;
use crate::invoke::table::FunctionTable;
use crate::runtime::home::Home;
use crate::runtime::pool::Pool;
use crate::runtime::process::{JobFacts, Notice, Process, lock};

/// The state of calls in one process.
#[derive(Debug)]
pub(crate) struct Calls {
    /// The functions that can be called here.
    pub(crate) table: FunctionTable,
    /// The functions that can be called here by name.
    pub(crate) names: Names,
    pub(crate) shared_rings: SharedRings,
    pub(crate) ways: Ways,
    pub(crate) backlog: Backlog,
    pub(crate) rings: OwnRings,
    pub(crate) waiting_frames: WaitingFrames,
    latches: Mutex<Latches>,
    /// The message replies to each callable thread, and to the other threads together.
    pub(crate) message_replies: Box<[Arc<MessageReplies>]>,
    /// The state that the non-worker threads of this process share.
    pub(crate) callers: Callers,
    pub(crate) pool: Pool,
}

impl Calls {
    pub(crate) fn new(table: FunctionTable, names: Names, job: &JobFacts, home: &Home) -> Self {
        let (shape, settings) = (job.shape, &job.settings);
        let threads = shape.callable_per_process() as usize;
        let callers = shape.callers();
        let message_replies: Box<[_]> =
            (0..=callers).map(|local| Arc::new(MessageReplies::new(home.layout().reply_slots(local)))).collect();
        let caller_slots =
            ReplySlots::new(home.clone(), callers, shape.callers_of(job.id), message_replies[callers].clone());
        Self {
            table,
            names,
            shared_rings: SharedRings::new(shape.callable() as usize),
            ways: Ways::default(),
            backlog: Backlog::default(),
            rings: OwnRings::new(RingPool::new(settings.ring_cap_bytes, threads)),
            waiting_frames: WaitingFrames::default(),
            latches: Mutex::new(Latches::new()),
            message_replies,
            callers: Callers::new(caller_slots),
            pool: Pool::new(settings),
        }
    }
    pub(crate) fn latches(&self) -> MutexGuard<'_, Latches> {
        lock(&self.latches)
    }

    /// Takes in a service message of calls. Drops a malformed message, because its sender is not of
    /// this job.
    pub(crate) fn take(&self, process: &Process, from: ProcessId, message: Vec<u8>) {
        match message.first() {
            Some(&CALL) => {
                if let Some(message) = CallMessage::decode(&message[1..]) {
                    self.obey(process, from, message);
                }
            }
            Some(&FRAME) => {
                if let Some(frame) = Frame::new(message)
                    && let Some(local) = incoming(&process.job, from, frame.place.ring)
                    && self.waiting_frames.admit(&frame)
                {
                    process.links.meet_unmapped_peer();
                    process.mailboxes.notify(local, Notice::Frame(frame));
                }
            }
            _ => {}
        }
    }

    /// Serves a request of a peer's service thread, or takes in its answer.
    fn obey(&self, process: &Process, from: ProcessId, message: CallMessage) {
        match message {
            CallMessage::Open { ring, chunks, chunk_bytes } => {
                if let Some(local) = incoming(&process.job, from, ring)
                    && let Some(answer) = self.rings.open(process, ring, local, chunks, chunk_bytes)
                {
                    respond(process, from, &answer);
                }
            }
            CallMessage::Grow { ring, chunks, chunk_bytes } => {
                if let Some(local) = incoming(&process.job, from, ring)
                    && let Some(answer) = self.rings.grow(process, ring, local, from, chunks, chunk_bytes)
                {
                    respond(process, from, &answer);
                }
            }
            CallMessage::Close { ring } => {
                if let Some(local) = incoming(&process.job, from, ring) {
                    self.rings.close(process, ring, local);
                }
            }
            answer @ (CallMessage::Opened { .. }
            | CallMessage::Grown { .. }
            | CallMessage::Refused { .. }
            | CallMessage::FrameCredit { .. }
            | CallMessage::Closed { .. }
            | CallMessage::Reclaim { .. }) => self.ways.take_answer(process, from, answer),
            CallMessage::Reply { reply, piece } => take_piece(process, from, reply, piece),
            CallMessage::ReplyMoved { reply, number, mark } => take_mark(process, from, reply, number, mark),
            CallMessage::CountDown { latch } => {
                if process.shape().answer_place(latch.worker).is_some_and(|(of, _)| of == process.id()) {
                    count_down(process, latch);
                }
            }
        }
    }
}

/// Returns the thread of this process to which a ring from a source of `from` leads; `None` if
/// `ring` names no such ring.
fn incoming(job: &JobFacts, from: ProcessId, ring: RingName) -> Option<usize> {
    (job.owner_of(ring.source)? == from).then_some(())?;
    let (of, local) = job.place_of(WorkerId::new(ring.to))?;
    (of == job.id).then_some(local)
}

/// Answers the sender of a ring.
pub(crate) fn respond(process: &Process, to: ProcessId, message: &CallMessage) {
    match message {
        CallMessage::Opened { control, chunks, .. } => {
            process.links.offer(to, *control);
            chunks.iter().for_each(|chunk| process.links.offer(to, *chunk));
        }
        CallMessage::Grown { chunks, .. } => chunks.iter().for_each(|chunk| process.links.offer(to, *chunk)),
        _ => {}
    }
    // A sender that is gone needs no answer.
    let _ = process.send_call(to, message);
    process.kill_point(KillPoint::RingAnswered);
}

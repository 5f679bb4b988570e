//! The state of calls in each process, and the handling of their service messages.

use std::sync::{Arc, Mutex, MutexGuard};

use farside_fabric::{MachineId, ProcessId, WorkerId};
use farside_launch::kill_point::KillPoint;
use farside_launch::settings::Settings;

use crate::error::{Error, Result, Source};
use crate::invoke::caller::Callers;
use crate::invoke::frames::WaitingFrames;
use crate::invoke::letters::{Letters, take_mark, take_piece};
use crate::invoke::message::{CALL, CallMessage, FRAME, Frame, RingName};
use crate::invoke::named::{NAMED, Names};
use crate::invoke::notify::{Latches, count_down};
use crate::invoke::reply_slots::ReplySlots;
use crate::invoke::ring::backlog::Backlog;
use crate::invoke::ring::lane::Lanes;
use crate::invoke::ring::pool::RingPool;
use crate::invoke::ring::rings::Ways;
use crate::invoke::table::FunctionTable;
use crate::runtime::home::{Home, Shape};
use crate::runtime::pool::Pool;
use crate::runtime::process::{Notice, Process, lock};

/// The functions that can be called in a process, and the processes that may call them by number.
#[derive(Debug)]
pub(crate) struct Functions {
    pub(crate) table: FunctionTable,
    pub(crate) names: Names,
    /// True for each process that runs this binary. Empty if all do.
    pub(crate) alike: Box<[bool]>,
    /// The machine of each process. Empty when there is one. `Process` takes it.
    pub(crate) machines: Box<[MachineId]>,
    /// The number that tells the job from others.
    pub(crate) job_id: u64,
}

/// The state of calls in one process.
#[derive(Debug)]
pub(crate) struct Calls {
    functions: Functions,
    pub(crate) lanes: Lanes,
    pub(crate) ways: Ways,
    pub(crate) backlog: Backlog,
    pub(crate) ring_pool: Mutex<RingPool>,
    pub(crate) waiting_frames: WaitingFrames,
    latches: Mutex<Latches>,
    /// The message replies to each callable thread, and to the other threads together.
    letters: Box<[Arc<Letters>]>,
    callers: Callers,
    pool: Pool,
}

impl Calls {
    pub(crate) fn new(functions: Functions, id: ProcessId, shape: Shape, settings: &Settings, home: &Home) -> Self {
        let threads = shape.callable_per_process() as usize;
        let callers = shape.callers();
        let letters: Box<[_]> =
            (0..=callers).map(|local| Arc::new(Letters::new(home.layout().reply_slots(local)))).collect();
        let caller_slots = ReplySlots::new(home.clone(), callers, shape.callers_of(id), letters[callers].clone());
        Self {
            functions,
            lanes: Lanes::new(shape.callable() as usize),
            ways: Ways::default(),
            backlog: Backlog::default(),
            ring_pool: Mutex::new(RingPool::new(settings.ring_cap_bytes, threads)),
            waiting_frames: WaitingFrames::default(),
            latches: Mutex::new(Latches::new()),
            letters,
            callers: Callers::new(caller_slots),
            pool: Pool::new(settings),
        }
    }
}

impl Process {
    #[inline]
    pub(crate) fn table(&self) -> &FunctionTable {
        &self.calls().functions.table
    }

    /// The functions that can be called here by name.
    pub(crate) fn names(&self) -> &Names {
        &self.calls().functions.names
    }

    /// Returns whether a process runs the same binary as this one.
    #[inline]
    pub(crate) fn is_alike(&self, process: ProcessId) -> bool {
        self.calls().functions.alike.is_empty()
            || self.calls().functions.alike.get(process.index()).copied().unwrap_or(false)
    }

    /// Returns the number that tells this job from others.
    pub(crate) fn job_id(&self) -> u64 {
        self.calls().functions.job_id
    }

    /// Returns whether the job's processes run several binaries.
    pub(crate) fn is_mixed(&self) -> bool {
        !self.calls().functions.alike.is_empty()
    }

    /// Returns whether a source runs the same binary as this process, so that its records may call
    /// the table's entries.
    #[inline]
    pub(crate) fn is_alike_source(&self, source: Source) -> bool {
        !self.is_mixed() || self.process_of(source).is_some_and(|process| self.is_alike(process))
    }

    /// Checks that a process understands calls of this entry.
    ///
    /// # Errors
    /// [`Error::DifferentBinaries`].
    pub(crate) fn check_callable(&self, process: ProcessId, entry: u16) -> Result<()> {
        match entry == NAMED || self.is_alike(process) {
            true => Ok(()),
            false => Err(Error::DifferentBinaries { a: self.id(), b: process }),
        }
    }

    pub(crate) fn latches(&self) -> MutexGuard<'_, Latches> {
        lock(&self.calls().latches)
    }

    /// The message replies to a callable thread, or to all other threads.
    pub(crate) fn letters(&self, local: usize) -> &Arc<Letters> {
        &self.calls().letters[local]
    }

    /// The state that the non-worker threads of this process share.
    pub(crate) fn callers(&self) -> &Callers {
        &self.calls().callers
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.calls().pool
    }

    pub(crate) fn lanes(&self) -> &Lanes {
        &self.calls().lanes
    }

    /// Takes in a service message of calls. Drops a malformed message, because its sender is not of
    /// this job.
    pub(crate) fn take_call_message(&self, from: ProcessId, message: Vec<u8>) {
        match message.first() {
            Some(&CALL) => {
                if let Some(message) = CallMessage::decode(&message[1..]) {
                    self.obey(from, message);
                }
            }
            Some(&FRAME) => {
                if let Some(frame) = Frame::new(message)
                    && let Some(local) = self.incoming(from, frame.place.ring)
                    && self.calls().waiting_frames.admit(&frame)
                {
                    self.meet_unmapped_peer();
                    self.notify(local, Notice::Frame(frame));
                }
            }
            _ => {}
        }
    }

    /// Serves a request of a peer's service thread, or takes in its answer.
    fn obey(&self, from: ProcessId, message: CallMessage) {
        match message {
            CallMessage::Open { ring, chunks, chunk_bytes } => {
                if let Some(local) = self.incoming(from, ring)
                    && let Some(answer) = self.open_ring(ring, local, chunks, chunk_bytes)
                {
                    self.respond(from, &answer);
                }
            }
            CallMessage::Grow { ring, chunks, chunk_bytes } => {
                if let Some(local) = self.incoming(from, ring)
                    && let Some(answer) = self.grow_ring(ring, local, from, chunks, chunk_bytes)
                {
                    self.respond(from, &answer);
                }
            }
            CallMessage::Close { ring } => {
                if let Some(local) = self.incoming(from, ring) {
                    self.close_ring(ring, local);
                }
            }
            answer @ (CallMessage::Opened { .. }
            | CallMessage::Grown { .. }
            | CallMessage::Refused { .. }
            | CallMessage::FrameCredit { .. }
            | CallMessage::Closed { .. }
            | CallMessage::Reclaim { .. }) => self.take_answer(from, answer),
            CallMessage::Reply { reply, piece } => take_piece(self, from, reply, piece),
            CallMessage::ReplyMoved { reply, number, mark } => take_mark(self, from, reply, number, mark),
            CallMessage::CountDown { latch } => {
                if self.shape().answer_place(latch.worker).is_some_and(|(of, _)| of == self.id()) {
                    count_down(self, latch);
                }
            }
        }
    }

    /// Returns the thread of this process to which a ring from a source of `from` leads; `None` if
    /// `ring` names no such ring.
    fn incoming(&self, from: ProcessId, ring: RingName) -> Option<usize> {
        (self.owner_of(ring.source)? == from).then_some(())?;
        let (of, local) = self.place_of(WorkerId::new(ring.to))?;
        (of == self.id()).then_some(local)
    }

    /// Answers the sender of a ring.
    pub(crate) fn respond(&self, to: ProcessId, message: &CallMessage) {
        match message {
            CallMessage::Opened { control, chunks, .. } => {
                self.offer(to, *control);
                chunks.iter().for_each(|chunk| self.offer(to, *chunk));
            }
            CallMessage::Grown { chunks, .. } => chunks.iter().for_each(|chunk| self.offer(to, *chunk)),
            _ => {}
        }
        // A sender that is gone needs no answer.
        let _ = self.send_call(to, message);
        self.kill_point(KillPoint::RingAnswered);
    }
}

//! What an end of a pipe shares with the service thread of its process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use farside_fabric::WorkerId;
use farside_fabric::bell::Fencing;

use super::error::{PipeCause, PipeName};
use super::shape::{PipeShape, Slots};
use crate::error::{Error, Result};
use crate::invoke::ring::message::Piece;
use crate::runtime::home::Home;
use crate::runtime::process::{Process, lock};

/// The writer has not closed.
const OPEN: u64 = u64::MAX;

/// The reader's end: the memory of the pipe, and what its process was told about the other end.
#[derive(Debug)]
pub(super) struct Inlet {
    pub(super) slots: Slots,
    pub(super) piece: Piece,
    /// How many messages there are in all, or [`OPEN`]. Written by who takes the writer's last word in.
    sent_in_all: AtomicU64,
    /// What the writer calls the pipe, and one more; 0 before it came.
    session: AtomicU64,
    /// The writer's process has not mapped this memory: it sends messages, and wants to be answered so.
    by_message: AtomicBool,
    /// The writer came with another shape.
    mismatch: OnceLock<PipeShape>,
}

impl Inlet {
    pub(super) fn new(slots: Slots, piece: Piece) -> Self {
        slots.reset();
        Self {
            slots,
            piece,
            sent_in_all: AtomicU64::new(OPEN),
            session: AtomicU64::new(0),
            by_message: AtomicBool::new(false),
            mismatch: OnceLock::new(),
        }
    }

    pub(super) fn set_session(&self, session: u32) {
        self.session.store(u64::from(session) + 1, Ordering::Release);
    }

    /// What the writer calls the pipe, if it has come.
    pub(super) fn session(&self) -> Option<u32> {
        self.session.load(Ordering::Acquire).checked_sub(1).map(|session| session as u32)
    }

    pub(super) fn close(&self, sent: u64) {
        // SYNC: pairs with the acquire in `sent_in_all`: the flags of all these messages are set, or will be by this process.
        self.sent_in_all.store(sent, Ordering::Release);
    }

    /// How many messages there are in all, if the writer has closed.
    pub(super) fn sent_in_all(&self) -> Option<u64> {
        let sent = self.sent_in_all.load(Ordering::Acquire);
        (sent != OPEN).then_some(sent)
    }

    pub(super) fn meet_messages(&self) {
        self.by_message.store(true, Ordering::Relaxed);
    }

    pub(super) fn by_message(&self) -> bool {
        self.by_message.load(Ordering::Relaxed)
    }

    pub(super) fn set_mismatch(&self, there: PipeShape) {
        let _ = self.mismatch.set(there);
    }

    pub(super) fn mismatch(&self) -> Option<PipeShape> {
        self.mismatch.get().copied()
    }
}

/// The way to a pipe's memory, for its writer.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// It is mapped here, and so is the reader's doorbell.
    Mapped { slots: Slots, bell: Bell },
    /// It is reached by messages and puts.
    Posted { piece: Piece },
}

/// The writer's end, as far as others write it.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) name: PipeName,
    pub(super) shape: PipeShape,
    pub(super) session: u32,
    /// What the reader's process said.
    answer: OnceLock<Result<Way, PipeCause>>,
    /// How many messages were taken, where that comes by message. Written by who takes those in.
    pub(super) taken: AtomicU64,
    reader_closed: AtomicBool,
    transfers: Mutex<Transfers>,
}

/// Puts of long messages that have not ended, where the reader's memory is not mapped.
#[derive(Debug, Default)]
struct Transfers {
    underway: usize,
    /// The writer is gone, having sent so many messages: to be said when the last put has ended.
    closing: Option<u64>,
    failed: Option<String>,
}

impl Outlet {
    pub(super) fn new(name: PipeName, shape: PipeShape, session: u32) -> Self {
        Self {
            name,
            shape,
            session,
            answer: OnceLock::new(),
            taken: AtomicU64::new(0),
            reader_closed: AtomicBool::new(false),
            transfers: Mutex::default(),
        }
    }

    pub(super) fn set_answer(&self, answer: Result<Way, PipeCause>) {
        let _ = self.answer.set(answer);
    }

    pub(super) fn answer(&self) -> Option<&Result<Way, PipeCause>> {
        self.answer.get()
    }

    pub(super) fn close_reader(&self, taken: u64) {
        self.taken.fetch_max(taken, Ordering::Release);
        self.reader_closed.store(true, Ordering::Release);
    }

    #[inline]
    pub(super) fn reader_is_closed(&self) -> bool {
        self.reader_closed.load(Ordering::Acquire)
    }

    pub(super) fn begin_transfer(&self) {
        lock(&self.transfers).underway += 1;
    }

    /// A put has ended. If it was the last of a writer that is gone: how many messages that has sent.
    pub(super) fn end_transfer(&self, failed: Option<String>) -> Option<u64> {
        let mut transfers = lock(&self.transfers);
        transfers.underway -= 1;
        if failed.is_some() {
            transfers.failed = failed;
        }
        if transfers.underway == 0 { transfers.closing.take() } else { None }
    }

    /// Whether puts are under way.
    pub(super) fn is_transferring(&self) -> bool {
        lock(&self.transfers).underway > 0
    }

    /// Why a message did not get there.
    pub(super) fn failure(&self) -> Option<String> {
        lock(&self.transfers).failed.clone()
    }

    /// The writer is gone. Says whether no put is under way any more; otherwise who ends the last one is told.
    pub(super) fn close_writer(&self, sent: u64) -> bool {
        let mut transfers = lock(&self.transfers);
        if transfers.underway > 0 {
            transfers.closing = Some(sent);
        }
        transfers.underway == 0
    }
}

/// The doorbell of a worker whose process's memory is mapped here.
#[derive(Clone, Debug)]
pub(super) struct Bell {
    home: Home,
    local: usize,
    fencing: Fencing,
}

impl Bell {
    /// `None` where it is not mapped. Waits for the service thread of that process when it is not connected.
    ///
    /// # Errors
    /// [`Error::PeerLost`], and what the transport said.
    pub(super) fn of(process: &Process, worker: WorkerId) -> Result<Option<Self>> {
        Self::of_within(process, worker, process.settings().deadline)
    }

    /// As [`of`](Self::of), and waits for no longer than that.
    pub(super) fn of_within(process: &Process, worker: WorkerId, time: Duration) -> Result<Option<Self>> {
        let (owner, local) = process.place_of(worker).ok_or_else(|| unknown(process, worker))?;
        if process.home_of(owner).is_none() {
            process.starter_region(owner, process.clock().now() + time)?;
        }
        Ok(process.home_of(owner).map(|home| {
            let fencing = if process.hears_fences() { home.doorbell(local).fencing() } else { Fencing::Mutual };
            Self { home: home.clone(), local, fencing }
        }))
    }

    /// After something was published for the worker.
    #[inline(always)]
    pub(super) fn ring(&self) {
        self.home.doorbell(self.local).ring(self.fencing);
    }
}

pub(super) fn unknown(process: &Process, worker: WorkerId) -> Error {
    Error::UnknownWorker { worker, count: process.shape().workers() }
}

//! The state that an end of a pipe shares with the service thread of its process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use farside::kit::{Extent, Home, Process};
use farside::{Error, Result};
use farside_fabric::WorkerId;
use farside_fabric::bell::Fencing;
use farside_fabric::clock::lock;

use super::error::{PipeCause, PipeName};
use super::shape::{Slots, Terms};

/// The value of `Inlet::sent_in_all` until the writer has closed.
const OPEN: u64 = u64::MAX;

/// The reading end: the pipe's memory, and what this process knows of the writer.
#[derive(Debug)]
pub(super) struct Inlet {
    pub(super) slots: Slots,
    pub(super) piece: Extent,
    pub(super) terms: Terms,
    /// The total number of messages, or [`OPEN`]. Written by the thread that receives
    /// `WriterClosed`, read by the reader.
    sent_in_all: AtomicU64,
    /// The writer's session number plus one; 0 until the writer came.
    session: AtomicU64,
    /// The writer's process has not mapped this memory: it sends messages, and expects messages
    /// back.
    by_message: AtomicBool,
    /// The terms of a writer that came with other terms.
    mismatch: OnceLock<Terms>,
}

impl Inlet {
    pub(super) fn new(slots: Slots, piece: Extent, terms: Terms) -> Self {
        slots.reset();
        Self {
            slots,
            piece,
            terms,
            sent_in_all: AtomicU64::new(OPEN),
            session: AtomicU64::new(0),
            by_message: AtomicBool::new(false),
            mismatch: OnceLock::new(),
        }
    }

    pub(super) fn set_session(&self, session: u32) {
        self.session.store(u64::from(session) + 1, Ordering::Release);
    }

    /// Returns the writer's session number, if the writer came.
    pub(super) fn session(&self) -> Option<u32> {
        self.session.load(Ordering::Acquire).checked_sub(1).map(|session| session as u32)
    }

    pub(super) fn close(&self, sent: u64) {
        // SYNC: pairs with the acquire in `sent_in_all`: the flags of all these messages are set,
        // or this process will set them.
        self.sent_in_all.store(sent, Ordering::Release);
    }

    /// Returns the total number of messages, if the writer has closed.
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

    pub(super) fn set_mismatch(&self, there: Terms) {
        let _ = self.mismatch.set(there);
    }

    pub(super) fn mismatch(&self) -> Option<&Terms> {
        self.mismatch.get()
    }
}

/// A writer's link to the pipe's memory.
#[derive(Clone, Debug)]
pub(super) enum Link {
    /// The memory is mapped here, and so is the reader's doorbell.
    Mapped { slots: Slots, bell: Bell },
    /// The memory is reached by messages and puts.
    Posted { piece: Extent },
}

/// The state of the writing end that other threads change.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) name: PipeName,
    pub(super) terms: Terms,
    pub(super) session: u32,
    /// The answer of the reader's process.
    answer: OnceLock<Result<Link, PipeCause>>,
    /// The number of messages taken, where messages report it. Written by the thread that receives
    /// them, read by the writer.
    pub(super) taken: AtomicU64,
    reader_closed: AtomicBool,
    transfers: Mutex<Transfers>,
}

/// The puts of long messages in progress, where the reader's memory is not mapped.
#[derive(Debug, Default)]
struct Transfers {
    underway: usize,
    /// The writer has closed after this number of messages. The end of the last put reports it.
    closing: Option<u64>,
    failed: Option<String>,
}

impl Outlet {
    pub(super) fn new(name: PipeName, terms: Terms, session: u32) -> Self {
        Self {
            name,
            terms,
            session,
            answer: OnceLock::new(),
            taken: AtomicU64::new(0),
            reader_closed: AtomicBool::new(false),
            transfers: Mutex::default(),
        }
    }

    pub(super) fn set_answer(&self, answer: Result<Link, PipeCause>) {
        let _ = self.answer.set(answer);
    }

    pub(super) fn answer(&self) -> Option<&Result<Link, PipeCause>> {
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

    /// Notes the end of a put. If it was the last one of a closed writer, returns the writer's
    /// number of messages.
    pub(super) fn end_transfer(&self, failed: Option<String>) -> Option<u64> {
        let mut transfers = lock(&self.transfers);
        transfers.underway -= 1;
        if failed.is_some() {
            transfers.failed = failed;
        }
        if transfers.underway == 0 { transfers.closing.take() } else { None }
    }

    /// Returns whether puts are in progress.
    pub(super) fn is_transferring(&self) -> bool {
        lock(&self.transfers).underway > 0
    }

    /// Returns the reason why a message did not arrive.
    pub(super) fn failure(&self) -> Option<String> {
        lock(&self.transfers).failed.clone()
    }

    /// Notes that the writer has closed. Returns whether no put is in progress; if one is,
    /// `end_transfer` returns `sent` for the last one.
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
    /// Returns the doorbell of a worker, if it is mapped here. Does not wait.
    pub(super) fn mapped(process: &Process, worker: WorkerId) -> Option<Self> {
        let (owner, local) = process.job.place_of(worker)?;
        let home = process.links.home_of(owner)?;
        let fencing = if process.waits.is_reached_by_fences { home.doorbell(local).fencing() } else { Fencing::Mutual };
        Some(Self { home: home.clone(), local, fencing })
    }

    /// Returns the doorbell of a worker, or `None` if it is not mapped here. If its process is not
    /// connected, this waits for that process's service thread, for at most `time`.
    ///
    /// # Errors
    /// [`Error::PeerLost`], and errors of the transport.
    pub(super) fn of_within(process: &Process, worker: WorkerId, time: Duration) -> Result<Option<Self>> {
        let (owner, _) = process.job.place_of(worker).ok_or_else(|| unknown(process, worker))?;
        if process.links.home_of(owner).is_none() {
            process.starter_region(owner, process.clock().now() + time)?;
        }
        Ok(Self::mapped(process, worker))
    }

    /// Rings the doorbell, after something was published for the worker.
    #[inline(always)]
    pub(super) fn ring(&self) {
        self.home.doorbell(self.local).ring(self.fencing);
    }
}

pub(super) fn unknown(process: &Process, worker: WorkerId) -> Error {
    Error::UnknownWorker { worker, count: process.shape().workers() }
}

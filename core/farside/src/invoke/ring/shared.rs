//! Shared rings: the path from all threads of a process to a worker.
//!
//! A shared ring is a ring like any other. But its source is a process, and its sending side is
//! behind a lock of that process. A lock shared by several processes could stay locked when one of
//! them dies. This lock dies with its users (Seriema §4.3).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use farside_fabric::{ProcessId, WorkerId};

use crate::error::{Error, Result};
use crate::invoke::call::WhenFull;
use crate::invoke::outbox::{Dispatch, Outbox};
use crate::invoke::payload::{AnyPayload, Payload};
use crate::invoke::ring::rings::new_outbox;
use crate::runtime::process::{Process, lock};

/// The shared rings of one process, by receiver. Each is made when it is first used.
#[derive(Debug)]
pub(crate) struct SharedRings {
    /// Boxed, because a process of a large job has thousands of shared rings and uses few.
    by_receiver: Box<[OnceLock<Box<Mutex<Outbox>>>]>,
    /// True if some shared ring has staged records. Set by the thread that stages one.
    /// `send_staged` clears it, and sets it again if some are left.
    queued: AtomicBool,
}

impl SharedRings {
    pub(crate) fn new(receivers: usize) -> Self {
        Self { by_receiver: (0..receivers).map(|_| OnceLock::new()).collect(), queued: AtomicBool::new(false) }
    }

    fn existing(&self) -> impl Iterator<Item = &Mutex<Outbox>> {
        self.by_receiver.iter().filter_map(OnceLock::get).map(Box::as_ref)
    }

    /// The number of calls sent on all shared rings.
    pub(crate) fn calls(&self) -> u64 {
        self.existing().map(|ring| lock(ring).counters().calls).sum()
    }

    /// The number of calls sent on all shared rings to some processes.
    pub(crate) fn counted_calls(&self, is_counted: impl Fn(ProcessId) -> bool) -> u64 {
        self.existing().map(lock).filter(|ring| is_counted(ring.to_process())).map(|ring| ring.counted_calls()).sum()
    }

    /// Drops the records for a process that is gone.
    pub(crate) fn lose(&self, lost: ProcessId) {
        self.existing().map(lock).filter(|ring| ring.to_process() == lost).for_each(|mut ring| ring.lose());
    }

    /// Sends on the shared ring to a worker, if there is room and nothing else to do. Hands the
    /// payload back otherwise.
    pub(crate) fn try_send<P: Payload>(
        &self,
        process: &Process,
        to: WorkerId,
        how: Dispatch,
        payload: P,
    ) -> Result<(), P> {
        let Some(ring) = self.by_receiver.get(to.index()).and_then(OnceLock::get) else { return Err(payload) };
        let mut ring = lock(ring);
        let receiver = ring.to_process();
        if process.losses.is_lost(receiver)
            || process.accesses.is_observed()
            || process.job.check_callable(receiver, how.entry).is_err()
        {
            return Err(payload);
        }
        ring.try_send(how.entry, how.operand, payload).map(drop)
    }

    /// Sends on the shared ring to a worker.
    fn send(
        &self,
        process: &Process,
        to: WorkerId,
        how: Dispatch,
        payload: &mut dyn AnyPayload,
        when_full: WhenFull,
    ) -> Result<()> {
        let Some(cell) = self.by_receiver.get(to.index()) else {
            return Err(Error::UnknownWorker { worker: to, count: process.shape().workers() });
        };
        if cell.get().is_none()
            && let Some((owner, _)) = process.job.place_of(to)
            && !process.losses.is_lost(owner)
        {
            // Not under the shared ring's lock: this waits for another process's service thread,
            // and service threads take these locks.
            process.connect(owner)?;
        }
        let source = process.shape().callable() + process.id().number();
        let mut ring = lock(cell.get_or_init(|| Box::new(Mutex::new(new_outbox(process, source, to)))));
        if let Some(lost) = process.losses.lost(ring.to_process()) {
            return Err(lost);
        }
        process.job.check_callable(ring.to_process(), how.entry)?;
        let record_bytes = farside_fabric::ring::record_bytes(payload.bytes());
        let max = process.settings().ring_cap_bytes / 2;
        if record_bytes > max {
            return Err(Error::long_call(record_bytes, max));
        }
        let keeping = when_full.keeping();
        process.accesses.end();
        if ring.send(how, &mut *payload).is_ok() {
            return Ok(());
        }
        let sent = ring.send_slowly(process, how, keeping, payload);
        if !ring.is_finished() {
            self.queued.store(true, Ordering::Relaxed);
        }
        sent.map(drop)
    }

    /// Sends on the shared ring to a worker. Waits with `wait` if there is no room and `when_full`
    /// says so.
    pub(crate) fn send_or_wait(
        &self,
        process: &Process,
        to: WorkerId,
        how: Dispatch,
        payload: &mut dyn AnyPayload,
        when_full: WhenFull,
        mut wait: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        loop {
            match self.send(process, to, how, payload, when_full) {
                Err(Error::Full { .. }) if when_full == WhenFull::Retry => {
                    wait(farside_fabric::ring::record_bytes(payload.bytes()))?;
                }
                outcome => return outcome,
            }
        }
    }

    /// Returns whether the shared ring to a worker has room for a record, or its receiver is gone.
    /// Also sends staged records.
    ///
    /// # Errors
    /// [`Error::Full`] if the shared ring will never have room; otherwise any error of the
    /// transport.
    pub(crate) fn may_send(&self, process: &Process, to: WorkerId, record_bytes: usize) -> Result<bool> {
        let Some(ring) = self.by_receiver.get(to.index()).and_then(OnceLock::get) else { return Ok(true) };
        let mut ring = lock(ring);
        ring.send_staged(process)?;
        let may_send = ring.may_send(process, record_bytes)?;
        // The request stays announced, because another thread may wait, too. It costs the receiver
        // a look at this process's doorbells for each chunk.
        ring.wait_for_credit(true);
        // Looks once more for credit that came before the receiver could see the request.
        Ok(may_send || ring.may_send(process, record_bytes)?)
    }

    /// Gives up the shared ring to a worker if it is idle, because that worker's process needs the
    /// memory. Called by the service thread.
    pub(crate) fn give_up_if_idle(&self, process: &Process, to: WorkerId) {
        let ring = self.by_receiver.get(to.index()).and_then(OnceLock::get);
        // A locked shared ring is in use.
        if let Some(mut ring) = ring.and_then(|ring| ring.try_lock().ok()) {
            // A receiver that cannot be reached keeps the ring, or is gone.
            let _ = ring.give_up_if_idle(process);
        }
    }

    /// Returns whether some shared ring may have staged records.
    #[inline]
    pub(crate) fn are_queued(&self) -> bool {
        self.queued.load(Ordering::Relaxed)
    }

    /// Returns whether credit has arrived for records staged on some shared ring.
    pub(crate) fn may_move(&self) -> bool {
        self.existing().any(|ring| lock(ring).staged_may_move())
    }

    /// Sends records staged on the shared rings, as far as there is room. Returns whether anything
    /// was sent.
    pub(crate) fn send_staged(&self, process: &Process) -> Result<bool> {
        // Cleared before the looks: a thread that stages a record after a look sets it again.
        self.queued.store(false, Ordering::Relaxed);
        let mut sent = false;
        for ring in self.existing() {
            let mut ring = lock(ring);
            sent |= ring.send_staged(process)?;
            if !ring.is_finished() {
                self.queued.store(true, Ordering::Relaxed);
            }
        }
        Ok(sent)
    }
}

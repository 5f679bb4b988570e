//! The sending side of the way from one worker to another.
//!
//! The outbox holds the ring while nothing waits. It then writes each record straight into the
//! receiver's memory, and a call touches nothing else. Otherwise the ring is with the [`Way`],
//! which this worker shares with the service thread. That is so before the ring is open, and while
//! an earlier record waits for room. This worker sends the waiting records when it makes progress.
//! The service thread sends them if the worker does not (`invoke/ring/backlog.rs`).
//!
//! A receiver whose memory is not mapped here has no ring, and neither has one for whose ring there
//! is no memory or descriptor. Its records are staged, and staged records are sent as frames.
//!
//! Aggregated calls are collected in a [`Batch`] in memory of this process. Where there is a ring,
//! a batch that is long enough is copied into it and published. The room for a batch is reserved
//! when it begins, so the copy never waits. Where there is none, the batch is staged.

mod batch;
mod counters;
mod ring;
mod way;

use std::hint::black_box;
use std::time::{Duration, Instant};

use farside_fabric::ring::{Header, record_bytes};
use farside_fabric::{ProcessId, WorkerId};

use self::batch::{BATCH_BYTES_MAX, Batch};
pub use self::counters::{FlushCause, SendCounters};
pub(crate) use self::ring::Ring;
use self::ring::write_payload;
pub(crate) use self::way::{Answer, SharedWay, Way};
use super::named::NAMED;
use super::notify::{LatchAddress, count_down};
use super::payload::{AnyPayload, Payload};
use crate::error::{Error, LaunchError, Result};
use crate::invoke::message::RingName;
use crate::runtime::process::Process;
use farside_launch::ring_options::RingOptions;

/// The sending side of the way to one receiver.
#[derive(Debug)]
pub(crate) struct Outbox {
    to_process: ProcessId,
    /// The ring, while it is open, nothing is staged, the receiver lives, and direct calls are
    /// allowed.
    ring: Option<Ring>,
    /// The open batch. If the ring is here, it has room for the batch, and nothing else is written
    /// into it before.
    batch: Batch,
    /// The time at which the open batch is to be published.
    batch_due: Option<Instant>,
    /// Latches of batched calls, counted down when the batch is published.
    on_sent: Vec<LatchAddress>,
    /// The number of calls that this thread has sent directly.
    calls: u64,
    /// The number of calls to the receiver that quiescence does not count.
    calls_left_out: u64,
    flushes: [u64; counters::FLUSH_CAUSES],
    way: SharedWay,
}

/// The terms under which one record is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dispatch {
    pub(crate) entry: u16,
    pub(crate) operand: u32,
    /// The size at which the record's batch is published; 0 publishes the record at once.
    pub(crate) batch_bytes: usize,
}

/// The permitted ways to keep a record that cannot be written into the ring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keeping {
    /// True if the record may be staged although the ring is open.
    pub(crate) may_stage: bool,
    /// The most bytes that may be staged; `None` for the job's limit, and `usize::MAX` for none.
    pub(crate) cap_bytes: Option<usize>,
    /// If set, the record is always staged, and sent after this time at the latest.
    pub(crate) hold: Option<Duration>,
}

/// The outcome of sending a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The record is published.
    Now,
    /// The record is batched and began the batch.
    BatchBegun,
    /// The record joined an open batch.
    Batched,
    /// The record is staged, or was sent from the staging queue.
    Staged,
}

impl Outbox {
    pub(crate) fn new(
        name: RingName,
        to: WorkerId,
        to_process: ProcessId,
        is_direct: bool,
        options: RingOptions,
        queue_cap_bytes: usize,
    ) -> Self {
        Self {
            to_process,
            ring: None,
            batch: Batch::default(),
            batch_due: None,
            on_sent: Vec::new(),
            calls: 0,
            calls_left_out: 0,
            flushes: Default::default(),
            way: SharedWay::new(Way::new(name, to, to_process, is_direct, options, queue_cap_bytes)),
        }
    }

    pub(crate) fn to_process(&self) -> ProcessId {
        self.to_process
    }

    // The direct way.

    /// Writes a record into the ring and publishes it. Hands the payload back if the ring is not
    /// here or has no room.
    #[inline(always)]
    pub(crate) fn try_send<P: Payload>(&mut self, entry: u16, operand: u32, payload: P) -> Result<Sent, P> {
        let bytes = record_bytes(payload.bytes());
        if !self.batch.is_empty() {
            self.flush_ring(FlushCause::Asked);
        }
        let Some((ring, offset)) = self.reserve(bytes) else { return Err(payload) };
        // SAFETY: `bytes` is the size of a record with this payload, and the ring reserved `bytes`
        // bytes at `offset`.
        unsafe { write_payload(ring.sender.chunk(), offset, bytes, payload) };
        ring.sender.publish(Header::new(entry, operand, bytes), bytes);
        ring.announce();
        self.calls += 1;
        Ok(Sent::Now)
    }

    /// Adds a record to the batch, and publishes the batch when it reaches `batch_bytes`. Hands the
    /// payload back if the ring is not here or has no room.
    #[inline(always)]
    pub(crate) fn try_batch<P: Payload>(
        &mut self,
        entry: u16,
        operand: u32,
        batch_bytes: usize,
        payload: P,
    ) -> Result<Sent, P> {
        let bytes = record_bytes(payload.bytes());
        // SAFETY: `bytes` is the size of a record with this payload.
        match unsafe { self.batch.join(Header::new(entry, operand, bytes), bytes, payload) } {
            Ok(()) => {
                self.calls += 1;
                Ok(Sent::Batched)
            }
            // A copy: the payload itself stays in registers, because its address is not taken.
            Err(payload) => self.begin_or_end_batch(Dispatch { entry, operand, batch_bytes }, black_box(payload)),
        }
    }

    /// Adds a record that begins a batch or ends one, where there is a ring.
    #[inline(never)]
    fn begin_or_end_batch<P: Payload>(&mut self, how: Dispatch, payload: P) -> Result<Sent, P> {
        let bytes = record_bytes(payload.bytes());
        if bytes > BATCH_BYTES_MAX {
            return self.try_send(how.entry, how.operand, payload);
        }
        if self.ring.is_some() && !self.batch.is_empty() && !self.batch.has_room(bytes) {
            self.flush_ring(FlushCause::Chunk);
        }
        let begins = self.batch.is_empty();
        if begins {
            let Some((ring, _)) = self.reserve(bytes) else { return Err(payload) };
            let room = ring.sender.room();
            self.batch.begin(room, how.batch_bytes, bytes);
        } else if self.ring.is_none() {
            return Err(payload);
        }
        // SAFETY: `bytes` is the size of a record with this payload.
        unsafe { self.batch.push(Header::new(how.entry, how.operand, bytes), bytes, payload) };
        self.calls += 1;
        if self.batch.bytes() >= how.batch_bytes {
            self.flush_ring(FlushCause::Size);
            return Ok(Sent::Now);
        }
        self.batch.let_join(how.batch_bytes);
        Ok(if begins { Sent::BatchBegun } else { Sent::Batched })
    }

    /// Writes a record: into the open batch if `batch_bytes > 0`, otherwise published at once.
    pub(crate) fn send<P: Payload>(&mut self, how: Dispatch, payload: P) -> Result<Sent, P> {
        match how.batch_bytes {
            // A record for another binary is never batched.
            batch_bytes if batch_bytes == 0 || how.entry == NAMED => self.try_send(how.entry, how.operand, payload),
            batch_bytes => self.try_batch(how.entry, how.operand, batch_bytes, payload),
        }
    }

    /// Reserves room for a record in the ring. Returns `None` if the outbox does not hold the ring
    /// or the ring is full.
    #[inline(always)]
    fn reserve(&mut self, record_bytes: usize) -> Option<(&mut Ring, usize)> {
        let offset = match self.ring.as_ref()?.sender.try_reserve(record_bytes) {
            Some(offset) => offset,
            None => self.go_on(record_bytes)?,
        };
        Some((self.ring.as_mut()?, offset))
    }

    /// Moves on to the ring's next chunk and reserves room there.
    #[cold]
    #[inline(never)]
    fn go_on(&mut self, record_bytes: usize) -> Option<usize> {
        debug_assert!(self.batch.is_empty(), "the rest of the chunk is reserved for an open batch");
        let ring = self.ring.as_mut()?;
        let reserved = ring.sender.reserve(record_bytes);
        // The receiver must learn of the rotation, too.
        ring.announce();
        reserved.ok()
    }

    /// Publishes the batch in the ring. Returns whether there was one.
    fn flush_ring(&mut self, cause: FlushCause) -> bool {
        let Some(ring) = self.ring.as_mut().filter(|_| !self.batch.is_empty()) else { return false };
        let (header, behind) = self.batch.split_header();
        ring.sender.publish_records(header, behind);
        ring.announce();
        self.batch.clear();
        self.batch_due = None;
        self.flushes[cause as usize] += 1;
        true
    }

    // Batches.

    /// Publishes the open batch. Returns whether there was one.
    pub(crate) fn flush(&mut self, process: &Process, cause: FlushCause) -> bool {
        if self.ring.is_some() {
            let flushed = self.flush_ring(cause);
            self.count_batched(process);
            return flushed;
        }
        let way = self.way.clone();
        let mut way = way.lock();
        let flushed = self.send_batch(process, &mut way, cause) | way.release(cause);
        // An error is ignored here: the caller that waits for the records gets it.
        let _ = way.send_staged(process);
        self.take_back(&mut way);
        process.calls.backlog.look_after(process, &self.way, &mut way, None);
        flushed
    }

    /// Records when the batch that was just begun is to be published.
    pub(crate) fn batch_begun(&mut self, due: Instant) {
        self.batch_due = Some(due);
    }

    /// Counts a latch down as soon as all records sent so far are published.
    pub(crate) fn count_when_sent(&mut self, process: &Process, latch: LatchAddress) {
        if !self.batch.is_empty() {
            self.on_sent.push(latch);
            return;
        }
        if self.ring.is_none() {
            let mut way = self.way.lock();
            if way.has_staged() {
                way.count_when_sent(latch);
                return;
            }
        }
        count_down(process, latch);
    }

    /// Counts down the latches that waited for the batch, if it is published.
    fn count_batched(&mut self, process: &Process) {
        if self.batch.is_empty() {
            self.on_sent.drain(..).for_each(|latch| count_down(process, latch));
        }
    }

    /// Hands the batch to the way. The outbox does not hold the ring. Returns whether there was a
    /// batch.
    fn send_batch(&mut self, process: &Process, way: &mut Way, cause: FlushCause) -> bool {
        debug_assert!(self.ring.is_none());
        if self.batch.is_empty() {
            return false;
        }
        way.take_batch(process, self.batch.records(), &mut self.on_sent);
        self.batch.clear();
        self.batch_due = None;
        self.flushes[cause as usize] += 1;
        true
    }

    /// Adds a record to the batch for a frame, and sends the batch if it is long enough. Returns
    /// `None` when the queue is full.
    fn frame(
        &mut self,
        process: &Process,
        way: &mut Way,
        how: Dispatch,
        keeping: Keeping,
        payload: &mut dyn AnyPayload,
    ) -> Option<Sent> {
        let bytes = record_bytes(payload.bytes());
        if !way.may_stage(bytes, keeping.cap_bytes) {
            return None;
        }
        self.calls += 1;
        if !self.batch.has_room(bytes) {
            self.send_batch(process, way, FlushCause::Chunk);
        }
        let begins = self.batch.is_empty();
        if begins && (how.batch_bytes <= bytes || bytes > BATCH_BYTES_MAX) {
            way.stage_anyway(how, payload);
            return Some(Sent::Staged);
        }
        if begins {
            self.batch.begin(BATCH_BYTES_MAX, how.batch_bytes, bytes);
        }
        // SAFETY: `bytes` is the size of a record with this payload.
        unsafe { self.batch.push(Header::new(how.entry, how.operand, bytes), bytes, payload) };
        if self.batch.bytes() >= how.batch_bytes {
            let cause = if how.batch_bytes == 0 { FlushCause::Asked } else { FlushCause::Size };
            self.send_batch(process, way, cause);
            return Some(Sent::Staged);
        }
        self.batch.let_join(how.batch_bytes);
        Some(if begins { Sent::BatchBegun } else { Sent::Batched })
    }

    // The slow way.

    /// Sends a record by any available path, or keeps it if `keeping` allows.
    ///
    /// # Errors
    /// The payload is not consumed. [`Error::Full`] if the caller may wait for room;
    /// [`Error::PeerLost`] if the receiver is lost; otherwise any error of the transport.
    pub(crate) fn send_slowly(
        &mut self,
        process: &Process,
        how: Dispatch,
        keeping: Keeping,
        payload: &mut dyn AnyPayload,
    ) -> Result<Sent> {
        let record_bytes = record_bytes(payload.bytes());
        self.ensure_asked(process)?;
        let shared = self.way.clone();
        loop {
            if keeping.hold.is_none()
                && let Ok(sent) = self.send(how, &mut *payload)
            {
                return Ok(sent);
            }
            let mut way = shared.lock();
            self.lend(process, &mut way);
            if let Some(age) = keeping.hold {
                if self.hold(process, &mut way, how, keeping, age, payload) {
                    return Ok(Sent::Staged);
                }
            } else {
                // Held records come before this one, so they are released first.
                way.release(FlushCause::Asked);
            }
            way.send_staged(process)?;
            if way.phase == way::Phase::Lost || process.losses.is_lost(self.to_process) {
                way.lose();
                return Err(process.losses.gone(self.to_process));
            }
            if keeping.hold.is_none() && way.has_room_for(record_bytes) {
                // The staged records are sent, and the ring has room behind them.
                self.take_back(&mut way);
                if self.ring.is_none() && way.put(how, payload) {
                    return Ok(Sent::Now);
                }
                continue;
            }
            let kept = if way.is_framed() {
                // A record that could not be held joins no batch: only this worker would send it.
                let batch_bytes = if keeping.hold.is_some() { 0 } else { how.batch_bytes };
                self.frame(process, &mut way, Dispatch { batch_bytes, ..how }, keeping, payload)
            } else {
                let may_stage = way.awaits_ring() || keeping.may_stage;
                (may_stage && way.stage(how, keeping.cap_bytes, payload)).then_some(Sent::Staged)
            };
            let outcome = match kept {
                Some(sent) => {
                    // An error is ignored here: the call is kept, and the caller that waits for it
                    // gets the error.
                    let _ = way.send_staged(process);
                    self.take_back(&mut way);
                    Ok(sent)
                }
                None => Err(way.ask_to_grow(process, record_bytes).err().unwrap_or_else(|| way.full())),
            };
            // Records that were held until now wait for room, and no longer for their time.
            process.calls.backlog.look_after(process, &self.way, &mut way, None);
            return outcome;
        }
    }

    /// Stages a record to be sent together with later ones, after `age` at the latest. Returns
    /// false when there is no room or the receiver is gone.
    fn hold(
        &mut self,
        process: &Process,
        way: &mut Way,
        how: Dispatch,
        keeping: Keeping,
        age: Duration,
        payload: &mut dyn AnyPayload,
    ) -> bool {
        if way.phase == way::Phase::Lost || process.losses.is_lost(self.to_process) {
            return false;
        }
        self.send_batch(process, way, FlushCause::Asked);
        if !way.may_stage(record_bytes(payload.bytes()), keeping.cap_bytes) {
            way.release(FlushCause::Size);
            return false;
        }
        let begins = !way.has_staged();
        if !way.stage(how, keeping.cap_bytes, payload) {
            return false;
        }
        if begins {
            let due = process.clock().now() + age;
            way.hold(due);
            process.calls.backlog.look_after(process, &self.way, way, Some(due));
        }
        // Records that are staged but not held are due already, and so is this one behind them.
        if way.staged_bytes() >= how.batch_bytes || way.held_until().is_none() {
            way.release(FlushCause::Size);
            // An error is ignored here: the caller that waits for the records gets it.
            let _ = way.send_staged(process);
            process.calls.backlog.look_after(process, &self.way, way, None);
        }
        true
    }

    /// Gives the ring to the way, after publishing the open batch.
    fn lend(&mut self, process: &Process, way: &mut Way) {
        self.flush_ring(FlushCause::Asked);
        if let Some(ring) = self.ring.take() {
            self.count_batched(process);
            way.borrow(ring);
        }
    }

    /// Takes the ring back, if nothing waits. An open batch waits: no room in the ring is reserved
    /// for it.
    fn take_back(&mut self, way: &mut Way) {
        if self.ring.is_none() && self.batch.is_empty() {
            self.ring = way.give_back();
        }
    }

    /// Asks for the ring, unless the outbox has asked already.
    ///
    /// # Errors
    /// Any error of the transport.
    pub(crate) fn ensure_asked(&mut self, process: &Process) -> Result<()> {
        if self.ring.is_some() {
            return Ok(());
        }
        let phase = self.way.lock().phase;
        if phase == way::Phase::Unasked {
            // Not under the lock, because `connect` waits.
            let mapped = process.connect(self.to_process)?.is_some();
            let mut way = self.way.lock();
            process.calls.ways.add(way.name(), &self.way);
            if way.phase == way::Phase::Unasked {
                way.ask(process, mapped)?;
            }
        }
        Ok(())
    }

    /// Adds the chunks to the ring that were granted while the outbox held it.
    pub(crate) fn take_granted(&mut self) {
        if let Some(ring) = &mut self.ring {
            self.way.lock().take_granted().into_iter().for_each(|chunk| ring.sender.grant(chunk));
        }
    }

    /// Sends what is due. The batch is due when it is old enough or this worker is idle; staged
    /// records are due as far as there is room. Returns whether anything was sent.
    ///
    /// # Errors
    /// Any error of the transport.
    pub(crate) fn send_due(&mut self, process: &Process, idle: bool) -> Result<bool> {
        let mut moved = false;
        if let Some(cause) = self.due_cause(self.batch_due, process, idle) {
            moved |= self.flush(process, cause);
        }
        if self.ring.is_some() {
            self.count_batched(process);
            return Ok(moved);
        }
        let shared = self.way.clone();
        let mut way = shared.lock();
        if let Some(cause) = self.due_cause(way.held_until(), process, idle) {
            way.release(cause);
        }
        moved |= way.send_staged(process)?;
        self.take_back(&mut way);
        process.calls.backlog.look_after(process, &self.way, &mut way, None);
        Ok(moved)
    }

    fn due_cause(&self, due: Option<Instant>, process: &Process, idle: bool) -> Option<FlushCause> {
        match due {
            Some(_) if idle => Some(FlushCause::Idle),
            Some(due) if process.clock().now() >= due => Some(FlushCause::Age),
            _ => None,
        }
    }

    /// Sends staged records as far as there is room. Returns whether anything was sent.
    ///
    /// # Errors
    /// The failure of the transport.
    pub(crate) fn send_staged(&mut self, process: &Process) -> Result<bool> {
        if self.ring.is_some() {
            return Ok(false);
        }
        let shared = self.way.clone();
        let mut way = shared.lock();
        let sent = way.send_staged(process)?;
        self.take_back(&mut way);
        process.calls.backlog.look_after(process, &self.way, &mut way, None);
        Ok(sent)
    }

    pub(crate) fn has_staged(&self) -> bool {
        self.ring.is_none() && self.way.lock().has_staged()
    }

    /// Returns whether all calls have left this outbox.
    pub(crate) fn is_finished(&self) -> bool {
        self.batch.is_empty() && !self.has_staged()
    }

    /// Returns whether credit has arrived for staged records.
    pub(crate) fn staged_may_move(&self) -> bool {
        self.ring.is_none() && self.way.lock().staged_may_move()
    }

    /// Returns whether a record of this size would find room, or its receiver is gone. Asks for a
    /// missing chunk.
    ///
    /// # Errors
    /// [`Error::Full`] when the receiver grants no chunk that the record needs; otherwise any error
    /// of the transport.
    pub(crate) fn may_send(&mut self, process: &Process, record_bytes: usize) -> Result<bool> {
        if self.ring.as_ref().is_some_and(|ring| ring.sender.has_room(record_bytes)) {
            return Ok(true);
        }
        // The receiver may have reclaimed the ring.
        self.ensure_asked(process)?;
        let shared = self.way.clone();
        let mut way = shared.lock();
        self.lend(process, &mut way);
        // The last request may have asked for less than this record needs.
        if way.needs_chunk_for(record_bytes) {
            way.ask_for_chunk(process, record_bytes)?;
        }
        Ok(way.may_send(record_bytes))
    }

    /// Tells the receiver that this worker waits for credit (`begin`), or no longer waits.
    pub(crate) fn wait_for_credit(&self, begin: bool) {
        match &self.ring {
            Some(ring) if begin => ring.sender.begin_waiting(),
            Some(ring) => ring.sender.end_waiting(),
            None => self.way.lock().wait_for_credit(begin),
        }
    }

    /// Marks the receiver as lost: nothing more will be sent.
    pub(crate) fn lose(&mut self) {
        let shared = self.way.clone();
        let mut way = shared.lock();
        if let Some(ring) = self.ring.take() {
            way.borrow(ring);
        }
        way.lose();
        way.counters.bytes += self.batch.bytes() as u64;
        self.batch = Batch::default();
        self.on_sent.clear();
        self.batch_due = None;
    }

    /// Excludes one call from the count of quiescence.
    pub(crate) fn leave_out_call(&mut self) {
        self.calls_left_out += 1;
    }

    /// The number of calls that quiescence counts.
    pub(crate) fn counted_calls(&self) -> u64 {
        self.calls + self.way.lock().counters.calls - self.calls_left_out
    }

    /// The counters so far.
    pub(crate) fn counters(&self) -> SendCounters {
        let way = self.way.lock();
        let mut counters = way.counters;
        let ring = self.ring.as_ref().or(way.ring.as_ref());
        counters.calls += self.calls;
        counters.bytes += ring.map_or(0, |ring| ring.sender.written_bytes()) + self.batch.bytes() as u64;
        counters.flushes.iter_mut().zip(self.flushes).for_each(|(sum, more)| *sum += more);
        counters
    }
}

// Setting up and shutting down.
impl Outbox {
    /// Sets the size of the ring to be opened.
    ///
    /// # Errors
    /// [`LaunchError::RingOptions`](crate::LaunchError::RingOptions) when the ring is open or asked
    /// for.
    pub(crate) fn choose(&mut self, options: RingOptions) -> Result<()> {
        let mut way = self.way.lock();
        if self.ring.is_some() || way.phase != way::Phase::Unasked {
            let why =
                format!("the ring to {} is there already: choose before the first call, or `shutdown` it", way.to);
            return Err(Error::Launch(LaunchError::RingOptions { why }));
        }
        way.options = options;
        Ok(())
    }

    /// Returns whether the ring is open, or never will be.
    pub(crate) fn is_set_up(&self) -> bool {
        self.ring.is_some() || !self.way.lock().awaits_ring()
    }

    /// Sends all calls and then begins to shut the way down. Returns whether it is shut down.
    ///
    /// # Errors
    /// The error that kept the calls from being sent.
    pub(crate) fn shut_down(&mut self, process: &Process) -> Result<bool> {
        self.flush(process, FlushCause::Asked);
        let shared = self.way.clone();
        let mut way = shared.lock();
        self.lend(process, &mut way);
        way.send_staged(process)?;
        if way.may_close() {
            way.close(process)?;
            // It is empty. Its memory is given back.
            self.batch = Batch::default();
        }
        Ok(matches!(way.phase, way::Phase::Unasked | way::Phase::Lost) && !way.has_staged())
    }

    /// Gives the ring's memory back to the receiver, which asked for it, if the ring is idle.
    ///
    /// # Errors
    /// Any error of the transport.
    pub(crate) fn give_up_if_idle(&mut self, process: &Process) -> Result<()> {
        let shared = self.way.clone();
        let mut way = shared.lock();
        way.looked_at();
        if self.batch.is_empty() {
            self.lend(process, &mut way);
            if way.is_idle() {
                return way.close(process);
            }
            self.take_back(&mut way);
        }
        Ok(())
    }
}

#[cfg(test)]
impl Outbox {
    /// Sends frames from now on without regard to the receiver's credit.
    pub(super) fn ignore_credit(&self) {
        self.way.lock().ignore_credit();
    }

    /// Writes arbitrary words into the ring at the place of the next record. The first is the
    /// header.
    pub(super) fn write_anything(&self, words: &[u64]) {
        use std::sync::atomic::Ordering;

        use farside_fabric::ring::RingMemory;

        let way = self.way.lock();
        let ring = self.ring.as_ref().or(way.ring.as_ref()).expect("the ring stands");
        let (chunk, offset) = (ring.sender.chunk(), ring.sender.try_reserve(8 * words.len()).expect("there is room"));
        for (place, word) in words.iter().enumerate().rev() {
            chunk.word(offset + 8 * place).store(*word, Ordering::Release);
        }
        ring.announce();
    }
}

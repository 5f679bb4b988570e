//! The sending side of the way from one worker to another.
//!
//! An outbox has the ring while nothing waits: then records are written into the receiver's memory at once, and a call touches nothing
//! else. Otherwise the ring is with the [`Way`], which the service thread shares: the ring does not stand yet, or had no room for an
//! earlier record. What waits there is sent by whoever comes first, this worker when it makes progress or the service thread when that
//! does not (`job/backlog.rs`).
//!
//! Towards a receiver whose memory is not mapped here there is no ring, but a batch in memory of this process: one chunk, in which records
//! are collected as in any other. A batch that is long enough is staged, and what is staged is sent as frames.

mod counters;
mod ring;
mod way;

use std::time::{Duration, Instant};

use farside_fabric::ring::{Header, MappedChunk, MappedControl, Sender, record_bytes};
use farside_fabric::{ProcessId, WorkerId};

pub use self::counters::{FlushCause, SendCounters};
pub(crate) use self::ring::Ring;
use self::ring::write_payload;
pub(crate) use self::way::{Answer, SharedWay, Way};
use super::named::NAMED;
use super::notify::{LatchAddress, count_down};
use super::payload::Payload;
use crate::error::{Error, Result};
use crate::invoke::message::RingName;
use crate::runtime::extent::Extent;
use crate::runtime::process::Process;
use farside_launch::ring_options::RingOptions;

/// The chunk in which records are batched that go as frames.
pub(crate) const FRAME_CHUNK_BYTES: usize = 16 << 10;

/// The way to one receiver.
#[derive(Debug)]
pub(crate) struct Outbox {
    to_process: ProcessId,
    /// The ring, while it stands, nothing is staged, the receiver lives, and calls may go to it directly.
    ring: Option<Ring>,
    /// Where records are batched for a receiver that is not mapped.
    frame_batch: Option<FrameBatch>,
    /// When the open batch is to be published.
    batch_due: Option<Instant>,
    /// Latches of calls that were batched, counted down when the batch is published.
    on_sent: Vec<LatchAddress>,
    /// Of what this thread has sent directly.
    calls: u64,
    flushes: [u64; counters::FLUSH_CAUSES],
    way: SharedWay,
}

/// Records that are to go as a frame, in memory of this process.
#[derive(Debug)]
pub(crate) struct FrameBatch {
    pub(crate) sender: Sender<MappedChunk, MappedControl>,
    /// The memory.
    pub(crate) pieces: Vec<Extent>,
}

/// How one record is to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dispatch {
    pub(crate) entry: u16,
    pub(crate) operand: u32,
    /// Batch it, and publish the batch at this size; 0 to publish at once.
    pub(crate) batch_bytes: usize,
}

/// What may become of a record that cannot be written into the ring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keeping {
    /// It may be staged though the ring stands.
    pub(crate) may_stage: bool,
    /// As long as so much is staged at most; what the job says if this does not.
    pub(crate) cap_bytes: Option<usize>,
    /// It is staged in any case, and sent after so long at the latest.
    pub(crate) hold: Option<Duration>,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Published.
    Now,
    /// Batched; this record began the batch.
    BatchBegun,
    /// Batched.
    Batched,
    /// Staged, or sent from there.
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
            frame_batch: None,
            batch_due: None,
            on_sent: Vec::new(),
            calls: 0,
            flushes: Default::default(),
            way: SharedWay::new(Way::new(name, to, to_process, is_direct, options, queue_cap_bytes)),
        }
    }

    pub(crate) fn to_process(&self) -> ProcessId {
        self.to_process
    }

    // The direct way.

    /// Writes a record into the ring and publishes it, if that can be done at once; otherwise hands the payload back.
    #[inline(always)]
    pub(crate) fn try_send<P: Payload>(&mut self, entry: u16, operand: u32, payload: P) -> Result<Sent, P> {
        let bytes = record_bytes(payload.bytes());
        let Some((ring, offset)) = self.reserve(bytes) else { return Err(payload) };
        // SAFETY: `bytes` is the size of a record with this payload, and the ring reserved so many at `offset`.
        unsafe { write_payload(ring.sender.chunk(), offset, bytes, payload) };
        ring.sender.publish(Header::new(entry, operand, bytes), bytes);
        ring.announce();
        self.calls += 1;
        Ok(Sent::Now)
    }

    /// Writes a record into the ring, if that can be done at once, and publishes it with those before it when they are
    /// `batch_bytes` together; otherwise hands the payload back.
    #[inline(always)]
    pub(crate) fn try_batch<P: Payload>(
        &mut self,
        entry: u16,
        operand: u32,
        batch_bytes: usize,
        payload: P,
    ) -> Result<Sent, P> {
        let bytes = record_bytes(payload.bytes());
        let header = Header::new(entry, operand, bytes);
        if let Some(sender) = self.batching()
            && sender.may_join(bytes)
        {
            sender.join(header, bytes, |chunk, offset| {
                // SAFETY: `bytes` is the size of a record with this payload, and there is room for it at `offset`.
                unsafe { write_payload(chunk, offset, bytes, payload) };
            });
            self.calls += 1;
            return Ok(Sent::Batched);
        }
        let Some((ring, offset)) = self.reserve(bytes) else { return Err(payload) };
        // SAFETY: `bytes` is the size of a record with this payload, and the ring reserved so many at `offset`.
        unsafe { write_payload(ring.sender.chunk(), offset, bytes, payload) };
        ring.sender.batch(header, bytes);
        let batched = ring.sender.batched_bytes();
        ring.sender.let_join(batch_bytes);
        self.calls += 1;
        if batched >= batch_bytes {
            self.flush_ring(FlushCause::Size);
            return Ok(Sent::Now);
        }
        Ok(if batched == bytes { Sent::BatchBegun } else { Sent::Batched })
    }

    /// One or the other.
    pub(crate) fn send<P: Payload>(&mut self, how: Dispatch, payload: P) -> Result<Sent, P> {
        match how.batch_bytes {
            // One that another binary is to understand goes alone.
            batch_bytes if batch_bytes == 0 || how.entry == NAMED => self.try_send(how.entry, how.operand, payload),
            batch_bytes => self.try_batch(how.entry, how.operand, batch_bytes, payload),
        }
    }

    /// Where a batch may be open.
    #[inline(always)]
    fn batching(&mut self) -> Option<&mut Sender<MappedChunk, MappedControl>> {
        match &mut self.ring {
            Some(ring) => Some(&mut ring.sender),
            None => self.frame_batch.as_mut().map(|batch| &mut batch.sender),
        }
    }

    /// Room for a record in the ring, if the outbox has it.
    #[inline(always)]
    fn reserve(&mut self, record_bytes: usize) -> Option<(&mut Ring, usize)> {
        let offset = match self.ring.as_ref()?.sender.try_reserve(record_bytes) {
            Some(offset) => offset,
            None => self.go_on(record_bytes)?,
        };
        Some((self.ring.as_mut()?, offset))
    }

    /// Goes on to the ring's next chunk.
    #[cold]
    #[inline(never)]
    fn go_on(&mut self, record_bytes: usize) -> Option<usize> {
        self.flush_ring(FlushCause::Chunk);
        let ring = self.ring.as_mut()?;
        let reserved = ring.sender.reserve(record_bytes);
        // The rotation is news for the receiver, too.
        ring.announce();
        reserved.ok()
    }

    /// Publishes the batch that is in the ring, if there is one.
    fn flush_ring(&mut self, cause: FlushCause) -> bool {
        // Also when a call that was not batched has published it before.
        self.batch_due = None;
        let Some(ring) = self.ring.as_mut().filter(|ring| ring.sender.batched_bytes() > 0) else { return false };
        ring.sender.flush();
        ring.announce();
        self.flushes[cause as usize] += 1;
        true
    }

    // Batches.

    /// Publishes the batch, if there is one. Says whether there was.
    pub(crate) fn flush(&mut self, process: &Process, cause: FlushCause) -> bool {
        if self.ring.is_some() {
            let flushed = self.flush_ring(cause);
            self.count_batched(process);
            return flushed;
        }
        let way = self.way.clone();
        let mut way = way.lock();
        let flushed = self.stage_batch(&mut way, Some(cause)) | way.release(cause);
        // What could not be sent is told by what waits for it.
        let _ = way.send_staged(process);
        self.take_back(&mut way);
        flushed
    }

    /// Notes when the batch that was just begun is to be published.
    pub(crate) fn batch_begun(&mut self, due: Instant) {
        self.batch_due = Some(due);
    }

    /// Counts a latch down when everything so far is published.
    pub(crate) fn count_when_sent(&mut self, process: &Process, latch: LatchAddress) {
        let batched = self.batching().map_or(0, |sender| sender.batched_bytes());
        if batched > 0 {
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

    /// Counts down what waited for the batch.
    fn count_batched(&mut self, process: &Process) {
        if !self.on_sent.is_empty() && self.batching().is_none_or(|sender| sender.batched_bytes() == 0) {
            self.on_sent.drain(..).for_each(|latch| count_down(process, latch));
        }
    }

    /// Moves the batch that is to go as a frame to what is staged. Says whether there was one.
    fn stage_batch(&mut self, way: &mut Way, cause: Option<FlushCause>) -> bool {
        let Some(batch) = &mut self.frame_batch else { return false };
        self.batch_due = None;
        let on_sent = &mut self.on_sent;
        let taken = batch.sender.take_batch(|chunk, bytes| {
            let copy = |words: &mut [u64]| {
                // SAFETY: the batch lies at the beginning of the chunk, in memory that only this outbox knows of.
                unsafe {
                    std::ptr::copy_nonoverlapping(chunk.address(0).cast_const().cast(), words.as_mut_ptr(), bytes / 8)
                };
            };
            way.stage_batch(bytes, copy, on_sent);
        });
        if let Some(cause) = cause.filter(|_| taken.is_some()) {
            self.flushes[cause as usize] += 1;
        }
        taken.is_some()
    }

    /// Adds a record to the batch that is to go as a frame, and stages that if it is long enough. Hands the payload back when the queue is
    /// full.
    fn frame<P: Payload>(&mut self, way: &mut Way, how: Dispatch, keeping: Keeping, payload: P) -> Result<Sent, P> {
        let bytes = record_bytes(payload.bytes());
        if !way.may_stage(bytes, keeping.cap_bytes) {
            return Err(payload);
        }
        self.calls += 1;
        let has_room = |batch: &FrameBatch| batch.sender.try_reserve(bytes).is_some();
        if !self.frame_batch.as_ref().is_some_and(has_room) {
            self.stage_batch(way, Some(FlushCause::Chunk));
        }
        let Some(batch) = self.frame_batch.as_mut().filter(|batch| has_room(batch)) else {
            way.stage_anyway(how, payload);
            return Ok(Sent::Staged);
        };
        let offset = batch.sender.try_reserve(bytes).unwrap_or_default();
        // SAFETY: `bytes` is the size of a record with this payload, and there is room for so many at `offset`.
        unsafe { write_payload(batch.sender.chunk(), offset, bytes, payload) };
        batch.sender.batch(Header::new(how.entry, how.operand, bytes), bytes);
        batch.sender.let_join(how.batch_bytes);
        let batched = batch.sender.batched_bytes();
        if batched < how.batch_bytes {
            return Ok(if batched == bytes { Sent::BatchBegun } else { Sent::Batched });
        }
        self.stage_batch(way, (how.batch_bytes > 0).then_some(FlushCause::Size));
        Ok(Sent::Staged)
    }

    // The slow way.

    /// Sends a record by whatever way there is, or keeps it as far as it may be kept. Otherwise hands the payload back with the reason:
    /// [`Error::Full`] when it is worth while to wait for room.
    pub(crate) fn send_slowly<P: Payload>(
        &mut self,
        process: &Process,
        how: Dispatch,
        keeping: Keeping,
        mut payload: P,
    ) -> Result<Sent, (Error, P)> {
        let record_bytes = record_bytes(payload.bytes());
        if let Err(error) = self.ensure_asked(process) {
            return Err((error, payload));
        }
        let shared = self.way.clone();
        loop {
            if keeping.hold.is_none() {
                payload = match self.send(how, payload) {
                    Ok(sent) => return Ok(sent),
                    Err(payload) => payload,
                };
            }
            let mut way = shared.lock();
            self.lend(process, &mut way);
            if let Some(age) = keeping.hold {
                payload = match self.hold(process, &mut way, how, keeping, age, payload) {
                    Ok(()) => return Ok(Sent::Staged),
                    Err(payload) => payload,
                };
            } else {
                // What was held is before this record.
                way.release(FlushCause::Asked);
            }
            if let Err(error) = way.send_staged(process) {
                return Err((error, payload));
            }
            if way.phase == way::Phase::Lost || process.is_lost(self.to_process) {
                way.lose();
                return Err((process.gone(self.to_process), payload));
            }
            if keeping.hold.is_none() && way.has_room_for(record_bytes) {
                // What was staged is on its way, and there is room behind it.
                self.take_back(&mut way);
                if self.ring.is_none() {
                    payload = match way.put(how, payload) {
                        Ok(()) => return Ok(Sent::Now),
                        Err(payload) => payload,
                    };
                }
                continue;
            }
            payload = if way.is_framed() {
                match self.frame(&mut way, how, keeping, payload) {
                    Ok(sent) => {
                        // As with `stage`.
                        let _ = way.send_staged(process);
                        return Ok(sent);
                    }
                    Err(payload) => payload,
                }
            } else if way.awaits_ring() || keeping.may_stage {
                match way.stage(how, keeping.cap_bytes, payload) {
                    Ok(()) => {
                        // The call is kept; that it cannot be sent is told by what waits for it.
                        let _ = way.send_staged(process);
                        self.take_back(&mut way);
                        process.look_after(&self.way, &mut way, None);
                        return Ok(Sent::Staged);
                    }
                    Err(payload) => payload,
                }
            } else {
                payload
            };
            if let Err(error) = way.ask_to_grow(process, record_bytes) {
                return Err((error, payload));
            }
            return Err((way.full(), payload));
        }
    }

    /// Stages a record that is to be sent with those after it, after so long at the latest. Hands it back when there is no room, or the
    /// receiver is gone.
    fn hold<P: Payload>(
        &mut self,
        process: &Process,
        way: &mut Way,
        how: Dispatch,
        keeping: Keeping,
        age: Duration,
        payload: P,
    ) -> Result<(), P> {
        if way.phase == way::Phase::Lost || process.is_lost(self.to_process) {
            return Err(payload);
        }
        self.stage_batch(way, Some(FlushCause::Asked));
        if !way.may_stage(record_bytes(payload.bytes()), keeping.cap_bytes) {
            way.release(FlushCause::Size);
            return Err(payload);
        }
        let begins = !way.has_staged();
        way.stage(how, keeping.cap_bytes, payload)?;
        if begins {
            let due = process.clock().now() + age;
            way.hold(due);
            process.look_after(&self.way, way, Some(due));
        }
        if way.staged_bytes() >= how.batch_bytes {
            way.release(FlushCause::Size);
            // What could not be sent is told by what waits for it.
            let _ = way.send_staged(process);
        }
        Ok(())
    }

    /// Gives the ring to the way, since something is to be done there; what is batched is published before.
    fn lend(&mut self, process: &Process, way: &mut Way) {
        self.flush_ring(FlushCause::Asked);
        if let Some(ring) = self.ring.take() {
            self.count_batched_in(&ring, process);
            way.borrow(ring);
        }
    }

    fn count_batched_in(&mut self, ring: &Ring, process: &Process) {
        debug_assert_eq!(ring.sender.batched_bytes(), 0);
        self.on_sent.drain(..).for_each(|latch| count_down(process, latch));
    }

    /// Takes the ring, if nothing waits before it.
    fn take_back(&mut self, way: &mut Way) {
        if self.ring.is_none() {
            self.ring = way.give_back();
        }
    }

    /// Asks for the ring, unless that was done.
    ///
    /// # Errors
    /// What the transport said.
    pub(crate) fn ensure_asked(&mut self, process: &Process) -> Result<()> {
        if self.ring.is_some() {
            return Ok(());
        }
        let phase = self.way.lock().phase;
        if phase == way::Phase::Unasked {
            // Not under the lock, since it waits.
            let mapped = process.connect(self.to_process)?.is_some();
            let mut way = self.way.lock();
            process.add_way(way.name(), &self.way);
            if way.phase == way::Phase::Unasked {
                way.ask(process, mapped)?;
            }
        }
        if self.frame_batch.is_none() && self.way.lock().is_framed() {
            self.frame_batch = Some(process.new_frame_batch()?);
        }
        Ok(())
    }

    /// What came for the ring while it was here.
    pub(crate) fn take_granted(&mut self) {
        if let Some(ring) = &mut self.ring {
            self.way.lock().take_granted().into_iter().for_each(|chunk| ring.sender.grant(chunk));
        }
    }

    /// Sends what is due: the batch, if it is old enough or this worker has nothing else to do, and what is staged, as far as there is
    /// room. Says whether anything was sent.
    ///
    /// # Errors
    /// [`Error::Full`] when the receiver grants no chunk for what is next, or what the transport said.
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
        Ok(moved)
    }

    fn due_cause(&self, due: Option<Instant>, process: &Process, idle: bool) -> Option<FlushCause> {
        match due {
            Some(_) if idle => Some(FlushCause::Idle),
            Some(due) if process.clock().now() >= due => Some(FlushCause::Age),
            _ => None,
        }
    }

    /// Sends what is staged, as far as there is room. Says whether anything was sent.
    ///
    /// # Errors
    /// Those of [`send_due`](Self::send_due).
    pub(crate) fn send_staged(&mut self, process: &Process) -> Result<bool> {
        if self.ring.is_some() {
            return Ok(false);
        }
        let shared = self.way.clone();
        let mut way = shared.lock();
        let sent = way.send_staged(process)?;
        self.take_back(&mut way);
        Ok(sent)
    }

    pub(crate) fn has_staged(&self) -> bool {
        self.ring.is_none() && self.way.lock().has_staged()
    }

    /// Whether nothing that was called is still here.
    pub(crate) fn is_finished(&self) -> bool {
        self.batch_due.is_none() && !self.has_staged()
    }

    /// Whether credit has come for what is staged.
    pub(crate) fn staged_may_move(&self) -> bool {
        self.ring.is_none() && self.way.lock().staged_may_move()
    }

    /// Whether a record of this size would find room, or its receiver is gone. Asks for what is missing.
    ///
    /// # Errors
    /// [`Error::Full`] when no chunk is granted that it needs; otherwise what the transport said.
    pub(crate) fn may_send(&mut self, process: &Process, record_bytes: usize) -> Result<bool> {
        if self.ring.as_ref().is_some_and(|ring| ring.sender.has_room(record_bytes)) {
            return Ok(true);
        }
        // The receiver may have taken its memory back.
        self.ensure_asked(process)?;
        let shared = self.way.clone();
        let mut way = shared.lock();
        self.lend(process, &mut way);
        // What was asked for last may have been less than this record needs.
        if way.needs_chunk_for(record_bytes) {
            way.ask_for_chunk(process, record_bytes)?;
        }
        Ok(way.may_send(record_bytes))
    }

    /// Announces to the receiver that we wait for credit, or that we do so no longer.
    pub(crate) fn wait_for_credit(&self, begin: bool) {
        match &self.ring {
            Some(ring) if begin => ring.sender.begin_waiting(),
            Some(ring) => ring.sender.end_waiting(),
            None => self.way.lock().wait_for_credit(begin),
        }
    }

    /// The receiver is gone: nothing more will be sent.
    pub(crate) fn lose(&mut self) {
        let shared = self.way.clone();
        let mut way = shared.lock();
        if let Some(ring) = self.ring.take() {
            way.borrow(ring);
        }
        way.lose();
        self.frame_batch = None;
        self.on_sent.clear();
        self.batch_due = None;
    }

    /// What it did so far.
    pub(crate) fn counters(&self) -> SendCounters {
        let way = self.way.lock();
        let mut counters = way.counters;
        let ring = self.ring.as_ref().or(way.ring.as_ref());
        let batched = self.frame_batch.as_ref().map_or(0, |batch| batch.sender.batched_bytes() as u64);
        counters.calls += self.calls;
        counters.bytes += ring.map_or(0, |ring| ring.sender.written_bytes()) + batched;
        counters.flushes.iter_mut().zip(self.flushes).for_each(|(sum, more)| *sum += more);
        counters
    }
}

// Setting up and shutting down.
impl Outbox {
    /// Chooses how large the ring is to be.
    ///
    /// # Errors
    /// [`Error::RingOptions`] when there is a ring already.
    pub(crate) fn choose(&mut self, options: RingOptions) -> Result<()> {
        let mut way = self.way.lock();
        if self.ring.is_some() || way.phase != way::Phase::Unasked {
            let why =
                format!("the ring to {} is there already: choose before the first call, or `shutdown` it", way.to);
            return Err(Error::RingOptions { why });
        }
        way.options = options;
        Ok(())
    }

    /// Whether the way stands, or never will.
    pub(crate) fn is_set_up(&self) -> bool {
        self.ring.is_some() || !self.way.lock().awaits_ring()
    }

    /// Begins to shut the way down as soon as everything that was called is sent. Says whether it is shut down.
    ///
    /// # Errors
    /// What kept it from being sent.
    pub(crate) fn shut_down(&mut self, process: &Process) -> Result<bool> {
        self.flush(process, FlushCause::Asked);
        let shared = self.way.clone();
        let mut way = shared.lock();
        self.lend(process, &mut way);
        way.send_staged(process)?;
        if way.may_close() {
            way.close(process)?;
            if let Some(batch) = self.frame_batch.take() {
                process.free_frame_batch(batch);
            }
        }
        Ok(matches!(way.phase, way::Phase::Unasked | way::Phase::Lost) && !way.has_staged())
    }

    /// The receiver would like its memory back: gives it back if the ring is idle.
    ///
    /// # Errors
    /// What the transport said.
    pub(crate) fn give_up_if_idle(&mut self, process: &Process) -> Result<()> {
        let shared = self.way.clone();
        let mut way = shared.lock();
        way.looked_at();
        if self.batch_due.is_none() {
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
    /// Writes words into the ring, where the next record goes, whatever they are. The first is the header.
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

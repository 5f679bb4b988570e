//! The shared part of the way to a worker: its phase, and the records that wait.
//!
//! The thread whose calls the way carries shares it with the service thread, behind a lock. The
//! ring is *with the outbox* while nothing waits: calls then touch only the ring, and no lock. When
//! a record has to wait, the outbox *lends* the ring to the way. The outbox takes the ring back
//! when nothing waits any more. So whichever thread holds the lock may send the waiting records,
//! and later calls come behind them.

use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use farside_fabric::ring::{CHUNK_BYTES_MIN, Header, MappedChunk, RingMemory, record_bytes};
use farside_fabric::{ProcessId, WorkerId};
use farside_sys::racy;

use super::ring::{Ring, write_payload};
use super::{Dispatch, FlushCause, SendCounters};
use crate::error::{Error, FullCause, Result};
use crate::invoke::frames::OutFrames;
use crate::invoke::message::{CallMessage, FramePlace, RingName};
use crate::invoke::notify::{LatchAddress, count_down};
use crate::invoke::payload::AnyPayload;
use crate::invoke::ring::backlog::Listed;
use crate::invoke::staged::Staged;
use crate::runtime::process::{Process, lock};
use farside_launch::kill_point::KillPoint;
use farside_launch::ring_options::{RingOptions, chunk_bytes_for};

/// The time for which a receiver that refused a chunk is not asked for another of that size. It may
/// have memory again by then.
const REFUSAL_HOLDS: Duration = Duration::from_millis(10);

/// A way, as the threads of a process share it.
#[derive(Clone, Debug)]
pub(crate) struct SharedWay(Arc<Mutex<Way>>);

impl SharedWay {
    pub(super) fn new(way: Way) -> Self {
        Self(Arc::new(Mutex::new(way)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Way> {
        lock(&self.0)
    }
}

/// The shared part of the way to one worker: its phase, its ring while lent, and waiting records.
#[derive(Debug)]
pub(crate) struct Way {
    name: RingName,
    pub(super) to: WorkerId,
    to_process: ProcessId,
    /// True if the outbox may hold the ring: the receiver runs this binary, and accesses are not
    /// checked.
    pub(super) is_direct: bool,
    pub(super) options: RingOptions,
    pub(super) phase: Phase,
    /// The ring, unless the outbox holds it or there is none.
    pub(super) ring: Option<Ring>,
    /// Chunks that were granted while the outbox held the ring.
    granted: Vec<MappedChunk>,
    /// The size of the requested chunks, until the receiver answers.
    growing: Option<usize>,
    refused: Option<Refusal>,
    /// True if this process could not map memory of the receiver, or a record that is kept has no
    /// room in any ring. Until the way is closed, it asks for no more ring memory.
    avoids_rings: bool,
    staged: Staged,
    /// The time until which the staged batch is held for more records.
    held: Option<Instant>,
    queue_cap_bytes: usize,
    frames: OutFrames,
    /// The number of staged words, from the oldest on, that travel before any other decision: whole
    /// records, or the rest of a record that is cut into frames.
    cut_words: usize,
    /// True if the transport had no room for the last frame.
    is_refused: bool,
    /// Latches of staged calls, counted down when these calls are sent.
    on_sent: Vec<LatchAddress>,
    /// The bytes that the ring had carried when the receiver last asked for it back.
    mark: Option<u64>,
    /// The number of such requests since this worker last looked, at most 2.
    wanted: u8,
    /// The state of the path in the service thread's list.
    pub(crate) listed: Listed,
    /// The counters, without the bytes that the ring counts and without those of the outbox.
    pub(super) counters: SendCounters,
}

/// The phase of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The receiver was not asked for a ring, or has it back.
    Unasked,
    /// The receiver was asked for a ring.
    Asked,
    /// The ring is open.
    Stands,
    /// There is no ring, because the receiver's memory is not mapped here, or no memory or
    /// descriptor was left for one: records travel as frames.
    Framed,
    /// The receiver was notified that nothing more comes, and has not confirmed yet that it has run
    /// everything.
    Closing,
    /// The receiver is gone.
    Lost,
}

/// A refusal of chunks of this size by a receiver that has reached its cap or, with `None`, whose
/// process has no memory or descriptors left.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    chunk_bytes: usize,
    cap_bytes: Option<usize>,
    until: Instant,
}

/// An answer of a receiver's process about a way to it.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The ring is open.
    Opened(Box<Ring>),
    /// Chunks were granted.
    Grown(Vec<MappedChunk>),
    /// The ring or the chunk was refused; see [`Refusal`].
    Refused { cap_bytes: Option<usize> },
    /// The ring is open or chunks were granted, but this process has no memory or descriptors to
    /// map them.
    Unmapped,
    /// The receiver has run `consumed` bytes of frames in total.
    Credit { consumed: u64 },
    /// Everything was run, and the memory of the ring belongs to the receiver again.
    Closed,
}

impl Way {
    pub(super) fn new(
        name: RingName,
        to: WorkerId,
        to_process: ProcessId,
        is_direct: bool,
        options: RingOptions,
        queue_cap_bytes: usize,
    ) -> Self {
        Self {
            name,
            to,
            to_process,
            is_direct,
            options,
            phase: Phase::Unasked,
            ring: None,
            granted: Vec::new(),
            growing: None,
            refused: None,
            avoids_rings: false,
            staged: Staged::default(),
            held: None,
            queue_cap_bytes,
            frames: OutFrames::default(),
            cut_words: 0,
            is_refused: false,
            on_sent: Vec::new(),
            mark: None,
            wanted: 0,
            listed: Listed::No,
            counters: SendCounters::default(),
        }
    }

    // Its phase and room.

    pub(super) fn name(&self) -> RingName {
        self.name
    }

    /// Returns whether the receiver has no ring for this way, so that calls wait here whatever
    /// their sender chose.
    pub(super) fn awaits_ring(&self) -> bool {
        matches!(self.phase, Phase::Unasked | Phase::Asked | Phase::Closing)
    }

    pub(super) fn is_framed(&self) -> bool {
        self.phase == Phase::Framed
    }

    pub(super) fn has_staged(&self) -> bool {
        !self.staged.is_empty()
    }

    /// Returns whether nothing waits and the ring has room for a record of this size.
    pub(super) fn has_room_for(&self, record_bytes: usize) -> bool {
        let stands = self.phase == Phase::Stands && self.staged.is_empty();
        stands && self.ring.as_ref().is_some_and(|ring| ring.sender.has_room(record_bytes))
    }

    /// Returns whether a record of this size would find room, or its receiver is gone.
    pub(super) fn may_send(&self, record_bytes: usize) -> bool {
        match self.phase {
            Phase::Lost => true,
            Phase::Framed => self.may_stage(record_bytes, None),
            _ => self.has_room_for(record_bytes),
        }
    }

    /// Returns whether the first staged record would find room now.
    pub(super) fn staged_may_move(&self) -> bool {
        // Only records for a ring: room for frames is announced by a notice.
        let Some(ring) = self.ring.as_ref().filter(|_| !self.is_framed()) else { return false };
        self.staged.front().is_some_and(|record| ring.sender.has_room(record.len() * 8))
    }

    /// Returns whether no granted or requested chunk could ever hold a record of this size.
    pub(super) fn needs_chunk_for(&self, record_bytes: usize) -> bool {
        self.growing.is_none() && self.ring.as_ref().is_some_and(|ring| !ring.sender.has_chunk_for(record_bytes))
    }

    /// The reason why a record of this size cannot be sent now.
    pub(super) fn full(&self) -> Error {
        let cause = match (&self.ring, self.refused) {
            (_, Some(Refusal { cap_bytes: Some(cap_bytes), .. })) => FullCause::RingCap { cap_bytes },
            (_, Some(Refusal { cap_bytes: None, .. })) => FullCause::RingMemory,
            (Some(_), None) if self.avoids_rings => FullCause::RingMemory,
            (Some(ring), None) if self.staged.is_empty() => FullCause::Credit { ring_bytes: ring.sender.chunk_bytes() },
            _ => FullCause::Queue { queued_bytes: self.staged.bytes() },
        };
        Error::Full { to: self.to, cause }
    }

    // Setting up.

    /// Asks for the ring, or switches to frames if the receiver's memory is not mapped.
    ///
    /// # Errors
    /// Any error of the transport.
    pub(super) fn ask(&mut self, process: &Process, mapped: bool) -> Result<()> {
        debug_assert_eq!(self.phase, Phase::Unasked);
        if !mapped || self.avoids_rings {
            self.begin_frames(process);
            return Ok(());
        }
        let is_shared = self.name.source >= process.shape().callable();
        let chunk_bytes = self.options.chunk_bytes as u64 / if is_shared { 2 } else { 1 };
        let message = CallMessage::Open { ring: self.name, chunks: self.options.first_chunks as u8, chunk_bytes };
        process.kill_point(KillPoint::RingAsking);
        process.send_call(self.to_process, &message)?;
        process.kill_point(KillPoint::RingAsked);
        // Set only after the request was sent, so that the next call asks again if it failed.
        self.phase = Phase::Asked;
        Ok(())
    }

    /// Begins a new stream of frames. The receiver knows of no earlier one, or has closed it.
    fn begin_frames(&mut self, process: &Process) {
        let window = self.options.grown_bytes().min(process.settings().ring_cap_bytes);
        self.frames = OutFrames::new(window);
        self.phase = Phase::Framed;
    }

    /// Takes in an answer of the receiver's process. An answer to a question that was not asked is
    /// ignored.
    pub(crate) fn take(&mut self, process: &Process, answer: Answer) {
        match answer {
            Answer::Opened(ring) if self.phase == Phase::Asked => {
                self.counters.rings += 1;
                self.counters.ring_bytes += ring.sender.chunk_bytes() as u64;
                self.ring = Some(*ring);
                self.phase = Phase::Stands;
                process.kill_point(KillPoint::SenderOpened);
            }
            Answer::Grown(chunks) if self.growing.is_some() => {
                (self.growing, self.refused) = (None, None);
                self.counters.chunks_grown += chunks.len() as u64;
                self.counters.ring_bytes += chunks.iter().map(|chunk| chunk.bytes() as u64).sum::<u64>();
                self.granted.extend(chunks);
                self.give_granted();
                process.kill_point(KillPoint::SenderGrown);
            }
            Answer::Refused { .. } if self.phase == Phase::Asked => self.begin_frames(process),
            Answer::Unmapped if self.phase == Phase::Asked => {
                // The receiver's memory comes back first. An error is ignored here: the receiver is
                // lost then.
                let _ = process.send_call(self.to_process, &CallMessage::Close { ring: self.name });
                (self.phase, self.avoids_rings) = (Phase::Closing, true);
            }
            Answer::Unmapped if self.growing.is_some() => (self.growing, self.avoids_rings) = (None, true),
            Answer::Refused { cap_bytes } => {
                let until = process.clock().now() + REFUSAL_HOLDS;
                self.refused = self.growing.take().map(|chunk_bytes| Refusal { chunk_bytes, cap_bytes, until });
            }
            Answer::Credit { consumed } => self.frames.credit(consumed),
            Answer::Closed if self.phase == Phase::Closing => {
                self.phase = Phase::Unasked;
                self.counters.rings_reclaimed += 1;
                if self.has_staged() {
                    // An error is ignored here: the caller that waits for the records gets it.
                    let _ = self.ask(process, process.links.home_of(self.to_process).is_some());
                }
            }
            Answer::Opened(_) | Answer::Grown(_) | Answer::Unmapped | Answer::Closed => {}
        }
        // An error is ignored here, too: the caller that waits for the records gets it.
        let _ = self.send_for_worker(process);
    }

    /// Takes the ring from the outbox.
    pub(super) fn borrow(&mut self, ring: Ring) {
        self.ring = Some(ring);
        self.give_granted();
    }

    fn give_granted(&mut self) {
        if let Some(ring) = &mut self.ring {
            self.granted.drain(..).for_each(|chunk| ring.sender.grant(chunk));
        }
    }

    pub(super) fn take_granted(&mut self) -> Vec<MappedChunk> {
        std::mem::take(&mut self.granted)
    }

    /// Hands the ring to the outbox, if the outbox may hold it and nothing waits.
    pub(super) fn give_back(&mut self) -> Option<Ring> {
        let may_have = self.is_direct && self.phase == Phase::Stands && self.staged.is_empty();
        if may_have { self.ring.take() } else { None }
    }

    /// Marks the receiver as lost: nothing more will be sent.
    pub(crate) fn lose(&mut self) {
        self.counters.bytes += self.ring.take().map_or(0, |ring| ring.sender.written_bytes());
        self.phase = Phase::Lost;
        self.granted.clear();
        self.staged.clear();
        (self.cut_words, self.is_refused) = (0, false);
        self.held = None;
        self.on_sent.clear();
    }

    // Growing.

    /// Asks for more chunks, if the ring may still grow and no request is open.
    ///
    /// # Errors
    /// Any error of the transport.
    pub(super) fn ask_to_grow(&mut self, process: &Process, record_bytes: usize) -> Result<()> {
        self.counters.stalls += 1;
        let Some(ring) = self.ring.as_mut().filter(|_| self.growing.is_none()) else { return Ok(()) };
        let no_room = ring.sender.reserve(record_bytes).err();
        let needs_chunk = no_room.is_some_and(|no_room| no_room.needs_chunk_bytes.is_some());
        ring.announce();
        let chunks = ring.sender.chunk_count();
        if self.avoids_rings {
            return Ok(());
        }
        let refused = self.refused.filter(|refusal| process.clock().now() < refusal.until);
        let (count, chunk_bytes) = match needs_chunk {
            true if self.was_refused(process, record_bytes) => return Ok(()),
            true => (1, chunk_bytes_for(record_bytes)),
            false if refused.is_some() => return Ok(()),
            false => match self.options.growth(chunks) {
                Some(growth) => growth,
                None => return Ok(()),
            },
        };
        let message = CallMessage::Grow { ring: self.name, chunks: count as u8, chunk_bytes: chunk_bytes as u64 };
        process.send_call(self.to_process, &message)?;
        self.growing = Some(chunk_bytes);
        process.kill_point(KillPoint::GrowthAsked);
        Ok(())
    }

    /// Closes the ring, so that records travel as frames once the receiver has run what is in it.
    fn leave_ring(&mut self, process: &Process) -> Result<()> {
        self.close(process)?;
        self.avoids_rings = true;
        Ok(())
    }

    /// Asks for a chunk without which a record of this size can never be sent. If this process
    /// cannot map more memory of the receiver, closes the ring: what waits travels as frames then.
    ///
    /// # Errors
    /// [`Error::Full`] when the receiver's cap leaves no room for such a chunk; otherwise the
    /// failure of the transport. A receiver without memory is asked again.
    pub(super) fn ask_for_chunk(&mut self, process: &Process, record_bytes: usize) -> Result<()> {
        if self.avoids_rings {
            return self.leave_ring(process);
        }
        let is_capped = self.refused.is_some_and(|refusal| refusal.cap_bytes.is_some());
        if is_capped && self.was_refused(process, record_bytes) {
            return Err(self.full());
        }
        self.ask_to_grow(process, record_bytes)
    }

    /// Returns whether the receiver recently refused a chunk no larger than a record of this size
    /// needs.
    fn was_refused(&self, process: &Process, record_bytes: usize) -> bool {
        let holds = |refusal: &Refusal| process.clock().now() < refusal.until;
        self.refused.is_some_and(|refusal| refusal.chunk_bytes <= chunk_bytes_for(record_bytes) && holds(&refusal))
    }

    // Staged records.

    /// Stages a record. Returns false when that would exceed `cap_bytes`, or the queue's cap if
    /// that is `None`.
    pub(super) fn stage(&mut self, how: Dispatch, cap_bytes: Option<usize>, payload: &mut dyn AnyPayload) -> bool {
        let bytes = record_bytes(payload.bytes());
        if !self.may_stage(bytes, cap_bytes) {
            return false;
        }
        self.stage_anyway(how, payload);
        self.counters.calls += 1;
        self.counters.staged += 1;
        true
    }

    pub(super) fn may_stage(&self, record_bytes: usize, cap_bytes: Option<usize>) -> bool {
        // A record for frames always passes through the queue, however long it is.
        let alone = self.is_framed() && self.staged.is_empty();
        alone || self.staged.bytes() + record_bytes <= cap_bytes.unwrap_or(self.queue_cap_bytes)
    }

    pub(super) fn stage_anyway(&mut self, how: Dispatch, payload: &mut dyn AnyPayload) {
        let bytes = record_bytes(payload.bytes());
        self.staged.push(Header::new(how.entry, how.operand, bytes), bytes, payload);
        self.counters.bytes += bytes as u64;
        self.note_staged();
    }

    /// Takes over a batch of whole records, with the latches that wait for it. Sends it as a frame
    /// if it need not wait, and stages it otherwise.
    pub(super) fn take_batch(
        &mut self,
        process: &Process,
        records: &[MaybeUninit<u64>],
        on_sent: &mut Vec<LatchAddress>,
    ) {
        let bytes = size_of_val(records);
        self.counters.bytes += bytes as u64;
        self.on_sent.append(on_sent);
        let must_wait = self.has_staged() || self.held.is_some() || !self.is_framed();
        if !must_wait && bytes <= frame_bytes_max(process, self.to_process).min(self.frames.room()) {
            self.frames.begin(bytes);
            let copy = |out: &mut [u8]| copy_words(records, out);
            // An error is ignored here: the batch is staged, and who sends it gets the error.
            if let Ok(true) = process.send_frame(self.to_process, self.frame_place(), bytes, copy) {
                self.frames.advance(bytes);
                self.count_sent(process);
                return;
            }
            self.is_refused = true;
        }
        self.staged.push_records(records);
        self.note_staged();
    }

    fn frame_place(&self) -> FramePlace {
        FramePlace { ring: self.name, position: self.frames.sent(), window: self.frames.stated_window() }
    }

    fn note_staged(&mut self) {
        self.counters.staged_bytes_max = self.counters.staged_bytes_max.max(self.staged.bytes() as u64);
    }

    /// The number of staged bytes.
    pub(super) fn staged_bytes(&self) -> usize {
        self.staged.bytes()
    }

    /// Keeps a latch until the staged records are sent.
    pub(super) fn count_when_sent(&mut self, latch: LatchAddress) {
        self.on_sent.push(latch);
    }

    /// Counts down the latches of the staged records, if all are sent.
    pub(super) fn count_sent(&mut self, process: &Process) {
        if self.staged.is_empty() {
            self.on_sent.drain(..).for_each(|latch| count_down(process, latch));
        }
    }

    /// Holds the staged records for more of them, until `due`.
    pub(super) fn hold(&mut self, due: Instant) {
        self.held = Some(due);
    }

    /// The time at which held records are to be sent.
    pub(crate) fn held_until(&self) -> Option<Instant> {
        self.held
    }

    /// Holds records no longer. Returns whether some were held.
    pub(crate) fn release(&mut self, cause: FlushCause) -> bool {
        let held = self.held.take().is_some();
        self.counters.flushes[cause as usize] += u64::from(held);
        held
    }

    /// Sends staged records as far as there is room, unless they are held. Returns whether anything
    /// was sent.
    ///
    /// # Errors
    /// Any error of the transport.
    pub(crate) fn send_staged(&mut self, process: &Process) -> Result<bool> {
        if self.staged.is_empty() || self.held.is_some() {
            return Ok(false);
        }
        let sent = match self.phase {
            Phase::Framed => self.send_frames(process),
            Phase::Stands => self.send_into_ring(process),
            _ => Ok(false),
        };
        match sent {
            // Each caller to this receiver gets the error itself; this thread may be another.
            Err(Error::PeerLost { .. }) => {
                self.lose();
                Ok(false)
            }
            other => other,
        }
    }

    /// Sends staged records as [`send_staged`](Self::send_staged) does, for a worker that is busy.
    ///
    /// # Errors
    /// The failure of the transport.
    pub(crate) fn send_for_worker(&mut self, process: &Process) -> Result<bool> {
        let sent = self.send_staged(process)?;
        self.counters.helped += u64::from(sent);
        Ok(sent)
    }

    /// Returns whether staged records wait for ring credit, for their time or for room in the
    /// transport, so that no answer of the receiver would move them. Records that wait for a ring,
    /// or for credit for frames, are sent when that answer comes.
    pub(crate) fn needs_help(&self) -> bool {
        !self.staged.is_empty() && (self.phase == Phase::Stands || self.held.is_some() || self.is_refused)
    }

    /// Sends staged records through an open ring. Those that fit in one chunk are published
    /// together.
    fn send_into_ring(&mut self, process: &Process) -> Result<bool> {
        let mut sent = false;
        let mut no_room_for = None;
        while let (Some(record), Some(ring)) = (self.staged.front(), &mut self.ring) {
            let bytes = size_of_val(record);
            if ring.sender.reserve(bytes).is_err() {
                // The receiver rings the doorbell when it gives credit from now on. This looks once
                // more for credit that it gave before it saw the request.
                ring.sender.begin_waiting();
                if ring.sender.has_room(bytes) {
                    continue;
                }
                no_room_for = Some(bytes);
                break;
            }
            process.kill_point(KillPoint::RecordReserved);
            let Some((header, behind)) = self.staged.split_header(ring.sender.room()) else { break };
            ring.sender.publish_records(header, behind);
            process.kill_point(KillPoint::StagedPublished);
            let words = 1 + behind.len();
            // From now on the ring counts these bytes.
            self.counters.bytes -= words as u64 * 8;
            self.staged.pop_words(words);
            sent = true;
        }
        self.counters.flushes[FlushCause::Credit as usize] += u64::from(sent);
        // While a request to grow is open, its answer moves the records. Two workers that announce
        // nothing new would only keep each other awake.
        if let Some(ring) = self.ring.as_mut().filter(|_| sent || self.growing.is_none()) {
            ring.announce();
        }
        match no_room_for {
            Some(bytes) if self.needs_chunk_for(bytes) => match self.ask_for_chunk(process, bytes) {
                // Its caller knows that the record is kept.
                Err(Error::Full { .. }) => self.leave_ring(process)?,
                other => other?,
            },
            Some(bytes) => self.ask_to_grow(process, bytes)?,
            None => {}
        }
        self.count_sent(process);
        Ok(sent)
    }

    /// Sends staged records as frames to a receiver whose memory is not mapped.
    fn send_frames(&mut self, process: &Process) -> Result<bool> {
        let max = frame_bytes_max(process, self.to_process);
        let mut sent = false;
        self.is_refused = false;
        while self.has_staged() {
            if self.cut_words == 0 {
                // As many whole records as fit in a frame. A longer record is cut into pieces.
                let front = self.staged.front().map_or(0, <[_]>::len);
                let whole = self.staged.front_within(max.min(self.frames.room())).len();
                self.cut_words = if whole == 0 && self.frames.has_room(front * 8) { front } else { whole };
                self.frames.begin(self.cut_words * 8);
            }
            let piece = self.staged.words(self.cut_words.min(max / 8));
            if piece.is_empty() {
                break;
            }
            let place = self.frame_place();
            if !process.send_frame(self.to_process, place, size_of_val(piece), |out| copy_words(piece, out))? {
                self.is_refused = true;
                break;
            }
            let words = piece.len();
            self.frames.advance(words * 8);
            self.staged.pop_words(words);
            self.cut_words -= words;
            sent = true;
        }
        self.count_sent(process);
        Ok(sent)
    }

    /// Writes a record into the ring and publishes it, if the ring is here and nothing waits.
    /// Returns whether it did so.
    pub(super) fn put(&mut self, how: Dispatch, payload: &mut dyn AnyPayload) -> bool {
        let bytes = record_bytes(payload.bytes());
        let Some(ring) = self.ring.as_mut().filter(|_| self.staged.is_empty()) else { return false };
        let Ok(offset) = ring.sender.reserve(bytes) else { return false };
        // SAFETY: `bytes` is the size of a record with this payload, and the ring reserved `bytes`
        // bytes at `offset`.
        unsafe { write_payload(ring.sender.chunk(), offset, bytes, payload) };
        ring.sender.publish(Header::new(how.entry, how.operand, bytes), bytes);
        ring.announce();
        self.counters.calls += 1;
        true
    }

    /// Tells the receiver that this worker waits for credit (`begin`), or no longer waits.
    pub(super) fn wait_for_credit(&self, begin: bool) {
        match &self.ring {
            Some(ring) if begin => ring.sender.begin_waiting(),
            // Staged records still wait for credit.
            Some(ring) if self.staged.is_empty() => ring.sender.end_waiting(),
            Some(_) | None => {}
        }
    }

    // Shutting down.

    /// Returns whether the way is open and nothing is staged, so that it can be closed.
    pub(super) fn may_close(&self) -> bool {
        let open = (self.phase == Phase::Stands && self.ring.is_some()) || self.phase == Phase::Framed;
        open && self.staged.is_empty()
    }

    /// Tells the receiver that nothing more comes through this ring, and drops the ring. From the
    /// moment at which the message leaves, no thread of this process writes into the ring's memory:
    /// this one has the ring, and the lock of the way.
    ///
    /// # Errors
    /// Any error of the transport.
    pub(super) fn close(&mut self, process: &Process) -> Result<()> {
        debug_assert!(self.ring.is_some() || self.is_framed());
        process.kill_point(KillPoint::RingClosing);
        process.send_call(self.to_process, &CallMessage::Close { ring: self.name })?;
        // Only now, so that the ring stays open if the message was not sent.
        self.phase = Phase::Closing;
        if let Some(ring) = self.ring.take() {
            let bytes = ring.sender.chunk_bytes() + self.granted.iter().map(RingMemory::bytes).sum::<usize>();
            self.counters.reclaimed_bytes += bytes as u64;
            self.counters.bytes += ring.sender.written_bytes();
        }
        self.granted.clear();
        (self.growing, self.refused, self.mark, self.avoids_rings) = (None, None, None, false);
        Ok(())
    }

    /// Notes that the receiver would like its memory back. Returns whether to tell the worker. Two
    /// notices suffice, so a busy worker gets no more than two, however often the receiver asks.
    pub(crate) fn note_wanted(&mut self) -> bool {
        let is_news = self.wanted < 2;
        self.wanted += u8::from(is_news);
        is_news
    }

    /// Notes that the worker has looked whether it can give the ring up.
    pub(super) fn looked_at(&mut self) {
        self.wanted = self.wanted.saturating_sub(1);
    }

    /// Returns whether nothing was sent since the receiver last asked for its memory, and nothing
    /// is about to be sent.
    pub(super) fn is_idle(&mut self) -> bool {
        let Some(ring) = &self.ring else { return false };
        let written = ring.sender.written_bytes();
        // A sender may be waiting for more room in a full ring.
        let is_in_use = !ring.sender.has_room(CHUNK_BYTES_MIN) || self.growing.is_some();
        let idle = self.may_close() && !is_in_use;
        idle & (self.mark.replace(written) == Some(written))
    }
}

#[cfg(test)]
impl Way {
    /// Makes this a faulty sender of frames.
    pub(super) fn ignore_credit(&mut self) {
        self.frames.ignore_credit();
    }
}

/// Copies the words of records into a frame of that size.
fn copy_words(words: &[MaybeUninit<u64>], out: &mut [u8]) {
    assert_eq!(size_of_val(words), out.len(), "a frame has the size of its records");
    // SAFETY: both are that long, and do not overlap, since `out` is borrowed exclusively. The copy
    // gives uninitialised bytes some value.
    unsafe { racy::copy_out(words.as_ptr().cast(), out.as_mut_ptr(), out.len()) };
}

/// The most bytes of a stream that a frame carries.
fn frame_bytes_max(process: &Process, to: ProcessId) -> usize {
    (process.transport().message_bytes_max(to) - CallMessage::OVERHEAD_BYTES) / 8 * 8
}

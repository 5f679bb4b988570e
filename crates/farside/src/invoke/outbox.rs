//! The sending side of the way from one worker to another.
//!
//! An outbox is in one of three states. *Unopened*: nothing was ever sent; the first record asks the receiver's process for
//! a ring. *Staging*: records wait here, in order, because the ring does not stand yet or had no room for an earlier one.
//! *Direct*: the ring stands and nothing waits: records are written into the receiver's memory at once. Only in the last
//! state does a call touch nothing but the ring, and `direct` tells it by one flag.
//!
//! Towards a receiver whose memory is not mapped here the ring has only its sending side, in memory of this process: one chunk, in which
//! records are batched as in any other. A batch that is long enough is staged, and what is staged is sent as frames.

mod counters;

use std::time::Instant;

use farside_fabric::ring::{Header, MappedChunk, MappedControl, RingMemory, Sender, record_bytes};
use farside_fabric::{ProcessId, WorkerId};

use farside_sys::prefetch::prefetch_to_write;

pub use self::counters::{FlushCause, SendCounters};
use super::frames::OutFrames;
use super::named::NAMED;
use super::notify::{LatchAddress, count_down};
use super::payload::Payload;
use super::staged::Staged;
use crate::error::{Error, FullCause, Result};
use crate::job::home::Announcer;
use crate::job::kill_point::KillPoint;
use crate::job::process::Process;
use crate::job::setup::{RingName, SetupMessage};

/// Chunks are granted until there are so many: two of 4 KiB at first, one of 32 KiB, one of 256 KiB. A ring that is busy has to be
/// longer than 192 KiB: where the same cache lines go to and fro in a shorter circle, each takes more than twice as long.
const CHUNK_COUNT_MAX: usize = 4;
/// The largest chunk that is asked for without a record that needs a larger one.
const CHUNK_BYTES_MAX: usize = 256 << 10;
/// The size of the chunks that a ring begins with, and how many.
pub(crate) const FIRST_CHUNK_BYTES: usize = 4 << 10;
pub(crate) const FIRST_CHUNK_COUNT: usize = 2;
/// The same for lanes, which carry less.
pub(crate) const FIRST_LANE_CHUNK_BYTES: usize = 2 << 10;

/// The chunk in which records are batched that go as frames.
pub(crate) const FRAME_CHUNK_BYTES: usize = 16 << 10;

/// The way to one receiver.
#[derive(Debug)]
pub(crate) struct Outbox {
    name: RingName,
    to: WorkerId,
    to_process: ProcessId,
    /// The ring stands, nothing is staged, the receiver lives, and it runs this binary.
    direct: bool,
    /// The receiver runs this binary: functions of it mean something there.
    is_alike: bool,
    ring: Option<Ring>,
    asked: bool,
    /// The size of the chunk that was asked for and has not been answered.
    growing: Option<usize>,
    refused: Option<Refusal>,
    lost: bool,
    staged: Staged,
    queue_cap_bytes: usize,
    /// Latches of calls that were batched or staged, counted down when those are published.
    on_sent: Vec<LatchAddress>,
    /// When the open batch was begun.
    batch_since: Option<Instant>,
    /// The receiver's memory is not mapped here, and records go to it as frames.
    is_framed: bool,
    frames: OutFrames,
    /// Without the bytes that the ring has counted.
    counters: SendCounters,
}

/// The receiver has granted no chunk of this size, having reached its cap.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    chunk_bytes: usize,
    cap_bytes: usize,
}

#[derive(Debug)]
struct Ring {
    sender: Sender<MappedChunk, MappedControl>,
    /// `None` towards a receiver whose memory is not mapped here: nothing is ever published then, only batched.
    announcer: Option<Announcer>,
}

impl Ring {
    #[inline(always)]
    fn announce(&self) {
        if let Some(announcer) = &self.announcer {
            announcer.announce();
        }
    }
}

/// How far ahead of the record being written the ring's lines are asked for: they are in the receiver's cache, which read them a
/// lap ago.
const WRITE_AHEAD_BYTES: usize = 512;

/// How one record is to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dispatch {
    pub(crate) entry: u16,
    pub(crate) operand: u32,
    /// Batch it, and publish the batch at this size; 0 to publish at once.
    pub(crate) batch_bytes: usize,
}

/// What [`Outbox::try_send`] found.
pub(crate) enum Sent {
    /// Published.
    Now,
    /// Batched; this record began the batch.
    BatchBegun,
    /// Batched.
    Batched,
}

impl Outbox {
    pub(crate) fn new(
        name: RingName,
        to: WorkerId,
        to_process: ProcessId,
        is_alike: bool,
        queue_cap_bytes: usize,
    ) -> Self {
        Self {
            name,
            to,
            to_process,
            direct: false,
            is_alike,
            ring: None,
            asked: false,
            growing: None,
            refused: None,
            lost: false,
            staged: Staged::default(),
            queue_cap_bytes,
            on_sent: Vec::new(),
            batch_since: None,
            is_framed: false,
            frames: OutFrames::default(),
            counters: SendCounters::default(),
        }
    }

    pub(crate) fn to_process(&self) -> ProcessId {
        self.to_process
    }

    /// Writes a record into the ring and publishes it, if that can be done at once; otherwise hands the payload back.
    #[inline(always)]
    pub(crate) fn try_send<P: Payload>(&mut self, entry: u16, operand: u32, payload: P) -> Result<Sent, P> {
        let bytes = record_bytes(payload.bytes());
        let (ring, offset) = match self.reserve(bytes) {
            Some(reserved) => reserved,
            None => return Err(payload),
        };
        // SAFETY: `bytes` is the size of a record with this payload, and the ring reserved so many at `offset`.
        unsafe { write_payload(ring.sender.chunk(), offset, bytes, payload) };
        prefetch_to_write(ring.sender.chunk().ahead(offset + WRITE_AHEAD_BYTES));
        ring.sender.publish(Header::new(entry, operand, bytes), bytes);
        ring.announce();
        self.counters.calls += 1;
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
        if let Some(ring) = &mut self.ring
            && ring.sender.may_join(bytes)
        {
            ring.sender.join(header, bytes, |chunk, offset| {
                // SAFETY: `bytes` is the size of a record with this payload, and there is room for it at `offset`.
                unsafe { write_payload(chunk, offset, bytes, payload) };
                prefetch_to_write(chunk.ahead(offset + WRITE_AHEAD_BYTES));
            });
            self.counters.calls += 1;
            return Ok(Sent::Batched);
        }
        let (ring, offset) = match self.reserve(bytes) {
            Some(reserved) => reserved,
            None => return Err(payload),
        };
        // SAFETY: `bytes` is the size of a record with this payload, and the ring reserved so many at `offset`.
        unsafe { write_payload(ring.sender.chunk(), offset, bytes, payload) };
        prefetch_to_write(ring.sender.chunk().ahead(offset + WRITE_AHEAD_BYTES));
        ring.sender.batch(header, bytes);
        let batched = ring.sender.batched_bytes();
        ring.sender.let_join(batch_bytes);
        self.counters.calls += 1;
        if batched >= batch_bytes {
            self.flush(FlushCause::Size);
            return Ok(Sent::Now);
        }
        Ok(if batched == bytes { Sent::BatchBegun } else { Sent::Batched })
    }

    /// One or the other.
    pub(crate) fn send<P: Payload>(&mut self, how: Dispatch, payload: P) -> Result<Sent, P> {
        match how.batch_bytes {
            _ if how.entry == NAMED => self.try_send_named(how, payload),
            0 => self.try_send(how.entry, how.operand, payload),
            batch_bytes => self.try_batch(how.entry, how.operand, batch_bytes, payload),
        }
    }

    /// As [`try_send`](Self::try_send), for a call that a receiver of any binary understands.
    fn try_send_named<P: Payload>(&mut self, how: Dispatch, payload: P) -> Result<Sent, P> {
        let is_ready = self.is_ready();
        let direct = std::mem::replace(&mut self.direct, is_ready);
        let sent = self.try_send(how.entry, how.operand, payload);
        self.direct = direct;
        sent
    }

    /// Whether the ring stands, nothing waits before another record, and the receiver lives.
    fn is_ready(&self) -> bool {
        let stands = self.ring.as_ref().is_some_and(|ring| ring.announcer.is_some());
        stands && self.staged.is_empty() && !self.lost
    }

    /// Room for a record in the ring, if the outbox is direct.
    #[inline(always)]
    fn reserve(&mut self, record_bytes: usize) -> Option<(&mut Ring, usize)> {
        if !self.direct {
            return None;
        }
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
        self.flush(FlushCause::Chunk);
        let ring = self.ring.as_mut()?;
        let reserved = ring.sender.reserve(record_bytes);
        // The rotation is news for the receiver, too.
        ring.announce();
        reserved.ok()
    }

    /// Publishes the batch, if there is one.
    pub(crate) fn flush(&mut self, cause: FlushCause) -> bool {
        // Also when a call that was not batched has published it before.
        self.batch_since = None;
        let Some(ring) = &mut self.ring else { return false };
        let flushed = if ring.announcer.is_some() { ring.sender.flush() } else { self.stage_batch() };
        if !flushed {
            return false;
        }
        if let Some(ring) = &self.ring {
            ring.announce();
        }
        self.counters.flushes[cause as usize] += 1;
        true
    }

    /// Notes when the open batch was begun.
    pub(crate) fn batch_begun(&mut self, now: Instant) {
        self.batch_since = Some(now);
    }

    pub(crate) fn batch_since(&self) -> Option<Instant> {
        self.batch_since
    }

    /// Keeps a latch until everything so far is published.
    pub(crate) fn count_when_sent(&mut self, latch: LatchAddress) {
        self.on_sent.push(latch);
    }

    /// Counts down what waits for publication, if all is published.
    pub(crate) fn count_sent(&mut self, process: &Process) {
        let batched = self.ring.as_ref().is_some_and(|ring| ring.sender.batched_bytes() > 0);
        if !self.on_sent.is_empty() && self.staged.is_empty() && !batched {
            self.on_sent.drain(..).for_each(|latch| count_down(process, latch));
        }
    }

    /// Whether calls may be staged whatever the sender wants, since the ring does not stand.
    pub(crate) fn awaits_ring(&self) -> bool {
        self.ring.is_none() && !self.lost
    }

    pub(crate) fn has_staged(&self) -> bool {
        !self.staged.is_empty()
    }

    /// Whether nothing that was called is still here.
    pub(crate) fn is_finished(&self) -> bool {
        self.staged.is_empty() && self.batch_since.is_none()
    }

    /// Whether records go to the receiver as frames.
    pub(crate) fn is_framed(&self) -> bool {
        self.is_framed
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Stages a record. Hands the payload back when that would exceed the queue's cap.
    pub(crate) fn stage<P: Payload>(&mut self, how: Dispatch, payload: P) -> Result<(), P> {
        let bytes = record_bytes(payload.bytes());
        if !self.may_stage(bytes) {
            return Err(payload);
        }
        self.staged.push(Header::new(how.entry, how.operand, bytes), bytes, payload);
        self.counters.calls += 1;
        self.counters.bytes += bytes as u64;
        self.counters.staged += 1;
        self.direct = false;
        Ok(())
    }

    fn may_stage(&self, record_bytes: usize) -> bool {
        // Where nothing is written into a ring a record goes by way of the queue, however long it is.
        let alone = self.is_framed && self.staged.is_empty();
        alone || self.staged.bytes() + record_bytes <= self.queue_cap_bytes
    }

    /// Adds a record to the batch that is to go as a frame, and sends that if it is long enough. Hands the payload back when the queue is
    /// full.
    pub(crate) fn frame<P: Payload>(&mut self, process: &Process, how: Dispatch, payload: P) -> Result<Sent, P> {
        let bytes = record_bytes(payload.bytes());
        if !self.may_stage(bytes) {
            return Err(payload);
        }
        self.counters.calls += 1;
        let header = Header::new(how.entry, how.operand, bytes);
        if self.ring.as_ref().is_none_or(|ring| ring.sender.try_reserve(bytes).is_none()) {
            self.stage_batch();
        }
        let reserved = self.ring.as_mut().and_then(|ring| Some((ring.sender.try_reserve(bytes)?, ring)));
        if let Some((offset, ring)) = reserved {
            // SAFETY: `bytes` is the size of a record with this payload, and the ring reserved so many at `offset`.
            unsafe { write_payload(ring.sender.chunk(), offset, bytes, payload) };
            ring.sender.batch(header, bytes);
            ring.sender.let_join(how.batch_bytes);
            let batched = ring.sender.batched_bytes();
            if batched < how.batch_bytes {
                return Ok(if batched == bytes { Sent::BatchBegun } else { Sent::Batched });
            }
            if how.batch_bytes > 0 {
                self.counters.flushes[FlushCause::Size as usize] += 1;
            }
            self.stage_batch();
        } else {
            self.staged.push(header, bytes, payload);
            self.counters.bytes += bytes as u64;
        }
        // That it cannot be sent is told by what waits for it.
        let _ = self.send_staged(process);
        Ok(Sent::Now)
    }

    /// Moves the batch that is to go as a frame to what is staged. Says whether there was one.
    fn stage_batch(&mut self) -> bool {
        self.batch_since = None;
        let Some(ring) = &mut self.ring else { return false };
        let staged = &mut self.staged;
        let taken = ring.sender.take_batch(|chunk, bytes| {
            staged.push_records(bytes, |words| {
                // SAFETY: the batch lies at the beginning of the chunk, in memory that only this outbox knows of.
                unsafe {
                    std::ptr::copy_nonoverlapping(chunk.address(0).cast_const().cast(), words.as_mut_ptr(), bytes / 8)
                };
            });
        });
        taken.is_some()
    }

    /// Asks for the ring, once.
    ///
    /// # Errors
    /// What the transport said.
    pub(crate) fn ensure_asked(&mut self, process: &Process) -> Result<()> {
        if self.asked || self.lost {
            return Ok(());
        }
        if process.connect(self.to_process)?.is_some() {
            process.kill_point(KillPoint::RingAsking);
            process.send_setup(self.to_process, &SetupMessage::Open { ring: self.name })?;
            process.kill_point(KillPoint::RingAsked);
        } else {
            self.ring = Some(Ring { sender: process.new_frame_batch()?, announcer: None });
            self.is_framed = true;
        }
        // Only now: what could not be asked for is asked for by the next call.
        self.asked = true;
        Ok(())
    }

    /// The ring stands.
    pub(crate) fn open(&mut self, sender: Sender<MappedChunk, MappedControl>, announcer: Announcer) {
        self.counters.rings += 1;
        self.counters.ring_bytes += sender.chunk_bytes() as u64;
        self.ring = Some(Ring { sender, announcer: Some(announcer) });
        self.direct = self.is_alike && self.is_ready();
    }

    /// One more chunk was granted.
    pub(crate) fn grow(&mut self, chunk: MappedChunk) {
        self.growing = None;
        if let Some(ring) = &mut self.ring {
            self.counters.chunks_grown += 1;
            self.counters.ring_bytes += chunk.bytes() as u64;
            ring.sender.grant(chunk);
        }
    }

    /// No more memory is granted.
    pub(crate) fn refuse(&mut self, cap_bytes: usize) {
        self.refused = self.growing.take().map(|chunk_bytes| Refusal { chunk_bytes, cap_bytes });
    }

    /// What it did so far.
    pub(crate) fn counters(&self) -> SendCounters {
        let written = self.ring.as_ref().map_or(0, |ring| ring.sender.written_bytes());
        SendCounters { bytes: self.counters.bytes + written, ..self.counters }
    }

    /// The receiver is gone: nothing more will be sent.
    pub(crate) fn lose(&mut self) {
        self.counters = self.counters();
        self.lost = true;
        self.direct = false;
        self.ring = None;
        self.staged.clear();
        self.on_sent.clear();
        self.batch_since = None;
    }

    /// Asks for a chunk more, if this ring may still grow and has not asked already.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when no ring could ever hold the record.
    pub(crate) fn ask_to_grow(&mut self, process: &Process, record_bytes: usize) -> Result<()> {
        let Some(ring) = self.ring.as_mut().filter(|ring| ring.announcer.is_some()) else { return Ok(()) };
        let no_room = ring.sender.reserve(record_bytes).err();
        let needs_chunk = no_room.is_some_and(|no_room| no_room.needs_chunk_bytes.is_some());
        ring.announce();
        let chunks = ring.sender.chunk_count();
        self.counters.stalls += 1;
        if self.growing.is_some() {
            return Ok(());
        }
        let chunk_bytes = match needs_chunk {
            true if self.was_refused(record_bytes) => return Ok(()),
            true => chunk_bytes_for(record_bytes),
            false if chunks >= CHUNK_COUNT_MAX || self.refused.is_some() => return Ok(()),
            false => (FIRST_CHUNK_BYTES << (3 * (chunks + 1 - FIRST_CHUNK_COUNT))).min(CHUNK_BYTES_MAX),
        };
        process
            .send_setup(self.to_process, &SetupMessage::Grow { ring: self.name, chunk_bytes: chunk_bytes as u64 })?;
        self.growing = Some(chunk_bytes);
        self.refused = None;
        process.kill_point(KillPoint::GrowthAsked);
        Ok(())
    }

    /// Asks for a chunk without which a record of this size can never be sent.
    ///
    /// # Errors
    /// [`Error::Full`] when such a chunk was refused; otherwise as for [`ask_to_grow`](Self::ask_to_grow).
    pub(crate) fn ask_for_chunk(&mut self, process: &Process, record_bytes: usize) -> Result<()> {
        if self.was_refused(record_bytes) { Err(self.full()) } else { self.ask_to_grow(process, record_bytes) }
    }

    /// Whether no chunk is granted that could hold a record of this size.
    fn was_refused(&self, record_bytes: usize) -> bool {
        self.refused.is_some_and(|refusal| refusal.chunk_bytes <= chunk_bytes_for(record_bytes))
    }

    /// Whether what is staged would find room by now.
    pub(crate) fn staged_may_move(&self) -> bool {
        // For frames room comes with a notice.
        let front = self.staged.front().filter(|_| !self.is_framed).map(|record| record.len() * 8);
        front.is_some_and(|bytes| self.ring.as_ref().is_some_and(|ring| ring.sender.has_room(bytes)))
    }

    /// Whether nothing waits before a record of this size, and it would find room.
    pub(crate) fn has_room_for(&self, record_bytes: usize) -> bool {
        self.is_ready() && self.ring.as_ref().is_some_and(|ring| ring.sender.has_room(record_bytes))
    }

    /// Whether nothing that was granted or asked for could ever hold a record of this size.
    pub(crate) fn needs_chunk_for(&self, record_bytes: usize) -> bool {
        self.growing.is_none()
            && !self.is_framed
            && self.ring.as_ref().is_some_and(|ring| !ring.sender.has_chunk_for(record_bytes))
    }

    /// Why a record of this size cannot be sent now.
    pub(crate) fn full(&self) -> Error {
        let cause = match (&self.ring, self.refused) {
            (_, Some(Refusal { cap_bytes, .. })) => FullCause::RingCap { cap_bytes },
            (Some(ring), None) if self.staged.is_empty() && !self.is_framed => {
                FullCause::Credit { ring_bytes: ring.sender.chunk_bytes() }
            }
            _ => FullCause::Queue { queued_bytes: self.staged.bytes() },
        };
        Error::Full { to: self.to, cause }
    }

    /// Whether a record of this size would find room, or its receiver is gone.
    pub(crate) fn may_send(&self, record_bytes: usize) -> bool {
        let has_room = match &self.ring {
            _ if self.is_framed => self.may_stage(record_bytes),
            Some(ring) => self.staged.is_empty() && ring.sender.has_room(record_bytes),
            None => false,
        };
        has_room || self.lost
    }

    /// Announces to the receiver that we wait for credit, or that we do so no longer.
    pub(crate) fn wait_for_credit(&self, begin: bool) {
        match &self.ring {
            Some(ring) if begin => ring.sender.begin_waiting(),
            // What is staged waits on.
            Some(ring) if self.staged.is_empty() => ring.sender.end_waiting(),
            Some(_) | None => {}
        }
    }

    /// Sends what is staged, as far as there is room. Says whether anything was sent.
    ///
    /// # Errors
    /// [`Error::TooLarge`], or what the transport said.
    pub(crate) fn send_staged(&mut self, process: &Process) -> Result<bool> {
        if self.staged.is_empty() {
            return Ok(false);
        }
        let sent = match &self.ring {
            _ if self.is_framed => self.send_frames(process),
            Some(_) => self.send_into_ring(process),
            None => Ok(false),
        };
        match sent {
            // Whoever calls there or waits for it is told so; this may be somebody else.
            Err(Error::PeerLost { .. }) => {
                self.lose();
                Ok(false)
            }
            other => other,
        }
    }

    /// Sends what is staged to a receiver whose ring stands.
    fn send_into_ring(&mut self, process: &Process) -> Result<bool> {
        let mut sent = false;
        let mut no_room_for = None;
        while let (Some(record), Some(ring)) = (self.staged.front(), &mut self.ring) {
            let bytes = record.len() * 8;
            let Ok(offset) = ring.sender.reserve(bytes) else {
                // The receiver rings when it gives credit. What it gave before it saw this is looked for once more.
                ring.sender.begin_waiting();
                if ring.sender.has_room(bytes) {
                    continue;
                }
                no_room_for = Some(bytes);
                break;
            };
            let target = ring.sender.chunk().address(offset + 8);
            // SAFETY: the ring reserved `bytes` bytes at `offset`, of which the header takes the first 8; the staged record
            // is memory of this process.
            unsafe { std::ptr::copy_nonoverlapping(record[1..].as_ptr().cast(), target, bytes - 8) };
            process.kill_point(KillPoint::RecordReserved);
            ring.sender.batch(Header::from_word(record[0]), bytes);
            // The ring counts it from now on.
            self.counters.bytes -= bytes as u64;
            self.staged.pop();
            sent = true;
        }
        if sent {
            process.kill_point(KillPoint::BatchOpen);
        }
        if let Some(ring) = &mut self.ring {
            ring.sender.flush();
            ring.announce();
        }
        match no_room_for {
            Some(bytes) if self.needs_chunk_for(bytes) => self.ask_for_chunk(process, bytes)?,
            Some(bytes) => self.ask_to_grow(process, bytes)?,
            None => self.direct = self.is_alike && self.is_ready(),
        }
        self.count_sent(process);
        Ok(sent)
    }

    /// Sends what is staged to a receiver that is not mapped.
    fn send_frames(&mut self, process: &Process) -> Result<bool> {
        let max = process.transport().capabilities().message_bytes_max - SetupMessage::OVERHEAD_BYTES;
        let mut sent = false;
        while let Some(front) = self.staged.front().map(<[u64]>::len) {
            // As many records as a frame takes; one that is longer goes in pieces.
            let whole = self.staged.front_within(max.min(self.frames.room()));
            let words = match whole {
                [] if self.frames.has_room(front * 8) => self.staged.front_within(front * 8),
                whole => whole,
            };
            if words.is_empty() {
                break;
            }
            for piece in words.chunks(max / 8) {
                let position = self.frames.advance(size_of_val(piece));
                process.send_frame(self.to_process, self.name, position, piece)?;
            }
            let words = words.len();
            self.staged.pop_words(words);
            sent = true;
        }
        self.count_sent(process);
        Ok(sent)
    }

    /// The receiver has run so many bytes of frames in all.
    pub(crate) fn credit_frames(&mut self, consumed: u64) {
        self.frames.credit(consumed);
    }
}

#[cfg(test)]
impl Outbox {
    /// Writes words into the ring, where the next record goes, whatever they are. The first is the header.
    pub(super) fn write_anything(&self, words: &[u64]) {
        use std::sync::atomic::Ordering;

        let ring = self.ring.as_ref().expect("the ring stands");
        let (chunk, offset) = (ring.sender.chunk(), ring.sender.try_reserve(8 * words.len()).expect("there is room"));
        for (place, word) in words.iter().enumerate().rev() {
            chunk.word(offset + 8 * place).store(*word, Ordering::Release);
        }
        ring.announce();
    }
}

/// The size of a chunk for a record of this size: behind it is room for one more header.
fn chunk_bytes_for(record_bytes: usize) -> usize {
    (record_bytes + 8).next_multiple_of(FIRST_CHUNK_BYTES)
}

/// Writes the payload of a record.
///
/// # Safety
/// `record_bytes` bytes are reserved at `offset` of `chunk`, and that is the size of a record with this payload.
#[inline(always)]
unsafe fn write_payload<P: Payload>(chunk: &MappedChunk, offset: usize, record_bytes: usize, payload: P) {
    let mut at = chunk.address(offset + 8);
    if Header::is_long_for(record_bytes) {
        // SAFETY: a long record's first payload word is inside the reserved bytes, aligned to 8.
        unsafe { at.cast::<u64>().write(record_bytes as u64) };
        at = at.wrapping_add(8);
    }
    // SAFETY: by the contract the payload fits behind the header (and the length of a long record); records are aligned to 8.
    unsafe { payload.write(at) };
}

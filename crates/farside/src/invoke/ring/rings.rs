//! Opening, growing and closing rings: at the receiver's process, which owns their memory, and at
//! the sender's.
//!
//! The service threads do this, so neither side waits for a worker. Only closing a ring takes both
//! workers. The sender's worker alone knows that nothing more comes. The receiver's worker has to
//! run what came; `pool.rs` proves that the memory is free afterwards.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farside_fabric::ring::{MappedChunk, MappedControl, Receiver, RingControl, RingControlMemory, RingMemory, Sender};
use farside_fabric::{FabricError, ProcessId, WorkerId};
use farside_sys::shm::SharedMemory;

use crate::error::{Error, Result, Source};
use crate::invoke::message::{CallMessage, RingName};
use crate::invoke::outbox::{Answer, FRAME_CHUNK_BYTES, FrameBatch, Outbox, Ring, SharedWay};
use crate::invoke::ring::pool::{RingPool, Waiting};
use crate::runtime::extent::Extent;
use crate::runtime::home::Announcer;
use crate::runtime::process::{Notice, Process, lock};
use farside_launch::kill_point::KillPoint;
use farside_launch::ring_options::{CHUNKS_PER_REQUEST_MAX, FIRST_CHUNK_BYTES, FIRST_CHUNK_COUNT};

/// The number of times that the senders of other rings are asked whether they need theirs, before a
/// request beyond the cap is refused. A ring that was not used between two rounds is idle.
const RECLAIM_ROUNDS: u32 = 2;
const RECLAIM_INTERVAL: Duration = Duration::from_millis(1);
/// The time after the last round during which memory may still come back. A sender or the receiver
/// may be busy.
const RECLAIM_PATIENCE: Duration = Duration::from_millis(20);
/// The number of senders asked at once: those with the largest rings.
const RECLAIMED_AT_ONCE: usize = 64;

/// The ways of this process's threads to others, by the names of their rings.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    by_name: Mutex<HashMap<RingName, SharedWay>>,
}

// Both sides.
impl Process {
    fn map(&self, piece: Extent) -> Result<Arc<SharedMemory>> {
        let memory = if piece.key.process == self.id() {
            lock(&self.calls().ring_pool).memory(piece.key)
        } else {
            let deadline = self.clock().now() + self.settings().deadline;
            let region = self.transport().attach(piece.key, deadline).map_err(|error| self.explain(error))?;
            region.mapped().cloned()
        };
        memory.ok_or(Error::Fabric(FabricError::StaleKey { key: piece.key }))
    }

    fn chunk(&self, piece: Extent) -> Result<MappedChunk> {
        let inside = piece.key.check(piece.offset, piece.bytes as usize);
        let chunk = MappedChunk::new(self.map(piece)?, piece.offset as usize, piece.bytes as usize);
        inside?;
        chunk.ok_or(Error::Fabric(FabricError::StaleKey { key: piece.key }))
    }

    fn chunks(&self, pieces: &[Extent]) -> Result<Vec<MappedChunk>> {
        pieces.iter().map(|piece| self.chunk(*piece)).collect()
    }

    fn control_block(&self, piece: Extent) -> Result<MappedControl> {
        piece.key.check(piece.offset, size_of::<RingControl>())?;
        let control = MappedControl::new(self.map(piece)?, piece.offset as usize);
        control.ok_or(Error::Fabric(FabricError::StaleKey { key: piece.key }))
    }
}

// The sender's side.
impl Process {
    pub(crate) fn new_outbox(&self, source: u32, to: WorkerId) -> Outbox {
        let (process, _) = self.shape().place_of(to);
        let name = RingName { source, to: to.number() };
        let settings = self.settings();
        // Where accesses are checked, every call takes the slow way, which tells the checker.
        let is_direct = self.is_alike(process) && !self.is_observed();
        Outbox::new(name, to, process, is_direct, settings.ring, settings.queue_cap_bytes)
    }

    /// Allocates memory of this process in which calls are batched that travel as frames.
    pub(crate) fn new_frame_batch(&self) -> Result<FrameBatch> {
        let mut pool = lock(&self.calls().ring_pool);
        let control = pool.allocate_own(&**self.transport(), size_of::<RingControl>())?;
        let chunk = pool.allocate_own(&**self.transport(), FRAME_CHUNK_BYTES)?;
        drop(pool);
        self.reset_control(control)?;
        self.reset_chunk(chunk)?;
        let sender = Sender::new(self.control_block(control)?, vec![self.chunk(chunk)?]);
        Ok(FrameBatch { sender, pieces: vec![control, chunk] })
    }

    /// Frees the memory of a frame batch.
    pub(crate) fn free_frame_batch(&self, batch: FrameBatch) {
        lock(&self.calls().ring_pool).free_own(&batch.pieces);
    }

    /// Registers a way, so that answers reach it.
    pub(crate) fn add_way(&self, name: RingName, way: &SharedWay) {
        lock(&self.calls().ways.by_name).insert(name, way.clone());
    }

    /// Returns the way of this name and its source, if this process owns it and it leads to a
    /// worker of `from`.
    fn way_to(&self, from: ProcessId, name: RingName) -> Option<(SharedWay, Source)> {
        let to = self.place_of(WorkerId::new(name.to)).is_some_and(|(of, _)| of == from);
        let is_ours = self.owner_of(name.source) == Some(self.id());
        let way = lock(&self.calls().ways.by_name).get(&name).filter(|_| to && is_ours)?.clone();
        Some((way, self.source(name.source as usize)))
    }

    /// Takes in an answer of `from` about a ring of this process. An answer that names memory of
    /// another process is ignored.
    ///
    /// # Errors
    /// Any error of the transport while it maps the ring.
    pub(crate) fn take_answer(&self, from: ProcessId, message: CallMessage) -> Result<()> {
        let (name, pieces): (_, &[Extent]) = match &message {
            CallMessage::Opened { ring, chunks, .. } | CallMessage::Grown { ring, chunks } => {
                if !(1..=CHUNKS_PER_REQUEST_MAX).contains(&chunks.len()) {
                    return Ok(());
                }
                (*ring, chunks)
            }
            CallMessage::Refused { ring, .. }
            | CallMessage::FrameCredit { ring, .. }
            | CallMessage::Closed { ring }
            | CallMessage::Reclaim { ring } => (*ring, &[]),
            _ => return Ok(()),
        };
        let Some((shared, source)) = self.way_to(from, name) else { return Ok(()) };
        if pieces.iter().any(|piece| piece.key.process != from || !piece.key.is_internal()) {
            return Ok(());
        }
        if let CallMessage::Reclaim { .. } = message {
            return self.give_up_if_idle(source, name, &shared);
        }
        // Not under the lock, because mapping waits.
        let answer = match self.answer(message) {
            // The peer has died since it sent the answer.
            Err(Error::PeerLost { .. }) => {
                shared.lock().lose();
                None
            }
            answer => answer?,
        };
        if let Some(answer) = answer {
            let mut way = shared.lock();
            way.take(self, answer);
            self.look_after(&shared, &mut way, None);
        }
        match source {
            Source::Worker(worker) => {
                let (_, local) = self.shape().place_of(worker);
                self.notify(local, Notice::WayAnswered { to: WorkerId::new(name.to) });
            }
            Source::Process(_) => self.call_attention_of_all(),
        }
        Ok(())
    }

    fn answer(&self, message: CallMessage) -> Result<Option<Answer>> {
        Ok(Some(match message {
            CallMessage::Opened { ring, control, chunks } => {
                if control.key.process != chunks[0].key.process || !control.key.is_internal() {
                    return Ok(None);
                }
                let sender = Sender::new(self.control_block(control)?, self.chunks(&chunks)?);
                let (process, local) = self.shape().place_of(WorkerId::new(ring.to));
                let home = self.connect(process)?.ok_or(FabricError::Disconnected { process })?.clone();
                let announcer = Announcer::new(home, local, ring.source as usize, self.is_reached_by_fences());
                Answer::Opened(Box::new(Ring::new(sender, announcer)))
            }
            CallMessage::Grown { chunks, .. } => Answer::Grown(self.chunks(&chunks)?),
            CallMessage::Refused { cap_bytes, .. } => {
                Answer::Refused { cap_bytes: usize::try_from(cap_bytes).unwrap_or(usize::MAX) }
            }
            CallMessage::FrameCredit { consumed, .. } => Answer::Credit { consumed },
            CallMessage::Closed { .. } => Answer::Closed,
            _ => return Ok(None),
        }))
    }

    fn give_up_if_idle(&self, source: Source, name: RingName, shared: &SharedWay) -> Result<()> {
        let to = WorkerId::new(name.to);
        match source {
            Source::Worker(worker) => {
                let (_, local) = self.shape().place_of(worker);
                if shared.lock().note_wanted() {
                    self.notify(local, Notice::WayWanted { to });
                }
                Ok(())
            }
            Source::Process(_) => self.give_up_lane_if_idle(to),
        }
    }
}

// The receiver's side.
impl Process {
    /// Returns the receiving side of a ring in this process's memory, and the pieces of memory that
    /// it consists of.
    pub(crate) fn receiver_of(
        &self,
        control: Extent,
        chunks: &[Extent],
    ) -> Result<(Receiver<MappedChunk, MappedControl>, Vec<Extent>)> {
        let pieces = chunks.iter().copied().chain([control]).collect();
        Ok((Receiver::new(self.control_block(control)?, self.chunks(chunks)?), pieces))
    }

    /// Returns a piece of this process's own memory as a chunk.
    pub(crate) fn own_chunk(&self, piece: Extent) -> Result<MappedChunk> {
        self.chunk(piece)
    }

    /// Makes a ring that leads to a thread of this process and notifies that thread. Returns the
    /// answer for the sender; `None` if the ring exists.
    ///
    /// # Errors
    /// Any error of the transport while memory is allocated.
    pub(crate) fn open_ring(
        &self,
        ring: RingName,
        local: usize,
        chunks: u8,
        chunk_bytes: u64,
    ) -> Result<Option<CallMessage>> {
        let mut pool = lock(&self.calls().ring_pool);
        if pool.rings.contains_key(&ring) {
            return Ok(None);
        }
        // Grants the request if the cap allows it, with at least the usual number of chunks.
        // Otherwise grants the smallest ring.
        let wanted = clamped(chunk_bytes);
        let count = usize::from(chunks).clamp(FIRST_CHUNK_COUNT, CHUNKS_PER_REQUEST_MAX);
        let (count, wanted) = match pool.has_room(local, count.saturating_mul(wanted)) {
            true => (count, wanted),
            false => (FIRST_CHUNK_COUNT, wanted.min(FIRST_CHUNK_BYTES)),
        };
        let control = pool.allocate(&**self.transport(), local, size_of::<RingControl>())?;
        let chunks: Vec<Extent> =
            (0..count).map(|_| pool.allocate(&**self.transport(), local, wanted)).collect::<Result<_>>()?;
        pool.rings.insert(ring, count * wanted);
        drop(pool);
        self.reset_control(control)?;
        chunks.iter().try_for_each(|chunk| self.reset_chunk(*chunk))?;
        self.notify(local, Notice::RingOpened { ring, control, chunks: chunks.clone() });
        self.kill_point(KillPoint::RingMade);
        Ok(Some(CallMessage::Opened { ring, control, chunks }))
    }

    /// Grants chunks to a ring that leads to a thread of this process. Returns the answer for the
    /// sender. Returns `None` if there is no such ring, or if the request waits because other
    /// senders may return memory.
    ///
    /// # Errors
    /// Any error of the transport while memory is allocated.
    pub(crate) fn grow_ring(
        &self,
        ring: RingName,
        local: usize,
        sender: ProcessId,
        chunks: u8,
        chunk_bytes: u64,
    ) -> Result<Option<CallMessage>> {
        let mut pool = lock(&self.calls().ring_pool);
        if !pool.rings.contains_key(&ring) || pool.waiting.iter().any(|waiting| waiting.ring == ring) {
            return Ok(None);
        }
        let wanted = clamped(chunk_bytes);
        let counts = [usize::from(chunks).clamp(1, CHUNKS_PER_REQUEST_MAX), 1];
        if let Some(count) = counts.into_iter().find(|count| pool.has_room(local, count.saturating_mul(wanted))) {
            return self.grant_chunks(&mut pool, ring, local, count, wanted).map(Some);
        }
        let cap_bytes = pool.cap_bytes();
        if wanted > cap_bytes || !pool.rings.keys().any(|other| other.to == ring.to && *other != ring) {
            return Ok(Some(CallMessage::Refused { ring, cap_bytes: cap_bytes as u64 }));
        }
        let next_round = self.clock().now();
        pool.waiting.push(Waiting { ring, local, sender, chunk_bytes: wanted, rounds: 0, next_round });
        drop(pool);
        // The service thread serves the waiting requests, and this may be another thread.
        self.transport().wake();
        Ok(None)
    }

    fn grant_chunks(
        &self,
        pool: &mut RingPool,
        ring: RingName,
        local: usize,
        count: usize,
        chunk_bytes: usize,
    ) -> Result<CallMessage> {
        let chunks: Vec<Extent> =
            (0..count).map(|_| pool.allocate(&**self.transport(), local, chunk_bytes)).collect::<Result<_>>()?;
        *pool.rings.entry(ring).or_default() += count * chunk_bytes;
        for chunk in &chunks {
            let memory = pool.memory(chunk.key).ok_or(FabricError::StaleKey { key: chunk.key })?;
            let mapped = MappedChunk::new(memory, chunk.offset as usize, chunk.bytes as usize);
            mapped.ok_or(FabricError::StaleKey { key: chunk.key })?.word(0).store(0, Ordering::Relaxed);
        }
        self.notify(local, Notice::RingGrown { ring, chunks: chunks.clone() });
        self.kill_point(KillPoint::GrowthMade);
        Ok(CallMessage::Grown { ring, chunks })
    }

    /// Serves the requests that wait for memory. Grants those for which there is memory now, asks
    /// the senders of other rings for theirs, and refuses those that waited too long. Returns when
    /// to look again. Called by the service thread, like everything that answers a sender.
    ///
    /// # Errors
    /// Any error of the transport while memory is allocated.
    pub(crate) fn serve_waiting(&self) -> Result<Option<Instant>> {
        let mut pool = lock(&self.calls().ring_pool);
        if pool.waiting.is_empty() {
            return Ok(None);
        }
        let now = self.clock().now();
        let (mut answers, mut left) = (Vec::new(), Vec::new());
        for mut waiting in std::mem::take(&mut pool.waiting) {
            let Waiting { ring, local, sender, chunk_bytes, .. } = waiting;
            if self.is_lost(sender) {
                // The worker may have learned of the loss already, and would then never give the
                // chunk back.
                continue;
            }
            if pool.has_room(local, chunk_bytes) {
                answers.push((sender, self.grant_chunks(&mut pool, ring, local, 1, chunk_bytes)?));
                continue;
            }
            if now >= waiting.next_round && waiting.rounds == RECLAIM_ROUNDS {
                answers.push((sender, CallMessage::Refused { ring, cap_bytes: pool.cap_bytes() as u64 }));
                continue;
            }
            if now >= waiting.next_round {
                let others = pool.rings.iter().filter(|(other, _)| other.to == ring.to && **other != ring);
                let mut others: Vec<_> = others.map(|(other, bytes)| (*bytes, *other)).collect();
                others.sort_unstable_by_key(|(bytes, other)| (std::cmp::Reverse(*bytes), other.source));
                others.truncate(RECLAIMED_AT_ONCE);
                let owned = |(_, other): (_, RingName)| Some((self.owner_of(other.source)?, other));
                let asked = others.into_iter().filter_map(owned);
                answers.extend(asked.map(|(owner, other)| (owner, CallMessage::Reclaim { ring: other })));
                waiting.rounds += 1;
                let is_last = waiting.rounds == RECLAIM_ROUNDS;
                waiting.next_round = now + if is_last { RECLAIM_PATIENCE } else { RECLAIM_INTERVAL };
            }
            left.push(waiting);
        }
        let next = left.iter().map(|waiting| waiting.next_round).min();
        pool.waiting = left;
        drop(pool);
        for (to, message) in answers {
            // A sender that is gone needs no answer.
            let _ = self.send_call(to, &message);
        }
        Ok(next)
    }

    /// Begins to close a ring that leads to a thread of this process, because its sender has
    /// dropped it.
    pub(crate) fn close_ring(&self, ring: RingName, local: usize) {
        let mut pool = lock(&self.calls().ring_pool);
        pool.rings.remove(&ring);
        pool.waiting.retain(|waiting| waiting.ring != ring);
        drop(pool);
        self.notify(local, Notice::RingClosing { ring });
    }

    /// Takes back the memory of a closed and empty ring, and tells its sender.
    pub(crate) fn finish_closing(&self, ring: RingName, local: usize, pieces: &[Extent]) {
        let mut pool = lock(&self.calls().ring_pool);
        pool.release(local, pieces);
        let wanted = !pool.waiting.is_empty();
        drop(pool);
        self.kill_point(KillPoint::RingClosed);
        if let Some(owner) = self.owner_of(ring.source) {
            // A sender that is gone needs no answer.
            let _ = self.send_call(owner, &CallMessage::Closed { ring });
        }
        if wanted {
            self.transport().wake();
        }
    }

    /// Retires the memory of a ring whose sender is gone.
    pub(crate) fn retire(&self, ring: RingName, local: usize, pieces: &[Extent]) {
        let mut pool = lock(&self.calls().ring_pool);
        pool.rings.remove(&ring);
        pool.waiting.retain(|waiting| waiting.ring != ring);
        pool.retire(local, pieces);
        let wanted = !pool.waiting.is_empty();
        drop(pool);
        if wanted {
            self.transport().wake();
        }
    }

    /// The ring memory in use here, in bytes.
    pub(crate) fn ring_memory_bytes(&self) -> usize {
        lock(&self.calls().ring_pool).used_bytes()
    }

    /// The memory registered for rings, in use or not, in bytes.
    pub(crate) fn ring_memory_registered_bytes(&self) -> usize {
        lock(&self.calls().ring_pool).registered_bytes()
    }

    /// Empties a chunk by setting its first header to zero. Later headers are written before they
    /// are reached.
    fn reset_chunk(&self, piece: Extent) -> Result<()> {
        self.chunk(piece)?.word(0).store(0, Ordering::Relaxed);
        Ok(())
    }

    fn reset_control(&self, piece: Extent) -> Result<()> {
        let control = self.control_block(piece)?;
        control.control().consumed.store(0, Ordering::Relaxed);
        control.control().sender_waits.store(0, Ordering::Relaxed);
        Ok(())
    }
}

/// Clamps a requested chunk size to the supported range. The receiver's cap is checked later.
fn clamped(chunk_bytes: u64) -> usize {
    usize::try_from(chunk_bytes).unwrap_or(usize::MAX).clamp(farside_fabric::ring::CHUNK_BYTES_MIN, 1 << 40)
}

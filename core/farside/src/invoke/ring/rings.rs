//! Opening, growing and closing rings: at the receiver's process, which owns their memory, and at
//! the sender's.
//!
//! The service threads do this, so neither side waits for a worker. Only closing a ring takes both
//! workers. The sender's worker alone knows that nothing more comes. The receiver's worker has to
//! run what came; `pool.rs` proves that the memory is free afterwards.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use farside_fabric::ring::{MappedChunk, MappedControl, Receiver, RingControl, RingControlMemory, RingMemory, Sender};
use farside_fabric::{ProcessId, Transport, WorkerId};

use crate::error::Source;
use crate::invoke::calls::respond;
use crate::invoke::message::{CallMessage, RingName};
use crate::invoke::outbox::{Answer, Outbox, Ring, SharedWay};
use crate::invoke::ring::pieces::mapped_piece;
use crate::invoke::ring::pool::{RingPool, Waiting};
use crate::runtime::extent::Extent;
use crate::runtime::home::Announcer;
use crate::runtime::process::{JobFacts, Notice, Process, lock};
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

// These return `None` for memory that is not mapped here, and do not wait.

fn mapped_chunk(process: &Process, piece: Extent) -> Option<MappedChunk> {
    MappedChunk::new(mapped_piece(process, piece)?, piece.offset as usize, piece.bytes as usize)
}

fn mapped_chunks(process: &Process, pieces: &[Extent]) -> Option<Vec<MappedChunk>> {
    pieces.iter().map(|piece| mapped_chunk(process, *piece)).collect()
}

fn control_block(process: &Process, piece: Extent) -> Option<MappedControl> {
    piece.key.check(piece.offset, size_of::<RingControl>()).ok()?;
    MappedControl::new(mapped_piece(process, piece)?, piece.offset as usize)
}

// The sender's side.

pub(crate) fn new_outbox(process: &Process, source: u32, to: WorkerId) -> Outbox {
    let (owner, _) = process.shape().place_of(to);
    let name = RingName { source, to: to.number() };
    let settings = process.settings();
    // Where accesses are checked, every call takes the slow way, which tells the checker.
    let is_direct = process.job.is_alike(owner) && !process.accesses.is_observed();
    Outbox::new(name, to, owner, is_direct, settings.ring, settings.queue_cap_bytes)
}

impl Ways {
    /// Registers a way, so that answers reach it.
    pub(crate) fn add(&self, name: RingName, way: &SharedWay) {
        lock(&self.by_name).insert(name, way.clone());
    }

    /// Returns the way of this name and its source, if this process owns it and it leads to a
    /// worker of `from`.
    fn find(&self, job: &JobFacts, from: ProcessId, name: RingName) -> Option<(SharedWay, Source)> {
        let to = job.place_of(WorkerId::new(name.to)).is_some_and(|(of, _)| of == from);
        let is_ours = job.owner_of(name.source) == Some(job.id);
        let way = lock(&self.by_name).get(&name).filter(|_| to && is_ours)?.clone();
        Some((way, job.source(name.source as usize)))
    }

    /// Takes in an answer of `from` about a ring of this process. An answer that names memory of
    /// another process is ignored.
    pub(crate) fn take_answer(&self, process: &Process, from: ProcessId, message: CallMessage) {
        let (name, pieces): (_, &[Extent]) = match &message {
            CallMessage::Opened { ring, chunks, .. } | CallMessage::Grown { ring, chunks } => {
                if !(1..=CHUNKS_PER_REQUEST_MAX).contains(&chunks.len()) {
                    return;
                }
                (*ring, chunks)
            }
            CallMessage::Refused { ring, .. }
            | CallMessage::FrameCredit { ring, .. }
            | CallMessage::Closed { ring }
            | CallMessage::Reclaim { ring } => (*ring, &[]),
            _ => return,
        };
        let Some((shared, source)) = self.find(&process.job, from, name) else { return };
        if pieces.iter().any(|piece| piece.key.process != from || !piece.key.is_internal()) {
            return;
        }
        if let CallMessage::Reclaim { .. } = message {
            return give_up_if_idle(process, source, name, &shared);
        }
        let Some(answer) = answer(process, message) else { return };
        let mut way = shared.lock();
        way.take(process, answer);
        process.calls.backlog.look_after(process, &shared, &mut way, None);
        drop(way);
        match source {
            Source::Worker(worker) => {
                let (_, local) = process.shape().place_of(worker);
                process.mailboxes.notify(local, Notice::WayAnswered { to: WorkerId::new(name.to) });
            }
            Source::Process(_) => process.mailboxes.call_attention_of_all(),
        }
    }
}

fn answer(process: &Process, message: CallMessage) -> Option<Answer> {
    Some(match message {
        CallMessage::Opened { ring, control, chunks } => {
            if control.key.process != chunks[0].key.process || !control.key.is_internal() {
                return None;
            }
            mapped_ring(process, ring, control, &chunks).map_or(Answer::Unmapped, Answer::Opened)
        }
        CallMessage::Grown { chunks, .. } => mapped_chunks(process, &chunks).map_or(Answer::Unmapped, Answer::Grown),
        CallMessage::Refused { cap_bytes, .. } => {
            Answer::Refused { cap_bytes: cap_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)) }
        }
        CallMessage::FrameCredit { consumed, .. } => Answer::Credit { consumed },
        CallMessage::Closed { .. } => Answer::Closed,
        _ => return None,
    })
}

/// Returns the sending side of a ring whose memory the receiver has sent.
fn mapped_ring(process: &Process, name: RingName, control: Extent, chunks: &[Extent]) -> Option<Box<Ring>> {
    let sender = Sender::new(control_block(process, control)?, mapped_chunks(process, chunks)?);
    let (owner, local) = process.shape().place_of(WorkerId::new(name.to));
    let home = process.links.home_of(owner)?.clone();
    let announcer = Announcer::new(home, local, name.source as usize, process.waits.is_reached_by_fences);
    Some(Box::new(Ring::new(sender, announcer)))
}

fn give_up_if_idle(process: &Process, source: Source, name: RingName, shared: &SharedWay) {
    let to = WorkerId::new(name.to);
    match source {
        Source::Worker(worker) => {
            let (_, local) = process.shape().place_of(worker);
            if shared.lock().note_wanted() {
                process.mailboxes.notify(local, Notice::WayWanted { to });
            }
        }
        Source::Process(_) => process.calls.shared_rings.give_up_if_idle(process, to),
    }
}

// The receiver's side.

/// Returns the receiving side of a ring in this process's memory, and the pieces of memory that
/// it consists of.
pub(crate) fn receiver_of(
    process: &Process,
    control: Extent,
    chunks: &[Extent],
) -> (Receiver<MappedChunk, MappedControl>, Vec<Extent>) {
    let pieces = chunks.iter().copied().chain([control]).collect();
    let control = control_block(process, control).expect(OWN);
    (Receiver::new(control, mapped_chunks(process, chunks).expect(OWN)), pieces)
}

/// Returns a piece of this process's own memory as a chunk.
pub(crate) fn own_chunk(process: &Process, piece: Extent) -> MappedChunk {
    mapped_chunk(process, piece).expect(OWN)
}

/// The rings that lead to threads of this process, and their memory.
#[derive(Debug)]
pub(crate) struct OwnRings {
    pool: Mutex<RingPool>,
}

impl OwnRings {
    pub(crate) fn new(pool: RingPool) -> Self {
        Self { pool: Mutex::new(pool) }
    }

    pub(in crate::invoke) fn lock(&self) -> MutexGuard<'_, RingPool> {
        lock(&self.pool)
    }

    /// Makes a ring that leads to a thread of this process and notifies that thread. Returns the
    /// answer for the sender; `None` if the ring exists. Without memory for a ring the answer is a
    /// refusal, and the sender's calls travel as frames.
    pub(crate) fn open(
        &self,
        process: &Process,
        ring: RingName,
        local: usize,
        chunks: u8,
        chunk_bytes: u64,
    ) -> Option<CallMessage> {
        let mut pool = self.lock();
        if pool.rings.contains_key(&ring) {
            return None;
        }
        // Grants the request if the cap and the memory allow it, with at least the usual number of
        // chunks. Otherwise grants the smallest ring, whatever the cap: calls already wait for it
        // at their sender.
        let wanted = (usize::from(chunks).clamp(FIRST_CHUNK_COUNT, CHUNKS_PER_REQUEST_MAX), clamped(chunk_bytes));
        let smallest = (FIRST_CHUNK_COUNT, wanted.1.min(FIRST_CHUNK_BYTES));
        let wanted = Some(wanted).filter(|(count, bytes)| pool.has_room(local, count.saturating_mul(*bytes)));
        let granted = wanted.into_iter().chain([smallest]).find_map(|(count, bytes)| {
            let sizes = std::iter::once(size_of::<RingControl>()).chain(std::iter::repeat_n(bytes, count));
            Some((count * bytes, allocate_for_ring(process.transport(), &mut pool, ring, local, sizes)?))
        });
        let Some((bytes, mut chunks)) = granted else { return Some(CallMessage::Refused { ring, cap_bytes: None }) };
        let control = chunks.remove(0);
        pool.rings.insert(ring, bytes);
        drop(pool);
        new_control(process, control);
        chunks.iter().for_each(|chunk| drop(new_chunk(process, *chunk)));
        process.mailboxes.notify(local, Notice::RingOpened { ring, control, chunks: chunks.clone() });
        process.kill_point(KillPoint::RingMade);
        Some(CallMessage::Opened { ring, control, chunks })
    }

    /// Grants chunks to a ring that leads to a thread of this process. Returns the answer for the
    /// sender. Returns `None` if there is no such ring, or if the request waits because other
    /// senders may return memory.
    pub(crate) fn grow(
        &self,
        process: &Process,
        ring: RingName,
        local: usize,
        sender: ProcessId,
        chunks: u8,
        chunk_bytes: u64,
    ) -> Option<CallMessage> {
        let mut pool = self.lock();
        if !pool.rings.contains_key(&ring) || pool.waiting.iter().any(|waiting| waiting.ring == ring) {
            return None;
        }
        let wanted = clamped(chunk_bytes);
        let counts = [usize::from(chunks).clamp(1, CHUNKS_PER_REQUEST_MAX), 1];
        if let Some(count) = counts.into_iter().find(|count| pool.has_room(local, count.saturating_mul(wanted))) {
            return Some(grant_chunks(process, &mut pool, ring, local, count, wanted));
        }
        let cap_bytes = pool.cap_bytes();
        if wanted > cap_bytes || !pool.rings.keys().any(|other| other.to == ring.to && *other != ring) {
            return Some(CallMessage::Refused { ring, cap_bytes: Some(cap_bytes as u64) });
        }
        let next_round = process.clock().now();
        pool.waiting.push(Waiting { ring, local, sender, chunk_bytes: wanted, rounds: 0, next_round });
        drop(pool);
        // The service thread serves the waiting requests, and this may be another thread.
        process.transport().wake();
        None
    }

    /// Serves the requests that wait for memory. Grants those for which there is memory now, asks
    /// the senders of other rings for theirs, and refuses those that waited too long. Returns when
    /// to look again. Called by the service thread, like everything that answers a sender.
    pub(crate) fn serve_waiting(&self, process: &Process) -> Option<Instant> {
        let mut pool = self.lock();
        if pool.waiting.is_empty() {
            return None;
        }
        let now = process.clock().now();
        let (mut answers, mut left) = (Vec::new(), Vec::new());
        for mut waiting in std::mem::take(&mut pool.waiting) {
            let Waiting { ring, local, sender, chunk_bytes, .. } = waiting;
            if process.losses.is_lost(sender) {
                // The worker may have learned of the loss already, and would then never give the
                // chunk back.
                continue;
            }
            if pool.has_room(local, chunk_bytes) {
                answers.push((sender, grant_chunks(process, &mut pool, ring, local, 1, chunk_bytes)));
                continue;
            }
            if now >= waiting.next_round && waiting.rounds == RECLAIM_ROUNDS {
                answers.push((sender, CallMessage::Refused { ring, cap_bytes: Some(pool.cap_bytes() as u64) }));
                continue;
            }
            if now >= waiting.next_round {
                let others = pool.rings.iter().filter(|(other, _)| other.to == ring.to && **other != ring);
                let mut others: Vec<_> = others.map(|(other, bytes)| (*bytes, *other)).collect();
                others.sort_unstable_by_key(|(bytes, other)| (std::cmp::Reverse(*bytes), other.source));
                others.truncate(RECLAIMED_AT_ONCE);
                let owned = |(_, other): (_, RingName)| Some((process.job.owner_of(other.source)?, other));
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
        answers.iter().for_each(|(to, message)| respond(process, *to, message));
        next
    }

    /// Begins to close a ring that leads to a thread of this process, because its sender has
    /// dropped it.
    pub(crate) fn close(&self, process: &Process, ring: RingName, local: usize) {
        let mut pool = self.lock();
        pool.rings.remove(&ring);
        pool.waiting.retain(|waiting| waiting.ring != ring);
        drop(pool);
        process.mailboxes.notify(local, Notice::RingClosing { ring });
    }

    /// Takes back the memory of a closed and empty ring, and tells its sender.
    pub(crate) fn finish_closing(&self, process: &Process, ring: RingName, local: usize, pieces: &[Extent]) {
        let mut pool = self.lock();
        pool.release(local, pieces);
        let wanted = !pool.waiting.is_empty();
        drop(pool);
        process.kill_point(KillPoint::RingClosed);
        if let Some(owner) = process.job.owner_of(ring.source) {
            // A sender that is gone needs no answer.
            let _ = process.send_call(owner, &CallMessage::Closed { ring });
        }
        if wanted {
            process.transport().wake();
        }
    }

    /// Retires the memory of a ring whose sender is gone.
    pub(crate) fn retire(&self, process: &Process, ring: RingName, local: usize, pieces: &[Extent]) {
        let mut pool = self.lock();
        pool.rings.remove(&ring);
        pool.waiting.retain(|waiting| waiting.ring != ring);
        pool.retire(local, pieces);
        let wanted = !pool.waiting.is_empty();
        drop(pool);
        if wanted {
            process.transport().wake();
        }
    }

    /// The ring memory in use here, in bytes.
    pub(crate) fn used_bytes(&self) -> usize {
        self.lock().used_bytes()
    }

    /// The memory registered for rings, in use or not, in bytes.
    pub(crate) fn registered_bytes(&self) -> usize {
        self.lock().registered_bytes()
    }
}

/// Allocates pieces of these sizes for a ring. Returns `None` if this process has no memory or
/// descriptors for them.
fn allocate_for_ring(
    transport: &Arc<dyn Transport>,
    pool: &mut RingPool,
    ring: RingName,
    local: usize,
    sizes: impl IntoIterator<Item = usize>,
) -> Option<Vec<Extent>> {
    let allocated = pool.allocate(&**transport, local, sizes);
    allocated.inspect_err(|error| tracing::debug!(?ring, %error, "no memory for a ring")).ok()
}

/// Grants chunks, or refuses them if this process has no memory or descriptors for them.
fn grant_chunks(
    process: &Process,
    pool: &mut RingPool,
    ring: RingName,
    local: usize,
    count: usize,
    chunk_bytes: usize,
) -> CallMessage {
    let sizes = std::iter::repeat_n(chunk_bytes, count);
    let Some(chunks) = allocate_for_ring(process.transport(), pool, ring, local, sizes) else {
        return CallMessage::Refused { ring, cap_bytes: None };
    };
    *pool.rings.entry(ring).or_default() += count * chunk_bytes;
    for chunk in &chunks {
        let memory = pool.memory(chunk.key).expect(OWN);
        let mapped = MappedChunk::new(memory, chunk.offset as usize, chunk.bytes as usize).expect(OWN);
        mapped.word(0).store(0, Ordering::Relaxed);
    }
    process.mailboxes.notify(local, Notice::RingGrown { ring, chunks: chunks.clone() });
    process.kill_point(KillPoint::GrowthMade);
    CallMessage::Grown { ring, chunks }
}

/// Returns a piece of this process's own memory as an empty chunk: its first header is zero.
/// Later headers are written before they are reached.
fn new_chunk(process: &Process, piece: Extent) -> MappedChunk {
    let chunk = own_chunk(process, piece);
    chunk.word(0).store(0, Ordering::Relaxed);
    chunk
}

/// Returns a piece of this process's own memory as the control block of an empty ring.
fn new_control(process: &Process, piece: Extent) -> MappedControl {
    let control = control_block(process, piece).expect(OWN);
    control.control().consumed.store(0, Ordering::Relaxed);
    control.control().sender_waits.store(0, Ordering::Relaxed);
    control
}

/// Why own pieces are chunks and control blocks: the pool aligns them, and none is shorter.
const OWN: &str = "the pool's own memory is mapped";

/// Clamps a requested chunk size to the supported range. The receiver's cap is checked later.
fn clamped(chunk_bytes: u64) -> usize {
    usize::try_from(chunk_bytes).unwrap_or(usize::MAX).clamp(farside_fabric::ring::CHUNK_BYTES_MIN, 1 << 40)
}

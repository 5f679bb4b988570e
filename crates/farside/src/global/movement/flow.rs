//! One operation, carried out: in pieces, of which a few are under way. Never waits.

use std::sync::Arc;
use std::time::Instant;

use farside_fabric::transport::{Completion, Operation, Outcome};
use farside_fabric::{FabricError, RemoteRegion};
use farside_sys::shm::SharedMemory;

use super::error::Failure;
use super::work::{Attaching, Brought, FoundNothing, Spot, Work, change_at_hand, copy_mapped};
use crate::job::process::Process;

/// What goes at a time of a copy for which the transport is needed. More is hardly quicker over TCP.
const PIECE_BYTES: u64 = 128 << 10;
/// Pieces of one operation that are under way.
const PIECES_MAX: usize = 4;
/// Pieces of all operations of a process: at most 32 x 128 KiB = 4 MiB of buffers, and half of what the simulator's queues take.
pub(super) const ALL_PIECES_MAX: usize = 32;
/// What is copied at a time where both ends are mapped: some 50 µs.
const MAPPED_BYTES: u64 = 1 << 20;

/// An operation that has begun.
#[derive(Debug)]
pub(super) struct Flow {
    work: Work,
    attaching: Option<Attaching>,
    /// Bytes that were begun, or for a change whether it was.
    begun: u64,
    pieces: Vec<Piece>,
    failure: Option<Failure>,
    previous: Option<u64>,
    /// When something last moved, once it has begun.
    moved_at: Option<Instant>,
}

#[derive(Debug)]
struct Piece {
    offset: u64,
    bytes: usize,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Reading(Completion),
    /// To be read, or read again: a transport that had no room for the writing has dropped the bytes.
    Unread,
    Writing(Completion),
    Changing(Completion),
    Over,
}

/// How far it has come.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing moved.
    Stuck,
    Moved,
    Ended(Result<Brought, Failure>),
}

impl Flow {
    pub(super) fn new(work: Work) -> Self {
        Self { work, attaching: None, begun: 0, pieces: Vec::new(), failure: None, previous: None, moved_at: None }
    }

    /// How many pieces are under way.
    pub(super) fn piece_count(&self) -> usize {
        self.pieces.len()
    }

    /// Goes on as far as that is possible without waiting. `room` is for how many more pieces there is room in all.
    pub(super) fn advance(&mut self, process: &Arc<Process>, now: Instant, room: &mut usize) -> Step {
        let mut moved = self.end_pieces(process, room);
        if self.failure.is_none() {
            match self.begin(process, room) {
                Ok(begun) => moved |= begun,
                Err(failure) => self.failure = Some(failure),
            }
            moved |= self.end_pieces(process, room);
        }
        let since = *self.moved_at.get_or_insert(now);
        // Those that have all the pieces move, or end by their own deadlines.
        let waits_for_room = *room == 0 && self.pieces.is_empty() && self.attaching.is_none();
        if moved || waits_for_room {
            self.moved_at = Some(now);
        } else if now.saturating_duration_since(since) >= process.settings().deadline {
            // What is under way may take effect, but nobody waits for it.
            self.failure.get_or_insert(Failure::Deadline);
            *room += self.pieces.len();
            self.pieces.drain(..).for_each(Piece::give_up);
        }
        if !self.pieces.is_empty() {
            return if moved { Step::Moved } else { Step::Stuck };
        }
        match self.failure.take() {
            Some(failure) => Step::Ended(Err(failure)),
            None if self.begun == self.size() => Step::Ended(Ok(self.brings())),
            None if moved => Step::Moved,
            None => Step::Stuck,
        }
    }

    /// Its bytes; 1 for what is one step.
    fn size(&self) -> u64 {
        match &self.work {
            Work::Copy { bytes, .. } => *bytes,
            Work::Get { room, .. } => room.len() as u64,
            Work::Put { .. } | Work::Change { .. } => 1,
        }
    }

    fn brings(&mut self) -> Brought {
        match &mut self.work {
            Work::Copy { .. } => Brought::Nothing,
            Work::Put { data: buffer, .. } | Work::Get { room: buffer, .. } => Brought::Buffer(std::mem::take(buffer)),
            Work::Change { .. } => self.previous.map_or(Brought::Nothing, Brought::Previous),
        }
    }

    /// Looks at what is under way.
    fn end_pieces(&mut self, process: &Arc<Process>, room: &mut usize) -> bool {
        let before = self.pieces.len();
        let mut moved = false;
        for piece in &mut self.pieces {
            loop {
                match piece.go_on(process, &mut self.work, &mut self.previous, self.failure.is_some()) {
                    Ok(false) => break,
                    Ok(true) => moved = true,
                    Err(failure) => {
                        piece.stage = Stage::Over;
                        self.failure.get_or_insert(failure);
                        moved = true;
                    }
                }
            }
        }
        self.pieces.retain(|piece| !matches!(piece.stage, Stage::Over));
        *room += before - self.pieces.len();
        moved
    }

    /// Begins what may be.
    fn begin(&mut self, process: &Arc<Process>, room: &mut usize) -> Result<bool, Failure> {
        if !self.find_regions(process)? {
            return Ok(false);
        }
        let mut moved = false;
        while self.begun < self.size() && self.pieces.len() < PIECES_MAX && *room > 0 {
            let begun = match &mut self.work {
                Work::Copy { target, source, bytes } => {
                    let (to, from) = (mapped(target, process, true)?, mapped(source, process, false)?);
                    if let (Some(to), Some(from)) = (to, from) {
                        let step = (*bytes - self.begun).min(MAPPED_BYTES);
                        copy_mapped((target, to), (source, from), self.begun, step as usize);
                        self.begun += step;
                        // Others come between two steps.
                        return Ok(true);
                    }
                    let step = (*bytes - self.begun).min(PIECE_BYTES);
                    Some((Piece { offset: self.begun, bytes: step as usize, stage: Stage::Unread }, step))
                }
                Work::Get { room, .. } => {
                    let step = (room.len() as u64 - self.begun).min(PIECE_BYTES);
                    Some((Piece { offset: self.begun, bytes: step as usize, stage: Stage::Unread }, step))
                }
                Work::Put { target, data } => {
                    // The buffer itself must not get lost.
                    let stage = write(process, target, 0, data.clone())?;
                    stage.map(|stage| (Piece { offset: 0, bytes: data.len(), stage }, 1))
                }
                Work::Change { target, change } => {
                    let stage = match at_hand(target, process, true)? {
                        Some(region) => {
                            let changed = change_at_hand(region, change, process.clock().now());
                            self.previous = Some(changed.map_err(|error| Failure::of(error, true))?);
                            Some(Stage::Over)
                        }
                        None => post(process, target, change.clone(), true)?.map(Stage::Changing),
                    };
                    stage.map(|stage| (Piece { offset: 0, bytes: 0, stage }, 1))
                }
            };
            // Without, the transport is full.
            let Some((piece, step)) = begun else { break };
            self.begun += step;
            self.pieces.push(piece);
            *room -= 1;
            moved = true;
        }
        Ok(moved)
    }

    /// Whether all the regions are attached. What is not, is asked for.
    fn find_regions(&mut self, process: &Arc<Process>) -> Result<bool, Failure> {
        if let Some(attaching) = &self.attaching {
            match attaching.get() {
                None => return Ok(false),
                Some(Err(failure)) => return Err(failure.clone()),
                Some(Ok(())) => self.attaching = None,
            }
        }
        for is_target in [true, false] {
            let spot = if is_target { self.work.target() } else { self.work.source() };
            let Some(spot) = spot else { continue };
            let found = spot.find(process).map_err(|why| explain(why, spot, is_target))?;
            if !found {
                self.attaching = Some(spot.attach(process, is_target));
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Piece {
    /// Does what comes next, if it can.
    fn go_on(
        &mut self,
        process: &Arc<Process>,
        work: &mut Work,
        held: &mut Option<u64>,
        is_failed: bool,
    ) -> Result<bool, Failure> {
        match &mut self.stage {
            Stage::Unread if is_failed => {
                self.stage = Stage::Over;
                Ok(true)
            }
            Stage::Unread => {
                let (Work::Copy { source, .. } | Work::Get { source, .. }) = work else { return Err(odd()) };
                match read(process, source, self.offset, self.bytes)? {
                    None => Ok(false),
                    Some(Read::Here(bytes)) => self.write(process, work, bytes, is_failed),
                    Some(Read::Posted(completion)) => {
                        self.stage = Stage::Reading(completion);
                        Ok(true)
                    }
                }
            }
            Stage::Reading(completion) => {
                let Some(outcome) = completion.try_take() else { return Ok(false) };
                let outcome = outcome.map_err(|error| Failure::of(error, false))?;
                let Outcome::Got(bytes) = outcome else { return Err(odd()) };
                if bytes.len() != self.bytes {
                    return Err(odd());
                }
                self.write(process, work, bytes, is_failed)
            }
            Stage::Writing(completion) => {
                let Some(outcome) = completion.try_take() else { return Ok(false) };
                let outcome = outcome.map_err(|error| Failure::of(error, true))?;
                if !matches!(outcome, Outcome::Put(_)) {
                    return Err(odd());
                }
                self.stage = Stage::Over;
                Ok(true)
            }
            Stage::Changing(completion) => {
                let Some(outcome) = completion.try_take() else { return Ok(false) };
                *held = Some(previous(outcome.map_err(|error| Failure::of(error, true))?).ok_or_else(odd)?);
                self.stage = Stage::Over;
                Ok(true)
            }
            Stage::Over => Ok(false),
        }
    }

    /// Writes what was read. Says whether there was room for that.
    fn write(
        &mut self,
        process: &Arc<Process>,
        work: &mut Work,
        bytes: Vec<u8>,
        is_failed: bool,
    ) -> Result<bool, Failure> {
        self.stage = match work {
            _ if is_failed => Stage::Over,
            Work::Get { room, .. } => {
                let begin = self.offset as usize;
                room[begin..begin + self.bytes].copy_from_slice(&bytes);
                Stage::Over
            }
            Work::Copy { target, .. } => write(process, target, self.offset, bytes)?.unwrap_or(Stage::Unread),
            Work::Put { .. } | Work::Change { .. } => return Err(odd()),
        };
        Ok(!matches!(self.stage, Stage::Unread))
    }

    fn give_up(self) {
        match self.stage {
            Stage::Reading(completion) | Stage::Writing(completion) | Stage::Changing(completion) => {
                completion.cancel()
            }
            Stage::Unread | Stage::Over => {}
        }
    }
}

/// What was read, or will be.
enum Read {
    Here(Vec<u8>),
    Posted(Completion),
}

/// Reads a part of a place. `None` when there is no room for that now.
fn read(process: &Arc<Process>, source: &Spot, offset: u64, bytes: usize) -> Result<Option<Read>, Failure> {
    let Some(region) = at_hand(source, process, false)? else {
        let operation = Operation::Get { offset: source.offset + offset, bytes };
        return Ok(post(process, source, operation, false)?.map(Read::Posted));
    };
    let mut data = vec![0; bytes];
    let read = region.get(source.offset + offset, &mut data, process.clock().now());
    read.map_err(|error| Failure::of(error, false))?;
    Ok(Some(Read::Here(data)))
}

/// Writes to a part of a place. `None` when there is no room for that now.
fn write(process: &Arc<Process>, target: &Spot, offset: u64, data: Vec<u8>) -> Result<Option<Stage>, Failure> {
    let Some(region) = at_hand(target, process, true)? else {
        let put = Operation::Put { offset: target.offset + offset, data };
        return Ok(post(process, target, put, true)?.map(Stage::Writing));
    };
    let written = region.put(target.offset + offset, &data, process.clock().now());
    written.map_err(|error| Failure::of(error, true))?;
    Ok(Some(Stage::Over))
}

/// Posts an operation; `None` when the transport has no room for it.
fn post(
    process: &Arc<Process>,
    spot: &Spot,
    operation: Operation,
    is_target: bool,
) -> Result<Option<Completion>, Failure> {
    match process.transport().post(spot.key, operation) {
        Ok(completion) => Ok(Some(completion)),
        Err(FabricError::QueueFull { .. }) => Ok(None),
        Err(error) => Err(Failure::of(error, is_target)),
    }
}

fn at_hand<'a>(spot: &'a Spot, process: &Process, is_target: bool) -> Result<Option<&'a RemoteRegion>, Failure> {
    spot.at_hand(process).map_err(|why| explain(why, spot, is_target))
}

fn mapped<'a>(spot: &'a Spot, process: &Process, is_target: bool) -> Result<Option<&'a Arc<SharedMemory>>, Failure> {
    spot.mapped(process).map_err(|why| explain(why, spot, is_target))
}

fn previous(outcome: Outcome) -> Option<u64> {
    match outcome {
        Outcome::Previous(held) => Some(held),
        Outcome::Put(_) | Outcome::Got(_) => None,
    }
}

fn explain(why: FoundNothing, spot: &Spot, is_target: bool) -> Failure {
    match why {
        FoundNothing::Lost => Failure::Lost { process: spot.process() },
        FoundNothing::Stale => Failure::Stale { is_target },
    }
}

fn odd() -> Failure {
    Failure::Other { what: "the transport answered with something else than was asked for".to_owned() }
}

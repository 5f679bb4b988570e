//! Executes one operation, in pieces of which a few are under way. Never waits.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use farside_fabric::RemoteRegion;
use farside_fabric::transport::{Completion, Operation, Outcome};
use farside_sys::shm::SharedMemory;

use super::error::Failure;
use super::work::{Attaching, FoundNothing, MoveValue, Spot, Work, change_at_hand, copy_mapped};
use crate::global::room::GlobalRoom;
use crate::runtime::process::Process;

/// The size of a piece. Smaller pieces are slower over TCP: 1 MiB in eighths took 1.5 to 2 times as
/// long as in halves.
const PIECE_BYTES: u64 = 512 << 10;
/// The longest buffer that goes to the transport whole and comes back. A longer buffer is copied in
/// pieces, so that its progress can be observed.
const WHOLE_BYTES_MAX: u64 = 64 << 20;
/// The most pieces of one operation under way.
const PIECES_MAX: usize = 4;
/// The most pieces of all operations of a process: 32 x 512 KiB = 16 MiB of buffers, and half of
/// what the simulator's queues hold.
const ALL_PIECES_MAX: usize = 32;
/// The most bytes that all operations of a process copy in one turn under its lock, where memory is
/// at hand: about 50 µs. A piece that has begun is copied whole.
const MAPPED_BYTES: u64 = 1 << 20;

/// The limits that the operations of a process share in one turn.
#[derive(Debug)]
pub(super) struct Room {
    /// The number of pieces that may still begin.
    pieces: usize,
    /// The bytes that may still be copied.
    mapped_bytes: u64,
    /// The bytes that one operation may copy at each look. A large operation thus leaves some to
    /// others.
    share: u64,
}

impl Room {
    /// Makes the limits of a turn that begins with `pieces` pieces under way.
    pub(super) fn new(pieces: usize) -> Self {
        Self { pieces: ALL_PIECES_MAX.saturating_sub(pieces), mapped_bytes: MAPPED_BYTES, share: MAPPED_BYTES }
    }

    /// Divides the bytes of one look among this number of operations.
    pub(super) fn share_among(&mut self, operations: usize) {
        self.share = (MAPPED_BYTES / operations.max(1) as u64).max(1);
    }

    /// Returns whether this turn may copy no more.
    pub(super) fn is_used_up(&self) -> bool {
        self.mapped_bytes == 0
    }
}

/// An operation that has begun.
#[derive(Debug)]
pub(super) struct Flow {
    work: Work,
    /// The size in bytes; 1 for work that is a single step.
    size: u64,
    attaching: Option<Attaching>,
    /// The bytes that have begun. For a change, 1 once it has begun.
    begun: u64,
    pieces: Vec<Piece>,
    failure: Option<Failure>,
    previous: Option<u64>,
    raising: Raising,
    /// True if the operation waits because this turn may copy no more.
    is_held_back: bool,
    /// The time of the last progress, once the operation has begun.
    moved_at: Option<Instant>,
}

/// The state of the signal that follows data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Raising {
    NotYet,
    /// The owner of the signal's word was asked, by this request.
    Asked(u32),
    Over,
}

#[derive(Debug)]
struct Piece {
    offset: u64,
    bytes: usize,
    /// The bytes that a copy reads and then writes. Puts and gets have a buffer of their own.
    buffer: Vec<u8>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Reading(Completion),
    /// Starts once the transport has room for it.
    Waiting,
    /// The piece was read, and must be written.
    Unwritten,
    Writing(Completion),
    Changing(Completion),
    Over,
}

/// The result of one look at an operation.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing moved.
    Stuck,
    Moved,
    Ended(Result<MoveValue, Failure>),
}

impl Flow {
    pub(super) fn new(work: Work) -> Self {
        // Most operations have no signal.
        let raising = if matches!(work, Work::PutSignal { .. }) { Raising::NotYet } else { Raising::Over };
        Self {
            size: work.size(),
            work,
            attaching: None,
            begun: 0,
            pieces: Vec::new(),
            failure: None,
            previous: None,
            raising,
            is_held_back: false,
            moved_at: None,
        }
    }

    /// Returns the number of pieces under way.
    pub(super) fn piece_count(&self) -> usize {
        self.pieces.len()
    }

    /// Continues as far as possible without waiting.
    pub(super) fn advance(&mut self, process: &Arc<Process>, now: Instant, room: &mut Room) -> Step {
        self.is_held_back = false;
        let mut moved = self.end_pieces(process, room);
        if self.failure.is_none() {
            match self.begin(process, room) {
                Ok(begun) => moved |= begun,
                Err(failure) => self.failure = Some(failure),
            }
            moved |= self.end_pieces(process, room);
            moved |= self.raise(process);
        }
        let since = *self.moved_at.get_or_insert(now);
        // The operations that hold the pieces make progress, or end by their own deadlines.
        let has_nothing = self.pieces.is_empty() && self.attaching.is_none() && self.begun < self.size;
        let waits_for_room = self.is_held_back || room.pieces == 0 && has_nothing;
        if moved || waits_for_room {
            self.moved_at = Some(now);
        } else if now.saturating_duration_since(since) >= process.settings().deadline {
            // The pieces under way may still take effect, but no operation waits for them.
            self.failure.get_or_insert(Failure::Deadline);
            room.pieces += self.pieces.len();
            self.pieces.drain(..).for_each(Piece::give_up);
        }
        if !self.pieces.is_empty() {
            return if moved { Step::Moved } else { Step::Stuck };
        }
        match self.failure.take() {
            Some(failure) => {
                if let Raising::Asked(request) = self.raising {
                    GlobalRoom::of(process).signals().give_up(request);
                }
                Step::Ended(Err(failure))
            }
            None if self.begun == self.size && self.raising == Raising::Over => Step::Ended(Ok(self.brings())),
            None if moved => Step::Moved,
            None => Step::Stuck,
        }
    }

    /// Gives the signal once the data has been put, or checks for the owner's answer. Returns
    /// whether anything moved.
    fn raise(&mut self, process: &Process) -> bool {
        let Work::PutSignal { data, word, signal, .. } = &self.work else { return false };
        if self.failure.is_some() || self.begun < self.size || !self.pieces.is_empty() || self.attaching.is_some() {
            return false;
        }
        let raising = match self.raising {
            Raising::NotYet => match at_hand(word, process, false) {
                Ok(Some(region)) => {
                    let given = signal.give(process, region, word.offset);
                    given.map(|()| Raising::Over).map_err(|error| Failure::of(error, false))
                }
                Ok(None) => {
                    let asked = signal.ask(process, data);
                    asked.map(Raising::Asked).map_err(|error| Failure::of_error(&error, false))
                }
                Err(failure) => Err(failure),
            },
            Raising::Asked(request) => match signal.answer(process, request) {
                None => return false,
                Some(answer) => answer.map(|()| Raising::Over),
            },
            Raising::Over => return false,
        };
        match raising {
            Ok(raising) => self.raising = raising,
            Err(failure) => self.failure = Some(failure),
        }
        true
    }

    fn brings(&mut self) -> MoveValue {
        match &mut self.work {
            Work::Copy { .. } => MoveValue::Nothing,
            Work::Put { data: buffer, .. } | Work::PutSignal { data: buffer, .. } | Work::Get { room: buffer, .. } => {
                MoveValue::Buffer(std::mem::take(buffer))
            }
            Work::Change { .. } => self.previous.map_or(MoveValue::Nothing, MoveValue::Previous),
        }
    }

    /// Continues the pieces under way. Returns whether anything moved.
    fn end_pieces(&mut self, process: &Arc<Process>, room: &mut Room) -> bool {
        let before = self.pieces.len();
        let mut moved = false;
        for piece in &mut self.pieces {
            loop {
                match piece.go_on(process, &mut self.work, &mut self.previous, room, self.failure.is_some()) {
                    Ok(PieceStep::Not) => break,
                    Ok(PieceStep::HeldBack) => {
                        self.is_held_back = true;
                        break;
                    }
                    Ok(PieceStep::On) => moved = true,
                    Err(failure) => {
                        piece.stage = Stage::Over;
                        self.failure.get_or_insert(failure);
                        moved = true;
                    }
                }
            }
        }
        self.pieces.retain(|piece| !matches!(piece.stage, Stage::Over));
        room.pieces += before - self.pieces.len();
        moved
    }

    /// Begins new pieces within the limits. Returns whether any has begun.
    fn begin(&mut self, process: &Arc<Process>, room: &mut Room) -> Result<bool, Failure> {
        if !self.find_regions(process)? {
            return Ok(false);
        }
        if let Work::Copy { target, source, .. } = &self.work
            && let (Some(to), Some(from)) = (mapped(target, process, true)?, mapped(source, process, false)?)
        {
            let step = (self.size - self.begun).min(room.share).min(room.mapped_bytes);
            copy_mapped((target, to), (source, from), self.begun, step as usize);
            self.begun += step;
            room.mapped_bytes -= step;
            self.is_held_back = self.begun < self.size && room.mapped_bytes == 0;
            return Ok(step > 0);
        }
        let mut moved = false;
        while self.begun < self.size && self.pieces.len() < PIECES_MAX && room.pieces > 0 {
            let step = (self.size - self.begun).min(self.piece_bytes(process)?);
            let stage = match &mut self.work {
                Work::Copy { .. } | Work::Get { .. } | Work::Put { .. } | Work::PutSignal { .. } => Stage::Waiting,
                Work::Change { target, change } => match at_hand(target, process, true)? {
                    Some(region) => {
                        let changed = change_at_hand(region, change, process.clock().now());
                        self.previous = Some(changed.map_err(|error| Failure::of(error, true))?);
                        Stage::Over
                    }
                    None => match post(process, target, change.clone())? {
                        Ok(completion) => Stage::Changing(completion),
                        // The transport has no room.
                        Err(_) => break,
                    },
                },
            };
            self.pieces.push(Piece { offset: self.begun, bytes: step as usize, buffer: Vec::new(), stage });
            self.begun += step;
            room.pieces -= 1;
            moved = true;
        }
        Ok(moved)
    }

    /// Returns the size of the next piece.
    fn piece_bytes(&self, process: &Process) -> Result<u64, Failure> {
        let goes_whole = match &self.work {
            Work::Put { target, .. } | Work::PutSignal { target, .. } => at_hand(target, process, true)?.is_none(),
            Work::Get { source, .. } => at_hand(source, process, false)?.is_none(),
            Work::Copy { .. } | Work::Change { .. } => false,
        };
        Ok(if goes_whole && self.size <= WHOLE_BYTES_MAX { self.size } else { PIECE_BYTES })
    }

    /// Returns whether all regions are attached. Starts to attach one that is not.
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

/// The result of one look at a piece.
enum PieceStep {
    Not,
    /// The piece waits for the next turn.
    HeldBack,
    On,
}

impl PieceStep {
    fn on_if(has_moved: bool) -> Self {
        if has_moved { Self::On } else { Self::Not }
    }
}

impl Piece {
    fn range(&self) -> Range<usize> {
        let begin = self.offset as usize;
        begin..begin + self.bytes
    }

    /// Takes the next step of the piece, if it can.
    fn go_on(
        &mut self,
        process: &Arc<Process>,
        work: &mut Work,
        held: &mut Option<u64>,
        room: &mut Room,
        is_failed: bool,
    ) -> Result<PieceStep, Failure> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Waiting | Stage::Unwritten if is_failed => Ok(PieceStep::On),
            Stage::Waiting => {
                if self.is_copied(process, work)? {
                    if room.is_used_up() {
                        self.stage = Stage::Waiting;
                        return Ok(PieceStep::HeldBack);
                    }
                    room.mapped_bytes = room.mapped_bytes.saturating_sub(self.bytes as u64);
                }
                self.stage = self.start(process, work)?;
                Ok(PieceStep::on_if(!matches!(self.stage, Stage::Waiting)))
            }
            Stage::Reading(completion) => {
                let Some(outcome) = completion.try_take() else {
                    self.stage = Stage::Reading(completion);
                    return Ok(PieceStep::Not);
                };
                let outcome = outcome.map_err(|error| Failure::of(error, false))?;
                let bytes = match outcome {
                    Outcome::Got(bytes) if bytes.len() == self.bytes => bytes,
                    _ => return Err(odd()),
                };
                match work {
                    _ if is_failed => {}
                    Work::Get { room, .. } if room.is_empty() => *room = bytes,
                    Work::Get { room, .. } => room[self.range()].copy_from_slice(&bytes),
                    Work::Copy { .. } => {
                        self.buffer = bytes;
                        self.stage = Stage::Unwritten;
                    }
                    _ => return Err(odd()),
                }
                Ok(PieceStep::On)
            }
            Stage::Unwritten => {
                let Work::Copy { target, .. } = work else { return Err(odd()) };
                self.stage = write(process, target, self.offset, &mut self.buffer, 0..self.bytes)?;
                Ok(PieceStep::on_if(!matches!(self.stage, Stage::Unwritten)))
            }
            Stage::Writing(completion) => {
                let Some(outcome) = completion.try_take() else {
                    self.stage = Stage::Writing(completion);
                    return Ok(PieceStep::Not);
                };
                let Outcome::Put(bytes) = outcome.map_err(|error| Failure::of(error, true))? else { return Err(odd()) };
                if let Work::Put { data, .. } | Work::PutSignal { data, .. } = work {
                    give_back(data, bytes);
                }
                Ok(PieceStep::On)
            }
            Stage::Changing(completion) => {
                let Some(outcome) = completion.try_take() else {
                    self.stage = Stage::Changing(completion);
                    return Ok(PieceStep::Not);
                };
                *held = Some(previous(outcome.map_err(|error| Failure::of(error, true))?).ok_or_else(odd)?);
                Ok(PieceStep::On)
            }
            Stage::Over => Ok(PieceStep::Not),
        }
    }

    /// Returns whether starting the piece copies its bytes in this process at once.
    fn is_copied(&self, process: &Process, work: &Work) -> Result<bool, Failure> {
        match work {
            Work::Copy { source, .. } | Work::Get { source, .. } => Ok(at_hand(source, process, false)?.is_some()),
            Work::Put { target, data } | Work::PutSignal { target, data, .. } => {
                Ok(self.bytes < data.len() || at_hand(target, process, true)?.is_some())
            }
            Work::Change { .. } => Ok(false),
        }
    }

    /// Starts the piece. Returns [`Stage::Waiting`] if the transport has no room.
    fn start(&mut self, process: &Arc<Process>, work: &mut Work) -> Result<Stage, Failure> {
        match work {
            Work::Copy { source, .. } => {
                self.buffer.resize(self.bytes, 0);
                match read(process, source, self.offset, &mut self.buffer, 0..self.bytes)? {
                    Stage::Over => Ok(Stage::Unwritten),
                    stage => Ok(stage),
                }
            }
            Work::Get { source, room } => read(process, source, self.offset, room, self.range()),
            Work::Put { target, data } | Work::PutSignal { target, data, .. } => {
                match write(process, target, self.offset, data, self.range())? {
                    Stage::Unwritten => Ok(Stage::Waiting),
                    stage => Ok(stage),
                }
            }
            Work::Change { .. } => Err(odd()),
        }
    }

    fn give_up(self) {
        match self.stage {
            Stage::Reading(completion) | Stage::Writing(completion) | Stage::Changing(completion) => {
                completion.cancel()
            }
            Stage::Waiting | Stage::Unwritten | Stage::Over => {}
        }
    }
}

/// Reads a part of a place into a part of a buffer: at once, or through the transport if it has
/// room.
fn read(
    process: &Arc<Process>,
    source: &Spot,
    offset: u64,
    buffer: &mut Vec<u8>,
    range: Range<usize>,
) -> Result<Stage, Failure> {
    let offset = source.offset + offset;
    let Some(region) = at_hand(source, process, false)? else {
        let posted = hand_over(process, source, buffer, range, |room| Operation::Get { offset, room })?;
        return Ok(posted.map_or(Stage::Waiting, Stage::Reading));
    };
    let read = region.get(offset, &mut buffer[range], process.clock().now());
    read.map_err(|error| Failure::of(error, false)).map(|()| Stage::Over)
}

/// Writes a part of a buffer to a part of a place: at once, or through the transport if it has
/// room.
fn write(
    process: &Arc<Process>,
    target: &Spot,
    offset: u64,
    buffer: &mut Vec<u8>,
    range: Range<usize>,
) -> Result<Stage, Failure> {
    let offset = target.offset + offset;
    let Some(region) = at_hand(target, process, true)? else {
        let posted = hand_over(process, target, buffer, range, |data| Operation::Put { offset, data })?;
        return Ok(posted.map_or(Stage::Unwritten, Stage::Writing));
    };
    let written = region.put(offset, &buffer[range], process.clock().now());
    written.map_err(|error| Failure::of(error, true)).map(|()| Stage::Over)
}

/// Posts an operation on a part of a buffer. If the part is the whole buffer, the operation takes
/// the buffer itself. If the transport has no room, returns `None` and leaves the buffer unchanged.
fn hand_over(
    process: &Arc<Process>,
    spot: &Spot,
    buffer: &mut Vec<u8>,
    range: Range<usize>,
    operation: impl FnOnce(Vec<u8>) -> Operation,
) -> Result<Option<Completion>, Failure> {
    let is_all = range.len() == buffer.len();
    let part = if is_all { std::mem::take(buffer) } else { buffer[range].to_vec() };
    match post(process, spot, operation(part))? {
        Ok(completion) => Ok(Some(completion)),
        Err(refused) => {
            give_back(buffer, refused.into_buffer());
            Ok(None)
        }
    }
}

/// Restores a buffer that was [handed over](hand_over) whole.
fn give_back(buffer: &mut Vec<u8>, part: Vec<u8>) {
    if buffer.is_empty() {
        *buffer = part;
    }
}

/// Posts an operation, or returns it if the transport has no room.
fn post(process: &Arc<Process>, spot: &Spot, operation: Operation) -> Result<Result<Completion, Operation>, Failure> {
    let is_target = !matches!(operation, Operation::Get { .. });
    match process.transport().post(spot.key, operation) {
        Ok(completion) => Ok(Ok(completion)),
        Err(unposted) => match unposted.for_lack_of_room() {
            Ok(operation) => Ok(Err(operation)),
            Err(error) => Err(Failure::of(error, is_target)),
        },
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use farside_fabric::ProcessId;

    use super::*;
    use crate::Worker;
    use crate::error::Result;

    /// A copy of `bytes` bytes from one half of new memory of this process to the other.
    fn copy(me: &Worker, bytes: u64) -> Result<Flow> {
        let memory = me.allocate_at(ProcessId::new(0), 2 * bytes)?;
        let spot = |offset| -> Result<Spot> {
            let address = memory.address()?.checked_add(offset).unwrap();
            let (region, offset) = me.find_region(address, bytes)?;
            Ok(Spot::attached(region, offset))
        };
        Ok(Flow::new(Work::Copy { target: spot(bytes)?, source: spot(0)?, bytes }))
    }

    fn put(me: &Worker, bytes: u64) -> Result<Flow> {
        let Work::Copy { target, .. } = copy(me, bytes)?.work else { unreachable!() };
        Ok(Flow::new(Work::Put { target, data: vec![1; bytes as usize] }))
    }

    /// For any number of operations, one turn copies no more than the limit. Each operation makes
    /// progress, and none fails at its deadline because it waited for a turn.
    #[test]
    fn a_turn_copies_a_limited_number_of_bytes() {
        let body = |me: &Worker| -> Result<()> {
            let process = me.process_handle();
            let mut flows = (0..7).map(|_| copy(me, MAPPED_BYTES)).collect::<Result<Vec<_>>>()?;
            flows.extend([put(me, MAPPED_BYTES)?, put(me, 100)?]);
            let mut now = process.clock().now();
            let mut turns = 0;
            while !flows.is_empty() {
                turns += 1;
                assert!(turns < 100, "they go on");
                let mut room = Room::new(0);
                let before: u64 = flows.iter().map(|flow| flow.begun).sum();
                let mut ended = 0;
                for _ in 0..4 {
                    room.share_among(flows.len());
                    flows.retain_mut(|flow| match flow.advance(process, now, &mut room) {
                        Step::Stuck | Step::Moved => true,
                        Step::Ended(result) => {
                            result.unwrap();
                            ended += flow.begun;
                            false
                        }
                    });
                }
                let after: u64 = flows.iter().map(|flow| flow.begun).sum();
                // In addition, a put has four pieces waiting.
                assert!(after + ended - before <= MAPPED_BYTES + (1 + PIECES_MAX as u64) * PIECE_BYTES);
                assert!(flows.iter().all(|flow| flow.begun > 0), "all get on");
                // Longer than the time without progress after which an operation fails.
                now += process.settings().deadline * 2;
            }
            assert!(turns >= 8, "8 MiB in {turns} turns");
            Ok(())
        };
        crate::Simulation::new(1, 1, 1).run(body).unwrap().verdict.unwrap();
    }

    /// An operation that waits for pieces or bytes that others have used up does not reach its
    /// deadline.
    #[test]
    fn waiting_for_others_is_not_late() {
        let body = |me: &Worker| -> Result<()> {
            let process = me.process_handle();
            let now = process.clock().now();
            let late = now + process.settings().deadline + Duration::from_millis(1);
            let used_up = || Room { pieces: 0, mapped_bytes: 0, share: 1 };
            for mut flow in [copy(me, 100)?, put(me, 100)?] {
                assert!(matches!(flow.advance(process, now, &mut used_up()), Step::Stuck));
                assert!(matches!(flow.advance(process, late, &mut used_up()), Step::Stuck));
                let mut without_bytes = Room { pieces: 1, ..used_up() };
                let step = flow.advance(process, late + process.settings().deadline, &mut without_bytes);
                assert!(matches!(step, Step::Stuck | Step::Moved), "{step:?}");
                let ends = late + process.settings().deadline * 3;
                let last = flow.advance(process, ends, &mut Room::new(0));
                assert!(matches!(last, Step::Ended(Ok(_))), "{last:?}");
            }
            Ok(())
        };
        crate::Simulation::new(1, 1, 1).run(body).unwrap().verdict.unwrap();
    }

    /// Buffers go to a transport whole, and none is lost if the transport has no room.
    #[test]
    fn a_buffer_that_finds_no_room_is_kept() {
        const BYTES: usize = 300_000;
        let body = |me: &Worker| -> Result<()> {
            let values = me.symmetric::<u8>(BYTES)?;
            if me.process() == ProcessId::new(0) {
                let process = me.process_handle();
                let there = values.at(ProcessId::new(1))?.start().address();
                let spot = || -> Result<Spot> {
                    let (region, offset) = me.find_region(there, BYTES as u64)?;
                    Ok(Spot::attached(region, offset))
                };
                let key = spot()?.key;
                let wanted: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
                let mut brought = Vec::new();
                let put = Work::Put { target: spot()?, data: wanted.clone() };
                for work in [put, Work::Get { source: spot()?, room: vec![0; BYTES] }] {
                    let mut flow = Flow::new(work);
                    let mut others = Vec::new();
                    while let Ok(other) = process.transport().post(key, Operation::get(0, 1)) {
                        others.push(other);
                    }
                    for _ in 0..3 {
                        let step = flow.advance(process, process.clock().now(), &mut Room::new(0));
                        assert!(matches!(step, Step::Stuck | Step::Moved), "there is no room: {step:?}");
                        assert!(
                            matches!(flow.pieces[..], [Piece { bytes: BYTES, stage: Stage::Waiting, .. }]),
                            "{flow:?}"
                        );
                    }
                    drop(others);
                    let ended = loop {
                        process.transport().progress();
                        process.clock().sleep_for(Duration::from_micros(10));
                        if let Step::Ended(ended) = flow.advance(process, process.clock().now(), &mut Room::new(0)) {
                            break ended;
                        }
                    };
                    match ended {
                        Ok(MoveValue::Buffer(buffer)) => brought.push(buffer),
                        other => panic!("{other:?}"),
                    }
                }
                assert!(brought == [wanted.clone(), wanted], "what comes back, and what was read");
            }
            me.barrier()
        };
        crate::Simulation::new(2, 1, 1).run(body).unwrap().verdict.unwrap();
    }
}

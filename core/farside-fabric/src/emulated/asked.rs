//! The requests of this process to others.

use std::collections::HashMap;
use std::ops::Range;

use super::outbox::{Class, Outbox};
use super::packet::{Answer, Ask, GOT_HEADER_BYTES, NativeAccess, PUT_HEADER_BYTES, Packet, Refusal, RequestId};
use super::{Malformed, PIECES_UNDER_WAY_MAX};
use crate::ids::ProcessId;
use crate::transport::{AtomicChange, Completion, FabricError, Operation, Outcome, RemoteKey};

/// Names an operation while it is in flight.
type OperationId = u64;

#[derive(Debug)]
pub(super) struct Asked {
    message_bytes_max: usize,
    operations: HashMap<OperationId, UnderWay>,
    /// The pieces of those operations that are requested and not answered.
    requests: HashMap<RequestId, Piece>,
    /// Number of operations and requests so far.
    sequence: u64,
}

#[derive(Debug)]
struct UnderWay {
    key: RemoteKey,
    work: Work,
    completion: Completion,
    /// Number of bytes requested; `None` before the first piece, which an operation without data
    /// has too.
    asked_to: Option<usize>,
    pieces_under_way: usize,
    /// The error of the first piece that was refused. No more pieces are requested after it.
    error: Option<FabricError>,
}

#[derive(Debug)]
struct Piece {
    operation: OperationId,
    /// The part of the data.
    range: Range<usize>,
}

/// The result of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) access: Option<NativeAccess>,
    pub(super) is_writable: bool,
}

/// The purpose of an operation, and its data so far.
#[derive(Debug)]
pub(super) enum Work {
    Attach,
    Put { offset: u64, data: Vec<u8> },
    Get { offset: u64, data: Vec<u8> },
    Atomic32 { offset: u64, change: AtomicChange<u32>, previous: u64 },
    Atomic64 { offset: u64, change: AtomicChange<u64>, previous: u64 },
}

impl Work {
    pub(super) fn new(operation: Operation) -> Self {
        match operation {
            Operation::Put { offset, data } => Self::Put { offset, data },
            Operation::Get { offset, room } => Self::Get { offset, data: room },
            Operation::Atomic32 { offset, change } => Self::Atomic32 { offset, change, previous: 0 },
            Operation::Atomic64 { offset, change } => Self::Atomic64 { offset, change, previous: 0 },
        }
    }

    fn data_bytes(&self) -> usize {
        match self {
            Self::Put { data, .. } | Self::Get { data, .. } => data.len(),
            Self::Attach | Self::Atomic32 { .. } | Self::Atomic64 { .. } => 0,
        }
    }

    /// Maximum number of data bytes in a message of this length. A get's length is encoded in 32
    /// bits.
    fn piece_bytes_max(&self, message_bytes_max: usize) -> usize {
        match self {
            Self::Get { .. } => (message_bytes_max - GOT_HEADER_BYTES).min(u32::MAX as usize),
            _ => message_bytes_max - PUT_HEADER_BYTES,
        }
    }

    /// Returns the request of a piece, and its data.
    fn ask(&self, piece: &Range<usize>) -> (Ask, &[u8]) {
        let start = piece.start as u64;
        let ask = match *self {
            Self::Put { offset, ref data } => return (Ask::Put { offset: offset + start }, &data[piece.clone()]),
            Self::Attach => Ask::Attach,
            Self::Get { offset, .. } => Ask::Get { offset: offset + start, bytes: piece.len() as u32 },
            Self::Atomic32 { offset, change, .. } => Ask::Atomic32 { offset, change },
            Self::Atomic64 { offset, change, .. } => Ask::Atomic64 { offset, change },
        };
        (ask, &[])
    }

    fn into_outcome(self) -> Outcome {
        match self {
            Self::Attach => Outcome::Got(Vec::new()),
            Self::Put { data, .. } => Outcome::Put(data),
            Self::Get { data, .. } => Outcome::Got(data),
            Self::Atomic32 { previous, .. } | Self::Atomic64 { previous, .. } => Outcome::Previous(previous),
        }
    }

    fn error(&self, key: RemoteKey, refusal: Refusal) -> FabricError {
        let (offset, bytes) = match self {
            Self::Attach => (0, 0),
            Self::Put { offset, data } | Self::Get { offset, data } => (*offset, data.len()),
            Self::Atomic32 { offset, .. } => (*offset, 4),
            Self::Atomic64 { offset, .. } => (*offset, 8),
        };
        match refusal {
            Refusal::StaleKey => FabricError::StaleKey { key },
            Refusal::OutOfRange => FabricError::OutOfRange { offset, bytes, region_bytes: key.bytes },
            Refusal::Misaligned => FabricError::Misaligned { offset, bytes },
            Refusal::ReadOnly => FabricError::ReadOnly { key },
        }
    }
}

impl Asked {
    pub(super) fn new(message_bytes_max: usize) -> Self {
        Self { message_bytes_max, operations: HashMap::new(), requests: HashMap::new(), sequence: 0 }
    }

    pub(super) fn operation_count(&self) -> usize {
        self.operations.len()
    }

    pub(super) fn start(&mut self, key: RemoteKey, work: Work, completion: Completion, outbox: &mut Outbox) {
        self.sequence += 1;
        let operation = self.sequence;
        let state = UnderWay { key, work, completion, asked_to: None, pieces_under_way: 0, error: None };
        self.operations.insert(operation, state);
        self.ask_on(operation, outbox);
    }

    /// Requests as many pieces of an operation as may be in flight.
    fn ask_on(&mut self, operation: OperationId, outbox: &mut Outbox) {
        let Some(state) = self.operations.get_mut(&operation) else { return };
        while state.pieces_under_way < PIECES_UNDER_WAY_MAX
            && let Some(range) = state.next_piece(self.message_bytes_max)
        {
            self.sequence += 1;
            let id = RequestId(self.sequence);
            let region = state.key.into();
            let (ask, data) = state.work.ask(&range);
            let packet = Packet::Request { id, region, ask }.encode(data);
            outbox.push(state.key.process, Class::Request, packet);
            state.pieces_under_way += 1;
            self.requests.insert(id, Piece { operation, range });
        }
    }

    /// Processes an answer. Returns the result of an attachment.
    pub(super) fn take(
        &mut self,
        from: ProcessId,
        id: RequestId,
        (answer, data): (Answer, &[u8]),
        outbox: &mut Outbox,
    ) -> Result<Option<(RemoteKey, Grant)>, Malformed> {
        let piece = self.requests.get(&id).ok_or(Malformed::Unasked)?;
        let operation = piece.operation;
        let state = self.operations.get_mut(&operation).ok_or(Malformed::Unasked)?;
        if state.key.process != from {
            return Err(Malformed::Unasked);
        }
        state.take(&piece.range, answer, data)?;
        let attached = match answer {
            Answer::Attached { access, is_writable, .. } if state.error.is_none() => {
                Some((state.key, Grant { access, is_writable }))
            }
            _ => None,
        };
        state.pieces_under_way -= 1;
        self.requests.remove(&id);
        self.ask_on(operation, outbox);
        self.end_if_done(operation);
        Ok(attached)
    }

    fn end_if_done(&mut self, operation: OperationId) {
        if self.operations.get(&operation).is_some_and(|state| state.pieces_under_way == 0)
            && let Some(state) = self.operations.remove(&operation)
        {
            state.completion.end(state.error.map_or_else(|| Ok(state.work.into_outcome()), Err));
        }
    }

    /// Ends all operations requested of a peer.
    pub(super) fn lose(&mut self, peer: ProcessId) {
        for (_, state) in self.operations.extract_if(|_, state| state.key.process == peer) {
            state.completion.end(Err(FabricError::Disconnected { process: peer }));
        }
        self.requests.retain(|_, piece| self.operations.contains_key(&piece.operation));
    }
}

impl UnderWay {
    fn next_piece(&mut self, message_bytes_max: usize) -> Option<Range<usize>> {
        let bytes = self.work.data_bytes();
        if self.error.is_some() || self.asked_to.is_some_and(|asked_to| asked_to == bytes) {
            return None;
        }
        let start = self.asked_to.unwrap_or(0);
        let end = bytes.min(start.saturating_add(self.work.piece_bytes_max(message_bytes_max)));
        self.asked_to = Some(end);
        Some(start..end)
    }

    /// Stores the data of an answer, if it fits this request.
    fn take(&mut self, range: &Range<usize>, answer: Answer, got: &[u8]) -> Result<(), Malformed> {
        match (&mut self.work, answer) {
            (work, Answer::Refused(refusal)) => {
                let error = work.error(self.key, refusal);
                self.error.get_or_insert(error);
            }
            // A key with another size than the region has names another region.
            (Work::Attach, Answer::Attached { bytes, .. }) => {
                if bytes != self.key.bytes || self.key.reserved != 0 {
                    self.error = Some(FabricError::StaleKey { key: self.key });
                }
            }
            (Work::Put { .. }, Answer::Done) => {}
            (Work::Get { data, .. }, Answer::Got) if got.len() == range.len() => {
                data[range.clone()].copy_from_slice(got);
            }
            (Work::Atomic32 { previous, .. }, Answer::Previous(held)) if u32::try_from(held).is_ok() => {
                *previous = held;
            }
            (Work::Atomic64 { previous, .. }, Answer::Previous(held)) => *previous = held,
            _ => return Err(Malformed::OtherAnswer),
        }
        Ok(())
    }
}

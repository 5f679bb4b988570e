//! Things in transit on the simulated network.

use std::ops::Range;

use super::Random;
use crate::emulated::Owner;
use crate::ids::ProcessId;
use crate::transport::{Completion, FabricError, Operation, Outcome, RemoteKey};

/// A put of at most this many bytes never becomes visible in pieces.
const WHOLE_BYTES_MAX: usize = 8;

/// A longer put is cut at no more than this many places.
const CUTS_MAX: u64 = 4;

/// The time and order of an event. Earlier times come first; `tie` shuffles events at one time;
/// `sequence` orders the rest as they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    pub(super) at_ns: u64,
    pub(super) tie: u64,
    pub(super) sequence: u64,
}

/// Names a transfer while it is in transit.
pub(super) type TransferId = u64;

/// An event that will happen at some time.
#[derive(Debug)]
pub(super) enum Parcel {
    /// A piece of a transfer takes effect at its target.
    Effect { transfer: TransferId, from: ProcessId, target: ProcessId, piece: Range<usize> },
    /// The initiator of a transfer learns that it has completed.
    Reply { transfer: TransferId, to: ProcessId },
    /// A message arrives.
    Message { from: ProcessId, to: ProcessId, message: Vec<u8> },
    /// A holder of a region learns that its owner has withdrawn it.
    Revoke { key: RemoteKey, to: ProcessId },
    /// The owner learns that a holder has released the region.
    Released { key: RemoteKey, by: ProcessId },
    /// A process learns that its connection with another has ended.
    Disconnected { with: ProcessId, to: ProcessId },
}

impl Parcel {
    /// The parcel as words, for a trace.
    pub(super) fn words(&self) -> [u64; 4] {
        let number = |process: &ProcessId| u64::from(process.number());
        match self {
            Self::Effect { from, target, piece, .. } => [2, number(from), number(target), piece.len() as u64],
            Self::Reply { transfer, to } => [3, *transfer, number(to), 0],
            Self::Message { from, to, message } => [4, number(from), number(to), message.len() as u64],
            Self::Disconnected { with, to } => [5, number(with), number(to), 0],
            Self::Revoke { key, to } => [7, number(&key.process), number(to), u64::from(key.slot)],
            Self::Released { key, by } => [8, number(by), number(&key.process), u64::from(key.slot)],
        }
    }

    /// The sender and the receiver, if the parcel must not overtake others between them.
    pub(super) fn direction(&self) -> Option<(ProcessId, ProcessId)> {
        match self {
            Self::Message { from, to, .. } => Some((*from, *to)),
            Self::Revoke { key, to } => Some((key.process, *to)),
            Self::Released { key, by } => Some((*by, key.process)),
            Self::Disconnected { with, to } => Some((*with, *to)),
            Self::Effect { .. } | Self::Reply { .. } => None,
        }
    }

    /// The process at which it arrives.
    pub(super) fn destination(&self) -> ProcessId {
        match self {
            Self::Effect { target: to, .. }
            | Self::Reply { to, .. }
            | Self::Message { to, .. }
            | Self::Revoke { to, .. }
            | Self::Disconnected { to, .. } => *to,
            Self::Released { key, .. } => key.process,
        }
    }
}

/// An operation or an attachment, from its posting until its initiator has the reply.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) from: ProcessId,
    pub(super) key: RemoteKey,
    /// Taken when the transfer ends; from then on no thread waits.
    pub(super) completion: Option<Completion>,
    pub(super) pieces_left: usize,
    pub(super) request: Request,
    /// Set by the first piece that fails.
    pub(super) error: Option<FabricError>,
}

/// The request of a transfer.
#[derive(Debug)]
pub(super) enum Request {
    /// Looks a key up.
    Attach,
    /// Writes these bytes.
    Put { offset: u64, data: Vec<u8> },
    /// Fills this buffer.
    Get { offset: u64, data: Vec<u8> },
    /// Changes a word.
    Atomic { operation: Operation, previous: u64 },
}

impl Request {
    pub(super) fn access(operation: Operation) -> Self {
        match operation {
            Operation::Put { offset, data } => Self::Put { offset, data },
            Operation::Get { offset, room } => Self::Get { offset, data: room },
            operation @ (Operation::Atomic64 { .. } | Operation::Atomic32 { .. }) => {
                Self::Atomic { operation, previous: 0 }
            }
        }
    }

    /// Number of bytes that travel to the target besides the request itself, and number of bytes
    /// that travel back.
    pub(super) fn bytes_there_and_back(&self) -> (usize, usize) {
        match self {
            Self::Attach => (0, 0),
            Self::Put { data, .. } => (data.len(), 0),
            Self::Get { data, .. } => (0, data.len()),
            Self::Atomic { .. } => (8, 8),
        }
    }

    /// The offset of the aligned eight bytes that the request changes as a word.
    pub(super) fn word(&self) -> Option<u64> {
        match self {
            Self::Atomic {
                operation: Operation::Atomic64 { offset, .. } | Operation::Atomic32 { offset, .. }, ..
            } => Some(offset & !7),
            _ => None,
        }
    }

    /// Cuts the request into at least one piece; together the pieces are the whole request.
    pub(super) fn pieces(&self, random: &mut Random) -> Vec<Range<usize>> {
        let bytes = match self {
            Self::Attach | Self::Atomic { .. } => 0,
            Self::Put { data, .. } | Self::Get { data, .. } => data.len(),
        };
        let cuts = if bytes > WHOLE_BYTES_MAX { random.up_to(CUTS_MAX) } else { 0 };
        let mut bounds: Vec<usize> = (0..cuts).map(|_| random.index(bytes)).chain([0, bytes]).collect();
        bounds.sort_unstable();
        bounds.windows(2).map(|pair| pair[0]..pair[1]).collect()
    }

    /// Cuts the request into two pieces if it may become visible in pieces.
    pub(super) fn halves(&self) -> Vec<Range<usize>> {
        let bytes = match self {
            Self::Attach | Self::Atomic { .. } => 0,
            Self::Put { data, .. } | Self::Get { data, .. } => data.len(),
        };
        let cut = (bytes / 16 * 8).max(WHOLE_BYTES_MAX);
        let second = (bytes > cut).then_some(cut..bytes);
        std::iter::once(0..bytes.min(cut)).chain(second).collect()
    }

    /// The outcome for the initiator when all pieces have taken effect. An attachment has an empty
    /// outcome.
    pub(super) fn into_outcome(self) -> Outcome {
        match self {
            Self::Attach => Outcome::Got(Vec::new()),
            Self::Put { data, .. } => Outcome::Put(data),
            Self::Get { data, .. } => Outcome::Got(data),
            Self::Atomic { previous, .. } => Outcome::Previous(previous),
        }
    }
}

impl Transfer {
    /// Applies a piece at a target that is alive and has registered `regions`.
    pub(super) fn take_effect(&mut self, piece: Range<usize>, regions: &mut Owner) {
        if let Err(error) = self.execute(piece, regions) {
            self.error.get_or_insert(error);
        }
    }

    fn execute(&mut self, piece: Range<usize>, regions: &mut Owner) -> Result<(), FabricError> {
        let key = self.key;
        let stale = FabricError::StaleKey { key };
        if matches!(self.request, Request::Attach) {
            regions.find(key).ok_or(stale)?;
            regions.grant(self.from, key.into());
            return Ok(());
        }
        // Only the holders of a withdrawn region can still have operations in transit to it.
        let memory = regions.memory_for(self.from, key).ok_or(stale)?;
        match &mut self.request {
            Request::Attach => {}
            Request::Put { offset, data } => {
                let offset = *offset + piece.start as u64;
                memory.execute(key, Operation::Put { offset, data: data[piece].to_vec() })?;
            }
            Request::Get { offset, data } => {
                let offset = *offset + piece.start as u64;
                let outcome = memory.execute(key, Operation::get(offset, piece.len()))?;
                if let Outcome::Got(bytes) = outcome {
                    data[piece].copy_from_slice(&bytes);
                }
            }
            Request::Atomic { operation, previous } => {
                if let Outcome::Previous(held) = memory.execute(key, operation.clone())? {
                    *previous = held;
                }
            }
        }
        Ok(())
    }
}

//! The service messages about operations.

use farside_fabric::transport::AtomicChange;

use super::error::Failure;
use crate::Wire;
use crate::memory::Extent;

/// The most bytes that a put carries with it: those of a cache line.
pub(super) const PUT_BYTES_MAX: usize = 64;

/// A message about an operation that a worker has started: thread `local` of the process that asks
/// for it, under this number.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(crate) struct MoveMessage {
    pub(super) local: u32,
    pub(super) number: u64,
    pub(super) what: About,
}

/// A statement about an operation.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(super) enum About {
    /// Execute this when the operations `after` have ended.
    Command { epoch: u64, after: Vec<u64>, command: Command },
    /// The answer: the operation has ended. The word held this before, if it was an atomic change.
    Ended { previous: u64 },
    /// The answer: the operation has failed.
    Failed { why: Failure },
    /// The answer to a failure: it is known.
    Heard,
    /// The answer: there is no room for it, nor for anything sent since, up to this epoch.
    Refused { epoch: u64 },
}

/// An operation that another process can execute.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(super) enum Command {
    Copy { target: Extent, source: Extent },
    Put { target: Extent, data: Vec<u8> },
    Change { target: Extent, change: WordChange },
}

/// An atomic change of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) enum WordChange {
    Word64(AtomicChange<u64>),
    Word32(AtomicChange<u32>),
}

impl Command {
    /// Returns whether its sizes agree, and its data is no longer than a command carries.
    pub(super) fn is_valid(&self) -> bool {
        match self {
            Self::Copy { target, source } => target.bytes == source.bytes,
            Self::Put { target, data } => data.len() <= PUT_BYTES_MAX && target.bytes == data.len() as u64,
            Self::Change { target, change: WordChange::Word64(_) } => target.bytes == 8,
            Self::Change { target, change: WordChange::Word32(_) } => target.bytes == 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use farside_fabric::{ProcessId, RemoteKey};

    use super::*;

    #[test]
    fn commands_whose_sizes_disagree_are_invalid() {
        let key = RemoteKey::starter(ProcessId::new(0), 4096);
        let extent = |bytes| Extent { key, offset: 0, bytes };
        let word = |bytes, change| Command::Change { target: extent(bytes), change };
        assert!(Command::Copy { target: extent(9), source: extent(9) }.is_valid());
        assert!(!Command::Copy { target: extent(9), source: extent(8) }.is_valid());
        assert!(Command::Put { target: extent(64), data: vec![0; 64] }.is_valid());
        assert!(!Command::Put { target: extent(65), data: vec![0; 65] }.is_valid());
        assert!(!Command::Put { target: extent(3), data: vec![0; 2] }.is_valid());
        let load = WordChange::Word32(AtomicChange::Load);
        assert!(word(4, load).is_valid() && !word(8, load).is_valid());
    }

    #[test]
    fn the_longest_command_is_short() {
        let extent = Extent { key: RemoteKey::starter(ProcessId::new(0), 4096), offset: 0, bytes: 0 };
        let command = Command::Put { target: extent, data: vec![1; PUT_BYTES_MAX] };
        let what = About::Command { epoch: 2, after: vec![3; 64], command };
        let bytes = crate::wire::encode(&MoveMessage { local: 4, number: 5, what }, Vec::new()).len();
        assert!(bytes < 1024, "{bytes} bytes");
    }
}

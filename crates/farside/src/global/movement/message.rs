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

/// What is said about the operation.
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
    /// Whether its sizes agree, and its data is no longer than a command carries.
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
    use proptest::prelude::*;

    use super::*;
    use crate::wire::{self, Decoder};

    fn extent() -> impl Strategy<Value = Extent> {
        any::<([u32; 3], [u64; 3])>().prop_map(|([process, slot, generation], [region, offset, bytes])| {
            let process = ProcessId::new(process);
            Extent { key: RemoteKey { process, slot, generation, reserved: 0, bytes: region }, offset, bytes }
        })
    }

    fn change<T: std::fmt::Debug + Copy + Default + Arbitrary + 'static>() -> impl Strategy<Value = AtomicChange<T>> {
        (0..9, any::<T>(), any::<T>()).prop_map(|(kind, value, new)| match kind {
            0 => AtomicChange::Load,
            1 => AtomicChange::Swap(value),
            2 => AtomicChange::CompareSwap { expected: value, new },
            3 => AtomicChange::Add(value),
            4 => AtomicChange::And(value),
            5 => AtomicChange::Or(value),
            6 => AtomicChange::Xor(value),
            7 => AtomicChange::Min(value),
            _ => AtomicChange::Max(value),
        })
    }

    fn command() -> impl Strategy<Value = Command> {
        let data = prop::collection::vec(any::<u8>(), 0..=PUT_BYTES_MAX);
        prop_oneof![
            (extent(), extent()).prop_map(|(target, source)| Command::Copy { target, source }),
            (extent(), data).prop_map(|(target, data)| Command::Put { target, data }),
            (extent(), change())
                .prop_map(|(target, change)| Command::Change { target, change: WordChange::Word64(change) }),
            (extent(), change())
                .prop_map(|(target, change)| Command::Change { target, change: WordChange::Word32(change) }),
        ]
    }

    fn failure() -> impl Strategy<Value = Failure> {
        prop_oneof![
            any::<bool>().prop_map(|is_target| Failure::Stale { is_target }),
            any::<u32>().prop_map(|process| Failure::Lost { process: ProcessId::new(process) }),
            any::<u32>().prop_map(|process| Failure::Full { process: ProcessId::new(process) }),
            any::<u64>().prop_map(|number| Failure::Earlier { number }),
            "[a-z ä]{0,100}".prop_map(|what| Failure::Other { what }),
            any::<(bool, u64)>().prop_map(|(is_target, align)| Failure::Misaligned { is_target, align }),
            any::<bool>().prop_map(|is_target| Failure::ReadOnly { is_target }),
            Just(Failure::Deadline),
        ]
    }

    fn message() -> impl Strategy<Value = MoveMessage> {
        let command = (any::<u64>(), prop::collection::vec(any::<u64>(), 0..64), command())
            .prop_map(|(epoch, after, command)| About::Command { epoch, after, command });
        let what = prop_oneof![
            command,
            any::<u64>().prop_map(|previous| About::Ended { previous }),
            failure().prop_map(|why| About::Failed { why }),
            Just(About::Heard),
            any::<u64>().prop_map(|epoch| About::Refused { epoch }),
        ];
        (any::<u32>(), any::<u64>(), what).prop_map(|(local, number, what)| MoveMessage { local, number, what })
    }

    fn encoded(message: &MoveMessage) -> Vec<u8> {
        wire::encode(message, Vec::new())
    }

    fn decoded(bytes: &[u8]) -> Option<MoveMessage> {
        wire::decode(Decoder::new(bytes), 0).ok()
    }

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

    proptest! {
        #[test]
        fn messages_round_trip(message in message()) {
            let bytes = encoded(&message);
            prop_assert!(bytes.len() < 1024, "{} bytes", bytes.len());
            prop_assert_eq!(decoded(&bytes), Some(message));
        }

        #[test]
        fn damaged_messages_are_messages_or_refused(message in message(), changes: Vec<(prop::sample::Index, u8)>, cut: prop::sample::Index) {
            let mut bytes = encoded(&message);
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Some(message) = decoded(&bytes) {
                prop_assert_eq!(encoded(&message), bytes);
            }
        }

        #[test]
        fn noise_is_a_message_or_refused(bytes: Vec<u8>) {
            if let Some(message) = decoded(&bytes) {
                prop_assert_eq!(encoded(&message), bytes);
            }
        }
    }
}

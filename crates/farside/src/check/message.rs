//! The service messages of the checker.

use farside_fabric::ProcessId;

use super::CheckRoom;
use super::epochs::{AccessState, Lifetime};
use super::shadow::Record;
use crate::Wire;
use crate::error::Result;
use crate::runtime::process::Process;
use crate::wire::{self, Decoder};

/// A message between the service threads of two processes.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(crate) enum CheckMessage {
    /// To the owner of memory: a worker of the sender, which is in this epoch, is about to make
    /// this access. `ended` is the access that the last answer named, if that one has ended.
    Enter { request: u64, epoch: u64, ended: Option<(u32, Lifetime)>, access: Record },
    /// The answer: the access is recorded.
    Entered { request: u64 },
    /// The answer: the access conflicts with an earlier one.
    Met { request: u64, earlier: Record },
    /// To the process of a worker: is this access of the worker open?
    Ask { request: u64, worker: u32, lifetime: Lifetime },
    /// The answer.
    State { request: u64, state: AccessState },
    /// To the owner of memory: an operation of a worker of the sender completed in this epoch.
    Completed { worker: u32, operation: u64, epoch: u64 },
    /// To the owner of memory: forget the accesses of an operation of a worker of the sender.
    Ended { worker: u32, operation: u64 },
}

/// Sends a message to the service thread of a process.
pub(super) fn send(process: &Process, to: ProcessId, message: &CheckMessage) -> Result<()> {
    process.send::<CheckRoom>(to, message)
}

pub(super) fn encode<T: Wire>(value: &T) -> Vec<u8> {
    wire::encode(value, Vec::new())
}

/// Returns `None` when the bytes are no such value.
pub(super) fn decode<T: Wire>(bytes: &[u8]) -> Option<T> {
    wire::decode(Decoder::new(bytes), 0).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::super::report::Site;
    use super::*;
    use crate::runtime::extent::Extent;
    use crate::runtime::observer::AccessKind;

    fn lifetime() -> impl Strategy<Value = Lifetime> {
        prop_oneof![
            any::<u64>().prop_map(Lifetime::Epoch),
            any::<u64>().prop_map(Lifetime::Operation),
            Just(Lifetime::Released)
        ]
    }

    fn record() -> impl Strategy<Value = Record> {
        use AccessKind::{AtomicChange, AtomicLoad, Read, Release, Write};
        let numbers = any::<([u32; 6], [u64; 3])>();
        let kind = prop::sample::select(vec![Read, Write, AtomicLoad, AtomicChange, Release]);
        (numbers, kind, lifetime(), "[a-zü/]{0,40}").prop_map(|(numbers, kind, lifetime, file)| {
            let ([process, slot, generation, worker, line, column], [region, offset, bytes]) = numbers;
            let process = ProcessId::new(process);
            let key = farside_fabric::RemoteKey { process, slot, generation, reserved: 0, bytes: region };
            Record {
                memory: Extent { key, offset, bytes },
                worker,
                kind,
                lifetime,
                site: Site::new(&file, line, column),
            }
        })
    }

    fn message() -> impl Strategy<Value = CheckMessage> {
        let ended = prop::option::of((any::<u32>(), lifetime()));
        let state = prop_oneof![Just(AccessState::Ended), Just(AccessState::Open), Just(AccessState::InUse)];
        (0..7, any::<(u64, u64, u32)>(), ended, record(), lifetime(), state).prop_map(
            |(kind, (request, epoch, worker), ended, access, lifetime, state)| match kind {
                0 => CheckMessage::Enter { request, epoch, ended, access },
                1 => CheckMessage::Entered { request },
                2 => CheckMessage::Met { request, earlier: access },
                3 => CheckMessage::Ask { request, worker, lifetime },
                4 => CheckMessage::State { request, state },
                5 => CheckMessage::Completed { worker, operation: request, epoch },
                _ => CheckMessage::Ended { worker, operation: request },
            },
        )
    }

    proptest! {
        #[test]
        fn messages_round_trip(message in message()) {
            prop_assert_eq!(decode(&encode(&message)), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_refused(
            kind in 0..9_u8, mut words: Vec<[u8; 8]>, small: bool, rest in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            if small {
                words.iter_mut().for_each(|word| { word[0] &= 1; word[1..].fill(0); });
            }
            let bytes: Vec<u8> = [kind, 0, 0, 0].into_iter().chain(words.into_iter().flatten()).chain(rest).collect();
            if let Some(message) = decode::<CheckMessage>(&bytes) {
                prop_assert_eq!(encode(&message), bytes);
            }
        }

        #[test]
        fn truncated_messages_are_refused(message in message(), cut in 1..200_usize) {
            let bytes = encode(&message);
            let short = decode::<CheckMessage>(&bytes[..bytes.len().saturating_sub(cut)]);
            prop_assert_ne!(short, Some(message));
        }
    }
}

//! What service threads say to each other about operations.

use farside_fabric::transport::{AtomicChange, Operation};
use farside_fabric::{ProcessId, RemoteKey};

use super::error::Failure;

/// Bytes that a put carries with it, at most: what fits into a cache line.
pub(super) const PUT_BYTES_MAX: usize = 64;
/// Of what a fabric said so much is told.
const TEXT_BYTES_MAX: usize = 200;

/// About an operation of one of a process's workers, by its place there and the operation's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MoveMessage {
    pub(super) local: u32,
    pub(super) number: u64,
    pub(super) what: About,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// Carry this out, when those are over.
    Command {
        epoch: u64,
        after: Vec<u64>,
        command: Command,
    },
    /// To who asked: it has ended, and this is what the word held, if it was a change of one.
    Ended {
        previous: u64,
    },
    /// To who asked: it has failed. The answer: that is known.
    Failed {
        why: Failure,
    },
    Heard,
    /// To who asked: there is no room for it, nor for what you sent since, up to this epoch.
    Refused {
        epoch: u64,
    },
}

/// An operation that others can carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Copy { target: Named, source: Named, bytes: u64 },
    Put { target: Named, data: Vec<u8> },
    Change { target: Named, change: Operation },
}

/// A place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) key: RemoteKey,
    pub(super) offset: u64,
}

impl MoveMessage {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut out = Out(out);
        let head = |out: &mut Out<'_>, kind: u8| {
            out.0.push(kind);
            out.u32(self.local);
            out.u64(self.number);
        };
        match &self.what {
            About::Command { epoch, after, command } => {
                head(&mut out, 1);
                out.u64(*epoch);
                out.0.push(after.len() as u8);
                after.iter().for_each(|number| out.u64(*number));
                out.command(command);
            }
            About::Ended { previous } => {
                head(&mut out, 2);
                out.u64(*previous);
            }
            About::Failed { why } => {
                head(&mut out, 3);
                out.failure(why);
            }
            About::Heard => head(&mut out, 4),
            About::Refused { epoch } => {
                head(&mut out, 5);
                out.u64(*epoch);
            }
        }
    }

    /// `None` when the bytes are no message.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut input = In(bytes);
        let (kind, local, number) = (input.u8()?, input.u32()?, input.u64()?);
        let what = match kind {
            1 => {
                let epoch = input.u64()?;
                let count = input.u8()?;
                let after = (0..count).map(|_| input.u64()).collect::<Option<_>>()?;
                About::Command { epoch, after, command: input.command()? }
            }
            2 => About::Ended { previous: input.u64()? },
            3 => About::Failed { why: input.failure()? },
            4 => About::Heard,
            5 => About::Refused { epoch: input.u64()? },
            _ => return None,
        };
        input.0.is_empty().then_some(Self { local, number, what })
    }
}

struct Out<'a>(&'a mut Vec<u8>);

impl Out<'_> {
    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    fn named(&mut self, named: &Named) {
        let RemoteKey { process, slot, generation, reserved: _, bytes } = named.key;
        [process.number(), slot, generation].into_iter().for_each(|value| self.u32(value));
        [bytes, named.offset].into_iter().for_each(|value| self.u64(value));
    }

    fn command(&mut self, command: &Command) {
        match command {
            Command::Copy { target, source, bytes } => {
                self.0.push(1);
                self.named(target);
                self.named(source);
                self.u64(*bytes);
            }
            Command::Put { target, data } => {
                self.0.push(2);
                self.named(target);
                self.0.push(data.len() as u8);
                self.0.extend(data);
            }
            Command::Change { target, change } => {
                self.0.push(3);
                self.named(target);
                match change {
                    Operation::Atomic32 { change, .. } => self.change(4, *change, u64::from),
                    Operation::Atomic64 { change, .. } => self.change(8, *change, |value| value),
                    Operation::Put { .. } | Operation::Get { .. } => unreachable!("changes are of words"),
                }
            }
        }
    }

    fn change<T: Copy>(&mut self, width: u8, change: AtomicChange<T>, widen: impl Fn(T) -> u64) {
        let (kind, first, second) = match change {
            AtomicChange::Load => (0, 0, 0),
            AtomicChange::Swap(value) => (1, widen(value), 0),
            AtomicChange::CompareSwap { expected, new } => (2, widen(expected), widen(new)),
            AtomicChange::Add(value) => (3, widen(value), 0),
            AtomicChange::And(value) => (4, widen(value), 0),
            AtomicChange::Or(value) => (5, widen(value), 0),
            AtomicChange::Xor(value) => (6, widen(value), 0),
            AtomicChange::Min(value) => (7, widen(value), 0),
            AtomicChange::Max(value) => (8, widen(value), 0),
        };
        self.0.extend([width, kind]);
        self.u64(first);
        self.u64(second);
    }

    fn failure(&mut self, failure: &Failure) {
        match failure {
            Failure::Stale { is_target } => self.0.extend([1, u8::from(*is_target)]),
            Failure::Lost { process } => {
                self.0.push(2);
                self.u32(process.number());
            }
            Failure::Deadline => self.0.push(3),
            Failure::Earlier { number } => {
                self.0.push(4);
                self.u64(*number);
            }
            Failure::Full { process } => {
                self.0.push(5);
                self.u32(process.number());
            }
            Failure::ReadOnly { is_target } => self.0.extend([7, u8::from(*is_target)]),
            Failure::Misaligned { is_target, align } => {
                self.0.extend([8, u8::from(*is_target)]);
                self.u64(*align);
            }
            Failure::Other { what } => {
                self.0.push(6);
                let end =
                    (0..=what.len().min(TEXT_BYTES_MAX)).rev().find(|end| what.is_char_boundary(*end)).unwrap_or(0);
                self.0.extend(&what.as_bytes()[..end]);
            }
        }
    }
}

struct In<'a>(&'a [u8]);

impl In<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, left) = self.0.split_first_chunk()?;
        self.0 = left;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            bit @ 0..2 => Some(bit == 1),
            _ => None,
        }
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn process(&mut self) -> Option<ProcessId> {
        self.u32().map(ProcessId::new)
    }

    fn named(&mut self) -> Option<Named> {
        let (process, slot, generation) = (self.process()?, self.u32()?, self.u32()?);
        let key = RemoteKey { process, slot, generation, reserved: 0, bytes: self.u64()? };
        Some(Named { key, offset: self.u64()? })
    }

    fn command(&mut self) -> Option<Command> {
        Some(match self.u8()? {
            1 => Command::Copy { target: self.named()?, source: self.named()?, bytes: self.u64()? },
            2 => {
                let target = self.named()?;
                let length = usize::from(self.u8()?);
                let (data, left) = self.0.split_at_checked(length).filter(|_| length <= PUT_BYTES_MAX)?;
                self.0 = left;
                Command::Put { target, data: data.to_vec() }
            }
            3 => {
                let target = self.named()?;
                let offset = target.offset;
                let change = match self.u8()? {
                    4 => {
                        let change = self.change(|value| u32::try_from(value).ok())?;
                        Operation::Atomic32 { offset, change }
                    }
                    8 => Operation::Atomic64 { offset, change: self.change(Some)? },
                    _ => return None,
                };
                Command::Change { target, change }
            }
            _ => return None,
        })
    }

    fn change<T>(&mut self, narrow: impl Fn(u64) -> Option<T>) -> Option<AtomicChange<T>> {
        let (kind, first, second) = (self.u8()?, self.u64()?, self.u64()?);
        let has_second = kind == 2;
        if (kind == 0 && first != 0) || (!has_second && second != 0) {
            return None;
        }
        let value = narrow(first)?;
        Some(match kind {
            0 => AtomicChange::Load,
            1 => AtomicChange::Swap(value),
            2 => AtomicChange::CompareSwap { expected: value, new: narrow(second)? },
            3 => AtomicChange::Add(value),
            4 => AtomicChange::And(value),
            5 => AtomicChange::Or(value),
            6 => AtomicChange::Xor(value),
            7 => AtomicChange::Min(value),
            8 => AtomicChange::Max(value),
            _ => return None,
        })
    }

    fn failure(&mut self) -> Option<Failure> {
        Some(match self.u8()? {
            1 => Failure::Stale { is_target: self.bool()? },
            2 => Failure::Lost { process: self.process()? },
            3 => Failure::Deadline,
            4 => Failure::Earlier { number: self.u64()? },
            5 => Failure::Full { process: self.process()? },
            7 => Failure::ReadOnly { is_target: self.bool()? },
            8 => Failure::Misaligned { is_target: self.bool()?, align: self.u64()? },
            6 => {
                let text = std::mem::take(&mut self.0);
                let what = str::from_utf8(text).ok().filter(|text| text.len() <= TEXT_BYTES_MAX)?;
                Failure::Other { what: what.to_owned() }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named() -> impl Strategy<Value = Named> {
        any::<([u32; 3], u64, u64)>().prop_map(|([process, slot, generation], bytes, offset)| {
            let process = ProcessId::new(process);
            Named { key: RemoteKey { process, slot, generation, reserved: 0, bytes }, offset }
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
        prop_oneof![
            (named(), named(), any::<u64>()).prop_map(|(target, source, bytes)| Command::Copy {
                target,
                source,
                bytes
            }),
            (named(), prop::collection::vec(any::<u8>(), 0..=PUT_BYTES_MAX))
                .prop_map(|(target, data)| Command::Put { target, data }),
            (named(), change()).prop_map(|(target, change)| {
                Command::Change { target, change: Operation::Atomic64 { offset: target.offset, change } }
            }),
            (named(), change()).prop_map(|(target, change)| {
                Command::Change { target, change: Operation::Atomic32 { offset: target.offset, change } }
            }),
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
        let mut out = Vec::new();
        message.encode(&mut out);
        out
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(message in message()) {
            let bytes = encoded(&message);
            prop_assert!(bytes.len() < 1024, "{} bytes", bytes.len());
            prop_assert_eq!(MoveMessage::decode(&bytes), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_refused(message in message(), changes: Vec<(prop::sample::Index, u8)>, cut: prop::sample::Index) {
            let mut bytes = encoded(&message);
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Some(message) = MoveMessage::decode(&bytes) {
                prop_assert_eq!(encoded(&message), bytes);
            }
        }

        #[test]
        fn noise_is_a_message_or_refused(bytes: Vec<u8>) {
            if let Some(message) = MoveMessage::decode(&bytes) {
                prop_assert_eq!(encoded(&message), bytes);
            }
        }
    }
}

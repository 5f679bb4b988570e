//! What service threads say to each other about accesses.

use super::Span;
use super::epochs::{Life, Standing};
use super::report::{AccessKind, FILE_BYTES_MAX, Site};
use super::shadow::Record;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CheckMessage {
    /// To the owner of memory: a worker of mine that is in this epoch is about to do this. And what the last answer named has ended.
    Enter { request: u64, epoch: u64, ended: Option<(u32, Life)>, access: Record },
    /// To who asked: it is written down.
    Entered { request: u64 },
    /// To who asked: it conflicts with this.
    Met { request: u64, earlier: Record },
    /// To the process of a worker: is this access of it open?
    Ask { request: u64, worker: u32, life: Life },
    /// To who asked.
    Told { request: u64, standing: Standing },
    /// To the owner of memory: an operation of a worker of mine has completed, in this epoch.
    Completed { worker: u32, operation: u64, epoch: u64 },
    /// To the owner of memory: forget what an operation of a worker of mine did.
    Ended { worker: u32, operation: u64 },
}

/// No access has ended.
const NONE: [u64; 4] = [0; 4];

impl CheckMessage {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut write = |kind: u8, words: &[u64], access: Option<&Record>| {
            out.push(kind);
            out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            if let Some(access) = access {
                access.encode(out);
            }
        };
        match self {
            Self::Enter { request, epoch, ended, access } => {
                let [there, worker, life, number] = ended.map_or(NONE, |(worker, life)| {
                    let [life, number] = life_words(life);
                    [1, worker.into(), life, number]
                });
                write(1, &[*request, *epoch, there, worker, life, number], Some(access));
            }
            Self::Entered { request } => write(2, &[*request], None),
            Self::Met { request, earlier } => write(3, &[*request], Some(earlier)),
            Self::Ask { request, worker, life } => {
                let [life, number] = life_words(*life);
                write(4, &[*request, (*worker).into(), life, number], None);
            }
            Self::Told { request, standing } => write(5, &[*request, *standing as u64], None),
            Self::Completed { worker, operation, epoch } => write(6, &[(*worker).into(), *operation, *epoch], None),
            Self::Ended { worker, operation } => write(7, &[(*worker).into(), *operation], None),
        }
    }

    /// `None` when the bytes are no message.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let mut input = Input(rest);
        let message = match kind {
            1 => {
                let [request, epoch] = input.words()?;
                let ended = match input.words()? {
                    NONE => None,
                    [1, worker, life, number] => Some((u32::try_from(worker).ok()?, life_of([life, number])?)),
                    _ => return None,
                };
                Self::Enter { request, epoch, ended, access: input.record()? }
            }
            2 => Self::Entered { request: input.word()? },
            3 => Self::Met { request: input.word()?, earlier: input.record()? },
            4 => {
                let [request, worker, life, number] = input.words()?;
                Self::Ask { request, worker: u32::try_from(worker).ok()?, life: life_of([life, number])? }
            }
            5 => {
                let [request, standing] = input.words()?;
                let all = [Standing::Ended, Standing::Open, Standing::InUse];
                Self::Told { request, standing: *all.get(usize::try_from(standing).ok()?)? }
            }
            6 => {
                let [worker, operation, epoch] = input.words()?;
                Self::Completed { worker: u32::try_from(worker).ok()?, operation, epoch }
            }
            7 => {
                let [worker, operation] = input.words()?;
                Self::Ended { worker: u32::try_from(worker).ok()?, operation }
            }
            _ => return None,
        };
        input.0.is_empty().then_some(message)
    }
}

fn life_words(life: Life) -> [u64; 2] {
    match life {
        Life::Epoch(epoch) => [0, epoch],
        Life::Operation(operation) => [1, operation],
        Life::Released => [2, 0],
    }
}

fn life_of(words: [u64; 2]) -> Option<Life> {
    match words {
        [0, epoch] => Some(Life::Epoch(epoch)),
        [1, operation] => Some(Life::Operation(operation)),
        [2, 0] => Some(Life::Released),
        _ => None,
    }
}

impl Record {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let Self { span: Span { slot, generation, offset, bytes }, worker, kind, life, site } = self;
        let [life, number] = life_words(*life);
        let what =
            [(*slot).into(), (*generation).into(), *offset, *bytes, (*worker).into(), *kind as u64, life, number];
        let words = what.into_iter().chain([site.line().into(), site.column().into()]);
        out.extend(words.flat_map(u64::to_le_bytes));
        out.extend(site.file().bytes());
    }

    /// `None` when the bytes are no record.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        Input(bytes).record()
    }
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn words<const N: usize>(&mut self) -> Option<[u64; N]> {
        let mut words = [0; N];
        for word in &mut words {
            let (taken, rest) = self.0.split_first_chunk()?;
            (*word, self.0) = (u64::from_le_bytes(*taken), rest);
        }
        Some(words)
    }

    fn word(&mut self) -> Option<u64> {
        self.words().map(|[word]| word)
    }

    /// A record, with all that is left as the name of its file.
    fn record(&mut self) -> Option<Record> {
        let [slot, generation, offset, bytes, worker, kind, life, number, line, column] = self.words()?;
        let narrow = |word: u64| u32::try_from(word).ok();
        let file = std::str::from_utf8(std::mem::take(&mut self.0)).ok()?;
        offset.checked_add(bytes)?;
        Some(Record {
            span: Span { slot: narrow(slot)?, generation: narrow(generation)?, offset, bytes },
            worker: narrow(worker)?,
            kind: *AccessKind::ALL.get(usize::try_from(kind).ok()?)?,
            life: life_of([life, number])?,
            site: Site::new((file.len() <= FILE_BYTES_MAX).then_some(file)?, narrow(line)?, narrow(column)?),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn life() -> impl Strategy<Value = Life> {
        prop_oneof![any::<u64>().prop_map(Life::Epoch), any::<u64>().prop_map(Life::Operation), Just(Life::Released)]
    }

    pub(crate) fn record() -> impl Strategy<Value = Record> {
        let numbers = any::<([u32; 5], [u32; 2])>();
        (numbers, 0..AccessKind::ALL.len(), life(), "[a-zü/]{0,40}").prop_map(|(numbers, kind, life, file)| {
            let ([slot, generation, worker, line, column], [offset, bytes]) = numbers;
            let span = Span { slot, generation, offset: offset.into(), bytes: bytes.into() };
            Record { span, worker, kind: AccessKind::ALL[kind], life, site: Site::new(&file, line, column) }
        })
    }

    fn message() -> impl Strategy<Value = CheckMessage> {
        let ended = prop::option::of((any::<u32>(), life()));
        let standing = prop_oneof![Just(Standing::Ended), Just(Standing::Open), Just(Standing::InUse)];
        (0..7, any::<(u64, u64, u32)>(), ended, record(), life(), standing).prop_map(
            |(kind, (request, epoch, worker), ended, access, life, standing)| match kind {
                0 => CheckMessage::Enter { request, epoch, ended, access },
                1 => CheckMessage::Entered { request },
                2 => CheckMessage::Met { request, earlier: access },
                3 => CheckMessage::Ask { request, worker, life },
                4 => CheckMessage::Told { request, standing },
                5 => CheckMessage::Completed { worker, operation: request, epoch },
                _ => CheckMessage::Ended { worker, operation: request },
            },
        )
    }

    fn encoded(message: &CheckMessage) -> Vec<u8> {
        let mut out = Vec::new();
        message.encode(&mut out);
        out
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(message in message()) {
            prop_assert_eq!(CheckMessage::decode(&encoded(&message)), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_refused(
            kind in 0..9_u8, mut words: Vec<[u8; 8]>, small: bool, rest in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            if small {
                words.iter_mut().for_each(|word| { word[0] &= 1; word[1..].fill(0); });
            }
            let bytes: Vec<u8> = [kind].into_iter().chain(words.into_iter().flatten()).chain(rest).collect();
            if let Some(message) = CheckMessage::decode(&bytes) {
                prop_assert_eq!(encoded(&message), bytes);
            }
        }

        #[test]
        fn what_is_cut_off_is_refused(message in message(), cut in 1..200_usize) {
            let bytes = encoded(&message);
            let short = CheckMessage::decode(&bytes[..bytes.len().saturating_sub(cut)]);
            prop_assert_ne!(short, Some(message));
        }
    }
}

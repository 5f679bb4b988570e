//! What goes over a control link, and its bytes.
//!
//! ```text
//! version   1 B
//! kind      1 B
//! fields    numbers little endian; a text is its length (2 B) and so many bytes of UTF-8, a card as many of anything;
//!           of cards in a row the last ends the message
//! ```
//!
//! A message has no other bytes. Whoever decodes believes nothing: the other end may be another program altogether.

use std::sync::Arc;

use farside_fabric::ProcessId;
use farside_fabric::route::FabricChoice;
use farside_sys::net::MESSAGE_BYTES_MAX;

use crate::error::LaunchError as Error;

/// Raised with every change of a message, so that programs built from different versions part at their first word. Programs of one job may
/// be built apart: so it is raised, too, when anything else changes that their processes have in common: memory layouts, the messages
/// of service threads, records of named functions.
const VERSION: u8 = 4;
/// The longest text: what a message holds besides version, kind, its other fields (4 B at most) and the length.
const TEXT_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 2 - 4 - 2;
/// The longest card of a process. Everybody gets everybody's.
pub const CARD_BYTES_MAX: usize = 256;
/// The longest name of a fabric.
pub const FABRIC_BYTES_MAX: usize = 64;
/// What stands at the end of a text that was cut.
const CUT: &str = "…";

/// What a process says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToCoordinator {
    /// It is there, and this is what it is.
    Hello(Greeting),
    /// Its workers have returned and it has nothing to do; the answer to [`ToProcess::Confirm`], and unasked for round 0.
    Idle {
        /// Which question this answers.
        round: u32,
        /// Calls it has sent since it started.
        sent: u64,
        /// Calls it has executed since it started.
        executed: u64,
    },
    /// Where it can be reached over the fabric; the answer to [`ToProcess::Exchange`].
    Card {
        /// At most [`CARD_BYTES_MAX`].
        bytes: Vec<u8>,
    },
    /// It has failed and will end.
    Failed {
        /// Why.
        message: String,
        /// Whose loss it did not survive.
        because_of: Option<ProcessId>,
    },
}

/// How a process introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Names the build.
    pub fingerprint: [u8; 16],
    /// Sums up the functions that can be called.
    pub table_hash: u64,
    /// Names the machine, as far as shared memory reaches.
    pub host: [u8; 16],
    /// What it takes the job to be like.
    pub shape: JobShape,
    /// What it is to use.
    pub fabric: FabricChoice,
}

impl Greeting {
    /// What is the same of two processes whose functions are the same.
    pub fn build(&self) -> ([u8; 16], u64) {
        (self.fingerprint, self.table_hash)
    }
}

/// What every process of a job must take it to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobShape {
    /// Processes of the job.
    pub processes: u32,
    /// Workers of each.
    pub threads: u32,
    /// Other threads of each that can be called.
    pub service_threads: u32,
}

/// What a process must know of another to find a way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCard {
    /// Names its machine, as far as shared memory reaches.
    pub host: [u8; 16],
    /// Its address on the fabric, which nobody between reads.
    pub card: Vec<u8>,
}

impl PeerCard {
    fn encoded_bytes(&self) -> usize {
        self.host.len() + 2 + self.card.len()
    }
}

/// What a process is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToProcess {
    /// All are there: go.
    Start {
        /// Tells jobs apart.
        job_id: u64,
        /// Known to the processes of this job only.
        secret: [u8; 16],
    },
    /// The job is over for all.
    Ended {
        /// The reason.
        why: Ending,
    },
    /// A process is gone; the others go on.
    Lost {
        /// Which.
        process: ProcessId,
        /// How it ended.
        why: String,
    },
    /// Say once more how much you sent and executed.
    Confirm {
        /// To be named in the answer.
        round: u32,
    },
    /// The job has come to rest: return.
    Finish,
    /// Shared memory does not do for this job: open the fabric and give your card.
    Exchange,
    /// The cards of some processes that follow each other.
    Peers {
        /// The number of the first.
        first: u32,
        /// Theirs, and of those behind it. All processes are told the same, so that these are shared.
        cards: Arc<[PeerCard]>,
    },
    /// Which binaries some processes run that follow each other. Not sent when all run the same.
    Builds {
        /// The number of the first.
        first: u32,
        /// A number for each binary: that of the first process that runs it.
        builds: Vec<u32>,
    },
}

/// Why a job is over before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Two processes are on different machines, and shared memory was asked for.
    Apart {
        /// One.
        a: ProcessId,
        /// Another.
        b: ProcessId,
    },
    /// Anything else.
    Other(String),
}

impl From<Ending> for Error {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Apart { a, b } => Error::DifferentMachines { a, b },
            Ending::Other(why) => Error::JobEnded { why },
        }
    }
}

impl ToCoordinator {
    /// The process fails with this error, because of the loss of another process if one is named.
    pub fn failed_with(error: &dyn std::fmt::Display, because_of: Option<ProcessId>) -> Self {
        Self::Failed { message: error.to_string(), because_of }
    }

    /// The message's bytes, at most [`MESSAGE_BYTES_MAX`]. A text that does not fit is cut.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello(greeting) => message(1).greeting(greeting),
            Self::Idle { round, sent, executed } => message(2).u32(*round).u64(*sent).u64(*executed),
            Self::Failed { message: text, because_of: None } => message(3).text(text),
            Self::Failed { message: text, because_of: Some(lost) } => message(4).u32(lost.number()).text(text),
            Self::Card { bytes } => message(5).card(bytes),
        }
        .0
    }

    /// The message that these bytes are, if they are one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, mut fields) = open(bytes)?;
        let message = match kind {
            1 => Self::Hello(fields.greeting()?),
            2 => Self::Idle { round: fields.u32()?, sent: fields.u64()?, executed: fields.u64()? },
            3 => Self::Failed { because_of: None, message: fields.text()? },
            4 => Self::Failed { because_of: Some(fields.process()?), message: fields.text()? },
            5 => Self::Card { bytes: fields.card()? },
            _ => return None,
        };
        fields.end(message)
    }
}

impl ToProcess {
    /// The message's bytes, at most [`MESSAGE_BYTES_MAX`]. A text that does not fit is cut.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Start { job_id, secret } => message(1).u64(*job_id).bytes(secret),
            Self::Ended { why: Ending::Other(why) } => message(3).text(why),
            Self::Lost { process, why } => message(4).u32(process.number()).text(why),
            Self::Confirm { round } => message(5).u32(*round),
            Self::Finish => message(6),
            Self::Exchange => message(7),
            Self::Peers { first, cards } => {
                cards.iter().fold(message(8).u32(*first), |message, peer| message.bytes(&peer.host).card(&peer.card))
            }
            Self::Builds { first, builds } => {
                builds.iter().fold(message(2).u32(*first), |message, build| message.u32(*build))
            }
            Self::Ended { why: Ending::Apart { a, b } } => message(9).u32(a.number()).u32(b.number()),
        }
        .0
    }

    /// The message that these bytes are, if they are one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, mut fields) = open(bytes)?;
        let message = match kind {
            1 => Self::Start { job_id: fields.u64()?, secret: fields.array()? },
            2 => Self::Builds { first: fields.u32()?, builds: fields.numbers()? },
            3 => Self::Ended { why: Ending::Other(fields.text()?) },
            4 => Self::Lost { process: fields.process()?, why: fields.text()? },
            5 => Self::Confirm { round: fields.u32()? },
            6 => Self::Finish,
            7 => Self::Exchange,
            8 => Self::Peers { first: fields.u32()?, cards: fields.peers()?.into() },
            9 => Self::Ended { why: Ending::Apart { a: fields.process()?, b: fields.process()? } },
            _ => return None,
        };
        fields.end(message)
    }
}

/// The cards of all processes, in as many messages as they need.
pub fn peers_messages(cards: impl IntoIterator<Item = PeerCard>) -> Vec<ToProcess> {
    // What a message holds besides version, kind and the first number.
    const CARDS_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 2 - 4;
    let mut messages = Vec::new();
    let (mut first, mut batch, mut bytes) = (0, Vec::new(), 0);
    for (number, card) in (0_u32..).zip(cards) {
        if bytes + card.encoded_bytes() > CARDS_BYTES_MAX {
            messages.push(ToProcess::Peers { first, cards: std::mem::take(&mut batch).into() });
            (first, bytes) = (number, 0);
        }
        bytes += card.encoded_bytes();
        batch.push(card);
    }
    messages.push(ToProcess::Peers { first, cards: batch.into() });
    messages
}

/// Which binaries all processes run, in as many messages as they need.
pub fn builds_messages(builds: &[u32]) -> impl Iterator<Item = ToProcess> {
    // What a message holds besides version, kind and the first number.
    const BUILDS_MAX: usize = (MESSAGE_BYTES_MAX - 2 - 4) / 4;
    let parts = (0_u32..).step_by(BUILDS_MAX).zip(builds.chunks(BUILDS_MAX));
    parts.map(|(first, builds)| ToProcess::Builds { first, builds: builds.to_vec() })
}

/// Decodes as both ends do, for a fuzzer: whatever the bytes, there is no panic, and what is understood is the same when it
/// is said again.
pub fn fuzz_decode(bytes: &[u8]) {
    if let Some(message) = ToCoordinator::decode(bytes) {
        assert_eq!(ToCoordinator::decode(&message.encode()), Some(message));
    }
    if let Some(message) = ToProcess::decode(bytes) {
        assert_eq!(ToProcess::decode(&message.encode()), Some(message));
    }
}

fn message(kind: u8) -> Encoder {
    Encoder(vec![VERSION, kind])
}

fn open(bytes: &[u8]) -> Option<(u8, Decoder<'_>)> {
    match bytes {
        [VERSION, kind, fields @ ..] if bytes.len() <= MESSAGE_BYTES_MAX => Some((*kind, Decoder(fields))),
        _ => None,
    }
}

struct Encoder(Vec<u8>);

impl Encoder {
    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u32(self, number: u32) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    fn u64(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    fn card(self, card: &[u8]) -> Self {
        debug_assert!(card.len() <= CARD_BYTES_MAX, "whoever makes cards keeps to the limit");
        let length = u16::try_from(card.len()).expect("a card is at most 256 B");
        self.bytes(&length.to_le_bytes()).bytes(card)
    }

    fn greeting(self, greeting: &Greeting) -> Self {
        let Greeting { fingerprint, table_hash, host, shape, fabric } = greeting;
        let JobShape { processes, threads, service_threads } = *shape;
        let fixed = self.bytes(fingerprint).u64(*table_hash).bytes(host);
        fixed.u32(processes).u32(threads).u32(service_threads).text(&fabric.to_string())
    }

    fn text(self, text: &str) -> Self {
        let (text, mark) = fitting(text);
        let length = u16::try_from(text.len() + mark.len()).expect("a message is shorter than 64 KiB");
        self.bytes(&length.to_le_bytes()).bytes(text.as_bytes()).bytes(mark.as_bytes())
    }
}

/// The text, or as much of it as fits with the mark that goes behind it.
fn fitting(text: &str) -> (&str, &'static str) {
    if text.len() <= TEXT_BYTES_MAX {
        return (text, "");
    }
    let mut end = TEXT_BYTES_MAX - CUT.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    (&text[..end], CUT)
}

struct Decoder<'a>(&'a [u8]);

impl Decoder<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn process(&mut self) -> Option<ProcessId> {
        self.u32().map(ProcessId::new)
    }

    fn text(&mut self) -> Option<String> {
        let length = u16::from_le_bytes(self.array()?).into();
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        (length <= TEXT_BYTES_MAX).then(|| String::from_utf8(text.to_vec()).ok()).flatten()
    }

    fn card(&mut self) -> Option<Vec<u8>> {
        let length = u16::from_le_bytes(self.array()?).into();
        let (card, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        (length <= CARD_BYTES_MAX).then(|| card.to_vec())
    }

    fn peers(&mut self) -> Option<Vec<PeerCard>> {
        let mut peers = Vec::new();
        while !self.0.is_empty() {
            peers.push(PeerCard { host: self.array()?, card: self.card()? });
        }
        Some(peers)
    }

    fn numbers(&mut self) -> Option<Vec<u32>> {
        let mut numbers = Vec::new();
        while !self.0.is_empty() {
            numbers.push(self.u32()?);
        }
        Some(numbers)
    }

    fn greeting(&mut self) -> Option<Greeting> {
        let (fingerprint, table_hash, host) = (self.array()?, self.u64()?, self.array()?);
        let shape = JobShape { processes: self.u32()?, threads: self.u32()?, service_threads: self.u32()? };
        let fabric = self.text().filter(|name| name.len() <= FABRIC_BYTES_MAX)?.parse().ok()?;
        Some(Greeting { fingerprint, table_hash, host, shape, fabric })
    }

    /// The message, if nothing is left.
    fn end<T>(self, message: T) -> Option<T> {
        self.0.is_empty().then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn process() -> impl Strategy<Value = ProcessId> {
        any::<u32>().prop_map(ProcessId::new)
    }

    fn greeting() -> impl Strategy<Value = Greeting> {
        let fabric = prop_oneof![
            Just(FabricChoice::Auto),
            Just(FabricChoice::Shm),
            prop::option::of("[a-z_;]{1,40}").prop_map(FabricChoice::Ofi),
        ];
        let shape = any::<[u32; 3]>().prop_map(|[processes, threads, service_threads]| JobShape {
            processes,
            threads,
            service_threads,
        });
        (any::<([u8; 16], u64, [u8; 16])>(), shape, fabric).prop_map(
            |((fingerprint, table_hash, host), shape, fabric)| Greeting {
                fingerprint,
                table_hash,
                host,
                shape,
                fabric,
            },
        )
    }

    fn peer_card() -> impl Strategy<Value = PeerCard> {
        let card = prop::collection::vec(any::<u8>(), 0..=CARD_BYTES_MAX);
        (any::<[u8; 16]>(), card).prop_map(|(host, card)| PeerCard { host, card })
    }

    fn to_coordinator() -> impl Strategy<Value = ToCoordinator> {
        prop_oneof![
            greeting().prop_map(ToCoordinator::Hello),
            prop::collection::vec(any::<u8>(), 0..=CARD_BYTES_MAX).prop_map(|bytes| ToCoordinator::Card { bytes }),
            any::<(u32, u64, u64)>().prop_map(|(round, sent, executed)| ToCoordinator::Idle { round, sent, executed }),
            (any::<String>(), prop::option::of(process()))
                .prop_map(|(message, because_of)| ToCoordinator::Failed { message, because_of }),
        ]
    }

    fn to_process() -> impl Strategy<Value = ToProcess> {
        prop_oneof![
            any::<(u64, [u8; 16])>().prop_map(|(job_id, secret)| ToProcess::Start { job_id, secret }),
            (any::<u32>(), prop::collection::vec(any::<u32>(), 0..20))
                .prop_map(|(first, builds)| ToProcess::Builds { first, builds }),
            any::<String>().prop_map(|why| ToProcess::Ended { why: Ending::Other(why) }),
            (process(), any::<String>()).prop_map(|(process, why)| ToProcess::Lost { process, why }),
            any::<u32>().prop_map(|round| ToProcess::Confirm { round }),
            Just(ToProcess::Finish),
            Just(ToProcess::Exchange),
            (any::<u32>(), prop::collection::vec(peer_card(), 0..4))
                .prop_map(|(first, cards)| ToProcess::Peers { first, cards: cards.into() }),
            (process(), process()).prop_map(|(a, b)| ToProcess::Ended { why: Ending::Apart { a, b } }),
        ]
    }

    proptest! {
        #[test]
        fn what_a_process_says_arrives(message in to_coordinator()) {
            prop_assert_eq!(ToCoordinator::decode(&message.encode()), Some(message));
        }

        #[test]
        fn what_a_process_is_told_arrives(message in to_process()) {
            prop_assert_eq!(ToProcess::decode(&message.encode()), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_none(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            fuzz_decode(&bytes);
        }

        /// Most random bytes stop at the version; these come further.
        #[test]
        fn any_fields_are_a_message_or_none(kind in 0_u8..11, fields in prop::collection::vec(any::<u8>(), 0..64)) {
            fuzz_decode(&[&[VERSION, kind], &fields[..]].concat());
        }

        #[test]
        fn cards_are_divided_among_messages_that_fit(cards in prop::collection::vec(peer_card(), 0..20)) {
            let mut arrived = Vec::new();
            for message in peers_messages(cards.clone()) {
                let bytes = message.encode();
                prop_assert!(bytes.len() <= MESSAGE_BYTES_MAX);
                let Some(ToProcess::Peers { first, cards }) = ToProcess::decode(&bytes) else { panic!("{message:?}") };
                prop_assert_eq!(first as usize, arrived.len());
                arrived.extend_from_slice(&cards);
            }
            prop_assert_eq!(arrived, cards);
        }

        #[test]
        fn builds_are_divided_among_messages_that_fit(builds in prop::collection::vec(any::<u32>(), 0..3000)) {
            let mut arrived = Vec::new();
            for message in builds_messages(&builds) {
                let bytes = message.encode();
                prop_assert!(bytes.len() <= MESSAGE_BYTES_MAX);
                let Some(ToProcess::Builds { first, builds }) = ToProcess::decode(&bytes) else { panic!("{message:?}") };
                prop_assert_eq!(first as usize, arrived.len());
                arrived.extend(builds);
            }
            prop_assert_eq!(arrived, builds);
        }

        #[test]
        fn a_message_with_a_byte_more_or_less_is_none(message in to_process(), byte: u8) {
            let bytes = message.encode();
            prop_assert_eq!(ToProcess::decode(&bytes[..bytes.len() - 1]), None);
            prop_assert_eq!(ToProcess::decode(&[&bytes[..], &[byte]].concat()), None);
        }
    }

    #[test]
    fn a_long_text_is_cut_where_a_character_ends() {
        for bytes in [TEXT_BYTES_MAX - 1, TEXT_BYTES_MAX, TEXT_BYTES_MAX + 1, 100_000] {
            // One byte, then two each: so that the limit falls inside a character for some of them.
            let text: String = std::iter::once('a').chain(std::iter::repeat('ü')).take(1 + bytes / 2).collect();
            let said = ToProcess::Lost { process: ProcessId::new(u32::MAX), why: text.clone() };
            let encoded = said.encode();
            assert!(encoded.len() <= MESSAGE_BYTES_MAX);
            let Some(ToProcess::Lost { why, .. }) = ToProcess::decode(&encoded) else {
                panic!("it is still a message")
            };
            if text.len() <= TEXT_BYTES_MAX {
                assert_eq!(why, text);
            } else {
                assert!(why.len() > TEXT_BYTES_MAX - 8 && text.starts_with(why.strip_suffix(CUT).unwrap()));
            }
        }
    }

    #[test]
    fn another_version_is_not_understood() {
        let mut bytes = ToProcess::Finish.encode();
        assert_eq!(ToProcess::decode(&bytes), Some(ToProcess::Finish));
        bytes[0] += 1;
        assert_eq!(ToProcess::decode(&bytes), None);
        assert_eq!(ToProcess::decode(&[]), None);
    }
}

//! The messages of a control link.
//!
//! ```text
//! version   1 B
//! message   the enum as `farside_wire` encodes it
//! ```
//!
//! A message has no other bytes, and at most [`MESSAGE_BYTES_MAX`] of them. The decoder trusts
//! nothing: the other end may be a different program.

use farside_fabric::ProcessId;
use farside_fabric::route::FabricChoice;
use farside_sys::net::MESSAGE_BYTES_MAX;
use farside_wire::check::MessageKind;
use farside_wire::{Decoder, Wire};

use crate::error::LaunchError as Error;

/// The version of the messages. Programs of different versions refuse each other's first message.
///
/// Programs of one job may be built apart. Raise the version with every change of a message, and of
/// anything else that their processes share: memory layouts, service messages, records of named
/// functions.
const VERSION: u8 = 9;
/// The length of the version.
const VERSION_BYTES: usize = 1;
/// The encoded length of an enum's variant.
const VARIANT_BYTES: usize = 4;
/// The encoded length of the number of elements in a vector or text.
const LENGTH_BYTES: usize = 8;
/// The longest text: what remains of a message besides its variant and other fields. Those of
/// [`ToProcess::Lost`] are the longest: the text's length and two processes.
const TEXT_BYTES_MAX: usize = MESSAGE_BYTES_MAX - VERSION_BYTES - VARIANT_BYTES - LENGTH_BYTES - 4 - 4;
/// The bytes that remain for the elements of [`ToProcess::Peers`] and [`ToProcess::Builds`].
const ELEMENTS_BYTES_MAX: usize = MESSAGE_BYTES_MAX - VERSION_BYTES - VARIANT_BYTES - 4 - LENGTH_BYTES;
/// The bytes that remain for a question or a part of its answer.
pub const TOLD_BYTES_MAX: usize = MESSAGE_BYTES_MAX - VERSION_BYTES - VARIANT_BYTES - 4 - LENGTH_BYTES - 1;
/// The longest card of a process. Every process receives the cards of all others.
pub const CARD_BYTES_MAX: usize = 256;
/// The longest name of a fabric.
pub const FABRIC_BYTES_MAX: usize = 64;
/// The end of a text that was cut.
const CUT: &str = "…";

/// A message from a process to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub enum ToCoordinator {
    /// The process has started. This is its first message.
    Hello(Greeting),
    /// The workers of the process have returned and it has nothing to do. The process sends this
    /// unasked for round 0, and as the answer to [`ToProcess::Confirm`] for later rounds.
    Idle {
        /// The round of the question.
        round: u32,
        /// Calls sent since the process started.
        sent: u64,
        /// Calls executed since the process started.
        executed: u64,
    },
    /// The process's address on the fabric; the answer to [`ToProcess::Exchange`].
    Card {
        /// The address, at most [`CARD_BYTES_MAX`].
        bytes: Vec<u8>,
    },
    /// The process has failed and will end.
    Failed {
        /// The reason.
        message: String,
        /// The process whose loss caused the failure.
        because_of: Option<ProcessId>,
    },
    /// The process is not stopped; the answer to [`ToProcess::Probe`].
    Alive,
    /// A part of the answer to [`ToProcess::Ask`].
    Told {
        /// The number of the question.
        number: u32,
        /// The part, at most [`TOLD_BYTES_MAX`].
        bytes: Vec<u8>,
        /// True if it is the last one.
        is_last: bool,
    },
}

/// A process's description of itself.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct Greeting {
    /// The build's fingerprint.
    pub fingerprint: [u8; 16],
    /// A hash over the table of callable functions.
    pub table_hash: u64,
    /// The machine, within the reach of shared memory.
    pub host: [u8; 16],
    /// The shape of the job in the process's settings.
    pub shape: JobShape,
    /// The fabric in the process's settings.
    pub fabric: FabricChoice,
}

impl Greeting {
    /// Returns the facts that are equal for two processes with the same functions.
    pub fn build(&self) -> ([u8; 16], u64) {
        (self.fingerprint, self.table_hash)
    }
}

/// The facts about a job on which all its processes must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct JobShape {
    /// Processes of the job.
    pub processes: u32,
    /// Workers of each process.
    pub threads: u32,
    /// Other callable threads of each process.
    pub without_body: u32,
}

/// The facts from which a process chooses its route to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct PeerCard {
    /// The peer's machine, within the reach of shared memory.
    pub host: [u8; 16],
    /// The peer's address on the fabric. The coordinator passes it on unread.
    pub card: Vec<u8>,
}

impl PeerCard {
    fn encoded_bytes(&self) -> usize {
        self.host.len() + LENGTH_BYTES + self.card.len()
    }
}

/// A message from the coordinator to a process.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub enum ToProcess {
    /// All processes have joined: start the workers.
    Start {
        /// The number that tells this job from others.
        job_id: u64,
        /// The secret of this job's processes.
        secret: [u8; 16],
    },
    /// The job is over for all processes.
    Ended {
        /// The reason.
        why: Ending,
    },
    /// A process is lost; the others continue.
    Lost {
        /// The lost process.
        process: ProcessId,
        /// The process that failed first: `process` itself, or one because of which it failed.
        root: ProcessId,
        /// The end of `root`, as the end of a sentence about it.
        why: String,
    },
    /// A question for the current counts, answered with [`ToCoordinator::Idle`].
    Confirm {
        /// The round to name in the answer.
        round: u32,
    },
    /// The job is quiescent: return.
    Finish,
    /// A question whether the process still answers, to its service thread. Answered with
    /// [`ToCoordinator::Alive`].
    Probe,
    /// Shared memory does not connect all processes: open the fabric and send the card.
    Exchange,
    /// The cards of consecutive processes.
    Peers {
        /// The first of these processes.
        first: u32,
        /// Their cards, in order.
        cards: Vec<PeerCard>,
    },
    /// The binaries of consecutive processes. Not sent if all processes run the same binary.
    Builds {
        /// The first of these processes.
        first: u32,
        /// For each process, the first process of the job that runs the same binary.
        builds: Vec<u32>,
    },
    /// A question about the workers, to the service thread.
    Ask {
        /// The number of the question.
        number: u32,
        /// The question, at most [`TOLD_BYTES_MAX`].
        question: Vec<u8>,
    },
}

/// The reason why a job ended early.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub enum Ending {
    /// Two processes are on different machines, and the settings ask for shared memory.
    Apart {
        /// One of the two.
        a: ProcessId,
        /// The other.
        b: ProcessId,
    },
    /// Another reason.
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
    /// Makes the message of a process that fails with `error`, because of the loss of another
    /// process if one is named.
    pub fn failed_with(error: &dyn std::fmt::Display, because_of: Option<ProcessId>) -> Self {
        Self::Failed { message: error.to_string(), because_of }
    }

    /// Divides the answer to a question among as few messages as possible.
    pub fn told(number: u32, answer: &[u8]) -> impl Iterator<Item = Self> {
        let count = answer.len().div_ceil(TOLD_BYTES_MAX).max(1);
        (1..=count).map(move |part| {
            let end = answer.len().min(part * TOLD_BYTES_MAX);
            let bytes = answer[(part - 1) * TOLD_BYTES_MAX..end].to_vec();
            Self::Told { number, bytes, is_last: part == count }
        })
    }

    /// Encodes the message to at most [`MESSAGE_BYTES_MAX`]. Cuts a text that does not fit.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Failed { message, because_of } if is_too_long(message) => {
                encode(&Self::Failed { message: cut(message), because_of: *because_of })
            }
            _ => encode(self),
        }
    }

    /// Decodes a message. Returns `None` if the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes).filter(|message| match message {
            Self::Hello(greeting) => is_fabric(&greeting.fabric),
            Self::Idle { .. } | Self::Alive => true,
            Self::Card { bytes } => bytes.len() <= CARD_BYTES_MAX,
            Self::Told { bytes, .. } => bytes.len() <= TOLD_BYTES_MAX,
            Self::Failed { message, .. } => !is_too_long(message),
        })
    }
}

impl ToProcess {
    /// Encodes the message to at most [`MESSAGE_BYTES_MAX`]. Cuts a text that does not fit.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Ended { why: Ending::Other(why) } if is_too_long(why) => {
                encode(&Self::Ended { why: Ending::Other(cut(why)) })
            }
            Self::Lost { process, root, why } if is_too_long(why) => {
                encode(&Self::Lost { process: *process, root: *root, why: cut(why) })
            }
            _ => encode(self),
        }
    }

    /// Decodes a message. Returns `None` if the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes).filter(|message| match message {
            Self::Ended { why: Ending::Other(text) } | Self::Lost { why: text, .. } => !is_too_long(text),
            Self::Peers { cards, .. } => cards.iter().all(|peer| peer.card.len() <= CARD_BYTES_MAX),
            Self::Ended { why: Ending::Apart { .. } }
            | Self::Start { .. }
            | Self::Confirm { .. }
            | Self::Finish
            | Self::Probe
            | Self::Exchange
            | Self::Ask { .. }
            | Self::Builds { .. } => true,
        })
    }
}

/// Divides the cards of all processes among as few messages as possible.
pub(crate) fn peers_messages(cards: impl IntoIterator<Item = PeerCard>) -> Vec<ToProcess> {
    let mut messages = Vec::new();
    let (mut first, mut batch, mut bytes) = (0, Vec::new(), 0);
    for (number, card) in (0_u32..).zip(cards) {
        if bytes + card.encoded_bytes() > ELEMENTS_BYTES_MAX {
            messages.push(ToProcess::Peers { first, cards: std::mem::take(&mut batch) });
            (first, bytes) = (number, 0);
        }
        bytes += card.encoded_bytes();
        batch.push(card);
    }
    messages.push(ToProcess::Peers { first, cards: batch });
    messages
}

/// Divides the binaries of all processes among as few messages as possible.
pub(crate) fn builds_messages(builds: &[u32]) -> impl Iterator<Item = ToProcess> {
    const BUILDS_MAX: usize = ELEMENTS_BYTES_MAX / 4;
    let parts = (0_u32..).step_by(BUILDS_MAX).zip(builds.chunks(BUILDS_MAX));
    parts.map(|(first, builds)| ToProcess::Builds { first, builds: builds.to_vec() })
}

/// The messages of a control link, for tests of their decoders.
pub(super) fn message_kinds() -> Vec<MessageKind> {
    vec![
        MessageKind::of::<ToCoordinator>()
            .through(&[VERSION], |bytes| ToCoordinator::decode(bytes).map(|message| message.encode())),
        MessageKind::of::<ToProcess>()
            .through(&[VERSION], |bytes| ToProcess::decode(bytes).map(|message| message.encode())),
    ]
}

fn encode(message: &impl Wire) -> Vec<u8> {
    let bytes = farside_wire::encode(message, vec![VERSION]);
    debug_assert!(bytes.len() <= MESSAGE_BYTES_MAX, "texts are cut, and cards and builds divided");
    bytes
}

fn decode<T: Wire>(bytes: &[u8]) -> Option<T> {
    match bytes {
        [VERSION, message @ ..] if bytes.len() <= MESSAGE_BYTES_MAX => {
            farside_wire::decode(Decoder::new(message), 0).ok()
        }
        _ => None,
    }
}

/// Returns whether the fabric is one that its text can name.
fn is_fabric(fabric: &FabricChoice) -> bool {
    let text = fabric.to_string();
    text.len() <= FABRIC_BYTES_MAX && text.parse().as_ref() == Ok(fabric)
}

fn is_too_long(text: &str) -> bool {
    text.len() > TEXT_BYTES_MAX
}

/// Returns the start of `text`, as much as fits together with the mark behind it.
fn cut(text: &str) -> String {
    let mut end = TEXT_BYTES_MAX - CUT.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    [&text[..end], CUT].concat()
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
            prop::option::of("[a-z_;]{1,40}").prop_map(FabricChoice::Auto),
            Just(FabricChoice::Shm),
            prop::option::of("[a-z_;]{1,40}").prop_map(FabricChoice::Ofi),
        ];
        let shape = any::<[u32; 3]>().prop_map(|[processes, threads, without_body]| JobShape {
            processes,
            threads,
            without_body,
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
            Just(ToCoordinator::Alive),
            (any::<(u32, bool)>(), prop::collection::vec(any::<u8>(), 0..=TOLD_BYTES_MAX))
                .prop_map(|((number, is_last), bytes)| ToCoordinator::Told { number, bytes, is_last }),
        ]
    }

    fn to_process() -> impl Strategy<Value = ToProcess> {
        prop_oneof![
            any::<(u64, [u8; 16])>().prop_map(|(job_id, secret)| ToProcess::Start { job_id, secret }),
            (any::<u32>(), prop::collection::vec(any::<u32>(), 0..20))
                .prop_map(|(first, builds)| ToProcess::Builds { first, builds }),
            any::<String>().prop_map(|why| ToProcess::Ended { why: Ending::Other(why) }),
            (process(), process(), any::<String>()).prop_map(|(process, root, why)| ToProcess::Lost {
                process,
                root,
                why
            }),
            any::<u32>().prop_map(|round| ToProcess::Confirm { round }),
            Just(ToProcess::Finish),
            Just(ToProcess::Probe),
            Just(ToProcess::Exchange),
            (any::<u32>(), prop::collection::vec(any::<u8>(), 0..=TOLD_BYTES_MAX))
                .prop_map(|(number, question)| ToProcess::Ask { number, question }),
            (any::<u32>(), prop::collection::vec(peer_card(), 0..4))
                .prop_map(|(first, cards)| ToProcess::Peers { first, cards }),
            (process(), process()).prop_map(|(a, b)| ToProcess::Ended { why: Ending::Apart { a, b } }),
        ]
    }

    proptest! {
        #[test]
        fn messages_of_a_process_arrive(message in to_coordinator()) {
            prop_assert_eq!(ToCoordinator::decode(&message.encode()), Some(message));
        }

        #[test]
        fn messages_to_a_process_arrive(message in to_process()) {
            prop_assert_eq!(ToProcess::decode(&message.encode()), Some(message));
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
        fn answers_are_divided_among_messages_that_fit(
            answer in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..20_000),
                (0..3_usize).prop_map(|parts| vec![7; parts * TOLD_BYTES_MAX]),
            ],
        ) {
            let (mut arrived, mut is_whole) = (Vec::new(), false);
            for message in ToCoordinator::told(5, &answer) {
                let bytes = message.encode();
                prop_assert!(bytes.len() <= MESSAGE_BYTES_MAX && !is_whole);
                let Some(ToCoordinator::Told { number: 5, bytes, is_last }) = ToCoordinator::decode(&bytes) else {
                    panic!("{message:?}")
                };
                arrived.extend(bytes);
                is_whole = is_last;
            }
            prop_assert!(is_whole);
            prop_assert_eq!(arrived, answer);
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
            let process = ProcessId::new(u32::MAX);
            let said = ToProcess::Lost { process, root: process, why: text.clone() };
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
    fn messages_beyond_the_limits_are_refused() {
        let card = |bytes| farside_wire::encode(&ToCoordinator::Card { bytes: vec![7; bytes] }, vec![VERSION]);
        assert!(ToCoordinator::decode(&card(CARD_BYTES_MAX)).is_some());
        assert_eq!(ToCoordinator::decode(&card(CARD_BYTES_MAX + 1)), None);
        let cards = vec![PeerCard { host: [1; 16], card: vec![7; CARD_BYTES_MAX + 1] }];
        let peers = farside_wire::encode(&ToProcess::Peers { first: 0, cards }, vec![VERSION]);
        assert_eq!(ToProcess::decode(&peers), None);
        for provider in ["", "tcp tcp", &"x".repeat(FABRIC_BYTES_MAX)] {
            assert!(!is_fabric(&FabricChoice::Ofi(Some(provider.to_owned()))), "{provider:?}");
        }
        let long = ToProcess::Ended { why: Ending::Other("x".repeat(MESSAGE_BYTES_MAX)) };
        assert_eq!(ToProcess::decode(&farside_wire::encode(&long, vec![VERSION])), None);
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

//! The messages that two ends of a stream exchange before it becomes a control link.
//!
//! ```text
//! process 0 ──── Challenge: nonce ───────────────────────────► member
//!           ◄─── Request: its claim, nonce, proof ───────────
//!           ───► Answer: its seat or a refusal, and proof ───
//! ```
//!
//! A proof is an HMAC-SHA256 with the job's secret as its key. It covers both nonces, the member's
//! claim, the side that makes the proof, and the answer of process 0. So the secret does not
//! travel, and an overheard proof is useless in another greeting or for the other side. A member
//! believes no answer without a proof, not even a refusal: another program may have the port for a
//! while.
//!
//! Challenge and request begin with [`MAGIC`]. The rest is as `farside_wire` encodes it.

use std::fmt;

use farside_wire::check::MessageKind;
use farside_wire::{Decoder, Wire};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::control::tcp::Pad;

/// The start of each side's first message, with the version of the greeting as its last byte.
const MAGIC: [u8; 8] = *b"farside\x03";
/// The longest message of a greeting: a [`Request`].
pub(crate) const GREETING_BYTES_MAX: usize = MAGIC.len() + 16 + 16 + 32;

pub(crate) type Nonce = [u8; 16];
pub(crate) type Proof = [u8; 32];

/// The secret that the processes of a job share.
#[derive(Clone)]
pub(crate) struct Secret(Hmac<Sha256>);

impl Secret {
    pub(crate) fn new(text: &[u8]) -> Self {
        Self(Hmac::new_from_slice(text).expect("HMAC accepts keys of any length"))
    }

    fn over(&self, label: &[u8], exchange: &Exchange) -> Hmac<Sha256> {
        let Exchange { host_nonce, nonce, claim } = exchange;
        let mut mac = self.0.clone();
        for part in [label, host_nonce, nonce, &farside_wire::encode(claim, Vec::new())] {
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The place that a process claims: its number in a group that one launcher started, and the
/// group's number in the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub(crate) struct Claim {
    /// The process's number in its group.
    pub(crate) process: u32,
    /// Processes of the group.
    pub(crate) processes: u32,
    /// The group's number in the job.
    pub(crate) group: u32,
    /// Groups of the job.
    pub(crate) groups: u32,
}

impl Claim {
    /// Makes the claim of a process in a job of one group.
    pub(crate) fn ungrouped(process: u32, processes: u32) -> Self {
        Self { process, processes, group: 0, groups: 1 }
    }
}

/// The place of a process in the whole job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub(crate) struct Seat {
    /// The process's number.
    pub(crate) process: u32,
    /// Processes of the job.
    pub(crate) processes: u32,
}

/// The maker of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Process 0, which gives this answer.
    Host(Answer),
    /// Another process.
    Member,
}

/// The subject of one greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// The nonce of process 0.
    pub(crate) host_nonce: Nonce,
    /// The member's nonce.
    pub(crate) nonce: Nonce,
    /// The place that the member claims.
    pub(crate) claim: Claim,
}

impl Exchange {
    pub(crate) fn proof(&self, side: Side, secret: &Secret) -> Proof {
        secret.over(&side.label(), self).finalize().into_bytes().into()
    }

    /// Verifies a proof in constant time.
    pub(crate) fn is_proven(&self, side: Side, secret: &Secret, proof: &Proof) -> bool {
        secret.over(&side.label(), self).verify_slice(proof).is_ok()
    }

    /// Returns the pad that conceals the job's own secret on this stream.
    pub(crate) fn pad(&self, secret: &Secret) -> Pad {
        let bytes = secret.over(b"pad ", self).finalize().into_bytes();
        std::array::from_fn(|index| bytes[index])
    }
}

impl Side {
    /// Returns the first bytes that a side's proofs cover. The first four differ for each use of
    /// the secret.
    fn label(self) -> Vec<u8> {
        match self {
            Self::Host(answer) => farside_wire::encode(&answer, b"host".to_vec()),
            Self::Member => b"join".to_vec(),
        }
    }
}

/// The first message of process 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub(crate) struct Challenge {
    pub(crate) host_nonce: Nonce,
}

impl Challenge {
    pub(crate) fn encode(&self) -> Vec<u8> {
        farside_wire::encode(self, MAGIC.to_vec())
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes.strip_prefix(&MAGIC)?)
    }
}

/// The member's first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub(crate) struct Request {
    pub(crate) claim: Claim,
    pub(crate) nonce: Nonce,
    pub(crate) proof: Proof,
}

impl Request {
    pub(crate) fn encode(&self) -> Vec<u8> {
        farside_wire::encode(self, MAGIC.to_vec())
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes.strip_prefix(&MAGIC)?)
    }
}

/// The answer of process 0 to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub(crate) enum Answer {
    /// The member is admitted.
    Welcome(Seat),
    /// The member's proof is wrong. Process 0 has another secret, so the member cannot verify this
    /// answer either.
    WrongSecret,
    /// Another process has the place.
    Taken,
    /// The group has this number of processes.
    OtherSize(u32),
    /// The job has this number of groups.
    OtherGroups(u32),
}

/// An answer of process 0, with its proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub(crate) struct ProvenAnswer {
    answer: Answer,
    proof: Proof,
}

impl ProvenAnswer {
    pub(crate) fn new(answer: Answer, exchange: &Exchange, secret: &Secret) -> Self {
        Self { answer, proof: exchange.proof(Side::Host(answer), secret) }
    }

    /// Returns the answer if its maker knows the secret.
    pub(crate) fn verified(self, exchange: &Exchange, secret: &Secret) -> Option<Answer> {
        exchange.is_proven(Side::Host(self.answer), secret, &self.proof).then_some(self.answer)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        farside_wire::encode(self, Vec::new())
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes)
    }
}

fn decode<T: Wire>(bytes: &[u8]) -> Option<T> {
    farside_wire::decode(Decoder::new(bytes), 0).ok()
}

/// The messages of a greeting, for tests of their decoders.
pub(super) fn message_kinds() -> Vec<MessageKind> {
    vec![
        MessageKind::of::<Challenge>()
            .through(&MAGIC, |bytes| Challenge::decode(bytes).map(|message| message.encode())),
        MessageKind::of::<Request>().through(&MAGIC, |bytes| Request::decode(bytes).map(|message| message.encode())),
        MessageKind::of::<ProvenAnswer>(),
    ]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exchange() -> impl Strategy<Value = Exchange> {
        any::<(Nonce, Nonce, [u32; 4])>().prop_map(|(host_nonce, nonce, [process, processes, group, groups])| {
            Exchange { host_nonce, nonce, claim: Claim { process, processes, group, groups } }
        })
    }

    fn answer() -> impl Strategy<Value = Answer> {
        let welcome = any::<(u32, u32)>().prop_map(|(process, processes)| Answer::Welcome(Seat { process, processes }));
        prop_oneof![welcome, Just(Answer::Taken), any::<u32>().prop_map(Answer::OtherSize)]
    }

    proptest! {
        #[test]
        fn a_proof_holds_for_its_secret_its_side_and_its_exchange_alone(
            (exchange, other) in (exchange(), exchange()),
            (answer, other_answer) in (answer(), answer()),
        ) {
            let (secret, wrong) = (Secret::new(b"right"), Secret::new(b"wrong"));
            let proof = exchange.proof(Side::Member, &secret);
            prop_assert!(exchange.is_proven(Side::Member, &secret, &proof));
            prop_assert!(!exchange.is_proven(Side::Host(answer), &secret, &proof));
            let granted = exchange.proof(Side::Host(answer), &secret);
            prop_assert!(exchange.is_proven(Side::Host(answer), &secret, &granted));
            prop_assert_eq!(answer == other_answer, exchange.is_proven(Side::Host(other_answer), &secret, &granted));
            prop_assert!(!exchange.is_proven(Side::Member, &wrong, &proof));
            prop_assert_eq!(exchange == other, other.is_proven(Side::Member, &secret, &proof));
            prop_assert_ne!(exchange.pad(&secret), exchange.pad(&wrong));
        }
    }

    #[test]
    fn a_secret_does_not_show() {
        assert_eq!(format!("{:?}", Secret::new(b"swordfish")), "Secret");
    }
}

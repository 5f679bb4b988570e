//! What two ends of a stream say before it is a control link.
//!
//! ```text
//! process 0 ──── Challenge: nonce ─────────────────────► another
//!           ◄─── Request: its claim, nonce, proof ──────
//!           ───► Answer: its seat and proof, or why not ─
//! ```
//!
//! A proof is an HMAC-SHA256, with the job's secret as its key, over both nonces, what the process claims to be, which side makes it,
//! and what that side grants. So the secret does not travel, and nothing that was overheard is of use in another greeting or for the other side. Each
//! message is fixed fields without any space; numbers are little endian.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::control::tcp::Pad;

/// Begins what both sides say first, with the version of all this.
const MAGIC: [u8; 8] = *b"farside\x01";
/// The longest message of a greeting.
pub(crate) const GREETING_BYTES_MAX: usize = MAGIC.len() + 16 + 16 + 32;

pub(crate) type Nonce = [u8; 16];
pub(crate) type Proof = [u8; 32];

/// What all processes of a job know, and nobody else.
#[derive(Clone)]
pub(crate) struct Secret(Hmac<Sha256>);

impl Secret {
    pub(crate) fn new(text: &[u8]) -> Self {
        Self(Hmac::new_from_slice(text).expect("a key of any length will do"))
    }

    fn over(&self, what: &[u8], exchange: &Exchange) -> Hmac<Sha256> {
        let Exchange { host_nonce, nonce, claim } = exchange;
        let mut mac = self.0.clone();
        for part in [what, host_nonce, nonce, &claim.encode()] {
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

/// What a process says it is: which of a group that a launcher has started together, and which of the groups that make up the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Which process of its group.
    pub(crate) process: u32,
    /// How many the group has.
    pub(crate) processes: u32,
    /// Which group.
    pub(crate) group: u32,
    /// How many the job has.
    pub(crate) groups: u32,
}

impl Claim {
    /// One of processes that were all started together.
    pub(crate) fn ungrouped(process: u32, processes: u32) -> Self {
        Self { process, processes, group: 0, groups: 1 }
    }

    fn encode(&self) -> Vec<u8> {
        let Self { process, processes, group, groups } = self;
        [process, processes, group, groups].map(|number| number.to_le_bytes()).concat()
    }

    fn decode(bytes: &[u8; 16]) -> Self {
        let (numbers, _) = bytes.as_chunks::<4>();
        let number = |index: usize| u32::from_le_bytes(numbers[index]);
        Self { process: number(0), processes: number(1), group: number(2), groups: number(3) }
    }
}

/// What a process is in the whole job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    /// Which process.
    pub(crate) process: u32,
    /// Of how many.
    pub(crate) processes: u32,
}

/// Who proves something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Process 0, which gives the other this seat.
    Host(Seat),
    /// Another.
    Member,
}

/// What one greeting is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// Drawn by process 0.
    pub(crate) host_nonce: Nonce,
    /// Drawn by the other.
    pub(crate) nonce: Nonce,
    /// What the other says it is.
    pub(crate) claim: Claim,
}

impl Exchange {
    pub(crate) fn proof(&self, side: Side, secret: &Secret) -> Proof {
        secret.over(&side.label(), self).finalize().into_bytes().into()
    }

    /// In a time that says nothing of the proof.
    pub(crate) fn is_proven(&self, side: Side, secret: &Secret, proof: &Proof) -> bool {
        secret.over(&side.label(), self).verify_slice(proof).is_ok()
    }

    /// What conceals the job's own secret on this stream.
    pub(crate) fn pad(&self, secret: &Secret) -> Pad {
        let bytes = secret.over(b"pad ", self).finalize().into_bytes();
        std::array::from_fn(|index| bytes[index])
    }
}

impl Side {
    /// What a side's proofs begin with; the first four bytes are no other's.
    fn label(self) -> Vec<u8> {
        match self {
            Self::Host(Seat { process, processes }) => {
                [&b"host"[..], &process.to_le_bytes(), &processes.to_le_bytes()].concat()
            }
            Self::Member => b"join".to_vec(),
        }
    }
}

/// What process 0 says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    pub(crate) host_nonce: Nonce,
}

impl Challenge {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&MAGIC[..], &self.host_nonce].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self { host_nonce: bytes.strip_prefix(&MAGIC)?.try_into().ok()? })
    }
}

/// What the other answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) claim: Claim,
    pub(crate) nonce: Nonce,
    pub(crate) proof: Proof,
}

impl Request {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Self { claim, nonce, proof } = self;
        [&MAGIC[..], &claim.encode(), nonce, proof].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (claim, rest) = bytes.strip_prefix(&MAGIC)?.split_first_chunk()?;
        let (nonce, proof) = rest.split_first_chunk()?;
        Some(Self { claim: Claim::decode(claim), nonce: *nonce, proof: proof.try_into().ok()? })
    }
}

/// What process 0 makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Come in; process 0 knows the secret, too.
    Welcome(Seat, Proof),
    /// The proof is not one.
    WrongSecret,
    /// There is such a process already.
    Taken,
    /// The group has so many processes.
    OtherSize(u32),
    /// The job has so many groups.
    OtherGroups(u32),
}

impl Answer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Welcome(Seat { process, processes }, proof) => {
                [&[0], &process.to_le_bytes()[..], &processes.to_le_bytes(), proof].concat()
            }
            Self::WrongSecret => vec![1],
            Self::Taken => vec![2],
            Self::OtherSize(processes) => [&[3], &processes.to_le_bytes()[..]].concat(),
            Self::OtherGroups(groups) => [&[4], &groups.to_le_bytes()[..]].concat(),
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |bytes: [u8; 4]| u32::from_le_bytes(bytes);
        match bytes {
            [0, rest @ ..] => {
                let (process, rest) = rest.split_first_chunk()?;
                let (processes, proof) = rest.split_first_chunk()?;
                let seat = Seat { process: number(*process), processes: number(*processes) };
                Some(Self::Welcome(seat, proof.try_into().ok()?))
            }
            [1] => Some(Self::WrongSecret),
            [2] => Some(Self::Taken),
            [3, processes @ ..] => Some(Self::OtherSize(number(processes.try_into().ok()?))),
            [4, groups @ ..] => Some(Self::OtherGroups(number(groups.try_into().ok()?))),
            _ => None,
        }
    }
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

    fn seat() -> impl Strategy<Value = Seat> {
        any::<(u32, u32)>().prop_map(|(process, processes)| Seat { process, processes })
    }

    fn answer() -> impl Strategy<Value = Answer> {
        prop_oneof![
            (seat(), any::<Proof>()).prop_map(|(seat, proof)| Answer::Welcome(seat, proof)),
            Just(Answer::WrongSecret),
            Just(Answer::Taken),
            any::<u32>().prop_map(Answer::OtherSize),
            any::<u32>().prop_map(Answer::OtherGroups),
        ]
    }

    proptest! {
        #[test]
        fn a_greeting_arrives_as_it_is_said(exchange in exchange(), proof: Proof, answer in answer()) {
            let challenge = Challenge { host_nonce: exchange.host_nonce };
            prop_assert_eq!(Challenge::decode(&challenge.encode()), Some(challenge));
            let request = Request { claim: exchange.claim, nonce: exchange.nonce, proof };
            prop_assert_eq!(Request::decode(&request.encode()), Some(request));
            prop_assert_eq!(Answer::decode(&answer.encode()), Some(answer));
            for bytes in [challenge.encode(), request.encode(), answer.encode()] {
                prop_assert!(bytes.len() <= GREETING_BYTES_MAX);
                for other in [&bytes[..bytes.len() - 1], &[&bytes[..], &[0]].concat()] {
                    prop_assert_eq!(Challenge::decode(other), None);
                    prop_assert_eq!(Request::decode(other), None);
                    prop_assert_eq!(Answer::decode(other), None);
                }
            }
        }

        #[test]
        fn any_bytes_are_a_greeting_or_none(bytes in prop::collection::vec(any::<u8>(), 0..80), known: bool) {
            let bytes = if known { [&MAGIC[..], &bytes].concat() } else { bytes };
            if let Some(challenge) = Challenge::decode(&bytes) {
                prop_assert_eq!(challenge.encode(), &bytes[..]);
            }
            if let Some(request) = Request::decode(&bytes) {
                prop_assert_eq!(request.encode(), &bytes[..]);
            }
            if let Some(answer) = Answer::decode(&bytes) {
                prop_assert_eq!(answer.encode(), &bytes[..]);
            }
        }

        #[test]
        fn a_proof_holds_for_its_secret_its_side_and_its_exchange_alone(
            (exchange, other) in (exchange(), exchange()),
            (seat, other_seat) in (seat(), seat()),
        ) {
            let (secret, wrong) = (Secret::new(b"right"), Secret::new(b"wrong"));
            let proof = exchange.proof(Side::Member, &secret);
            prop_assert!(exchange.is_proven(Side::Member, &secret, &proof));
            prop_assert!(!exchange.is_proven(Side::Host(seat), &secret, &proof));
            let granted = exchange.proof(Side::Host(seat), &secret);
            prop_assert!(exchange.is_proven(Side::Host(seat), &secret, &granted));
            prop_assert_eq!(seat == other_seat, exchange.is_proven(Side::Host(other_seat), &secret, &granted));
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

//! The messages at the start of a connection, and the proof of identity.
//!
//! ```text
//! client ──── Hello: version, nonce, name of its token ────────► server
//!        ◄─── Challenge: nonce   (or Refused)  ────────────────
//!        ───► Proof: that it knows the token   (and shared memory, on one machine) ──►
//!        ◄─── Welcome: that the server knows it, too   (or Refused) ──
//! ```
//!
//! A proof is an HMAC-SHA256 with the token's secret as its key. It covers both nonces and the side
//! that makes it. So the secret does not travel, and an overheard proof is useless in another
//! greeting or for the other side. The client proves first. Without a token the proofs are zeroes:
//! the system vouches for the user at the other end of a Unix socket.
//!
//! The welcome may say where the server listens for RDMA. The client proves the token there, too,
//! in the same way.
//!
//! A welcome over TCP may say on which machine the server is, and where it listens for shared
//! memory. A client on that machine then begins anew there, with the same token, and drops the
//! connection of TCP. It does so only with a server of its own user, which could access its memory
//! anyway, and checks the token's proof and the incarnation. If anything fails, it stays on TCP.
//!
//! Nothing is encrypted.

use std::collections::HashMap;
use std::fmt;

use crate::address::Address;
use crate::path::rdma;
use crate::path::shm::Secret as MemorySecret;
use farside_sys::topology::host_id;
use farside_wire::Wire;
use farside_wire::check::MessageKind;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The first bytes of every [`Hello`].
pub const MAGIC: [u8; 8] = *b"fars-rpc";
/// The version of the protocol. It changes with every message or frame that changes.
pub const VERSION: u32 = 5;
/// The longest message of a greeting.
pub(crate) const GREETING_BYTES_MAX: usize = 1024;

/// A number that a side uses in one greeting alone.
pub type Nonce = [u8; 16];
/// A proof.
pub type Mac32 = [u8; 32];

/// The first message of a client.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// The client's.
    pub nonce: Nonce,
    /// The name of the token that the client will prove.
    pub token: Option<String>,
}

/// The second message of a client.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct Proof {
    /// That the client knows the token.
    pub proof: Mac32,
    /// For the path in shared memory. Its memory comes with this message.
    pub secret: Option<MemorySecret>,
}

/// A message of a server.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub enum Reply {
    /// Asks for a proof.
    Challenge {
        /// The server's.
        nonce: Nonce,
    },
    /// Accepts the client.
    Welcome(Welcome),
    /// Sends the client away.
    Refused(Refusal),
}

/// The last message of a server.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct Welcome {
    /// That the server knows the token.
    pub proof: Mac32,
    /// For the path in shared memory. A waker comes with this message, and another with the next.
    pub secret: Option<MemorySecret>,
    /// A number that no other start of a server has.
    pub incarnation: u64,
    /// The number of the connection at the server.
    pub connection: u64,
    /// The number of calls that a client may have under way.
    pub calls_max: u32,
    /// The most bytes of arguments or of a result.
    pub bytes_max: u64,
    /// Where the server listens for RDMA, if it does.
    pub rdma: Option<rdma::Offer>,
    /// Where the server listens for shared memory, if it does. Only over TCP.
    pub nearby: Option<Nearby>,
}

/// Where clients on the machine of a server find it.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct Nearby {
    /// The identity of the machine since it was started.
    pub(crate) machine: [u8; 16],
    /// An address of shared memory.
    pub(crate) address: String,
}

impl Nearby {
    /// For a server that listens at these addresses.
    pub fn of<'a>(mut addresses: impl Iterator<Item = &'a Address>) -> Option<Self> {
        let address = addresses.find(|address| address.is_shm())?.to_string();
        Some(Self { machine: host_id().ok()?.0, address })
    }

    /// The address, if this process is on that machine.
    pub(crate) fn here(&self) -> Option<Address> {
        let address: Address = self.address.parse().ok()?;
        (address.is_shm() && host_id().is_ok_and(|here| here.0 == self.machine)).then_some(address)
    }
}

/// Why a server does not accept a connection.
#[derive(Clone, Debug, PartialEq, Eq, Wire, thiserror::Error)]
#[wire(crate = "farside_wire")]
#[non_exhaustive]
pub enum Refusal {
    /// The client is another version of this library.
    #[error("it speaks version {server} of the protocol, this program version {client}; build both from one release")]
    Version {
        /// The server's version.
        server: u32,
        /// The client's version.
        client: u32,
    },
    /// The client runs as another user, and has no token.
    #[error("it serves only its own user here; connect as that user or with a token")]
    OtherUser,
    /// A token is needed.
    #[error("it asks for a token; connect with Credentials::token")]
    NeedsToken,
    /// The server does not know the token, or the proof is wrong.
    #[error("it does not accept this token; compare name and secret with the server's")]
    Unproven,
    /// The server has as many connections as it allows.
    #[error("it has {max} connections already; try later, or raise Builder::max_connections")]
    Full {
        /// The number that it allows.
        max: u32,
    },
    /// The server is about to end.
    #[error("it is shutting down; connect again when it has been started anew")]
    ShuttingDown,
    /// The client's message was none.
    #[error("it could not read the greeting: {why}; build both programs from one release")]
    Malformed {
        /// The fault.
        why: String,
    },
}

/// The secret of a token.
#[derive(Clone)]
pub struct Secret {
    mac: Hmac<Sha256>,
    is_empty: bool,
}

impl Secret {
    /// The secret with this text.
    pub fn new(text: &[u8]) -> Self {
        let mac = Hmac::new_from_slice(text).expect("HMAC accepts keys of any length");
        Self { mac, is_empty: text.is_empty() }
    }

    fn over(&self, by: Side, client: &Nonce, server: &Nonce) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        for part in [&by.label()[..], client, server] {
            mac.update(part);
        }
        mac
    }

    /// The proof of a side for a greeting with these nonces.
    pub fn proof(&self, by: Side, client: &Nonce, server: &Nonce) -> Mac32 {
        self.over(by, client, server).finalize().into_bytes().into()
    }

    /// Verifies a proof in constant time.
    pub(crate) fn is_proven(&self, by: Side, client: &Nonce, server: &Nonce, proof: &Mac32) -> bool {
        self.over(by, client, server).verify_slice(proof).is_ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The maker of a proof.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
    /// The client, when it connects by RDMA.
    ClientByRdma,
}

impl Side {
    fn label(self) -> [u8; 8] {
        match self {
            Self::Client => *b"client 1",
            Self::Server => *b"server 1",
            Self::ClientByRdma => *b"client R",
        }
    }
}

/// The proof of a client's identity.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    pub(crate) token: Option<(String, Secret)>,
}

impl Credentials {
    /// The user that this process runs as. Enough for a server of the same user on this machine.
    #[must_use]
    pub fn own_user() -> Self {
        Self::default()
    }

    /// A token that the server [knows](Tokens), by its name and its secret.
    #[must_use]
    pub fn token(name: impl Into<String>, secret: impl AsRef<[u8]>) -> Self {
        Self { token: Some((name.into(), Secret::new(secret.as_ref()))) }
    }
}

/// The tokens that a server accepts.
///
/// ```
/// # extern crate farside_connect as farside_rpc;
/// use farside_rpc::Tokens;
///
/// let tokens = Tokens::new().with("reader", "a long random text", ["read"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    known: HashMap<String, (Secret, Vec<String>)>,
}

impl Tokens {
    /// No tokens.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a token with its name, its secret and its rights. Handlers
    /// [ask](crate::Peer::has_right) for rights; their names are the program's.
    #[must_use]
    pub fn with<R: Into<String>>(
        mut self,
        name: impl Into<String>,
        secret: impl AsRef<[u8]>,
        rights: impl IntoIterator<Item = R>,
    ) -> Self {
        let rights = rights.into_iter().map(Into::into).collect();
        self.known.insert(name.into(), (Secret::new(secret.as_ref()), rights));
        self
    }

    /// Returns whether no token is accepted.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The name of a token whose secret is empty, so that whoever knows its name has it.
    pub fn without_secret(&self) -> Option<&str> {
        self.known.iter().find(|(_, (secret, _))| secret.is_empty).map(|(name, _)| name.as_str())
    }

    pub(crate) fn find(&self, name: &str) -> Option<&(Secret, Vec<String>)> {
        self.known.get(name)
    }
}

/// The messages of a greeting, for tests of their decoders.
pub(crate) fn message_kinds() -> Vec<MessageKind> {
    vec![MessageKind::of::<Hello>(), MessageKind::of::<Proof>(), MessageKind::of::<Reply>()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_one_side_and_one_greeting() {
        let secret = Secret::new(b"secret");
        let proof = secret.proof(Side::Client, &[1; 16], &[2; 16]);
        assert!(secret.is_proven(Side::Client, &[1; 16], &[2; 16], &proof));
        assert!(!secret.is_proven(Side::Server, &[1; 16], &[2; 16], &proof));
        assert!(!secret.is_proven(Side::ClientByRdma, &[1; 16], &[2; 16], &proof));
        assert!(!secret.is_proven(Side::Client, &[2; 16], &[1; 16], &proof));
        assert!(!Secret::new(b"other").is_proven(Side::Client, &[1; 16], &[2; 16], &proof));
    }

    #[test]
    fn secrets_are_not_printed() {
        let credentials = Credentials::token("name", "hidden");
        assert!(!format!("{credentials:?}").contains("hidden"));
        assert!(!format!("{:?}", Tokens::new().with("name", "hidden", ["r"])).contains("hidden"));
    }
}

//! [`ConnectError`]: why there is no connection.

use std::io::{Error, ErrorKind};

use crate::address::Address;
use crate::greeting::Refusal;

/// Why a client has no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No server is at the address.
    #[error("no server at {address}: {cause}; start it, or compare the address with the one it prints")]
    Absent {
        /// The address.
        address: String,
        /// The system's reason.
        cause: String,
    },
    /// The server did not answer in time.
    #[error(
        "the server at {address} did not answer in time; see whether it hangs or is stopped, \
         or allow more time with Connect::deadline"
    )]
    TimedOut {
        /// The address.
        address: String,
    },
    /// The server does not accept this client.
    #[error("the server at {address} refused the connection: {refusal}")]
    Refused {
        /// The address.
        address: String,
        /// Its reason.
        refusal: Refusal,
    },
    /// The server at the address does not know the token.
    #[error("what answers at {address} does not know the token; it is not the server that was meant")]
    Impostor {
        /// The address.
        address: String,
    },
    /// The server at the address runs as another user.
    #[error("what answers at {address} runs as another user; connect with a token that it must know")]
    OtherUser {
        /// The address.
        address: String,
    },
    /// The client belongs to the process of which this one is a forked child.
    #[error("the client of {address} belongs to the process that made it, which has forked this one; make a new one")]
    Forked {
        /// The address.
        address: String,
    },
    /// The runtime of tokio that was to receive for the client has ended.
    #[error("the runtime of tokio that receives for the client of {address} has ended; make a new one in another")]
    RuntimeEnded {
        /// The address.
        address: String,
    },
    /// The client asked for RDMA, and cannot have it.
    #[error("cannot connect to {address} by RDMA: {cause}")]
    Rdma {
        /// The address.
        address: String,
        /// The missing part and the remedy.
        cause: String,
    },
    /// The system reported a failure.
    #[error("cannot connect to {address}: {cause}")]
    Failed {
        /// The address.
        address: String,
        /// The system's reason, and what to do.
        cause: String,
    },
}

impl ConnectError {
    pub(crate) fn of(address: &Address, cause: Error) -> Self {
        let address = address.to_string();
        match cause.kind() {
            ErrorKind::TimedOut => Self::TimedOut { address },
            ErrorKind::ConnectionRefused | ErrorKind::NotFound => Self::Absent { address, cause: cause.to_string() },
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                let cause = "it closed the connection during the greeting; see whether it still runs, and is a server \
                             of this library";
                Self::Failed { address, cause: cause.into() }
            }
            kind => Self::Failed { address, cause: format!("{cause}; {}", remedy(kind)) },
        }
    }

    pub(crate) fn refused(address: &Address, refusal: Refusal) -> Self {
        Self::Refused { address: address.to_string(), refusal }
    }

    /// Returns whether the same attempt may succeed a moment later.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Absent { .. } => true,
            Self::Refused { refusal, .. } => matches!(refusal, Refusal::Full { .. } | Refusal::ShuttingDown),
            Self::Failed { .. } => true,
            Self::TimedOut { .. } | Self::Impostor { .. } | Self::OtherUser { .. } | Self::Forked { .. } => false,
            Self::RuntimeEnded { .. } | Self::Rdma { .. } => false,
        }
    }
}

/// Returns the remedy for a failure of the system.
fn remedy(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::PermissionDenied => "let this user access the socket, or the file with the address",
        ErrorKind::InvalidData | ErrorKind::InvalidInput => "compare the address with the one that the server prints",
        ErrorKind::WouldBlock => "the server accepts too slowly; see whether it hangs or is stopped",
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::AddrNotAvailable => {
            "see whether this machine reaches the server's, and whether a firewall is between them"
        }
        _ => "look for what this process lacks, such as descriptors or memory, and connect again",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each text says what happened, and what to do.
    #[test]
    fn errors_name_cause_and_remedy() {
        let address: Address = "tcp://host:7000".parse().unwrap();
        let of = |kind: ErrorKind| ConnectError::of(&address, kind.into());
        let refused = |refusal| ConnectError::refused(&address, refusal);
        let connect = [
            (of(ErrorKind::TimedOut), "did not answer in time", "Connect::deadline"),
            (of(ErrorKind::UnexpectedEof), "during the greeting", "see whether it still runs"),
            (of(ErrorKind::PermissionDenied), "permission denied", "let this user access"),
            (of(ErrorKind::InvalidData), "invalid data", "compare the address"),
            (of(ErrorKind::HostUnreachable), "host unreachable", "see whether this machine reaches"),
            (of(ErrorKind::OutOfMemory), "out of memory", "connect again"),
            (refused(Refusal::ShuttingDown), "shutting down", "connect again when"),
            (refused(Refusal::Malformed { why: "short".into() }), "greeting: short", "from one release"),
        ];
        for (error, cause, remedy) in connect {
            let text = error.to_string();
            let (before, after) = text.rsplit_once(';').unwrap_or_default();
            assert!(before.contains(cause) && after.contains(remedy), "{text}");
        }
    }
}

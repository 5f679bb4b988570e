//! The errors of clients.

use std::io::{Error, ErrorKind};
use std::time::Duration;

use farside_wire::WireError;

use crate::address::Address;
use crate::greeting::Refusal;
use crate::path::LinkEnd;

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
    /// What is at the address does not know the token.
    #[error("what answers at {address} does not know the token; it is not the server that was meant")]
    Impostor {
        /// The address.
        address: String,
    },
    /// What is at the address runs as another user.
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
    /// The client asked for [RDMA](crate::Connect::rdma), and cannot have it.
    #[error("cannot connect to {address} by RDMA: {cause}")]
    Rdma {
        /// The address.
        address: String,
        /// What is missing, and what to do.
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

    /// Whether the same attempt may succeed a moment later.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Absent { .. } => true,
            Self::Refused { refusal, .. } => matches!(refusal, Refusal::Full { .. } | Refusal::ShuttingDown),
            Self::Failed { .. } => true,
            Self::TimedOut { .. } | Self::Impostor { .. } | Self::OtherUser { .. } | Self::Forked { .. } => false,
            Self::RuntimeEnded { .. } | Self::Rdma { .. } => false,
        }
    }
}

/// What to do after a failure of the system.
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

/// Whether a call that failed has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// It has not run, and will not.
    No,
    /// It may have run, in part or whole.
    Maybe,
}

/// The error of a procedure that never fails by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, farside_wire::Wire, thiserror::Error)]
#[wire(crate = "farside_wire")]
#[error("no error")]
pub enum Never {}

/// Why a call failed. `E` is the service's own error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError<E> {
    /// The service returned an error.
    #[error("{0}")]
    Service(E),
    /// The deadline passed.
    #[error("the deadline passed {stage}; raise it with Client::deadline")]
    Deadline {
        /// Where the call was.
        stage: Stage,
    },
    /// This side cancelled the call, or the server did because it ended.
    #[error(
        "the call was cancelled, by its caller or because the server ended, and may have run; \
         call again if its result is wanted"
    )]
    Cancelled,
    /// The server has too much to do. The call did not run.
    #[error("the server is busy: it allows {limit} {what} at once; try again later")]
    Busy {
        /// The limit.
        limit: u64,
        /// What it limits.
        what: String,
    },
    /// The connection ended before the answer came.
    #[error("the call was lost, and {}", match ran {
        Ran::No => format!("did not run: {cause}; call again"),
        Ran::Maybe => format!("may have run: {cause}; call again if it may run twice, or mark it as idempotent"),
    })]
    Lost {
        /// Whether it may have run.
        ran: Ran,
        /// Why the connection ended.
        cause: LinkEnd,
    },
    /// There is no connection. The call did not run.
    #[error("{0}")]
    Connect(#[from] ConnectError),
    /// The server has no such procedure, service or provider. The call did not run.
    #[error("the server has no {name}; it has: {served}; compare name and provider, or start a server that has it")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What the server has instead.
        served: String,
    },
    /// The procedure has other types at the server. The call did not run.
    #[error("{name} has other types at the server: here {ours}, there {theirs}; build both from one source")]
    Shape {
        /// The procedure.
        name: String,
        /// Its types here.
        ours: String,
        /// Its types at the server.
        theirs: String,
    },
    /// The other side could not decode what was sent.
    #[error(
        "{what} could not be decoded: {cause}; build both programs from one source, \
         and compare what implements Wire by hand"
    )]
    Undecodable {
        /// Arguments or result.
        what: &'static str,
        /// The reason.
        cause: String,
    },
    /// The arguments or the result are too long.
    #[error(
        "{what} of {bytes} bytes are too long; the server allows {max}: send bulk data, or raise Builder::max_bytes"
    )]
    TooLarge {
        /// Arguments or result.
        what: &'static str,
        /// Their length.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// The handler panicked.
    #[error("the handler panicked: {0}")]
    Panicked(String),
    /// The server is shutting down. The call did not run.
    #[error("the server is shutting down, and did not run the call; call again when it has been started anew")]
    ShuttingDown,
}

/// Where a call was when its deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// The client had no connection, or its one-way call waited for earlier ones.
    Sending,
    /// The server had not answered. The call may have run.
    Waiting,
    /// The server did not run it: its deadline passed in a queue.
    Queued,
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Sending => "before the call was sent",
            Self::Waiting => "while the call waited for its answer; it may have run",
            Self::Queued => "in a queue of the server; the call did not run",
        })
    }
}

impl<E> CallError<E> {
    pub(crate) fn undecodable(what: &'static str, cause: &WireError) -> Self {
        Self::Undecodable { what, cause: cause.to_string() }
    }

    /// Whether the call may have run.
    pub fn ran(&self) -> Ran {
        match self {
            Self::Service(_) | Self::Panicked(_) | Self::Cancelled => Ran::Maybe,
            Self::Deadline { stage: Stage::Waiting } => Ran::Maybe,
            Self::Undecodable { what, .. } | Self::TooLarge { what, .. } if *what == RESULT => Ran::Maybe,
            Self::Lost { ran, .. } => *ran,
            _ => Ran::No,
        }
    }

    /// The same error with another type of service errors, unless it is the service's.
    pub(crate) fn with_service<F>(self, map: impl FnOnce(E) -> CallError<F>) -> CallError<F> {
        match self {
            Self::Service(error) => map(error),
            Self::Deadline { stage } => CallError::Deadline { stage },
            Self::Cancelled => CallError::Cancelled,
            Self::Busy { limit, what } => CallError::Busy { limit, what },
            Self::Lost { ran, cause } => CallError::Lost { ran, cause },
            Self::Connect(error) => CallError::Connect(error),
            Self::Unknown { name, served } => CallError::Unknown { name, served },
            Self::Shape { name, ours, theirs } => CallError::Shape { name, ours, theirs },
            Self::Undecodable { what, cause } => CallError::Undecodable { what, cause },
            Self::TooLarge { what, bytes, max } => CallError::TooLarge { what, bytes, max },
            Self::Panicked(message) => CallError::Panicked(message),
            Self::ShuttingDown => CallError::ShuttingDown,
        }
    }
}

/// What `what` says in [`CallError::Undecodable`] and [`CallError::TooLarge`].
pub(crate) const ARGUMENTS: &str = "the arguments";
pub(crate) const RESULT: &str = "the result";

/// The default deadline of a call.
pub(crate) const DEFAULT_DEADLINE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    /// Each text says what happened, and what to do.
    #[test]
    fn errors_name_cause_and_remedy() {
        let call: [(CallError<Never>, &str, &str); 6] = [
            (CallError::ShuttingDown, "shutting down", "started anew"),
            (CallError::Cancelled, "cancelled", "call again if"),
            (CallError::Lost { ran: Ran::No, cause: LinkEnd::ByPeer }, "did not run: the peer closed", "call again"),
            (
                CallError::Lost { ran: Ran::Maybe, cause: LinkEnd::Here },
                "may have run: the conn",
                "mark it as idempotent",
            ),
            (CallError::Undecodable { what: RESULT, cause: "no bool".into() }, "result could", "from one source"),
            (CallError::Unknown { name: "a/0/b".into(), served: "c".into() }, "no a/0/b; it has: c", "compare name"),
        ];
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
        let connect = connect.into_iter().map(|(error, cause, remedy)| (CallError::Connect(error), cause, remedy));
        for (error, cause, remedy) in call.into_iter().chain(connect) {
            let text = error.to_string();
            let (before, after) = text.rsplit_once(';').unwrap_or_default();
            assert!(before.contains(cause) && after.contains(remedy), "{text}");
        }
    }
}

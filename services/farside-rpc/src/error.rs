//! The errors of clients.

use std::time::Duration;

use farside_connect::{ConnectError, LinkEnd};
use farside_wire::WireError;

/// The fate of a call that failed: it may have run, or it did not.
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
        /// The resource that is limited.
        what: String,
    },
    /// The connection ended before the answer came.
    #[error("the call was lost, and {}", match ran {
        Ran::No => format!("did not run: {cause}; call again"),
        Ran::Maybe => format!("may have run: {cause}; call again if it may run twice, or mark it as idempotent"),
    })]
    Lost {
        /// The fate of the call.
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
        /// The name that was asked for.
        name: String,
        /// The shape that the server has.
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

    /// Returns whether the call may have run.
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

/// The words of `what` in [`CallError::Undecodable`] and [`CallError::TooLarge`].
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
        for (error, cause, remedy) in call {
            let text = error.to_string();
            let (before, after) = text.rsplit_once(';').unwrap_or_default();
            assert!(before.contains(cause) && after.contains(remedy), "{text}");
        }
    }
}

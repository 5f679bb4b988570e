//! The errors of `farside rpc`, and the exit status of each.

use std::io;
use std::path::PathBuf;

use farside_command::{Failure, USAGE, with_causes};

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// The server could not be asked.
    #[error("{0}")]
    Rpc(String),
    /// The arguments for a procedure are invalid.
    #[error("{0}")]
    Arguments(String),
    /// A procedure returned its own error: one line of JSON.
    #[error("{0}")]
    Service(String),
    /// Memory that the procedure wrote could not be kept in a file.
    #[error("cannot write {}", path.display())]
    MemoryFile {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// The secret of a token could not be read.
    #[error("cannot read the secret in {}", path.display())]
    SecretFile {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// The standard output is closed.
    #[error("writing to the standard output failed: {0}")]
    Output(io::Error),
}

impl Failure for RpcError {
    fn exit_status(&self) -> u8 {
        if matches!(self, Self::Arguments(_)) { USAGE } else { 1 }
    }

    fn report(&self) -> Option<String> {
        Some(match self {
            // For programs that read it.
            Self::Service(json) => json.clone(),
            _ => format!("farside: error: {}", with_causes(self)),
        })
    }
}

pub(crate) fn failed(error: impl ToString) -> RpcError {
    RpcError::Rpc(error.to_string())
}
